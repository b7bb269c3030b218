//! The size limit on all answers of one batch.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::MAX_BATCH_ANSWERS;
use crate::features::{Action, Call, batch_full};
use crate::protocol::Answer;

/// Bytes left for the answers of one batch. Once an answer does not fit, nothing more of the batch is run.
pub(crate) struct Room(AtomicUsize);

impl Room {
    /// What is left after the answers that exist already.
    pub(crate) fn beside(actions: &[Action]) -> Room {
        let answered = actions.iter().map(Action::answered).sum();
        Room(AtomicUsize::new(MAX_BATCH_ANSWERS.saturating_sub(answered)))
    }

    /// Runs a call of the batch, unless the room is used up.
    pub(crate) fn answer(&self, call: &Call, run: impl FnOnce() -> Answer) -> Answer {
        if self.0.load(Ordering::Relaxed) == 0 {
            return call.fail(batch_full());
        }
        let answer = run();
        let fits = |left: usize| left.checked_sub(answer.body.len());
        if self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
        {
            return answer;
        }
        self.0.store(0, Ordering::Relaxed);
        call.fail(batch_full())
    }
}
