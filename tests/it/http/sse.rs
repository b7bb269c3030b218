//! HTTP+SSE, the transport of 2024-11-05.

use std::sync::Arc;

use serde_json::json;

use super::{POST, list_patterns, request, run};
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::with_meta;
use crate::support::transports::{Wire, serve};
use crate::support::web::Sse;
use crate::support::{DEADLINE, Era, cancellation};

/// A server, and a client after its handshake.
fn open(fabric: &FakeFabric) -> (Arc<HttpServer>, Sse) {
    let server = serve(Wire::Sse, Program::with(fabric));
    let client = Sse::to(&server, Era::R2024_11_05, None);
    (server, client)
}

#[test]
fn everything_is_answered_on_the_stream() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["one ", "two"]));
    let (server, mut client) = open(&fabric);
    assert_eq!(server.path, "/sse");
    let begin = "/sse/message?sessionId=";
    assert!(client.endpoint.starts_with(begin), "{}", client.endpoint);
    client.send(&request(json!("a"), "tools/call", list_patterns()));
    assert_eq!(client.next_message()["id"], "a");
    client.send(&request(json!("b"), "tools/call", run(json!(0))));
    let progress = client.next_message();
    assert_eq!(progress["params"]["progressToken"], 0);
    assert!(progress["params"].get("message").is_none(), "{progress}");
    let answer = client.answer(&json!("b"));
    assert_eq!(answer["result"]["content"][0]["text"], "one two");
    client.send(&request(json!("c"), "nope", json!({})));
    assert_eq!(client.next_message()["error"]["code"], -32601);
    // A modern probe needs no headers here.
    let discover = with_meta(json!({}));
    client.send(&request(json!("d"), "server/discover", discover));
    assert_eq!(client.next_message()["result"]["resultType"], "complete");
}

#[test]
fn invalid_messages_are_refused_at_once() {
    let fabric = FakeFabric::start();
    let (server, client) = open(&fabric);
    let mut http = server.connect();
    for body in [&b"{"[..], b"5", b"", b"[]", b"\xff"] {
        let answer = http.request("POST", &client.endpoint, &POST, Some(body));
        assert_eq!(answer.status, 400);
        assert!(answer.json()["error"]["code"].is_i64());
    }
    let unknown = "/sse/message?sessionId=0123456789abcdef0123456789abcdef";
    for path in [unknown, "/sse/message", "/sse/message?sessionId="] {
        let answer = http.request("POST", path, &POST, Some(b"{}"));
        assert_eq!(answer.status, 404, "{path}");
    }
    let untyped = http.request("POST", &client.endpoint, &[], Some(b"{}"));
    assert_eq!(untyped.status, 415);
    let endpoint = &*client.endpoint;
    for (method, path, allowed) in [
        ("POST", "/sse", "GET, OPTIONS"),
        ("GET", endpoint, "POST, OPTIONS"),
    ] {
        let answer = http.request(method, path, &POST, Some(b"{}"));
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some(allowed), "{method}");
    }
    for (header, status) in [
        (("Accept", "application/json"), 406),
        (("Host", "evil.example.com"), 403),
    ] {
        assert_eq!(http.get("/sse", &[header]).status, status);
    }
}

#[test]
fn a_call_is_cancelled_and_its_id_is_in_use_until_then() {
    let fabric = FakeFabric::start();
    let (server, mut client) = open(&fabric);
    let (mut other, id) = (server.connect(), json!("r"));
    let ping = request(id.clone(), "ping", json!({}));
    // Several times, as it is the 202 that says to other connections that the call has begun.
    for _ in 0..20 {
        fabric.forget();
        fabric.once_run(Reply::sse().content("x").gate());
        client.send(&request(id.clone(), "tools/call", run(json!(0))));
        other.post(&client.endpoint, &[], &ping);
        assert_eq!(client.answer(&id)["error"]["code"], -32600);
        fabric.wait_requests("POST /chat", 1);
        client.send(&cancellation("r"));
        fabric.wait_closed(DEADLINE);
        client.send(&ping);
        assert_eq!(client.answer(&id)["result"], json!({}), "nothing else came");
    }
}

#[test]
fn the_end_of_the_stream_ends_the_session_and_its_work() {
    let fabric = FakeFabric::start();
    fabric.once_run(Reply::silence());
    let (server, mut client) = open(&fabric);
    client.send(&request(json!("r"), "tools/call", run(json!(0))));
    fabric.wait_requests("POST /chat", 1);
    let endpoint = client.endpoint.clone();
    client.leave();
    fabric.wait_closed(DEADLINE);
    let mut http = server.connect();
    let answer = http.request("POST", &endpoint, &POST, Some(b"{}"));
    answer.expect_status(404);
}

#[test]
fn another_path_moves_both_endpoints() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--path /a/b");
    let server = serve(Wire::Sse, program);
    let first = server.events("/a/b", &[]).next().unwrap().unwrap();
    let begin = "/a/b/message?sessionId=";
    assert!(first.data.starts_with(begin), "{}", first.data);
}
