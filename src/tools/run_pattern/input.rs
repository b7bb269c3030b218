//! Inputs that are hardly meant: nothing opens a link or a file, so a model would make up what is in it.

use crate::fabric::Error;
use crate::tools::refused;

/// Refuses an `argument` that is nothing but a link.
pub(super) fn not_a_link(argument: &str, input: &str) -> Result<(), Error> {
    let input = input.trim();
    let is_link = ["http://", "https://", "file://"]
        .iter()
        .any(|scheme| begins_with(input, scheme));
    if !is_link || input.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(refused(format!(
        "`{argument}` is only a link, which nothing opens. Get the text behind it, of a YouTube video with \
         fabric_get_transcript, and give that as input_text. If the pattern is for the link itself, put words around \
         it. Nothing was run."
    ))
    .about(argument))
}

/// A warning about an input that is empty, or only a path.
pub(super) fn doubt(input: &str) -> Option<&'static str> {
    let input = input.trim();
    if input.is_empty() {
        return Some(
            "There was no input: the pattern had only its own text to work on. If the output speaks of an input, it is \
             made up.",
        );
    }
    let drive = input.split_at_checked(1).is_some_and(|(letter, rest)| {
        let is_letter = letter.bytes().all(|b| b.is_ascii_alphabetic());
        is_letter && (rest.starts_with(":\\") || rest.starts_with(":/"))
    });
    // On Windows, paths often have blanks.
    let is_path = match drive || input.starts_with("\\\\") {
        true => !input.contains('\n'),
        false => input.starts_with('/') && !input.contains(char::is_whitespace),
    };
    is_path.then_some(
        "The input was only a path, and no file was opened. If the output speaks of the file's content, it is made up: \
         give the text itself.",
    )
}

/// Ignores the case of ASCII letters.
fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_alone_is_refused_and_words_let_it_through() {
        for link in [
            "https://example.org/a?b#c",
            "\n HTTP://x \n",
            "file:///etc/hosts",
            "https://",
        ] {
            let refusal = not_a_link("input_text", link).unwrap_err();
            assert_eq!(refusal.argument.as_deref(), Some("input_text"), "{link}");
            for word in ["fabric_get_transcript", "input_text", "words around it"] {
                assert!(refusal.detail.contains(word), "{refusal:?}");
            }
        }
        for text in [
            "",
            "httpsː//x",
            "https:/x",
            "See https://x",
            "https://x\nhttps://y",
            "<https://x>",
            "éhttps://x",
            "ftp://x",
        ] {
            assert_eq!(not_a_link("input_text", text), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_input_that_is_none_brings_a_warning() {
        let about = |input, words: &str| doubt(input).is_some_and(|said| said.contains(words));
        for nothing in ["", " \n\t"] {
            assert!(about(nothing, "no input"), "{nothing:?}");
        }
        for path in [
            "/etc/hosts",
            " /tmp/x.txt\n",
            "C:\\My Files\\x.txt",
            "d:/x",
            "\\\\server\\x",
        ] {
            assert!(about(path, "only a path"), "{path}");
        }
        for text in [
            "text",
            "/etc is a folder",
            "a/b",
            "C:\\x\ny",
            "é:/x",
            "See /tmp/x",
            "x",
        ] {
            assert_eq!(doubt(text), None, "{text}");
        }
    }
}
