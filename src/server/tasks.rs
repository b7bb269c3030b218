//! Runs as MCP tasks: the extension `io.modelcontextprotocol/tasks` of 2026-07-28, and the core tasks of 2025-11-25.
//!
//! A task is a run, with the same id. In scope: `tasks/…`. Not in scope: the representation of a run as a task,
//! and when a call is answered with one (`tools`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::{Account, Resource};
use crate::config;
use crate::encoding::json::decode;
use crate::fabric::CallObserver;
use crate::protocol::jsonrpc::{self, METHOD_NOT_FOUND};
use crate::protocol::{Node, Params, Refusal, ResultWriter, Revision, TASKS as EXTENSION, pages};
use crate::runs::{Record, Run, RunState};
use crate::sync::SLICE;
use crate::tools::{self, Backend, Context, RELATED_TASK, task, write, write_task};

use super::{Action, Request, Server};

/// The caller has not declared a required capability.
const MISSING_CAPABILITY: i32 = -32021;
/// Longest result sent in a notification, in bytes.
const MAX_TOLD: usize = 256 << 10;

/// Do calls of `revision` request tasks explicitly? Stateless revisions have tasks as an extension.
pub(super) fn are_asked_for(backend: &Backend, revision: Revision) -> bool {
    backend.runs.keeps() && revision == Revision::R2025_11_25
}

/// Parses the `task` of a call: its requested retention, limited to that of runs.
///
/// # Errors
/// -32602.
pub(super) fn requested(
    params: Option<&Node<'_>>,
    settings: &config::RunSettings,
) -> Result<Duration, Refusal> {
    let usage = "params.task must be an object, with ttl, if any, a whole number of milliseconds.";
    let params = Params::new(params, usage).object("task")?;
    let ttl = match params.get("ttl") {
        None => return Ok(settings.keep),
        Some(Node::Number(ttl)) => ttl.as_u64(),
        Some(_) => None,
    };
    let ttl = Duration::from_millis(ttl.ok_or_else(|| params.refusal())?);
    Ok(ttl.min(settings.keep))
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

/// Does the task have a result?
fn has_result(record: &Record) -> bool {
    !matches!(record.state, RunState::Working | RunState::Cancelled)
}

/// The result of a task that has one.
fn body(run: &Run, backend: &Backend, account: &Account, revision: Revision) -> Vec<u8> {
    let mut result = ResultWriter::new(None, revision).charged(account);
    write_result(run, backend, account, &mut result);
    result.end_body()
}

/// `notifications/tasks` of 2026-07-28 to a subscription with these params. `None` if it is too long to be queued: then
/// the client fetches the task.
pub(super) fn changed(
    run: &Run,
    backend: &Backend,
    subscription: Value,
    revision: Revision,
    account: &Account,
) -> Option<Vec<u8>> {
    let record = run.record();
    if record.bytes > MAX_TOLD as u64 {
        return None;
    }
    let mut params = task(&record, revision, backend.settings.keep);
    params["_meta"] = subscription["_meta"].clone();
    if has_result(&record) {
        let body = Some(body(run, backend, account, revision));
        let body = body.filter(|body| body.len() <= MAX_TOLD)?;
        params["result"] = decode(&body)?;
    }
    Some(jsonrpc::notification("notifications/tasks", &params))
}

/// The result that the call returns without a task.
fn write_result(run: &Run, backend: &Backend, account: &Account, result: &mut ResultWriter) {
    let request_id = run.record().report.request_id.clone().unwrap_or_default();
    let outcome = tools::result(run, None, backend, account);
    write(&outcome, &backend.policy, account, &request_id, result);
    if outcome.is_err() {
        result.meta("run_id", &run.id());
    }
}

pub(super) fn get(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    one(server, request, Resource::Calls, |run, context, result| {
        let (backend, account) = (&context.backend, context.account());
        let record = run.record();
        write_task(&record, backend.settings.keep, result);
        if !result.revision.is_legacy() && has_result(&record) {
            let body = body(run, backend, account, result.revision);
            result.key("result").extend(&body);
        }
        Ok(())
    })
}

pub(super) fn cancel(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    one(server, request, Resource::Calls, |run, context, result| {
        let has_stopped = run.cancel()?;
        if result.revision.is_legacy() {
            let record = run.record();
            if !has_stopped {
                let state = record.state.name();
                let detail = format!("This task is over: it is {state}.");
                return Err(Refusal::params(detail));
            }
            write_task(&record, context.backend.settings.keep, result);
        }
        Ok(())
    })
}

/// Parses `tasks/update`: this server never asks for input, so every answer is accepted and ignored.
pub(super) fn update(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "tasks/update needs params.taskId, a string, and params.inputResponses, an object.";
    if request.context().tasks {
        Params::new(request.params, usage).object("inputResponses")?;
    }
    one(server, request, Resource::Calls, |_, _, _| Ok(()))
}

/// Parses `tasks/result`, which waits for the end.
pub(super) fn result(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    one(server, request, Resource::Waits, |run, context, result| {
        while run.wait(u64::MAX, SLICE).state == RunState::Working {
            context.still_waiting()?;
        }
        write_result(run, &context.backend, context.account(), result);
        result.meta(RELATED_TASK, &json!({ "taskId": run.id() }));
        Ok(())
    })
}

/// Parses a method that does `work` about one task.
fn one(
    server: &Server,
    mut request: Request<'_>,
    needs: Resource,
    work: fn(&Run, &Arc<Context>, &mut ResultWriter) -> Result<(), Refusal>,
) -> Result<Action, Refusal> {
    check(server, &request)?;
    let usage = "params.taskId must be a string: the id in the answer to the call.";
    let params = Params::new(request.params, usage);
    let id = params.text("taskId")?.to_owned();
    let work = move |context: &Arc<Context>, result: &mut ResultWriter| {
        let run = context.backend.runs.find(&id, &context.caller().identity);
        let run = run.ok_or_else(|| {
            Refusal::params(
                "None of your tasks has the id in params.taskId: the id is wrong, or \
                the task's time is over.",
            )
        })?;
        work(&run, context, result)
    };
    request.head.plan.needs = needs;
    Ok(request.call(work))
}

fn check(server: &Server, request: &Request<'_>) -> Result<(), Refusal> {
    if !server.backend.runs.keeps() {
        let why = "This server keeps no runs (--keep-runs 0, --patterns-dir), so it has no tasks.";
        return Err(Refusal::new(METHOD_NOT_FOUND, why));
    }
    if !request.context().revision.is_legacy() && !request.context().tasks {
        return Err(undeclared());
    }
    Ok(())
}

pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    check(server, &request)?;
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |context, result| {
        let (backend, revision) = (&context.backend, result.revision);
        let all = backend.runs.list(&context.caller().identity);
        let why =
            "Without a token, a task can be found only by its id, so there is no list of tasks.";
        let all = all.ok_or_else(|| Refusal::new(METHOD_NOT_FOUND, why))?;
        let keep = backend.settings.keep;
        let tasks = all.iter().map(|run| task(&run.bare(), revision, keep));
        cursor.write(result, "tasks", tasks)
    }))
}
