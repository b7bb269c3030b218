//! Part of a text, as tools return it when they are asked for one.

use crate::text::counted;

/// Part of a text, counted in characters.
pub(super) struct Part<'t> {
    pub(super) text: &'t str,
    /// Where the next one begins.
    pub(super) next_offset: Option<usize>,
    /// How long the whole is, unless this is all of it.
    pub(super) total_chars: Option<usize>,
}

impl Part<'_> {
    /// At most `max_chars` characters of a text from `offset` on.
    pub(super) fn of(whole: &str, (offset, max_chars): (usize, usize)) -> Part<'_> {
        let at = |text: &str, n| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
        let rest = &whole[at(whole, offset)..];
        let text = &rest[..at(rest, max_chars)];
        let next_offset = (text.len() < rest.len()).then_some(offset + max_chars);
        Part {
            text,
            next_offset,
            total_chars: (text.len() < whole.len()).then(|| whole.chars().count()),
        }
    }
}

/// What is said of an offset at which a text has no more characters.
pub(super) fn nothing_there(what: &str, all: usize) -> String {
    let all = counted(all, "character");
    format!("There is nothing at this offset: the {what} has {all}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_in_characters_and_join_to_the_whole() {
        let part = |offset, max_chars| {
            let part = Part::of("añb", (offset, max_chars));
            (part.text, part.next_offset)
        };
        assert_eq!(part(0, 2), ("añ", Some(2)));
        assert_eq!(part(2, 2), ("b", None));
        assert_eq!(part(0, 3), ("añb", None));
        assert_eq!(part(9, 3), ("", None));
    }
}
