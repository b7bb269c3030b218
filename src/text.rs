//! Text functions that several modules share: quoting, wrapping, edit distance.

use std::borrow::{Borrow, Cow};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::config::MAX_NAME;

/// A number of digits, perhaps with a point: no sign, no exponent, neither `inf` nor `nan`.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| is_plain)
}

/// Whether a character would break a line or change how the text around it is displayed: controls, line separators,
/// and what sets the direction of writing.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character shows nothing, and is no blank, or is unprintable.
pub(crate) fn is_invisible(c: char) -> bool {
    is_unprintable(c)
        || matches!(c, '\u{ad}' | '\u{3164}' | '\u{2800}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{feff}')
}

/// Whether nothing of a text can be seen.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_invisible(c))
}

/// Untrusted text for an error message: its first `most` printable characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let text = text.chars().filter(|c| !is_unprintable(*c));
    text.take(most).collect()
}

/// Untrusted text for a terminal. Characters that a terminal would take for commands, or would show in another place,
/// become U+FFFD. Otherwise an answer could make the terminal write the clipboard, or hide lines, as a lone carriage
/// return does.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    let is_command = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\t');
    if text.contains(is_command) {
        let text = text.replace("\r\n", "\n");
        text.replace(is_command, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// A number and its noun, which is given in the singular. Unless the number is 1, the noun gets an s.
pub(crate) fn counted(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Why a `path` that a person gave cannot be used as the `kind` of thing it should be: a file or folder.
pub(crate) fn unusable(kind: &str, path: &Path, error: &io::Error) -> String {
    let path = shown(&path.to_string_lossy(), 1024);
    match error.kind() {
        ErrorKind::NotFound => format!("no such {kind}: \"{path}\""),
        ErrorKind::PermissionDenied => format!("no permission for the {kind} \"{path}\""),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            format!("not a {kind}: \"{path}\"")
        }
        _ => format!("cannot use the {kind} \"{path}\": {error}"),
    }
}

/// Line width of texts for people, in characters.
pub(crate) const WIDTH: usize = 80;

/// Wraps a paragraph at [`WIDTH`]; all lines but the first are indented.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            shown.push('\n');
            shown.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            shown.push(' ');
            column += 1;
        }
        shown.push_str(word);
        column += length;
    }
    shown
}

/// Whether a secret reads like a placeholder that a person or a client should have replaced: `${env:NAME}`, `{{name}}`,
/// `<key>`, `%NAME%`, `[key]`, `$NAME`, `YOUR_KEY`.
pub(crate) fn is_placeholder(secret: &str) -> bool {
    let within = |pair: &&str| {
        let rest = secret.strip_prefix(&pair[..pair.len() - 1]);
        rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with(&pair[pair.len() - 1..]))
    };
    let is_name = |name: &str| {
        let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(is_upper)
    };
    let lower = secret.to_ascii_lowercase().replace('-', "_");
    let mut pairs = ["${}", "{}", "<>", "%%", "[]", "()"].iter();
    pairs.any(within) || secret.strip_prefix('$').is_some_and(is_name) || lower.starts_with("your_")
}

/// A text with these holes filled; what fills them has none.
pub(crate) fn filled(text: &str, holes: &[(&str, &str)]) -> String {
    let found = holes.iter();
    let found = found.filter_map(|(hole, value)| Some((text.split_once(hole)?, *value)));
    match found.min_by_key(|((before, _), _)| before.len()) {
        Some(((before, after), value)) => [before, value, &filled(after, holes)].concat(),
        None => text.to_owned(),
    }
}

/// A text without the lines that begin with a mark that is off, and without these marks.
pub(crate) fn marked_lines(text: &str, marks: &[(&str, bool)]) -> String {
    let lines = text.split_inclusive('\n').filter_map(|line| {
        marks
            .iter()
            .try_fold(line, |line, (mark, is_on)| match line.strip_prefix(mark) {
                Some(rest) => is_on.then_some(rest),
                None => Some(line),
            })
    });
    lines.collect()
}

/// `A, B or C`, with this word before the last.
pub(crate) fn joined<S: Borrow<str>>(names: &[S], word: &str) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => {
            format!("{} {word} {}", others.join(", "), last.borrow())
        }
        _ => names.concat(),
    }
}

/// What to give instead of `wanted`: the closest candidates, or `all` of them.
pub(crate) fn hint(wanted: &str, candidates: &[&str], all: &str) -> String {
    match closest(wanted, candidates.iter().copied()).as_slice() {
        [] => format!("{all} {}", candidates.join(", ")),
        names => format!("did you mean {}?", joined(names, "or")),
    }
}

/// Whether two names differ only by a typing error: one or two edits. Case and separators are ignored.
pub(crate) fn is_misspelled(name: &str, other: &str) -> bool {
    edits(name, other, (letters(name).count() / 3).min(2))
}

/// Whether at most so many edits make one name of the other. Case and separators are ignored.
pub(crate) fn edits(name: &str, other: &str, most: usize) -> bool {
    let [name, other] = [name, other].map(|name| Vec::from_iter(letters(name)));
    edit_distance(&name, &other, most) <= most
}

/// A name without case and separators: in camelCase, it has the words of its snake_case. Longer names are invalid; the bound
/// limits the work for a hostile list.
pub(crate) fn letters(name: &str) -> impl Iterator<Item = char> {
    let letters = name.chars().take(MAX_NAME);
    let letters = letters.filter(|c| !"_- ".contains(*c));
    letters.flat_map(char::to_lowercase)
}

/// The names closest to `wanted`, best first, at most three: within a few edits, or one contains the other. Case and
/// the separators `_`, `-` and space are ignored; names that differ in nothing else are the only results.
pub(crate) fn closest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = Vec::from_iter(letters(wanted));
    let furthest = (wanted.len() / 3).clamp(1, 3);
    let furthest = furthest.min(wanted.len().saturating_sub(1));
    // Substring matches rank after typing errors, the shorter remainder first.
    let rank = |name| {
        let candidate = Vec::from_iter(letters(name));
        let is_part = contains(&candidate, &wanted) || contains(&wanted, &candidate);
        let most = if is_part { usize::MAX } else { furthest };
        // The exact distance takes long to compute, and cannot be less than this.
        if wanted.len().abs_diff(candidate.len()) > most {
            return None;
        }
        match edit_distance(&wanted, &candidate, most) {
            edits if edits <= furthest => Some((edits, name)),
            edits => is_part.then_some((furthest + edits, name)),
        }
    };
    let mut best: Vec<(usize, &str)> = names.into_iter().filter_map(rank).collect();
    best.sort_unstable();
    best.truncate(3);
    let is_exact = best.first().is_some_and(|(rank, _)| *rank == 0);
    best.retain(|(rank, _)| *rank == 0 || !is_exact);
    best.into_iter().map(|(_, name)| name).collect()
}

fn contains(text: &[char], part: &[char]) -> bool {
    part.len() >= 3 && text.windows(part.len()).any(|window| window == part)
}

/// The edit distance between two texts: insertions, deletions, substitutions and swaps of neighbours (optimal string
/// alignment). A distance beyond `most` is not computed exactly.
fn edit_distance(a: &[char], b: &[char], most: usize) -> usize {
    // The last is row i: the distances between the first i characters of `a` and each prefix of `b` whose length differs by
    // `most` at most.
    let mut rows = [Vec::new(), Vec::new(), (0..=b.len()).collect()];
    let (mut nearest, beyond) = (0, most.saturating_add(1));
    for i in 1..=a.len() {
        rows.rotate_left(1);
        let [older, last, row] = &mut rows;
        row.clear();
        row.resize(b.len() + 1, beyond);
        row[0] = i;
        let before = std::mem::replace(&mut nearest, i);
        for j in i.saturating_sub(most).max(1)..=b.len().min(i.saturating_add(most)) {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(older[j - 2] + 1);
            }
            nearest = nearest.min(row[j]);
        }
        // What follows builds on the last two rows.
        if before.min(nearest) > most {
            return beyond;
        }
    }
    rows[2][b.len()]
}

/// The first `most` bytes of a text, but no part of a character.
pub(crate) fn prefix(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rfind(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Whether this may be the code or name of a language. Fabric puts it into the prompt: it must look like one, not like
/// more instructions.
pub(crate) fn is_language(text: &str) -> bool {
    let may_be_in_one = |c: char| c.is_alphanumeric() || " -_()".contains(c);
    let begins = !text.starts_with(|c: char| !c.is_alphabetic());
    begins && text.chars().count() <= 64 && text.chars().all(may_be_in_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_no_plural() {
        let runs = [0, 1, 2].map(|number| counted(number, "run"));
        assert_eq!(runs, ["0 runs", "1 run", "2 runs"]);
    }

    #[test]
    fn foreign_text_is_cut_and_printable() {
        assert_eq!(shown("a\r\n\u{1b}[31m\u{202e}é漢!", 6), "a[31mé");
    }

    #[test]
    fn a_terminal_is_told_nothing_by_foreign_text() {
        assert_eq!(
            for_terminal("\u{1b}]52;c;eA==\u{7} \u{9b}2J\u{7f} a\u{202e}b\u{2066}c\u{61c}"),
            "\u{fffd}]52;c;eA==\u{fffd} \u{fffd}2J\u{fffd} a\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(for_terminal("a\r\nb\rc"), "a\nb\u{fffd}c");
        let text = "a\tb\n\u{e9}\u{1f600}\u{202f}";
        assert!(matches!(for_terminal(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn placeholders_are_told_from_secrets() {
        let placeholders = "${env:FABRIC_API_KEY}|${FABRIC_API_KEY}|{env:FABRIC_API_KEY}|{{api_key}}|\
                            $FABRIC_API_KEY|%FABRIC_API_KEY%|<key>|[key]|YOUR_TOKEN|your-api-key";
        let secrets = "|$|{|[x|$2b$12$abc|$ecret|yours|sk-${x}|a{b}";
        for (texts, expected) in [(placeholders, true), (secrets, false)] {
            for text in texts.split('|') {
                assert_eq!(is_placeholder(text), expected, "{text}");
            }
        }
    }

    #[test]
    fn typing_errors_and_parts_of_names_are_recognised() {
        let names = "claude-desktop claude-code vscode codex gemini-cli a1b a2b a3b";
        let names = Vec::from_iter(names.split(' '));
        for (wanted, expected) in [
            ("claude", &["claude-code", "claude-desktop"][..]),
            ("VS Code", &["vscode"]),
            ("code", &["codex", "vscode", "claude-code"]),
            ("Gemini", &["gemini-cli"]),
            ("codex-cli", &["codex"]),
            ("vscod", &["vscode"]),
            ("co", &[]),
            ("emacs", &[]),
            ("", &[]),
        ] {
            assert_eq!(closest(wanted, names.clone()), expected, "{wanted}");
        }
        assert!(closest(&"x".repeat(100_000), names.clone()).is_empty());
        assert_eq!(hint("vscodd", &names, "give"), "did you mean vscode?");
        let found = hint("emacs", &["a", "b"], "give one of");
        assert_eq!(found, "give one of a, b");
        assert_eq!(joined(&["a", "b", "c"], "or"), "a, b or c");
    }

    #[test]
    fn edit_distances() {
        let distance = |a: &str, b: &str, most| {
            let chars = |text: &str| Vec::from_iter(text.chars());
            edit_distance(&chars(a), &chars(b), most)
        };
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("ab", "", 2),
            ("ab", "ba", 1),
            ("abc", "abc", 0),
            ("abc", "axc", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b, usize::MAX), edits, "{a} {b}");
            assert_eq!(distance(a, b, edits), edits, "{a} {b}");
            assert!(distance(a, b, edits.saturating_sub(1)) >= edits, "{a} {b}");
        }
    }

    #[test]
    fn paragraphs_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(30), 10);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("          word") || line.trim().is_empty())
        );
        assert_eq!(wrapped(&"x".repeat(100), 4), "x".repeat(100));
    }
}
