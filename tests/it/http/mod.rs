//! The HTTP transports over real sockets: a client of Streamable HTTP, and shared helpers.

pub(crate) mod access;
mod cancelling;
mod crowds;
mod ending;
mod greedy;
mod guard;
mod oauth;
mod operations;
mod page;
mod sessions;
mod sse;
mod statuses;
mod streams;

use serde_json::{Value, json};

use crate::support::Era;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Events, Http, HttpServer};
use crate::support::process::Program;
use crate::support::run_params as run;
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
#[derive(Clone)]
pub(crate) struct Modern {
    message: Value,
    headers: Vec<(&'static str, String)>,
}

impl Modern {
    pub(crate) fn new(id: Value, method: &'static str, params: Value) -> Modern {
        let mut headers = vec![
            ("MCP-Protocol-Version", Era::MODERN.name().to_owned()),
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

    /// Adds or replaces a header.
    fn with(mut self, name: &'static str, value: &str) -> Modern {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name, value.to_owned()));
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

    /// Sends it on a new connection.
    #[track_caller]
    fn post(&self, server: &HttpServer) -> Answer {
        server.post(&self.headers(), &self.message)
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
    http.send_post(&server.path, headers, message).unwrap();
    let events = http.events().unwrap();
    let media = events.head.header("content-type");
    assert_eq!(media, Some("text/event-stream"), "{:?}", events.head);
    events
}

/// A legacy session.
struct WebSession<'s> {
    server: &'s HttpServer,
    id: String,
    bearer: Option<String>,
}

impl<'s> WebSession<'s> {
    #[track_caller]
    fn open(server: &'s HttpServer, revision: &str) -> WebSession<'s> {
        WebSession::of(server, revision, None)
    }

    /// The session of a caller with a token.
    #[track_caller]
    fn of(server: &'s HttpServer, revision: &str, bearer: Option<String>) -> WebSession<'s> {
        let id = String::new();
        let mut session = WebSession { server, id, bearer };
        let message = request(json!(0), "initialize", initialize_params(revision));
        let answer = session.post(&message);
        answer.expect_status(200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.json()["result"]["protocolVersion"], revision);
        session.id = answer.header("mcp-session-id").expect("an id").to_owned();
        session
    }

    /// Its id, and the token of its caller.
    fn headers(&self) -> Vec<(&str, &str)> {
        let id = (!self.id.is_empty()).then_some(("Mcp-Session-Id", self.id.as_str()));
        let bearer = self.bearer.as_deref();
        let bearer = bearer.map(|bearer| ("Authorization", bearer));
        id.into_iter().chain(bearer).collect()
    }

    /// The same, and what the client accepts.
    fn accepting<'a>(&'a self, media: &'a str) -> Vec<(&'a str, &'a str)> {
        [self.headers(), vec![("Accept", media)]].concat()
    }

    #[track_caller]
    fn post(&self, message: &Value) -> Answer {
        self.server.post(&self.headers(), message)
    }

    #[track_caller]
    fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> Answer {
        self.post(&request(id.into(), method, params))
    }

    #[track_caller]
    fn stream(&self, id: impl Into<Value>, method: &str, params: Value) -> Events {
        let message = request(id.into(), method, params);
        stream(self.server, &self.headers(), &message)
    }

    /// The session's own stream.
    #[track_caller]
    fn get(&self) -> Events {
        self.server.events("/mcp", &self.headers())
    }

    #[track_caller]
    fn delete(&self) -> Answer {
        let mut http = self.server.connect();
        http.request("DELETE", "/mcp", &self.headers(), None)
    }
}

/// A streaming run.
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
