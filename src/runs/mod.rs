//! Runs of patterns and their results, and who may see them. A run costs money, so its result outlives the call that
//! started it.
//!
//! In scope: records and texts of runs, in memory and in a state folder that several processes may share; ownership;
//! retention. Not in scope: executing a run (the holder of its [`RunWriter`]) and presenting it. This module knows
//! neither MCP nor Fabric.
//!
//! ```text
//!   Runs::begin ──> RunWriter ──append, finish──> the run <──read, wait, cancel── Run <── Runs::find
//! ```
//!
//! - A run is kept for `keep` after its end. When there are too many, the oldest finished run of the owner who holds
//!   most is evicted. Working runs are never evicted, promised ones (announced as tasks) not before their time-to-live.
//!   If nothing can be evicted, no further task is promised, nor to a named caller to whom more is promised than is left;
//!   other runs still start, and may be evicted first once they end.
//! - With `keep` 0 nothing is promised or written to the folder, and a run is forgotten at its end, except by holders
//!   of its [`Run`].
//! - A [`Run`] of this process stays readable while it is held, kept or not.
//! - A failing folder never fails a run: what cannot be written stays in memory, with a warning, and is tried again when
//!   the folder is read or another run ends, once a minute at most, and at the end of the process.
//! - There is no background thread: the worker's own calls write its text and check for a cancellation by another
//!   process, once a second; expired runs are removed when the store is next used.

mod evict;
mod files;
mod folder;
mod live;
mod memory;
mod record;
mod store;
mod text;

#[cfg(test)]
mod kill;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_disk;
#[cfg(test)]
mod tests_folder;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use folder::Folder;
use folder::Loaded;
pub(crate) use live::Waited;
pub(crate) use memory::Accounts;
pub(crate) use record::{End, Owner, Record, RunId, RunState, Start};
pub(crate) use store::Tally;

use live::LiveRun;
use store::{Place, Store};

use crate::time as clock;

/// How often a waiting caller is asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);

/// The runs of this process, and those in its folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Runs(Arc<Store>);

/// No room for a run that must be kept: too many of its owner or in all are working or promised, or nothing is
/// kept at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreFull;

impl Runs {
    /// Keeps runs for `keep` after their end. Their memory is charged to `accounts`.
    pub(crate) fn new(
        keep: Duration,
        folder: Option<Arc<Folder>>,
        accounts: Option<Accounts>,
    ) -> Runs {
        Runs(Arc::new(Store::new(
            keep,
            folder,
            accounts,
            Box::new(clock::SystemClock::new()),
        )))
    }

    /// Are runs kept after their end? Tasks need that.
    pub(crate) fn keeps(&self) -> bool {
        self.0.keeps()
    }

    /// Is there a state folder, which other and later processes can read?
    pub(crate) fn has_folder(&self) -> bool {
        self.0.folder.is_some()
    }

    /// Starts a run, which is kept if there is room when it ends.
    pub(crate) fn begin(&self, start: Start) -> RunWriter {
        RunWriter {
            store: self.0.clone(),
            live: self.0.begin(start),
        }
    }

    /// Starts a run that is announced as a task: it can be found for at least `ttl` from now, and is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`StoreFull`]; nothing was started.
    pub(crate) fn begin_task(&self, start: Start, ttl: Duration) -> Result<RunWriter, StoreFull> {
        let live = self.0.begin_promised(start, ttl).ok_or(StoreFull)?;
        Ok(RunWriter {
            store: self.0.clone(),
            live,
        })
    }

    /// The caller's run of that id; `None` if it is unknown, expired or another caller's.
    pub(crate) fn find(&self, id: &str, caller: &Owner) -> Option<Run> {
        let place = self.0.find(RunId::parse(id)?, caller)?;
        Some(Run {
            store: self.0.clone(),
            place,
        })
    }

    /// A page of the caller's runs, the latest first, starting where an earlier page ended. `None` for callers whose
    /// runs can only be found by id.
    pub(crate) fn list(
        &self,
        caller: &Owner,
        from: Option<RunCursor>,
        most: usize,
    ) -> Option<RunPage> {
        if *caller == Owner::Key {
            return None;
        }
        let (places, more) =
            self.0
                .list(caller, from.map(|cursor| (cursor.created, cursor.id)), most);
        let runs: Vec<Run> = places
            .into_iter()
            .map(|place| Run {
                store: self.0.clone(),
                place,
            })
            .collect();
        let last = runs.last().filter(|_| more).map(|run| run.cursor());
        Some(RunPage { runs, next: last })
    }

    /// Ends all runs of this process as interrupted, keeping their text, and writes them. For the end of the process.
    /// Returns how many there were.
    pub(crate) fn interrupt_all(&self) -> usize {
        self.0.interrupt_all()
    }

    /// Evicts finished runs that were not promised from memory, until about `bytes` are freed. Returns the bytes freed.
    pub(crate) fn shrink(&self, bytes: usize) -> usize {
        self.0.shrink(bytes)
    }

    /// Reads the folder and removes expired and surplus runs. Call it once in the background after the start, so that
    /// the first listing is as fast as later ones.
    pub(crate) fn sweep(&self) {
        self.0.refresh();
        self.0.tidy();
    }

    /// The number of runs, and their memory. Those in the folder as they were last seen.
    pub(crate) fn tally(&self) -> Tally {
        self.0.tally()
    }
}

/// Part of a list of runs.
pub(crate) struct RunPage {
    /// The latest first.
    pub(crate) runs: Vec<Run>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<RunCursor>,
}

/// A position in a list, by creation time and id: it stays valid when runs are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunCursor {
    created: u64,
    id: RunId,
}

impl RunCursor {
    /// Reads what its `Display` writes; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<RunCursor> {
        let (created, id) = text.split_once('-')?;
        let cursor = RunCursor {
            created: created.parse().ok()?,
            id: RunId::parse(id)?,
        };
        (cursor.to_string() == text).then_some(cursor)
    }
}

impl std::fmt::Display for RunCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.created, self.id)
    }
}

/// A reader's handle to a run, of this process or in the folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Run {
    store: Arc<Store>,
    place: Place,
}

impl Run {
    /// Its id.
    pub(crate) fn id(&self) -> RunId {
        match &self.place {
            Place::Live(live) => live.id,
            Place::Stored(_, known) => known.record.id,
        }
    }

    fn cursor(&self) -> RunCursor {
        let created = match &self.place {
            Place::Live(live) => live.created,
            Place::Stored(_, known) => known.record.created,
        };
        RunCursor {
            created,
            id: self.id(),
        }
    }

    /// Its current record.
    pub(crate) fn record(&self) -> Record {
        match &self.place {
            Place::Live(live) => live.record(),
            Place::Stored(folder, known) => {
                let Loaded { record, held } = self.store.reload(folder, known);
                let chars = if held {
                    folder.count(record.id, record.bytes)
                } else {
                    record.chars
                };
                Record { chars, ..record }
            }
        }
    }

    /// At most `most` bytes of its text from byte `from` on, cut between characters.
    pub(crate) fn read(&self, from: u64, most: usize) -> String {
        match &self.place {
            Place::Live(live) => live.read(usize::try_from(from).unwrap_or(usize::MAX), most),
            Place::Stored(folder, known) => {
                let bytes = self.store.reload(folder, known).record.bytes;
                folder.read_text(known.record.id, bytes, from, most as u64)
            }
        }
    }

    /// At most `most` characters of its text, after the first `skip`.
    pub(crate) fn read_chars(&self, skip: usize, most: usize) -> String {
        match &self.place {
            Place::Live(live) => live.read_chars(skip, most),
            Place::Stored(folder, known) => {
                let bytes = self.store.reload(folder, known).record.bytes;
                folder.read_chars(known.record.id, bytes, skip, most)
            }
        }
    }

    /// Waits for the end, or for more than `seen` bytes of text, for at most `limit`. `still_waiting` is asked ten
    /// times a second, on this thread, whether to go on.
    pub(crate) fn wait(
        &self,
        seen: Option<u64>,
        limit: Duration,
        still_waiting: &mut dyn FnMut() -> bool,
    ) -> Waited {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if let Some(waited) = self.wait_slice(seen, left.min(SLICE)) {
                return waited;
            }
            if left <= SLICE {
                return Waited::TimedOut;
            }
            if !still_waiting() {
                return Waited::Stopped;
            }
        }
    }

    fn wait_slice(&self, seen: Option<u64>, slice: Duration) -> Option<Waited> {
        let record = match &self.place {
            Place::Live(live) => return live.wait(seen, slice),
            Place::Stored(folder, known) => self.store.reload(folder, known).record,
        };
        let waited = match seen {
            Some(seen) if record.bytes > seen => Some(Waited::More),
            _ => (record.state != RunState::Working).then_some(Waited::Ended),
        };
        if waited.is_none() {
            // It runs in another process, which cannot wake us.
            std::thread::sleep(slice);
        }
        waited
    }

    /// Cancels it. From now on it is shown as cancelled, whatever its worker reports. False if it had ended or was
    /// cancelled before. A worker in another process notices within about a second.
    ///
    /// # Errors
    /// It works in another process, and the folder cannot be written or read: it goes on. That is logged.
    pub(crate) fn cancel(&self) -> io::Result<bool> {
        let today = self.store.clock.today();
        match &self.place {
            Place::Live(live) => Ok(live.cancel(today)),
            Place::Stored(folder, known) => {
                let id = known.record.id;
                let cancelled = folder.cancel(id, today);
                cancelled.inspect_err(|error| {
                    log::warn!("run {id}: another process could not be told to stop it: {error}")
                })
            }
        }
    }

    /// Promises to keep it as a task: it can be found for at least `ttl` from its start, and is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`StoreFull`], also for a run of another process, and for one that has ended or is ending: then its end is the
    /// answer.
    pub(crate) fn promise(&self, ttl: Duration) -> Result<(), StoreFull> {
        match &self.place {
            Place::Live(live) if self.store.promise(live, ttl) => Ok(()),
            Place::Live(_) | Place::Stored(..) => Err(StoreFull),
        }
    }

    /// Writes it to disk before returning, where there is a folder. Call it before anybody learns its id.
    pub(crate) fn persist(&self) {
        if let Place::Live(live) = &self.place {
            live.persist();
        }
    }
}

/// The worker's handle to a run. Dropped without [`RunWriter::finish`], the run is interrupted.
pub(crate) struct RunWriter {
    store: Arc<Store>,
    live: Arc<LiveRun>,
}

impl RunWriter {
    /// The run.
    pub(crate) fn run(&self) -> Run {
        Run {
            store: self.store.clone(),
            place: Place::Live(self.live.clone()),
        }
    }

    /// Adds text. Nothing is added to a run that has ended or was cancelled.
    ///
    /// # Errors
    /// [`StoreFull`]: the memory budget is exhausted, even after evicting what can be. This piece is kept, but the
    /// worker should end the run.
    pub(crate) fn append(&self, piece: &str) -> Result<(), StoreFull> {
        let RunWriter { store, live } = self;
        let today = store.clock.today();
        let mut fits = live.append(piece, today);
        if !fits {
            store.shrink(piece.len());
            fits = live.ask_again();
        }
        live.tick(store.clock.steady(), today);
        if fits { Ok(()) } else { Err(StoreFull) }
    }

    /// Must the run stop? Call it several times a second: it also writes text that has waited for a second to disk, and
    /// notices cancellations by other processes.
    pub(crate) fn is_cancelled(&self) -> bool {
        let RunWriter { store, live } = self;
        live.tick(store.clock.steady(), store.clock.today());
        live.is_cancelled()
    }

    /// Ends the run, which can be found and is on disk when this returns. A cancelled run stays cancelled, with usage,
    /// error and result of `end`. Only the first end counts.
    pub(crate) fn finish(&self, end: End) {
        self.store.close(&self.live, end);
        self.store.refresh_sometimes();
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.live.is_closed() {
            self.finish(End::interrupted());
        }
    }
}
