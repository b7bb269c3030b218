//! Where the input of a run comes from, and inputs that are hardly meant: nothing opens a link or a file, so a model
//! would make up what is in it.

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

    /// The input. Its memory is charged to the call until it is sent.
    pub(super) fn text(self, search: bool, context: &Arc<Context>) -> Result<String, Failure> {
        let text = match self {
            InputSource::Video(video, style) => {
                let text = fetch(context, &video, &style)?.transcript;
                // The body that it came in is gone.
                context.release(text.len());
                text
            }
            InputSource::Run(run_id) => output(&run_id, context)?,
        };
        if !search {
            not_a_link("input_from", &text)?;
        }
        Ok(text)
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

/// Refuses an `argument` that is nothing but a link.
pub(super) fn not_a_link(argument: &str, input: &str) -> Result<(), Error> {
    let input = input.trim();
    let is_link = ["http://", "https://", "file://"].iter().any(|scheme| {
        let start = input.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    if !is_link || input.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(refused(format!(
        "`{argument}` is only a link, which nothing opens. Of a YouTube video give input_from {{\"youtube\": link}}; \
         otherwise give the text itself. If the pattern is for the link as it is, put words around it. Nothing was run."
    ))
    .about(argument))
}

/// A warning about an input that is empty, or only a path.
pub(super) fn doubt(input: &str) -> Option<&'static str> {
    let input = input.trim();
    if input.is_empty() {
        return Some(
            "There was no input: the pattern had only its own text to work on. If the output mentions an input, it is made up.",
        );
    }
    let is_path = match input.as_bytes() {
        // On Windows, paths often have blanks.
        [b'a'..=b'z' | b'A'..=b'Z', b':', b'/' | b'\\', ..] | [b'\\', b'\\', ..] => {
            !input.contains('\n')
        }
        [b'/', ..] => !input.contains(char::is_whitespace),
        _ => false,
    };
    is_path.then_some(
        "The input was only a path, and no file was opened. If the output speaks of the file's content, it is made up: \
         give the text itself.",
    )
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
            for word in ["input_from", "the text itself", "words around it"] {
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
