//! More connections than places: those without an admitted request are evicted, runs never are, and probes are always
//! answered.

use serde_json::json;

use super::{Modern, WebSession, list_patterns, request, run};
use crate::support::expect::{contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Events, Http, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::initialize_params;

const TOKEN: &str = "a-token-of-some-length";
const PLACES: usize = 8;
/// A request that nobody has to be admitted for.
const NOWHERE: &str = "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn server(fabric: &FakeFabric, transport: &str) -> HttpServer {
    let flags = format!("--max-connections 8 --transport {transport} --port 0");
    HttpServer::listening(Program::with(fabric).flags(&flags))
}

#[track_caller]
fn is_healthy(server: &HttpServer) {
    assert_eq!(server.get("/healthz", &[]).status, 200);
}

/// Connections that have sent `said` and received `answers` answers.
fn crowd(server: &HttpServer, said: &str, answers: usize) -> Vec<Http> {
    let one = || {
        let mut http = server.connect();
        http.send_raw(said.as_bytes()).unwrap();
        (0..answers).for_each(|_| assert_ne!(http.answer().unwrap().status, 503));
        http
    };
    (0..2 * PLACES).map(|_| one()).collect()
}

#[test]
fn unadmitted_connections_block_nobody_and_stop_no_run() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["one ", "two"]));
    let server = HttpServer::start(
        Program::with(&fabric)
            .flags("--max-connections 8")
            .env("FABRIC_MCP_AUTH_TOKEN", TOKEN),
    );
    let bearer = format!("Bearer {TOKEN}");
    let call = Modern::new(json!(5), "tools/call", run(json!(0))).with("Authorization", &bearer);
    let mut events = call.stream(&server);
    assert_eq!(events.next_progress_text(), "one ");
    fabric.wait_held(1);
    let post = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n";
    let health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (said, answers) in [
        ("", 0),
        ("G", 0),
        (health.trim_end(), 0),
        (&*format!("{health}G"), 1),
        (NOWHERE, 1),
        (&*format!("{NOWHERE}{NOWHERE}GET"), 2),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        ("GET /mcp HTTP/1.1\r\nHost: evil.example.com\r\n\r\n", 1),
        (&*format!("{post}\r\n{{"), 1),
        (&*format!("{post}Expect: 100-continue\r\n\r\n"), 1),
        (&*format!("{post}Authorization: Bearer wrong\r\n\r\n{{"), 1),
        // An incomplete body does not block others either, with or without a token.
        (&*format!("{post}Authorization: {bearer}\r\n\r\n{{"), 0),
    ] {
        let _crowd = crowd(&server, said, answers);
        (0..5).for_each(|_| is_healthy(&server));
    }
    fabric.release();
    assert_eq!(events.next_progress_text(), "two");
    let members = json!({"text": "one two"});
    includes(&events.next_json()["result"]["content"][0], members);
    fabric.expect_chats(1);
}

/// As many streams as places, opened by `open`.
fn streams(open: impl Fn() -> Events) -> Vec<Events> {
    (0..PLACES).map(|_| open()).collect()
}

#[test]
fn with_all_places_held_short_requests_are_answered_and_others_refused() {
    let fabric = FakeFabric::start();
    let server = server(&fabric, "http");
    let listen = json!({"notifications": {"promptsListChanged": true}});
    let listen = Modern::new(json!(1), "subscriptions/listen", listen);
    let held = streams(|| listen.stream(&server));
    let session = WebSession::open(&server, "2025-11-25");
    let call = Modern::new(json!(2), "tools/call", list_patterns());
    let list = Modern::new(json!(1), "tools/list", json!({}));
    let ping = request(json!(3), "ping", json!({}));
    // The same id may be used once there is a place.
    let again = request(json!(9), "tools/call", list_patterns());
    let refused = |answer: Answer| {
        let media = answer.expect_status(503).header("content-type");
        assert_eq!(media, Some("application/json"));
        contains(answer.text(), ["Try again in a moment, "]);
    };
    for _ in 0..3 {
        is_healthy(&server);
        // Each has an answer, and so a place, before the next and whoever asks then.
        let _crowd = crowd(&server, &format!("{NOWHERE}G"), 1);
        is_healthy(&server);
        let mut http = server.connect();
        list.send(&mut http, "/mcp").expect_status(200);
        http.post("/mcp", &session.headers(), &ping)
            .expect_status(200);
        refused(call.send(&mut http, "/mcp"));
        refused(http.post("/mcp", &session.headers(), &again));
        let get = session.accepting("text/event-stream");
        refused(http.get("/mcp", &get));
        assert_eq!(http.get("/metrics", &[]).status, 200);
    }
    fabric.expect_chats(0);
    drop(held);
    let answered = |send: &dyn Fn() -> u16| while send() == 503 {};
    answered(&|| call.post(&server).status);
    answered(&|| session.post(&again).status);
}

#[test]
fn sessions_of_sse_that_hold_all_places_are_served() {
    let fabric = FakeFabric::start();
    let server = server(&fabric, "sse");
    let mut sessions = streams(|| server.events("/sse", &[]));
    let accept = [("Accept", "text/event-stream")];
    server.get("/sse", &accept).expect_status(503);
    let message = request(json!(0), "initialize", initialize_params("2024-11-05"));
    for session in &mut sessions {
        let endpoint = session.next().unwrap().unwrap().data;
        let mut http = server.connect();
        http.post(&endpoint, &[], &message).expect_status(202);
        assert_eq!(session.next_json()["id"], 0);
        is_healthy(&server);
    }
}
