//! One clock for all processes of a run, so that times taken in different processes are comparable.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds on a clock shared by all processes of this machine.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<(Instant, u64)> = OnceLock::new();
    let (start, at) = START.get_or_init(|| {
        let now = Instant::now();
        (
            now,
            monotonic(&format!("{now:?}")).unwrap_or_else(since_epoch),
        )
    });
    at + start.elapsed().as_nanos() as u64
}

/// std exposes the monotonic clock only in `Debug`: `Instant { tv_sec: 12, tv_nsec: 345 }`.
fn monotonic(shown: &str) -> Option<u64> {
    let field = |name: &str| -> Option<u64> {
        let rest = &shown[shown.find(name)? + name.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit())?]
            .parse()
            .ok()
    };
    Some(field("tv_sec: ")? * 1_000_000_000 + field("tv_nsec: ")?)
}

/// Elsewhere, the wall clock: only wrong if it is set during the run.
fn since_epoch() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}
