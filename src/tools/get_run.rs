//! `fabric_get_run`: the state and output of a run, as long as it is kept.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::{Charge, MEMORY};
use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{Error, Kind, no_room};
use crate::runs::{Run, RunState, Waited};
use crate::time;

use super::run_result::{self, DEFAULT_FORMAT, Rest};
use super::{Arguments, ChunkKind, Failure, Job, Outcome, Policy, Prepared, Tool, Work, refused};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_run",
    title: "Get a run",
    description: "Get the output of a run of fabric_run_pattern, waiting for its end. Without \
                  run_id: your latest runs.",
    input: INPUT,
    output: OUTPUT,
    read_only: true,
    prepare,
};

/// Most seconds of `wait_seconds`: below the timeout of the least patient clients.
const MAX_WAIT: u64 = 50;

/// Runs in a list.
const LATEST: usize = 50;

const INPUT: &str = r#"{
  "type":"object",
  "properties":{
    "run_id":{"type":"string","description":"The run."},
    "wait_seconds":{"type":"integer","minimum":0,"maximum":50,"description":"Default 50."},
    "offset":{"type":"integer","minimum":0,"maximum":33554432,"description":"Characters to skip."},
    "max_chars":{"type":"integer","minimum":1,"maximum":33554432,"description":"Most characters."}
  },
  "additionalProperties":false
}"#;

const OUTPUT: &str = r#"{
  "type":"object",
  "properties":{
    "run_id":{"type":"string","description":"The run."},
    "status":{"type":"string","description":"working, completed, failed, cancelled or interrupted (the server ended first)."},
    "patterns":{"type":"array","items":{"type":"string"},"description":"What it ran."},
    "model":{"type":"string","description":"The model asked for, where one was."},
    "created_at":{"type":"string","description":"When it began."},
    "output_format":{"type":"string","description":"markdown, mermaid or plain."},
    "output_text":{"type":"string","description":"The output from offset on."},
    "total_chars":{"type":"integer","description":"Characters of the whole output so far."},
    "next_offset":{"type":"integer","description":"The offset at which the next part begins, where there is one."},
    "usage":{"type":"object","properties":{},"description":"Tokens used, where Fabric reports them."},
    "error":{"type":"object","properties":{},"description":"Why it did not complete."},
    "warnings":{"type":"array","items":{"type":"string"},"description":"What must not be overlooked."},
    "runs":{
      "type":"array",
      "items":{
        "type":"object",
        "properties":{
          "run_id":{"type":"string","description":"The run."},
          "status":{"type":"string","description":"Its state."},
          "patterns":{"type":"array","items":{"type":"string"},"description":"What it ran."},
          "age_seconds":{"type":"integer","description":"Seconds since it began."},
          "total_chars":{"type":"integer","description":"Characters of its output so far."}
        }
      },
      "description":"Without run_id: your runs, the latest first."
    }
  }
}"#;

struct GetRun {
    run_id: Option<String>,
    wait: Duration,
    offset: usize,
    max_chars: Option<usize>,
}

fn prepare(mut arguments: Arguments, _: &Policy) -> Prepared {
    let run_id = arguments.string("run_id")?;
    let wait = arguments
        .integer("wait_seconds", 0..=MAX_WAIT)?
        .unwrap_or(MAX_WAIT);
    let offset = arguments
        .integer("offset", 0..=MAX_RUN_OUTPUT as u64)?
        .unwrap_or(0) as usize;
    let max_chars = arguments
        .integer("max_chars", 1..=MAX_RUN_OUTPUT as u64)?
        .map(|n| n as usize);
    arguments.end(TOOL.arguments())?;
    Ok(Box::new(GetRun {
        run_id,
        wait: Duration::from_secs(wait),
        offset,
        max_chars,
    }))
}

/// The caller's run. Unknown, expired and foreign ids get the same error.
pub(super) fn find(work: &Work, run_id: &str) -> Result<Run, Error> {
    work.runs.find(run_id, &work.owner).ok_or_else(|| {
        refused(
            "`run_id` is no run of yours that is kept: it never was, or its time (--keep-runs) is over. Take it from the \
             result of fabric_run_pattern.",
        )
    })
}

impl Job for GetRun {
    fn run(&self, work: &Work) -> Result<Outcome, Failure> {
        let Some(run_id) = &self.run_id else {
            return self.list(work);
        };
        let run = find(work, run_id)?;
        self.follow(&run, work)?;
        shown(&run, self.offset, self.max_chars)
    }

    fn waits(&self) -> bool {
        self.run_id.is_some() && !self.wait.is_zero()
    }
}

impl GetRun {
    fn list(&self, work: &Work) -> Result<Outcome, Failure> {
        let page = work.runs.list(&work.owner, None, LATEST).ok_or_else(|| {
            refused(
                "`run_id` is missing: without a login there is no list of runs, as whoever has its id may read a run. \
                 Take it from the result of fabric_run_pattern, or use a server with tokens (--tokens-file).",
            )
        })?;
        let now = time::milliseconds_now();
        let entry = |run: &Run| {
            let record = run.record();
            json!({
                "run_id": record.id,
                "status": record.state.name(),
                "patterns": record.patterns,
                "age_seconds": now.saturating_sub(record.created) / 1000,
                "total_chars": record.chars,
            })
        };
        let runs: Vec<Value> = page.runs.iter().map(entry).collect();
        let rows = runs.len();
        Ok(Outcome::rows(json!({ "runs": runs }), rows))
    }

    /// Waits for the end, at most as long as asked, and relays the text from `offset` on.
    fn follow(&self, run: &Run, work: &Work) -> Result<(), Error> {
        work.caller.begin_step(true, true);
        let begun = std::time::Instant::now();
        let record = run.record();
        let mut seen = match record.state {
            RunState::Working => run.read_chars(0, self.offset).len() as u64,
            _ => return Ok(()),
        };
        loop {
            let left = self.wait.saturating_sub(begun.elapsed());
            match run.wait(Some(seen), left, &mut || {
                work.caller.still_waiting().is_ok()
            }) {
                Waited::More => {
                    let text = run.read(seen, MAX_RUN_OUTPUT);
                    if text.is_empty() {
                        return Ok(());
                    }
                    seen += text.len() as u64;
                    work.caller.chunk(ChunkKind::Content, DEFAULT_FORMAT, &text);
                    work.caller.flush();
                }
                Waited::Stopped => return Err(Error::cancelled()),
                Waited::Ended | Waited::TimedOut => return Ok(()),
            }
            if work.caller.still_waiting().is_err() {
                return Err(Error::cancelled());
            }
        }
    }
}

/// A run and its text from `offset` on.
pub(super) fn shown(
    run: &Run,
    offset: usize,
    max_chars: Option<usize>,
) -> Result<Outcome, Failure> {
    let record = run.record();
    let rest = Rest::of(&record);
    let mut memory = MEMORY.open();
    if memory
        .grow(run_result::most_bytes(&record, max_chars))
        .is_err()
    {
        return Err(no_room().into());
    }
    let text = run.read_chars(offset, max_chars.unwrap_or(MAX_RUN_OUTPUT));
    let end = offset + text.chars().count();
    let next_offset = ((end as u64) < record.chars).then_some(end);
    let mut warnings = rest.warnings;
    let error = run_result::error(&record);
    match &error {
        Some(error) if error.kind == Kind::Cancelled => warnings.push(format!(
            "The run was {}: this is what had arrived of its output.",
            record.state.name()
        )),
        Some(error) => warnings.push(format!("The run failed. {}", error.detail)),
        None if record.state == RunState::Working => {
            warnings.push(
                "The run is still working: call fabric_get_run again for the rest.".to_owned(),
            );
        }
        None => {}
    }
    if let Some(next) = next_offset.filter(|_| record.state != RunState::Working) {
        warnings.push(format!(
            "There is more of the output: call fabric_get_run again with offset {next}."
        ));
    }
    let shown = RunView {
        run_id: record.id.to_string(),
        status: record.state.name(),
        patterns: record.patterns,
        model: record.model,
        created_at: time::rfc3339_to_the_millisecond(record.created as i64),
        output_format: rest.format.unwrap_or_else(|| DEFAULT_FORMAT.to_owned()),
        output_text: text,
        total_chars: record.chars,
        next_offset,
        usage: record.usage,
        error: error
            .map(|e| json!({ "type": e.kind.urn(), "title": e.kind.title(), "detail": e.detail })),
        warnings: warnings.clone(),
        _memory: memory,
    };
    Ok(Outcome {
        warnings,
        ..Outcome::text(shown, |shown| &shown.output_text)
    })
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Of the text.
    #[serde(skip)]
    _memory: Charge,
}
