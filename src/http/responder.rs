//! The response to one request: a body of known size, or a stream of server-sent events, with one system call for each
//! chunk.
//!
//! ```text
//!   undecided ─┬─ a body of known size ──────────────────────────────────────▶ over
//!              └─ an event, or 15 s of silence ─▶ streaming ─▶ its end, a cut ─▶ over
//! ```
//! Heads are written here: tiny_http would write them with a date that panics before 1970, without `Connection`, and with a
//! length where there is no body to count. In scope: what the client accepts, the framing of bodies, events and chunks, keep-alives, detecting a disconnect. Not in
//! scope: the content of events.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::sync::Arc;
use std::time::Instant;

use tiny_http::{HTTPVersion, StatusCode};

use super::registry::{ConnectionPhase, Slot};
use super::request::is_token;
use super::socket;
use crate::config::SSE_COMMENT;
use crate::logging;
use crate::time::http_now;

/// The header of a JSON body.
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
/// The headers of a stream: no proxy may cache or buffer it.
const STREAM: [(&str, &str); 3] = [
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-cache"),
    ("X-Accel-Buffering", "no"),
];
/// Room for the head of most responses, in bytes.
const HEAD: usize = 256;

/// The media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// `application/json`.
    pub(crate) json: bool,
    /// `text/event-stream`.
    pub(crate) events: bool,
}

impl Accepts {
    /// Reads the values of `Accept`. Without any, everything is accepted. Weights are ignored: what MCP's clients name, they
    /// accept.
    pub(crate) fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Accepts {
        let media = values.flat_map(|value| value.split([',', ';']));
        let media = media.map(str::trim).filter(|media| !media.is_empty());
        let accepts = |types: [&str; 3]| {
            let is_one = |media: &str| types.iter().any(|known| known.eq_ignore_ascii_case(media));
            media.clone().next().is_none() || media.clone().any(is_one)
        };
        Accepts {
            json: accepts(["application/json", "application/*", "*/*"]),
            events: accepts(["text/event-stream", "text/*", "*/*"]),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResponderState {
    Undecided,
    Streaming,
    Over,
}

/// A pending response. It may be handed to another thread, but the handler must not return before the response is over.
/// If it is dropped too early, or the handler returns too early, the connection is aborted, so that the client can tell
/// a broken stream from a complete one.
///
/// A response that ends its connection, by `Connection: close` or because it failed, gives back the connection's place at
/// once, if the request was read completely. The handler may go on with something else on its thread: what limits that is
/// not here.
pub(crate) struct Responder {
    slot: Arc<Slot>,
    version: HTTPVersion,
    /// For HEAD, whose response has no body. Streams are not for HEAD.
    head_only: bool,
    /// The connection closes after it, and it says so.
    pub(crate) close: bool,
    /// The connection has bytes that nobody has read: a peek cannot detect a disconnect, and closing has to linger.
    has_unread: bool,
    state: ResponderState,
    /// What the client accepts. Without events, nothing is sent before a body.
    pub(crate) accepts: Accepts,
    /// Headers of whatever it becomes.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Counts its status.
    pub(crate) count: fn(u16),
    /// For its head and the frames of its chunks.
    buffer: Vec<u8>,
    /// When something was written last; at first, when it was made.
    last: Instant,
}

impl Responder {
    /// The undecided response to a request on `slot`.
    pub(super) fn new(
        slot: Arc<Slot>,
        version: HTTPVersion,
        head_only: bool,
        close: bool,
        has_unread: bool,
    ) -> Responder {
        slot.shift(ConnectionPhase::Request, ConnectionPhase::Response);
        Responder {
            slot,
            version,
            head_only,
            close,
            has_unread,
            state: ResponderState::Undecided,
            accepts: Accepts {
                json: true,
                events: true,
            },
            headers: Vec::new(),
            count: |_| {},
            buffer: Vec::with_capacity(HEAD),
            last: Instant::now(),
        }
    }

    /// Whether the client has disconnected, a write failed, or the response is over. Takes about 2 µs and never blocks. A
    /// client that has already sent its next request counts as connected.
    pub(crate) fn is_gone(&mut self) -> bool {
        if self.state != ResponderState::Over
            && (self.slot.phase() != ConnectionPhase::Response
                || (!self.has_unread && socket::gone(&self.slot.socket)))
        {
            self.abort();
        }
        self.state == ResponderState::Over
    }

    /// Answers with a body of known size, in parts. Adds the headers for framing; omits headers that are not visible
    /// ASCII. If the client has disconnected or does not read for `write_timeout`, the connection ends.
    pub(crate) fn respond(&mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        if self.state != ResponderState::Undecided {
            return;
        }
        self.close |= self.slot.registry.draining();
        match self.write_head(status, headers, Some(body)) {
            Ok(()) => self.complete(),
            Err(e) => {
                let message = format!("{}: the answer could not be sent: {e}", self.slot.peer);
                logging::debug(module_path!(), message);
                self.abort();
            }
        }
    }

    /// Ends with a result, in parts: the last event of a stream, or JSON, or a stream of this event alone if the client
    /// accepts only streams. An error status is JSON unless there is a stream already. `headers` are more headers, for
    /// a response that is not a stream yet.
    pub(crate) fn answer(&mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        if self.state == ResponderState::Undecided && (self.accepts.json || status != 200) {
            self.respond(status, &[headers, &[JSON]].concat(), body);
        } else {
            self.open(&[headers, &STREAM].concat());
            if self.event(body).is_ok() {
                self.end();
            }
        }
    }

    /// Begins a stream, if the client accepts one. False if there is none.
    pub(crate) fn stream(&mut self) -> bool {
        if self.accepts.events {
            self.open(&STREAM);
        }
        self.state == ResponderState::Streaming
    }

    /// Begins a stream with these headers, which must name the `Content-Type`, and sends its head at once.
    pub(crate) fn open(&mut self, headers: &[(&str, &str)]) {
        if self.state != ResponderState::Undecided {
            return;
        }
        // An HTTP/1.0 client sees the end of a stream by the end of the connection.
        self.close |= self.version != (1, 1) || self.slot.registry.draining();
        self.state = ResponderState::Streaming;
        if self.write_head(200, headers, None).is_err() {
            self.abort();
        }
    }

    /// Writes the head, and the body if it is known.
    fn write_head(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: Option<&[&[u8]]>,
    ) -> io::Result<()> {
        (self.count)(status);
        let own = self.headers.iter().map(|(name, value)| (*name, &**value));
        let headers = headers.iter().copied().chain(own);
        let length = body.map(|parts| parts.iter().map(|part| part.len()).sum());
        let (version, close) = (&self.version, self.close);
        head(&mut self.buffer, version, status, headers, length, close)?;
        // RFC 9110, 6.4.1.
        let bodiless = self.head_only || matches!(status, 204 | 304);
        let body = body.filter(|_| !bodiless).unwrap_or_default();
        let all = [self.buffer.as_slice()];
        let all = all.iter().chain(body).map(|part| IoSlice::new(part));
        self.slot.write(&mut all.collect::<Vec<_>>())
    }

    /// Writes one event of the default type, `message`. `data`, in parts, has no line breaks.
    ///
    /// # Errors
    /// There is no stream, because the client accepts only JSON, has disconnected, or has not read for `write_timeout`.
    pub(crate) fn event(&mut self, data: &[&[u8]]) -> io::Result<()> {
        debug_assert!(!data.iter().any(|part| part.contains(&b'\n')));
        let (begin, end): (&[u8], &[u8]) = (b"data: ", b"\n\n");
        self.send(&[&[begin], data, &[end]].concat())
    }

    /// Writes a comment, which clients ignore, if nothing was written for [`SSE_COMMENT`].
    pub(crate) fn keep_alive(&mut self) {
        if self.last.elapsed() >= SSE_COMMENT {
            // A stream that fails is gone.
            let _ = self.send(&[b":\n\n"]);
        }
    }

    /// Writes one chunk of whole events, in parts, without copying them. HTTP/1.0 gets plain bytes until the connection
    /// closes.
    ///
    /// # Errors
    /// The errors of [`Responder::event`].
    pub(crate) fn send(&mut self, events: &[&[u8]]) -> io::Result<()> {
        if !self.stream() {
            return Err(ErrorKind::NotConnected.into());
        }
        self.buffer.clear();
        let mut end: &[u8] = b"";
        if self.version == (1, 1) {
            let size: usize = events.iter().map(|part| part.len()).sum();
            write!(self.buffer, "{size:x}\r\n")?;
            end = b"\r\n";
        }
        let all = [self.buffer.as_slice()];
        let all = all.iter().chain(events).chain([&end]);
        let mut all: Vec<_> = all.map(|part| IoSlice::new(part)).collect();
        let written = self.slot.write(&mut all);
        self.last = Instant::now();
        if written.is_err() {
            self.abort();
        }
        written
    }

    /// Completes the stream, begun now if the client accepts one. False if it accepts none, so that a body is due.
    pub(crate) fn end(&mut self) -> bool {
        let is_stream = self.stream();
        if is_stream {
            let last: &[u8] = match self.version == (1, 1) {
                true => b"0\r\n\r\n",
                false => b"",
            };
            match self.slot.write(&mut [IoSlice::new(last)]) {
                Ok(()) => self.complete(),
                Err(_) => self.abort(),
            }
        }
        is_stream || self.state == ResponderState::Over
    }

    fn complete(&mut self) {
        self.slot.complete(self.close);
        self.over();
    }

    fn abort(&mut self) {
        self.slot.abort();
        self.over();
    }

    fn over(&mut self) {
        self.state = ResponderState::Over;
        if !self.has_unread {
            self.slot.release();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.state != ResponderState::Over {
            self.abort();
        }
    }
}

/// Writes the head of a response with a body of `length`, or of a stream: chunked on HTTP/1.1, until the connection
/// closes on HTTP/1.0. With `close`, the connection closes after the response. Headers that would not be one line of
/// visible ASCII are left out.
fn head<'h>(
    into: &mut Vec<u8>,
    version: &HTTPVersion,
    status: u16,
    headers: impl Iterator<Item = (&'h str, &'h str)>,
    length: Option<usize>,
    close: bool,
) -> io::Result<()> {
    let (reason, date) = (StatusCode(status).default_reason_phrase(), http_now());
    let server = env!("CARGO_PKG_NAME");
    into.clear();
    write!(
        into,
        "HTTP/{version} {status} {reason}\r\nDate: {date}\r\nServer: {server}\r\n"
    )?;
    for (name, value) in headers {
        if name.bytes().all(is_token) && value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            write!(into, "{name}: {value}\r\n")?;
        } else {
            log::error!("left out the response header {name:?}: not visible ASCII");
        }
    }
    match length {
        // RFC 9110, 8.6.
        Some(_) if status == 204 => {}
        Some(length) => write!(into, "Content-Length: {length}\r\n")?,
        None if *version == (1, 1) => into.extend(b"Transfer-Encoding: chunked\r\n"),
        None => {}
    }
    // Headers that say only what is the default of the client's HTTP version are left out.
    match (close, *version == (1, 1)) {
        (false, false) => into.extend(b"Connection: keep-alive\r\n"),
        (true, true) => into.extend(b"Connection: close\r\n"),
        (false, true) | (true, false) => {}
    }
    into.extend(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_read_leniently() {
        for (values, json, events) in [
            (&[][..], true, true),
            (&[""], true, true),
            (&["*/*"], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "text/event-stream"], true, true),
            (&["application/json"], true, false),
            (&["TEXT/Event-Stream;charset=utf-8"], false, true),
            (&["application/*;q=0.5,text/html"], true, false),
            (&["text/html"], false, false),
        ] {
            let found = Accepts::of(values.iter().copied());
            assert_eq!(found, Accepts { json, events }, "{values:?}");
        }
    }

    /// The head without its date.
    fn written(
        version: HTTPVersion,
        status: u16,
        headers: &[(&str, &str)],
        length: Option<usize>,
        close: bool,
    ) -> String {
        let mut head = Vec::new();
        super::head(
            &mut head,
            &version,
            status,
            headers.iter().copied(),
            length,
            close,
        )
        .unwrap();
        let text = String::from_utf8(head).unwrap();
        let lines = text.split_inclusive("\r\n");
        let (dates, others): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("Date: "));
        assert_eq!(dates.len(), 1);
        others.concat()
    }

    const V1_1: HTTPVersion = HTTPVersion(1, 1);
    const V1_0: HTTPVersion = HTTPVersion(1, 0);

    #[test]
    fn heads_are_exactly_these_bytes() {
        let plain = [("Content-Type", "application/json")];
        let expected = "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n";
        assert_eq!(written(V1_1, 200, &plain, Some(1 << 20), false), expected);
        let expected = "HTTP/1.0 404 Not Found\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Connection: keep-alive\r\n\r\n";
        assert_eq!(written(V1_0, 404, &plain, Some(2), false), expected);
        let expected = "HTTP/1.1 204 No Content\r\nServer: fabric-mcp\r\nConnection: close\r\n\r\n";
        assert_eq!(written(V1_1, 204, &[], Some(0), true), expected);
        let events = [("Content-Type", "text/event-stream")];
        let expected = "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n";
        assert_eq!(written(V1_1, 200, &events, None, true), expected);
        let expected =
            "HTTP/1.0 200 OK\r\nServer: fabric-mcp\r\nContent-Type: text/event-stream\r\n\r\n";
        assert_eq!(written(V1_0, 200, &events, None, true), expected);
    }

    #[test]
    fn line_breaks_in_a_header_do_not_reach_the_wire() {
        let evil = [
            ("X-Evil", "a\r\nSet-Cookie: b"),
            ("X Evil", "a"),
            ("X-Umlaut", "ä"),
            ("X-Good", "yes"),
        ];
        let expected =
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(written(V1_1, 200, &evil, Some(0), false), expected);
    }
}
