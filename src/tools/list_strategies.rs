//! `fabric_list_strategies`: prompting strategies that can be put before a pattern.

use std::sync::Arc;

use crate::fabric::Cause;

use super::{Context, Failure, Outcome, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_strategies",
    title: "List strategies",
    description: "List Fabric's prompting strategies (chain of thought and the like) with what they do, for strategy_name.",
    output: include_str!("results/list_strategies.json"),
    read_only: true,
    prepare: |_, _| Ok(Prepared::new(strategies)),
};

fn strategies(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let found = context.backend.fabric.strategies(&context.wait())?;
    let warning = found.is_none().then(|| Cause::NoStrategies.to_string());
    let strategies = found.unwrap_or_default();
    Ok(Outcome::rows(strategies.len())
        .charged(&context.caller.account)
        .member("strategies", strategies)
        .warn(warning))
}
