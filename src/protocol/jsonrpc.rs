//! JSON-RPC 2.0: reading and writing messages.
//!
//! In scope: messages, ids, error codes, batches. Not in scope: methods, revisions, anything specific to MCP.

use std::borrow::Cow;
use std::io::Read;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::config::{MAX_BATCH, MAX_ID, MAX_LINE_VALUES, MAX_VALUES};

use super::node::{self, Node, has_doubles};
use super::writer::Json;

// The texts of errors name these limits.
const _: () = assert!(MAX_BATCH == 1000 && MAX_ID == 1024 && MAX_VALUES == 10_000);

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

/// A request id or progress token: a string or a 64-bit integer, echoed with its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(crate) enum Id {
    /// An integer.
    Number(Number),
    /// A string of at most [`MAX_ID`] bytes as JSON, quotes aside.
    Text(Box<str>),
    /// `null`. Never read; used to answer a message without a readable id, where JSON-RPC 2.0 requires that and MCP
    /// allows it.
    Null,
}

impl Id {
    /// Reads an id, a `requestId` or a `progressToken`. `None` for anything else, and for longer strings.
    pub(crate) fn read(node: &Node<'_>) -> Option<Id> {
        match node {
            Node::Number(number) if !number.is_f64() => Some(Id::Number(number.clone())),
            Node::Text(text) if text.len() <= MAX_ID && string_len(text) <= MAX_ID + 2 => {
                Some(Id::Text(text.as_ref().into()))
            }
            _ => None,
        }
    }

    /// The id of a request that is too long to be kept, or cannot be read for another reason. Without an answer to this
    /// id, a client may wait for ever. `None` for anything but a request.
    pub(crate) fn sought(message: &mut dyn Read) -> Option<Id> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            id: Node<'a>,
            #[serde(rename = "method")]
            _method: IgnoredAny,
        }
        let mut json = serde_json::Deserializer::from_reader(message);
        let envelope = Envelope::deserialize(&mut json).ok()?;
        json.end().ok().and_then(|()| Id::read(&envelope.id))
    }
}

/// One message.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// Needs an answer.
    Request(RequestMessage<'a>),
    /// Gets no answer.
    Notification {
        /// The method's name.
        method: Cow<'a, str>,
        /// The params, if any.
        params: Option<Node<'a>>,
    },
    /// A response, and what it answers; a server sends no requests and ignores it.
    Response(Option<Id>),
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct RequestMessage<'a> {
    /// Echoed in the answer.
    pub(crate) id: Id,
    /// The method's name.
    pub(crate) method: Cow<'a, str>,
    /// The params, if any.
    pub(crate) params: Option<Node<'a>>,
}

/// An invalid message: its id, if that could be read; the code; and what is wrong, or expected.
pub(crate) type Invalid = (Option<Id>, i32, &'static str);

/// JSON's white space; Unicode has more.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Whether a line contains only white space or a byte order mark.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    line.iter()
        .all(|byte| WHITE_SPACE.contains(&char::from(*byte)))
}

/// The error for a batch of more than [`MAX_BATCH`] messages.
const TOO_MANY: &str = "The batch holds too many messages: send at most 1000 at once.";
/// The error for one of more than [`MAX_LINE_VALUES`] values.
const TOO_LARGE: &str =
    "The batch holds more than 50000 values, the limit: send fewer messages at once.";

/// Reads one line or body: its message, or those of an array, in order and never none; and whether it is an array. A byte
/// order mark and white space around the JSON are ignored. The only message is a [`PARSE_ERROR`] for invalid UTF-8 or JSON,
/// an [`INVALID_REQUEST`] for JSON that is not a message, an empty array, or an array of more than [`MAX_BATCH`] messages,
/// and either that or [`INVALID_PARAMS`] for more than [`MAX_LINE_VALUES`] values.
pub(super) fn read(bytes: &[u8]) -> (Vec<Result<Message<'_>, Invalid>>, bool) {
    let one = |message| (vec![message], false);
    let refused = |code, reason| one(Err((None, code, reason)));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return refused(PARSE_ERROR, "The message is not UTF-8.");
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.trim_matches(WHITE_SPACE);
    let mut json = serde_json::Deserializer::from_str(text);
    let tree = node::read(&mut json, MAX_LINE_VALUES, false);
    match tree.and_then(|node| json.end().map(|()| node)) {
        Ok(Node::List(items)) => match items.len() {
            0 => refused(INVALID_REQUEST, "An empty batch is not a request."),
            1..=MAX_BATCH => (items.into_iter().map(message).collect(), true),
            _ => refused(INVALID_REQUEST, TOO_MANY),
        },
        Ok(node) => one(message(node)),
        Err(error) => one(Err(unreadable(text, &error))),
    }
}

/// What a value is as a message.
fn message(node: Node<'_>) -> Result<Message<'_>, Invalid> {
    let Node::Object(mut members) = node else {
        return Err((None, INVALID_REQUEST, "A message is a JSON object."));
    };
    let is_doubled = has_doubles(&members);
    let mut take = |name| {
        let at = members.iter().position(|(known, _)| known == name)?;
        Some(members.swap_remove(at).1)
    };
    let (version, method) = (take("jsonrpc"), take("method"));
    let params = take("params").filter(|params| *params != Node::Null);
    let is_response = take("result").or_else(|| take("error")).is_some();
    let id = take("id").map(|id| Id::read(&id).filter(|_| take("id").is_none()));
    let refuse = |reason| Err((id.clone().flatten(), INVALID_REQUEST, reason));
    if is_doubled {
        return refuse("The message has the same field twice.");
    }
    if version.as_ref().and_then(Node::text) != Some("2.0") {
        return refuse("\"jsonrpc\" must be \"2.0\".");
    }
    let method = match method {
        None if is_response => return Ok(Message::Response(id.flatten())),
        None => return refuse("\"method\" is missing."),
        Some(Node::Text(method)) => method,
        Some(_) => return refuse("\"method\" must be a string."),
    };
    match id {
        None => Ok(Message::Notification { method, params }),
        Some(Some(id)) => Ok(Message::Request(RequestMessage { id, method, params })),
        Some(None) => refuse("\"id\" must be a string of at most 1024 bytes or a 64-bit integer."),
    }
}

/// Tells text that is not JSON from JSON that is not read, whose id is kept.
fn unreadable(text: &str, error: &serde_json::Error) -> Invalid {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return (None, PARSE_ERROR, "The message is not JSON.");
    }
    let nested =
        "The message is nested more than 127 levels deep, or holds a number that is too large.";
    let (code, reason) = match error.is_data() {
        false => (INVALID_REQUEST, nested),
        true if text.starts_with('[') => (INVALID_REQUEST, TOO_LARGE),
        true => (INVALID_PARAMS, node::TOO_MANY),
    };
    (Id::sought(&mut text.as_bytes()), code, reason)
}

/// Ends an answer of [`begin_result`].
pub(crate) const END: &[u8] = b"}";

/// Starts an answer; the caller appends the result value, then [`END`].
pub(crate) fn begin_result(id: &Id) -> Json {
    let mut out = Json::in_spare();
    out.extend(br#"{"jsonrpc":"2.0","id":"#);
    write_json(&mut out, id);
    out.extend(br#","result":"#);
    out
}

/// Writes an error answer. `data` is any JSON value.
pub(crate) fn error(id: Option<&Id>, code: i32, message: &str, data: &impl Serialize) -> Vec<u8> {
    let mut out = Json::default();
    out.extend(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        write_member(&mut out, "id", id);
    }
    write_name(&mut out, "error").extend(b"{");
    write_member(&mut out, "code", &code);
    write_member(&mut out, "message", message);
    write_member(&mut out, "data", data);
    out.extend(b"}}");
    out.bytes
}

/// Writes a notification.
pub(crate) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let mut out = begin_notification(method);
    write_json(&mut out, params);
    out.extend(b"}");
    out.bytes
}

/// A notification up to its params, which the caller appends, and `}`.
pub(crate) fn begin_notification(method: &str) -> Json {
    let mut out = Json::default();
    out.extend(br#"{"jsonrpc":"2.0""#);
    write_member(&mut out, "method", method);
    write_name(&mut out, "params");
    out
}

/// Appends `value` as JSON.
pub(crate) fn write_json<T: Serialize + ?Sized>(out: &mut Json, value: &T) {
    // This fails only if there is no room, which `out` knows: our types have string keys only.
    let _ = serde_json::to_writer(out, value);
}

/// Appends the name of a member to the object that is open in `out`; the caller appends its value.
pub(crate) fn write_name<'o>(out: &'o mut Json, name: &str) -> &'o mut Json {
    write_item(out, name);
    out.extend(b":");
    out
}

/// Appends a member to the object that is open in `out`.
pub(crate) fn write_member<T: Serialize + ?Sized>(out: &mut Json, name: &str, value: &T) {
    write_json(write_name(out, name), value);
}

/// Appends an item to the list, or a name to the object, that is open in `out`.
pub(crate) fn write_item<T: Serialize + ?Sized>(out: &mut Json, value: &T) {
    if !out.bytes.ends_with(b"[") && !out.bytes.ends_with(b"{") {
        out.extend(b",");
    }
    write_json(out, value);
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
pub(crate) fn write_json_as_string(out: &mut Json, mut json: &[u8]) {
    debug_assert!(
        json.iter().all(|byte| *byte >= b' '),
        "written on more than one line"
    );
    out.extend(b"\"");
    while let Some(at) = json.iter().position(|byte| b"\"\\".contains(byte)) {
        out.extend(&json[..at]);
        out.extend(&[b'\\', json[at]]);
        json = &json[at + 1..];
    }
    out.extend(json);
    out.extend(b"\"");
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mut json, mut quoted) = (Json::default(), Json::default());
        write_json(&mut json, &value);
        write_json_as_string(&mut quoted, json.bytes());
        let [text, found] = [json, quoted].map(|json| String::from_utf8(json.bytes).unwrap());
        assert_eq!(found, serde_json::to_string(&text).unwrap());
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
    fn doubled_members_and_too_many_values_are_found() {
        let request = |params: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            match &read(message.as_bytes()).0[..] {
                [Ok(Message::Request(request))] => request.params.as_ref().unwrap().fault(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(request(r#"{"a":{"b":1,"c":1}}"#), None);
        let doubled = Some("params hold an object with the same field twice.");
        assert_eq!(request(r#"{"a":1,"a":1}"#), doubled);
        assert_eq!(request(r#"{"a":[{"b":1,"\u0062":2}]}"#), doubled);
        let many: String = (0..20).map(|n| format!("\"k{}\":0,", n % 19)).collect();
        assert_eq!(request(&format!("{{{many}\"z\":0}}")), doubled);
        let values = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        assert_eq!(request(&values(MAX_VALUES)), None);
        let over = "params hold more than 10000 values, the limit.";
        assert_eq!(request(&values(MAX_VALUES + 1)), Some(over));
        // Only in a message is a result not read.
        let value = crate::encoding::json::decode::<Node<'_>>(br#"{"result":1}"#);
        assert_eq!(value.unwrap().get("result"), Some(&Node::Number(1.into())));
        let item = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}}}"#,
            values(9_000)
        );
        let batch = |n| format!("[{}]", vec![&*item; n].join(","));
        assert_eq!(read(batch(5).as_bytes()).0.len(), 5);
        let refused = |line: &str| read(line.as_bytes()).0.remove(0).unwrap_err();
        assert_eq!(refused(&batch(6)), (None, INVALID_REQUEST, TOO_LARGE));
        let far = values(MAX_LINE_VALUES);
        let far = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{far},"id":1}}"#);
        let id = Some(Id::Number(1.into()));
        assert_eq!(refused(&far), (id, INVALID_PARAMS, over));
    }

    #[test]
    fn ids_have_at_most_a_kibibyte_however_they_are_spelled() {
        let is_read = |id: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            read(message.as_bytes()).0[0].is_ok()
        };
        let id = |text: String| is_read(&format!("\"{text}\""));
        for one in ["x", "\\u0078", "\\/"] {
            let is_so = id(one.repeat(MAX_ID)) && !id(one.repeat(MAX_ID + 1));
            assert!(is_so, "{one}");
        }
        assert!(id("ä".repeat(MAX_ID / 2)) && !id("\\n".repeat(MAX_ID)));
        for (number, taken) in [
            ("18446744073709551615", true),
            ("-9223372036854775808", true),
            ("18446744073709551616", false),
            ("1.0", false),
        ] {
            assert_eq!(is_read(number), taken, "{number}");
        }
    }

    #[test]
    fn answers_are_exact_bytes() {
        let id = Id::Text("a".into());
        let mut out = begin_result(&id);
        write_json(&mut out, &serde_json::json!({}));
        out.extend(END);
        assert_eq!(out.bytes, br#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
        let data = serde_json::json!({"x": 1});
        let expected =
            br#"{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"no","data":{"x":1}}}"#;
        assert_eq!(error(Some(&id), METHOD_NOT_FOUND, "no", &data), expected);
        let expected =
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":{"x":1}}}"#;
        assert_eq!(error(Some(&Id::Null), PARSE_ERROR, "no", &data), expected);
        let expected =
            br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no","data":{"x":1}}}"#;
        assert_eq!(error(None, PARSE_ERROR, "no", &data), expected);
        let found = notification("n", &data);
        assert_eq!(found, br#"{"jsonrpc":"2.0","method":"n","params":{"x":1}}"#);
    }
}
