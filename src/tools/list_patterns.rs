//! `fabric_list_patterns`: the names of all patterns, or those that fit a task, best first.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::access::Role;
use crate::config::MAX_ROWS;
use crate::fabric::{Cause, Error, Names, not_runnable};
use crate::text::counted;

use super::{Arguments, Context, Failure, Json, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_patterns",
    title: "List Fabric patterns",
    description: "Find the Fabric pattern for a task. Patterns are tested prompts, each made for one task, such as \
                  summarize, extract_wisdom or explain_code. With query, the best come first, with what they do and \
                  the variables that they need; if none of them does the task, no pattern does. Without: all names.",
    output: include_str!("results/list_patterns.json"),
    read_only: true,
    role: Role::Read,
    prepare,
};

/// Default number of search results.
const USUAL: usize = 10;

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let query = arguments
        .string(
            "query",
            "The task in English: what goes in, what should come out.",
        )
        .unwrap_or_default();
    let limit = arguments.integer(
        "limit",
        (1, MAX_ROWS),
        "Max names. Default 10 with query, else all.",
    );
    Ok(Prepared::new(move |context| match query.trim() {
        "" => all(context, limit.unwrap_or(usize::MAX)),
        query => search(context, query, limit.unwrap_or(USUAL)),
    }))
}

/// `{"patterns":[…]}`, from the list's cached JSON.
struct Patterns(Arc<Names>);

impl Json for Patterns {
    fn write(&self, out: &mut Vec<u8>) {
        let [json, _] = self.0.json();
        out.reserve(json.len() + 13);
        out.extend_from_slice(br#"{"patterns":"#);
        out.extend_from_slice(json.as_bytes());
        out.push(b'}');
    }

    fn write_as_string(&self, out: &mut Vec<u8>, _: &[u8]) {
        let [_, string] = self.0.json();
        out.extend_from_slice(br#""{\"patterns\":"#);
        // Without the quotes of the cached string.
        out.extend_from_slice(&string.as_bytes()[1..string.len() - 1]);
        out.extend_from_slice(br#"}""#);
    }
}

fn all(context: &Arc<Context>, limit: usize) -> Result<Outcome, Failure> {
    let catalog = &context.backend.catalog;
    let mut patterns = catalog.names(Duration::ZERO, &context.wait())?;
    if patterns.is_empty() {
        return Ok(none());
    }
    if limit < patterns.len() {
        patterns = Arc::new(patterns.iter().take(limit).collect());
    }
    let rows = patterns.len();
    Ok(Outcome {
        rows: Some(rows),
        ..Outcome::new(Patterns(patterns))
    })
}

/// There is no pattern.
fn none() -> Outcome {
    let warning = Cause::NoPatterns.to_string();
    Outcome {
        rows: Some(0),
        ..Outcome::warning(json!({ "patterns": [] }), vec![warning])
    }
}

/// The result of a search.
#[derive(Serialize)]
struct Matches {
    patterns: Vec<String>,
    matches: Vec<Match>,
}

#[derive(Serialize)]
struct Match {
    name: String,
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<String>,
}

/// The patterns for a task that may be run here.
fn search(context: &Arc<Context>, query: &str, limit: usize) -> Result<Outcome, Failure> {
    let backend = &context.backend;
    let snapshot = backend.catalog.snapshot(&context.wait())?;
    if snapshot.patterns.is_empty() {
        return Ok(none());
    }
    let mut warnings = Vec::new();
    if snapshot.unread() > 0 {
        let (unread, all) = (snapshot.unread(), snapshot.patterns.len());
        warnings.push(format!(
            "{unread} of {} could not be read: of those only the names were searched.",
            counted(all, "pattern")
        ));
    }
    let found = snapshot.index().search(query, usize::MAX);
    let mut denied = Vec::new();
    let is_allowed = |name: &&str| {
        let is_allowed = backend.policy.allows(name);
        if !is_allowed {
            denied.push((*name).to_owned());
        }
        is_allowed
    };
    let names = found.hits.iter().map(|card| card.name.as_str());
    let names: Vec<&str> = names.filter(is_allowed).take(limit).collect();
    if !denied.is_empty() {
        warnings.push(format!(
            "Left out, because they may not be run on this server: {}.",
            denied.join(", ")
        ));
    }
    let mut matches = Vec::new();
    for name in &names {
        let mut variables = Vec::new();
        match snapshot.pattern(name) {
            Some(entry) if !entry.is_runnable() => {
                warnings.push(not_runnable("patterns", name).detail);
            }
            Some(entry) => variables.clone_from(&entry.variables),
            None => {}
        }
        matches.push(Match {
            name: (*name).to_owned(),
            description: snapshot.description(name).to_owned(),
            variables,
        });
    }
    warnings.extend(found.fit.warning().map(str::to_owned));
    let patterns: Vec<String> = names.into_iter().map(str::to_owned).collect();
    Ok(Outcome {
        rows: Some(patterns.len()),
        ..Outcome::warning(Matches { patterns, matches }, warnings)
    })
}
