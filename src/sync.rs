//! Threads, and locks and condition variables that ignore poisoning.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::WORKER_STACK;

/// How often a thread that waits looks whether to go on.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// What a thread does. It is boxed, so that the code that starts threads is compiled only once: each copy takes 2 KB.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Does `work` on a thread of its own, with a stack of this many bytes.
///
/// # Errors
/// The system has no thread for it.
pub(crate) fn start(name: &str, stack: usize, work: Work) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.stack_size(stack).spawn(work).map(drop)
}

/// The same with the usual stack. `otherwise` is logged if the system has no thread.
pub(crate) fn spawn(name: &str, otherwise: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = start(name, WORKER_STACK, Box::new(work)) {
        log::warn!("{otherwise}: {error}");
    }
}

/// Does this when it is dropped, even after a panic.
#[must_use = "this is done when the value is dropped"]
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Locks `mutex` even if it is poisoned: our values are valid between any two statements that change them, and a panic in one
/// call must not affect others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same as [`lock`] without waiting; `None` while another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits while `condition` holds, at most for `limit`; false if it held to the end. std's `wait_timeout_while` returns at the
/// first wake-up once the mutex is poisoned.
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    limit: Duration,
    mut condition: impl FnMut(&mut T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    let begun = Instant::now();
    while condition(&mut guard) {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return (guard, false);
        }
        let waited = condvar.wait_timeout(guard, left);
        (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    (guard, true)
}

/// Asks every so often whether something that wakes nobody `is_done`, at most for `limit`; false if it was not.
pub(crate) fn poll(limit: Duration, every: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_done() {
        if begun.elapsed() >= limit {
            return false;
        }
        thread::sleep(every);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_lock_can_be_taken_and_waited_for_after_a_panic_elsewhere() {
        let (value, changed) = (Mutex::new(1), Condvar::new());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock(&value) = 0;
            let _held = lock(&value);
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && value.is_poisoned());
        let held = try_lock(&value).unwrap();
        assert!(*held == 0 && try_lock(&value).is_none());
        drop(held);
        assert!(!wait_while(&changed, lock(&value), Duration::ZERO, |value| *value == 0).1);
        thread::scope(|scope| {
            let (asked, asks) = std::sync::mpsc::channel();
            let is_low = move |value: &mut i32| {
                let _ = asked.send(());
                *value < 2
            };
            let waiter = scope
                .spawn(|| *wait_while(&changed, lock(&value), Duration::from_secs(20), is_low).0);
            // The condition is evaluated under the lock, so each change happens during the wait.
            for _ in 0..2 {
                asks.recv().unwrap();
                *lock(&value) += 1;
                changed.notify_all();
            }
            assert_eq!(waiter.join().unwrap(), 2);
        });
    }
}
