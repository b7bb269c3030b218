//! A run as an MCP task: of the extension of 2026-07-28, and of the core of 2025-11-25.

use std::time::Duration;

use serde_json::{Value, json};

use crate::protocol::{ResultWriter, Revision};
use crate::runs::{Record, RunState};
use crate::text::counted;
use crate::time::Timestamp;

/// Suggested polling interval, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;

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
    let so_far = match record.state {
        RunState::Working => " so far",
        _ => "",
    };
    let mut message = format!("{}: {}", record.patterns.join(", "), record.state.name());
    if let Some(chars) = record.chars {
        message += &format!(", {}{so_far}", counted(chars, "character"));
    }
    let (ttl, poll) = match modern {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    let at = |milliseconds: u64| Timestamp::with_milliseconds(milliseconds).to_string();
    json!({
        "taskId": record.id,
        "status": status,
        "statusMessage": message,
        "createdAt": at(record.created),
        "lastUpdatedAt": at(record.updated),
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
