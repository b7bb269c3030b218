//! The bodies of Fabric's API.
//!
//! In scope: what is sent and what comes back, in every spelling that Fabric versions use, and what can be read off a
//! pattern's text. Not in scope: sending and receiving (`client`, `calls`), and the events of a run (`events`).

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Name;
use super::template::tokens;

/// Longest one-line description of a pattern, in characters.
const MAX_SUMMARY: usize = 300;

/// A pattern as Fabric stores it, or as it renders it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Its name.
    pub(crate) name: String,
    /// Its text, which becomes the system prompt.
    pub(crate) system_prompt: String,
    /// Documented, but empty in practice.
    pub(crate) user_prompt: String,
    /// As Fabric sent it, which is mostly empty; see [`Pattern::summary`].
    pub(crate) description: String,
    /// Documented, but empty in practice.
    pub(crate) tags: Vec<String>,
}

impl Pattern {
    /// Reads the body of `GET /patterns/:name`: Fabric's capitalised keys, or the documented lower-case ones. `None`
    /// if it holds no pattern text or a field of another kind. A missing name is `wanted`.
    pub(super) fn from_body(mut body: Map<String, Value>, wanted: &Name) -> Option<Pattern> {
        let mut text = |keys: &[&str]| match keys.iter().find_map(|key| body.remove(*key)) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => None,
        };
        let name = text(&["Name", "name"])?.filter(|name| !name.is_empty());
        let description = text(&["Description", "description"])?;
        let system_prompt = text(&["Pattern", "system_prompt"])??;
        let user_prompt = text(&["user_prompt_template"])?;
        let tags = body.remove("tags").map_or(Some(Vec::new()), texts)?;
        Some(Pattern {
            name: name.unwrap_or_else(|| wanted.as_str().to_owned()),
            system_prompt,
            user_prompt: user_prompt.unwrap_or_default(),
            description: description.unwrap_or_default(),
            tags,
        })
    }

    /// What the pattern is for, as one line of plain text of 1 to 300 characters: Fabric's description if it has one,
    /// else the first sentence under the pattern's IDENTITY or PURPOSE heading, else its first sentence at all, else
    /// `Fabric pattern NAME`.
    pub(crate) fn summary(&self) -> String {
        [plain(&self.description), purpose(&self.system_prompt)]
            .into_iter()
            .find(|text| !text.is_empty())
            .map_or_else(|| Pattern::fallback_summary(&self.name), |text| shortened(&text))
    }

    /// What can be said about a pattern of which only the name is known.
    pub(super) fn fallback_summary(name: &str) -> String {
        shortened(&format!("Fabric pattern {name}"))
    }

    /// The variables that the pattern needs, in the order in which it first names them: what stands in `{{…}}` and is
    /// neither `input` nor a plugin or extension call. Exactly as Fabric reads it, blanks included.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        for (_, token) in tokens(&self.system_prompt) {
            let is_call = token == "input" || token.starts_with("plugin:") || token.starts_with("ext:");
            if !is_call && seen.insert(token) {
                names.push(token.to_owned());
            }
        }
        names
    }
}

/// The first sentence of prose under the heading that says what a pattern is, or else of all of it.
fn purpose(text: &str) -> String {
    let below = text.lines().skip_while(|line| !is_purpose_heading(line)).skip(1);
    let mut first = first_paragraph(below);
    if first.is_empty() {
        first = first_paragraph(text.lines());
    }
    first_sentence(&plain(&first)).to_owned()
}

/// `# IDENTITY and PURPOSE` in most patterns; `IDENTITY and GOAL:` and `<identity>` in some.
fn is_purpose_heading(line: &str) -> bool {
    let line = line.trim();
    let upper = line.to_uppercase();
    let is_heading = line.starts_with(['#', '<']) || line.ends_with(':');
    is_heading && (upper.contains("IDENTITY") || upper.contains("PURPOSE"))
}

/// Headings, comments, rules, tags and fences are no prose.
fn first_paragraph<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut paragraph = String::new();
    for line in lines.map(str::trim) {
        let is_break = line.is_empty()
            || ["#", "//", "```", "---", "===", "<"].iter().any(|start| line.starts_with(start))
            || is_purpose_heading(line);
        if !is_break {
            paragraph.push_str(line);
            paragraph.push('\n');
        } else if !paragraph.is_empty() {
            break;
        }
    }
    paragraph
}

/// Markdown as one line of plain text: no marks, no line breaks, no control characters.
fn plain(markdown: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for line in markdown.lines() {
        let line = line.trim_start().trim_start_matches(['#', '>']).trim_start();
        let line = ["- ", "* ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet)).unwrap_or(line);
        for word in line.split(|c: char| c.is_whitespace() || c.is_control()) {
            let word = word.replace(['*', '`'], "");
            if !word.is_empty() {
                words.push(word);
            }
        }
    }
    words.join(" ")
}

/// Up to the first `.`, `!` or `?` after which no lower-case letter goes on (as in `e.g. this`), or all of it.
fn first_sentence(text: &str) -> &str {
    let mut ends = text.match_indices(['.', '!', '?', '。']).map(|(at, mark)| at + mark.len());
    let end = ends.find(|&end| {
        let rest = &text[end..];
        let next = rest.trim_start().chars().next();
        text[..end].ends_with('。') || (rest.starts_with(' ') && next.is_none_or(|c| !c.is_lowercase()))
    });
    &text[..end.unwrap_or(text.len())]
}

/// At most [`MAX_SUMMARY`] characters, cut between words where there are any.
fn shortened(text: &str) -> String {
    let Some((limit, _)) = text.char_indices().nth(MAX_SUMMARY) else { return text.to_owned() };
    let (last, _) = text.char_indices().nth(MAX_SUMMARY - 1).unwrap_or((limit, ' '));
    let kept = &text[..last];
    let cut = kept.rfind(' ').filter(|&at| at > last / 2).unwrap_or(last);
    format!("{}…", kept[..cut].trim_end())
}

/// What one run sends: everything `POST /chat` takes that a caller can decide. Empty texts mean Fabric's default.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chat {
    /// The pattern to run.
    pub(crate) pattern: Name,
    /// The text it is run on. Untouched; [`template::check`](super::template::check) refuses the patterns that would run it.
    pub(crate) input: String,
    /// Vendor of the model; ignored by Fabric before 1.4.283.
    pub(crate) vendor: String,
    /// Model; empty for Fabric's default model.
    pub(crate) model: String,
    /// A stored context to put in front.
    pub(crate) context: Option<Name>,
    /// A prompting strategy to put in front.
    pub(crate) strategy: Option<Name>,
    /// A stored conversation to go on with.
    pub(crate) session: Option<Name>,
    /// Values for the pattern's variables; see [`template::check`](super::template::check).
    pub(crate) variables: BTreeMap<String, String>,
    /// Language of the answer; anything but empty and `en` makes Fabric translate.
    pub(crate) language: String,
    /// Default 0.7, as on Fabric's command line: a missing number would be 0.
    pub(crate) temperature: f64,
    /// Default 0.9, as on Fabric's command line: a missing number would be 0.
    pub(crate) top_p: f64,
    /// Default 0.
    pub(crate) frequency_penalty: f64,
    /// Default 0.
    pub(crate) presence_penalty: f64,
    /// `off`, `low`, `medium`, `high`, a number of tokens as text, or empty.
    pub(crate) thinking: String,
    /// Lets the model search the web, where the vendor can.
    pub(crate) search: bool,
    /// Passed on as received if there are any, although no Fabric up to 1.4.470 reads them.
    pub(crate) attachments: Vec<String>,
}

impl Chat {
    /// A run of `pattern` on `input` with Fabric's defaults for everything else.
    pub(crate) fn new(pattern: Name, input: impl Into<String>) -> Chat {
        Chat {
            pattern,
            input: input.into(),
            vendor: String::new(),
            model: String::new(),
            context: None,
            strategy: None,
            session: None,
            variables: BTreeMap::new(),
            language: String::new(),
            temperature: 0.7,
            top_p: 0.9,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            thinking: String::new(),
            search: false,
            attachments: Vec::new(),
        }
    }
}

impl Serialize for Chat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Prompt<'a> {
            user_input: &'a str,
            vendor: &'a str,
            model: &'a str,
            context_name: &'a str,
            pattern_name: &'a str,
            strategy_name: &'a str,
            session_name: &'a str,
            variables: &'a BTreeMap<String, String>,
        }
        fn text(name: &Option<Name>) -> &str {
            name.as_ref().map_or("", Name::as_str)
        }
        let prompt = Prompt {
            user_input: &self.input,
            vendor: &self.vendor,
            model: &self.model,
            context_name: text(&self.context),
            pattern_name: self.pattern.as_str(),
            strategy_name: text(&self.strategy),
            session_name: text(&self.session),
            variables: &self.variables,
        };
        let mut wire = serializer.serialize_struct("Chat", 11)?;
        wire.serialize_field("prompts", &[prompt])?;
        wire.serialize_field("language", &self.language)?;
        wire.serialize_field("temperature", &self.temperature)?;
        wire.serialize_field("topP", &self.top_p)?;
        wire.serialize_field("frequencyPenalty", &self.frequency_penalty)?;
        wire.serialize_field("presencePenalty", &self.presence_penalty)?;
        wire.serialize_field("modelContextLength", &0)?;
        wire.serialize_field("thinking", &self.thinking)?;
        wire.serialize_field("search", &self.search)?;
        wire.serialize_field("searchLocation", "")?;
        if !self.attachments.is_empty() {
            wire.serialize_field("attachments", &self.attachments)?;
        }
        wire.end()
    }
}

/// The models that Fabric can use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Models {
    /// All of them, in Fabric's order.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) models: Vec<String>,
    /// The same by vendor.
    #[serde(default, deserialize_with = "lists_or_empty")]
    pub(crate) vendors: BTreeMap<String, Vec<String>>,
}

/// A prompting strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Strategy {
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    /// One line about it.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) description: String,
    /// The text that it puts in front of a pattern.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) prompt: String,
}

/// A list of texts; `None` if it is something else.
fn texts(value: Value) -> Option<Vec<String>> {
    let text = |item| match item {
        Value::String(text) => Some(text),
        _ => None,
    };
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => items.into_iter().map(text).collect(),
        _ => None,
    }
}

/// Go writes an empty list or a missing text as `null`.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn lists_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let lists: Map<String, Value> = or_empty(deserializer)?;
    let mut filled = BTreeMap::new();
    for (vendor, list) in lists {
        filled.insert(vendor, texts(list).ok_or_else(|| D::Error::custom("a list of texts was expected"))?);
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::parse("x", name).unwrap()
    }

    fn pattern(json: &str) -> Option<Pattern> {
        Pattern::from_body(serde_json::from_str(json).unwrap(), &name("wanted"))
    }

    fn with_text(text: &str) -> Pattern {
        Pattern { name: "p".into(), system_prompt: text.into(), ..Pattern::default() }
    }

    #[test]
    fn both_spellings_of_a_pattern() {
        let real = pattern(r#"{"Name":"a","Description":"","Pattern":"Do."}"#).unwrap();
        assert_eq!(real, Pattern { name: "a".into(), system_prompt: "Do.".into(), ..Pattern::default() });
        let documented =
            r#"{"name":"a","description":"d","tags":["t"],"system_prompt":"s","user_prompt_template":"u"}"#;
        let documented = pattern(documented).unwrap();
        assert_eq!(
            documented,
            Pattern {
                name: "a".into(),
                system_prompt: "s".into(),
                user_prompt: "u".into(),
                description: "d".into(),
                tags: vec!["t".into()]
            }
        );
        assert_eq!(pattern(r#"{"Pattern":"x","Description":null,"tags":null}"#).unwrap().name, "wanted");
    }

    #[test]
    fn what_is_no_pattern() {
        for json in
            [r#"{}"#, r#"{"error":"x"}"#, r#"{"Pattern":5}"#, r#"{"Pattern":null}"#, r#"{"Pattern":"x","tags":5}"#]
        {
            assert_eq!(pattern(json), None, "{json}");
        }
    }

    #[test]
    fn variables_are_what_fabric_would_ask_for() {
        for (text, expected) in [
            ("Write in {{lang_code}} for {{name}} and {{lang_code}}.", vec!["lang_code", "name"]),
            ("{{input}} {{plugin:datetime:now}} {{ext:a:b}} {{b}}", vec!["b"]),
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
    fn the_summary_is_fabrics_or_the_first_sentence_of_the_purpose() {
        for (text, expected) in [
            ("# IDENTITY and PURPOSE\n\nYou are an expert. You do more.\n\n# STEPS\n", "You are an expert."),
            (
                "# Identity\r\n\r\n- You **rate** `ideas`, e.g. mine,\r\n  by v1.5 of a scale!\r\nMore",
                "You rate ideas, e.g. mine, by v1.5 of a scale!",
            ),
            ("## PURPOSE:\n> No end here\n\nNext paragraph.", "No end here"),
            ("# IDENTITY\n## GOAL\nTwo headings. x", "Two headings. x"),
            ("# IDENTITY\n\n```\ncode\n```", "code"),
            ("# IDENTITY\n\n// Who you are\n\nYou are an expert. You", "You are an expert."),
            ("IDENTITY and GOAL:\n\nYou are wise. You", "You are wise."),
            ("<identity>\n\nYou convert. You\n\n</identity>", "You convert."),
            ("Some text. More.\n\n## PURPOSE\n\nThe purpose. More.", "The purpose."),
            ("Some text. More.\n\n## PURPOSE\n", "Some text."),
            ("# Background\n\nYou excel. You", "You excel."),
            ("**Expert coder**\n\nYou", "Expert coder"),
            ("# IDENTITY\n\n# STEPS", "Fabric pattern p"),
            ("", "Fabric pattern p"),
            ("# PURPOSE\n目的は要約です。次の文。", "目的は要約です。"),
        ] {
            assert_eq!(with_text(text).summary(), expected, "{text:?}");
        }
        let described = Pattern { description: " One\n**line** ".into(), ..with_text("# PURPOSE\nOther.") };
        assert_eq!(described.summary(), "One line");
    }

    #[test]
    fn a_summary_is_never_too_long() {
        let words = with_text(&format!("# PURPOSE\n{}", "word ".repeat(100))).summary();
        assert!(words.chars().count() <= 300 && words.ends_with("word…"), "{words}");
        let one = with_text(&format!("# PURPOSE\n{}", "é".repeat(1000))).summary();
        assert_eq!(one, format!("{}…", "é".repeat(299)));
        let exact = "x".repeat(300);
        assert_eq!(with_text(&format!("# PURPOSE\n{exact}")).summary(), exact);
    }

    #[test]
    fn a_run_with_defaults_is_what_fabrics_own_command_line_would_send() {
        let chat = Chat::new(name("summarize"), "Hi {{x}}");
        assert_eq!(
            serde_json::to_string(&chat).unwrap(),
            "{\"prompts\":[{\"userInput\":\"Hi {{x}}\",\"vendor\":\"\",\"model\":\"\",\"contextName\":\"\",\
             \"patternName\":\"summarize\",\"strategyName\":\"\",\"sessionName\":\"\",\"variables\":{}}],\
             \"language\":\"\",\"temperature\":0.7,\"topP\":0.9,\"frequencyPenalty\":0.0,\"presencePenalty\":0.0,\
             \"modelContextLength\":0,\"thinking\":\"\",\"search\":false,\"searchLocation\":\"\"}"
        );
    }

    #[test]
    fn everything_a_caller_decides_is_sent() {
        let chat = Chat {
            vendor: "V".into(),
            model: "m/x".into(),
            context: Some(name("c")),
            strategy: Some(name("cot")),
            session: Some(name("s")),
            variables: BTreeMap::from([("k".into(), "v".into())]),
            language: "de".into(),
            temperature: 2.0,
            top_p: 0.0,
            frequency_penalty: -2.0,
            presence_penalty: 1.5,
            thinking: "high".into(),
            search: true,
            attachments: vec!["a".into()],
            ..Chat::new(name("p"), "")
        };
        assert_eq!(
            serde_json::to_string(&chat).unwrap(),
            "{\"prompts\":[{\"userInput\":\"\",\"vendor\":\"V\",\"model\":\"m/x\",\"contextName\":\"c\",\
             \"patternName\":\"p\",\"strategyName\":\"cot\",\"sessionName\":\"s\",\"variables\":{\"k\":\"v\"}}],\
             \"language\":\"de\",\"temperature\":2.0,\"topP\":0.0,\"frequencyPenalty\":-2.0,\"presencePenalty\":1.5,\
             \"modelContextLength\":0,\"thinking\":\"high\",\"search\":true,\"searchLocation\":\"\",\
             \"attachments\":[\"a\"]}"
        );
    }

    #[test]
    fn null_is_empty_everywhere() {
        let models = |json| serde_json::from_str::<Models>(json).unwrap();
        assert_eq!(models(r#"{"models":null,"vendors":null}"#), Models::default());
        assert_eq!(models("{}"), Models::default());
        let some = models(r#"{"models":["b","a"],"vendors":{"X":["b"],"Y":null},"more":1}"#);
        assert_eq!(some.models, ["b", "a"]);
        assert_eq!(some.vendors, BTreeMap::from([("X".into(), vec!["b".into()]), ("Y".into(), vec![])]));
        let strategy: Strategy = serde_json::from_str(r#"{"name":"cot","description":null}"#).unwrap();
        assert_eq!(strategy, Strategy { name: "cot".into(), ..Strategy::default() });
    }
}
