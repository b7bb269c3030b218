//! One account a caller: everything that callers can make the process hold is handed out by their account, as guards
//! that give it back when they are dropped.
//!
//! In scope: amounts and their bounds, the rule between callers, the rate, draining. Not in scope: who a caller is
//! (`access`), and what is done with what it got.
//!
//! The rule, where there are several callers: an account gets one more while what it holds is less than three times
//! what is free. So one greedy caller gets three quarters, two get three sevenths each, and something is always left.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::table;
use crate::os::heap;
use crate::sync::{lock, wait_while};

/// Amounts of bytes are taken in multiples of this, so that small pieces of output rarely touch the shared counters.
const PAGE: usize = 4 << 10;

table! {
    /// What accounts hand out, each in multiples of its row.
    Resource: usize {
        /// Bytes of bodies, messages, outputs, answers and kept text in memory: `--max-memory`.
        Memory = PAGE;
        /// Runs that have begun: `--max-runs`.
        Runs = 1;
        /// Runs that wait for their turn, each on a thread.
        Queue = 1;
        /// Other calls that work, each on a thread.
        Calls = 1;
        /// Calls that wait for a run of another call.
        Waits = 1;
        /// Calls that are not over, each on a thread: their answer may still be written, or their run goes on.
        Open = 1;
        /// Streams that may be open for hours.
        Streams = 1;
        /// Transcripts that Fabric is fetching, each by a process on its host.
        Transcripts = 1;
        /// Runs that are kept, in memory or in the state folder; those that work included.
        Kept = 1;
        /// Bytes of these, wherever they are.
        Stored = PAGE;
    }
}

/// How many resources there are.
pub(crate) const RESOURCES: usize = Resource::ALL.len();

/// Transcripts at once of one of several callers.
const TRANSCRIPTS_PER_CALLER: usize = 2;
/// After this much memory was given back, the allocator gives it back to the system. Bytes.
const MUCH: usize = 16 << 20;
/// With so many accounts, idle ones are forgotten.
const MANY_HOLDERS: usize = 10_000;
/// The period of the rate limit.
const MINUTE: Duration = Duration::from_secs(60);
/// How often a call that waits for its turn asks whether it still should.
const SLICE: Duration = Duration::from_millis(100);

/// There is no more of a resource, for this caller or for anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The bounds of one process.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// How much of each resource there is.
    pub(crate) totals: [usize; RESOURCES],
    /// Runs at once of one caller; 0 is no limit: `--max-runs-per-caller`.
    pub(crate) runs_per_caller: usize,
    /// Runs and transcripts a minute of one caller; 0 is no limit: `--max-calls-per-minute`.
    pub(crate) per_minute: u32,
    /// Whether callers are told apart, so that the rule holds between them. Otherwise there is one account.
    pub(crate) several: bool,
}

/// All accounts of a process.
#[derive(Clone)]
pub(crate) struct Accounts(Arc<Bank>);

struct Bank {
    bounds: Bounds,
    ledger: Mutex<Ledger>,
    changed: Condvar,
    /// No run begins any more.
    closed: AtomicBool,
    /// Every call is to stop.
    aborting: AtomicBool,
    /// Frees the memory of a finished run of this account; false if there is none.
    reclaim: OnceLock<Reclaim>,
}

type Reclaim = Box<dyn Fn(&Account) -> bool + Send + Sync>;

#[derive(Default)]
struct Ledger {
    used: [usize; RESOURCES],
    /// By identity; one that holds nothing is forgotten once its rate is whole again.
    holders: HashMap<String, Arc<Holder>>,
    /// The highest use of memory since some was given back to the system.
    peak: usize,
    /// Threads that wait for a change: telling nobody is a system call too.
    waiting: usize,
}

/// The account of one caller.
#[derive(Clone)]
pub(crate) struct Account(Arc<Holder>);

struct Holder {
    bank: Arc<Bank>,
    held: Mutex<[usize; RESOURCES]>,
    /// Until when its rate is used up: the theoretical arrival time of GCRA, the generic cell rate algorithm.
    rate: Mutex<Option<Instant>>,
}

impl Accounts {
    /// Accounts that share `bounds`.
    pub(crate) fn new(bounds: Bounds) -> Accounts {
        Accounts(Arc::new(Bank {
            bounds,
            ledger: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            reclaim: OnceLock::new(),
        }))
    }

    /// One account, with so many bytes of memory and as much as it wants of everything else.
    pub(crate) fn alone(memory: usize) -> Accounts {
        let mut totals = [usize::MAX / 2; RESOURCES];
        totals[Resource::Memory as usize] = memory;
        Accounts::new(Bounds {
            totals,
            runs_per_caller: 0,
            per_minute: 0,
            several: false,
        })
    }

    /// The account of this identity; without several callers the only one.
    pub(crate) fn of(&self, identity: impl fmt::Display) -> Account {
        let name = match self.0.bounds.several {
            true => identity.to_string(),
            false => String::new(),
        };
        let mut ledger = lock(&self.0.ledger);
        if let Some(holder) = ledger.holders.get(&name) {
            return Account(holder.clone());
        }
        if ledger.holders.len() >= MANY_HOLDERS {
            ledger.forget_idle(Instant::now());
        }
        let holder = Arc::new(Holder {
            bank: self.0.clone(),
            held: Mutex::default(),
            rate: Mutex::default(),
        });
        ledger.holders.insert(name, holder.clone());
        Account(holder)
    }

    /// Sets what frees the memory of one of an account's finished runs, before memory is refused to it. False if there is
    /// none. It must not take memory itself.
    pub(crate) fn reclaim_with(&self, reclaim: Reclaim) {
        // Only the first is kept.
        let _ = self.0.reclaim.set(reclaim);
    }

    /// How much of a resource is held by all together.
    pub(crate) fn used(&self, what: Resource) -> usize {
        lock(&self.0.ledger).used[what as usize]
    }

    /// How much of a resource there is.
    pub(crate) fn total(&self, what: Resource) -> usize {
        self.0.bounds.totals[what as usize]
    }

    /// From now on no run begins.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// From now on every call is told to stop.
    pub(crate) fn abort(&self) {
        self.0.aborting.store(true, Ordering::Release);
    }

    /// Waits until no call and no run is under way, at most for `limit`. True if none is.
    pub(crate) fn wait_idle(&self, limit: Duration) -> bool {
        let busy = |ledger: &mut Ledger| {
            let open = ledger.used[Resource::Open as usize];
            open + ledger.used[Resource::Runs as usize] > 0
        };
        let mut ledger = lock(&self.0.ledger);
        ledger.waiting += 1;
        let (mut ledger, is_idle) = wait_while(&self.0.changed, ledger, limit, busy);
        ledger.waiting -= 1;
        is_idle
    }
}

impl Ledger {
    /// Forgets accounts that hold nothing and whose rate is whole.
    fn forget_idle(&mut self, now: Instant) {
        self.holders.retain(|_, holder| {
            let is_idle = Arc::strong_count(holder) == 1;
            !is_idle || lock(&holder.rate).is_some_and(|until| until > now)
        });
    }
}

impl Account {
    /// An amount of nothing, to grow.
    pub(crate) fn open(&self, what: Resource) -> Guard {
        Guard {
            account: self.clone(),
            what,
            held: 0,
        }
    }

    /// Takes `amount`.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn take(&self, what: Resource, amount: usize) -> Result<Guard, Full> {
        let mut guard = self.open(what);
        guard.grow(amount).map(|()| guard)
    }

    /// Takes one, and waits for it as long as `still_waiting` says so. `None` once it does not.
    pub(crate) fn wait_for(
        &self,
        what: Resource,
        still_waiting: &mut dyn FnMut() -> bool,
    ) -> Option<Guard> {
        loop {
            if let Ok(guard) = self.take(what, 1) {
                return Some(guard);
            }
            if !still_waiting() {
                return None;
            }
            let bank = &self.0.bank;
            // Given back meanwhile: then this wait is one slice too long at most.
            let mut ledger = lock(&bank.ledger);
            ledger.waiting += 1;
            let waited = bank.changed.wait_timeout(ledger, SLICE);
            waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        }
    }

    /// Are both the same account? True for all callers where these are not told apart.
    pub(crate) fn is(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How much of a resource it holds.
    pub(crate) fn held(&self, what: Resource) -> usize {
        lock(&self.0.held)[what as usize]
    }

    /// Has the process been told to begin no run?
    pub(crate) fn is_closed(&self) -> bool {
        self.0.bank.closed.load(Ordering::Acquire)
    }

    /// Must all calls stop, because the process ends?
    pub(crate) fn is_aborting(&self) -> bool {
        self.0.bank.aborting.load(Ordering::Acquire)
    }

    /// Most of a resource that one caller may hold, where there is a limit besides the rule between callers.
    pub(crate) fn most(&self, what: Resource) -> Option<usize> {
        let bounds = &self.0.bank.bounds;
        let most = match what {
            Resource::Runs => bounds.runs_per_caller,
            Resource::Transcripts if bounds.several => TRANSCRIPTS_PER_CALLER,
            _ => 0,
        };
        Some(most).filter(|most| *most > 0)
    }

    /// Does the caller's rate have room `now` for so many more runs or transcripts? `counts`: they are counted against it.
    ///
    /// # Errors
    /// When it may be tried again; `None` if so many are never taken in a minute. Nothing was counted.
    pub(crate) fn rate_at(
        &self,
        more: u32,
        now: Instant,
        counts: bool,
    ) -> Result<(), Option<Duration>> {
        let per_minute = self.0.bank.bounds.per_minute;
        let Some(interval) = MINUTE.checked_div(per_minute) else {
            return Ok(());
        };
        if more > per_minute {
            return Err(None);
        }
        let mut rate = lock(&self.0.rate);
        let next = rate.map_or(now, |used_until| used_until.max(now)) + interval * more;
        let over = next.saturating_duration_since(now).saturating_sub(MINUTE);
        if !over.is_zero() {
            return Err(Some(over.max(Duration::from_millis(1))));
        }
        if counts {
            *rate = Some(next);
        }
        Ok(())
    }

    /// Is it the only account?
    pub(crate) fn is_alone(&self) -> bool {
        !self.0.bank.bounds.several
    }

    /// Runs and transcripts a minute that are taken from one caller; 0 is no limit.
    pub(crate) fn per_minute(&self) -> u32 {
        self.0.bank.bounds.per_minute
    }

    /// Takes `amount`, a multiple of the resource's row, if the bounds and the rule leave room for all of it.
    fn charge(&self, what: Resource, amount: usize) -> Result<(), Full> {
        let bank = &self.0.bank;
        let mut ledger = lock(&bank.ledger);
        let mut held = lock(&self.0.held);
        let (own, used) = (held[what as usize], ledger.used[what as usize]);
        let free = bank.bounds.totals[what as usize].saturating_sub(used);
        let before_last = amount.saturating_sub(what.row());
        let has_its_share = bank.bounds.several
            && own.saturating_add(before_last)
                >= (free.saturating_sub(before_last)).saturating_mul(3);
        let over_limit = self
            .most(what)
            .is_some_and(|most| own.saturating_add(amount) > most);
        if amount > free || has_its_share || over_limit {
            return Err(Full);
        }
        held[what as usize] += amount;
        ledger.used[what as usize] += amount;
        if what == Resource::Memory {
            ledger.peak = ledger.peak.max(ledger.used[what as usize]);
        }
        Ok(())
    }

    fn give_back(&self, what: Resource, amount: usize) {
        let bank = &self.0.bank;
        let mut ledger = lock(&bank.ledger);
        lock(&self.0.held)[what as usize] -= amount;
        ledger.used[what as usize] -= amount;
        if what != Resource::Memory {
            let is_awaited = ledger.waiting > 0;
            drop(ledger);
            if is_awaited {
                bank.changed.notify_all();
            }
        } else if ledger.peak - ledger.used[what as usize] >= MUCH {
            ledger.peak = ledger.used[what as usize];
            drop(ledger);
            heap::trim();
        }
    }
}

/// An amount taken from an account, given back on drop. Keep it beside what it stands for, and drop it afterwards.
pub(crate) struct Guard {
    account: Account,
    /// Of what it is.
    pub(crate) what: Resource,
    /// What the holder has. What is taken for it is this, rounded up.
    held: usize,
}

impl Guard {
    /// How much it is.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Adds `more`.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Full> {
        self.set(self.held.checked_add(more).ok_or(Full)?)
    }

    /// Makes it `held`. For memory, finished runs of this account are dropped first, if that is needed.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    pub(crate) fn set(&mut self, held: usize) -> Result<(), Full> {
        let (step, account) = (self.what.row(), &self.account);
        let before = self.held.next_multiple_of(step);
        let charged = held.checked_next_multiple_of(step).ok_or(Full)?;
        if charged > before {
            while let Err(Full) = account.charge(self.what, charged - before) {
                let reclaim = account.0.bank.reclaim.get();
                let reclaim = reclaim.filter(|_| self.what == Resource::Memory);
                if !reclaim.is_some_and(|reclaim| reclaim(account)) {
                    return Err(Full);
                }
            }
        } else if charged < before {
            account.give_back(self.what, before - charged);
        }
        self.held = held;
        Ok(())
    }

    /// Gives back `less`.
    pub(crate) fn shrink(&mut self, less: usize) {
        // What becomes less always fits.
        let _ = self.set(self.held.saturating_sub(less));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shrink(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(total: usize, several: bool) -> Accounts {
        Accounts::new(Bounds {
            totals: [total; RESOURCES],
            runs_per_caller: 0,
            per_minute: 0,
            several,
        })
    }

    /// Takes one at a time until there is no more.
    fn all(account: &Account, what: Resource) -> Vec<Guard> {
        std::iter::from_fn(|| account.take(what, 1).ok()).collect()
    }

    #[test]
    fn one_takes_three_quarters_two_three_sevenths_and_something_is_left() {
        let accounts = accounts(700, true);
        let (a, b) = (accounts.of("a"), accounts.of("b"));
        let first = all(&a, Resource::Runs);
        assert_eq!(first.len(), 525);
        drop(first);
        let mut taken = Vec::new();
        loop {
            let more: Vec<Guard> = [&a, &b]
                .iter()
                .filter_map(|account| account.take(Resource::Runs, 1).ok())
                .collect();
            if more.is_empty() {
                break;
            }
            taken.extend(more);
        }
        assert_eq!(taken.len(), 600);
        assert!(!all(&accounts.of("c"), Resource::Runs).is_empty());
        let found = accounts.of("a").take(Resource::Calls, 1).map(|_| ());
        assert_eq!(found, Ok(()));
    }

    #[test]
    fn few_places_are_of_use_and_one_account_may_have_all() {
        assert_eq!(all(&accounts(1, true).of("a"), Resource::Runs).len(), 1);
        let alone = accounts(5, false);
        let held = all(&alone.of("a"), Resource::Runs);
        assert_eq!(held.len(), 5);
        assert!(
            alone.of("b").take(Resource::Runs, 1).is_err(),
            "the same account"
        );
        drop(held);
        assert!(alone.of("b").take(Resource::Runs, 5).is_ok());
        let (used, total) = (alone.used(Resource::Runs), alone.total(Resource::Runs));
        assert_eq!((used, total), (0, 5));
    }

    #[test]
    fn one_of_several_callers_has_two_transcripts_at_once() {
        let held = |several| all(&accounts(8, several).of("a"), Resource::Transcripts).len();
        assert_eq!((held(true), held(false)), (2, 8));
    }

    #[test]
    fn memory_is_taken_in_steps_and_own_runs_go_before_it_is_refused() {
        let step = Resource::Memory.row();
        let accounts = accounts(8 * step, true);
        let (a, b) = (accounts.of("a"), accounts.of("b"));
        let mut guard = a.take(Resource::Memory, 1).unwrap();
        guard.grow(step - 1).unwrap();
        assert_eq!(
            (guard.held(), accounts.used(Resource::Memory)),
            (step, step)
        );
        guard.grow(5 * step).unwrap();
        assert_eq!(guard.grow(1), Err(Full), "three quarters");
        let kept = Arc::new(Mutex::new(Some(guard)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (reclaimed, log, owner) = (kept.clone(), asked.clone(), a.clone());
        accounts.reclaim_with(Box::new(move |account| {
            lock(&log).push(account.is(&owner));
            account.is(&owner) && lock(&reclaimed).take().is_some()
        }));
        assert!(
            b.take(Resource::Memory, 3 * step).is_err(),
            "never another's"
        );
        assert!(a.take(Resource::Memory, 6 * step).is_ok());
        assert_eq!(*lock(&asked), [false, true]);
    }

    #[test]
    fn a_rate_comes_back_with_time_and_outlives_what_is_held() {
        let accounts = Accounts::new(Bounds {
            per_minute: 3,
            ..accounts(1, true).0.bounds.clone()
        });
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(accounts.of("a").per_minute(), 3);
        let has = |more, at| accounts.of("a").rate_at(more, at, false);
        let spend = |at| accounts.of("a").rate_at(1, at, true);
        assert_eq!(has(4, now), Err(None), "never so many");
        assert_eq!((has(3, now), spend(now)), (Ok(()), Ok(())));
        assert_eq!(has(3, now), Err(Some(20 * second)));
        assert_eq!((spend(now), spend(now)), (Ok(()), Ok(())));
        assert_eq!(spend(now + 5 * second), Err(Some(15 * second)));
        assert_eq!(spend(now + 20 * second), Ok(()));
        assert_eq!(accounts.of("b").rate_at(1, now, true), Ok(()));
        lock(&accounts.0.ledger).forget_idle(now + 40 * second);
        let ledger = lock(&accounts.0.ledger);
        let found: Vec<&String> = ledger.holders.keys().collect();
        assert_eq!(found, ["a"], "only its rate is used up");
    }

    #[test]
    fn a_caller_may_have_a_limit_on_its_runs() {
        let accounts = Accounts::new(Bounds {
            runs_per_caller: 2,
            ..accounts(9, true).0.bounds.clone()
        });
        assert_eq!(all(&accounts.of("a"), Resource::Runs).len(), 2);
        assert!(all(&accounts.of("a"), Resource::Calls).len() > 2);
    }

    #[test]
    fn a_wait_ends_with_a_place_or_when_nobody_waits() {
        let accounts = accounts(1, false);
        let account = accounts.of("");
        let mut held = account.take(Resource::Runs, 1).ok();
        assert!(account.wait_for(Resource::Runs, &mut || false).is_none());
        assert!(!accounts.wait_idle(Duration::ZERO));
        let got = account.wait_for(Resource::Runs, &mut || {
            held = None;
            true
        });
        assert!(got.is_some());
        let (tells, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| tells.send(accounts.wait_idle(Duration::from_secs(20))));
            while lock(&accounts.0.ledger).waiting == 0 {
                std::thread::yield_now();
            }
            drop(got);
            let found = told.recv_timeout(Duration::from_secs(10));
            assert_eq!(found, Ok(true), "not only when the time is over");
        });
    }
}
