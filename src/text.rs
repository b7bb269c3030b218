//! What several layers do with text: percent-encoding, and showing foreign text in our own.

use std::fmt::Write as _;

/// Escapes every byte but RFC 3986's unreserved characters, which makes any text one segment of a URL's path.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// Undoes percent-encoding. `None` when an escape is cut short or not hex, or the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8,
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Foreign text as an error may repeat it: its first `most` characters, without control characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_encoded_is_one_segment_and_comes_back() {
        for (text, encoded) in [
            ("", ""),
            ("azAZ09-._~", "azAZ09-._~"),
            ("a b", "a%20b"),
            ("é_1-2.3", "%C3%A9_1-2.3"),
            ("漢", "%E6%BC%A2"),
            ("../%?#\n", "..%2F%25%3F%23%0A"),
        ] {
            assert_eq!(percent_encode(text), encoded);
            assert_eq!(percent_decode(encoded).as_deref(), Some(text));
        }
        assert_eq!(percent_decode("%c3%a9+").as_deref(), Some("é+"));
    }

    #[test]
    fn broken_escapes_are_nothing() {
        for text in ["%", "%2", "%zz", "%+1", "%ff", "%C3"] {
            assert_eq!(percent_decode(text), None, "{text}");
        }
    }

    #[test]
    fn foreign_text_is_cut_and_has_no_control_characters() {
        assert_eq!(shown("a\r\n\u{1b}[31mé漢!", 6), "a[31mé");
    }
}
