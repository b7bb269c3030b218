//! The response to one request: of known size, or a stream of server-sent events, one chunk and one system call each.
//!
//! In scope: the framing of bodies, events and chunks, and detecting a disconnect. Not in scope: when to decide, the
//! content of events, and when a comment is due.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use super::HTTPVersion;
use super::registry::{ConnectionPhase, Slot};
use super::response;
use super::socket;
use crate::logging;
use crate::sync::lock;

/// One pending response. It may be handed to another thread, but the handler must not return before it is answered or
/// dropped. If dropped without a response, before the end of its stream, or if the handler returns too early, the
/// connection is aborted, so that the client can distinguish a broken stream from a complete one.
///
/// A response that ends its connection, by `Connection: close` or because it failed, gives back the connection's place at
/// once, if the request was read completely. The handler may go on with something else on its thread: what limits that is
/// not here.
pub(crate) struct Deferred {
    pub(super) slot: Arc<Slot>,
    pub(super) version: HTTPVersion,
    /// For HEAD, whose response has no body. Streams are not for HEAD.
    pub(super) head_only: bool,
    /// The connection closes after it, and it says so.
    pub(crate) close: bool,
    /// The connection has bytes that nobody has read: a peek cannot detect a disconnect, and closing has to linger.
    pub(super) has_unread: bool,
    /// Its head has begun a stream.
    pub(crate) is_stream: bool,
}

impl Deferred {
    /// Whether the client has disconnected or a write failed. Takes about 2 µs and never blocks. A client that has already
    /// sent its next request counts as connected.
    pub(crate) fn gone(&self) -> bool {
        self.slot.phase() != ConnectionPhase::Response
            || (!self.has_unread && socket::gone(&self.slot.socket))
    }

    /// Like `Exchange::respond`, with the body in parts.
    pub(crate) fn respond(mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        self.close |= self.slot.registry.draining();
        match self.write_head(status, headers, Some(body)) {
            Ok(()) => self.slot.complete(self.close),
            Err(e) => {
                let message = format!("{}: the answer could not be sent: {e}", self.slot.peer);
                logging::debug(module_path!(), message);
            }
        }
    }

    /// Answers 200 with a stream, whose head is sent at once. `headers` must name the `Content-Type`. If the head cannot
    /// be sent, the client is [`Deferred::gone`] from the start.
    pub(crate) fn stream(mut self, headers: &[(&str, &str)]) -> Deferred {
        // An HTTP/1.0 client sees the end of a stream by the end of the connection.
        self.close |= self.version != (1, 1) || self.slot.registry.draining();
        self.is_stream = true;
        let _ = self.write_head(200, headers, None);
        self
    }

    /// Writes the head, and the body if it is known.
    fn write_head(
        &self,
        status: u16,
        headers: &[(&str, &str)],
        body: Option<&[&[u8]]>,
    ) -> io::Result<()> {
        let mut head = lock(&self.slot.buffer);
        let length = body.map(|parts| parts.iter().map(|part| part.len()).sum());
        let (version, close) = (&self.version, self.close);
        response::head(&mut head, version, status, headers, length, close)?;
        // RFC 9110, 6.4.1.
        let bodiless = self.head_only || matches!(status, 204 | 304);
        let body = body.filter(|_| !bodiless).unwrap_or_default();
        let all = [head.as_slice()];
        let all = all.iter().chain(body).map(|part| IoSlice::new(part));
        self.slot.write(&mut all.collect::<Vec<_>>())
    }

    /// Writes one event of the default type, `message`. `data`, in parts, has no line breaks. An error means that the
    /// client has disconnected or has not read for `write_timeout`; later writes fail at once.
    pub(crate) fn event(&mut self, data: &[&[u8]]) -> io::Result<()> {
        self.send("data: ", data)
    }

    /// Like `event`, with an event type; `name` has no line breaks.
    pub(crate) fn named_event(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        self.send(&format!("event: {name}\ndata: "), &[data])
    }

    /// Writes a comment as a keep-alive; clients ignore it.
    pub(crate) fn comment(&mut self) -> io::Result<()> {
        self.send(":", &[])
    }

    /// Completes the stream with this event. If that cannot be sent, the client has left.
    pub(crate) fn end_with(mut self, data: &[&[u8]]) {
        if self.event(data).is_ok() {
            let _ = self.finish();
        }
    }

    /// Completes the stream.
    pub(crate) fn finish(self) -> io::Result<()> {
        if self.version == (1, 1) {
            self.slot.write(&mut [IoSlice::new(b"0\r\n\r\n")])?;
        }
        self.slot.complete(self.close);
        Ok(())
    }

    /// One chunk of `opening`, `data` and the empty line, without copying the data. HTTP/1.0 gets plain bytes until the
    /// connection closes.
    fn send(&self, opening: &str, data: &[&[u8]]) -> io::Result<()> {
        debug_assert!(!data.iter().any(|part| part.contains(&b'\n')));
        let mut start = lock(&self.slot.buffer);
        start.clear();
        let mut end = "\n\n";
        if self.version == (1, 1) {
            let size = opening.len() + data.iter().map(|part| part.len()).sum::<usize>() + 2;
            write!(start, "{size:x}\r\n")?;
            end = "\n\n\r\n";
        }
        start.extend_from_slice(opening.as_bytes());
        let start = [start.as_slice()];
        let all = start.iter().chain(data).copied().chain([end.as_bytes()]);
        let mut all: Vec<_> = all.map(IoSlice::new).collect();
        self.slot.write(&mut all)
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.slot.abort();
        if !self.has_unread {
            self.slot.release();
        }
    }
}
