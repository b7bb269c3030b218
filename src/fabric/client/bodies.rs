//! Bodies, in memory only as long as they are needed: of requests while they are sent, of 200 responses while they are read.

use std::io::{self, Cursor, Read};

use ureq::BodyReader;

use super::{Attempt, SMALL_BODY, Waiting};
use crate::config::MAX_FABRIC_BODY;
use crate::fabric::{Error, Kind, Observer};

/// Bodies are charged in pieces of this size.
const PIECE: u64 = 64 << 10;
/// The memory of one value parsed from a body, beside its text, in bytes.
const VALUE: usize = 128;
/// Most memory of a body with its values, in bytes: also of those that are charged to nobody.
const MOST_PARSED: usize = 8 * MAX_FABRIC_BODY;

/// A 200 response whose body is unread. Stays on the thread that sent the request.
pub(in crate::fabric) struct FabricResponse<'c> {
    pub(super) call: Attempt<'c>,
    /// Whether the body is one JSON document, by its `Content-Type`.
    pub(in crate::fabric) is_json: bool,
    pub(super) length: Option<u64>,
    pub(super) body: BodyReader<'static>,
    /// Reads of the body ask whether to go on.
    pub(super) _waiting: Waiting,
}

impl FabricResponse<'_> {
    /// The next bytes of the body; 0 at its end.
    pub(in crate::fabric) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let read = self.body.read(buffer);
        read.map_err(|e| self.call.failure(e.into(), true))
    }

    /// The whole body, of at most [`MAX_FABRIC_BODY`] bytes.
    pub(in crate::fabric) fn into_bytes(mut self) -> Result<Vec<u8>, Error> {
        let limit = MAX_FABRIC_BODY as u64;
        // Allocate for what arrives, not for the announced length.
        let mut bytes = Vec::with_capacity(self.length.unwrap_or(0).min(SMALL_BODY) as usize);
        let mut all = 0;
        loop {
            if self.length.unwrap_or(0).max(bytes.len() as u64) > limit || all > MOST_PARSED {
                let (request, limit) = (self.call.request.line(), limit >> 20);
                let detail = format!(
                    "Fabric's answer to {request} is larger than the limit of {limit} MiB, or has too \
                     many values. Check whether FABRIC_BASE_URL is the address of Fabric itself."
                );
                return Err(Error::new(Kind::ResponseTooLarge, detail));
            }
            let most = (limit + 1 - bytes.len() as u64).min(PIECE);
            let read = (&mut self.body).take(most).read_to_end(&mut bytes);
            let read = read.map_err(|e| self.call.failure(e.into(), true))?;
            // Twice its length, for the body and the texts parsed from it; and a value takes far more than a short text.
            let arrived = &bytes[bytes.len() - read..];
            let begins_value = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
            let values = arrived.iter().filter(begins_value);
            let held = 2 * arrived.len() + VALUE * values.count();
            self.call.observer.hold(held)?;
            all += held;
            if (read as u64) < most {
                return Ok(bytes);
            }
        }
    }
}

impl Drop for FabricResponse<'_> {
    fn drop(&mut self) {
        self.call.log(Some(200), None);
    }
}

/// A body that is freed as soon as it is sent: the response may take an hour.
pub(super) struct Outgoing {
    pub(super) json: Cursor<Vec<u8>>,
    /// What it is charged to.
    pub(super) observer: Observer,
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.json.read(buffer)?;
        if self.json.position() == self.json.get_ref().len() as u64 {
            let json = std::mem::take(&mut self.json).into_inner();
            self.observer.release(json.len());
        }
        Ok(read)
    }
}
