//! `tools/list` and `tools/call`: the tools of `tools`, as each revision wants them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::access::Role;
use crate::account::{Account, Full};
use crate::config::{MAX_PARTIAL_TEXT, RunSettings};
use crate::fabric::{Error, Kind, no_room, too_many};
use crate::protocol::{
    Answer, Cache, Feature, Id, NoId, Params, Refusal, RequestContext, ResultWriter, Revision,
    error_object, jsonrpc, pages, stored,
};
use crate::random;
use crate::runs::{self, Record, Run};
use crate::text::{prefix, shown};
use crate::time::Timestamp;
use crate::tools::{self, Backend, Failure, Outcome, Prepared, RunPlan, Tool};

use super::call::{ToolCall, Working, failed_tool};
use super::{Action, Request, Server, tasks};

/// Version of the result format, in `_meta`. Adding an optional field does not change it.
const SCHEMA_VERSION: u32 = 1;

/// Result size in characters at which Claude's clients may cut: the largest value that they allow. Outputs are long,
/// and a run must not be repeated to see its end.
const MAX_RESULT_CHARS: u32 = 500_000;

/// Space for everything around the text of a result, in bytes.
const FRAME: usize = 1 << 10;

/// `tools/list` per revision: written once, because it never changes.
#[derive(Default)]
pub(super) struct Lists([OnceLock<Arc<[u8]>>; Revision::ALL.len()]);

/// Answers `tools/list`.
pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    pages::cursor(request.params)?.page(server.backend.policy.tools().count())?;
    let revision = request.context.revision;
    let list = server.tools.0[revision as usize]
        .get_or_init(|| write_list(&server.backend, revision).into());
    Ok(Action::Answer(stored(&request.id, revision, list.clone())))
}

fn write_list(backend: &Backend, revision: Revision) -> Vec<u8> {
    let tasks = tasks::are_asked_for(backend, revision);
    let mut result = ResultWriter::body(revision);
    let out = result.key("tools");
    out.push(b'[');
    for (at, tool) in backend.policy.tools().enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"," });
        define(out, tool, revision, tasks, backend.policy.read_only);
    }
    out.push(b']');
    result.cache(Cache::STATIC);
    result.end_body()
}

/// Writes a tool in a list. Its schemas are text: a parsed map would lose the order of their properties.
fn define(out: &mut Vec<u8>, tool: &Tool, revision: Revision, tasks: bool, read_only: bool) {
    fn member<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
        jsonrpc::write_json(jsonrpc::write_name(out, name), value);
    }
    out.push(b'{');
    if revision.knows(Feature::ItemMeta) {
        let meta = json!({ "anthropic/maxResultSizeChars": MAX_RESULT_CHARS });
        member(out, "_meta", &meta);
    }
    if revision.knows(Feature::ToolAnnotations) {
        let annotations = json!({
            "title": tool.title,
            "readOnlyHint": tool.read_only,
            "destructiveHint": false,
            "idempotentHint": tool.read_only,
            "openWorldHint": true,
        });
        member(out, "annotations", &annotations);
    }
    let is_only_dry = read_only && tool.role == Role::Run;
    let description = match is_only_dry {
        true => format!("{} On this server only with dry_run.", tool.description),
        false => tool.description.to_owned(),
    };
    member(out, "description", &description);
    if tasks && may_be_task(tool) && !is_only_dry {
        member(out, "execution", &json!({ "taskSupport": "optional" }));
    }
    jsonrpc::write_name(out, "inputSchema").extend(tool.input_schema().bytes());
    member(out, "name", tool.name);
    if revision.knows(Feature::StructuredContent) {
        jsonrpc::write_name(out, "outputSchema").extend(tool.output_schema().bytes());
    }
    if revision.knows(Feature::Title) {
        member(out, "title", tool.title);
    }
    out.push(b'}');
}

/// Only runs take long enough.
fn may_be_task(tool: &Tool) -> bool {
    tool.role == Role::Run
}

/// Reads `tools/call`: finds the tool and checks the arguments.
///
/// # Errors
/// -32602 for an unknown tool, and for wrong arguments in revisions that require it.
pub(super) fn call(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "tools/call needs params.name, the name of a tool as a string, and params.arguments, an object.";
    let params = Params::new(request.params, usage);
    let name = params.text("name")?;
    let arguments = params.get("arguments");
    // In every revision a malformed request: the error is not in a tool's argument, so a model cannot correct it.
    if arguments.is_some_and(|arguments| !arguments.is_object()) {
        return Err(Refusal::params(
            "params.arguments of tools/call must be an object.",
        ));
    }
    let offered = || server.backend.policy.tools();
    let Some(tool) = offered().find(|tool| tool.name == name) else {
        let shown = shown(name, 64);
        let names: Vec<&str> = offered().map(|tool| tool.name).collect();
        return Err(Refusal::params(format!(
            "There is no tool \"{shown}\": the tools are {}.",
            names.join(", ")
        )));
    };
    let (backend, revision) = (&server.backend, request.context.revision);
    let task = match params
        .get("task")
        .filter(|_| tasks::are_asked_for(backend, revision))
    {
        Some(_) if !may_be_task(tool) => {
            let detail = format!("{name} cannot be a task: call it without params.task.");
            return Err(Refusal::new(jsonrpc::METHOD_NOT_FOUND, detail));
        }
        Some(task) => Some(tasks::requested(task, &backend.settings)?),
        None => None,
    };
    let prepared = match tool.prepare(arguments, &backend.policy) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Action::Answer(wrong_arguments(tool, error, &request))),
    };
    let Prepared { work, run, .. } = prepared;
    if task.is_some() && run.is_none() {
        return Err(Refusal::params(
            "A dry run cannot be a task: call it without params.task.",
        ));
    }
    let wait = run.as_ref().and_then(|plan| plan.wait);
    let called = ToolCall {
        tool,
        fields: prepared.fields,
        patience: patience(wait, &backend.settings, &request.context),
    };
    let logged = called.clone();
    let work = move |call: &Working<'_>, result: &mut ResultWriter| match run {
        Some(plan) => run_pattern(plan, work, &logged, task, call, result),
        None => {
            let outcome = tools::run(tool, work, &logged.fields, call.context);
            write(
                &outcome,
                &call.context.caller.account,
                &call.context.request_id,
                result,
            );
            Ok(())
        }
    };
    Ok(request.call_in(prepared.place, Some(called), work))
}

/// The answer to a call with wrong arguments: a result where the revision allows it, so that the model sees what is wrong
/// and corrects it.
fn wrong_arguments(tool: &Tool, error: Error, request: &Request<'_>) -> Answer {
    let (id, revision, request_id) = (&request.id, request.context.revision, random::request_id());
    tools::log_refused(tool, &[], &error, &request_id);
    if revision.knows(Feature::ArgumentErrorsAsResults) {
        return failed_tool(error, id, revision, &request_id);
    }
    Refusal::of(jsonrpc::INVALID_PARAMS, error).answer(Some(id), NoId::Absent, false, &request_id)
}

/// The answer to a `tools/call` when there is no memory for its params.
pub(super) fn overloaded(id: &Id, revision: Revision) -> Answer {
    let error = too_many();
    let request_id = random::request_id();
    log::warn!(target: "fabric_mcp::tools", "ok=false error={} request_id={request_id}", error.kind.name());
    failed_tool(error, id, revision, &request_id)
}

/// Makes a run on this thread. Its caller is answered at the end, or once it has waited long enough; the run goes on.
fn run_pattern(
    plan: RunPlan,
    work: tools::Work,
    called: &ToolCall,
    task: Option<Duration>,
    call: &Working<'_>,
    result: &mut ResultWriter,
) -> Result<(), Refusal> {
    let (backend, context) = (&call.server.backend, call.context);
    let (keeps, keep) = (backend.runs.keeps(), backend.settings.keep);
    let refused = |error: Error, result: &mut ResultWriter| {
        tools::log_refused(called.tool, &called.fields, &error, &context.request_id);
        write_failure(&error.into(), &context.request_id, result);
        Ok(())
    };
    if !keeps && plan.wait.is_some() {
        let detail = "`wait_seconds` cannot be used: this server keeps no runs (--keep-runs 0). Leave it out.";
        let error = Error::new(Kind::InvalidRequest, detail).about("wait_seconds");
        return refused(error, result);
    }
    if let Err(error) = context.may_begin(plan.rate) {
        return refused(error, result);
    }
    let record = Record::new(context.caller.owner.clone(), plan.patterns, plan.model);
    let writer = match task {
        None => backend.runs.begin(record, &context.caller.account),
        Some(ttl) => backend
            .runs
            .begin_task(record, ttl, &context.caller.account)
            .map_err(|runs::StoreFull| {
                let detail = "There is no room for another task: too many of yours or in all work or must be kept. \
                              Try again later, or call without params.task.";
                let error = Error::new(Kind::TooManyRequests, detail);
                tools::log_refused(called.tool, &called.fields, &error, &context.request_id);
                error
            })?,
    };
    let run = context.begin_run(writer);
    if task.is_some() {
        context.become_task(&run.id().to_string());
    }
    let limit = match task {
        Some(_) => Some(Duration::ZERO),
        None => called.patience.filter(|_| keeps),
    };
    if let Some(limit) = limit {
        let answer = early_answer(&run, plan.max_chars, task.is_some(), call);
        context.answer_after(limit, answer);
    }
    let outcome = tools::run(called.tool, work, &called.fields, context);
    let end = tools::end(outcome, &run, &context.request_id);
    if let Some(writer) = context.run() {
        writer.finish(end);
    }
    // The end is told once it is stored and the run's place is free.
    context.leave();
    if task.is_some() {
        context.notify(&tasks::status(&run, keep));
    }
    if !context.is_answered() {
        write_run(&run, plan.max_chars, keeps, call, result);
    }
    Ok(())
}

/// What writes the answer to a call whose run goes on.
fn early_answer(
    run: &Run,
    max_chars: Option<usize>,
    is_task: bool,
    call: &Working<'_>,
) -> impl FnOnce() -> Answer + Send + 'static {
    let (run, id, context) = (run.clone(), call.id.clone(), call.context);
    let (keep, revision) = (call.server.backend.settings.keep, context.request.revision);
    let (account, request_id) = (context.caller.account.clone(), context.request_id.clone());
    let idle_timeout = call.server.backend.fabric.idle_timeout();
    let (runs, may_be_task) = (call.server.backend.runs.clone(), context.request.tasks);
    move || {
        let is_task = is_task || may_be_task && runs.promise(&run, keep).is_ok();
        // Before the caller learns of it.
        run.persist();
        let mut result = ResultWriter::new(&id, revision);
        if is_task {
            tasks::created(&run, keep, &mut result);
        } else {
            let outcome = tools::result(&run, max_chars, true, idle_timeout, &account);
            write(&outcome, &account, &request_id, &mut result);
        }
        result.end()
    }
}

/// Writes the result of a run that has ended.
fn write_run(
    run: &Run,
    max_chars: Option<usize>,
    keeps: bool,
    call: &Working<'_>,
    result: &mut ResultWriter,
) {
    let account = &call.context.caller.account;
    let idle_timeout = call.server.backend.fabric.idle_timeout();
    let outcome = tools::result(run, max_chars, keeps, idle_timeout, account);
    write(&outcome, account, &call.context.request_id, result);
    if outcome.is_err() && keeps {
        // With the id, the caller can read a text that is truncated here.
        result.meta("run_id", &run.id().to_string());
    }
}

/// How long a caller waits for its run; `None`: until it ends.
fn patience(
    wait: Option<Duration>,
    settings: &RunSettings,
    request: &RequestContext,
) -> Option<Duration> {
    let within = Some(settings.answer_within).filter(|within| !within.is_zero());
    // With a progress token, the caller wants output as it arrives, which tasks do not send.
    let task_after =
        (request.tasks && request.progress_token.is_none()).then_some(settings.task_after);
    wait.or_else(|| task_after.into_iter().chain(within).min())
}

/// A text item of `content`.
#[derive(Serialize)]
struct TextContent<'a> {
    r#type: &'static str,
    text: &'a str,
}

fn content(text: &str) -> TextContent<'_> {
    TextContent {
        r#type: "text",
        text,
    }
}

/// Writes the result of a call, success or failure. Its memory is charged to `account`.
pub(super) fn write(
    outcome: &Result<Outcome, Failure>,
    account: &Account,
    request_id: &str,
    result: &mut ResultWriter,
) {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return write_failure(failure, request_id, result),
    };
    let structured = result.revision.knows(Feature::StructuredContent);
    let mut json = Vec::new();
    let text = outcome.structured.text();
    if text.is_none() {
        outcome.structured.write(&mut json);
    }
    let copies = if structured { 2 } else { 1 };
    let needed = text.map_or(json.len() + json.len() / 4, jsonrpc::string_len) * copies + FRAME;
    // Charged before it is written: JSON may be several times as long as its text.
    if let Err(Full) = result.reserve(account, needed) {
        let partial = text.map(|text| prefix(text, MAX_PARTIAL_TEXT).to_owned());
        let failure = Failure {
            partial: partial.into_iter().collect(),
            ..no_room().into()
        };
        return write_failure(&failure, request_id, result);
    }
    envelope(result);
    let out = result.key("content");
    out.extend_from_slice(br#"[{"type":"text","text":"#);
    match text {
        Some(text) => jsonrpc::write_json(out, text),
        None => outcome.structured.write_as_string(out, &json),
    }
    out.push(b'}');
    for warning in &outcome.warnings {
        out.push(b',');
        jsonrpc::write_json(out, &content(warning));
    }
    out.push(b']');
    if structured {
        let out = result.key("structuredContent");
        match json.is_empty() {
            false => out.extend_from_slice(&json),
            true => outcome.structured.write(out),
        }
    }
    result.field("isError", &false);
}

/// Writes the result of a call that failed: a paragraph, what had arrived, and the error object in `_meta`.
pub(super) fn write_failure(failure: &Failure, request_id: &str, result: &mut ResultWriter) {
    envelope(result);
    let error = &failure.error;
    let said = format!(
        "{}. {} {}",
        error.kind.title(),
        error.detail,
        error.kind.urn()
    );
    let partial = failure.partial.iter().map(String::as_str);
    let content: Vec<_> = std::iter::once(said.as_str())
        .chain(partial)
        .map(content)
        .collect();
    result.field("content", &content).field("isError", &true);
    result.meta("error", &error_object(error, request_id));
}

fn envelope(result: &mut ResultWriter) {
    result.meta("schema_version", &SCHEMA_VERSION);
    result.meta("generated_at", &Timestamp::now());
}
