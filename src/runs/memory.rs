//! Accounts for the memory of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One run's charge to a budget outside of the store: called with all bytes that the run holds now. False if the budget
/// is exhausted; then the previous charge stays. Releases the charge when dropped. Must not use the store.
pub(crate) type Account = Box<dyn FnMut(usize) -> bool + Send>;

/// Opens the account of a new run.
pub(crate) type Accounts = Box<dyn Fn() -> Account + Send + Sync>;

/// The memory of all runs of a store.
pub(super) struct Memory {
    held: AtomicUsize,
    accounts: Option<Accounts>,
}

impl Memory {
    pub(super) fn new(accounts: Option<Accounts>) -> Arc<Memory> {
        Arc::new(Memory {
            held: AtomicUsize::new(0),
            accounts,
        })
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn open(self: &Arc<Memory>) -> Held {
        Held {
            memory: self.clone(),
            account: self.accounts.as_ref().map(|open| open()),
            bytes: 0,
        }
    }
}

/// The memory of one run. Keep it beside the bytes it counts.
pub(super) struct Held {
    memory: Arc<Memory>,
    account: Option<Account>,
    bytes: usize,
}

impl Held {
    /// Sets the bytes of the run. False if the account refused: they are counted here all the same, since they are
    /// allocated.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        // A decrease wraps around, and the sum wraps back.
        self.memory
            .held
            .fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
        self.account.as_mut().is_none_or(|account| account(bytes))
    }

    /// Asks the account again, after a refusal.
    pub(super) fn ask_again(&mut self) -> bool {
        self.account
            .as_mut()
            .is_none_or(|account| account(self.bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
