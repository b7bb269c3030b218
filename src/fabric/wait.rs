//! What a caller does while Fabric keeps it waiting.
//!
//! In scope: the moments at which a call hands control back to whoever made it. Not in scope: how the waiting is
//! done (`client`) and what is made of these moments: flushing, heartbeats, noticing that the caller has gone.

use std::fmt;
use std::time::Duration;

use crate::budget::Full;

/// How often whoever waits is asked whether to go on.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Whoever waits for Fabric. All methods run on the waiting thread itself and must not block.
pub(crate) trait Wait: Send + Sync {
    /// What had arrived is used up and the next read may block: pass on what was collected so far. Called right
    /// before each read of the socket.
    fn before_blocking(&self) {}

    /// Called before a POST is sent, and about every [`SLICE`] of waiting: for headers, for the body, be it silent or a
    /// trickle, for another caller's reading, or between two tries. `Err(Stop)` closes the connection and ends the call
    /// with [`Error::cancelled`].
    ///
    /// [`Error::cancelled`]: super::Error::cancelled
    fn still_waiting(&self) -> Result<(), Stop>;

    /// The call is about to hold `bytes` more for its caller, until [`Wait::release`] or its own end.
    ///
    /// # Errors
    /// [`Full`]: it may not.
    fn hold(&self, _bytes: usize) -> Result<(), Full> {
        Ok(())
    }

    /// The call holds `bytes` fewer.
    fn release(&self, _bytes: usize) {}
}

/// The caller has gone or has cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop;

// An error of its own right, so that it can travel through the HTTP library and be recognised behind it.
impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the caller stopped waiting")
    }
}

impl std::error::Error for Stop {}

/// Waits for as long as the limits allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoWait;

impl Wait for NoWait {
    fn still_waiting(&self) -> Result<(), Stop> {
        Ok(())
    }
}
