//! Request ids, and progress tokens, which have the same syntax.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::MAX_ID;

/// Longest escaped id: every byte as `\u0000`, plus quotes.
const LONGEST_ESCAPED: usize = 6 * MAX_ID + 2;

/// A request id: a string or an integer as canonical JSON, so that equal ids compare equal and keep their type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(Box<str>);

impl Id {
    /// Parses an id, a `requestId` or a `progressToken`. `None` for anything but a string or an integer, or if longer
    /// than [`MAX_ID`].
    pub(crate) fn from_raw(raw: &RawValue) -> Option<Id> {
        let json = raw.get();
        if json.starts_with('"') {
            // Only ids with escapes are decoded: the same character can be escaped in several ways.
            let text = if !json.contains('\\') {
                Cow::Borrowed(json)
            } else if json.len() <= LONGEST_ESCAPED {
                let text: String = serde_json::from_str(json).ok()?;
                Cow::Owned(serde_json::to_string(&text).ok()?)
            } else {
                return None;
            };
            return (text.len() <= MAX_ID + 2).then(|| Id(text.into()));
        }
        let digits = json.strip_prefix('-').unwrap_or(json);
        let is_integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        (is_integer && json.len() <= MAX_ID).then(|| Id(json.into()))
    }

    /// The id as JSON.
    pub(crate) fn json(&self) -> &str {
        &self.0
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The text is valid JSON: from the input, or written by serde_json.
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_at_most_a_kibibyte_however_they_are_spelled() {
        let id = |json: &str| {
            Id::from_raw(&RawValue::from_string(json.into()).unwrap()).map(|id| id.json().len())
        };
        for (fits, too_long) in [
            (
                format!("\"{}\"", "x".repeat(MAX_ID)),
                format!("\"{}\"", "x".repeat(MAX_ID + 1)),
            ),
            (
                format!("\"{}\"", "\\u0078".repeat(MAX_ID)),
                format!("\"{}\"", "\\u0078".repeat(MAX_ID + 1)),
            ),
            (
                format!("\"{}\"", "ä".repeat(MAX_ID / 2)),
                format!("\"{}\"", "ä".repeat(MAX_ID / 2 + 1)),
            ),
        ] {
            assert_eq!((id(&fits), id(&too_long)), (Some(MAX_ID + 2), None));
        }
        assert_eq!(
            (id(&"7".repeat(MAX_ID)), id(&"7".repeat(MAX_ID + 1))),
            (Some(MAX_ID), None)
        );
        assert_eq!(id(&format!("\"{}\"", "\\n".repeat(4 << 20))), None);
    }
}
