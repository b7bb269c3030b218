//! A line of the log as one JSON object.
//!
//! In scope: `time`, `level`, `target`, and either the fields of a message that is all `key=value`, or `message`; behind
//! both, `caller`. Values are strings but for `ok` and [`NUMBERS`]: a field has one type whatever its value, which is what
//! collectors of logs want. Not in scope: what is logged.

use serde_json::{Map, Value};

/// Fields that are whole numbers.
const NUMBERS: [&str; 6] = ["bytes", "code", "duration_ms", "rows", "status", "try"];

/// The object, in one line. `message` is as `logfmt` writes it, or a sentence.
pub(super) fn object(
    time: &str,
    level: &str,
    target: &str,
    message: &str,
    caller: Option<&str>,
) -> String {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("time", time.into());
    add("level", level.to_ascii_lowercase().into());
    add("target", target.into());
    match fields(message) {
        Some(fields) => fields.into_iter().for_each(|(key, value)| {
            // A chain has several patterns.
            match object.get_mut(&key) {
                Some(Value::String(before)) => {
                    before.push(',');
                    before.push_str(value.as_str().unwrap_or_default());
                }
                _ => drop(object.insert(key, value)),
            }
        }),
        None => drop(add("message", message.into())),
    }
    if let Some(caller) = caller {
        object.insert("caller".to_owned(), caller.into());
    }
    Value::Object(object).to_string()
}

/// The fields of a message that is nothing but fields.
fn fields(mut rest: &str) -> Option<Vec<(String, Value)>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        if key.is_empty() || !key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            return None;
        }
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = unquoted(quoted)?;
                (Value::String(value), after)
            }
            None => {
                let (value, after) = after.split_at(after.find(' ').unwrap_or(after.len()));
                (typed(key, value), after)
            }
        };
        fields.push((key.to_owned(), value));
        rest = match after.strip_prefix(' ') {
            Some(after) => after,
            None if after.is_empty() => after,
            None => return None,
        };
    }
    (!fields.is_empty()).then_some(fields)
}

fn typed(key: &str, text: &str) -> Value {
    let is_typed = key == "ok" || NUMBERS.contains(&key);
    is_typed
        .then(|| serde_json::from_str(text).ok())
        .flatten()
        .unwrap_or_else(|| text.into())
}

/// What stands before the closing quote, and what behind it. Control characters stay escaped, as in the text.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                c @ ('"' | '\\') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str, caller: Option<&str>) -> Value {
        let line = object("T", "INFO", "fabric_mcp::x", message, caller);
        assert!(!line.contains('\n'));
        let mut value: Value = serde_json::from_str(&line).unwrap();
        for (key, expected) in [
            ("time", "T"),
            ("level", "info"),
            ("target", "fabric_mcp::x"),
        ] {
            assert_eq!(
                value.as_object_mut().unwrap().remove(key),
                Some(expected.into())
            );
        }
        value
    }

    #[test]
    fn fields_become_members_and_sentences_a_message() {
        for (message, object) in [
            (
                r"tool=x duration_ms=3 ok=true code=-32602",
                r#"{"tool":"x","duration_ms":3,"ok":true,"code":-32602}"#,
            ),
            // Hex digits and names may all be decimal digits.
            (
                r"request_id=7173816100000000 pattern=true",
                r#"{"request_id":"7173816100000000","pattern":"true"}"#,
            ),
            (
                r#"reason="a \"b\" c=d\n\\" ok=false"#,
                r#"{"reason":"a \"b\" c=d\\n\\","ok":false}"#,
            ),
            (r"pattern=a pattern=b", r#"{"pattern":"a,b"}"#),
            (r"empty=", r#"{"empty":""}"#),
            (
                r"It listens. auth=token",
                r#"{"message":"It listens. auth=token"}"#,
            ),
            (r#"reason="open"#, r#"{"message":"reason=\"open"}"#),
            (r"a=b and more", r#"{"message":"a=b and more"}"#),
            ("", r#"{"message":""}"#),
        ] {
            assert_eq!(
                of(message, None),
                serde_json::from_str::<Value>(object).unwrap(),
                "{message}"
            );
        }
        assert_eq!(
            of("ok=true", Some("alice")),
            serde_json::json!({"ok": true, "caller": "alice"})
        );
    }
}
