//! Which requests of one connection are being worked on, by id.
//!
//! ```text
//!   begin ──> in flight ──finish──> its answer is wanted
//!                  └──cancel──> gone ──finish──> it is not
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::account::Guard;
use crate::protocol::Id;
use crate::server::Registration;
use crate::sync::lock;

/// Cancels a running call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels it.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Was it cancelled?
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A subscription of the connection.
struct InflightListen {
    _place: Registration,
    /// What to send when the server ends it.
    end: Vec<Vec<u8>>,
    /// What it holds while it lasts.
    _held: Option<Guard>,
}

/// The requests of one connection that have no answer yet.
#[derive(Default)]
pub(crate) struct Inflight(Mutex<InflightState>);

#[derive(Default)]
struct InflightState {
    calls: HashMap<Id, Cancel>,
    listens: HashMap<Id, InflightListen>,
}

impl InflightState {
    fn contains(&self, id: &Id) -> bool {
        self.calls.contains_key(id) || self.listens.contains_key(id)
    }
}

impl Inflight {
    fn lock(&self) -> MutexGuard<'_, InflightState> {
        lock(&self.0)
    }

    /// Registers a call. `None` if the id is in use: the first call goes on.
    pub(crate) fn begin(&self, id: &Id) -> Option<Cancel> {
        let mut state = self.lock();
        if state.contains(id) {
            return None;
        }
        let cancel = Cancel::default();
        state.calls.insert(id.clone(), cancel.clone());
        Some(cancel)
    }

    /// Registers a subscription, which holds `held`. `end` is what to send if the server ends it. False if the id is in use.
    pub(crate) fn listen(
        &self,
        id: &Id,
        place: impl FnOnce() -> Registration,
        end: Vec<Vec<u8>>,
        held: Option<Guard>,
    ) -> bool {
        let mut state = self.lock();
        if state.contains(id) {
            return false;
        }
        let listen = InflightListen {
            _place: place(),
            end,
            _held: held,
        };
        state.listens.insert(id.clone(), listen);
        true
    }

    /// Is the id in use?
    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.lock().contains(id)
    }

    /// Removes a call. Is its answer still wanted?
    pub(crate) fn finish(&self, id: &Id, cancel: &Cancel) -> bool {
        let mut state = self.lock();
        // The id may be in use again after it was cancelled.
        let is_own = |other: &Cancel| Arc::ptr_eq(&other.0, &cancel.0);
        let own = state.calls.get(id).is_some_and(is_own);
        if own {
            state.calls.remove(id);
        }
        own && !cancel.is_cancelled()
    }

    /// Stops what is in flight under `id`, if anything is. Its answer is not wanted any more.
    pub(crate) fn cancel(&self, id: &Id) {
        let mut state = self.lock();
        let stopped = (state.calls.remove(id), state.listens.remove(id));
        drop(state);
        if let (Some(cancel), _) = stopped {
            cancel.cancel();
        }
    }

    /// Stops everything.
    pub(crate) fn cancel_all(&self) {
        let stopped = std::mem::take(&mut *self.lock());
        stopped.calls.values().for_each(Cancel::cancel);
    }

    /// Ends all subscriptions. Returns what has to be sent for that.
    pub(crate) fn end_listening(&self) -> Vec<Vec<u8>> {
        let ended = std::mem::take(&mut self.lock().listens);
        ended.into_values().flat_map(|listen| listen.end).collect()
    }

    /// How many subscriptions there are.
    pub(crate) fn listening(&self) -> usize {
        self.lock().listens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Id {
        Id::Number(number.into())
    }

    #[test]
    fn a_cancelled_call_is_not_answered_and_frees_its_id() {
        let all = Inflight::default();
        let first = all.begin(&id(1)).unwrap();
        all.cancel(&id(1));
        all.cancel(&id(7));
        assert!(first.is_cancelled());
        let second = all.begin(&id(1)).unwrap();
        assert!(!all.finish(&id(1), &first), "the first is gone");
        assert!(all.finish(&id(1), &second), "the second is another call");
    }
}
