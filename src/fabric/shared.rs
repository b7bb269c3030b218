//! One reading for all who ask at the same time, and for some time after.
//!
//! In scope: who reads and who waits, what becomes of those who wait, how long a value is good. Not in scope: what is
//! read.
//!
//! ```text
//!            first caller                     read, or failed
//! nothing ───────────────► being read ──────────────────────────► good for `ttl` ──► nothing
//!                              │ └ who finds it young enough waits for it, each asking its own Wait
//!                              └ who does not waits for the next one, which begins when this one ends
//!                                or has kept it waiting for `PATIENCE`
//! ```
//! If the one who reads is cancelled, another of those who wait goes on. [`Shared::forget`] makes what is known outdated, and
//! what is being read: that serves only the one who reads it, and those who wait for it ask anew.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::wait::SLICE;
use super::{Error, Kind, Stop, Wait};
use crate::sync::{Signal, lock};

/// How long the next reading waits for the one under way, which may never end.
const PATIENCE: Duration = Duration::from_millis(100);

/// A value that is read when it is needed, by one caller for all, and kept for its time.
pub(super) struct Shared<T> {
    ttl: Duration,
    /// How long ago a reading may have begun that others still wait for.
    young: Duration,
    patience: Duration,
    state: Mutex<State<T>>,
    /// A reading has ended.
    turn: Signal,
}

struct State<T> {
    /// With the moment its reading began.
    value: Option<(Instant, Arc<T>)>,
    /// The reading under way that began last, and when.
    current: Option<(Instant, Arc<Reading<T>>)>,
    /// The one that comes after it.
    next: Option<Arc<Reading<T>>>,
    /// Counts what made readings outdated.
    forgotten: u64,
}

/// One reading, for whoever waits for it.
struct Reading<T> {
    outcome: Mutex<Option<Outcome<T>>>,
    ended: Signal,
}

enum Outcome<T> {
    Read(Arc<T>),
    Failed(Error),
    /// Cancelled, a panic, or outdated before it was read: says nothing about Fabric.
    Void,
}

impl<T> Shared<T> {
    /// A value that is kept: good for `ttl` from the moment its reading began. Whoever asks while it is being read waits
    /// for that.
    pub(super) fn kept(ttl: Duration) -> Shared<T> {
        Shared::new(ttl, Duration::MAX, PATIENCE)
    }

    /// A value that is not kept, only shared by those who ask while it is being read. With `young` 0 nobody gets what was
    /// read for another before: whoever asks while a reading is under way shares the next one.
    pub(super) fn unkept(young: Duration) -> Shared<T> {
        Shared::new(Duration::ZERO, young, PATIENCE)
    }

    fn new(ttl: Duration, young: Duration, patience: Duration) -> Shared<T> {
        let state = State { value: None, current: None, next: None, forgotten: 0 };
        Shared { ttl, young, patience, state: Mutex::new(state), turn: Signal::new() }
    }

    /// How long a value is good.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes a value that was read by other means, beginning at `begun`, unless a later one is known.
    pub(super) fn put(&self, begun: Instant, value: Arc<T>) {
        lock(&self.state).put(begun, value);
    }

    /// What is known is good no more, nor is what is being read.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.state);
        state.value = None;
        state.forgotten += 1;
    }

    /// The value, if need be by `read`, or by the `read` of another caller.
    ///
    /// # Errors
    /// Those of `read`: one that fails fails for all who wait for it. Cancelled, if `wait` says so.
    pub(super) fn value(
        &self,
        now: &dyn Fn() -> Instant,
        wait: &dyn Wait,
        read: impl FnOnce() -> Result<Arc<T>, Error>,
    ) -> Result<Arc<T>, Error> {
        loop {
            let mut state = lock(&self.state);
            let is_within = |begun: Instant, limit: Duration| now().saturating_duration_since(begun) < limit;
            if let Some((begun, value)) = &state.value
                && is_within(*begun, self.ttl)
            {
                return Ok(Arc::clone(value));
            }
            let young = state.current.as_ref().filter(|(begun, _)| is_within(*begun, self.young));
            let Some(others) = young.map(|(_, reading)| reading).or(state.next.as_ref()).cloned() else {
                if state.current.is_some() {
                    state.next = Some(Arc::default());
                    state = self.turn.wait_while(state, self.patience, |state| state.current.is_some()).0;
                }
                let reading = state.next.take().unwrap_or_default();
                let begun = now();
                state.current = Some((begun, Arc::clone(&reading)));
                // Also if `read` panics: others must not wait for ever.
                let mut end = End { shared: self, reading, begun, forgotten: state.forgotten, outcome: Outcome::Void };
                drop(state);
                let result = read();
                end.outcome = match &result {
                    Ok(value) => Outcome::Read(Arc::clone(value)),
                    Err(error) if error.kind != Kind::Cancelled => Outcome::Failed(error.clone()),
                    Err(_) => Outcome::Void,
                };
                return result;
            };
            drop(state);
            if let Some(result) = others.wait(wait)? {
                return result;
            }
        }
    }
}

impl<T> State<T> {
    fn put(&mut self, begun: Instant, value: Arc<T>) {
        if self.value.as_ref().is_none_or(|(known, _)| *known <= begun) {
            self.value = Some((begun, value));
        }
    }
}

impl<T> Default for Reading<T> {
    fn default() -> Reading<T> {
        Reading { outcome: Mutex::new(None), ended: Signal::new() }
    }
}

impl<T> Reading<T> {
    /// What came of it; `None` if that is nothing.
    fn wait(&self, wait: &dyn Wait) -> Result<Option<Result<Arc<T>, Error>>, Error> {
        loop {
            let (outcome, _) = self.ended.wait_while(lock(&self.outcome), SLICE, |outcome| outcome.is_none());
            match &*outcome {
                Some(Outcome::Read(value)) => return Ok(Some(Ok(Arc::clone(value)))),
                Some(Outcome::Failed(error)) => return Ok(Some(Err(error.clone()))),
                Some(Outcome::Void) => return Ok(None),
                None => {}
            }
            drop(outcome);
            wait.still_waiting().map_err(|Stop| Error::cancelled())?;
        }
    }
}

/// A reading under way; its end, whichever it is, is its drop.
struct End<'a, T> {
    shared: &'a Shared<T>,
    reading: Arc<Reading<T>>,
    begun: Instant,
    /// [`State::forgotten`] when it began.
    forgotten: u64,
    outcome: Outcome<T>,
}

impl<T> Drop for End<'_, T> {
    fn drop(&mut self) {
        let mut outcome = std::mem::replace(&mut self.outcome, Outcome::Void);
        let mut state = lock(&self.shared.state);
        if state.current.as_ref().is_some_and(|(_, current)| Arc::ptr_eq(current, &self.reading)) {
            state.current = None;
        }
        match &outcome {
            Outcome::Read(_) if state.forgotten != self.forgotten => outcome = Outcome::Void,
            Outcome::Read(value) if !self.shared.ttl.is_zero() => state.put(self.begun, Arc::clone(value)),
            _ => {}
        }
        drop(state);
        self.shared.turn.notify_all();
        *lock(&self.reading.outcome) = Some(outcome);
        self.reading.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::NoWait;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    type Read = Result<Arc<u32>, Error>;

    /// Tells when it is asked, which is when its caller waits for another's reading.
    struct Tells(Mutex<Sender<()>>);

    impl Wait for Tells {
        fn still_waiting(&self) -> Result<(), Stop> {
            // Nobody may listen any more.
            let _ = lock(&self.0).send(());
            Ok(())
        }
    }

    /// What two callers get of which the second asks while `first` reads.
    fn together(
        shared: &Shared<u32>,
        first: impl FnOnce() -> Read + Send,
        second: impl FnOnce() -> Read,
    ) -> (thread::Result<Read>, Read) {
        let (reads, is_reading) = channel();
        let (waits, is_waiting) = channel();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                shared.value(&Instant::now, &NoWait, || {
                    reads.send(()).unwrap();
                    is_waiting.recv().unwrap();
                    first()
                })
            });
            is_reading.recv().unwrap();
            let second = shared.value(&Instant::now, &Tells(Mutex::new(waits)), second);
            (first.join(), second)
        })
    }

    fn unavailable() -> Error {
        Error::new(Kind::ApiUnavailable, "gone")
    }

    /// Forbids to read: another one does.
    fn another_reads() -> Read {
        unreachable!("another one reads")
    }

    #[test]
    fn what_is_not_kept_is_shared_by_those_who_ask_meanwhile() {
        let shared = Shared::unkept(Duration::MAX);
        let (first, second) = together(&shared, || Ok(Arc::new(1)), another_reads);
        assert_eq!((first.unwrap(), second), (Ok(Arc::new(1)), Ok(Arc::new(1))));
        assert_eq!(shared.value(&Instant::now, &NoWait, || Ok(Arc::new(2))), Ok(Arc::new(2)));
    }

    #[test]
    fn those_who_must_not_see_the_past_share_the_next_reading() {
        let shared = Shared::new(Duration::ZERO, Duration::ZERO, Duration::from_secs(60));
        let (reads, is_reading) = channel();
        let (ends, is_ending) = channel();
        let shared = &shared;
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                shared.value(&Instant::now, &NoWait, || {
                    reads.send(()).unwrap();
                    is_ending.recv().unwrap();
                    Err(unavailable())
                })
            });
            is_reading.recv().unwrap();
            let ask = |read: fn() -> Read| scope.spawn(move || shared.value(&Instant::now, &NoWait, read));
            let others = || lock(&shared.state).next.as_ref().map_or(0, Arc::strong_count);
            let second = ask(|| Ok(Arc::new(2)));
            while others() < 1 {
                thread::yield_now();
            }
            let third = ask(another_reads);
            while others() < 2 {
                thread::yield_now();
            }
            ends.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Err(unavailable()), "which is nothing to the others");
            assert_eq!((second.join().unwrap(), third.join().unwrap()), (Ok(Arc::new(2)), Ok(Arc::new(2))));
        });
    }

    #[test]
    fn a_reading_that_does_not_end_holds_nobody_up() {
        let shared = Shared::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let ask = |value| shared.value(&Instant::now, &NoWait, || Ok(Arc::new(value)));
        let outer = shared.value(&Instant::now, &NoWait, || {
            assert_eq!(ask(1), Ok(Arc::new(1)));
            Ok(Arc::new(2))
        });
        assert_eq!((outer, ask(3)), (Ok(Arc::new(2)), Ok(Arc::new(3))));
    }

    #[test]
    fn an_older_value_does_not_replace_a_newer_one() {
        let shared = Shared::kept(Duration::from_secs(60));
        let (before, after) = (Instant::now(), Instant::now());
        shared.put(after, Arc::new(2));
        shared.put(before, Arc::new(1));
        assert_eq!(shared.value(&|| after, &NoWait, another_reads), Ok(Arc::new(2)));
    }

    #[test]
    fn a_failure_is_shared_and_a_cancelled_or_panicked_reading_taken_over() {
        let shared = Shared::unkept(Duration::MAX);
        let (first, second) = together(&shared, || Err(unavailable()), another_reads);
        assert_eq!((first.unwrap(), second), (Err(unavailable()), Err(unavailable())));
        let (first, second) = together(&shared, || Err(Error::cancelled()), || Ok(Arc::new(2)));
        assert_eq!((first.unwrap(), second), (Err(Error::cancelled()), Ok(Arc::new(2))));
        let (first, second) = together(&shared, || panic!("on purpose"), || Ok(Arc::new(3)));
        assert!(first.is_err());
        assert_eq!(second, Ok(Arc::new(3)));
    }

    #[test]
    fn what_is_outdated_while_it_is_read_serves_only_who_read_it() {
        let shared = Shared::kept(Duration::from_secs(60));
        let outdated = || {
            shared.forget();
            Ok(Arc::new(1))
        };
        let (first, second) = together(&shared, outdated, || Ok(Arc::new(2)));
        assert_eq!((first.unwrap(), second), (Ok(Arc::new(1)), Ok(Arc::new(2))));
        assert_eq!(shared.value(&Instant::now, &NoWait, another_reads), Ok(Arc::new(2)));
    }
}
