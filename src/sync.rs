//! Locks that a panic elsewhere does not close for good.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, whether somebody panicked while holding it or not. For values that are whole between any two steps of
/// changing them, as all of ours are: a panic in one call must cost that call only.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
