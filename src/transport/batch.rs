//! The answers of a batch, which are sent as one array once all its requests are answered.

use std::sync::{Arc, Condvar, Mutex};

use crate::config::MAX_BATCH_ANSWERS;
use crate::protocol::{Answer, Id, NoId, jsonrpc};
use crate::server::{Action, Call, batch_full, refuse};
use crate::sync::{lock, wait_while};

use super::begin;
use super::inflight::{Cancel, Inflight};

/// Collects the answers of one batch.
pub(super) struct Batch {
    state: Mutex<BatchState>,
    changed: Condvar,
}

/// The calls of a batch.
type BatchCalls = Vec<(Call, Cancel)>;

struct BatchState {
    answers: Vec<Answer>,
    /// Requests that are not answered yet.
    pending: usize,
    /// Bytes left for answers.
    room: usize,
}

impl Batch {
    /// Registers all calls of a batch before one of them runs, so that items act in their order. Returns the batch, with the
    /// answers that exist already, and the calls. `None` if there is neither.
    pub(super) fn begin(
        actions: Vec<Action>,
        inflight: &Inflight,
    ) -> Option<(Arc<Batch>, BatchCalls)> {
        let (mut answers, mut calls) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Answer(answer) => answers.push(answer),
                Action::Cancel(id) => inflight.cancel(&id),
                Action::Call(call) => match begin(inflight, &call) {
                    Ok(cancel) => calls.push((*call, cancel)),
                    Err(answer) => answers.push(answer),
                },
                Action::Nothing | Action::Listen(_) | Action::Batch(_) => {}
            }
        }
        calls.retain(|(_, cancel)| !cancel.is_cancelled());
        let answered: usize = answers.iter().map(|answer| answer.body.len()).sum();
        let is_empty = answers.is_empty() && calls.is_empty();
        let state = BatchState {
            answers,
            pending: calls.len(),
            room: MAX_BATCH_ANSWERS.saturating_sub(answered),
        };
        let batch = Batch {
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        (!is_empty).then(|| (Arc::new(batch), calls))
    }

    /// Has an answer not fitted? Then nothing more of the batch is run.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.state).room == 0
    }

    /// Takes the answer to a call, or that it has none because it was cancelled. True if it was the last.
    pub(super) fn answer(&self, id: &Id, answer: Option<Answer>) -> bool {
        let mut state = lock(&self.state);
        if let Some(answer) = answer {
            match state.room.checked_sub(answer.body.len()) {
                Some(room) if state.room > 0 => {
                    state.room = room;
                    state.answers.push(answer);
                }
                _ => {
                    state.room = 0;
                    let full = refuse(batch_full().into(), Some(id), NoId::Absent, false);
                    state.answers.push(full);
                }
            }
        }
        state.pending -= 1;
        let is_last = state.pending == 0;
        drop(state);
        self.changed.notify_all();
        is_last
    }

    /// Waits until all calls are answered.
    pub(super) fn wait(&self) {
        let limit = std::time::Duration::MAX;
        drop(wait_while(
            &self.changed,
            lock(&self.state),
            limit,
            |state| state.pending > 0,
        ));
    }

    /// Sends the array, in parts. False if there is nothing to send.
    pub(super) fn send(&self, send: impl FnOnce(&[&[u8]])) -> bool {
        let answers = std::mem::take(&mut lock(&self.state).answers);
        if !answers.is_empty() {
            let parts = answers.iter().map(|answer| answer.body.parts());
            send(&jsonrpc::array(parts));
        }
        !answers.is_empty()
    }
}
