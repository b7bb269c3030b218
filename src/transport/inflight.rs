//! Which requests of one connection are being worked on, by id; and the answers of a batch, which are sent as one array
//! once all its requests are answered.
//!
//! ```text
//!   begin ──> in flight ──finish──> its answer is wanted
//!                  └──cancel──> gone ──finish──> it is not
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::account::{Account, QuotaExceeded};
use crate::fabric::no_room;
use crate::protocol::inbound::ID_IN_USE;
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, Id, Refusal};
use crate::server::{Action, Call, Registration, refuse};
use crate::sync::lock;

/// Cancels a running call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Was it cancelled?
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The requests of one connection that have no answer yet.
#[derive(Default)]
pub(crate) struct Inflight {
    all: Mutex<HashMap<Id, (Cancel, Option<Registration>)>>,
    /// Everything was stopped. Changes while `all` is locked.
    has_ended: AtomicBool,
}

impl Inflight {
    /// Registers a request. `None` if another one that came at the same moment has its id, or after the end.
    pub(crate) fn begin(&self, id: &Id) -> Option<Cancel> {
        let mut all = lock(&self.all);
        let is_free = !self.has_ended() && !all.contains_key(id);
        is_free.then(|| all.entry(id.clone()).or_default().0.clone())
    }

    /// Was everything stopped?
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Makes a request a subscription, unless it was cancelled meanwhile.
    pub(crate) fn listen(&self, id: &Id, cancel: &Cancel, place: Registration) {
        let mut all = lock(&self.all);
        if !cancel.is_cancelled() {
            all.insert(id.clone(), (cancel.clone(), Some(place)));
        }
    }

    /// Is the id in use?
    pub(crate) fn contains(&self, id: &Id) -> bool {
        lock(&self.all).contains_key(id)
    }

    /// Removes a call. Is its answer still wanted?
    pub(crate) fn finish(&self, id: &Id, cancel: &Cancel) -> bool {
        let mut all = lock(&self.all);
        let is_wanted = !cancel.is_cancelled();
        // After a cancellation, the id may be another's.
        let is_own = |(own, _): &(Cancel, _)| Arc::ptr_eq(&own.0, &cancel.0);
        if all.get(id).is_some_and(is_own) {
            all.remove(id);
        }
        is_wanted
    }

    /// Stops the request that is in flight under `id`, if there is one. Nobody wants its answer any more.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some((cancel, _)) = lock(&self.all).remove(id) {
            cancel.cancel();
        }
    }

    /// Stops everything, so that nothing begins any more.
    pub(crate) fn end(&self) {
        let mut all = lock(&self.all);
        self.has_ended.store(true, Ordering::SeqCst);
        all.drain().for_each(|(_, (cancel, _))| cancel.cancel());
    }

    /// Ends all subscriptions. Returns what has to be sent for that.
    pub(crate) fn end_listening(&self) -> Vec<Answer> {
        let mut all = lock(&self.all);
        let ended = all.extract_if(|_, (_, place)| place.is_some());
        let ended = ended.filter_map(|(_, (_, place))| place);
        let last = |place: Registration| [place.request.end(), place.request.cancelled()];
        ended.flat_map(last).collect()
    }
}

/// The answer to a request whose id another one has.
pub(super) fn in_use(id: &Id) -> Answer {
    let refusal = Refusal::new(INVALID_REQUEST, ID_IN_USE);
    refuse(refusal, Some(id), false)
}

/// Collects the answers of one batch.
pub(super) struct Batch {
    state: Mutex<BatchState>,
    changed: Condvar,
    /// What answers of calls are charged to until all are sent.
    account: Account,
}

struct BatchState {
    answers: Vec<Answer>,
    /// Requests that are not answered yet.
    pending: usize,
}

impl Batch {
    /// Registers all calls of a batch before one of them runs, so that items act in their order. Returns the batch, with the
    /// answers that exist already, and the calls.
    pub(super) fn begin(
        actions: Vec<Action>,
        inflight: &Inflight,
        account: &Account,
    ) -> (Arc<Batch>, Vec<(Cancel, Box<Call>)>) {
        let (mut answers, mut calls) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Answer(mut answer) => {
                    // Without room it is sent all the same: there was room for its request.
                    let _ = answer.charge(account);
                    answers.push(answer);
                }
                Action::Cancel(id) => inflight.cancel(&id),
                Action::Call(call) => match inflight.begin(&call.head.id) {
                    Some(cancel) => calls.push((cancel, call)),
                    None => answers.push(in_use(&call.head.id)),
                },
                Action::Nothing | Action::Subscribe(_) | Action::Batch(_) => {}
            }
        }
        calls.retain(|(cancel, _)| !cancel.is_cancelled());
        let pending = calls.len();
        let batch = Batch {
            state: Mutex::new(BatchState { answers, pending }),
            changed: Condvar::new(),
            account: account.clone(),
        };
        (Arc::new(batch), calls)
    }

    /// Takes the answer to a call, or that it has none because it was cancelled.
    pub(super) fn answer(&self, id: &Id, answer: Option<Answer>) {
        let answer = answer.map(|mut answer| match answer.charge(&self.account) {
            Ok(()) => answer,
            Err(QuotaExceeded) => refuse(no_room().into(), Some(id), false),
        });
        let mut state = lock(&self.state);
        state.answers.extend(answer);
        state.pending -= 1;
        self.changed.notify_all();
    }

    /// Waits until all calls are answered.
    pub(super) fn wait(&self) {
        let is_pending = |state: &mut BatchState| state.pending > 0;
        drop(self.changed.wait_while(lock(&self.state), is_pending));
    }

    /// The array, once, when all calls are answered. `None` before and after that, and if there is nothing to send.
    pub(super) fn array(&self) -> Option<Answer> {
        let mut state = lock(&self.state);
        let is_due = state.pending == 0 && !state.answers.is_empty();
        is_due.then(|| Answer::array(std::mem::take(&mut state.answers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Accounts, Resource};

    #[test]
    fn an_answer_in_a_batch_is_held_from_its_beginning_until_it_is_sent() {
        let accounts = Accounts::alone(1 << 20);
        let early = [(); 2].map(|()| Action::Answer(vec![b' '; 600_000].into()));
        let (batch, _) = Batch::begin(early.into(), &Inflight::default(), &accounts.of(""));
        let array = batch.array();
        let held = || accounts.used(Resource::Memory);
        assert!((600_000..1 << 20).contains(&held()));
        assert_eq!(array.as_ref().map(Answer::size), Some(1_200_000));
        drop(array);
        assert_eq!(held(), 0);
    }

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
        assert!(all.begin(&id(1)).is_none(), "the id is the second's");
        assert!(all.finish(&id(1), &second), "the second is another call");
    }
}
