//! Limits for clients, just below and just above each: lists, chains, subscriptions, and HTTP.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Http, HttpServer};
use crate::support::process::Program;
use crate::support::reply::{Framing, Reply, Step};
use crate::support::stdio::Stdio;
use crate::support::web::Streamable;
use crate::support::{Caller, Era, expect};

const ERA: Era = Era::Legacy("2025-11-25");
const MIB: usize = 1 << 20;

/// A Fabric with `count` patterns.
fn many(count: usize) -> FakeFabric {
    let fabric = FakeFabric::start();
    let names: Vec<String> = (0..count).map(|n| format!("p{n:05}")).collect();
    fabric.on("GET /patterns/names", Reply::json(json!(names)));
    fabric.on(
        "GET /patterns/p*",
        Reply::json(json!({"Name": "p", "Description": "", "Pattern": "You answer."})),
    );
    fabric
}

#[test]
fn a_list_has_at_most_10_000_rows_and_a_chain_8_further_steps() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let steps = |count: usize| json!(vec![json!({"pattern_name": "ai"}); count]);
    let rows: [(&str, &str, Value, Value); 4] = [
        (
            "fabric_list_patterns",
            "limit",
            json!(10_000),
            json!(10_001),
        ),
        ("fabric_list_patterns", "limit", json!(1), json!(0)),
        (
            "fabric_run_pattern",
            "max_chars",
            json!(32 * MIB),
            json!(32 * MIB + 1),
        ),
        ("fabric_run_pattern", "then", steps(8), steps(9)),
    ];
    for (tool, field, below, above) in rows {
        for (value, fine) in [(below, true), (above, false)] {
            let mut arguments = if tool == "fabric_run_pattern" {
                json!({"pattern_name": "ai"})
            } else {
                json!({})
            };
            arguments[field] = value;
            fabric.forget();
            let result = client.call(tool, arguments);
            match fine {
                true => drop(expect::success(ERA, &result)),
                false => {
                    assert!(expect::failure(ERA, &result, "invalid-request").contains(field));
                    fabric.expect_chats(0);
                }
            }
        }
    }
}

#[test]
fn a_page_has_1_000_entries_and_a_completion_100() {
    for (count, more) in [(1_000, false), (1_001, true)] {
        let fabric = many(count);
        let mut client = Stdio::ready(&fabric);
        let page = client.result("prompts/list", json!({}));
        let length = page["prompts"].as_array().map(Vec::len);
        assert_eq!(
            (length, page.get("nextCursor").is_some()),
            (Some(1_000), more)
        );
    }
    for (count, more) in [(100, false), (101, true)] {
        let fabric = many(count);
        let mut client = Stdio::ready(&fabric);
        let ask = json!({"ref": {"type": "ref/resource", "uri": "fabric://pattern/{name}"},
                         "argument": {"name": "name", "value": "p0"}});
        let templates = client.result("resources/templates/list", json!({}));
        let template = templates["resourceTemplates"]
            .as_array()
            .unwrap()
            .iter()
            .find(|template| {
                template["uriTemplate"]
                    .as_str()
                    .is_some_and(|uri| uri.contains("pattern"))
            });
        let template = template.unwrap_or_else(|| panic!("{templates}"));
        let uri = template["uriTemplate"].as_str().unwrap();
        let name = uri
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .unwrap()
            .0;
        let mut ask = ask;
        ask["ref"]["uri"] = json!(uri);
        ask["argument"]["name"] = json!(name);
        let completion = client.result("completion/complete", ask)["completion"].take();
        assert_eq!(
            completion["values"].as_array().map(Vec::len),
            Some(100),
            "{completion}"
        );
        assert_eq!(
            completion["hasMore"].as_bool().unwrap_or(false),
            more,
            "{completion}"
        );
    }
}

#[test]
fn a_pipe_has_at_most_64_subscriptions() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::Modern, Program::with(&fabric));
    let listen = || json!({"notifications": {"promptsListChanged": true}});
    let ids: Vec<Value> = (0..64)
        .map(|_| client.begin("subscriptions/listen", listen()))
        .collect();
    for _ in &ids {
        assert_eq!(
            client.next_note()["method"],
            "notifications/subscriptions/acknowledged"
        );
    }
    let error = client.error("subscriptions/listen", listen());
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("64")),
        "{error}"
    );
    client.cancel(&ids[5]);
    client.begin("subscriptions/listen", listen());
    assert_eq!(
        client.next_note()["method"],
        "notifications/subscriptions/acknowledged",
        "one made room"
    );
}

#[test]
fn a_body_of_fabric_has_at_most_16_mib() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    for (size, fine) in [(16 * MIB, true), (16 * MIB + 1, false)] {
        let body = Reply::new(200, "application/json", "[")
            .step(Step::Repeat(b" ".to_vec().repeat(size - 2), 1));
        fabric.once("GET /strategies", body.bytes("]").framing(Framing::Length));
        let result = client.call("fabric_list_strategies", json!({}));
        match fine {
            true => drop(expect::success(ERA, &result)),
            false => drop(expect::failure(ERA, &result, "response-too-large")),
        }
    }
}

/// A server that gets each request on a new connection.
struct Door(Arc<HttpServer>);

impl Door {
    fn ask(&self, head: &str, body: &[u8]) -> Answer {
        let mut http = self.0.connect();
        // A server that rejects the request early may close while we still write.
        let _ = http
            .send_raw(head.as_bytes())
            .and_then(|()| http.send_raw(body));
        http.answer()
            .unwrap_or_else(|e| panic!("no answer to {} bytes of head: {e}", head.len()))
    }
}

#[test]
fn http_takes_16_kib_of_head_100_headers_and_8_mib_of_body() {
    let fabric = FakeFabric::start();
    let door = Door(Arc::new(HttpServer::start(Program::with(&fabric))));
    let host = format!("Host: {}\r\n", door.0.address);
    for (size, status) in [(16 << 10, 200), ((16 << 10) + 1, 431)] {
        let start = format!("GET /healthz HTTP/1.1\r\n{host}X-Long: ");
        let filler = "x".repeat(size - start.len() - 4);
        let head = format!("{start}{filler}\r\n\r\n");
        assert_eq!((head.len(), door.ask(&head, b"").status), (size, status));
    }
    for (count, status) in [(100, 200), (101, 431)] {
        let further: String = (1..count).map(|n| format!("X-{n}: y\r\n")).collect();
        let head = format!("GET /healthz HTTP/1.1\r\n{host}{further}\r\n");
        assert_eq!(door.ask(&head, b"").status, status, "{count} headers");
    }
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;
    let post = format!("POST /mcp HTTP/1.1\r\n{host}Content-Type: application/json\r\n");
    for (size, status) in [(8 * MIB, 200), (8 * MIB + 1, 413)] {
        let mut body = message.as_bytes().to_vec();
        body.resize(size, b' ');
        assert_eq!(
            door.ask(&format!("{post}Content-Length: {size}\r\n\r\n"), &body)
                .status,
            status,
            "{size}"
        );
    }
    for (size, status) in [(1022, 200), (1200, 400)] {
        let extension = "x".repeat(size - 3);
        let body = format!("{:x};{extension}\r\n{message}\r\n0\r\n\r\n", message.len());
        let head = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
        let got = door.ask(&head, body.as_bytes()).status;
        assert_eq!(
            got / 100,
            status / 100,
            "a chunk's line of {size} bytes: {got}"
        );
    }
}

#[test]
fn connections_are_limited_and_the_next_is_refused() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(
        Program::with(&fabric).env("FABRIC_MCP_MAX_CONNECTIONS", "3"),
    ));
    fabric.on("POST /chat", Reply::sse().content("x").gate().complete());
    let mut client = Streamable::to(&server, Era::Modern, None);
    let run = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai"}});
    let message = client.message("tools/call", run);
    // An idle connection is evicted; these three are all busy.
    let held: Vec<Http> = (0..3).map(|_| client.send_apart(&message)).collect();
    fabric.wait_held(3);
    let told = client.send_apart(&message).answer().expect("a refusal");
    assert_eq!(told.status, 503, "{}", told.text());
    fabric.release_all();
    for mut http in held {
        assert_eq!(
            http.answer().expect("an answer").status,
            200,
            "who was let in is served"
        );
    }
}
