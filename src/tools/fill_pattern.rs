//! `fabric_run_pattern` of a server that reads patterns from folders and runs none: it gives the prompt to the model that
//! calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fabric::{Error, Name, lacks_nothing};

use super::listed::take_pattern;
use super::prompt::before;
use super::run_result::DEFAULT_FORMAT;
use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool, run_pattern};

pub(super) const TOOL: Tool = Tool {
    title: "Fill in a Fabric pattern, for you to follow",
    description: "Get the prompt of a Fabric pattern, filled in with a text, for you to follow: your answer to it is the \
                  pattern's output. No other model is asked, and nothing costs money. Give the whole text as input_text: \
                  links and files are not opened.",
    read_only: true,
    declare,
    ..run_pattern::TOOL
};

/// The warning of a pattern that a Fabric would execute.
const CODE: &str =
    "What stands between double braces in this pattern is code, which is shown as it is.";

fn declare(arguments: &mut Arguments<'_>, policy: &Policy) -> Result<Prepared, Error> {
    let pattern = arguments.pattern("Exact name, as fabric_list_patterns gives it.");
    let input = arguments.text("input_text", "What the pattern works on.");
    let variables = arguments.variables(
        "variables",
        "A value for each of the pattern's variables, by name.",
    );
    let strategy = arguments.name("strategy_name", "A prompting strategy to put before it.");
    // Whoever knows the tool from a server with a Fabric asks for what it always does here.
    arguments.former("dry_run");
    arguments.check(policy.check("pattern_name", &pattern));
    Ok(Prepared {
        fields: vec![("pattern", pattern.as_str().to_owned())],
        ..Prepared::new(move |context| {
            let strategy = strategy.as_ref().map_or("", Name::as_str);
            fill(context, pattern, &input, &variables, strategy)
        })
    })
}

fn fill(
    context: &Arc<Context>,
    mut pattern: Name,
    input: &str,
    variables: &BTreeMap<String, String>,
    strategy: &str,
) -> Result<Outcome, Failure> {
    let (fabric, wait) = (&context.backend.fabric, &context.wait());
    let taken = take_pattern(&mut pattern, context)?;
    let (name, read) = (pattern.as_str(), fabric.pattern(&pattern, wait)?);
    let before = before(context, strategy)?;
    let (text, code) = match fabric.why_raw(name, &read.system_prompt) {
        Some(_) => (format!("{}\n{input}", read.system_prompt), Some(CODE)),
        None => {
            lacks_nothing("variables", &pattern, &read.variables(), variables)?;
            let filled = fabric.apply(&pattern, input, variables, wait)?;
            (filled.system_prompt, None)
        }
    };
    let head = format!(
        "This is the prompt of the pattern {name}, filled in; nothing has run it. Follow it now: your answer is its output.\n\n"
    );
    Ok(
        Outcome::text("output_text", [&*head, &before, &text].concat())
            .member("output_format", DEFAULT_FORMAT)
            .warn(taken)
            .warn(code.map(str::to_owned)),
    )
}
