//! `fabric_run_pattern` of a server that reads patterns from folders and runs none: it gives the prompt to the model that
//! calls.

use crate::fabric::{Error, Name, lacks_nothing};

use super::arguments::{INPUT, PATTERN, VARIABLES};
use super::name_lookup::take_pattern;
use super::run_result::DEFAULT_FORMAT;
use super::{Arguments, Outcome, Policy, Tool, ToolWork, prompt, run_pattern};

pub(super) const TOOL: Tool = Tool {
    title: "Fill in a Fabric pattern, for you to follow",
    description: "Get the prompt of a Fabric pattern, filled in with a text, for you to follow: \
        your answer to it is the pattern's output. No other model is asked, and nothing costs \
        money. Give the whole text as input_text: links and files are not opened.",
    output: include_str!("results/fill_pattern.json"),
    read_only: true,
    declare,
    ..run_pattern::TOOL
};

/// The warning of a pattern with code.
const CODE: &str = "This prompt is not filled in, because there is code between its double \
    braces: they are shown unchanged, and no strategy is added.";

fn declare(arguments: &mut Arguments<'_>, policy: &Policy) -> Result<ToolWork, Error> {
    let mut step = arguments.step(PATTERN, "");
    step.input = arguments.text(INPUT);
    step.variables = arguments.variables(VARIABLES);
    let strategy = "strategy_name: A prompting strategy to put before it.";
    let strategy = (!policy.no_strategies).then(|| arguments.name(strategy));
    let strategy = strategy.flatten();
    // A client that knows the tool from a server with Fabric may send these, as --call does. The whole prompt is given at once
    // in any case.
    for name in ["dry_run", "stream", "max_chars"] {
        arguments.former(name);
    }
    arguments.check(policy.check("pattern_name", &step.pattern).err());
    let is_named = !arguments.refuses("pattern_name");
    arguments.plan.fields = vec![("pattern", step.pattern.as_str().to_owned())];
    arguments.look_up(is_named);
    Ok(Box::new(move |context| {
        let (fabric, observer) = (&context.backend.fabric, &context.observer());
        let taken = take_pattern(&mut step.pattern, context)?;
        let read = fabric.pattern(&step.pattern, observer)?;
        let name = step.pattern.as_str();
        let is_raw = fabric.why_raw(name, &read.system_prompt).is_some();
        let (mut needed, not) = (read.variables(), if is_raw { "not " } else { "" });
        let text = if is_raw {
            needed.clear();
            format!("{}\n{}", read.system_prompt, step.input)
        } else {
            lacks_nothing(&step, &needed)?;
            let strategy = strategy.as_ref().map_or("", Name::as_str);
            prompt(context, &step, strategy)?
        };
        let text = format!(
            "This is the prompt of the pattern {name}, {not}filled in; no model has been asked. \
             Follow it now: your answer is its output.\n\n{text}"
        );
        let unused = step.variables.keys().filter(|name| !needed.contains(name));
        let unused = unused.map(|name| format!("The variable \"{name}\" was not used."));
        let outcome = Outcome::text("output_text", text).warn(taken);
        let outcome = outcome.member("output_format", DEFAULT_FORMAT);
        Ok(outcome.warn(is_raw.then(|| CODE.to_owned())).warn(unused))
    }))
}
