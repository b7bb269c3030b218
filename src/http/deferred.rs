//! A response that outlives its handler; whether it is sized or a stream is decided later.
//!
//! In scope: keeping the connection open, and detecting a disconnect. Not in scope: when to decide.

use std::net::Shutdown;
use std::sync::Arc;

use super::HTTPVersion;
use super::registry::{Lease, StreamState};
use super::response::{self, After};
use super::socket::{self, Connection};
use super::stream::EventStream;

/// One pending response. If dropped without a response, it aborts the connection.
pub(crate) struct Deferred {
    lease: Arc<Lease>,
    answered: bool,
    version: HTTPVersion,
    /// For HEAD, whose response has no body.
    head_only: bool,
    after: After,
    /// Bytes of the next request are buffered, so a peek cannot detect a disconnect.
    pipelined: bool,
}

impl Deferred {
    /// The response to the last request read from `connection`, counted as its open stream.
    pub(super) fn new(
        connection: &Connection,
        version: HTTPVersion,
        head_only: bool,
        after: After,
    ) -> Deferred {
        connection.slot().open_stream();
        let pipelined = !connection.unread().is_empty();
        Deferred {
            lease: Arc::clone(&connection.lease),
            answered: false,
            version,
            head_only,
            after,
            pipelined,
        }
    }

    /// Whether the client has disconnected. Takes about 2 µs and never blocks. A client that has already sent its next
    /// request counts as connected.
    pub(crate) fn gone(&self) -> bool {
        !self.pipelined && socket::gone(&self.lease.slot.socket)
    }

    /// The connection ends with this response.
    pub(crate) fn close(&mut self) {
        self.after = After::Close;
    }

    /// Like `Exchange::respond`, with the body in parts.
    pub(crate) fn respond(mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        let (registry, slot) = (&self.lease.registry, &self.lease.slot);
        let after = if registry.draining() {
            After::Close
        } else {
            self.after
        };
        match response::respond(
            &self.lease,
            &self.version,
            status,
            headers,
            body,
            self.head_only,
            after,
        ) {
            Ok(()) => {
                if !slot.end_stream(StreamState::Finished) {
                    // The connection's thread has ended, so this must close the connection.
                    let _ = slot.socket.shutdown(Shutdown::Write);
                }
                self.answered = true;
            }
            // Dropping `self` aborts the connection.
            Err(e) => log::debug!("{}: the answer could not be sent: {e}", slot.peer),
        }
    }

    /// Answers 200 with a stream, whose head is sent at once. `headers` must name the `Content-Type`.
    pub(crate) fn stream(mut self, headers: &[(&str, &str)]) -> EventStream {
        self.answered = true;
        let head =
            response::head(&self.version, 200, headers, None, self.after).unwrap_or_default();
        EventStream::start(
            Arc::clone(&self.lease),
            &head,
            self.version == (1, 1),
            self.head_only,
            self.pipelined,
        )
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if !self.answered {
            self.lease.slot.end_stream(StreamState::Aborted);
            let _ = self.lease.slot.socket.shutdown(Shutdown::Both);
        }
    }
}
