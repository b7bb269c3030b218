//! Hostile messages, on stdio and in HTTP bodies: a request with a readable id is answered exactly once, anything that
//! is not a message gets an error without an id, notifications get nothing, a damaged request at most one answer, and
//! the pipe or connection goes on.
//!
//! Damage below the messages is in `src/http/hostile.rs` (HTTP) and `src/fabric/events.rs` (Fabric's streams).

use std::collections::HashMap;
use std::io::Write;
use std::thread;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::rng::{Rng, cases};
use crate::support::stdio::{Stdio, with_meta};
use crate::support::web::{Streamable, messages};
use crate::support::{DEADLINE, Era};

/// The last one is empty.
const METHODS: &str = "ping tools/list tools/call prompts/list prompts/get resources/list \
    resources/templates/list resources/read resources/subscribe completion/complete \
    logging/setLevel server/discover notifications/initialized sampling/createMessage tasks/get ";

/// How a message must be answered.
enum Due {
    /// Exactly once, under this id.
    Once(Value),
    /// By an error without an id.
    NoId,
    Nothing,
    AtMostOnce,
}

/// A request's method and params.
fn request(rng: &mut Rng) -> (String, Value) {
    let method = if rng.one_in(8) {
        rng.text(0..30)
    } else {
        rng.word(METHODS).to_owned()
    };
    let params = match rng.within(0..7) {
        0 => json!({"name": "fabric_list_patterns", "arguments": {}}),
        1 => {
            json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "summarize", "model_name": "demo-dry-run",
                    "input_text": rng.text(0..80), "stream": true}, "_meta": {"progressToken": rng.text(0..9)}})
        }
        2 => json!({"name": "fabric_run_pattern", "arguments": rng.json(2)}),
        3 => {
            json!({"uri": format!("fabric://pattern/{}", rng.text(0..9)), "level": rng.text(0..8)})
        }
        4 => json!({"_meta": rng.json(2)}),
        _ => rng.json(3),
    };
    (method, params)
}

/// The message `n`, and how it must be answered.
fn message(rng: &mut Rng, n: u64, modern: bool) -> (Vec<u8>, Due) {
    let (method, mut params) = request(rng);
    if modern {
        params = with_meta(if params.is_object() {
            params
        } else {
            Value::Null
        });
    }
    let id = match rng.within(0..3) {
        0 => json!(n),
        1 => json!(-1 - n as i64),
        _ => json!(format!("{n} {}", rng.text(0..9))),
    };
    let sound = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    match rng.within(0..12) {
        0..5 => {
            let around = *rng.pick(&[["\u{feff}", ""], [" \t", " \r"], ["", ""]]);
            (around.join(&sound.to_string()).into(), Due::Once(id))
        }
        5 => {
            let texts = [
                format!(r#"{{"id":{id},"method":"ping"}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":[5]}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","method":"ping"}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":[]}}"#),
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{}{}}}"#,
                    "[".repeat(5_000),
                    "]".repeat(5_000)
                ),
            ];
            (rng.pick(&texts).clone().into(), Due::Once(id))
        }
        6..8 => {
            let texts = [
                "{".to_owned(),
                "null".to_owned(),
                "[]".to_owned(),
                format!("[{sound}]"),
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.to_owned(),
                format!(r#"{{"jsonrpc":"2.0","id":{n},"id":{n},"method":"ping"}}"#),
                format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping""#),
                "[".repeat(rng.within(1..20_000)),
            ];
            (rng.pick(&texts).clone().into(), Due::NoId)
        }
        8 => {
            let texts = [
                json!({"jsonrpc": "2.0", "id": n, "result": params}),
                json!({"jsonrpc": "2.0", "id": null, "error": params}),
                json!({"jsonrpc": "2.0", "method": method, "params": params}),
            ];
            (rng.pick(&texts).to_string().into(), Due::Nothing)
        }
        _ => {
            // An id so long that no damage turns it into that of another message.
            let mut damaged = sound;
            damaged["id"] = json!(format!("zzzzzzzzzzzzzzzzzzzzzzzz{n}"));
            let mut bytes = damaged.to_string().into_bytes();
            for _ in 0..rng.within(1..6) {
                rng.mutate(&mut bytes);
            }
            bytes.retain(|byte| *byte != b'\n');
            (bytes, Due::AtMostOnce)
        }
    }
}

/// Checks the form of a message; returns the id of an answer, `None` for a notification.
fn id_of(message: &Value) -> Option<&Value> {
    if let Some(method) = message["method"].as_str() {
        assert!(method.starts_with("notifications/"), "{message}");
        assert!(message.get("id").is_none(), "{message}");
        return None;
    }
    let error = &message["error"];
    let is_so = message["result"].is_object() != error.is_object();
    assert!(is_so, "{message}");
    let is_so = error.is_null() || error["code"].is_i64() && error["message"] != "";
    assert!(is_so, "{message}");
    Some(message.get("id").unwrap_or(&Value::Null))
}

#[test]
fn hostile_lines_are_answered_once_each_and_never_end_the_pipe() {
    let program = Program::new(["--demo", "--log-level", "error"]);
    let mut client = Stdio::speaking(Era::R2025_11_25, program);
    let mut stdin = client.process.stdin.take().unwrap();
    let (mut lines, mut ids) = (Vec::new(), HashMap::new());
    let (mut without_id, mut damaged) = (0, 0);
    cases(5_000, |rng, n| {
        let modern = rng.one_in(3);
        let (line, due) = message(rng, n, modern);
        match due {
            Due::Once(id) => assert_eq!(ids.insert(id, 0), None),
            Due::NoId => without_id += 1,
            Due::AtMostOnce => damaged += 1,
            Due::Nothing => {}
        }
        lines.extend(line);
        lines.push(b'\n');
    });
    // The input stays open until everything is answered. That the server has ended, the reader reports better.
    let writing = thread::spawn(move || {
        let _ = stdin.write_all(&lines);
        stdin
    });
    let (mut due, mut no_id, mut beyond) = (ids.len(), 0, 0);
    let mut take = |message: &Value| {
        match id_of(message) {
            None => {}
            Some(Value::Null) => no_id += 1,
            Some(id) => match ids.get_mut(id) {
                Some(count) => {
                    assert_eq!(*count, 0, "{id} was answered before: {message}");
                    *count = 1;
                    due -= 1;
                }
                None => beyond += 1,
            },
        }
        due > 0 || no_id < without_id
    };
    while take(&client.recv()) {}
    drop(writing.join().expect("the writer"));
    client.rest().iter().for_each(|message| {
        take(message);
    });
    beyond += no_id - without_id;
    assert!(beyond <= damaged, "{beyond} answers nobody asked for");
    assert!(client.wait_exit(DEADLINE).success());
    assert!(!client.stderr().contains("panic"), "{}", client.stderr());
}

#[test]
fn hostile_bodies_are_answered_once_each_and_never_end_the_connection() {
    let fabric = FakeFabric::start();
    let mut modern = Streamable::ready(&fabric, Era::MODERN);
    let mut legacy = Streamable::to(&modern.server, Era::R2025_11_25, None);
    let mut http = modern.server.connect();
    cases(1500, |rng, n| {
        let is_modern = rng.one_in(2);
        let client = if is_modern { &modern } else { &legacy };
        let (body, due) = message(rng, n, is_modern);
        let sent = serde_json::from_slice(&body).unwrap_or(Value::Null);
        // A header cannot carry every method's name: without it the request is refused.
        let mut headers = client.headers(&sent);
        headers.retain(|(_, value)| value.bytes().all(|b| (0x20..0x7f).contains(&b)));
        headers.push(("Content-Type", "application/json".to_owned()));
        headers.push(("Accept", "application/json, text/event-stream".to_owned()));
        let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let answer = http.request("POST", &client.server.path, &headers, Some(&body));
        let shown = format!("{:?}: {answer:?}", String::from_utf8_lossy(&body));
        assert!([200, 202, 400, 404].contains(&answer.status), "{shown}");
        assert_eq!(answer.status == 202, answer.body.is_empty(), "{shown}");
        let said = messages(&answer);
        let ids: Vec<_> = said.iter().filter_map(id_of).collect();
        match due {
            Due::Once(id) => assert_eq!(ids, [&id], "{shown}"),
            Due::NoId => assert_eq!((answer.status, ids), (400, vec![&Value::Null]), "{shown}"),
            Due::Nothing => assert!(ids.iter().all(|id| id.is_null()), "{shown}"),
            Due::AtMostOnce => assert!(ids.len() <= 1, "{shown}"),
        }
    });
    assert_eq!(legacy.request("ping", json!({}))["result"], json!({}));
    assert!(modern.request("tools/list", json!({}))["result"].is_object());
    let log = modern.server.process.stderr();
    assert!(!log.contains("panic"), "{log}");
}
