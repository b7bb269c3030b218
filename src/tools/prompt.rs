//! The prompt of a pattern, as `prompts/get` and a dry run show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fabric::{Cause, Error, Name};

use super::{Context, not_listed, refused};

/// The pattern with `input` and `variables` filled in by Fabric, after the text of `strategy`, if one is named. Runs the
/// pattern's own plugins on Fabric's host, and no model.
///
/// # Errors
/// As for a run that is refused; `invalid-request` for an unknown strategy.
pub(crate) fn prompt(
    context: &Arc<Context>,
    pattern: &Name,
    input: &str,
    variables: &BTreeMap<String, String>,
    strategy: &str,
) -> Result<String, Error> {
    let before = match strategy {
        "" => String::new(),
        strategy => strategy_text(strategy, context)?,
    };
    let fabric = &context.backend.fabric;
    let rendered = fabric.apply(pattern, input, variables, &context.wait())?;
    Ok(match before.trim() {
        "" => rendered.system_prompt,
        before => format!("{before}\n{}", rendered.system_prompt),
    })
}

/// The prompt of the strategy of this name.
fn strategy_text(name: &str, context: &Arc<Context>) -> Result<String, Error> {
    let strategies = context.backend.fabric.strategies(&context.wait())?;
    let all =
        strategies.ok_or_else(|| refused(format!("`strategy_name`: {}", Cause::NoStrategies)))?;
    if let Some(strategy) = all.iter().find(|strategy| strategy.name == name) {
        return Ok(strategy.prompt.clone());
    }
    let known = all.iter().map(|strategy| strategy.name.as_str()).collect();
    let why = not_listed("strategy", name, "", &known);
    Err(refused(format!("`strategy_name`: {why}")))
}
