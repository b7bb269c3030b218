//! The metadata of a run, in memory and in its file: everything but the text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::access::Identity;
use crate::os::random;
use crate::table::table;

use super::ledger::Asked;

/// The id of a run: `run_` and 32 lower-case hex digits that nobody can guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(u128);

impl RunId {
    const PREFIX: &str = "run_";

    pub(super) fn new() -> RunId {
        RunId(random::number())
    }

    /// Reads what [`RunId`]'s `Display` writes, and nothing else.
    pub(crate) fn parse(text: &str) -> Option<RunId> {
        let number = text.strip_prefix(RunId::PREFIX)?;
        random::parse(number).map(RunId)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:032x}", RunId::PREFIX, self.0)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RunId, D::Error> {
        let text = String::deserialize(deserializer)?;
        RunId::parse(&text).ok_or_else(|| serde::de::Error::custom("not a run's id"))
    }
}

table! {
    /// The state of a run, with its name in files and answers.
    ///
    /// ```text
    ///   working ──> completed | failed | cancelled | interrupted
    /// ```
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    RunState: &'static str as pub(crate) name {
        /// Text may still come.
        #[default]
        Working = "working";
        /// The run ended without an error.
        Completed = "completed";
        /// The run ended with an error.
        Failed = "failed";
        /// The caller cancelled the run.
        Cancelled = "cancelled";
        /// The process ended before the run did.
        Interrupted = "interrupted";
    }
}

/// A run without its text. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The version of the file format; see [`VERSION`].
    pub(super) version: u32,
    pub(crate) id: RunId,
    /// The owner, to whom alone the run is visible. Without authentication, it is visible to everybody who knows its
    /// id, and not listed.
    pub(crate) owner: Identity,
    /// The patterns it runs, in this order.
    pub(crate) patterns: Vec<String>,
    /// The model that was asked for; empty for Fabric's default.
    pub(crate) model: String,
    pub(crate) state: RunState,
    /// When it began.
    pub(crate) created: u64,
    /// When something last changed.
    pub(crate) updated: u64,
    /// When it ended.
    pub(crate) ended: Option<u64>,
    /// How many milliseconds from its end it is kept, by whichever process: what `--keep-runs` was where it began.
    pub(super) keep: u64,
    /// For a task: how many milliseconds from `created` it must be kept.
    pub(crate) ttl: Option<u64>,
    /// Bytes of text.
    pub(crate) bytes: u64,
    /// Characters of text; `None` for a run that works in another process, until they are counted: [`Run::chars`].
    ///
    /// [`Run::chars`]: super::Run::chars
    pub(crate) chars: Option<u64>,
    /// The step whose model was asked and has no line in the ledger yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Asked>,
    /// Lines of steps that have ended, as long as they are perhaps not in the ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lines: Vec<String>,
    /// What its worker reported at its end.
    #[serde(flatten)]
    pub(crate) report: RunReport,
}

/// What the worker of a run reports at its end, beside the text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunReport {
    /// What it used.
    pub(crate) usage: Option<Value>,
    /// Why it failed.
    pub(crate) error: Option<RunError>,
    /// Format of the text.
    pub(crate) format: Option<String>,
    /// How many characters of the text its caller wants.
    pub(crate) max_chars: Option<usize>,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
    /// Output of the earlier steps, unless the run completed.
    pub(crate) partial: Vec<String>,
    /// The id of the request that the run was made for, unless it completed.
    pub(crate) request_id: Option<String>,
}

/// Why a run failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunError {
    /// Name of the kind of failure.
    pub(crate) kind: String,
    /// What happened, for people.
    pub(crate) detail: String,
    /// When to try again.
    pub(crate) retry_after_ms: Option<u64>,
}

impl Record {
    /// Of a run that is to begin: [`Runs::begin`] says when that was.
    ///
    /// [`Runs::begin`]: super::Runs::begin
    pub(crate) fn new(owner: Identity, patterns: Vec<String>, model: String) -> Record {
        Record {
            version: VERSION,
            id: RunId::new(),
            owner,
            patterns,
            model,
            chars: Some(0),
            ..Record::default()
        }
    }

    /// The same without what its worker reported.
    pub(super) fn bare(mut self) -> Arc<Record> {
        (self.asked, self.lines, self.report) = (None, Vec::new(), RunReport::default());
        Arc::new(self)
    }

    /// Does it have more than `seen` bytes of text, or has it ended?
    pub(super) fn has_news(&self, seen: u64) -> bool {
        self.bytes > seen || self.state != RunState::Working
    }

    /// Has it ended, with all its lines in the ledger?
    pub(super) fn is_settled(&self) -> bool {
        self.state != RunState::Working && self.lines.is_empty()
    }

    /// Notes that the run ends `now`.
    pub(super) fn end(&mut self, state: RunState, now: u64) {
        (self.state, self.updated, self.ended) = (state, now, Some(now));
    }

    /// Does it work in another process?
    pub(super) fn is_elsewhere(&self) -> bool {
        self.chars.is_none()
    }

    /// Bytes of what its worker reported beside the text, as JSON.
    pub(crate) fn rest(&self) -> usize {
        serde_json::to_vec(&self.report).map_or(0, |json| json.len())
    }
}

/// The version of the metadata file that this program writes and reads. Files of other versions are left alone.
pub(super) const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_are_written_and_read_in_one_way() {
        let id = RunId::new();
        assert_eq!(RunId::parse(&id.to_string()), Some(id));
        let text = "run_000000000000000000000000000000ff";
        assert_eq!(RunId::parse(text), Some(RunId(255)));
        assert_eq!(RunId(255).to_string(), text);
        let all = "|run_|ff|run_ff|run_000000000000000000000000000000FF|\
                   RUN_000000000000000000000000000000ff|run_+00000000000000000000000000000ff|\
                   run_000000000000000000000000000000ff |run_0000000000000000000000000000000ff|\
                   run_../../../../../../../etc/passwd0|run_é0000000000000000000000000000ff";
        for other in all.split('|') {
            assert_eq!(RunId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_record_is_these_bytes() {
        let mut record = Record::new(Identity::Named("a".into()), vec!["p".into()], "m".into());
        (record.id, record.created, record.updated) = (RunId(1), 5, 5);
        record.report.usage = Some(json!({"output_tokens": 7}));
        let text = r#"{"version":1,"id":"run_00000000000000000000000000000001","owner":{"named":"a"},"patterns":["p"],"model":"m","state":"working","created":5,"updated":5,"ended":null,"keep":0,"ttl":null,"bytes":0,"chars":0,"usage":{"output_tokens":7},"error":null,"format":null,"max_chars":null,"warnings":[],"partial":[],"request_id":null}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<Record>(text).unwrap(), record);
    }

    #[test]
    fn a_state_has_one_name() {
        for state in RunState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
