//! `fabric_get_run`: the state and output of a run, as long as it is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::account::Resource;
use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{CallObserver, Error};
use crate::runs::{Run, RunState, SLICE};
use crate::time;

use super::part::Part;
use super::run_result::{DEFAULT_FORMAT, result};
use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool, refused};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_run",
    title: "Get a run",
    description: "Get the output of a run of fabric_run_pattern, waiting for its end. Without \
                  run_id: your latest runs.",
    output: include_str!("results/get_run.json"),
    read_only: true,
    declare,
};

/// Most seconds of `wait_seconds`: below the timeout of the least patient clients.
const MAX_WAIT: usize = 50;

/// Runs in a list.
const LATEST: usize = 50;

/// Text of a run is relayed in pieces of this size, in bytes: many may follow one long run.
const PIECE: usize = 16 << 10;

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let run_id = arguments.string("run_id", "The run.");
    let wait = arguments.wait(MAX_WAIT, "Default 50.");
    let wait = wait.unwrap_or(Duration::from_secs(MAX_WAIT as u64));
    let all = (MAX_RUN_OUTPUT, MAX_RUN_OUTPUT);
    let (offset, max_chars) = arguments.part(all, "Characters to skip.", "Max characters.");
    let Some(run_id) = run_id else {
        return Ok(Prepared::new(list));
    };
    let needs = match wait.is_zero() {
        true => Resource::Calls,
        false => Resource::Waits,
    };
    Ok(Prepared {
        needs,
        ..Prepared::new(move |context| {
            let run = find(context, "run_id", &run_id)?;
            follow(context, &run, wait, offset)?;
            let (backend, account) = (&context.backend, &context.caller.account);
            result(&run, Some((offset, max_chars)), backend, account)
        })
    })
}

/// The caller's run, which `argument` names. Unknown, expired and foreign ids get the same error.
pub(super) fn find(context: &Context, argument: &str, run_id: &str) -> Result<Run, Error> {
    let (runs, owner) = (&context.backend.runs, &context.caller.identity);
    runs.find(run_id, owner).ok_or_else(|| {
        refused(format!(
            "`{argument}` is not the id of a run of yours that is kept: it is mistyped, its time (--keep-runs) is over, or the server was \
             restarted without --state-dir. Take it from the result of fabric_run_pattern.",
        ))
        .about(argument)
    })
}

fn list(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let (runs, owner) = (&context.backend.runs, &context.caller.identity);
    let ids = runs.list(owner).ok_or_else(|| {
        refused(
            "`run_id` is missing: without a login there is no list of runs, as whoever has its id may read a run. \
             Take it from the result of fabric_run_pattern, or use a server with tokens (--tokens-file).",
        )
        .about("run_id")
    })?;
    let now = time::milliseconds_now();
    let entry = |run: Run| {
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
    let latest = ids.iter().take(LATEST);
    let latest = latest.filter_map(|id| runs.find(&id.to_string(), owner));
    let runs: Vec<Value> = latest.map(entry).collect();
    Ok(Outcome::rows(runs.len()).member("runs", runs))
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
        let record = run.wait(seen, left.min(SLICE));
        if record.bytes > seen {
            let text = run.read(seen, PIECE);
            if text.is_empty() {
                return Ok(());
            }
            seen += text.len() as u64;
            let skip = offset.saturating_sub(chars);
            chars += text.chars().count();
            context.content(DEFAULT_FORMAT, Part::of(&text, (skip, PIECE)).text);
            if record.bytes <= seen {
                context.flush();
            }
        } else if record.state != RunState::Working || left.is_zero() {
            return Ok(());
        }
        context.still_waiting()?;
    }
}
