//! Single-flight cache of the issuer's answers about tokens.
//!
//! ```text
//!              first caller            told                       until
//!   nothing ─────────────────▶ asked ────────▶ known to everybody ─────▶ nothing
//!                                │ └ others wait
//!                                └ not told: nothing
//! ```
//! Tokens are known by their digests alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::access::digest::Digest;
use crate::sync::{lock, wait_while};

/// Most answers that are kept.
const MAX_KEPT: usize = 10_000;
/// Most concurrent requests. Each holds a thread, and a flood of invalid tokens must not flood the issuer.
const MAX_ASKING: usize = 64;

/// Answers about tokens.
pub(super) struct Answers<T> {
    state: Mutex<State<T>>,
    /// Signals the end of a request.
    ended: Condvar,
}

struct State<T> {
    /// With the moment until which each is good.
    known: HashMap<Digest, (Instant, T)>,
    asking: HashSet<Digest>,
}

/// The state of a token's answer.
pub(super) enum Claim<'a, T> {
    /// The answer is known.
    Known(T),
    /// The holder of this must ask the issuer.
    Ask(Question<'a, T>),
    /// Another caller's request did not end in time.
    Late,
}

/// A request in flight; dropping it ends it.
pub(super) struct Question<'a, T> {
    answers: &'a Answers<T>,
    digest: Digest,
}

impl<T: Clone> Answers<T> {
    /// Nothing is known.
    pub(super) fn new() -> Answers<T> {
        let state = State {
            known: HashMap::new(),
            asking: HashSet::new(),
        };
        Answers {
            state: Mutex::new(state),
            ended: Condvar::new(),
        }
    }

    /// The answer, if it is known.
    pub(super) fn known(&self, digest: Digest, now: Instant) -> Option<T> {
        self.state().known(digest, now)
    }

    /// The answer, or the right to request it. Waits for a request in flight, `limit` at most.
    pub(super) fn claim(
        &self,
        digest: Digest,
        now: &dyn Fn() -> Instant,
        limit: Duration,
    ) -> Claim<'_, T> {
        let is_taken = |state: &mut State<T>| {
            state.known(digest, now()).is_none()
                && (state.asking.contains(&digest) || state.asking.len() >= MAX_ASKING)
        };
        let (mut state, in_time) = wait_while(&self.ended, self.state(), limit, is_taken);
        if !in_time {
            return Claim::Late;
        }
        if let Some(answer) = state.known(digest, now()) {
            return Claim::Known(answer);
        }
        state.asking.insert(digest);
        Claim::Ask(Question {
            answers: self,
            digest,
        })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T: Clone> State<T> {
    fn known(&self, digest: Digest, now: Instant) -> Option<T> {
        self.known
            .get(&digest)
            .filter(|(until, _)| now < *until)
            .map(|(_, answer)| answer.clone())
    }
}

impl<T> State<T> {
    /// When full, drops expired entries, or else the ones that expire first: the refusals.
    fn keep(&mut self, digest: Digest, until: Instant, answer: T, now: Instant) {
        if self.known.len() >= MAX_KEPT && !self.known.contains_key(&digest) {
            self.known.retain(|_, (until, _)| now < *until);
            if self.known.len() >= MAX_KEPT
                && let Some(first) = self
                    .known
                    .iter()
                    .min_by_key(|(_, (until, _))| *until)
                    .map(|(digest, _)| *digest)
            {
                self.known.remove(&first);
            }
        }
        self.known.insert(digest, (until, answer));
    }
}

impl<T> Question<'_, T> {
    /// Stores the answer from `now` for `time`.
    pub(super) fn tell(self, answer: T, now: Instant, time: Duration) {
        lock(&self.answers.state).keep(self.digest, now + time, answer, now);
    }
}

impl<T> Drop for Question<'_, T> {
    fn drop(&mut self) {
        lock(&self.answers.state).asking.remove(&self.digest);
        self.answers.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);

    fn ask<'a>(answers: &'a Answers<u32>, digest: Digest, now: Instant) -> Question<'a, u32> {
        match answers.claim(digest, &|| now, LONG) {
            Claim::Ask(question) => question,
            _ => panic!("known or late"),
        }
    }

    #[test]
    fn an_answer_is_good_for_its_time() {
        let (answers, now) = (Answers::new(), Instant::now());
        ask(&answers, 1, now).tell(7, now, Duration::from_secs(5));
        let at = |milliseconds| answers.known(1, now + Duration::from_millis(milliseconds));
        assert_eq!((at(0), at(4999), at(5000)), (Some(7), Some(7), None));
        assert_eq!(answers.known(2, now), None);
        assert!(matches!(answers.claim(1, &|| now, LONG), Claim::Known(7)));
        drop(ask(&answers, 1, now + LONG));
    }

    #[test]
    fn one_asks_for_all() {
        let (answers, now) = (Answers::new(), Instant::now());
        let question = ask(&answers, 1, now);
        assert!(matches!(
            answers.claim(1, &|| now, Duration::ZERO),
            Claim::Late
        ));
        drop(ask(&answers, 2, now));
        thread::scope(|scope| {
            let others: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| matches!(answers.claim(1, &|| now, LONG), Claim::Known(7))))
                .collect();
            question.tell(7, now, LONG);
            assert!(others.into_iter().all(|other| other.join().unwrap()));
        });
    }

    #[test]
    fn who_is_not_told_asks_next() {
        let (answers, now) = (Answers::new(), Instant::now());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _question = ask(&answers, 1, now);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        drop(ask(&answers, 1, now));
    }

    #[test]
    fn questions_at_once_are_bounded() {
        let (answers, now) = (Answers::new(), Instant::now());
        let mut questions: Vec<_> = (0..MAX_ASKING as u128)
            .map(|digest| ask(&answers, digest, now))
            .collect();
        assert!(matches!(
            answers.claim(99, &|| now, Duration::ZERO),
            Claim::Late
        ));
        questions.pop();
        drop(ask(&answers, 99, now));
    }

    #[test]
    fn memory_is_bounded_and_refusals_go_first() {
        let (answers, now) = (Answers::new(), Instant::now());
        let keep = |digest: u128, seconds| {
            lock(&answers.state).keep(digest, now + Duration::from_secs(seconds), 7, now);
        };
        for digest in 0..MAX_KEPT as u128 {
            keep(digest, if digest == 5 { 1 } else { 60 });
        }
        keep(99_999, 60);
        assert_eq!(answers.state().known.len(), MAX_KEPT);
        assert_eq!(
            (answers.known(5, now), answers.known(99_999, now)),
            (None, Some(7))
        );
    }
}
