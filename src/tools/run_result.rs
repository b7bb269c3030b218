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
pub(super) struct Rest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_chars: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// Output of the earlier steps of a failed run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) partial: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
            let kept = record.error.as_ref();
            let text = |key| kept.and_then(|kept| kept[key].as_str());
            let kind = text("kind").and_then(Kind::named).unwrap_or(Kind::Internal);
            let mut error = Error::new(kind, text("detail").unwrap_or("The reason was not kept."));
            let after = kept.and_then(|kept| kept["retry_after_ms"].as_u64());
            error.retry_after = after.map(Duration::from_millis);
            Some(error)
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
        let mut kept = json!({ "kind": error.kind.name(), "detail": error.detail });
        if let Some(after) = error.retry_after {
            kept["retry_after_ms"] = (after.as_millis() as u64).into();
        }
        (end.state, end.error) = (RunState::Failed, Some(kept));
    }
    let mut rest = json!({ "request_id": request_id });
    if !partial.is_empty() {
        rest["partial"] = partial.into();
    }
    end.result = Some(rest);
    end
}

/// The id of the request that a run was made for, where it failed.
pub(crate) fn request_id(record: &Record) -> Option<String> {
    Rest::of(record).request_id
}

/// The result of a run, or its text so far, cut to `max_chars`. `told`: the caller knows the run's id. `idle_timeout`:
/// after so much silence it is given up.
pub(crate) fn result(
    run: &Run,
    max_chars: Option<usize>,
    told: bool,
    idle_timeout: Duration,
    account: &Account,
) -> Result<Outcome, Failure> {
    let mut memory = account.open(Resource::Memory);
    let mut record = record(run, &mut memory)?;
    let mut rest = Rest::of(&record);
    if let Some(error) = error(&record) {
        let mut partial = rest.partial;
        partial.extend(Some(run.read(0, MAX_PARTIAL_TEXT)).filter(|text| !text.is_empty()));
        return Err(Failure {
            partial,
            ..error.into()
        });
    }
    let max_chars = rest.max_chars.or(max_chars);
    let text = text(run, &record, 0, max_chars, &mut memory).map_err(|error| Failure {
        partial: vec![run.read(0, MAX_PARTIAL_TEXT)],
        ..error.into()
    })?;
    let omitted_chars = max_chars
        .and_then(|max| (run.chars() as usize).checked_sub(max))
        .filter(|n| *n > 0);
    if record.state == RunState::Working {
        rest.warnings.push(format!(
            "The run is still working, and this is its output so far. Call fabric_get_run with run_id {} for the rest; \
             calling fabric_run_pattern again would start, and charge for, another run.",
            record.id
        ));
    } else if let (Some(_), Some(max)) = (omitted_chars, max_chars) {
        let how = match told {
            true => format!(
                "Read the rest with fabric_get_run, run_id {} and offset {max}.",
                record.id
            ),
            false => "Do not run the pattern again only to see the rest.".to_owned(),
        };
        rest.warnings.push(format!(
            "max_chars cut the output to {max} of its {} characters. {how}",
            run.chars()
        ));
    }
    let output = RunOutput {
        output_format: rest.format.unwrap_or_else(|| DEFAULT_FORMAT.to_owned()),
        output_text: text,
        usage: record.usage.take(),
        omitted_chars,
        status: record.state.name(),
        run_id: told.then(|| record.id.to_string()),
        _memory: memory,
    };
    let silence = silence(record.silence(), idle_timeout);
    Ok(Outcome::text(
        output,
        |output| &output.output_text,
        silence,
        rest.warnings,
    ))
}

/// The record of a run; what it holds of memory is added to `memory`.
pub(super) fn record(run: &Run, memory: &mut Guard) -> Result<Record, Error> {
    let length = run.record_length() as usize;
    memory
        .grow(length.saturating_mul(RECORD_FACTOR))
        .map_err(|Full| no_room())?;
    Ok(run.record())
}

/// The text of a run from character `offset` on; what it holds of memory is added to `memory`.
pub(super) fn text(
    run: &Run,
    record: &Record,
    offset: usize,
    max_chars: Option<usize>,
    memory: &mut Guard,
) -> Result<String, Error> {
    let most = max_chars.unwrap_or(MAX_RUN_OUTPUT);
    memory
        .grow(most.saturating_mul(4).min(record.bytes as usize))
        .map_err(|Full| no_room())?;
    Ok(run.read_chars(offset, most))
}

#[derive(Serialize)]
struct RunOutput {
    output_format: String,
    output_text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_chars: Option<usize>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// Of record and text.
    #[serde(skip)]
    _memory: Guard,
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
