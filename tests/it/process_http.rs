//! The process with an HTTP transport: signals during a run, a port in use, and exhausted resources.
#![cfg(unix)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(unused, reason = "resources are exhausted on Linux only")
)]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, Http, HttpServer};
use crate::support::process::{Process, Program};
use crate::support::reply::Reply;
use crate::support::stdio::ready;
use crate::support::transports::{Wire, serve};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, expect, poll, run_arguments, run_params};

/// The answer at the end of a stream.
#[track_caller]
fn answer_in(mut events: Events) -> Value {
    loop {
        let message = events.next_json();
        if message.get("id").is_some() {
            assert_eq!(events.next().expect("a proper end"), None);
            return message;
        }
    }
}

/// Takes the server out of its handle, which must be the last one.
fn own(server: Arc<HttpServer>) -> HttpServer {
    Arc::into_inner(server).expect("the only handle")
}

#[test]
fn an_idle_server_with_open_streams_and_sessions_ends_with_0() {
    for wire in [Wire::Streamable, Wire::Sse] {
        let fabric = FakeFabric::start();
        let server = serve(wire, Program::with(&fabric));
        let client =
            (wire == Wire::Streamable).then(|| Streamable::to(&server, Era::NEWEST_LEGACY, None));
        let session = client.as_ref().and_then(Streamable::session);
        let headers = session.map(|id| ("Mcp-Session-Id", id));
        let headers: Vec<_> = headers.into_iter().collect();
        let mut events = server.events(&server.path, &headers);
        drop(client);
        server.process.signal("TERM");
        while events.next().expect("a proper end").is_some() {}
        let status = own(server).process.wait_exit(DEADLINE);
        assert_eq!(status.code(), Some(0), "{wire:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_file_descriptors_left_costs_connections_and_not_the_server() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    if !server.process.limit("--nofile=40:") {
        return;
    }
    let mut client = Streamable::to(&server, Era::MODERN, None);
    fabric.once_run(Reply::gated(&["one ", "two"]));
    let message = client.message("tools/call", run_params(json!(1)));
    let running = client.stream(&message);
    fabric.wait_held(1);
    // Each has begun a request, so none is idle.
    let begin = || {
        let mut http = server.connect();
        // Fails if it was idle long enough to be evicted.
        let _ = http.send_raw(b"POST /mcp HTTP/1.1\r\n");
        http
    };
    let crowd: Vec<Http> = (0..60).map(|_| begin()).collect();
    server.process.wait_stderr("cannot accept connections");
    fabric.release();
    let members = json!({"text": "one two"});
    expect::includes(&answer_in(running)["result"]["content"][0], members);
    drop(crowd);
    // Until the server has noticed the disconnects, it may reject a new connection, or have none for Fabric.
    let recovered = poll(DEADLINE, || {
        let mut http = server.connect();
        http.send("GET", "/metrics", &[], None).ok()?;
        let metrics = http.answer().ok()?.text();
        let (_, count) = metrics.split_once("\nfabric_mcp_connections ")?;
        (count.lines().next()?.parse::<usize>().ok()? <= 4).then_some(())
    });
    assert!(recovered.is_some(), "connections that were left stay open");
    let mut again = Streamable::to(&server, Era::MODERN, None);
    again.success("fabric_run_pattern", run_arguments("x"));
    let log = server.process.stderr();
    assert_eq!(log.matches("cannot accept connections").count(), 1);
    server.process.signal("TERM");
    drop((client, again));
    assert_eq!(own(server).process.wait_exit(DEADLINE).code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn no_file_descriptors_left_on_stdio_is_an_error_and_not_the_end() {
    let (fabric, mut client) = ready();
    client.process.wait_stderr("onnected to Fabric API");
    if !client.process.limit("--nofile=3:") {
        return;
    }
    fabric.close_connections();
    for tool in ["fabric_list_strategies", "fabric_run_pattern"] {
        let is_run = tool == "fabric_run_pattern";
        let run = run_arguments("x");
        let arguments = if is_run { run } else { json!({}) };
        // It is not Fabric's fault.
        let said = client.failure(tool, arguments, "fabric-api-unavailable");
        expect::contains(said, ["open files"]);
    }
    assert_eq!(client.result("ping", Value::Null), json!({}));
    client.process.limit("--nofile=100:");
    client.success("fabric_list_strategies", json!({}));
    client.end(DEADLINE);
}

/// Limits the process's memory so that small allocations succeed, but not the stack of another thread.
#[cfg(target_os = "linux")]
fn starve(process: &Process) -> bool {
    let file = format!("/proc/{}/status", process.child.id());
    let status = std::fs::read_to_string(file).expect("/proc");
    let mut lines = status.lines();
    let size = lines.find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size.expect("VmSize").trim_end_matches("kB").trim();
    let kib: u64 = kib.parse().expect("a number of KiB");
    process.limit(&format!("--as={}:", (kib + 480) << 10))
}

#[cfg(target_os = "linux")]
#[test]
fn no_memory_for_a_thread_is_an_error_and_not_the_end() {
    let (fabric, mut client) = ready();
    client.process.wait_stderr("onnected to Fabric API");
    // What a first run keeps is allocated then.
    client.success("fabric_run_pattern", run_arguments("x"));
    if !starve(&client.process) {
        return;
    }
    // The stack of an ended thread can be reused: one run may continue, the others wait for it or are refused.
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let ids: Vec<Value> = (0..5)
        .map(|_| client.begin("tools/call", run_params(json!(1))))
        .collect();
    let last = client.answer(&ids[4])["result"].take();
    expect::failure(Era::NEWEST_LEGACY, &last, "too-many-requests");
    let wrong = json!({"pattern_name": "ai", "top_p": 9});
    client.failure("fabric_run_pattern", wrong, "invalid-request");
    assert_eq!(client.result("ping", Value::Null), json!({}));
    fabric.release_all();
    for id in &ids[..4] {
        let result = client.answer(id)["result"].take();
        match result["isError"] == true {
            true => drop(expect::failure(
                Era::NEWEST_LEGACY,
                &result,
                "too-many-requests",
            )),
            false => assert_eq!(result["content"][0]["text"], "x", "{result}"),
        }
    }
    client.process.limit("--as=unlimited:");
    client.success("fabric_run_pattern", run_arguments("x"));
    client.end(DEADLINE);
}

#[cfg(target_os = "linux")]
#[test]
fn no_memory_for_a_connections_thread_costs_that_connection() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    client.success("fabric_list_strategies", json!({}));
    if !starve(&server.process) {
        return;
    }
    let others: Vec<Http> = (0..5).map(|_| server.connect()).collect();
    server.process.wait_stderr("no thread could be started");
    drop(others);
    client.success("fabric_list_strategies", json!({}));
    server.process.limit("--as=unlimited:");
    let mut again = Streamable::to(&server, Era::MODERN, None);
    again.success("fabric_run_pattern", run_arguments("x"));
}
