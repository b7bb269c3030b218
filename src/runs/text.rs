//! An append-only text in memory, and reading parts of texts, also from bytes that may be cut within a character.

/// Bytes of a block. A contiguous text would be copied again and again as it grows.
const BLOCK: usize = 64 << 10;

/// An append-only text.
#[derive(Default)]
pub(super) struct Text {
    blocks: Vec<Block>,
    pub(super) bytes: usize,
    pub(super) chars: usize,
    /// Bytes of memory.
    pub(super) capacity: usize,
}

#[derive(Default)]
struct Block {
    text: String,
    chars: usize,
}

impl Text {
    pub(super) fn push(&mut self, piece: &str) {
        if self
            .blocks
            .last()
            .is_none_or(|block| block.text.len() + piece.len() > BLOCK)
        {
            self.shrink();
            self.blocks.push(Block::default());
        }
        let Some(last) = self.blocks.last_mut() else {
            return;
        };
        let (before, chars) = (last.text.capacity(), count(piece.as_bytes()));
        last.text.push_str(piece);
        last.chars += chars;
        self.capacity += last.text.capacity() - before;
        self.bytes += piece.len();
        self.chars += chars;
    }

    /// Frees the unused capacity of the last block.
    pub(super) fn shrink(&mut self) {
        if let Some(last) = self.blocks.last_mut() {
            let before = last.text.capacity();
            last.text.shrink_to_fit();
            self.capacity -= before - last.text.capacity();
        }
    }

    /// At most `most` bytes from byte `from` on, without characters that are only partly within.
    pub(super) fn read(&self, from: usize, most: usize) -> String {
        let end = from.saturating_add(most).min(self.bytes);
        let mut out = String::with_capacity(end.saturating_sub(from));
        let mut start = 0;
        for block in &self.blocks {
            let text = block.text.as_str();
            let (mut a, mut b) = (
                from.saturating_sub(start).min(text.len()),
                end.saturating_sub(start).min(text.len()),
            );
            while !text.is_char_boundary(a) {
                a += 1;
            }
            while !text.is_char_boundary(b) {
                b -= 1;
            }
            out.push_str(text.get(a..b).unwrap_or_default());
            start += text.len();
        }
        out
    }

    /// At most `most` characters, after the first `skip`.
    pub(super) fn read_chars(&self, skip: usize, most: usize) -> String {
        let mut span = Span::new(skip, most);
        let mut out = Vec::new();
        for block in &self.blocks {
            if span.skip >= block.chars {
                span.skip -= block.chars;
            } else if !span.take(block.text.as_bytes(), &mut out) {
                break;
            }
        }
        text(out)
    }
}

/// How many characters begin in these bytes.
pub(super) fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins(**byte)).count()
}

/// All bytes of UTF-8 begin a character but those of the form 10xxxxxx.
fn begins(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Takes a range of characters out of a text that comes in pieces, cut anywhere.
pub(super) struct Span {
    skip: usize,
    most: usize,
}

impl Span {
    pub(super) fn new(skip: usize, most: usize) -> Span {
        Span { skip, most }
    }

    /// Appends the wanted part of the next piece to `out`. False if no further piece is needed.
    pub(super) fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        let mut begin = 0;
        if self.skip > 0 || out.is_empty() {
            // Also over the rest of a character whose beginning was skipped.
            let skipped = starts(piece).nth(self.skip);
            match skipped {
                Some(at) => begin = at,
                None => {
                    self.skip -= count(piece);
                    return true;
                }
            }
            self.skip = 0;
        }
        let rest = &piece[begin..];
        match starts(rest).nth(self.most) {
            Some(end) => {
                out.extend_from_slice(&rest[..end]);
                false
            }
            None => {
                self.most -= count(rest);
                out.extend_from_slice(rest);
                true
            }
        }
    }
}

fn starts(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| begins(**byte))
        .map(|(at, _)| at)
}

/// Bytes as text: without a character that is cut off at the end, and with U+FFFD for invalid UTF-8.
pub(super) fn text(mut bytes: Vec<u8>) -> String {
    bytes.truncate(whole(&bytes));
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Where the first character begins.
pub(super) fn begin(bytes: &[u8]) -> usize {
    starts(bytes).next().unwrap_or(bytes.len())
}

/// The length without a character that is cut off at the end.
pub(super) fn whole(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(4);
    let Some(last) = bytes[tail..]
        .iter()
        .rposition(|byte| begins(*byte))
        .map(|at| tail + at)
    else {
        return bytes.len();
    };
    match std::str::from_utf8(&bytes[last..]) {
        Err(error) if error.error_len().is_none() => last,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(piece: &str, times: usize) -> (Text, String) {
        let mut text = Text::default();
        (0..times).for_each(|_| text.push(piece));
        (text, piece.repeat(times))
    }

    #[test]
    fn parts_are_those_of_the_text_in_one_piece() {
        let (text, plain) = filled("aé漢🎼b", 12_000);
        assert_eq!((text.bytes, text.chars), (plain.len(), 60_000));
        assert!(text.blocks.len() > 1);
        for from in [
            0,
            1,
            BLOCK - 3,
            BLOCK,
            BLOCK + 5,
            plain.len() - 1,
            plain.len(),
            plain.len() + 9,
        ] {
            for most in [0, 1, 2, 3, 17, BLOCK, usize::MAX] {
                let up = |mut at: usize| {
                    at = at.min(plain.len());
                    (at..).find(|at| plain.is_char_boundary(*at)).unwrap()
                };
                let end = from.saturating_add(most).min(plain.len());
                let end = (0..=end)
                    .rev()
                    .find(|at| plain.is_char_boundary(*at))
                    .unwrap();
                assert_eq!(
                    text.read(from, most),
                    plain.get(up(from)..end).unwrap_or(""),
                    "{from} {most}"
                );
                let chars: String = plain.chars().skip(from).take(most).collect();
                assert_eq!(text.read_chars(from, most), chars, "{from} {most}");
            }
        }
    }

    #[test]
    fn a_span_may_be_cut_anywhere() {
        let plain = "aé漢🎼b".repeat(3);
        for size in 1..6 {
            for (skip, most) in [(0, 0), (0, 4), (1, 1), (2, 3), (3, 99), (4, 1), (99, 1)] {
                let (mut span, mut out) = (Span::new(skip, most), Vec::new());
                let _ = plain
                    .as_bytes()
                    .chunks(size)
                    .all(|piece| span.take(piece, &mut out));
                assert_eq!(
                    text(out),
                    plain.chars().skip(skip).take(most).collect::<String>(),
                    "{size} {skip} {most}"
                );
            }
        }
    }

    #[test]
    fn memory_follows_the_text() {
        let (mut text, plain) = filled("0123456789", 20_000);
        assert!(
            text.capacity >= plain.len() && text.capacity < plain.len() + BLOCK,
            "{}",
            text.capacity
        );
        text.shrink();
        let real: usize = text.blocks.iter().map(|block| block.text.capacity()).sum();
        assert_eq!((text.capacity, text.bytes), (real, plain.len()));
        text.push(&plain);
        assert_eq!(text.read(0, usize::MAX), plain.repeat(2));
    }

    #[test]
    fn a_cut_tail_is_left_out_and_damage_is_shown() {
        for (bytes, kept) in [
            (&b"ab"[..], "ab"),
            (b"", ""),
            (b"a\xC3", "a"),
            (b"a\xE6\xBC", "a"),
            (b"a\xF0\x9F\x8E", "a"),
            (b"\xF0\x9F\x8E", ""),
            (b"a\xC3\xA9", "aé"),
            (b"a\xFFb", "a\u{FFFD}b"),
            (
                b"\x80\x80\x80\x80\x80",
                "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}",
            ),
        ] {
            assert_eq!(text(bytes.to_vec()), kept);
        }
    }
}
