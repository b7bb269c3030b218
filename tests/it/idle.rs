//! Without client activity, no thread of the server runs, so that a laptop can sleep.
//!
//! Measured on Linux as the context switches of all its threads. The 2 s of [`WINDOW`] are not synchronisation but the
//! observation: the absence of something cannot be signalled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::{Process, Program};
use crate::support::stdio::{Stdio, ready};
use crate::support::web::Streamable;
use crate::support::{ACKNOWLEDGED, Caller, DEADLINE, Era, poll};

/// How long the server is observed.
const WINDOW: Duration = Duration::from_secs(2);
/// Interval between checks of a server that is settling.
const SETTLED: Duration = Duration::from_millis(50);
/// Windows, one of which must be quiet: on a busy machine a thread may not be asleep before the first.
const TRIES: usize = 3;

/// Context switches of each thread so far: voluntary ones, and all.
fn switches(process: &Process) -> BTreeMap<String, (u64, u64)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.child.id()))
        .expect("the threads of a process that lives");
    let counts = tasks.flatten().filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let count = |name| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let own = count("voluntary_ctxt_switches:")?;
        let forced = count("nonvoluntary_ctxt_switches:")?;
        let name = status.lines().next();
        let name = name.unwrap_or_default().trim_start_matches("Name:\t");
        Some((
            format!("{} {name}", task.file_name().display()),
            (own, own + forced),
        ))
    });
    counts.collect()
}

/// Two readings: of a settled server, and a window later.
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

/// Wakes at most once a second; preemptions by the machine do not count.
#[track_caller]
fn expect_a_switch_a_second(process: &Process) {
    let [before, after] = window(process);
    let sum =
        |counts: &BTreeMap<String, (u64, u64)>| counts.values().map(|(own, _)| own).sum::<u64>();
    let woken = sum(&after) - sum(&before);
    // One more, because the window may begin anywhere between two wake-ups.
    let is_so = woken <= WINDOW.as_secs() + 1;
    assert!(is_so, "{woken} times in {WINDOW:?}: {before:#?} {after:#?}");
}

/// Makes `client` do what leaves most behind: a cached list, an ended run, workers, an idle connection to Fabric.
fn work(client: &mut dyn Caller, fabric: &FakeFabric) {
    client.process().wait_stderr("onnected to Fabric API");
    let run = json!({"pattern_name": "ai", "input_text": "x", "stream": true});
    client.success("fabric_list_patterns", json!({}));
    client.success("fabric_run_pattern", run);
    fabric.expect_chats(1);
}

#[test]
fn an_idle_stdio_server_does_not_wake_up() {
    let (fabric, mut client) = ready();
    work(&mut client, &fabric);
    expect_no_switch(&client.process);
}

#[test]
fn an_idle_http_server_with_a_connection_and_a_session_does_not_wake_up() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, None);
    work(&mut client, &fabric);
    expect_no_switch(&server.process);
    assert_eq!(
        client.ask("ping", json!({}))["result"],
        json!({}),
        "the connection and the session are still there"
    );
}

#[test]
fn a_subscription_wakes_the_server_once_a_second_at_most() {
    let listen =
        || json!({"notifications": {"promptsListChanged": true, "resourcesListChanged": true}});
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::MODERN, Program::with(&fabric));
    client.process.wait_stderr("onnected to Fabric API");
    client.begin("subscriptions/listen", listen());
    assert_eq!(client.next_note()["method"], ACKNOWLEDGED);
    expect_no_switch(&client.process);

    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    server.process.wait_stderr("onnected to Fabric API");
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let message = client.message("subscriptions/listen", listen());
    let mut events = client.stream(&message);
    assert_eq!(events.next_json()["method"], ACKNOWLEDGED);
    expect_a_switch_a_second(&server.process);
}
