//! The prompt of a pattern, as `prompts/get` and a dry run show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fabric::{Error, Name};

use super::Context;
use super::listed::strategy;

/// The pattern with `input` and `variables` filled in by Fabric, after the text of the strategy, if one is named. Runs the
/// pattern's own plugins on Fabric's host, and no model.
///
/// # Errors
/// As for a run that is refused; `invalid-request` for an unknown strategy.
pub(crate) fn prompt(
    context: &Arc<Context>,
    pattern: &Name,
    input: &str,
    variables: &BTreeMap<String, String>,
    strategy_name: &str,
) -> Result<String, Error> {
    let before = before(context, strategy_name)?;
    let fabric = &context.backend.fabric;
    let rendered = fabric.apply(pattern, input, variables, &context.wait())?;
    Ok(before + &rendered.system_prompt)
}

/// What stands before the pattern: the text of the strategy and a line end, or nothing.
///
/// # Errors
/// `invalid-request` for an unknown strategy.
pub(super) fn before(context: &Arc<Context>, strategy_name: &str) -> Result<String, Error> {
    if strategy_name.is_empty() {
        return Ok(String::new());
    }
    let all = context.backend.catalog.strategies(&context.wait())?;
    let text = strategy(strategy_name, (*all).as_deref())?.prompt.trim();
    Ok(match text {
        "" => String::new(),
        text => format!("{text}\n"),
    })
}
