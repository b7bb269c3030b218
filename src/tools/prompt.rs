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
    let before = match strategy_name {
        "" => String::new(),
        name => {
            let all = context.backend.fabric.strategies(&context.wait())?;
            strategy(name, all.as_deref())?.prompt.clone()
        }
    };
    let fabric = &context.backend.fabric;
    let rendered = fabric.apply(pattern, input, variables, &context.wait())?;
    Ok(match before.trim() {
        "" => rendered.system_prompt,
        before => format!("{before}\n{}", rendered.system_prompt),
    })
}
