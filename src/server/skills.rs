//! The Skills extension (`io.modelcontextprotocol/skills`, SEP-2640): every allowed pattern is a skill of one file, so
//! that the client's own model can do what Fabric's model does.
//!
//! In scope: `skills/list`, `skills/get`, the content of a `SKILL.md`. Not in scope: reading it (`resources`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::access::Role;
use crate::account::Full;
use crate::encoding::sha256::sha256_hex;
use crate::fabric::{Error, Kind, NoWait, Snapshot, Wait, no_room};
use crate::protocol::pages;
use crate::protocol::{Params, Refusal};
use crate::search::skill_names;
use crate::text::shown;
use crate::tools::{Backend, Context};

use super::{Action, Request, Server, while_fresh};

/// All skills of one snapshot. Their text is generated on each read, deterministically.
struct Skills {
    snapshot: Arc<Snapshot>,
    backend: Arc<Backend>,
    /// The pattern of each, by the skill's name.
    patterns: BTreeMap<String, String>,
}

impl Skills {
    fn read(backend: &Arc<Backend>, wait: &Arc<dyn Wait>) -> Result<Skills, Error> {
        let snapshot = backend.catalog.snapshot(wait)?;
        let names = skill_names(snapshot.patterns.iter().map(|entry| entry.name.as_str()));
        let usable = snapshot.patterns.iter();
        let usable = usable
            .filter(|entry| entry.text.is_some() && backend.policy.allows(&entry.name))
            .filter_map(|entry| {
                Some((names.get(entry.name.as_str())?.clone(), entry.name.clone()))
            });
        Ok(Skills {
            patterns: usable.collect(),
            snapshot,
            backend: Arc::clone(backend),
        })
    }

    /// The whole `SKILL.md`; `None` if there is no such skill.
    fn document(&self, name: &str) -> Option<String> {
        let entry = self.snapshot.pattern(self.patterns.get(name)?)?;
        let text = entry.text.as_deref()?;
        let (policy, fabric) = (&self.backend.policy, &self.backend.fabric);
        let has_run = policy.tools().any(|tool| tool.role == Role::Run);
        let can_run = has_run && !self.backend.runs_nothing();
        let (name, pattern) = (quoted(name), quoted(&entry.name));
        let mut document = format!(
            "---\nname: {name}\ndescription: {}\nmetadata:\n  fabric-pattern: {pattern}\n---\n\nFollow the instructions below \
             yourself, on the user's input.",
            quoted(self.snapshot.description(&entry.name))
        );
        let is_raw = fabric.why_raw(&entry.name, text).is_some();
        document.push_str(&match entry.is_runnable() {
            true if is_raw => " What stands between their double braces is code that Fabric would replace.\n\n".to_owned(),
            true if !can_run => "\n\n".to_owned(),
            true => format!(
                " Or call the tool `fabric_run_pattern` with `pattern_name` {pattern} and that input as `input_text`, so that \
                 Fabric's model does it.\n\n"
            ),
            false => " Fabric itself cannot run them: what stands between their double braces is code.\n\n".to_owned(),
        });
        if !entry.variables.is_empty() && entry.is_runnable() {
            let run = if can_run {
                " (in a run: `variables`)"
            } else {
                ""
            };
            let variables: Vec<String> = entry
                .variables
                .iter()
                .map(|name| format!("`{{{{{name}}}}}`"))
                .collect();
            document.push_str(&format!(
                "Variables, for which the user gives values{run}: {}.\n\n",
                variables.join(", ")
            ));
        }
        document.push_str(text);
        Some(document)
    }

    /// A skill in a list; `None` if there is none of this name.
    fn entry(&self, name: &str) -> Option<Value> {
        let (uri, pattern) = (uri(name), self.patterns.get(name)?);
        let document = self.document(name)?;
        let digest = format!("sha256:{}", sha256_hex(document.as_bytes()));
        Some(json!({
            "frontmatter": {
                "description": self.snapshot.description(pattern),
                "metadata": { "fabric-pattern": pattern },
                "name": name,
            },
            "resources": [{ "digest": digest, "size": document.len(), "uri": uri }],
            "uri": uri,
        }))
    }
}

fn uri(name: &str) -> String {
    format!("skill://fabric/{name}/SKILL.md")
}

/// The name of the skill in the URI of a `SKILL.md`; `None` for other URIs.
pub(super) fn named(uri: &str) -> Option<&str> {
    let name = uri
        .strip_prefix("skill://fabric/")?
        .strip_suffix("/SKILL.md")?;
    (!name.contains('/')).then_some(name)
}

/// A double-quoted string that is valid YAML and JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Not printable in YAML, or a line break there.
            _ if c.is_control() || "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}".contains(c) => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A skill, to be saved.
pub(crate) struct SkillDocument {
    /// Its name.
    pub(crate) name: String,
    /// The name of its pattern.
    pub(crate) pattern: String,
    /// The whole `SKILL.md`.
    pub(crate) text: String,
}

impl Server {
    /// All skills. Blocks until they are read.
    pub(crate) fn skill_documents(&self) -> Result<Vec<SkillDocument>, Error> {
        let wait: Arc<dyn Wait> = Arc::new(NoWait);
        let skills = Skills::read(&self.backend, &wait)?;
        let documents = skills.patterns.iter().filter_map(|(name, pattern)| {
            Some(SkillDocument {
                name: name.clone(),
                pattern: pattern.clone(),
                text: skills.document(name)?,
            })
        });
        Ok(documents.collect())
    }
}

/// The `SKILL.md` of the skill of this name, if it exists.
pub(super) fn read(
    context: &Arc<Context>,
    name: &str,
) -> Result<Option<(String, Arc<Snapshot>)>, Refusal> {
    let wait = context.wait();
    let skills = Skills::read(&context.backend, &wait)?;
    let Some(text) = skills.document(name) else {
        return Ok(None);
    };
    wait.hold(text.len()).map_err(|Full| no_room())?;
    Ok(Some((text, skills.snapshot)))
}

/// Parses `skills/list`.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |context, result| {
        let skills = Skills::read(&context.backend, &context.wait())?;
        let names: Vec<&String> = skills.patterns.keys().collect();
        cursor.write(result, "skills", names.len(), |at| skills.entry(names[at]))?;
        result.cache(while_fresh(&skills.snapshot));
        Ok(())
    }))
}

/// Parses `skills/get`: -32602 for an unknown skill.
pub(super) fn get(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "skills/get needs params.uri, a string such as skill://fabric/summarize/SKILL.md.";
    let uri = Params::new(request.params, usage).text("uri")?.to_owned();
    Ok(request.call(move |context, result| {
        let skills = Skills::read(&context.backend, &context.wait())?;
        let Some(skill) = named(&uri).and_then(|name| skills.entry(name)) else {
            let detail = format!(
                "There is no skill \"{}\". skills/list has them all.",
                shown(&uri, 256)
            );
            return Err(
                Refusal::from(Error::new(Kind::PatternNotFound, detail)).with("uri", uri.as_str())
            );
        };
        result
            .field("skill", &skill)
            .cache(while_fresh(&skills.snapshot));
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_skill_uris_are_parsed() {
        let found = named("skill://fabric/extract-wisdom/SKILL.md");
        assert_eq!(found, Some("extract-wisdom"));
        for other in [
            "skill://fabric/SKILL.md",
            "skill://fabric/a/b/SKILL.md",
            "skill://x/a/SKILL.md",
            "a/SKILL.md",
            "",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn strings_are_quoted_for_yaml_and_json() {
        assert_eq!(quoted("a: \"b\" \\ é漢🙂"), r#""a: \"b\" \\ é漢🙂""#);
        for hard in ["\n---\n", "\u{85}\u{2028}\u{feff}\u{7f}\u{0}", "#x: - y"] {
            let text = quoted(hard);
            assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hard);
            assert!(
                !text.contains(['\n', '\u{85}', '\u{2028}', '\u{feff}', '\u{7f}']),
                "{text}"
            );
        }
    }
}
