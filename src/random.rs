//! Ids: unguessable ones for sessions, and short ones that tie an answer to its log line.
//!
//! In scope: where randomness comes from and how it is written. Not in scope: what an id means (`transport`).

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// An id nobody can guess: 128 random bits as 32 lower-case hex digits.
///
/// From `/dev/urandom`, which is opened once and kept (so that running out of file descriptors later does not matter)
/// and read for 32 ids at a time. Where there is none, from std's `RandomState`: SipHash under keys of the system's own
/// random generator.
pub(crate) fn id() -> String {
    static POOL: Mutex<Pool> = Mutex::new(Pool::new("/dev/urandom"));
    hex(POOL.lock().unwrap_or_else(PoisonError::into_inner).next())
}

/// A short id for one request, as answers and log lines show it: 8 hex digits that are this process's, then 8 that
/// count its requests. Not secret; cheap enough for every call, and in the order of the calls.
pub(crate) fn request_id() -> String {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The cut to 32 bits is meant.
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(std::process::id()) as u32);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    hex([process.to_be_bytes(), number.to_be_bytes()].concat().iter().copied())
}

/// Random bytes read ahead.
struct Pool {
    device: &'static str,
    /// `None` until first needed; then what opening it gave.
    file: Option<Option<File>>,
    bytes: [u8; Pool::SIZE],
    used: usize,
}

impl Pool {
    const SIZE: usize = 512;

    const fn new(device: &'static str) -> Pool {
        Pool { device, file: None, bytes: [0; Pool::SIZE], used: Pool::SIZE }
    }

    fn next(&mut self) -> [u8; 16] {
        if self.used + 16 > Pool::SIZE && !self.refill() {
            return from_random_state();
        }
        let mut id = [0; 16];
        let taken = &mut self.bytes[self.used..self.used + 16];
        id.copy_from_slice(taken);
        // An id that was handed out must not be read from memory later.
        taken.fill(0);
        self.used += 16;
        id
    }

    fn refill(&mut self) -> bool {
        let file = self.file.get_or_insert_with(|| File::open(self.device).ok());
        let filled = file.as_mut().is_some_and(|file| file.read_exact(&mut self.bytes).is_ok());
        if filled {
            self.used = 0;
        }
        filled
    }
}

fn from_random_state() -> [u8; 16] {
    // Each `new` has keys of its own.
    let half = |part: u8| RandomState::new().hash_one(part).to_be_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half(0));
    id[8..].copy_from_slice(&half(1));
    id
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(32);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn is_hex(id: &str) -> bool {
        id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    }

    #[test]
    fn ids_are_32_hex_digits_and_differ() {
        let ids: HashSet<_> = (0..1000).map(|_| id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 32 && is_hex(id)));
    }

    #[test]
    fn without_the_device_ids_still_differ() {
        let mut pool = Pool::new("/nowhere/urandom");
        let ids: HashSet<_> = (0..1000).map(|_| pool.next()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(pool.bytes.iter().all(|&b| b == 0));
    }

    #[test]
    #[cfg(unix)]
    fn every_byte_is_handed_out_once() {
        let mut pool = Pool::new("/dev/urandom");
        let first = pool.next();
        let ahead = pool.bytes;
        let rest: Vec<u8> = (1..Pool::SIZE / 16).flat_map(|_| pool.next()).collect();
        assert_eq!(rest, ahead[16..]);
        assert!(pool.bytes.iter().all(|&b| b == 0));
        assert_ne!(pool.next(), first);
    }

    #[test]
    fn request_ids_share_the_process_and_count_up() {
        let (one, two) = (request_id(), request_id());
        assert_eq!((one.len(), is_hex(&one)), (16, true));
        assert_eq!(one[..8], two[..8]);
        assert!(one[8..] < two[8..]);
    }

    #[test]
    fn bytes_become_hex() {
        assert_eq!(hex([0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }
}
