//! An MCP client of Streamable HTTP and of HTTP+SSE, in any revision.
//!
//! Messages before an answer are kept in order. Both directions are recorded in the server's transcript, for failure
//! reports and for tests that search for secrets.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::fabric::FakeFabric;
use super::http::{Answer, Events, Http, HttpServer};
use super::process::{Process, Program};
use super::stdio::initialize_params;
use super::{Caller, Era};

/// A client of Streamable HTTP: one connection, and a session if its revision has sessions.
pub(crate) struct Streamable {
    pub(crate) server: Arc<HttpServer>,
    era: Era,
    http: Option<Http>,
    session: Option<String>,
    token: Option<String>,
    next_id: u64,
    /// The messages before the last answer.
    pub(crate) notes: Vec<Value>,
}

impl Streamable {
    /// A client in `era` of a new server in front of this Fabric, after the start-up check.
    pub(crate) fn ready(fabric: &FakeFabric, era: Era) -> Streamable {
        let server = HttpServer::start(Program::with(fabric));
        server.process.wait_stderr("Fabric API at");
        Streamable::to(&Arc::new(server), era, None)
    }

    /// Another client of a server.
    pub(crate) fn to(server: &Arc<HttpServer>, era: Era, token: Option<&str>) -> Streamable {
        let mut client = Streamable {
            server: Arc::clone(server),
            era,
            http: None,
            session: None,
            token: token.map(str::to_owned),
            next_id: 1,
            notes: Vec::new(),
        };
        if era.is_legacy() {
            client.initialize(era.name());
        }
        client
    }

    #[track_caller]
    fn initialize(&mut self, revision: &str) {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params(revision)});
        let answer = self.post(&message);
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.session = answer.header("mcp-session-id").map(str::to_owned);
        assert!(self.session.is_some(), "no session: {answer:?}");
        let answer = self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// The session's id.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The headers of every message of this client.
    pub(crate) fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(token) = &self.token {
            headers.push(("Authorization", format!("Bearer {token}")));
        }
        if let Some(session) = &self.session {
            headers.push(("Mcp-Session-Id", session.clone()));
        }
        if self.era >= Era::R2025_06_18 && (self.session.is_some() || self.era.is_modern()) {
            headers.push(("MCP-Protocol-Version", self.era.name().to_owned()));
        }
        if self.era.is_modern() && message.get("id").is_some() {
            headers.push((
                "Mcp-Method",
                message["method"].as_str().unwrap_or("").to_owned(),
            ));
            let params = &message["params"];
            if let Some(name) = ["name", "uri", "taskId"]
                .iter()
                .find_map(|member| params[*member].as_str())
            {
                headers.push(("Mcp-Name", header_value(name)));
            }
        }
        headers
    }

    /// A request of this client's era with the next id.
    pub(crate) fn message(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.era.request(&json!(id), method, params)
    }

    /// Sends a message on a new connection and leaves the answer to the test.
    pub(crate) fn send_apart(&self, message: &Value) -> Http {
        let mut http = self.server.connect();
        self.send_on(&mut http, message)
            .expect("the request is taken");
        http
    }

    /// The same, for a test that reads events one by one.
    #[track_caller]
    pub(crate) fn stream(&self, message: &Value) -> Events {
        self.send_apart(message).events().expect("an answer's head")
    }

    pub(crate) fn send_on(&self, http: &mut Http, message: &Value) -> io::Result<()> {
        let said = message.to_string();
        self.server.process.said.note("→", said.as_bytes());
        let headers = self.headers(message);
        let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        http.send_post(&self.server.path, &headers, message)
    }

    /// Posts a message on the client's connection and reads the complete answer, JSON or stream.
    #[track_caller]
    pub(crate) fn post(&mut self, message: &Value) -> Answer {
        let mut http = self.http.take().unwrap_or_else(|| self.server.connect());
        self.send_on(&mut http, message)
            .expect("the request is taken");
        let answer = http
            .answer()
            .unwrap_or_else(|e| self.server.process.fail(&format!("{message}: {e}")));
        self.server.process.said.note("←", &answer.body);
        if answer.header("connection") != Some("close") {
            self.http = Some(http);
        }
        answer
    }

    /// A request and its complete JSON-RPC answer; earlier messages are in `notes`.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let message = self.message(method, params);
        let answer = self.post(&message);
        let mut messages = messages(&answer);
        let last = messages.pop();
        let last = last.unwrap_or_else(|| panic!("{message} was not answered: {}", answer.text()));
        assert_eq!(last["id"], message["id"], "the answer comes last: {last}");
        let is_so = messages.iter().all(|note| note.get("id").is_none());
        assert!(is_so, "{messages:?}");
        self.notes = messages;
        last
    }
}

macro_rules! caller_over_http {
    ($($caller:ty)+) => {
        $(
            impl Caller for $caller {
                #[track_caller]
                fn ask(&mut self, method: &str, params: Value) -> Value {
                    self.request(method, params)
                }

                fn era(&self) -> Era {
                    self.era
                }

                fn process(&self) -> &Process {
                    &self.server.process
                }

                fn server(&self) -> Option<&HttpServer> {
                    Some(&self.server)
                }
            }
        )+
    };
}

caller_over_http!(Streamable Sse);

/// The JSON-RPC messages of an answer, in order.
#[track_caller]
pub(crate) fn messages(answer: &Answer) -> Vec<Value> {
    if answer.body.is_empty() {
        return Vec::new();
    }
    if !answer
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("text/event-stream"))
    {
        return vec![answer.json()];
    }
    let data = |line: &str| {
        line.strip_prefix("data:")
            .map(|data| data.trim_start().to_owned())
    };
    let text = answer.text();
    text.lines()
        .filter_map(data)
        .map(|data| serde_json::from_str(&data).expect("data is JSON"))
        .collect()
}

/// A client of HTTP+SSE: the stream, and a connection for messages.
pub(crate) struct Sse {
    pub(crate) server: Arc<HttpServer>,
    era: Era,
    events: Events,
    /// The path for messages.
    pub(crate) endpoint: String,
    http: Http,
    token: Option<String>,
    next_id: u64,
    /// Received notifications, oldest first.
    pub(crate) notes: VecDeque<Value>,
    /// Received answers that no test has asked for.
    answers: VecDeque<Value>,
}

impl Sse {
    /// Another client of a server.
    pub(crate) fn to(server: &Arc<HttpServer>, era: Era, token: Option<&str>) -> Sse {
        let authorization = token.map(|token| format!("Bearer {token}"));
        let bearer = authorization.as_deref();
        let headers = bearer.map(|value| ("Authorization", value));
        let headers: Vec<_> = headers.into_iter().collect();
        let mut events = server.events(&server.path, &headers);
        let first = events.next().expect("an event").expect("an event");
        assert_eq!(first.event, "endpoint");
        let http = server.connect();
        let mut client = Sse {
            server: Arc::clone(server),
            era,
            events,
            endpoint: first.data,
            http,
            token: authorization,
            next_id: 1,
            notes: VecDeque::new(),
            answers: VecDeque::new(),
        };
        if era.is_legacy() {
            let answer = client.request("initialize", initialize_params(era.name()));
            assert_eq!(answer["result"]["protocolVersion"], era.name(), "{answer}");
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    /// Posts a message, which must be accepted.
    #[track_caller]
    pub(crate) fn send(&mut self, message: &Value) {
        let said = message.to_string();
        self.server.process.said.note("→", said.as_bytes());
        let mut headers = Vec::new();
        headers.extend(self.token.as_deref().map(|value| ("Authorization", value)));
        let answer = self.http.post(&self.endpoint, &headers, message);
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// Posts a request of this client's era and returns its id.
    #[track_caller]
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send(&self.era.request(&id, method, params));
        id
    }

    /// Waits for the answer with this id; keeps all other messages.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: &Value) -> Value {
        if let Some(at) = self.answers.iter().position(|answer| answer["id"] == *id) {
            return self.answers.remove(at).expect("found a moment ago");
        }
        loop {
            let message = self.events.next_json();
            let said = message.to_string();
            self.server.process.said.note("←", said.as_bytes());
            match message.get("id") {
                Some(known) if known == id => return message,
                Some(_) => self.answers.push_back(message),
                None => self.notes.push_back(message),
            }
        }
    }

    /// The next message of any kind.
    #[track_caller]
    pub(crate) fn next_message(&mut self) -> Value {
        self.events.next_json()
    }

    /// A request and its complete answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(&id)
    }

    /// Reads until the stream ends. Fails if it is cut.
    #[cfg(unix)]
    pub(crate) fn read_to_end(&mut self) -> io::Result<()> {
        while self.events.next()?.is_some() {}
        Ok(())
    }

    /// Closes the stream.
    pub(crate) fn leave(self) {
        self.events.into_connection().close();
    }
}

/// A header's value for 2026-07-28: encoded unless it is plain visible ASCII.
pub(crate) fn header_value(value: &str) -> String {
    let plain = value.bytes().all(|b| (0x20..0x7f).contains(&b)) && value.trim() == value;
    let marked = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && !marked {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", base64(value.as_bytes()))
    }
}

/// RFC 4648's base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}
