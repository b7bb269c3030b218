//! The answers of a batch, which are sent as one array once all its requests are answered.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::account::{Account, QuotaExceeded};
use crate::fabric::no_room;
use crate::protocol::{Answer, Id};
use crate::server::{Action, Call, refuse};
use crate::sync::{lock, wait_while};

use super::inflight::{Cancel, Inflight};

/// Collects the answers of one batch.
pub(super) struct Batch {
    state: Mutex<BatchState>,
    changed: Condvar,
    /// What answers of calls are charged to until all are sent.
    account: Account,
}

/// The calls of a batch.
type BatchCalls = Vec<(Cancel, Box<Call>)>;

struct BatchState {
    answers: Vec<Answer>,
    /// Requests that are not answered yet.
    pending: usize,
}

impl Batch {
    /// Registers all calls of a batch before one of them runs, so that items act in their order. Returns the batch, with the
    /// answers that exist already, and the calls. `None` if there is neither.
    pub(super) fn begin(
        actions: Vec<Action>,
        inflight: &Inflight,
        account: &Account,
    ) -> Option<(Arc<Batch>, BatchCalls)> {
        let (mut answers, mut calls) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Answer(answer) => answers.push(answer),
                Action::Cancel(id) => inflight.cancel(&id),
                Action::Call(call) => calls.push((inflight.begin(&call.head.id), call)),
                Action::Nothing | Action::Subscribe(_) | Action::Batch(_) => {}
            }
        }
        calls.retain(|(cancel, _)| !cancel.is_cancelled());
        let pending = calls.len();
        let is_empty = answers.is_empty() && calls.is_empty();
        let batch = Batch {
            state: Mutex::new(BatchState { answers, pending }),
            changed: Condvar::new(),
            account: account.clone(),
        };
        (!is_empty).then(|| (Arc::new(batch), calls))
    }

    /// Takes the answer to a call, or that it has none because it was cancelled. True if it was the last.
    pub(super) fn answer(&self, id: &Id, answer: Option<Answer>) -> bool {
        let answer = answer.map(|mut answer| match answer.charge(&self.account) {
            Ok(()) => answer,
            Err(QuotaExceeded) => refuse(no_room().into(), Some(id), false),
        });
        let mut state = lock(&self.state);
        state.answers.extend(answer);
        state.pending -= 1;
        let is_last = state.pending == 0;
        drop(state);
        self.changed.notify_all();
        is_last
    }

    /// Waits until all calls are answered.
    pub(super) fn wait(&self) {
        let is_pending = |state: &mut BatchState| state.pending > 0;
        let state = lock(&self.state);
        drop(wait_while(&self.changed, state, Duration::MAX, is_pending));
    }

    /// The array, once. `None` if there is nothing to send.
    pub(super) fn array(&self) -> Option<Answer> {
        let answers = std::mem::take(&mut lock(&self.state).answers);
        (!answers.is_empty()).then(|| Answer::array(answers))
    }
}
