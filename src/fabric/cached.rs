//! Single-flight cache with a time-to-live.
//!
//! ```text
//!   get ─┬─ a value young enough ──────────────────────────────▶ that value
//!        ├─ a read in flight ──▶ wait for it ──▶ try again
//!        └─ neither ───────────▶ read for everybody who waits ─▶ the new value, or the error
//! ```
//! Each caller sets its maximum age: with [`Duration::ZERO`] it never gets a value whose read began before its call,
//! and callers that arrive during a read share the next one. A read in flight for longer than `patience` is abandoned:
//! the next caller starts another. An error may also count for callers that ask soon after it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{CallObserver, Error, Kind, no_room};
use crate::sync::{Finally, SLICE, lock, wait_while};

/// A cached value.
pub(crate) struct Cached<T> {
    patience: Duration,
    /// For how long after its end a failed read counts.
    rest: Duration,
    state: Mutex<CacheState<T>>,
    /// A read is over.
    landed: Condvar,
}

struct CacheState<T> {
    /// The newest value, and the start of its read.
    value: Option<(Instant, Arc<T>)>,
    /// The start of the read in flight.
    flight: Option<Instant>,
    /// The start and the end of the last read that failed, and its error.
    failed: Option<(Instant, Instant, Error)>,
}

impl<T> Cached<T> {
    /// An empty cache. `patience` bounds how long a read in flight is waited for.
    pub(crate) const fn new(patience: Duration) -> Cached<T> {
        let state = CacheState {
            value: None,
            flight: None,
            failed: None,
        };
        Cached {
            patience,
            rest: Duration::ZERO,
            state: Mutex::new(state),
            landed: Condvar::new(),
        }
    }

    /// The same, but after a read that failed nothing is read for this long.
    pub(super) fn resting(self, rest: Duration) -> Cached<T> {
        Cached { rest, ..self }
    }

    /// The newest value, if its read began after `begun` or there is no such bound.
    pub(crate) fn latest(&self, begun: Option<Instant>) -> Option<Arc<T>> {
        let state = lock(&self.state);
        let newest = state.value.as_ref().filter(|(at, _)| Some(*at) > begun);
        newest.map(|(_, value)| Arc::clone(value))
    }

    /// The error of the newest read, if that failed and ended no longer ago than this.
    pub(super) fn failure(&self, ago: Duration) -> Option<Error> {
        let failed = lock(&self.state).failed.clone();
        let failed = failed.filter(|(_, end, _)| end.elapsed() < ago);
        failed.map(|(.., error)| error)
    }

    /// Drops the value if `outdated` says so. True if it did.
    pub(crate) fn invalidate(&self, outdated: impl FnOnce(&T) -> bool) -> bool {
        // It is dropped without the lock, because its end may take long.
        let old = lock(&self.state)
            .value
            .take_if(|(_, value)| outdated(value));
        old.is_some()
    }

    /// A value whose read began at most `max_age` ago. If there is none, calls `read`, or waits for
    /// another caller's read.
    ///
    /// # Errors
    /// The errors of `read`, for every caller that waited for it; cancelled, if `observer` says so. If a read was
    /// cancelled, panicked or had no memory, only its own caller gets that error.
    pub(crate) fn get(
        &self,
        max_age: Duration,
        observer: &dyn CallObserver,
        read: impl FnOnce() -> Result<Arc<T>, Error>,
    ) -> Result<Arc<T>, Error> {
        let asked = Instant::now();
        let is_young = |begun: Instant| asked.saturating_duration_since(begun) <= max_age;
        let mut shared = None;
        let mut state = lock(&self.state);
        loop {
            if let Some((begun, value)) = &state.value
                && is_young(*begun)
            {
                return Ok(Arc::clone(value));
            }
            if let Some((flight, end, error)) = &state.failed
                && (shared == Some(*flight) || end.elapsed() < self.rest)
            {
                return Err(error.clone());
            }
            let is_patient = |begun: &Instant| begun.elapsed() < self.patience;
            let Some(flight) = state.flight.filter(is_patient) else {
                break;
            };
            shared = shared.max(Some(flight).filter(|flight| is_young(*flight)));
            let is_in_flight = |state: &mut CacheState<T>| state.flight == Some(flight);
            let (waited, has_landed) = wait_while(&self.landed, state, SLICE, is_in_flight);
            state = waited;
            if !has_landed {
                drop(state);
                observer.still_waiting()?;
                state = lock(&self.state);
            }
        }
        let begun = Instant::now();
        state.flight = Some(begun);
        drop(state);
        // Nobody waits for it any more, even after a panic. Of the callers who cannot use what was read, the first that
        // wakes up reads for the others.
        let landing = Finally(|| {
            lock(&self.state).flight.take_if(|flight| *flight == begun);
            self.landed.notify_all();
        });
        let result = read();
        let mut state = lock(&self.state);
        let newest = state.value.as_ref().map(|(newest, _)| *newest);
        match &result {
            Ok(value) if newest <= Some(begun) => {
                (state.value, state.failed) = (Some((begun, Arc::clone(value))), None)
            }
            Err(error) if error.kind != Kind::Cancelled && *error != no_room() => {
                state.failed = Some((begun, Instant::now(), error.clone()))
            }
            _ => {}
        }
        drop(state);
        drop(landing);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Unobserved;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    type ReadResult = Result<Arc<u32>, Error>;
    const LONG: Duration = Duration::from_secs(3600);

    fn unavailable() -> Error {
        Error::new(Kind::ApiUnavailable, "gone")
    }

    fn another_reads() -> ReadResult {
        unreachable!("another caller reads")
    }

    fn get(
        cached: &Cached<u32>,
        max_age: Duration,
        read: impl FnOnce() -> ReadResult,
    ) -> ReadResult {
        cached.get(max_age, &Unobserved, read)
    }

    /// Reports its first callback: its caller is then waiting for another's read.
    struct Announced(Mutex<Sender<()>>);

    impl CallObserver for Announced {
        fn still_waiting(&self) -> Result<(), Error> {
            let _ = lock(&self.0).send(());
            Ok(())
        }
    }

    fn asked() -> (Announced, Receiver<()>) {
        let (sender, receiver) = channel();
        (Announced(Mutex::new(sender)), receiver)
    }

    /// The results of two callers with `max_age`: the second calls while `first` reads.
    fn together(
        cached: &Cached<u32>,
        max_age: Duration,
        first: impl FnOnce() -> ReadResult + Send,
        second: impl FnOnce() -> ReadResult,
    ) -> (thread::Result<ReadResult>, ReadResult) {
        let (reads, is_reading) = channel();
        let (asks, is_waiting) = asked();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                get(cached, LONG, || {
                    reads.send(()).unwrap();
                    is_waiting.recv().unwrap();
                    first()
                })
            });
            is_reading.recv().unwrap();
            let second = cached.get(max_age, &asks, second);
            (first.join(), second)
        })
    }

    #[test]
    fn a_value_is_read_once_while_it_is_young() {
        let cached = Cached::new(LONG);
        assert_eq!(get(&cached, LONG, || Ok(Arc::new(1))), Ok(Arc::new(1)));
        let found = cached.get(LONG, &Unobserved, another_reads).unwrap();
        assert_eq!(found, Arc::new(1));
        let found = get(&cached, Duration::ZERO, || Ok(Arc::new(2)));
        assert_eq!(found, Ok(Arc::new(2)));
        assert_eq!(cached.latest(None), Some(Arc::new(2)));
        cached.invalidate(|value| *value == 3);
        assert_eq!(cached.latest(None), Some(Arc::new(2)));
        cached.invalidate(|value| *value == 2);
        assert_eq!(cached.latest(None), None);
    }

    #[test]
    fn callers_during_a_read_share_it_and_its_failure() {
        let cached = Cached::new(LONG);
        let (first, second) = together(&cached, LONG, || Ok(Arc::new(1)), another_reads);
        assert_eq!((first.unwrap(), second), (Ok(Arc::new(1)), Ok(Arc::new(1))));
        let cached = Cached::new(LONG);
        let (first, second) = together(&cached, LONG, || Err(unavailable()), another_reads);
        let shown = (first.unwrap(), second);
        assert_eq!(shown, (Err(unavailable()), Err(unavailable())));
        let cached = cached.resting(LONG);
        let found = get(&cached, LONG, another_reads);
        assert_eq!(found, Err(unavailable()), "a failure counts for a while");
        let found = get(&cached.resting(Duration::ZERO), LONG, || Ok(Arc::new(2)));
        assert_eq!(found, Ok(Arc::new(2)), "and is not kept");
    }

    #[test]
    fn who_needs_a_fresh_value_or_shares_a_cancelled_or_panicked_read_reads_again() {
        for (max_age, before) in [
            (Duration::ZERO, Ok(Arc::new(1))),
            (Duration::ZERO, Err(unavailable())),
            (LONG, Err(Error::cancelled())),
        ] {
            let (cached, first) = (Cached::new(LONG), || before.clone());
            let (first, second) = together(&cached, max_age, first, || Ok(Arc::new(2)));
            assert_eq!((first.unwrap(), second), (before, Ok(Arc::new(2))));
        }
        let (cached, first) = (Cached::new(LONG), || panic!("on purpose"));
        let (first, second) = together(&cached, LONG, first, || Ok(Arc::new(3)));
        assert!(first.is_err());
        assert_eq!(second, Ok(Arc::new(3)));
    }

    #[test]
    fn those_who_must_not_see_the_past_share_the_next_read() {
        let (cached, count) = (&Cached::new(LONG), &Mutex::new(0));
        let read = || {
            *lock(count) += 1;
            Ok(Arc::new(*lock(count)))
        };
        thread::scope(|scope| {
            let mut others = Vec::new();
            let first = get(cached, LONG, || {
                // All of them must be waiting before this read ends.
                for _ in 0..4 {
                    let (asks, is_waiting) = asked();
                    others.push(scope.spawn(move || cached.get(Duration::ZERO, &asks, read)));
                    is_waiting.recv().unwrap();
                }
                read()
            });
            assert_eq!(first, Ok(Arc::new(1)));
            let shared = |other: thread::ScopedJoinHandle<'_, _>| other.join().unwrap();
            let mut found = others.into_iter().map(shared);
            assert!(found.all(|found| found == Ok(Arc::new(2))));
        });
    }

    #[test]
    fn a_hanging_read_blocks_no_caller_and_does_not_replace_a_newer_value() {
        let cached = Cached::new(Duration::ZERO);
        let outer = get(&cached, LONG, || {
            assert_eq!(get(&cached, LONG, || Ok(Arc::new(1))), Ok(Arc::new(1)));
            Ok(Arc::new(2))
        });
        let found = (outer, cached.latest(None));
        assert_eq!(found, (Ok(Arc::new(2)), Some(Arc::new(1))));
    }

    #[test]
    fn a_caller_that_stops_waiting_is_cancelled() {
        struct Left;
        impl CallObserver for Left {
            fn still_waiting(&self) -> Result<(), Error> {
                Err(Error::cancelled())
            }
        }
        let cached = Cached::new(LONG);
        let value = get(&cached, LONG, || {
            let found = cached.get(LONG, &Left, another_reads);
            assert_eq!(found, Err(Error::cancelled()));
            Ok(Arc::new(1))
        });
        assert_eq!(value, Ok(Arc::new(1)));
    }
}
