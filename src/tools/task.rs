//! A run as an MCP task: of the extension of 2026-07-28, and of the core of 2025-11-25.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::protocol::{ResultWriter, Revision, jsonrpc};
use crate::runs::{Record, Run, RunState};
use crate::text::counted;
use crate::time::timestamp;

/// Suggested polling interval, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;
/// A run as a task of `revision`.
pub(crate) fn task(record: &Record, revision: Revision, keep: Duration) -> Map<String, Value> {
    let modern = !revision.is_legacy();
    let status = match record.state {
        RunState::Working => "working",
        RunState::Cancelled => "cancelled",
        RunState::Completed => "completed",
        // There is a result, with `isError`.
        RunState::Failed | RunState::Interrupted => {
            if modern {
                "completed"
            } else {
                "failed"
            }
        }
    };
    let so_far = if record.state == RunState::Working {
        " so far"
    } else {
        ""
    };
    let mut message = format!("{}: {}", record.patterns.join(", "), record.state.name());
    if let Some(chars) = record.chars {
        message += &format!(", {}{so_far}", counted(chars, "character"));
    }
    let (ttl, poll) = if modern {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    let mut task = Map::new();
    task.insert("taskId".into(), record.id.to_string().into());
    task.insert("status".into(), status.into());
    task.insert("statusMessage".into(), message.into());
    task.insert("createdAt".into(), timestamp(record.created).into());
    task.insert("lastUpdatedAt".into(), timestamp(record.updated).into());
    task.insert(
        ttl.into(),
        record.ttl.unwrap_or(keep.as_millis() as u64).into(),
    );
    task.insert(poll.into(), POLL_INTERVAL_MS.into());
    task
}

/// `notifications/tasks/status` of 2025-11-25.
pub(crate) fn status(run: &Run, keep: Duration) -> Vec<u8> {
    jsonrpc::notification(
        "notifications/tasks/status",
        &task(&run.record(), Revision::R2025_11_25, keep),
    )
}

/// Writes the members of a task.
pub(crate) fn write_task(task: &Map<String, Value>, result: &mut ResultWriter) {
    for (key, value) in task {
        result.field(key, value);
    }
}

/// Answers a call with a working task.
pub(crate) fn created(run: &Run, keep: Duration, result: &mut ResultWriter) {
    let revision = result.revision;
    let task = task(&run.record(), revision, keep);
    if revision.is_legacy() {
        result.field("task", &task);
    } else {
        result.kind = "task";
        write_task(&task, result);
    }
}
