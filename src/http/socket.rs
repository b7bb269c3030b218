//! Socket I/O of one connection: buffered reads with a deadline, writes with a timeout.
//!
//! In scope: the read buffer, socket timeouts, the lingering close, detecting a disconnect by a peek. Not in scope: the
//! meaning of the bytes.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::registry::Slot;
use super::request::Framing;
use crate::config::{HTTP_LINGER_TIME, HttpLimits, MAX_HEAD};

/// Most bytes read during a lingering close.
const HTTP_LINGER_BYTES: usize = 32 << 20;
/// Minimum read rate of a client that exceeds `write_timeout`, in bytes per second over one response or event.
const HTTP_MIN_WRITE_RATE: u64 = 32 << 10;

/// Initial size of the read buffer, in bytes: fits most requests in one read.
pub(super) const FIRST_BUFFER: usize = 1 << 10;
/// Deadlines are rounded up to this, so that small reads rarely change the socket's timeout.
const GRAIN: Duration = Duration::from_millis(100);

/// A connection's socket and read buffer. Its place is given back when this is dropped, if not before with its last
/// response.
pub(super) struct Connection {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Reads fail after this.
    pub(super) deadline: Instant,
    /// The socket's current read timeout, to avoid redundant system calls.
    read_timeout: Option<Duration>,
    /// The unread part of the request's body.
    pub(super) body: Framing,
    /// Its entry in the registry.
    pub(super) slot: Arc<Slot>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.buffer = Vec::new();
        self.slot.end_response(None, Shutdown::Both);
        self.slot.registry.remove(&self.slot);
    }
}

impl Connection {
    /// Sets TCP_NODELAY and the write timeout, unless the connection is broken: then it ends with its first read.
    pub(super) fn new(slot: Arc<Slot>) -> Connection {
        let timeout = Some(slot.registry.limits.write_timeout);
        let _ = slot.socket.set_nodelay(true);
        let _ = slot.socket.set_write_timeout(timeout);
        Connection {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            deadline: Instant::now(),
            read_timeout: None,
            body: Framing::None,
            slot,
        }
    }

    /// The server's limits.
    pub(super) fn limits(&self) -> &HttpLimits {
        &self.slot.registry.limits
    }

    /// Bytes read and not yet consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads once into the buffer, which may grow to the limit of a head. 0 means end of stream; `TimedOut` means the
    /// deadline passed, as does `WouldBlock` on Unix.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.set_timeout()?;
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                let longer = (self.buffer.len() * 2).clamp(FIRST_BUFFER, MAX_HEAD);
                self.buffer.resize(longer, 0);
            }
        }
        let count = read(&self.slot.socket, &mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// Frees the buffer, if all of it was read and it is longer than this.
    pub(super) fn free_buffer(&mut self, longest: usize) {
        if self.unread().is_empty() && self.buffer.len() > longest {
            self.buffer = Vec::new();
        }
    }

    /// Whether bytes of a request are buffered or on their way.
    pub(super) fn has_unread(&self) -> bool {
        self.body != Framing::None || !self.unread().is_empty()
    }

    /// Lingering close, after a response to a request that was not read completely: on an immediate close, the kernel
    /// sends a reset, which may overtake the response.
    pub(super) fn linger(&mut self) {
        let _ = self.slot.socket.shutdown(Shutdown::Write);
        if self.slot.registry.draining() {
            return;
        }
        self.deadline = Instant::now() + HTTP_LINGER_TIME;
        let mut heard = 0;
        while heard < HTTP_LINGER_BYTES {
            (self.start, self.end) = (0, 0);
            match self.fill() {
                Ok(0) | Err(_) => return,
                Ok(count) => heard += count,
            }
        }
    }

    fn set_timeout(&mut self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let timeout =
            GRAIN * (left.as_millis() / GRAIN.as_millis() + 1).min(u32::MAX.into()) as u32;
        if self.read_timeout != Some(timeout) {
            self.slot.socket.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.unread().len().min(into.len());
        if count == 0 {
            self.set_timeout()?;
            return read(&self.slot.socket, into);
        }
        into[..count].copy_from_slice(&self.unread()[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Connection {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.unread().is_empty() {
            self.fill()?;
        }
        Ok(self.unread())
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}

impl Slot {
    /// Writes all parts, in one system call if the client keeps up. Fails if a write makes no progress
    /// for `write_timeout`, or if the client reads slower than [`HTTP_MIN_WRITE_RATE`].
    pub(super) fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut parts = &mut slices[..];
        let rate = Duration::from_secs(total as u64 / HTTP_MIN_WRITE_RATE);
        // Set before the first write, because a write that times out halfway reports success for the first half.
        let deadline = Instant::now() + self.registry.limits.write_timeout + rate;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match (&self.socket).write_vectored(parts) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if !parts.is_empty() && Instant::now() >= deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

/// Whether the peer has disconnected, without blocking: by a peek, or if nobody will read what the peer sends, by reading
/// it away, since the end is behind it. No other thread may use the socket at the same time, because the mode applies to
/// the whole socket.
pub(super) fn gone(mut socket: &TcpStream, reads_away: bool) -> bool {
    let mut bytes = [0; 4 << 10];
    let heard = socket
        .set_nonblocking(true)
        .and_then(|()| match reads_away {
            true => socket.read(&mut bytes),
            false => socket.peek(&mut bytes),
        });
    let there = match heard {
        Ok(count) => count > 0,
        Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    };
    socket.set_nonblocking(false).is_err() || !there
}

fn read(mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(into) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
