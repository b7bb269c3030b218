//! Adds a server to a JSON text, or takes it out, without changing any other byte: comments, trailing commas and layout
//! stay as they are.

use std::collections::HashSet;
use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::NAME;
use super::json::{self, member};

/// White space of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A text with an object of servers.
#[derive(Debug)]
pub(super) struct Document {
    text: String,
    /// The text with comments and a byte order mark as spaces. Positions are the same.
    bare: String,
    /// The key of the object of servers.
    key: &'static str,
    root: Object,
    servers: Option<Object>,
    /// The value of the root without our server, to be compared.
    rest: Value,
    /// The value of our server.
    pub(super) own: Option<Value>,
}

/// The positions of an object's brackets and members.
#[derive(Debug)]
struct Object {
    open: usize,
    close: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: String,
    /// Position of the key's opening quote.
    start: usize,
    value: Range<usize>,
}

impl Object {
    fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.key == key)
    }
}

impl Document {
    /// Reads a text whose servers are under `key`.
    ///
    /// # Errors
    /// Why the text cannot be edited.
    pub(super) fn read(text: &str, key: &'static str) -> Result<Document, String> {
        let (bare, json) = strict(text)?;
        if json.trim_matches(BLANKS).is_empty() {
            let between = match text.is_empty() || text.ends_with(['\n', '\u{feff}']) {
                true => "",
                false => "\n",
            };
            return Document::read(&format!("{text}{between}{{}}\n"), key);
        }
        let mut rest: Value =
            serde_json::from_str(&json).map_err(|error| format!("it is not JSON: {error}"))?;
        let root = object(&json, skip(&json, 0), "it does not hold an object")?;
        let servers = root.member(key).map(|servers| {
            let otherwise = format!("its \"{key}\" is not an object");
            object(&json, servers.value.start, &otherwise)
        });
        // An absent object of servers equals an empty one.
        let own = match &mut rest[key] {
            Value::Object(servers) => servers.remove(NAME),
            absent => {
                *absent = json!({});
                None
            }
        };
        Ok(Document {
            text: text.to_owned(),
            bare,
            key,
            servers: servers.transpose()?,
            root,
            rest,
            own,
        })
    }

    /// The text with this as our server, or without it. `None` if it is so already.
    ///
    /// # Errors
    /// That an edit would change more than the entry.
    pub(super) fn with(&self, entry: Option<&Value>) -> Result<Option<String>, String> {
        if self.own.as_ref() == entry {
            return Ok(None);
        }
        let servers = self.servers.as_ref();
        let own = servers.and_then(|servers| servers.member(NAME));
        let text = match entry {
            Some(entry) => self.put(entry, own),
            None => own.map(|own| self.take(own)).unwrap_or_default(),
        };
        match Document::read(&text, self.key) {
            Ok(new) if new.rest == self.rest && new.own.as_ref() == entry => Ok(Some(text)),
            _ => Err("it cannot be edited without changing more than the entry".to_owned()),
        }
    }

    fn put(&self, entry: &Value, own: Option<&Member>) -> String {
        let (text, root) = (&self.text, &self.root);
        // As the first member is indented; `None` is for a text on one line.
        let unit = match root.members.first() {
            Some(_) if !text[root.open..root.close].contains('\n') => None,
            first => first
                .and_then(|first| own_indent(text, first.start))
                .filter(|own| !own.is_empty())
                .or(Some("  ")),
        };
        match (&self.servers, own) {
            (None, _) => self.insert(root, self.key, &json!({NAME: entry}), unit),
            (Some(servers), None) => self.insert(servers, NAME, entry, unit),
            (_, Some(own)) => {
                let value = self.lines(&json::text(entry, unit, indent(text, own.start)));
                spliced(text, own.value.clone(), &value)
            }
        }
    }

    /// New text with the line ends of this one.
    fn lines(&self, new: &str) -> String {
        match self.text.contains("\r\n") {
            true => new.replace('\n', "\r\n"),
            false => new.to_owned(),
        }
    }

    /// Adds a member at the end of an object.
    fn insert(&self, object: &Object, name: &str, value: &Value, unit: Option<&str>) -> String {
        let (text, close) = (&self.text, object.close);
        let outer = indent(text, object.open);
        let first = object.members.first();
        let inner = match first.and_then(|first| own_indent(text, first.start)) {
            Some(indent) => indent.to_owned(),
            None => format!("{outer}{}", unit.unwrap_or_default()),
        };
        let before = match (unit, first) {
            (Some(_), _) => format!("\n{inner}"),
            (None, first) => first.map(|_| " ".to_owned()).unwrap_or_default(),
        };
        let last = self.bare[..close].trim_end_matches(BLANKS);
        let (comma, trailing) = match last.chars().next_back() {
            Some(',') => ("", ","),
            Some('{') => ("", ""),
            _ => (",", ""),
        };
        // A bracket on its own line stays there.
        let end = text[..close].trim_end_matches(BLANKS).len();
        let closing = match unit {
            Some(_) if own_indent(text, close).is_none() => self.lines(&format!("\n{outer}")),
            _ => text[end..close].to_owned(),
        };
        let new = member(name, &json::text(value, unit, &inner));
        let new = self.lines(&format!("{before}{new}{trailing}"));
        let text = spliced(text, end..close, &format!("{new}{closing}"));
        spliced(&text, last.len()..last.len(), comma)
    }

    /// Removes our server with its line and the comma that would be left over.
    fn take(&self, own: &Member) -> String {
        let before = self.text[..own.start].trim_end_matches([' ', '\t']);
        let line = before.strip_suffix("\r\n").or(before.strip_suffix('\n'));
        let start = line.unwrap_or(before).len();
        let after = self.bare[own.value.end..].trim_start_matches(BLANKS);
        let comma = after.strip_prefix(',');
        let end = comma.map_or(own.value.end, |rest| self.text.len() - rest.len());
        let text = spliced(&self.text, start..end, "");
        let previous = self.bare[..own.start].trim_end_matches(BLANKS);
        if comma.is_none() && previous.ends_with(',') {
            return spliced(&text, previous.len() - 1..previous.len(), "");
        }
        // Empty again, as before anything was added.
        let open = text[..start].trim_end_matches(BLANKS);
        let close = text[start..].trim_start_matches(BLANKS);
        match open.ends_with('{') && close.starts_with('}') {
            true => format!("{open}{close}"),
            false => text,
        }
    }
}

/// The object that begins at `open` of strict JSON; if that is another value, this error.
fn object(json: &str, open: usize, otherwise: &str) -> Result<Object, String> {
    if !json[open..].starts_with('{') {
        return Err(otherwise.to_owned());
    }
    let (mut members, mut keys) = (Vec::new(), HashSet::new());
    let mut at = skip(json, open + 1);
    while let Some((key, length)) = value::<String>(&json[at..]) {
        if !keys.insert(key.clone()) {
            return Err(format!("the name {key:?} is there twice"));
        }
        let first = skip(json, skip(json, at + length) + 1);
        let length = value::<IgnoredAny>(&json[first..]).map_or(0, |(_, length)| length);
        members.push(Member {
            key,
            start: at,
            value: first..first + length,
        });
        at = skip(json, first + length);
        if json[at..].starts_with(',') {
            at = skip(json, at + 1);
        }
    }
    Ok(Object {
        open,
        close: at,
        members,
    })
}

/// The position of the next byte that is not white space.
fn skip(json: &str, at: usize) -> usize {
    json.len() - json[at..].trim_start_matches(BLANKS).len()
}

/// The value that a text begins with, and its length.
fn value<T: for<'de> Deserialize<'de>>(text: &str) -> Option<(T, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// The text with comments and a byte order mark as spaces, and the same with trailing commas as spaces too. Positions stay
/// the same.
fn strict(text: &str) -> Result<(String, String), String> {
    let mut bare = String::with_capacity(text.len());
    let (mut trailing, mut comma) = (Vec::new(), None);
    while let Some(first) = text[bare.len()..].chars().next() {
        let (at, rest) = (bare.len(), &text[bare.len()..]);
        let (length, is_blank) = match first {
            // A string without an end is no JSON, as is seen later.
            '"' => (
                value::<IgnoredAny>(rest).map_or(rest.len(), |(_, length)| length),
                false,
            ),
            '/' if rest.starts_with("//") => (rest.find(['\n', '\r']).unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").ok_or_else(|| {
                    let line = bare.matches('\n').count() + 1;
                    format!("line {line}: a comment has no end")
                })?;
                (end + 4, true)
            }
            '\u{feff}' if at == 0 => (first.len_utf8(), true),
            _ => (first.len_utf8(), BLANKS.contains(&first)),
        };
        let part = &rest[..length];
        match is_blank {
            // Line ends stay, since errors name lines.
            true => bare.extend(part.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' })),
            false => bare.push_str(part),
        }
        match first {
            ',' => comma = Some(at),
            '}' | ']' => trailing.extend(comma.take()),
            _ if is_blank => {}
            _ => comma = None,
        }
    }
    let mut json = bare.clone();
    for at in trailing {
        json.replace_range(at..=at, " ");
    }
    Ok((bare, json))
}

fn spliced(text: &str, range: Range<usize>, new: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(range, new);
    text
}

/// The indentation of the line of `at`.
fn indent(text: &str, at: usize) -> &str {
    let line = text[..at].rsplit('\n').next().unwrap_or_default();
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The indentation of the line of `at`, if nothing else precedes it there.
fn own_indent(text: &str, at: usize) -> Option<&str> {
    let (_, line) = text[..at].rsplit_once('\n')?;
    (line == indent(text, at)).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Value {
        json!({"command": "/f", "args": []})
    }

    /// The text after the entry is put in, or taken out.
    fn edited(text: &str, entry: Option<&Value>) -> Result<Option<String>, String> {
        Document::read(text, "servers")?.with(entry)
    }

    fn added(text: &str) -> String {
        edited(text, Some(&entry())).unwrap().unwrap()
    }

    const FRESH: &str = "{\n  \"servers\": {\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }\n  }\n}";

    #[test]
    fn an_empty_text_becomes_a_file() {
        assert_eq!(added(""), format!("{FRESH}\n"));
        assert_eq!(added("\n"), format!("\n{FRESH}\n"));
        assert_eq!(added("// mine"), format!("// mine\n{FRESH}\n"));
        assert_eq!(added("\u{feff}"), format!("\u{feff}{FRESH}\n"));
    }

    /// What is put in, and that taking it out gives the first text again.
    #[test]
    fn what_is_put_in_stands_as_the_rest_does_and_leaves_no_trace() {
        for (before, after) in [
            ("{}", FRESH.to_owned()),
            ("{\n  \"servers\": {}\n}\n", format!("{FRESH}\n")),
            (
                "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t// first\n\t\t\"x\": {} // last\n\t}\n}\n",
                "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t// first\n\t\t\"x\": {}, // last\n\t\t\"fabric\": \
                 {\n\t\t\t\"command\": \"/f\",\n\t\t\t\"args\": []\n\t\t}\n\t}\n}\n"
                    .to_owned(),
            ),
            (
                "{\r\n    \"servers\": {\r\n        \"x\": {},\r\n    },\r\n}\r\n",
                "{\r\n    \"servers\": {\r\n        \"x\": {},\r\n        \"fabric\": {\r\n            \"command\": \
                 \"/f\",\r\n            \"args\": []\r\n        },\r\n    },\r\n}\r\n"
                    .to_owned(),
            ),
            (
                "{\"a\":{},\"servers\":{\"x\":{}}}",
                "{\"a\":{},\"servers\":{\"x\":{}, \"fabric\": {\"command\": \"/f\", \"args\": []}}}".to_owned(),
            ),
            ("{\"servers\":{}}", "{\"servers\":{\"fabric\": {\"command\": \"/f\", \"args\": []}}}".to_owned()),
            (
                "{\"servers\":{\"x\":{},}}",
                "{\"servers\":{\"x\":{}, \"fabric\": {\"command\": \"/f\", \"args\": []},}}".to_owned(),
            ),
            (
                "{\n  \"servers\": {\n    \"x\": {}\n\n    /* end */\n  }\n}",
                "{\n  \"servers\": {\n    \"x\": {},\n\n    /* end */\n    \"fabric\": {\n      \"command\": \
                 \"/f\",\n      \"args\": []\n    }\n  }\n}"
                    .to_owned(),
            ),
        ] {
            assert_eq!(added(before), after);
            assert_eq!(edited(&after, Some(&entry())), Ok(None), "{after}");
            let left = match before {
                // The object of servers stays.
                "{}" => "{\n  \"servers\": {}\n}",
                other => other,
            };
            assert_eq!(edited(&after, None), Ok(Some(left.to_owned())));
        }
    }

    #[test]
    fn objects_on_a_line_within_a_file_of_several_are_opened() {
        assert_eq!(
            added("{\n  \"servers\": {\"x\": {}}\n}"),
            "{\n  \"servers\": {\"x\": {},\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }\n  \
             }\n}"
        );
        assert_eq!(
            added("{\n  \"a\": 1\n}"),
            format!("{{\n  \"a\": 1,\n{}", FRESH.strip_prefix("{\n").unwrap())
        );
        // A comment where members would stand.
        assert_eq!(
            added("{ // none yet\n}"),
            format!("{{ // none yet\n{}", FRESH.strip_prefix("{\n").unwrap())
        );
    }

    #[test]
    fn another_entry_of_the_name_is_replaced_where_it_stands() {
        let text = "{\n  \"servers\": {\n    \"fabric\": {\"command\": \"old\"}, // mine\n    \"x\": {}\n  }\n}";
        let after = added(text);
        assert_eq!(
            after,
            "{\n  \"servers\": {\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }, // mine\n    \
             \"x\": {}\n  }\n}"
        );
        let document = Document::read(text, "servers").unwrap();
        assert_eq!(document.own, Some(json!({"command": "old"})));
        let line = "{\"servers\": {\"fabric\": null}}";
        let after = added(line);
        assert_eq!(
            after,
            "{\"servers\": {\"fabric\": {\"command\": \"/f\", \"args\": []}}}"
        );
    }

    #[test]
    fn the_same_entry_in_another_order_is_the_same() {
        let text = "{\"servers\": {\"fabric\": {\"args\": [/* none */], \"command\": \"\\/f\",}}}";
        assert_eq!(edited(text, Some(&entry())), Ok(None));
    }

    #[test]
    fn one_of_several_is_taken_out_wherever_it_stands() {
        for case in [
            r#"{"servers": {"fabric": 1, "x": 2}} => {"servers": { "x": 2}}"#,
            r#"{"servers": {"x": 2, "fabric": 1}} => {"servers": {"x": 2}}"#,
            r#"{"servers": {"x": 2, "fabric": 1,}} => {"servers": {"x": 2,}}"#,
            "{\"servers\": {\n  \"a\": 1,\n  \"fabric\": 1,\n  \"x\": 2\n}} => {\"servers\": {\n  \"a\": 1,\n  \"x\": 2\n}}",
            "{\"servers\": {\n  // kept\n  \"fabric\": 1\n}} => {\"servers\": {\n  // kept\n}}",
        ] {
            let (text, left) = case.split_once(" => ").expect("two parts");
            assert_eq!(edited(text, None), Ok(Some(left.to_owned())));
        }
        for without in [
            "",
            "{}",
            "{\"servers\": {}}",
            "{\"fabric\": 1}",
            "{\"x\": {\"fabric\": 1}}",
        ] {
            assert_eq!(edited(without, None), Ok(None));
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_read_over() {
        let text = "\u{feff}// top\r\n/* a \" */ { // b\n \"x\": [1, -2.5e3, /**/ true, null,], /*/ c */\n\t\"y\": \
                    {\"//\": \"/*\\\"\\\\\", \"z\": {},},\n}\n// é";
        let (bare, json) = strict(text).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap(),
            json!({"x": [1, -2500.0, true, null], "y": {"//": "/*\"\\", "z": {}}})
        );
        assert_eq!((json.len(), bare.len()), (text.len(), text.len()));
        assert_eq!(bare.matches(',').count() - json.matches(',').count(), 3);
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("// c{end}{{\"a\": 1}}");
            assert_eq!(strict(&text).unwrap().1.trim(), "{\"a\": 1}");
        }
    }

    /// It hangs if each key is compared with all others.
    #[test]
    fn many_members_take_no_longer_than_as_many_bytes() {
        let members: String = (0..100_000).map(|n| format!(",\"{n}\":0")).collect();
        let text = format!("{{\"servers\":{{\"x\":0{members}}}}}");
        assert!(added(&text).starts_with(&text[..text.len() - 2]));
    }

    #[test]
    fn what_cannot_be_edited_is_left_alone() {
        for case in [
            "[] => it does not hold an object",
            "5 => it does not hold an object",
            r#"{"servers": []} => its "servers" is not an object"#,
            r#"{"servers": null} => its "servers" is not an object"#,
            r#"{"servers":  => it is not JSON: EOF while parsing a value at line 1 column 12"#,
            "{\n\"a\": 1\n\"b\": 2} => it is not JSON: expected `,` or `}` at line 3 column 1",
            "{ /*\n*/ a: 1} => it is not JSON: key must be a string at line 2 column 4",
            r#"{"a": "b} => it is not JSON: EOF while parsing a string at line 1 column 9"#,
            r#"{"a": 1,,} => it is not JSON: trailing comma at line 1 column 10"#,
            "{} {} => it is not JSON: trailing characters at line 1 column 4",
            "{}\n/* x => line 2: a comment has no end",
            "/*/ => line 1: a comment has no end",
            r#"{"a": 1, "a": 2} => the name "a" is there twice"#,
            r#"{"servers": {"x": 1, "x": 2}} => the name "x" is there twice"#,
        ] {
            let (text, why) = case.split_once(" => ").expect("two parts");
            for entry in [Some(&entry()), None] {
                assert_eq!(edited(text, entry), Err(why.to_owned()), "{text}");
            }
        }
        assert_eq!(
            edited("{,}", Some(&entry())),
            Err("it cannot be edited without changing more than the entry".to_owned())
        );
    }
}
