//! JSON from elsewhere.

use serde::Deserialize;

/// Decodes a value. `None` if that fails: the reason would quote the text.
pub(crate) fn decode<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    // As text, always: a decoder for bytes would be in the program as well, once for each type.
    serde_json::from_str(str::from_utf8(json).ok()?).ok()
}
