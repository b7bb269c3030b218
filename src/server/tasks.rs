//! Runs as MCP tasks: the extension `io.modelcontextprotocol/tasks` of 2026-07-28, and the core tasks of 2025-11-25.
//!
//! A task is a run, with the same id. In scope: the representation of a run as a task, and `tasks/…`. Not in scope:
//! when a call is answered with one (`tools`).

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::account::{Account, Resource};
use crate::config;
use crate::fabric::{Error, Wait};
use crate::protocol::jsonrpc::{self, METHOD_NOT_FOUND};
use crate::protocol::{Node, Params, Refusal, ResultWriter, Revision, TASKS as EXTENSION};
use crate::runs::{Record, Run, RunCursor, RunState, Waited};
use crate::time::Timestamp;
use crate::tools::{self, Backend, RELATED_TASK};

use super::call::Working;
use super::tools::write;
use super::{Action, Request, Server};

/// The caller has not declared a required capability.
const MISSING_CAPABILITY: i32 = -32021;
/// Suggested polling interval, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;
/// Longest result sent in a notification, in bytes.
const MAX_TOLD: usize = 256 << 10;
/// Tasks on one page of a list.
const PAGE: usize = 100;

/// Task support in `revision`, as members of `capabilities`.
pub(super) fn offer(
    backend: &Backend,
    revision: Revision,
    capabilities: &mut Map<String, Value>,
    extensions: &mut Map<String, Value>,
) {
    if !backend.runs.keeps() {
        return;
    }
    match revision {
        _ if !revision.is_legacy() => {
            extensions.insert(EXTENSION.into(), json!({}));
        }
        _ if revision.has_core_tasks() => {
            let mut tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
            // If callers are not distinguished, a run is found only by its id, so there is no list.
            if backend.lists {
                tasks["list"] = json!({});
            }
            capabilities.insert("tasks".into(), tasks);
        }
        _ => {}
    }
}

/// Do calls of `revision` request tasks explicitly?
pub(super) fn are_asked_for(backend: &Backend, revision: Revision) -> bool {
    backend.runs.keeps() && revision.has_core_tasks()
}

/// Parses the `task` of a call: its requested retention, limited to that of runs.
///
/// # Errors
/// -32602.
pub(super) fn requested(
    task: &Node<'_>,
    settings: &config::RunSettings,
) -> Result<Duration, Refusal> {
    let usage = "params.task must be an object, with ttl, if any, a whole number of milliseconds.";
    let task = Some(task).filter(|task| task.is_object());
    let params = Params::new(Some(task.ok_or_else(|| Refusal::params(usage))?), usage);
    match params.get("ttl") {
        None => Ok(settings.keep),
        Some(Node::Number(ttl)) => {
            let ttl = ttl.as_u64().ok_or_else(|| params.refusal())?;
            Ok(Duration::from_millis(ttl).min(settings.keep))
        }
        Some(_) => Err(params.refusal()),
    }
}

/// The error for a caller that has not declared the extension.
pub(super) fn undeclared() -> Refusal {
    let detail = format!(
        "This needs the capability extensions[\"{EXTENSION}\"] in params._meta[\"io.modelcontextprotocol/\
         clientCapabilities\"] of the request."
    );
    Refusal::new(MISSING_CAPABILITY, detail).with(
        "requiredCapabilities",
        json!({ "extensions": { EXTENSION: {} } }),
    )
}

/// A run as a task of `revision`.
pub(super) fn task(record: &Record, revision: Revision, keep: Duration) -> Map<String, Value> {
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
        message += &format!(", {chars} characters{so_far}");
    }
    let (ttl, poll) = if modern {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    let at = |milliseconds: u64| Timestamp::with_milliseconds(milliseconds as i64).to_string();
    let mut task = Map::new();
    task.insert("taskId".into(), record.id.to_string().into());
    task.insert("status".into(), status.into());
    task.insert("statusMessage".into(), message.into());
    task.insert("createdAt".into(), at(record.created).into());
    task.insert("lastUpdatedAt".into(), at(record.updated).into());
    task.insert(
        ttl.into(),
        record.ttl.unwrap_or(keep.as_millis() as u64).into(),
    );
    task.insert(poll.into(), POLL_INTERVAL_MS.into());
    task
}

/// The same with the result, as in `tasks/get` of 2026-07-28.
pub(super) fn detailed(
    run: &Run,
    keep: Duration,
    revision: Revision,
    account: &Account,
) -> (Map<String, Value>, Option<Vec<u8>>) {
    let record = run.record();
    let ended = matches!(
        record.state,
        RunState::Completed | RunState::Failed | RunState::Interrupted
    );
    let body = ended.then(|| {
        let mut result = ResultWriter::body(revision);
        write_result(run, &record, account, &mut result);
        result.end_body()
    });
    (task(&record, revision, keep), body)
}

/// `notifications/tasks` of 2026-07-28; `None` if it is too long to queue for a reader: clients fetch it.
pub(super) fn changed(
    run: &Run,
    keep: Duration,
    meta: Map<String, Value>,
    revision: Revision,
    account: &Account,
) -> Option<Vec<u8>> {
    if run.record().bytes > MAX_TOLD as u64 {
        return None;
    }
    let (mut params, body) = detailed(run, keep, revision, account);
    if let Some(body) = body
        .filter(|body| body.len() <= MAX_TOLD)
        .map(|body| serde_json::from_slice(&body))
    {
        params.insert("result".into(), body.ok()?);
    } else if run.record().state != RunState::Cancelled {
        return None;
    }
    params.insert("_meta".into(), meta.into());
    Some(jsonrpc::notification("notifications/tasks", &params))
}

/// `notifications/tasks/status` of 2025-11-25.
pub(super) fn status(run: &Run, keep: Duration) -> Vec<u8> {
    jsonrpc::notification(
        "notifications/tasks/status",
        &task(&run.record(), Revision::R2025_11_25, keep),
    )
}

/// The result that the call returns without a task.
fn write_result(run: &Run, record: &Record, account: &Account, result: &mut ResultWriter) {
    let request_id = tools::request_id(record).unwrap_or_default();
    let outcome = tools::result(run, None, true, Duration::MAX, account);
    write(&outcome, account, &request_id, result);
}

fn write_task(task: &Map<String, Value>, result: &mut ResultWriter) {
    for (key, value) in task {
        result.field(key, value);
    }
}

/// Answers a call with a working task.
pub(super) fn created(run: &Run, keep: Duration, result: &mut ResultWriter) {
    let revision = result.revision;
    let task = task(&run.record(), revision, keep);
    if revision.is_legacy() {
        result.field("task", &task);
    } else {
        result.kind = "task";
        write_task(&task, result);
    }
}

/// A method about one task.
#[derive(Clone, Copy)]
pub(super) enum Verb {
    Get,
    Update,
    Cancel,
    /// Waits for the result.
    Result,
}

/// Parses `tasks/update`: this server never asks for input, so every answer is accepted and ignored.
pub(super) fn update(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "tasks/update needs params.taskId, a string, and params.inputResponses, an object.";
    if request.context.tasks {
        Params::new(request.params, usage).object("inputResponses")?;
    }
    one(server, request, Verb::Update)
}

/// Parses a method about one task.
pub(super) fn one(server: &Server, request: Request<'_>, verb: Verb) -> Result<Action, Refusal> {
    check(server, &request)?;
    let usage = "params.taskId must be a string: the id that the call was answered with.";
    let id = Params::new(request.params, usage)
        .text("taskId")?
        .to_owned();
    let place = match verb {
        Verb::Result => Resource::Waits,
        Verb::Get | Verb::Update | Verb::Cancel => Resource::Calls,
    };
    Ok(request.call_in(place, None, move |call, result| verb.run(&id, call, result)))
}

fn check(server: &Server, request: &Request<'_>) -> Result<(), Refusal> {
    if !server.backend.runs.keeps() {
        return Err(no_method(
            "This server keeps no runs (--keep-runs 0), so it has no tasks.",
        ));
    }
    if !request.context.revision.is_legacy() && !request.context.tasks {
        return Err(undeclared());
    }
    Ok(())
}

fn no_method(detail: &str) -> Refusal {
    Refusal::new(METHOD_NOT_FOUND, detail)
}

impl Verb {
    fn run(self, id: &str, call: &Working<'_>, result: &mut ResultWriter) -> Result<(), Refusal> {
        let (backend, revision) = (&call.server.backend, result.revision);
        let (keep, caller) = (backend.settings.keep, &call.context.caller);
        let run = backend.runs.find(id, &caller.owner).ok_or_else(|| {
            Refusal::params("params.taskId is no task of yours that is kept: it never was, or its time is over.")
        })?;
        match self {
            Verb::Update => {}
            Verb::Get if revision.is_legacy() => {
                write_task(&task(&run.record(), revision, keep), result)
            }
            Verb::Get => {
                let (task, body) = detailed(&run, keep, revision, &caller.account);
                write_task(&task, result);
                if let Some(body) = body {
                    result
                        .reserve(&caller.account, body.len())
                        .map_err(|_| crate::fabric::no_room())?;
                    result.key("result").extend_from_slice(&body);
                }
            }
            Verb::Cancel => {
                let stopped = tools::cancel(&run)?;
                if revision.is_legacy() {
                    if !stopped {
                        let state = run.record().state.name();
                        return Err(Refusal::params(format!(
                            "This task is over: it is {state}."
                        )));
                    }
                    write_task(&task(&run.record(), revision, keep), result);
                }
            }
            Verb::Result => {
                if run.wait(None, Duration::MAX, &mut || {
                    call.context.still_waiting().is_ok()
                }) == Waited::Stopped
                {
                    return Err(Error::cancelled().into());
                }
                write_result(&run, &run.record(), &caller.account, result);
                result.meta(RELATED_TASK, &json!({ "taskId": id }));
            }
        }
        Ok(())
    }
}

/// Parses `tasks/list`.
pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    check(server, &request)?;
    if !server.backend.lists {
        return Err(no_method(
            "Without a login tasks are found by their ids alone, so there is no list of them.",
        ));
    }
    let usage = "\"cursor\" must be a string that an earlier page gave as nextCursor.";
    let params = Params::new(request.params, usage);
    let cursor = params
        .optional_text("cursor")?
        .map(|text| RunCursor::parse(text).ok_or_else(|| params.refusal()))
        .transpose()?;
    Ok(request.call(move |call, result| {
        let (backend, revision) = (&call.server.backend, result.revision);
        let page = backend.runs.list(&call.context.caller.owner, cursor, PAGE);
        let page = page.ok_or_else(|| no_method("There is no list of your tasks."))?;
        let tasks: Vec<_> = page
            .runs
            .iter()
            .map(|run| task(&run.bare(), revision, backend.settings.keep))
            .collect();
        result.field("tasks", &tasks);
        if let Some(next) = page.next {
            result.field("nextCursor", &next.to_string());
        }
        Ok(())
    }))
}
