//! Adds a server to a JSON text, or takes it out, without changing any other byte: comments, trailing commas and layout
//! stay as they are.

use std::collections::HashMap;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value, json};

use super::layout::{self, member};

/// White space of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A text with an object of servers.
pub(super) struct Document<'a> {
    /// The whole text in pairs: a gap, which is white space and comments, and the token after it. A string is one token,
    /// and so is each other character. The token after the last gap is empty.
    parts: Vec<[&'a str; 2]>,
    /// The key of the object of servers.
    key: &'static str,
    /// The name of our server there.
    name: &'a str,
    root: Object,
    servers: Option<Object>,
    /// The value of the root without our server, to be compared.
    pub(super) rest: Value,
    /// The value of our server.
    pub(super) own: Option<Value>,
}

/// An object, as numbers of parts.
struct Object {
    open: usize,
    close: usize,
    /// Each from its key to the comma or bracket after it.
    members: HashMap<String, Range<usize>>,
}

impl<'a> Document<'a> {
    /// Reads a text whose servers are under `key`; ours is called `name`.
    ///
    /// # Errors
    /// Why the text cannot be edited.
    pub(super) fn read(
        text: &'a str,
        key: &'static str,
        name: &'a str,
    ) -> Result<Document<'a>, String> {
        let mut parts = parts(text)?;
        let is_empty = parts.len() == 1;
        if is_empty {
            let is_line = text.is_empty() || text.ends_with(['\n', '\u{feff}']);
            let end = if is_line { "" } else { "\n" };
            parts = vec![[text, end], ["", "{"], ["", "}"], ["\n", ""]];
        }
        let mut rest: Value = serde_json::from_str(&strict(&parts))
            .map_err(|error| format!("it is not JSON: {error}"))?;
        let root = object(&parts, usize::from(is_empty), "it does not hold an object")?;
        let servers = root.members.get(key).map(|servers| {
            let otherwise = format!("its \"{key}\" is not an object");
            object(&parts, servers.start + 2, &otherwise)
        });
        let servers = servers.transpose()?;
        if servers.is_none() {
            // A missing object of servers counts as an empty one.
            rest[key] = json!({});
        }
        let members = rest[key].as_object_mut();
        let own = members.and_then(|servers| servers.remove(name));
        Ok(Document {
            parts,
            key,
            name,
            root,
            servers,
            rest,
            own,
        })
    }

    /// Reads another text as this one was read.
    ///
    /// # Errors
    /// Those of [`Document::read`].
    pub(super) fn like<'b>(&'b self, text: &'b str) -> Result<Document<'b>, String> {
        Document::read(text, self.key, self.name)
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
        let own = servers.and_then(|servers| servers.members.get(self.name));
        let text = match entry {
            Some(entry) => self.put(entry, own),
            None => own.map(|own| self.take(own)).unwrap_or_default(),
        };
        match self.like(&text) {
            Ok(new) if new.rest == self.rest && new.own.as_ref() == entry => Ok(Some(text)),
            _ => Err("it cannot be edited without changing more than the entry".to_owned()),
        }
    }

    fn put(&self, entry: &Value, own: Option<&Range<usize>>) -> String {
        let within = &self.parts[self.root.open + 1..=self.root.close];
        let is_empty = self.root.members.is_empty();
        // The indentation of the first member; `None` for a text on one line.
        let unit = line_start(within[0]).map(|start| start.trim_start_matches(['\r', '\n']));
        let unit = unit.filter(|unit| !is_empty && !unit.is_empty());
        let has_lines = is_empty || within.iter().any(|[gap, _]| gap.contains('\n'));
        let unit = has_lines.then_some(unit.unwrap_or("  "));
        match (&self.servers, own) {
            (None, _) => self.insert(&self.root, self.key, &json!({self.name: entry}), unit),
            (Some(servers), None) => self.insert(servers, self.name, entry, unit),
            (_, Some(own)) => {
                let [gap, _] = self.parts[own.start + 2];
                let value = layout::text(entry, unit, self.indent(own.start));
                self.spliced(own.start + 2..own.end, &[gap, &value])
            }
        }
    }

    /// Adds a member at the end of an object.
    fn insert(&self, object: &Object, name: &str, value: &Value, unit: Option<&str>) -> String {
        let (parts, outer) = (&self.parts, self.indent(object.open));
        let is_empty = object.members.is_empty();
        let inner = match (line_start(parts[object.open + 1]), unit) {
            (Some(start), _) if !is_empty => start.to_owned(),
            (_, Some(unit)) => format!("{outer}{unit}"),
            (_, None) if is_empty => String::new(),
            (_, None) => " ".to_owned(),
        };
        let (comma, trailing) = match parts[object.close - 1] {
            [_, ","] => ("", ","),
            _ if is_empty => ("", ""),
            _ => (",", ""),
        };
        let [gap, bracket] = parts[object.close];
        let comments = gap.trim_end_matches(BLANKS);
        // A bracket on its own line stays there.
        let end = match unit {
            Some(_) if line_start([gap, bracket]).is_none() => outer,
            _ => &gap[comments.len()..],
        };
        let new = member(name, &layout::text(value, unit, &inner));
        let new = [comma, comments, &inner, &new, trailing, end, bracket];
        self.spliced(object.close..object.close + 1, &new)
    }

    /// Removes our server with its line and the comma that would be left over.
    fn take(&self, own: &Range<usize>) -> String {
        let ([before, previous], [gap, _]) = (self.parts[own.start - 1], self.parts[own.start]);
        let has_comma = self.parts[own.end][1] == ",";
        let end = own.end + usize::from(has_comma);
        let [after, next] = self.parts[end];
        let gap = match line_start([gap, ""]) {
            Some(line) if after.contains('\n') => &gap[..gap.len() - line.len()],
            // A comment above it must not take in what follows on its line.
            Some(_) => gap,
            None => gap.trim_end_matches([' ', '\t']),
        };
        let is_blank = |gap: &str| gap.trim_matches(BLANKS).is_empty();
        match [previous, next] {
            // Empty again, as before anything was added.
            ["{", "}"] if is_blank(gap) && is_blank(after) => {
                self.spliced(own.start - 1..end + 1, &[before, "{}"])
            }
            [",", _] if !has_comma => self.spliced(own.start - 1..end, &[before, gap]),
            _ => self.spliced(own.start..end, &[gap]),
        }
    }

    /// The text with something else in the place of some parts.
    fn spliced(&self, place: Range<usize>, new: &[&str]) -> String {
        let [before, after] = [&self.parts[..place.start], &self.parts[place.end..]];
        let all = [before.as_flattened(), new, after.as_flattened()];
        all.concat().concat()
    }

    /// The beginning of the line of a part: a line break and the indentation.
    fn indent(&self, at: usize) -> &'a str {
        let lines = self.parts[..=at].iter().rev();
        let has_cr = self.parts.iter().any(|[gap, _]| gap.contains("\r\n"));
        let first = if has_cr { "\r\n" } else { "\n" };
        lines.copied().find_map(line_start).unwrap_or(first)
    }
}

/// The line break and indentation before a token, if nothing else precedes it in its line.
fn line_start([gap, _]: [&str; 2]) -> Option<&str> {
    let line = gap.trim_end_matches([' ', '\t']).strip_suffix('\n')?;
    Some(&gap[line.strip_suffix('\r').unwrap_or(line).len()..])
}

/// The object that begins with this part of valid JSON; if that is another value, this error.
fn object(parts: &[[&str; 2]], open: usize, otherwise: &str) -> Result<Object, String> {
    if parts[open][1] != "{" {
        return Err(otherwise.to_owned());
    }
    let (mut members, mut depth) = (HashMap::new(), 0);
    let mut start = open + 1;
    for (close, [_, token]) in parts.iter().enumerate().skip(open) {
        match *token {
            "{" | "[" => depth += 1,
            "}" | "]" => depth -= 1,
            _ => {}
        }
        // Nothing follows a trailing comma.
        if start < close && (depth == 0 || depth == 1 && *token == ",") {
            let key: String = serde_json::from_str(parts[start][1]).unwrap_or_default();
            if members.insert(key.clone(), start..close).is_some() {
                return Err(format!("the name {key:?} appears twice"));
            }
            start = close + 1;
        }
        if depth == 0 {
            return Ok(Object {
                open,
                close,
                members,
            });
        }
    }
    Err(otherwise.to_owned())
}

/// Splits a text: see [`Document`].
fn parts(text: &str) -> Result<Vec<[&str; 2]>, String> {
    let (mut parts, mut gap, mut at) = (Vec::new(), 0, 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (length, is_token) = match first {
            '"' => {
                let mut strings = Deserializer::from_str(rest).into_iter::<IgnoredAny>();
                // A string without an end is no JSON, as is seen later.
                let whole = strings.next().filter(Result::is_ok);
                (whole.map_or(rest.len(), |_| strings.byte_offset()), true)
            }
            '/' if rest.starts_with("//") => (rest.find(['\n', '\r']).unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").ok_or_else(|| {
                    let line = text[..at].matches('\n').count() + 1;
                    format!("line {line}: a comment has no end")
                })?;
                (end + 4, false)
            }
            '\u{feff}' if at == 0 => (first.len_utf8(), false),
            _ => (first.len_utf8(), !BLANKS.contains(&first)),
        };
        if is_token {
            parts.push([&text[gap..at], &rest[..length]]);
            gap = at + length;
        }
        at += length;
    }
    parts.push([&text[gap..], ""]);
    Ok(parts)
}

/// The text with gaps and trailing commas as spaces.
fn strict(parts: &[[&str; 2]]) -> String {
    let mut json = String::new();
    for (at, [gap, token]) in parts.iter().enumerate() {
        // Line ends stay, since errors name lines.
        json.extend(gap.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
        match (token, parts.get(at + 1)) {
            (&",", Some([_, "}" | "]"])) => json.push(' '),
            _ => json.push_str(token),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Value {
        json!({"command": "/f", "args": []})
    }

    /// The text after the entry is put in, or taken out.
    fn edited(text: &str, entry: Option<&Value>) -> Result<Option<String>, String> {
        Document::read(text, "servers", "fabric")?.with(entry)
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
                "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t// first\n\t\t\"x\": {}, // \
                 last\n\t\t\"fabric\": {\n\t\t\t\"command\": \"/f\",\n\t\t\t\"args\": \
                 []\n\t\t}\n\t}\n}\n"
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
        let expected = "{\n  \"servers\": {\"x\": {},\n    \"fabric\": {\n      \"command\": \
            \"/f\",\n      \"args\": []\n    }\n  }\n}";
        assert_eq!(added("{\n  \"servers\": {\"x\": {}}\n}"), expected);
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
            "{\n  \"servers\": {\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": \
             []\n    }, // mine\n    \"x\": {}\n  }\n}"
        );
        let document = Document::read(text, "servers", "fabric").unwrap();
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
            "{\"servers\": {\n  // kept\n  \"fabric\": 1}} => {\"servers\": {\n  // kept\n  }}",
        ] {
            let (text, left) = case.split_once(" => ").expect("two parts");
            assert_eq!(edited(text, None), Ok(Some(left.to_owned())));
        }
        for without in "|{}|{\"servers\": {}}|{\"fabric\": 1}|{\"x\": {\"fabric\": 1}}".split('|') {
            assert_eq!(edited(without, None), Ok(None));
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_read_over() {
        let text = "\u{feff}// top\r\n/* a \" */ { // b\n \"x\": [1, -2.5e3, /**/ true, null,], \
            /*/ c */\n\t\"y\": {\"//\": \"/*\\\"\\\\\", \"z\": {},},\n}\n// é";
        let json = strict(&parts(text).unwrap());
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap(),
            json!({"x": [1, -2500.0, true, null], "y": {"//": "/*\"\\", "z": {}}})
        );
        assert_eq!(json.len(), text.len());
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("// c{end}{{\"a\": 1}}");
            assert_eq!(strict(&parts(&text).unwrap()).trim(), "{\"a\": 1}");
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
            r#"{"a": 1, "a": 2} => the name "a" appears twice"#,
            r#"{"servers": {"x": 1, "x": 2}} => the name "x" appears twice"#,
        ] {
            let (text, why) = case.split_once(" => ").expect("two parts");
            for entry in [Some(&entry()), None] {
                assert_eq!(edited(text, entry), Err(why.to_owned()), "{text}");
            }
        }
        let wanted = Err("it cannot be edited without changing more than the entry".to_owned());
        assert_eq!(edited("{,}", Some(&entry())), wanted);
    }
}
