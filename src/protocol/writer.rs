//! JSON while it is written. The length of an answer is not known beforehand, so its memory is charged here, once, as
//! the answer grows.

use std::cell::Cell;
use std::io::{self, Write};

use crate::account::{Account, QuotaExceeded, Reservation, Resource};

/// The buffer grows by at least this much: most answers fit into it. Bytes.
const GROWTH: usize = 512;

/// Largest buffer that a thread keeps: room for the names of all patterns. Bytes.
const MAX_SPARE: usize = 16 << 10;

thread_local! {
    /// The buffer of this thread's last answer over stdio. A new one for each answer makes the static program map and
    /// unmap memory.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What messages are appended to.
#[derive(Default)]
pub(crate) struct Json {
    pub(super) bytes: Vec<u8>,
    /// The memory beyond the first buffer, if it is charged.
    pub(super) memory: Option<Reservation>,
    /// There was no room for all of it, so nothing more is appended.
    pub(crate) is_cut: bool,
}

impl Json {
    /// Begins a message, in the buffer that this thread has kept, if there is one.
    pub(super) fn in_spare() -> Json {
        Json {
            bytes: SPARE.take(),
            ..Json::default()
        }
    }

    /// Keeps the buffer of a message that was sent.
    pub(crate) fn recycle(mut sent: Vec<u8>) {
        if sent.capacity() <= MAX_SPARE {
            sent.clear();
            SPARE.set(sent);
        }
    }

    /// Charged to `account` as it grows from now on.
    pub(crate) fn charged(self, account: &Account) -> Json {
        Json {
            memory: Some(account.open(Resource::Memory)),
            ..self
        }
    }

    /// Makes room for exactly this many more bytes.
    pub(crate) fn reserve(&mut self, more: usize) {
        let capacity = self.bytes.len().saturating_add(more);
        if capacity > self.bytes.capacity() {
            let charged = self.memory.as_mut().map(|memory| memory.set(capacity));
            self.is_cut |= charged == Some(Err(QuotaExceeded));
            if !self.is_cut {
                self.bytes.reserve_exact(more);
            }
        }
    }

    /// Appends bytes.
    pub(crate) fn extend(&mut self, more: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < more.len() {
            self.reserve(more.len().max(self.bytes.len() / 2).max(GROWTH));
        }
        if !self.is_cut {
            self.bytes.extend_from_slice(more);
        }
    }

    /// What was appended.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Write for Json {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.extend(more);
        // Ends the writing of what may be a long list.
        match self.is_cut {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(more.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
