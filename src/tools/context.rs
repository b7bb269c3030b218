//! What a call has all the way down: who calls, in which revision, whom to tell, and whose account pays.
//!
//! One thread does a call. Whenever it waits for Fabric, the context is asked whether to go on ([`Wait`]): there it sends
//! collected text, heartbeats, and, when the caller has waited long enough for a run, an answer that says so. The same
//! thread then goes on with the run.
//!
//! ```text
//!   begin ──▶ working ──▶ end of the run ──▶ answer
//!                └─ time is up ─▶ answer "working" ─▶ end of the run (nothing more is sent)
//! ```
//! Text is collected while it keeps arriving and sent as one notification right before the next read may block: no
//! timers, no added delay, and many small events become few messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::access::{Pass, Role};
use crate::account::{Account, Accounts, Full, Guard, Resource};
use crate::config::{Policy, RunSettings};
use crate::fabric::{Catalog, Client, Error, Kind, Usage, Wait};
use crate::protocol::{
    Answer, Feature, Id, Level, RequestContext, ResultWriter, Revision, Session, jsonrpc,
};
use crate::runs::{Owner, Record, Run, RunWriter, Runs};
use crate::sync::lock;
use crate::text::{counted, prefix};

use super::Tool;
use super::outcome::write;
use super::run_result::result as so_far;
use super::task::created;

/// Silence of Fabric before a heartbeat progress notification.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Most text of one notification, in bytes, so that little waits for a slow reader whatever Fabric sends at once.
const MOST_TEXT: usize = 16 << 10;
/// The level of streamed chunks.
const CHUNK_LEVEL: Level = Level::INFO;
/// The `_meta` key of 2025-11-25 for the task that a message belongs to.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The client of one call. Implemented by transports.
pub(crate) trait Peer: Send + Sync {
    /// Sends one notification: a whole message, one line. Dropped if it cannot be sent: [`Peer::stopped`] tells.
    fn notify(&self, message: &[u8]);

    /// Sends the answer. Called once. `is_over`: the call is done; otherwise its thread goes on with a run.
    fn answer(&self, answer: Answer, is_over: bool);

    /// Has the caller cancelled, or left where that means the same?
    fn stopped(&self) -> bool;

    /// A run begins: there may be something to say before the answer.
    fn begins(&self) {}

    /// Called about every 100 ms while Fabric is silent, to keep the connection alive. `silence`: how long nothing has
    /// come from the run.
    fn idle(&self, _silence: Duration) {}
}

/// What all calls share: Fabric, and the runs.
pub(crate) struct Backend {
    /// Fabric.
    pub(crate) fabric: Arc<Client>,
    /// Its cached lists.
    pub(crate) catalog: Arc<Catalog>,
    /// Which patterns and models may be run.
    pub(crate) policy: Policy,
    /// Every run that is kept.
    pub(crate) runs: Runs,
    /// How long calls wait for runs, and how long these are kept.
    pub(crate) settings: RunSettings,
    /// Whether callers are told apart, so that each may list its own runs.
    pub(crate) lists: bool,
    /// What every caller of a run is told before its output.
    pub(crate) run_note: Option<&'static str>,
    /// What callers hold.
    pub(crate) accounts: Accounts,
}

/// Who calls, and how it can be told.
pub(crate) struct Caller {
    /// Its proof of who it is and what it may do.
    pub(crate) pass: Arc<Pass>,
    /// Its account.
    pub(crate) account: Account,
    /// Whose runs it sees.
    pub(crate) owner: Owner,
    /// Where its answer goes.
    pub(crate) peer: Arc<dyn Peer>,
}

/// What an answer to a call needs.
pub(crate) struct CallHead {
    /// The request's id.
    pub(crate) id: Id,
    /// Its method.
    pub(crate) method: &'static str,
    /// Its revision.
    pub(crate) revision: Revision,
    /// Correlates the answer with its log line.
    pub(crate) request_id: String,
    /// The tool, whose failures are results.
    pub(crate) tool: Option<ToolCall>,
}

/// A tool that is called.
pub(crate) struct ToolCall {
    /// The tool.
    pub(crate) tool: &'static Tool,
    /// Further fields of its log line.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// How long its caller waits for a place, and for its run; `None`: until it ends.
    pub(crate) patience: Option<Duration>,
    /// How long its run is kept at least, if it was asked for as a task (2025-11-25).
    pub(crate) ttl: Option<Duration>,
}

/// The context of one call.
pub(crate) struct Context {
    /// What all calls share.
    pub(crate) backend: Arc<Backend>,
    /// Who calls.
    pub(crate) caller: Caller,
    /// What its answer needs.
    pub(crate) head: Arc<CallHead>,
    /// The request's revision, progress token and the like.
    pub(crate) request: RequestContext,
    /// The state of a legacy connection.
    pub(crate) session: Arc<Session>,
    notes: Mutex<Notes>,
    /// What the call holds of memory.
    memory: Mutex<Guard>,
    /// Its place among the calls that may work.
    place: Mutex<Option<Guard>>,
    answered: AtomicBool,
    /// It had to stop because the process ends.
    aborted: AtomicBool,
    /// The run, if it makes one.
    run: OnceLock<RunWriter>,
    /// When to answer if the run has not ended by then, and with how many characters of its text.
    early: Mutex<Option<(Instant, Option<usize>)>>,
    /// What its steps have used so far, where Fabric reported it.
    usage: Mutex<Option<Usage>>,
    /// The task that the run became: its caller may then leave without cancelling it, and notifications name it
    /// (2025-11-25).
    task: OnceLock<Value>,
}

/// The place of a call among those that may work at once. Taken before it gets a thread.
pub(crate) struct Place {
    /// The place itself, or one in the queue.
    pub(crate) guard: Guard,
    /// Until its answer is written: its thread may wait for a reader long after its work is done.
    pub(crate) open: Guard,
}

impl Place {
    /// A place in `account`.
    ///
    /// # Errors
    /// `too-many-requests`: all are taken, and the queue is full.
    pub(crate) fn take(account: &Account, what: Resource) -> Result<Place, Error> {
        let guard = account.take(what, 1);
        let guard = guard.or_else(|Full| account.take(Resource::Queue, 1));
        let open = account.take(Resource::Open, 1);
        match (guard, open) {
            (Ok(guard), Ok(open)) => Ok(Place { guard, open }),
            _ => Err(busy(account, what)),
        }
    }
}

/// There is no place for another call.
fn busy(account: &Account, what: Resource) -> Error {
    let most = account
        .most(Resource::Runs)
        .filter(|most| what == Resource::Runs && account.held(what) >= *most);
    let why = most.map_or_else(
        || "Too many calls are running and waiting already.".to_owned(),
        |most| {
            format!(
                "You have {} under way, as many as this server takes from one caller.",
                counted(most, "run")
            )
        },
    );
    let detail = format!("{why} Wait for one to end, then try again.");
    Error::new(Kind::TooManyRequests, detail)
}

/// The caller's rate has no room for so many steps; `after` is when it has.
fn rate_is_used_up(account: &Account, steps: u32, after: Option<Duration>) -> Error {
    let per_minute = account.per_minute();
    let detail = match after {
        Some(after) => format!(
            "This server takes at most {} a minute from one caller. Try again in {} s.",
            counted(per_minute, "run"),
            after.as_secs() + 1
        ),
        None => format!(
            "This call counts as {steps} runs, and this server takes at most {per_minute} a minute from one caller. \
             Make several calls of it."
        ),
    };
    let mut error = Error::new(Kind::TooManyRequests, detail);
    error.retry_after = after;
    error
}

/// What is still to be said.
#[derive(Default)]
struct Notes {
    stream_text: bool,
    /// Text to send.
    pending: String,
    /// Characters to count in the next progress, without their text.
    unsaid: u64,
    /// The format of the pending text.
    format: String,
    /// Characters relayed and heartbeats sent: grows with every notification.
    progress: u64,
    /// Time of the last notification, or of the first wait.
    last: Option<Instant>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    progress_token: &'a Id,
    progress: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

#[derive(Serialize)]
struct LogMessage<'a> {
    level: &'a str,
    logger: &'a str,
    data: Chunk<'a>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

/// Fabric's own shape of a piece of output.
#[derive(Serialize)]
struct Chunk<'a> {
    r#type: &'a str,
    format: &'a str,
    content: &'a str,
}

impl Context {
    /// The context of a call that holds `memory` already.
    pub(crate) fn new(
        backend: Arc<Backend>,
        caller: Caller,
        head: Arc<CallHead>,
        request: RequestContext,
        session: Arc<Session>,
        memory: Guard,
    ) -> Context {
        Context {
            backend,
            caller,
            head,
            request,
            session,
            notes: Mutex::default(),
            memory: Mutex::new(memory),
            place: Mutex::default(),
            answered: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            usage: Mutex::default(),
            run: OnceLock::new(),
            early: Mutex::default(),
            task: OnceLock::new(),
        }
    }

    /// The context as Fabric's client waits with it.
    pub(crate) fn wait(self: &Arc<Context>) -> Arc<dyn Wait> {
        self.clone()
    }

    /// Takes the place that the call came with, or waits for `what` as long as its caller has patience.
    ///
    /// # Errors
    /// `too-many-requests`, or `cancelled` if the caller left while it waited.
    pub(crate) fn enter(&self, mut guard: Guard, what: Resource) -> Result<(), Error> {
        let (begun, account) = (Instant::now(), &self.caller.account);
        let patience = self.tool().and_then(|called| called.patience);
        if guard.what() != what {
            let mut left = false;
            let turn = account.wait_for(what, &mut || {
                left = self.still_waiting().is_err();
                !left && patience.is_none_or(|patience| begun.elapsed() < patience)
            });
            guard = turn.ok_or_else(|| match left {
                true => Error::cancelled(),
                false => busy(account, what),
            })?;
        }
        *lock(&self.place) = Some(guard);
        Ok(())
    }

    /// Gives back the place, before an answer to a possibly slow reader.
    pub(crate) fn leave(&self) {
        *lock(&self.place) = None;
    }

    /// Adds what a step of the run used.
    pub(crate) fn add_usage(&self, step: Usage) {
        let mut usage = lock(&self.usage);
        let before = usage.unwrap_or_default();
        *usage = Some(Usage {
            input_tokens: before.input_tokens.saturating_add(step.input_tokens),
            output_tokens: before.output_tokens.saturating_add(step.output_tokens),
            total_tokens: before.total_tokens.saturating_add(step.total_tokens),
        });
    }

    /// What the steps of the run have used so far; `None` if Fabric reported nothing.
    pub(crate) fn usage(&self) -> Option<Usage> {
        *lock(&self.usage)
    }

    /// Asks whether the caller may begin so many steps of a run now.
    ///
    /// # Errors
    /// `forbidden` once its token is gone or has another role, `too-many-requests`, or the server ends.
    pub(crate) fn may_begin(&self, steps: u32) -> Result<(), Error> {
        let Caller {
            pass,
            account,
            peer,
            ..
        } = &self.caller;
        if account.is_closed() {
            return Err(Error::stopped());
        }
        if !self.is_answered() && peer.stopped() {
            return Err(Error::cancelled());
        }
        pass.require(Role::Run)
            .map_err(|refusal| Error::new(Kind::Forbidden, refusal.detail()))?;
        account
            .has_rate(steps)
            .map_err(|after| rate_is_used_up(account, steps, after))
    }

    /// Counts a step of a run, or a transcript, against the caller's rate.
    ///
    /// # Errors
    /// `too-many-requests`, with when to try again.
    pub(crate) fn count(&self) -> Result<(), Error> {
        let account = &self.caller.account;
        account
            .spend()
            .map_err(|after| rate_is_used_up(account, 1, after))
    }

    /// The tool that is called.
    pub(super) fn tool(&self) -> Option<&ToolCall> {
        self.head.tool.as_ref()
    }

    /// The call makes a run with this record from now on. If its caller's patience ends first, the call gets an answer with
    /// so many characters, at most, of the text so far, and the run goes on.
    ///
    /// # Errors
    /// `too-many-requests`: there is no room for a task.
    pub(super) fn begin_run(&self, record: Record, max_chars: Option<usize>) -> Result<(), Error> {
        let (runs, account) = (&self.backend.runs, &self.caller.account);
        let mut limit = self.tool().and_then(|called| called.patience);
        let writer = match self.tool().and_then(|called| called.ttl) {
            None => runs.begin(record, account),
            Some(ttl) => {
                limit = Some(Duration::ZERO);
                let writer = runs.begin_task(record, ttl, account).map_err(|Full| {
                    let detail = "There is no room for another task: too many of yours or in all work or must be kept. \
                                  Try again later, or call without params.task.";
                    Error::new(Kind::TooManyRequests, detail)
                })?;
                let task = json!({ RELATED_TASK: { "taskId": writer.run().id() } });
                let _ = self.task.set(task);
                writer
            }
        };
        // A call makes one run at most.
        let _ = self.run.set(writer);
        self.caller.peer.begins();
        *lock(&self.early) = limit
            .filter(|_| runs.keeps())
            .and_then(|limit| Instant::now().checked_add(limit))
            .map(|at| (at, max_chars));
        self.answer_early();
        Ok(())
    }

    /// The run that this call makes.
    pub(crate) fn run(&self) -> Option<&RunWriter> {
        self.run.get()
    }

    /// Answers before the end of the run, if it is time. Without the lock: the answer may block.
    fn answer_early(&self) {
        let due = lock(&self.early).take_if(|(at, _)| *at <= Instant::now());
        if let (Some((_, max_chars)), Some(writer)) = (due, self.run()) {
            self.flush();
            self.answer(self.answer_so_far(&writer.run(), max_chars), false);
        }
    }

    /// The answer to a call whose run goes on.
    fn answer_so_far(&self, run: &Run, max_chars: Option<usize>) -> Answer {
        let (Backend { runs, settings, .. }, account) = (&*self.backend, &self.caller.account);
        let is_task =
            self.is_task() || self.request.tasks && runs.promise(run, settings.keep).is_ok();
        // Before the caller learns of it.
        run.persist();
        let mut result = ResultWriter::new(&self.head.id, self.head.revision);
        if is_task {
            created(run, settings.keep, &mut result);
        } else {
            let outcome = so_far(
                run,
                max_chars,
                true,
                self.backend.fabric.settings.idle_timeout,
                account,
            );
            write(&outcome, account, &self.head.request_id, &mut result);
        }
        result.end()
    }

    /// Sends the answer, unless there was one. `is_over`: the call is done.
    pub(crate) fn answer(&self, answer: Answer, is_over: bool) {
        if !self.answered.swap(true, Ordering::AcqRel) {
            self.caller.peer.answer(answer, is_over);
        }
    }

    /// Was the call answered?
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Did the call have to stop because the process ends?
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Was it asked for as a task? Then notifications go on after the answer and name it, and leaving no longer cancels the
    /// run.
    pub(super) fn is_task(&self) -> bool {
        self.task.get().is_some()
    }

    /// Does the caller still get messages?
    fn is_told(&self) -> bool {
        !self.is_answered() || self.is_task()
    }

    /// Sends a whole message, if the caller still gets any.
    pub(crate) fn notify(&self, message: &[u8]) {
        if self.is_told() {
            self.caller.peer.notify(message);
        }
    }

    /// Does the caller want the text of what follows as it arrives, not only heartbeats?
    pub(crate) fn stream_text(&self, stream: bool) {
        self.notes().stream_text = stream;
    }

    /// Tells the caller, soon, of a piece of text.
    pub(crate) fn content(&self, format: &str, content: &str) {
        if !self.is_told() {
            return;
        }
        let mut notes = self.notes();
        if !notes.stream_text {
            notes.unsaid += content.chars().count() as u64;
            return;
        }
        if notes.format != format {
            self.flush_pending(&mut notes);
            notes.format = format.to_owned();
        }
        for piece in pieces(content) {
            if notes.pending.len() + piece.len() > MOST_TEXT {
                self.flush_pending(&mut notes);
            }
            notes.pending.push_str(piece);
        }
    }

    /// Tells the caller of another event of Fabric's: its type, and what it says.
    pub(crate) fn event(&self, kind: &str, content: &str) {
        let mut notes = self.notes();
        self.flush_pending(&mut notes);
        if notes.stream_text {
            self.log_chunk(kind, "plain", content);
        }
    }

    /// Sends what is collected.
    pub(crate) fn flush(&self) {
        self.flush_pending(&mut self.notes());
    }

    /// Sends the caller a message about the work, such as which step begins.
    pub(crate) fn say(&self, message: &str) {
        let mut notes = self.notes();
        self.flush_pending(&mut notes);
        self.progress(&mut notes, 1, Some(message));
    }

    /// Locked by the call's thread only, so it never blocks.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }

    fn progress(&self, notes: &mut Notes, step: u64, text: Option<&str>) {
        let Some(progress_token) = &self.request.progress_token else {
            return;
        };
        notes.progress += step;
        notes.last = Some(Instant::now());
        let message = text.filter(|_| self.request.revision.knows(Feature::ProgressMessage));
        let params = Progress {
            progress_token,
            progress: notes.progress,
            message,
            meta: self.task.get(),
        };
        self.notify(&jsonrpc::notification("notifications/progress", &params));
    }

    /// Modern callers request log messages with each request, legacy ones once per connection. For legacy callers
    /// without a level the choice is ours: chunks, unless they get them as progress.
    fn wants_chunks(&self) -> bool {
        let is_legacy = self.request.revision.is_legacy();
        match if is_legacy {
            self.session.level()
        } else {
            self.request.level
        } {
            Some(least) => CHUNK_LEVEL >= least,
            None => is_legacy && self.request.progress_token.is_none(),
        }
    }

    fn log_chunk(&self, kind: &str, format: &str, content: &str) {
        if self.wants_chunks() {
            let data = Chunk {
                r#type: kind,
                format,
                content,
            };
            let params = LogMessage {
                level: CHUNK_LEVEL.name(),
                logger: "fabric_run_pattern",
                data,
                meta: self.task.get(),
            };
            self.notify(&jsonrpc::notification("notifications/message", &params));
        }
    }

    fn flush_pending(&self, notes: &mut Notes) {
        let unsaid = std::mem::take(&mut notes.unsaid);
        if unsaid > 0 {
            self.progress(notes, unsaid, None);
        }
        if notes.pending.is_empty() {
            return;
        }
        let text = std::mem::take(&mut notes.pending);
        self.progress(notes, text.chars().count() as u64, Some(&text));
        self.log_chunk("content", &notes.format, &text);
    }
}

impl Wait for Context {
    fn before_blocking(&self) {
        self.flush();
    }

    fn still_waiting(&self) -> Result<(), Error> {
        if self.run().is_some_and(RunWriter::is_cancelled) {
            return Err(Error::cancelled());
        }
        self.answer_early();
        let is_answered = self.is_answered();
        if !is_answered {
            if self.caller.account.is_aborting() {
                self.aborted.store(true, Ordering::Relaxed);
                return Err(Error::cancelled());
            }
            if self.caller.peer.stopped() {
                return Err(Error::cancelled());
            }
        }
        let mut notes = self.notes();
        self.flush_pending(&mut notes);
        let last = notes.last.get_or_insert_with(Instant::now);
        if last.elapsed() >= HEARTBEAT {
            self.progress(&mut notes, 1, None);
        }
        drop(notes);
        if !is_answered {
            let run = self.run().map(RunWriter::run);
            let silence = run.map_or(Duration::ZERO, |run| run.bare().silence());
            self.caller.peer.idle(silence);
        }
        Ok(())
    }

    fn hold(&self, bytes: usize) -> Result<(), Full> {
        lock(&self.memory).grow(bytes)
    }

    fn release(&self, bytes: usize) {
        lock(&self.memory).shrink(bytes);
    }
}

/// The text in pieces of at most [`MOST_TEXT`] bytes, cut between characters.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let piece = prefix(text, MOST_TEXT);
        text = &text[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Bounds;

    #[test]
    fn a_call_that_is_not_over_counts_even_when_it_has_left_its_place() {
        let mut totals = [8; Resource::COUNT];
        totals[Resource::Open as usize] = 1;
        let account = Accounts::new(Bounds {
            totals,
            runs_per_caller: 0,
            per_minute: 0,
            several: false,
        })
        .of("");
        let Place { guard, open } = Place::take(&account, Resource::Calls).unwrap();
        drop(guard);
        assert_eq!(account.held(Resource::Calls), 0);
        let refused = Place::take(&account, Resource::Runs).err().unwrap();
        assert_eq!(refused.kind, Kind::TooManyRequests);
        drop(open);
        assert!(Place::take(&account, Resource::Calls).is_ok());
    }
}
