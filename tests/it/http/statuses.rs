//! The order of checks on a POST, and the status of every error.

use serde_json::json;

use super::{Modern, POST, WebSession, code, request, start};
use crate::support::expect::contains;
use crate::support::http::Answer;
use crate::support::reply::Reply;
use crate::support::web::messages;

#[test]
fn the_first_failing_check_decides() {
    let (_fabric, server) = start();
    let json = ("Content-Type", "application/json");
    let (text, none) = (("Content-Type", "text/plain"), ("Accept", "text/html"));
    let accepted = [json, ("Accept", "application/json")];
    let charset = [("Content-Type", "Application/JSON; charset=utf-8")];
    let host = [("Host", "evil.example.com")];
    let origin = [("Origin", "http://evil.example.com"), json];
    let large = vec![b' '; 9 << 20];
    type Case<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c [u8], u16);
    let cases: [Case<'_>; 12] = [
        ("the wrong host before the type", &host, b"", 403),
        ("a wrong origin", &origin, b"{}", 403),
        ("no type", &accepted[1..], b"{}", 415),
        ("a wrong type before Accept", &[text, none], b"{}", 415),
        ("a type with parameters", &charset, b"{", 400),
        ("Accept before the body", &[json, none], &large, 406),
        ("the size before the parse", &accepted, &large, 413),
        ("no JSON", &accepted, b"{", 400),
        ("no message", &accepted, b"5", 400),
        ("no UTF-8", &accepted, b"\"\xff\"", 400),
        ("nothing", &accepted, b"", 400),
        ("an array outside of any session", &accepted, b"[]", 400),
    ];
    for (what, headers, body, status) in cases {
        let mut http = server.connect();
        let _ = http.send("POST", &server.path, headers, Some(body));
        let answer = http.answer().unwrap();
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        let error = answer.json();
        let is_so = error.get("id").is_none() && error["error"]["code"].is_i64();
        assert!(is_so, "{what}: {error}");
    }
}

#[test]
fn other_methods_and_paths() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    for (method, allowed) in [
        ("PUT", "GET, POST, DELETE, OPTIONS"),
        ("GET", "POST, OPTIONS"),
        ("DELETE", "POST, OPTIONS"),
    ] {
        let answer = http.request(method, "/mcp", &[("Accept", "text/event-stream")], None);
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some(allowed), "{method}");
    }
    let all =
        "/ /nope /mcp/x /.well-known/oauth-protected-resource /.well-known/openid-configuration";
    for path in all.split(' ') {
        let answer = http.get(path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        let why = "There is nothing at this path; MCP is at /mcp.";
        let body = json!({"error": "not_found", "error_description": why});
        assert_eq!(answer.json(), body, "{path}");
    }
    let register = http.request("POST", "/register", &POST, Some(b"{}"));
    assert_eq!(register.status, 404);
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    discover.send(&mut http, "/mcp/").expect_status(200);
}

#[test]
fn the_status_of_modern_errors() {
    let (_fabric, server) = start();
    let request = |method, params| Modern::new(json!("x"), method, params);
    let without = |member: &str| {
        let mut request = request("tools/list", json!({}));
        let meta = &mut request.message["params"]["_meta"];
        let member = format!("io.modelcontextprotocol/{member}");
        meta.as_object_mut().unwrap().remove(&member);
        request
    };
    let unknown = "2099-01-01";
    let mut unsupported = request("tools/list", json!({})).with("MCP-Protocol-Version", unknown);
    let meta = &mut unsupported.message["params"]["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(unknown);
    let mut no_object = request("tools/list", json!({}));
    no_object.message["params"] = json!([]);
    let (tool, uri) = (json!({"name": "nope"}), json!({"uri": "nope://"}));
    for (request, status, expected) in [
        (without("protocolVersion"), 400, -32602),
        (without("clientCapabilities"), 400, -32602),
        (no_object, 400, -32602),
        (unsupported, 400, -32022),
        (request("nope", json!({})), 404, -32601),
        (request("ping", json!({})), 404, -32601),
        (request("initialize", json!({})), 404, -32601),
        (request("tools/call", tool), 200, -32602),
        (request("resources/read", uri), 200, -32602),
    ] {
        let answer = request.post(&server);
        let shown = format!("{}: {}", request.message, answer.text());
        let found = (answer.status, code(&answer));
        assert_eq!(found, (status, expected), "{shown}");
        assert_eq!(answer.json()["id"], "x");
        assert!(answer.header("mcp-session-id").is_none());
    }
}

#[test]
fn messages_without_an_answer_are_accepted() {
    let (_fabric, server) = start();
    let accepted = |answer: Answer| {
        assert_eq!(&*answer.expect_status(202).body, b"");
    };
    let note = |method| json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}});
    let modern = [("MCP-Protocol-Version", "2026-07-28")];
    for method in ["notifications/whatever", "notifications/cancelled"] {
        accepted(server.post(&modern, &note(method)));
    }
    let session = WebSession::open(&server, "2025-03-26");
    let response = json!({"jsonrpc": "2.0", "id": 5, "result": {}});
    accepted(session.post(&note("notifications/initialized")));
    accepted(session.post(&response));
    accepted(session.post(&json!([note("x"), response])));
}

#[test]
fn legacy_errors_are_200_unless_there_is_no_session_or_no_request() {
    let (_fabric, server) = start();
    let session = WebSession::open(&server, "2025-06-18");
    for (method, params, expected) in [
        ("nope", json!({}), -32601),
        ("tools/call", json!({"name": "nope"}), -32602),
        ("tools/list", json!([]), -32602),
    ] {
        let answer = session.request(7, method, params);
        let found = (answer.status, code(&answer));
        assert_eq!(found, (200, expected), "{method}");
        assert_eq!(answer.json()["id"], 7, "{method}");
    }
    let ping = request(json!(7), "ping", json!({}));
    let array = session.post(&json!([ping]));
    let found = (array.status, code(&array));
    assert_eq!(found, (400, -32600), "no batches in this revision");
    let pong = session.post(&ping).expect_status(200).text();
    assert_eq!(pong, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    // Without a session only `initialize` is allowed.
    let lost = server.post(&[], &request(json!(7), "tools/list", json!({})));
    assert_eq!((lost.status, code(&lost)), (400, -32602));
    assert_eq!(lost.json()["id"], 7);
    contains(lost.text(), ["initialize"]);
}

#[test]
fn a_request_that_names_only_its_legacy_revision_is_a_session_of_its_own() {
    let (_fabric, server) = start();
    let arguments = json!({"name": "fabric_list_strategies"});
    let list = request(json!(7), "tools/call", arguments);
    for (version, status) in [
        ("2025-03-26", 200),
        ("2025-06-18", 200),
        ("2025-11-25", 200),
        ("2025-06-19", 400),
    ] {
        let headers = [("MCP-Protocol-Version", version)];
        let answer = server.post(&headers, &list);
        answer.expect_status(status);
        let result = &answer.json()["result"];
        let is_structured = status == 200 && version != "2025-03-26";
        let found = result["structuredContent"].is_object();
        assert_eq!(found, is_structured, "{version}");
        assert_eq!(answer.header("mcp-session-id"), None);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let noted = if status == 200 { 202 } else { 400 };
        server.post(&headers, &note).expect_status(noted);
        for method in ["GET", "DELETE"] {
            let mut http = server.connect();
            http.request(method, "/mcp", &headers, None)
                .expect_status(405);
        }
    }
}

#[test]
fn only_what_is_accepted_is_sent() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let (json, events) = ("application/json", "text/event-stream");
    for (accept, media) in [
        (json, json),
        (events, events),
        ("*/*", json),
        ("text/event-stream, application/json;q=0.1", json),
    ] {
        let list = Modern::new(json!(1), "tools/list", json!({})).with("Accept", accept);
        // The same connection throughout: a stream does not end it.
        let answer = list.send(&mut http, "/mcp");
        let found = answer.expect_status(200).header("content-type");
        assert_eq!(found, Some(media));
        let tools = &messages(&answer)[0]["result"]["tools"];
        assert!(tools.is_array(), "{accept}: {}", answer.text());
    }
}

#[test]
fn an_answer_before_the_end_of_a_run_is_the_last_of_its_connection() {
    let (fabric, server) = start();
    fabric.on_run(Reply::silence());
    let arguments = json!({"pattern_name": "summarize", "input_text": "x", "wait_seconds": 0});
    let params = json!({"name": "fabric_run_pattern", "arguments": arguments});
    for accept in ["application/json", "text/event-stream"] {
        let call = Modern::new(json!(1), "tools/call", params.clone());
        let answer = call.with("Accept", accept).post(&server);
        assert_eq!(answer.header("content-type"), Some(accept));
        assert_eq!(answer.header("connection"), Some("close"));
        contains(answer.text(), ["working"]);
    }
}
