//! The time of day, for the claims of tokens (`exp`, `nbf`) and the times of files. Everything else is measured by
//! `Instant`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// When something was written.
pub(super) type TimeOfDay = SystemTime;

/// Now, as files are dated.
pub(super) fn time_of_day() -> TimeOfDay {
    SystemTime::now()
}

/// A moment, by the monotonic clock and by the time of day.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Seconds since 1970.
    pub(super) date: i64,
}

impl Now {
    /// This moment.
    pub(super) fn read() -> Now {
        let date = time_of_day()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs() as i64);
        Now {
            instant: Instant::now(),
            date,
        }
    }
}
