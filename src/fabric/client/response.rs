//! An answer that came: a 200 whose body is still to be read.

use std::io::Read;
use std::time::Duration;

use ureq::BodyReader;

use super::interruptible::WaitScope;
use super::{Attempt, AttemptError, SMALL_BODY, Stage};
use crate::budget::Full;
use crate::fabric::{Cause, Error, Kind, no_room};

/// A larger body is counted in pieces of this size.
const PIECE: u64 = 64 << 10;

/// What kind of thing a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Media {
    /// One JSON document.
    Json,
    /// The events of a run.
    Events,
    /// Anything else, or nothing said.
    Other,
}

/// A 200 whose body is still to be read, on the thread that asked for it.
pub(in crate::fabric) struct FabricResponse<'c> {
    pub(super) call: Attempt<'c>,
    /// What the body says it is.
    pub(in crate::fabric) media: Media,
    pub(super) length: Option<u64>,
    pub(super) body: BodyReader<'static>,
    pub(super) waiting: WaitScope,
}

impl FabricResponse<'_> {
    /// The failure of a run whose answer is a 200 with something else in it.
    pub(in crate::fabric) fn not_a_run(&self) -> Error {
        let detail = format!(
            "Fabric answered with something that is not a run: another program or a proxy may be answering at {}, or \
             this version of Fabric is too old or too new. Check FABRIC_BASE_URL before you run the pattern again.",
            self.call.client.url
        );
        Error::new(Kind::ApiError, detail).caused_by(Cause::NotFabric).after_status(200)
    }

    /// The next bytes of the body; 0 at its proper end.
    pub(in crate::fabric) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.body.read(buffer).map_err(|e| self.call.failure(e.into(), Stage::Body).error)
    }

    /// All of the body, if that is at most `limit` bytes.
    pub(in crate::fabric) fn into_bytes(self, limit: usize) -> Result<Vec<u8>, Error> {
        self.read_all(limit).map_err(|failure| failure.error)
    }

    /// From now on wait for `rest` at most, however long the limits still are.
    pub(in crate::fabric) fn hurry(&self, rest: Duration) {
        self.waiting.hurry(rest);
    }

    pub(super) fn read_all(mut self, limit: usize) -> Result<Vec<u8>, AttemptError> {
        let limit = limit as u64;
        let too_large = |call: &Attempt<'_>| {
            let detail = format!("Fabric's answer to {call} has more than {} MiB, the limit.", limit >> 20);
            AttemptError { error: Error::new(Kind::ResponseTooLarge, detail), retryable: false }
        };
        if self.length.is_some_and(|length| length > limit) {
            return Err(too_large(&self.call));
        }
        // Grows with what arrives, not with what is promised.
        let mut bytes = Vec::with_capacity(self.length.unwrap_or(0).min(SMALL_BODY) as usize);
        loop {
            let most = (limit + 1 - bytes.len() as u64).min(PIECE);
            let read = (&mut self.body).take(most).read_to_end(&mut bytes);
            let read = read.map_err(|e| self.call.failure(e.into(), Stage::Body))? as u64;
            if bytes.len() as u64 > limit {
                return Err(too_large(&self.call));
            }
            // The body, and what is made of it.
            let full = |Full| AttemptError { error: no_room(), retryable: false };
            self.waiting.hold(2 * read as usize).map_err(full)?;
            if read < most {
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
