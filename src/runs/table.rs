//! The table of runs: those of this process, and what is known of those in the folder.
//!
//! A run of this process is in memory with its text until it has ended and is on disk; from then on the table has only
//! what listing and eviction need, and everything else is read from its files. A listing brings the table up to date
//! with other processes, by the names in the folder.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::account::{Account, Accounts, Full, Resource};
use crate::sync::lock;
use crate::time::{milliseconds_now, whole};

use super::folder::{ALL, Folder, Loaded, is_gone};
use super::live::{Charge, LiveRun};
use super::record::{End, Owner, Record, RunId, Start};
use super::{Run, RunPlace, RunWriter, StoreFull};

/// How many runs may be kept, and the bytes of their texts and of what they have beside them.
pub(crate) fn bounds(in_folder: bool) -> (usize, usize) {
    match in_folder {
        true => (10_000, 1 << 30),
        false => (1_000, 64 << 20),
    }
}

/// How often the folder is read while runs end.
const REFRESH: Duration = Duration::from_secs(60);
/// Threads that write open runs at the end of the process: a disk syncs many files in the time of one.
const WRITERS: usize = 16;

/// The runs of this process, and those in its folder. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Runs(pub(super) Arc<RunTable>);

impl Runs {
    /// Keeps runs for `keep` after their end. What is kept is charged to `accounts`, which take it back from their own
    /// runs only.
    pub(crate) fn new(keep: Duration, folder: Option<Arc<Folder>>, accounts: &Accounts) -> Runs {
        let keep = whole(keep);
        let table = Arc::new(RunTable {
            keep,
            folder: folder.filter(|_| keep > 0),
            accounts: accounts.clone(),
            entries: Mutex::default(),
            read: Mutex::default(),
        });
        let reclaiming = Arc::downgrade(&table);
        accounts.reclaim_with(move |owner, bytes| {
            let table = reclaiming.upgrade();
            table.map_or(0, |table| table.reclaim(owner, bytes))
        });
        Runs(table)
    }

    /// Are runs kept after their end? Tasks need that.
    pub(crate) fn keeps(&self) -> bool {
        self.0.keeps()
    }

    /// Is there a state folder, which other and later processes can read?
    pub(crate) fn has_folder(&self) -> bool {
        self.0.folder.is_some()
    }

    /// Starts a run, which is kept if there is room in `account`.
    pub(crate) fn begin(&self, start: Start, account: &Account) -> RunWriter {
        RunWriter {
            table: self.0.clone(),
            live: self.0.begin(start, account),
        }
    }

    /// Starts a run that is announced as a task: it can be found for at least `ttl` from now, and is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`StoreFull`]; nothing was started.
    pub(crate) fn begin_task(
        &self,
        start: Start,
        ttl: Duration,
        account: &Account,
    ) -> Result<RunWriter, StoreFull> {
        let live = self.0.begin(start, account);
        if !self.0.promise(&live, ttl) {
            self.0.forget(&[live.id]);
            return Err(StoreFull);
        }
        Ok(RunWriter {
            table: self.0.clone(),
            live,
        })
    }

    /// The caller's run of that id; `None` if it is unknown, expired or another caller's.
    pub(crate) fn find(&self, id: &str, caller: &Owner) -> Option<Run> {
        self.0
            .find(RunId::parse(id)?, caller, milliseconds_now())
            .map(|place| self.run(place))
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
        let (places, more) = self.0.list(caller, from, most, milliseconds_now());
        let runs: Vec<Run> = places.into_iter().map(|place| self.run(place)).collect();
        let next = runs.last().filter(|_| more).map(|run| RunCursor {
            created: run.created(),
            id: run.id(),
        });
        Some(RunPage { runs, next })
    }

    fn run(&self, place: RunPlace) -> Run {
        Run {
            table: self.0.clone(),
            place,
        }
    }

    /// Ends all runs of this process as interrupted, keeping their text, and writes them. For the end of the process.
    pub(crate) fn interrupt_all(&self) {
        self.0.interrupt_all();
    }

    /// Reads the folder and removes expired and surplus runs. Call it once in the background after the start, so that
    /// the first listing is as fast as later ones.
    pub(crate) fn sweep(&self) {
        self.0.refresh();
        self.0.tidy(milliseconds_now());
    }

    /// How many runs there are that have ended or work in other processes. Those in the folder as they were last seen.
    pub(crate) fn kept(&self) -> usize {
        let entries = lock(&self.0.entries);
        let is_kept = |entry: &&RunEntry| match entry {
            RunEntry::Live(live) => live.has_ended(),
            RunEntry::Stored(_) => true,
        };
        entries.values().filter(is_kept).count()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// What all handles share.
pub(super) struct RunTable {
    /// How long a run is kept after its end, in milliseconds.
    keep: u64,
    folder: Option<Arc<Folder>>,
    accounts: Accounts,
    /// Locked before the state of a run, never after it.
    entries: Mutex<HashMap<RunId, RunEntry>>,
    /// When the folder was last read; held meanwhile.
    read: Mutex<Option<Instant>>,
}

enum RunEntry {
    Live(Arc<LiveRun>),
    Stored(Box<StoredRun>),
}

/// What the table has of a run in the folder.
struct StoredRun {
    /// Without what its worker reported; without an end while another process works on it.
    record: Record,
    account: Account,
    /// `None` if there was no room for it while another process worked on it.
    charge: Option<Charge>,
}

impl StoredRun {
    fn new(record: &Record, account: Account, charge: Option<Charge>) -> StoredRun {
        let record = Record {
            usage: None,
            error: None,
            result: None,
            ..record.clone()
        };
        StoredRun {
            record,
            account,
            charge,
        }
    }

    /// Charges it anew.
    fn charge(&mut self, size: usize) -> Result<(), Full> {
        let mut charge = match self.charge.take() {
            Some(charge) => charge,
            None => Charge::new(&self.account)?,
        };
        charge.set(size)?;
        self.charge = Some(charge);
        Ok(())
    }
}

impl RunEntry {
    fn owner(&self) -> &Owner {
        match self {
            RunEntry::Live(live) => &live.owner,
            RunEntry::Stored(stored) => &stored.record.owner,
        }
    }

    fn created(&self) -> u64 {
        match self {
            RunEntry::Live(live) => live.created,
            RunEntry::Stored(stored) => stored.record.created,
        }
    }

    fn account(&self) -> &Account {
        match self {
            RunEntry::Live(live) => &live.account,
            RunEntry::Stored(stored) => &stored.account,
        }
    }

    fn is_expired(&self, keep: u64, now: u64) -> bool {
        match self {
            RunEntry::Live(live) => live.is_expired(keep, now),
            RunEntry::Stored(stored) => stored.record.is_expired(keep, now),
        }
    }

    /// When it ended, if it may be removed before its time; only for its memory: if that frees some.
    fn may_go(&self, for_memory: bool, now: u64) -> Option<u64> {
        match self {
            // Who holds a run holds its memory.
            RunEntry::Live(live) if for_memory && Arc::strong_count(live) > 1 => None,
            RunEntry::Live(live) => live.may_go(now),
            RunEntry::Stored(_) if for_memory => None,
            RunEntry::Stored(stored) => stored.record.may_go(now),
        }
    }
}

impl RunTable {
    fn keeps(&self) -> bool {
        self.keep > 0
    }

    fn begin(&self, start: Start, account: &Account) -> Arc<LiveRun> {
        let now = milliseconds_now();
        self.tidy(now);
        // Runs of the process alone are visible to nobody else, and to nobody after its end.
        let folder = self.folder.clone();
        let folder = folder.filter(|_| start.owner != Owner::Process);
        let live = Arc::new(LiveRun::new(
            start.record(RunId::new(), now),
            folder,
            account,
        ));
        self.charge(&live, self.keeps());
        live.write();
        lock(&self.entries).insert(live.id, RunEntry::Live(live.clone()));
        live
    }

    /// Promises to keep a run, if there is room.
    pub(super) fn promise(&self, live: &LiveRun, ttl: Duration) -> bool {
        let before = live.record().ttl;
        let ttl = Some(whole(ttl)).max(before);
        let promised = self.keeps() && live.promise(ttl) && self.charge(live, true);
        match promised {
            true => live.persist(),
            false => _ = live.promise(before),
        }
        promised
    }

    /// Charges what a run has by now, if need be instead of older ones; `keep`: as kept, too, if it is not yet. False if
    /// there is no room. Then it goes on, but is forgotten at its end unless there is some then, or it is promised.
    pub(super) fn charge(&self, live: &LiveRun, keep: bool) -> bool {
        while let Err(what) = live.charge(keep) {
            let for_memory = what == Resource::Memory;
            if self.evict(live.account.owner(), for_memory).is_none() {
                return !for_memory && live.give_up() && !keep;
            }
        }
        true
    }

    /// Ends a run, once; the first end counts.
    pub(super) fn close(&self, live: &Arc<LiveRun>, end: End) {
        let Some(record) = live.begin_close(end, milliseconds_now()) else {
            return live.wait_closed();
        };
        self.charge(live, self.keeps());
        if self.write_end(live, record, false) {
            self.write_unwritten();
        }
    }

    /// Writes the end of a closing run, where there is a folder, and closes it. False if that failed: then the run keeps
    /// its files and their lock, and for other processes it works until its end is written. `is_shown`: this end has
    /// been shown.
    fn write_end(&self, live: &Arc<LiveRun>, mut record: Record, is_shown: bool) -> bool {
        let is_kept = live.is_kept();
        let folder = live.folder.as_ref().filter(|_| is_kept);
        let is_written = folder.is_some_and(|folder| live.write_end(folder, &mut record, is_shown));
        if is_written {
            let stored = StoredRun::new(&record, live.account.clone(), live.take_charge());
            lock(&self.entries).insert(live.id, RunEntry::Stored(Box::new(stored)));
        } else if !is_kept {
            self.forget(&[live.id]);
        }
        // After the table: a closed run in it counts as not stored, and would be evicted with its files.
        let is_unwritten = folder.is_some() && !is_written;
        live.closed(record, is_unwritten);
        !is_unwritten
    }

    /// Writes the end of a run that could not be written before. False if it still cannot. Meanwhile it is closing, so
    /// that it is not evicted.
    fn write_again(&self, live: &Arc<LiveRun>) -> bool {
        live.close_again()
            .is_none_or(|record| self.write_end(live, record, true))
    }

    /// The runs whose end is in memory only, the smallest first: little room is better used for many of them.
    fn unwritten(&self) -> Vec<Arc<LiveRun>> {
        let entries = lock(&self.entries);
        let unwritten = entries.values().filter_map(|entry| match entry {
            RunEntry::Live(live) if live.is_unwritten() => Some(live.clone()),
            RunEntry::Live(_) | RunEntry::Stored(_) => None,
        });
        let mut unwritten: Vec<Arc<LiveRun>> = unwritten.collect();
        drop(entries);
        unwritten.sort_by_cached_key(|live| live.memory());
        unwritten
    }

    /// Tries again to write the ends that could not be written, up to the first that still cannot.
    fn write_unwritten(&self) {
        if let Some(folder) = &self.folder
            && folder.is_failing()
            && self.unwritten().iter().all(|live| self.write_again(live))
        {
            folder.recovered();
        }
    }

    /// Removes expired runs.
    pub(super) fn tidy(&self, now: u64) {
        let entries = lock(&self.entries);
        let expired = entries
            .iter()
            .filter(|(_, entry)| entry.is_expired(self.keep, now));
        let expired: Vec<RunId> = expired.map(|(id, _)| *id).collect();
        drop(entries);
        self.forget(&expired);
    }

    /// Removes the oldest run of an account that may go. Returns the bytes of memory that this frees; `None` if there
    /// is none.
    fn evict(&self, account: &str, for_memory: bool) -> Option<usize> {
        let now = milliseconds_now();
        let entries = lock(&self.entries);
        let own = entries.iter();
        let own = own.filter(|(_, entry)| entry.account().owner() == account);
        let may_go = own.filter_map(|(id, entry)| Some((entry.may_go(for_memory, now)?, *id)));
        let (_, oldest) = may_go.min()?;
        drop(entries);
        Some(self.forget(&[oldest]))
    }

    /// Removes finished runs of an account from memory until `bytes` are freed, or none may go. Returns the bytes freed.
    pub(super) fn reclaim(&self, account: &str, bytes: usize) -> usize {
        let mut freed = 0;
        while freed < bytes
            && let Some(more) = self.evict(account, true)
        {
            freed += more;
        }
        freed
    }

    /// Removes runs, also their files. Returns the bytes of memory that they had.
    fn forget(&self, ids: &[RunId]) -> usize {
        let mut freed = 0;
        for id in ids {
            let entry = lock(&self.entries).remove(id);
            let folder = match entry {
                Some(RunEntry::Live(live)) => {
                    drop(live.take_charge());
                    freed += live.memory();
                    live.folder.clone()
                }
                Some(RunEntry::Stored(_)) => self.folder.clone(),
                None => None,
            };
            if let Some(folder) = folder {
                folder.remove(*id, &ALL);
            }
        }
        freed
    }

    /// The run of this id, if it is the caller's. Ownership is checked here and nowhere else.
    pub(super) fn find(&self, id: RunId, caller: &Owner, now: u64) -> Option<RunPlace> {
        let mut live = None;
        match lock(&self.entries).get(&id) {
            Some(entry) if entry.owner() != caller || entry.is_expired(self.keep, now) => {
                return None;
            }
            Some(RunEntry::Live(found)) => live = Some(found.clone()),
            Some(RunEntry::Stored(_)) | None => {}
        }
        if let Some(live) = live {
            live.look();
            return Some(RunPlace::Live(live));
        }
        let folder = self.folder.as_ref()?;
        let loaded = folder.load(id, now).ok()?;
        let record = &loaded.record;
        let is_kept = loaded.held || !record.is_expired(self.keep, now);
        (is_kept && record.owner == *caller)
            .then(|| RunPlace::Stored(folder.clone(), Box::new(loaded)))
    }

    /// At most `most` of the caller's runs, the latest first, after the position `after`; and whether there are more.
    pub(super) fn list(
        &self,
        caller: &Owner,
        after: Option<RunCursor>,
        most: usize,
        now: u64,
    ) -> (Vec<RunPlace>, bool) {
        self.refresh();
        self.tidy(now);
        let entries = lock(&self.entries);
        let own = entries.iter().filter(|(_, entry)| entry.owner() == caller);
        let mut found: Vec<RunCursor> = own
            .map(|(id, entry)| RunCursor {
                created: entry.created(),
                id: *id,
            })
            .filter(|run| after.is_none_or(|after| *run < after))
            .collect();
        drop(entries);
        found.sort_unstable_by_key(|run| Reverse(*run));
        let more = found.len() > most;
        found.truncate(most);
        let places = found
            .iter()
            .filter_map(|run| self.find(run.id, caller, now));
        (places.collect(), more)
    }

    /// Refreshes now and then, so that runs of other processes count even if nobody ever lists.
    pub(super) fn refresh_sometimes(&self) {
        let read = *lock(&self.read);
        if read.is_none_or(|at| at.elapsed() >= REFRESH) {
            self.refresh();
        }
    }

    /// Brings the table up to date with what has changed in the folder.
    pub(super) fn refresh(&self) {
        let Some(folder) = &self.folder else { return };
        self.write_unwritten();
        let mut read = lock(&self.read);
        *read = Some(Instant::now());
        let now = milliseconds_now();
        let is_stored = |entry: &RunEntry| matches!(entry, RunEntry::Stored(_));
        // What is entered from here on may not be among the names.
        let before: HashSet<RunId> = {
            let entries = lock(&self.entries);
            let stored = entries.iter().filter(|(_, entry)| is_stored(entry));
            stored.map(|(id, _)| *id).collect()
        };
        let names = match folder.names() {
            Ok(names) => names,
            Err(error) => return log::warn!("the state folder could not be read: {error}"),
        };
        let mut entries = lock(&self.entries);
        entries.retain(|id, entry| {
            !is_stored(entry) || !before.contains(id) || names.get(id).is_some_and(|has| *has)
        });
        // Most are known and final.
        let is_final = |entry: &RunEntry| match entry {
            RunEntry::Live(_) => true,
            RunEntry::Stored(stored) => stored.record.ended.is_some(),
        };
        let is_new = |id: &RunId| !entries.get(id).is_some_and(is_final);
        let news: Vec<RunId> = names.into_keys().filter(is_new).collect();
        drop(entries);
        for id in news {
            match folder.load(id, now) {
                Ok(loaded) => self.enter(&loaded),
                Err(error) if is_gone(&error) => folder.remove_orphan(id),
                Err(_) => {}
            }
        }
    }

    /// Enters a run of the folder, and charges it to its owner, whose oldest runs go if there is no room.
    fn enter(&self, loaded: &Loaded) {
        let Loaded { record, held } = loaded;
        let account = self.accounts.of(match &record.owner {
            Owner::Named(name) => name,
            Owner::Process | Owner::Folder | Owner::Key => "",
        });
        let mut new = StoredRun::new(record, account.clone(), None);
        new.record.ended = record.ended.filter(|_| !held);
        let mut entries = lock(&self.entries);
        match entries.get_mut(&record.id) {
            Some(RunEntry::Live(_)) => return,
            Some(RunEntry::Stored(known)) => new.charge = known.charge.take(),
            None => {}
        }
        entries.insert(record.id, RunEntry::Stored(Box::new(new)));
        drop(entries);
        let size = record.bytes as usize + record.rest();
        loop {
            let charged = match lock(&self.entries).get_mut(&record.id) {
                Some(RunEntry::Stored(stored)) => stored.charge(size),
                Some(RunEntry::Live(_)) | None => Ok(()),
            };
            if charged.is_ok() || self.evict(account.owner(), false).is_none() {
                return;
            }
        }
    }

    /// Ends all runs of this process as interrupted, and writes the ends that could not be written before.
    fn interrupt_all(&self) {
        let entries = lock(&self.entries);
        let live = entries.values().filter_map(|entry| match entry {
            RunEntry::Live(live) => Some(live.clone()),
            RunEntry::Stored(_) => None,
        });
        let live: Vec<Arc<LiveRun>> = live.collect();
        drop(entries);
        let (ended, open): (Vec<_>, Vec<_>) = live.into_iter().partition(|live| live.has_ended());
        drop(ended);
        // All are stopped before any is written: writing takes time, and each token costs money.
        let now = milliseconds_now();
        open.iter().for_each(|live| live.interrupt(now));
        let next = AtomicUsize::new(0);
        let write = || {
            while let Some(live) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.close(live, End::interrupted());
            }
        };
        thread::scope(|scope| {
            for _ in 1..open.len().min(WRITERS) {
                let _ = thread::Builder::new()
                    .name("interrupt".into())
                    .spawn_scoped(scope, write);
            }
            write();
        });
        self.write_unwritten();
    }
}
