//! The response to one request: a body of known size, or a stream of server-sent events, with one system call for each
//! chunk.
//!
//! ```text
//!   undecided ─┬─ a body of known size ──────────────────────────────────────▶ over
//!              └─ an event, or 15 s of silence ─▶ streaming ─▶ its end, a cut ─▶ over
//! ```
//! Heads are written here, because tiny_http's date panics before 1970, it writes no `Connection`, and it writes a length
//! even for a stream. In scope: what the client accepts, the framing of bodies, events and chunks, keep-alives,
//! detecting a disconnect. Not in scope: the content of events.

use std::io::{self, BufRead, ErrorKind, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use tiny_http::{HTTPVersion, Method, StatusCode};

use super::registry::{ConnectionPhase, Slot};
use super::request::{Framing, Head, is_token};
use super::socket::{self, Connection};
use crate::config::SSE_COMMENT;
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
    /// Reads the values of `Accept`. Without any, everything is accepted.
    pub(crate) fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Accepts {
        let is_any = values.clone().all(|value| value.trim().is_empty());
        let accepts = |types: [&str; 3]| is_any || names(values.clone(), &types);
        Accepts {
            json: accepts(["application/json", "application/*", "*/*"]),
            events: accepts(["text/event-stream", "text/*", "*/*"]),
        }
    }
}

/// Whether values of `Accept` name one of these types, and give it weight.
pub(crate) fn names<'v>(mut values: impl Iterator<Item = &'v str>, types: &[&str]) -> bool {
    let is_weightless = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or_default();
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0_f32)
    };
    let is_one = |media: &str| {
        let mut parts = media.split(';');
        let name = parts.next().unwrap_or_default().trim();
        types.iter().any(|one| one.eq_ignore_ascii_case(name)) && !parts.any(is_weightless)
    };
    values.any(|value| value.split(',').any(is_one))
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
    accepts: Accepts,
    /// Headers that are sent whatever the response becomes.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Counts its status.
    pub(crate) count: fn(u16),
    /// When something was written last; at first, when it was made.
    last: Instant,
}

impl Responder {
    /// The undecided response to this request. An unread body is skipped if it is buffered, but not waited for.
    pub(super) fn new(connection: &mut Connection, head: &Head) -> Responder {
        if let Framing::Length(length) = connection.body
            && length <= connection.unread().len() as u64
        {
            connection.consume(length as usize);
            connection.body = Framing::None;
        }
        let slot = Arc::clone(&connection.slot);
        slot.shift(ConnectionPhase::Request, ConnectionPhase::Response);
        Responder {
            slot,
            version: head.version.clone(),
            head_only: head.method == Method::Head,
            close: connection.body != Framing::None || !head.keep_alive,
            has_unread: connection.has_unread(),
            state: ResponderState::Undecided,
            accepts: head.accepts,
            headers: Vec::new(),
            count: |_| {},
            last: Instant::now(),
        }
    }

    /// Whether the client has disconnected, a write failed, or the response is over. Takes about 2 µs and never blocks. A
    /// client that has already sent its next request counts as connected, unless the connection closes after this one.
    pub(crate) fn is_gone(&mut self) -> bool {
        if self.state != ResponderState::Over
            && (self.slot.phase() != ConnectionPhase::Response
                || ((self.close || !self.has_unread)
                    && socket::gone(&self.slot.socket, self.close)))
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
        if self.write_head(status, headers, Some(body)).is_ok() {
            self.complete();
        }
    }

    /// Ends with a result, in parts: the last event of a stream, or JSON, or a stream of this event alone if the client
    /// accepts only streams. An error status is JSON unless there is a stream already.
    pub(crate) fn answer(&mut self, status: u16, body: &[&[u8]]) {
        if self.state == ResponderState::Undecided && (self.accepts.json || status != 200) {
            self.respond(status, &[JSON], body);
        } else if self.event(body).is_ok() {
            self.end();
        }
    }

    /// Begins a stream, if the client accepts one, and sends its head at once. False if there is none.
    pub(crate) fn stream(&mut self) -> bool {
        if self.accepts.events && self.state == ResponderState::Undecided {
            // An HTTP/1.0 client sees the end of a stream by the end of the connection.
            self.close |= self.version != (1, 1) || self.slot.registry.draining();
            self.state = ResponderState::Streaming;
            // A stream that fails is gone.
            let _ = self.write_head(200, &STREAM, None);
        }
        self.state == ResponderState::Streaming
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
        let head = head(&self.version, status, headers, length, self.close)?;
        // RFC 9110, 6.4.1.
        let bodiless = self.head_only || matches!(status, 204 | 304);
        let body = body.filter(|_| !bodiless).unwrap_or_default();
        self.write(&[&[&head[..]], body].concat())
    }

    /// Writes these parts. If that fails, the response is over, because some of them may have been sent.
    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let written = self.slot.write(parts);
        self.last = Instant::now();
        written.inspect_err(|_| self.abort())
    }

    /// Writes one event of the default type, `message`. `data`, in parts, has no line breaks.
    ///
    /// # Errors
    /// There is no stream, because the client accepts only JSON, has disconnected, or has not read for `write_timeout`.
    pub(crate) fn event(&mut self, data: &[&[u8]]) -> io::Result<()> {
        self.events(&[data.to_vec()])
    }

    /// Writes several such events in one chunk.
    ///
    /// # Errors
    /// The errors of [`Responder::event`].
    pub(crate) fn events(&mut self, events: &[Vec<&[u8]>]) -> io::Result<()> {
        let mut parts: Vec<&[u8]> = Vec::with_capacity(5 * events.len());
        for data in events {
            parts.push(b"data: ");
            parts.extend(data);
            parts.push(b"\n\n");
        }
        self.send(&parts)
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
        if self.version != (1, 1) {
            return self.write(events);
        }
        let size: usize = events.iter().map(|part| part.len()).sum();
        let begin = format!("{size:x}\r\n");
        self.write(&[&[begin.as_bytes()], events, &[b"\r\n"]].concat())
    }

    /// Completes the stream, begun now if the client accepts one. False if it accepts none, so that a body is due.
    pub(crate) fn end(&mut self) -> bool {
        let is_stream = self.stream();
        if is_stream {
            let last = ["", "0\r\n\r\n"][usize::from(self.version == (1, 1))];
            if self.write(&[last.as_bytes()]).is_ok() {
                self.complete();
            }
        }
        is_stream || self.state == ResponderState::Over
    }

    fn complete(&mut self) {
        let next = (!self.close).then_some(ConnectionPhase::Idle);
        self.over(next, Shutdown::Write);
    }

    fn abort(&mut self) {
        self.over(None, Shutdown::Both);
    }

    /// Ends the response. If nothing follows, this gives back the connection's place, whatever its thread goes on with.
    fn over(&mut self, next: Option<ConnectionPhase>, how: Shutdown) {
        self.state = ResponderState::Over;
        self.slot.end_response(next, how);
        if !self.has_unread && self.slot.phase() == ConnectionPhase::Over {
            self.slot.registry.remove(&self.slot);
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
    version: &HTTPVersion,
    status: u16,
    headers: impl Iterator<Item = (&'h str, &'h str)>,
    length: Option<usize>,
    close: bool,
) -> io::Result<Vec<u8>> {
    let (reason, date) = (StatusCode(status).default_reason_phrase(), http_now());
    let server = env!("CARGO_PKG_NAME");
    let mut into = Vec::with_capacity(HEAD);
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
    Ok(into)
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
            (&["application/json;q=0, text/event-stream"], false, true),
            (&["*/*;q=0"], false, false),
        ] {
            let found = Accepts::of(values.iter().copied());
            assert_eq!(found, Accepts { json, events }, "{values:?}");
        }
    }

    #[test]
    fn a_type_counts_by_its_name_and_its_weight() {
        let good = " text/html |Text/HTML;level=1|text/html; q=0.1|text/html;q=x";
        let bad = "text/html; Q = 0.000|text/html;q=0|text/*|*/*|text/htmlx|;q=1|";
        for (all, expected) in [(good, true), (bad, false)] {
            for media in all.split('|') {
                let accept = format!("a/b;q=0,{media}");
                let found = names([&*accept].into_iter(), &["text/html"]);
                assert_eq!(found, expected, "{media}");
            }
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
        let headers = headers.iter().copied();
        let head = super::head(&version, status, headers, length, close);
        let text = String::from_utf8(head.unwrap()).unwrap();
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
