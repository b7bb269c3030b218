//! `resources/list`, `resources/templates/list`, `resources/read`: patterns and strategies as Markdown.

use serde_json::json;

use crate::encoding::percent::{percent_decode, percent_encode};
use crate::fabric::{Cause, Entry, Error, Kind, Name};
use crate::protocol::{Feature, Params, Refusal, Revision, jsonrpc, pages};
use crate::search::humanised;
use crate::text::shown;

use super::skills::{self, Skills};
use super::{Action, Request, Server, while_fresh};

/// The two templates; `{name}` is percent-encoded.
pub(super) const PATTERN_TEMPLATE: &str = "fabric://pattern/{name}";
pub(super) const STRATEGY_TEMPLATE: &str = "fabric://strategy/{name}";

const MARKDOWN: &str = "text/markdown";
/// Resource not found, before 2026-07-28 made it an error of the params.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// Answers `resources/templates/list`.
pub(super) fn templates(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = pages::cursor(request.params)?;
    let has_titles = request.context().revision.knows(Feature::Title);
    let all = [
        (PATTERN_TEMPLATE, "pattern", "system prompt"),
        (STRATEGY_TEMPLATE, "strategy", "prompt"),
    ];
    let offered = all.len() - usize::from(server.backend.policy.no_strategies);
    let all = all.into_iter().take(offered);
    let entry = |(template, name, what)| {
        let mut entry = json!({
            "description": format!("The {what} of a Fabric {name}."),
            "mimeType": MARKDOWN,
            "name": name,
            "uriTemplate": template,
        });
        if has_titles {
            entry["title"] = format!("Fabric {name}").into();
        }
        entry
    };
    let mut result = request.head.result();
    cursor.write(&mut result, "resourceTemplates", all.map(entry))?;
    result.cache(None);
    Ok(Action::Answer(result.end()))
}

/// Parses `resources/list`: patterns first, then strategies.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = request.cursor_of_changing_list()?;
    Ok(request.call(move |context, result| {
        let snapshot = context.backend.catalog.snapshot(&context.observer())?;
        let (patterns, strategies) = (&snapshot.patterns, snapshot.strategies());
        let has_titles = result.revision.knows(Feature::Title);
        let entry = |at: usize| {
            let (template, name, description) = match patterns.get(at) {
                Some(Entry { name, .. }) => (PATTERN_TEMPLATE, name, snapshot.description(name)),
                None => {
                    let strategy = &strategies[at - patterns.len()];
                    let description = strategy.description.as_str();
                    (STRATEGY_TEMPLATE, &strategy.name, description)
                }
            };
            let mut entry = json!({
                "description": description,
                "mimeType": MARKDOWN,
                "name": name,
                "uri": template.replace("{name}", &percent_encode(name)),
            });
            if has_titles {
                entry["title"] = humanised(name).into();
            }
            entry
        };
        let all = 0..patterns.len() + strategies.len();
        let list = &snapshot.resources[usize::from(has_titles)];
        cursor.share(result, "resources", list, all.map(entry))?;
        result.cache(while_fresh(&snapshot));
        Ok(())
    }))
}

/// Parses `resources/read`.
///
/// # Errors
/// -32602 without a `uri`; not found for a URI of another form.
pub(super) fn read(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "resources/read needs params.uri, a string such as fabric://pattern/summarize.";
    let uri = Params::new(request.params, usage).text("uri")?.to_owned();
    let revision = request.context().revision;
    let why = "Resources are fabric://pattern/{name} and fabric://strategy/{name}.";
    let target = target(&uri, revision).ok_or_else(|| not_found(&uri, revision, why))?;
    Ok(request.call(move |context, result| {
        let (fabric, observer) = (&context.backend.fabric, &context.observer());
        let missing = |why: &str| not_found(&uri, revision, why);
        let mut ttl = Some(context.backend.catalog.ttl);
        let text = match &target {
            ResourceTarget::Pattern(name) => {
                let read = fabric.pattern(name, observer);
                read.map_err(|error| match error.kind {
                    Kind::PatternNotFound => missing(&error.detail),
                    _ => error.into(),
                })?
                .system_prompt
            }
            ResourceTarget::Strategy(name) => {
                let all = context.backend.catalog.strategies(observer)?;
                let why = match *all {
                    None => &Cause::NoStrategies.text(),
                    Some(_) => "Fabric has no such strategy: resources/list has them all.",
                };
                let found = all.iter().flatten().find(|s| s.name == name.as_str());
                found.ok_or_else(|| missing(why))?.prompt.clone()
            }
            ResourceTarget::Skill(name) => {
                let skills = Skills::read(&context.backend, observer)?;
                ttl = while_fresh(&skills.snapshot);
                let text = skills.document(name);
                let text = text.ok_or_else(|| missing("skills/list has all skills."))?;
                observer.hold(text.len())?;
                text
            }
        };
        let out = result.key("contents");
        out.reserve(jsonrpc::string_len(&text) + uri.len() + 512);
        out.extend(br#"[{"mimeType":"text/markdown","text":"#);
        jsonrpc::write_json(out, &text);
        jsonrpc::write_member(out, "uri", &uri);
        out.extend(b"}]");
        result.cache(ttl);
        Ok(())
    }))
}

enum ResourceTarget {
    Pattern(Name),
    Strategy(Name),
    /// The skill of this name.
    Skill(String),
}

fn target(uri: &str, revision: Revision) -> Option<ResourceTarget> {
    if let Some(name) = skills::named(uri) {
        return (!revision.is_legacy()).then(|| ResourceTarget::Skill(name.to_owned()));
    }
    let (kind, name) = uri.strip_prefix("fabric://")?.split_once('/')?;
    let name = Name::parse("uri", &percent_decode(name)?).ok()?;
    match kind {
        "pattern" => Some(ResourceTarget::Pattern(name)),
        "strategy" => Some(ResourceTarget::Strategy(name)),
        _ => None,
    }
}

fn not_found(uri: &str, revision: Revision, why: &str) -> Refusal {
    let code = match revision.is_legacy() {
        true => RESOURCE_NOT_FOUND,
        false => jsonrpc::INVALID_PARAMS,
    };
    let detail = format!("There is no resource \"{}\". {why}", shown(uri, 256));
    let error = Error::new(Kind::PatternNotFound, detail);
    Refusal::of(code, error).with("uri", uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_uris_name_something() {
        let read = |uri: &str| match target(uri, Revision::NEWEST) {
            Some(ResourceTarget::Pattern(name)) => format!("pattern {}", name.as_str()),
            Some(ResourceTarget::Strategy(name)) => format!("strategy {}", name.as_str()),
            Some(ResourceTarget::Skill(name)) => format!("skill {name}"),
            None => "-".into(),
        };
        for (uri, expected) in [
            ("fabric://pattern/summarize", "pattern summarize"),
            ("fabric://strategy/cot", "strategy cot"),
            ("skill://fabric/summarize/SKILL.md", "skill summarize"),
            ("fabric://pattern/r%C3%A9sum%C3%A9%202", "pattern résumé 2"),
            ("fabric://pattern/", "-"),
            ("fabric://pattern/..%2Fx", "-"),
            ("fabric://pattern/%2e%2e", "-"),
            ("fabric://pattern/%zz", "-"),
            ("fabric://pattern/%ff", "-"),
            ("fabric://context/x", "-"),
            ("file:///etc/passwd", "-"),
            ("", "-"),
        ] {
            assert_eq!(read(uri), expected, "{uri}");
        }
    }
}
