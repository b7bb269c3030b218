//! `fabric_list_patterns`: the names of all patterns, or those that fit a task, best first.

use std::sync::Arc;

use serde::Serialize;

use crate::access::Role;
use crate::config::MAX_ROWS;
use crate::fabric::{Age, Error, Names, Snapshot, not_runnable};

use super::{Arguments, Context, Failure, Json, Outcome, Policy, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_patterns",
    title: "List Fabric patterns",
    description: "Find the Fabric pattern for a task. Patterns are tested prompts, each made for one task, such as \
                  summarize, extract_wisdom or explain_code. As query, describe the task in your own words, synonyms \
                  included: the best come first, with what they do. Without query: all names.",
    output: OUTPUT,
    read_only: true,
    role: Role::Read,
    prepare,
};

const OUTPUT: &str = r#"{
  "type":"object",
  "properties":{
    "patterns":{"type":"array","items":{"type":"string"},"description":"Names of patterns: with query the best first, else sorted."},
    "matches":{
      "type":"array",
      "items":{
        "type":"object",
        "properties":{
          "name":{"type":"string","description":"The pattern's name."},
          "description":{"type":"string","description":"What it does."}
        },
        "required":["name","description"]
      },
      "description":"The same patterns with what they do; only with query."
    },
    "warnings":{"type":"array","items":{"type":"string"},"description":"What must not be overlooked."}
  },
  "required":["patterns"]
}"#;

/// Default number of search results.
const USUAL: usize = 15;

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let query = arguments.string("query", "The task: what goes in, what should come out.");
    let limit = arguments.integer(
        "limit",
        (1, MAX_ROWS),
        "Most names. Default 15 with query, else all.",
    );
    Ok(match query.filter(|query| !query.trim().is_empty()) {
        None => Prepared::new(move |context| all(context, limit.unwrap_or(usize::MAX))),
        Some(query) => {
            let search = Search {
                query,
                limit: limit.unwrap_or(USUAL),
            };
            Prepared::new(move |context| search.run(context))
        }
    })
}

/// `{"patterns":[…]}`, from the list's cached JSON.
struct Patterns(Arc<Names>);

impl Json for Patterns {
    fn write(&self, out: &mut Vec<u8>) {
        let [json, _] = self.0.json();
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
    let mut patterns = catalog.names(Age::Fresh, &context.wait())?;
    if limit < patterns.len() {
        patterns = Arc::new(patterns.iter().take(limit).collect());
    }
    let rows = patterns.len();
    Ok(Outcome {
        rows: Some(rows),
        ..Outcome::new(Patterns(patterns))
    })
}

struct Search {
    query: String,
    limit: usize,
}

/// The result of a search.
#[derive(Serialize)]
struct Matches {
    patterns: Vec<String>,
    matches: Vec<Match>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Match {
    name: String,
    description: String,
}

impl Search {
    fn run(&self, context: &Arc<Context>) -> Result<Outcome, Failure> {
        let backend = &context.backend;
        let (snapshot, error) = backend.catalog.snapshot_or_names(&context.wait())?;
        let mut warnings = Vec::new();
        if let Some(error) = error {
            warnings.push(format!(
                "Only the names were searched, because the patterns could not be read: {}",
                error.detail
            ));
        } else if snapshot.unread() > 0 {
            let (unread, all) = (snapshot.unread(), snapshot.patterns.len());
            warnings
                .push(format!("{unread} of {all} patterns could not be read: of those only the names were searched."));
        }
        let matches = self.search(&snapshot, &backend.policy, &mut warnings);
        let patterns: Vec<String> = matches.iter().map(|found| found.name.clone()).collect();
        let rows = patterns.len();
        let found = Matches {
            patterns,
            matches,
            warnings: warnings.clone(),
        };
        Ok(Outcome {
            warnings,
            ..Outcome::rows(found, rows)
        })
    }

    /// The patterns that match and may be run here.
    fn search(
        &self,
        snapshot: &Snapshot,
        policy: &Policy,
        warnings: &mut Vec<String>,
    ) -> Vec<Match> {
        let found = snapshot.index().search(&self.query, usize::MAX);
        let (mut matches, mut denied) = (Vec::new(), Vec::new());
        for card in found.hits {
            if matches.len() == self.limit {
                break;
            }
            let name = card.name.as_str();
            match policy.allows(name) {
                true => matches.push(Match {
                    name: name.into(),
                    description: snapshot.description(name).into(),
                }),
                false => denied.push(name),
            }
        }
        if !denied.is_empty() {
            warnings.push(format!(
                "Left out, because they may not be run on this server: {}.",
                denied.join(", ")
            ));
        }
        let is_not_runnable = |found: &&Match| {
            snapshot
                .pattern(&found.name)
                .is_some_and(|entry| !entry.is_runnable())
        };
        for found in matches.iter().filter(is_not_runnable) {
            warnings.push(not_runnable("patterns", &found.name).detail);
        }
        warnings.extend(found.fit.warning().map(str::to_owned));
        matches
    }
}
