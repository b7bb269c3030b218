//! HTTP+SSE, the transport of 2024-11-05.

use serde_json::{Value, json};

use super::{POST, list_patterns, request, run};
use crate::support::DEADLINE;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{initialize_params, with_meta};

fn server(fabric: &FakeFabric) -> HttpServer {
    HttpServer::listening(
        Program::with(fabric)
            .arg("--transport")
            .arg("sse")
            .arg("--port")
            .arg("0"),
    )
}

/// One session: its stream, and the URL for messages.
struct Session<'a> {
    server: &'a HttpServer,
    events: Events,
    endpoint: String,
}

impl<'a> Session<'a> {
    fn open(server: &'a HttpServer) -> Session<'a> {
        let mut http = server.connect();
        http.send("GET", "/sse", &[("Accept", "text/event-stream")], None)
            .unwrap();
        let mut events = http.events().unwrap();
        assert_eq!(
            (events.head.status, events.head.header("content-type")),
            (200, Some("text/event-stream"))
        );
        let first = events.next().unwrap().unwrap();
        assert_eq!(first.event, "endpoint");
        assert!(
            first.data.starts_with("/sse/message?sessionId="),
            "{}",
            first.data
        );
        Session {
            server,
            events,
            endpoint: first.data,
        }
    }

    fn ready(server: &'a HttpServer) -> Session<'a> {
        let mut session = Session::open(server);
        session.say(request(
            json!(0),
            "initialize",
            initialize_params("2024-11-05"),
        ));
        assert_eq!(
            session.events.next_json()["result"]["protocolVersion"],
            "2024-11-05"
        );
        session
    }

    fn post(&self, body: &[u8]) -> Answer {
        self.server
            .connect()
            .request("POST", &self.endpoint, &POST, Some(body))
    }

    #[track_caller]
    fn say(&self, message: Value) {
        let answer = self.post(message.to_string().as_bytes());
        assert_eq!(
            (answer.status, &*answer.body),
            (202, &b""[..]),
            "{}",
            answer.text()
        );
    }
}

#[test]
fn everything_is_answered_on_the_stream() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::run(&["one ", "two"]));
    let server = server(&fabric);
    assert_eq!(server.path, "/sse");
    let mut session = Session::ready(&server);
    session.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    session.say(request(json!("a"), "tools/call", list_patterns()));
    assert_eq!(session.events.next_json()["id"], "a");
    session.say(request(json!("b"), "tools/call", run(json!(0))));
    let progress = session.events.next_json();
    assert_eq!(
        (
            &progress["params"]["progressToken"],
            progress["params"].get("message")
        ),
        (&json!(0), None)
    );
    let answer = loop {
        let message = session.events.next_json();
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(answer["result"]["content"][0]["text"], "one two");
    session.say(request(json!("c"), "nope", json!({})));
    assert_eq!(session.events.next_json()["error"]["code"], -32601);
    // A modern probe needs no headers here.
    session.say(request(json!("d"), "server/discover", with_meta(json!({}))));
    assert_eq!(
        session.events.next_json()["result"]["resultType"],
        "complete"
    );
}

#[test]
fn invalid_messages_are_refused_at_once() {
    let fabric = FakeFabric::start();
    let server = server(&fabric);
    let session = Session::ready(&server);
    for body in [&b"{"[..], b"5", b"", b"[]", b"\xff"] {
        let answer = session.post(body);
        assert_eq!(answer.status, 400);
        assert!(answer.json()["error"]["code"].is_i64());
    }
    let mut http = server.connect();
    let unknown = "/sse/message?sessionId=0123456789abcdef0123456789abcdef";
    for path in [
        unknown,
        "/sse/message",
        "/sse/message?sessionId=",
        "/sse/message?x",
    ] {
        assert_eq!(
            http.request("POST", path, &POST, Some(b"{}")).status,
            404,
            "{path}"
        );
    }
    assert_eq!(
        http.request("POST", &session.endpoint, &[], Some(b"{}"))
            .status,
        415
    );
    let answer = http.request("POST", "/sse", &POST, Some(b"{}"));
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("GET, OPTIONS"))
    );
    let answer = http.request("GET", &session.endpoint, &[], None);
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("POST, OPTIONS"))
    );
    assert_eq!(
        http.request("GET", "/sse", &[("Accept", "application/json")], None)
            .status,
        406
    );
    assert_eq!(
        http.request("GET", "/sse", &[("Host", "evil.example.com")], None)
            .status,
        403
    );
}

#[test]
fn a_call_is_cancelled_and_its_id_is_in_use_until_then() {
    let fabric = FakeFabric::start();
    fabric.once("POST /chat", Reply::sse().content("x").gate());
    let server = server(&fabric);
    let mut session = Session::ready(&server);
    session.say(request(json!("r"), "tools/call", run(json!(0))));
    assert_eq!(
        session.events.next_json()["method"],
        "notifications/progress"
    );
    session.say(request(json!("r"), "ping", json!({})));
    assert_eq!(session.events.next_json()["error"]["code"], -32600);
    session.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "r"}}));
    fabric.wait_closed(DEADLINE);
    session.say(request(json!("r"), "ping", json!({})));
    assert_eq!(
        session.events.next_json()["result"],
        json!({}),
        "nothing else came for it"
    );
}

#[test]
fn the_end_of_the_stream_ends_the_session_and_its_work() {
    let fabric = FakeFabric::start();
    fabric.once("POST /chat", Reply::silence());
    let server = server(&fabric);
    let session = Session::ready(&server);
    session.say(request(json!("r"), "tools/call", run(json!(0))));
    fabric.wait_requests("POST /chat", 1);
    let Session {
        events, endpoint, ..
    } = session;
    events.into_connection().close();
    fabric.wait_closed(DEADLINE);
    let gone = crate::support::poll(DEADLINE, || {
        (server
            .connect()
            .request("POST", &endpoint, &POST, Some(b"{}"))
            .status
            == 404)
            .then_some(())
    });
    assert!(gone.is_some());
}

#[test]
fn batches_are_one_event() {
    let fabric = FakeFabric::start();
    let server = server(&fabric);
    let mut session = Session::open(&server);
    session.say(request(
        json!(0),
        "initialize",
        initialize_params("2025-03-26"),
    ));
    session.events.next_json();
    session.say(json!([
        request(json!(1), "ping", json!({})),
        request(json!(2), "tools/call", list_patterns())
    ]));
    assert_eq!(session.events.next_json().as_array().unwrap().len(), 2);
}

#[cfg(unix)]
#[test]
fn subscriptions_and_runs_end_properly_with_the_server() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::sse().content("x").gate().complete());
    let mut server = server(&fabric);
    let mut http = server.connect();
    http.send("GET", "/sse", &[], None).unwrap();
    let mut events = http.events().unwrap();
    let endpoint = events.next().unwrap().unwrap().data;
    let say = |message: Value| {
        let answer = server.connect().request(
            "POST",
            &endpoint,
            &POST,
            Some(message.to_string().as_bytes()),
        );
        assert_eq!(answer.status, 202);
    };
    let filter = json!({"notifications": {"promptsListChanged": true}});
    say(request(
        json!("s"),
        "subscriptions/listen",
        with_meta(filter),
    ));
    assert_eq!(
        events.next_json()["method"],
        "notifications/subscriptions/acknowledged"
    );
    say(request(json!("r"), "tools/call", with_meta(run(json!(0)))));
    assert_eq!(events.next_json()["method"], "notifications/progress");
    server.process.signal("TERM");
    server.process.wait_stderr("finishing what runs");
    let end = events.next_json();
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!("s"), &json!("complete")),
        "it need not wait"
    );
    fabric.release_all();
    assert_eq!(
        events.next_json()["id"],
        "r",
        "what runs is answered all the same"
    );
    assert!(events.next().unwrap().is_none());
    assert!(server.process.wait_exit(DEADLINE).success());
}

#[test]
fn another_path_moves_both_endpoints() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .arg("--transport")
        .arg("sse")
        .arg("--port")
        .arg("0")
        .arg("--path")
        .arg("/a/b");
    let server = HttpServer::listening(program);
    let mut http = server.connect();
    http.send("GET", "/a/b", &[], None).unwrap();
    let first = http.events().unwrap().next().unwrap().unwrap();
    assert!(
        first.data.starts_with("/a/b/message?sessionId="),
        "{}",
        first.data
    );
}
