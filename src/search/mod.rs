//! Finds the pattern for a task, and describes each pattern in one sentence.
//!
//! In scope: a table of what Fabric's patterns do and how people ask for them, an index over it and over people's own
//! patterns, names of skills. Depends on nothing else: texts in, names out. Not in scope: where the texts come from
//! (`fabric`), and how results are shown (`tools`, `server`).

#[cfg(test)]
mod evaluation;
mod index;
mod language;
mod own;
mod patterns;
mod query;
mod similar;
mod stem;
mod words;

pub(crate) use index::{Index, NOTHING_FITS, UNSURE_FIT, purpose};
pub(crate) use language::LANGUAGE;
pub(crate) use patterns::shipped;
pub(crate) use similar::{humanised, skill_names};
pub(crate) use words::{is_unspaced, plain_letters, runs};

/// The stems of the words of a text.
pub(crate) fn stems(text: &str) -> Vec<String> {
    let words = words::words(text).into_iter();
    words.map(|word| stem::stem(&word)).collect()
}
