//! Which requests of one connection are being worked on, by id.
//!
//! ```text
//!   begin ──> in flight ──finish──> true: answer it ──sent──> gone
//!                  └──cancel──> gone ──finish──> false: say nothing
//! ```
//! The id is free as soon as the answer may be written: a client may use it again the moment it reads the answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::jsonrpc::Id;
use crate::mcp::Registration;

/// Tells a running call that nobody wants its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Says so.
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Was it said?
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What is in flight under an id.
enum Entry {
    Call(Cancel),
    /// A subscription, with what we send when we end it.
    Listen {
        _place: Registration,
        end: Vec<Vec<u8>>,
    },
}

/// The requests of one connection that have no answer yet.
#[derive(Default)]
pub(super) struct Inflight {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<Id, Entry>,
    /// Answers that are being written.
    answering: usize,
}

impl Inflight {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call. `None` if the id is in use: the first one goes on.
    pub(super) fn begin(&self, id: &Id) -> Option<Cancel> {
        let entries = &mut self.lock().entries;
        if entries.contains_key(id) {
            return None;
        }
        let cancel = Cancel::default();
        entries.insert(id.clone(), Entry::Call(cancel.clone()));
        Some(cancel)
    }

    /// Enters a subscription. `end` is what to send if we end it ourselves. False if the id is in use.
    pub(super) fn listen(&self, id: &Id, place: impl FnOnce() -> Registration, end: Vec<Vec<u8>>) -> bool {
        let entries = &mut self.lock().entries;
        if entries.contains_key(id) {
            return false;
        }
        entries.insert(id.clone(), Entry::Listen { _place: place(), end });
        true
    }

    /// Is the id in use?
    pub(super) fn contains(&self, id: &Id) -> bool {
        self.lock().entries.contains_key(id)
    }

    /// Takes a call out. True if its answer is still wanted: then write it, and say so with [`Inflight::sent`].
    pub(super) fn finish(&self, id: &Id, cancel: &Cancel) -> bool {
        let mut state = self.lock();
        // The id may be in use again after it was cancelled.
        let own = matches!(state.entries.get(id), Some(Entry::Call(other)) if Arc::ptr_eq(&other.0, &cancel.0));
        if own {
            state.entries.remove(id);
            state.answering += 1;
        }
        own
    }

    /// The answer of a finished call has been written.
    pub(super) fn sent(&self) {
        self.lock().answering -= 1;
        self.changed.notify_all();
    }

    /// Stops what is in flight under `id`, if anything is. Its answer is not wanted any more.
    pub(super) fn cancel(&self, id: &Id) {
        let entry = self.lock().entries.remove(id);
        if let Some(Entry::Call(cancel)) = &entry {
            cancel.cancel();
        }
        self.changed.notify_all();
    }

    /// Stops everything.
    pub(super) fn cancel_all(&self) {
        let entries = std::mem::take(&mut self.lock().entries);
        for entry in entries.values() {
            if let Entry::Call(cancel) = entry {
                cancel.cancel();
            }
        }
        self.changed.notify_all();
    }

    /// Ends all subscriptions, and gives what has to be sent for that.
    pub(super) fn end_listening(&self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        self.lock().entries.retain(|_, entry| match entry {
            Entry::Call(_) => true,
            Entry::Listen { end, .. } => {
                messages.append(end);
                false
            }
        });
        messages
    }

    /// Waits until no call is in flight and all answers are written, at most for `limit`. True if so.
    pub(super) fn wait_idle(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        while state.answering > 0 || state.entries.values().any(|e| matches!(e, Entry::Call(_))) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn id(json: &str) -> Id {
        Id::from_raw(&RawValue::from_string(json.into()).unwrap()).unwrap()
    }

    #[test]
    fn an_id_is_used_once_at_a_time_and_again_afterwards() {
        let all = Inflight::default();
        let first = all.begin(&id("1")).unwrap();
        assert!(all.begin(&id("1")).is_none());
        assert!(all.begin(&id("\"1\"")).is_some(), "a string is another id than a number");
        assert!(all.finish(&id("1"), &first));
        assert!(all.begin(&id("1")).is_some());
    }

    #[test]
    fn a_cancelled_call_is_not_answered_and_frees_its_id() {
        let all = Inflight::default();
        let first = all.begin(&id("1")).unwrap();
        all.cancel(&id("1"));
        all.cancel(&id("7"));
        assert!(first.is_cancelled());
        let second = all.begin(&id("1")).unwrap();
        assert!(!all.finish(&id("1"), &first), "the first is gone");
        assert!(all.finish(&id("1"), &second), "the second is another call");
        assert!(!all.wait_idle(Duration::ZERO), "its answer is not written yet");
        all.sent();
        assert!(all.wait_idle(Duration::ZERO));
    }

    #[test]
    fn waiting_ends_when_the_last_call_does() {
        let all = Arc::new(Inflight::default());
        let call = all.begin(&id("1")).unwrap();
        assert!(!all.wait_idle(Duration::ZERO));
        let other = all.clone();
        let thread = std::thread::spawn(move || other.wait_idle(Duration::from_secs(20)));
        all.finish(&id("1"), &call);
        all.sent();
        assert!(thread.join().unwrap());
    }
}
