//! Validates names and variables before they are sent to Fabric.
//!
//! In scope: the syntax of names, percent-encoding, limits on variables, and suggestions for a wrong name. Not in
//! scope: whether a name exists.
//!
//! Fabric opens a pattern name that looks like a path as a local file, joins other names into paths, and expands
//! variables recursively as templates, including plugin calls. All of that is refused here.

use std::collections::BTreeMap;

use super::template::{SENTINEL, is_template};
use super::{Error, Kind, NameList};
use crate::config::{MAX_NAME, MAX_VARIABLE_VALUE, MAX_VARIABLES};
use crate::text::{closest, joined, letters};

/// The name of a pattern, strategy, context or session that is safe to send to Fabric: 1 to 128 characters: letters of
/// any script, digits, emoji, space, `_`, `-` and `.`; no leading dot, no trailing dot or space, and not a Windows
/// device. The default is empty, which stands for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

impl Name {
    /// Parses a name. The error is [`Kind::InvalidRequest`] and names `field`, the argument.
    pub(crate) fn parse(field: &str, value: &str) -> Result<Name, Error> {
        let why = match value.chars().find(|c| !is_allowed(*c)) {
            _ if value.is_empty() => "is empty: give a name.".into(),
            _ if value.chars().nth(MAX_NAME).is_some() => {
                format!("is too long: a name has at most {MAX_NAME} characters.")
            }
            _ if value.starts_with(['.', '~']) => {
                "must not start with `.` or `~`: Fabric would take it for a path.".into()
            }
            None if value.ends_with(['.', ' ']) || is_device(value) => {
                "must not end with a dot or a space, or be the name of a device on Windows, such as CON: use another name."
                    .into()
            }
            None => return Ok(Name(value.to_owned())),
            Some(c @ ('/' | '\\')) => {
                format!("must not contain `{c}`: give a name as Fabric lists it, not a path.")
            }
            Some(c) => format!(
                "must not contain the character `{}`: letters, digits, space, `_`, `-` and `.` are allowed.",
                c.escape_debug()
            ),
        };
        bad_name(format!("`{field}` {why}"))
    }

    /// The name as given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn bad_name<T>(why: String) -> Result<T, Error> {
    Err(Error::new(Kind::InvalidRequest, why))
}

/// Combining accents belong to letters in decomposed spelling, which macOS uses in file names. Most emoji are allowed too.
pub(crate) fn is_allowed(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, ' ' | '_' | '-' | '.' | '\u{300}'..='\u{36f}' | '\u{1f300}'..='\u{1faff}')
}

/// Names that Windows opens as a device in every folder, with any extension.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let stem = stem.trim_end().to_lowercase();
    let is_port = |rest: &str| rest.chars().count() == 1 && "0123456789¹²³".contains(rest);
    let port = stem.strip_prefix("com").or(stem.strip_prefix("lpt"));
    matches!(stem.as_str(), "con" | "prn" | "aux" | "nul") || port.is_some_and(is_port)
}

/// Whether one name may stand for the other: a run takes names that differ in separators, and a file system may ignore case
/// or Unicode normalisation, as on macOS and Windows. In doubt, true.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (|| without_case(one), || without_case(other));
    // std has no Unicode normalisation, so if one name is decomposed, all letters with accents count as equal.
    one().eq(other())
        || one().chain(other()).any(is_part) && accents_alike(one()) == accents_alike(other())
}

/// Case folding by way of upper case, which unifies more letters: `ſ`, `ı` and `ß` become S, I and SS. Also drops what
/// Windows ignores at the end of a name; operators' names may have it.
fn without_case(name: &str) -> impl Iterator<Item = char> {
    let letters = name.trim_end_matches(['.', ' ']).chars();
    let letters = letters.filter(|c| !matches!(c, ' ' | '_' | '-'));
    let upper = letters.flat_map(char::to_uppercase);
    // The dot that `İ` keeps, and the final sigma, which depends on its position.
    upper.flat_map(char::to_lowercase)
}

/// Combining accents, and vowels and final consonants of Korean syllables.
fn is_part(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1100}'..='\u{11ff}')
}

fn accents_alike(name: impl Iterator<Item = char>) -> String {
    let mut alike = String::new();
    for c in name {
        match c {
            // Belongs to the previous letter.
            '\u{300}'..='\u{36f}' | '\u{1160}'..='\u{11ff}' => {
                alike.pop();
                alike.push('*');
            }
            c if c.is_ascii() => alike.push(c),
            _ => alike.push('*'),
        }
    }
    alike
}

/// Whether a name says that there is none.
pub(crate) fn is_nothing(name: &str) -> bool {
    name.eq_ignore_ascii_case("none") || name.eq_ignore_ascii_case("null")
}

/// Whether a name leaves the choice to Fabric.
pub(crate) fn is_usual(name: &str) -> bool {
    is_nothing(name) || ["default", "auto"].contains(&&*name.to_lowercase())
}

/// Parses the name of a model or vendor: at most 128 characters, no control characters. Slashes and colons are allowed
/// (`meta-llama/x`, `llama3:8b`); empty means Fabric's default.
pub(crate) fn model(field: &str, value: &str) -> Result<String, Error> {
    if value.chars().nth(MAX_NAME).is_some() || value.chars().any(char::is_control) {
        return bad_name(format!(
            "`{field}` must have at most {MAX_NAME} characters, and no control characters."
        ));
    }
    Ok(value.to_owned())
}

/// Checks the variables of one call: at most 256, names of 1 to 128 characters, values of at most 64 KiB without `{{`
/// and Fabric's input sentinel. `template` checks what they form in a pattern. The error is [`Kind::InvalidRequest`], about
/// `field`, the argument.
pub(crate) fn variables(field: &str, variables: &BTreeMap<String, String>) -> Result<(), Error> {
    if variables.len() > MAX_VARIABLES {
        return bad_name(format!(
            "`{field}` has {} entries: at most {MAX_VARIABLES} are allowed.",
            variables.len()
        ));
    }
    for (name, value) in variables {
        let is_odd = |c: char| c.is_control() && !c.is_whitespace();
        let shown = name.escape_debug();
        let is_long = name.chars().nth(MAX_NAME).is_some();
        if name.is_empty() || is_long || is_template(name) || name.contains(is_odd) {
            return bad_name(format!(
                "`{field}` has a name that is empty or longer than {MAX_NAME} characters, or \
                 contains `{{{{`, control characters or Fabric's mark for the input: use the \
                 names that fabric_get_pattern_details shows."
            ));
        }
        let why = if value.len() > MAX_VARIABLE_VALUE {
            let kib = MAX_VARIABLE_VALUE >> 10;
            format!("is too long: at most {kib} KiB are allowed.")
        } else if value.contains("{{") {
            "must not contain `{{`: Fabric would run it as a template.".to_owned()
        } else if value.contains(SENTINEL) {
            format!(
                "must not contain `{SENTINEL}`: Fabric would put the input there. Leave it out."
            )
        } else {
            continue;
        };
        return bad_name(format!("`{field}.{shown}` {why}"));
    }
    Ok(())
}

/// The one of these names that is `wanted`, or else the only one that differs from it in nothing but case and
/// separators.
pub(crate) fn alike<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_alike = |name: &&str| letters(name).eq(letters(wanted));
    let alike = names.into_iter().filter(is_alike);
    match *alike.collect::<Vec<_>>() {
        [one] => Some(one),
        ref several => several.iter().copied().find(|name| *name == wanted),
    }
}

/// "Did you mean" suggestions for an unknown name, as a sentence after a space; empty if nothing is similar.
pub(crate) fn did_you_mean(wanted: &str, names: &NameList) -> String {
    suggestion(closest(wanted, names.iter()))
}

/// A sentence after a space that suggests these names.
pub(crate) fn suggestion<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    match in_quotes(names, "or").as_str() {
        "" => String::new(),
        names => format!(" Did you mean {names}?"),
    }
}

/// These names in quotes, with this word before the last.
pub(crate) fn in_quotes<'a>(names: impl IntoIterator<Item = &'a str>, word: &str) -> String {
    let names = names.into_iter().map(|name| format!("\"{name}\""));
    joined(&Vec::from_iter(names), word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn names_as_fabric_lists_them_pass() {
        let long = "é".repeat(128);
        let names = "summarize|a|Öffne_das-2|漢字 \u{1f600}|e\u{301}te|with space| a|lptx|x.nul";
        for name in names.split('|').chain([&*long]) {
            assert_eq!(Name::parse("pattern_name", name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn everything_that_could_be_a_path_or_more_is_refused_and_says_why() {
        for (name, why) in [
            ("", "is empty"),
            ("/etc/passwd", "`/`"),
            (".", "start with"),
            (".hidden", "start with"),
            ("a/../b", "`/`"),
            ("\\\\host\\share", "`\\`"),
            ("C:\\x", "`:`"),
            ("a\nb", "`\\n`"),
            ("a\0b", "`\\0`"),
            ("a\u{202e}b", "`\\u{202e}`"),
            ("a%2fb", "`%`"),
            ("{{x}}", "`{`"),
            ("summarize.", "end with a dot or a space"),
            ("summarize ", "end with a dot or a space"),
            ("NUL", "device"),
            ("lpt¹.a.b", "device"),
            ("con .x", "device"),
            (&"é".repeat(129), "too long"),
        ] {
            let error = Name::parse("pattern_name", name).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidRequest, "{name:?}");
            let is_so = error.detail.starts_with("`pattern_name` ") && error.detail.contains(why);
            assert!(is_so, "{name:?}: {error}");
        }
    }

    #[test]
    fn one_folder_has_one_name_however_it_is_spelled() {
        for (one, other) in [
            ("Summarize", "sUMMARIZE"),
            ("ÜBER", "über"),
            ("u\u{308}ber", "ÜBER"),
            ("straße", "STRASSE"),
            ("ſummarize", "summarize"),
            ("\u{212a}ey", "key"),
            ("create_codıng", "create_coding"),
            ("ΣΟΦΟΣ", "σοφος"),
            ("İx", "i\u{307}x"),
            ("e\u{302}\u{301}", "ế"),
            ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("a", "a. "),
        ] {
            let is_so = is_same(one, other) && is_same(other, one);
            assert!(is_so, "{one:?} {other:?}");
        }
        for (one, other) in [
            ("a", "b"),
            ("résumé", "resume"),
            ("re\u{301}sume\u{301}", "résumés"),
            ("e\u{301}a", "éb"),
            ("漢字", "総括"),
            ("a", "aa"),
        ] {
            assert!(!is_same(one, other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn models_may_have_slashes_and_colons_only_size_and_control_characters_count() {
        let found = model("model_name", "meta-llama/x:8b").unwrap();
        assert_eq!(found, "meta-llama/x:8b");
        assert_eq!(model("model_name", "").unwrap(), "");
        let error = model("model_name", "a\tb").unwrap_err();
        assert!(error.detail.contains("`model_name`"), "{error}");
        assert!(model("model_name", &"x".repeat(129)).is_err());
    }

    #[test]
    fn values_that_fabric_would_run_are_refused() {
        let all = "{{plugin:sys:env:OPENAI_API_KEY}}|{{ext:a:b}}|a {{|\
                   a __FABRIC_INPUT_SENTINEL_TOKEN__ b";
        for value in all.split('|') {
            let error = variables("variables", &map(&[("name", value)])).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidRequest, "{value}");
            assert!(error.detail.starts_with("`variables.name` "), "{error}");
        }
    }

    #[test]
    fn code_and_json_pass() {
        let all = "|fn f() { x }|{\"a\": {\"b\": 1}}|plugin:a:b|{input}|__FABRIC_INPUT_";
        for value in all.split('|') {
            let given = map(&[("name", value)]);
            assert_eq!(variables("variables", &given), Ok(()), "{value}");
        }
    }

    #[test]
    fn the_bounds_of_variables_hold() {
        let many = |n: usize| {
            (0..n)
                .map(|i| (format!("v{i}"), String::new()))
                .collect::<BTreeMap<_, _>>()
        };
        let variables = |all: &BTreeMap<String, String>| variables("variables", all);
        assert_eq!(variables(&many(256)), Ok(()));
        assert!(variables(&many(257)).unwrap_err().detail.contains("257"));
        assert_eq!(variables(&map(&[("v", &"x".repeat(65_536))])), Ok(()));
        let long = variables(&map(&[("v", &"x".repeat(65_537))])).unwrap_err();
        let detail = "`variables.v` is too long: at most 64 KiB are allowed.";
        assert_eq!(long.detail, detail);
        for name in [
            "",
            "a{{b",
            "__FABRIC_INPUT_SENTINEL_TOKEN__",
            "a\u{7}b",
            &"x".repeat(129),
        ] {
            assert!(variables(&map(&[(name, "x")])).is_err(), "{name:?}");
        }
        let found = variables(&map(&[(&"x".repeat(128), "x"), (" text ", "x")]));
        assert_eq!(found, Ok(()));
    }

    #[test]
    fn suggestions_are_few_and_close() {
        let names = "summarize summarize_micro summarize_paper summarize_rpg zz";
        let names: NameList = names.split(' ').collect();
        assert_eq!(closest("sumarize", names.iter()), ["summarize"]);
        let found = closest("summarizer", names.iter());
        assert_eq!(found, ["summarize", "summarize_rpg"]);
        assert_eq!(did_you_mean("zy", &names), " Did you mean \"zz\"?");
        assert_eq!(did_you_mean("qqqqqqqq", &names), "");
        let found = ["a b", "A_b", "x"].map(|wanted| alike(wanted, ["A-b", "A_b"]));
        assert_eq!(found, [None, Some("A_b"), None]);
    }
}
