//! Which calls may run now: the bound on concurrent runs, the rate limit, and shutdown.
//!
//! In scope: counting, and what a caller's role allows. Not in scope: who a caller is (`access`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::access::{Identity, Pass, Role};
use crate::fabric::{Error, Kind};
use crate::features::{Call, RunSlot};
use crate::protocol::Answer;
use crate::sync::{lock, wait_while};

use super::inflight::Cancel;
use super::shares::{Share, Shares};

/// Callers whose rate is tracked under `--max-calls-per-minute`; beyond it the one who has used least is dropped.
const MAX_RATED_CALLERS: usize = 10_000;
/// The period of the rate limit.
const MINUTE: Duration = Duration::from_secs(60);

/// Admits calls, for the whole process.
pub(crate) struct Admission {
    max_runs: usize,
    per_caller: usize,
    /// Where calls wait for a thread: the bound on runs that have begun.
    max_begun: usize,
    per_minute: u32,
    /// Who makes the calls that are no runs.
    others: Arc<Shares>,
    running: Mutex<Counts>,
    changed: Condvar,
    /// For each caller the time until which its rate is used up: the theoretical arrival time of GCRA, the generic cell rate
    /// algorithm.
    rates: Mutex<HashMap<Identity, Instant>>,
    closed: AtomicBool,
    aborting: AtomicBool,
}

#[derive(Default)]
struct Counts {
    calls: usize,
    /// Admitted runs.
    runs: usize,
    /// Runs by caller, where that is limited.
    by_caller: HashMap<Identity, usize>,
    /// Started runs.
    begun: usize,
}

impl Admission {
    /// At most `max_runs` runs at once, and for each caller `per_caller` at once and `per_minute` new ones a minute; of
    /// these two 0 is no limit.
    pub(crate) fn new(max_runs: usize, per_caller: usize, per_minute: u32) -> Arc<Admission> {
        Admission::bounded(
            max_runs,
            usize::MAX,
            per_caller,
            per_minute,
            Shares::unlimited(),
        )
    }

    /// The same where all other calls have `max_runs` threads, of which one caller may have its share.
    pub(crate) fn with_threads(
        max_runs: usize,
        per_caller: usize,
        per_minute: u32,
    ) -> Arc<Admission> {
        Admission::bounded(
            max_runs,
            usize::MAX,
            per_caller,
            per_minute,
            Shares::of(max_runs),
        )
    }

    /// For calls that wait for a thread: the bound on runs is applied once they have one.
    pub(crate) fn queued(max_runs: usize) -> Arc<Admission> {
        Admission::bounded(usize::MAX, max_runs, 0, 0, Shares::unlimited())
    }

    fn bounded(
        max_runs: usize,
        max_begun: usize,
        per_caller: usize,
        per_minute: u32,
        others: Arc<Shares>,
    ) -> Arc<Admission> {
        Arc::new(Admission {
            max_runs,
            per_caller,
            max_begun,
            per_minute,
            others,
            running: Mutex::default(),
            changed: Condvar::new(),
            rates: Mutex::default(),
            closed: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
        })
    }

    /// Admits a call, for as long as the permit is held.
    ///
    /// # Errors
    /// For runs only: `forbidden`, `too-many-requests`, and what [`Admission::still_open`] says.
    pub(crate) fn admit(self: &Arc<Admission>, call: &Call, pass: &Pass) -> Result<Permit, Error> {
        self.still_open(call)?;
        if call.is_run() {
            pass.require(Role::Run)
                .map_err(|refusal| Error::new(Kind::Forbidden, refusal.detail()))?;
        }
        self.enter(call.runs(), &pass.identity, Instant::now())
    }

    fn enter(
        self: &Arc<Admission>,
        runs: u32,
        who: &Identity,
        now: Instant,
    ) -> Result<Permit, Error> {
        let mut running = self.running();
        let run = runs > 0;
        let mut spent_until = now;
        let mut share = None;
        if !run {
            share = Some(self.others.take(who, false).ok_or_else(has_its_share)?);
        } else {
            if running.runs >= self.max_runs {
                return Err(busy());
            }
            let own = running.by_caller.get(who).copied().unwrap_or(0);
            if self.per_caller > 0 && own >= self.per_caller {
                return Err(busy_caller(self.per_caller));
            }
            spent_until = self.spend(runs, who, now)?;
            if self.per_caller > 0 {
                running.by_caller.insert(who.clone(), own + 1);
            }
            running.runs += 1;
        }
        running.calls += 1;
        let run = run.then(|| RunPermit {
            admission: self.clone(),
            who: who.clone(),
            begun: false,
            unmade: runs,
            spent_until,
        });
        Ok(Permit {
            admission: self.clone(),
            run,
            _share: share,
        })
    }

    /// Counts runs against the caller's rate. Returns until when they use it up.
    fn spend(&self, runs: u32, who: &Identity, now: Instant) -> Result<Instant, Error> {
        if self.per_minute == 0 {
            return Ok(now);
        }
        if runs > self.per_minute {
            let detail = format!(
                "This call makes {runs} runs, and this server takes at most {} a minute from one caller. Shorten its \
                 chain.",
                self.per_minute
            );
            return Err(Error::new(Kind::TooManyRequests, detail));
        }
        let interval = MINUTE / self.per_minute;
        let mut rates = lock(&self.rates);
        if rates.len() >= MAX_RATED_CALLERS && !rates.contains_key(who) {
            make_room(&mut rates, now);
        }
        let used_until = rates.entry(who.clone()).or_insert(now);
        let next = (*used_until).max(now) + interval * runs;
        let over = next.saturating_duration_since(now).saturating_sub(MINUTE);
        if !over.is_zero() {
            let mut error = Error::new(
                Kind::TooManyRequests,
                format!(
                    "This server takes at most {} runs a minute from one caller. Try again in {} s.",
                    self.per_minute,
                    over.as_secs() + 1
                ),
            );
            error.retry_after = Some(over.max(Duration::from_millis(1)));
            return Err(error);
        }
        *used_until = next;
        Ok(next)
    }

    /// Gives back what was spent for runs that were never made, but for what has come back by itself since.
    fn refund(&self, runs: u32, who: &Identity, spent_until: Instant, now: Instant) {
        let Some(interval) = MINUTE.checked_div(self.per_minute) else {
            return;
        };
        let left = (interval * runs).min(spent_until.saturating_duration_since(now));
        if let Some(used_until) = lock(&self.rates).get_mut(who)
            && let Some(earlier) = used_until.checked_sub(left)
        {
            *used_until = earlier;
        }
    }

    /// From now on no run begins.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Is it closed?
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether a call that was let in may still begin.
    ///
    /// # Errors
    /// For a run, once it is closed.
    pub(crate) fn still_open(&self, call: &Call) -> Result<(), Error> {
        if call.is_run() && self.is_closed() {
            Err(Error::stopped())
        } else {
            Ok(())
        }
    }

    /// From now on every call is told to stop.
    pub(crate) fn abort(&self) {
        self.aborting.store(true, Ordering::Release);
    }

    /// Must calls stop because the process ends?
    fn aborting(&self) -> bool {
        self.aborting.load(Ordering::Acquire)
    }

    /// Waits until nothing runs, neither a call nor a run that outlives its call, at most until `deadline`. True if none does.
    pub(crate) fn wait_idle(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        wait_while(&self.changed, self.running(), left, |running| {
            running.calls + running.runs > 0
        })
        .1
    }

    fn running(&self) -> MutexGuard<'_, Counts> {
        lock(&self.running)
    }
}

/// Drops callers whose rate is fully available; if there are none, the one who has used least.
fn make_room(rates: &mut HashMap<Identity, Instant>, now: Instant) {
    let before = rates.len();
    rates.retain(|_, used_until| *used_until > now);
    if rates.len() == before
        && let Some(least) = rates
            .iter()
            .min_by_key(|(_, used_until)| **used_until)
            .map(|(who, _)| who.clone())
    {
        rates.remove(&least);
    }
}

/// The limit of concurrent runs is reached.
pub(crate) fn busy() -> Error {
    Error::new(
        Kind::TooManyRequests,
        "Too many calls are running and waiting already. Wait for one of them to end, then try again.",
    )
}

fn busy_caller(most: usize) -> Error {
    let detail = format!(
        "This server takes at most {most} runs at once from one caller. Wait for one of yours to end, then try again."
    );
    Error::new(Kind::TooManyRequests, detail)
}

fn has_its_share() -> Error {
    let detail = "You have as many calls under way as one caller may. Wait for one of them to end, then try again.";
    Error::new(Kind::TooManyRequests, detail)
}

/// What stops one call: its cancellation, or shutdown.
pub(crate) struct Stops {
    cancel: Cancel,
    admission: Arc<Admission>,
    aborted: AtomicBool,
}

impl Stops {
    /// Stops when `cancel` says so, or `admission` aborts.
    pub(crate) fn new(cancel: Cancel, admission: Arc<Admission>) -> Stops {
        Stops {
            cancel,
            admission,
            aborted: AtomicBool::new(false),
        }
    }

    /// Has the caller cancelled? Then nothing more is sent to it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Must the call stop, for either reason?
    pub(crate) fn is_stopped(&self) -> bool {
        if self.admission.aborting() {
            self.aborted.store(true, Ordering::Relaxed);
            return true;
        }
        self.is_cancelled()
    }

    /// The answer of a call that has ended: an error that says so, if shutdown has stopped it.
    pub(crate) fn answer(&self, call: &Call, answer: Answer) -> Answer {
        if self.aborted.load(Ordering::Relaxed) {
            call.fail(Error::stopped())
        } else {
            answer
        }
    }
}

/// A slot among the running calls, released on drop.
pub(crate) struct Permit {
    admission: Arc<Admission>,
    run: Option<RunPermit>,
    _share: Option<Share>,
}

impl Permit {
    /// Begins the call. Returns the slot of its run, if it is one, which may outlive the call.
    ///
    /// # Errors
    /// `too-many-requests`: too many runs are still working, though their calls have been answered.
    pub(crate) fn begin(&mut self) -> Result<Option<Box<dyn RunSlot>>, Error> {
        let Some(mut run) = self.run.take() else {
            return Ok(None);
        };
        let mut running = self.admission.running();
        if running.begun >= self.admission.max_begun {
            drop(running);
            return Err(busy());
        }
        running.begun += 1;
        run.begun = true;
        drop(running);
        Ok(Some(Box::new(run)))
    }
}

/// A slot among the runs, released on drop. Runs that were not made by then are given back to the rate limit.
struct RunPermit {
    admission: Arc<Admission>,
    who: Identity,
    begun: bool,
    /// How many of those that were counted against the rate limit were not made.
    unmade: u32,
    /// Until when these use up the caller's rate.
    spent_until: Instant,
}

impl RunSlot for RunPermit {
    fn end(mut self: Box<Self>, paid: u32) {
        self.unmade = self.unmade.saturating_sub(paid);
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.admission
            .refund(self.unmade, &self.who, self.spent_until, Instant::now());
        let mut running = self.admission.running();
        running.runs -= 1;
        running.begun -= usize::from(self.begun);
        if let Some(own) = running.by_caller.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                running.by_caller.remove(&self.who);
            }
        }
        drop(running);
        self.admission.changed.notify_all();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.running().calls -= 1;
        self.admission.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_once_are_bounded_and_other_calls_are_not() {
        let admission = Admission::new(1, 0, 0);
        let now = Instant::now();
        let run = admission.enter(1, &Identity::Local, now).unwrap();
        let _call = admission.enter(0, &Identity::Local, now).unwrap();
        assert_eq!(
            admission
                .enter(1, &Identity::Local, now)
                .err()
                .map(|e| e.kind),
            Some(Kind::TooManyRequests)
        );
        drop(run);
        assert!(admission.enter(1, &Identity::Local, now).is_ok());
    }

    #[test]
    fn a_caller_has_its_share_of_the_runs() {
        let admission = Admission::new(9, 2, 0);
        let now = Instant::now();
        let [a, b] = ["a", "b"].map(|name| Identity::Token(name.into()));
        let enter = |who| admission.enter(1, who, now);
        let (first, _second) = (enter(&a).unwrap(), enter(&a).unwrap());
        assert!(
            enter(&a)
                .err()
                .unwrap()
                .detail
                .contains("at most 2 runs at once from one caller")
        );
        let other = enter(&b).unwrap();
        assert!(admission.enter(0, &a, now).is_ok(), "only runs count");
        drop((first, other));
        assert!(enter(&a).is_ok());
        assert_eq!(
            admission.running().by_caller,
            HashMap::from([(a, 1)]),
            "nobody is remembered for nothing"
        );
    }

    #[test]
    fn a_caller_leaves_threads_for_the_calls_of_others() {
        let admission = Admission::with_threads(4, 0, 0);
        let now = Instant::now();
        let [a, b] = ["a", "b"].map(|name| Identity::Token(name.into()));
        let mut hers: Vec<_> = (0..3)
            .map(|_| admission.enter(0, &a, now).unwrap())
            .collect();
        assert!(
            admission
                .enter(0, &a, now)
                .err()
                .unwrap()
                .detail
                .starts_with("You have as many calls under way")
        );
        assert!(admission.enter(0, &b, now).is_ok() && admission.enter(1, &a, now).is_ok());
        hers.pop();
        assert!(admission.enter(0, &a, now).is_ok());
    }

    #[test]
    fn a_run_keeps_its_place_when_its_call_is_over() {
        let now = Instant::now();
        let admission = Admission::new(1, 0, 0);
        let mut call = admission.enter(1, &Identity::Local, now).unwrap();
        let run = call.begin().unwrap();
        drop(call);
        assert!(admission.enter(1, &Identity::Local, now).is_err() && !admission.wait_idle(now));
        drop(run);
        assert!(admission.enter(1, &Identity::Local, now).is_ok() && admission.wait_idle(now));

        let queued = Admission::queued(1);
        let mut calls = [(); 2].map(|()| queued.enter(1, &Identity::Local, now).unwrap());
        let run = calls[0].begin().unwrap();
        assert_eq!(
            calls[1].begin().err().map(|error| error.kind),
            Some(Kind::TooManyRequests)
        );
        drop(run);
        assert!(
            queued
                .enter(1, &Identity::Local, now)
                .unwrap()
                .begin()
                .is_ok_and(|run| run.is_some())
        );
        assert!(
            queued
                .enter(0, &Identity::Local, now)
                .unwrap()
                .begin()
                .is_ok_and(|run| run.is_none())
        );
    }

    #[test]
    fn a_rate_is_used_up_and_comes_back() {
        let admission = Admission::new(100, 0, 2);
        let begin = Instant::now();
        let made = |runs, who: &Identity, now| {
            admission
                .enter(runs, who, now)
                .map(|mut call| call.begin().unwrap().unwrap().end(runs))
        };
        let at = |seconds| made(1, &Identity::Local, begin + Duration::from_secs(seconds));
        assert!(at(0).is_ok() && at(0).is_ok());
        let refused = at(0).err().unwrap();
        assert_eq!(refused.retry_after, Some(Duration::from_secs(30)));
        assert!(at(29).is_err() && at(30).is_ok() && at(30).is_err());
        let other = &Identity::peer("10.0.0.1".parse().unwrap());
        assert!(made(1, other, begin).is_ok(), "each has its own");
        assert!(
            admission.enter(0, &Identity::Local, begin).is_ok(),
            "only runs count"
        );
        let third = &Identity::peer("10.0.0.2".parse().unwrap());
        assert!(
            admission
                .enter(3, third, begin)
                .is_err_and(|error| error.retry_after.is_none()),
            "never allowed"
        );
        assert!(
            made(2, third, begin).is_ok() && made(1, third, begin).is_err(),
            "each step counts"
        );
    }

    #[test]
    fn runs_that_were_not_made_are_given_back() {
        let admission = Admission::new(100, 0, 9);
        let enter = |runs| admission.enter(runs, &Identity::Local, Instant::now());
        drop(enter(9).unwrap());
        drop(enter(9).unwrap().begin().unwrap());
        for paid in [0, 0, 2] {
            let slot = enter(9).unwrap().begin().unwrap().unwrap();
            assert!(enter(1).is_err());
            slot.end(paid);
        }
        assert!(enter(9).is_err());
        let seven = enter(7).unwrap();
        assert!(enter(1).is_err());
        drop(seven);
    }

    #[test]
    fn what_has_come_back_by_itself_is_not_given_back_again() {
        let admission = Admission::new(100, 0, 60);
        let (who, begin) = (&Identity::Local, Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let first = admission.spend(40, who, at(0)).unwrap();
        let second = admission.spend(20, who, at(0)).unwrap();
        assert_eq!((first, second), (at(40), at(60)));
        assert_eq!(admission.spend(60, who, at(60)).unwrap(), at(120));
        admission.refund(40, who, first, at(60));
        admission.refund(20, who, second, at(60));
        assert!(admission.spend(1, who, at(60)).is_err());
        // Of 60, 30 have come back, and 10 of the other 30 are given back.
        admission.refund(60, who, at(120), at(90));
        assert_eq!(admission.spend(60, who, at(90)).unwrap(), at(150));
    }

    #[test]
    fn the_memory_of_callers_is_bounded() {
        let admission = Admission::new(usize::MAX, 0, 1);
        let now = Instant::now();
        for n in 0..=MAX_RATED_CALLERS as u32 {
            assert!(
                admission
                    .enter(
                        1,
                        &Identity::peer(std::net::Ipv4Addr::from_bits(n).into()),
                        now
                    )
                    .is_ok()
            );
        }
        assert_eq!(admission.rates.lock().unwrap().len(), MAX_RATED_CALLERS);
    }
}
