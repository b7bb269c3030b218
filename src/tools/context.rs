//! What a call has from its beginning to its end: who calls, in which revision, whom to tell, and whose account pays.
//!
//! One thread does a call. Whenever the thread waits for Fabric, it asks the context whether to go on
//! ([`CallObserver`]). The context then sends collected text and heartbeats and, when the caller has waited long enough
//! for a run, an answer that says so. The same thread then goes on with the run.
//!
//! ```text
//!   begin ──▶ working ──▶ end of the run ──▶ answer
//!                └─ time is up ─▶ answer "working" ─▶ end of the run (nothing more is sent)
//! ```
//! Text is collected while it keeps arriving and sent as one notification right before the next read may block: no
//! timers, no added delay, and many small events become few messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::access::{Allowance, Caller, Role};
use crate::account::{Account, Accounts, QuotaExceeded, Reservation, Resource};
use crate::config::{Policy, RunSettings};
use crate::fabric::{CallObserver, Catalog, Client, Error, Kind, Observer, Until, Usage, no_room};
use crate::protocol::{
    Answer, Feature, Id, Json, Level, Refusal, RequestContext, ResultWriter, jsonrpc,
};
use crate::runs::{Record, RunWriter, Runs};
use crate::sync::lock;
use crate::text::{counted, prefix};
use crate::time::{milliseconds_now, next_month, parse, whole};

use super::Tool;
use super::outcome::write;
use super::run_result::{result as so_far, task, write_task};

/// Silence of Fabric before a heartbeat progress notification.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a call whose run has no room to be kept looks whether there is some.
const NO_ROOM: Duration = Duration::from_secs(1);
/// How long names are looked up for a call whose arguments are wrong anyway: a Fabric that hangs must not delay the
/// answer.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(2);
/// Most text of one notification, in bytes, so that little waits for a slow reader whatever Fabric sends at once.
const MOST_TEXT: usize = 16 << 10;
/// The level of streamed chunks.
const CHUNK_LEVEL: Level = Level::INFO;
/// The `_meta` key of 2025-11-25 for the task that a message belongs to.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The client of one call. Implemented by transports.
pub(crate) trait Peer: Send + Sync {
    /// Sends one notification, a whole message on one line, unless `wanted` says no. `wanted` is asked when it is this
    /// message's turn, so that an answer after a cancellation comes after everything of the cancelled call. A message
    /// that cannot be sent is dropped; [`Peer::stopped`] says so then.
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool);

    /// Sends the answer. Called once. The call's thread may go on with a run.
    fn answer(&self, answer: Answer);

    /// Has the caller cancelled, or left, where leaving means cancelling?
    fn stopped(&self) -> bool;

    /// A run begins: there may be something to say before the answer.
    fn begins(&self) {}

    /// Called about every 100 ms while Fabric is silent, to keep the connection alive. `silence`: how long nothing has
    /// come from the run.
    fn idle(&self, _silence: Duration) {}
}

/// What all calls share: Fabric, and the runs.
pub(crate) struct Backend {
    pub(crate) fabric: Arc<Client>,
    pub(crate) catalog: Arc<Catalog>,
    /// Which patterns and models may be run.
    pub(crate) policy: Policy,
    /// Every run that is kept.
    pub(crate) runs: Arc<Runs>,
    /// How long calls wait for runs, and how long these are kept.
    pub(crate) settings: RunSettings,
    /// Whether callers are told apart, so that each may list its own runs.
    pub(crate) lists: bool,
    /// A note that every caller of a run gets before the output.
    pub(crate) run_note: Option<&'static str>,
    /// What callers hold.
    pub(crate) accounts: Accounts,
}

/// A request with a checked envelope, as far as its answer needs it.
pub(crate) struct CallHead {
    pub(crate) caller: Arc<Caller>,
    /// The request's id.
    pub(crate) id: Id,
    /// Its method.
    pub(crate) method: &'static str,
    /// Its revision, progress token and the like.
    pub(crate) request: RequestContext,
    /// Correlates the answer with its log line.
    pub(crate) request_id: String,
    /// The tool, whose failures are results.
    pub(crate) tool: Option<&'static Tool>,
    /// How long its run is kept at least, if it was asked for as a task (2025-11-25).
    pub(crate) ttl: Option<Duration>,
    /// What follows from its arguments.
    pub(crate) plan: CallPlan,
}

/// What the arguments of a call say about how it is done. By default it needs a thread and nothing else.
#[derive(Default)]
pub(crate) struct CallPlan {
    /// The resource of which it takes one while it works.
    pub(crate) needs: Resource,
    /// Further fields of its log line, such as the pattern and the model.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// How long its caller wants to wait for its run.
    pub(crate) run_wait: Option<Duration>,
    /// What is wrong with its arguments. Names in them are then only looked up, to tell what is wrong with those too.
    pub(crate) fault: Option<Error>,
}

impl CallHead {
    /// Begins the result.
    pub(crate) fn result(&self) -> ResultWriter {
        ResultWriter::new(Some(&self.id), self.request.revision)
    }
}

/// Does a call and writes the members of its result.
pub(crate) type MethodWork =
    Box<dyn FnOnce(&Arc<Context>, &mut ResultWriter) -> Result<(), Refusal> + Send>;

/// The context of one call.
pub(crate) struct Context {
    pub(crate) backend: Arc<Backend>,
    /// Where its answer goes.
    pub(crate) peer: Arc<dyn Peer>,
    /// What its answer needs.
    pub(crate) head: Arc<CallHead>,
    /// The memory that the call takes.
    pub(crate) memory: Mutex<Reservation>,
    /// How far the call has come.
    pub(crate) state: ContextState,
    /// When a call with wrong arguments is answered with what is known by then.
    pub(crate) looks_up_until: Instant,
}

/// How far a call has come.
#[derive(Default)]
pub(crate) struct ContextState {
    /// Locked by the call's thread only, so that it may be held over a write.
    progress: Mutex<PendingProgress>,
    /// Its place among the calls that may work.
    slot: Mutex<Option<Reservation>>,
    answered: AtomicBool,
    /// The run, if it makes one.
    run: OnceLock<RunWriter>,
    /// When to answer if the run has not ended by then.
    early: Mutex<Option<Instant>>,
    /// What its steps have used so far, where Fabric reported it.
    usage: Mutex<Option<Usage>>,
}

/// A place for a call among those that may work at once or wait in the queue, and one until its answer is written,
/// because its thread may wait for a reader long after the work is done. Taken before the call gets a thread.
///
/// # Errors
/// `too-many-requests`: all are taken, and the queue is full.
pub(crate) fn reserve_slots(
    account: &Account,
    what: Resource,
) -> Result<(Reservation, Reservation), Error> {
    let slot = account.take(what, 1);
    let has_most = reached(account, what).is_some();
    let slot = slot.or_else(|full| match has_most && !account.is_alone() {
        true => Err(full),
        false => account.take(Resource::Queue, 1),
    });
    let both = slot.and_then(|slot| Ok((slot, account.take(Resource::CallThreads, 1)?)));
    both.map_err(|QuotaExceeded| busy(account, what))
}

/// The most that a caller may hold of this, if the caller holds that much.
fn reached(account: &Account, what: Resource) -> Option<usize> {
    let most = account.most(what);
    (account.held(what) >= most).then_some(most)
}

/// There is no place for another call.
fn busy(account: &Account, what: Resource) -> Error {
    let why = match reached(account, what) {
        None => format!(
            "Too many calls are running and waiting already.{}",
            account.holding(what)
        ),
        Some(most) => format!(
            "You have {} under way, which is as many as this server allows one caller.",
            counted(most, "run")
        ),
    };
    let detail = format!("{why} Wait for one to end, then try again.");
    Error::new(Kind::TooManyRequests, detail)
}

/// Progress that the caller has not been told yet.
#[derive(Default)]
struct PendingProgress {
    stream_text: bool,
    /// Text to send, or only to count.
    text: String,
    /// The format of the pending text.
    format: String,
    /// Characters relayed and heartbeats sent: grows with every notification.
    sent: u64,
    /// Time of the last notification, or of the first wait.
    last: Option<Instant>,
}

impl Context {
    pub(crate) fn caller(&self) -> &Caller {
        &self.head.caller
    }

    /// What the caller holds.
    pub(crate) fn account(&self) -> &Account {
        &self.caller().account
    }

    /// The context as Fabric's client waits with it.
    pub(crate) fn observer(self: &Arc<Context>) -> Observer {
        match &self.head.plan.fault {
            Some(_) => Arc::new(Until {
                until: self.looks_up_until,
                observer: self.clone(),
            }),
            None => self.clone(),
        }
    }

    /// Passes on only a cancellation: an unreadable list, or one that takes too long, does not prevent a call.
    pub(super) fn unless_cancelled<T>(&self, read: Result<T, Error>) -> Result<Option<T>, Error> {
        match read {
            Err(error) if error.kind == Kind::Cancelled => self.still_waiting().map(|()| None),
            read => Ok(read.ok()),
        }
    }

    /// Takes the place that the call came with, or waits for the right one as long as its caller has patience.
    ///
    /// # Errors
    /// `too-many-requests`, or `cancelled` if the caller left while it waited.
    pub(crate) fn enter(&self, mut guard: Reservation) -> Result<(), Error> {
        let what = self.head.plan.needs;
        if guard.what != what {
            let turn = self.turn(what)?;
            guard = turn.ok_or_else(|| busy(self.account(), what))?;
        }
        *lock(&self.state.slot) = Some(guard);
        Ok(())
    }

    /// Waits for one of a resource as long as the caller has patience; `None` once it has none.
    ///
    /// # Errors
    /// `cancelled` if the caller left meanwhile.
    pub(super) fn turn(&self, what: Resource) -> Result<Option<Reservation>, Error> {
        let (begun, patience, mut waiting) = (Instant::now(), self.patience(false), Ok(()));
        let turn = self.account().wait_for(what, &mut || {
            waiting = self.still_waiting();
            waiting.is_ok() && patience.is_none_or(|patience| begun.elapsed() < patience)
        });
        waiting.map(|()| turn)
    }

    /// Gives back the place, before an answer to a possibly slow reader.
    pub(crate) fn leave(&self) {
        *lock(&self.state.slot) = None;
    }

    /// Adds what a step of the run used.
    pub(crate) fn add_usage(&self, step: Usage) {
        let mut usage = lock(&self.state.usage);
        let before = usage.unwrap_or_default();
        *usage = Some(Usage {
            input_tokens: before.input_tokens.saturating_add(step.input_tokens),
            output_tokens: before.output_tokens.saturating_add(step.output_tokens),
            total_tokens: before.total_tokens.saturating_add(step.total_tokens),
        });
    }

    /// What the steps of the run have used so far; `None` if Fabric reported nothing.
    pub(crate) fn usage(&self) -> Option<Usage> {
        *lock(&self.state.usage)
    }

    /// Asks whether the caller may begin this many steps of a run now; returns what the caller may do.
    ///
    /// # Errors
    /// `forbidden` once its token is gone or has another role, `too-many-requests`, or the server ends.
    pub(crate) fn may_begin(&self, steps: u32) -> Result<Arc<Allowance>, Error> {
        // A run that has begun may go on with its next step while the process waits for runs to end.
        if self.run().is_none() && self.account().is_closed() {
            return Err(Error::stopped());
        }
        self.still_waiting()?;
        let allowance = self.allowance(Role::Run)?;
        self.rate(&allowance, steps, false)?;
        Ok(allowance)
    }

    fn allowance(&self, role: Role) -> Result<Arc<Allowance>, Error> {
        let allowance = self.caller().require(role);
        allowance.map_err(|refusal| Error::new(Kind::Forbidden, refusal.detail()))
    }

    /// Refuses a run whose caller has no tokens left for this month, or fewer than its input has.
    ///
    /// # Errors
    /// `too-many-requests`, with the number of tokens left, and when the count starts again.
    pub(crate) fn may_use(&self, allowance: &Allowance, input: u64) -> Result<(), Error> {
        let Some(budget) = allowance.tokens_per_month else {
            return Ok(());
        };
        let left = budget.saturating_sub(self.backend.runs.used(&self.caller().identity));
        if left >= input.max(1) {
            return Ok(());
        }
        let now = milliseconds_now();
        let renewed = next_month(now);
        let again = parse(&renewed).map(|again| Duration::from_millis(again.saturating_sub(now)));
        let detail = format!(
            "You may use {budget} model tokens a month; {left} are left, and this input has about \
             {input}. You get the full number again on {renewed} (UTC). Nothing was run."
        );
        Err(Error {
            retry_after: again,
            ..Error::new(Kind::TooManyRequests, detail)
        })
    }

    /// Counts a step of a run, or a transcript, against the caller's rate.
    ///
    /// # Errors
    /// `too-many-requests`, with when to try again.
    pub(crate) fn count(&self) -> Result<(), Error> {
        self.rate(&*self.allowance(self.caller().role)?, 1, true)
    }

    fn rate(&self, allowance: &Allowance, steps: u32, counts: bool) -> Result<(), Error> {
        let (rate, usual) = self.account().rate();
        let per_minute = allowance.runs_per_minute.unwrap_or(usual);
        let Err(retry_after) = rate.take(per_minute, steps, Instant::now(), counts) else {
            return Ok(());
        };
        let detail = match retry_after {
            Some(after) => format!(
                "You may begin at most {} a minute. Try again in {} s.",
                counted(per_minute, "run"),
                after.as_secs() + 1
            ),
            None => format!(
                "This call counts as {steps} runs, and you may begin at most {per_minute} a minute. \
                 Split it into several calls."
            ),
        };
        Err(Error {
            retry_after,
            ..Error::new(Kind::TooManyRequests, detail)
        })
    }

    /// How long the caller waits for its run or for a place; `None`: until it ends. Only a run can become a task.
    fn patience(&self, is_for_run: bool) -> Option<Duration> {
        let (settings, request) = (&self.backend.settings, &self.head.request);
        let within = Some(settings.answer_within).filter(|within| !within.is_zero());
        // With a progress token, the caller wants output as it arrives, which tasks do not send.
        let as_task = is_for_run && request.tasks && request.progress_token.is_none();
        let task_after = as_task.then_some(settings.task_after);
        let usual = task_after.into_iter().chain(within).min();
        self.head.tool?;
        let plan = &self.head.plan;
        let look_up = plan.fault.as_ref().map(|_| LOOK_UP);
        look_up.or(plan.run_wait).or(usual)
    }

    /// The call makes a run with this record from now on. If its caller's patience ends first, the call gets an answer with
    /// the text so far, and the run goes on.
    ///
    /// # Errors
    /// `too-many-requests`: there is no room for the run, and nothing was begun.
    pub(super) fn begin_run(&self, mut record: Record) -> Result<(), Error> {
        let (runs, account) = (&self.backend.runs, self.account());
        let ttl = self.head.ttl;
        record.ttl = ttl.map(whole);
        record.report.request_id = Some(self.head.request_id.clone());
        let writer = runs.begin(record, account).map_err(|QuotaExceeded| {
            let detail = format!(
                "There is no room for another run.{} Try again later.",
                account.holding(Resource::Kept)
            );
            Error::new(Kind::TooManyRequests, detail)
        })?;
        let limit = ttl.map(|_| Duration::ZERO).or_else(|| self.patience(true));
        let limit = limit.filter(|_| runs.keeps());
        // A call makes one run at most.
        let _ = self.state.run.set(writer);
        self.peer.begins();
        *lock(&self.state.early) = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.answer_early();
        Ok(())
    }

    /// The run that this call makes.
    pub(crate) fn run(&self) -> Option<&RunWriter> {
        self.state.run.get()
    }

    /// Answers before the end of the run, if it is time. Without the lock: the answer may block.
    fn answer_early(&self) {
        let due = lock(&self.state.early).take_if(|at| *at <= Instant::now());
        let (Some(_), Some(writer)) = (due, self.run()) else {
            return;
        };
        self.flush();
        let (backend, account) = (&*self.backend, self.account());
        let settings = &backend.settings;
        let run = writer.run();
        let is_task = self.task().is_some()
            || self.head.request.tasks && writer.promise(settings.keep).is_ok();
        // Done before the caller learns of the run. While there is no room to keep it, the call waits.
        if !writer.persist() {
            *lock(&self.state.early) = Instant::now().checked_add(NO_ROOM);
            return;
        }
        let mut result = self.head.result().charged(account);
        if is_task && result.revision.is_legacy() {
            result.field("task", &task(&run.record(), result.revision, settings.keep));
        } else if is_task {
            result.kind = "task";
            write_task(&run.record(), settings.keep, &mut result);
        } else {
            let (so_far, id) = (so_far(&run, None, backend, account), &self.head.request_id);
            write(&so_far, &backend.policy, account, id, &mut result);
            result.meta("run_id", &run.id());
        }
        self.answer(result.end());
    }

    /// Sends the answer, unless there was one.
    pub(crate) fn answer(&self, answer: Answer) {
        if !self.state.answered.swap(true, Ordering::AcqRel) {
            self.peer.answer(answer);
        }
    }

    /// Was the call answered?
    pub(crate) fn is_answered(&self) -> bool {
        self.state.answered.load(Ordering::Acquire)
    }

    /// The run, if it was asked for as a task (2025-11-25): notifications then go on after the answer and name it, and
    /// leaving no longer cancels it.
    pub(super) fn task(&self) -> Option<&RunWriter> {
        self.run().filter(|_| self.head.ttl.is_some())
    }

    /// Does the caller still get messages?
    fn accepts_notifications(&self) -> bool {
        !self.is_answered() || self.task().is_some()
    }

    /// Sends a whole message, if the caller still gets any.
    pub(crate) fn notify(&self, message: &[u8]) {
        if self.accepts_notifications() {
            self.peer.notify(message, &|| true);
        }
    }

    /// Sends a message about the call: `params` appends members. They are written at once: as a `Value`, each piece of a
    /// stream would cost half as much again.
    fn send(&self, method: &str, params: impl FnOnce(&mut Json)) {
        let mut message = jsonrpc::begin_notification(method);
        message.extend(b"{");
        params(&mut message);
        if let Some(writer) = self.task() {
            let meta = json!({ RELATED_TASK: { "taskId": writer.run().id() } });
            jsonrpc::write_member(&mut message, "_meta", &meta);
        }
        message.extend(b"}}");
        self.notify(message.bytes());
    }

    /// Whether the caller wants the text as it arrives, not only heartbeats.
    pub(crate) fn stream_text(&self, stream: bool) {
        lock(&self.state.progress).stream_text = stream;
    }

    /// Tells the caller, soon, of a piece of text.
    pub(crate) fn content(&self, format: &str, mut content: &str) {
        if !self.accepts_notifications() {
            return;
        }
        let mut pending = lock(&self.state.progress);
        if pending.format != format {
            self.flush_pending(&mut pending);
            format.clone_into(&mut pending.format);
        }
        while !content.is_empty() {
            let piece = prefix(content, MOST_TEXT);
            content = &content[piece.len()..];
            if pending.text.len() + piece.len() > MOST_TEXT {
                self.flush_pending(&mut pending);
            }
            pending.text.push_str(piece);
        }
    }

    /// Tells the caller of another event from Fabric: its type, and its text.
    pub(crate) fn event(&self, kind: &str, content: &str) {
        let mut pending = lock(&self.state.progress);
        self.flush_pending(&mut pending);
        if pending.stream_text {
            self.log_chunk(kind, "plain", content);
        }
    }

    /// Sends the caller a message about the work, such as which step begins.
    pub(crate) fn say(&self, message: &str) {
        let mut pending = lock(&self.state.progress);
        self.flush_pending(&mut pending);
        self.progress(&mut pending, 1, Some(message));
    }

    fn progress(&self, pending: &mut PendingProgress, step: u64, text: Option<&str>) {
        let Some(progress_token) = &self.head.request.progress_token else {
            return;
        };
        pending.sent += step;
        pending.last = Some(Instant::now());
        let text = text.filter(|_| self.head.request.revision.knows(Feature::ProgressMessage));
        self.send("notifications/progress", |params| {
            jsonrpc::write_member(params, "progressToken", progress_token);
            jsonrpc::write_member(params, "progress", &pending.sent);
            text.into_iter()
                .for_each(|text| jsonrpc::write_member(params, "message", text));
        });
    }

    /// Sends a piece of output, or another event, in Fabric's own shape. Modern callers request log messages with each
    /// request, legacy ones once per connection. For legacy callers without a level the choice is ours: chunks, unless
    /// they get them as progress.
    fn log_chunk(&self, kind: &str, format: &str, content: &str) {
        let request = &self.head.request;
        let ours = request.revision.is_legacy() && request.progress_token.is_none();
        if request.level.map_or(ours, |least| CHUNK_LEVEL >= least) {
            self.send("notifications/message", |params| {
                jsonrpc::write_member(params, "level", CHUNK_LEVEL.name());
                jsonrpc::write_member(params, "logger", "fabric_run_pattern");
                let data = jsonrpc::write_name(params, "data");
                data.extend(b"{");
                jsonrpc::write_member(data, "type", kind);
                jsonrpc::write_member(data, "format", format);
                jsonrpc::write_member(data, "content", content);
                data.extend(b"}");
            });
        }
    }

    fn flush_pending(&self, pending: &mut PendingProgress) {
        let mut text = std::mem::take(&mut pending.text);
        if !text.is_empty() {
            let said = Some(text.as_str()).filter(|_| pending.stream_text);
            self.progress(pending, text.chars().count() as u64, said);
            if pending.stream_text {
                self.log_chunk("content", &pending.format, &text);
            }
            // The buffer serves the next piece.
            text.clear();
            pending.text = text;
        }
    }
}

impl CallObserver for Context {
    fn flush(&self) {
        self.flush_pending(&mut lock(&self.state.progress));
    }

    fn still_waiting(&self) -> Result<(), Error> {
        if self.run().is_some_and(RunWriter::is_cancelled) {
            return Err(Error::cancelled());
        }
        self.answer_early();
        if !self.is_answered() {
            if self.account().is_aborting() {
                return Err(Error::stopped());
            }
            if self.peer.stopped() {
                return Err(Error::cancelled());
            }
            let run = self.run().map(RunWriter::run);
            let silence = run.map_or(Duration::ZERO, |run| run.silence());
            self.peer.idle(silence);
        }
        let mut pending = lock(&self.state.progress);
        self.flush_pending(&mut pending);
        let last = pending.last.get_or_insert_with(Instant::now);
        if last.elapsed() >= HEARTBEAT {
            self.progress(&mut pending, 1, None);
        }
        Ok(())
    }

    /// No Fabric is started for a call that is refused in any case.
    fn is_poll(&self) -> bool {
        self.head.plan.fault.is_some()
    }

    fn hold(&self, bytes: usize) -> Result<(), Error> {
        let held = lock(&self.memory).grow(bytes);
        held.map_err(|QuotaExceeded| no_room())
    }

    fn release(&self, bytes: usize) {
        lock(&self.memory).shrink(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Bounds;

    #[test]
    fn a_call_that_is_not_over_counts_even_when_it_has_left_its_place() {
        let mut totals = [8; crate::account::RESOURCES];
        totals[Resource::CallThreads as usize] = 1;
        let account = Accounts::new(Bounds {
            totals,
            runs_per_caller: 0,
            per_minute: 0,
            shared_seats: None,
        })
        .of("");
        let (slot, open) = reserve_slots(&account, Resource::Calls).unwrap();
        drop(slot);
        assert_eq!(account.held(Resource::Calls), 0);
        let refused = reserve_slots(&account, Resource::Runs).err().unwrap();
        assert_eq!(refused.kind, Kind::TooManyRequests);
        drop(open);
        assert!(reserve_slots(&account, Resource::Calls).is_ok());
    }
}
