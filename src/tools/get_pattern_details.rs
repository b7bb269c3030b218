//! `fabric_get_pattern_details`: one pattern, whole.

use std::sync::Arc;

use serde::Serialize;

use crate::access::Role;
use crate::config::MAX_FABRIC_BODY;
use crate::fabric::{Error, Name, is_runnable, not_runnable};

use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_pattern_details",
    title: "Get pattern details",
    description: "Get one Fabric pattern: what it does, its whole system prompt, and the variables that \
                  fabric_run_pattern needs for it.",
    output: OUTPUT,
    read_only: true,
    role: Role::Read,
    prepare,
};

const OUTPUT: &str = r#"{
  "type":"object",
  "properties":{
    "name":{"type":"string","description":"The pattern's name."},
    "description":{"type":"string","description":"What it is for, in one sentence."},
    "system_prompt":{"type":"string","description":"The prompt itself, in Markdown."},
    "user_prompt_template":{"type":"string","description":"The template for the user's part; mostly empty."},
    "tags":{"type":"array","items":{"type":"string"},"description":"Areas it belongs to; often none."},
    "variables":{"type":"array","items":{"type":"string"},"description":"Names to give in variables when the pattern is run."},
    "runnable":{"type":"boolean","description":"false if no Fabric can run it."},
    "total_chars":{"type":"integer","description":"Characters of the whole system prompt, where only a part was asked for."},
    "next_offset":{"type":"integer","description":"The offset at which the next part begins, where there is one."},
    "warnings":{"type":"array","items":{"type":"string"},"description":"What must not be overlooked."}
  },
  "required":["name","description","system_prompt","user_prompt_template","tags","variables"]
}"#;

struct GetPatternDetails {
    pattern: Name,
    offset: Option<usize>,
    max_chars: Option<usize>,
}

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let pattern = arguments.pattern("Exact name, as fabric_list_patterns gives it.");
    let offset = arguments.integer(
        "offset",
        (0, MAX_FABRIC_BODY),
        "Character of the prompt to begin at. Default 0.",
    );
    let max_chars = arguments.integer(
        "max_chars",
        (1, MAX_FABRIC_BODY),
        "Most characters of the prompt. Default: all.",
    );
    let fields = vec![("pattern", pattern.as_str().to_owned())];
    let wanted = GetPatternDetails {
        pattern,
        offset,
        max_chars,
    };
    Ok(Prepared {
        fields,
        ..Prepared::new(move |context| wanted.get(context))
    })
}

/// Part of a text, and where the next one begins, in characters.
fn part(text: &str, offset: usize, max_chars: Option<usize>) -> (&str, Option<usize>) {
    let at = |text: &str, n| text.char_indices().nth(n).map(|(at, _)| at);
    let rest = at(text, offset).map_or("", |from| &text[from..]);
    let cut = max_chars.and_then(|max_chars| Some((at(rest, max_chars)?, offset + max_chars)));
    cut.map_or((rest, None), |(end, next)| (&rest[..end], Some(next)))
}

impl GetPatternDetails {
    fn get(&self, context: &Arc<Context>) -> Result<Outcome, Failure> {
        let backend = &context.backend;
        let pattern = backend.fabric.pattern(&self.pattern, &context.wait())?;
        let is_part = self.offset.is_some() || self.max_chars.is_some();
        let name = self.pattern.as_str();
        let card = backend.catalog.card(name, &pattern.system_prompt);
        let (system_prompt, next_offset) = part(
            &pattern.system_prompt,
            self.offset.unwrap_or(0),
            self.max_chars,
        );
        let variables = pattern.variables();
        let runnable = is_runnable(&variables);
        let warning = match runnable {
            true => backend.fabric.why_raw(name, &pattern.system_prompt),
            false => Some(not_runnable("pattern_name", name)),
        };
        let warnings: Vec<String> = warning.map(|error| error.detail).into_iter().collect();
        let details = Details {
            name: name.to_owned(),
            description: pattern.own_description().unwrap_or(card.purpose),
            variables: if runnable { variables } else { Vec::new() },
            runnable: (!runnable).then_some(false),
            total_chars: is_part.then(|| pattern.system_prompt.chars().count()),
            next_offset,
            warnings: warnings.clone(),
            system_prompt: system_prompt.to_owned(),
            user_prompt_template: pattern.user_prompt,
            tags: pattern.tags,
        };
        let bytes = Some(details.system_prompt.len());
        Ok(Outcome {
            warnings,
            bytes,
            ..Outcome::json(details)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_in_characters_and_join_to_the_whole() {
        assert_eq!(part("añb", 0, None), ("añb", None));
        assert_eq!(part("añb", 0, Some(2)), ("añ", Some(2)));
        assert_eq!(part("añb", 2, Some(2)), ("b", None));
        assert_eq!(part("añb", 0, Some(3)), ("añb", None));
        assert_eq!(part("añb", 9, Some(3)), ("", None));
    }
}
