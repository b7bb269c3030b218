//! The bodies of Fabric's API.
//!
//! In scope: requests and responses in every spelling that Fabric versions use, and what a pattern's text tells about
//! it. Not in scope: sending and receiving (`client`, `routes`), and the events of a run (`events`).

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::template::tokens;
use super::{Name, Place};
use crate::config::{DEFAULT_MODEL, MAX_NAME};
use crate::encoding::json::decode;
use crate::search::purpose;
use crate::text::shown;

/// Longest description of a pattern, in characters.
const MAX_DESCRIPTION: usize = 300;

/// A pattern as Fabric stores or renders it, with the documented keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Pattern {
    #[serde(default, alias = "Name", deserialize_with = "or_empty")]
    pub(crate) name: String,
    /// Its text, which becomes the system prompt.
    #[serde(alias = "Pattern")]
    pub(crate) system_prompt: String,
    /// Documented, but empty in practice.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) user_prompt_template: String,
    /// The description that Fabric sent, which is mostly empty. See [`Pattern::summary`].
    #[serde(default, alias = "Description", deserialize_with = "or_empty")]
    pub(crate) description: String,
    /// Documented, but empty in practice.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) tags: Vec<String>,
}

impl Pattern {
    /// Reads the body of `GET /patterns/:name`: with the keys that Fabric really has, or the documented ones. `None` if it
    /// holds no pattern text or a field of another type. A missing name is `wanted`.
    pub(super) fn from_body(body: &[u8], wanted: &Name) -> Option<Pattern> {
        let body: Map<String, Value> = decode(body)?;
        let mut pattern: Pattern = serde_json::from_value(body.into()).ok()?;
        if pattern.name.is_empty() {
            wanted.as_str().clone_into(&mut pattern.name);
        }
        Some(pattern)
    }

    /// What it does, in one line: Fabric's description, cut to [`MAX_DESCRIPTION`] characters. If there is none, what its
    /// `name` or text says.
    pub(crate) fn summary(&self, name: &str) -> String {
        let words: Vec<&str> = self.description.split_whitespace().collect();
        match shown(&words.join(" "), MAX_DESCRIPTION) {
            own if own.is_empty() => purpose(name, &self.system_prompt),
            own => own,
        }
    }

    /// The variables that the pattern needs, in order of first use: the content of each `{{…}}` that is neither `input`
    /// nor a plugin or extension call. Exactly as Fabric reads it, including blanks.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        for (_, token) in tokens(&self.system_prompt) {
            let is_call =
                token == "input" || token.starts_with("plugin:") || token.starts_with("ext:");
            if !is_call && seen.insert(token) {
                names.push(token.to_owned());
            }
        }
        names
    }
}

/// Whether Fabric can run a pattern with these variables, given values for them.
pub(crate) fn is_runnable(variables: &[String]) -> bool {
    variables.iter().all(|variable| can_be_given(variable))
}

/// Whether a run can give a value to this variable. Names with other characters are mostly code of another template
/// language; Fabric cannot run such a pattern.
pub(super) fn can_be_given(variable: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    !variable.trim().is_empty()
        && variable.chars().all(is_plain)
        && variable.chars().nth(MAX_NAME).is_none()
}

/// The parameters of one run: everything that a caller can set in `POST /chat`. Empty texts mean Fabric's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chat {
    /// Where the arguments are that it was made of.
    pub(crate) place: Place,
    /// The pattern to run.
    pub(crate) pattern: Name,
    /// The text it is run on, unmodified; [`template::check`](super::template::check) refuses a pattern that would
    /// execute it.
    pub(crate) input: String,
    /// Vendor of the model; ignored by Fabric before 1.4.283.
    pub(crate) vendor: String,
    /// Model; empty for Fabric's default model.
    pub(crate) model: String,
    /// A stored context to put in front.
    pub(crate) context: Option<Name>,
    /// A prompting strategy to put in front.
    pub(crate) strategy: Option<Name>,
    /// A stored conversation to continue.
    pub(crate) session: Option<Name>,
    /// Values for the pattern's variables; see [`template::check`](super::template::check).
    pub(crate) variables: BTreeMap<String, String>,
    /// Language of the answer; anything but empty and `en` makes Fabric translate.
    pub(crate) language: String,
    /// Default 0.7, as on Fabric's command line: Fabric takes a missing number for 0.
    pub(crate) temperature: f64,
    /// Default 0.9, as on Fabric's command line: Fabric takes a missing number for 0.
    pub(crate) top_p: f64,
    /// Default 0.
    pub(crate) frequency_penalty: f64,
    /// Default 0.
    pub(crate) presence_penalty: f64,
    /// `off`, `low`, `medium`, `high`, a number of tokens as text, or empty.
    pub(crate) thinking: String,
    /// Lets the model search the web, if the vendor supports it.
    pub(crate) search: bool,
    /// The location for such a search: a time zone or a language code, as the vendor wants it, or empty.
    pub(crate) search_location: String,
    /// The model's context window in tokens, which only Ollama is told; 0 for Fabric's default.
    pub(crate) context_length: usize,
}

impl Chat {
    /// The model as the log and the metrics have it: Fabric does not say which its default is.
    pub(crate) fn model_label(&self) -> &str {
        match self.model.as_str() {
            "" => DEFAULT_MODEL,
            model => model,
        }
    }

    /// The body of `POST /chat`. What may be large is moved there.
    pub(super) fn take_body(&mut self) -> Value {
        let text = |name: &Option<Name>| name.as_ref().map_or("", Name::as_str).to_owned();
        let mut body = json!({
            "prompts": [{
                "vendor": self.vendor,
                "model": self.model,
                "contextName": text(&self.context),
                "patternName": self.pattern.as_str(),
                "strategyName": text(&self.strategy),
                "sessionName": text(&self.session),
            }],
            "language": self.language,
            "temperature": self.temperature,
            "topP": self.top_p,
            "frequencyPenalty": self.frequency_penalty,
            "presencePenalty": self.presence_penalty,
            "modelContextLength": self.context_length,
            "thinking": self.thinking,
            "search": self.search,
            "searchLocation": self.search_location,
        });
        body["prompts"][0]["variables"] = mem::take(&mut self.variables).into_iter().collect();
        body["prompts"][0]["userInput"] = mem::take(&mut self.input).into();
        body
    }

    /// A run of `pattern` on `input` with Fabric's defaults for everything else.
    pub(crate) fn new(pattern: Name, input: impl Into<String>) -> Chat {
        Chat {
            pattern,
            input: input.into(),
            temperature: 0.7,
            top_p: 0.9,
            ..Chat::default()
        }
    }
}

/// The models that Fabric can use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Models {
    /// All of them, in Fabric's order.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) models: Vec<String>,
    /// The same, by vendor.
    #[serde(default, deserialize_with = "lists")]
    pub(crate) vendors: BTreeMap<String, Vec<String>>,
}

/// A prompting strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Strategy {
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    /// One line about it.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) description: String,
    /// The text to put before a pattern.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) prompt: String,
}

/// Lists by name. `null` in the place of one of them, or of them all, stands for an empty one.
fn lists<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let lists: BTreeMap<String, Option<Vec<String>>> = or_empty(deserializer)?;
    let full = |(vendor, list): (_, Option<_>)| (vendor, list.unwrap_or_default());
    Ok(lists.into_iter().map(full).collect())
}

/// Go writes an empty list or a missing text as `null`.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::parse("x", name).unwrap()
    }

    fn pattern(json: &str) -> Option<Pattern> {
        Pattern::from_body(json.as_bytes(), &name("wanted"))
    }

    fn with_text(text: &str) -> Pattern {
        Pattern {
            name: "p".into(),
            system_prompt: text.into(),
            ..Pattern::default()
        }
    }

    #[test]
    fn both_spellings_of_a_pattern() {
        let real = pattern(r#"{"Name":"a","Description":"","Pattern":"Do."}"#).unwrap();
        let expected = Pattern {
            name: "a".into(),
            system_prompt: "Do.".into(),
            ..Pattern::default()
        };
        assert_eq!(real, expected);
        let documented = r#"{"name":"a","description":"d","tags":["t"],"system_prompt":"s","user_prompt_template":"u"}"#;
        let documented = pattern(documented).unwrap();
        let expected = Pattern {
            name: "a".into(),
            system_prompt: "s".into(),
            user_prompt_template: "u".into(),
            description: "d".into(),
            tags: vec!["t".into()],
        };
        assert_eq!(documented, expected);
        let found = pattern(r#"{"Pattern":"x","Description":null,"tags":null}"#).unwrap();
        let found = found.name;
        assert_eq!(found, "wanted");
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for json in [
            r#"{}"#,
            r#"{"error":"x"}"#,
            r#"{"Pattern":5}"#,
            r#"{"Pattern":null}"#,
            r#"{"Pattern":"x","tags":5}"#,
        ] {
            assert_eq!(pattern(json), None, "{json}");
        }
    }

    #[test]
    fn variables_are_what_fabric_would_ask_for() {
        for (text, expected) in [
            (
                "Write in {{lang_code}} for {{name}} and {{lang_code}}.",
                vec!["lang_code", "name"],
            ),
            (
                "{{input}} {{plugin:datetime:now}} {{ext:a:b}} {{b}}",
                vec!["b"],
            ),
            ("{{ a }}{{}}{{x{{y}}", vec![" a ", "y"]),
            ("{{{n}}} {{{{m}}}}", vec!["n", "m"]),
            ("{{a} }} {{b", vec![]),
            ("{{a}{{b}}", vec!["b"]),
            ("{{plugin:text:upper:{{inner}}}}", vec!["inner"]),
            ("{ {a} } é{{ü}}", vec!["ü"]),
            ("", vec![]),
        ] {
            assert_eq!(with_text(text).variables(), expected, "{text}");
        }
    }

    #[test]
    fn code_is_no_variable() {
        for name in ["lang_code", " recipient ", "ü", "a.b-c 2"] {
            assert!(can_be_given(name), "{name}");
        }
        for code in [
            "",
            "  ",
            "<expression>",
            "f(x)",
            " x ? \"a\" : y ",
            "a\nb",
            &"x".repeat(129),
        ] {
            assert!(!can_be_given(code), "{code}");
        }
    }

    #[test]
    fn a_description_of_fabrics_is_one_line() {
        let described = |text: &str| {
            Pattern {
                description: text.into(),
                ..with_text("x")
            }
            .summary("p")
        };
        assert_eq!(described(" One\n\u{7}line "), "One line");
        assert_eq!(described(" \n"), "X.");
        assert_eq!(described(&"é".repeat(999)), "é".repeat(300));
    }

    #[test]
    fn null_is_empty_everywhere() {
        let models = |json| serde_json::from_str::<Models>(json).unwrap();
        let found = models(r#"{"models":null,"vendors":null}"#);
        assert_eq!(found, Models::default());
        assert_eq!(models("{}"), Models::default());
        let some = models(r#"{"models":["b","a"],"vendors":{"X":["b"],"Y":null},"more":1}"#);
        assert_eq!(some.models, ["b", "a"]);
        let expected = BTreeMap::from([("X".into(), vec!["b".into()]), ("Y".into(), vec![])]);
        assert_eq!(some.vendors, expected);
        let strategy: Strategy =
            serde_json::from_str(r#"{"name":"cot","description":null}"#).unwrap();
        let expected = Strategy {
            name: "cot".into(),
            ..Strategy::default()
        };
        assert_eq!(strategy, expected);
    }
}
