//! The table of runs: those of this process, and what is known of those in the folder.
//!
//! A run of this process is in memory with its text until it has ended and is on disk; from then on the table has only
//! what listing and eviction need, and everything else is read from its files. A listing brings the table up to date
//! with other processes, by the names in the folder.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::sync::lock;

use super::evict::{Bounds, KeptRun, has_room, victims};
use super::files::Files;
use super::folder::{Folder, FoundRun, Loaded, Part, Parts, SHARDS};
use super::live::{LiveRun, StoredEnd};
use super::memory::{Accounts, Memory};
use super::record::{End, Owner, Record, RunId, RunState, Start};
use crate::time::{Clock, whole};

/// Bounds of what is kept in memory.
const IN_MEMORY: Bounds = Bounds {
    runs: 1_000,
    bytes: 64 << 20,
};
/// Bounds of what is kept in a folder.
const IN_FOLDER: Bounds = Bounds {
    runs: 10_000,
    bytes: 1 << 30,
};
/// The memory of a table entry for a run in the folder, in bytes; an estimate.
const ENTRY: usize = 256;

/// How often expired runs are removed while memory is within its bounds, in milliseconds.
const TIDY_EVERY: u64 = 1_000;
/// How often the folder is read while runs end, and how often what could not be written is tried again.
const REFRESH: Duration = Duration::from_secs(60);
/// Ends that may fail to be written in one attempt at all of them: then the folder is still full, or slow to say so.
const FAILURES: usize = 8;
/// Threads that write open runs at the end of the process: a disk syncs many files in the time of one.
const WRITERS: usize = 16;

/// What all handles share.
pub(super) struct Store {
    keep: Duration,
    pub(super) clock: Box<dyn Clock>,
    pub(super) folder: Option<Arc<Folder>>,
    in_memory: Bounds,
    in_folder: Bounds,
    memory: Arc<Memory>,
    table: Mutex<HashMap<RunId, RunEntry>>,
    /// When [`Store::tidy`] last ran, in milliseconds by the steady clock.
    tidied: AtomicU64,
    /// When [`Store::write_unwritten`] last tried, as `tidied`.
    tried: AtomicU64,
    /// How often the folder was read.
    scans: AtomicU64,
    /// Held while the folder is read.
    read: Mutex<FolderRead>,
}

enum RunEntry {
    Live(Arc<LiveRun>),
    Stored(StoredRun),
}

/// What the table has of a run in the folder.
struct StoredRun {
    owner: Owner,
    created: u64,
    /// The number of the last scan of the folder before this was entered.
    entered: u64,
    /// `None` while another process works on it.
    ended: Option<u64>,
    bytes: u64,
    /// By the steady clock.
    until: Duration,
    promised_until: Duration,
}

/// When the folder was last read.
struct FolderRead {
    /// The stamp of each shard then.
    stamps: [Option<u64>; SHARDS],
    /// By the steady clock.
    at: Option<Duration>,
}

/// A run that was found.
#[derive(Clone)]
pub(super) enum Place {
    Live(Arc<LiveRun>),
    Stored(Arc<Folder>, Box<Loaded>),
}

/// The number of runs, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Runs of this process that have not ended.
    pub(crate) working: usize,
    /// All others that are known of.
    pub(crate) kept: usize,
    /// Bytes of memory for all of these.
    pub(crate) bytes: usize,
}

impl Store {
    pub(super) fn new(
        keep: Duration,
        folder: Option<Arc<Folder>>,
        accounts: Option<Accounts>,
        clock: Box<dyn Clock>,
    ) -> Store {
        Store {
            keep,
            clock,
            folder: folder.filter(|_| !keep.is_zero()),
            in_memory: IN_MEMORY,
            in_folder: IN_FOLDER,
            memory: Memory::new(accounts),
            table: Mutex::default(),
            tidied: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            read: Mutex::new(FolderRead {
                stamps: [None; SHARDS],
                at: None,
            }),
        }
    }

    /// For tests: other bounds.
    #[cfg(test)]
    pub(super) fn bounded(self, in_memory: (usize, u64), in_folder: (usize, u64)) -> Store {
        let bounds = |(runs, bytes)| Bounds { runs, bytes };
        Store {
            in_memory: bounds(in_memory),
            in_folder: bounds(in_folder),
            ..self
        }
    }

    pub(super) fn keeps(&self) -> bool {
        !self.keep.is_zero()
    }

    pub(super) fn begin(&self, start: Start) -> Arc<LiveRun> {
        let record = start.record(RunId::new(), self.clock.today());
        let files = self.begin_files(&record);
        let live = Arc::new(LiveRun::new(
            record,
            self.clock.steady(),
            files,
            self.memory.open(),
        ));
        lock(&self.table).insert(live.id, RunEntry::Live(live.clone()));
        self.tidy_if_due();
        live
    }

    /// The files of a working run; `None` if it has none, or if they could not be created.
    fn begin_files(&self, record: &Record) -> Option<Files> {
        // Runs of the process alone are visible to nobody else, and to nobody after its end.
        let folder = self
            .folder
            .as_ref()
            .filter(|_| record.owner != Owner::Process)?;
        let begun = Files::begin(folder, record, self.clock.steady());
        begun
            .inspect_err(|error| folder.warn(record.id, "it could not be written", error))
            .ok()
    }

    /// Is there room for a run of `owner` that must be kept, not counting `but`?
    fn has_room(&self, owner: &Owner, but: Option<RunId>) -> bool {
        let now = self.clock.steady();
        let (in_folder, bounds) = match self.folder {
            Some(_) => (true, self.in_folder),
            None => (false, self.in_memory),
        };
        let table = lock(&self.table);
        has_room(
            shelf(&table, in_folder, now).filter(|run| Some(run.id) != but),
            owner,
            bounds,
        )
    }

    /// Starts a run that is announced as a task; `None` if there is no room for one.
    pub(super) fn begin_promised(&self, start: Start, ttl: Duration) -> Option<Arc<LiveRun>> {
        self.refresh();
        if !self.keeps() || !self.has_room(&start.owner, None) {
            return None;
        }
        let live = self.begin(start);
        live.promise(ttl);
        live.persist();
        Some(live)
    }

    /// Promises to keep a run, if there is room.
    pub(super) fn promise(&self, live: &LiveRun, ttl: Duration) -> bool {
        self.refresh();
        let promised =
            self.keeps() && self.has_room(&live.owner, Some(live.id)) && live.promise(ttl);
        if promised {
            live.persist();
        }
        promised
    }

    /// Ends a run, once; the first end counts.
    pub(super) fn close(&self, live: &Arc<LiveRun>, end: End) {
        let Some(record) = live.begin_close(end, self.clock.today()) else {
            return live.wait_closed();
        };
        if self.write_end(live, record, false) == StoredEnd::Yes {
            self.write_unwritten();
        }
        self.tidy_if_due();
    }

    /// Writes the end of a closing run, where there is a folder, and closes it. If it cannot be written, the run keeps
    /// its files and their lock: for other processes it works until it is written. `told`: this end has been shown.
    fn write_end(&self, live: &Arc<LiveRun>, mut record: Record, told: bool) -> StoredEnd {
        let mut stored = StoredEnd::No;
        if self.keeps() && self.folder.is_some() && live.owner != Owner::Process {
            if !live.has_files() {
                // If there was no room for them when it began, there may be now.
                live.add_files(self.begin_files(&Record {
                    state: RunState::Working,
                    ended: None,
                    ..record.clone()
                }));
            }
            stored = live.store(&mut record, told);
        }
        let now = self.clock.steady();
        let entry = (stored == StoredEnd::Yes).then(|| {
            self.stored(
                &Loaded {
                    record: record.clone(),
                    held: false,
                },
                now,
            )
        });
        {
            let mut table = lock(&self.table);
            match entry {
                _ if !self.keeps() => _ = table.remove(&live.id),
                Some(entry) => _ = table.insert(live.id, RunEntry::Stored(entry)),
                None => {}
            }
        }
        // After the table: a closed run in it counts as not stored, and would be evicted with its files.
        live.closed(record, stored, now, self.keep);
        stored
    }

    /// Writes the end of a run that could not be written before. False if it still cannot. Meanwhile it is closing, so
    /// that it is not evicted.
    pub(super) fn write_again(&self, live: &Arc<LiveRun>) -> bool {
        live.close_again()
            .is_none_or(|record| self.write_end(live, record, true) != StoredEnd::NotYet)
    }

    /// The runs whose end is in memory only, the smallest first: little room is better used for many of them.
    pub(super) fn unstored(&self) -> Vec<Arc<LiveRun>> {
        let table = lock(&self.table);
        let closed = table.values().filter_map(|entry| match entry {
            RunEntry::Live(live) if live.is_closed() => Some(live.clone()),
            // What is stored is no longer in the table as live.
            RunEntry::Live(_) | RunEntry::Stored(_) => None,
        });
        let mut closed: Vec<Arc<LiveRun>> = closed.collect();
        drop(table);
        closed.sort_by_cached_key(|live| live.record().bytes);
        closed
    }

    /// The runs of the folder that work and have no files.
    fn without_files(&self) -> Vec<Arc<LiveRun>> {
        let table = lock(&self.table);
        let open = table.values().filter_map(|entry| match entry {
            RunEntry::Live(live) if live.owner != Owner::Process && !live.has_files() => {
                Some(live.clone())
            }
            RunEntry::Live(_) | RunEntry::Stored(_) => None,
        });
        open.collect()
    }

    /// Now and then, tries again to write what could not be written: ends, and the beginnings of runs that work.
    fn write_unwritten(&self) {
        let now = self.clock.steady();
        if now.saturating_sub(Duration::from_millis(self.tried.load(Ordering::Relaxed))) >= REFRESH
        {
            self.tried.store(whole(now), Ordering::Relaxed);
            let failures = self
                .unstored()
                .into_iter()
                .filter(|live| !self.write_again(live));
            failures.take(FAILURES).for_each(drop);
            let begun = |live: &Arc<LiveRun>| live.begin_files(|record| self.begin_files(record));
            self.without_files()
                .into_iter()
                .filter(|live| !begun(live))
                .take(FAILURES)
                .for_each(drop);
        }
    }

    fn stored(&self, loaded: &Loaded, now: Duration) -> StoredRun {
        let record = &loaded.record;
        let today = self.clock.today();
        // A clock that was set back makes a run no older, and one of the future no younger than new.
        let left = |from: u64, length: u64| {
            Duration::from_millis(length.saturating_sub(today.saturating_sub(from)))
        };
        let promised_until = now.saturating_add(left(record.created, record.ttl.unwrap_or(0)));
        let until = now.saturating_add(left(record.ended.unwrap_or(today), whole(self.keep)));
        StoredRun {
            owner: record.owner.clone(),
            created: record.created,
            entered: self.scans.load(Ordering::Relaxed),
            ended: record.ended.filter(|_| !loaded.held),
            bytes: record.size(),
            until: until.max(promised_until),
            promised_until,
        }
    }

    /// [`Store::tidy`], which looks at every run: at once if there may be too much, otherwise now and then.
    fn tidy_if_due(&self) {
        let Bounds { runs, bytes } = self.in_memory;
        let too_much = lock(&self.table).len() > runs || self.memory.held() as u64 > bytes;
        // The scan is cheap compared with writing the files of a run.
        if self.folder.is_some()
            || too_much
            || whole(self.clock.steady()).saturating_sub(self.tidied.load(Ordering::Relaxed))
                >= TIDY_EVERY
        {
            self.tidy();
        }
    }

    /// Removes expired runs, and evicts what is beyond the bounds.
    pub(super) fn tidy(&self) {
        let now = self.clock.steady();
        self.tidied.store(whole(now), Ordering::Relaxed);
        let mut table = lock(&self.table);
        let expired: Vec<RunId> = table
            .iter()
            .filter(|(_, entry)| entry.is_expired(now))
            .map(|(id, _)| *id)
            .collect();
        let mut gone = take(&mut table, expired);
        let too_many = victims(shelf(&table, false, now), self.in_memory);
        gone.extend(take(&mut table, too_many));
        if self.folder.is_some() {
            let too_many = victims(shelf(&table, true, now), self.in_folder);
            gone.extend(take(&mut table, too_many));
        }
        drop(table);
        self.remove_files(gone);
    }

    /// Evicts finished runs from memory until about `bytes` are freed, or none can be evicted. Returns the bytes freed.
    pub(super) fn shrink(&self, bytes: usize) -> usize {
        let before = self.memory.held();
        let now = self.clock.steady();
        let mut table = lock(&self.table);
        let finished: u64 = shelf(&table, false, now)
            .filter(|run| run.ended.is_some())
            .map(|run| run.bytes)
            .sum();
        let bounds = Bounds {
            runs: usize::MAX,
            bytes: finished.saturating_sub(bytes as u64),
        };
        let too_many = victims(shelf(&table, false, now), bounds);
        let gone = take(&mut table, too_many);
        drop(table);
        self.remove_files(gone);
        before.saturating_sub(self.memory.held())
    }

    fn remove_files(&self, gone: Vec<(RunId, RunEntry)>) {
        for (id, entry) in gone {
            let on_disk = match entry {
                RunEntry::Live(live) => live.has_files(),
                RunEntry::Stored(_) => true,
            };
            if let Some(folder) = self.folder.as_ref().filter(|_| on_disk) {
                folder.remove(id);
            }
        }
    }

    /// The run of this id, if it is the caller's. Ownership is checked here and nowhere else.
    pub(super) fn find(&self, id: RunId, caller: &Owner) -> Option<Place> {
        let now = self.clock.steady();
        let (live, known) = match lock(&self.table).get(&id) {
            Some(entry) if entry.owner() != caller || entry.is_expired(now) => return None,
            Some(RunEntry::Live(live)) => (Some(live.clone()), true),
            Some(RunEntry::Stored(stored)) => (None, stored.ended.is_some()),
            None => (None, false),
        };
        if let Some(live) = live {
            live.look(self.clock.today());
            return Some(Place::Live(live));
        }
        let folder = self.folder.as_ref()?;
        let FoundRun::Record(loaded) = folder.load(id, self.clock.today()) else {
            return None;
        };
        let kept = known || loaded.held || self.stored(&loaded, now).until > now;
        (kept && loaded.record.owner == *caller).then(|| Place::Stored(folder.clone(), loaded))
    }

    /// At most `most` of the caller's runs, the latest first, after the position `after`; and whether there are more.
    pub(super) fn list(
        &self,
        caller: &Owner,
        after: Option<(u64, RunId)>,
        most: usize,
    ) -> (Vec<Place>, bool) {
        self.refresh();
        self.tidy();
        let mut found: Vec<(u64, RunId)> = {
            let table = lock(&self.table);
            let own = table
                .iter()
                .filter(|(_, entry)| entry.owner() == caller)
                .map(|(id, entry)| (entry.created(), *id));
            own.filter(|run| after.is_none_or(|after| *run < after))
                .collect()
        };
        let more = found.len() > most;
        if more {
            found.select_nth_unstable_by_key(most, |run| Reverse(*run));
            found.truncate(most);
        }
        found.sort_unstable_by_key(|run| Reverse(*run));
        (
            found
                .into_iter()
                .filter_map(|(_, id)| self.find(id, caller))
                .collect(),
            more,
        )
    }

    /// Refreshes now and then, so that runs of other processes count against the bounds even if nobody ever lists.
    pub(super) fn refresh_sometimes(&self) {
        let now = self.clock.steady();
        if lock(&self.read)
            .at
            .is_none_or(|at| now.saturating_sub(at) >= REFRESH)
        {
            self.refresh();
            self.tidy();
        }
    }

    /// Brings the table up to date with what has changed in the folder.
    pub(super) fn refresh(&self) {
        let Some(folder) = &self.folder else { return };
        self.write_unwritten();
        let mut read = lock(&self.read);
        let (now, today) = (self.clock.steady(), self.clock.today());
        read.at = Some(now);
        // Runs entered from here on may not be among the names.
        let scan = self.scans.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut names, mut changed) = (HashMap::new(), [false; SHARDS]);
        for shard in 0..=u8::MAX {
            let (at, stamp) = (usize::from(shard), folder.stamp(shard));
            if stamp.is_some() && read.stamps[at] == stamp {
                continue;
            }
            match folder.names(shard) {
                Ok(found) => names.extend(found),
                Err(error) => {
                    log::warn!("the state folder could not be read: {error}");
                    break;
                }
            }
            (changed[at], read.stamps[at]) = (true, stamp);
        }
        // Most are known and final.
        let news: Vec<(RunId, Parts)> = {
            let mut table = lock(&self.table);
            table.retain(|id, entry| match entry {
                RunEntry::Stored(stored) if changed[usize::from(id.shard())] => {
                    stored.entered >= scan || names.get(id).is_some_and(|parts| parts.has_record())
                }
                RunEntry::Stored(_) | RunEntry::Live(_) => true,
            });
            let is_new = |id: &RunId, parts: &Parts| match table.get(id) {
                Some(RunEntry::Live(_)) => false,
                Some(RunEntry::Stored(stored)) => stored.ended.is_none() || parts.has_left_overs(),
                None => true,
            };
            names
                .into_iter()
                .filter(|(id, parts)| is_new(id, parts))
                .collect()
        };
        for (id, parts) in news {
            match folder.load(id, today) {
                FoundRun::Record(loaded) => {
                    if !loaded.held && parts.has_left_overs() {
                        folder.remove_orphans(id, &[Part::Lock, Part::Cancel, Part::Half]);
                    }
                    let entry = self.stored(&loaded, now);
                    let mut table = lock(&self.table);
                    let settled = |entry: &RunEntry| match entry {
                        RunEntry::Live(_) => true,
                        RunEntry::Stored(stored) => stored.ended.is_some(),
                    };
                    if !table.get(&id).is_some_and(settled) {
                        table.insert(id, RunEntry::Stored(entry));
                    }
                }
                FoundRun::Nothing => folder.remove_orphans(id, &Part::ALL),
                FoundRun::Unknown => {}
            }
        }
    }

    /// Ends all runs of this process as interrupted, and writes the ends that could not be written before. Returns how
    /// many were interrupted.
    pub(super) fn interrupt_all(&self) -> usize {
        let open: Vec<Arc<LiveRun>> = lock(&self.table)
            .values()
            .filter_map(|entry| match entry {
                RunEntry::Live(live) if !live.was_closed() => Some(live.clone()),
                RunEntry::Live(_) | RunEntry::Stored(_) => None,
            })
            .collect();
        // All are stopped before any is written: writing takes time, and each token costs money.
        let today = self.clock.today();
        open.iter().for_each(|live| live.interrupt(today));
        let count = open.len();
        let ends: Vec<Arc<LiveRun>> = open.into_iter().chain(self.unstored()).collect();
        let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let write = || {
            while let Some(live) = ends.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !live.was_closed() {
                    self.close(live, End::interrupted());
                } else if failures.load(Ordering::Relaxed) < FAILURES && !self.write_again(live) {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..ends.len().min(WRITERS) {
                let _ = thread::Builder::new()
                    .name("interrupt".into())
                    .spawn_scoped(scope, write);
            }
            write();
        });
        count
    }

    pub(super) fn tally(&self) -> Tally {
        let table = lock(&self.table);
        let mut tally = Tally {
            bytes: self.memory.held(),
            ..Tally::default()
        };
        for entry in table.values() {
            match entry {
                RunEntry::Live(live) if !live.was_closed() => tally.working += 1,
                RunEntry::Live(_) => tally.kept += 1,
                RunEntry::Stored(_) => {
                    (tally.kept, tally.bytes) = (tally.kept + 1, tally.bytes + ENTRY)
                }
            }
        }
        tally
    }

    /// What the files have of a run by now; the last that was known if they are gone.
    pub(super) fn reload(&self, folder: &Folder, known: &Loaded) -> Loaded {
        if !known.held {
            return known.clone();
        }
        match folder.load(known.record.id, self.clock.today()) {
            FoundRun::Record(loaded) => *loaded,
            FoundRun::Unknown => known.clone(),
            FoundRun::Nothing => {
                let record = Record {
                    state: RunState::Interrupted,
                    bytes: 0,
                    ..known.record.clone()
                };
                Loaded {
                    record,
                    held: false,
                }
            }
        }
    }
}

impl RunEntry {
    fn owner(&self) -> &Owner {
        match self {
            RunEntry::Live(live) => &live.owner,
            RunEntry::Stored(stored) => &stored.owner,
        }
    }

    fn created(&self) -> u64 {
        match self {
            RunEntry::Live(live) => live.created,
            RunEntry::Stored(stored) => stored.created,
        }
    }

    fn is_expired(&self, now: Duration) -> bool {
        match self {
            RunEntry::Live(live) => live.is_expired(now),
            RunEntry::Stored(stored) => stored.ended.is_some() && stored.until <= now,
        }
    }
}

/// The runs that count against the bounds of the folder, or against those of memory: without files, or closed and not
/// stored.
fn shelf(
    table: &HashMap<RunId, RunEntry>,
    in_folder: bool,
    now: Duration,
) -> impl Iterator<Item = KeptRun<'_>> + Clone {
    table.iter().filter_map(move |(id, entry)| match entry {
        RunEntry::Live(live) => {
            let on_disk = live.has_files() && !live.is_closed();
            (on_disk == in_folder).then(|| live.kept(now))
        }
        RunEntry::Stored(stored) => in_folder.then(|| KeptRun {
            id: *id,
            owner: &stored.owner,
            ended: stored.ended,
            bytes: stored.bytes,
            promised: stored.promised_until > now,
        }),
    })
}

fn take(table: &mut HashMap<RunId, RunEntry>, ids: Vec<RunId>) -> Vec<(RunId, RunEntry)> {
    ids.into_iter()
        .filter_map(|id| table.remove_entry(&id))
        .collect()
}
