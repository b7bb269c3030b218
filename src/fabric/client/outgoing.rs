//! The body of a request on its way to Fabric.

use std::io::{self, Read};
use std::sync::Arc;

use crate::fabric::Wait;

/// A body, which is let go as soon as it is sent: the answer may take an hour.
pub(super) struct Outgoing {
    json: Vec<u8>,
    sent: usize,
    wait: Arc<dyn Wait>,
}

impl Outgoing {
    /// All of `json`, which `wait` holds.
    pub(super) fn new(json: Vec<u8>, wait: Arc<dyn Wait>) -> Outgoing {
        Outgoing { json, sent: 0, wait }
    }

    fn let_go(&mut self) {
        self.wait.release(std::mem::take(&mut self.json).len());
    }
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&self.json[self.sent..]).read(buffer)?;
        self.sent += read;
        if self.sent == self.json.len() {
            self.let_go();
            self.sent = 0;
        }
        Ok(read)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.let_go();
    }
}
