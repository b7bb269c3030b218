//! Connections without TLS and without a proxy. Those of ureq keep two buffers of full size while they are open. These
//! have one, only as large as its content, because a run may last an hour.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use super::BUFFER;

/// Shortest timeout of a socket.
const LEAST: Duration = Duration::from_millis(1);

/// Opens such connections.
#[derive(Debug)]
pub(super) struct PlainConnector {
    /// Initial size of the buffer while a response is read, in bytes.
    pub(super) input: usize,
}

impl Connector for PlainConnector {
    type Out = PlainConnection;

    /// Tries one address after the other, each for its share of the time that is left.
    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<PlainConnection>, ureq::Error> {
        let begun = Instant::now();
        let mut failure = ureq::Error::ConnectionFailed;
        for (tried, address) in details.addrs.iter().enumerate() {
            let left = details.timeout.after.saturating_sub(begun.elapsed());
            let share = left / (details.addrs.len() - tried) as u32;
            match TcpStream::connect_timeout(address, share.max(LEAST)) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Ok(Some(PlainConnection {
                        socket,
                        read_timeout: None,
                        write_timeout: None,
                        was_used: false,
                        buffer: SharedBuffer {
                            least: self.input,
                            ..SharedBuffer::default()
                        },
                    }));
                }
                Err(error) => failure = failed(error, details.timeout),
            }
        }
        Err(failure)
    }
}

/// A TCP connection.
#[derive(Debug)]
pub(super) struct PlainConnection {
    socket: TcpStream,
    /// The socket's current timeouts, to avoid redundant system calls.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// Whether a request was sent since ureq last asked whether it is open.
    was_used: bool,
    buffer: SharedBuffer,
}

impl Transport for PlainConnection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffer
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.for_write();
        // Rounded up, so that it is the same for most requests.
        let tenths = socket_timeout(timeout).as_millis() as u64 / 100 + 1;
        let after = Some(Duration::from_millis(100 * tenths));
        if self.write_timeout != after {
            self.socket.set_write_timeout(after)?;
            self.write_timeout = after;
        }
        self.was_used = true;
        let written = self.socket.write_all(&self.buffer.bytes[..amount]);
        written.map_err(|error| failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeout = timeout.for_read();
        let after = Some(socket_timeout(timeout));
        if self.read_timeout != after {
            self.socket.set_read_timeout(after)?;
            self.read_timeout = after;
        }
        let read = self.socket.read(self.buffer.input_append_buf());
        let count = read.map_err(|error| failed(error, timeout))?;
        self.buffer.input_appended(count);
        Ok(count > 0)
    }

    /// Whether the connection can be used for another request: it is open, and nothing unexpected has arrived.
    fn is_open(&mut self) -> bool {
        // ureq asks when the connection goes into the pool and when it leaves it: the second time is enough.
        if std::mem::take(&mut self.was_used) {
            return true;
        }
        let peeked = self.socket.set_nonblocking(true);
        let peeked = peeked.and_then(|()| self.socket.peek(&mut [0]));
        let is_silent = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        is_silent && self.socket.set_nonblocking(false).is_ok()
    }
}

/// The time left, as a socket takes it.
fn socket_timeout(timeout: NextTimeout) -> Duration {
    // To the system 0 means no timeout.
    Duration::max(*timeout.after, LEAST)
}

/// An expired timeout of a socket has one of two kinds, depending on the system. A signal ends a wait early too, which
/// the caller then repeats.
fn failed(error: io::Error, timeout: NextTimeout) -> ureq::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
            ureq::Error::Timeout(timeout.reason)
        }
        _ => ureq::Error::Io(error),
    }
}

/// One buffer for both directions: nothing is read before the request is sent.
#[derive(Debug, Default)]
struct SharedBuffer {
    bytes: Vec<u8>,
    /// Where unconsumed input begins and ends.
    start: usize,
    end: usize,
    /// Whether some input was consumed the last time.
    has_progress: bool,
    /// Its size when little arrives.
    least: usize,
}

impl Buffers for SharedBuffer {
    fn output(&mut self) -> &mut [u8] {
        self.bytes.resize(BUFFER, 0);
        &mut self.bytes
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        // The first buffer is for bodies of unknown length, which are never sent.
        (&mut [], self.output())
    }

    fn input(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Room for more input: none once [`BUFFER`] bytes are unconsumed.
    fn input_append_buf(&mut self) -> &mut [u8] {
        let length = self.bytes.len();
        let was_full = self.end == length;
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let length = match (was_full, self.end) {
            // More arrives than fits.
            (true, _) => (2 * length).min(BUFFER),
            (false, 0) => self.least,
            (false, _) => length,
        };
        self.bytes.resize(length, 0);
        self.bytes.shrink_to(length);
        &mut self.bytes[self.end..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.end += amount;
    }

    fn input_consume(&mut self, amount: usize) {
        self.start += amount;
        self.has_progress = amount > 0;
    }

    fn can_use_input(&self) -> bool {
        self.has_progress && !self.input().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_as_large_as_what_it_holds() {
        let mut buffer = SharedBuffer {
            least: 1000,
            ..SharedBuffer::default()
        };
        assert_eq!(buffer.output().len(), BUFFER);
        // A head that comes in pieces: how many bytes arrive, are then consumed, and how long the buffer is.
        for (arrived, consumed, length) in [
            (999, 0, 1000),
            (1, 0, 1000),
            (1000, 0, 2000),
            (500, 2490, 4000),
            (990, 0, 4000),
            (3000, 0, 4000),
            (4000, 0, 8000),
            (192, 0, BUFFER),
        ] {
            assert!(buffer.input_append_buf().len() >= arrived);
            assert_eq!(buffer.bytes.capacity(), length);
            buffer.input_appended(arrived);
            buffer.input_consume(consumed);
            assert_eq!(buffer.can_use_input(), consumed > 0);
        }
        assert!(buffer.input_append_buf().is_empty());
        buffer.input_consume(BUFFER);
        assert_eq!(buffer.input_append_buf().len(), BUFFER);
        buffer.input_appended(100);
        buffer.input_consume(100);
        assert_eq!(buffer.input_append_buf().len(), 1000);
    }
}
