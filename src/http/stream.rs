//! An answer that grows: server-sent events in chunks, written one system call each.
//!
//! In scope: the framing of events and chunks, the proper end, and noticing that nobody listens. Not in scope: what the
//! events say, when a comment is due.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::registry::{Lease, StreamState};
use super::socket::{self, Connection};

/// The events of one answer. May be handed to another thread and outlive the handler: then the connection is its own,
/// and closes with it. Dropped without [`EventStream::finish`], it cuts the connection, so that the client can tell a
/// broken stream from a complete one.
pub(crate) struct EventStream {
    lease: Arc<Lease>,
    /// HTTP/1.1: chunks. HTTP/1.0: bare bytes, ended by the end of the connection.
    chunked: bool,
    /// Bytes of a further request were read already: then the peek cannot tell whether the client is there.
    pipelined: bool,
    /// It has ended properly: the socket belongs to others again.
    finished: bool,
    /// A write failed, or nothing is to be written at all (HEAD).
    broken: bool,
    /// Chunk size and what stands before the data; kept for its memory.
    prefix: Vec<u8>,
}

impl EventStream {
    /// Sends the head of a stream. Should that fail, the stream is [`EventStream::gone`] from the start.
    pub(super) fn start(connection: &Connection, head: &[u8], chunked: bool, head_only: bool) -> EventStream {
        connection.slot().open_stream();
        EventStream::go_on(Arc::clone(&connection.lease), head, chunked, head_only, !connection.unread().is_empty())
    }

    /// The same where the stream's state is open already.
    pub(super) fn go_on(
        lease: Arc<Lease>,
        head: &[u8],
        chunked: bool,
        head_only: bool,
        pipelined: bool,
    ) -> EventStream {
        let sent =
            socket::write_all(&lease.slot.socket, &mut [IoSlice::new(head)], lease.registry.limits.write_timeout)
                .is_ok();
        let finished = head_only && sent && lease.slot.end_stream(StreamState::Finished);
        EventStream { lease, chunked, pipelined, finished, broken: !sent || head_only, prefix: Vec::with_capacity(32) }
    }

    /// Writes one event of the default type, `message`. Line breaks in `data` become further `data:` lines. An error
    /// means that the client left or has not read for `write_timeout`; every later write fails at once.
    pub(crate) fn event(&mut self, data: &[u8]) -> io::Result<()> {
        self.send(b"data: ", data)
    }

    /// The same for data in parts, which have no line breaks.
    pub(crate) fn event_of(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.send_lines(b"data: ", parts)
    }

    /// The same for an event of another type; `name` has no line breaks.
    pub(crate) fn named_event(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        self.send(format!("event: {name}\ndata: ").as_bytes(), data)
    }

    /// Writes a comment, which clients ignore and proxies take for a sign of life.
    pub(crate) fn comment(&mut self) -> io::Result<()> {
        self.send(b":", b"")
    }

    /// Ends the stream properly; the connection may then be used on.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.write(&mut [IoSlice::new(if self.chunked { b"0\r\n\r\n" } else { b"" })])?;
        self.finished = true;
        if !self.lease.slot.end_stream(StreamState::Finished) {
            // The connection's thread has left, so this is the end of the connection too.
            let _ = self.lease.slot.socket.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Whether the client has left or a write failed. Takes about 2 µs and never waits. A client that has already sent
    /// its next request counts as present.
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
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        if self.chunked {
            let size = opening.len() + data.iter().map(|part| part.len()).sum::<usize>() + b"\n\n".len();
            write!(prefix, "{size:x}\r\n")?;
        }
        prefix.extend_from_slice(opening);
        let end: &[u8] = if self.chunked { b"\n\n\r\n" } else { b"\n\n" };
        let written = match data {
            [data] => self.write(&mut [IoSlice::new(&prefix), IoSlice::new(data), IoSlice::new(end)]),
            parts => {
                let all = [prefix.as_slice()];
                let all = all.iter().chain(parts).copied().chain([end]);
                self.write(&mut all.map(IoSlice::new).collect::<Vec<_>>())
            }
        };
        self.prefix = prefix;
        written
    }

    fn write(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let written = socket::write_all(&self.lease.slot.socket, parts, self.lease.registry.limits.write_timeout);
        // Half an event may be on its way: nothing after it would be understood.
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

/// Data of several lines as the inside of one event: each further line gets a `data:` of its own.
fn split_lines(data: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(data.len() + 32);
    let mut rest = data;
    while let Some(at) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
        lines.extend_from_slice(&rest[..at]);
        lines.extend_from_slice(b"\ndata: ");
        let width = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
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
        assert_eq!(split_lines(b"a\nb\r\nc\rd"), b"a\ndata: b\ndata: c\ndata: d");
        assert_eq!(split_lines(b"\n"), b"\ndata: ");
    }
}
