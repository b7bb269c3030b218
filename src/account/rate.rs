//! How often something may happen a minute, by GCRA, the generic cell rate algorithm.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// The period of the limit.
const MINUTE: Duration = Duration::from_secs(60);

/// What is used up of a rate: until when, the theoretical arrival time of GCRA.
#[derive(Default)]
pub(crate) struct Rate(Mutex<Option<Instant>>);

impl Rate {
    /// Whether there is room `now` for this `many` more, if `per_minute` are allowed, where 0 allows any number. They
    /// are counted if `counts`.
    ///
    /// # Errors
    /// When to try again; `None` if this many are never accepted within a minute. Nothing was counted.
    pub(crate) fn take(
        &self,
        per_minute: u32,
        many: u32,
        now: Instant,
        counts: bool,
    ) -> Result<(), Option<Duration>> {
        let Some(interval) = MINUTE.checked_div(per_minute) else {
            return Ok(());
        };
        if many > per_minute {
            return Err(None);
        }
        let mut used = lock(&self.0);
        let next = used.map_or(now, |until| until.max(now)) + interval * many;
        let over = next.saturating_duration_since(now).saturating_sub(MINUTE);
        if !over.is_zero() {
            return Err(Some(over.max(Duration::from_millis(1))));
        }
        if counts {
            *used = Some(next);
        }
        Ok(())
    }

    /// Is nothing of it used up?
    pub(crate) fn is_whole(&self, now: Instant) -> bool {
        lock(&self.0).is_none_or(|until| until <= now)
    }
}
