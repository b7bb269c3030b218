//! The HTTP transports over real sockets: a client of Streamable HTTP, and shared helpers.

pub(crate) mod access;
mod cancelling;
mod crowds;
mod ending;
mod guard;
mod oauth;
mod operations;
mod sessions;
mod sse;
mod statuses;
mod streams;

use serde_json::{Value, json};

use crate::support::MODERN;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Events, Http, HttpServer};
use crate::support::process::Program;
use crate::support::stdio::{initialize_params, with_meta};

/// Headers of every POST.
const POST: [(&str, &str); 2] = [
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
];

/// A Fabric, and a server in front of it.
fn start() -> (FakeFabric, HttpServer) {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric));
    (fabric, server)
}

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A modern request with its headers.
pub(crate) struct Modern {
    message: Value,
    headers: Vec<(&'static str, String)>,
}

impl Modern {
    pub(crate) fn new(id: Value, method: &'static str, params: Value) -> Modern {
        let mut headers = vec![
            ("MCP-Protocol-Version", MODERN.to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
            headers.push(("Mcp-Name", name.to_owned()));
        }
        Modern {
            message: request(id, method, with_meta(params)),
            headers,
        }
    }

    /// Replaces a header, or removes it: `None`.
    fn with(mut self, name: &'static str, value: Option<&str>) -> Modern {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers
            .extend(value.map(|value| (name, value.to_owned())));
        self
    }

    /// All headers but `Accept` and `Content-Type`.
    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }

    pub(crate) fn send(&self, http: &mut Http, path: &str) -> Answer {
        http.post(path, &self.headers(), &self.message)
    }

    /// Sends it and reads the head of the answer's stream.
    fn stream(&self, server: &HttpServer) -> Events {
        stream(server, &self.headers(), &self.message)
    }
}

/// Sends a message on a new connection and reads the head of the answer's stream.
#[track_caller]
fn stream(server: &HttpServer, headers: &[(&str, &str)], message: &Value) -> Events {
    let mut http = server.connect();
    let given = |name: &str| {
        headers
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    let usual = POST.iter().copied().filter(|(name, _)| !given(name));
    let headers: Vec<_> = usual.chain(headers.iter().copied()).collect();
    http.send(
        "POST",
        &server.path,
        &headers,
        Some(message.to_string().as_bytes()),
    )
    .unwrap();
    let events = http.events().unwrap();
    assert_eq!(events.head.status, 200, "{:?}", events.head);
    assert_eq!(
        events.head.header("content-type"),
        Some("text/event-stream"),
        "{:?}",
        events.head
    );
    events
}

/// Opens a legacy session; returns its id.
#[track_caller]
fn initialize(server: &HttpServer, revision: &str) -> String {
    let message = request(json!(0), "initialize", initialize_params(revision));
    let answer = server.connect().post(&server.path, &[], &message);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json")),
        "{}",
        answer.text()
    );
    assert_eq!(answer.json()["result"]["protocolVersion"], revision);
    answer
        .header("mcp-session-id")
        .expect("a session id")
        .to_owned()
}

/// A streaming run.
fn run(token: Value) -> Value {
    let arguments = json!({"pattern_name": "summarize", "input_text": "x", "stream": true});
    json!({"name": "fabric_run_pattern", "arguments": arguments, "_meta": {"progressToken": token}})
}

pub(crate) fn list_patterns() -> Value {
    json!({"name": "fabric_list_patterns", "arguments": {}})
}

/// The code of a JSON-RPC error.
#[track_caller]
fn code(answer: &Answer) -> i64 {
    answer.json()["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {}", answer.text()))
}
