//! What each pattern of Fabric 1.4.470 does and how people ask for it: `patterns.tsv`.
//!
//! A line is a name, one sentence, requests separated by `; `, and `no input` if it makes something without any, or
//! `requests` if its input may be a request or a link, or `sentences` if it may be a sentence about a file.

use std::collections::HashMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("patterns.tsv");

/// One pattern.
pub(crate) struct Row {
    /// What it does, in one sentence of 20 to 140 characters.
    pub(crate) sentence: &'static str,
    /// How people ask for it, separated by `; `.
    pub(super) requests: &'static str,
    /// Does it make something without any input?
    pub(crate) needs_no_input: bool,
    /// Is a request, such as a prompt to improve, or a link the very input that it is for?
    pub(crate) takes_requests: bool,
    /// Does it translate or improve its input, whatever that is about?
    pub(crate) takes_sentences: bool,
}

/// All rows, by name.
pub(super) static ROWS: LazyLock<HashMap<&str, Row>> =
    LazyLock::new(|| TABLE.lines().filter_map(parse).collect());

fn parse(line: &'static str) -> Option<(&'static str, Row)> {
    let mut columns = line.split('\t');
    let name = columns.next()?;
    let (sentence, requests, mark) = (columns.next()?, columns.next()?, columns.next());
    let row = Row {
        sentence,
        requests,
        needs_no_input: mark == Some("no input"),
        takes_requests: mark == Some("requests"),
        takes_sentences: mark == Some("sentences"),
    };
    Some((name, row))
}

/// One of Fabric's own patterns.
pub(crate) fn shipped(name: &str) -> Option<&'static Row> {
    ROWS.get(name)
}
