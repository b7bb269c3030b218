//! A run of this process, from its start until the last holder drops it.
//!
//! ```text
//!            cancel                        close             its end is written
//!   open ──────────────> open, cancelled ────────> closing ─────────────────────> closed
//!    └───────────────────── close ───────────────────^        or that failed
//! ```
//!
//! A closing run is shown as working until its end is on disk, because a run that was reported as completed must
//! survive a power cut. If writing fails, the run is closed all the same, and written later. A cancellation is shown at
//! once and stays, whatever the worker reports later.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::account::{Account, QuotaExceeded, Reservation, Resource};
use crate::sync::{lock, wait_while};
use crate::time::{Clock, whole};

use super::folder::{CANCEL, Folder};
use super::ledger::{Asked, Spent, line};
use super::pieces;
use super::record::{Record, RunId, RunReport, RunState};

/// The memory of a run besides its text, in bytes; an estimate.
const BASE: usize = 1 << 10;
/// How much a promised run takes of the limit on kept runs, however short it is, so that it cannot fail for lack of
/// room. Bytes.
const RESERVED: usize = 64 << 10;
/// Text is copied to its file in pieces of this size, so that the worker is not blocked meanwhile. Bytes.
const COPY: usize = 256 << 10;
/// How often text is written and the cancel marker checked. Milliseconds.
const TICK: u64 = 1_000;
/// Accounts hand out memory in multiples of this, so only a text that crosses a multiple is charged again. Bytes.
const STEP: usize = 4 << 10;
/// Longest wait for another thread that writes the end of a run to a slow disk.
const CLOSING: Duration = Duration::from_secs(5);

/// A run of this process.
pub(crate) struct LiveRun {
    pub(super) id: RunId,
    state: Mutex<LiveState>,
    changed: Condvar,
    /// Where it is to be written.
    pub(super) folder: Option<Arc<Folder>>,
    clock: Arc<dyn Clock>,
    /// When its worker last looked after the files, in milliseconds of the steady clock.
    ticked: AtomicU64,
    /// Locked before `state`, never after it.
    files: Mutex<Files>,
    /// Its caller has its id: it must not be forgotten at its end for lack of room.
    pub(super) is_given: AtomicBool,
    /// How much of the memory the run holds. Other runs may be removed to make room for more.
    memory: Mutex<Reservation>,
}

#[derive(Default)]
struct LiveState {
    /// Shared with its readers, so that reading copies nothing. A record that a reader holds does not change.
    record: Arc<Record>,
    text: String,
    phase: RunPhase,
    /// Bytes of what its worker reports at its end, beside the text.
    rest: usize,
    /// There is room to keep the run, so it is written to the folder.
    is_kept: bool,
    /// Threads that wait for news of it.
    waiting: u32,
    /// When something last arrived, by the steady clock. `None` before the model is asked: a transcript takes time, but
    /// that is not the model's silence.
    heard: Option<Duration>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RunPhase {
    #[default]
    Open,
    Closing,
    Closed,
}

#[derive(Default)]
struct Files {
    /// Locked as long as it is open, which tells other processes that the run is working.
    text: Option<File>,
    /// Bytes of text in the file.
    written: usize,
    /// The record could not be written.
    is_behind: bool,
}

impl LiveRun {
    pub(super) fn new(
        record: Record,
        folder: Option<Arc<Folder>>,
        account: &Account,
        clock: Arc<dyn Clock>,
    ) -> LiveRun {
        LiveRun {
            id: record.id,
            changed: Condvar::new(),
            folder,
            files: Mutex::default(),
            is_given: AtomicBool::new(false),
            ticked: AtomicU64::new(whole(clock.steady())),
            clock,
            state: Mutex::new(LiveState {
                record: Arc::new(record),
                ..LiveState::default()
            }),
            memory: Mutex::new(account.open(Resource::Memory)),
        }
    }

    /// Adds text, unless the run has ended. True if there is more to be charged now.
    pub(super) fn push(&self, piece: &str) -> bool {
        let mut state = lock(&self.state);
        if !state.is_working() {
            return false;
        }
        state.heard = Some(self.clock.steady());
        let had = (state.text.capacity(), state.text.len() / STEP);
        pieces::append(&mut state.text, piece);
        let record = Arc::make_mut(&mut state.record);
        record.bytes += piece.len() as u64;
        record.chars = record.chars.map(|had| had + piece.chars().count() as u64);
        record.updated = self.clock.today();
        // Even without a waiting thread, this would be a system call for each piece of each run.
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        (state.text.capacity(), state.text.len() / STEP) != had
    }

    /// How long nothing has come from the run; zero before its model is asked and after its end.
    pub(super) fn silence(&self) -> Duration {
        let state = lock(&self.state);
        let heard = state.heard.filter(|_| state.is_working());
        heard.map_or(Duration::ZERO, |at| self.clock.steady().saturating_sub(at))
    }

    /// How many bytes the run counts for in the limit on kept runs, and whether it is promised.
    pub(super) fn size(&self) -> (usize, bool) {
        let state = lock(&self.state);
        let is_promised = state.record.ttl.is_some();
        let is_reserved = is_promised && state.phase == RunPhase::Open;
        let size = (state.text.len() + state.rest).max(if is_reserved { RESERVED } else { 0 });
        (size, is_promised)
    }

    /// Charges the memory that the run has by now.
    ///
    /// # Errors
    /// [`QuotaExceeded`]; the run keeps the memory all the same.
    pub(super) fn charge(&self, is_kept: bool) -> Result<(), QuotaExceeded> {
        let mut state = lock(&self.state);
        state.is_kept = is_kept;
        // Values take about twice the memory of their text.
        let memory = BASE + state.text.capacity() + 2 * state.rest;
        drop(state);
        lock(&self.memory).set(memory)
    }

    /// Once a second: writes new text and checks for a cancellation by another process. Runs on the thread of the
    /// caller, so that it needs no timer. Does not count on [`LiveRun::write`], which readers call too.
    pub(super) fn tick(&self) {
        let now = whole(self.clock.steady());
        if self.folder.is_some() && self.ticked.load(Ordering::Relaxed) + TICK <= now {
            self.ticked.store(now, Ordering::Relaxed);
            self.write(None);
            self.look();
        }
    }

    /// Writes new text and the record, if there is a folder, durably or not.
    pub(super) fn write(&self, record: Option<bool>) {
        let mut files = lock(&self.files);
        let state = lock(&self.state);
        // A closing run is written by the thread that closes it.
        let is_due = state.phase == RunPhase::Open && state.is_kept;
        drop(state);
        let Some(folder) = self.folder.as_ref().filter(|_| is_due) else {
            return;
        };
        let mut written = self.write_text(&mut files, folder);
        // A record that could not be written is tried again with the text.
        if let Some(durable) = record.or(files.is_behind.then_some(false)) {
            written = written.and_then(|()| folder.write(&self.record(), durable));
            files.is_behind = written.is_err();
        }
        if let Err(error) = written {
            folder.warn(self.id, "it could not be written", &error);
        }
    }

    /// A step begins to ask its model. `earlier` has the outputs of the steps before it.
    pub(super) fn ask(&self, asked: Asked, earlier: &[String]) {
        let mut state = lock(&self.state);
        let record = Arc::make_mut(&mut state.record);
        (record.asked, record.report.partial) = (Some(asked), earlier.to_vec());
        state.rest = state.record.rest();
        drop(state);
        self.write(Some(false));
    }

    /// The step whose model was asked has ended: writes its line, once, unless no model got it (`None`). Until it is
    /// written, the line stays with the run.
    pub(super) fn answered(&self, ledger: Option<&Folder>, outcome: &str, tokens: Option<Spent>) {
        let Some(ledger) = ledger else { return };
        let mut state = lock(&self.state);
        let record = Arc::make_mut(&mut state.record);
        let Some((asked, tokens)) = record.asked.take().zip(tokens) else {
            return;
        };
        let outcome = match record.state {
            // Somebody has stopped it, whatever its worker says.
            RunState::Cancelled | RunState::Interrupted => record.state.name(),
            _ => outcome,
        };
        let line = line(self.clock.today(), record, &asked, outcome, tokens);
        record.lines.push(line.clone());
        ledger.add(line);
        drop(state);
        ledger.flush();
    }

    /// Checks for a cancellation by another process.
    pub(super) fn look(&self) {
        if let Some(folder) = &self.folder
            && !self.is_stopped()
            && folder.is_marked(self.id)
        {
            self.stop(RunState::Cancelled);
        }
    }

    /// Writes the text that is not in the file yet; creates the files, if there are none, or no longer.
    fn write_text(&self, files: &mut Files, folder: &Folder) -> io::Result<()> {
        files.text.take_if(|text| !folder.has_text(self.id, text));
        let file = match &mut files.text {
            Some(file) => file,
            none => {
                files.written = 0;
                none.insert(folder.begin(&self.record())?)
            }
        };
        loop {
            let piece = self.read(files.written, COPY);
            if piece.is_empty() {
                return Ok(());
            }
            // Overwrites what a failed write may have left, since there may be no room for more.
            file.seek(SeekFrom::Start(files.written as u64))?;
            file.write_all(piece.as_bytes())?;
            files.written += piece.len();
        }
    }

    /// Must its worker stop?
    pub(super) fn is_stopped(&self) -> bool {
        let state = lock(&self.state).record.state;
        matches!(state, RunState::Cancelled | RunState::Interrupted)
    }

    /// False if it had ended, or was stopped before.
    pub(super) fn cancel(&self) -> bool {
        let cancelled = self.stop(RunState::Cancelled);
        if !cancelled {
            // A caller who is told that the run has ended must be able to see its end.
            drop(self.wait_closing());
        } else if let Some(folder) = &self.folder
            && lock(&self.files).text.is_some()
        {
            // For the other processes, until the worker has noticed. If this fails, they see the cancellation a little
            // later.
            let _ = folder.mark(self.id);
        }
        cancelled
    }

    /// Sets its final state, which tells the worker to stop. False if it had one before.
    pub(super) fn stop(&self, end: RunState) -> bool {
        let mut state = lock(&self.state);
        let is_working = state.is_working();
        if is_working {
            Arc::make_mut(&mut state.record).end(end, self.clock.today());
            self.changed.notify_all();
        }
        is_working
    }

    /// Begins to close the run: no more text is added. Returns the final record, to be written. `None` if another
    /// thread has closed the run, or is closing it, in which case this waits for that thread.
    pub(super) fn begin_close(&self, end: RunState, report: RunReport) -> Option<Record> {
        let mut state = lock(&self.state);
        if state.phase != RunPhase::Open {
            drop(state);
            drop(self.wait_closing());
            return None;
        }
        state.phase = RunPhase::Closing;
        state.text.shrink_to_fit();
        let mut record = Record::clone(&state.record);
        if record.state == RunState::Working {
            record.end(end, self.clock.today());
        }
        record.report = report;
        state.rest = record.rest();
        Some(record)
    }

    /// Writes the end to disk, durably, text first. If that fails, or a line of the ledger still waits, the text stays
    /// locked: for other processes the run works until its end is written. On a full disk `make_room` may say that it can
    /// be tried again.
    pub(super) fn write_end(
        &self,
        folder: &Folder,
        record: &mut Record,
        make_room: &dyn Fn() -> bool,
    ) -> bool {
        let mut files = lock(&self.files);
        let mut write = || {
            self.write_text(&mut files, folder)?;
            if let Some(Err(error)) = files.text.as_ref().map(File::sync_all) {
                // The system may have dropped what it could not write, and a second sync would not say so.
                files.written = 0;
                return Err(error);
            }
            // An end that has been shown cannot become a cancellation.
            let is_shown = lock(&self.state).phase == RunPhase::Closed;
            // A process that left the marker has read `working`, and has reported the run as cancelled. So check again
            // once the end can be read.
            loop {
                let is_marked = || !is_shown && folder.is_marked(self.id);
                if is_marked() {
                    record.state = RunState::Cancelled;
                }
                record.lines.retain(|line| folder.is_waiting(line));
                folder.write(record, true)?;
                if record.state == RunState::Cancelled || !is_marked() {
                    return Ok(());
                }
            }
        };
        while let Err(error) = write() {
            let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
            if !full.contains(&error.kind()) || !make_room() {
                folder.warn(self.id, "its end could not be written", &error);
                return false;
            }
        }
        if record.is_settled() {
            files.text = None;
            folder.remove(self.id, &[CANCEL]);
        }
        record.is_settled()
    }

    /// Closes it with this record.
    pub(super) fn closed(&self, record: Record) {
        let mut state = lock(&self.state);
        state.phase = RunPhase::Closed;
        state.record = Arc::new(record);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until another thread that closes it has done so.
    fn wait_closing(&self) -> MutexGuard<'_, LiveState> {
        let is_closing = |state: &mut LiveState| state.phase == RunPhase::Closing;
        wait_while(&self.changed, lock(&self.state), CLOSING, is_closing).0
    }

    /// Keeps it for at least `ttl` milliseconds from its start.
    pub(super) fn set_ttl(&self, ttl: Option<u64>) {
        Arc::make_mut(&mut lock(&self.state).record).ttl = ttl;
    }

    pub(super) fn record(&self) -> Arc<Record> {
        lock(&self.state).record.clone()
    }

    pub(super) fn read(&self, from: usize, most: usize) -> String {
        pieces::part(&lock(&self.state).text, from, most)
    }

    /// See [`super::Run::wait`].
    pub(super) fn wait(&self, seen: u64, limit: Duration) -> Arc<Record> {
        let has_none = |state: &mut LiveState| !state.record.has_news(seen);
        let mut state = lock(&self.state);
        state.waiting += 1;
        state = wait_while(&self.changed, state, limit, has_none).0;
        state.waiting -= 1;
        state.record.clone()
    }
}

impl LiveState {
    /// Does it take text?
    fn is_working(&self) -> bool {
        self.phase == RunPhase::Open && self.record.state == RunState::Working
    }
}
