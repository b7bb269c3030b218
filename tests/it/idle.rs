//! Idle means idle: without a client that does something, no thread of the server runs, so that a laptop can sleep.
//!
//! Seen on Linux as the context switches of all of its threads. The 2 s of [`WINDOW`] are no synchronisation but the
//! observation itself: what did not happen cannot announce itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::{Process, Program};
use crate::support::stdio::Stdio;
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, expect, poll};

const LEGACY: Era = Era::Legacy("2025-11-25");
/// How long the server is watched.
const WINDOW: Duration = Duration::from_secs(2);
/// Between two looks at a server that has to settle.
const SETTLED: Duration = Duration::from_millis(50);
/// Windows of which one must be quiet: a busy machine may not give a thread the time to go to sleep before the first.
const TRIES: usize = 3;

/// The context switches of each thread so far: voluntary ones, then all.
fn switches(process: &Process) -> BTreeMap<String, (u64, u64)> {
    let tasks =
        fs::read_dir(format!("/proc/{}/task", process.child.id())).expect("the threads of a process that lives");
    let counts = tasks.flatten().filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let count = |name| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let (own, forced) = (count("voluntary_ctxt_switches:")?, count("nonvoluntary_ctxt_switches:")?);
        let name = status.lines().next().unwrap_or_default().trim_start_matches("Name:\t");
        Some((format!("{} {name}", task.file_name().display()), (own, own + forced)))
    });
    counts.collect()
}

/// Two readings: of a server that has settled, and a window later.
fn window(process: &Process) -> [BTreeMap<String, (u64, u64)>; 2] {
    let settled = poll(DEADLINE, || {
        let before = switches(process);
        thread::sleep(SETTLED);
        (switches(process) == before).then_some(before)
    });
    let before = settled.unwrap_or_else(|| process.fail("it never comes to rest"));
    thread::sleep(WINDOW);
    [before, switches(process)]
}

#[track_caller]
fn expect_no_switch(process: &Process) {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let [before, after] = window(process);
        assert!(!after.is_empty(), "no thread to watch");
        if before == after {
            return;
        }
        seen.push([before, after]);
    }
    process.fail(&format!("it wakes up without being asked: {seen:#?}"));
}

/// Wakes by itself once a second at most; what the machine takes from a thread that runs is not the thread's doing.
#[track_caller]
fn expect_a_switch_a_second(process: &Process) {
    let [before, after] = window(process);
    let sum = |counts: &BTreeMap<String, (u64, u64)>| counts.values().map(|(own, _)| own).sum::<u64>();
    let woken = sum(&after) - sum(&before);
    // One more, as the window begins anywhere between two of them.
    assert!(woken <= WINDOW.as_secs() + 1, "{woken} times in {WINDOW:?}: {before:#?} {after:#?}");
}

/// Has `client` do what leaves most behind: a list that is cached, a run that has ended, workers, a kept connection to Fabric.
fn work(client: &mut dyn Caller, fabric: &FakeFabric) {
    client.process().wait_stderr("onnected to Fabric API");
    let run = json!({"pattern_name": "ai", "input_text": "x", "stream": true});
    expect::success(LEGACY, &client.call("fabric_list_patterns", json!({})));
    expect::success(LEGACY, &client.call("fabric_run_pattern", run));
    fabric.expect_chats(1);
}

#[test]
fn an_idle_stdio_server_does_not_wake_up() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    work(&mut client, &fabric);
    expect_no_switch(&client.process);
}

#[test]
fn an_idle_http_server_with_a_connection_and_a_session_does_not_wake_up() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    let mut client = Streamable::to(&server, LEGACY, None);
    work(&mut client, &fabric);
    expect_no_switch(&server.process);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}), "the connection and the session are still there");
}

#[test]
fn a_subscription_wakes_the_server_once_a_second_at_most() {
    let listen = || json!({"notifications": {"promptsListChanged": true, "resourcesListChanged": true}});
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::Modern, Program::with(&fabric));
    client.process.wait_stderr("onnected to Fabric API");
    client.begin("subscriptions/listen", listen());
    assert_eq!(client.next_note()["method"], "notifications/subscriptions/acknowledged");
    expect_no_switch(&client.process);

    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    server.process.wait_stderr("onnected to Fabric API");
    let mut client = Streamable::to(&server, Era::Modern, None);
    let message = client.message("subscriptions/listen", listen());
    let mut events = client.stream(&message);
    assert_eq!(events.next_json()["method"], "notifications/subscriptions/acknowledged");
    expect_a_switch_a_second(&server.process);
}
