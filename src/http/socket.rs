//! Socket I/O of one connection: buffered reads with a deadline, writes with a timeout.
//!
//! In scope: the read buffer, socket timeouts, the lingering close, detecting a disconnect by a peek. Not in scope: the
//! meaning of the bytes.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::registry::{Lease, Slot};
use crate::config::{HTTP_LINGER_TIME, HttpLimits};

/// Most bytes read during a lingering close.
const HTTP_LINGER_BYTES: usize = 32 << 20;
/// Minimum read rate of a client that exceeds `write_timeout`, in bytes per second over one response or event.
const HTTP_MIN_WRITE_RATE: u64 = 32 << 10;

/// Initial size of the read buffer, in bytes: fits most requests in one read.
const FIRST_BUFFER: usize = 8 << 10;
/// Deadlines are rounded up to this, so that small reads rarely change the socket's timeout.
const GRAIN: Duration = Duration::from_millis(100);

/// How long a read may block.
#[derive(Clone, Copy)]
pub(super) enum ReadLimit {
    /// Until the idle timeout, for the next request.
    Idle,
    /// Until a deadline, for the rest of a request.
    Until(Instant),
}

/// A connection's socket and read buffer.
pub(super) struct Connection {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The socket's current read timeout, to avoid redundant system calls.
    read_timeout: Option<Duration>,
    /// The connection's registration, which owns the socket. Dropped last, after all other memory.
    pub(super) lease: Arc<Lease>,
}

impl Connection {
    /// Sets TCP_NODELAY and the write timeout.
    pub(super) fn new(lease: Arc<Lease>) -> io::Result<Connection> {
        let socket = &lease.slot.socket;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(lease.registry.limits.write_timeout))?;
        Ok(Connection {
            lease,
            buffer: vec![0; FIRST_BUFFER],
            start: 0,
            end: 0,
            read_timeout: None,
        })
    }

    /// The connection's entry in the registry.
    pub(super) fn slot(&self) -> &Slot {
        &self.lease.slot
    }

    /// The server's limits.
    pub(super) fn limits(&self) -> &HttpLimits {
        &self.lease.registry.limits
    }

    /// Bytes read and not yet consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes the first `count` bytes of [`Connection::unread`].
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once into the buffer, which may grow to the limit of a head. 0 means end of stream; `TimedOut` means the
    /// deadline passed.
    pub(super) fn fill(&mut self, wait: ReadLimit) -> io::Result<usize> {
        self.set_timeout(wait)?;
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                let longer = (self.buffer.len() * 2).min(self.limits().max_head.max(FIRST_BUFFER));
                self.buffer.resize(longer, 0);
            }
        }
        let count = read(&self.lease.slot.socket, &mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// Reads once, bypassing the buffer, which must be empty.
    pub(super) fn read_past(&mut self, into: &mut [u8], wait: ReadLimit) -> io::Result<usize> {
        self.set_timeout(wait)?;
        read(&self.lease.slot.socket, into)
    }

    /// Before waiting for a request: frees the memory of a large head. False if the connection must close instead.
    pub(super) fn rest(&mut self) -> bool {
        if self.buffer.len() > FIRST_BUFFER {
            self.buffer.truncate(FIRST_BUFFER);
            self.buffer.shrink_to_fit();
        }
        self.lease.rest()
    }

    /// Lingering close, after a response to a request that was not read completely: on an immediate close, the kernel
    /// sends a reset, which may overtake the response.
    pub(super) fn linger(&mut self) {
        let socket = &self.lease.slot.socket;
        if socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.lease.leave();
        let deadline = Instant::now() + HTTP_LINGER_TIME;
        let mut heard = 0;
        while heard < HTTP_LINGER_BYTES {
            (self.start, self.end) = (0, 0);
            match self.fill(ReadLimit::Until(deadline)) {
                Ok(0) | Err(_) => return,
                Ok(count) => heard += count,
            }
        }
    }

    fn set_timeout(&mut self, wait: ReadLimit) -> io::Result<()> {
        let timeout = match wait {
            ReadLimit::Idle => self.limits().idle_timeout,
            ReadLimit::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                GRAIN * (left.as_millis() / GRAIN.as_millis() + 1).min(u32::MAX.into()) as u32
            }
        };
        if self.read_timeout != Some(timeout) {
            self.lease.slot.socket.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(())
    }
}

impl Lease {
    /// Writes all parts, in one system call if the client keeps up.
    pub(super) fn write(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        write_all(&self.slot.socket, parts, self.registry.limits.write_timeout)
    }
}

/// Writes all of `parts`. Fails with `TimedOut` if a write makes no progress for `timeout`, or if the client reads
/// slower than [`HTTP_MIN_WRITE_RATE`].
pub(super) fn write_all(
    socket: &TcpStream,
    mut parts: &mut [IoSlice<'_>],
    timeout: Duration,
) -> io::Result<()> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    // Set before the first write, because a write that times out halfway reports success for the first half.
    let deadline =
        Instant::now() + timeout + Duration::from_secs(total as u64 / HTTP_MIN_WRITE_RATE);
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match (&mut &*socket).write_vectored(parts) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut parts, count),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(as_timeout(e)),
        }
        if !parts.is_empty() && Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Whether the peer has disconnected, by a non-blocking peek. Nobody else may use the socket meanwhile, because the
/// mode applies to the whole socket.
pub(super) fn gone(socket: &TcpStream) -> bool {
    if socket.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = socket.peek(&mut [0]);
    if socket.set_nonblocking(false).is_err() {
        return true;
    }
    match peeked {
        Ok(count) => count == 0,
        Err(e) => e.kind() != ErrorKind::WouldBlock && e.kind() != ErrorKind::Interrupted,
    }
}

fn read(mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(into) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result.map_err(as_timeout),
        }
    }
}

/// An expired socket timeout is `WouldBlock` on Unix and `TimedOut` on Windows.
fn as_timeout(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock {
        ErrorKind::TimedOut.into()
    } else {
        error
    }
}
