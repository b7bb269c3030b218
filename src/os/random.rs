//! Random numbers and ids: unguessable ones for sessions, and short ones that tie an answer to its log line.
//!
//! In scope: where randomness comes from and how it is written. Not in scope: what an id means (`transport`).

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::Read;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// An unguessable number, from `/dev/urandom`: opened once, so that running out of file descriptors later does not
/// matter. Where there is none, from std's `RandomState`: SipHash with keys of the system's random generator.
pub(crate) fn number() -> u128 {
    // On other systems this path may be a file that anybody can create.
    static DEVICE: LazyLock<Option<File>> =
        LazyLock::new(|| File::open("/dev/urandom").ok().filter(|_| cfg!(unix)));
    let mut bytes = [0; 16];
    let device = DEVICE.as_ref();
    let read = device.and_then(|mut file| file.read_exact(&mut bytes).ok());
    read.map_or_else(hashed, |()| u128::from_ne_bytes(bytes))
}

/// [`number`] as 32 lower-case hex digits.
pub(crate) fn id() -> String {
    format!("{:032x}", number())
}

/// Reads what [`id`] writes, and nothing else.
pub(crate) fn parse(id: &str) -> Option<u128> {
    let is_hex = id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(id, 16).ok().filter(|_| is_hex)
}

/// The id of one request, for its answer and its log line: 8 hex digits for this process, then 8 that count. Not secret.
pub(crate) fn request_id() -> String {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new((hashed() as u64) << 32));
    format!("{:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn hashed() -> u128 {
    // Each `RandomState::new` has its own keys.
    let half = || u128::from(RandomState::new().hash_one(0));
    half() << 64 | half()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_32_hex_digits_and_differ() {
        let ids: HashSet<_> = (0..1000).map(|_| id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| parse(id).is_some()));
    }

    #[test]
    fn without_the_device_numbers_still_differ_in_both_halves() {
        let numbers: Vec<_> = (0..1000).map(|_| hashed()).collect();
        let halves = numbers.iter();
        let halves: HashSet<_> = halves.flat_map(|&n| [n as u64, (n >> 64) as u64]).collect();
        assert_eq!(halves.len(), 2000);
    }

    #[test]
    fn request_ids_share_the_process_and_count_up() {
        let (one, two) = (request_id(), request_id());
        assert!(one.len() == 16 && parse(&format!("{one}{two}")).is_some());
        assert_eq!(one[..8], two[..8]);
        assert!(one[8..] < two[8..]);
    }
}
