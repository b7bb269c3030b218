//! A run on its own thread, which outlives the call that started it.
//!
//! ```text
//!   call's thread:  start ──> wait for the end, or until its time is over ──> answer
//!   run's thread:     └─────> Fabric ─▶ Relay ─▶ the store, and the call while it waits ─▶ end, log line
//! ```
//! The run's thread relays output itself, so no piece waits for another thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::budget::Full;
use crate::config::WORKER_STACK;
use crate::fabric::{Error, Kind, Stop, Wait};
use crate::logging;
use crate::runs::{End, Run, RunWriter};
use crate::sync::{lock, wait_while};

use super::{Caller, ChunkKind, Failure, Job, Outcome, Tool, Work};

/// What is known of a run before it begins.
pub(crate) struct Paid {
    /// The patterns, one after the other.
    pub(crate) patterns: Vec<String>,
    /// The model asked for, or empty.
    pub(crate) model: String,
    /// How long its caller wants to wait for it.
    pub(crate) wait: Option<Duration>,
    /// How many characters its caller wants.
    pub(crate) max_chars: Option<usize>,
}

/// The place of a run among those that may run, until it is dropped. Without an end, none of its steps was run.
pub(crate) trait RunSlot: Send {
    /// The run has ended, and so many of its steps went to Fabric. The others were never run.
    fn end(self: Box<Self>, paid: u32);
}

/// A run whose thread has begun.
pub(crate) struct Started {
    /// The run.
    pub(crate) run: Run,
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Ended {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Started {
    /// Waits for the end, `limit` at most. True if it came to that.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        let limit = limit.unwrap_or(Duration::MAX);
        wait_while(&self.ended.changed, lock(&self.ended.over), limit, |over| {
            !*over
        })
        .1
    }
}

/// Starts `job` on its own thread. At its end `held` is released and `told` is called.
///
/// # Errors
/// `too-many-requests`: there is no thread for it.
pub(crate) fn start(
    tool: &'static Tool,
    job: Arc<dyn Job>,
    work: Work,
    writer: RunWriter,
    held: Option<Box<dyn RunSlot>>,
    request_id: &str,
    told: impl FnOnce(&Run) + Send + 'static,
) -> Result<Started, Error> {
    let (run, ended, request_id) = (writer.run(), Arc::<Ended>::default(), request_id.to_owned());
    let started = Started {
        run: run.clone(),
        ended: ended.clone(),
    };
    let writer = Arc::new(writer);
    let relay = Arc::new(Relay {
        writer: writer.clone(),
        caller: work.caller.clone(),
        is_result: AtomicBool::new(false),
        full: AtomicBool::new(false),
        paid: AtomicU32::new(0),
    });
    let work = Work {
        caller: relay.clone(),
        run: Some(run.clone()),
        ..work
    };
    let body = move || {
        let _scopes = (
            work.identity.log_scope(),
            logging::request_scope(&request_id),
        );
        let result = catch_unwind(AssertUnwindSafe(|| {
            super::run(tool, job.as_ref(), &work, &request_id)
        }));
        writer.finish(end(
            result.unwrap_or_else(|_| Err(Error::bug(&request_id).into())),
            &run,
            &request_id,
        ));
        // Announce the end only when it is stored and the run's place is free.
        let paid = relay.paid.load(Ordering::Relaxed);
        drop((job, work, writer, relay));
        if let Some(held) = held {
            held.end(paid);
        }
        told(&run);
        *lock(&ended.over) = true;
        ended.changed.notify_all();
    };
    match thread::Builder::new()
        .name("run".into())
        .stack_size(WORKER_STACK)
        .spawn(body)
    {
        Ok(_) => Ok(started),
        Err(_) => Err(Error::new(
            Kind::TooManyRequests,
            "The system has no thread for this run: nothing was run. Try again in a moment.",
        )),
    }
}

/// What the store keeps of the end.
fn end(result: Result<Outcome, Failure>, run: &Run, request_id: &str) -> End {
    let Failure { error, mut partial } = match result {
        Ok(outcome) => return outcome.end.unwrap_or(End::completed()),
        Err(failure) => failure,
    };
    // The text is in the store already.
    if run.record().bytes > 0 {
        partial.pop();
    }
    let end = if error.kind == Kind::Cancelled {
        End::cancelled()
    } else {
        End::failed(kept_error(&error))
    };
    let mut rest = json!({ "request_id": request_id });
    if !partial.is_empty() {
        rest["partial"] = partial.into();
    }
    end.with_result(rest)
}

fn kept_error(error: &Error) -> Value {
    let mut kept = json!({ "kind": error.kind.name(), "detail": error.detail });
    if let Some(after) = error.retry_after {
        kept["retry_after_ms"] = (after.as_millis() as u64).into();
    }
    kept
}

/// Relays a run's output to the store and to the call.
struct Relay {
    writer: Arc<RunWriter>,
    caller: Arc<dyn Caller>,
    /// Output is part of the result, not of an earlier step.
    is_result: AtomicBool,
    /// The store had no room for what came.
    full: AtomicBool,
    /// Steps that went to Fabric.
    paid: AtomicU32,
}

impl Wait for Relay {
    fn before_blocking(&self) {
        self.caller.before_blocking();
    }

    fn still_waiting(&self) -> Result<(), Stop> {
        if self.writer.is_cancelled() {
            Err(Stop)
        } else {
            self.caller.still_waiting()
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Full> {
        if self.full.load(Ordering::Relaxed) {
            Err(Full)
        } else {
            self.caller.hold(bytes)
        }
    }

    fn release(&self, bytes: usize) {
        self.caller.release(bytes);
    }
}

impl Caller for Relay {
    fn chunk(&self, kind: ChunkKind, format: &str, content: &str) {
        self.caller.chunk(kind, format, content);
        if kind == ChunkKind::Content && self.is_result.load(Ordering::Relaxed) {
            if self.writer.append(content).is_err() {
                self.full.store(true, Ordering::Relaxed);
            }
            // From here on the store charges it.
            self.caller.release(content.len());
        }
    }

    fn flush(&self) {
        self.caller.flush();
    }

    fn begin_step(&self, stream: bool, is_result: bool) {
        self.is_result.store(is_result, Ordering::Relaxed);
        self.caller.begin_step(stream, is_result);
    }

    fn say(&self, message: &str) {
        self.caller.say(message);
    }

    fn paying(&self) {
        self.paid.fetch_add(1, Ordering::Relaxed);
    }
}
