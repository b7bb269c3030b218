//! JSON while it is written. The length of an answer is not known beforehand, so its memory is charged here, once, as
//! the answer grows.

use std::io::{self, Write};

use crate::account::{Account, QuotaExceeded, Reservation, Resource};

/// By how much it grows at least: the room of most answers. Bytes.
const GROWTH: usize = 512;

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
