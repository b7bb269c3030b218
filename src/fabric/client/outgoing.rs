//! The body of a request while it is sent.

use std::io::{self, Cursor, Read};

use crate::fabric::Observer;

/// A body that is freed as soon as it is sent: the response may take an hour.
pub(super) struct Outgoing {
    pub(super) json: Cursor<Vec<u8>>,
    /// What it is charged to.
    pub(super) wait: Observer,
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.json.read(buffer)?;
        if self.json.position() == self.json.get_ref().len() as u64 {
            self.free();
        }
        Ok(read)
    }
}

impl Outgoing {
    fn free(&mut self) {
        let json = std::mem::take(&mut self.json).into_inner();
        self.wait.release(json.len());
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.free();
    }
}
