//! The Skills extension (`io.modelcontextprotocol/skills`, SEP-2640): every allowed pattern is a skill of one file, so
//! that the client's own model can do what Fabric's model does.
//!
//! In scope: `skills/list`, `skills/get`, the content of a `SKILL.md`. Not in scope: reading it (`resources`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

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
    pub(crate) fn read(backend: &Arc<Backend>, wait: &Observer) -> Result<Skills, Error> {
        Ok(Skills {
            snapshot: backend.catalog.snapshot(wait)?,
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
        let (runnable, is_offered) = (
            is_runnable(&entry.variables),
            policy.tools().any(Tool::is_run),
        );
        let can_run = runnable && is_offered && !policy.read_only;
        // YAML takes strings of JSON.
        let description = self.snapshot.description(&entry.name);
        let [name, pattern, description] = [name, &entry.name, description].map(Value::from);
        let mut document = format!(
            "---\nname: {name}\ndescription: {description}\nmetadata:\n  fabric-pattern: \
             {pattern}\n---\n\nFollow the instructions below yourself, on the user's input."
        );
        if can_run && fabric.why_raw(&entry.name, text).is_none() {
            document.push_str(&format!(
                " Or call the tool `fabric_run_pattern` with `pattern_name` {pattern}, that input as \
                 `input_text`, and values as `variables`, if there are any, so that Fabric's model does it."
            ));
        }
        document.push_str("\n\n");
        if runnable && !entry.variables.is_empty() {
            let in_braces = |name: &String| format!("`{{{{{name}}}}}`");
            let variables: Vec<String> = entry.variables.iter().map(in_braces).collect();
            document.push_str(&format!(
                "Variables, for which the user gives values: {}.\n\n",
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

/// Parses `skills/list`.
pub(super) fn list(_: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let cursor = pages::cursor(request.params)?;
    Ok(request.call(move |context, result| {
        let skills = Skills::read(&context.backend, &context.wait())?;
        let names = skills.patterns().keys();
        cursor.write(result, "skills", names, |name| skills.entry(name))?;
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
            let shown = shown(&uri, 256);
            let detail = format!("There is no skill \"{shown}\". skills/list has them all.");
            let error = Error::new(Kind::PatternNotFound, detail);
            return Err(Refusal::from(error).with("uri", uri.as_str()));
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
        let all = "skill://fabric/SKILL.md|skill://fabric/a/b/SKILL.md|skill://x/a/SKILL.md|\
                   a/SKILL.md|";
        for other in all.split('|') {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
