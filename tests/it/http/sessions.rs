//! Legacy sessions: ids, adoption, their end, and their state.

use serde_json::json;

use super::{WebSession, code, list_patterns, request, run, start};
use crate::support::reply::Reply;
use crate::support::stdio::initialize_params;

/// An id as another process would have given it.
const OTHER: &str = "2025-03-26.0123456789abcdef0123456789abcdef";

#[test]
fn ids_are_minted_adopted_and_ended() {
    let (_fabric, server) = start();
    let session = WebSession::open(&server, "2025-06-18");
    let digits = session.id.strip_prefix("2025-06-18.").unwrap();
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    assert!(digits.len() == 32 && digits.bytes().all(is_hex), "{digits}");
    assert_ne!(session.id, WebSession::open(&server, "2025-06-18").id);
    let with_id = |id: &str| WebSession {
        server: &server,
        id: id.to_owned(),
        bearer: None,
    };
    // A session of another process: its id contains the revision.
    let other = with_id(OTHER);
    let tools = other.request(1, "tools/list", json!({})).json();
    let title = tools["result"]["tools"][0].get("title");
    assert_eq!(title, None, "2025-03-26 has no titles: {tools}");
    for session in [&session, &other] {
        session.delete().expect_status(204);
        session.delete().expect_status(404);
        let answer = session.request(1, "tools/list", json!({}));
        assert_eq!((answer.status, &answer.json()["id"]), (404, &json!(1)));
    }
    for malformed in ["x", "2026-07-28.0123456789abcdef0123456789abcdef"] {
        let answer = with_id(malformed).request(1, "tools/list", json!({}));
        assert_eq!(answer.status, 404, "{malformed}");
    }
}

#[test]
fn a_session_is_initialized_once() {
    let (_fabric, server) = start();
    let message = request(json!("i"), "initialize", initialize_params("2025-11-25"));
    let session = WebSession::open(&server, "2025-11-25");
    let again = session.post(&message);
    let found = (again.status, code(&again), &again.json()["id"]);
    assert_eq!(found, (200, -32600, &json!("i")));
    // `initialize` never adopts a session: with another id it opens a new one.
    for other in [OTHER, "nonsense"] {
        let answer = server.post(&[("Mcp-Session-Id", other)], &message);
        let new = answer.header("mcp-session-id").unwrap();
        assert!(answer.status == 200 && new != other && new != session.id);
    }
}

#[test]
fn the_version_header_must_be_one_we_know_and_the_session_decides() {
    let (_fabric, server) = start();
    let session = WebSession::open(&server, "2025-03-26");
    let list = request(json!(1), "tools/list", json!({}));
    let with = |version| [session.headers(), vec![("MCP-Protocol-Version", version)]].concat();
    for version in ["2025-03-26", "2025-11-25", "2024-11-05"] {
        let tools = server.post(&with(version), &list).json();
        let first = &tools["result"]["tools"][0];
        assert!(first["title"].is_null() && first["name"].is_string());
    }
    for version in ["1999-01-01", "x"] {
        assert_eq!(server.post(&with(version), &list).status, 400, "{version}");
        for method in ["GET", "DELETE"] {
            let mut http = server.connect();
            let answer = http.request(method, "/mcp", &with(version), None);
            assert_eq!(answer.status, 400, "{method} {version}");
        }
    }
}

#[test]
fn an_id_in_use_is_refused_in_its_session_only() {
    let (fabric, server) = start();
    fabric.on_run(Reply::sse().content("a").gate().complete());
    let [one, two] = [(); 2].map(|()| WebSession::open(&server, "2025-11-25"));
    let mut first = one.stream(9, "tools/call", run(json!(9)));
    assert_eq!(first.next_json()["method"], "notifications/progress");
    for (method, params) in [
        ("tools/call", run(json!(9))),
        ("ping", json!({})),
        ("tools/call", list_patterns()),
    ] {
        let second = one.request(9, method, params);
        let found = (second.status, code(&second), &second.json()["id"]);
        assert_eq!(found, (200, -32600, &json!(9)), "{method}");
    }
    let pong =
        |session: &WebSession<'_>| session.request(9, "ping", json!({})).json()["result"].take();
    assert_eq!(pong(&two), json!({}));
    fabric.release_all();
    assert_eq!(first.next_json()["id"], 9, "the first goes on");
    assert_eq!(pong(&one), json!({}), "and its id is free again");
}

#[test]
fn a_batch_is_answered_as_an_array() {
    let (fabric, server) = start();
    fabric.on_run(Reply::run(&["one"]));
    let session = WebSession::open(&server, "2025-03-26");
    // Notifications come singly before the array, on a stream; not at all if only JSON is accepted.
    let batch = json!([
        request(json!(1), "ping", json!({})),
        request(json!(2), "tools/call", run(json!("t")))
    ]);
    let mut events = super::stream(&server, &session.headers(), &batch);
    assert_eq!(events.next_json()["params"]["progressToken"], "t");
    assert_eq!(events.next_json().as_array().unwrap().len(), 2);
    assert!(events.next().unwrap().is_none());
    let json_only = session.accepting("application/json");
    let answers = server.post(&json_only, &batch).json();
    assert_eq!(answers.as_array().unwrap().len(), 2);
    // An empty array is not sent.
    let cancelled = json!([
        request(json!(7), "tools/call", list_patterns()),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
    ]);
    let answer = server.post(&json_only, &cancelled);
    assert_eq!((answer.status, &*answer.body), (202, &b""[..]));
    let empty = session.post(&json!([]));
    assert_eq!((empty.status, code(&empty)), (400, -32600));
}
