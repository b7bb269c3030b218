//! `fabric_get_transcript`: the transcript of a YouTube video. Runs no model, so it costs nothing.

use std::sync::Arc;

use crate::account::Resource;
use crate::config::MAX_FABRIC_BODY;
use crate::fabric::{Error, Kind, Transcript, VideoId};

use super::part::Part;
use super::{Arguments, Context, Outcome, Policy, Tool, ToolWork};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_transcript",
    title: "Get a YouTube transcript",
    description: "Get the transcript of a YouTube video, with title and description if Fabric has \
        a YouTube key. fabric_run_pattern can take a video.",
    output: include_str!("results/get_transcript.json"),
    read_only: true,
    declare,
};

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let video = arguments.required("url: Link of one video.", "a string", VideoId::parse);
    let style = TranscriptStyle::read(arguments);
    let part = arguments.part(MAX_FABRIC_BODY, MAX_FABRIC_BODY);
    Ok(Box::new(move |context| {
        let found = fetch(context, &video, &style)?;
        let is_said = |text: &String| !text.is_empty() && text != video.as_str();
        let part = Part::of(&found.transcript, part);
        Ok(Outcome::text("transcript", part.text.to_owned())
            .member("video_id", video.as_str())
            .optional("title", found.title.filter(is_said))
            .optional("description", found.description.filter(is_said))
            .part(&part, "transcript", TOOL.name))
    }))
}

/// Checks a language code: Fabric panics on a single character, yt-dlp reads a regular expression, and `all` means
/// every language.
fn is_language(value: &str) -> bool {
    let mut parts = value.split('-');
    let code = parts.next().unwrap_or_default();
    let is_code = matches!(code.len(), 2 | 3)
        && code.bytes().all(|b| b.is_ascii_lowercase())
        && code != "all";
    let is_part =
        |part: &str| matches!(part.len(), 1..=8) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    is_code && value.len() <= 35 && parts.all(is_part)
}

/// How a transcript is wanted.
#[derive(Default, PartialEq)]
pub(super) struct TranscriptStyle {
    language: Option<String>,
    timestamps: bool,
}

impl TranscriptStyle {
    /// Asks for it.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> TranscriptStyle {
        TranscriptStyle {
            language: arguments.valid(
                "language: Such as pt-BR. Default en.",
                is_language,
                "the code of a language, such as de, fil or pt-BR",
            ),
            timestamps: arguments.flag("timestamps: Begin each line with its time.", false),
        }
    }
}

/// Has Fabric fetch a transcript, which counts against the caller's rate.
pub(super) fn fetch(
    context: &Arc<Context>,
    video: &VideoId,
    style: &TranscriptStyle,
) -> Result<Transcript, Error> {
    let (fabric, observer) = (&context.backend.fabric, &context.observer());
    // Held while the call waits for its turn, so that a download that ends in the meantime is for this call, too.
    let download = fabric.download(video);
    let fetch = || {
        let _fetching = context.turn(Resource::Transcripts)?.ok_or_else(|| {
            let holding = context.account().holding(Resource::Transcripts);
            let detail = format!(
                "Fabric is already fetching as many transcripts as it may, for you or for all \
                 callers.{holding} Try again in a moment."
            );
            Error::new(Kind::TooManyRequests, detail)
        })?;
        context.count()?;
        let language = style.language.as_deref();
        fabric.transcript((video, &download), language, style.timestamps, observer)
    };
    let found = fetch();
    drop(download);
    let found = found.and_then(|found| Arc::unwrap_or_clone(found).1);
    found.map_err(|error| Error {
        // The video is private to the caller, and yt-dlp's messages name it.
        is_private: error.kind == Kind::ApiError,
        ..error
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_language_is_a_code() {
        let refusal = |language: Value| {
            let given = json!({"url": "https://youtu.be/abc-DEF_123", "language": language});
            let prepared = crate::tools::tests::prepared(&TOOL, &given);
            prepared.err().map(|error| error.detail)
        };
        let good = "de pt-BR fil zh-Hans es-419 en-orig zh-Hant-TW al".split(' ');
        for good in good.map(Value::from).chain([json!(""), Value::Null]) {
            assert_eq!(refusal(good.clone()), None, "{good}");
        }
        let bad = "d é é1 all all-x DE german pt_BR de- -de -- de--x .* de.* de,fr d1 de-ninechars \
                   de-aaaaaaaa-aaaaaaaa-aaaaaaaa-aaaaaaaa";
        for bad in bad.split(' ') {
            let words = "`language` must be the code of a language, such as de, fil or pt-BR.";
            assert_eq!(refusal(bad.into()).as_deref(), Some(words), "{bad}");
        }
    }
}
