//! `fabric_list_strategies`: prompting strategies that can be put before a pattern.

use serde::Serialize;

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
        let listed = match name {
            Some(name) => vec![strategy(name.as_str(), (*found).as_deref())?],
            None => found.iter().flatten().collect(),
        };
        let rows = listed.iter().map(|one| StrategyRow {
            name: &one.name,
            description: &one.description,
            // Prompts are long.
            prompt: if is_one { &one.prompt } else { "" },
        });
        let strategies = Vec::from_iter(rows);
        Ok(Outcome::rows(strategies.len())
            .charged(context.account())
            .member("strategies", strategies)
            .warn(warning))
    })
    .looked_up(is_one, arguments))
}

/// A strategy in the list.
#[derive(Serialize)]
struct StrategyRow<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    prompt: &'a str,
}
