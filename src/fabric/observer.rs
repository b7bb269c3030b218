//! What watches a call while it waits for Fabric.
//!
//! In scope: the callbacks during a wait. Not in scope: the waiting (`client`), and what the callbacks do: flush, send
//! heartbeats, detect that the caller has gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;

/// What watches a call while it waits for Fabric. All methods run on the waiting thread. They may write to the call's
/// own client, however slow it is, and to the state folder. They must not wait for anything else, such as an issuer,
/// another client, or a lock that is held during I/O, because Fabric's stream is not read meanwhile.
pub(crate) trait CallObserver: Send + Sync {
    /// Flush buffered output: the next read may block. Called before each read of the socket.
    fn flush(&self) {}

    /// Called before a POST is sent, and about every [`SLICE`](crate::sync::SLICE) while waiting for headers, body, another
    /// caller's read or a retry. [`Error::cancelled`] closes the connection and ends the call.
    fn still_waiting(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Charges `bytes` more to the caller, until [`CallObserver::release`] or the end of the call.
    ///
    /// # Errors
    /// [`no_room`](super::no_room): the budget is exhausted.
    fn hold(&self, _bytes: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Releases `bytes`.
    fn release(&self, _bytes: usize) {}

    /// Whether this is a poll, which nobody has asked for: it neither starts Fabric nor keeps it running.
    fn is_poll(&self) -> bool {
        false
    }
}

/// The observer of a call, as it is handed on.
pub(crate) type Observer = Arc<dyn CallObserver>;

/// Waits without callbacks, within the limits.
pub(crate) struct Unobserved;

impl CallObserver for Unobserved {}

/// The same, for what this server does on its own.
pub(crate) struct Poll;

impl CallObserver for Poll {
    fn is_poll(&self) -> bool {
        true
    }
}

/// Forwards to another observer, with a deadline.
pub(crate) struct Until {
    pub(crate) observer: Observer,
    pub(crate) until: Instant,
}

impl Until {
    /// Its deadline is in this time.
    pub(crate) fn after(time: Duration, observer: Observer) -> Until {
        let until = Instant::now() + time;
        Until { observer, until }
    }
}

impl CallObserver for Until {
    fn flush(&self) {
        self.observer.flush();
    }

    fn still_waiting(&self) -> Result<(), Error> {
        match Instant::now() < self.until {
            true => self.observer.still_waiting(),
            false => Err(Error::cancelled()),
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.observer.hold(bytes)
    }

    fn release(&self, bytes: usize) {
        self.observer.release(bytes);
    }

    fn is_poll(&self) -> bool {
        self.observer.is_poll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_changes_nothing_else() {
        struct Other;
        impl CallObserver for Other {
            fn hold(&self, _: usize) -> Result<(), Error> {
                Err(super::super::no_room())
            }
        }
        let observer = |seconds| Until::after(Duration::from_secs(seconds), Arc::new(Other));
        assert_eq!(observer(0).still_waiting(), Err(Error::cancelled()));
        assert_eq!(observer(3600).still_waiting(), Ok(()));
        let no_room = Err(super::super::no_room());
        assert_eq!(observer(0).hold(1), no_room, "it counts for the other");
    }
}
