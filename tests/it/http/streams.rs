//! Streams: when an answer is one, keep-alive comments, a session's GET, subscriptions.

use serde_json::{Value, json};

use super::{Modern, code, initialize, list_patterns, request, run, start, stream};
use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;

#[test]
fn runs_are_streams_and_quick_calls_are_json() {
    let (fabric, server) = start();
    fabric.on(
        "POST /chat",
        Reply::sse()
            .gate()
            .content("one ")
            .gate()
            .content("two")
            .complete(),
    );
    let list =
        Modern::new(json!(1), "tools/call", list_patterns()).send(&mut server.connect(), "/mcp");
    assert_eq!(list.header("content-type"), Some("application/json"));
    // The head is sent before Fabric's first byte.
    let mut events = Modern::new(json!(5), "tools/call", run(json!(0))).stream(&server);
    assert_eq!(events.head.header("cache-control"), Some("no-cache"));
    assert_eq!(events.head.header("x-accel-buffering"), Some("no"));
    fabric.release();
    let progress = events.next_json();
    assert_eq!(
        (
            &progress["params"]["message"],
            &progress["params"]["progressToken"]
        ),
        (&json!("one "), &json!(0))
    );
    fabric.release();
    assert_eq!(events.next_progress_text(), "two");
    let answer = events.next_json();
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(5), &json!("one two"))
    );
    assert!(events.next().unwrap().is_none());
    // The connection stays usable.
    let mut http = events.into_connection();
    assert_eq!(
        Modern::new(json!(6), "tools/list", json!({}))
            .send(&mut http, "/mcp")
            .status,
        200
    );
}

/// Opens the stream of a session.
fn get(server: &HttpServer, session: &str) -> Events {
    let mut http = server.connect();
    http.send(
        "GET",
        "/mcp",
        &[("Mcp-Session-Id", session), ("Accept", "text/event-stream")],
        None,
    )
    .unwrap();
    let events = http.events().unwrap();
    assert_eq!(
        (events.head.status, events.head.header("content-type")),
        (200, Some("text/event-stream"))
    );
    events
}

#[test]
fn a_new_stream_of_a_session_takes_the_place_of_the_old_one() {
    let (_fabric, server) = start();
    let session = initialize(&server, "2025-11-25");
    let mut first = get(&server, &session);
    let mut second = get(&server, &session);
    assert!(first.next().unwrap().is_none(), "it ends properly");
    assert_eq!(
        server
            .connect()
            .request("DELETE", "/mcp", &[("Mcp-Session-Id", &session)], None)
            .status,
        204
    );
    assert!(second.next().unwrap().is_none(), "it ends with its session");
    let mut http = server.connect();
    assert_eq!(
        http.request("GET", "/mcp", &[("Mcp-Session-Id", &session)], None)
            .status,
        404
    );
    assert_eq!(
        http.request("GET", "/mcp", &[("Mcp-Session-Id", "x")], None)
            .status,
        404
    );
    let json = [
        (
            "Mcp-Session-Id",
            "2025-11-25.0123456789abcdef0123456789abcdef",
        ),
        ("Accept", "application/json"),
    ];
    assert_eq!(http.request("GET", "/mcp", &json, None).status, 406);
}

/// A server that polls for changes every 50 ms.
fn watching() -> (FakeFabric, HttpServer) {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric).flags("--catalog-ttl 0.05"));
    (fabric, server)
}

fn change(fabric: &FakeFabric) {
    fabric.on(
        "GET /patterns/names",
        Reply::json(json!(["ai", "brand_new", "summarize"])),
    );
}

#[test]
fn a_session_gets_change_notifications_once_it_has_listed() {
    let (fabric, server) = watching();
    let session = initialize(&server, "2025-06-18");
    let mut events = get(&server, &session);
    let list = request(json!(1), "prompts/list", json!({}));
    assert!(
        server
            .connect()
            .post("/mcp", &[("Mcp-Session-Id", &session)], &list)
            .json()["result"]
            .is_object()
    );
    change(&fabric);
    let heard: Vec<Value> = (0..2)
        .map(|_| events.next_json()["method"].clone())
        .collect();
    assert_eq!(
        heard,
        [
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed"
        ]
    );
}

#[cfg(unix)]
#[test]
fn a_subscription_is_acknowledged_told_and_ended_with_its_result() {
    let (fabric, mut server) = watching();
    let filter = json!({"notifications": {"promptsListChanged": true, "toolsListChanged": true}});
    let mut events =
        Modern::new(json!("s"), "subscriptions/listen", filter.clone()).stream(&server);
    let acknowledged = events.next_json();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let list = Modern::new(json!(1), "prompts/list", json!({})).send(&mut server.connect(), "/mcp");
    assert_eq!(list.status, 200, "{}", list.text());
    change(&fabric);
    let told = events.next_json();
    assert_eq!(told["method"], "notifications/prompts/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "s"
    );
    // A subscription needs a stream.
    let json_only = Modern::new(json!("s"), "subscriptions/listen", filter);
    let mut headers = json_only.headers();
    headers.push(("Accept", "application/json"));
    assert_eq!(
        server
            .connect()
            .post("/mcp", &headers, &json_only.message)
            .status,
        406
    );
    server.process.signal("TERM");
    let end = loop {
        let message = events.next_json();
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!("s"), &json!("complete"))
    );
    assert!(events.next().unwrap().is_none());
    assert!(server.process.wait_exit(crate::support::DEADLINE).success());
}

#[test]
fn a_subscription_ends_when_its_client_leaves() {
    let (_fabric, server) = start();
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let mut events = Modern::new(json!("s"), "subscriptions/listen", filter).stream(&server);
    events.next_json();
    events.into_connection().close();
    let connections = || {
        let text = server
            .connect()
            .request("GET", "/metrics", &[], None)
            .text();
        text.lines()
            .find_map(|line| {
                line.strip_prefix("fabric_mcp_connections ")?
                    .parse::<usize>()
                    .ok()
            })
            .unwrap()
    };
    let only_ours = crate::support::poll(crate::support::DEADLINE, || {
        (connections() == 1).then_some(())
    });
    assert!(only_ours.is_some(), "{} connections", connections());
}

#[test]
fn a_refused_call_is_json() {
    let (_fabric, server) = start();
    let session = initialize(&server, "2025-06-18");
    let bad = json!({"name": "fabric_run_pattern", "arguments": {}});
    let answer = server.connect().post(
        "/mcp",
        &[("Mcp-Session-Id", &session)],
        &request(json!(1), "tools/call", bad),
    );
    assert_eq!(
        (answer.header("content-type"), code(&answer)),
        (Some("application/json"), -32602)
    );
    let list = request(json!(1), "tools/call", list_patterns());
    let mut events = stream(
        &server,
        &[
            ("Mcp-Session-Id", &session),
            ("Accept", "text/event-stream"),
        ],
        &list,
    );
    assert_eq!(events.next_json()["id"], 1);
}
