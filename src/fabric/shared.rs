//! One reading for all who ask at the same time, and for some time after.
//!
//! In scope: who reads and who waits, what becomes of those who wait, how long a value is good. Not in scope: what is
//! read.
//!
//! ```text
//!            first caller                     read, or failed
//! nothing ───────────────► being read ──────────────────────────► good for `ttl` ──► nothing
//!                          others wait, each asking its own Wait;
//!                          if the first is cancelled, one of them goes on
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Error, Kind, Stop, Wait};
use crate::sync::{Signal, lock};

/// How often one who waits for another's reading is asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);

/// A value that is read when it is needed, by one caller for all, and kept for its time.
pub(super) struct Shared<T> {
    ttl: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// With the moment its reading began.
    value: Option<(Instant, Arc<T>)>,
    /// The reading under way.
    current: Option<Arc<Reading<T>>>,
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
    /// Nothing yet. A value is good for `ttl` from the moment its reading began; with none, only for those who ask while
    /// it is being read.
    pub(super) fn new(ttl: Duration) -> Shared<T> {
        Shared { ttl, state: Mutex::new(State { value: None, current: None }) }
    }

    /// How long a value is good.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes a value that was read by other means, beginning at `begun`.
    pub(super) fn put(&self, begun: Instant, value: Arc<T>) {
        lock(&self.state).value = Some((begun, value));
    }

    /// What is known is good no more, nor is what is being read.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.state);
        state.value = None;
        state.current = None;
    }

    /// The value, if need be by `read`, or by the `read` of another caller that is under way.
    ///
    /// # Errors
    /// Those of `read`: one that fails fails for all who wait for it. Cancelled, if `wait` says so.
    pub(super) fn value(
        &self,
        now: &dyn Fn() -> Instant,
        wait: &dyn Wait,
        read: impl FnOnce() -> Result<Arc<T>, Error>,
    ) -> Result<Arc<T>, Error> {
        let reading = loop {
            let mut state = lock(&self.state);
            if let Some((begun, value)) = &state.value
                && now().saturating_duration_since(*begun) < self.ttl
            {
                return Ok(Arc::clone(value));
            }
            let Some(current) = state.current.clone() else {
                let reading = Arc::new(Reading { outcome: Mutex::new(None), ended: Signal::new() });
                state.current = Some(Arc::clone(&reading));
                break reading;
            };
            drop(state);
            if let Some(result) = current.wait(wait)? {
                return result;
            }
        };
        // Also if `read` panics: others must not wait for ever.
        let mut end = End { shared: self, reading: &reading, begun: now(), outcome: Outcome::Void };
        let result = read();
        end.outcome = match &result {
            Ok(value) => Outcome::Read(Arc::clone(value)),
            Err(error) if error.kind != Kind::Cancelled => Outcome::Failed(error.clone()),
            Err(_) => Outcome::Void,
        };
        result
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
    reading: &'a Arc<Reading<T>>,
    begun: Instant,
    outcome: Outcome<T>,
}

impl<T> Drop for End<'_, T> {
    fn drop(&mut self) {
        let mut outcome = std::mem::replace(&mut self.outcome, Outcome::Void);
        let mut state = lock(&self.shared.state);
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, self.reading)) {
            state.current = None;
            if let Outcome::Read(value) = &outcome
                && !self.shared.ttl.is_zero()
            {
                state.value = Some((self.begun, Arc::clone(value)));
            }
        } else if matches!(outcome, Outcome::Read(_)) {
            outcome = Outcome::Void;
        }
        drop(state);
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

    #[test]
    fn without_a_time_only_those_who_ask_meanwhile_share() {
        let shared = Shared::new(Duration::ZERO);
        let (first, second) = together(&shared, || Ok(Arc::new(1)), || unreachable!("the first one reads"));
        assert_eq!((first.unwrap(), second), (Ok(Arc::new(1)), Ok(Arc::new(1))));
        assert_eq!(shared.value(&Instant::now, &NoWait, || Ok(Arc::new(2))), Ok(Arc::new(2)));
    }

    #[test]
    fn a_failure_is_shared_and_a_cancelled_or_panicked_reading_taken_over() {
        let shared = Shared::new(Duration::ZERO);
        let (first, second) = together(&shared, || Err(unavailable()), || unreachable!("the first one reads"));
        assert_eq!((first.unwrap(), second), (Err(unavailable()), Err(unavailable())));
        let (first, second) = together(&shared, || Err(Error::cancelled()), || Ok(Arc::new(2)));
        assert_eq!((first.unwrap(), second), (Err(Error::cancelled()), Ok(Arc::new(2))));
        let (first, second) = together(&shared, || panic!("on purpose"), || Ok(Arc::new(3)));
        assert!(first.is_err());
        assert_eq!(second, Ok(Arc::new(3)));
    }

    #[test]
    fn what_is_outdated_while_it_is_read_serves_only_who_read_it() {
        let shared = Shared::new(Duration::from_secs(60));
        let outdated = || {
            shared.forget();
            Ok(Arc::new(1))
        };
        let (first, second) = together(&shared, outdated, || Ok(Arc::new(2)));
        assert_eq!((first.unwrap(), second), (Ok(Arc::new(1)), Ok(Arc::new(2))));
        assert_eq!(shared.value(&Instant::now, &NoWait, || unreachable!("it is known")), Ok(Arc::new(2)));
    }
}
