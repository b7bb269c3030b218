//! The table of all MCP methods of this server, and those of the handshake. A new one is a row here and its file.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::protocol::{
    Feature, Level, Params, Refusal, ResultWriter, Revision, TASKS as TASKS_EXTENSION, server_info,
};
use crate::sync::lock;
use crate::tools::Tool;

use super::{
    Action, Request, Server, completion, prompts, resources, skills, subscriptions, tasks, tools,
};

/// Instructions for models, sent once to every client: how to find a pattern, and what is done with it then.
const FIND: &str = "Fabric is a library of tested prompts (patterns), each for one task on a \
    text. Use it when the user names Fabric or a pattern, or has a text or topic to be \
    summarized, analyzed, mined for ideas, rated, explained, rewritten or turned into another \
    form; do anything else without it. Describe the task as query of fabric_list_patterns. If no \
    match does it, ask once more: what goes in, what should come out. If still none does, do the \
    task yourself. Otherwise call fabric_run_pattern with the whole text as input_text and a \
    value for each of the variables that the match names";
/// Where patterns are run.
const RUN: &str = ". A pattern sees only that: it opens no links and no files, so get their text \
    first (a YouTube video can be input_from). A run calls a language model, takes seconds to \
    minutes and may cost money: run a pattern once, and do not repeat a run to see its output \
    again. If its status is working, fabric_get_run gets the rest.";
/// Where they are only read.
const FOLLOW: &str = ", and follow the prompt that it returns: this server runs nothing and costs \
    nothing. It opens no links and no files, so get their text first.";

/// One method: its name, the revisions that have it, and what parses its params and returns the action.
pub(super) type Method = (&'static str, RangeInclusive<Revision>, Read);

type Read = fn(&Server, Request<'_>) -> Result<Action, Refusal>;

const ALL: RangeInclusive<Revision> = Revision::R2024_11_05..=Revision::NEWEST;
const LEGACY: RangeInclusive<Revision> = Revision::R2024_11_05..=Revision::NEWEST_LEGACY;
const MODERN: RangeInclusive<Revision> = Revision::R2026_07_28..=Revision::NEWEST;
const TASKS: RangeInclusive<Revision> = Revision::R2025_11_25..=Revision::NEWEST;
const CORE_TASKS: RangeInclusive<Revision> = Revision::R2025_11_25..=Revision::R2025_11_25;

pub(super) static METHODS: &[Method] = &[
    ("initialize", LEGACY, initialize),
    ("ping", LEGACY, ping),
    ("logging/setLevel", LEGACY, set_level),
    ("server/discover", MODERN, discover),
    ("subscriptions/listen", MODERN, subscriptions::listen),
    ("tools/list", ALL, tools::list),
    ("tools/call", ALL, tools::call),
    ("prompts/list", ALL, prompts::list),
    ("prompts/get", ALL, prompts::get),
    ("resources/list", ALL, resources::list),
    ("resources/templates/list", ALL, resources::templates),
    ("resources/read", ALL, resources::read),
    ("completion/complete", ALL, completion::complete),
    ("skills/list", MODERN, skills::list),
    ("skills/get", MODERN, skills::get),
    ("tasks/get", TASKS, tasks::get),
    ("tasks/cancel", TASKS, tasks::cancel),
    ("tasks/update", MODERN, tasks::update),
    ("tasks/result", CORE_TASKS, tasks::result),
    ("tasks/list", CORE_TASKS, tasks::list),
];

/// What clients of `revision` are offered. Tools never change while the program runs.
fn capabilities(server: &Server, revision: Revision) -> Value {
    let (backend, changing) = (&server.backend, json!({ "listChanged": true }));
    let mut offered = json!({ "logging": {}, "resources": changing, "tools": {} });
    if !backend.policy.no_prompts {
        offered["prompts"] = changing;
    }
    if revision.knows(Feature::Completions) {
        offered["completions"] = json!({});
    }
    if tasks::are_asked_for(backend, revision) {
        offered["tasks"] = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        // If callers are not distinguished, a run is found only by its id, so there is no list.
        if backend.lists {
            offered["tasks"]["list"] = json!({});
        }
    }
    if !revision.is_legacy() {
        offered["extensions"] = json!({ "io.modelcontextprotocol/skills": {} });
        if backend.runs.keeps() {
            offered["extensions"][TASKS_EXTENSION] = json!({});
        }
    }
    offered
}

/// What models are told, and if a tool is not offered, which ones are.
fn instructions(server: &Server) -> String {
    let policy = &server.backend.policy;
    let mut told = FIND.to_owned() + if policy.patterns_only { FOLLOW } else { RUN };
    if !policy.tools.is_empty() {
        let offered: Vec<&str> = policy.tools().map(|tool| tool.name).collect();
        let offered = offered.join(", ");
        told += &format!(" Of the tools, this server offers only {offered}.");
    }
    if policy.read_only && !policy.patterns_only && policy.tools().any(Tool::is_run) {
        told += " On this server, fabric_run_pattern works only with dry_run: it returns the prompt, which you then follow.";
    }
    told
}

/// Sets the revision of the session. The answer to an unknown version is the newest legacy revision, as every revision
/// requires.
fn initialize(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "initialize needs params.protocolVersion, a string such as \"2025-11-25\".";
    let wanted = Params::new(request.params, usage).text("protocolVersion")?;
    let known = Revision::named(wanted).filter(|one| one.is_legacy());
    let revision = known.unwrap_or(Revision::NEWEST_LEGACY);
    *lock(&request.session.revision) = Some(revision);
    let mut result = ResultWriter::new(Some(&request.head.id), revision);
    result
        .field("protocolVersion", revision.name())
        .field("capabilities", &capabilities(server, revision))
        .field("serverInfo", &server_info(revision))
        .field("instructions", &instructions(server));
    Ok(Action::Answer(result.end()))
}

fn discover(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let capabilities = capabilities(server, request.context().revision);
    let mut result = request.head.result();
    result
        .field("supportedVersions", &Revision::ALL.map(Revision::name))
        .field("capabilities", &capabilities)
        .field("instructions", &instructions(server))
        .cache(None);
    Ok(Action::Answer(result.end()))
}

fn ping(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    Ok(Action::Answer(request.head.result().end()))
}

fn set_level(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "logging/setLevel needs params.level: debug, info, notice, warning, error, critical, alert or emergency.";
    let params = Params::new(request.params, usage);
    let level = Level::named(params.text("level")?).ok_or_else(|| params.refusal())?;
    *lock(&request.session.level) = Some(level);
    Ok(Action::Answer(request.head.result().end()))
}
