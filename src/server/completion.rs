//! `completion/complete`: names of patterns and strategies, best first.

use serde_json::json;

use crate::fabric::{Name, NameList, not_found};
use crate::protocol::{Params, Refusal};
use crate::text::letters;
use crate::tools::take_pattern;

use super::resources::{PATTERN_TEMPLATE, STRATEGY_TEMPLATE};
use super::{Action, Request, Server, prompts};

/// Most values of one completion; MCP's limit.
const MAX_COMPLETIONS: usize = 100;

/// Parses `completion/complete`. `context` is accepted, but no argument depends on another.
///
/// # Errors
/// -32602 for an unknown reference, or a prompt that is not allowed here.
pub(super) fn complete(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "completion/complete needs params.ref ({\"type\": \"ref/prompt\", \"name\"} or \
        {\"type\": \"ref/resource\", \"uri\"}) and params.argument ({\"name\", \"value\"}, both \
        strings).";
    let params = Params::new(request.params, usage);
    let (reference, argument) = (params.object("ref")?, params.object("argument")?);
    let (kind, uri) = (reference.text("type")?, reference.optional_text("uri")?);
    // Clients complete while somebody types, or pastes a whole input.
    let value = argument.get("value").and_then(|value| value.text());
    let value = String::from_iter(letters(value.ok_or_else(|| argument.refusal())?));
    let (argument, name) = (argument.text("name")?, reference.optional_text("name")?);
    let prompt = name.map(|name| Name::parse("ref.name", name));
    let prompt = prompt.transpose()?;
    // Whether names of strategies or of patterns complete it; `None` if the argument takes any text.
    let (prompt, by_strategies) = match (kind, prompt, uri) {
        ("ref/prompt", Some(prompt), _) => {
            server.backend.policy.check_prompt("ref.name", &prompt)?;
            let is_strategy = argument == prompts::STRATEGY;
            (Some(prompt), is_strategy.then_some(true))
        }
        ("ref/resource", _, Some(PATTERN_TEMPLATE | STRATEGY_TEMPLATE)) if argument != "name" => {
            let why = "The templates have one argument: \"name\".";
            return Err(Refusal::params(why));
        }
        ("ref/resource", _, Some(PATTERN_TEMPLATE)) => (None, Some(false)),
        ("ref/resource", _, Some(STRATEGY_TEMPLATE)) => (None, Some(true)),
        _ => {
            return Err(Refusal::params(format!(
                "params.ref must name a prompt (ref/prompt) or one of the templates \
                 {PATTERN_TEMPLATE} and {STRATEGY_TEMPLATE} (ref/resource)."
            )));
        }
    };
    Ok(request.call(move |context, result| {
        let (backend, observer) = (&context.backend, &context.observer());
        let (catalog, fabric) = (&backend.catalog, &backend.fabric);
        if let Some(mut prompt) = prompt {
            take_pattern(&mut prompt, context)?;
            let names = fabric.names(catalog.ttl, observer)?;
            if !names.contains(prompt.as_str()) {
                return Err(not_found(&prompt, &names, &|name| backend.policy.allows(name)).into());
            }
        }
        let ranked = match by_strategies {
            None => Vec::new(),
            Some(false) => rank(&value, fabric.names(fabric.missing(), observer)?.as_ref()),
            Some(true) => {
                let snapshot = catalog.snapshot(observer)?;
                let names = snapshot.strategies().iter().map(|s| s.name.as_str());
                rank(&value, &names.collect())
            }
        };
        let values = &ranked[..ranked.len().min(MAX_COMPLETIONS)];
        let (has_more, total) = (ranked.len() > values.len(), ranked.len());
        let completion = json!({ "hasMore": has_more, "total": total, "values": values });
        result.field("completion", &completion);
        Ok(())
    }))
}

/// Names that contain `value`, ignoring case and separators: first those that begin with it, then those where it begins
/// a word, then the rest; each group in the given order.
fn rank(value: &str, names: &NameList) -> Vec<String> {
    let folded = |name: &str| String::from_iter(letters(name));
    let value = folded(value);
    let group = |name: &str| {
        let mut marks = name.match_indices(|c: char| !c.is_alphanumeric());
        let is_word = marks.any(|(at, mark)| folded(&name[at + mark.len()..]).starts_with(&value));
        let name = folded(name);
        let groups = [name.starts_with(&value), is_word, name.contains(&value)];
        groups.iter().position(|is_in| *is_in)
    };
    let in_group = |wanted| names.iter().filter(move |name| group(name) == Some(wanted));
    (0..3).flat_map(in_group).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_then_word_start_then_substring() {
        let names = ["a_summary", "assume", "summarize", "zz", "Sum_it"].into_iter();
        let names = names.collect();
        let found = rank("sum", &names);
        assert_eq!(found, ["Sum_it", "summarize", "a_summary", "assume"]);
        assert_eq!(rank("", &names).len(), 5);
        assert!(rank("q", &names).is_empty());
        let found = ["Sum I", "sumI", "sum-it"].map(|value| rank(value, &names).concat());
        assert_eq!(found, ["Sum_it"; 3]);
    }
}
