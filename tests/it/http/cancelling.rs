//! Cancelling over HTTP: by disconnecting in the modern era, by `notifications/cancelled` on the session in the legacy
//! one.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Modern, WebSession, request, run, start};
use crate::support::expect::includes;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, cancellation, scaled};

/// Longest time from the client's disconnect to the closed connection to Fabric.
const PROMISED: Duration = Duration::from_millis(300);
/// Attempts to meet [`PROMISED`]: a busy machine may delay one.
const TRIES: usize = 5;

#[test]
fn leaving_stops_a_modern_run_within_300_ms() {
    let (fabric, server) = start();
    let replies = [
        ("silent", Reply::silence()),
        ("before the first event", Reply::sse().gate()),
        ("in mid-stream", Reply::sse().content("x").gate()),
    ];
    for (when, reply) in replies {
        // Whatever followed the request does not hide that.
        for (accept, late) in [("text/event-stream", ""), ("application/json", "\r\n")] {
            let leave = || {
                fabric.forget();
                fabric.once_run(reply.clone());
                let run = Modern::new(json!(1), "tools/call", run(json!(0)));
                let run = run.with("Accept", accept);
                let mut http = server.connect();
                http.send_post("/mcp", &run.headers(), &run.message)
                    .unwrap();
                http.send_raw(late.as_bytes()).unwrap();
                fabric.wait_requests("POST /chat", 1);
                let left = Instant::now();
                http.close();
                let closed = fabric.wait_closed(DEADLINE).at;
                closed.saturating_duration_since(left)
            };
            let took = (0..TRIES).map(|_| leave()).min().unwrap();
            assert!(took <= scaled(PROMISED), "{when}, {accept}: {took:?}");
        }
    }
}

#[test]
fn leaving_in_a_flood_stops_a_modern_run() {
    let (fabric, server) = start();
    fabric.once_run(Reply::flood("word "));
    let mut events = Modern::new(json!(1), "tools/call", run(json!(0))).stream(&server);
    events.next_json();
    events.into_connection().close();
    fabric.wait_closed(DEADLINE);
}

#[test]
fn leaving_does_not_stop_a_legacy_run() {
    let (fabric, server) = start();
    fabric.on_run(Reply::gated(&["x", "y"]));
    let session = WebSession::open(&server, "2025-11-25");
    let mut events = session.stream(1, "tools/call", run(json!(0)));
    events.next_json();
    events.into_connection().close();
    fabric.wait_held(1);
    fabric.release_all();
    let process = &server.process;
    process.wait_stderr("tool=fabric_run_pattern pattern=summarize");
    process.wait_stderr("ok=true");
    assert!(fabric.left().is_empty());
}

#[test]
fn leaving_stops_a_legacy_call_that_is_no_run() {
    let (fabric, server) = start();
    let call = json!({"name": "fabric_list_models", "arguments": {}});
    let call = request(json!(1), "tools/call", call);
    for (revision, message) in [("2025-11-25", call.clone()), ("2025-03-26", json!([call]))] {
        fabric.forget();
        fabric.once("GET /models/names", Reply::silence());
        let session = WebSession::open(&server, revision);
        let mut http = server.connect();
        http.send_post("/mcp", &session.headers(), &message)
            .unwrap();
        fabric.wait_requests("GET /models/names", 1);
        http.close();
        fabric.wait_closed(DEADLINE);
    }
}

#[test]
fn a_legacy_run_is_cancelled_on_its_session() {
    let (fabric, server) = start();
    let session = WebSession::open(&server, "2025-11-25");
    let cancel = cancellation("r");
    // A stream ends without an answer.
    fabric.once_run(Reply::sse().content("x").gate());
    let mut events = session.stream("r", "tools/call", run(json!(0)));
    events.next_json();
    // Another session cannot cancel it, nor can a modern client.
    let other = WebSession::open(&server, "2025-11-25");
    other.post(&cancel).expect_status(202);
    let modern = [("MCP-Protocol-Version", "2026-07-28")];
    server.post(&modern, &cancel).expect_status(202);
    assert!(fabric.left().is_empty());
    session.post(&cancel).expect_status(202);
    fabric.wait_closed(DEADLINE);
    assert!(events.next().unwrap().is_none());
    // A client that accepts only JSON needs some answer.
    fabric.forget();
    fabric.once_run(Reply::silence());
    let mut http = server.connect();
    let json_only = session.accepting("application/json");
    let message = request(json!("r"), "tools/call", run(json!(0)));
    http.send_post("/mcp", &json_only, &message).unwrap();
    fabric.wait_requests("POST /chat", 1);
    session.post(&cancel).expect_status(202);
    let answer = http.answer().unwrap().json();
    let error = json!({"type": "urn:fabric-mcp:error:cancelled"});
    includes(&answer["result"]["_meta"]["error"], error);
    let ended = r#"fabric_mcp_calls_total{tool="fabric_run_pattern",outcome="cancelled"}"#;
    assert_eq!(server.metric(ended), Some(2.0), "each is counted once");
    // The id can be used again.
    let ping = session.request("r", "ping", json!({}));
    assert_eq!(ping.json()["result"], json!({}));
}
