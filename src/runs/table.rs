//! The table of runs: those of this process, and what is known of those in the folder.
//!
//! A run of this process is in memory with its text until it has ended and is on disk; from then on the table has only
//! what listing and eviction need, and everything else is read from its files. A listing brings the table up to date
//! with other processes, by the names in the folder.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::access::Identity;
use crate::account::{Account, Accounts, QuotaExceeded, Reservation, Resource};
use crate::sync::{lock, try_lock};
use crate::time::{Clock, whole};

use super::folder::{ALL, Folder, is_gone};
use super::ledger::estimate;
use super::live::LiveRun;
use super::record::{Record, RunId, RunReport, RunState};
use super::{Run, RunWriter};

/// How many runs may be kept, and the bytes of their texts and of what they have beside them.
pub(crate) fn bounds(in_folder: bool) -> (usize, usize) {
    match in_folder {
        true => (10_000, 1 << 30),
        false => (1_000, 64 << 20),
    }
}

/// How often expired runs are removed, and the folder is read, while runs end; and how often the log says that the
/// folder can be written again.
pub(super) const REFRESH: Duration = Duration::from_secs(60);

/// The runs of this process, and those in its folder.
pub(crate) struct Runs {
    /// How long a run that begins here is kept after its end, in milliseconds.
    keep: u64,
    folder: Option<Arc<Folder>>,
    /// The same folder for the ledger, also where no run is kept.
    pub(super) ledger: Option<Arc<Folder>>,
    accounts: Accounts,
    clock: Arc<dyn Clock>,
    /// Locked before the state of a run, never after it.
    entries: Mutex<Entries>,
    /// When expired runs were last removed, and those of other processes last looked for.
    pub(super) swept: Mutex<Option<Instant>>,
    /// Held while ends are written that could not be written before.
    rewriting: Mutex<()>,
}

type Entries = HashMap<RunId, RunEntry>;

struct RunEntry {
    /// The run in memory: while it works here, if there is no folder, or until its end is written there.
    run: Run,
    age: Age,
    account: Account,
    /// What the run takes of the limit on kept runs: one run, and its bytes. Nothing if there is no room to keep it:
    /// then it is forgotten at its end.
    charge: [Reservation; 2],
}

/// When a run began and ended, in milliseconds of the steady clock, because the time of day may jump and must not
/// remove runs. Below zero for runs that were in the folder before.
#[derive(Clone, Copy)]
struct Age {
    began: i64,
    ended: Option<i64>,
}

impl Age {
    /// When the run ended. `None` if it may not be removed yet: it is working, or it was promised for `ttl` milliseconds
    /// from its beginning.
    fn may_go(self, ttl: Option<u64>, now: i64) -> Option<i64> {
        let until = ttl.map(|ttl| self.began.saturating_add_unsigned(ttl));
        self.ended
            .filter(|_| until.is_none_or(|until| until <= now))
    }
}

impl RunEntry {
    fn is_kept(&self) -> bool {
        self.charge[0].held() > 0
    }

    /// The run works in this process, or has ended here.
    fn live(&self, has_ended: bool) -> Option<Arc<LiveRun>> {
        let live = self.run.live().cloned();
        live.filter(|_| self.age.ended.is_some() == has_ended)
    }
}

fn uncharged(account: &Account) -> [Reservation; 2] {
    [Resource::Kept, Resource::Stored].map(|what| account.open(what))
}

impl Runs {
    /// Keeps runs for `keep` after their end. What is kept is charged to `accounts`, which take it back from their own
    /// runs only.
    pub(crate) fn new(
        keep: Duration,
        folder: Option<Arc<Folder>>,
        accounts: &Accounts,
        clock: Arc<dyn Clock>,
    ) -> Arc<Runs> {
        let keep = whole(keep);
        let runs = Arc::new(Runs {
            keep,
            folder: folder.clone().filter(|_| keep > 0),
            ledger: folder,
            accounts: accounts.clone(),
            clock,
            entries: Mutex::default(),
            swept: Mutex::default(),
            rewriting: Mutex::default(),
        });
        let reclaiming = Arc::downgrade(&runs);
        accounts.reclaim_with(move |account| {
            let runs = reclaiming.upgrade();
            // Who holds a run holds its memory.
            let frees = |live: &Arc<LiveRun>| Arc::strong_count(live) == 1;
            let is_of_use = |entry: &RunEntry| entry.run.live().is_some_and(frees);
            runs.is_some_and(|runs| runs.evict(account, is_of_use))
        });
        runs
    }

    /// Milliseconds of the steady clock.
    fn now(&self) -> i64 {
        i64::try_from(whole(self.clock.steady())).unwrap_or(i64::MAX)
    }

    /// The age of a run in the folder, by the time of day; zero if the clock was set back.
    fn age(&self, record: &Record) -> Age {
        let (now, today) = (self.now(), self.clock.today());
        let at = |then| now.saturating_sub_unsigned(today.saturating_sub(then));
        Age {
            began: at(record.created),
            ended: record.ended.map(at),
        }
    }

    /// Are runs kept after their end? Tasks need that.
    pub(crate) fn keeps(&self) -> bool {
        self.keep > 0
    }

    /// How many lines of the ledger could not be written, though that was just tried.
    pub(crate) fn unwritten(&self) -> usize {
        self.ledger.as_ref().map_or(0, |folder| folder.flush())
    }

    /// How many tokens a caller has used this month, by the ledger.
    pub(crate) fn used(&self, caller: &Identity) -> u64 {
        let (folder, now) = (self.ledger.as_ref(), self.clock.today());
        folder.map_or(0, |folder| folder.used(now, &caller.to_string()))
    }

    /// Is there a state folder that cannot be written? If it could not be before, it is tried again.
    pub(crate) fn is_failing(&self) -> bool {
        let failing = self.ledger.as_ref().filter(|folder| folder.is_failing());
        failing.is_some_and(|folder| {
            self.rewrite();
            folder.is_failing()
        })
    }

    /// Can this run be found later, as far as is known by now?
    pub(crate) fn is_kept(&self, run: &Run) -> bool {
        let is_kept = |entry: &RunEntry| entry.is_kept();
        run.live().is_none() || lock(&self.entries).get(&run.id()).is_some_and(is_kept)
    }

    /// How many runs there are that have ended or work in other processes. Those in the folder as they were last seen.
    pub(crate) fn kept(&self) -> usize {
        let is_kept = |entry: &&RunEntry| entry.live(false).is_none();
        lock(&self.entries).values().filter(is_kept).count()
    }

    /// Starts the run of this record, after taking the memory for its start. If `account` has no room to keep it, nobody can
    /// find the run later. A record with a time-to-live is a task: its run can be found for at least that long.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: no memory, or no place for a task, and nothing was started.
    pub(crate) fn begin(
        self: &Arc<Runs>,
        mut record: Record,
        account: &Account,
    ) -> Result<RunWriter, QuotaExceeded> {
        let clock = &self.clock;
        record.created = clock.today();
        (record.updated, record.keep) = (record.created, self.keep);
        let (folder, age) = (self.folder.clone(), self.age(&record));
        let live = Arc::new(LiveRun::new(record, folder, account, clock.clone()));
        let entry = RunEntry {
            run: Run::Live(live.clone()),
            age,
            account: account.clone(),
            charge: uncharged(account),
        };
        lock(&self.entries).insert(live.id, entry);
        let is_task = live.size().1;
        let kept = self.charge(&live, self.keeps());
        if kept.is_err() && (is_task || self.charge(&live, false).is_err()) {
            self.forget(live.id);
            return Err(QuotaExceeded);
        }
        live.write(None);
        let runs = self.clone();
        Ok(RunWriter { runs, live })
    }

    /// Charges the memory that a run has by now, and removes older runs for it if need be. With `anew`, also charges it
    /// as kept, if it is not yet.
    ///
    /// # Errors
    /// There is no room in memory, or no room to keep a new or a promised run. Any other run without room goes on, and
    /// is forgotten at its end unless there is room by then, or its caller has its id.
    pub(super) fn charge(&self, live: &LiveRun, anew: bool) -> Result<(), QuotaExceeded> {
        let is_kept = self.charge_kept(live.id, live.size(), anew);
        live.charge(is_kept.unwrap_or(true))?;
        match is_kept {
            Ok(false) if anew => Err(QuotaExceeded),
            is_kept => is_kept.map(drop),
        }
    }

    /// The same for the limit on kept runs: this many bytes, promised or not. False if the run is not kept; without
    /// room it goes uncharged.
    fn charge_kept(
        &self,
        id: RunId,
        (bytes, is_promised): (usize, bool),
        anew: bool,
    ) -> Result<bool, QuotaExceeded> {
        loop {
            let mut entries = lock(&self.entries);
            let is_due = |entry: &&mut RunEntry| anew || entry.is_kept();
            let Some(entry) = entries.get_mut(&id).filter(is_due) else {
                return Ok(false);
            };
            let [run, stored] = &mut entry.charge;
            if run.set(1).and_then(|()| stored.set(bytes)).is_ok() {
                return Ok(true);
            }
            let account = entry.account.clone();
            drop(entries);
            if self.evict(&account, |_| true) {
                continue;
            }
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(&id).filter(|_| !is_promised);
            let entry = entry.ok_or(QuotaExceeded)?;
            let is_given = |live: Arc<LiveRun>| live.is_given.load(Ordering::Relaxed);
            // It stays with what it has, until its caller needs room for another after its end.
            let stays = entry.is_kept() && entry.live(false).is_some_and(is_given);
            if !stays {
                entry.charge = uncharged(&account);
            }
            return Ok(stays);
        }
    }

    /// Ends a run, once; the first end counts.
    pub(super) fn close(&self, live: &Arc<LiveRun>, end: RunState, report: RunReport) {
        let written = estimate(live.record().chars.unwrap_or(0));
        live.answered(self.ledger.as_deref(), end.name(), Some(Err([0, written])));
        if let Some(record) = live.begin_close(end, report) {
            // If there is no room, the run is forgotten.
            let _ = self.charge(live, self.keeps());
            if self.store(live, record)
                && let Some(folder) = &self.folder
                && folder.is_failing()
            {
                self.rewrite();
            }
        }
    }

    /// Writes the end of a run, if there is a folder, and closes the run. Forgets a run that should not be kept. False
    /// if the end was not written.
    fn store(&self, live: &LiveRun, mut record: Record) -> bool {
        let entries = lock(&self.entries);
        let entry = entries.get(&live.id).filter(|entry| entry.is_kept());
        let kept = entry.map(|entry| entry.account.clone());
        drop(entries);
        let folder = live.folder.as_ref().zip(kept.as_ref());
        let is_written = folder.is_some_and(|(folder, account)| {
            // On a full disk, the oldest runs of the same caller are removed first.
            let make_room = || self.evict(account, |entry| entry.run.live().is_none());
            live.write_end(folder, &mut record, &make_room)
        });
        let (now, mut entries) = (self.now(), lock(&self.entries));
        // A run that should be written once more may have been evicted in the meantime.
        let entry = entries.get_mut(&live.id).filter(|_| kept.is_some());
        let is_gone = entry.is_none();
        if let Some(entry) = entry {
            entry.age.ended.get_or_insert(now);
            if let Some((folder, _)) = folder.filter(|_| is_written) {
                // Outputs of earlier steps may be large, and all runs wait for the lock.
                let report = std::mem::take(&mut record.report);
                entry.run = Run::Stored(folder.clone(), record.clone().bare());
                record.report = report;
            }
        }
        live.closed(record);
        drop(entries);
        if is_gone {
            self.forget(live.id);
        }
        is_written
    }

    /// Writes the lines and ends that could not be written, up to the first that still cannot. The smallest first: little
    /// room is better used for many of them.
    fn rewrite(&self) {
        let _alone = lock(&self.rewriting);
        let Some(folder) = &self.ledger else { return };
        let ended = |entry: &RunEntry| entry.live(true);
        let mut unwritten: Vec<_> = lock(&self.entries).values().filter_map(ended).collect();
        unwritten.sort_by_cached_key(|live| live.size().0);
        let store = |live: &Arc<LiveRun>| self.store(live, Record::clone(&live.record()));
        if folder.flush() == 0 && unwritten.iter().all(store) {
            folder.recovered();
        }
    }

    /// Has this run been kept for its time, and for as long as it is promised?
    fn is_expired(&self, age: Age, now: i64, run: &Run) -> bool {
        let is_past = |ended: i64| {
            let known = run.known();
            let until = ended.saturating_add_unsigned(known.keep);
            until <= now && age.may_go(known.ttl, now).is_some()
        };
        age.ended.is_some_and(is_past)
    }

    /// Removes expired runs. False if there is none.
    pub(super) fn tidy(&self) -> bool {
        let now = self.now();
        let is_expired =
            |_: &RunId, entry: &mut RunEntry| self.is_expired(entry.age, now, &entry.run);
        let expired: Vec<_> = lock(&self.entries).extract_if(is_expired).collect();
        expired.iter().for_each(|(id, _)| self.forget(*id));
        !expired.is_empty()
    }

    /// Removes expired runs, or else the oldest run of an account that may go before its time and `is_of_use` for that.
    /// False if there is none.
    fn evict(&self, account: &Account, is_of_use: impl Fn(&RunEntry) -> bool) -> bool {
        if self.tidy() {
            return true;
        }
        let now = self.now();
        let may_go = |(id, entry): (&RunId, &RunEntry)| {
            let is_theirs = entry.account.address() == account.address() && is_of_use(entry);
            let ttl = is_theirs.then(|| entry.run.known().ttl)?;
            entry.age.may_go(ttl, now).map(|ended| (ended, *id))
        };
        let oldest = lock(&self.entries).iter().filter_map(may_go).min();
        oldest.inspect(|(_, id)| self.forget(*id)).is_some()
    }

    /// Removes a run, also its files: from now on nobody finds it.
    pub(crate) fn forget(&self, id: RunId) {
        // Dropped only after the lock is released.
        let _removed = lock(&self.entries).remove(&id);
        if let Some(folder) = &self.folder {
            folder.remove(id, &ALL);
        }
    }

    /// The caller's run of that id; `None` if it is unknown, expired or another caller's. Ownership is checked here and in
    /// [`Runs::list`].
    pub(crate) fn find(&self, id: &str, caller: &Identity) -> Option<Run> {
        let id = RunId::parse(id)?;
        let known = |entry: &RunEntry| (entry.run.clone(), entry.age);
        let known = lock(&self.entries).get(&id).map(known);
        let (run, age) = match known {
            Some((Run::Live(live), age)) => {
                live.look();
                (Run::Live(live), age)
            }
            stored => {
                let folder = self.folder.as_ref()?;
                let record = folder.load(id).ok()?;
                let ended = stored.filter(|(_, age)| age.ended.is_some());
                let age = ended.map_or_else(|| self.age(&record), |(_, age)| age);
                (Run::Stored(folder.clone(), record.bare()), age)
            }
        };
        let is_expired = self.is_expired(age, self.now(), &run);
        (caller.shares_with(&run.known().owner) && !is_expired).then_some(run)
    }

    /// The caller's runs, the latest first. `None` for callers whose runs can only be found by id.
    pub(crate) fn list(&self, caller: &Identity) -> Option<Vec<Run>> {
        if matches!(caller, Identity::Peer(_)) {
            return None;
        }
        self.sweep();
        let entries = lock(&self.entries);
        let runs = entries.values().map(|entry| &entry.run);
        let theirs = runs.filter(|run| run.known().owner == *caller);
        let mut found = Vec::from_iter(theirs.cloned());
        drop(entries);
        found.sort_by_cached_key(|run| {
            let record = run.known();
            Reverse((record.created, record.id))
        });
        for live in found.iter().filter_map(Run::live) {
            live.look();
        }
        Some(found)
    }

    /// Reads the folder and removes expired and surplus runs. Call it once in the background after the start, so that
    /// the first listing is as fast as later ones.
    pub(crate) fn sweep(&self) {
        let (asked, swept) = (Instant::now(), lock(&self.swept));
        // What another has begun meanwhile counts, so that nobody waits for the sweeps of many.
        if swept.is_none_or(|at| at < asked) {
            self.sweep_alone(swept);
        }
    }

    fn sweep_alone(&self, mut swept: MutexGuard<'_, Option<Instant>>) {
        *swept = Some(Instant::now());
        if let Some(folder) = &self.folder {
            self.refresh(folder);
        }
        self.tidy();
    }

    /// Sweeps now and then, so that runs of other processes count even if nobody ever lists. Not while another thread does:
    /// a run that ends must not wait for that, as with a large folder it takes long.
    pub(super) fn sweep_sometimes(&self) {
        if let Some(swept) = try_lock(&self.swept)
            && swept.is_none_or(|at| at.elapsed() >= REFRESH)
        {
            self.sweep_alone(swept);
        }
    }

    /// Brings the table up to date with what has changed in the folder.
    fn refresh(&self, folder: &Arc<Folder>) {
        self.rewrite();
        let names = match folder.names() {
            Ok(names) => names,
            Err(error) => return log::warn!("the state folder could not be read: {error}"),
        };
        let mut entries = lock(&self.entries);
        // A run that has begun and ended since then is only found the next time.
        let is_live = |entry: &RunEntry| entry.run.live().is_some();
        entries.retain(|id, entry| is_live(entry) || names.get(id).is_some_and(|has| *has));
        // Most are known and final.
        let is_known = |entry: &RunEntry| is_live(entry) || entry.age.ended.is_some();
        let is_new = |id: &RunId| !entries.get(id).is_some_and(is_known);
        let news: Vec<RunId> = names.into_keys().filter(is_new).collect();
        drop(entries);
        for id in news {
            match folder.load(id) {
                Ok(record) => self.enter(folder, record),
                Err(error) if is_gone(&error) => folder.remove_orphan(id),
                Err(error) if error.kind() == ErrorKind::Unsupported => folder.warn_newer(id),
                Err(_) => {}
            }
        }
    }

    /// Enters a run of the folder, and charges it to its owner. If there is no room, the owner's oldest runs are
    /// removed.
    fn enter(&self, folder: &Arc<Folder>, record: Record) {
        let account = self.accounts.of(&record.owner);
        let (id, bytes) = (record.id, record.bytes as usize + record.rest());
        let age = self.age(&record);
        let run = Run::Stored(folder.clone(), record.bare());
        let mut entries = lock(&self.entries);
        let entry = entries.entry(id).or_insert_with(|| RunEntry {
            run: run.clone(),
            age,
            charge: uncharged(&account),
            account,
        });
        if entry.run.live().is_none() {
            (entry.run, entry.age) = (run, age);
            drop(entries);
            // If there is no room, the run stays, uncharged, until it is known how it ended.
            let _ = self.charge_kept(id, (bytes, false), true);
        }
    }

    /// Ends all runs of this process as interrupted, keeping their text, and writes them, and the ends that could not be
    /// written before. For the end of the process.
    pub(crate) fn interrupt_all(&self) {
        let open = |entry: &RunEntry| entry.live(false);
        let open: Vec<_> = lock(&self.entries).values().filter_map(open).collect();
        // All runs are stopped before any is written, because writing takes time and each token costs money. Most are
        // written by their own workers meanwhile.
        for live in &open {
            live.stop(RunState::Interrupted);
        }
        for live in open {
            self.close(&live, RunState::Interrupted, live.record().report.clone());
        }
        self.rewrite();
        if let Some(folder) = &self.ledger {
            folder.log_waiting(0);
        }
    }
}
