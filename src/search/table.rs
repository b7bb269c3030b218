//! What each pattern of Fabric 1.4.470 does and how people ask for it: `patterns.tsv`.
//!
//! A line is a name, one sentence, and requests separated by `; `.

use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("patterns.tsv");

/// One pattern.
pub(super) struct Row {
    /// What it does, in one sentence of 20 to 140 characters.
    pub(super) sentence: &'static str,
    /// How people ask for it.
    pub(super) requests: &'static str,
}

impl Row {
    pub(super) fn requests(&self) -> impl Iterator<Item = &'static str> {
        self.requests.split("; ")
    }
}

/// All rows, by name.
pub(super) fn rows() -> &'static HashMap<&'static str, Row> {
    static ROWS: OnceLock<HashMap<&str, Row>> = OnceLock::new();
    ROWS.get_or_init(|| TABLE.lines().filter_map(parse).collect())
}

fn parse(line: &'static str) -> Option<(&'static str, Row)> {
    let (name, rest) = line.split_once('\t')?;
    let (sentence, requests) = rest.split_once('\t')?;
    Some((name, Row { sentence, requests }))
}
