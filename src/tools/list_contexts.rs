//! `fabric_list_contexts`: contexts and sessions that are stored in Fabric.

use std::sync::Arc;

use serde::Serialize;

use crate::access::Role;
use crate::fabric::{Error, Names};

use super::{Context, Failure, Outcome, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_contexts",
    title: "List contexts and sessions",
    description: "List the contexts and sessions stored in Fabric, for context_name and session_name.",
    output: include_str!("results/list_contexts.json"),
    read_only: true,
    role: Role::Read,
    prepare: |_, _| Ok(Prepared::new(contexts)),
};

#[derive(Serialize)]
struct Contexts {
    contexts: Names,
    sessions: Names,
}

fn contexts(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let (fabric, wait) = (&context.backend.fabric, &context.wait());
    let mut warnings = Vec::new();
    let mut names = |what| {
        let found = fabric.stored(what, wait)?;
        if found.is_none() {
            warnings.push(no_folder(what));
        }
        Ok::<Names, Error>(found.unwrap_or_default())
    };
    let stored = Contexts {
        contexts: names("contexts")?,
        sessions: names("sessions")?,
    };
    Ok(Outcome {
        rows: Some(stored.contexts.len() + stored.sessions.len()),
        ..Outcome::warning(stored, warnings)
    })
}

/// The warning where Fabric has no folder of them.
pub(super) fn no_folder(what: &str) -> String {
    format!(
        "Fabric has no {what}: it cannot read their folder (HTTP 500), which mostly means that none was ever stored."
    )
}
