//! The result of `fabric_run_pattern`, built from the stored run: the same for the call, for tasks, and after a
//! restart.

use std::time::Duration;

use crate::account::{Account, Full, Guard, Resource};
use crate::config::{MAX_PARTIAL_TEXT, MAX_RUN_OUTPUT};
use crate::fabric::{Error, Kind, no_room};
use crate::runs::{Record, Rest, Run, RunError, RunReport, RunState, RunWriter};

use super::{Backend, Failure, Outcome};

/// The format of most output.
pub(super) const DEFAULT_FORMAT: &str = "markdown";

/// Silence of a run that its caller is told of.
const SILENCE: Duration = Duration::from_secs(30);
/// How many copies of what a run's worker reported exist at once, until it is in a result.
const COPIES: usize = 4;

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
            let kept = record.report.error.clone().unwrap_or_default();
            let kind = Kind::named(&kept.kind).unwrap_or(Kind::Internal);
            Some(Error {
                retry_after: kept.retry_after_ms.map(Duration::from_millis),
                ..Error::new(kind, kept.detail)
            })
        }
    }
}

/// Stores the end of a run.
pub(crate) fn finish(run: &RunWriter, result: Result<Outcome, Failure>, request_id: &str) {
    let mut failure = match result {
        Ok(outcome) => return run.finish(RunState::Completed, outcome.report),
        Err(failure) => failure,
    };
    // The text is in the store already.
    if run.run().record().bytes > 0 {
        failure.partial.pop();
    }
    let error = failure.error;
    let end = match error.kind {
        Kind::Cancelled => RunState::Cancelled,
        _ => RunState::Failed,
    };
    let report = RunReport {
        usage: None,
        error: Some(RunError {
            kind: error.kind.name().to_owned(),
            detail: error.detail,
            retry_after_ms: error.retry_after.map(|after| after.as_millis() as u64),
        }),
        result: Rest {
            partial: failure.partial,
            request_id: Some(request_id.to_owned()),
            ..Rest::default()
        },
    };
    run.finish(end, report);
}

/// The result of a run, or its text so far.
pub(crate) fn result(run: &Run, backend: &Backend, account: &Account) -> Result<Outcome, Failure> {
    let (record, memory) = record(run, account)?;
    let (id, rest) = (record.id, &record.report.result);
    let failed = |error: Error| {
        let text = Some(run.read(0, MAX_PARTIAL_TEXT)).filter(|text| !text.is_empty());
        Failure {
            partial: rest.partial.iter().cloned().chain(text).collect(),
            ..error.into()
        }
    };
    if let Some(error) = error(&record) {
        return Err(failed(error));
    }
    let max_chars = rest.max_chars.unwrap_or(MAX_RUN_OUTPUT);
    let mut outcome = output(run, &record, 0, max_chars, memory, backend).map_err(failed)?;
    let (all, keeps) = (run.chars(), backend.runs.keeps());
    let omitted_chars = Some(all.saturating_sub(max_chars as u64)).filter(|chars| *chars > 0);
    if record.state == RunState::Working {
        let text = outcome.text.as_ref();
        let end = text.map_or(0, |(_, text)| text.chars().count());
        outcome.warnings.push(format!(
            "The run is still working, and this is its output so far. Call fabric_get_run with run_id {id} and offset \
             {end} for the rest; calling fabric_run_pattern again would start, and charge for, another run."
        ));
    } else if omitted_chars.is_some() {
        let rest =
            format!("Read the rest with fabric_get_run, run_id {id} and offset {max_chars}.");
        let how = match keeps {
            true => &rest,
            false => "Do not run the pattern again only to see the rest.",
        };
        outcome.warnings.push(format!(
            "max_chars cut the output to {max_chars} of its {all} characters. {how}"
        ));
    }
    Ok(outcome
        .optional("omitted_chars", omitted_chars)
        .optional("run_id", keeps.then_some(id)))
}

/// The record of a run, and what it holds of memory.
pub(super) fn record(run: &Run, account: &Account) -> Result<(Record, Guard), Error> {
    let record = run.record();
    let memory = account.take(Resource::Memory, record.rest() * COPIES);
    Ok((record, memory.map_err(|Full| no_room())?))
}

/// The text of a run from character `offset` on, and what else each result has of it. Text and `record` are charged to
/// `memory`.
pub(super) fn output(
    run: &Run,
    record: &Record,
    offset: usize,
    max_chars: usize,
    mut memory: Guard,
    backend: &Backend,
) -> Result<Outcome, Error> {
    memory
        .grow(max_chars.saturating_mul(4).min(record.bytes as usize))
        .map_err(|Full| no_room())?;
    let rest = &record.report.result;
    let silence = silence(record.silence(), backend.fabric.settings.idle_timeout);
    let outcome = Outcome {
        is_silent: silence.is_some(),
        memory: Some(memory),
        ..Outcome::text("output_text", run.read_chars(offset, max_chars))
    };
    let format = rest.format.as_deref().unwrap_or(DEFAULT_FORMAT);
    Ok(outcome
        .member("output_format", format)
        .member("status", record.state.name())
        .optional("usage", record.report.usage.as_ref())
        .warn(silence)
        .warn(rest.warnings.iter().cloned()))
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
