//! What the tests stand on: a Fabric that misbehaves on request, the binary on pipes or a port, and random cases.
//!
//! - [`fabric`], [`reply`], [`good`], [`fixtures`]: `FakeFabric`, its language of replies, how it answers and what it
//!   knows by default.
//! - [`process`]: starting the binary with nothing but what a test gives it, and telling all when a test fails.
//! - [`stdio`], [`http`]: an MCP client's end of a pipe, and a small HTTP/1.1 client.
//! - [`web`], [`wires`]: an MCP client over each of the two HTTP transports, and over any of the three.
//! - [`expect`]: what results and errors must look like in every revision.
//! - [`rng`]: seeded random cases.

pub(crate) mod expect;
pub(crate) mod fabric;
pub(crate) mod fixtures;
mod good;
pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod reply;
pub(crate) mod rng;
pub(crate) mod stdio;
pub(crate) mod web;
pub(crate) mod wires;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for something that must happen. Only a failing test ever waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The protocol's revisions, oldest first; the last is the modern one.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";

/// How a client speaks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// After an `initialize` with this revision.
    Legacy(&'static str),
    /// With everything in each request's `_meta`.
    Modern,
}

impl Era {
    /// The revision's name.
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Era::Legacy(revision) => revision,
            Era::Modern => MODERN,
        }
    }

    /// Whether this revision is `other` or later; revisions are dates.
    pub(crate) fn from(self, other: &str) -> bool {
        self.revision() >= other
    }
}

/// Every way to speak, oldest first.
pub(crate) const ERAS: [Era; 5] =
    [Era::Legacy(LEGACY[0]), Era::Legacy(LEGACY[1]), Era::Legacy(LEGACY[2]), Era::Legacy(LEGACY[3]), Era::Modern];

/// A client of any transport, for tests that are the same over all of them.
pub(crate) trait Caller {
    /// Sends a request and gives its answer.
    fn ask(&mut self, method: &str, params: Value) -> Value;

    /// Calls a tool and gives its result; a JSON-RPC error fails the test.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        match answer.get_mut("result") {
            Some(result) => result.take(),
            None => self.process().fail(&format!("{tool} was answered with {answer}")),
        }
    }

    /// The server's process.
    fn process(&self) -> &process::Process;
}

/// Waits until `done` gives a value, looking every few milliseconds; `None` after `limit`.
///
/// For what no channel or condition variable can announce: a child's exit, a file. The one sleep of these tests.
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
