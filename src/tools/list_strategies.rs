//! `fabric_list_strategies`: prompting strategies that can be put before a pattern.

use crate::fabric::{Cause, Error};

use super::listed::strategy;
use super::{Arguments, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_strategies",
    title: "List strategies",
    description: "List Fabric's prompting strategies (chain of thought and the like), for strategy_name.",
    output: include_str!("results/list_strategies.json"),
    read_only: true,
    declare,
};

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let name = arguments.name("strategy_name: Only one, with its prompt.");
    let is_one = name.is_some();
    Ok(Prepared::new(move |context| {
        let found = context.backend.catalog.strategies(&context.wait())?;
        let warning = found.is_none().then(|| Cause::NoStrategies.to_string());
        let mut listed = match name {
            Some(name) => vec![strategy(name.as_str(), (*found).as_deref())?.clone()],
            None => found.iter().flatten().cloned().collect(),
        };
        // Prompts are long.
        for one in listed.iter_mut().filter(|_| !is_one) {
            one.prompt.clear();
        }
        Ok(Outcome::rows(listed.len())
            .charged(context.account())
            .member("strategies", listed)
            .warn(warning))
    })
    .looked_up(is_one, arguments))
}
