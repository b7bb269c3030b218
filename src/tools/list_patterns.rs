//! `fabric_list_patterns`: the names of all patterns, or of those that match some words.

use std::sync::Arc;

use serde::Serialize;

use crate::config::MAX_ROWS;
use crate::fabric::{Error, Names};

use super::{Arguments, Failure, Job, Outcome, Policy, Tool, Work};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_patterns",
    title: "List Fabric patterns",
    description: "List the names of Fabric's patterns: tested prompts, each made for one task, such as summarize, \
                  extract_wisdom or explain_code. Give a query to see only the names that contain all its words. Run one \
                  with fabric_run_pattern.",
    arguments: &["query", "limit"],
    input: INPUT,
    output: OUTPUT,
    read_only: true,
    prepare,
};

const INPUT: &str = r#"{
  "type":"object",
  "properties":{
    "query":{"type":"string","description":"Words that must all occur in the name, in any order and case. All patterns if left out."},
    "limit":{"type":"integer","minimum":1,"maximum":10000,"description":"At most this many names. All if left out."}
  },
  "additionalProperties":false
}"#;

const OUTPUT: &str = r#"{
  "type":"object",
  "properties":{
    "patterns":{"type":"array","items":{"type":"string"},"description":"Names of patterns, sorted."}
  },
  "required":["patterns"]
}"#;

struct ListPatterns {
    /// In lower case.
    words: Vec<String>,
    limit: usize,
}

#[derive(Serialize)]
struct Patterns {
    patterns: Arc<Names>,
}

fn prepare(mut arguments: Arguments, _: &Policy) -> Result<Box<dyn Job>, Error> {
    let query = arguments.string("query")?.unwrap_or_default().to_lowercase();
    let limit = arguments.integer("limit", 1..=MAX_ROWS as u64)?.map_or(usize::MAX, |n| n as usize);
    arguments.end(TOOL.arguments)?;
    Ok(Box::new(ListPatterns { words: query.split_whitespace().map(String::from).collect(), limit }))
}

impl Job for ListPatterns {
    fn run(&self, work: &Work) -> Result<Outcome, Failure> {
        let mut patterns = work.catalog.fresh_names(&work.wait())?;
        let is_wanted = |name: &&str| {
            let name = name.to_lowercase();
            self.words.iter().all(|word| name.contains(word))
        };
        if !self.words.is_empty() || self.limit < patterns.len() {
            patterns = Arc::new(patterns.iter().filter(is_wanted).take(self.limit).collect());
        }
        let rows = patterns.len();
        Ok(Outcome::rows(Patterns { patterns }, rows))
    }
}
