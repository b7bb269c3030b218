//! A run of this process, from its start until nobody holds it any more.
//!
//! ```text
//!            cancel                        close             what is left is written
//!   open ──────────────> open, cancelled ────────> closing ──────────────────────────> closed
//!    └───────────────────── close ───────────────────^ ^────────── that failed ──────────┘
//! ```
//!
//! A closing run is shown as working until its end is on disk: what was reported as completed must survive a power cut.
//! If that fails it is closed all the same, and is closing once more while it is tried again; then the end that was
//! shown stays. A cancellation is shown at once and stays, whatever the worker reports later.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::account::{Account, Full, Guard, Resource};
use crate::sync::{lock, try_lock, wait_while};
use crate::time::milliseconds_now;

use super::folder::{CANCEL, Folder};
use super::record::{End, Owner, Record, RunId, RunState};
use super::text::Text;

/// The memory of a run besides its text, in bytes; an estimate.
const BASE: usize = 1 << 10;
/// What a promised run has of what is kept, however short it is: it is not to fail for want of that. Bytes.
const RESERVED: usize = 64 << 10;
/// Text is copied to its file in pieces of this size, so that the worker is not blocked meanwhile. Bytes.
const COPY: usize = 256 << 10;
/// How often text is written and the cancel marker checked.
const TICK: Duration = Duration::from_secs(1);
/// Longest wait for another thread that writes the end of a run to a slow disk.
const CLOSING: Duration = Duration::from_secs(5);

/// A run of this process.
pub(super) struct LiveRun {
    pub(super) id: RunId,
    pub(super) owner: Owner,
    pub(super) created: u64,
    /// Of whoever began it.
    pub(super) account: Account,
    state: Mutex<RunText>,
    changed: Condvar,
    cancelled: AtomicBool,
    /// Where it is to be written.
    pub(super) folder: Option<Arc<Folder>>,
    /// Locked before `state`, never after it.
    files: Mutex<Files>,
}

struct RunText {
    record: Record,
    text: Text,
    /// How many threads wait for more of it: without any, a piece costs no wake-up, which is a system call.
    readers: usize,
    phase: RunPhase,
    /// Bytes that its end has beside the text.
    rest: usize,
    /// What it has of the memory.
    memory: Guard,
    /// What it has of what may be kept; without it, it is forgotten at its end.
    charge: Option<Charge>,
    /// Its end is not on disk, and is to be.
    is_unwritten: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunPhase {
    Open,
    Closing,
    Closed,
}

struct Files {
    /// Locked as long as it is open: for other processes the run works.
    text: Option<File>,
    /// Bytes of text in the file.
    written: usize,
    ticked: Instant,
}

/// What a kept run takes of an account.
pub(super) struct Charge {
    _run: Guard,
    bytes: Guard,
}

impl Charge {
    /// Of a run without text.
    pub(super) fn new(account: &Account) -> Result<Charge, Full> {
        Ok(Charge {
            _run: account.take(Resource::Kept, 1)?,
            bytes: account.open(Resource::Stored),
        })
    }

    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        set(&mut self.bytes, bytes)
    }
}

/// Without dropping runs: those that do may be locked.
fn set(guard: &mut Guard, amount: usize) -> Result<(), Full> {
    match amount.checked_sub(guard.held()) {
        Some(more) => guard.grow_into_free(more),
        None => {
            guard.shrink(guard.held() - amount);
            Ok(())
        }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There is more text.
    More,
    /// The run has ended, and all its text had been seen or was not asked for.
    Ended,
    /// Time is up.
    TimedOut,
    /// The caller no longer waits.
    Stopped,
}

impl LiveRun {
    pub(super) fn new(record: Record, folder: Option<Arc<Folder>>, account: &Account) -> LiveRun {
        LiveRun {
            id: record.id,
            owner: record.owner.clone(),
            created: record.created,
            account: account.clone(),
            changed: Condvar::new(),
            cancelled: AtomicBool::new(false),
            folder,
            files: Mutex::new(Files {
                text: None,
                written: 0,
                ticked: Instant::now(),
            }),
            state: Mutex::new(RunText {
                record,
                text: Text::default(),
                readers: 0,
                phase: RunPhase::Open,
                rest: 0,
                memory: account.open(Resource::Memory),
                charge: None,
                is_unwritten: false,
            }),
        }
    }

    /// Adds text, unless the run has ended.
    pub(super) fn push(&self, piece: &str, now: u64) {
        let mut state = lock(&self.state);
        if !state.is_working() {
            return;
        }
        state.text.push(piece);
        state.record.updated = now;
        let is_awaited = state.readers > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Charges what it has by now; `keep`: as kept, too, if it is not yet.
    ///
    /// # Errors
    /// Of which resource there is no more.
    pub(super) fn charge(&self, keep: bool) -> Result<(), Resource> {
        let mut state = lock(&self.state);
        let size = state.size();
        if keep && state.charge.is_none() {
            state.charge = Charge::new(&self.account).ok();
        }
        match &mut state.charge {
            Some(charge) => charge.set(size).map_err(|Full| Resource::Stored)?,
            None if keep => return Err(Resource::Kept),
            None => {}
        }
        // Values take about twice the memory of their text.
        let memory = BASE + state.text.capacity + 2 * state.rest;
        set(&mut state.memory, memory).map_err(|Full| Resource::Memory)
    }

    /// It need not be kept, unless it is promised: then false.
    pub(super) fn give_up(&self) -> bool {
        let mut state = lock(&self.state);
        let may = state.record.ttl.is_none();
        if may {
            state.charge = None;
        }
        may
    }

    /// Is it to be kept?
    pub(super) fn is_kept(&self) -> bool {
        lock(&self.state).charge.is_some()
    }

    /// What is kept of it is no longer its own.
    pub(super) fn take_charge(&self) -> Option<Charge> {
        lock(&self.state).charge.take()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        lock(&self.state).memory.held()
    }

    /// Once a second: writes new text and checks for a cancellation by another process. Runs on the thread of the
    /// caller, so that it needs no timer.
    pub(super) fn tick(&self) {
        let is_due = |files: &Files| files.ticked.elapsed() >= TICK;
        if self.folder.is_some() && try_lock(&self.files).is_some_and(|files| is_due(&files)) {
            self.write();
            self.look();
        }
    }

    /// Writes new text, unless another thread uses the files, which may take long on a slow disk.
    pub(super) fn write(&self) {
        if let Some(mut files) = try_lock(&self.files) {
            self.write_to(&mut files, false);
        }
    }

    /// Writes its record durably, where there is a folder.
    pub(super) fn persist(&self) {
        self.write_to(&mut lock(&self.files), true);
    }

    fn write_to(&self, files: &mut Files, with_record: bool) {
        files.ticked = Instant::now();
        let state = lock(&self.state);
        // A closing run is written by the thread that closes it.
        let is_due = state.phase == RunPhase::Open && state.charge.is_some();
        let record = state.working();
        drop(state);
        let Some(folder) = self.folder.as_ref().filter(|_| is_due) else {
            return;
        };
        let written = self.write_text(files, folder);
        if let Err(error) = written.and_then(|()| match with_record {
            true => folder.write(&record, true),
            false => Ok(()),
        }) {
            folder.warn(self.id, "it could not be written", &error);
        }
    }

    /// Checks for a cancellation by another process.
    pub(super) fn look(&self) {
        if let Some(folder) = &self.folder
            && !self.is_cancelled()
            && folder.is_marked(self.id)
        {
            let mut state = lock(&self.state);
            self.end(&mut state, RunState::Cancelled, milliseconds_now());
        }
    }

    /// Writes the text that is not in the file yet; creates the files, if there are none.
    fn write_text(&self, files: &mut Files, folder: &Folder) -> io::Result<()> {
        let file = match &mut files.text {
            Some(file) => file,
            none => {
                files.written = 0;
                none.insert(folder.begin(&lock(&self.state).working())?)
            }
        };
        loop {
            let piece = lock(&self.state).text.read(files.written, COPY);
            if piece.is_empty() {
                return Ok(());
            }
            // Over what a write that failed may have left: there may be no room for it again.
            file.seek(SeekFrom::Start(files.written as u64))?;
            file.write_all(piece.as_bytes())?;
            files.written += piece.len();
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// False if it had ended, or was stopped before.
    pub(super) fn cancel(&self, now: u64) -> bool {
        let closing = |state: &mut RunText| state.phase == RunPhase::Closing;
        let (mut state, _) = wait_while(&self.changed, lock(&self.state), CLOSING, closing);
        let cancelled = self.end(&mut state, RunState::Cancelled, now);
        drop(state);
        if let (true, Some(folder)) = (cancelled, &self.folder)
            && lock(&self.files).text.is_some()
        {
            // For the other processes, until the worker has noticed: they see it a little later if this fails.
            let _ = folder.mark(self.id);
        }
        cancelled
    }

    /// Marks it as interrupted by the end of the process, and tells the worker to stop.
    pub(super) fn interrupt(&self, now: u64) {
        self.end(&mut lock(&self.state), RunState::Interrupted, now);
        self.cancelled.store(true, Ordering::Release);
    }

    /// Sets its final state, and tells the worker to stop. False if it had one before.
    fn end(&self, state: &mut RunText, end: RunState, now: u64) -> bool {
        if !state.is_working() {
            return false;
        }
        state.record.state = end;
        state.record.updated = now;
        state.record.ended = Some(now);
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_all();
        true
    }

    /// Begins to close it: no more text is added. Returns the final record, to be written; `None` if another thread
    /// closes or has closed it.
    pub(super) fn begin_close(&self, end: End, now: u64) -> Option<Record> {
        let mut state = lock(&self.state);
        if state.phase != RunPhase::Open {
            return None;
        }
        state.phase = RunPhase::Closing;
        state.text.shrink();
        let mut record = state.record();
        if record.state == RunState::Working {
            record.state = end.state;
            record.updated = now;
            record.ended = Some(now);
        }
        record.usage = end.usage;
        record.error = end.error;
        record.result = end.result;
        state.rest = record.rest();
        Some(record)
    }

    /// Begins to close it again, for its end to be written after all. Returns its record; `None` if that is written,
    /// or not to be.
    pub(super) fn close_again(&self) -> Option<Record> {
        let mut state = lock(&self.state);
        if state.phase != RunPhase::Closed || !state.is_unwritten {
            return None;
        }
        state.phase = RunPhase::Closing;
        Some(state.record())
    }

    /// Writes the end to disk, durably, text first. If that fails, the text stays locked. `is_shown`: this end has been
    /// shown, so it cannot become a cancellation.
    pub(super) fn write_end(&self, folder: &Folder, record: &mut Record, is_shown: bool) -> bool {
        let mut files = lock(&self.files);
        let written = self.try_write_end(&mut files, folder, record, is_shown);
        match &written {
            Ok(()) => {
                files.text = None;
                folder.remove(self.id, &[CANCEL]);
            }
            Err(error) => folder.warn(self.id, "its end could not be written", error),
        }
        written.is_ok()
    }

    fn try_write_end(
        &self,
        files: &mut Files,
        folder: &Folder,
        record: &mut Record,
        is_shown: bool,
    ) -> io::Result<()> {
        self.write_text(files, folder)?;
        if let Some(Err(error)) = files.text.as_ref().map(File::sync_all) {
            // The system may have dropped what it could not write, and a second sync would not say so.
            files.written = 0;
            return Err(error);
        }
        // A process that left the marker has read `working`, and has reported the run as cancelled. So check again once
        // the end can be read.
        loop {
            let is_marked = || !is_shown && folder.is_marked(self.id);
            if is_marked() {
                record.state = RunState::Cancelled;
            }
            folder.write(record, true)?;
            if record.state == RunState::Cancelled || !is_marked() {
                return Ok(());
            }
        }
    }

    /// Closes it with this record.
    pub(super) fn closed(&self, record: Record, is_unwritten: bool) {
        let mut state = lock(&self.state);
        state.is_unwritten = is_unwritten;
        state.phase = RunPhase::Closed;
        state.record = record;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until another thread that closes it has done so.
    pub(super) fn wait_closed(&self) {
        let open = |state: &mut RunText| state.phase != RunPhase::Closed;
        drop(wait_while(&self.changed, lock(&self.state), CLOSING, open));
    }

    /// Keeps it for at least `ttl` milliseconds from its start. False if it is closing or closed.
    pub(super) fn promise(&self, ttl: Option<u64>) -> bool {
        let mut state = lock(&self.state);
        let is_open = state.phase == RunPhase::Open;
        if is_open {
            state.record.ttl = ttl;
        }
        is_open
    }

    pub(super) fn record(&self) -> Record {
        lock(&self.state).record()
    }

    /// Is it closed?
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).phase == RunPhase::Closed
    }

    /// Has it ended? It may be closing again.
    pub(super) fn has_ended(&self) -> bool {
        let state = lock(&self.state);
        state.phase == RunPhase::Closed || state.is_unwritten
    }

    /// Is its end to be written to disk?
    pub(super) fn is_unwritten(&self) -> bool {
        lock(&self.state).is_unwritten
    }

    /// Is its retention over?
    pub(super) fn is_expired(&self, keep: u64, now: u64) -> bool {
        let state = lock(&self.state);
        state.phase == RunPhase::Closed && state.record.is_expired(keep, now)
    }

    /// When it ended, if it may be removed before its retention is over.
    pub(super) fn may_go(&self, now: u64) -> Option<u64> {
        let state = lock(&self.state);
        let may_go = state.record.may_go(now);
        may_go.filter(|_| state.phase == RunPhase::Closed)
    }

    pub(super) fn read(&self, from: usize, most: usize) -> String {
        lock(&self.state).text.read(from, most)
    }

    /// One slice of waiting: `None` if nothing has happened.
    pub(super) fn wait(&self, seen: Option<u64>, limit: Duration) -> Option<Waited> {
        let waited = |state: &RunText| match seen {
            Some(seen) if state.text.bytes as u64 > seen => Some(Waited::More),
            _ if state.record.state != RunState::Working => Some(Waited::Ended),
            _ => None,
        };
        let mut state = lock(&self.state);
        state.readers += 1;
        let nothing = |state: &mut RunText| waited(state).is_none();
        let (mut state, _) = wait_while(&self.changed, state, limit, nothing);
        state.readers -= 1;
        waited(&state)
    }
}

impl RunText {
    /// Does it take text?
    fn is_working(&self) -> bool {
        self.phase == RunPhase::Open && self.record.state == RunState::Working
    }

    /// What it counts for in what is kept. Bytes.
    fn size(&self) -> usize {
        let is_reserved = self.record.ttl.is_some() && self.phase == RunPhase::Open;
        (self.text.bytes + self.rest).max(if is_reserved { RESERVED } else { 0 })
    }

    fn record(&self) -> Record {
        Record {
            bytes: self.text.bytes as u64,
            chars: Some(self.text.chars as u64),
            ..self.record.clone()
        }
    }

    /// Its record as other processes are to see it while it is open.
    fn working(&self) -> Record {
        Record {
            state: RunState::Working,
            ended: None,
            ..self.record()
        }
    }
}
