//! A run of this process, from its start until nobody holds it any more.
//!
//! ```text
//!            cancel                        close             what is left is written
//!   open ──────────────> open, cancelled ────────> closing ──────────────────────────> closed
//!    └───────────────────── close ───────────────────^ ^────────── that failed ──────────┘
//! ```
//!
//! A closing run is shown as working until its end is on disk: what was reported as completed must survive a power cut.
//! If that fails it is closed all the same, and is closing once more while the store tries again; then the end that was
//! shown stays. A cancellation is shown at once and stays, whatever the worker reports later.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::sync::{lock, try_lock, wait_while};

use super::evict::KeptRun;
use super::files::Files;
use super::memory::Held;
use super::record::{End, Owner, Record, RunId, RunState};
use super::text::Text;
use crate::time::whole;

/// The memory of a run besides its text, in bytes; an estimate.
const BASE: usize = 1 << 10;
/// Text is copied to its file in pieces of this size, so that the worker is not blocked meanwhile. Bytes.
const COPY: usize = 256 << 10;
/// Longest wait for another thread that writes the end of a run to a slow disk.
pub(super) const CLOSING: Duration = Duration::from_secs(5);

/// A run of this process.
pub(super) struct LiveRun {
    pub(super) id: RunId,
    pub(super) owner: Owner,
    pub(super) created: u64,
    /// `created` by the steady clock.
    begun: Duration,
    inner: Mutex<Inner>,
    changed: Condvar,
    cancelled: AtomicBool,
    /// Locked before `inner`, never after it.
    files: OnceLock<Mutex<Files>>,
}

struct Inner {
    record: Record,
    text: Text,
    /// How many threads wait for more of it: without any, a piece costs no wake-up, which is a system call.
    readers: usize,
    phase: Phase,
    stored: StoredEnd,
    held: Held,
    /// Once closed, what it counts for in the bounds of a store.
    bytes: u64,
    /// Kept until then, once closed; before, zero.
    until: Duration,
    promised_until: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Closing,
    Closed,
}

/// Is the end of a run on disk?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredEnd {
    Yes,
    /// It is to be tried again.
    NotYet,
    /// Nor will it be.
    No,
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
    pub(super) fn new(
        record: Record,
        begun: Duration,
        files: Option<Files>,
        mut held: Held,
    ) -> LiveRun {
        held.set(BASE);
        LiveRun {
            id: record.id,
            owner: record.owner.clone(),
            created: record.created,
            begun,
            changed: Condvar::new(),
            cancelled: AtomicBool::new(false),
            files: files
                .map(|files| Mutex::new(files).into())
                .unwrap_or_default(),
            inner: Mutex::new(Inner {
                record,
                text: Text::default(),
                readers: 0,
                phase: Phase::Open,
                stored: StoredEnd::No,
                held,
                bytes: 0,
                until: Duration::ZERO,
                promised_until: Duration::ZERO,
            }),
        }
    }

    /// Adds text, unless the run has ended. False if the account refused it; it is kept all the same.
    pub(super) fn append(&self, piece: &str, today: u64) -> bool {
        let mut inner = lock(&self.inner);
        if inner.phase != Phase::Open || inner.record.state != RunState::Working {
            return true;
        }
        inner.text.push(piece);
        inner.record.updated = today;
        let bytes = BASE + inner.text.capacity;
        let fits = inner.held.set(bytes);
        let is_awaited = inner.readers > 0;
        drop(inner);
        if is_awaited {
            self.changed.notify_all();
        }
        fits
    }

    pub(super) fn ask_again(&self) -> bool {
        lock(&self.inner).held.ask_again()
    }

    /// Once a second: writes new text and checks for a cancellation by another process. Runs on the thread of the
    /// caller, so that it needs no timer.
    pub(super) fn tick(&self, now: Duration, today: u64) {
        let Some(mut files) = self.free_files() else {
            return;
        };
        if files.is_due(now) {
            // Tried again a second later.
            let _ = self.write_text(&mut files);
            drop(files);
            self.look(today);
        }
    }

    /// The files, unless another thread uses them, which may take long on a slow disk.
    fn free_files(&self) -> Option<MutexGuard<'_, Files>> {
        try_lock(self.files.get()?)
    }

    /// Checks for a cancellation by another process.
    pub(super) fn look(&self, today: u64) {
        if !self.is_cancelled() && self.free_files().is_some_and(|files| files.is_marked()) {
            self.end(&mut lock(&self.inner), RunState::Cancelled, today);
        }
    }

    /// Writes the text that is not in the file yet.
    fn write_text(&self, files: &mut Files) -> io::Result<()> {
        loop {
            let piece = lock(&self.inner).text.read(files.written, COPY);
            if piece.is_empty() {
                return Ok(());
            }
            if let Err(error) = files.append(&piece) {
                files.warn("its text could not be written", &error);
                return Err(error);
            }
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// False if it had ended, or was stopped before.
    pub(super) fn cancel(&self, today: u64) -> bool {
        let closing = |inner: &mut Inner| inner.phase == Phase::Closing;
        let (mut inner, _) = wait_while(&self.changed, lock(&self.inner), CLOSING, closing);
        let cancelled = self.end(&mut inner, RunState::Cancelled, today);
        drop(inner);
        if let (true, Some(files)) = (cancelled, self.files.get()) {
            // For the other processes, until the worker has noticed.
            lock(files).mark();
        }
        cancelled
    }

    /// Marks it as interrupted by the end of the process, and tells the worker to stop.
    pub(super) fn interrupt(&self, today: u64) {
        self.end(&mut lock(&self.inner), RunState::Interrupted, today);
        self.cancelled.store(true, Ordering::Release);
    }

    /// Sets its final state, and tells the worker to stop. False if it had one before.
    fn end(&self, inner: &mut Inner, state: RunState, today: u64) -> bool {
        if inner.phase != Phase::Open || inner.record.state != RunState::Working {
            return false;
        }
        inner.record.state = state;
        inner.record.updated = today;
        inner.record.ended = Some(today);
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_all();
        true
    }

    /// Begins to close it: no more text is added. Returns the final record, to be written; `None` if another thread
    /// closes or has closed it.
    pub(super) fn begin_close(&self, end: End, today: u64) -> Option<Record> {
        let mut inner = lock(&self.inner);
        if inner.phase != Phase::Open {
            return None;
        }
        inner.phase = Phase::Closing;
        inner.text.shrink();
        let mut record = inner.record();
        if record.state == RunState::Working {
            record.state = end.state;
            record.updated = today;
            record.ended = Some(today);
        }
        record.usage = end.usage;
        record.error = end.error;
        record.result = end.result;
        Some(record)
    }

    /// Begins to close it again, for its end to be written after all. Returns its record; `None` if it is not closed, or
    /// not to be written.
    pub(super) fn close_again(&self) -> Option<Record> {
        let mut inner = lock(&self.inner);
        if inner.phase != Phase::Closed || inner.stored != StoredEnd::NotYet {
            return None;
        }
        inner.phase = Phase::Closing;
        Some(inner.record())
    }

    /// Gives it those files, if it is open and has none. False if there are none. No more text comes meanwhile, nor is it
    /// closed: a record of a working run must not come after that of its end.
    pub(super) fn begin_files(&self, begin: impl FnOnce(&Record) -> Option<Files>) -> bool {
        let inner = lock(&self.inner);
        if inner.phase != Phase::Open || self.has_files() {
            return true;
        }
        let files = begin(&Record {
            state: RunState::Working,
            ended: None,
            ..inner.record()
        });
        let begun = files.is_some();
        self.add_files(files);
        begun
    }

    /// Gives it files, if it has none.
    pub(super) fn add_files(&self, files: Option<Files>) {
        if let Some(files) = files {
            let _ = self.files.set(Mutex::new(files));
        }
    }

    /// Writes the end to disk. If that fails, the files stay locked. `told`: this end has been shown.
    pub(super) fn store(&self, record: &mut Record, told: bool) -> StoredEnd {
        let Some(files) = self.files.get() else {
            return StoredEnd::NotYet;
        };
        let mut files = lock(files);
        let stored = match self
            .write_text(&mut files)
            .and_then(|()| files.finish(record, told))
        {
            Ok(()) => StoredEnd::Yes,
            // It is too large, and will be the next time.
            Err(error) if error.kind() == ErrorKind::InvalidData => StoredEnd::No,
            Err(_) => return StoredEnd::NotYet,
        };
        files.release();
        stored
    }

    /// Closes it with this record; it is kept for `keep` from the first time on.
    pub(super) fn closed(&self, record: Record, stored: StoredEnd, now: Duration, keep: Duration) {
        let size = record.size();
        let mut inner = lock(&self.inner);
        if inner.until.is_zero() {
            inner.until = inner.promised_until.max(now.saturating_add(keep));
        }
        inner.bytes = size;
        inner.stored = stored;
        inner.phase = Phase::Closed;
        // Values take about twice the memory of their text.
        let bytes = BASE + inner.text.capacity + 2 * (size - record.bytes) as usize;
        inner.held.set(bytes);
        inner.record = record;
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits until another thread that closes it has done so.
    pub(super) fn wait_closed(&self) {
        let open = |inner: &mut Inner| inner.phase != Phase::Closed;
        drop(wait_while(&self.changed, lock(&self.inner), CLOSING, open));
    }

    /// Keeps it for at least `ttl` from its start. False if it is closing or closed.
    pub(super) fn promise(&self, ttl: Duration) -> bool {
        let mut inner = lock(&self.inner);
        if inner.phase != Phase::Open {
            return false;
        }
        let ttl = ttl.max(Duration::from_millis(inner.record.ttl.unwrap_or(0)));
        inner.promised_until = self.begun.saturating_add(ttl);
        inner.record.ttl = Some(whole(ttl));
        true
    }

    /// Writes the metadata to disk, where there is one.
    pub(super) fn persist(&self) {
        let Some(files) = self.files.get() else {
            return;
        };
        let files = lock(files);
        let inner = lock(&self.inner);
        // A closing run is written by the thread that closes it.
        let record = (inner.phase == Phase::Open).then(|| Record {
            state: RunState::Working,
            ended: None,
            ..inner.record()
        });
        drop(inner);
        if let Some(record) = record {
            files.persist(&record);
        }
    }

    pub(super) fn record(&self) -> Record {
        lock(&self.inner).record()
    }

    pub(super) fn has_files(&self) -> bool {
        self.files.get().is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.inner).phase == Phase::Closed
    }

    /// Is it closed, or closing again?
    pub(super) fn was_closed(&self) -> bool {
        let inner = lock(&self.inner);
        inner.phase == Phase::Closed || !inner.until.is_zero()
    }

    /// Is its retention over?
    pub(super) fn is_expired(&self, now: Duration) -> bool {
        let inner = lock(&self.inner);
        inner.phase == Phase::Closed && inner.until <= now
    }

    pub(super) fn kept(&self, now: Duration) -> KeptRun<'_> {
        let inner = lock(&self.inner);
        KeptRun {
            id: self.id,
            owner: &self.owner,
            ended: inner.record.ended.filter(|_| inner.phase == Phase::Closed),
            bytes: inner.bytes.max(inner.text.bytes as u64),
            promised: inner.promised_until > now,
        }
    }

    pub(super) fn read(&self, from: usize, most: usize) -> String {
        lock(&self.inner).text.read(from, most)
    }

    pub(super) fn read_chars(&self, skip: usize, most: usize) -> String {
        lock(&self.inner).text.read_chars(skip, most)
    }

    /// One slice of waiting: `None` if nothing has happened.
    pub(super) fn wait(&self, seen: Option<u64>, limit: Duration) -> Option<Waited> {
        let state = |inner: &Inner| match seen {
            Some(seen) if inner.text.bytes as u64 > seen => Some(Waited::More),
            _ if inner.record.state != RunState::Working => Some(Waited::Ended),
            _ => None,
        };
        let mut inner = lock(&self.inner);
        inner.readers += 1;
        let (mut inner, _) =
            wait_while(&self.changed, inner, limit, |inner| state(inner).is_none());
        inner.readers -= 1;
        state(&inner)
    }
}

impl Inner {
    fn record(&self) -> Record {
        Record {
            bytes: self.text.bytes as u64,
            chars: self.text.chars as u64,
            ..self.record.clone()
        }
    }
}
