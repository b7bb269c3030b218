//! `fabric_get_run`: the state and output of a run, as long as it is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::access::Role;
use crate::account::{Guard, Resource};
use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{Error, Kind, Wait};
use crate::runs::{Run, RunState, Waited};
use crate::time;

use super::run_result::{self, DEFAULT_FORMAT, Rest};
use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool, refused};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_run",
    title: "Get a run",
    description: "Get the output of a run of fabric_run_pattern, waiting for its end. Without \
                  run_id: your latest runs.",
    output: include_str!("results/get_run.json"),
    read_only: true,
    role: Role::Read,
    prepare,
};

/// Most seconds of `wait_seconds`: below the timeout of the least patient clients.
const MAX_WAIT: usize = 50;

/// Runs in a list.
const LATEST: usize = 50;

/// Text of a run is relayed in pieces of this size, in bytes: many may follow one long run.
const PIECE: usize = 16 << 10;

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let run_id = arguments.string("run_id", "The run.");
    let wait = arguments.integer("wait_seconds", (0, MAX_WAIT), "Default 50.");
    let wait = Duration::from_secs(wait.unwrap_or(MAX_WAIT) as u64);
    let offset = arguments.offset(MAX_RUN_OUTPUT, "Characters to skip.");
    let max_chars = arguments.max_chars(MAX_RUN_OUTPUT, "Max characters.");
    let Some(run_id) = run_id else {
        return Ok(Prepared::new(list));
    };
    let place = match wait.is_zero() {
        true => Resource::Calls,
        false => Resource::Waits,
    };
    Ok(Prepared {
        place,
        ..Prepared::new(move |context| {
            let run = find(context, "run_id", &run_id)?;
            follow(context, &run, wait, offset)?;
            shown(context, &run, offset, max_chars)
        })
    })
}

/// The caller's run, which `argument` names. Unknown, expired and foreign ids get the same error.
pub(super) fn find(context: &Context, argument: &str, run_id: &str) -> Result<Run, Error> {
    let (runs, owner) = (&context.backend.runs, &context.caller.owner);
    runs.find(run_id, owner).ok_or_else(|| {
        refused(format!(
            "`{argument}` is no run of yours that is kept: it never was, or its time (--keep-runs) is over. Take it from \
             the result of fabric_run_pattern.",
        ))
        .about(argument)
    })
}

fn list(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let (runs, owner) = (&context.backend.runs, &context.caller.owner);
    let page = runs.list(owner, None, LATEST).ok_or_else(|| {
        refused(
            "`run_id` is missing: without a login there is no list of runs, as whoever has its id may read a run. \
             Take it from the result of fabric_run_pattern, or use a server with tokens (--tokens-file).",
        )
        .about("run_id")
    })?;
    let now = time::milliseconds_now();
    let entry = |run: &Run| {
        let record = run.bare();
        let mut entry = json!({
            "run_id": record.id,
            "status": record.state.name(),
            "patterns": record.patterns,
            "age_seconds": now.saturating_sub(record.created) / 1000,
        });
        if let Some(chars) = record.chars {
            entry["total_chars"] = chars.into();
        }
        entry
    };
    let runs: Vec<Value> = page.runs.iter().map(entry).collect();
    let rows = runs.len();
    Ok(Outcome::rows(json!({ "runs": runs }), rows))
}

/// Waits for the end, at most as long as asked, and relays the text from character `offset` on.
fn follow(context: &Context, run: &Run, wait: Duration, offset: usize) -> Result<(), Error> {
    context.stream_text(true);
    if run.bare().state != RunState::Working {
        return Ok(());
    }
    let begun = Instant::now();
    // What comes before `offset` is not relayed, even if it is still to come.
    let mut chars = 0;
    let mut seen = 0;
    loop {
        let left = wait.saturating_sub(begun.elapsed());
        let waited = run.wait(Some(seen), left, &mut || context.still_waiting().is_ok());
        match waited {
            Waited::More => {
                let text = run.read(seen, PIECE);
                if text.is_empty() {
                    return Ok(());
                }
                seen += text.len() as u64;
                let skipped = text
                    .char_indices()
                    .nth(offset.saturating_sub(chars))
                    .map_or("", |(at, _)| &text[at..]);
                chars += text.chars().count();
                if !skipped.is_empty() {
                    context.content(DEFAULT_FORMAT, skipped);
                }
                if run.bare().bytes <= seen {
                    context.flush();
                }
            }
            Waited::Stopped => return Err(Error::cancelled()),
            Waited::Ended | Waited::TimedOut => return Ok(()),
        }
        if context.still_waiting().is_err() {
            return Err(Error::cancelled());
        }
    }
}

/// A run and its text from `offset` on.
pub(super) fn shown(
    context: &Context,
    run: &Run,
    offset: usize,
    max_chars: Option<usize>,
) -> Result<Outcome, Failure> {
    let mut memory = context.caller.account.open(Resource::Memory);
    let record = run_result::record(run, &mut memory)?;
    let rest = Rest::of(&record);
    let text = run_result::text(run, &record, offset, max_chars, &mut memory)?;
    let (end, total_chars) = (offset + text.chars().count(), run.chars());
    let next_offset = ((end as u64) < total_chars).then_some(end);
    let mut warnings = rest.warnings;
    let error = run_result::error(&record);
    match &error {
        Some(error) if error.kind == Kind::Cancelled => warnings.push(format!(
            "The run was {}: this is what had arrived of its output.",
            record.state.name()
        )),
        Some(error) => warnings.push(format!("The run failed. {}", error.detail)),
        None if record.state == RunState::Working => warnings
            .push("The run is still working: call fabric_get_run again for the rest.".to_owned()),
        None => {}
    }
    if let Some(next) = next_offset.filter(|_| record.state != RunState::Working) {
        warnings.push(format!(
            "There is more of the output: call fabric_get_run again with offset {next}."
        ));
    }
    let idle_timeout = context.backend.fabric.idle_timeout();
    let silence = run_result::silence(record.silence(), idle_timeout);
    let shown = RunView {
        run_id: record.id.to_string(),
        status: record.state.name(),
        patterns: record.patterns,
        model: record.model,
        created_at: time::timestamp(record.created),
        output_format: rest.format.unwrap_or_else(|| DEFAULT_FORMAT.to_owned()),
        output_text: text,
        total_chars,
        next_offset,
        usage: record.usage,
        error: error
            .map(|e| json!({ "type": e.kind.urn(), "title": e.kind.title(), "detail": e.detail })),
        _memory: memory,
    };
    Ok(Outcome::text(
        shown,
        |shown| &shown.output_text,
        silence,
        warnings,
    ))
}

#[derive(Serialize)]
struct RunView {
    run_id: String,
    status: &'static str,
    patterns: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    model: String,
    created_at: String,
    output_format: String,
    output_text: String,
    total_chars: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    /// Of record and text.
    #[serde(skip)]
    _memory: Guard,
}
