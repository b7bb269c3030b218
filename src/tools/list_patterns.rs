//! `fabric_list_patterns`: the names of all patterns, or those that fit a task, best first.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::config::MAX_ROWS;
use crate::fabric::{Cause, Error, is_runnable, not_runnable};
use crate::search::{LANGUAGE, NOTHING_FITS, UNSURE_FIT};
use crate::text::counted;

use super::{Arguments, Context, Outcome, Policy, Tool, ToolResult, ToolWork};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_patterns",
    title: "List Fabric patterns",
    description: "Find the Fabric pattern for a task. Patterns are tested prompts for one task \
        each, such as summarize or explain_code. With query: the best first, with what they do \
        and the variables they need. If none fits, ask once more: what goes in, what should come \
        out. Without query: all names.",
    output: include_str!("results/list_patterns.json"),
    read_only: true,
    declare,
};

/// Default number of search results.
const USUAL: usize = 10;
/// How many of the first results are said not to be runnable.
const TOP: usize = 3;

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let query = arguments.string("query: The task in English: what goes in and comes out.");
    let limit = arguments.integer("limit", (1, MAX_ROWS));
    let told = format!("Max names. Default {USUAL} with query, else all.");
    arguments.last().description = told.into();
    Ok(Box::new(move |context| {
        match query.as_deref().unwrap_or_default() {
            query if is_for_all(query) => all(context, limit.unwrap_or(usize::MAX)),
            query => search(context, query, limit.unwrap_or(USUAL)),
        }
    }))
}

/// Words of those who ask for all patterns, beside those that weigh nothing in a search.
const ALL: &str = "* all available display every everything exist existing get installed list names pattern patterns";

/// Whether a query is empty, or asks for all patterns.
fn is_for_all(query: &str) -> bool {
    let query = query.to_lowercase();
    let words = query.split(|c: char| !c.is_alphanumeric() && c != '*');
    let is_asked = |word: &str| ALL.split(' ').any(|all| all == word);
    let says_nothing = |word: &str| word.is_empty() || LANGUAGE.ignored.contains(word);
    let mut words = words.filter(|word| is_asked(word) || !says_nothing(word));
    query.is_empty() || words.next().is_some_and(is_asked) && words.all(is_asked)
}

fn all(context: &Arc<Context>, limit: usize) -> ToolResult {
    let fabric = &context.backend.fabric;
    let mut patterns = fabric.names(Duration::ZERO, &context.observer())?;
    if limit < patterns.len() {
        patterns = Arc::new(patterns.iter().take(limit).collect());
    }
    let outcome = Outcome::rows(patterns.len());
    if patterns.is_empty() {
        let none = Cause::NoPatterns.text();
        return Ok(outcome.member("patterns", &patterns[..]).warn([none]));
    }
    Ok(Outcome {
        names: Some(patterns),
        ..outcome
    })
}

#[derive(Serialize)]
struct Match<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    variables: &'a [String],
}

/// The patterns for a task that may be run here.
fn search(context: &Arc<Context>, query: &str, limit: usize) -> ToolResult {
    let backend = &context.backend;
    let snapshot = backend.catalog.snapshot(&context.observer())?;
    if snapshot.patterns.is_empty() {
        return all(context, limit);
    }
    let all = counted(snapshot.patterns.len(), "pattern");
    let unread = snapshot.unread();
    let unread = (unread > 0).then(|| {
        format!("{unread} of {all} could not be read, so only their names were searched.")
    });
    let mut warnings = Vec::from_iter(unread);
    let allows = |name: &str| backend.policy.allows(name);
    let mut found = snapshot.index().search(query, limit, allows);
    // Names alone cannot tell that.
    if snapshot.unread() > 0 && found.warning == Some(NOTHING_FITS) {
        found.warning = Some(UNSURE_FIT);
    }
    if !found.denied.is_empty() {
        warnings.push(format!(
            "Not listed, because they may not be run on this server: {}.",
            found.denied.join(", ")
        ));
    }
    let mut matches = Vec::new();
    for name in found.hits {
        let found = snapshot.pattern(name);
        let runnable = found.filter(|entry| is_runnable(&entry.variables));
        // A warning about what is hardly wanted only misleads.
        if runnable.is_none() && matches.len() < TOP {
            warnings.push(not_runnable("matches", name).detail);
        }
        matches.push(Match {
            name,
            description: snapshot.description(name),
            variables: runnable.map_or(&[], |entry| &entry.variables),
        });
    }
    Ok(Outcome::rows(matches.len())
        .member("matches", matches)
        .warn(warnings)
        .warn(found.warning.map(str::to_owned)))
}
