//! `tools/list` and `tools/call`: the tools of `tools`, as each revision wants them.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::json;

use crate::access::Role;
use crate::account::Resource;
use crate::fabric::Error;
use crate::os::random;
use crate::protocol::{
    Answer, Feature, Node, Params, Refusal, ResultWriter, Revision, jsonrpc, pages, stored,
};
use crate::text::shown;
use crate::tools::{self, Backend, Context, Policy, Tool, ToolCall};

use super::call::failed_tool;
use super::{Action, Request, Server, tasks};

/// Result size in characters at which Claude's clients may cut: the largest value that they allow. Outputs are long,
/// and a run must not be repeated to see its end.
const MAX_RESULT_CHARS: u32 = 500_000;

/// `tools/list` per revision: written once, because it never changes.
#[derive(Default)]
pub(super) struct Lists([OnceLock<Arc<[u8]>>; Revision::ALL.len()]);

/// Answers `tools/list`.
pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    pages::cursor(request.params)?.page(server.backend.policy.tools().count())?;
    let revision = request.context.revision;
    let list = server.tools.0[revision as usize]
        .get_or_init(|| write_list(&server.backend, revision).into());
    Ok(Action::Answer(stored(&request.id, list.clone())))
}

fn write_list(backend: &Backend, revision: Revision) -> Vec<u8> {
    let tasks = tasks::are_asked_for(backend, revision);
    let mut result = ResultWriter::body(revision);
    let is_dry = backend.runs_nothing();
    define_all(
        result.key("tools"),
        &backend.policy,
        revision,
        tasks,
        is_dry,
    );
    result.cache(None);
    result.end_body()
}

/// The tools as the newest revision lists them, for `--list-tools --json`.
pub(crate) fn tools_json(policy: &Policy) -> String {
    let mut out = b"{\"tools\":".to_vec();
    define_all(&mut out, policy, Revision::NEWEST, false, policy.read_only);
    out.extend_from_slice(b"}\n");
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes the tools. `is_dry`: of runs, only `dry_run` works.
fn define_all(out: &mut Vec<u8>, policy: &Policy, revision: Revision, tasks: bool, is_dry: bool) {
    out.push(b'[');
    for (at, tool) in policy.tools().enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"," });
        define(out, tool, revision, tasks, is_dry);
    }
    out.push(b']');
}

/// Writes a tool in a list. Its schemas are text: a parsed map would lose the order of their properties.
fn define(out: &mut Vec<u8>, tool: &Tool, revision: Revision, tasks: bool, is_dry: bool) {
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
    let is_only_dry = is_dry && tool.role == Role::Run;
    let description = match is_only_dry {
        true => format!("{} Here only with dry_run.", tool.description),
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
    let arguments = match params.get("arguments") {
        None => &[][..],
        Some(Node::Object(arguments)) => arguments,
        // In every revision a malformed request: the error is not in a tool's argument, so a model cannot correct it.
        Some(_) => {
            return Err(Refusal::params(
                "params.arguments of tools/call must be an object.",
            ));
        }
    };
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
    let ttl = match params
        .get("task")
        .filter(|_| tasks::are_asked_for(backend, revision))
    {
        Some(_) if !may_be_task(tool) => {
            let detail = format!("{name} cannot be a task: call it without params.task.");
            return Err(Refusal::new(jsonrpc::METHOD_NOT_FOUND, detail));
        }
        Some(_) => Some(tasks::requested(request.params, &backend.settings)?),
        None => None,
    };
    let prepared = match tool.prepare(arguments, &backend.policy) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Action::Answer(wrong_arguments(tool, error, &request))),
    };
    let is_run = prepared.place == Resource::Runs;
    if ttl.is_some() && !is_run {
        return Err(Refusal::params(
            "A dry run cannot be a task: call it without params.task.",
        ));
    }
    let called = ToolCall {
        tool,
        patience: prepared.patience(&backend.settings, &request.context),
        fields: prepared.fields,
        ttl,
    };
    let work = move |context: &Arc<Context>, result: &mut ResultWriter| {
        tools::call(prepared.work, is_run, context, result);
        Ok(())
    };
    Ok(request.call_in(prepared.place, Some(called), Box::new(work)))
}

/// The answer to a call with wrong arguments: a result where the revision allows it, so that the model sees what is wrong
/// and corrects it.
fn wrong_arguments(tool: &Tool, error: Error, request: &Request<'_>) -> Answer {
    let (id, revision, request_id) = (&request.id, request.context.revision, random::request_id());
    let failed = Err(error.clone().into());
    tools::report(tool, &[], None, &failed, None, &request_id);
    if revision.knows(Feature::ArgumentErrorsAsResults) {
        return failed_tool(error, id, revision, &request_id);
    }
    Refusal::of(jsonrpc::INVALID_PARAMS, error).answer(Some(id), false, &request_id)
}
