//! `FakeFabric`: Fabric's REST API on a loopback port, well-behaved unless a test changes it.
//!
//! In scope: Fabric's routes in the format of a real one, replies set per route and per call, gates that the test
//! opens, and a record of every request and of every disconnect. Not in scope: a complete HTTP server. One thread per
//! connection; a disconnect is detected within a few milliseconds, even at a gate.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::header_of;
use super::reply::{End, Framing, Reply, Step};
use super::{DEADLINE, default_answers};

/// Interval at which a waiting connection checks for a disconnect.
const LOOK: Duration = Duration::from_millis(3);

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// As in the request line, still percent-encoded.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// `METHOD /path`, the key of replies.
    pub(crate) fn route(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// A header's value; the name is case-insensitive.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.headers, name)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("body of {} is not JSON: {e}", self.route()))
    }
}

/// A connection that the client closed before the end of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// The route of that answer.
    pub(crate) route: String,
    /// When it was detected.
    pub(crate) at: Instant,
}

#[derive(Default)]
struct Inner {
    /// Replies for one call each, first in first out; then the reply for all further calls.
    once: Vec<(String, VecDeque<Reply>)>,
    always: Vec<(String, Reply)>,
    key: Option<String>,
    prefix: String,
    requests: Vec<Request>,
    left: Vec<Left>,
    /// Opened gates that no connection has passed yet.
    permits: usize,
    open_gates: bool,
    /// Connections waiting at a gate.
    held: usize,
    open: usize,
    accepted: usize,
    sockets: Vec<(usize, TcpStream)>,
    stopping: bool,
}

struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let value = change(&mut self.lock());
        self.changed.notify_all();
        value
    }

    /// Waits until `done` returns a value; `None` after `limit`.
    fn wait<T>(&self, limit: Duration, mut done: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            if let Some(value) = done(&mut inner) {
                return Some(value);
            }
            let rest = end.checked_duration_since(Instant::now())?;
            inner = self
                .changed
                .wait_timeout(inner, rest)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
    }
}

/// A fake Fabric. Dropping it closes everything.
pub(crate) struct FakeFabric {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl FakeFabric {
    /// Starts one on a free port, with the routes of a well-behaved Fabric.
    pub(crate) fn start() -> FakeFabric {
        need_loopback();
        FakeFabric::start_at(0).expect("a free loopback port")
    }

    /// Starts one on this port, for tests in which Fabric starts late.
    pub(crate) fn start_at(port: u16) -> io::Result<FakeFabric> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner::default()),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Ok(FakeFabric { address, shared })
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on, every call of `METHOD /path` gets this reply; a trailing `*` matches any rest.
    pub(crate) fn on(&self, route: &str, reply: Reply) {
        self.shared.change(|inner| {
            inner.always.retain(|(known, _)| known != route);
            inner.always.push((route.to_owned(), reply));
        });
    }

    /// The next call of this route gets this reply; several replies queue up.
    pub(crate) fn once(&self, route: &str, reply: Reply) {
        self.shared.change(
            |inner| match inner.once.iter_mut().find(|(known, _)| known == route) {
                Some((_, queue)) => queue.push_back(reply),
                None => inner.once.push((route.to_owned(), VecDeque::from([reply]))),
            },
        );
    }

    /// Every run gets this reply from now on.
    pub(crate) fn on_run(&self, reply: Reply) {
        self.on("POST /chat", reply);
    }

    /// The next run gets this reply.
    pub(crate) fn once_run(&self, reply: Reply) {
        self.once("POST /chat", reply);
    }

    /// From now on, these are the names of all patterns.
    pub(crate) fn names(&self, names: Value) {
        self.on("GET /patterns/names", Reply::json(names));
    }

    /// From now on, the pattern has this text; `*` as in [`FakeFabric::on`].
    pub(crate) fn text(&self, pattern: &str, text: &str) {
        let json = json!({"Name": pattern, "Description": "", "Pattern": text});
        self.on(&format!("GET /patterns/{pattern}"), Reply::json(json));
    }

    /// Requires this `X-API-Key` from now on, like Fabric with `--api-key`.
    pub(crate) fn require_key(&self, key: &str) {
        self.shared.change(|inner| inner.key = Some(key.to_owned()));
    }

    /// Moves all routes below this path, as behind a reverse proxy.
    pub(crate) fn prefix(&self, prefix: &str) {
        self.shared.change(|inner| inner.prefix = prefix.to_owned());
    }

    /// Opens a gate for one connection, waiting or future.
    pub(crate) fn release(&self) {
        self.shared.change(|inner| inner.permits += 1);
    }

    /// Opens all gates permanently.
    pub(crate) fn release_all(&self) {
        self.shared.change(|inner| inner.open_gates = true);
    }

    /// Waits until `done`; false after the deadline.
    fn reaches(&self, mut done: impl FnMut(&mut Inner) -> bool) -> bool {
        let reached = |inner: &mut Inner| done(inner).then_some(());
        self.shared.wait(DEADLINE, reached).is_some()
    }

    /// Waits until this many connections wait at a gate.
    pub(crate) fn wait_held(&self, count: usize) {
        assert!(
            self.reaches(|inner| inner.held >= count),
            "only {} connections reached a gate, not {count}",
            self.shared.lock().held
        );
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The requests of one route so far, `*` as in [`FakeFabric::on`].
    pub(crate) fn requests_of(&self, route: &str) -> Vec<Request> {
        self.requests()
            .into_iter()
            .filter(|request| matches(route, &request.route()))
            .collect()
    }

    /// The bodies of all runs so far.
    pub(crate) fn chats(&self) -> Vec<Value> {
        let chats = self.requests_of("POST /chat");
        chats.iter().map(Request::json).collect()
    }

    /// Fails unless there were exactly this many runs since the start or the last `forget`.
    #[track_caller]
    pub(crate) fn expect_chats(&self, count: usize) {
        let seen = self.requests_of("POST /chat").len();
        assert_eq!(
            seen,
            count,
            "Fabric must see exactly {count} POST /chat, it saw {seen}: {:?}",
            self.routes()
        );
    }

    /// `METHOD /path` of every request so far.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.requests().iter().map(Request::route).collect()
    }

    /// Waits until a route has this many requests.
    #[track_caller]
    pub(crate) fn wait_requests(&self, route: &str, count: usize) {
        let is_so = |request: &&Request| matches(route, &request.route());
        let seen = |inner: &Inner| inner.requests.iter().filter(is_so).count();
        assert!(
            self.reaches(|inner| seen(inner) >= count),
            "no {count} requests of {route}, only {:?}",
            self.routes()
        );
    }

    /// Forgets all requests and disconnects so far; replies and gates stay.
    pub(crate) fn forget(&self) {
        self.shared.change(|inner| {
            inner.requests.clear();
            inner.left.clear();
        });
    }

    /// Waits until the client disconnects during an answer; removes and returns the record.
    #[track_caller]
    pub(crate) fn wait_closed(&self, limit: Duration) -> Left {
        let left = self.shared.wait(limit, |inner| {
            (!inner.left.is_empty()).then(|| inner.left.remove(0))
        });
        left.unwrap_or_else(|| {
            panic!(
                "the client closed no connection within {limit:?}; {:?}",
                self.routes()
            )
        })
    }

    /// Disconnects during an answer, so far.
    pub(crate) fn left(&self) -> Vec<Left> {
        self.shared.lock().left.clone()
    }

    /// Number of open connections.
    #[cfg(unix)]
    pub(crate) fn open(&self) -> usize {
        self.shared.lock().open
    }

    /// Number of connections ever accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Waits until no connection is open.
    #[cfg(unix)]
    #[track_caller]
    pub(crate) fn wait_none_open(&self) {
        assert!(
            self.reaches(|inner| inner.open == 0),
            "{} connections to Fabric are still open",
            self.open()
        );
    }

    /// Closes every connection, as a server does with idle ones, and waits until none is open, including those accepted
    /// meanwhile, because clients keep idle ones for long.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub(crate) fn close_connections(&self) {
        let none = self.reaches(|inner| {
            inner.shut_down();
            inner.open == 0
        });
        let open = self.open();
        assert!(none, "{open} connections to Fabric are still open");
    }
}

impl Drop for FakeFabric {
    fn drop(&mut self) {
        self.shared.change(|inner| {
            inner.stopping = true;
            inner.shut_down();
        });
        // Wakes the accept loop, which then stops.
        let _ = TcpStream::connect(self.address);
    }
}

/// Fails with these words where 127.0.0.1 cannot be reached, as in a sandbox without any network.
fn need_loopback() {
    let words = "these tests need a loopback network, and 127.0.0.1 cannot be reached";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect(words);
    TcpStream::connect(listener.local_addr().unwrap()).expect(words);
}

/// A loopback port where nobody listens: below the kernel's ephemeral ports, so that no other test gets it.
pub(crate) fn closed_port() -> u16 {
    need_loopback();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.take(2_000).find(is_free).expect("a free port")
}

/// Whether the peer has closed or reset the connection; unread bytes do not count as a close.
pub(crate) fn gone(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = stream.peek(&mut [0]);
    let _ = stream.set_nonblocking(false);
    match peeked {
        Ok(n) => n == 0,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    }
}

fn matches(pattern: &str, route: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => route.starts_with(start),
        None => route == pattern,
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.lock().stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        let id = shared.change(|inner| {
            inner.open += 1;
            inner.accepted += 1;
            if let Ok(copy) = stream.try_clone() {
                inner.sockets.push((inner.accepted, copy));
            }
            inner.accepted
        });
        let serving = Arc::clone(shared);
        thread::spawn(move || {
            let mut connection = Connection {
                stream,
                shared: &serving,
            };
            let _ = connection.serve();
            // Drops the record's copy of the socket first: the connection closes with the last copy.
            serving.change(|inner| inner.sockets.retain(|(known, _)| *known != id));
            drop(connection);
            serving.change(|inner| inner.open -= 1);
        });
    }
}

/// The outcome of a reply.
#[derive(PartialEq, Eq)]
enum After {
    /// Read the next request.
    Next,
    /// Close the connection.
    Done,
    /// The client disconnected first.
    Left,
}

struct Connection<'a> {
    stream: TcpStream,
    shared: &'a Shared,
}

impl Connection<'_> {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let request = self.request()?;
            let route = request.route();
            let reply = self.shared.change(|inner| {
                inner.requests.push(request.clone());
                inner.reply(&request)
            });
            if reply.end != End::Reset {
                self.byte()?;
            }
            let after = self.send(&request, &reply).unwrap_or(After::Left);
            if after == After::Left {
                self.shared.change(|inner| {
                    inner.left.push(Left {
                        route,
                        at: Instant::now(),
                    })
                });
            }
            if after != After::Next {
                return Ok(());
            }
        }
    }

    /// Reads a request except its last byte, which stays in the kernel: closing a socket with unread input causes a
    /// reset.
    fn request(&mut self) -> io::Result<Request> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r") {
            head.push(self.byte()?);
            if head[0] == 0x16 {
                // A TLS handshake: answer like a server without TLS.
                let _ = self.stream.write_all(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                return Err(ErrorKind::InvalidData.into());
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or("").split(' ');
        let method = words.next().unwrap_or("").to_owned();
        let path = words.next().unwrap_or("").to_owned();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut request = Request {
            method,
            path,
            headers,
            body: Vec::new(),
        };
        let length = request
            .header("content-length")
            .and_then(|value| value.parse::<usize>().ok())
            .unwrap_or(0);
        let chunked = request
            .header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        if length > 0 {
            self.byte()?;
            request.body = vec![0; length - 1];
            self.stream.read_exact(&mut request.body)?;
            request.body.push(self.peek()?);
        } else if chunked {
            self.byte()?;
            loop {
                let mut size = Vec::new();
                while !size.ends_with(b"\r\n") {
                    size.push(self.byte()?);
                }
                let size = String::from_utf8_lossy(&size);
                let size =
                    usize::from_str_radix(size.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
                let mut chunk = vec![0; size];
                self.stream.read_exact(&mut chunk)?;
                request.body.append(&mut chunk);
                self.byte()?;
                if size == 0 {
                    break;
                }
                self.byte()?;
            }
            self.peek()?;
        } else {
            self.peek()?;
        }
        Ok(request)
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn peek(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self.stream.peek(&mut byte)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }

    fn send(&mut self, request: &Request, reply: &Reply) -> io::Result<After> {
        if reply.framing != Framing::Raw {
            self.stream.write_all(&head(reply))?;
        }
        let chunked = matches!(reply.framing, Framing::Chunked(_));
        if request.method != "HEAD" {
            for step in &reply.steps {
                match step {
                    Step::Bytes(bytes) => self.piece(bytes, chunked)?,
                    Step::Drip(bytes) => {
                        for byte in bytes {
                            self.piece(&[*byte], chunked)?;
                        }
                    }
                    Step::Repeat(bytes, times) => {
                        for _ in 0..*times {
                            self.piece(bytes, chunked)?;
                        }
                    }
                    Step::Gate => {
                        if !self.pass_gate() {
                            return Ok(After::Left);
                        }
                    }
                }
            }
        }
        match reply.end {
            End::KeepAlive | End::Close => {
                if let Framing::Chunked(trailers) = &reply.framing {
                    let mut last = b"0\r\n".to_vec();
                    for (name, value) in trailers {
                        last.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                    }
                    last.extend_from_slice(b"\r\n");
                    self.stream.write_all(&last)?;
                }
                let close = reply.end == End::Close || reply.framing == Framing::UntilClose;
                Ok(if close { After::Done } else { After::Next })
            }
            End::Cut | End::Reset => Ok(After::Done),
            End::Hang => Ok(if self.hang() {
                After::Left
            } else {
                After::Done
            }),
        }
    }

    /// Writes a piece of a body; one chunk if the reply is chunked.
    fn piece(&mut self, bytes: &[u8], chunked: bool) -> io::Result<()> {
        if !chunked {
            return self.stream.write_all(bytes);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.stream.write_all(&chunk)
    }

    /// Waits at a gate; false if the client disconnects.
    fn pass_gate(&self) -> bool {
        self.shared.change(|inner| inner.held += 1);
        let passed = loop {
            let state = self.shared.wait(LOOK, |inner| {
                if inner.open_gates {
                    return Some(true);
                }
                if inner.permits > 0 {
                    inner.permits -= 1;
                    return Some(true);
                }
                inner.stopping.then_some(false)
            });
            match state {
                Some(passed) => break passed,
                None if gone(&self.stream) => break false,
                None => {}
            }
        };
        self.shared.change(|inner| inner.held -= 1);
        passed
    }

    /// Sends nothing until the client disconnects (true) or the server stops (false).
    fn hang(&self) -> bool {
        loop {
            if self
                .shared
                .wait(LOOK, |inner| inner.stopping.then_some(()))
                .is_some()
            {
                return false;
            }
            if gone(&self.stream) {
                return true;
            }
        }
    }
}

fn head(reply: &Reply) -> Vec<u8> {
    let reason = match reply.status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Whatever",
    };
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match &reply.framing {
        Framing::Length => head.push_str(&format!("Content-Length: {}\r\n", reply.body().len())),
        Framing::Claim(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
        Framing::Chunked(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::UntilClose | Framing::Raw => {}
    }
    head.push_str("\r\n");
    head.into_bytes()
}

impl Inner {
    /// Closes every connection.
    fn shut_down(&self) {
        for (_, socket) in &self.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The reply to this request: set by the test, or the default.
    fn reply(&mut self, request: &Request) -> Reply {
        let route = request.route();
        if let Some((_, queue)) = self
            .once
            .iter_mut()
            .find(|(known, queue)| !queue.is_empty() && matches(known, &route))
            && let Some(reply) = queue.pop_front()
        {
            return reply;
        }
        if let Some((_, reply)) = self
            .always
            .iter()
            .rev()
            .find(|(known, _)| matches(known, &route))
        {
            return reply.clone();
        }
        match (self.key.as_deref(), request.header("x-api-key")) {
            (Some(_), None) => return Reply::failure(401, json!({"error": "Missing API Key"})),
            (Some(key), Some(sent)) if key != sent => {
                return Reply::failure(401, json!({"error": "Wrong API Key"}));
            }
            _ => {}
        }
        let Some(path) = request.path.strip_prefix(self.prefix.as_str()) else {
            return default_answers::not_found();
        };
        default_answers::reply(&request.method, path, request)
    }
}
