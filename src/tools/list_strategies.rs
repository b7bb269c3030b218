//! `fabric_list_strategies`: prompting strategies that can be put before a pattern.

use std::sync::Arc;

use crate::fabric::{Cause, Error, Name};

use super::listed::strategy;
use super::{Arguments, Context, Failure, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_strategies",
    title: "List strategies",
    description: "List Fabric's prompting strategies (chain of thought and the like), for strategy_name.",
    output: include_str!("results/list_strategies.json"),
    read_only: true,
    prepare,
};

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let name = arguments.name("strategy_name", "Only one, with its prompt.");
    Ok(Prepared::new(move |context| strategies(context, name)))
}

/// Without their prompts, which are long, unless one is named.
fn strategies(context: &Arc<Context>, name: Option<Name>) -> Result<Outcome, Failure> {
    let mut found = context.backend.fabric.strategies(&context.wait())?;
    let warning = found.is_none().then(|| Cause::NoStrategies.to_string());
    if let Some(name) = name {
        found = Some(vec![strategy(name.as_str(), found.as_deref())?.clone()]);
    } else {
        found
            .iter_mut()
            .flatten()
            .for_each(|one| one.prompt.clear());
    }
    let strategies = found.unwrap_or_default();
    Ok(Outcome::rows(strategies.len())
        .charged(&context.caller.account)
        .member("strategies", strategies)
        .warn(warning))
}
