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

/// What is in flight under an id.
enum InflightEntry {
    Call(Cancel),
    /// A subscription, with what to send when the server ends it.
    Listen {
        _place: Registration,
        end: Vec<Vec<u8>>,
        _held: Vec<Guard>,
    },
}

/// The requests of one connection that have no answer yet.
#[derive(Default)]
pub(crate) struct Inflight(Mutex<InflightState>);

#[derive(Default)]
struct InflightState {
    entries: HashMap<Id, InflightEntry>,
    /// Everything was stopped.
    stopped: bool,
}

impl Inflight {
    fn lock(&self) -> MutexGuard<'_, InflightState> {
        lock(&self.0)
    }

    /// Registers a call. `None` if the id is in use: the first call goes on. After [`Inflight::cancel_all`] it is
    /// cancelled from the start: its message was read while the connection or session ended.
    pub(crate) fn begin(&self, id: &Id) -> Option<Cancel> {
        let mut state = self.lock();
        if state.entries.contains_key(id) {
            return None;
        }
        let cancel = Cancel::default();
        if state.stopped {
            cancel.cancel();
        } else {
            state
                .entries
                .insert(id.clone(), InflightEntry::Call(cancel.clone()));
        }
        Some(cancel)
    }

    /// Registers a subscription, which holds `held`. `end` is what to send if the server ends it. False if the id is in use.
    pub(crate) fn listen(
        &self,
        id: &Id,
        place: impl FnOnce() -> Registration,
        end: Vec<Vec<u8>>,
        held: Vec<Guard>,
    ) -> bool {
        let mut state = self.lock();
        if state.entries.contains_key(id) {
            return false;
        }
        state.entries.insert(
            id.clone(),
            InflightEntry::Listen {
                _place: place(),
                end,
                _held: held,
            },
        );
        true
    }

    /// Is the id in use?
    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.lock().entries.contains_key(id)
    }

    /// Removes a call. Is its answer still wanted?
    pub(crate) fn finish(&self, id: &Id, cancel: &Cancel) -> bool {
        let mut state = self.lock();
        // The id may be in use again after it was cancelled.
        let own = matches!(state.entries.get(id), Some(InflightEntry::Call(other)) if Arc::ptr_eq(&other.0, &cancel.0));
        if own {
            state.entries.remove(id);
        }
        own && !cancel.is_cancelled()
    }

    /// Stops what is in flight under `id`, if anything is. Its answer is not wanted any more.
    pub(crate) fn cancel(&self, id: &Id) {
        let entry = self.lock().entries.remove(id);
        if let Some(InflightEntry::Call(cancel)) = &entry {
            cancel.cancel();
        }
    }

    /// Stops everything, and whatever is still to begin.
    pub(crate) fn cancel_all(&self) {
        let entries = {
            let mut state = self.lock();
            state.stopped = true;
            std::mem::take(&mut state.entries)
        };
        for entry in entries.values() {
            if let InflightEntry::Call(cancel) = entry {
                cancel.cancel();
            }
        }
    }

    /// Ends all subscriptions. Returns what has to be sent for that.
    pub(crate) fn end_listening(&self) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        let is_listen =
            |_: &Id, entry: &mut InflightEntry| matches!(entry, InflightEntry::Listen { .. });
        let ended = state.entries.extract_if(is_listen);
        let messages = ended.flat_map(|(_, entry)| match entry {
            InflightEntry::Listen { end, .. } => end,
            InflightEntry::Call(_) => Vec::new(),
        });
        messages.collect()
    }

    /// How many subscriptions there are.
    pub(crate) fn listening(&self) -> usize {
        self.lock()
            .entries
            .values()
            .filter(|e| matches!(e, InflightEntry::Listen { .. }))
            .count()
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

    #[test]
    fn what_begins_after_everything_was_stopped_is_stopped_too() {
        let all = Inflight::default();
        let before = all.begin(&id(1)).unwrap();
        all.cancel_all();
        let after = all.begin(&id(2)).unwrap();
        assert!(before.is_cancelled() && after.is_cancelled());
        assert!(!all.finish(&id(2), &after));
    }
}
