//! `prompts/list` and `prompts/get`: every allowed pattern is a prompt, rendered by Fabric, so that the client's own
//! model sees what Fabric's model gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::fabric::names::in_quotes;
use crate::fabric::{Entry, Name, Snapshot, is_runnable, not_found, not_runnable};
use crate::protocol::{Feature, Node, Params, Refusal, ResultWriter, Revision, jsonrpc};
use crate::search::humanised;
use crate::text::shown;
use crate::tools::{Context, prompt};

use super::{Action, Request, Server, while_fresh};

/// The input text.
const INPUT: &str = "input_text";
/// A strategy to put before the pattern.
pub(super) const STRATEGY: &str = "strategy_name";

/// Parses `prompts/list`.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = request.cursor_of_changing_list()?;
    Ok(request.call(move |context, result| {
        let backend = &context.backend;
        let (snapshot, revision) = (backend.catalog.snapshot(&context.wait())?, result.revision);
        let is_offered = |entry: &&Entry| {
            let text = entry.text.as_deref().unwrap_or_default();
            !backend.policy.no_prompts
                && is_runnable(&entry.variables)
                && backend.policy.allows(&entry.name)
                && backend.fabric.why_raw(&entry.name, text).is_none()
        };
        let offered: Vec<&Entry> = snapshot.patterns.iter().filter(is_offered).collect();
        let entry = |at: usize| define(&snapshot, offered[at], revision);
        cursor.write(result, "prompts", offered.len(), entry)?;
        result.cache(while_fresh(&snapshot));
        Ok(())
    }))
}

/// A prompt in a list, of which there may be thousands: as a `Value` each would take twice as long.
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
    description: String,
    name: &'a str,
    required: bool,
}

fn define<'a>(snapshot: &'a Snapshot, entry: &'a Entry, revision: Revision) -> PromptEntry<'a> {
    let argument = |name, description: String, required| PromptArgument {
        description,
        name,
        required,
    };
    let description = "The text that the pattern works on.";
    let mut arguments = vec![argument(INPUT, description.to_owned(), false)];
    for name in own_variables(entry) {
        let description = format!("Value of the pattern's variable {name}.");
        arguments.push(argument(name, description, true));
    }
    let description = "A prompting strategy to put before the pattern.";
    arguments.push(argument(STRATEGY, description.to_owned(), false));
    let has_title = revision.knows(Feature::Title);
    PromptEntry {
        arguments,
        description: snapshot.description(&entry.name),
        name: &entry.name,
        title: has_title.then(|| humanised(&entry.name)),
    }
}

/// The variables with arguments of their own. A variable named like one of our arguments gets that argument's value.
fn own_variables(entry: &Entry) -> impl Iterator<Item = &str> {
    let all = entry.variables.iter().map(String::as_str);
    all.filter(|name| ![INPUT, STRATEGY].contains(name))
}

/// Parses `prompts/get`.
///
/// # Errors
/// -32602 that names what is wrong, or for a pattern that is not allowed here.
pub(super) fn get(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "prompts/get needs params.name, a string, and params.arguments, an object whose values are strings.";
    let params = Params::new(request.params, usage);
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
    server.backend.policy.check_prompt("name", &name)?;
    Ok(request.call(move |context, result| render(&name, &arguments, context, result)))
}

/// Renders a prompt.
///
/// # Errors
/// -32602 for an unknown prompt, an unknown argument, a missing variable, or an unknown strategy.
fn render(
    pattern: &Name,
    arguments: &BTreeMap<String, String>,
    context: &Arc<Context>,
    result: &mut ResultWriter,
) -> Result<(), Refusal> {
    let backend = &context.backend;
    let snapshot = backend.catalog.snapshot(&context.wait())?;
    let name = pattern.as_str();
    let Some(entry) = snapshot.pattern(name) else {
        let names = snapshot.patterns.iter().map(|entry| entry.name.as_str());
        let names = names.filter(|name| backend.policy.allows(name)).collect();
        return Err(not_found(pattern, &names).into());
    };
    if !is_runnable(&entry.variables) {
        return Err(not_runnable("name", name).into());
    }
    let takes: Vec<&str> = [INPUT]
        .into_iter()
        .chain(own_variables(entry))
        .chain([STRATEGY])
        .collect();
    if let Some(other) = arguments.keys().find(|key| !takes.contains(&key.as_str())) {
        let shown = shown(other, 64);
        return Err(Refusal::params(format!(
            "`{shown}` is not an argument of the prompt {name}: it takes {}.",
            takes.join(", ")
        )));
    }
    let missing: Vec<&str> = own_variables(entry)
        .filter(|variable| !arguments.contains_key(*variable))
        .collect();
    if !missing.is_empty() {
        return Err(Refusal::params(format!(
            "`arguments` lacks {}, which the prompt {name} needs.",
            in_quotes(missing, "and")
        )));
    }
    let argument = |name: &str| arguments.get(name).map_or("", String::as_str);
    // Without the input, which may be large.
    let variables = arguments
        .iter()
        .filter(|(name, _)| entry.variables.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let text = prompt(
        context,
        pattern,
        argument(INPUT),
        &variables,
        argument(STRATEGY),
    )?;
    let out = result
        .field("description", snapshot.description(name))
        .key("messages");
    out.extend_from_slice(br#"[{"content":{"text":"#);
    jsonrpc::write_json(out, &text);
    out.extend_from_slice(br#","type":"text"},"role":"user"}]"#);
    Ok(())
}
