//! What `fabric_run_pattern` and `fabric_get_run` show of a run, and how it ends: the stored run is the only result. The
//! answer to the call, tasks, and every later look are this view of it, also after a restart. Also a run as an MCP task,
//! as the extension of 2026-07-28 and the core of 2025-11-25 have it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::account::{Account, QuotaExceeded, Resource};
use crate::config::{MAX_PARTIAL_TEXT, MAX_RUN_OUTPUT};
use crate::fabric::{Error, Kind, Usage};
use crate::protocol::{ResultWriter, Revision};
use crate::runs::{Record, Run, RunError, RunReport, RunState, RunWriter};
use crate::text::counted;
use crate::time::timestamp;

use super::outcome::too_large;
use super::part::nothing_there;
use super::{Backend, Outcome, ToolResult};

/// The format of most output.
pub(super) const DEFAULT_FORMAT: &str = "markdown";

/// After this much silence of a run, its caller is told.
const SILENCE: Duration = Duration::from_secs(30);

/// Suggested polling interval, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;

/// What a caller is told if nothing has arrived from a run for this long; `None` if that is usual. `limit` is how long
/// a run may be silent.
pub(crate) fn silence(silence: Duration, limit: Duration) -> Option<String> {
    (silence >= SILENCE && !limit.is_zero()).then(|| {
        format!(
            "Nothing has arrived for {} s. Fabric does not say when its model fails, so the run \
             is given up after {} s.",
            silence.as_secs(),
            limit.as_secs()
        )
    })
}

/// Stores the end of a run, and what its steps used.
pub(super) fn finish(run: &RunWriter, result: ToolResult, usage: Option<Usage>, request_id: &str) {
    let usage = usage.map(|usage| json!(usage));
    let mut error = match result {
        Err(error) => error,
        Ok(Outcome { report, .. }) => {
            return run.finish(RunState::Completed, RunReport { usage, ..report });
        }
    };
    // What had arrived of the result is the run's text already.
    if run.run().record().bytes > 0 {
        error.partial.pop();
    }
    let end = match error.kind {
        Kind::Cancelled => RunState::Cancelled,
        _ => RunState::Failed,
    };
    let report = RunReport {
        usage,
        error: Some(RunError {
            kind: error.kind.name().to_owned(),
            detail: error.detail,
            retry_after_ms: error.retry_after.map(|after| after.as_millis() as u64),
        }),
        partial: error.partial,
        request_id: Some(request_id.to_owned()),
        ..RunReport::default()
    };
    run.finish(end, report);
}

/// Why a run failed.
fn error(record: &Record) -> Option<Error> {
    match record.state {
        RunState::Working | RunState::Completed => None,
        RunState::Cancelled => Some(Error::cancelled()),
        RunState::Interrupted => Some(Error::stopped()),
        RunState::Failed => {
            let stored = record.report.error.clone().unwrap_or_default();
            let kind = Kind::named(&stored.kind).unwrap_or(Kind::Internal);
            Some(Error {
                retry_after: stored.retry_after_ms.map(Duration::from_millis),
                ..Error::new(kind, stored.detail)
            })
        }
    }
}

/// What is shown of a run: the result of its call, or its text so far; or with a `part`, an offset and a number of
/// characters, what `fabric_get_run` says of it however it ended.
pub(crate) fn result(
    run: &Run,
    part: Option<(usize, usize)>,
    backend: &Backend,
    account: &Account,
) -> ToolResult {
    let record = run.record();
    let report = &record.report;
    let error = error(&record);
    let earlier = || {
        let steps = report.partial.iter().zip(&record.patterns).zip(1..);
        steps.map(|((text, pattern), step)| {
            format!("Output of step {step} ({pattern}), which is not the result: {text}")
        })
    };
    let failed = |mut error: Error| {
        if part.is_none() {
            let text = Some(run.read(0, MAX_PARTIAL_TEXT)).filter(|text| !text.is_empty());
            error.partial = earlier().chain(text).collect();
        }
        error
    };
    if let (Some(error), None) = (&error, part) {
        return Err(failed(error.clone()));
    }
    let run_id = Some(record.id).filter(|_| backend.runs.is_kept(run));
    let all = run.chars() as usize;
    let (offset, most) = part.unwrap_or((0, report.max_chars.unwrap_or(MAX_RUN_OUTPUT)));
    // More text may arrive in the meantime.
    let (given, offset) = (offset, offset.min(all));
    let most = most.min(all - offset);
    // The text, and the record, which may just have been read from its file.
    let bytes = most.saturating_mul(4).min(record.bytes as usize) + record.rest();
    let memory = account.take(Resource::Memory, bytes);
    let memory = memory.map_err(|QuotaExceeded| failed(too_large(run_id)))?;
    let silence = silence(run.silence(), backend.fabric.settings.idle_timeout)
        .map(|told| told + " fabric_cancel_run stops it.")
        .map(|told| backend.policy.offered(&told));
    let outcome = Outcome {
        is_silent: silence.is_some(),
        run_id,
        _memory: Some(memory),
        ..Outcome::text("output_text", run.read_chars(offset, most))
    };
    let format = report.format.as_deref().unwrap_or(DEFAULT_FORMAT);
    let outcome = outcome
        .member("output_format", format)
        .member("status", record.state.name())
        .optional("usage", report.usage.as_ref())
        .warn(silence)
        .warn(report.warnings.iter().cloned());
    let (id, end) = (record.id, offset + most);
    let is_working = record.state == RunState::Working;
    if part.is_some() {
        let again = "call fabric_get_run again with offset";
        let state = match &error {
            Some(error) if error.kind == Kind::Cancelled => Some(format!(
                "The run was {}: this is the part of its output that had arrived.",
                record.state.name()
            )),
            Some(error) => Some(format!("The run failed. {}", error.detail)),
            None if is_working => Some(format!(
                "The run is still working: {again} {end} for the rest."
            )),
            None => None,
        };
        let earlier = earlier().filter(|_| !is_working && offset == 0);
        let next = Some(end).filter(|end| *end < all);
        let more = next.filter(|_| !is_working);
        let more = more.map(|next| format!("There is more of the output: {again} {next}."));
        let error = error
            .map(|e| json!({ "type": e.kind.urn(), "title": e.kind.title(), "detail": e.detail }));
        let model = Some(&record.model).filter(|model| !model.is_empty());
        return Ok(outcome
            .warn(state)
            .warn((given > all).then(|| nothing_there("output", all)))
            .warn(earlier)
            .warn(more)
            .member("run_id", id)
            .member("patterns", &record.patterns)
            .optional("model", model)
            .member("created_at", timestamp(record.created))
            .member("total_chars", all)
            .optional("next_offset", next)
            .optional("error", error));
    }
    let omitted = Some(all - end).filter(|left| *left > 0);
    let more = match omitted {
        _ if is_working => Some(format!(
            "The run is still working, and this is its output so far. Call fabric_get_run with \
             run_id {id} and offset {end} for the rest; calling fabric_run_pattern again would \
             start, and charge for, another run."
        )),
        Some(_) => {
            let rest = format!("Read the rest with fabric_get_run, run_id {id} and offset {end}.");
            let how = match run_id {
                Some(_) => &rest,
                None => "Do not run the pattern again only to see the rest.",
            };
            let cut = format!("max_chars cut the output to {end} of its {all} characters. {how}");
            Some(backend.policy.offered(&cut))
        }
        None => None,
    };
    Ok(outcome
        .warn(more)
        .optional("omitted_chars", omitted)
        .optional("run_id", run_id))
}

/// A run as a task of `revision`.
pub(crate) fn task(record: &Record, revision: Revision, keep: Duration) -> Value {
    let modern = !revision.is_legacy();
    let status = match record.state {
        RunState::Working => "working",
        RunState::Cancelled => "cancelled",
        RunState::Completed => "completed",
        // There is a result, with `isError`.
        RunState::Failed | RunState::Interrupted if modern => "completed",
        RunState::Failed | RunState::Interrupted => "failed",
    };
    let so_far = if status == "working" { " so far" } else { "" };
    let mut message = format!("{}: {}", record.patterns.join(", "), record.state.name());
    if let Some(chars) = record.chars {
        message += &format!(", {}{so_far}", counted(chars, "character"));
    }
    let (ttl, poll) = match modern {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    json!({
        "taskId": record.id,
        "status": status,
        "statusMessage": message,
        "createdAt": timestamp(record.created),
        "lastUpdatedAt": timestamp(record.updated),
        (ttl): record.ttl.unwrap_or(keep.as_millis() as u64),
        (poll): POLL_INTERVAL_MS,
    })
}

/// Writes the members of a task.
pub(crate) fn write_task(record: &Record, keep: Duration, result: &mut ResultWriter) {
    let task = task(record, result.revision, keep);
    for (key, value) in task.as_object().into_iter().flatten() {
        result.field(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_in_the_schema() {
        let schema = include_str!("results/get_run.json");
        let mut states = RunState::ALL.into_iter().map(RunState::name);
        let missing = states.find(|name| !schema.contains(name));
        assert_eq!(missing, None, "src/tools/results/get_run.json");
    }

    #[test]
    fn a_silence_is_told_once_it_is_long() {
        let told = [29, 30].map(|s| silence(Duration::from_secs(s), SILENCE).is_some());
        assert_eq!(told, [false, true]);
    }
}
