//! How long the answers to one batch may be together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::MAX_BATCH_ANSWERS;
use crate::features::{Action, Call, batch_full};
use crate::protocol::Answer;

/// The room for the answers to one batch. As soon as one does not fit, it is full: nothing more is run for answers that
/// nobody gets.
pub(crate) struct Room(AtomicUsize);

impl Room {
    /// What is left beside the answers that are there already.
    pub(crate) fn beside(actions: &[Action]) -> Room {
        let answered = actions.iter().map(Action::answered).sum();
        Room(AtomicUsize::new(MAX_BATCH_ANSWERS.saturating_sub(answered)))
    }

    /// The answer to a call of the batch, by `run` if there is room for any.
    pub(crate) fn answer(&self, call: &Call, run: impl FnOnce() -> Answer) -> Answer {
        if self.0.load(Ordering::Relaxed) == 0 {
            return call.fail(batch_full());
        }
        let answer = run();
        let fits = |left: usize| left.checked_sub(answer.body.len());
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            return answer;
        }
        self.0.store(0, Ordering::Relaxed);
        call.fail(batch_full())
    }
}
