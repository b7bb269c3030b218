//! A client on stdio: one JSON message per line, in any revision.
//!
//! Every received line is checked at once: UTF-8, JSON, `"jsonrpc":"2.0"`. Answers are found by id in any order;
//! notifications are kept in order. Every wait has a deadline and fails with the whole conversation.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::fabric::FakeFabric;
use super::process::{Output, Process, Program};
use super::{Caller, DEADLINE, Era, cancellation};

/// The prefix of the modern `_meta` keys.
const META: &str = "io.modelcontextprotocol/";

/// The binary on its pipes.
pub(crate) struct Stdio {
    pub(crate) process: Process,
    lines: Option<Receiver<Vec<u8>>>,
    era: Option<Era>,
    next_id: u64,
    /// Received notifications, oldest first.
    notes: VecDeque<Value>,
    /// Received answers that no test has asked for.
    answers: VecDeque<Value>,
}

/// A Fabric, and the binary in front of it: [`Stdio::ready`].
pub(crate) fn ready() -> (FakeFabric, Stdio) {
    let fabric = FakeFabric::start();
    let client = Stdio::ready(&fabric);
    (fabric, client)
}

impl Stdio {
    /// Starts the binary in front of this Fabric with the newest legacy revision. Waits for the start-up check, so that
    /// its requests do not interfere.
    pub(crate) fn ready(fabric: &FakeFabric) -> Stdio {
        let client = Stdio::speaking(Era::R2025_11_25, Program::with(fabric));
        client.process.wait_stderr("Fabric API at");
        client
    }

    /// Starts the binary in `era`: with `initialize` and its notification, or without any message.
    pub(crate) fn speaking(era: Era, program: Program) -> Stdio {
        let mut client = Stdio::start(program);
        client.speak(era);
        client
    }

    /// Starts the binary without sending anything.
    pub(crate) fn start(program: Program) -> Stdio {
        let mut process = program.start();
        let lines = process.stdout.take().map(|stdout| {
            let (sender, lines) = channel();
            thread::spawn(move || {
                let mut reader = BufReader::with_capacity(1 << 16, stdout);
                loop {
                    let mut line = Vec::new();
                    match reader.read_until(b'\n', &mut line) {
                        Ok(n) if n > 0 && sender.send(line).is_ok() => {}
                        _ => return,
                    }
                }
            });
            lines
        });
        Stdio {
            process,
            lines,
            era: None,
            next_id: 1,
            notes: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Sets the era of further requests; a legacy one begins with `initialize`.
    pub(crate) fn speak(&mut self, era: Era) {
        if era.is_legacy() {
            self.initialize(era);
        }
        self.era = Some(era);
    }

    /// The complete legacy handshake; returns the result of `initialize`.
    #[track_caller]
    pub(crate) fn initialize(&mut self, era: Era) -> Value {
        self.era = Some(era);
        let result = self.result("initialize", initialize_params(era.name()));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        result
    }

    /// Writes one message as one line.
    pub(crate) fn send(&mut self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.send_raw(&line);
    }

    /// Writes bytes unchanged.
    #[track_caller]
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        if !self.process.write(bytes) {
            self.process
                .fail("the server does not read its stdin any more");
        }
    }

    /// Sends a request of the current era and returns its id; wait for the answer with [`Stdio::answer`].
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.begin_as(&id, method, params);
        id
    }

    /// The same with the test's own id.
    pub(crate) fn begin_as(&mut self, id: &Value, method: &str, params: Value) {
        let era = self.era.unwrap_or(Era::R2025_11_25);
        self.send(&era.request(id, method, params));
    }

    /// Sends a tool call and returns its id. A token requests progress.
    pub(crate) fn begin_call(
        &mut self,
        tool: &str,
        arguments: Value,
        token: Option<Value>,
    ) -> Value {
        let mut params = json!({"name": tool, "arguments": arguments});
        if let Some(token) = token {
            params["_meta"] = json!({"progressToken": token});
        }
        self.begin("tools/call", params)
    }

    /// Waits for the answer with this id; keeps all other messages.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: &Value) -> Value {
        let known = self
            .answers
            .iter()
            .position(|answer| answer.get("id") == Some(id));
        if let Some(answer) = known.and_then(|at| self.answers.remove(at)) {
            return answer;
        }
        let end = Instant::now() + DEADLINE;
        loop {
            let message = self.next_message(end, &format!("the answer to {id}"));
            if message.get("method").is_some() {
                self.notes.push_back(message);
            } else if message.get("id") == Some(id) {
                return message;
            } else {
                self.answers.push_back(message);
            }
        }
    }

    /// The next message of any kind, ignoring kept ones.
    #[track_caller]
    pub(crate) fn recv(&mut self) -> Value {
        self.next_message(Instant::now() + DEADLINE, "a message")
    }

    /// The next notification, kept or new; keeps answers.
    #[track_caller]
    pub(crate) fn next_note(&mut self) -> Value {
        if let Some(note) = self.notes.pop_front() {
            return note;
        }
        let end = Instant::now() + DEADLINE;
        loop {
            let message = self.next_message(end, "a notification");
            if message.get("method").is_some() {
                return message;
            }
            self.answers.push_back(message);
        }
    }

    /// The text of the next progress notification that has one; skips heartbeats.
    #[track_caller]
    pub(crate) fn next_progress_text(&mut self) -> String {
        loop {
            let note = self.next_note();
            if note["method"] == "notifications/progress"
                && let Some(text) = note["params"]["message"].as_str()
            {
                return text.to_owned();
            }
        }
    }

    /// Takes all notifications kept so far.
    pub(crate) fn notes(&mut self) -> Vec<Value> {
        self.notes.drain(..).collect()
    }

    /// Answers that no test has asked for so far.
    pub(crate) fn unasked(&self) -> Vec<Value> {
        self.answers.iter().cloned().collect()
    }

    /// Sends a request of the current era and waits for the complete answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(&id)
    }

    /// The same, and the answer must be a result.
    #[track_caller]
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        self.member("result", method, params)
    }

    /// The same, and the answer must be an error.
    #[track_caller]
    pub(crate) fn error(&mut self, method: &str, params: Value) -> Value {
        self.member("error", method, params)
    }

    #[track_caller]
    fn member(&mut self, name: &str, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params);
        match answer.get_mut(name) {
            Some(value) => value.take(),
            None => self
                .process
                .fail(&format!("{method} was answered with {answer}")),
        }
    }

    /// A modern request in any era; returns the complete answer.
    #[track_caller]
    pub(crate) fn modern(&mut self, method: &str, params: Value) -> Value {
        let era = self.era.replace(Era::MODERN);
        let id = self.begin(method, params);
        self.era = era;
        self.answer(&id)
    }

    /// Sends `notifications/cancelled` for this id.
    pub(crate) fn cancel(&mut self, id: &Value) {
        self.send(&cancellation(id.clone()));
    }

    /// Proves that nothing else was sent: the next message is the answer of a `ping`, `{}`.
    #[track_caller]
    pub(crate) fn expect_nothing_else(&mut self) {
        let kept: Vec<Value> = self.notes.iter().chain(&self.answers).cloned().collect();
        if !kept.is_empty() {
            self.process
                .fail(&format!("nobody asked for {}", Value::Array(kept)));
        }
        let id = json!(format!("silence-{}", self.next_id));
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        let message = self.recv();
        if message != json!({"jsonrpc": "2.0", "id": id, "result": {}}) {
            self.process.fail(&format!(
                "nothing but the answer to a ping was to come, but {message} did"
            ));
        }
    }

    /// Closes the server's input.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Ends its input. The process must then end well within `limit`.
    #[track_caller]
    pub(crate) fn end(&mut self, limit: Duration) {
        self.close_stdin();
        assert_eq!(self.wait_exit(limit).code(), Some(0));
    }

    /// Waits for the server's end.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait_exit(limit)
    }

    /// Everything on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// All lines until the server closes stdout.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(lines) = &self.lines
            && let Ok(line) = lines.recv_timeout(DEADLINE)
        {
            self.process.said.note("←", &line);
            rest.push(self.checked(&line));
        }
        rest
    }

    #[track_caller]
    fn next_message(&mut self, end: Instant, what: &str) -> Value {
        let line = self.next_line(end, what);
        self.checked(&line)
    }

    #[track_caller]
    fn next_line(&mut self, end: Instant, what: &str) -> Vec<u8> {
        let Some(lines) = &self.lines else {
            self.process.fail("stdout is not read in this test")
        };
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.process.said.note("←", &line);
                line
            }
            Err(RecvTimeoutError::Timeout) => {
                self.process.fail(&format!("{what} did not come in time"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The report needs the exit status, and stderr may still be arriving.
                let status = self.process.wait_exit(DEADLINE);
                self.process
                    .fail(&format!("stdout ended ({status}) before {what} came"))
            }
        }
    }

    /// Checks of every line on stdout.
    #[track_caller]
    fn checked(&self, line: &[u8]) -> Value {
        let fail = |why: &str| {
            self.process
                .fail(&format!("{why}: {:?}", String::from_utf8_lossy(line)))
        };
        let Some(text) = line.strip_suffix(b"\n") else {
            fail("the last line has no newline")
        };
        let Ok(text) = std::str::from_utf8(text) else {
            fail("not UTF-8")
        };
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            fail("not JSON")
        };
        let one = |message: &Value| message["jsonrpc"] == "2.0";
        match &message {
            Value::Object(_) if one(&message) => {}
            Value::Array(items) if !items.is_empty() && items.iter().all(one) => {}
            _ => fail("not a JSON-RPC message"),
        }
        message
    }
}

impl Caller for Stdio {
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.request(method, params)
    }

    fn era(&self) -> Era {
        self.era.expect("an era was agreed on")
    }

    fn process(&self) -> &Process {
        &self.process
    }
}

/// The params of `initialize`.
pub(crate) fn initialize_params(revision: &str) -> Value {
    json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "it", "version": "1.2.3"}})
}

/// The `_meta` that every modern request needs.
pub(crate) fn modern_meta(revision: &str) -> Value {
    let mut meta = Map::new();
    meta.insert(format!("{META}protocolVersion"), json!(revision));
    meta.insert(format!("{META}clientCapabilities"), json!({}));
    let text = format!("{META}clientInfo");
    meta.insert(text, json!({"name": "it", "version": "1.2.3"}));
    Value::Object(meta)
}

/// `params` with the modern `_meta` added to theirs; `null` counts as none.
pub(crate) fn with_meta(params: Value) -> Value {
    with_meta_of(Era::MODERN.name(), params)
}

/// The same, as this revision has it.
pub(crate) fn with_meta_of(revision: &str, params: Value) -> Value {
    let mut params = if params.is_null() { json!({}) } else { params };
    if let Value::Object(members) = &mut params {
        let meta = members.entry("_meta").or_insert_with(|| json!({}));
        if let (Value::Object(meta), Value::Object(modern)) = (meta, modern_meta(revision)) {
            for (name, value) in modern {
                meta.entry(name).or_insert(value);
            }
        }
    }
    params
}

/// A program whose stdout is closed from the start.
pub(crate) fn deaf(program: Program) -> Stdio {
    Stdio::start(program.stdout(Output::Closed))
}
