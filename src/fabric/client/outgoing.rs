//! The body of a request while it is sent.

use std::io::{self, Read};
use std::sync::Arc;

use crate::fabric::Wait;

/// A body that is freed as soon as it is sent: the response may take an hour.
pub(super) struct Outgoing {
    json: Vec<u8>,
    sent: usize,
    wait: Arc<dyn Wait>,
}

impl Outgoing {
    /// A body of `json`, which is charged to `wait`.
    pub(super) fn new(json: Vec<u8>, wait: Arc<dyn Wait>) -> Outgoing {
        Outgoing {
            json,
            sent: 0,
            wait,
        }
    }

    fn free(&mut self) {
        self.wait.release(std::mem::take(&mut self.json).len());
    }
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&self.json[self.sent..]).read(buffer)?;
        self.sent += read;
        if self.sent == self.json.len() {
            self.free();
            self.sent = 0;
        }
        Ok(read)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.free();
    }
}
