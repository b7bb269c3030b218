//! `completion/complete`: names of patterns, strategies, contexts and sessions, best first.

use serde_json::json;

use crate::fabric::{Age, Name, Names, StoredKind, not_found};
use crate::protocol::{Node, Params, Refusal};
use crate::tools::Policy;

use super::call::Working;
use super::{Action, Request, Server, prompts, resources};

/// Parses `completion/complete`.
pub(super) fn complete(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let (of, value) = Of::read(request.params, &server.backend.policy)?;
    Ok(request.call(move |call, result| {
        let ranked = of.rank(&value, call)?;
        let values = &ranked[..ranked.len().min(MAX_COMPLETIONS)];
        let has_more = ranked.len() > values.len();
        result.field(
            "completion",
            &json!({ "hasMore": has_more, "total": ranked.len(), "values": values }),
        );
        Ok(())
    }))
}

/// Most values of one completion; MCP's limit.
const MAX_COMPLETIONS: usize = 100;

/// What to complete.
enum Of {
    Patterns,
    Strategies,
    /// A prompt's argument that takes any text: nothing to suggest, but the prompt must exist.
    AnyText {
        prompt: Name,
    },
    /// The strategy of a prompt.
    PromptStrategy {
        prompt: Name,
    },
    /// A context or session: not an argument of a prompt, but of the tool that runs the same pattern.
    Stored {
        prompt: Name,
        what: StoredKind,
    },
}

impl Of {
    /// Parses the params and the value so far. `context` is accepted, but no argument depends on another.
    ///
    /// # Errors
    /// -32602 for an unknown reference, or a prompt that is not allowed here.
    fn read(params: Option<&Node<'_>>, policy: &Policy) -> Result<(Of, String), Refusal> {
        let usage = "completion/complete needs params.ref ({\"type\": \"ref/prompt\", \"name\"} or {\"type\": \
                     \"ref/resource\", \"uri\"}) and params.argument ({\"name\", \"value\"}, both strings).";
        let params = Params::new(params, usage);
        let (reference, argument) = (params.object("ref")?, params.object("argument")?);
        let (kind, uri) = (reference.text("type")?, reference.optional_text("uri")?);
        let (argument, value) = (argument.text("name")?, argument.text("value")?);
        let prompt = reference
            .optional_text("name")?
            .map(|name| Name::parse("ref.name", name))
            .transpose()?;
        if let ("ref/prompt", Some(prompt)) = (kind, &prompt) {
            policy.check("ref.name", prompt)?;
        }
        let of = match (kind, prompt, uri) {
            ("ref/prompt", Some(prompt), _) if argument == prompts::STRATEGY => {
                Of::PromptStrategy { prompt }
            }
            ("ref/prompt", Some(prompt), _) => match argument {
                "context_name" => Of::Stored {
                    prompt,
                    what: StoredKind::Contexts,
                },
                "session_name" => Of::Stored {
                    prompt,
                    what: StoredKind::Sessions,
                },
                _ => Of::AnyText { prompt },
            },
            ("ref/resource", _, Some(resources::PATTERN_TEMPLATE)) if argument == "name" => {
                Of::Patterns
            }
            ("ref/resource", _, Some(resources::STRATEGY_TEMPLATE)) if argument == "name" => {
                Of::Strategies
            }
            (
                "ref/resource",
                _,
                Some(resources::PATTERN_TEMPLATE | resources::STRATEGY_TEMPLATE),
            ) => {
                return Err(Refusal::params(
                    "The templates have one argument: \"name\".",
                ));
            }
            _ => {
                return Err(Refusal::params(format!(
                    "params.ref must name a prompt (ref/prompt) or one of the templates {} and {} (ref/resource).",
                    resources::PATTERN_TEMPLATE,
                    resources::STRATEGY_TEMPLATE
                )));
            }
        };
        Ok((of, value.to_owned()))
    }

    /// The completions of `value`, best first.
    ///
    /// # Errors
    /// -32602 for an unknown prompt; otherwise the code for Fabric's failure.
    fn rank(&self, value: &str, call: &Working<'_>) -> Result<Vec<String>, Refusal> {
        let (catalog, wait) = (&call.server.backend.catalog, &call.context.wait());
        let strategies = || -> Result<Names, Refusal> {
            Ok(catalog
                .strategies(Age::Cached, wait)?
                .iter()
                .flatten()
                .map(|s| s.name.as_str())
                .collect())
        };
        let known = |prompt: &Name| -> Result<(), Refusal> {
            let names = catalog.names(Age::Cached, wait)?;
            if names.contains(prompt.as_str()) {
                Ok(())
            } else {
                Err(not_found(prompt, &names).into())
            }
        };
        Ok(match self {
            Of::Patterns => rank(value, catalog.names(Age::Cached, wait)?.as_ref()),
            Of::Strategies => rank(value, &strategies()?),
            Of::PromptStrategy { prompt } => {
                known(prompt).and_then(|()| Ok(rank(value, &strategies()?)))?
            }
            Of::Stored { prompt, what } => {
                known(prompt)?;
                let names = catalog.stored(Age::Cached, *what, wait)?;
                names
                    .as_ref()
                    .as_ref()
                    .map_or_else(Vec::new, |names| rank(value, names))
            }
            Of::AnyText { prompt } => known(prompt).map(|()| Vec::new())?,
        })
    }
}

/// Names that contain `value`, ignoring case: first those that begin with it, then those with a word that does, then
/// the rest; each group in the given order.
fn rank(value: &str, names: &Names) -> Vec<String> {
    let value = value.to_lowercase();
    let mut groups = [const { Vec::new() }; 3];
    for original in names.iter() {
        let name = original.to_lowercase();
        let group = if name.starts_with(&value) {
            0
        } else if name
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word.starts_with(&value))
        {
            1
        } else if name.contains(&value) {
            2
        } else {
            continue;
        };
        groups[group].push(original.to_owned());
    }
    groups.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_then_word_start_then_substring() {
        let names = ["a_summary", "assume", "summarize", "zz", "Sum_it"]
            .into_iter()
            .collect();
        assert_eq!(
            rank("sum", &names),
            ["Sum_it", "summarize", "a_summary", "assume"]
        );
        assert_eq!(rank("", &names).len(), 5);
        assert!(rank("q", &names).is_empty());
    }
}
