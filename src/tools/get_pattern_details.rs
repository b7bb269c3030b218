//! `fabric_get_pattern_details`: one pattern, whole.

use std::sync::Arc;

use serde::Serialize;

use crate::access::Role;
use crate::config::MAX_FABRIC_BODY;
use crate::fabric::{Error, Name, is_runnable, not_runnable};
use crate::search::card;

use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_pattern_details",
    title: "Get pattern details",
    description: "Get one Fabric pattern: what it does, its variables and its system prompt. Only needed to choose \
                  between patterns, or to follow one yourself.",
    output: include_str!("results/get_pattern_details.json"),
    read_only: true,
    role: Role::Read,
    prepare,
};

/// Most characters of the prompt, unless more are asked for.
const USUAL: usize = 8000;

#[derive(Serialize)]
struct Details {
    name: String,
    description: String,
    system_prompt: String,
    user_prompt_template: String,
    tags: Vec<String>,
    variables: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runnable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_chars: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let pattern = arguments.pattern("Exact name, as fabric_list_patterns gives it.");
    let offset = arguments.offset(MAX_FABRIC_BODY, "Characters of the prompt to skip.");
    let most = "Max characters of the prompt. Default 8000.";
    let max_chars = arguments.max_chars(MAX_FABRIC_BODY, most).unwrap_or(USUAL);
    Ok(Prepared {
        fields: vec![("pattern", pattern.as_str().to_owned())],
        ..Prepared::new(move |context| details(context, &pattern, offset, max_chars))
    })
}

/// Part of a text, and where the next one begins, in characters.
pub(super) fn part(text: &str, offset: usize, max_chars: usize) -> (&str, Option<usize>) {
    let at = |text: &str, n| text.char_indices().nth(n).map(|(at, _)| at);
    let rest = at(text, offset).map_or("", |from| &text[from..]);
    match at(rest, max_chars) {
        Some(end) => (&rest[..end], Some(offset + max_chars)),
        None => (rest, None),
    }
}

fn details(
    context: &Arc<Context>,
    name: &Name,
    offset: usize,
    max_chars: usize,
) -> Result<Outcome, Failure> {
    let backend = &context.backend;
    let pattern = backend.fabric.pattern(name, &context.wait())?;
    let name = name.as_str();
    let mut variables = pattern.variables();
    let runnable = is_runnable(&variables);
    if !runnable {
        variables.clear();
    }
    let warning = match runnable {
        true => backend.fabric.why_raw(name, &pattern.system_prompt),
        false => Some(not_runnable("pattern_name", name)),
    };
    let mut warnings: Vec<String> = warning.map(|error| error.detail).into_iter().collect();
    let (system_prompt, next_offset) = part(&pattern.system_prompt, offset, max_chars);
    if let Some(next) = next_offset {
        warnings.push(format!(
            "There is more of the prompt: if you need it, call fabric_get_pattern_details again with offset {next}."
        ));
    }
    let is_part = system_prompt.len() < pattern.system_prompt.len();
    let details = Details {
        name: name.to_owned(),
        description: pattern
            .own_description()
            .unwrap_or_else(|| card(name, &pattern.system_prompt).purpose),
        variables,
        runnable: (!runnable).then_some(false),
        total_chars: is_part.then(|| pattern.system_prompt.chars().count()),
        next_offset,
        system_prompt: system_prompt.to_owned(),
        user_prompt_template: pattern.user_prompt,
        tags: pattern.tags,
    };
    Ok(Outcome {
        bytes: Some(details.system_prompt.len()),
        ..Outcome::warning(details, warnings)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_in_characters_and_join_to_the_whole() {
        assert_eq!(part("añb", 0, 2), ("añ", Some(2)));
        assert_eq!(part("añb", 2, 2), ("b", None));
        assert_eq!(part("añb", 0, 3), ("añb", None));
        assert_eq!(part("añb", 9, 3), ("", None));
    }
}
