//! Reads request bodies, by Content-Length or in chunks, into a `Vec` that grows with what arrives.
//!
//! In scope: limits on size, time and the memory of all bodies. Not in scope: what the body means.

use std::io::{self, BufRead, Read};
use std::time::Instant;

use super::Exchange;
use super::request::{Framing, Rejection};
use super::socket::Connection;
use crate::account::{Account, QuotaExceeded, Reservation, Resource};
use crate::config::{MAX_HEAD, MAX_MESSAGE};

/// Longest chunk-size line, including extensions, in bytes.
const HTTP_MAX_CHUNK_LINE: u64 = 1 << 10;

/// Initial size of a body's buffer, in bytes; it doubles as data arrives.
const FIRST_STEP: usize = 64 << 10;

// An error says this.
const _: () = assert!(MAX_MESSAGE == 8_388_608);

const TOO_LARGE: Rejection = Rejection(
    413,
    "The body of the request is too large. At most 8388608 bytes are accepted.",
);
const INCOMPLETE: Rejection = Rejection(408, "The body of the request did not arrive in time.");
const MALFORMED: Rejection = Rejection(400, "The body of the request is not properly chunked.");
const NO_MEMORY: Rejection = Rejection(
    503,
    "The memory of this server (--max-memory) has no room for this body. Try again in a moment.",
);

impl From<io::Error> for Rejection {
    fn from(_: io::Error) -> Rejection {
        INCOMPLETE
    }
}

/// A body, and the memory that it holds.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    memory: Reservation,
}

impl Exchange<'_> {
    /// Reads the whole body, within its limits of size and time, and whose memory `account` pays. Sends `100 Continue` only
    /// here, so that a client whose request is rejected need not send its body, and not if the body is too large. A second
    /// call returns an empty body. After an error the connection closes with the response, unless all of the body has come
    /// already.
    pub(crate) fn read_body(&mut self, account: &Account) -> Result<Body, Rejection> {
        let connection = &mut *self.connection;
        let framing = connection.body;
        if matches!(framing, Framing::Length(length) if length > MAX_MESSAGE as u64) {
            return Err(TOO_LARGE);
        }
        let has_body = framing != Framing::None;
        if self.head.expects_continue && has_body && connection.unread().is_empty() {
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            connection.slot.write(&[interim])?;
        }
        connection.deadline = Instant::now() + connection.limits().body_timeout;
        let mut body = Body {
            bytes: Vec::new(),
            memory: account.open(Resource::Memory),
        };
        match framing {
            Framing::None => {}
            Framing::Length(length) => append(connection, &mut body, length as usize)?,
            Framing::Chunked => read_chunks(connection, &mut body)?,
        }
        connection.body = Framing::None;
        Ok(body)
    }
}

/// Appends exactly `left` bytes. Allocates for received bytes, not for the announced length.
fn append(connection: &mut Connection, body: &mut Body, mut left: usize) -> Result<(), Rejection> {
    while left > 0 {
        let step = left.min(body.bytes.len().max(FIRST_STEP));
        body.memory.grow(step).map_err(|QuotaExceeded| NO_MEMORY)?;
        body.bytes.try_reserve(step).map_err(|_| NO_MEMORY)?;
        let mut input = connection.take(step as u64);
        if input.read_to_end(&mut body.bytes)? < step {
            return Err(INCOMPLETE);
        }
        left -= step;
    }
    Ok(())
}

fn read_chunks(connection: &mut Connection, body: &mut Body) -> Result<(), Rejection> {
    loop {
        let size = chunk_size(&line(connection)?)?;
        if size == 0 {
            break;
        }
        if size > (MAX_MESSAGE - body.bytes.len()) as u64 {
            return Err(TOO_LARGE);
        }
        append(connection, body, size as usize)?;
        if !line(connection)?.is_empty() {
            return Err(MALFORMED);
        }
    }
    // Trailers are ignored, but count against the limit for heads.
    let mut trailers = 0;
    while trailers <= MAX_HEAD {
        match line(connection)?.len() {
            0 => return Ok(()),
            length => trailers += length + 2,
        }
    }
    Err(TOO_LARGE)
}

/// Reads a line, without its CR LF.
fn line(connection: &mut Connection) -> Result<Vec<u8>, Rejection> {
    let mut line = Vec::new();
    let mut input = connection.take(HTTP_MAX_CHUNK_LINE);
    input.read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(text) if !text.contains(&b'\r') => Ok(text.to_vec()),
        None if input.limit() > 0 && !line.ends_with(b"\n") => Err(INCOMPLETE),
        _ => Err(MALFORMED),
    }
}

/// The hexadecimal size of a chunk; extensions after `;` are ignored.
fn chunk_size(line: &[u8]) -> Result<u64, Rejection> {
    let text = std::str::from_utf8(line).map_err(|_| MALFORMED)?;
    let digits = text.split(';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(MALFORMED);
    }
    // An overflow exceeds every limit.
    Ok(u64::from_str_radix(digits, 16).unwrap_or(u64::MAX))
}
