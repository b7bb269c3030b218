//! The order of checks on a POST, and the status of every error.

use serde_json::{Value, json};

use super::{Modern, POST, code, initialize, request, start};
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;

#[test]
fn the_first_failing_check_decides() {
    let (_fabric, server) = start();
    let json = ("Content-Type", "application/json");
    let accept = ("Accept", "application/json");
    let none = ("Accept", "text/html");
    let large = vec![b' '; 9 << 20];
    type Case<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c [u8], u16);
    let cases: [Case<'_>; 12] = [
        (
            "the wrong host before the type",
            &[("Host", "evil.example.com")],
            b"",
            403,
        ),
        (
            "a wrong origin",
            &[("Origin", "http://evil.example.com"), json],
            b"{}",
            403,
        ),
        ("no type", &[accept], b"{}", 415),
        (
            "a wrong type before Accept",
            &[("Content-Type", "text/plain"), none],
            b"{}",
            415,
        ),
        (
            "a type with parameters",
            &[("Content-Type", "Application/JSON; charset=utf-8")],
            b"{",
            400,
        ),
        ("Accept before the body", &[json, none], &large, 406),
        ("the size before the parse", &[json, accept], &large, 413),
        ("no JSON", &[json, accept], b"{", 400),
        ("no message", &[json, accept], b"5", 400),
        ("no UTF-8", &[json, accept], b"\"\xff\"", 400),
        ("nothing", &[json, accept], b"", 400),
        (
            "an array outside of any session",
            &[json, accept],
            b"[]",
            400,
        ),
    ];
    for (what, headers, body, status) in cases {
        let mut http = server.connect();
        let _ = http.send("POST", &server.path, headers, Some(body));
        let answer = http.answer().unwrap();
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        let error = answer.json();
        assert!(
            error.get("id").is_none() && error["error"]["code"].is_i64(),
            "{what}: {error}"
        );
    }
}

#[test]
fn other_methods_and_paths() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let answer = http.request("PUT", "/mcp", &[], Some(b""));
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("GET, POST, DELETE, OPTIONS"))
    );
    for method in ["GET", "DELETE"] {
        let answer = http.request(method, "/mcp", &[("Accept", "text/event-stream")], None);
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST, OPTIONS")),
            "{method}"
        );
    }
    let all =
        "/ /nope /mcp/x /.well-known/oauth-protected-resource /.well-known/openid-configuration";
    for path in all.split(' ') {
        let answer = http.request("GET", path, &[], None);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (404, Some("application/json")),
            "{path}"
        );
        assert_eq!(answer.json()["error"], "not_found");
    }
    assert_eq!(
        http.request("POST", "/register", &POST, Some(b"{}")).status,
        404
    );
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    assert_eq!(
        discover.send(&mut http, "/mcp/").status,
        200,
        "a slash at the end"
    );
}

#[test]
fn the_status_of_modern_errors() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let mut send = |request: Modern| request.send(&mut http, "/mcp");
    let without = |member: &str| {
        let mut request = Modern::new(json!("x"), "tools/list", json!({}));
        request.message["params"]["_meta"]
            .as_object_mut()
            .unwrap()
            .remove(&format!("io.modelcontextprotocol/{member}"));
        request
    };
    let mut unsupported = Modern::new(json!("x"), "tools/list", json!({}))
        .with("MCP-Protocol-Version", Some("2099-01-01"));
    unsupported.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] =
        json!("2099-01-01");
    let mut no_object = Modern::new(json!("x"), "tools/list", json!({}));
    no_object.message["params"] = json!([]);
    let cases = [
        (without("protocolVersion"), 400, -32602),
        (without("clientCapabilities"), 400, -32602),
        (no_object, 400, -32602),
        (unsupported, 400, -32022),
        (Modern::new(json!("x"), "nope", json!({})), 404, -32601),
        (Modern::new(json!("x"), "ping", json!({})), 404, -32601),
        (
            Modern::new(json!("x"), "initialize", json!({})),
            404,
            -32601,
        ),
        (
            Modern::new(json!("x"), "tools/call", json!({"name": "nope"})),
            200,
            -32602,
        ),
        (
            Modern::new(json!("x"), "resources/read", json!({"uri": "nope://"})),
            200,
            -32602,
        ),
    ];
    for (request, status, expected) in cases {
        let answer = send(request);
        assert_eq!(
            (answer.status, code(&answer)),
            (status, expected),
            "{}",
            answer.text()
        );
        assert_eq!(answer.json()["id"], "x");
        assert!(answer.header("mcp-session-id").is_none());
    }
}

#[test]
fn messages_without_an_answer_are_accepted() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let accepted = |answer: Answer| {
        assert_eq!(
            (answer.status, &*answer.body),
            (202, &b""[..]),
            "{}",
            answer.text()
        )
    };
    let modern = [("MCP-Protocol-Version", "2026-07-28")];
    accepted(http.post(
        "/mcp",
        &modern,
        &json!({"jsonrpc": "2.0", "method": "notifications/whatever"}),
    ));
    accepted(http.post(
        "/mcp",
        &modern,
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    ));
    let session = initialize(&server, "2025-03-26");
    let legacy = [("Mcp-Session-Id", &*session)];
    accepted(http.post(
        "/mcp",
        &legacy,
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ));
    accepted(http.post(
        "/mcp",
        &legacy,
        &json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
    ));
    accepted(http.post(
        "/mcp",
        &legacy,
        &json!([{"jsonrpc": "2.0", "method": "x"}, {"jsonrpc": "2.0", "id": 5, "result": {}}]),
    ));
}

#[test]
fn legacy_errors_are_200_unless_there_is_no_session_or_no_request() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let session = initialize(&server, "2025-06-18");
    let headers = [("Mcp-Session-Id", &*session)];
    for (method, params, expected) in [
        ("nope", json!({}), -32601),
        ("tools/call", json!({"name": "nope"}), -32602),
        ("tools/list", json!([]), -32602),
    ] {
        let answer = http.post("/mcp", &headers, &request(json!(7), method, params));
        assert_eq!(
            (answer.status, code(&answer), &answer.json()["id"]),
            (200, expected, &json!(7))
        );
    }
    let array = http.post(
        "/mcp",
        &headers,
        &json!([request(json!(1), "ping", json!({}))]),
    );
    assert_eq!(
        (array.status, code(&array)),
        (400, -32600),
        "no batches in this revision"
    );
    let ping = http.post("/mcp", &headers, &request(json!(7), "ping", json!({})));
    assert_eq!(
        (ping.status, ping.text()),
        (200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.to_owned())
    );
    // Without a session only `initialize` is allowed.
    let lost = http.post("/mcp", &[], &request(json!(7), "tools/list", json!({})));
    assert_eq!(
        (lost.status, code(&lost), &lost.json()["id"]),
        (400, -32602, &json!(7))
    );
    assert!(lost.text().contains("initialize"), "{}", lost.text());
}

#[test]
fn only_what_is_accepted_is_sent() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let list = Modern::new(json!(1), "tools/list", json!({}));
    for (accept, media) in [
        ("application/json", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("*/*", "application/json"),
        (
            "text/event-stream, application/json;q=0.1",
            "application/json",
        ),
    ] {
        let mut headers = list.headers();
        headers.push(("Accept", accept));
        let answer = http.post("/mcp", &headers, &list.message);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some(media)),
            "{accept}"
        );
        let body = answer.text();
        let json = body
            .strip_prefix("data: ")
            .and_then(|rest| rest.strip_suffix("\n\n"))
            .unwrap_or(&body);
        assert!(
            serde_json::from_str::<Value>(json).unwrap()["result"]["tools"].is_array(),
            "{body}"
        );
    }
    // The same connection throughout: a stream does not end it.
    assert_eq!(list.send(&mut http, "/mcp").status, 200);
}

#[test]
fn an_answer_before_the_end_of_a_run_is_the_last_of_its_connection() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::silence());
    let server = HttpServer::start(Program::with(&fabric));
    let params = json!({"name": "fabric_run_pattern",
                        "arguments": {"pattern_name": "summarize", "wait_seconds": 0}});
    for accept in ["application/json", "text/event-stream"] {
        let call = Modern::new(json!(1), "tools/call", params.clone());
        let mut headers = call.headers();
        headers.push(("Accept", accept));
        let answer = server.connect().post("/mcp", &headers, &call.message);
        assert_eq!(
            (answer.header("content-type"), answer.header("connection")),
            (Some(accept), Some("close"))
        );
        assert!(answer.text().contains("working"), "{}", answer.text());
    }
}
