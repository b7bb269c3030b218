//! JSON from elsewhere.

use serde::Deserialize;

/// Decodes a value. `None` if that fails: the reason would quote the text.
pub(crate) fn decode<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    // Always reads text: a decoder for bytes would be in the program as well, once for each type.
    serde_json::from_str(str::from_utf8(json).ok()?).ok()
}

/// Makes each surrogate without its other half, which JavaScript makes by cutting a text and no text can hold, the
/// replacement character U+FFFD.
pub(crate) fn mend_surrogates(json: &mut [u8]) {
    let unit = |json: &[u8], at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    let backslash = |rest: &[u8]| rest.iter().position(|byte| *byte == b'\\');
    while let Some(escape) = json.get(at..).and_then(backslash) {
        at += escape;
        at += match (unit(json, at), unit(json, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                json[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            _ => 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_surrogates_are_mended() {
        for (json, mended) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uD83D\uDE00 \u00e9\n""#, r#""\uD83D\uDE00 \u00e9\n""#),
            (r#""\uDE00\uD83D""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83dx\ude00\\""#, r#""\ufffdx\ufffd\\""#),
            (r#""\\ud83d \ud83""#, r#""\\ud83d \ud83""#),
            (r"\", r"\"),
            (r"\ud83d\", r"\ufffd\"),
        ] {
            let mut bytes = json.as_bytes().to_vec();
            mend_surrogates(&mut bytes);
            assert_eq!(str::from_utf8(&bytes), Ok(mended), "{json}");
        }
    }
}
