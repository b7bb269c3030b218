//! JSON-RPC 2.0: parsing and writing messages.
//!
//! In scope: messages, ids, error codes, batches. Not in scope: methods, revisions, anything specific to MCP. Params
//! stay raw JSON until their method parses them.

mod id;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::config::MAX_BATCH;

pub(crate) use id::Id;

/// Not JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;
/// JSON, but not a request.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// No such method.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
/// The method exists, but its params are wrong.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// The request is valid, but answering it failed.
pub(crate) const INTERNAL_ERROR: i32 = -32603;

/// One message.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// Needs an answer.
    Request {
        /// Echoed in the answer.
        id: Id,
        /// The method's name.
        method: Cow<'a, str>,
        /// The raw params, if any.
        params: Option<&'a RawValue>,
    },
    /// Gets no answer.
    Notification {
        /// The method's name.
        method: Cow<'a, str>,
        /// The raw params, if any.
        params: Option<&'a RawValue>,
    },
    /// A response. This server sends no requests, so it is ignored.
    Response,
}

/// Why a message is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// The id, if it could be read.
    pub(crate) id: Option<Id>,
    /// [`PARSE_ERROR`] or [`INVALID_REQUEST`].
    pub(crate) code: i32,
    /// What is wrong and what is expected.
    pub(crate) reason: &'static str,
}

/// The content of one line or body.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, in order; never empty.
    Batch(Vec<Result<Message<'a>, Invalid>>),
}

/// JSON's white space; Unicode has more.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Whether a line contains only white space or a byte order mark.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    line.iter()
        .all(|byte| WHITE_SPACE.contains(&char::from(*byte)))
}

/// Parses one line or body. A byte order mark and white space around the JSON are ignored.
///
/// # Errors
/// [`PARSE_ERROR`] for invalid UTF-8 or JSON; [`INVALID_REQUEST`] for JSON that is not a message, an empty array, or an
/// array of more than [`MAX_BATCH`] messages.
pub(crate) fn read(bytes: &[u8]) -> Result<Incoming<'_>, Invalid> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Invalid {
            id: None,
            code: PARSE_ERROR,
            reason: "The message is not UTF-8.",
        });
    };
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .trim_matches(WHITE_SPACE);
    if !text.starts_with('[') {
        return message(text).map(Incoming::One);
    }
    let Items(items) = serde_json::from_str(text).map_err(|e| unreadable(text, &e))?;
    match items.len() {
        0 => Err(invalid("An empty batch is not a request.")),
        n if n > MAX_BATCH => Err(invalid(
            "The batch holds too many messages: send at most 1000 at once.",
        )),
        _ => Ok(Incoming::Batch(
            items.into_iter().map(|item| message(item.get())).collect(),
        )),
    }
}

/// The raw members of a JSON object with these names, in this order; `null` counts as a member.
///
/// # Errors
/// Anything but an object, or a duplicate of one of these members.
pub(crate) fn members<'a, const N: usize>(
    json: &'a str,
    names: [&str; N],
) -> serde_json::Result<[Option<&'a RawValue>; N]> {
    members_among(json, names).map(|(found, _)| found)
}

/// The same, with the number of other members.
pub(crate) fn members_among<'a, const N: usize>(
    json: &'a str,
    names: [&str; N],
) -> serde_json::Result<([Option<&'a RawValue>; N], usize)> {
    let mut found = [None; N];
    if json == "{}" {
        return Ok((found, 0));
    }
    let mut reader = serde_json::Deserializer::from_str(json);
    let others = reader.deserialize_map(Members {
        names: &names,
        found: &mut found,
    })?;
    reader.end()?;
    Ok((found, others))
}

struct Members<'m, 'a> {
    names: &'m [&'m str],
    found: &'m mut [Option<&'a RawValue>],
}

impl<'a> Visitor<'a> for Members<'_, 'a> {
    /// The number of other members.
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<usize, M::Error> {
        let mut others = 0;
        while let Some(JsonString(name)) = map.next_key()? {
            match self.names.iter().position(|known| *known == name) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                    others += 1;
                }
                Some(at) if self.found[at].is_some() => {
                    return Err(M::Error::custom("a member is there twice"));
                }
                Some(at) => self.found[at] = Some(map.next_value()?),
            }
        }
        Ok(others)
    }
}

/// A raw value as a string, borrowed if it has no escapes; `None` for anything but a string.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let json = raw.get();
    match json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        // Without escapes, the JSON text is the string.
        Some(text) if !text.contains('\\') => Some(Cow::Borrowed(text)),
        _ => serde_json::from_str(json).ok().map(|JsonString(text)| text),
    }
}

/// The elements of an array, at most [`MAX_BATCH`] + 1; further ones are skipped.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<'de>, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() <= MAX_BATCH {
                        items.push(item);
                    }
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

fn message(json: &str) -> Result<Message<'_>, Invalid> {
    if !json.starts_with('{') {
        return match serde_json::from_str::<&RawValue>(json) {
            Ok(_) => Err(invalid("A message is a JSON object.")),
            Err(e) => Err(unreadable(json, &e)),
        };
    }
    // Raw, so that an error about a wrong type can include the id.
    let names = ["jsonrpc", "id", "method", "params", "result", "error"];
    let [version, id, method, params, result, error] =
        members(json, names).map_err(|e| unreadable(json, &e))?;
    let id = id.map(|raw| Id::from_raw(raw).ok_or(()));
    let known = match &id {
        Some(Ok(id)) => Some(id.clone()),
        _ => None,
    };
    let refuse = |reason| {
        Err(Invalid {
            id: known.clone(),
            code: INVALID_REQUEST,
            reason,
        })
    };
    if version.and_then(text).as_deref() != Some("2.0") {
        return refuse("\"jsonrpc\" must be \"2.0\".");
    }
    let Some(method) = method else {
        let is_response = result.or(error).is_some();
        return if is_response {
            Ok(Message::Response)
        } else {
            refuse("\"method\" is missing.")
        };
    };
    let Some(method) = text(method) else {
        return refuse("\"method\" must be a string.");
    };
    match id {
        None => Ok(Message::Notification { method, params }),
        Some(Ok(id)) => Ok(Message::Request { id, method, params }),
        Some(Err(())) => refuse("\"id\" must be a string or an integer, of at most 1024 bytes."),
    }
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
struct JsonString<'a>(#[serde(borrow)] Cow<'a, str>);

fn invalid(reason: &'static str) -> Invalid {
    Invalid {
        id: None,
        code: INVALID_REQUEST,
        reason,
    }
}

/// Distinguishes invalid JSON from a duplicate field, in which case the id is kept unless it is the duplicate.
fn unreadable(text: &str, error: &serde_json::Error) -> Invalid {
    if !error.is_data() || serde_json::from_str::<&RawValue>(text).is_err() {
        return Invalid {
            id: None,
            code: PARSE_ERROR,
            reason: "The message is not JSON.",
        };
    }
    let id = members(text, ["id"])
        .ok()
        .and_then(|[id]| Id::from_raw(id?));
    Invalid {
        id,
        code: INVALID_REQUEST,
        reason: "The message has the same field twice.",
    }
}

/// Ends an answer of [`begin_result`].
pub(crate) const END: &[u8] = b"}";

/// Starts an answer; the caller appends the result value, then [`END`].
pub(crate) fn begin_result(id: &Id) -> Vec<u8> {
    begin(&[r#"{"jsonrpc":"2.0","id":"#, id.json(), r#","result":"#])
}

/// Starts a message with capacity for most of them, to avoid copying on growth.
fn begin(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    parts
        .iter()
        .for_each(|part| out.extend_from_slice(part.as_bytes()));
    out
}

/// The answers of a batch as one array, in parts to avoid a large copy.
pub(crate) fn array<'a, A: IntoIterator<Item = &'a [u8]>>(
    answers: impl Iterator<Item = A>,
) -> Vec<&'a [u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for answer in answers {
        parts.push(if parts.is_empty() { b"[" } else { b"," });
        parts.extend(answer);
    }
    parts.push(b"]");
    parts
}

/// How an unreadable id is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoId {
    /// No `id` member: newer revisions of MCP.
    Absent,
    /// `"id": null`: JSON-RPC 2.0.
    Null,
}

/// Writes an error answer. `data` is any JSON value.
pub(crate) fn error(
    id: Option<&Id>,
    no_id: NoId,
    code: i32,
    message: &str,
    data: &impl Serialize,
) -> Vec<u8> {
    let id = match (id, no_id) {
        (Some(id), _) => format!(r#""id":{},"#, id.json()),
        (None, NoId::Null) => r#""id":null,"#.to_owned(),
        (None, NoId::Absent) => String::new(),
    };
    let mut out =
        format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":"#).into_bytes();
    write_json(&mut out, message);
    out.extend_from_slice(b",\"data\":");
    write_json(&mut out, data);
    out.extend_from_slice(b"}}");
    out
}

/// Writes a notification; `method` must not need escaping.
pub(crate) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut out = begin(&[r#"{"jsonrpc":"2.0","method":""#, method, r#"","params":"#]);
    write_json(&mut out, params);
    out.push(b'}');
    out
}

/// Appends `value` as JSON.
pub(crate) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("memory takes any text, and our types have string keys only");
}

/// Whether valid `json` has at most `most` commas outside strings: a decoded value takes up to twenty times the memory
/// of its text.
pub(crate) fn has_at_most(json: &str, most: usize) -> bool {
    let mut bytes = json.bytes();
    let mut commas = 0;
    while commas <= most {
        match bytes.next() {
            None => return true,
            Some(b',') => commas += 1,
            Some(b'"') => {
                while let Some(byte) = bytes.find(|byte| matches!(byte, b'"' | b'\\'))
                    && byte != b'"'
                {
                    bytes.next();
                }
            }
            Some(_) => {}
        }
    }
    false
}

/// The length of `text` as a JSON string, in bytes.
pub(crate) fn string_len(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(escaped).sum::<usize>() + 2
}

/// Appends `json`, written by [`write_json`], as a JSON string. Only quotes and backslashes need escaping, which saves
/// an eighth of the instructions of a call that lists patterns.
pub(crate) fn write_json_as_string(out: &mut Vec<u8>, json: &[u8]) {
    debug_assert!(
        json.iter().all(|byte| *byte >= b' '),
        "written on more than one line"
    );
    out.reserve(json.len() + json.len() / 4 + 2);
    out.push(b'"');
    for &byte in json {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (json, commas) in [
            ("[]", 0),
            ("[1,2]", 1),
            (r#"{"a,\",":",,","b":[1,{}]}"#, 2),
            (r#"["\\",",","\\\"",1]"#, 3),
            ("\",", 0),
        ] {
            assert!(has_at_most(json, commas), "{json}");
            assert!(commas == 0 || !has_at_most(json, commas - 1), "{json}");
        }
    }

    #[test]
    fn the_length_of_a_string_is_known_before_it_is_written() {
        let all: String = (0..=0x2100).filter_map(char::from_u32).collect();
        for text in ["", "a\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}ä🦀", &all] {
            assert_eq!(string_len(text), serde_json::to_string(text).unwrap().len());
        }
    }

    #[test]
    fn json_becomes_a_string_like_any_other_text() {
        let value = serde_json::json!({ "a\"\\": ["\u{0}\n\u{7f}", "ä\u{2028}🦀", 1.5, null, true, ""], "": {} });
        let (mut json, mut quoted) = (Vec::new(), Vec::new());
        write_json(&mut json, &value);
        write_json_as_string(&mut quoted, &json);
        let text = String::from_utf8(json).unwrap();
        assert_eq!(
            String::from_utf8(quoted).unwrap(),
            serde_json::to_string(&text).unwrap()
        );
    }

    #[test]
    fn members_are_found_in_any_order_and_once() {
        let raw = |json, names| {
            members::<3>(json, names)
                .map(|found| found.map(|raw| raw.map(RawValue::get)))
                .ok()
        };
        let names = ["a", "b", "c"];
        let json = r#" {"b": [1, {"a": 2}], "x": {"c": 3}, "x": 1, "\u0061": null} "#;
        assert_eq!(
            raw(json, names),
            Some([Some("null"), Some(r#"[1, {"a": 2}]"#), None])
        );
        assert_eq!(raw("{}", names), Some([None; 3]));
        for wrong in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": null, "a": null}"#,
            "[1, 2, 3]",
            "null",
            "1",
            r#"{"a": 1"#,
            "{} {}",
        ] {
            assert_eq!(raw(wrong, names), None, "{wrong}");
        }
    }

    fn one(text: &str) -> String {
        match read(text.as_bytes()) {
            Ok(Incoming::One(message)) => describe(&Ok(message)),
            Ok(Incoming::Batch(items)) => {
                items.iter().map(describe).collect::<Vec<_>>().join(" | ")
            }
            Err(e) => describe(&Err(e)),
        }
    }

    fn describe(message: &Result<Message<'_>, Invalid>) -> String {
        match message {
            Ok(Message::Request { id, method, params }) => {
                format!(
                    "request {} {method} {}",
                    id.json(),
                    params.map_or("-", RawValue::get)
                )
            }
            Ok(Message::Notification { method, params }) => {
                format!(
                    "notification {method} {}",
                    params.map_or("-", RawValue::get)
                )
            }
            Ok(Message::Response) => "response".into(),
            Err(e) => format!("{} {}", e.code, e.id.as_ref().map_or("-", Id::json)),
        }
    }

    #[test]
    fn kinds_of_messages_are_distinguished() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                "request 1 ping -",
            ),
            (
                r#" {"jsonrpc":"2.0","id":"a","method":"ping","params":{ "x":1}} "#,
                r#"request "a" ping { "x":1}"#,
            ),
            (
                "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}\r",
                "request 0 ping -",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
                "notification notifications/x -",
            ),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "response"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "response"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"p\u0069ng","params":null}"#,
                "request 1 ping null",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"\u0061","method":"ping"}"#,
                r#"request "a" ping -"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#,
                "request 123456789012345678901234567890 m -",
            ),
            (
                r#"{"jsonrpc":"2.0","id":-5,"method":"m","extra":[1]}"#,
                "request -5 m -",
            ),
            (
                r#"{"jsonrpc":"2\u002e0","i\u0064":1,"method":"m"}"#,
                "request 1 m -",
            ),
            (
                "\t\r\n {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}\n\r\t ",
                "request 0 ping -",
            ),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
    }

    #[test]
    fn bad_messages_get_their_code_and_keep_a_readable_id() {
        // More cases, with exact answers, are in `features/tests/bad_input.rs`.
        for (text, expected) in [
            ("", "-32700 -"),
            ("5 6", "-32700 -"),
            ("\u{feff}\u{feff}{}", "-32700 -"),
            (" \u{feff}{}", "-32700 -"),
            ("\u{a0}{}", "-32700 -"),
            ("\u{c}{}", "-32700 -"),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}",
                "-32700 -",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "-32700 -"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "-32600 1"),
            (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, "-32600 -"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
                "-32600 1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"b"}"#,
                "-32600 -",
            ),
            ("[1,", "-32700 -"),
            (
                r#"[1,{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"n"}]"#,
                "-32600 - | request 2 ping - | notification n -",
            ),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        assert_eq!(
            read(b"{\"jsonrpc\":\"2.0\xff\"}").unwrap_err().code,
            PARSE_ERROR
        );
    }

    #[test]
    fn a_blank_line_may_have_a_byte_order_mark() {
        for line in ["", " \t\r", "\u{feff}", "\u{feff}\r"] {
            assert!(is_blank(line.as_bytes()), "{line:?}");
        }
        for line in ["0", "\u{c}", "\u{a0}", "\u{feff}\u{feff}", " \u{feff}"] {
            assert!(!is_blank(line.as_bytes()), "{line:?}");
        }
    }

    #[test]
    fn batches_are_bounded() {
        let batch = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
        assert!(
            matches!(read(batch(MAX_BATCH).as_bytes()), Ok(Incoming::Batch(items)) if items.len() == MAX_BATCH)
        );
        assert_eq!(
            read(batch(MAX_BATCH + 1).as_bytes()).unwrap_err().code,
            INVALID_REQUEST
        );
    }

    #[test]
    fn deep_nesting_is_read_without_recursion() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(one(&deep).starts_with("request 1 m [["));
    }

    #[test]
    fn answers_are_exact_bytes() {
        let id = Id::from_raw(&RawValue::from_string("\"a\"".into()).unwrap()).unwrap();
        let mut out = begin_result(&id);
        write_json(&mut out, &serde_json::json!({}));
        out.extend_from_slice(END);
        assert_eq!(out, br#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
        let data = serde_json::json!({"x": 1});
        assert_eq!(
            error(Some(&id), NoId::Null, METHOD_NOT_FOUND, "no", &data),
            br#"{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"no","data":{"x":1}}}"#
        );
        assert_eq!(
            error(None, NoId::Null, PARSE_ERROR, "no", &data),
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":{"x":1}}}"#
        );
        assert_eq!(
            error(None, NoId::Absent, PARSE_ERROR, "no", &data),
            br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no","data":{"x":1}}}"#
        );
        assert_eq!(
            notification("n", &data),
            br#"{"jsonrpc":"2.0","method":"n","params":{"x":1}}"#
        );
    }
}
