//! A 200 response whose body is unread.

use std::io::Read;
use std::time::Duration;

use ureq::BodyReader;

use super::interruptible::WaitScope;
use super::{Attempt, AttemptError, SMALL_BODY, Stage};
use crate::account::Full;
use crate::fabric::{Cause, Error, Kind, no_room};

/// Bodies are charged in pieces of this size.
const PIECE: u64 = 64 << 10;

/// The kind of a body, by its `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Media {
    /// One JSON document.
    Json,
    /// The events of a run.
    Events,
    /// Anything else, or none.
    Other,
}

/// A 200 response whose body is unread. Stays on the thread that sent the request.
pub(in crate::fabric) struct FabricResponse<'c> {
    pub(super) call: Attempt<'c>,
    /// The kind of the body.
    pub(in crate::fabric) media: Media,
    pub(super) length: Option<u64>,
    pub(super) body: BodyReader<'static>,
    pub(super) waiting: WaitScope,
}

impl FabricResponse<'_> {
    /// The error for a run whose 200 response contains something else.
    pub(in crate::fabric) fn not_a_run(&self) -> Error {
        self.call.answered(Cause::NotFabric, 200, "")
    }

    /// The next bytes of the body; 0 at its end.
    pub(in crate::fabric) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.body
            .read(buffer)
            .map_err(|e| self.call.failure(e.into(), Stage::Body).error)
    }

    /// The whole body, of at most `limit` bytes.
    pub(in crate::fabric) fn into_bytes(self, limit: usize) -> Result<Vec<u8>, Error> {
        self.read_all(limit).map_err(|failure| failure.error)
    }

    /// Limits further waiting to `rest`.
    pub(in crate::fabric) fn hurry(&self, rest: Duration) {
        self.waiting.hurry(rest);
    }

    pub(super) fn read_all(mut self, limit: usize) -> Result<Vec<u8>, AttemptError> {
        let limit = limit as u64;
        let too_large = |call: &Attempt<'_>| {
            let detail = format!(
                "Fabric's answer to {call} has more than {} MiB, the limit.",
                limit >> 20
            );
            AttemptError {
                error: Error::new(Kind::ResponseTooLarge, detail),
                retryable: false,
            }
        };
        if self.length.is_some_and(|length| length > limit) {
            return Err(too_large(&self.call));
        }
        // Allocate for what arrives, not for the announced length.
        let mut bytes = Vec::with_capacity(self.length.unwrap_or(0).min(SMALL_BODY) as usize);
        loop {
            let most = (limit + 1 - bytes.len() as u64).min(PIECE);
            let read = (&mut self.body).take(most).read_to_end(&mut bytes);
            let read = read.map_err(|e| self.call.failure(e.into(), Stage::Body))? as u64;
            if bytes.len() as u64 > limit {
                return Err(too_large(&self.call));
            }
            // Doubled: the body and the value parsed from it.
            let full = |Full| AttemptError {
                error: no_room(),
                retryable: false,
            };
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
