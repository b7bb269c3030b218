//! Test support: a Fabric that misbehaves on request, clients of the binary, and random cases.
//!
//! - [`fabric`], [`reply`], [`default_answers`], [`fixtures`]: `FakeFabric`, its replies, and its default answers.
//! - [`process`]: the binary with only the environment that a test sets, and a full report when a test fails.
//! - [`stdio`], [`http`]: an MCP client on stdio, and a small HTTP/1.1 client.
//! - [`web`], [`transports`]: an MCP client of each of the two HTTP transports, and of any of the three.
//! - [`folder`]: temporary folders.
//! - [`expect`]: what results and errors must look like in every revision.
//! - [`rng`]: seeded random cases, also for the unit tests of `src/http`.
//!
//! `tests/bench` has its own Fabric and HTTP client, with minimal overhead, and `src/fabric` its own Fabric, whose
//! answers are closures of a unit test.

mod default_answers;
pub(crate) mod expect;
pub(crate) mod fabric;
pub(crate) mod fixtures;
pub(crate) mod folder;
pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod reply;
pub(crate) mod rng;
pub(crate) mod stdio;
pub(crate) mod transports;
pub(crate) mod web;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for something that must happen. Only a failing test waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The legacy revisions, oldest first.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";

/// What answers a subscription first.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// How a client talks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// After an `initialize` with this revision.
    Legacy(&'static str),
    /// With everything in each request's `_meta`, as this revision has it.
    Modern(&'static str),
}

impl Era {
    /// The newest stateless revision.
    pub(crate) const MODERN: Era = Era::Modern(MODERN);

    /// The revision's name.
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Era::Legacy(revision) | Era::Modern(revision) => revision,
        }
    }

    /// A request as this era sends it.
    pub(crate) fn request(self, id: &Value, method: &str, params: Value) -> Value {
        let params = match self {
            Era::Modern(revision) => stdio::with_meta_of(revision, params),
            Era::Legacy(_) => params,
        };
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        message
    }

    /// Whether this revision is `other` or later; revisions are dates.
    pub(crate) fn from(self, other: &str) -> bool {
        self.revision() >= other
    }
}

/// All eras and revisions, oldest first.
pub(crate) const ERAS: [Era; 5] = [
    Era::Legacy(LEGACY[0]),
    Era::Legacy(LEGACY[1]),
    Era::Legacy(LEGACY[2]),
    Era::Legacy(LEGACY[3]),
    Era::MODERN,
];

/// A client of any transport, for tests that are the same on all of them.
pub(crate) trait Caller {
    /// Sends a request and returns its answer.
    fn ask(&mut self, method: &str, params: Value) -> Value;

    /// Calls a tool and returns its result; a JSON-RPC error fails the test.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        match answer.get_mut("result") {
            Some(result) => result.take(),
            None => self
                .process()
                .fail(&format!("{tool} was answered with {answer}")),
        }
    }

    /// Calls a tool, which must succeed, and returns its data.
    #[track_caller]
    fn success(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        expect::success(self.era(), &result)
    }

    /// Calls a tool, which must fail with an error of this kind, and returns what it says.
    #[track_caller]
    fn failure(&mut self, tool: &str, arguments: Value, kind: &str) -> String {
        let result = self.call(tool, arguments);
        expect::failure(self.era(), &result, kind)
    }

    /// The era that it speaks.
    fn era(&self) -> Era;

    /// The server's process.
    fn process(&self) -> &process::Process;

    /// The server's address; `None` on stdio.
    fn server(&self) -> Option<&http::HttpServer> {
        None
    }
}

/// The names in a list of objects.
#[track_caller]
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().expect("a list").iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

/// `object` with the members of `more`.
pub(crate) fn extended(mut object: Value, more: Value) -> Value {
    let (Value::Object(members), Value::Object(more)) = (&mut object, more) else {
        panic!("two objects")
    };
    members.extend(more);
    object
}

/// Polls `done` every few milliseconds until it returns a value; `None` after `limit`.
///
/// For events without a channel or condition variable: a child's exit, a file. The only other sleep in these tests is
/// in `idle`, which observes that nothing happens.
pub(crate) fn poll<T>(limit: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
