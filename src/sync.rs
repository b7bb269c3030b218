//! Locks that a panic elsewhere does not close for good, a condition that is cheap to signal, and threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Locks `mutex`, whether somebody panicked while holding it or not. For values that are whole between any two steps of
/// changing them, as all of ours are: a panic in one call must cost that call only.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition variable for what changes often and is seldom waited for: std's makes a system call for each change, this
/// one only if somebody waits.
#[derive(Default)]
pub(crate) struct Signal {
    condvar: Condvar,
    /// Changed under the waiters' lock only.
    waiting: AtomicUsize,
}

impl Signal {
    /// Nobody waits.
    pub(crate) const fn new() -> Signal {
        Signal { condvar: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Waits while `condition` holds, `limit` at most; false if it still holds then.
    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let begun = Instant::now();
        // Not std's own loop: once a mutex is poisoned, that ends at the first wake-up.
        while condition(&mut guard) {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return (guard, false);
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            guard = self.condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        (guard, true)
    }

    /// Wakes all who wait. To be called after a change that was made under their lock: then either they had not looked yet,
    /// or they are seen here.
    pub(crate) fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}

/// Starts a thread. As [`Builder::spawn`], which is compiled anew for every type of work: more than a
/// kilobyte each.
pub(crate) fn spawn(builder: Builder, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    builder.spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_panic_costs_nobody_else() {
        let value = Mutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            let mut held = lock(&value);
            *held = 2;
            panic!("on purpose");
        });
        assert!(panicked.is_err() && value.is_poisoned());
        assert_eq!(*lock(&value), 2);
    }

    #[test]
    fn waiting_goes_on_after_a_panic_elsewhere() {
        let (value, signal) = (Mutex::new(0), Signal::new());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock(&value);
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && value.is_poisoned());
        thread::scope(|scope| {
            let waited =
                scope.spawn(|| *signal.wait_while(lock(&value), Duration::from_secs(20), |value| *value < 2).0);
            for _ in 0..2 {
                while signal.waiting.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                *lock(&value) += 1;
                signal.notify_all();
            }
            assert_eq!(waited.join().unwrap(), 2);
        });
    }

    #[test]
    fn whoever_waits_is_woken_and_nobody_waits_for_longer_than_the_limit() {
        let (value, signal) = (Mutex::new(0), Signal::new());
        assert!(!signal.wait_while(lock(&value), Duration::ZERO, |value| *value == 0).1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(signal.wait_while(lock(&value), Duration::from_secs(20), |value| *value < 100).1)
                });
            }
            for _ in 0..100 {
                *lock(&value) += 1;
                signal.notify_all();
            }
        });
        assert_eq!(signal.waiting.load(Ordering::Relaxed), 0);
    }
}
