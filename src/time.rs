//! The clocks, times in RFC 3339, and the Gregorian calendar: UTC, years 0000 to 9999.
//!
//! The time of day is for what is stored, shown or said by others: it outlives the process, and may jump. Everything
//! measured within the process uses the monotonic clock.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

const DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970: RFC 3339 has four digits for the year.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

/// A time of day, displayed as RFC 3339 has it and clamped to its years.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamp {
    /// Since 1970.
    seconds: i64,
    /// Part of a second, if it is displayed.
    milliseconds: Option<u64>,
}

impl Timestamp {
    /// Now, like `2026-07-28T12:00:00Z`.
    pub(crate) fn now() -> Timestamp {
        Timestamp {
            seconds: signed_milliseconds(SystemTime::now()).div_euclid(1000),
            milliseconds: None,
        }
    }

    /// So many milliseconds since 1970, like `2026-07-28T12:00:00.000Z`.
    pub(crate) fn with_milliseconds(milliseconds: u64) -> Timestamp {
        Timestamp {
            seconds: i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX),
            milliseconds: Some(milliseconds % 1000),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds.clamp(FIRST, LAST);
        let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if let Some(milliseconds) = self.milliseconds {
            write!(f, ".{milliseconds:03}")?;
        }
        f.write_str("Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Seconds since 1970 at the first call, which is at the start of the process.
pub(crate) fn started() -> i64 {
    static STARTED: OnceLock<i64> = OnceLock::new();
    *STARTED.get_or_init(|| signed_milliseconds(SystemTime::now()).div_euclid(1000))
}

/// Milliseconds since 1970; 0 with a clock before it.
pub(crate) fn milliseconds_now() -> u64 {
    milliseconds(SystemTime::now())
}

/// Where the time is read, so that tests can set it.
pub(crate) trait Clock: Send + Sync {
    /// The time of day, in milliseconds since 1970.
    fn today(&self) -> u64;
    /// The monotonic clock: time since some fixed moment.
    fn steady(&self) -> Duration;
}

/// The system's clocks.
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    /// The monotonic clock begins now.
    pub(crate) fn new() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn today(&self) -> u64 {
        milliseconds_now()
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Milliseconds since 1970; 0 before.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    whole(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A length of time in whole milliseconds.
pub(crate) fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970, rounded down; negative before.
fn signed_milliseconds(time: SystemTime) -> i64 {
    let whole = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => -whole(
            before
                .duration()
                .saturating_add(Duration::from_nanos(999_999)),
        ),
    }
}

/// The Gregorian date (year, month 1 to 12, day 1 to 31) of a day counted from 1970-01-01.
///
/// Years are counted from 1 March, so that a leap day is the last day of its year, and of its 4, 100 and 400 years:
/// each of these has a fixed length, plus at most one day at its end.
pub(crate) fn date(days_since_1970: i64) -> (i64, i64, i64) {
    const FROM_MARCH_0000: i64 = 719_468;
    const YEAR: i64 = 365;
    const FOUR_YEARS: i64 = 4 * YEAR + 1;
    const CENTURY: i64 = 25 * FOUR_YEARS - 1;
    const FOUR_CENTURIES: i64 = 4 * CENTURY + 1;
    /// First day of each month, from March on.
    const MONTHS: [i64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

    let day = days_since_1970 + FROM_MARCH_0000;
    let (cycles, day) = (
        day.div_euclid(FOUR_CENTURIES),
        day.rem_euclid(FOUR_CENTURIES),
    );
    let centuries = (day / CENTURY).min(3);
    let day = day - centuries * CENTURY;
    let (fours, day) = (day / FOUR_YEARS, day % FOUR_YEARS);
    let years = (day / YEAR).min(3);
    let day = day - years * YEAR;
    let year = 400 * cycles + 100 * centuries + 4 * fours + years;

    let after_march = MONTHS.iter().rposition(|&first| first <= day).unwrap_or(0);
    let day = day - MONTHS[after_march] + 1;
    match after_march as i64 + 3 {
        month @ ..=12 => (year, month, day),
        month => (year + 1, month - 12, day),
    }
}

#[cfg(test)]
pub(crate) mod hand {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Milliseconds since 1970 when a [`HandClock`] begins.
    pub(crate) const TODAY: u64 = 1_785_240_000_000;

    /// A clock that is set by hand.
    #[derive(Clone, Default)]
    pub(crate) struct HandClock(Arc<AtomicU64>);

    impl HandClock {
        pub(crate) fn pass(&self, milliseconds: u64) {
            self.0.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    impl Clock for HandClock {
        fn today(&self) -> u64 {
            TODAY + whole(self.steady())
        }

        fn steady(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (59, "1970-01-01T00:00:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_785_240_000, "2026-07-28T12:00:00Z"),
            (2_147_483_648, "2038-01-19T03:14:08Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (FIRST, "0000-01-01T00:00:00Z"),
            (FIRST - 1, "0000-01-01T00:00:00Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (LAST + 1, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            let time = Timestamp {
                seconds,
                milliseconds: None,
            };
            assert_eq!(time.to_string(), text, "{seconds}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (0, 1, 1);
        for days in FIRST / DAY..=LAST / DAY {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                2 => 28 + i64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (day, month) = if day < length {
                (day + 1, month)
            } else {
                (1, month + 1)
            };
            (month, year) = if month <= 12 {
                (month, year)
            } else {
                (1, year + 1)
            };
        }
        assert_eq!((year, month, day), (10_000, 1, 1));
    }

    #[test]
    fn a_clock_before_1970_rounds_down() {
        let at = |before: Duration| UNIX_EPOCH.checked_sub(before).map(signed_milliseconds);
        assert_eq!(at(Duration::from_nanos(1)), Some(-1));
        assert_eq!(at(Duration::from_millis(500)), Some(-500));
        assert_eq!(at(Duration::from_secs(1)), Some(-1000));
        assert_eq!(signed_milliseconds(UNIX_EPOCH), 0);
    }

    #[test]
    fn milliseconds_have_three_digits() {
        assert_eq!(
            Timestamp::with_milliseconds(1_785_240_000_007).to_string(),
            "2026-07-28T12:00:00.007Z"
        );
        assert_eq!(
            Timestamp::with_milliseconds(u64::MAX).to_string(),
            "9999-12-31T23:59:59.615Z"
        );
        assert_eq!(Timestamp::now().to_string().len(), 20);
    }
}
