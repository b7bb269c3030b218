//! The result of a call, or its failure, and how they are written.

use std::sync::Arc;

use serde::Serialize;

use crate::account::{Account, Reservation};
use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Error, NameList, no_room};
use crate::protocol::{Json, ResultWriter, error_object, jsonrpc};
use crate::runs::{RunId, RunReport};
use crate::text::prefix;
use crate::time;

use super::Policy;
use super::part::{Part, nothing_there};

/// Version of the result format, in `_meta`. Adding an optional field does not change it.
const SCHEMA_VERSION: u32 = 1;

/// Space for everything around the text of a result, in bytes.
const FRAME: usize = 1 << 10;

/// The result of a call that worked: an object, exactly as the tool's output schema says.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The members of the object but for the text and the warnings: JSON, each after a comma.
    pub(super) members: Json,
    /// The names that are the whole result, which is cached as JSON.
    pub(super) names: Option<Arc<NameList>>,
    /// A member that people and models read instead of the JSON: its name, and the text.
    pub(crate) text: Option<(&'static str, String)>,
    /// The member `warnings`, unless there are none. If the text of the result is not JSON, each warning is also a text
    /// of its own.
    pub(crate) warnings: Vec<String>,
    /// Whether the text is empty, so that the first warning is shown in its place.
    pub(crate) is_silent: bool,
    /// How large the result is, for the log: `rows` or `bytes`, and the number.
    pub(crate) size: (&'static str, usize),
    /// What the store keeps of a run. The result of the run is built from this.
    pub(crate) report: RunReport,
    /// The run whose output it is, if that can be read later.
    pub(super) run_id: Option<RunId>,
    /// The memory that its text takes.
    pub(super) _memory: Option<Reservation>,
}

impl Outcome {
    /// A list or map of `rows` entries.
    pub(super) fn rows(rows: usize) -> Outcome {
        Outcome::default().sized("rows", rows)
    }

    /// Sets how large the result is.
    pub(super) fn sized(mut self, unit: &'static str, size: usize) -> Outcome {
        self.size = (unit, size);
        self
    }

    /// A text, which is the member `name`.
    pub(super) fn text(name: &'static str, text: String) -> Outcome {
        Outcome {
            size: ("bytes", text.len()),
            text: Some((name, text)),
            ..Outcome::default()
        }
    }

    /// Charges `account` for the members that follow, which may be long.
    pub(super) fn charged(mut self, account: &Account) -> Outcome {
        self.members = self.members.charged(account);
        self
    }

    /// Adds a member.
    pub(super) fn member(mut self, name: &str, value: impl Serialize) -> Outcome {
        jsonrpc::write_member(&mut self.members, name, &value);
        self
    }

    /// Adds a member where there is one.
    pub(super) fn optional(self, name: &str, value: Option<impl Serialize>) -> Outcome {
        match value {
            Some(value) => self.member(name, value),
            None => self,
        }
    }

    /// Adds warnings, each of them once.
    pub(super) fn warn(mut self, warnings: impl IntoIterator<Item = String>) -> Outcome {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self
    }

    /// Says how to get the rest of a text if only this part of it is shown: `what` the text is, and which `tool` has it.
    pub(super) fn part(self, part: &Part<'_>, what: &str, tool: &str) -> Outcome {
        let more = part.next_offset.map(|next| {
            format!(
                "There is more of the {what}: if you need it, call {tool} again with offset {next}."
            )
        });
        let all = part.total_chars.filter(|_| part.text.is_empty());
        self.optional("total_chars", part.total_chars)
            .optional("next_offset", part.next_offset)
            .warn(more)
            .warn(all.map(|all| nothing_there(what, all)))
    }

    /// Appends the object.
    fn write(&self, out: &mut Json) {
        out.extend(b"{");
        if let Some((name, text)) = &self.text {
            jsonrpc::write_member(out, name, text);
        }
        // The first comma is left out where it would be the first character.
        let from = usize::from(self.text.is_none());
        out.extend(self.members.bytes().get(from..).unwrap_or_default());
        if !self.warnings.is_empty() {
            jsonrpc::write_member(out, "warnings", &self.warnings);
        }
        out.extend(b"}");
    }
}

/// What the call of a tool came to.
pub(crate) type ToolResult = Result<Outcome, Error>;

/// Appends text items to the list `content`.
fn write_texts<'t>(out: &mut Json, texts: impl Iterator<Item = &'t str>) {
    for text in texts {
        if out.bytes().last() != Some(&b'[') {
            out.extend(b",");
        }
        out.extend(br#"{"type":"text","text":"#);
        jsonrpc::write_json(out, text);
        out.extend(b"}");
    }
}

/// Writes the result of a call, success or failure. A result for which there is no room becomes a failure with the
/// beginning of its text.
pub(crate) fn write(
    outcome: &ToolResult,
    policy: &Policy,
    account: &Account,
    request_id: &str,
    result: &mut ResultWriter,
) {
    let structured = policy.has_structure(result.revision);
    let is_cut = match outcome {
        Ok(outcome) => write_outcome(outcome, structured, account, result),
        Err(error) => {
            write_failure(error, request_id, result);
            result.is_cut()
        }
    };
    if is_cut {
        let (text, error) = match outcome {
            Ok(outcome) => (
                outcome.text.as_ref().map(|(_, text)| text),
                too_large(outcome.run_id),
            ),
            Err(error) => (error.partial.last(), error.clone()),
        };
        let text = text.map(|text| prefix(text, MAX_PARTIAL_TEXT).to_owned());
        let error = Error {
            detail: policy.offered(&error.detail),
            partial: Vec::from_iter(text),
            ..error
        };
        result.restart();
        write_failure(&error, request_id, result);
    }
}

/// The error for an output without room. With a `run_id`, it can be read in parts.
pub(super) fn too_large(run_id: Option<RunId>) -> Error {
    let mut error = no_room();
    if let Some(id) = run_id {
        error.detail = format!(
            "The memory of this server (--max-memory) has no room for the whole output in one answer. \
             Nothing is lost: read it in parts with fabric_get_run, run_id {id} and max_chars. Do not \
             run the pattern again."
        );
    }
    error
}

/// True if there was no room for it.
fn write_outcome(
    outcome: &Outcome,
    structured: bool,
    account: &Account,
    result: &mut ResultWriter,
) -> bool {
    let text = outcome.text.as_ref().map(|(_, text)| text.as_str());
    let mut object = Json::default().charged(account);
    let cached = outcome.names.as_ref().map(|names| names.json());
    if text.is_none() && cached.is_none() {
        outcome.write(&mut object);
    }
    let json = cached.map_or(object.bytes(), |[json, _]| json.as_bytes());
    let length = match (text, cached) {
        (Some(text), _) => jsonrpc::string_len(text),
        (None, Some([_, string])) => string.len(),
        (None, None) => json.len() + json.len() / 4,
    };
    envelope(result);
    let out = result.key("content");
    out.reserve(length * (1 + usize::from(structured)) + FRAME);
    out.extend(b"[");
    if let Some(text) = text {
        let shown = Some(text).filter(|text| !(text.is_empty() && outcome.is_silent));
        let warnings = outcome.warnings.iter().map(String::as_str);
        write_texts(out, shown.into_iter().chain(warnings));
    } else {
        out.extend(br#"{"type":"text","text":"#);
        match cached {
            Some([_, string]) => out.extend(string.as_bytes()),
            None => jsonrpc::write_json_as_string(out, json),
        }
        out.extend(b"}");
    }
    out.extend(b"]");
    if structured {
        let out = result.key("structuredContent");
        match json.is_empty() {
            true => outcome.write(out),
            false => out.extend(json),
        }
    }
    result.field("isError", &false);
    outcome.members.is_cut || object.is_cut || result.is_cut()
}

/// Writes the result of a call that failed: a paragraph, what had arrived, and the error object in `_meta`.
pub(crate) fn write_failure(error: &Error, request_id: &str, result: &mut ResultWriter) {
    envelope(result);
    let (title, urn) = (error.kind.title(), error.kind.urn());
    let said = format!("{title}. {} {urn}", error.detail);
    let partial = error.partial.iter().map(String::as_str);
    let out = result.key("content");
    out.extend(b"[");
    write_texts(out, std::iter::once(said.as_str()).chain(partial));
    out.extend(b"]");
    result.field("isError", &true);
    result.meta("error", &error_object(error, request_id));
}

fn envelope(result: &mut ResultWriter) {
    result.meta("schema_version", &SCHEMA_VERSION);
    result.meta("generated_at", &time::now());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde::Serializer;

    use super::*;
    use crate::account::{Accounts, Resource};
    use crate::protocol::{Id, Revision};

    /// A list of 16 MB, which counts how much of it is written.
    struct LongList(Arc<AtomicUsize>);

    impl Serialize for LongList {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let texts = (0..1 << 20).map(|n| {
                self.0.fetch_add(1, Ordering::Relaxed);
                (n, "0123456789")
            });
            serializer.collect_map(texts)
        }
    }

    #[test]
    fn a_long_list_is_written_only_as_far_as_there_is_room_for_it() {
        let account = Accounts::alone(1 << 20).of("");
        let written = Arc::new(AtomicUsize::new(0));
        let outcome = Outcome::rows(1).charged(&account);
        let outcome = Ok(outcome.member("list", LongList(written.clone())));
        let result = ResultWriter::new(Some(&Id::Number(1.into())), Revision::NEWEST_LEGACY);
        let mut result = result.charged(&account);
        write(&outcome, &Policy::default(), &account, "1", &mut result);
        let answer = String::from_utf8(result.end().body).unwrap();
        assert!(answer.contains("response-too-large"), "{answer}");
        assert!(written.load(Ordering::Relaxed) < 1 << 16);
        drop(outcome);
        assert_eq!(account.held(Resource::Memory), 0);
    }
}
