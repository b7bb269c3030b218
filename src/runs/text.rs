//! An append-only text in memory, and cutting between characters.

/// Bytes of a block. A contiguous text would be copied again and again as it grows.
const BLOCK: usize = 64 << 10;

/// An append-only text.
#[derive(Default)]
pub(super) struct Text {
    blocks: Vec<String>,
    pub(super) bytes: usize,
    pub(super) chars: usize,
    /// Bytes of memory.
    pub(super) capacity: usize,
}

impl Text {
    pub(super) fn push(&mut self, piece: &str) {
        let fits = |block: &String| block.len() + piece.len() <= BLOCK;
        if !self.blocks.last().is_some_and(fits) {
            self.shrink();
            self.blocks.push(String::new());
        }
        if let Some(last) = self.blocks.last_mut() {
            let before = last.capacity();
            last.push_str(piece);
            self.capacity += last.capacity() - before;
        }
        self.bytes += piece.len();
        self.chars += piece.chars().count();
    }

    /// Frees the unused capacity of the last block.
    pub(super) fn shrink(&mut self) {
        if let Some(last) = self.blocks.last_mut() {
            let before = last.capacity();
            last.shrink_to_fit();
            self.capacity -= before - last.capacity();
        }
    }

    /// At most `most` bytes from byte `from` on, without characters that are only partly within.
    pub(super) fn read(&self, from: usize, most: usize) -> String {
        let end = from.saturating_add(most).min(self.bytes);
        let mut out = Vec::with_capacity(end.saturating_sub(from));
        let mut start = 0;
        for block in &self.blocks {
            let within = |at: usize| at.saturating_sub(start).min(block.len());
            out.extend_from_slice(&block.as_bytes()[within(from)..within(end.max(from))]);
            start += block.len();
        }
        whole(out)
    }
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
    fn parts_are_those_of_the_text_in_one_piece() {
        let (mut text, plain) = (Text::default(), "aé漢🎼b".repeat(12_000));
        (0..12_000).for_each(|_| text.push("aé漢🎼b"));
        assert_eq!((text.bytes, text.chars), (plain.len(), 60_000));
        assert!(text.blocks.len() > 1);
        let (near, end) = (BLOCK - 3, plain.len());
        for from in [0, 1, near, BLOCK, BLOCK + 5, end - 1, end, end + 9] {
            for most in [0, 1, 2, 3, 17, BLOCK, usize::MAX] {
                let up = (from.min(end)..).find(|at| plain.is_char_boundary(*at));
                let down = (0..=from.saturating_add(most).min(end)).rev();
                let down = down.into_iter().find(|at| plain.is_char_boundary(*at));
                let part = plain.get(up.unwrap()..down.unwrap()).unwrap_or("");
                assert_eq!(text.read(from, most), part, "{from} {most}");
            }
        }
    }

    #[test]
    fn memory_follows_the_text() {
        let mut text = Text::default();
        (0..20_000).for_each(|_| text.push("0123456789"));
        let room = text.capacity - text.bytes;
        assert!(room < BLOCK, "{room}");
        text.shrink();
        let real: usize = text.blocks.iter().map(String::capacity).sum();
        assert_eq!((text.capacity, text.bytes), (real, 200_000));
        text.push(&"x".repeat(BLOCK + 1));
        assert_eq!(text.read(200_000, usize::MAX).len(), BLOCK + 1);
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
            (b"\x80\x80\x80\x80\x80", ""),
        ] {
            assert_eq!(whole(bytes.to_vec()), kept);
        }
    }
}
