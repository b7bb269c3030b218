//! Leaves out what a model thinks before it answers: blocks `<think>…</think>` or `<thinking>…</thinking>` that open the
//! output. Later tags are text, since an output may well speak of them.

use std::borrow::Cow;

/// The tags that models use: how a block begins and ends.
const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// Filters an output that comes in pieces, cut anywhere. Reads each byte about once, and holds a block until its end is
/// known: one without an end is text.
#[derive(Default)]
pub(super) struct ThinkingFilter {
    state: State,
    /// What may still be left out.
    pending: String,
    /// The bytes of `pending` that are known to be blanks or inside a block.
    searched: usize,
    has_block: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    /// Only blanks and blocks so far.
    #[default]
    Opening,
    /// Inside a block that ends with this.
    Block(&'static str),
    Answer,
}

impl ThinkingFilter {
    /// What is certain to be text after one more piece, and how many bytes were left out.
    pub(super) fn take<'p>(&mut self, piece: &'p str) -> (Cow<'p, str>, usize) {
        if self.state == State::Answer {
            return (piece.into(), 0);
        }
        self.pending.push_str(piece);
        let mut left_out = 0;
        while self.state != State::Answer {
            let rest = &self.pending[self.searched..];
            if let State::Block(end) = self.state {
                if let Some(at) = rest.find(end) {
                    self.searched += at + end.len();
                    left_out = self.searched;
                    (self.state, self.has_block) = (State::Opening, true);
                    continue;
                }
                let part = (0..end.len()).rfind(|&part| rest.ends_with(&end[..part]));
                self.searched = self.pending.len() - part.unwrap_or_default();
                break;
            }
            let text = rest.trim_start();
            self.searched = self.pending.len() - text.len();
            // The separator between a block and the answer is removed with the block.
            if self.has_block {
                left_out = self.searched;
            }
            if let Some((begin, end)) = TAGS.iter().find(|(begin, _)| text.starts_with(begin)) {
                self.searched += begin.len();
                self.state = State::Block(end);
            } else if TAGS.iter().any(|(begin, _)| begin.starts_with(text)) {
                break;
            } else {
                self.state = State::Answer;
            }
        }
        self.pending.drain(..left_out);
        self.searched -= left_out;
        match self.state {
            State::Answer => (std::mem::take(&mut self.pending).into(), left_out),
            _ => ("".into(), left_out),
        }
    }

    /// What is left at the end of the output, and whether it is a block without an end.
    pub(super) fn finish(self) -> (String, bool) {
        (self.pending, matches!(self.state, State::Block(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What remains of an output that comes in these pieces, and whether a block has no end.
    fn filtered<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, bool) {
        let mut filter = ThinkingFilter::default();
        let (mut text, mut given, mut left_out) = (String::new(), 0, 0);
        for piece in pieces {
            let (part, bytes) = filter.take(piece);
            text += &part;
            given += piece.len();
            left_out += bytes;
            assert_eq!(given, text.len() + left_out + filter.pending.len());
        }
        let (rest, is_unclosed) = filter.finish();
        (text + &rest, is_unclosed)
    }

    #[test]
    fn a_block_that_opens_the_output_is_left_out_wherever_it_is_cut() {
        let open = "<think>never ends </think";
        let late = "<think>x</think>use <think>y</think>";
        for (output, text, is_unclosed) in [
            ("<think>a < b </thi </think>\n\nüber", "über", false),
            ("\n <thinking>x</think></thinking>y\n", "y\n", false),
            ("<think></think><thinking>ü</thinking> z", "z", false),
            ("<think><</</think>z", "z", false),
            ("<think>only</think>\n", "", false),
            (open, open, true),
            ("<think>x</think> <think>y", "<think>y", true),
            ("<think>", "<think>", true),
            ("I <think>so</think>.", "I <think>so</think>.", false),
            ("<thinker>x</think>", "<thinker>x</think>", false),
            (late, "use <think>y</think>", false),
            (" <thi", " <thi", false),
            ("  indented", "  indented", false),
            ("", "", false),
        ] {
            let wanted = (text.to_owned(), is_unclosed);
            for at in (0..=output.len()).filter(|&at| output.is_char_boundary(at)) {
                let pieces = [&output[..at], "", &output[at..]];
                assert_eq!(filtered(pieces), wanted, "{output:?} at {at}");
            }
            let pieces = output.split_inclusive(|_| true);
            assert_eq!(filtered(pieces), wanted, "{output:?} by characters");
        }
    }

    #[test]
    fn an_answer_flows_at_once() {
        let mut filter = ThinkingFilter::default();
        let taken = ["<think>x</think>\n", "a", "<think>"].map(|piece| filter.take(piece));
        let text = |text: &'static str, left_out| (Cow::from(text), left_out);
        assert_eq!(taken, [text("", 17), text("a", 0), text("<think>", 0)]);
    }

    /// Takes hours if anything is read or moved once for each piece or block.
    #[test]
    fn many_pieces_and_blocks_take_no_longer_than_long_ones() {
        let (most, blocks) = (1 << 17, "<think></think> ".repeat(1 << 17));
        let blanks = std::iter::repeat_n(" ", most);
        assert_eq!(filtered(blanks).0.len(), most);
        let thoughts = std::iter::repeat_n("<", most);
        assert!(filtered(std::iter::once("<think>").chain(thoughts)).1);
        assert_eq!(filtered([blocks.as_str(), "x"]).0, "x");
    }
}
