//! Cancelling over HTTP: by disconnecting in the modern era, by `notifications/cancelled` on the session in the legacy
//! one.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Modern, POST, initialize, request, run, start, stream};
use crate::support::DEADLINE;
use crate::support::reply::Reply;

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
        for accept in ["text/event-stream", "application/json"] {
            let leave = || {
                fabric.forget();
                fabric.once("POST /chat", reply.clone());
                let run = Modern::new(json!(1), "tools/call", run(json!(0)));
                let mut http = server.connect();
                let mut headers = run.headers();
                headers.extend([("Content-Type", "application/json"), ("Accept", accept)]);
                http.send(
                    "POST",
                    "/mcp",
                    &headers,
                    Some(run.message.to_string().as_bytes()),
                )
                .unwrap();
                fabric.wait_requests("POST /chat", 1);
                let left = Instant::now();
                http.close();
                fabric
                    .wait_closed(DEADLINE)
                    .at
                    .saturating_duration_since(left)
            };
            let took = (0..TRIES).map(|_| leave()).min().unwrap();
            assert!(took <= PROMISED, "{when}, {accept}: {took:?}");
        }
    }
}

#[test]
fn leaving_in_a_flood_stops_a_modern_run() {
    let (fabric, server) = start();
    let word = crate::support::reply::line(&crate::support::reply::content("word "));
    fabric.once(
        "POST /chat",
        Reply::sse().step(crate::support::reply::Step::Repeat(word, 5_000_000)),
    );
    let mut events = Modern::new(json!(1), "tools/call", run(json!(0))).stream(&server);
    events.next_json();
    events.into_connection().close();
    fabric.wait_closed(DEADLINE);
}

#[test]
fn leaving_does_not_stop_a_legacy_run() {
    let (fabric, server) = start();
    fabric.on("POST /chat", Reply::gated(&["x", "y"]));
    let session = initialize(&server, "2025-11-25");
    let mut events = stream(
        &server,
        &[("Mcp-Session-Id", &session)],
        &request(json!(1), "tools/call", run(json!(0))),
    );
    events.next_json();
    events.into_connection().close();
    fabric.wait_held(1);
    fabric.release_all();
    server
        .process
        .wait_stderr("tool=fabric_run_pattern pattern=summarize");
    server.process.wait_stderr("ok=true");
    assert!(fabric.left().is_empty());
}

#[test]
fn leaving_stops_a_legacy_call_that_is_no_run() {
    let (fabric, server) = start();
    let call = request(
        json!(1),
        "tools/call",
        json!({"name": "fabric_list_models", "arguments": {}}),
    );
    for (revision, message) in [("2025-11-25", call.clone()), ("2025-03-26", json!([call]))] {
        fabric.forget();
        fabric.once("GET /models/names", Reply::silence());
        let session = initialize(&server, revision);
        let mut http = server.connect();
        let headers: Vec<_> = POST
            .iter()
            .copied()
            .chain([("Mcp-Session-Id", &*session)])
            .collect();
        http.send(
            "POST",
            "/mcp",
            &headers,
            Some(message.to_string().as_bytes()),
        )
        .unwrap();
        fabric.wait_requests("GET /models/names", 1);
        http.close();
        fabric.wait_closed(DEADLINE);
    }
}

#[test]
fn a_legacy_run_is_cancelled_on_its_session() {
    let (fabric, server) = start();
    let session = initialize(&server, "2025-11-25");
    let headers = [("Mcp-Session-Id", &*session)];
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "r"}});
    // A stream ends without an answer.
    fabric.once("POST /chat", Reply::sse().content("x").gate());
    let mut events = stream(
        &server,
        &headers,
        &request(json!("r"), "tools/call", run(json!(0))),
    );
    events.next_json();
    // Another session cannot cancel it, nor can a modern client.
    let other = initialize(&server, "2025-11-25");
    assert_eq!(
        server
            .connect()
            .post("/mcp", &[("Mcp-Session-Id", &other)], &cancel)
            .status,
        202
    );
    assert_eq!(
        server
            .connect()
            .post("/mcp", &[("MCP-Protocol-Version", "2026-07-28")], &cancel)
            .status,
        202
    );
    assert!(fabric.left().is_empty());
    assert_eq!(server.connect().post("/mcp", &headers, &cancel).status, 202);
    fabric.wait_closed(DEADLINE);
    assert!(events.next().unwrap().is_none());
    // A client that accepts only JSON needs some answer.
    fabric.forget();
    fabric.once("POST /chat", Reply::silence());
    let mut http = server.connect();
    let json_only = [
        headers[0],
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
    ];
    let message = request(json!("r"), "tools/call", run(json!(0)));
    http.send(
        "POST",
        "/mcp",
        &json_only,
        Some(message.to_string().as_bytes()),
    )
    .unwrap();
    fabric.wait_requests("POST /chat", 1);
    assert_eq!(server.connect().post("/mcp", &headers, &cancel).status, 202);
    let answer = http.answer().unwrap();
    assert_eq!(
        answer.json()["result"]["_meta"]["error"]["type"],
        "urn:fabric-mcp:error:cancelled"
    );
    // The id can be used again.
    let ping = server
        .connect()
        .post("/mcp", &headers, &request(json!("r"), "ping", json!({})));
    assert_eq!(ping.json()["result"], json!({}));
}
