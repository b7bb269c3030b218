//! The result of `fabric_run_pattern`, built from the stored run: the same for the call, for tasks, and after a
//! restart.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::account::{Account, Full, Guard, Resource};
use crate::config::{MAX_PARTIAL_TEXT, MAX_RUN_OUTPUT};
use crate::fabric::{Error, Kind, no_room};
use crate::runs::{End, Record, Run, RunState};

use super::{Failure, Outcome};

/// The format of most output.
pub(super) const DEFAULT_FORMAT: &str = "markdown";

/// Silence of a run that its caller is told of.
const SILENCE: Duration = Duration::from_secs(30);
/// A record that is read from its file takes about so many times its length: as values, and their copies.
const RECORD_FACTOR: usize = 4;

/// What the store keeps of a result beside text and usage.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Rest {
    pub(super) format: Option<String>,
    pub(super) max_chars: Option<usize>,
    pub(super) warnings: Vec<String>,
    /// Output of the earlier steps of a failed run.
    pub(super) partial: Vec<String>,
    pub(super) request_id: Option<String>,
}

impl Rest {
    pub(super) fn of(record: &Record) -> Rest {
        record
            .result
            .as_ref()
            .and_then(|rest| Rest::deserialize(rest).ok())
            .unwrap_or_default()
    }
}

/// What a caller is told of a run from which nothing has come for so long; `None` if that is usual. `limit` is how long
/// it may be silent.
pub(crate) fn silence(silence: Duration, limit: Duration) -> Option<String> {
    (silence >= SILENCE).then(|| {
        format!(
            "Nothing has arrived for {} s; Fabric gives no sign when its model fails; the run is given up after {} s.",
            silence.as_secs(),
            limit.as_secs()
        )
    })
}

/// Why a run failed.
pub(super) fn error(record: &Record) -> Option<Error> {
    match record.state {
        RunState::Working | RunState::Completed => None,
        RunState::Cancelled => Some(Error::cancelled()),
        RunState::Interrupted => Some(Error::stopped()),
        RunState::Failed => {
            let kept = record.error.as_ref().unwrap_or(&Value::Null);
            let kind = kept["kind"].as_str().and_then(Kind::named);
            let detail = kept["detail"]
                .as_str()
                .unwrap_or("The reason was not kept.");
            Some(Error {
                retry_after: kept["retry_after_ms"].as_u64().map(Duration::from_millis),
                ..Error::new(kind.unwrap_or(Kind::Internal), detail)
            })
        }
    }
}

/// What the store keeps of the end of `run`.
pub(crate) fn end(result: Result<Outcome, Failure>, run: &Run, request_id: &str) -> End {
    let Failure {
        error, mut partial, ..
    } = match result {
        Ok(outcome) => return outcome.end.unwrap_or(End::of(RunState::Completed)),
        Err(failure) => failure,
    };
    // The text is in the store already.
    if run.record().bytes > 0 {
        partial.pop();
    }
    let mut end = End::of(RunState::Cancelled);
    if error.kind != Kind::Cancelled {
        let after = error.retry_after.map(|after| after.as_millis() as u64);
        let kind = error.kind.name();
        let kept = json!({ "kind": kind, "detail": error.detail, "retry_after_ms": after });
        (end.state, end.error) = (RunState::Failed, Some(kept));
    }
    let rest = Rest {
        partial,
        request_id: Some(request_id.to_owned()),
        ..Rest::default()
    };
    end.result = Some(json!(rest));
    end
}

/// The id of the request that a run was made for, where it failed.
pub(crate) fn request_id(record: &Record) -> Option<String> {
    Rest::of(record).request_id
}

/// The result of a run, or its text so far. `told`: the caller knows the run's id. `idle_timeout`: after so much silence
/// it is given up.
pub(crate) fn result(
    run: &Run,
    told: bool,
    idle_timeout: Duration,
    account: &Account,
) -> Result<Outcome, Failure> {
    let partial = || Some(run.read(0, MAX_PARTIAL_TEXT)).filter(|text| !text.is_empty());
    let (record, memory) = record(run, account)?;
    let rest = Rest::of(&record);
    if let Some(error) = error(&record) {
        return Err(Failure {
            partial: rest.partial.into_iter().chain(partial()).collect(),
            ..error.into()
        });
    }
    let max_chars = rest.max_chars.unwrap_or(MAX_RUN_OUTPUT);
    let mut outcome =
        output(run, &record, 0, max_chars, memory, idle_timeout).map_err(|error| Failure {
            partial: partial().into_iter().collect(),
            ..error.into()
        })?;
    let all = run.chars();
    let omitted_chars = all.saturating_sub(max_chars as u64);
    let id = record.id;
    if record.state == RunState::Working {
        let text = outcome.text.as_ref();
        let end = text.map_or(0, |(_, text)| text.chars().count());
        outcome.warnings.push(format!(
            "The run is still working, and this is its output so far. Call fabric_get_run with run_id {id} and offset \
             {end} for the rest; calling fabric_run_pattern again would start, and charge for, another run."
        ));
    } else if omitted_chars > 0 {
        let how = match told {
            true => {
                format!("Read the rest with fabric_get_run, run_id {id} and offset {max_chars}.")
            }
            false => "Do not run the pattern again only to see the rest.".to_owned(),
        };
        outcome.warnings.push(format!(
            "max_chars cut the output to {max_chars} of its {all} characters. {how}"
        ));
    }
    Ok(outcome
        .optional(
            "omitted_chars",
            (omitted_chars > 0).then_some(omitted_chars),
        )
        .optional("run_id", told.then_some(id)))
}

/// The record of a run, and what it holds of memory.
pub(super) fn record(run: &Run, account: &Account) -> Result<(Record, Guard), Error> {
    let length = run.record_length() as usize;
    let memory = account.take(Resource::Memory, length.saturating_mul(RECORD_FACTOR));
    memory
        .map(|memory| (run.record(), memory))
        .map_err(|Full| no_room())
}

/// The text of a run from character `offset` on, and what else each result has of it. Text and `record` are charged to
/// `memory`.
pub(super) fn output(
    run: &Run,
    record: &Record,
    offset: usize,
    max_chars: usize,
    mut memory: Guard,
    idle_timeout: Duration,
) -> Result<Outcome, Error> {
    memory
        .grow(max_chars.saturating_mul(4).min(record.bytes as usize))
        .map_err(|Full| no_room())?;
    let rest = Rest::of(record);
    let silence = silence(record.silence(), idle_timeout);
    let outcome = Outcome {
        is_silent: silence.is_some(),
        memory: Some(memory),
        ..Outcome::text("output_text", run.read_chars(offset, max_chars))
    };
    let format = rest.format.as_deref().unwrap_or(DEFAULT_FORMAT);
    Ok(outcome
        .member("output_format", format)
        .member("status", record.state.name())
        .optional("usage", record.usage.as_ref())
        .warn(silence)
        .warn(rest.warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_once_it_is_long() {
        let told = |seconds| silence(Duration::from_secs(seconds), Duration::from_secs(300));
        assert_eq!(told(29), None);
        assert_eq!(
            told(40).as_deref(),
            Some(
                "Nothing has arrived for 40 s; Fabric gives no sign when its model fails; the run is given up after 300 s."
            )
        );
    }
}
