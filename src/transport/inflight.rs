//! Which requests of one connection are being worked on, by id.
//!
//! ```text
//!   begin ──> in flight ──finish──> its answer is wanted
//!                  └──cancel──> gone ──finish──> it is not
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::protocol::{Answer, Id};
use crate::server::Registration;
use crate::sync::lock;

/// Cancels a running call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Was it cancelled?
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The requests of one connection that have no answer yet.
#[derive(Default)]
pub(crate) struct Inflight(Mutex<HashMap<Id, (Cancel, Option<Registration>)>>);

impl Inflight {
    /// Registers a request. If its id is in use, which was refused unless both came at the same moment, it stays the other's.
    pub(crate) fn begin(&self, id: &Id) -> Cancel {
        let cancel = Cancel::default();
        let mut all = lock(&self.0);
        all.entry(id.clone()).or_insert((cancel.clone(), None));
        cancel
    }

    /// Makes a request a subscription, unless it was cancelled meanwhile.
    pub(crate) fn listen(&self, id: &Id, cancel: &Cancel, place: Registration) {
        let mut all = lock(&self.0);
        if !cancel.is_cancelled() {
            all.insert(id.clone(), (cancel.clone(), Some(place)));
        }
    }

    /// Is the id in use?
    pub(crate) fn contains(&self, id: &Id) -> bool {
        lock(&self.0).contains_key(id)
    }

    /// Removes a call. Is its answer still wanted?
    pub(crate) fn finish(&self, id: &Id, cancel: &Cancel) -> bool {
        let mut all = lock(&self.0);
        let is_wanted = !cancel.is_cancelled();
        // A cancelled one was removed then, and its id may be in use again.
        if is_wanted {
            all.remove(id);
        }
        is_wanted
    }

    /// Stops what is in flight under `id`, if anything is. Its answer is not wanted any more.
    pub(crate) fn cancel(&self, id: &Id) {
        let mut all = lock(&self.0);
        if let Some((cancel, _)) = all.remove(id) {
            cancel.cancel();
        }
    }

    /// Stops everything.
    pub(crate) fn cancel_all(&self) {
        let mut all = lock(&self.0);
        for (_, (cancel, _)) in all.drain() {
            cancel.cancel();
        }
    }

    /// Ends all subscriptions. Returns what has to be sent for that.
    pub(crate) fn end_listening(&self) -> Vec<Answer> {
        let mut all = lock(&self.0);
        let ended = all.extract_if(|_, (_, place)| place.is_some());
        let ended = ended.filter_map(|(_, (_, place))| place);
        let last = |place: Registration| [place.request.end(), place.request.cancelled()];
        ended.flat_map(last).collect()
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
        let first = all.begin(&id(1));
        all.cancel(&id(1));
        all.cancel(&id(7));
        assert!(first.is_cancelled());
        let second = all.begin(&id(1));
        assert!(!all.finish(&id(1), &first), "the first is gone");
        assert!(all.finish(&id(1), &second), "the second is another call");
    }
}
