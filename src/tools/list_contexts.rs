//! `fabric_list_contexts`: contexts and sessions that are stored in Fabric.

use std::sync::Arc;

use crate::fabric::Route;

use super::{Context, Outcome, Tool, ToolResult};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_contexts",
    title: "List contexts and sessions",
    description: "List the contexts and sessions stored in Fabric, for context_name and session_name.",
    output: include_str!("results/list_contexts.json"),
    read_only: true,
    declare: |_, _| Ok(Box::new(contexts)),
};

fn contexts(context: &Arc<Context>) -> ToolResult {
    let (fabric, observer) = (&context.backend.fabric, &context.observer());
    let (mut outcome, mut rows) = (Outcome::default().charged(context.account()), 0);
    for (what, route) in [("contexts", Route::Contexts), ("sessions", Route::Sessions)] {
        let found = fabric.stored(route, observer)?;
        let none = found.is_none().then(|| no_folder(what));
        let names = found.unwrap_or_default();
        rows += names.len();
        outcome = outcome.member(what, &names[..]).warn(none);
    }
    Ok(outcome.sized("rows", rows))
}

/// The warning where Fabric has no folder of them.
pub(super) fn no_folder(what: &str) -> String {
    format!(
        "Fabric has no {what}: it cannot read their folder (HTTP 500), usually because none was ever stored."
    )
}
