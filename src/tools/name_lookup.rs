//! Looks up the names in a call among those that Fabric has. A similar name is taken if there is only one; otherwise
//! the error suggests some.

use std::sync::Arc;

use crate::fabric::names::{self, did_you_mean, in_quotes, suggestion};
use crate::fabric::{Cause, Error, Name, NameList, Strategy};
use crate::search::{self, Index};
use crate::text::shown;

use super::{Context, invalid, list_contexts, list_models, list_strategies};

/// Strategies that are suggested by their description.
const MOST_FOUND: usize = 3;

/// If no name is similar, up to this many names are listed in the error.
const FEW: usize = 12;

/// The only name that differs from the one given in case and separators alone, and the warning that says so.
pub(super) fn alike(what: &str, given: &str, known: &NameList) -> Option<(String, String)> {
    let taken = names::alike(given, known.iter()).filter(|taken| *taken != given)?;
    Some((taken.to_owned(), instead(what, given, taken)))
}

/// The warning that `taken` was used for the name `given`.
pub(super) fn instead(what: &str, given: &str, taken: &str) -> String {
    format!("Fabric has no {what} named \"{given}\": \"{taken}\" was used instead.")
}

/// Puts such a name in the place of the one given.
pub(super) fn take(what: &str, name: &mut Name, known: &NameList) -> Option<String> {
    let (taken, said) = alike(what, name.as_str(), known)?;
    *name = Name::parse("", &taken).ok()?;
    Some(said)
}

/// The same for a pattern. Asks Fabric for the names only if it is neither known to be there nor one of Fabric's own.
///
/// # Errors
/// The caller cancelled.
pub(crate) fn take_pattern(
    name: &mut Name,
    context: &Arc<Context>,
) -> Result<Option<String>, Error> {
    let (fabric, given) = (&context.backend.fabric, name.as_str());
    let listed = fabric.cached_names();
    if search::shipped(given).is_some() || listed.is_some_and(|all| all.contains(given)) {
        return Ok(None);
    }
    let names = context.unless_cancelled(fabric.names(fabric.missing(), &context.observer()))?;
    Ok(names.and_then(|names| take("pattern", name, &names)))
}

/// The strategy of this name, or of the only similar one.
///
/// # Errors
/// `invalid-request`: there is none.
pub(super) fn strategy<'a>(name: &str, all: Option<&'a [Strategy]>) -> Result<&'a Strategy, Error> {
    let listed = all.unwrap_or_default();
    let taken = names::alike(name, listed.iter().map(|strategy| &*strategy.name));
    let found = listed.iter().find(|one| taken == Some(&one.name));
    found.ok_or_else(|| invalid(format!("`strategy_name`: {}", no_strategy(name, all))))
}

/// Says that Fabric has no strategy of this name, and which are called or described like it.
pub(super) fn no_strategy(name: &str, all: Option<&[Strategy]>) -> String {
    let Some(all) = all else {
        return Cause::NoStrategies.text();
    };
    let known = all.iter().map(|strategy| &*strategy.name).collect();
    let index = Index::build(all.iter().map(|one| (&*one.name, &one.description)));
    let described = suggestion(index.search(name, MOST_FOUND, |_| true).hits);
    not_listed("strategy", name, "", &known, &described)
}

/// Says that Fabric has nothing of this name: `what` it would be, `of` what, and the names that there are. If none is
/// similar, `other` says what may be meant.
pub(super) fn not_listed(
    what: &str,
    name: &str,
    of: &str,
    names: &NameList,
    other: &str,
) -> String {
    let similar = did_you_mean(name, names);
    let hint = if similar.is_empty() { other } else { &similar };
    let shown = shown(name, 128);
    let tool = match what {
        "strategy" => list_strategies::TOOL.name,
        "context" => list_contexts::TOOL.name,
        _ => list_models::TOOL.name,
    };
    let rest = match names.len() {
        0 => "There are none.".to_owned(),
        ..=FEW if hint.is_empty() => format!("It has: {}.", in_quotes(names.iter(), "and")),
        _ => format!("Give one that {tool} lists."),
    };
    format!("Fabric has no {what} named \"{shown}\"{of}.{hint} {rest}")
}
