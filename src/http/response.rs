//! The heads of responses.
//!
//! tiny_http writes every head. It cannot write `Connection`, which is appended here. It adds `Content-Length: 0` to a
//! 204 (against RFC 9110, 8.6) and has no body without framing (HTTP/1.0 streams), so that line is removed here.
//!
//! Not in scope: bodies (`responder`).

use std::io;

use tiny_http::{HTTPVersion, Header, Response, StatusCode};

use crate::time::http_now;

use super::request::is_token;

/// The name in the `Server` header.
const SERVER: &str = env!("CARGO_PKG_NAME");

/// Removed by `head` from responses without a length.
const NO_LENGTH: &[u8] = b"Content-Length: 0\r\n";

/// Writes the head of a response with a body of `length`, or of a stream: chunked on HTTP/1.1, until the connection
/// closes on HTTP/1.0. With `close`, the connection closes after the response.
pub(super) fn head(
    into: &mut Vec<u8>,
    version: &HTTPVersion,
    status: u16,
    headers: &[(&str, &str)],
    length: Option<usize>,
    close: bool,
) -> io::Result<()> {
    let written = length.or((*version != (1, 1)).then_some(0));
    // An empty reader: `raw_print` then writes only the head, and the threshold prevents chunking of large bodies.
    let mut response = Response::new(StatusCode(status), Vec::new(), io::empty(), written, None)
        .with_chunked_threshold(usize::MAX);
    // Its own date would panic with a clock before 1970.
    let own = [("Date", &*http_now()), ("Server", SERVER)];
    for (name, value) in own.iter().chain(headers) {
        if let Some(header) = header(name, value) {
            response.add_header(header);
        }
    }
    into.clear();
    response.raw_print(&mut *into, version.clone(), &[], true, None)?;
    into.truncate(into.len() - b"\r\n".len());
    if (status == 204 || length.is_none()) && into.ends_with(NO_LENGTH) {
        into.truncate(into.len() - NO_LENGTH.len());
    }
    // What an HTTP/1.1 client takes for granted is not said, and neither to an HTTP/1.0 client.
    into.extend_from_slice(match (close, *version == (1, 1)) {
        (false, false) => b"Connection: keep-alive\r\n".as_slice(),
        (true, true) => b"Connection: close\r\n",
        (false, true) | (true, false) => b"",
    });
    into.extend_from_slice(b"\r\n");
    Ok(())
}

/// A header for tiny_http; `None` if it has line breaks, which tiny_http does not escape.
fn header(name: &str, value: &str) -> Option<Header> {
    let sound = !name.is_empty()
        && name.bytes().all(is_token)
        && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !sound {
        log::error!("left out the response header {name:?}: not visible ASCII");
        return None;
    }
    Header::from_bytes(name, value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head without its date.
    fn written(
        version: HTTPVersion,
        status: u16,
        headers: &[(&str, &str)],
        length: Option<usize>,
        close: bool,
    ) -> String {
        let mut head = Vec::new();
        super::head(&mut head, &version, status, headers, length, close).unwrap();
        let text = String::from_utf8(head).unwrap();
        let lines = text.split_inclusive("\r\n");
        let (dates, kept): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("Date: "));
        assert_eq!(dates.len(), 1);
        kept.concat()
    }

    const V1_1: HTTPVersion = HTTPVersion(1, 1);
    const V1_0: HTTPVersion = HTTPVersion(1, 0);

    #[test]
    fn heads_are_exactly_these_bytes() {
        let plain = [("Content-Type", "application/json")];
        assert_eq!(
            written(V1_1, 200, &plain, Some(1 << 20), false),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
        );
        assert_eq!(
            written(V1_0, 404, &plain, Some(2), false),
            "HTTP/1.0 404 Not Found\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Connection: keep-alive\r\n\r\n"
        );
        assert_eq!(
            written(V1_1, 204, &[], Some(0), true),
            "HTTP/1.1 204 No Content\r\nServer: fabric-mcp\r\nConnection: close\r\n\r\n"
        );
        let events = [("Content-Type", "text/event-stream")];
        assert_eq!(
            written(V1_1, 200, &events, None, true),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n"
        );
        assert_eq!(
            written(V1_0, 200, &events, None, true),
            "HTTP/1.0 200 OK\r\nServer: fabric-mcp\r\nContent-Type: text/event-stream\r\n\r\n"
        );
    }

    #[test]
    fn line_breaks_in_a_header_do_not_reach_the_wire() {
        let evil = [
            ("X-Evil", "a\r\nSet-Cookie: b"),
            ("X Evil", "a"),
            ("X-Umlaut", "ä"),
            ("X-Good", "yes"),
        ];
        assert_eq!(
            written(V1_1, 200, &evil, Some(0), false),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nContent-Length: 0\r\n\r\n"
        );
    }
}
