//! The Skills extension (`io.modelcontextprotocol/skills`, SEP-2640): every allowed pattern is a skill of one file, so
//! that the client's own model can do what Fabric's model does.
//!
//! In scope: `skills/list`, `skills/get`, the content of a `SKILL.md`. Not in scope: reading it (`resources`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::clients::quoted;
use crate::encoding::sha256::sha256_hex;
use crate::fabric::{Error, Kind, Observer, Snapshot, is_runnable};
use crate::protocol::{Params, Refusal, pages};
use crate::search::skill_names;
use crate::text::shown;
use crate::tools::{Backend, Tool};

use super::{Action, Request, Server, while_fresh};

/// All skills of one snapshot. Their text is generated on each read, deterministically.
pub(crate) struct Skills {
    pub(crate) snapshot: Arc<Snapshot>,
    backend: Arc<Backend>,
}

impl Skills {
    /// Blocks until they are read.
    pub(crate) fn read(backend: &Arc<Backend>, observer: &Observer) -> Result<Skills, Error> {
        Ok(Skills {
            snapshot: backend.catalog.snapshot(observer)?,
            backend: Arc::clone(backend),
        })
    }

    /// The pattern of each, by the skill's name.
    pub(crate) fn patterns(&self) -> &BTreeMap<String, String> {
        let (all, policy) = (&self.snapshot.patterns, &self.backend.policy);
        self.snapshot.skills.get_or_init(|| {
            let names = skill_names(all.iter().map(|entry| entry.name.as_str()));
            let usable = all.iter().filter_map(|entry| {
                let is_usable = entry.text.is_some() && policy.allows(&entry.name);
                let name = names.get(entry.name.as_str()).filter(|_| is_usable)?;
                Some((name.clone(), entry.name.clone()))
            });
            let mut patterns = BTreeMap::new();
            patterns.extend(usable);
            patterns
        })
    }

    /// The whole `SKILL.md`; `None` if there is no such skill.
    pub(crate) fn document(&self, name: &str) -> Option<String> {
        let entry = self.snapshot.pattern(self.patterns().get(name)?)?;
        let text = entry.text.as_deref()?;
        let (policy, fabric) = (&self.backend.policy, &self.backend.fabric);
        let can_run = policy.tools().any(Tool::is_run) && !policy.read_only;
        let (name, pattern) = (quoted(name), quoted(&entry.name));
        let mut document = format!(
            "---\nname: {name}\ndescription: {}\nmetadata:\n  fabric-pattern: \
             {pattern}\n---\n\nFollow the instructions below yourself, on the user's input.",
            quoted(self.snapshot.description(&entry.name))
        );
        let is_raw = fabric.why_raw(&entry.name, text).is_some();
        document.push_str(&match is_runnable(&entry.variables) {
            true if is_raw => " Fabric would replace the code in double braces.\n\n".to_owned(),
            true if !can_run => "\n\n".to_owned(),
            true => format!(
                " Or call the tool `fabric_run_pattern` with `pattern_name` {pattern} and that \
                 input as `input_text`, so that Fabric's model does it.\n\n"
            ),
            false => " Fabric cannot run them: their double braces hold code.\n\n".to_owned(),
        });
        if !entry.variables.is_empty() && is_runnable(&entry.variables) {
            let run = match can_run {
                true => " (in a run: `variables`)",
                false => "",
            };
            let in_braces = |name: &String| format!("`{{{{{name}}}}}`");
            let variables: Vec<String> = entry.variables.iter().map(in_braces).collect();
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
        let uri = format!("skill://fabric/{name}/SKILL.md");
        let pattern = self.patterns().get(name)?;
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

/// The name of the skill in the URI of a `SKILL.md`; `None` for other URIs.
pub(super) fn named(uri: &str) -> Option<&str> {
    let name = uri.strip_prefix("skill://fabric/")?;
    let name = name.strip_suffix("/SKILL.md")?;
    (!name.contains('/')).then_some(name)
}

pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |context, result| {
        let skills = Skills::read(&context.backend, &context.observer())?;
        let names = skills.patterns().keys();
        let entries = names.filter_map(|name| skills.entry(name));
        let list = &skills.snapshot.skill_pages;
        cursor.share(result, "skills", list, entries)?;
        result.cache(while_fresh(&skills.snapshot));
        Ok(())
    }))
}

/// Parses `skills/get`: -32602 for an unknown skill.
pub(super) fn get(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "skills/get needs params.uri, a string such as skill://fabric/summarize/SKILL.md.";
    let uri = Params::new(request.params, usage).text("uri")?.to_owned();
    Ok(request.call(move |context, result| {
        let skills = Skills::read(&context.backend, &context.observer())?;
        let Some(skill) = named(&uri).and_then(|name| skills.entry(name)) else {
            let shown = shown(&uri, 256);
            let detail = format!("There is no skill \"{shown}\". skills/list has them all.");
            let error = Error::new(Kind::PatternNotFound, detail);
            return Err(Refusal::from(error).with("uri", uri.as_str()));
        };
        result.field("skill", &skill);
        result.cache(while_fresh(&skills.snapshot));
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
        let all = "skill://fabric/SKILL.md|skill://fabric/a/b/SKILL.md|skill://x/a/SKILL.md|\
                   a/SKILL.md|";
        for other in all.split('|') {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
