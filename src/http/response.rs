//! The heads of responses, and responses of known size.
//!
//! tiny_http writes every head. It cannot write `Connection`, which is appended here. It adds `Content-Length: 0` to a
//! 204 (against RFC 9110, 8.6) and has no body without framing (HTTP/1.0 streams), so that line is removed here.
//!
//! In scope: rejections in plain text. Not in scope: streams beyond their head (`stream`).

use std::io::{self, IoSlice};
use std::time::{SystemTime, UNIX_EPOCH};

use tiny_http::{HTTPVersion, Header, Response, StatusCode};

use super::registry::Lease;
use super::request::{Rejection, is_token};

/// The name in the `Server` header.
const SERVER: &str = env!("CARGO_PKG_NAME");

/// Removed by `head` from responses without a length.
const NO_LENGTH: &[u8] = b"Content-Length: 0\r\n";
/// The first second of the year 10000, in Unix time.
const YEAR_10000: u64 = 253_402_300_800;
/// For clocks with a date that HTTP cannot express.
const FALLBACK_DATE: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// What happens to the connection after this response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Keep it alive, which an HTTP/1.0 client must be told.
    Keep,
    /// Close it, which an HTTP/1.1 client must be told.
    Close,
}

/// Writes head and body in one system call. `head_only` is for HEAD: a length, but no body.
pub(super) fn respond(
    lease: &Lease,
    version: &HTTPVersion,
    status: u16,
    headers: &[(&str, &str)],
    body: &[&[u8]],
    head_only: bool,
    after: After,
) -> io::Result<()> {
    let head = head(
        version,
        status,
        headers,
        Some(body.iter().map(|part| part.len()).sum()),
        after,
    )?;
    // RFC 9110, 6.4.1.
    let body = if head_only || matches!(status, 204 | 304) {
        &[]
    } else {
        body
    };
    lease.write(
        &mut [head.as_slice()]
            .iter()
            .chain(body)
            .map(|part| IoSlice::new(part))
            .collect::<Vec<_>>(),
    )
}

/// Sends a rejection in plain text. The connection is then closed.
pub(super) fn refuse(lease: &Lease, rejection: Rejection) -> io::Result<()> {
    lease.write(&mut [IoSlice::new(&refusal_bytes(rejection)?)])
}

/// The rejection as bytes, for a connection without a thread.
pub(super) fn refusal_bytes(rejection: Rejection) -> io::Result<Vec<u8>> {
    let headers = [("Content-Type", "text/plain; charset=utf-8")];
    let length = Some(rejection.text.len() + 1);
    let mut bytes = head(
        &HTTPVersion(1, 1),
        rejection.status,
        &headers,
        length,
        After::Close,
    )?;
    bytes.extend_from_slice(rejection.text.as_bytes());
    bytes.push(b'\n');
    Ok(bytes)
}

/// The head of a response with a body of `length`, or of a stream: chunked on HTTP/1.1, until the connection closes on
/// HTTP/1.0.
pub(super) fn head(
    version: &HTTPVersion,
    status: u16,
    headers: &[(&str, &str)],
    length: Option<usize>,
    after: After,
) -> io::Result<Vec<u8>> {
    let date = if is_date_of_http(SystemTime::now()) {
        None
    } else {
        Some(("Date", FALLBACK_DATE))
    };
    let standard = [("Server", SERVER)].into_iter().chain(date);
    let headers = standard
        .chain(headers.iter().copied())
        .filter_map(|(name, value)| header(name, value))
        .collect();
    let written = length.or((*version != (1, 1)).then_some(0));
    // An empty reader: `raw_print` then writes only the head, and the threshold prevents chunking of large bodies.
    let response = Response::new(StatusCode(status), headers, io::empty(), written, None);
    let mut head = Vec::with_capacity(256);
    response.with_chunked_threshold(usize::MAX).raw_print(
        &mut head,
        version.clone(),
        &[],
        true,
        None,
    )?;
    head.truncate(head.len() - b"\r\n".len());
    if (status == 204 || length.is_none()) && head.ends_with(NO_LENGTH) {
        head.truncate(head.len() - NO_LENGTH.len());
    }
    head.extend_from_slice(connection_header(version, after));
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

fn connection_header(version: &HTTPVersion, after: After) -> &'static [u8] {
    match (after, *version == (1, 1)) {
        (After::Keep, false) => b"Connection: keep-alive\r\n",
        (After::Close, true) => b"Connection: close\r\n",
        (After::Keep, true) | (After::Close, false) => b"",
    }
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

/// Whether tiny_http can write this date; it panics on a clock before 1970 or after 9999.
fn is_date_of_http(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH)
        .is_ok_and(|time| time.as_secs() < YEAR_10000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_clock_that_is_far_off_is_not_given_to_tiny_http() {
        let last = UNIX_EPOCH + Duration::from_secs(YEAR_10000 - 1);
        assert!(is_date_of_http(UNIX_EPOCH) && is_date_of_http(last));
        assert!(!is_date_of_http(UNIX_EPOCH - Duration::from_secs(1)));
        assert!(!is_date_of_http(last + Duration::from_secs(1)));
    }

    fn without_date(head: Vec<u8>) -> String {
        let text = String::from_utf8(head).unwrap();
        let kept: Vec<_> = text
            .split_inclusive("\r\n")
            .filter(|line| !line.starts_with("Date: "))
            .collect();
        assert_eq!(
            kept.len() + 1,
            text.split_inclusive("\r\n").count(),
            "one Date"
        );
        kept.concat()
    }

    #[test]
    fn sized_heads_are_exactly_these_bytes() {
        let plain = [("Content-Type", "application/json")];
        let head = |version, status, headers, length, after| {
            without_date(super::head(&version, status, headers, Some(length), after).unwrap())
        };
        assert_eq!(
            head(HTTPVersion(1, 1), 200, &plain, 1 << 20, After::Keep),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
        );
        assert_eq!(
            head(HTTPVersion(1, 0), 404, &plain, 2, After::Keep),
            "HTTP/1.0 404 Not Found\r\nServer: fabric-mcp\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Connection: keep-alive\r\n\r\n"
        );
        assert_eq!(
            head(HTTPVersion(1, 1), 204, &[], 0, After::Close),
            "HTTP/1.1 204 No Content\r\nServer: fabric-mcp\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn heads_of_streams_are_exactly_these_bytes() {
        let events = [("Content-Type", "text/event-stream")];
        let head = |version, after| {
            without_date(super::head(&version, 200, &events, None, after).unwrap())
        };
        assert_eq!(
            head(HTTPVersion(1, 1), After::Close),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n"
        );
        assert_eq!(
            head(HTTPVersion(1, 0), After::Close),
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
        let head = |length| {
            without_date(super::head(&HTTPVersion(1, 1), 200, &evil, length, After::Keep).unwrap())
        };
        assert_eq!(
            head(Some(0)),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(
            head(None),
            "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
    }
}
