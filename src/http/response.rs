//! The heads of answers, and answers whose size is known.
//!
//! In scope: what tiny_http writes, what it leaves out (`Connection`), and refusals in plain text. Not in scope:
//! streams beyond their head (`stream`).

use std::io::{self, IoSlice, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use tiny_http::{HTTPVersion, Header, Response, StatusCode};

use super::request::{Rejection, is_token};
use super::socket::Connection;
use crate::time;

/// The name in the `Server` header.
const SERVER: &str = env!("CARGO_PKG_NAME");

/// What becomes of the connection after this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It is used on. HTTP/1.0 has to be told.
    Keep,
    /// It is closed. HTTP/1.1 has to be told.
    Close,
}

/// Writes an answer of known size, head and body in one system call. `head_only` is for HEAD: the size, but no body.
pub(super) fn respond(
    connection: &Connection,
    version: &HTTPVersion,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
    head_only: bool,
    after: After,
) -> io::Result<()> {
    let head = sized_head(version, status, headers, body.len(), after)?;
    // RFC 9110, 6.4.1.
    let body = if head_only || matches!(status, 204 | 304) { &[] } else { body };
    connection.write(&mut [IoSlice::new(&head), IoSlice::new(body)])
}

/// Answers what is not a request, in plain text. The connection is closed.
pub(super) fn refuse(connection: &Connection, rejection: Rejection) -> io::Result<()> {
    connection.write(&mut [IoSlice::new(&refusal_bytes(rejection)?)])
}

/// The same as bytes, for a connection that has no thread.
pub(super) fn refusal_bytes(rejection: Rejection) -> io::Result<Vec<u8>> {
    let headers = [("Content-Type", "text/plain; charset=utf-8")];
    let mut bytes = sized_head(&HTTPVersion(1, 1), rejection.status, &headers, rejection.text.len() + 1, After::Close)?;
    bytes.extend_from_slice(rejection.text.as_bytes());
    bytes.push(b'\n');
    Ok(bytes)
}

/// The head of an answer of known size.
pub(super) fn sized_head(
    version: &HTTPVersion,
    status: u16,
    headers: &[(&str, &str)],
    length: usize,
    after: After,
) -> io::Result<Vec<u8>> {
    let standard = [("Server", SERVER), ("Date", &*http_date(SystemTime::now()))];
    let headers = standard.iter().chain(headers).filter_map(|(name, value)| header(name, value)).collect();
    // A response without its reader: `raw_print` writes the head, and no chunks whatever the size.
    let response = Response::new(StatusCode(status), headers, io::empty(), Some(length), None);
    let mut head = Vec::with_capacity(256);
    response.with_chunked_threshold(usize::MAX).raw_print(&mut head, version.clone(), &[], true, None)?;
    // It has no way to set `Connection`, and sends the length of nothing with a 204 (RFC 9110, 8.6).
    head.truncate(head.len() - b"\r\n".len());
    if status == 204 && head.ends_with(b"Content-Length: 0\r\n") {
        head.truncate(head.len() - b"Content-Length: 0\r\n".len());
    }
    head.extend_from_slice(connection_header(version, after));
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// The head of a stream: status 200, in chunks on HTTP/1.1, to the end of the connection on HTTP/1.0.
pub(super) fn stream_head(version: &HTTPVersion, headers: &[(&str, &str)], after: After) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(256);
    let date = http_date(SystemTime::now());
    write!(head, "HTTP/{version} 200 OK\r\nServer: {SERVER}\r\nDate: {date}\r\n")?;
    for header in headers.iter().filter_map(|(name, value)| header(name, value)) {
        write!(head, "{}: {}\r\n", header.field, header.value)?;
    }
    head.extend_from_slice(if *version == (1, 1) { b"Transfer-Encoding: chunked\r\n" } else { b"" });
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

/// A header for tiny_http, which would write line breaks as they are: such a header is left out.
fn header(name: &str, value: &str) -> Option<Header> {
    let sound = !name.is_empty() && name.bytes().all(is_token) && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !sound {
        log::error!("left out the response header {name:?}: not visible ASCII");
        return None;
    }
    Header::from_bytes(name, value).ok()
}

/// The date as RFC 9110, 5.6.7 writes it: `Sun, 06 Nov 1994 08:49:37 GMT`. A clock before 1970 counts as 1970.
fn http_date(now: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = time::date(days as i64);
    // Digit by digit: this is part of every answer, and `format!` would be a sixth of an answer's whole cost.
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    date[..3].copy_from_slice(DAYS[(days % 7) as usize].as_bytes());
    date[8..11].copy_from_slice(MONTHS[month as usize - 1].as_bytes());
    let time = [(17, second / 3_600), (20, second / 60 % 60), (23, second % 60)];
    for (at, value) in
        [(5, day), (12, year / 100), (14, year)].map(|(at, value)| (at, value as u64)).into_iter().chain(time)
    {
        date[at] = b'0' + (value / 10 % 10) as u8;
        date[at + 1] = b'0' + (value % 10) as u8;
    }
    String::from_utf8_lossy(&date).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_written_as_http_wants_them() {
        let at = |seconds| http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(at(1_709_164_799), "Wed, 28 Feb 2024 23:59:59 GMT");
        assert_eq!(at(1_709_251_200), "Fri, 01 Mar 2024 00:00:00 GMT");
        assert_eq!(at(1_798_761_599), "Thu, 31 Dec 2026 23:59:59 GMT");
        assert_eq!(http_date(UNIX_EPOCH - Duration::from_secs(1)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    fn without_date(head: Vec<u8>) -> String {
        let text = String::from_utf8(head).unwrap();
        let kept: Vec<_> = text.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
        assert_eq!(kept.len() + 1, text.split_inclusive("\r\n").count(), "one Date");
        kept.concat()
    }

    #[test]
    fn sized_heads_are_exactly_these_bytes() {
        let plain = [("Content-Type", "application/json")];
        let head = |version, status, headers, length, after| {
            without_date(sized_head(&version, status, headers, length, after).unwrap())
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
    fn line_breaks_in_a_header_do_not_reach_the_wire() {
        let evil = [("X-Evil", "a\r\nSet-Cookie: b"), ("X Evil", "a"), ("X-Umlaut", "ä"), ("X-Good", "yes")];
        let head = without_date(sized_head(&HTTPVersion(1, 1), 200, &evil, 0, After::Keep).unwrap());
        assert_eq!(head, "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nContent-Length: 0\r\n\r\n");
        let head = without_date(stream_head(&HTTPVersion(1, 1), &evil, After::Keep).unwrap());
        assert_eq!(head, "HTTP/1.1 200 OK\r\nServer: fabric-mcp\r\nX-Good: yes\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
}
