//! The two clocks that a store reads, so that tests can set them.
//!
//! The time of day is for what is stored and shown: other processes read it, also after a restart. Everything measured
//! within the process uses the monotonic clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where a store reads the time.
pub(super) trait Clock: Send + Sync {
    /// The time of day, in milliseconds since 1970.
    fn today(&self) -> u64;
    /// The monotonic clock: time since some fixed moment.
    fn steady(&self) -> Duration;
}

/// The system's clocks.
pub(super) struct SystemClock(Instant);

impl SystemClock {
    pub(super) fn new() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn today(&self) -> u64 {
        milliseconds(SystemTime::now())
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Milliseconds since 1970; 0 before.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    whole(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A length of time in whole milliseconds.
pub(super) fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970; 0 before.
pub(super) fn nanoseconds(time: SystemTime) -> u64 {
    u64::try_from(
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
    )
    .unwrap_or(u64::MAX)
}

/// The time since a file was changed; zero if its time is in the future. By the system's clock in tests too, since
/// files have its time.
pub(super) fn age(modified: SystemTime) -> Duration {
    SystemTime::now()
        .duration_since(modified)
        .unwrap_or_default()
}
