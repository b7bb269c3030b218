//! The log of refusals: for each address the first at once, then one line a minute with their number, so that strangers
//! fill no disk.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;
use crate::url::network;

/// How long refusals of an address are only counted after a line.
const QUIET: Duration = Duration::from_secs(60);
/// How many addresses are told apart. All others count as one.
const MAX_ADDRESSES: usize = 1000;

/// When the last line of each address was, and how many refusals there were since.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<IpAddr, (Option<Instant>, u64)>>);

impl Refusals {
    /// Logs that a caller at `ip` was answered with `status`, and why.
    pub(super) fn log(&self, ip: IpAddr, status: u16, why: &str) {
        if let Some(since) = self.count(network(ip), Instant::now()) {
            let more = match since {
                0 => String::new(),
                _ => format!(" ({since} more refusals since the last such line)"),
            };
            log::info!("{ip}: answered {status}: {why}{more}");
        }
    }

    /// Counts a refusal. If it is to be logged, returns how many of the address were not since its last line.
    fn count(&self, ip: IpAddr, now: Instant) -> Option<u64> {
        let mut last = lock(&self.0);
        let is_quiet = |at: Instant| now.saturating_duration_since(at) < QUIET;
        if last.len() >= MAX_ADDRESSES && !last.contains_key(&ip) {
            last.retain(|_, (at, _)| at.is_some_and(is_quiet));
        }
        let key = match last.len() < MAX_ADDRESSES || last.contains_key(&ip) {
            true => ip,
            false => Ipv4Addr::UNSPECIFIED.into(),
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
        let [one, other] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        for (ip, seconds, logged) in [
            (one, 0, Some(0)),
            (one, 1, None),
            (other, 1, Some(0)),
            (one, 59, None),
            (one, 60, Some(2)),
            (one, 61, None),
            (other, 300, Some(0)),
        ] {
            let at = now + Duration::from_secs(seconds);
            assert_eq!(refusals.count(ip, at), logged, "{ip} {seconds}");
        }
        let later = now + Duration::from_secs(600);
        let all = (0..5000).map(|n: u32| IpAddr::from(Ipv4Addr::from_bits(n + 9)));
        let lines = all.filter_map(|ip| refusals.count(ip, later)).count();
        let found = (lines, lock(&refusals.0).len());
        assert_eq!(found, (MAX_ADDRESSES + 1, MAX_ADDRESSES + 1));
    }
}
