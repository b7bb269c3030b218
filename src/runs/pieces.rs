//! Parts of a text, cut between characters.

/// Adds to a text that may become long. The text grows by an eighth, not by its whole length, because its memory is
/// charged.
pub(super) fn append(text: &mut String, piece: &str) {
    if text.capacity() - text.len() < piece.len() {
        text.reserve_exact(piece.len().max(text.len() / 8).max(1 << 10));
    }
    text.push_str(piece);
}

/// At most `most` bytes from byte `from` on, without characters that are only partly within.
pub(super) fn part(text: &str, from: usize, most: usize) -> String {
    let end = from.saturating_add(most).min(text.len());
    whole(text.as_bytes()[from.min(end)..end].to_vec())
}

/// How many characters begin in these bytes: all bytes of UTF-8 begin one but those of the form 10xxxxxx.
pub(super) fn count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64
}

/// Text without characters that are cut off at its ends, and with U+FFFD for invalid UTF-8.
pub(super) fn whole(mut bytes: Vec<u8>) -> String {
    bytes.truncate(bytes.len() - cut(&bytes));
    let begin = bytes.iter().take_while(|byte| **byte & 0xC0 == 0x80);
    bytes.drain(..begin.count());
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// How many of the last bytes are a character that is cut off.
pub(super) fn cut(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(4)..];
    let last = tail.iter().rposition(|byte| byte & 0xC0 != 0x80);
    let last = &tail[last.unwrap_or(tail.len())..];
    match str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_characters() {
        let text = "aé漢🎼b";
        for from in 0..text.len() + 2 {
            for most in [0, 1, 2, 3, 9, usize::MAX] {
                let up = (from.min(text.len())..).find(|at| text.is_char_boundary(*at));
                let mut down = (0..=from.saturating_add(most).min(text.len())).rev();
                let down = down.find(|at| text.is_char_boundary(*at));
                let expected = text.get(up.unwrap()..down.unwrap()).unwrap_or("");
                assert_eq!(part(text, from, most), expected, "{from} {most}");
            }
        }
    }

    #[test]
    fn memory_follows_the_text() {
        let mut text = String::new();
        (0..20_000).for_each(|_| append(&mut text, "0123456789"));
        let room = text.capacity() - text.len();
        assert!(text.len() == 200_000 && room <= 25_000, "{room}");
    }

    #[test]
    fn what_is_cut_is_left_out_and_damage_is_shown() {
        for (bytes, kept) in [
            (&b"ab"[..], "ab"),
            (b"", ""),
            (b"a\xC3", "a"),
            (b"a\xE6\xBC", "a"),
            (b"a\xF0\x9F\x8E", "a"),
            (b"\xF0\x9F\x8E", ""),
            (b"\xA9a\xC3\xA9", "aé"),
            (b"a\xFFb", "a\u{FFFD}b"),
            (b"a\xFF", "a\u{FFFD}"),
            (b"\x80\x80\x80\x80\x80", ""),
        ] {
            assert_eq!(whole(bytes.to_vec()), kept);
        }
    }
}
