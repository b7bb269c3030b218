//! Clients that stop reading: they block neither other clients nor the end of the process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::{Output, Program};
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::{Stdio, with_meta};
#[cfg(unix)]
use {
    crate::support::http::HttpServer,
    crate::support::transports::{Wire, serve},
    crate::support::web::{Sse, Streamable},
    crate::support::{Caller, Era, expect},
    std::sync::Arc,
};

/// The protocol's 2 s, or the drain timeout below, plus the needs of a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Far more than the buffers of pipes and sockets hold.
fn flood() -> Reply {
    Reply::sse()
        .step(Step::Repeat(line(&content(&"word ".repeat(2_000))), 2_000))
        .gate()
        .complete()
}

fn run() -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "stream": true},
           "_meta": {"progressToken": 1}})
}

/// A server on stdio whose client reads nothing, with a run whose output fills the pipe.
fn stuck(fabric: &FakeFabric, program: Program) -> Stdio {
    fabric.once("POST /chat", flood());
    let mut client = Stdio::start(program.stdout(Output::Unread));
    client.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": with_meta(run())}),
    );
    fabric.wait_requests("POST /chat", 1);
    client
}

#[test]
fn the_end_of_input_ends_it_although_its_output_is_unread() {
    let fabric = FakeFabric::start();
    let mut client = stuck(&fabric, Program::with(&fabric));
    client.close_stdin();
    let begun = Instant::now();
    assert_eq!(client.wait_exit(ENDS_WITHIN).code(), Some(0));
    eprintln!("ended after {:?}", begun.elapsed());
    fabric.wait_none_open();
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_although_its_output_is_unread() {
    let fabric = FakeFabric::start();
    let mut client = stuck(
        &fabric,
        Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3"),
    );
    client.process.signal("TERM");
    assert_eq!(client.wait_exit(ENDS_WITHIN).code(), Some(0));
    fabric.wait_none_open();
}

#[cfg(unix)]
#[test]
fn a_reader_that_stopped_holds_up_neither_others_nor_the_end() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3");
    let server = Arc::new(HttpServer::start(program));
    for era in [Era::Legacy("2025-11-25"), Era::Modern] {
        fabric.forget();
        fabric.once("POST /chat", flood());
        let mut slow = Streamable::to(&server, era, None);
        let message = slow.message("tools/call", run());
        let _unread = slow.send_apart(&message);
        fabric.wait_requests("POST /chat", 1);
        let mut other = Streamable::to(&server, era, None);
        for _ in 0..3 {
            expect::success(
                era,
                &other.call("fabric_run_pattern", json!({"pattern_name": "ai"})),
            );
        }
        // Keeps it open until the process has ended.
        std::mem::forget(_unread);
    }
    server.process.signal("TERM");
    let mut server = Arc::into_inner(server).expect("the only handle");
    assert_eq!(server.process.wait_exit(ENDS_WITHIN).code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_session_of_http_and_sse_that_is_not_read_holds_up_neither_others_nor_the_end() {
    let fabric = FakeFabric::start();
    let era = Era::Legacy("2024-11-05");
    let server = serve(
        Wire::Sse,
        Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3"),
    );
    fabric.once("POST /chat", flood());
    let mut slow = Sse::to(&server, era, None);
    slow.begin("tools/call", run());
    fabric.wait_requests("POST /chat", 1);
    let mut other = Sse::to(&server, era, None);
    for _ in 0..3 {
        expect::success(
            era,
            &other.call("fabric_run_pattern", json!({"pattern_name": "ai"})),
        );
    }
    server.process.signal("TERM");
    // Both clients stay connected; the process must end nevertheless.
    let left = crate::support::poll(ENDS_WITHIN, || {
        server.process.stderr().contains("SIG").then_some(())
    });
    assert!(left.is_some());
    drop(other);
    let events = slow;
    let begun = Instant::now();
    // Nothing is read from the slow one until the server has ended: then its stream ends, properly or not.
    let gone = crate::support::poll(ENDS_WITHIN, || {
        std::net::TcpStream::connect(server.address).err().map(drop)
    });
    assert!(gone.is_some(), "it listens still");
    let pid = server.process.child.id();
    let ended = crate::support::poll(ENDS_WITHIN, || ended(pid).then_some(()));
    assert!(ended.is_some(), "it still runs after {:?}", begun.elapsed());
    drop(events);
}

/// Whether this child has ended: gone, or a zombie.
#[cfg(unix)]
fn ended(pid: u32) -> bool {
    let asked = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output();
    let stat = asked.expect("the ps command").stdout;
    stat.is_empty() || stat.starts_with(b"Z")
}
