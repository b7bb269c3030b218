//! `fabric_get_pattern_details`: one pattern, whole.

use std::sync::Arc;

use crate::config::{MAX_FABRIC_BODY, SHOWN_PROMPT};
use crate::fabric::{Error, Name, is_runnable, not_runnable};

use super::arguments::PATTERN;
use super::name_lookup::take_pattern;
use super::part::Part;
use super::{Arguments, Context, Outcome, Policy, Tool, ToolResult, ToolWork};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_pattern_details",
    title: "Get pattern details",
    description: "Get one Fabric pattern: its variables and system prompt. Only needed to choose \
        between patterns, or to follow one yourself.",
    output: include_str!("results/get_pattern_details.json"),
    read_only: true,
    declare,
};

/// What the errors of other tools advise, of a pattern that is not run.
const READ_IT: &str = "Read its text with fabric_get_pattern_details and follow";

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let pattern = arguments.step(PATTERN, "").pattern;
    let part = arguments.part(MAX_FABRIC_BODY, SHOWN_PROMPT);
    let is_named = !arguments.refuses("pattern_name");
    arguments.plan.fields = vec![("pattern", pattern.as_str().to_owned())];
    arguments.look_up(is_named);
    Ok(Box::new(move |context| details(context, pattern, part)))
}

fn details(context: &Arc<Context>, mut name: Name, wanted: (usize, usize)) -> ToolResult {
    let backend = &context.backend;
    take_pattern(&mut name, context)?;
    let pattern = backend.fabric.pattern(&name, &context.observer())?;
    let denied = backend.policy.check("pattern_name", &name).err();
    let name = name.as_str();
    let mut variables = pattern.variables();
    let runnable = is_runnable(&variables);
    variables.retain(|_| runnable);
    let code = (!runnable).then(|| not_runnable("pattern_name", name));
    let warning = code.or_else(|| backend.fabric.why_raw(name, &pattern.system_prompt));
    let part = Part::of(&pattern.system_prompt, wanted);
    Ok(Outcome::default()
        .sized("bytes", part.text.len())
        .member("name", name)
        .member("description", pattern.summary(name))
        .member("system_prompt", part.text)
        .member("user_prompt_template", &pattern.user_prompt_template)
        .member("tags", &pattern.tags)
        .member("variables", variables)
        .optional("runnable", (!runnable || denied.is_some()).then_some(false))
        .warn(denied.map(|error| error.detail))
        .warn(warning.map(|error| error.detail.replace(READ_IT, "Follow")))
        .part(&part, "prompt", TOOL.name))
}
