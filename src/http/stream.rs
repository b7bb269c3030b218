//! Event streams: server-sent events, one chunk and one system call each.
//!
//! In scope: framing of events and chunks, the final chunk, and detecting a disconnect. Not in scope: the content of
//! events, and when a comment is due.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::registry::{Lease, StreamState};
use super::socket;

/// The event stream of one response. It may move to another thread and outlive the handler; it then owns the
/// connection. If dropped without [`EventStream::finish`], it aborts the connection, so that the client can distinguish
/// a broken stream from a complete one.
pub(crate) struct EventStream {
    lease: Arc<Lease>,
    /// HTTP/1.1: chunks. HTTP/1.0: plain bytes until the connection closes.
    chunked: bool,
    /// Bytes of the next request are buffered, so a peek cannot detect a disconnect.
    pipelined: bool,
    /// The stream is complete; it no longer owns the socket.
    finished: bool,
    /// A write failed, or there is no body (HEAD).
    broken: bool,
}

impl EventStream {
    /// Sends the head of a stream. If that fails, the stream is [`EventStream::gone`] from the start.
    pub(super) fn start(
        lease: Arc<Lease>,
        head: &[u8],
        chunked: bool,
        head_only: bool,
        pipelined: bool,
    ) -> EventStream {
        let sent = lease.write(&mut [IoSlice::new(head)]).is_ok();
        let finished = head_only && sent && lease.slot.end_stream(StreamState::Finished);
        EventStream {
            lease,
            chunked,
            pipelined,
            finished,
            broken: !sent || head_only,
        }
    }

    /// Writes one event of the default type, `message`. Line breaks in `data` become further `data:` lines. An error
    /// means that the client has disconnected or has not read for `write_timeout`; later writes fail at once.
    pub(crate) fn event(&mut self, data: &[u8]) -> io::Result<()> {
        self.send(b"data: ", data)
    }

    /// Like `event`, with data in parts and without line breaks.
    pub(crate) fn event_of(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.send_lines(b"data: ", parts)
    }

    /// Like `event`, with an event type; `name` has no line breaks.
    pub(crate) fn named_event(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        self.send(format!("event: {name}\ndata: ").as_bytes(), data)
    }

    /// Writes a comment as a keep-alive; clients ignore it.
    pub(crate) fn comment(&mut self) -> io::Result<()> {
        self.send(b":", b"")
    }

    /// Completes the stream; the connection may then be reused.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.write(&mut [IoSlice::new(if self.chunked { b"0\r\n\r\n" } else { b"" })])?;
        self.finished = true;
        if !self.lease.slot.end_stream(StreamState::Finished) {
            // The connection's thread has ended, so this must close the connection.
            let _ = self.lease.slot.socket.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Whether the client has disconnected or a write failed. Takes about 2 µs and never blocks. A client that has
    /// already sent its next request counts as connected.
    pub(crate) fn gone(&mut self) -> bool {
        self.broken = self.broken || (!self.pipelined && socket::gone(&self.lease.slot.socket));
        self.broken
    }

    fn send(&mut self, opening: &[u8], data: &[u8]) -> io::Result<()> {
        if data.contains(&b'\n') || data.contains(&b'\r') {
            let lines = split_lines(data);
            return self.send_lines(opening, &[&lines]);
        }
        self.send_lines(opening, &[data])
    }

    /// One chunk of `opening`, `data` and the empty line, without copying the data.
    fn send_lines(&mut self, opening: &[u8], data: &[&[u8]]) -> io::Result<()> {
        let mut prefix = Vec::with_capacity(32);
        if self.chunked {
            let size =
                opening.len() + data.iter().map(|part| part.len()).sum::<usize>() + b"\n\n".len();
            write!(prefix, "{size:x}\r\n")?;
        }
        prefix.extend_from_slice(opening);
        let end: &[u8] = if self.chunked { b"\n\n\r\n" } else { b"\n\n" };
        let prefix = [prefix.as_slice()];
        let all = prefix.iter().chain(data).copied().chain([end]);
        self.write(&mut all.map(IoSlice::new).collect::<Vec<_>>())
    }

    fn write(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let written = self.lease.write(parts);
        // Part of an event may have been sent, so nothing may follow it.
        self.broken = written.is_err();
        written
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if !self.finished {
            self.lease.slot.end_stream(StreamState::Aborted);
            let _ = self.lease.slot.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Multi-line data of one event: each further line gets its own `data:`.
fn split_lines(data: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(data.len() + 32);
    let mut rest = data;
    while let Some(at) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
        lines.extend_from_slice(&rest[..at]);
        lines.extend_from_slice(b"\ndata: ");
        let width = if rest[at..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        rest = &rest[at + width..];
    }
    lines.extend_from_slice(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_break_starts_a_new_data_line() {
        assert_eq!(
            split_lines(b"a\nb\r\nc\rd"),
            b"a\ndata: b\ndata: c\ndata: d"
        );
        assert_eq!(split_lines(b"\n"), b"\ndata: ");
    }
}
