//! Reads request bodies, by Content-Length or in chunks, into a `Vec` that grows with what arrives.
//!
//! In scope: limits on size, time and the memory of all bodies. Not in scope: what the body means.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::Deref;
use std::time::Instant;

use super::request::{Framing, Rejection};
use super::socket::Connection;
use crate::account::{Account, Full, Guard, Resource};
use crate::config::{MAX_HEAD, MAX_MESSAGE};

/// Longest chunk-size line, including extensions, in bytes.
const HTTP_MAX_CHUNK_LINE: usize = 1 << 10;

/// Initial size of a body's buffer, in bytes; it doubles as data arrives.
const FIRST_STEP: usize = 64 << 10;

const TOO_LARGE: Rejection = Rejection(413, "The body of the request is too large.");
const TOO_LATE: Rejection = Rejection(408, "The body of the request did not arrive in time.");
const MALFORMED: Rejection = Rejection(400, "The body of the request is not properly chunked.");
const NO_MEMORY: Rejection = Rejection(
    503,
    "The server holds too many large requests at once. Try again in a moment.",
);
/// Nobody reads it.
const DISCONNECTED: Rejection =
    Rejection(400, "The connection ended before the body of the request.");

impl From<io::Error> for Rejection {
    fn from(error: io::Error) -> Rejection {
        if error.kind() == ErrorKind::TimedOut {
            TOO_LATE
        } else {
            DISCONNECTED
        }
    }
}

/// A body, and what it holds of memory.
pub(crate) struct Body {
    bytes: Vec<u8>,
    memory: Guard,
}

impl Body {
    fn new(account: &Account) -> Body {
        Body {
            bytes: Vec::new(),
            memory: account.open(Resource::Memory),
        }
    }

    fn reserve(&mut self, more: usize) -> Result<(), Rejection> {
        self.memory.grow(more).map_err(|Full| NO_MEMORY)?;
        self.bytes.try_reserve(more).map_err(|_| NO_MEMORY)
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the whole body, whose memory `account` pays. With `expects_continue`, sends `100 Continue` first, unless the body is too large.
pub(super) fn read_body(
    connection: &mut Connection,
    account: &Account,
    expects_continue: bool,
) -> Result<Body, Rejection> {
    let promised = match connection.body {
        Framing::None => return Ok(Body::new(account)),
        Framing::Length(length) => length,
        Framing::Chunked => 0,
    };
    if promised > MAX_MESSAGE as u64 {
        return Err(TOO_LARGE);
    }
    if expects_continue && connection.unread().is_empty() {
        connection
            .slot()
            .write(&mut [IoSlice::new(b"HTTP/1.1 100 Continue\r\n\r\n")])?;
    }
    let deadline = Instant::now() + connection.limits().body_timeout;
    let mut body = Body::new(account);
    if connection.body == Framing::Chunked {
        read_chunks(connection, &mut body, deadline)?;
    } else {
        append(connection, &mut body, promised as usize, deadline)?;
    }
    Ok(body)
}

/// Appends exactly `count` bytes. Allocates for received bytes, not for the announced length.
fn append(
    connection: &mut Connection,
    body: &mut Body,
    count: usize,
    deadline: Instant,
) -> Result<(), Rejection> {
    let ready = connection.unread().len().min(count);
    body.reserve(ready)?;
    body.bytes.extend_from_slice(&connection.unread()[..ready]);
    connection.consume(ready);
    let end = body.len() + count - ready;
    while body.len() < end {
        let mut filled = body.len();
        let step = (end - filled).min(filled.max(FIRST_STEP));
        body.reserve(step)?;
        body.bytes.resize(filled + step, 0);
        while filled < body.len() {
            match connection.read_past(&mut body.bytes[filled..], deadline)? {
                0 => return Err(DISCONNECTED),
                read => filled += read,
            }
        }
    }
    Ok(())
}

fn read_chunks(
    connection: &mut Connection,
    body: &mut Body,
    deadline: Instant,
) -> Result<(), Rejection> {
    loop {
        let line = line(connection, deadline)?;
        let size = chunk_size(&connection.unread()[..line])?;
        connection.consume(line + 2);
        if size == 0 {
            break;
        }
        if size > (MAX_MESSAGE - body.len()) as u64 {
            return Err(TOO_LARGE);
        }
        append(connection, body, size as usize, deadline)?;
        if self::line(connection, deadline)? != 0 {
            return Err(MALFORMED);
        }
        connection.consume(2);
    }
    // Trailers are ignored, but count against the limit for heads.
    let mut trailers = 0;
    loop {
        let line = line(connection, deadline)?;
        connection.consume(line + 2);
        trailers += line + 2;
        if line == 0 {
            return Ok(());
        }
        if trailers > MAX_HEAD {
            return Err(TOO_LARGE);
        }
    }
}

/// Reads until a whole line is buffered; returns its length without CR LF.
fn line(connection: &mut Connection, deadline: Instant) -> Result<usize, Rejection> {
    loop {
        let unread = connection.unread();
        let searched = &unread[..unread.len().min(HTTP_MAX_CHUNK_LINE)];
        if let Some(end) = searched.iter().position(|&b| b == b'\n') {
            let line = searched[..end].strip_suffix(b"\r").ok_or(MALFORMED)?;
            return if line.contains(&b'\r') {
                Err(MALFORMED)
            } else {
                Ok(line.len())
            };
        }
        if searched.len() == HTTP_MAX_CHUNK_LINE {
            return Err(MALFORMED);
        }
        if connection.fill(deadline)? == 0 {
            return Err(DISCONNECTED);
        }
    }
}

/// The hexadecimal size of a chunk; extensions after `;` are ignored.
fn chunk_size(line: &[u8]) -> Result<u64, Rejection> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(MALFORMED);
    }
    let text = std::str::from_utf8(digits).map_err(|_| MALFORMED)?;
    // An overflow exceeds every limit.
    Ok(u64::from_str_radix(text, 16).unwrap_or(u64::MAX))
}
