//! Base64 (RFC 4648, section 4), and the values of MCP's mirrored headers: plain, or `=?base64?…?=` for what a header
//! cannot carry (2026-07-28, basic/transports/streamable-http, "Value Encoding").

use std::borrow::Cow;

const OPENING: &str = "=?base64?";
const CLOSING: &str = "?=";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes a header value. `None` if it cannot be decoded.
pub(crate) fn from_header(value: Cow<'_, str>) -> Option<Cow<'_, str>> {
    // Both markers are needed, and they do not overlap.
    let encoded = value.strip_prefix(OPENING);
    let Some(encoded) = encoded.and_then(|rest| rest.strip_suffix(CLOSING)) else {
        return Some(value);
    };
    String::from_utf8(decode(encoded)?).ok().map(Cow::Owned)
}

/// Writes a value so that a header can carry it.
pub(crate) fn to_header(value: &str) -> Cow<'_, str> {
    let is_plain = value.bytes().all(|b| matches!(b, b' '..=b'~')) && value.trim() == value;
    let is_marked = value.starts_with(OPENING) && value.ends_with(CLOSING);
    if is_plain && !is_marked {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{OPENING}{}{CLOSING}", encode(value.as_bytes())))
}

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(*group.get(at).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=group.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
        text.extend(std::iter::repeat_n('=', 3 - group.len()));
    }
    text
}

/// RFC 4648, section 4: the standard alphabet, padded, without anything else in between.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut bits: u32 = 0;
        for at in 0..4 {
            let digit = group.get(at).unwrap_or(&DIGITS[0]);
            bits = bits << 6 | DIGITS.iter().position(|other| other == digit)? as u32;
        }
        // 2, 3 or 4 digits carry 1, 2 or 3 bytes.
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    // What has another spelling too has wrong padding, or bits to spare that are not zero.
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_stay_and_encoded_ones_are_decoded() {
        for (value, decoded) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
            ("=?base64?IHBhZGRlZCA=?=", " padded "),
            ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
            ("=?base64??=", ""),
            // Not the markers, which are exact.
            ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
            ("=?base64?=", "=?base64?="),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ] {
            for value in [value.into(), to_header(decoded)] {
                assert_eq!(from_header(value).as_deref(), Some(decoded));
            }
        }
    }

    #[test]
    fn encoding_is_as_in_the_rfc() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("\u{3ff}\u{3fe}", "z7/Pvg=="),
        ] {
            assert_eq!(encode(text.as_bytes()), encoded, "{text}");
        }
    }

    #[test]
    fn what_is_not_base64_is_nothing() {
        let all = "SGVsbG8|SGVs bG8=|SGVsbG8*|=|====|A===|SGVsbG9=|SGVs=bG8|_-8=|/w==|SGVsbG8===";
        for value in all.split('|') {
            let value = format!("=?base64?{value}?=");
            assert_eq!(from_header(value.as_str().into()), None, "{value}");
        }
    }
}
