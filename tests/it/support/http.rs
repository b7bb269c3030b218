//! A small HTTP/1.1 client, and the binary with an HTTP transport.
//!
//! In scope: requests as raw bytes, keep-alive, bodies by length, in chunks or until the end, event streams with
//! deadlines. Not in scope: anything that hides what the server sent.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::DEADLINE;
use super::process::{Process, Program};

/// The binary with an HTTP transport, listening.
pub(crate) struct HttpServer {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    /// The path of the endpoint, `/mcp` or `/sse` by default.
    pub(crate) path: String,
}

impl HttpServer {
    /// Starts it with `--transport http --port 0` and learns the address from its log.
    pub(crate) fn start(program: Program) -> HttpServer {
        HttpServer::listening(program.flags("--transport http --port 0"))
    }

    /// Starts the program unchanged and learns the address from its log.
    pub(crate) fn listening(program: Program) -> HttpServer {
        let process = program.start();
        let found = process
            .log
            .wait(DEADLINE, |log| log.lines().find_map(address_in));
        let Some((address, path)) = found else {
            process.fail("it never said where it listens")
        };
        HttpServer {
            process,
            address,
            path,
        }
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Http {
        Http::connect(self.address)
    }

    /// [`Http::get`] on a new connection.
    #[track_caller]
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.connect().get(path, headers)
    }

    /// [`Http::post`] to the endpoint on a new connection.
    #[track_caller]
    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> Answer {
        self.connect().post(&self.path, headers, message)
    }

    /// Opens an event stream with a GET.
    #[track_caller]
    pub(crate) fn events(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let mut http = self.connect();
        let headers = [headers, &[("Accept", "text/event-stream")]].concat();
        http.send("GET", path, &headers, None).unwrap();
        let events = http.events().unwrap();
        let type_ = events.head.header("content-type");
        let found = (events.head.status, type_);
        assert_eq!(found, (200, Some("text/event-stream")));
        events
    }

    /// `/metrics`.
    #[track_caller]
    pub(crate) fn metrics(&self) -> String {
        self.get("/metrics", &[]).text()
    }

    /// The value of a sample in `/metrics`.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        self.metrics().lines().find_map(value)
    }
}

/// Address and path of the first `transport at http://ADDRESS:PORT/path` in a log line.
fn address_in(line: &str) -> Option<(SocketAddr, String)> {
    let (_, url) = line.split_once("transport at http://")?;
    let url = url
        .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';'))
        .next()?;
    let (authority, path) = match url.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (url, String::new()),
    };
    Some((
        authority.parse().ok()?,
        path.trim_end_matches('.').to_owned(),
    ))
}

/// The head of an answer and, once read, its body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header's value; the name is case-insensitive.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.headers, name)
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("status {}, body not JSON ({e}): {text:?}", self.status))
    }

    /// Fails with the body unless it has this status.
    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) -> &Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The value of a header; its name is case-insensitive.
pub(crate) fn header_of<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter();
    let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(&found.1)
}

/// One event of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) id: Option<String>,
}

/// One connection.
pub(crate) struct Http {
    /// The socket with its read buffer.
    reader: BufReader<TcpStream>,
    /// The server has said that it closes this connection: the next request takes another one.
    closing: bool,
}

impl Http {
    /// Connects; every read and write has the default deadline.
    pub(crate) fn connect(address: SocketAddr) -> Http {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
        stream.set_nodelay(true).expect("nodelay");
        let words = "a read timeout";
        stream.set_read_timeout(Some(DEADLINE)).expect(words);
        let words = "a write timeout";
        stream.set_write_timeout(Some(DEADLINE)).expect(words);
        Http {
            reader: BufReader::new(stream),
            closing: false,
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Writes a request with `Host`, these headers and, if there is a body, its length.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<()> {
        if self.closing {
            *self = Http::connect(self.reader.get_ref().peer_addr()?);
        }
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let is_host = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case("host");
        if !headers.iter().any(is_host) {
            head.push_str(&format!("Host: {}\r\n", self.reader.get_ref().peer_addr()?));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        self.send_raw(&bytes)
    }

    /// A request and its complete answer.
    #[track_caller]
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Answer {
        self.send(method, path, headers, body)
            .expect("the request is taken");
        self.answer()
            .unwrap_or_else(|e| panic!("{method} {path} was not answered: {e}"))
    }

    /// A GET and its complete answer.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers, None)
    }

    /// Writes a POST of a JSON message with the usual headers.
    pub(crate) fn send_post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> io::Result<()> {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.retain(|(name, _)| {
            !headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
        });
        all.extend_from_slice(headers);
        self.send("POST", path, &all, Some(message.to_string().as_bytes()))
    }

    /// The same, and the complete answer.
    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], message: &Value) -> Answer {
        self.send_post(path, headers, message)
            .expect("the request is taken");
        self.answer()
            .unwrap_or_else(|e| panic!("POST {path} was not answered: {e}"))
    }

    /// Reads one answer to its end.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        Body::of(&answer).read_all(&mut self.reader, &mut answer.body)?;
        Ok(answer)
    }

    /// Reads the head of an answer; skips interim `100` responses.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        loop {
            let status = read_line(&mut self.reader)?;
            let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
            let Some(code) = code.filter(|_| status.starts_with("HTTP/1.")) else {
                return Err(invalid(format!("no status line: {status:?}")));
            };
            let mut headers = Vec::new();
            loop {
                let line = read_line(&mut self.reader)?;
                if line.is_empty() {
                    break;
                }
                let Some((name, value)) = line.split_once(':') else {
                    return Err(invalid(format!("no header: {line:?}")));
                };
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            if code != 100 {
                let close = ("Connection".to_owned(), "close".to_owned());
                self.closing = headers.contains(&close);
                return Ok(Answer {
                    status: code,
                    headers,
                    body: Vec::new(),
                });
            }
        }
    }

    /// Reads a head and then its events one by one.
    pub(crate) fn events(mut self) -> io::Result<Events> {
        let head = self.head()?;
        Ok(Events::new(head, self))
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        let _ = self.reader.get_ref().shutdown(std::net::Shutdown::Both);
    }
}

/// How the rest of a body is framed.
enum Body {
    Length(usize),
    /// Bytes left of the current chunk.
    Chunked(usize),
    UntilClose,
    Done,
}

impl Body {
    fn of(answer: &Answer) -> Body {
        if answer.status == 204 || answer.status == 304 {
            return Body::Done;
        }
        if answer
            .header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
        {
            return Body::Chunked(0);
        }
        match answer
            .header("content-length")
            .and_then(|value| value.parse().ok())
        {
            Some(length) => Body::Length(length),
            None => Body::UntilClose,
        }
    }

    /// Reads the next piece of the body; 0 at its end.
    fn read(&mut self, from: &mut impl BufRead, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Body::Done => Ok(0),
            Body::UntilClose => from.read(to),
            Body::Length(0) => Ok(0),
            Body::Length(left) => read_some(from, to, left),
            Body::Chunked(left) => {
                if *left == 0 {
                    let line = read_line(from)?;
                    let size = line.split(';').next().unwrap_or("").trim();
                    *left = usize::from_str_radix(size, 16)
                        .map_err(|_| invalid(format!("no chunk size: {line:?}")))?;
                    if *left == 0 {
                        while !read_line(from)?.is_empty() {}
                        *self = Body::Done;
                        return Ok(0);
                    }
                }
                let read = read_some(from, to, left)?;
                if *left == 0 && !read_line(from)?.is_empty() {
                    return Err(invalid("a chunk is longer than it says".to_owned()));
                }
                Ok(read)
            }
        }
    }

    fn read_all(mut self, from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = [0; 8192];
        loop {
            let read = self.read(from, &mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            to.extend_from_slice(&bytes[..read]);
        }
    }
}

/// The error of an answer that is not HTTP.
fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads some of the `left` bytes, of which there must be more.
fn read_some(from: &mut impl BufRead, to: &mut [u8], left: &mut usize) -> io::Result<usize> {
    let most = to.len().min(*left);
    let read = from.read(&mut to[..most])?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *left -= read;
    Ok(read)
}

/// A line that must end in CRLF, without it.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(invalid(format!("no CRLF: {line:?}"))),
    }
}

/// An open event stream.
pub(crate) struct Events {
    pub(crate) head: Answer,
    http: Http,
    body: Body,
    text: Vec<u8>,
    /// Length of the prefix of `text` without an event's end.
    looked: usize,
    ready: VecDeque<Event>,
    /// Number of comment lines so far, which keep a stream alive.
    pub(crate) comments: usize,
}

impl Events {
    fn new(head: Answer, http: Http) -> Events {
        let body = Body::of(&head);
        Events {
            head,
            http,
            body,
            text: Vec::new(),
            looked: 0,
            ready: VecDeque::new(),
            comments: 0,
        }
    }

    /// The next event; `None` if the stream has ended properly.
    pub(crate) fn next(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let mut bytes = [0; 1 << 16];
            let read = self.body.read(&mut self.http.reader, &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.text.extend_from_slice(&bytes[..read]);
            self.take_blocks();
        }
    }

    /// The next event's data as JSON.
    #[track_caller]
    pub(crate) fn next_json(&mut self) -> Value {
        let event = self
            .next()
            .unwrap_or_else(|e| panic!("the stream broke: {e}"))
            .expect("another event");
        serde_json::from_str(&event.data)
            .unwrap_or_else(|e| panic!("data is not JSON ({e}): {:?}", event.data))
    }

    /// The text of the next progress notification that has one; skips heartbeats, which come when a busy machine is slow.
    #[track_caller]
    pub(crate) fn next_progress_text(&mut self) -> String {
        loop {
            let message = self.next_json();
            assert_eq!(message["method"], "notifications/progress", "{message}");
            if let Some(text) = message["params"]["message"].as_str() {
                return text.to_owned();
            }
        }
    }

    /// The connection, to reuse after the stream's end or to close early.
    pub(crate) fn into_connection(self) -> Http {
        self.http
    }

    fn take_blocks(&mut self) {
        while let Some(end) = self.text[self.looked..]
            .windows(2)
            .position(|pair| pair == b"\n\n")
        {
            let block: Vec<u8> = self.text.drain(..self.looked + end + 2).collect();
            self.looked = 0;
            let mut event = Event {
                event: "message".to_owned(),
                ..Event::default()
            };
            let mut data = Vec::new();
            for line in String::from_utf8_lossy(&block).lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "" if line.starts_with(':') => self.comments += 1,
                    "event" => event.event = value.to_owned(),
                    "data" => data.push(value.to_owned()),
                    "id" => event.id = Some(value.to_owned()),
                    _ => {}
                }
            }
            if !data.is_empty() {
                event.data = data.join("\n");
                self.ready.push_back(event);
            }
        }
        self.looked = self.text.len().saturating_sub(1);
    }
}
