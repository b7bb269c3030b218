//! Finds the pattern for a task, and describes each pattern in one sentence.
//!
//! In scope: an index over names and texts, a thesaurus, purposes, areas, names of skills. Depends on nothing else:
//! texts in, names out. Not in scope: where the texts come from (`fabric`), and how results are shown (`tools`,
//! `features`).

mod areas;
#[cfg(test)]
mod evaluation;
mod index;
mod phrases;
mod prose;
mod purpose;
mod skill_name;
mod stem;
mod thesaurus;
mod typing;
mod verbs;
mod vocabulary;
mod words;

pub(crate) use index::{Card, Index, card};
pub(crate) use purpose::humanised;
pub(crate) use skill_name::skill_names;
