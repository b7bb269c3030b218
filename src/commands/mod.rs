//! What the program does for a person at a shell instead of serving clients: `--check`, and in `call.rs` `--call` and what
//! other commands print.
//!
//! Not in scope: the command line itself (`cli`), and what is written for other programs (`generate`, `clients`).

pub(crate) mod call;
pub(crate) mod check;
