//! The table of all MCP methods of this server: a new one is a line here and its file.

use serde_json::{Map, Value};

use crate::protocol::handshake::{self, Offer};
use crate::protocol::{Answer, Id, Refusal, ResultWriter, Revision};

use super::tasks::{self, Verb};
use super::{Action, Listen, Request, Server, completion, prompts, resources, skills, tools};

/// Instructions for models, sent once to every client.
const INSTRUCTIONS: &str = "Fabric is a library of tested prompts (patterns), each for one task. Find one by \
describing the task as query of fabric_list_patterns, look at fabric_get_pattern_details when the name leaves doubt or the pattern has \
variables, then call fabric_run_pattern with the whole text as input_text. A run calls a language model, takes seconds \
to minutes and may cost money: run a pattern once, set stream to true to follow it, and never repeat a run only to see \
its output again. A run that takes long is answered with its run_id while it works: fabric_get_run gets the rest.";

/// One method.
pub(super) struct Method {
    pub(super) name: &'static str,
    /// The first and the last revision with this method.
    first: Revision,
    last: Revision,
    /// Part of the handshake: served before a revision is negotiated, and takes no progress token.
    pub(super) is_lifecycle: bool,
    /// The member of its params that HTTP repeats in `Mcp-Name` (2026-07-28).
    pub(super) mirrored: Option<&'static str>,
    /// The capability that announces it.
    capability: Option<Capability>,
    /// Parses the params and returns the action.
    pub(super) read: Read,
    /// The answer without memory for the params, if it is a result and not a JSON-RPC error.
    pub(super) overloaded: Option<fn(&Id, Revision) -> Answer>,
}

type Read = fn(&Server, Request<'_>) -> Result<Action, Refusal>;

/// A member of `capabilities`.
struct Capability {
    /// A name with a slash is an extension's.
    name: &'static str,
    /// As JSON.
    value: &'static str,
    /// The first revision with it; not always the method's.
    first: Revision,
}

const OLDEST: Revision = Revision::R2024_11_05;
const LEGACY: Revision = Revision::NEWEST_LEGACY;
const MODERN: Revision = Revision::R2026_07_28;

static METHODS: &[Method] = &[
    Method::new("initialize", initialize)
        .until(LEGACY)
        .lifecycle(),
    Method::new("ping", ping).until(LEGACY).lifecycle(),
    Method::new("logging/setLevel", set_level)
        .until(LEGACY)
        .capability("logging", "{}", OLDEST),
    Method::new("server/discover", discover).since(MODERN),
    Method::new("subscriptions/listen", listen).since(MODERN),
    Method::new("tools/list", tools::list).capability("tools", "{}", OLDEST),
    Method::new("tools/call", tools::call)
        .mirrors("name")
        .tool(),
    Method::new("prompts/list", prompts::list).capability(
        "prompts",
        r#"{"listChanged":true}"#,
        OLDEST,
    ),
    Method::new("prompts/get", prompts::get).mirrors("name"),
    Method::new("resources/list", resources::list).capability(
        "resources",
        r#"{"listChanged":true}"#,
        OLDEST,
    ),
    Method::new("resources/templates/list", resources::templates),
    Method::new("resources/read", resources::read).mirrors("uri"),
    Method::new("completion/complete", completion::complete).capability(
        "completions",
        "{}",
        Revision::R2025_03_26,
    ),
    Method::new("skills/list", skills::list)
        .since(MODERN)
        .capability("io.modelcontextprotocol/skills", "{}", MODERN),
    Method::new("skills/get", skills::get).since(MODERN),
    Method::new("tasks/get", |server, request| {
        tasks::one(server, request, Verb::Get)
    })
    .since(LEGACY)
    .mirrors("taskId"),
    Method::new("tasks/cancel", |server, request| {
        tasks::one(server, request, Verb::Cancel)
    })
    .since(LEGACY)
    .mirrors("taskId"),
    Method::new("tasks/update", tasks::update)
        .since(MODERN)
        .mirrors("taskId"),
    Method::new("tasks/result", |server, request| {
        tasks::one(server, request, Verb::Result)
    })
    .since(LEGACY)
    .until(LEGACY),
    Method::new("tasks/list", tasks::list)
        .since(LEGACY)
        .until(LEGACY),
];

impl Method {
    const fn new(name: &'static str, read: Read) -> Method {
        Method {
            name,
            first: OLDEST,
            last: Revision::NEWEST,
            is_lifecycle: false,
            mirrored: None,
            capability: None,
            read,
            overloaded: None,
        }
    }

    const fn since(self, first: Revision) -> Method {
        Method { first, ..self }
    }

    const fn until(self, last: Revision) -> Method {
        Method { last, ..self }
    }

    const fn lifecycle(self) -> Method {
        Method {
            is_lifecycle: true,
            ..self
        }
    }

    const fn mirrors(self, member: &'static str) -> Method {
        Method {
            mirrored: Some(member),
            ..self
        }
    }

    const fn capability(self, name: &'static str, value: &'static str, first: Revision) -> Method {
        Method {
            capability: Some(Capability { name, value, first }),
            ..self
        }
    }

    const fn tool(self) -> Method {
        Method {
            overloaded: Some(tools::overloaded),
            ..self
        }
    }

    /// The method of that name.
    pub(super) fn named(name: &str) -> Option<&'static Method> {
        METHODS.iter().find(|method| method.name == name)
    }

    /// Is it part of `revision`?
    pub(super) fn is_in(&self, revision: Revision) -> bool {
        (self.first..=self.last).contains(&revision)
    }
}

/// What clients of `revision` are offered. Tools never change while the program runs.
fn offer(server: &Server, revision: Revision) -> Offer {
    let (mut capabilities, mut extensions) = (Map::new(), Map::new());
    let known = METHODS
        .iter()
        .filter_map(|method| method.capability.as_ref());
    for Capability { name, value, .. } in known.filter(|capability| revision >= capability.first) {
        let members = if name.contains('/') {
            &mut extensions
        } else {
            &mut capabilities
        };
        members.insert(
            (*name).to_owned(),
            serde_json::from_str(value).unwrap_or_default(),
        );
    }
    tasks::offer(
        &server.backend,
        revision,
        &mut capabilities,
        &mut extensions,
    );
    if !extensions.is_empty() {
        capabilities.insert("extensions".to_owned(), Value::Object(extensions));
    }
    Offer {
        capabilities: Value::Object(capabilities),
        instructions: INSTRUCTIONS,
    }
}

fn initialize(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    handshake::initialize(request.session, &request.id, request.params, |revision| {
        offer(server, revision)
    })
    .map(Action::Answer)
}

fn discover(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let revision = request.context.revision;
    Ok(Action::Answer(handshake::discover(
        &request.id,
        revision,
        &offer(server, revision),
    )))
}

fn ping(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    Ok(empty(&request))
}

fn set_level(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    handshake::set_level(request.session, request.params)?;
    Ok(empty(&request))
}

fn listen(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    Ok(Action::Listen(Box::new(Listen::new(
        &request.id,
        &request.context,
        server.backend.runs.keeps(),
        request.params,
    )?)))
}

fn empty(request: &Request<'_>) -> Action {
    Action::Answer(ResultWriter::new(&request.id, request.context.revision).end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_capabilities_are_json() {
        let names: std::collections::HashSet<_> =
            METHODS.iter().map(|method| method.name).collect();
        assert_eq!(names.len(), METHODS.len());
        for method in METHODS {
            let value = method
                .capability
                .as_ref()
                .map_or("{}", |capability| capability.value);
            assert!(
                serde_json::from_str::<Value>(value).is_ok_and(|value| value.is_object()),
                "{}",
                method.name
            );
        }
    }
}
