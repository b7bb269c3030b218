//! The heads of responses. tiny_http would write them with a date that panics before 1970, without `Connection`, and with
//! a length where there is no body to count.
//!
//! Not in scope: bodies (`responder`).

use std::io::{self, Write};

use tiny_http::{HTTPVersion, StatusCode};

use crate::time::http_now;

use super::request::is_token;

/// Writes the head of a response with a body of `length`, or of a stream: chunked on HTTP/1.1, until the connection
/// closes on HTTP/1.0. With `close`, the connection closes after the response. Headers that would not be one line of
/// visible ASCII are left out.
pub(super) fn head<'h>(
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
    // What an HTTP/1.1 client takes for granted is not said, and neither to an HTTP/1.0 client.
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
        let (dates, kept): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("Date: "));
        assert_eq!(dates.len(), 1);
        kept.concat()
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
