//! Where the input of a run comes from, and inputs that cannot come out right: nothing opens a link or a file, so a model
//! would be paid for making up what is in it.

use std::sync::Arc;

use crate::account::Full;
use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{Error, VideoId, Wait, no_room};
use crate::runs::RunState;
use crate::tools::get_run::find;
use crate::tools::get_transcript::{TranscriptStyle, fetch};
use crate::tools::{Arguments, Context, Failure, refused};

/// Where the input of a run comes from, unless the call has it.
pub(super) enum InputSource {
    /// The transcript of a video.
    Video(VideoId, TranscriptStyle),
    /// The output of an earlier run, by its id.
    Run(String),
}

impl InputSource {
    /// The argument `input_from`.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Result<InputSource, Error> {
        let video = arguments.parsed(
            "youtube",
            "Address at youtube.com or youtu.be.",
            VideoId::parse,
        );
        let style = TranscriptStyle::read(arguments);
        let run_id = arguments.string("run_id", "A completed run.");
        match (video, run_id) {
            (Some(video), None) => Ok(InputSource::Video(video, style)),
            (None, Some(run_id)) if style == TranscriptStyle::default() => {
                Ok(InputSource::Run(run_id))
            }
            _ => Err(refused(
                "`input_from` takes either youtube, perhaps with language and timestamps, or run_id.",
            )),
        }
    }

    /// The member that a bare string is: the id of a run or an address.
    pub(super) fn member(text: &str) -> &'static str {
        match text.trim_start().starts_with("run_") {
            true => "run_id",
            false => "youtube",
        }
    }

    /// The input. Its memory is charged to the call until it is sent.
    pub(super) fn text(self, context: &Arc<Context>) -> Result<String, Failure> {
        Ok(match self {
            InputSource::Video(video, style) => {
                let text = fetch(context, &video, &style)?.transcript;
                // The body that it came in is gone.
                context.release(text.len());
                text
            }
            InputSource::Run(run_id) => output(&run_id, context)?,
        })
    }
}

/// The whole output of a completed run of the caller's.
fn output(run_id: &str, context: &Arc<Context>) -> Result<String, Error> {
    let argument = "input_from.run_id";
    let run = find(context, argument, run_id)?;
    let record = run.bare();
    if record.state != RunState::Completed {
        let status = record.state.name();
        let detail = format!(
            "`{argument}` is a run with the status {status}: only the output of a completed one can be an input. \
             Nothing was run."
        );
        return Err(refused(detail).about(argument));
    }
    let held = context.hold(record.bytes as usize);
    held.map_err(|Full| no_room())?;
    Ok(run.read_chars(0, MAX_RUN_OUTPUT))
}

/// Longest text that may be nothing but a request, in characters.
const SHORT: usize = 200;

/// Lists of words, a line each: verbs that begin requests, in several languages; others that ask; words around them; the
/// endings of files' names.
const WORDS: &str = include_str!("requests.txt");

/// What is in an input beside words, the clearest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Link,
    File,
    Video,
}

/// Refuses an `argument` that holds a file's bytes, or that is about a link or a file and has nothing else. A model may open
/// links if it can `search`; where it `is_free`, nothing is refused.
///
/// # Errors
/// `invalid-request`, saying what to give instead.
pub(super) fn check(argument: &str, text: &str, is_free: bool, search: bool) -> Result<(), Error> {
    let text = text.trim();
    let what = match (no_text(text), meant(text)) {
        _ if is_free => return Ok(()),
        (Some(what), _) => format!("is {what}, not text"),
        (None, None) => return Ok(()),
        (None, Some(Thing::File)) => {
            "is only the path or name of a file, which nothing opens: give the text itself"
                .to_owned()
        }
        (None, Some(_)) if search => return Ok(()),
        (None, Some(_)) => {
            "only names a link, which nothing opens: of a YouTube video give input_from \
                            {\"youtube\": link}, otherwise the text itself"
                .to_owned()
        }
    };
    let detail = format!(
        "`{argument}` {what}. With \"input_is_text\": true it is run as it is. Nothing was run."
    );
    Err(refused(detail).about(argument))
}

/// What a text is that holds the bytes of a file, perhaps as base64, and what makes text of it.
pub(crate) fn no_text(text: &str) -> Option<&'static str> {
    let begins = |marks: &[&str]| marks.iter().any(|mark| text.starts_with(mark));
    let start: String = text.chars().take(16).collect();
    if begins(&["%PDF-", "JVBERi0", "data:application/pdf"]) {
        Some("a PDF (pdftotext makes text of it)")
    } else if begins(&["PK\u{3}\u{4}", "UEsDB", "data:application/zip"]) {
        Some("a zip archive or an office document (unzip opens it, pandoc makes text of it)")
    } else if begins(&["GIF8", "R0lGOD", "iVBORw0KGgo", "/9j/4", "data:image/"])
        || start.contains("PNG\r\n")
        || start.contains("JFIF")
    {
        Some("an image (tesseract makes text of it)")
    } else {
        let binary = "a binary file, as it has NUL bytes (iconv makes UTF-8 of UTF-16)";
        text.contains('\0').then_some(binary)
    }
}

/// The thing that a text is about and has nothing else: the thing alone, or a short request to do something with it.
fn meant(text: &str) -> Option<Thing> {
    // On Windows, paths often have blanks.
    if let [b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..] | [b'\\', b'\\', ..] =
        text.as_bytes()
        && !text.contains('\n')
    {
        return Some(Thing::File);
    }
    if !text.contains(char::is_whitespace) {
        return thing(text);
    }
    let (mut found, mut words) = (None, Vec::new());
    for token in text.split_whitespace() {
        match thing(token) {
            None => words.push(token.to_lowercase()),
            thing => found = found.max(thing),
        }
        if words.len() * 2 > SHORT {
            return None;
        }
    }
    let found = found.filter(|_| text.chars().nth(SHORT).is_none())?;
    let is_in = |list, word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.is_empty() || is_listed(list, word)
    };
    let asks = words.iter().any(|word| is_in(0, word) || is_in(1, word));
    let is_only = words
        .iter()
        .all(|word| (0..3).any(|list| is_in(list, word)));
    // What follows a colon may be what is asked about.
    let begins = words
        .iter()
        .find(|word| !is_in(2, word))
        .is_some_and(|word| is_in(0, word))
        && !words.iter().any(|word| word.ends_with(':'));
    let is_meant = match found {
        Thing::Video => is_only || begins && words.len() <= 12,
        Thing::File => is_only || begins && words.len() <= 8,
        Thing::Link => is_only && asks,
    };
    is_meant.then_some(found)
}

fn is_listed(list: usize, word: &str) -> bool {
    let mut words = WORDS
        .lines()
        .skip(list)
        .take(1)
        .flat_map(|line| line.split(' '));
    words.any(|known| known == word)
}

/// What a word is that names something outside of the text.
fn thing(word: &str) -> Option<Thing> {
    let word = word.trim_matches(['"', '\'', '(', ')', '`', ',', ';', ':', '!', '?', '.']);
    let word = word.to_ascii_lowercase();
    let bare = word
        .strip_prefix("https://")
        .or(word.strip_prefix("http://"));
    let bare = bare.or(word.strip_prefix("www."));
    let host = bare
        .unwrap_or(&word)
        .trim_start_matches("www.")
        .trim_start_matches("m.");
    let path = word.trim_start_matches(['~', '.']).strip_prefix('/');
    let name = word
        .rsplit_once('.')
        .filter(|(name, _)| name.ends_with(char::is_alphanumeric));
    let is_file = path.is_some_and(|path| path.starts_with(char::is_alphanumeric))
        || name.is_some_and(|(_, ending)| is_listed(3, ending))
        || word.starts_with("file://")
        || word.starts_with("attach");
    if host.starts_with("youtu.be/") || host.starts_with("youtube.com/") {
        Some(Thing::Video)
    } else if bare.is_some() {
        Some(Thing::Link)
    } else {
        is_file.then_some(Thing::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_names_something_is_refused_with_what_to_give() {
        let said = |text: &str| check("input_text", text, false, false).map_err(|e| e.detail);
        for link in [
            "https://example.org/a?b#c",
            "\n HTTP://x \n",
            "https://",
            "www.example.org",
        ] {
            let refusal = said(link).unwrap_err();
            for word in [
                "`input_text`",
                "input_from",
                "the text itself",
                "input_is_text",
            ] {
                assert!(refusal.contains(word), "{refusal}");
            }
            assert_eq!(
                check("input_text", link, false, true),
                Ok(()),
                "a search opens it"
            );
            assert_eq!(check("input_text", link, true, false), Ok(()));
        }
        for path in [
            "/etc/hosts",
            " /tmp/x.txt\n",
            "C:\\My Files\\x.txt",
            "d:/x",
            "\\\\server\\x",
            "file:///etc/hosts",
            "a.tar.zip",
            "../x",
        ] {
            assert!(said(path).unwrap_err().contains("name of a file"), "{path}");
        }
        for (bytes, what) in [
            ("%PDF-1.7\n", "a PDF (pdftotext"),
            ("PK\u{3}\u{4}", "a zip archive"),
            ("\u{fffd}PNG\r\n\u{1a}", "an image"),
            ("\u{fffd}\u{fffd}\0\u{10}JFIF", "an image"),
            ("data:image/png;base64,iVBO", "an image"),
            ("a\0", "NUL bytes"),
        ] {
            assert!(said(bytes).unwrap_err().contains(what), "{bytes}");
        }
        for text in [
            "",
            "text",
            "httpsː//x",
            "https:/x",
            "See https://x",
            "https://x\nhttps://y",
            "<https://x>",
            "éhttps://x",
            "ftp://x",
            "/etc is a folder",
            "a/b",
            "C:\\x\ny",
            "é:/x",
            "See /tmp/x or tell me",
        ] {
            assert_eq!(said(text), Ok(()), "{text}");
        }
    }
}
