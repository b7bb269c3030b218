//! `prompts/list` and `prompts/get`: every allowed pattern is a prompt, rendered by Fabric, so that the client's own
//! model sees what Fabric's model gets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::fabric::{Age, Entry, NO_STRATEGIES, Name, Snapshot, not_found, not_runnable};
use crate::protocol::pages;
use crate::protocol::{Feature, Node, Params, Refusal, ResultWriter, Revision};
use crate::search::humanised;
use crate::text::shown;
use crate::tools::Policy;

use super::call::Working;
use super::{Action, Request, Server, while_fresh};

/// The input text.
const INPUT: &str = "input_text";
/// A strategy to put before the pattern.
pub(super) const STRATEGY: &str = "strategy_name";

/// Parses `prompts/list`.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    if request.context.revision.is_legacy() {
        request.session.follow_lists();
    }
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |call, result| {
        let snapshot = call.server.backend.catalog.snapshot(&call.context.wait())?;
        let backend = &call.server.backend;
        let is_offered = |entry: &&Entry| {
            let text = entry.text.as_deref().unwrap_or_default();
            entry.is_runnable()
                && backend.policy.allows(&entry.name)
                && backend.fabric.why_raw(&entry.name, text).is_none()
        };
        let allowed: Vec<&Entry> = snapshot.patterns.iter().filter(is_offered).collect();
        let revision = result.revision;
        cursor.write(result, "prompts", &allowed, |entry| {
            define(&snapshot, entry, revision)
        })?;
        result.cache(while_fresh(&snapshot));
        Ok(())
    }))
}

/// A prompt in a list.
#[derive(Serialize)]
struct PromptEntry<'a> {
    arguments: Vec<PromptArgument<'a>>,
    description: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

#[derive(Serialize)]
struct PromptArgument<'a> {
    description: Cow<'static, str>,
    name: &'a str,
    required: bool,
}

fn define<'a>(snapshot: &'a Snapshot, entry: &'a Entry, revision: Revision) -> PromptEntry<'a> {
    let optional = |name, description: &'static str| PromptArgument {
        description: description.into(),
        name,
        required: false,
    };
    let mut arguments = vec![optional(INPUT, "The text that the pattern works on.")];
    for name in own_variables(entry) {
        let description = format!("Value of the pattern's variable {name}.").into();
        arguments.push(PromptArgument {
            description,
            name,
            required: true,
        });
    }
    arguments.push(optional(
        STRATEGY,
        "A prompting strategy to put before the pattern.",
    ));
    let title = revision
        .knows(Feature::Title)
        .then(|| humanised(&entry.name));
    PromptEntry {
        arguments,
        description: snapshot.description(&entry.name),
        name: &entry.name,
        title,
    }
}

/// The variables with arguments of their own. A variable named like one of our arguments gets that argument's value.
fn own_variables(entry: &Entry) -> impl Iterator<Item = &String> {
    entry
        .variables
        .iter()
        .filter(|v| *v != INPUT && *v != STRATEGY)
}

/// Parses `prompts/get`.
pub(super) fn get(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let get = GetPrompt::read(request.params, &server.backend.policy)?;
    Ok(request.call(move |call, result| get.run(call, result)))
}

/// A `prompts/get` with parsed params.
struct GetPrompt {
    name: Name,
    arguments: BTreeMap<String, String>,
}

impl GetPrompt {
    /// Parses the params.
    ///
    /// # Errors
    /// -32602 that names what is wrong, or for a pattern that is not allowed here.
    fn read(params: Option<&Node<'_>>, policy: &Policy) -> Result<GetPrompt, Refusal> {
        let usage = "prompts/get needs params.name, a string, and params.arguments, an object whose values are strings.";
        let params = Params::new(params, usage);
        let name = params.text("name")?;
        let mut arguments = BTreeMap::new();
        match params.get("arguments") {
            None => {}
            Some(Node::Object(members)) => {
                for (name, value) in members {
                    let value = value.text().ok_or_else(|| params.refusal())?;
                    arguments.insert(name.to_string(), value.to_owned());
                }
            }
            Some(_) => return Err(params.refusal()),
        }
        let name = Name::parse("name", name)?;
        policy.check("name", &name)?;
        Ok(GetPrompt { name, arguments })
    }

    /// Renders the prompt.
    ///
    /// # Errors
    /// -32602 for an unknown prompt, an unknown argument, a missing variable, or an unknown strategy.
    fn run(&self, call: &Working<'_>, result: &mut ResultWriter) -> Result<(), Refusal> {
        let (backend, wait) = (&call.server.backend, &call.context.wait());
        let snapshot = backend.catalog.snapshot(wait)?;
        let name = self.name.as_str();
        let Some(entry) = snapshot.pattern(name) else {
            let names = snapshot.patterns.iter().map(|entry| entry.name.as_str());
            let names = names.filter(|name| backend.policy.allows(name)).collect();
            return Err(not_found(&self.name, &names).into());
        };
        if !entry.is_runnable() {
            return Err(not_runnable("name", name).into());
        }
        let takes: Vec<&str> = [INPUT]
            .into_iter()
            .chain(own_variables(entry).map(String::as_str))
            .chain([STRATEGY])
            .collect();
        if let Some(other) = self
            .arguments
            .keys()
            .find(|key| !takes.contains(&key.as_str()))
        {
            let shown = shown(other, 64);
            return Err(Refusal::params(format!(
                "`{shown}` is not an argument of the prompt {name}: it takes {}.",
                takes.join(", ")
            )));
        }
        if let Some(missing) =
            own_variables(entry).find(|variable| !self.arguments.contains_key(*variable))
        {
            return Err(Refusal::params(format!(
                "The argument `{missing}` is missing: the prompt {name} needs it."
            )));
        }
        let argument = |name: &str| self.arguments.get(name).map_or("", String::as_str);
        let strategies = match argument(STRATEGY) {
            "" => Arc::default(),
            _ => backend.catalog.strategies(Age::Cached, wait)?,
        };
        let strategy = match (argument(STRATEGY), strategies.as_deref()) {
            ("", _) => None,
            (_, None) => return Err(Refusal::params(format!("`{STRATEGY}`: {NO_STRATEGIES}"))),
            (wanted, Some(all)) => Some(
                all.iter()
                    .find(|strategy| strategy.name == wanted)
                    .ok_or_else(|| {
                        let known: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
                        let known = if known.is_empty() {
                            "none".into()
                        } else {
                            known.join(", ")
                        };
                        Refusal::params(format!(
                            "`{STRATEGY}` names no strategy of Fabric: there are {known}."
                        ))
                    })?,
            ),
        };
        // Without the input, which may be large.
        let variables = self
            .arguments
            .iter()
            .filter(|(name, _)| entry.variables.contains(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let rendered = backend
            .fabric
            .apply(&self.name, argument(INPUT), &variables, wait)?;
        let text = match strategy {
            Some(strategy) if !strategy.prompt.trim().is_empty() => {
                format!("{}\n{}", strategy.prompt.trim(), rendered.system_prompt)
            }
            _ => rendered.system_prompt,
        };
        result
            .field("description", snapshot.description(name))
            .field(
                "messages",
                &[PromptMessage {
                    content: PromptContent {
                        text: &text,
                        r#type: "text",
                    },
                    role: "user",
                }],
            );
        Ok(())
    }
}

/// A rendered prompt: one message.
#[derive(Serialize)]
struct PromptMessage<'a> {
    content: PromptContent<'a>,
    role: &'static str,
}

#[derive(Serialize)]
struct PromptContent<'a> {
    text: &'a str,
    r#type: &'static str,
}
