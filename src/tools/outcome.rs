//! The result of a call, or its failure.

use serde::Serialize;

use crate::fabric::Error;
use crate::jsonrpc;
use crate::runs::End;

/// A serialisable value with its type erased.
pub(crate) trait Json: Send {
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Appends `json`, which is what [`Json::write`] has written, as a JSON string.
    fn write_as_string(&self, out: &mut Vec<u8>, json: &[u8]) {
        jsonrpc::write_json_as_string(out, json);
    }

    /// The text a person or a model reads instead of the JSON, where there is a better one.
    fn text(&self) -> Option<&str> {
        None
    }
}

/// A plain result: its text is its JSON.
pub(super) struct Plain<T>(pub(super) T);

impl<T: Serialize + Send> Json for Plain<T> {
    fn write(&self, out: &mut Vec<u8>) {
        jsonrpc::write_json(out, &self.0);
    }
}

/// The result of a call that worked.
pub(crate) struct Outcome {
    /// Exactly what the tool's output schema says.
    pub(crate) structured: Box<dyn Json>,
    /// What the caller must not overlook; each becomes a text of its own.
    pub(crate) warnings: Vec<String>,
    /// How many entries the result has, for the log.
    pub(crate) rows: Option<usize>,
    /// How long its text is, for the log.
    pub(crate) bytes: Option<usize>,
    /// Of a run: what the store keeps of its end. The result is made of that.
    pub(crate) end: Option<End>,
}

impl Outcome {
    /// A list or map of `rows` entries.
    pub(super) fn rows<T: Serialize + Send + 'static>(value: T, rows: usize) -> Outcome {
        Outcome::rows_of(Plain(value), rows)
    }

    /// The same, of something that writes itself.
    pub(super) fn rows_of(value: impl Json + 'static, rows: usize) -> Outcome {
        Outcome { structured: Box::new(value), warnings: Vec::new(), rows: Some(rows), bytes: None, end: None }
    }

    /// One thing with a text of `bytes` bytes.
    pub(super) fn bytes<T: Serialize + Send + 'static>(value: T, bytes: usize) -> Outcome {
        Outcome { structured: Box::new(Plain(value)), warnings: Vec::new(), rows: None, bytes: Some(bytes), end: None }
    }
}

impl Outcome {
    /// The end of a run whose text of `bytes` bytes is in the store.
    pub(super) fn end(end: End, bytes: usize) -> Outcome {
        Outcome { end: Some(end), ..Outcome::bytes((), bytes) }
    }
}

/// A call that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) error: Error,
    /// What had arrived before it failed: mostly one text or none, in a chain one for each step.
    pub(crate) partial: Vec<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, partial: Vec::new() }
    }
}
