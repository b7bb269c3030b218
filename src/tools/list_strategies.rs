//! `fabric_list_strategies`: prompting strategies that can be put before a pattern.

use serde::Serialize;

use crate::fabric::{Cause, Error};

use super::name_lookup::strategy;
use super::{Arguments, Outcome, Policy, Tool, ToolWork};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_strategies",
    title: "List strategies",
    description: "List Fabric's prompting strategies (chain of thought and the like), for strategy_name.",
    output: include_str!("results/list_strategies.json"),
    read_only: true,
    declare,
};

/// A strategy as it is listed. It borrows: there is no room for its texts before they are charged for.
#[derive(Serialize)]
struct StrategyRow<'s> {
    name: &'s str,
    description: &'s str,
    #[serde(skip_serializing_if = "str::is_empty")]
    prompt: &'s str,
}

/// What may stand around a name.
const MARKS: [char; 6] = ['(', ')', '.', ',', ':', ' '];

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let name = arguments.string("strategy_name: Only one, with its prompt.");
    // All are few enough to be the answer to any question.
    arguments.former("query");
    arguments.look_up(name.is_some());
    Ok(Box::new(move |context| {
        let found = context.backend.catalog.strategies(&context.observer())?;
        let warning = found.is_none().then(|| Cause::NoStrategies.text());
        let all = (*found).as_deref();
        let one = name.map(|name| strategy(name.trim_matches(MARKS), all));
        let (one, unknown) = match one.transpose() {
            Err(error) if context.head.plan.fault.is_none() => (None, Some(error.detail)),
            one => (one?, None),
        };
        let is_one = one.is_some();
        let listed = one.map_or(all.unwrap_or_default(), std::slice::from_ref);
        let listed = Vec::from_iter(listed.iter().map(|one| StrategyRow {
            name: &one.name,
            description: &one.description,
            // Prompts are long.
            prompt: if is_one { &one.prompt } else { "" },
        }));
        Ok(Outcome::rows(listed.len())
            .charged(context.account())
            .member("strategies", listed)
            .warn(unknown.or(warning)))
    }))
}
