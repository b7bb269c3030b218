//! `prompts/list` and `prompts/get`: every allowed pattern is a prompt, rendered by Fabric, so that the client's own
//! model sees what Fabric's model gets.

use std::collections::BTreeMap;

use serde_json::json;

use crate::fabric::names::in_quotes;
use crate::fabric::{Chat, Entry, Name, is_runnable, not_found, not_runnable};
use crate::protocol::{Feature, Params, Refusal, jsonrpc};
use crate::search::humanised;
use crate::text::shown;
use crate::tools::{Policy, prompt, take_pattern};

use super::{Action, Request, Server, while_fresh};

/// The input text.
const INPUT: &str = "input_text";
/// A strategy to put before the pattern.
pub(super) const STRATEGY: &str = "strategy_name";

pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = request.cursor_of_changing_list()?;
    Ok(request.call(move |context, result| {
        let backend = &context.backend;
        let snapshot = backend.catalog.snapshot(&context.observer())?;
        let has_title = result.revision.knows(Feature::Title);
        let is_offered = |entry: &&Entry| {
            let text = entry.text.as_deref().unwrap_or_default();
            !backend.policy.no_prompts
                && is_runnable(&entry.variables)
                && backend.policy.allows(&entry.name)
                && backend.fabric.why_raw(&entry.name, text).is_none()
        };
        let offered = snapshot.patterns.iter().filter(is_offered);
        let prompt = |entry| {
            let arguments = names(entry, &backend.policy).map(|name| {
                let description = match name {
                    INPUT => "The text that the pattern works on.",
                    STRATEGY => "A prompting strategy to put before the pattern.",
                    name => &format!("Value of the pattern's variable {name}."),
                };
                let required = ![INPUT, STRATEGY].contains(&name);
                json!({ "description": description, "name": name, "required": required })
            });
            let mut prompt = json!({
                "arguments": Vec::from_iter(arguments),
                "description": snapshot.description(&entry.name),
                "name": entry.name,
            });
            if has_title {
                prompt["title"] = humanised(&entry.name).into();
            }
            prompt
        };
        let list = &snapshot.prompts[usize::from(has_title)];
        cursor.share(result, "prompts", list, offered.map(prompt))?;
        result.cache(while_fresh(&snapshot));
        Ok(())
    }))
}

/// The names of a prompt's arguments. A variable named like one of ours gets that argument's value.
fn names<'a>(entry: &'a Entry, policy: &Policy) -> impl Iterator<Item = &'a str> {
    let own = entry.variables.iter().map(String::as_str);
    let own = own.filter(|name| ![INPUT, STRATEGY].contains(name));
    let last = (!policy.no_strategies).then_some(STRATEGY);
    [INPUT].into_iter().chain(own).chain(last)
}

/// Parses `prompts/get`.
///
/// # Errors
/// -32602 that names what is wrong, for a pattern that is not allowed here, and later for an unknown prompt, an unknown
/// argument, a missing variable, or an unknown strategy.
pub(super) fn get(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "prompts/get needs params.name, a string, and params.arguments, an object whose values are strings.";
    let params = Params::new(request.params, usage);
    let name = params.text("name")?;
    let mut arguments = BTreeMap::new();
    for (name, value) in params.members("arguments")? {
        let value = value.text().ok_or_else(|| params.refusal())?;
        arguments.insert(name.to_string(), value.to_owned());
    }
    let mut pattern = Name::parse("name", name)?;
    server.backend.policy.check_prompt("name", &pattern)?;
    Ok(request.call(move |context, result| {
        let backend = &context.backend;
        // Before the rest, because it also finds a pattern that Fabric got after the snapshot was made.
        take_pattern(&mut pattern, context)?;
        let snapshot = backend.catalog.snapshot(&context.observer())?;
        let name = pattern.as_str();
        let Some(entry) = snapshot.pattern(name) else {
            let names = snapshot.patterns.iter().map(|entry| entry.name.as_str());
            let names = names.filter(|name| backend.policy.allows(name)).collect();
            return Err(not_found(&pattern, &names, &|_| true).into());
        };
        if !is_runnable(&entry.variables) {
            return Err(not_runnable("name", name).into());
        }
        let takes: Vec<&str> = names(entry, &backend.policy).collect();
        if let Some(other) = arguments.keys().find(|key| !takes.contains(&key.as_str())) {
            let shown = shown(other, 64);
            return Err(Refusal::params(format!(
                "`{shown}` is not an argument of the prompt {name}: it takes {}.",
                takes.join(", ")
            )));
        }
        let own = takes[1..].iter().copied();
        let own = own.filter(|name| *name != STRATEGY && !arguments.contains_key(*name));
        let missing: Vec<&str> = own.collect();
        if !missing.is_empty() {
            return Err(Refusal::params(format!(
                "`arguments` lacks {}, which the prompt {name} needs.",
                in_quotes(missing, "and")
            )));
        }
        let mut argument = |name: &str| match entry.variables.iter().any(|one| one == name) {
            true => arguments.get(name).cloned(),
            // Moved out and not copied, because it may be large.
            false => arguments.remove(name),
        };
        let [input, strategy] = [INPUT, STRATEGY].map(|name| argument(name).unwrap_or_default());
        arguments.retain(|name, _| entry.variables.contains(name));
        let step = Chat {
            variables: arguments,
            ..Chat::new(pattern, input)
        };
        let text = prompt(context, &step, &strategy)?;
        let description = snapshot.description(step.pattern.as_str());
        let out = result.field("description", description).key("messages");
        out.extend(br#"[{"content":{"text":"#);
        jsonrpc::write_json(out, &text);
        out.extend(br#","type":"text"},"role":"user"}]"#);
        Ok(())
    }))
}
