//! Runs: what was started, what came of it, and who may see it. A run costs money, so what it gave outlives the call that
//! asked for it.
//!
//! In scope: runs with their text, in memory and in a state folder that several processes may share; whose they are; how
//! long they are kept. Not in scope: what a run does (whoever holds its [`RunWriter`]), and how it is shown: MCP and Fabric are
//! unknown here.
//!
//! ```text
//!   Runs::begin ──> RunWriter ──append, finish──> the run <──read, wait, cancel── Run <── Runs::find
//! ```
//!
//! - A run is kept for `keep` after its end. When there are too many, the oldest finished one of the owner who holds most
//!   goes. One that works never goes, one that was promised (told as a task) not before its time. If nothing may go, no
//!   more is promised, while other runs still begin; they may be the first to go once they end.
//! - With `keep` 0 nothing is promised or written to the folder, and a run is gone at its end, but for those who hold it.
//! - Whoever holds a [`Run`] of this process can read it to its end, kept or not.
//! - The folder is never the end of a run: what cannot be written stays in memory, with a warning.
//! - Nothing here has a thread or wakes up by itself: the worker's own calls write its text and notice that another process
//!   has cancelled it, once a second; what is too old goes when the store is next used.

mod clock;
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
mod tests_folder;

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

/// How often whoever waits is asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);

/// The runs of this process, and those in its folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Runs(Arc<Store>);

/// There is no room for a run that must be kept: too many others work or were promised, or nothing is kept at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreFull;

impl Runs {
    /// Keeps runs for so long after their end; their memory is charged to `accounts`.
    pub(crate) fn new(keep: Duration, folder: Option<Arc<Folder>>, accounts: Option<Accounts>) -> Runs {
        Runs(Arc::new(Store::new(keep, folder, accounts, Box::new(clock::SystemClock::new()))))
    }

    /// Is anything kept, so that tasks can be told?
    pub(crate) fn keeps(&self) -> bool {
        self.0.keeps()
    }

    /// Are runs also files, which other processes and later ones can read?
    pub(crate) fn has_folder(&self) -> bool {
        self.0.folder.is_some()
    }

    /// Begins a run. It is kept if there is room when it ends.
    pub(crate) fn begin(&self, start: Start) -> RunWriter {
        RunWriter { store: self.0.clone(), live: self.0.begin(start) }
    }

    /// Begins a run that is told as a task: found for `ttl` from now at least, and on disk when this returns.
    ///
    /// # Errors
    /// [`StoreFull`]; nothing was begun.
    pub(crate) fn begin_task(&self, start: Start, ttl: Duration) -> Result<RunWriter, StoreFull> {
        let live = self.0.begin_promised(start, ttl).ok_or(StoreFull)?;
        Ok(RunWriter { store: self.0.clone(), live })
    }

    /// The caller's run of that id. `None` for anything else, be it unknown, gone or another's.
    pub(crate) fn find(&self, id: &str, caller: &Owner) -> Option<Run> {
        let place = self.0.find(RunId::parse(id)?, caller)?;
        Some(Run { store: self.0.clone(), place })
    }

    /// A page of the caller's runs, the latest first, from where an earlier page ended. `None` for a caller whose runs are
    /// found by their ids only.
    pub(crate) fn list(&self, caller: &Owner, from: Option<RunCursor>, most: usize) -> Option<RunPage> {
        if *caller == Owner::Key {
            return None;
        }
        let (places, more) = self.0.list(caller, from.map(|cursor| (cursor.created, cursor.id)), most);
        let runs: Vec<Run> = places.into_iter().map(|place| Run { store: self.0.clone(), place }).collect();
        let last = runs.last().filter(|_| more).map(|run| run.cursor());
        Some(RunPage { runs, next: last })
    }

    /// Ends all runs of this process as interrupted, with the text they have, and has them written. To be called when the
    /// process ends. Returns how many there were.
    pub(crate) fn interrupt_all(&self) -> usize {
        self.0.interrupt_all()
    }

    /// Gives up finished runs that are in memory and were not promised, the oldest of whoever holds most first, until about
    /// `bytes` are free. Returns how many are.
    pub(crate) fn shrink(&self, bytes: usize) -> usize {
        self.0.shrink(bytes)
    }

    /// Reads the folder and removes what is too old or too much. Good to do once in the background after the start: with
    /// many runs, the first listing then takes no longer than later ones.
    pub(crate) fn sweep(&self) {
        self.0.refresh();
        self.0.tidy();
    }

    /// How many runs there are, and what they take. Those in the folder as they were last seen.
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

/// A place in a list, between two runs: it stays where it is whatever comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunCursor {
    created: u64,
    id: RunId,
}

impl RunCursor {
    /// Reads what its `Display` writes; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<RunCursor> {
        let (created, id) = text.split_once('-')?;
        let cursor = RunCursor { created: created.parse().ok()?, id: RunId::parse(id)? };
        (cursor.to_string() == text).then_some(cursor)
    }
}

impl std::fmt::Display for RunCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.created, self.id)
    }
}

/// A run as those see it who may: of this process, or in the folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Run {
    store: Arc<Store>,
    place: Place,
}

impl Run {
    /// Its name.
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
        RunCursor { created, id: self.id() }
    }

    /// What is known of it now.
    pub(crate) fn record(&self) -> Record {
        match &self.place {
            Place::Live(live) => live.record(),
            Place::Stored(folder, known) => {
                let Loaded { record, held } = self.store.reload(folder, known);
                let chars = if held { folder.count(record.id, record.bytes) } else { record.chars };
                Record { chars, ..record }
            }
        }
    }

    /// Its text from byte `from` on, `most` bytes at most. Begins and ends between characters.
    pub(crate) fn read(&self, from: u64, most: usize) -> String {
        match &self.place {
            Place::Live(live) => live.read(usize::try_from(from).unwrap_or(usize::MAX), most),
            Place::Stored(folder, known) => {
                let bytes = self.store.reload(folder, known).record.bytes;
                folder.read_text(known.record.id, bytes, from, most as u64)
            }
        }
    }

    /// Its text without the first `skip` characters, `most` characters at most.
    pub(crate) fn read_chars(&self, skip: usize, most: usize) -> String {
        match &self.place {
            Place::Live(live) => live.read_chars(skip, most),
            Place::Stored(folder, known) => {
                let bytes = self.store.reload(folder, known).record.bytes;
                folder.read_chars(known.record.id, bytes, skip, most)
            }
        }
    }

    /// Waits for the end, or for more text than the `seen` bytes, `limit` at most. `still_waiting` is asked ten times a
    /// second, on this thread, whether to go on.
    pub(crate) fn wait(&self, seen: Option<u64>, limit: Duration, still_waiting: &mut dyn FnMut() -> bool) -> Waited {
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
            // Another process's: there is nobody to wake us.
            std::thread::sleep(slice);
        }
        waited
    }

    /// Stops it. It is shown as cancelled from now on, whatever its worker says. False if it had ended or was stopped before.
    /// A worker in another process sees it within about a second.
    pub(crate) fn cancel(&self) -> bool {
        let today = self.store.clock.today();
        match &self.place {
            Place::Live(live) => live.cancel(today),
            Place::Stored(folder, known) => folder.cancel(known.record.id, today),
        }
    }

    /// Promises to tell it as a task: found for `ttl` from its beginning at least, and on disk when this returns.
    ///
    /// # Errors
    /// [`StoreFull`], also for a run of another process, and for one that has ended or just ends: its end is the answer then.
    pub(crate) fn promise(&self, ttl: Duration) -> Result<(), StoreFull> {
        match &self.place {
            Place::Live(live) if self.store.promise(live, ttl) => Ok(()),
            Place::Live(_) | Place::Stored(..) => Err(StoreFull),
        }
    }

    /// Has it on disk before this returns, where there is a folder: to be called before anybody is told its id.
    pub(crate) fn persist(&self) {
        if let Place::Live(live) = &self.place {
            live.persist();
        }
    }
}

/// The end that a run's worker holds. Dropped without [`RunWriter::finish`], the run is interrupted.
pub(crate) struct RunWriter {
    store: Arc<Store>,
    live: Arc<LiveRun>,
}

impl RunWriter {
    /// The run.
    pub(crate) fn run(&self) -> Run {
        Run { store: self.store.clone(), place: Place::Live(self.live.clone()) }
    }

    /// Adds text. Nothing is added to a run that has ended or was cancelled.
    ///
    /// # Errors
    /// [`StoreFull`]: there is no memory for more, even without all that was kept and may go. This piece is kept all the same, but
    /// the worker should end the run.
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

    /// Is the run to stop? To be asked several times a second: this is also when text that has waited for a second is written
    /// to disk, and when the word of other processes is noticed.
    pub(crate) fn is_cancelled(&self) -> bool {
        let RunWriter { store, live } = self;
        live.tick(store.clock.steady(), store.clock.today());
        live.is_cancelled()
    }

    /// Ends the run; it can be found and is on disk when this returns. If it was cancelled it stays so, with what `end`
    /// says of usage, error and result. Only the first end counts.
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
