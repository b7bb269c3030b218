//! The clients of the soak: MCP over HTTP, without sessions, and over stdio, with a handshake.

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::stdio::Pipe;
use crate::wire::{self, Connection};

pub(super) const TOKEN: &str = "a-token-of-thirty-two-characters-0";

/// A client on any transport.
pub(super) trait Client {
    /// Sends `message` and returns the answer; `each` gets the messages before it.
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value;
    /// Starts a run and abandons it after its first output.
    fn abandon(&mut self, message: &Value);
    /// Sends an invalid message and returns the answer.
    fn malformed(&mut self) -> Value;
    fn is_modern(&self) -> bool;
    /// Reconnects after a failure; false if that is not possible.
    fn reopen(&mut self) -> bool;
}

/// Reads about 800 KB per second, in small pieces.
struct Slow<R>(R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        thread::sleep(Duration::from_millis(5));
        let most = buffer.len().min(4 << 10);
        self.0.read(&mut buffer[..most])
    }
}

pub(super) struct Http {
    address: SocketAddr,
    connection: Connection,
    /// Reads slowly.
    is_slow: bool,
}

impl Http {
    pub(super) fn open(address: SocketAddr, is_slow: bool) -> Http {
        Http {
            address,
            connection: Connection::open(address),
            is_slow,
        }
    }

    fn request(message: &Value) -> Vec<u8> {
        let mut headers = format!(
            "Authorization: Bearer {TOKEN}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {}\r\n",
            message["method"].as_str().unwrap_or_default()
        );
        if let Some(name) = message["params"]["name"].as_str() {
            headers.push_str(&format!("Mcp-Name: {name}\r\n"));
        }
        wire::post("/mcp", &headers, &message.to_string())
    }
}

/// Passes the messages of a body, JSON or events, to `each` until it returns true.
fn messages(body: impl io::Read, mut each: impl FnMut(Value) -> bool) {
    wire::lines(body, |line, _| {
        let line = line.strip_prefix(b"data: ").unwrap_or(line);
        line.starts_with(b"{") && each(serde_json::from_slice(line).expect("JSON"))
    });
}

impl Client for Http {
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value {
        self.connection.send(&Http::request(message));
        let (_, body) = self.connection.answer();
        let mut answer = Value::Null;
        let take = |message: Value| match message.get("id") {
            Some(_) => {
                answer = message;
                true
            }
            None => {
                each(&message);
                false
            }
        };
        if self.is_slow {
            messages(Slow(body), take)
        } else {
            messages(body, take)
        }
        answer
    }

    fn abandon(&mut self, message: &Value) {
        let mut connection = Connection::open(self.address);
        connection.send(&Http::request(message));
        let mut line = Vec::new();
        // Only its first event.
        io::BufRead::read_until(
            &mut io::BufReader::new(connection.answer().1),
            b'\n',
            &mut line,
        )
        .expect("an event");
    }

    fn malformed(&mut self) -> Value {
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        self.connection.send(&wire::post(
            "/mcp",
            &headers,
            "{\"jsonrpc\":\"2.0\",\"id\":1,",
        ));
        let (status, body) = self.connection.answer();
        assert_eq!(status, 400, "a malformed message");
        let mut answer = Value::Null;
        messages(body, |message| {
            answer = message;
            true
        });
        answer
    }

    fn is_modern(&self) -> bool {
        true
    }

    fn reopen(&mut self) -> bool {
        self.connection = Connection::open(self.address);
        true
    }
}

pub(super) struct Lines {
    pub(super) pipe: Pipe,
    given_up: HashSet<String>,
}

impl Lines {
    pub(super) fn open(pipe: Pipe) -> Lines {
        Lines {
            pipe,
            given_up: HashSet::new(),
        }
    }

    fn next(&mut self) -> Value {
        let message: Value = serde_json::from_slice(self.pipe.line()).expect("JSON");
        let id = message["id"].as_str().unwrap_or_default();
        let is_so = !self.given_up.contains(id);
        assert!(is_so, "a cancelled run was answered: {message}");
        message
    }
}

impl Client for Lines {
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value {
        self.pipe.send(&format!("{message}\n"));
        loop {
            let message = self.next();
            if message.get("id").is_some() {
                return message;
            }
            each(&message);
        }
    }

    fn abandon(&mut self, message: &Value) {
        self.pipe.send(&format!("{message}\n"));
        if self.next().get("id").is_some() {
            // The request has failed.
            return;
        }
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}});
        self.pipe.send(&format!("{cancelled}\n"));
        self.given_up
            .insert(message["id"].as_str().unwrap_or_default().to_owned());
    }

    fn malformed(&mut self) -> Value {
        self.pipe.send("{\"jsonrpc\":\"2.0\",\"id\":1,\n");
        loop {
            let message = self.next();
            if message.get("error").is_some() {
                return message;
            }
        }
    }

    fn is_modern(&self) -> bool {
        false
    }

    fn reopen(&mut self) -> bool {
        false
    }
}

/// `/metrics`, requested with `token`.
pub(super) fn metrics(address: SocketAddr, token: &str) -> (u16, String) {
    let mut connection = Connection::open(address);
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    connection.send(request.as_bytes());
    let (status, body) = connection.answer();
    (status, io::read_to_string(body).unwrap())
}
