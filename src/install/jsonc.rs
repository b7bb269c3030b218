//! Parses JSON with comments and trailing commas, with the position of every value.
//!
//! Nothing is serialised again: `edit` changes only the bytes that must change.

use serde_json::{Map, Value};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 100;

/// A value and its position.
#[derive(Debug)]
pub(super) struct JsonSpan {
    /// Its first byte.
    pub(super) start: usize,
    /// The byte after its last.
    pub(super) end: usize,
    pub(super) content: Content,
}

/// What a value holds.
#[derive(Debug)]
pub(super) enum Content {
    Object(Vec<Member>),
    Array(Vec<JsonSpan>),
    Scalar(Value),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: String,
    /// Position of the key's opening quote.
    pub(super) start: usize,
    pub(super) value: JsonSpan,
    /// Position of the comma after it.
    pub(super) comma: Option<usize>,
}

impl JsonSpan {
    /// Parses a whole text; `None` if it has only comments and white space.
    ///
    /// # Errors
    /// The mistake and its line.
    pub(super) fn read(text: &str) -> Result<Option<JsonSpan>, String> {
        let bom = if text.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8()
        } else {
            0
        };
        let mut reader = JsonReader { text, at: bom };
        reader.skip_blanks()?;
        if reader.at == text.len() {
            return Ok(None);
        }
        let value = reader.value(0)?;
        reader.skip_blanks()?;
        match reader.at == text.len() {
            true => Ok(Some(value)),
            false => Err(reader.error("there is something after the end")),
        }
    }

    /// The members of an object.
    pub(super) fn members(&self) -> Option<&[Member]> {
        match &self.content {
            Content::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The value without its comments.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::Array(items) => items.iter().map(JsonSpan::value).collect(),
            Content::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|member| (member.key.clone(), member.value.value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl JsonReader<'_> {
    fn error(&self, what: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        format!("line {}: {what}", before.matches('\n').count() + 1)
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), String> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("//") {
                self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let Some(end) = rest.find("*/").filter(|end| *end >= 2) else {
                    return match rest.get(3..).and_then(|after| after.find("*/")) {
                        Some(end) => {
                            self.at += end + 5;
                            continue;
                        }
                        None => Err(self.error("a comment has no end")),
                    };
                };
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<JsonSpan, String> {
        if depth > MAX_DEPTH {
            return Err(self.error("it is nested too deeply"));
        }
        let start = self.at;
        let content = match self.peek() {
            Some(b'{') => Content::Object(self.object(depth)?),
            Some(b'[') => Content::Array(self.array(depth)?),
            Some(b'"') => Content::Scalar(Value::String(self.string()?)),
            _ => Content::Scalar(self.word()?),
        };
        Ok(JsonSpan {
            start,
            end: self.at,
            content,
        })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, String> {
        let mut members: Vec<Member> = Vec::new();
        self.at += 1;
        loop {
            self.skip_blanks()?;
            if self.closes(b'}') {
                return Ok(members);
            }
            if members.last().is_some_and(|last| last.comma.is_none()) {
                return Err(self.error("a comma or } is missing"));
            }
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.error("a name in double quotes is missing"));
            }
            let key = self.string()?;
            if members.iter().any(|member| member.key == key) {
                return Err(self.error(&format!("the name {key:?} is there twice")));
            }
            self.skip_blanks()?;
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is missing"));
            }
            self.at += 1;
            self.skip_blanks()?;
            let value = self.value(depth + 1)?;
            let comma = self.comma()?;
            members.push(Member {
                key,
                start,
                value,
                comma,
            });
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<JsonSpan>, String> {
        let mut items = Vec::new();
        let mut may_follow = true;
        self.at += 1;
        loop {
            self.skip_blanks()?;
            if self.closes(b']') {
                return Ok(items);
            }
            if !may_follow {
                return Err(self.error("a comma or ] is missing"));
            }
            items.push(self.value(depth + 1)?);
            may_follow = self.comma()?.is_some();
        }
    }

    fn closes(&mut self, bracket: u8) -> bool {
        let found = self.peek() == Some(bracket);
        self.at += usize::from(found);
        found
    }

    /// The position of a comma that comes next.
    fn comma(&mut self) -> Result<Option<usize>, String> {
        let before = self.at;
        self.skip_blanks()?;
        if self.peek() == Some(b',') {
            self.at += 1;
            return Ok(Some(self.at - 1));
        }
        self.at = before;
        Ok(None)
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let mut escaped = false;
        for (i, byte) in rest.bytes().enumerate().skip(1) {
            match byte {
                b'"' if !escaped => {
                    let text = serde_json::from_str(rest.get(..=i).unwrap_or_default())
                        .map_err(|_| self.error("a string cannot be read"))?;
                    self.at += i + 1;
                    return Ok(text);
                }
                b'\n' => break,
                b'\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        Err(self.error("a string has no end"))
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Value, String> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
            .unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        let value = serde_json::from_str(word)
            .map_err(|_| self.error("a value is missing or cannot be read"))?;
        self.at += end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        JsonSpan::read(text).unwrap().unwrap().value()
    }

    #[test]
    fn comments_and_trailing_commas_are_read_over() {
        let text = "\u{feff}// top\r\n/* a \" */ { // b\n \"x\": [1, -2.5e3, /**/ true, null,], /*/ c */\n\t\"y\": \
                    {\"//\": \"/*\\\"\\\\\", \"z\": {},},\n}\n// end";
        assert_eq!(
            value(text),
            json!({"x": [1, -2500.0, true, null], "y": {"//": "/*\"\\", "z": {}}})
        );
    }

    #[test]
    fn a_comment_ends_with_its_line_however_that_ends() {
        for end in ["\n", "\r\n", "\r"] {
            assert_eq!(value(&format!("// c{end}{{\"a\": 1}}")), json!({"a": 1}));
        }
    }

    #[test]
    fn nothing_is_nothing() {
        for text in ["", " \n", "\u{feff}", "// only a comment", "/* too */\n"] {
            assert!(JsonSpan::read(text).unwrap().is_none(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let deep = "[".repeat(200);
        for (text, message) in [
            ("{\n\"a\": 1\n\"b\": 2}", "line 3: a comma or } is missing"),
            ("{\n\"a\" 1}", "line 2: a colon is missing"),
            ("{a: 1}", "line 1: a name in double quotes is missing"),
            ("{'a': 1}", "line 1: a name in double quotes is missing"),
            ("{\"a\": }", "line 1: a value is missing or cannot be read"),
            (
                "{\"a\": nul}",
                "line 1: a value is missing or cannot be read",
            ),
            ("{\"a\": \"b}", "line 1: a string has no end"),
            ("{\"a\": \"b\nc\"}", "line 1: a string has no end"),
            ("{\"a\": \"\\x\"}", "line 1: a string cannot be read"),
            ("{\"a\": [1 2]}", "line 1: a comma or ] is missing"),
            ("{,}", "line 1: a name in double quotes is missing"),
            ("{\"a\": 1,,}", "line 1: a name in double quotes is missing"),
            ("{} {}", "line 1: there is something after the end"),
            ("{", "line 1: a name in double quotes is missing"),
            ("{} /* x", "line 1: a comment has no end"),
            ("/*/", "line 1: a comment has no end"),
            (
                "{\"a\": 1, \"a\": 2}",
                "line 1: the name \"a\" is there twice",
            ),
            (deep.as_str(), "line 1: it is nested too deeply"),
        ] {
            assert_eq!(JsonSpan::read(text).unwrap_err(), message, "{text}");
        }
    }
}
