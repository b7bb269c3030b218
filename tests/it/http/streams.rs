//! Streams: when an answer is one, keep-alive comments, a session's GET, subscriptions.

use serde_json::json;

use super::{Modern, WebSession, code, list_patterns, run, start};
use crate::support::expect::includes;
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, poll};

#[test]
fn runs_are_streams_and_quick_calls_are_json() {
    let (fabric, server) = start();
    let (one, two) = (Reply::sse().gate().content("one ").gate(), "two");
    fabric.on_run(one.content(two).complete());
    let list = Modern::new(json!(1), "tools/call", list_patterns()).post(&server);
    assert_eq!(list.header("content-type"), Some("application/json"));
    // The head is sent before Fabric's first byte.
    let mut events = Modern::new(json!(5), "tools/call", run(json!(0))).stream(&server);
    assert_eq!(events.head.header("cache-control"), Some("no-cache"));
    assert_eq!(events.head.header("x-accel-buffering"), Some("no"));
    fabric.release();
    let expected = json!({"message": "one ", "progressToken": 0});
    includes(&events.next_json()["params"], expected);
    fabric.release();
    assert_eq!(events.next_progress_text(), "two");
    let answer = events.next_json();
    assert_eq!(answer["id"], 5);
    assert_eq!(answer["result"]["content"][0]["text"], "one two");
    assert!(events.next().unwrap().is_none());
    // The connection stays usable.
    let mut http = events.into_connection();
    let next = Modern::new(json!(6), "tools/list", json!({})).send(&mut http, "/mcp");
    assert_eq!(next.status, 200);
}

#[test]
fn a_new_stream_of_a_session_takes_the_place_of_the_old_one() {
    let (_fabric, server) = start();
    let session = WebSession::open(&server, "2025-11-25");
    let (mut first, mut second) = (session.get(), session.get());
    assert!(first.next().unwrap().is_none(), "it ends properly");
    session.delete().expect_status(204);
    assert!(second.next().unwrap().is_none(), "it ends with its session");
    for id in [&*session.id, "x"] {
        let answer = server.get("/mcp", &[("Mcp-Session-Id", id)]);
        assert_eq!(answer.status, 404, "{id}");
    }
    let other = WebSession::open(&server, "2025-11-25");
    let json = other.accepting("application/json");
    assert_eq!(server.get("/mcp", &json).status, 406);
}

/// A server that polls for changes every 50 ms.
fn watching() -> (FakeFabric, HttpServer) {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric).flags("--catalog-ttl 0.05"));
    (fabric, server)
}

#[test]
fn a_session_gets_change_notifications_once_it_has_listed() {
    let (fabric, server) = watching();
    let session = WebSession::open(&server, "2025-06-18");
    let mut events = session.get();
    let list = session.request(1, "prompts/list", json!({}));
    assert!(list.json()["result"].is_object());
    fabric.names(json!(["ai", "brand_new", "summarize"]));
    for kind in ["prompts", "resources"] {
        let method = format!("notifications/{kind}/list_changed");
        assert_eq!(events.next_json()["method"], method);
    }
}

#[cfg(unix)]
#[test]
fn a_subscription_is_acknowledged_told_and_ended_with_its_result() {
    let (fabric, mut server) = watching();
    let filter = json!({"notifications": {"promptsListChanged": true, "toolsListChanged": true}});
    let listen = Modern::new(json!("s"), "subscriptions/listen", filter);
    let mut events = listen.stream(&server);
    assert_eq!(events.next_json()["method"], crate::support::ACKNOWLEDGED);
    let list = Modern::new(json!(1), "prompts/list", json!({}));
    list.post(&server).expect_status(200);
    fabric.names(json!(["ai", "brand_new", "summarize"]));
    let told = events.next_json();
    assert_eq!(told["method"], "notifications/prompts/list_changed");
    let key = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(told["params"]["_meta"][key], "s");
    // A subscription needs a stream.
    let json_only = listen.with("Accept", "application/json");
    let refused = json_only.post(&server);
    assert_eq!(refused.expect_status(406).json()["id"], "s");
    server.process.signal("TERM");
    let messages = std::iter::repeat_with(|| events.next_json());
    let is_end = |message: &serde_json::Value| message.get("id").is_some();
    let end = messages.into_iter().find(is_end).unwrap();
    let members = json!({"id": "s", "result": {"resultType": "complete", "_meta": {key: "s"}}});
    includes(&end, members);
    assert!(events.next().unwrap().is_none());
    assert!(server.process.wait_exit(DEADLINE).success());
}

#[test]
fn a_subscription_ends_when_its_client_leaves() {
    let (_fabric, server) = start();
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let mut events = Modern::new(json!("s"), "subscriptions/listen", filter).stream(&server);
    events.next_json();
    events.into_connection().close();
    let connections = || server.metric("fabric_mcp_connections").unwrap();
    let only_ours = poll(DEADLINE, || (connections() == 1.0).then_some(()));
    assert!(only_ours.is_some(), "{} connections", connections());
}

#[test]
fn a_refused_call_is_json() {
    let (_fabric, server) = start();
    let session = WebSession::open(&server, "2025-06-18");
    let bad = json!({"name": "fabric_run_pattern", "arguments": {}});
    let answer = session.request(1, "tools/call", bad);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(code(&answer), -32602);
}
