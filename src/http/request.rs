//! Strict parsing of request heads.
//!
//! In scope: RFC 9112's request line and header lines, and their meaning for framing and keep-alive. Anything ambiguous
//! is rejected, because it allows request smuggling. Not in scope: the body (`body`).

use std::io::{BufRead, ErrorKind};
use std::ops::Range;
use std::time::Instant;

use tiny_http::{HTTPVersion, Method};

use super::registry::ConnectionPhase;
use super::responder::Accepts;
use super::socket::{Connection, FIRST_BUFFER};
use crate::config::{MAX_HEAD, MAX_HEADERS};
use crate::url::split;

/// Most empty lines before a request; some clients send one after a body (RFC 9112, 2.2).
const MAX_EMPTY_LINES: usize = 2;

/// Stands for a byte beyond ASCII. A peer cannot send this character itself.
const OPAQUE: u8 = b'\x7f';

/// Head buffer that an idle connection keeps, in bytes.
const MAX_IDLE_TEXT: usize = 4 << 10;

/// A rejected request: status and text of the response, after which the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection(pub(crate) u16, pub(crate) &'static str);

const BAD_REQUEST_LINE: Rejection =
    Rejection(400, "The request line is not `METHOD /path HTTP/1.1`.");
const BAD_HEADER: Rejection = Rejection(400, "A header line is not `Name: value`.");

fn bad<T>(text: &'static str) -> Result<T, Rejection> {
    Err(Rejection(400, text))
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// No body, or already read.
    None,
    /// Content-Length.
    Length(u64),
    /// Chunked.
    Chunked,
}

/// The head of one request. Header names compare case-insensitively; values have no surrounding space. Bytes of a value
/// beyond ASCII are opaque (RFC 9110, 5.5), as proxies add them: each is DEL here, so that it equals nothing.
pub(crate) struct Head {
    /// The head as received; the ranges below point into it, so that a request needs no allocation.
    text: String,
    /// The method, in upper case.
    pub(crate) method: Method,
    /// 1.1 or 1.0.
    pub(super) version: HTTPVersion,
    target: Range<usize>,
    headers: Vec<(Range<usize>, Range<usize>)>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// Whether the client wants to reuse the connection.
    pub(super) keep_alive: bool,
    /// What the client accepts as an answer.
    pub(crate) accepts: Accepts,
}

impl Head {
    /// An empty head; reused for every request of a connection.
    pub(super) fn empty() -> Head {
        Head {
            text: String::new(),
            method: Method::Get,
            version: HTTPVersion(1, 1),
            target: 0..0,
            headers: Vec::new(),
            expects_continue: false,
            keep_alive: false,
            accepts: Accepts::of([].into_iter()),
        }
    }

    /// The path as received, percent-encoded, beginning with `/`; or `*`.
    pub(crate) fn path(&self) -> &str {
        let (_, local) = parts(&self.text[self.target.clone()]);
        local.split('?').next().unwrap_or_default()
    }

    /// The first value of `name` in the query, percent-encoded.
    pub(crate) fn query_value(&self, name: &str) -> Option<&str> {
        let (_, query) = self.text[self.target.clone()].split_once('?')?;
        let mut pairs = query.split('&');
        pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// The first header with this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers_named(name).next()
    }

    /// All headers with this name, in order.
    pub(crate) fn headers_named(&self, name: &str) -> impl Iterator<Item = &str> + Clone {
        // Most names differ in length, and a request has its headers looked through some 20 times.
        let is_named = move |field: &Range<usize>| {
            let length = field.end - field.start;
            length == name.len() && self.text[field.clone()].eq_ignore_ascii_case(name)
        };
        let headers = self.headers.iter();
        let named = headers.filter(move |(field, _)| is_named(field));
        named.map(|(_, value)| &self.text[value.clone()])
    }

    /// `host` or `host:port`: the authority of an absolute target, else the Host header. Only HTTP/1.0 requests may
    /// have none.
    pub(crate) fn host(&self) -> Option<&str> {
        let (authority, _) = parts(&self.text[self.target.clone()]);
        authority.or_else(|| self.header("host"))
    }

    /// Clears the previous request and partial input.
    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(MAX_IDLE_TEXT);
        self.headers.clear();
    }

    /// Parses complete lines starting at `scanned`, the start of the first incomplete line. After the empty line, returns
    /// how the body is framed. A bad line is rejected at once, because its sender may wait for an answer.
    fn read_lines(
        &mut self,
        bytes: &[u8],
        scanned: &mut usize,
    ) -> Result<Option<Framing>, Rejection> {
        while let Some(length) = bytes[*scanned..].iter().position(|&b| b == b'\n') {
            let start = *scanned;
            let Some((b'\r', line)) = bytes[start..start + length].split_last() else {
                return bad("Lines of a request's head end in CR LF.");
            };
            *scanned += length + 1;
            if start == 0 {
                self.request_line(line)?;
            } else if line.is_empty() {
                let mut text = std::mem::take(&mut self.text).into_bytes();
                text.extend(&bytes[..*scanned]);
                let opaque = text.iter_mut().filter(|byte| !byte.is_ascii());
                opaque.for_each(|byte| *byte = OPAQUE);
                self.text = String::from_utf8(text).unwrap_or_default();
                return self.interpret().map(Some);
            } else if self.headers.len() == MAX_HEADERS {
                return Err(Rejection(431, "The request has too many headers."));
            } else {
                self.headers.push(header_line(line, start)?);
            }
        }
        Ok(None)
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Rejection> {
        let line = std::str::from_utf8(line).map_err(|_| BAD_REQUEST_LINE)?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BAD_REQUEST_LINE);
        };
        self.version = match version.strip_prefix("HTTP/").map(str::as_bytes) {
            Some(b"1.1") => HTTPVersion(1, 1),
            Some(b"1.0") => HTTPVersion(1, 0),
            Some([b'0'..=b'9', b'.', b'0'..=b'9']) => {
                return Err(Rejection(505, "This server speaks HTTP/1.1 and HTTP/1.0."));
            }
            _ => return Err(BAD_REQUEST_LINE),
        };
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
            return Err(BAD_REQUEST_LINE);
        }
        self.method = method.parse().map_err(|()| BAD_REQUEST_LINE)?;
        if !target.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
            return Err(BAD_REQUEST_LINE);
        }
        let (authority, local) = parts(target);
        let is_all = target == "*" && self.method == Method::Options;
        if authority == Some("") || !(local.starts_with('/') || is_all) {
            return Err(BAD_REQUEST_LINE);
        }
        let start = method.len() + 1;
        self.target = start..start + target.len();
        Ok(())
    }

    /// Evaluates the headers for framing, keep-alive and host.
    fn interpret(&mut self) -> Result<Framing, Rejection> {
        let modern = self.version == HTTPVersion(1, 1);
        let hosts = self.headers_named("host").count();
        if hosts > 1 || (modern && hosts == 0) {
            return bad("A request needs exactly one Host header.");
        }
        self.accepts = Accepts::of(self.headers_named("accept"));
        let wants = |wanted: &str| {
            let values = self.headers_named("connection");
            let mut options = values.flat_map(|value| value.split(','));
            options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
        };
        self.keep_alive = !wants("close") && (modern || wants("keep-alive"));
        let is_other = |value: &str| !value.eq_ignore_ascii_case("100-continue");
        if self.headers_named("expect").any(is_other) {
            let text = "The only expectation this server knows is `100-continue`.";
            return Err(Rejection(417, text));
        }
        self.expects_continue = modern && self.header("expect").is_some();
        let two = |name| {
            let mut values = self.headers_named(name);
            (values.next(), values.next())
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        Ok(match (two("content-length"), two("transfer-encoding")) {
            ((None, _), (None, _)) => Framing::None,
            ((Some(_), _), (Some(_), _)) => {
                return bad("Content-Length and Transfer-Encoding exclude each other.");
            }
            (_, (Some(coding), None)) if coding.eq_ignore_ascii_case("chunked") => {
                if !modern {
                    return bad("A request of HTTP/1.0 must not have Transfer-Encoding.");
                }
                Framing::Chunked
            }
            (_, (Some(_), _)) => {
                let text = "The only transfer coding this server reads is `chunked`.";
                return Err(Rejection(501, text));
            }
            ((Some("0"), None), _) => Framing::None,
            // An overflow exceeds every limit.
            ((Some(length), None), _) if is_number(length) => {
                Framing::Length(length.parse().unwrap_or(u64::MAX))
            }
            _ => return bad("A request must have at most one Content-Length, made of digits."),
        })
    }
}

/// The authority in a target, if there is one, and the rest.
fn parts(target: &str) -> (Option<&str>, &str) {
    // In most, which begin with a slash, nothing is looked for.
    let parted = (!target.starts_with('/')).then(|| split(target)).flatten();
    match parted {
        Some(("http" | "https", authority, local)) => (Some(authority), local),
        _ => (None, target),
    }
}

/// Reads the next head of a connection into `head`. False if there is none: the client disconnected or exceeded the
/// idle timeout, or the server shuts down.
pub(super) fn next_head(connection: &mut Connection, head: &mut Head) -> Result<bool, Rejection> {
    head.clear();
    if connection.unread().is_empty() {
        connection.free_buffer(FIRST_BUFFER);
        connection.deadline = Instant::now() + connection.limits().idle_timeout;
        if connection.slot.registry.draining() || !matches!(connection.fill(), Ok(1..)) {
            return Ok(false);
        }
    }
    let slot = &connection.slot;
    if !slot.shift(ConnectionPhase::Idle, ConnectionPhase::Request) {
        return Ok(false);
    }
    connection.deadline = Instant::now() + connection.limits().head_timeout;
    let (mut scanned, mut empty_lines) = (0, 0);
    loop {
        while scanned == 0
            && empty_lines < MAX_EMPTY_LINES
            && connection.unread().starts_with(b"\r\n")
        {
            connection.consume(2);
            empty_lines += 1;
        }
        if let Some(framing) = head.read_lines(connection.unread(), &mut scanned)? {
            connection.consume(scanned);
            connection.body = framing;
            return Ok(true);
        }
        if connection.unread().len() == MAX_HEAD {
            return Err(match scanned {
                0 => Rejection(414, "The request line is too long."),
                _ => Rejection(431, "The head of the request is too large."),
            });
        }
        match connection.fill() {
            Ok(1..) => {}
            // The deadline, or by the system the socket's timeout.
            Err(e) if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                let text = "The head of the request did not arrive in time.";
                return Err(Rejection(408, text));
            }
            _ => return Ok(false),
        }
    }
}

/// The ranges of name and value in the head; `start` is the offset of the line.
fn header_line(line: &[u8], start: usize) -> Result<(Range<usize>, Range<usize>), Rejection> {
    // Also rejects continuation lines and a space before the colon.
    let colon = line.iter().position(|&b| !is_token(b)).ok_or(BAD_HEADER)?;
    if colon == 0 || line[colon] != b':' {
        return Err(BAD_HEADER);
    }
    let value = &line[colon + 1..];
    let is_allowed = |b: &u8| matches!(b, b'\t' | b' '..=b'~' | 0x80..);
    if !value.iter().all(is_allowed) {
        return bad("The value of a header must not have control characters.");
    }
    let value_start = start + line.len() - value.trim_ascii_start().len();
    Ok((
        start..start + colon,
        value_start..value_start + value.trim_ascii().len(),
    ))
}

/// The characters of header names (RFC 9110, 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
