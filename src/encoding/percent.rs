//! Percent-encoding (RFC 3986, section 2.1).

use std::fmt::Write as _;

/// Percent-encodes all but RFC 3986's unreserved characters, so that any text is one segment of a URL's path.
pub(crate) fn percent_encode(text: &str) -> String {
    percent_encode_but("", text)
}

/// The same, but for these characters too.
pub(crate) fn percent_encode_but(others: &str, text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte) => {
                encoded.push(char::from(byte))
            }
            // Writing to a String cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// Percent-decodes. `None` if an escape is incomplete or not hex, or the result is not UTF-8.
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
}
