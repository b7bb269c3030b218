//! How much memory a store holds, and who is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One run's part of a budget that the store knows nothing of: told how many bytes the run holds now, in all. False if
/// there is no room for more; then what was agreed before stays. Gives all back when dropped. Must not use the store.
pub(crate) type Account = Box<dyn FnMut(usize) -> bool + Send>;

/// Opens an account for a run that begins.
pub(crate) type Accounts = Box<dyn Fn() -> Account + Send + Sync>;

/// What all runs of a store hold.
pub(super) struct Memory {
    held: AtomicUsize,
    accounts: Option<Accounts>,
}

impl Memory {
    pub(super) fn new(accounts: Option<Accounts>) -> Arc<Memory> {
        Arc::new(Memory { held: AtomicUsize::new(0), accounts })
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn open(self: &Arc<Memory>) -> Held {
        Held { memory: self.clone(), account: self.accounts.as_ref().map(|open| open()), bytes: 0 }
    }
}

/// What one run holds. It belongs beside the bytes it stands for.
pub(super) struct Held {
    memory: Arc<Memory>,
    account: Option<Account>,
    bytes: usize,
}

impl Held {
    /// The run now holds `bytes`. False if the account refused: they are counted here all the same, since they are there.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        // Wraps around for less, and back again in the sum.
        self.memory.held.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
        self.account.as_mut().is_none_or(|account| account(bytes))
    }

    /// Asks the account again, after a refusal.
    pub(super) fn ask_again(&mut self) -> bool {
        self.account.as_mut().is_none_or(|account| account(self.bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
