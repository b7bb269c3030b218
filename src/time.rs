//! The clocks, times in RFC 3339, and the Gregorian calendar: UTC, years 1970 to 9999.
//!
//! The time of day is for times that are stored, shown or received: they outlive the process, and may jump. Everything
//! that is measured within the process uses the monotonic clock.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
/// 9999-12-31T23:59:59.999Z in milliseconds since 1970: RFC 3339 has four digits for the year.
const LAST: u64 = 253_402_300_799_999;

/// Now, like `2026-07-28T12:00:00Z`.
pub(crate) fn now() -> String {
    date_time(milliseconds_now()) + "Z"
}

/// Now, as HTTP has it (RFC 9110, 5.6.7), like `Tue, 28 Jul 2026 12:00:00 GMT`. Written once a second on each thread: that
/// takes a tenth of the instructions of a short answer.
pub(crate) fn http_now() -> String {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let now = milliseconds_now() / 1000;
    LAST.with_borrow_mut(|(second, text)| {
        if std::mem::replace(second, now) != now {
            *text = http_date(now * 1000);
        }
        text.clone()
    })
}

fn http_date(milliseconds: u64) -> String {
    // 1970 began on a Thursday.
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let days = milliseconds.min(LAST) / 1000 / DAY;
    let (year, month, day) = date(days);
    let weekday = DAYS[days as usize % 7];
    let month = &MONTHS[3 * month as usize - 3..][..3];
    let time = &date_time(milliseconds)[11..];
    format!("{weekday}, {day:02} {month} {year:04} {time} GMT")
}

/// A time in milliseconds since 1970, like `2026-07-28T12:00:00.000Z`; at most the end of the year 9999.
pub(crate) fn timestamp(milliseconds: u64) -> String {
    let milliseconds = milliseconds.min(LAST);
    format!("{}.{:03}Z", date_time(milliseconds), milliseconds % 1000)
}

fn date_time(milliseconds: u64) -> String {
    let seconds = milliseconds.min(LAST) / 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The first day of the month after this time, like `2026-08-01`.
pub(crate) fn next_month(milliseconds: u64) -> String {
    let (year, month, _) = date(milliseconds.min(LAST) / 1000 / DAY);
    format!("{:04}-{:02}-01", year + month / 12, month % 12 + 1)
}

/// A date, with as much of a time as is given, as [`timestamp`] writes it: milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let whole = text.split(['.', 'Z']).next()?;
    let mut numbers = [0_u64; 6];
    for (at, part) in whole.split(['-', 'T', ':']).enumerate() {
        *numbers.get_mut(at)? = part.parse::<u16>().ok()?.into();
    }
    let [year, month, day, hour, minute, second] = numbers;
    // Counted from March, the leap day is the last of a year.
    let (year, month) = (year.checked_sub(u64::from(month < 3))?, (month + 9) % 12);
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = (365 * year + leap_days + (153 * month + 2) / 5 + day).checked_sub(719_469)?;
    let milliseconds = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000;
    // A day or time that does not exist comes out as another one.
    let exists = date_time(milliseconds).starts_with(whole);
    exists.then_some(milliseconds)
}

/// Seconds since 1970 at the first call, which is at the start of the process.
pub(crate) fn started() -> u64 {
    static STARTED: OnceLock<u64> = OnceLock::new();
    *STARTED.get_or_init(|| milliseconds_now() / 1000)
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

/// The Gregorian date (year, month 1 to 12, day 1 to 31) of a day counted from 1970-01-01.
fn date(day: u64) -> (u64, u64, u64) {
    // Counted in eras of 400 years from 0000-03-01: a year that begins in March has its leap day at the end.
    let (era, day) = ((day + 719_468) / 146_097, (day + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    // The last two are in the next year.
    (400 * era + year + month / 10, (month + 2) % 12 + 1, day)
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
    pub(crate) struct HandClock {
        steady: Arc<AtomicU64>,
        /// How far the time of day is ahead.
        ahead: Arc<AtomicU64>,
    }

    impl HandClock {
        pub(crate) fn pass(&self, milliseconds: u64) {
            self.steady.fetch_add(milliseconds, Ordering::Relaxed);
        }

        /// Sets the time of day to so many milliseconds since 1970.
        pub(crate) fn set(&self, today: u64) {
            let ahead = today.wrapping_sub(self.today());
            self.ahead.fetch_add(ahead, Ordering::Relaxed);
        }
    }

    impl Clock for HandClock {
        fn today(&self) -> u64 {
            let ahead = self.ahead.load(Ordering::Relaxed);
            TODAY.wrapping_add(ahead).wrapping_add(whole(self.steady()))
        }

        fn steady(&self) -> Duration {
            Duration::from_millis(self.steady.load(Ordering::Relaxed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_785_240_000, "2026-07-28T12:00:00"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (4_107_542_399, "2100-02-28T23:59:59"),
            (LAST / 1000, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(timestamp(seconds * 1000 + 7), format!("{text}.007Z"));
            let day = &text[..10];
            assert_eq!(parse(&format!("{text}.007Z")), Some(seconds * 1000));
            assert_eq!(parse(day), Some(seconds / DAY * DAY * 1000), "{day}");
        }
        let all = "|Z|2026|2026-11-31|2026-02-29|2026-00-10|2026-01-00|1970-01-00|1969-12-31|\
                   2026-1-01|2026-11-3|02026-11-03|2026-11-24T24|2026-11-24T1:00|2026-11-24 10:00|\
                   2026-11-24T10:00+02:00|2026-11-24T10:00:00:00|99999-01-01|-2026-01-01";
        for other in all.split('|') {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(timestamp(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(now().len(), 20);
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (u64::MAX / 1000, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(seconds * 1000), text);
        }
        let before = UNIX_EPOCH.checked_sub(Duration::from_nanos(1));
        assert_eq!(before.map(milliseconds), Some(0));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = String::new();
        for day in 0..160_000 {
            let text = timestamp(day * DAY * 1000);
            // Two formulas that know nothing of each other.
            assert_eq!(parse(&text[..10]), Some(day * DAY * 1000), "{text}");
            assert!(before < text, "{text}");
            before = text;
        }
        assert!(before.as_str() > "2400");
    }
}
