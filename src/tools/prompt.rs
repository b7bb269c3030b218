//! The prompt of a pattern, as `prompts/get` and a dry run show it.

use std::sync::Arc;

use crate::fabric::{Chat, Error};

use super::Context;
use super::name_lookup::strategy;

/// The step's pattern with input and variables filled in by Fabric, after the text of the strategy, if one is named. Runs
/// the pattern's own plugins on Fabric's host, and no model.
///
/// # Errors
/// As for a run that is refused; `invalid-request` for an unknown strategy.
pub(crate) fn prompt(
    context: &Arc<Context>,
    step: &Chat,
    strategy_name: &str,
) -> Result<String, Error> {
    let (fabric, observer) = (&context.backend.fabric, &context.observer());
    let before = match strategy_name {
        "" => String::new(),
        name => strategy(name, fabric.strategies(observer)?.as_deref())?
            .prompt
            .clone(),
    };
    let rendered = fabric.apply(step, observer)?.system_prompt;
    Ok(match before.trim() {
        "" => rendered,
        before => format!("{before}\n{rendered}"),
    })
}
