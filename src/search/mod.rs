//! Finding the right pattern for a task, and saying in one sentence what each does.
//!
//! In scope: an index over names and texts, a thesaurus, purposes, areas, names of skills. A leaf: texts in, names out. Not
//! in scope: where the texts come from (`fabric`), and how what was found is shown (`tools`, `features`).

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
