//! Adds a server to a JSON text, or takes it out, without changing any other byte: comments, trailing commas and layout
//! stay as they are.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::NAME;
use super::json::{self, member};

/// White space of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A text with an object of servers.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    /// The text with comments and a byte order mark as spaces.
    bare: String,
    /// `bare` with its trailing commas as spaces too: strict JSON.
    json: String,
    /// The key of the object of servers.
    key: &'static str,
    /// `None` if there are only comments.
    root: Option<Object>,
    servers: Option<Object>,
    /// The value of the root without our server, to be compared.
    rest: Value,
    /// The value of our server.
    pub(super) own: Option<Value>,
}

/// An object's positions: of its first byte, and the byte after its last.
#[derive(Debug)]
struct Object {
    start: usize,
    end: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: String,
    /// Position of the key's opening quote.
    start: usize,
    /// First byte of the value, and the byte after its last.
    value: (usize, usize),
    /// Position of the comma after it.
    comma: Option<usize>,
}

impl Object {
    fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.key == key)
    }
}

impl<'a> Document<'a> {
    /// Reads a text whose servers are under `key`.
    ///
    /// # Errors
    /// Why the text cannot be edited.
    pub(super) fn read(text: &'a str, key: &'static str) -> Result<Document<'a>, String> {
        let (bare, json) = strict(text)?;
        let mut document = Document {
            text,
            bare,
            json,
            key,
            root: None,
            servers: None,
            rest: json!({}),
            own: None,
        };
        let start = document.skip(0);
        if start < text.len() {
            document.rest = serde_json::from_str(&document.json)
                .map_err(|error| format!("it is not JSON: {error}"))?;
            let root = document.object(start, "it does not hold an object")?;
            let servers = root.member(key).map(|servers| {
                document.object(servers.value.0, &format!("its \"{key}\" is not an object"))
            });
            (document.servers, document.root) = (servers.transpose()?, Some(root));
        }
        // An absent object of servers equals an empty one.
        if let Value::Object(root) = &mut document.rest
            && let Value::Object(servers) = root.entry(key).or_insert_with(|| json!({}))
        {
            document.own = servers.remove(NAME);
        }
        Ok(document)
    }

    /// The text with this as our server, or without it. `None` if it is so already.
    ///
    /// # Errors
    /// That an edit would change more than the entry.
    pub(super) fn with(&self, entry: Option<&Value>) -> Result<Option<String>, String> {
        if self.own.as_ref() == entry {
            return Ok(None);
        }
        let text = match entry {
            Some(entry) => self.put(entry),
            None => self.take(),
        };
        match Document::read(&text, self.key) {
            Ok(new) if new.rest == self.rest && new.own.as_ref() == entry => Ok(Some(text)),
            _ => Err("it cannot be edited without changing more than the entry".to_owned()),
        }
    }

    fn put(&self, entry: &Value) -> String {
        let text = self.text;
        let servers = json!({NAME: entry});
        let Some(root) = &self.root else {
            let between = match text.is_empty() || text.ends_with(['\n', '\u{feff}']) {
                true => "",
                false => "\n",
            };
            let file = json::text(&json!({self.key: servers}), Some("  "), "");
            return format!("{text}{between}{file}\n");
        };
        // As the first member is indented; `None` is for a text on one line.
        let unit = match root.members.first() {
            Some(_) if !slice(text, root.start, root.end).contains('\n') => None,
            first => first
                .and_then(|first| own_indent(text, first.start))
                .filter(|own| !own.is_empty())
                .or(Some("  ")),
        };
        let Some(servers) = &self.servers else {
            return self.insert(root, self.key, &servers, unit);
        };
        match servers.member(NAME) {
            None => self.insert(servers, NAME, entry, unit),
            Some(own) => {
                let value = self.lines(&json::text(entry, unit, indent(text, own.start)));
                spliced(text, own.value, &value)
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
        let (text, close, outer) = (self.text, object.end - 1, indent(self.text, object.start));
        let end = slice(text, 0, close).trim_end_matches(BLANKS).len();
        let first = object.members.first();
        let inner = match first.and_then(|first| own_indent(text, first.start)) {
            Some(indent) => indent.to_owned(),
            None => format!("{outer}{}", unit.unwrap_or_default()),
        };
        let last = object.members.last();
        let before = match unit {
            Some(_) => format!("\n{inner}"),
            None => last.map(|_| " ".to_owned()).unwrap_or_default(),
        };
        // A bracket on its own line stays there.
        let closing = match unit {
            Some(_) if own_indent(text, close).is_none() => self.lines(&format!("\n{outer}")),
            _ => slice(text, end, close).to_owned(),
        };
        let new = self.lines(&format!(
            "{before}{}",
            member(name, &json::text(value, unit, &inner))
        ));
        match last {
            Some(Member {
                comma: None, value, ..
            }) => {
                let text = spliced(text, (end, close), &format!("{new}{closing}"));
                spliced(&text, (value.1, value.1), ",")
            }
            Some(_) => spliced(text, (end, close), &format!("{new},{closing}")),
            None => spliced(text, (end, close), &format!("{new}{closing}")),
        }
    }

    /// Removes our server with its line and the comma that would be left over.
    fn take(&self) -> String {
        let members = self.servers.as_ref().map(|servers| &servers.members[..]);
        let members = members.unwrap_or_default();
        let Some(at) = members.iter().position(|member| member.key == NAME) else {
            return self.text.to_owned();
        };
        let own = &members[at];
        let before = slice(self.text, 0, own.start).trim_end_matches([' ', '\t']);
        let line = before.strip_suffix('\n');
        let start = line
            .map_or(before, |line| line.strip_suffix('\r').unwrap_or(line))
            .len();
        let end = own.comma.map_or(own.value.1, |comma| comma + 1);
        let text = spliced(self.text, (start, end), "");
        let previous = members[..at].last().and_then(|previous| previous.comma);
        match previous {
            Some(comma) if own.comma.is_none() => spliced(&text, (comma, comma + 1), ""),
            // Empty again, as before anything was added.
            None if members.len() == 1 => {
                let open = slice(&text, 0, start).trim_end_matches(BLANKS);
                let close = slice(&text, start, text.len()).trim_start_matches(BLANKS);
                match open.ends_with('{') && close.starts_with('}') {
                    true => format!("{open}{close}"),
                    false => text,
                }
            }
            _ => text,
        }
    }

    /// The object that begins at `start`; if that is another value, this error.
    fn object(&self, start: usize, otherwise: &str) -> Result<Object, String> {
        let (mut members, mut keys) = (Vec::new(), HashSet::new());
        if !slice(&self.json, start, self.json.len()).starts_with('{') {
            return Err(otherwise.to_owned());
        }
        let mut at = self.skip(start + 1);
        while let Some((key, end)) = self.value::<String>(at) {
            if !keys.insert(key.clone()) {
                return Err(format!("the name {key:?} is there twice"));
            }
            let first = self.skip(self.skip(end) + 1);
            let (_, end) = self
                .value::<IgnoredAny>(first)
                .unwrap_or((IgnoredAny, first));
            let after = slice(&self.bare, end, self.bare.len());
            let comma = after.trim_start_matches(BLANKS).starts_with(',');
            let comma = comma.then(|| self.bare.len() - after.trim_start_matches(BLANKS).len());
            members.push(Member {
                key,
                start: at,
                value: (first, end),
                comma,
            });
            at = self.skip(comma.map_or(end, |comma| comma + 1));
        }
        let end = at + 1;
        Ok(Object {
            start,
            end,
            members,
        })
    }

    /// The position of the next byte that is not white space.
    fn skip(&self, at: usize) -> usize {
        let rest = slice(&self.json, at, self.json.len());
        at + rest.len() - rest.trim_start_matches(BLANKS).len()
    }

    /// The value at a position, and the byte after it.
    fn value<T: for<'de> Deserialize<'de>>(&self, at: usize) -> Option<(T, usize)> {
        let rest = slice(&self.json, at, self.json.len());
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        let value = values.next()?.ok()?;
        Some((value, at + values.byte_offset()))
    }
}

/// The text with comments and a byte order mark as spaces, and the same with trailing commas as spaces too. Positions stay
/// the same.
fn strict(text: &str) -> Result<(String, String), String> {
    let mut bare = String::with_capacity(text.len());
    let (mut trailing, mut comma) = (Vec::new(), None);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let at = bare.len();
        let (length, is_blank) = match first {
            '"' => (string(rest), false),
            '/' if rest.starts_with("//") => (rest.find(['\n', '\r']).unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest.get(2..).and_then(|inside| inside.find("*/")) else {
                    let line = slice(text, 0, at).matches('\n').count() + 1;
                    return Err(format!("line {line}: a comment has no end"));
                };
                (end + 4, true)
            }
            '\u{feff}' if at == 0 => (first.len_utf8(), true),
            _ => (first.len_utf8(), false),
        };
        let (part, after) = rest.split_at(length);
        match is_blank {
            // Line ends stay, since errors name lines.
            true => bare.extend(part.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' })),
            false => bare.push_str(part),
        }
        match first {
            ',' => comma = Some(at),
            '}' | ']' => trailing.extend(comma.take()),
            _ if is_blank || BLANKS.contains(&first) => {}
            _ => comma = None,
        }
        rest = after;
    }
    let mut json = bare.clone();
    for at in trailing {
        json.replace_range(at..=at, " ");
    }
    Ok((bare, json))
}

/// The length of the string that a text begins with; all of it if the string has no end.
fn string(text: &str) -> usize {
    let mut escaped = true;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 1)
}

fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

fn spliced(text: &str, (start, end): (usize, usize), new: &str) -> String {
    let (before, after) = (slice(text, 0, start), slice(text, end, text.len()));
    format!("{before}{new}{after}")
}

/// The indentation of the line of `at`.
fn indent(text: &str, at: usize) -> &str {
    let before = slice(text, 0, at);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let line = line.trim_start_matches('\u{feff}');
    let indent = line.split(|c| c != ' ' && c != '\t').next();
    indent.unwrap_or_default()
}

/// The indentation of the line of `at`, if nothing else precedes it there.
fn own_indent(text: &str, at: usize) -> Option<&str> {
    let (_, line) = slice(text, 0, at).rsplit_once('\n')?;
    line.trim_start_matches([' ', '\t'])
        .is_empty()
        .then_some(line)
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
