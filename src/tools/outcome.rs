//! The result of a call, or its failure.

use serde::Serialize;

use crate::fabric::Error;
use crate::protocol::jsonrpc;
use crate::runs::End;

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

/// A value that is read as its JSON, or as one of its texts.
struct Readable<T> {
    value: T,
    text: Option<fn(&T) -> &str>,
}

impl<T: Serialize + Send> Json for Readable<T> {
    fn write(&self, out: &mut Vec<u8>) {
        jsonrpc::write_json(out, &self.value);
    }

    fn text(&self) -> Option<&str> {
        self.text.map(|text| text(&self.value))
    }
}

/// An object with a further member, if there are warnings.
#[derive(Serialize)]
struct WithWarnings<T> {
    #[serde(flatten)]
    value: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The result of a call that worked.
pub(crate) struct Outcome {
    /// Exactly what the tool's output schema says.
    pub(crate) structured: Box<dyn Json>,
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
            warnings: Vec::new(),
            rows: None,
            bytes: None,
            end: None,
        }
    }

    /// A value with no fields for the log.
    pub(super) fn json<T: Serialize + Send + 'static>(value: T) -> Outcome {
        Outcome::new(Readable { value, text: None })
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
        let value = WithWarnings {
            value,
            warnings: warnings.clone(),
        };
        Outcome {
            warnings,
            ..Outcome::json(value)
        }
    }

    /// One thing that is read as its `text`.
    pub(super) fn text<T: Serialize + Send + 'static>(value: T, text: fn(&T) -> &str) -> Outcome {
        Outcome {
            bytes: Some(text(&value).len()),
            ..Outcome::new(Readable {
                value,
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
