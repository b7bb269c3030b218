//! The Skills extension (`io.modelcontextprotocol/skills`, SEP-2640): every allowed pattern is a skill of one file, so
//! that the client's own model can do what Fabric's model does.
//!
//! In scope: `skills/list`, `skills/get`, the content of a `SKILL.md`. Not in scope: reading it (`resources`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};

use crate::access::Role;
use crate::account::Full;
use crate::fabric::{Client, Entry, Error, Kind, NoWait, Snapshot, Wait, no_room};
use crate::protocol::pages;
use crate::protocol::{Params, Refusal};
use crate::search::skill_names;
use crate::sha256::sha256_hex;
use crate::sync::lock;
use crate::text::shown;
use crate::tools::Backend;

use super::call::Working;
use super::{Action, Request, Server, while_fresh};

/// Longest skill, in bytes; the extension's limit.
const MAX_SKILL: usize = 16 << 20;

/// The skills of the latest snapshot.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Option<Arc<Skills>>>);

impl Shelf {
    /// The skills of the current snapshot.
    fn skills(&self, backend: &Backend, wait: &Arc<dyn Wait>) -> Result<Arc<Skills>, Error> {
        let snapshot = backend.catalog.snapshot(wait)?;
        let known = lock(&self.0).clone();
        if let Some(skills) = known.filter(|skills| Arc::ptr_eq(&skills.snapshot, &snapshot)) {
            return Ok(skills);
        }
        let skills = Arc::new(Skills::new(snapshot, backend));
        *lock(&self.0) = Some(Arc::clone(&skills));
        Ok(skills)
    }
}

/// All skills of one snapshot. Their text is generated on each read, deterministically.
struct Skills {
    snapshot: Arc<Snapshot>,
    fabric: Arc<Client>,
    /// Whether callers can run patterns here.
    can_run: bool,
    /// By name.
    all: BTreeMap<String, Manifest>,
}

/// Facts about a skill's only file.
struct Manifest {
    /// The name of its pattern.
    pattern: String,
    size: usize,
    /// Computed when it is first asked for: all of them take long, and whoever asks for one skill waits for one.
    digest: OnceLock<String>,
}

impl Skills {
    fn new(snapshot: Arc<Snapshot>, backend: &Backend) -> Skills {
        let fabric = Arc::clone(&backend.fabric);
        let has_run =
            !backend.policy.read_only && backend.policy.tools().any(|tool| tool.role == Role::Run);
        let can_run = fabric.has_fabric() && has_run;
        let names = skill_names(snapshot.patterns.iter().map(|entry| entry.name.as_str()));
        let allowed = snapshot.patterns.iter();
        let allowed: Vec<&Entry> = allowed
            .filter(|entry| backend.policy.allows(&entry.name))
            .collect();
        let skill = |entry: &&Entry| {
            let name = names.get(entry.name.as_str())?;
            let manifest = Manifest {
                pattern: entry.name.clone(),
                size: document(name, entry, &snapshot, &fabric, can_run)?.len(),
                digest: OnceLock::new(),
            };
            (manifest.size <= MAX_SKILL).then(|| (name.clone(), manifest))
        };
        let mut all = BTreeMap::new();
        all.extend(allowed.iter().filter_map(skill));
        let left_out = allowed.len() - all.len();
        if left_out > 0 {
            log::warn!(
                "{left_out} patterns are no skills: their text is not known or too long, or their name has no letters that a skill's may have"
            );
        }
        Skills {
            snapshot,
            fabric,
            can_run,
            all,
        }
    }

    /// The whole `SKILL.md`; `None` if there is no such skill.
    fn document(&self, name: &str) -> Option<String> {
        let entry = self.snapshot.pattern(&self.all.get(name)?.pattern)?;
        document(name, entry, &self.snapshot, &self.fabric, self.can_run)
    }

    /// A skill in a list.
    fn entry(&self, name: &str, manifest: &Manifest) -> Value {
        let (uri, pattern) = (uri(name), &manifest.pattern);
        let digest = manifest.digest.get_or_init(|| {
            let document = self.document(name).unwrap_or_default();
            format!("sha256:{}", sha256_hex(document.as_bytes()))
        });
        json!({
            "frontmatter": {
                "description": self.snapshot.description(pattern),
                "metadata": { "fabric-pattern": pattern },
                "name": name,
            },
            "resources": [{ "digest": digest, "size": manifest.size, "uri": uri }],
            "uri": uri,
        })
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

/// A whole `SKILL.md`; `None` if the pattern's text is unknown.
fn document(
    name: &str,
    entry: &Entry,
    snapshot: &Snapshot,
    fabric: &Client,
    can_run: bool,
) -> Option<String> {
    let text = entry.text.as_deref()?;
    let (name, pattern) = (quoted(name), quoted(&entry.name));
    let mut document = format!(
        "---\nname: {name}\ndescription: {}\nmetadata:\n  fabric-pattern: {pattern}\n---\n\nFollow the instructions below \
         yourself, on the user's input.",
        quoted(snapshot.description(&entry.name))
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

/// A double-quoted string that is valid YAML and JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Not printable in YAML, or a line break there.
            c if c.is_control()
                || matches!(
                    c,
                    '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
                ) =>
            {
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
    fn skills(&self, wait: Arc<dyn Wait>) -> Result<Arc<Skills>, Error> {
        self.skills.skills(&self.backend, &wait)
    }

    /// All skills. Blocks until they are read.
    pub(crate) fn skill_documents(&self) -> Result<Vec<SkillDocument>, Error> {
        let skills = self.skills(Arc::new(NoWait))?;
        let documents = skills.all.iter().filter_map(|(name, manifest)| {
            Some(SkillDocument {
                name: name.clone(),
                pattern: manifest.pattern.clone(),
                text: skills.document(name)?,
            })
        });
        Ok(documents.collect())
    }
}

/// The `SKILL.md` of the skill of this name, if it exists.
pub(super) fn read(
    call: &Working<'_>,
    name: &str,
) -> Result<Option<(String, Arc<Snapshot>)>, Refusal> {
    let wait = call.context.wait();
    let skills = call.server.skills(wait.clone())?;
    if let Some(manifest) = skills.all.get(name) {
        wait.hold(manifest.size).map_err(|Full| no_room())?;
    }
    let text = skills.document(name);
    Ok(text.map(|text| (text, Arc::clone(&skills.snapshot))))
}

/// Parses `skills/list`.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |call, result| {
        let skills = call.server.skills(call.context.wait())?;
        let all = skills
            .all
            .iter()
            .map(|(name, manifest)| skills.entry(name, manifest));
        cursor.write(result, "skills", all)?;
        result.cache(while_fresh(&skills.snapshot));
        Ok(())
    }))
}

/// Parses `skills/get`: -32602 for an unknown skill.
pub(super) fn get(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "skills/get needs params.uri, a string such as skill://fabric/summarize/SKILL.md.";
    let uri = Params::new(request.params, usage).text("uri")?.to_owned();
    Ok(request.call(move |call, result| {
        let skills = call.server.skills(call.context.wait())?;
        let Some((name, manifest)) = named(&uri).and_then(|name| skills.all.get_key_value(name))
        else {
            let detail = format!(
                "There is no skill \"{}\". skills/list has them all.",
                shown(&uri, 256)
            );
            return Err(
                Refusal::from(Error::new(Kind::PatternNotFound, detail)).with("uri", uri.as_str())
            );
        };
        result
            .field("skill", &skills.entry(name, manifest))
            .cache(while_fresh(&skills.snapshot));
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_skill_uris_are_parsed() {
        assert_eq!(
            named("skill://fabric/extract-wisdom/SKILL.md"),
            Some("extract-wisdom")
        );
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
