//! The result of a call, or its failure, and how they are written.

use serde::Serialize;

use crate::account::{Account, Full};
use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Error, no_room};
use crate::protocol::{Feature, ResultWriter, error_object, jsonrpc};
use crate::runs::End;
use crate::text::prefix;
use crate::time;

/// Version of the result format, in `_meta`. Adding an optional field does not change it.
const SCHEMA_VERSION: u32 = 1;

/// Space for everything around the text of a result, in bytes.
const FRAME: usize = 1 << 10;

/// A serialisable value with its type erased.
pub(crate) trait Json: Send {
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Appends `json`, which is what [`Json::write`] has written, as a JSON string.
    fn write_as_string(&self, out: &mut Vec<u8>, json: &[u8]) {
        jsonrpc::write_json_as_string(out, json);
    }

    /// The text for people and models, where it is not the JSON.
    fn text(&self) -> Option<&str> {
        None
    }
}

/// An object, with a further member if there are warnings, that is read as its JSON or as one of its texts.
#[derive(Serialize)]
struct Readable<T> {
    #[serde(flatten)]
    value: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    text: Option<fn(&T) -> &str>,
}

impl<T: Serialize + Send> Json for Readable<T> {
    fn write(&self, out: &mut Vec<u8>) {
        jsonrpc::write_json(out, self);
    }

    fn text(&self) -> Option<&str> {
        self.text.map(|text| text(&self.value))
    }
}

/// The result of a call that worked.
pub(crate) struct Outcome {
    /// Exactly what the tool's output schema says.
    pub(crate) structured: Box<dyn Json>,
    /// What stands in the place of an empty text; another text is followed by it.
    pub(crate) silence: Option<String>,
    /// Warnings for the caller; each becomes a text of its own.
    pub(crate) warnings: Vec<String>,
    /// How many entries the result has, for the log.
    pub(crate) rows: Option<usize>,
    /// How long its text is, for the log.
    pub(crate) bytes: Option<usize>,
    /// Of a run: what the store keeps of its end, from which the result is built.
    pub(crate) end: Option<End>,
}

impl Outcome {
    /// A result with no fields for the log.
    pub(super) fn new(value: impl Json + 'static) -> Outcome {
        Outcome {
            structured: Box::new(value),
            silence: None,
            warnings: Vec::new(),
            rows: None,
            bytes: None,
            end: None,
        }
    }

    /// An object with no fields for the log.
    pub(super) fn json<T: Serialize + Send + 'static>(value: T) -> Outcome {
        Outcome::warning(value, Vec::new())
    }

    /// A list or map of `rows` entries.
    pub(super) fn rows<T: Serialize + Send + 'static>(value: T, rows: usize) -> Outcome {
        Outcome {
            rows: Some(rows),
            ..Outcome::json(value)
        }
    }

    /// An object, whose member `warnings` these become too.
    pub(super) fn warning<T: Serialize + Send + 'static>(
        value: T,
        warnings: Vec<String>,
    ) -> Outcome {
        Outcome {
            warnings: warnings.clone(),
            ..Outcome::new(Readable {
                value,
                warnings,
                text: None,
            })
        }
    }

    /// The same, read as its `text`.
    pub(super) fn text<T: Serialize + Send + 'static>(
        value: T,
        text: fn(&T) -> &str,
        silence: Option<String>,
        warnings: Vec<String>,
    ) -> Outcome {
        let all = silence.iter().chain(&warnings).cloned().collect();
        Outcome {
            bytes: Some(text(&value).len()),
            silence,
            warnings,
            ..Outcome::new(Readable {
                value,
                warnings: all,
                text: Some(text),
            })
        }
    }

    /// The end of a run whose text of `bytes` bytes is in the store.
    pub(super) fn end(end: End, bytes: usize) -> Outcome {
        Outcome {
            end: Some(end),
            bytes: Some(bytes),
            ..Outcome::json(())
        }
    }
}

/// A call that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) error: Error,
    /// Output that had arrived: in a chain one text for each step, else at most one.
    pub(crate) partial: Vec<String>,
    /// The error's text for the log, without what it repeats of the caller's texts.
    pub(crate) logged: Option<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            error,
            partial: Vec::new(),
            logged: None,
        }
    }
}

/// A text item of `content`.
#[derive(Serialize)]
struct TextContent<'a> {
    r#type: &'static str,
    text: &'a str,
}

fn content(text: &str) -> TextContent<'_> {
    TextContent {
        r#type: "text",
        text,
    }
}

/// Writes the result of a call, success or failure. Its memory is charged to `account`.
pub(crate) fn write(
    outcome: &Result<Outcome, Failure>,
    account: &Account,
    request_id: &str,
    result: &mut ResultWriter,
) {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return write_failure(failure, request_id, result),
    };
    let structured = result.revision.knows(Feature::StructuredContent);
    let mut json = Vec::new();
    let (mut text, mut silence) = (outcome.structured.text(), outcome.silence.as_deref());
    if text == Some("") {
        text = silence.take().or(text);
    }
    if text.is_none() {
        outcome.structured.write(&mut json);
    }
    let copies = if structured { 2 } else { 1 };
    let needed = text.map_or(json.len() + json.len() / 4, jsonrpc::string_len) * copies + FRAME;
    // Charged before it is written: JSON may be several times as long as its text.
    if let Err(Full) = result.reserve(account, needed) {
        let partial = text.map(|text| prefix(text, MAX_PARTIAL_TEXT).to_owned());
        let failure = Failure {
            partial: partial.into_iter().collect(),
            ..no_room().into()
        };
        return write_failure(&failure, request_id, result);
    }
    envelope(result);
    let out = result.key("content");
    out.extend_from_slice(br#"[{"type":"text","text":"#);
    match text {
        Some(text) => jsonrpc::write_json(out, text),
        None => outcome.structured.write_as_string(out, &json),
    }
    out.push(b'}');
    for warning in silence
        .into_iter()
        .chain(outcome.warnings.iter().map(String::as_str))
    {
        out.push(b',');
        jsonrpc::write_json(out, &content(warning));
    }
    out.push(b']');
    if structured {
        let out = result.key("structuredContent");
        match json.is_empty() {
            false => out.extend_from_slice(&json),
            true => outcome.structured.write(out),
        }
    }
    result.field("isError", &false);
}

/// Writes the result of a call that failed: a paragraph, what had arrived, and the error object in `_meta`.
pub(crate) fn write_failure(failure: &Failure, request_id: &str, result: &mut ResultWriter) {
    envelope(result);
    let error = &failure.error;
    let said = format!(
        "{}. {} {}",
        error.kind.title(),
        error.detail,
        error.kind.urn()
    );
    let partial = failure.partial.iter().map(String::as_str);
    let content: Vec<_> = std::iter::once(said.as_str())
        .chain(partial)
        .map(content)
        .collect();
    result.field("content", &content).field("isError", &true);
    result.meta("error", &error_object(error, request_id));
}

fn envelope(result: &mut ResultWriter) {
    result.meta("schema_version", &SCHEMA_VERSION);
    result.meta("generated_at", &time::now());
}
