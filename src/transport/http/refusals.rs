//! The log of refusals: for each address, and for each known caller at it, the first at once, then one line a minute with
//! their number, so that strangers fill no disk.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;
use crate::url::network;

/// How long refusals of an address are only counted after a line.
const QUIET: Duration = Duration::from_secs(60);
/// How many of them are told apart. All others count as one.
const MAX_ADDRESSES: usize = 1000;

/// An address, and the name of a known caller at it; empty for strangers.
type Refused = (IpAddr, String);

/// When the last line of each was, and how many refusals there were since.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Refused, (Option<Instant>, u64)>>);

impl Refusals {
    /// Logs that a caller at `ip`, if known `who`, was answered with `status`, and why.
    pub(super) fn log(&self, ip: IpAddr, who: String, status: u16, why: &str) {
        if let Some(since) = self.count((network(ip), who), Instant::now()) {
            let more = match since {
                0 => String::new(),
                _ => format!(" ({since} more refusals since the last such line)"),
            };
            log::info!("{ip}: answered {status}: {why}{more}");
        }
    }

    /// Counts a refusal. If it is to be logged, returns how many were not since the last line.
    fn count(&self, refused: Refused, now: Instant) -> Option<u64> {
        let mut last = lock(&self.0);
        let is_quiet = |at: Instant| now.saturating_duration_since(at) < QUIET;
        if last.len() >= MAX_ADDRESSES && !last.contains_key(&refused) {
            last.retain(|_, (at, _)| at.is_some_and(is_quiet));
        }
        let key = match last.len() < MAX_ADDRESSES || last.contains_key(&refused) {
            true => refused,
            false => (Ipv4Addr::UNSPECIFIED.into(), String::new()),
        };
        let (at, count) = last.entry(key).or_default();
        if at.is_some_and(is_quiet) {
            *count += 1;
            return None;
        }
        *at = Some(now);
        Some(std::mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_one_line_a_minute() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let of = |ip: IpAddr, who: &str| (ip, who.to_owned());
        for (n, who, seconds, logged) in [
            (1, "", 0, Some(0)),
            (1, "", 1, None),
            (1, "bob", 1, Some(0)),
            (2, "", 1, Some(0)),
            (1, "", 59, None),
            (1, "", 60, Some(2)),
            (1, "", 61, None),
            (2, "", 300, Some(0)),
        ] {
            let at = now + Duration::from_secs(seconds);
            let found = refusals.count(of([10, 0, 0, n].into(), who), at);
            assert_eq!(found, logged, "{n} {who} {seconds}");
        }
        let later = now + Duration::from_secs(600);
        let all = (0..5000).map(|n: u32| IpAddr::from(Ipv4Addr::from_bits(n + 9)));
        let lines = all
            .filter_map(|ip| refusals.count(of(ip, ""), later))
            .count();
        let found = (lines, lock(&refusals.0).len());
        assert_eq!(found, (MAX_ADDRESSES + 1, MAX_ADDRESSES + 1));
    }
}
