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

/// Longest wait for something that must happen. Only a failing test waits this long: it is more than a machine needs that
/// has thirty times too much to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// A time limit that is itself tested, longer on a busy machine: by how many want each of its cores, now or lately.
pub(crate) fn scaled(limit: Duration) -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let numbers = load.split([' ', '/']).take(4);
    let numbers = numbers.map(|number| number.parse::<f64>());
    let busiest = numbers.flatten().fold(0.0, f64::max);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    limit.mul_f64((busiest / cores as f64).max(1.0))
}

/// What answers a subscription first.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// How a client talks to the server: the program's own table of revisions, so that no test has to be told of a new one.
pub(crate) use crate::revision::Revision as Era;

impl Era {
    /// The newest revision, which is stateless.
    pub(crate) const MODERN: Era = Era::NEWEST;

    /// Is everything in each request's `_meta`?
    pub(crate) fn is_modern(self) -> bool {
        !self.is_legacy()
    }

    /// A request as this revision sends it.
    pub(crate) fn request(self, id: &Value, method: &str, params: Value) -> Value {
        let params = match self.is_modern() {
            true => stdio::with_meta_of(self.name(), params),
            false => params,
        };
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        message
    }
}

/// All revisions, oldest first.
pub(crate) const ERAS: [Era; Era::ALL.len()] = Era::ALL;

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

    /// Calls every tool that is listed as the first call of its contract does, and returns their names and results.
    #[track_caller]
    fn call_every_tool(&mut self) -> Vec<(String, Value)> {
        let listed = self.ask("tools/list", json!({}));
        let mut results = Vec::new();
        for tool in names(&listed["result"]["tools"]) {
            let file = format!(
                "{}/tests/it/contracts/tools/{tool}.json",
                env!("CARGO_MANIFEST_DIR")
            );
            let contract = std::fs::read_to_string(&file);
            let contract =
                contract.unwrap_or_else(|_| panic!("{file} must begin with a call that succeeds"));
            let mut contract: Value = serde_json::from_str(&contract).unwrap();
            let mut arguments = contract["calls"][0]["arguments"].take();
            if arguments["run_id"] == "#" {
                arguments["run_id"] =
                    self.success("fabric_get_run", json!({}))["runs"][0]["run_id"].take();
            }
            results.push((tool.to_owned(), self.call(tool, arguments)));
        }
        results
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

/// The cancellation of the request with this id.
pub(crate) fn cancellation(id: impl Into<Value>) -> Value {
    let params = json!({"requestId": id.into(), "reason": "the test says so"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// The arguments of a run that streams.
pub(crate) fn run_arguments(input: &str) -> Value {
    json!({"pattern_name": "summarize", "input_text": input, "stream": true})
}

/// The params of such a run that tells its progress under `token`.
pub(crate) fn run_params(token: Value) -> Value {
    let arguments = run_arguments("x");
    json!({"name": "fabric_run_pattern", "arguments": arguments, "_meta": {"progressToken": token}})
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
