//! Which tools and prompts are offered, which patterns may be run, and with which models.

use crate::config::{DEFAULT_MODEL, MODEL_VARIABLE, PatternModel, Policy, is_among};
use crate::fabric::{Chat, Error, Name, names};
use crate::protocol::{Feature, Revision};

use super::{PATTERNS_ONLY, TOOLS, Tool, invalid, list_strategies};

/// Writes files in Fabric's current folder when it is run.
const WRITES_FILES: &str = "create_coding_feature";

impl Policy {
    /// Refuses a pattern that may not be run here.
    ///
    /// # Errors
    /// `invalid-request`, naming the field, the reason and, if there is one, the remedy. Names are compared by
    /// [`names::is_same`]: Fabric's file system may open the same folder for several.
    pub(crate) fn check(&self, field: &str, pattern: &Name) -> Result<(), Error> {
        self.refusal(pattern.as_str()).map_or(Ok(()), |why| {
            Err(invalid(format!("`{field}`: {why}")).about(field))
        })
    }

    /// Whether the operator allows this pattern.
    pub(crate) fn allows(&self, pattern: &str) -> bool {
        self.refusal(pattern).is_none()
    }

    /// As [`Policy::check`], for a prompt.
    ///
    /// # Errors
    /// `invalid-request`.
    pub(crate) fn check_prompt(&self, field: &str, pattern: &Name) -> Result<(), Error> {
        let checked = if self.no_prompts {
            let why = format!("`{field}`: no prompts are offered (--prompt none); use the tools.");
            Err(invalid(why).about(field))
        } else {
            self.check(field, pattern)
        };
        checked.map_err(|error| error.of_policy(pattern.as_str(), DEFAULT_MODEL))
    }

    /// The tools that are offered, in listing order. What is not offered cannot be called either. With `--read-only`
    /// `fabric_run_pattern` is among them, for dry runs.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let is_named = |tool: &Tool| self.tools.iter().any(|name| name == tool.name);
        let has_use = |tool: &Tool| !self.no_strategies || tool.name != list_strategies::TOOL.name;
        let all = [TOOLS, PATTERNS_ONLY][usize::from(self.patterns_only)].iter();
        all.filter(move |tool| has_use(tool) && (self.tools.is_empty() || is_named(tool)))
    }

    /// A text without the sentences after the first that name a tool which is not offered.
    pub(super) fn offered(&self, text: &str) -> String {
        let is_offered = |tool: &Tool| self.tools().any(|one| one.name == tool.name);
        let missing = Vec::from_iter(TOOLS.iter().filter(|tool| !is_offered(tool)));
        let names_one = |said: &str| missing.iter().any(|tool| said.contains(tool.name));
        let sentences = text.split_inclusive(['.', '?']).enumerate();
        let told = sentences.filter(|(at, said)| *at == 0 || !names_one(said));
        told.map(|(_, said)| said).collect()
    }

    /// Do tools have an output schema, and their results `structuredContent`?
    pub(crate) fn has_structure(&self, revision: Revision) -> bool {
        revision.knows(Feature::StructuredContent) && !self.plain_results
    }

    /// Sets the pattern's model, or else the default one, if the run names none, and refuses a model that is not
    /// allowed.
    ///
    /// # Errors
    /// `invalid-request`, naming the models that may be run.
    pub(crate) fn model(&self, chat: &mut Chat) -> Result<(), Error> {
        let own = &self.callers_models;
        if chat.model.is_empty() {
            let (_, model, vendor) = self.model_of(chat.pattern.as_str());
            let named = own.iter().find(|model| !model.ends_with('*'));
            match named.filter(|_| !is_among(own, model)) {
                Some(first) => chat.model.clone_from(first),
                None => {
                    chat.model.clone_from(model);
                    if chat.vendor.is_empty() {
                        chat.vendor.clone_from(vendor);
                    }
                }
            }
        }
        if !take_model(own, &mut chat.model) {
            return Err(no_model(chat, own));
        }
        if !take_model(&self.allowed_models, &mut chat.model) {
            let (model, allowed) = (&chat.model, self.allowed_models.join(", "));
            let field = chat.place.path("model_name");
            let detail = format!(
                "`{field}`: the model {model} may not be run on this server; allowed: {allowed} (--allow-model)."
            );
            return Err(invalid(detail).about(field));
        }
        Ok(())
    }

    /// May the caller run this model?
    pub(crate) fn may_run(&self, model: &str) -> bool {
        is_among(&self.callers_models, model) && is_among(&self.allowed_models, model)
    }

    /// The setting for runs of a pattern that name no model, the model and its vendor.
    pub(super) fn model_of(&self, pattern: &str) -> (&str, &String, &String) {
        let is_meant = |own: &&PatternModel| {
            let name = own.pattern.strip_prefix(MODEL_VARIABLE);
            names::is_same(pattern, name.unwrap_or(&own.pattern))
        };
        match self.pattern_models.iter().rfind(is_meant) {
            Some(own) if own.pattern.starts_with(MODEL_VARIABLE) => {
                (&own.pattern, &own.model, &own.vendor)
            }
            Some(own) => ("--pattern-model", &own.model, &own.vendor),
            None => ("--default-model", &self.default_model, &self.default_vendor),
        }
    }

    fn refusal(&self, pattern: &str) -> Option<String> {
        let listed = |list: &[String]| list.iter().any(|other| names::is_same(pattern, other));
        if listed(&self.denied) {
            let why = "is denied on this server (--deny-pattern).";
            return Some(format!("the pattern {pattern} {why}"));
        }
        let may_write = self.patterns_only || listed(&self.allowed);
        (names::is_same(pattern, WRITES_FILES) && !may_write).then(|| {
            format!(
                "{WRITES_FILES} writes files on Fabric's host, so it is refused unless the \
                 operator starts fabric-mcp with --allow-pattern {WRITES_FILES}."
            )
        })
    }
}

/// Whether these models, or all if there are none, have this one. It gets their spelling: Fabric takes a model's name in
/// upper and lower case.
fn take_model(models: &[String], model: &mut String) -> bool {
    let is_in = is_among(models, model);
    let taken = names::alike(model, models.iter().map(String::as_str));
    // A name that only fits a `*` may be that of another model.
    let taken = taken.filter(|taken| !is_in || taken.eq_ignore_ascii_case(model));
    if let Some(taken) = taken {
        *model = taken.to_owned();
    }
    is_in || taken.is_some()
}

/// The refusal of a model that is none of the caller's.
pub(crate) fn no_model(chat: &Chat, own: &[String]) -> Error {
    let (field, model) = (chat.place.path("model_name"), chat.model_label());
    let own = own.join(", ");
    let detail = format!("`{field}`: you may not run the model {model}; give one of yours: {own}.");
    invalid(detail).about(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_writing_pattern_needs_leave_and_denying_wins() {
        let name = |n| Name::parse("pattern_name", n).unwrap();
        let verdict = |allowed: &[&str], denied: &[&str], pattern| {
            let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
            Policy {
                allowed: own(allowed),
                denied: own(denied),
                ..Policy::default()
            }
            .check("pattern_name", &name(pattern))
            .map_err(|e| e.detail)
        };
        let leave = "--allow-pattern create_coding_feature";
        for (allowed, denied, pattern, refusal) in [
            (&[][..], &[][..], "summarize", None),
            (&[], &[], WRITES_FILES, Some(leave)),
            (&[], &[], "Create_Coding_Feature", Some("")),
            (&[], &[], "create_codıng_feature", Some("")),
            (&[WRITES_FILES], &[], WRITES_FILES, None),
            (&["Create_Coding_Feature"], &[], WRITES_FILES, None),
            (
                &[WRITES_FILES],
                &[WRITES_FILES],
                WRITES_FILES,
                Some("--deny-pattern"),
            ),
            (&[], &["Summarize"], "summarize", Some("")),
            (&[], &["über. "], "U\u{308}BER", Some("")),
        ] {
            let verdict = verdict(allowed, denied, pattern);
            match refusal {
                None => assert_eq!(verdict, Ok(()), "{allowed:?} {pattern}"),
                Some(way_out) => assert!(verdict.unwrap_err().contains(way_out), "{pattern}"),
            }
        }
        for (own, model, allowed) in [
            ("mistral*", "Mistral-small", true),
            ("mistral*", "mistral/codestral", false),
            ("meta/*", "meta/llama/x", true),
        ] {
            assert_eq!(is_among(&[own.into()], model), allowed, "{own} {model}");
        }
        let policy = Policy {
            denied: vec!["zz".into()],
            ..Policy::default()
        };
        assert!(policy.allows("summarize") && !policy.allows("ZZ") && !policy.allows(WRITES_FILES));
        assert!(
            !policy.allows("zz."),
            "a folder that cannot be asked for is not listed either"
        );
    }

    #[test]
    fn runs_get_the_default_model_and_no_other_than_the_allowed() {
        let run = |policy: &Policy, model: &str, vendor: &str| {
            let mut chat = Chat::new(
                Name::parse("pattern_name", "summarize").unwrap(),
                String::new(),
            );
            (chat.model, chat.vendor) = (model.to_owned(), vendor.to_owned());
            policy
                .model(&mut chat)
                .map(|()| (chat.model, chat.vendor))
                .map_err(|error| error.detail)
        };
        let ok = |model: &str, vendor: &str| Ok((model.to_owned(), vendor.to_owned()));
        let free = Policy::default();
        assert_eq!(run(&free, "", ""), ok("", ""));
        assert_eq!(run(&free, "any", "V"), ok("any", "V"));
        let default = Policy {
            default_model: "small".into(),
            default_vendor: "A".into(),
            ..Policy::default()
        };
        assert_eq!(run(&default, "", ""), ok("small", "A"));
        assert_eq!(run(&default, "", "B"), ok("small", "B"));
        assert_eq!(run(&default, "large", ""), ok("large", ""));
        let own = |pattern: &str, model: &str, vendor: &str| PatternModel {
            pattern: pattern.into(),
            model: model.into(),
            vendor: vendor.into(),
        };
        let by_pattern = Policy {
            pattern_models: vec![
                own("FABRIC_MODEL_SUM_MARIZE", "theirs", "V"),
                own("other", "o", "O"),
            ],
            ..default.clone()
        };
        assert_eq!(run(&by_pattern, "", ""), ok("theirs", "V"));
        assert_eq!(run(&by_pattern, "", "B"), ok("theirs", "B"));
        assert_eq!(run(&by_pattern, "large", ""), ok("large", ""));
        let by_flag = Policy {
            pattern_models: [
                by_pattern.pattern_models,
                vec![own("Summarize", "ours", "")],
            ]
            .concat(),
            allowed_models: vec!["Ours".into(), "small".into()],
            ..default.clone()
        };
        assert_eq!(run(&by_flag, "", ""), ok("Ours", ""));
        let strict = Policy {
            allowed_models: vec!["small".into(), "Mid".into(), "gpt*".into()],
            ..default
        };
        assert_eq!(run(&strict, "", ""), ok("small", "A"));
        assert_eq!(run(&strict, "MID", "C"), ok("Mid", "C"));
        assert_eq!(run(&strict, "GPT-4o", ""), ok("GPT-4o", ""));
        let told = "`model_name`: the model large may not be run on this server; allowed: small, Mid, gpt* (--allow-model).";
        assert_eq!(run(&strict, "large", ""), Err(told.to_owned()));
        let intern = Policy {
            callers_models: vec!["llama*".into(), "small".into()],
            default_model: "large".into(),
            default_vendor: "A".into(),
            ..Policy::default()
        };
        assert_eq!(
            run(&intern, "", ""),
            ok("small", ""),
            "the first, as the default is another"
        );
        assert_eq!(run(&intern, "Llama3:8b", "B"), ok("Llama3:8b", "B"));
        assert_eq!(run(&intern, "s-mall", ""), ok("small", ""));
        let told =
            "`model_name`: you may not run the model large; give one of yours: llama*, small.";
        assert_eq!(run(&intern, "large", ""), Err(told.to_owned()));
        let both = Policy {
            allowed_models: vec!["Small".into()],
            ..intern
        };
        assert_eq!(run(&both, "", ""), ok("Small", ""));
        assert!(run(&both, "llama3:8b", "").is_err());
        let found = ["SMALL", "llama3:8b", "large"].map(|model| both.may_run(model));
        assert_eq!(found, [true, false, false]);
        assert!(
            run(&strict, "S Mall", "") == ok("small", "") && run(&strict, "ſmall", "").is_err()
        );
    }
}
