//! Locks that ignore poisoning, a condition variable that is cheap to notify, and threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Locks `mutex` even if it is poisoned: all our values are valid between any two statements that change them, and a panic
/// in one call must not affect others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition variable that makes a system call only if somebody waits; std's makes one for each notification.
#[derive(Default)]
pub(crate) struct Signal {
    condvar: Condvar,
    /// Changed only under the lock that the waiters hold.
    waiting: AtomicUsize,
}

impl Signal {
    /// Nobody waits.
    pub(crate) const fn new() -> Signal {
        Signal { condvar: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Waits while `condition` holds, `limit` at most; false if it held to the end.
    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let begun = Instant::now();
        // std's `wait_timeout_while` returns at the first wake-up once the mutex is poisoned.
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

    /// Wakes all waiters. Must follow a change made under their lock, so that no waiter misses it.
    pub(crate) fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}

/// [`Builder::spawn`], compiled once instead of for every closure, which saves a kilobyte each.
pub(crate) fn spawn(builder: Builder, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    builder.spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_poisoned_lock_can_be_taken() {
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
    fn waiters_are_woken_and_wait_no_longer_than_the_limit() {
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
