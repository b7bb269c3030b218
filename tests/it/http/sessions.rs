//! Legacy sessions: ids, adoption, their end, and their state.

use serde_json::json;

use super::{code, initialize, list_patterns, request, run, start, stream};
use crate::support::reply::Reply;
use crate::support::stdio::initialize_params;

#[test]
fn ids_are_minted_adopted_and_ended() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let list = request(json!(1), "tools/list", json!({}));
    let session = initialize(&server, "2025-06-18");
    let digits = session.strip_prefix("2025-06-18.").unwrap();
    assert!(
        digits.len() == 32
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
        "{session}"
    );
    assert_ne!(session, initialize(&server, "2025-06-18"));
    // A session of another process: its id contains the revision.
    let other = "2025-03-26.0123456789abcdef0123456789abcdef";
    let tools = http
        .post("/mcp", &[("Mcp-Session-Id", other)], &list)
        .json();
    assert!(
        tools["result"]["tools"][0].get("title").is_none(),
        "2025-03-26 has no titles: {tools}"
    );
    for end in [&*session, other] {
        assert_eq!(
            http.request("DELETE", "/mcp", &[("Mcp-Session-Id", end)], None)
                .status,
            204
        );
        assert_eq!(
            http.request("DELETE", "/mcp", &[("Mcp-Session-Id", end)], None)
                .status,
            404
        );
        let answer = http.post("/mcp", &[("Mcp-Session-Id", end)], &list);
        assert_eq!((answer.status, &answer.json()["id"]), (404, &json!(1)));
    }
    for malformed in [
        "",
        "x",
        "2025-06-18",
        "2026-07-28.0123456789abcdef0123456789abcdef",
        "2025-06-18.0123456789ABCDEF0123456789ABCDEF",
    ] {
        let answer = http.post("/mcp", &[("Mcp-Session-Id", malformed)], &list);
        assert_eq!(answer.status, 404, "{malformed}");
    }
}

#[test]
fn a_session_is_initialized_once() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let message = request(json!("i"), "initialize", initialize_params("2025-11-25"));
    let session = initialize(&server, "2025-11-25");
    let again = http.post("/mcp", &[("Mcp-Session-Id", &session)], &message);
    assert_eq!(
        (again.status, code(&again), &again.json()["id"]),
        (200, -32600, &json!("i"))
    );
    // `initialize` never adopts a session: with another id it opens a new one.
    for other in ["2025-11-25.0123456789abcdef0123456789abcdef", "nonsense"] {
        let answer = http.post("/mcp", &[("Mcp-Session-Id", other)], &message);
        let new = answer.header("mcp-session-id").unwrap();
        assert!(answer.status == 200 && new != other && new != session);
    }
}

#[test]
fn the_version_header_must_be_one_we_know_and_the_session_decides() {
    let (_fabric, server) = start();
    let mut http = server.connect();
    let session = initialize(&server, "2025-03-26");
    let list = request(json!(1), "tools/list", json!({}));
    for (version, status) in [
        ("2025-03-26", 200),
        ("2025-11-25", 200),
        ("2024-11-05", 200),
        ("1999-01-01", 400),
        ("x", 400),
    ] {
        let answer = http.post(
            "/mcp",
            &[
                ("Mcp-Session-Id", &session),
                ("MCP-Protocol-Version", version),
            ],
            &list,
        );
        assert_eq!(answer.status, status, "{version}");
        if status == 200 {
            assert!(
                answer.json()["result"]["tools"][0].get("title").is_none(),
                "{version}"
            );
        }
    }
    let get = [
        ("Mcp-Session-Id", &*session),
        ("MCP-Protocol-Version", "1999-01-01"),
    ];
    assert_eq!(http.request("GET", "/mcp", &get, None).status, 400);
    assert_eq!(http.request("DELETE", "/mcp", &get, None).status, 400);
}

#[test]
fn an_id_in_use_is_refused_in_its_session_only() {
    let (fabric, server) = start();
    fabric.on("POST /chat", Reply::sse().content("a").gate().complete());
    let (one, two) = (
        initialize(&server, "2025-11-25"),
        initialize(&server, "2025-11-25"),
    );
    let message = request(json!(9), "tools/call", run(json!(9)));
    let mut first = stream(&server, &[("Mcp-Session-Id", &one)], &message);
    assert_eq!(first.next_json()["method"], "notifications/progress");
    for (method, params) in [
        ("tools/call", run(json!(9))),
        ("ping", json!({})),
        ("tools/call", list_patterns()),
    ] {
        let second = server.connect().post(
            "/mcp",
            &[("Mcp-Session-Id", &one)],
            &request(json!(9), method, params),
        );
        assert_eq!(
            (second.status, code(&second), &second.json()["id"]),
            (200, -32600, &json!(9)),
            "{method}"
        );
    }
    let other = server.connect().post(
        "/mcp",
        &[("Mcp-Session-Id", &two)],
        &request(json!(9), "ping", json!({})),
    );
    assert_eq!(other.json()["result"], json!({}));
    fabric.release_all();
    assert_eq!(first.next_json()["id"], 9, "the first goes on");
    let again = server.connect().post(
        "/mcp",
        &[("Mcp-Session-Id", &one)],
        &request(json!(9), "ping", json!({})),
    );
    assert_eq!(
        again.json()["result"],
        json!({}),
        "and its id is free again"
    );
}

#[test]
fn a_batch_is_answered_as_an_array() {
    let (fabric, server) = start();
    fabric.on("POST /chat", Reply::run(&["one"]));
    let session = initialize(&server, "2025-03-26");
    let headers = [("Mcp-Session-Id", &*session)];
    let mut http = server.connect();
    // Notifications come singly before the array, on a stream; not at all if only JSON is accepted.
    let batch = json!([
        request(json!(1), "ping", json!({})),
        request(json!(2), "tools/call", run(json!("t")))
    ]);
    let mut events = stream(&server, &headers, &batch);
    assert_eq!(events.next_json()["params"]["progressToken"], "t");
    assert_eq!(events.next_json().as_array().unwrap().len(), 2);
    assert!(events.next().unwrap().is_none());
    let json_only = [headers[0], ("Accept", "application/json")];
    assert_eq!(
        http.post("/mcp", &json_only, &batch)
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // An empty array is not sent.
    let cancelled = json!([
        request(json!(7), "tools/call", list_patterns()),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
    ]);
    let answer = http.post("/mcp", &json_only, &cancelled);
    assert_eq!((answer.status, &*answer.body), (202, &b""[..]));
    let empty = http.post("/mcp", &headers, &json!([]));
    assert_eq!((empty.status, code(&empty)), (400, -32600));
}
