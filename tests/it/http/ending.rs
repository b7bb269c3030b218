//! SIGTERM and SIGINT: runs are finished, streams end properly, new requests are refused.
#![cfg(unix)]

use std::net::TcpStream;

use serde_json::json;

use super::{Modern, WebSession, run, start};
use crate::support::DEADLINE;
use crate::support::expect::{contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;

#[test]
fn running_calls_finish_and_new_ones_are_refused() {
    let (fabric, mut server) = start();
    fabric.on_run(Reply::gated(&["one", "two"]));
    let session = WebSession::open(&server, "2025-11-25");
    let idle = server.connect();
    let mut modern = Modern::new(json!(1), "tools/call", run(json!(0))).stream(&server);
    let mut legacy = session.stream(2, "tools/call", run(json!(0)));
    modern.next_json();
    legacy.next_json();
    server.process.signal("TERM");
    server.process.wait_stderr("SIGTERM: letting runs finish");
    let refused = crate::support::poll(DEADLINE, || {
        TcpStream::connect(server.address).is_err().then_some(())
    });
    assert!(refused.is_some(), "it still takes connections");
    fabric.release_all();
    for (events, id) in [(&mut modern, 1), (&mut legacy, 2)] {
        assert_eq!(events.next_progress_text(), "two");
        assert_eq!(events.next_json()["id"], id);
        assert!(events.next().unwrap().is_none());
    }
    assert!(server.process.wait_exit(DEADLINE).success());
    drop(idle);
}

#[test]
fn calls_beyond_the_drain_timeout_are_stopped_with_an_error() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("one").gate());
    let mut server = HttpServer::start(Program::with(&fabric).flags("--drain-timeout 0.05"));
    let mut events = Modern::new(json!(1), "tools/call", run(json!(0))).stream(&server);
    events.next_json();
    server.process.signal("INT");
    let answer = events.next_json();
    let members = json!({"type": "urn:fabric-mcp:error:cancelled"});
    includes(&answer["result"]["_meta"]["error"], members);
    contains(answer.to_string(), ["server was stopped"]);
    assert!(events.next().unwrap().is_none());
    assert!(server.process.wait_exit(DEADLINE).success());
}

#[test]
fn it_serves_whatever_is_logged() {
    let fabric = FakeFabric::start();
    let port = crate::support::fabric::closed_port();
    let program = Program::with(&fabric)
        .flags("--transport http --port")
        .arg(&port.to_string());
    let mut process = program.flags("--log-level critical").start();
    let mut http = crate::support::poll(DEADLINE, || TcpStream::connect(("127.0.0.1", port)).ok())
        .map(|socket| crate::support::http::Http::connect(socket.peer_addr().unwrap()))
        .expect("it listens");
    assert_eq!(http.get("/healthz", &[]).status, 200);
    process.signal("TERM");
    assert!(process.wait_exit(DEADLINE).success());
    assert_eq!(process.stderr(), "");
}
