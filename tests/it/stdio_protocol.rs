//! The protocol on stdio: framing of lines, and ids in use.
//!
//! What each revision answers to each message is tested in `src/server/tests`, byte by byte.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;

fn start() -> (FakeFabric, Stdio) {
    let fabric = FakeFabric::start();
    let client = Stdio::start(Program::with(&fabric));
    (fabric, client)
}

#[test]
fn annotations_are_true() {
    let (_fabric, mut client) = start();
    client.initialize("2025-11-25");
    let result = client.result("tools/list", Value::Null);
    for tool in result["tools"].as_array().unwrap() {
        let runs = ["fabric_run_pattern", "fabric_cancel_run"]
            .map(Value::from)
            .contains(&tool["name"]);
        let notes = &tool["annotations"];
        assert_eq!(notes["readOnlyHint"], !runs, "{tool}");
        assert_eq!(notes["idempotentHint"], !runs, "{tool}");
        assert_eq!(notes["openWorldHint"], true, "{tool}");
    }
}

#[test]
fn an_id_in_flight_cannot_be_used_twice_and_can_be_used_again() {
    let (fabric, mut client) = start();
    client.initialize("2025-11-25");
    fabric.once(
        "POST /chat",
        Reply::sse().content("first").gate().complete(),
    );
    let run = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x"}});
    let id = json!("twice");
    client.begin_as(&id, "tools/call", run.clone());
    fabric.wait_held(1);
    for (method, params) in [
        ("tools/call", run.clone()),
        ("ping", Value::Null),
        ("tools/list", Value::Null),
    ] {
        client.begin_as(&id, method, params);
        let refused = client.answer(&id);
        assert_eq!(refused["error"]["code"], -32600, "{method}: {refused}");
    }
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "first");
    client.begin_as(&id, "tools/call", run);
    assert_eq!(
        client.answer(&id)["result"]["content"][0]["text"],
        "Ran ai on: x"
    );
    fabric.expect_chats(2);
}

#[test]
fn a_line_may_end_in_crlf_begin_with_a_bom_or_be_blank() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::start(Program::with(&fabric));
    client.send_raw(b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n");
    client.send_raw(b"\r\n\n   \n\t\n");
    client.send_raw(b"\xef\xbb\xbf  {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}  \n");
    client.send_raw(b"\xef\xbb\xbf\n");
    for id in [1, 2] {
        assert_eq!(
            client.recv(),
            json!({"jsonrpc": "2.0", "id": id, "result": {}})
        );
    }
    client.expect_nothing_else();
}

#[test]
fn a_line_may_arrive_in_any_pieces() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::start(Program::with(&fabric));
    for byte in "{\"jsonrpc\":\"2.0\",\"id\":\"ä漢😀\",\"method\":\"ping\"}\n".as_bytes() {
        client.send_raw(&[*byte]);
    }
    assert_eq!(client.recv()["id"], "ä漢😀");
}

#[test]
fn many_messages_in_one_write_are_answered_in_order() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::start(Program::with(&fabric));
    let all: String = (0..500)
        .map(|n| format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"ping\"}}\n"))
        .collect();
    client.send_raw(all.as_bytes());
    for n in 0..500 {
        let line = client.recv_line();
        assert_eq!(
            String::from_utf8_lossy(&line),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"result\":{{}}}}\n")
        );
    }
}
