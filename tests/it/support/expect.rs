//! Checks of results and errors in every revision; each fails with the actual value.

use std::fmt::Display;

use serde_json::Value;

use super::{Era, fixtures};

/// Prefix of our URNs.
pub(crate) const URN: &str = "urn:fabric-mcp:error:";

/// Fails unless the text, or the JSON as text, contains each of `parts`.
#[track_caller]
pub(crate) fn contains<const N: usize>(text: impl Display, parts: [&str; N]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

/// Fails unless `found` has these members, at any depth; it may have others.
#[track_caller]
pub(crate) fn includes(found: &Value, members: Value) {
    fn has(found: &Value, expected: &Value) -> bool {
        match expected {
            Value::Object(members) if !members.is_empty() => {
                let mut members = members.iter();
                members.all(|(name, expected)| has(&found[name], expected))
            }
            _ => found == expected,
        }
    }
    assert!(has(found, &members), "{members} is not in {found}");
}

/// Checks a tool's success and returns its data: `structuredContent` in revisions that have it, else the JSON or text
/// of the first block.
#[track_caller]
pub(crate) fn success(era: Era, result: &Value) -> Value {
    assert_ne!(result["isError"], true, "a failure: {result}");
    assert_eq!(result["content"][0]["type"], "text", "{result}");
    let text = first_text(result);
    envelope(era, result);
    if era >= Era::R2025_06_18 {
        let data = result["structuredContent"].clone();
        assert!(data.is_object(), "structuredContent is missing: {result}");
        data
    } else {
        let is_so = result.get("structuredContent").is_none();
        assert!(is_so, "{era:?} knows no structuredContent: {result}");
        serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
    }
}

#[track_caller]
fn first_text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {result}"))
}

/// Checks a tool's failure: a readable paragraph with the URN at its end, the error object, no path of Fabric's host.
/// Returns the paragraph.
#[track_caller]
pub(crate) fn failure(era: Era, result: &Value, kind: &str) -> String {
    assert_eq!(result["isError"], true, "expected {kind}, got {result}");
    let is_so = result.get("structuredContent").is_none();
    assert!(is_so, "structuredContent on a failure: {result}");
    envelope(era, result);
    let error = &result["_meta"]["error"];
    let urn = format!("{URN}{kind}");
    assert_eq!(error["type"], urn.as_str(), "{result}");
    error_object(error);
    let text = first_text(result);
    let end = text.trim_end_matches(['.', ')', ']', '>', ' ', '\n']);
    let is_so = end.ends_with(&urn);
    assert!(is_so, "the paragraph must end in its URN: {text:?}");
    let is_so = text.len() > urn.len() + 20;
    assert!(is_so, "the paragraph must say what happened: {text:?}");
    no_leak(&result.to_string());
    text.to_owned()
}

/// Checks the error object of a failure, in a result's `_meta` or in a JSON-RPC error's `data`.
#[track_caller]
pub(crate) fn error_object(error: &Value) {
    for member in ["type", "title", "detail", "request_id"] {
        let there = error[member].as_str().is_some_and(|text| !text.is_empty());
        assert!(there, "`{member}` must be a text in {error}");
    }
}

/// Checks the envelope: `schema_version` 1, the time, and what the modern revision requires in every result.
#[track_caller]
fn envelope(era: Era, result: &Value) {
    let meta = &result["_meta"];
    assert_eq!(meta["schema_version"], 1, "{result}");
    let made = meta["generated_at"].as_str().unwrap_or("");
    let is_so = is_rfc3339_utc(made);
    assert!(is_so, "generated_at must be RFC 3339 in UTC: {made:?}");
    modern_result(era, result);
}

/// Checks what only modern results have, and always.
#[track_caller]
fn modern_result(era: Era, result: &Value) {
    let info = "io.modelcontextprotocol/serverInfo";
    if era.is_modern() {
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(result["_meta"][info]["name"], "fabric-mcp", "{result}");
    } else {
        let is_so = result.get("resultType").is_none();
        assert!(is_so, "{era:?} knows no resultType: {result}");
        let is_so = result["_meta"].get(info).is_none();
        assert!(is_so, "{era:?} knows no serverInfo in _meta: {result}");
    }
}

/// The partial output in a failure's second block, or an empty text.
pub(crate) fn partial(result: &Value) -> &str {
    result["content"][1]["text"].as_str().unwrap_or("")
}

/// Fails if the text contains a path of Fabric's host or a secret of its configuration.
#[track_caller]
pub(crate) fn no_leak(text: &str) {
    for secret in [fixtures::HOST_PATH, "/home/", fixtures::CONFIG_CANARY] {
        assert!(!text.contains(secret), "{secret:?} leaked: {text}");
    }
}

/// Checks `2026-01-02T03:04:05Z`, with or without a fraction.
fn is_rfc3339_utc(text: &str) -> bool {
    let zoneless = text.strip_suffix('Z').or(text.strip_suffix("+00:00"));
    let shape = zoneless.map(|text| text.replace(|c: char| c.is_ascii_digit(), "0"));
    let shape = shape.as_deref().unwrap_or_default();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else {
        return false;
    };
    let fraction = |text: &str| !text.is_empty() && text.chars().all(|c| c == '0');
    rest.is_empty() || rest.strip_prefix('.').is_some_and(fraction)
}
