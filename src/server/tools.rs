//! `tools/list` and `tools/call`: the tools of `tools`, as each revision wants them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::json;

use crate::access::Role;
use crate::account::Resource;
use crate::fabric::names::suggestion;
use crate::protocol::{Feature, Node, Params, Refusal, Revision, jsonrpc, pages};
use crate::search::shipped;
use crate::text::shown;
use crate::tools::{self, Place, Policy, SHELL, TOOLS, Tool, is_meant};

use super::{Action, Request, Server, tasks};

/// Result size in characters at which Claude's clients may cut: the largest value that they allow. Outputs are long,
/// and a run must not be repeated to see its end.
const MAX_RESULT_CHARS: u32 = 500_000;

/// `tools/list` per revision: written once, because it never changes.
pub(super) type Lists = [OnceLock<Arc<[u8]>>; Revision::ALL.len()];

/// Answers `tools/list`.
pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let (backend, revision) = (&server.backend, request.context().revision);
    pages::cursor(request.params)?.page(backend.policy.tools().count())?;
    let list = server.tools[revision as usize].get_or_init(|| {
        let tasks = tasks::are_asked_for(backend, revision);
        let tools = define_all(&backend.policy, revision, tasks);
        tools.into_bytes().into()
    });
    let mut result = request.head.result();
    result.share("tools", list.clone());
    result.cache(None);
    Ok(Action::Answer(result.end()))
}

/// The tools as the newest revision lists them, for `--list-tools --json`.
pub(crate) fn tools_json(policy: &Policy) -> String {
    let tools = define_all(policy, Revision::NEWEST, false);
    format!("{{\"tools\":{tools}}}\n")
}

/// The list of tools.
fn define_all(policy: &Policy, revision: Revision, tasks: bool) -> String {
    let define = |tool| define(tool, policy, revision, tasks);
    let tools: Vec<String> = policy.tools().map(define).collect();
    format!("[{}]", tools.join(","))
}

/// A tool in a list. Its schemas are text: a parsed map would lose the order of their properties.
fn define(tool: &Tool, policy: &Policy, revision: Revision, tasks: bool) -> String {
    let annotations = json!({
        "title": tool.title,
        "readOnlyHint": tool.read_only,
        "destructiveHint": false,
        "idempotentHint": tool.read_only,
        "openWorldHint": true,
    });
    let mut meta = json!({ "anthropic/maxResultSizeChars": MAX_RESULT_CHARS });
    if tool.name == TOOLS[0].name {
        // This tool leads to the others, so clients that load tools only on demand should always show it.
        meta["anthropic/alwaysLoad"] = json!(true);
    }
    let only_dry = match policy.read_only && tool.is_run() {
        true => " Only with dry_run.",
        false => "",
    };
    let description = json!([tool.description, only_dry].concat());
    let execution = json!({ "taskSupport": "optional" });
    let may_be_task = tasks && may_be_task(tool, policy);
    let has_annotations = revision.knows(Feature::ToolAnnotations);
    let has_structure = policy.has_structure(revision);
    let knows = |feature| revision.knows(feature);
    let title = json!(tool.title).to_string();
    let members = [
        (knows(Feature::ItemMeta), "_meta", meta.to_string()),
        (has_annotations, "annotations", annotations.to_string()),
        (true, "description", description.to_string()),
        (may_be_task, "execution", execution.to_string()),
        (true, "inputSchema", tool.input_schema(policy)),
        (true, "name", json!(tool.name).to_string()),
        (has_structure, "outputSchema", tool.output_schema()),
        (knows(Feature::Title), "title", title),
    ];
    let members = members.into_iter().filter(|(is_known, ..)| *is_known);
    let members = members.map(|(_, name, json)| format!("\"{name}\":{json}"));
    format!("{{{}}}", Vec::from_iter(members).join(","))
}

/// Can a call be a task? Only runs take long enough.
fn may_be_task(tool: &Tool, policy: &Policy) -> bool {
    tool.is_run() && !policy.read_only
}

/// Reads `tools/call`: finds the tool and checks the arguments.
///
/// # Errors
/// -32602 for wrong arguments in revisions that require it. An unknown tool is answered here, with the same code.
pub(super) fn call(server: &Server, mut request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "tools/call needs params.name, the name of a tool as a string, and params.arguments, an object.";
    let params = Params::new(request.params, usage);
    let name = params.text("name")?;
    // In every revision a malformed request: the error is not in a tool's argument, so a model cannot correct it.
    let no_object = "params.arguments of tools/call must be an object.";
    let arguments = Params::new(request.params, no_object).members("arguments")?;
    let offered = || server.backend.policy.tools();
    let Some(tool) = offered().find(|tool| tool.name == name) else {
        let shown = shown(name, 64);
        let names = Vec::from_iter(offered().map(|tool| tool.name)).join(", ");
        let bare = |name| str::trim_start_matches(name, "fabric").trim_start_matches('_');
        let hint = match bare(name) {
            name if shipped(name).is_some() => {
                format!(" It is a pattern: give fabric_run_pattern pattern_name \"{name}\".")
            }
            name => {
                let mut tools = offered().map(|tool| tool.name);
                suggestion(tools.find(|tool| is_meant(name, bare(tool))))
            }
        };
        let refusal = Refusal::params(format!(
            "There is no tool \"{shown}\": the tools are {names}.{hint}"
        ));
        request.head.plan.fields = vec![
            ("tool", shown),
            ("reason", "no such tool is offered".into()),
        ];
        return Ok(Action::Answer(request.head.refuse(refusal)));
    };
    let (backend, revision) = (&server.backend, request.context().revision);
    let is_task = params.get("task").is_some() && tasks::are_asked_for(backend, revision);
    if is_task && !may_be_task(tool, &backend.policy) {
        let detail = format!("{name} cannot be a task: call it without params.task.");
        return Err(Refusal::new(jsonrpc::METHOD_NOT_FOUND, detail));
    }
    let ttl = is_task.then(|| tasks::requested(request.params, &backend.settings));
    let ttl = ttl.transpose()?;
    let models = request.head.caller.require(Role::Read);
    let models = models.map_or_else(|_| Vec::new(), |allowance| allowance.models.clone());
    let policy = match models.is_empty() {
        true => Cow::Borrowed(&backend.policy),
        false => Cow::Owned(Policy {
            callers_models: models,
            ..backend.policy.clone()
        }),
    };
    let head = &mut request.head;
    (head.tool, head.ttl) = (Some(tool), ttl);
    let shell = params.get("_meta").and_then(|meta| meta.get(SHELL));
    let place = match shell {
        Some(Node::Bool(true)) => Place::Shell,
        _ => Place::Call,
    };
    let (plan, work) = match tool.prepare(arguments, place, &policy) {
        Ok(prepared) => prepared,
        Err(error) => {
            head.plan.fault = Some(error.clone());
            return Ok(Action::Answer(head.fail(error)));
        }
    };
    if is_task && plan.needs != Resource::Runs && plan.fault.is_none() {
        let why = "A dry run cannot be a task: call it without params.task.";
        return Err(Refusal::params(why));
    }
    head.plan = plan;
    Ok(request.call(move |context, result| tools::call(work, context, result)))
}
