//! A minimal HTTP/1.1 client for measuring, and the simplest server that can answer it: the baseline.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::clock::now_ns;

/// A connection, kept alive for as long as the server lets it; then the next request opens another.
pub(crate) struct Connection {
    address: SocketAddr,
    is_over: bool,
    input: BufReader<TcpStream>,
    line: String,
    /// `Mcp-Session-Id` of the last answer.
    pub(crate) session: Option<String>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Connection {
        Connection {
            address,
            is_over: false,
            input: connect(address),
            line: String::new(),
            session: None,
        }
    }

    /// Sends a complete request.
    pub(crate) fn send(&mut self, request: &[u8]) {
        if std::mem::take(&mut self.is_over) {
            self.input = connect(self.address);
        }
        self.input.get_mut().write_all(request).unwrap();
    }

    /// Reads the head of a response; returns its status and body.
    pub(crate) fn answer(&mut self) -> (u16, Body<'_>) {
        self.next_line();
        let status = self.line.get(9..12);
        let status = status.and_then(|s| s.parse().ok()).unwrap_or(0);
        let mut rest = Rest::Bytes(0);
        loop {
            self.next_line();
            let line = self.line.trim_end();
            if line.is_empty() {
                return (
                    status,
                    Body {
                        input: &mut self.input,
                        rest,
                    },
                );
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                rest = Rest::Bytes(value.trim().parse().unwrap_or(0));
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                rest = Rest::Chunk(0);
            } else if name.eq_ignore_ascii_case("connection") {
                self.is_over = value.trim().eq_ignore_ascii_case("close");
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                self.session = Some(value.trim().to_owned());
            }
        }
    }

    /// Reads a complete response; returns its status and length.
    pub(crate) fn skip_answer(&mut self) -> (u16, usize) {
        let (status, mut body) = self.answer();
        let length = io::copy(&mut body, &mut io::sink()).unwrap();
        (status, length as usize)
    }

    fn next_line(&mut self) {
        self.line.clear();
        let is_so = self.input.read_line(&mut self.line).unwrap() > 0;
        assert!(is_so, "the connection was closed");
    }
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::with_capacity(64 << 10, stream)
}

/// The unread rest of a body.
enum Rest {
    Bytes(usize),
    /// Bytes left of the chunk; 0 before the next chunk size.
    Chunk(usize),
}

/// The body of a response, without its framing.
pub(crate) struct Body<'a> {
    input: &'a mut BufReader<TcpStream>,
    rest: Rest,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Rest::Chunk(0) = self.rest {
            let mut line = String::new();
            self.input.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            if size == 0 {
                self.input.read_line(&mut line)?;
                self.rest = Rest::Bytes(0);
            } else {
                self.rest = Rest::Chunk(size);
            }
        }
        let (Rest::Bytes(left) | Rest::Chunk(left)) = &mut self.rest;
        let most = (*left).min(buffer.len());
        if most == 0 {
            // Asked for nothing, the reader must not block for more.
            return Ok(0);
        }
        let read = self.input.read(&mut buffer[..most])?;
        *left -= read;
        if let Rest::Chunk(0) = self.rest {
            let mut end = [0; 2];
            self.input.read_exact(&mut end)?;
        }
        Ok(read)
    }
}

/// A POST of `body` to `path`; each of `headers` ends with CRLF.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: \
         application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Passes each line of `body` to `each`, with its time of arrival, until it returns true.
pub(crate) fn lines(body: impl Read, mut each: impl FnMut(&[u8], u64) -> bool) {
    let mut input = BufReader::with_capacity(64 << 10, body);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).unwrap() > 0 {
        if each(&line, now_ns()) {
            // To the end of the body, so that the connection can be reused.
            io::copy(&mut input, &mut io::sink()).unwrap();
            return;
        }
        line.clear();
    }
}

/// The baseline over HTTP: reads a request and answers with `bytes` bytes, without parsing.
pub(crate) fn serve_echo(bytes: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming().flatten() {
        let _ = thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || echo(stream, bytes));
    }
}

fn echo(mut stream: TcpStream, bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reply = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n"
    );
    reply.push_str(&" ".repeat(bytes));
    let mut buffer = [0; 16 << 10];
    // Our requests arrive in one piece: they are small, and there is one at a time.
    while stream.read(&mut buffer)? > 0 {
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}
