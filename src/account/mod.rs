//! One account for each caller. Everything that callers can make the process hold comes from their account, as a
//! reservation that gives it back when it is dropped.
//!
//! In scope: amounts and their bounds, the rule between callers, the rate, draining. Not in scope: who a caller is
//! (`access`), and what is done with what it got.
//!
//! The rule for several callers: a quarter of each total is divided into seats, and a caller is always served up to its
//! seat. What a caller holds beyond its seat is its excess. The excess comes from the other three quarters, and may
//! grow while it is less than three times what is free there. Each name in the tokens file has a seat of its own. Every
//! other caller takes one of [`SHARED_SEATS`] while it holds anything, and has no seat if none is left. If a quarter is
//! less than one for each seat, seats hold nothing. The next free place goes to the waiting caller who holds least, and of
//! several to the first in the queue. A caller's other calls then go to its end, so that many of them delay nobody for long.

mod rate;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::os::heap;
use crate::sync::{Finally, SLICE, lock, poll};
use crate::table::table;
use rate::Rate;

/// Amounts of bytes are taken in multiples of this, so that small pieces of output rarely touch the shared counters.
const PAGE: usize = 4 << 10;

table! {
    /// What accounts hand out. Each resource is counted in multiples of the number in its row.
    #[derive(Default)]
    Resource: usize as row {
        /// Bytes of bodies, messages, outputs, answers and kept text in memory: `--max-memory`.
        Memory = PAGE;
        /// Runs that have begun: `--max-runs`.
        Runs = 1;
        /// Runs that wait for their turn, each on a thread.
        Queue = 1;
        /// Other calls that work, each on a thread.
        #[default]
        Calls = 1;
        /// Calls that wait for a run of another call.
        Waits = 1;
        /// Calls that are not over, each on a thread: their answer may still be written, or their run goes on.
        CallThreads = 1;
        /// Streams that may be open for hours.
        Streams = 1;
        /// Transcripts that Fabric is fetching, each by a process on its host.
        Transcripts = 1;
        /// Runs that are kept, in memory or in the state folder; those that work included.
        Kept = 1;
        /// Bytes of the runs that are kept, in memory and in the folder.
        Stored = PAGE;
    }
}

/// How many resources there are.
pub(crate) const RESOURCES: usize = Resource::ALL.len();

/// Seats for callers who are not in the tokens file, if such callers are admitted.
pub(crate) const SHARED_SEATS: usize = 32;
/// Transcripts at once of one of several callers.
const TRANSCRIPTS_PER_CALLER: usize = 2;
/// Less memory than this is too little for one caller. Bytes.
const SMALL: usize = 8 << 20;
/// When there are this many accounts, idle ones are forgotten.
const MANY_HOLDERS: usize = 10_000;
/// How often the end of the process looks whether all is over.
const END_SLICE: Duration = Duration::from_millis(5);

/// A resource is used up, for this caller or for everyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaExceeded;

/// The bounds of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// How much of each resource there is.
    pub(crate) totals: [usize; RESOURCES],
    /// Most runs at once of one caller; 0 means no limit: `--max-runs-per-caller`.
    pub(crate) runs_per_caller: usize,
    /// Most runs and transcripts a minute of one caller; 0 means no limit: `--max-calls-per-minute`.
    pub(crate) per_minute: u32,
    /// If callers are told apart, the rule applies, and this is the number of seats for callers without one of their
    /// own. Otherwise there is one account.
    pub(crate) shared_seats: Option<usize>,
}

/// All accounts of a process.
#[derive(Clone)]
pub(crate) struct Accounts(Arc<Bank>);

#[derive(Default)]
struct Bank {
    bounds: Bounds,
    /// The accounts by identity. An account that holds nothing is forgotten once its rate is whole again.
    accounts: Mutex<HashMap<String, Account>>,
    /// Those with a seat of their own.
    named: Mutex<Vec<Account>>,
    /// How much is held by all.
    used: Amounts,
    /// How much is held beyond seats, or kept for seats.
    taken: Amounts,
    /// What a seat holds; changes only while nobody takes or gives back anything.
    seats: Amounts,
    /// How many of the shared seats are free.
    free_seats: AtomicUsize,
    /// Who waits, in the order in which they came, except that the calls of a caller who has just got one go to the
    /// end. Locked before what an account holds.
    queue: Mutex<Vec<Waiter>>,
    /// No run begins any more.
    closed: AtomicBool,
    /// Every call is to stop.
    aborting: AtomicBool,
    /// Frees the memory of a finished run of this account; false if there is none.
    reclaim: OnceLock<Box<Reclaim>>,
}

type Reclaim = dyn Fn(&Account) -> bool + Send + Sync;

/// An amount of each resource.
type Amounts = [AtomicUsize; RESOURCES];

/// A caller whose thread waits for one of a resource, and where that thread finds it.
struct Waiter {
    what: Resource,
    account: Account,
    thread: Thread,
    place: Arc<Mutex<Option<Reservation>>>,
}

/// The account of one caller.
#[derive(Clone)]
pub(crate) struct Account(Arc<Holder>);

#[derive(Default)]
struct Holder {
    bank: Arc<Bank>,
    /// Locked while something is taken or given back. The only lock that all callers share is that of the queue, and who
    /// stays within its seat does not need it: so nobody has to wait for a caller with many threads.
    changing: Mutex<()>,
    held: Amounts,
    has_seat: AtomicBool,
    /// The caller has a seat of its own, whether it holds anything or not.
    is_named: AtomicBool,
    rate: Rate,
}

impl Accounts {
    /// Accounts that share `bounds`. Nobody has a seat of its own before [`Accounts::seat`].
    pub(crate) fn new(bounds: Bounds) -> Accounts {
        Accounts(Arc::new(Bank {
            bounds,
            ..Bank::default()
        }))
    }

    /// One account with this many bytes of memory, and without limits on everything else.
    pub(crate) fn alone(memory: usize) -> Accounts {
        let mut totals = [usize::MAX / 2; RESOURCES];
        totals[Resource::Memory as usize] = memory;
        Accounts::new(Bounds {
            totals,
            ..Bounds::default()
        })
    }

    /// Gives each of these identities a seat of its own, and takes it from all others. What a caller holds beyond its new
    /// seat is excess until it is given back. Without several callers there are no seats.
    pub(crate) fn seat(&self, names: HashSet<String>) {
        let Some(shared_seats) = self.0.bounds.shared_seats else {
            return;
        };
        let (seats, mut free_seats) = (names.len() + shared_seats, shared_seats);
        *lock(&self.0.named) = names.iter().map(|name| self.of(name)).collect();
        let accounts = &*lock(&self.0.accounts);
        let changing = accounts.values().map(|account| lock(&account.0.changing));
        let _nobody_changes = Vec::from_iter(changing);
        for what in Resource::ALL {
            let share = (self.total(what) / 4).checked_div(seats).unwrap_or(0);
            let seat = share - share % what.row();
            self.0.seats[what as usize].store(seat, Relaxed);
            self.0.taken[what as usize].store(seats * seat, Relaxed);
        }
        for (name, account) in accounts {
            let is_named = names.contains(name);
            let shares = !is_named && free_seats > 0 && account.holds() > 0;
            free_seats -= usize::from(shares);
            account.0.is_named.store(is_named, Relaxed);
            account.0.has_seat.store(is_named || shares, Relaxed);
            for (what, taken) in Resource::ALL.into_iter().zip(&self.0.taken) {
                taken.fetch_add(account.excess(what, account.held(what)), Relaxed);
            }
        }
        self.0.free_seats.store(free_seats, Relaxed);
        let memory = self.0.seats[Resource::Memory as usize].load(Relaxed);
        if seats > 0 && memory < SMALL {
            log::warn!(
                "{seats} callers at once can be sure of only {} MiB of memory each, too \
                 little for a large input or output: raise --max-memory to {} MiB or more",
                memory >> 20,
                4 * seats * (SMALL >> 20)
            );
        }
    }

    /// The account of this identity; without several callers the only one.
    pub(crate) fn of(&self, identity: impl fmt::Display) -> Account {
        let several = self.0.bounds.shared_seats.map(|_| identity.to_string());
        let name = several.unwrap_or_default();
        let accounts = &mut *lock(&self.0.accounts);
        if accounts.len() >= MANY_HOLDERS && !accounts.contains_key(&name) {
            let now = Instant::now();
            accounts
                .retain(|_, Account(one)| Arc::strong_count(one) > 1 || !one.rate.is_whole(now));
        }
        let new = || {
            Account(Arc::new(Holder {
                bank: self.0.clone(),
                ..Holder::default()
            }))
        };
        accounts.entry(name).or_insert_with(new).clone()
    }

    /// Sets what frees the memory of one of an account's finished runs, before memory is refused to it. False if there is
    /// none. It must not take memory itself.
    pub(crate) fn reclaim_with(&self, reclaim: impl Fn(&Account) -> bool + Send + Sync + 'static) {
        // Only the first is kept.
        let _ = self.0.reclaim.set(Box::new(reclaim));
    }

    /// How much of a resource is held by all together.
    pub(crate) fn used(&self, what: Resource) -> usize {
        self.0.used[what as usize].load(Relaxed)
    }

    /// How much of a resource there is.
    pub(crate) fn total(&self, what: Resource) -> usize {
        self.0.bounds.totals[what as usize]
    }

    /// From now on no run begins.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Release);
    }

    /// From now on every call is told to stop.
    pub(crate) fn abort(&self) {
        self.0.aborting.store(true, Release);
    }

    /// Waits until no call and no run is under way, at most for `limit`. True if none is.
    pub(crate) fn wait_idle(&self, limit: Duration) -> bool {
        let is_idle = || self.used(Resource::CallThreads) + self.used(Resource::Runs) == 0;
        poll(limit, END_SLICE, is_idle)
    }
}

impl Bank {
    /// Gives one to the waiting caller whose turn it is: of those who may have it the one who holds least, and of several
    /// the first. A call that comes in the instant in which a place is given back may take it before the queue does.
    fn hand_out(&self, what: Resource) {
        let (mut queue, sum) = (lock(&self.queue), self.taken[what as usize].load(Acquire));
        let held = |(_, waiter): &(usize, &Waiter)| waiter.account.held(what);
        let waiting = queue.iter().enumerate().filter(|(_, one)| one.what == what);
        let able = waiting.filter(|one| one.1.account.taken(what, held(one) + 1, sum).is_some());
        if let Some((at, _)) = able.min_by_key(held)
            && let Ok(place) = queue[at].account.take(what, 1)
        {
            let next = queue.remove(at);
            *lock(&next.place) = Some(place);
            next.thread.unpark();
            queue.sort_by_key(|waiter| waiter.account.address() == next.account.address());
        }
    }
}

impl Account {
    /// An amount of nothing, to grow.
    pub(crate) fn open(&self, what: Resource) -> Reservation {
        Reservation {
            account: self.clone(),
            what,
            held: 0,
        }
    }

    /// Takes `amount`.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub(crate) fn take(&self, what: Resource, amount: usize) -> Result<Reservation, QuotaExceeded> {
        let mut guard = self.open(what);
        guard.grow(amount).map(|()| guard)
    }

    /// Takes one, and waits for it as long as `still_waiting` says so; `None` once it no longer does. The next one goes
    /// to the waiting caller who holds least, of those who may have it.
    pub(crate) fn wait_for(
        &self,
        what: Resource,
        still_waiting: &mut dyn FnMut() -> bool,
    ) -> Option<Reservation> {
        let (bank, place) = (&self.0.bank, Arc::default());
        lock(&bank.queue).push(Waiter {
            what,
            account: self.clone(),
            thread: thread::current(),
            place: Arc::clone(&place),
        });
        // Even after a panic nobody may wait behind a caller who is gone.
        let _leave = Finally(|| {
            lock(&bank.queue).retain(|waiter| !Arc::ptr_eq(&waiter.place, &place));
            // There may be more than one to be had.
            bank.hand_out(what);
        });
        loop {
            bank.hand_out(what);
            let found = lock(&place).take();
            if found.is_some() || !still_waiting() {
                return found;
            }
            thread::park_timeout(SLICE);
        }
    }

    /// A number that no other account has at the same time: its address in memory. If callers are not told apart, they
    /// share it.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How much of a resource it holds.
    pub(crate) fn held(&self, what: Resource) -> usize {
        self.0.held[what as usize].load(Relaxed)
    }

    /// What the caller holds of a resource that is used up, as a sentence to append; empty if there is only one caller.
    pub(crate) fn holding(&self, what: Resource) -> String {
        let (held, seat) = (self.held(what), self.seat(what));
        match seat {
            _ if self.is_alone() => String::new(),
            0 => format!(" You hold {held}; the rest is for others."),
            _ => format!(" You hold {held} ({seat} are always yours); the rest is for others."),
        }
    }

    /// Has the process been told to begin no run?
    pub(crate) fn is_closed(&self) -> bool {
        self.0.bank.closed.load(Acquire)
    }

    /// Must all calls stop, because the process ends?
    pub(crate) fn is_aborting(&self) -> bool {
        self.0.bank.aborting.load(Acquire)
    }

    /// The most that one caller may hold of a resource, besides the rule between callers.
    pub(crate) fn most(&self, what: Resource) -> usize {
        match (what, self.0.bank.bounds.runs_per_caller) {
            (Resource::Runs, most @ 1..) => most,
            (Resource::Transcripts, _) if !self.is_alone() => TRANSCRIPTS_PER_CALLER,
            _ => usize::MAX,
        }
    }

    /// How much of its runs and transcripts per minute the caller has used, and the most of one caller; 0 means no limit.
    pub(crate) fn rate(&self) -> (&Rate, u32) {
        (&self.0.rate, self.0.bank.bounds.per_minute)
    }

    /// Is it the only account?
    pub(crate) fn is_alone(&self) -> bool {
        self.0.bank.bounds.shared_seats.is_none()
    }

    /// How much the caller is sure to get, once it holds something.
    fn seat(&self, what: Resource) -> usize {
        let seat = self.0.bank.seats[what as usize].load(Relaxed);
        usize::from(self.0.has_seat.load(Relaxed)) * seat
    }

    /// How much of what it holds is beyond its seat.
    fn excess(&self, what: Resource, held: usize) -> usize {
        held.saturating_sub(self.seat(what))
    }

    /// The sum of all that the caller holds, whatever the units are: 0 only if it holds nothing.
    fn holds(&self) -> usize {
        Resource::ALL.into_iter().map(|what| self.held(what)).sum()
    }

    /// How much of a resource is taken once this caller holds `all`, if `sum` is taken now; `None` if the rule between
    /// callers does not let it.
    fn taken(&self, what: Resource, all: usize, sum: usize) -> Option<usize> {
        let (held, one) = (self.held(what), what.row());
        let [now, then] = [held, all].map(|held| self.excess(what, held));
        let free = self.0.bank.bounds.totals[what as usize].saturating_sub(sum);
        // Compared before the last one is taken.
        let is_in_share = |left: usize| self.is_alone() || (then - one) / 3 < left + one;
        let fits = then <= now || free.checked_sub(then - now).is_some_and(is_in_share);
        let may_hold = all <= held || all <= self.most(what) && fits;
        // The queue looks without a lock: the sum may be older than what is held.
        may_hold.then(|| (sum + then).saturating_sub(now))
    }

    /// Makes an amount that it holds larger or smaller, in multiples of the resource's row. False if it may not. A shared seat
    /// is taken with the first that is held, and given back with the last.
    fn change(&self, what: Resource, less: usize, more: usize) -> bool {
        let (bank, changing) = (&self.0.bank, lock(&self.0.changing));
        let seats = &bank.free_seats;
        let before = self.held(what);
        let after = (before - less).saturating_add(more);
        if before == 0 && !self.0.has_seat.load(Relaxed) && self.holds() == 0 {
            let sits = seats.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1));
            self.0.has_seat.store(sits.is_ok(), Relaxed);
        }
        let has_excess = self.excess(what, before) > 0;
        let charge = |sum| self.taken(what, after, sum);
        let charged = bank.taken[what as usize].fetch_update(AcqRel, Relaxed, charge);
        if charged.is_ok() {
            self.0.held[what as usize].store(after, Relaxed);
            bank.used[what as usize].fetch_add(after.wrapping_sub(before), Relaxed);
        }
        let is_named = self.0.is_named.load(Relaxed);
        if !is_named && self.holds() == 0 && self.0.has_seat.swap(false, Relaxed) {
            seats.fetch_add(1, Relaxed);
        }
        drop(changing);
        // Within its seat, only another call of the same caller can wait for what is given back.
        if after < before && (has_excess || before == self.most(what)) {
            bank.hand_out(what);
        }
        if what == Resource::Memory {
            heap::trim_after(after.abs_diff(before));
        }
        charged.is_ok()
    }
}

/// An amount taken from an account, given back on drop. Keep it next to the thing that it pays for, and drop it after
/// that.
pub(crate) struct Reservation {
    account: Account,
    /// The resource it is taken from.
    pub(crate) what: Resource,
    /// How much was asked for. The account is charged for this, rounded up.
    held: usize,
}

impl Reservation {
    /// How much it is.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Adds `more`.
    ///
    /// # Errors
    /// [`QuotaExceeded`], and nothing has changed.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), QuotaExceeded> {
        self.set(self.held.checked_add(more).ok_or(QuotaExceeded)?)
    }

    /// Makes it `held`. For memory, finished runs of this account are dropped first, if that is needed.
    ///
    /// # Errors
    /// [`QuotaExceeded`], and nothing has changed.
    pub(crate) fn set(&mut self, held: usize) -> Result<(), QuotaExceeded> {
        let (what, step, account) = (self.what, self.what.row(), &self.account);
        let before = self.held.next_multiple_of(step);
        let after = held.checked_next_multiple_of(step).ok_or(QuotaExceeded)?;
        while after != before && !account.change(what, before, after) {
            let reclaim = account.0.bank.reclaim.get();
            let reclaim = reclaim.filter(|_| what == Resource::Memory);
            if !reclaim.is_some_and(|reclaim| reclaim(account)) {
                return Err(QuotaExceeded);
            }
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

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hostile::rng::Rng;

    fn accounts(total: usize, several: bool) -> Accounts {
        Accounts::new(Bounds {
            totals: [total; RESOURCES],
            shared_seats: several.then_some(0),
            ..Bounds::default()
        })
    }

    fn seat(account: &Account, what: Resource) -> usize {
        let bank = &account.0.bank;
        let shares = bank.free_seats.load(Relaxed) > 0 && account.holds() == 0;
        let has_seat = shares || account.0.has_seat.load(Relaxed);
        usize::from(has_seat) * bank.seats[what as usize].load(Relaxed)
    }

    /// Takes one at a time until there is no more.
    fn all(account: &Account, what: Resource) -> Vec<Reservation> {
        std::iter::from_fn(|| account.take(what, 1).ok()).collect()
    }

    #[test]
    fn without_seats_each_takes_three_quarters_of_what_is_left() {
        let accounts = accounts(700, true);
        let taken = ["a", "b", "c"].map(|name| all(&accounts.of(name), Resource::Runs));
        assert_eq!(taken.map(|taken| taken.len()), [525, 132, 33]);
        assert!(accounts.of("a").take(Resource::Calls, 1).is_ok());
        let _held = accounts.of("d").take(Resource::Waits, 5);
        let by_old_sum = accounts.of("d").taken(Resource::Waits, 1, 0);
        assert_eq!(by_old_sum, Some(0), "another call took some meanwhile");
    }

    #[test]
    fn a_seat_is_always_free_for_whom_it_is() {
        let accounts = Accounts::new(Bounds {
            shared_seats: Some(2),
            ..accounts(80, true).0.bounds.clone()
        });
        let names = |names: &str| names.split(' ').map(str::to_owned).collect();
        accounts.seat(names("a b c"));
        let taken = |name: &str| all(&accounts.of(name), Resource::Runs);
        // Five seats of 4; the rest, 60, is shared.
        let greedy: Vec<_> = ["a", "b", "x", "y", "z"].map(taken).into();
        let found: Vec<usize> = greedy.iter().map(Vec::len).collect();
        let expected = [4 + 45, 4 + 12, 4 + 3, 4, 0];
        assert_eq!(found, expected, "there are two shared seats");
        let seats = [Resource::Runs, Resource::Memory].map(|what| seat(&accounts.of("c"), what));
        assert_eq!(seats, [4, 0], "less than a page is nothing");
        assert_eq!((taken("c").len(), taken("z").len()), (4, 0));
        let mut seated = None;
        let unseated = accounts.of("z").wait_for(Resource::Runs, &mut || {
            seated = accounts.of("c").wait_for(Resource::Runs, &mut || false);
            false
        });
        assert!(unseated.is_none() && seated.is_some(), "who may have it");
        drop(seated);
        let holding = |name: &str| accounts.of(name).holding(Resource::Runs);
        let yours = " You hold 4 (4 are always yours); the rest is for others.";
        let more = " You hold 49 (4 are always yours); the rest is for others.";
        assert_eq!([holding("y"), holding("a")], [yours, more]);
        assert_eq!(holding("z"), " You hold 0; the rest is for others.");
        drop(greedy);
        let shown = taken("z").len();
        assert_eq!(shown, 4 + 45, "a seat is given back with all that was held");
        let late = taken("a");
        accounts.seat(names("b c d e f g"));
        // Eight seats of 2, and of the other 64 `a` has 47, as it has a shared seat now.
        assert_eq!((taken("d").len(), taken("x").len()), (2 + 13, 2 + 3));
        drop(late);
        assert_eq!(taken("a").len(), 2 + 48);
        let all_back = Resource::ALL.map(|what| accounts.used(what));
        assert_eq!(all_back, [0; RESOURCES]);
    }

    #[test]
    fn who_stays_in_its_seat_waits_for_nobody() {
        let accounts = Accounts::new(Bounds {
            shared_seats: Some(1),
            ..accounts(80, true).0.bounds.clone()
        });
        accounts.seat(HashSet::from(["named".to_owned()]));
        let [named, other] = ["named", "other"].map(|name| accounts.of(name));
        // A shared seat is taken with the first that is held.
        let _first = other.take(Resource::Calls, 1);
        let (done, is_done) = std::sync::mpsc::channel();
        let _locked = lock(&accounts.0.queue);
        thread::spawn(move || {
            let taken = [&named, &other].map(|who| who.take(Resource::Runs, 10).is_ok());
            let _ = done.send(taken);
        });
        let taken = is_done.recv_timeout(Duration::from_secs(120));
        assert_eq!(taken, Ok([true; 2]));
    }

    #[test]
    fn whatever_a_hundred_callers_did_nobody_is_refused_its_seat() {
        let mut rng = Rng::new(1);
        for round in 0..20 {
            let accounts = Accounts::new(Bounds {
                totals: Resource::ALL.map(|what| what.row() * (200 + rng.within(0..4000))),
                shared_seats: Some(16),
                ..accounts(0, true).0.bounds.clone()
            });
            let callers: Vec<Account> = (0..100).map(|n| accounts.of(n)).collect();
            let mut held: Vec<(usize, Reservation)> = Vec::new();
            for step in 0..3_000 {
                if step % 500 == 0 {
                    let first = rng.within(0..100);
                    let seated = first..100.min(first + rng.within(0..30));
                    accounts.seat(seated.map(|n| n.to_string()).collect());
                    let others = callers.iter().filter(|one| !one.0.is_named.load(Relaxed));
                    let holding = others.clone().filter(|one| one.holds() > 0).count();
                    let sharing = others.filter(|one| one.0.has_seat.load(Relaxed)).count();
                    assert_eq!(sharing, holding.min(16));
                }
                if rng.within(0..5) == 0 && !held.is_empty() {
                    held.swap_remove(rng.within(0..held.len()));
                    continue;
                }
                let (n, what) = (rng.within(0..100), Resource::ALL[rng.within(0..RESOURCES)]);
                // A tenth of the callers are greedy.
                let amount = what.row() * (1 + if n % 10 == 0 { rng.within(0..100) } else { 0 });
                let own = callers[n].held(what);
                match callers[n].take(what, amount) {
                    Ok(guard) => held.push((n, guard)),
                    Err(QuotaExceeded)
                        if what == Resource::Transcripts
                            && own + amount > TRANSCRIPTS_PER_CALLER => {}
                    Err(QuotaExceeded) => assert!(
                        own + amount > seat(&callers[n], what),
                        "{round} {step} {what:?}"
                    ),
                }
            }
            drop(held);
            let (bank, names) = (&accounts.0, lock(&accounts.0.named).len());
            let amounts = |of: &Amounts| of.each_ref().map(|amount| amount.load(Relaxed));
            let kept = amounts(&bank.seats).map(|seat| seat * (16 + names));
            let found = [&bank.used, &bank.taken].map(amounts);
            assert_eq!(found, [[0; RESOURCES], kept]);
            assert_eq!(bank.free_seats.load(Relaxed), 16);
        }
    }

    #[test]
    fn who_holds_least_gets_the_next_place() {
        let accounts = accounts(5, true);
        let [a, b, d] = ["a", "b", "d"].map(|name| accounts.of(name));
        let _held = [(&a, 2), (&b, 1), (&d, 1)].map(|(who, n)| who.take(Resource::Runs, n));
        let places = [&a, &b, &b, &d].map(|account| {
            let place: Arc<Mutex<Option<Reservation>>> = Arc::default();
            let waiter = Waiter {
                what: Resource::Runs,
                account: account.clone(),
                thread: thread::current(),
                place: place.clone(),
            };
            lock(&accounts.0.queue).push(waiter);
            place
        });
        accounts.0.hand_out(Resource::Runs);
        assert!(a.take(Resource::Runs, 1).is_err(), "it is given already");
        // Each gives back its place, which the next one gets at once.
        let found = places.each_ref().map(|_| {
            let (at, place) = (0..)
                .zip(&places)
                .find(|(_, place)| lock(place).is_some())?;
            lock(place).take().map(|_| at)
        });
        assert_eq!(found, [1, 3, 2, 0].map(Some), "first who had no turn");
    }

    #[test]
    fn one_of_several_callers_has_two_transcripts_and_may_have_a_limit_on_its_runs() {
        let several = Accounts::new(Bounds {
            runs_per_caller: 2,
            ..accounts(9, true).0.bounds.clone()
        });
        let held = |accounts: &Accounts, what| all(&accounts.of("a"), what).len();
        let whats = [Resource::Runs, Resource::Transcripts, Resource::Calls];
        assert_eq!(whats.map(|what| held(&several, what)), [2, 2, 7]);
        let alone = accounts(9, false);
        alone.seat(HashSet::from(["token".to_owned()]));
        assert_eq!(held(&alone, Resource::Transcripts), 9);
        let said = alone.of("a").holding(Resource::Runs);
        assert_eq!(said, "", "there are no others");
    }

    #[test]
    fn memory_is_taken_in_steps_and_own_runs_go_before_it_is_refused() {
        let step = Resource::Memory.row();
        let accounts = accounts(8 * step, true);
        let (a, b) = (accounts.of("a"), accounts.of("b"));
        let mut guard = a.take(Resource::Memory, 1).unwrap();
        guard.grow(step - 1).unwrap();
        let found = (guard.held(), accounts.used(Resource::Memory));
        assert_eq!(found, (step, step));
        guard.grow(5 * step).unwrap();
        assert_eq!(guard.grow(1), Err(QuotaExceeded), "three quarters");
        let kept = Arc::new(Mutex::new(Some(guard)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (reclaimed, log) = (kept.clone(), asked.clone());
        let greedy = a.address();
        accounts.reclaim_with(move |account| {
            let is_greedy = account.address() == greedy;
            lock(&log).push(is_greedy);
            is_greedy && lock(&reclaimed).take().is_some()
        });
        assert!(b.take(Resource::Memory, 3 * step).is_err(), "another's");
        assert!(a.take(Resource::Memory, 6 * step).is_ok());
        assert_eq!(*lock(&asked), [false, true]);
    }

    #[test]
    fn a_rate_comes_back_with_time_and_outlives_what_is_held() {
        let accounts = Accounts::new(Bounds {
            per_minute: 3,
            ..accounts(1, true).0.bounds.clone()
        });
        // So long ago that what one has used is whole again.
        let (second, long) = (Duration::from_secs(1), Duration::from_secs(40));
        let now = Instant::now().checked_sub(long).unwrap();
        let rate =
            |name: &str, more, at, counts| accounts.of(name).rate().0.take(3, more, at, counts);
        assert_eq!(accounts.of("a").rate().1, 3);
        let has = |more, at| rate("a", more, at, false);
        let spend = |at| rate("a", 1, at, true);
        assert_eq!(has(4, now), Err(None), "never so many");
        assert_eq!((has(3, now), spend(now)), (Ok(()), Ok(())));
        assert_eq!(has(3, now), Err(Some(20 * second)));
        assert_eq!((spend(now), spend(now)), (Ok(()), Ok(())));
        assert_eq!(spend(now + 5 * second), Err(Some(15 * second)));
        assert_eq!(spend(now + 20 * second), Ok(()));
        assert_eq!(rate("b", 1, now, true), Ok(()));
        let _used = accounts.of("c");
        let found = [0..MANY_HOLDERS - 3, 0..1, MANY_HOLDERS..MANY_HOLDERS + 1].map(|names| {
            names.for_each(|name| drop(accounts.of(name)));
            lock(&accounts.0.accounts).len()
        });
        assert_eq!(found, [MANY_HOLDERS, MANY_HOLDERS, 3]);
        let found = ["a", "b", "c"].map(|name| lock(&accounts.0.accounts).contains_key(name));
        assert_eq!(found, [true, false, true], "the rate of one is used up");
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
        thread::scope(|scope| {
            let idle = scope.spawn(|| accounts.wait_idle(Duration::from_secs(20)));
            drop(got);
            assert!(idle.join().unwrap(), "not only when the time is over");
        });
        assert!(account.take(Resource::Runs, 1).is_ok(), "nobody waits");
    }
}
