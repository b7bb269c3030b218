//! Invalid lines on stdio: each gets exactly the right code, once, and the session continues.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::rng::{Rng, cases};
use crate::support::stdio::{Stdio, with_meta};
use crate::support::{ERAS, Era};

/// A line, its expected code, and the id of the answer; `None` if it has no readable one.
type Row = (&'static [u8], i64, Option<Value>);

fn rows() -> Vec<Row> {
    vec![
        (b"not json", -32700, None),
        (b"{", -32700, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"",
            -32700,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}",
            -32700,
            None,
        ),
        (b"\xff\xfe", -32700, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3(\"}",
            -32700,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}",
            -32700,
            None,
        ),
        (b"5", -32600, None),
        (b"null", -32600, None),
        (b"true", -32600, None),
        (b"\"text\"", -32600, None),
        (b"{}", -32600, None),
        (b"[]", -32600, None),
        (br#"{"id":1,"method":"ping"}"#, -32600, Some(json!(1))),
        (
            br#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
            -32600,
            Some(json!("a")),
        ),
        (
            br#"{"jsonrpc":2.0,"id":2,"method":"ping"}"#,
            -32600,
            Some(json!(2)),
        ),
        (
            br#"{"jsonrpc":null,"id":2,"method":"ping"}"#,
            -32600,
            Some(json!(2)),
        ),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            -32600,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            -32600,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
            -32600,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            -32600,
            None,
        ),
        (br#"{"jsonrpc":"2.0","id":3}"#, -32600, Some(json!(3))),
        (
            br#"{"jsonrpc":"2.0","id":4,"method":5}"#,
            -32600,
            Some(json!(4)),
        ),
        (
            br#"{"jsonrpc":"2.0","id":5,"method":null}"#,
            -32600,
            Some(json!(5)),
        ),
        (
            br#"{"jsonrpc":"2.0","id":6,"method":"tools/list","params":[]}"#,
            -32602,
            Some(json!(6)),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":"x"}"#,
            -32602,
            Some(json!(7)),
        ),
        (
            br#"{"jsonrpc":"2.0","id":8,"method":"tools/list","params":5}"#,
            -32602,
            Some(json!(8)),
        ),
    ]
}

#[test]
fn every_bad_line_gets_its_code_and_the_pipe_goes_on() {
    let before_any = [None];
    for era in ERAS.into_iter().map(Some).chain(before_any) {
        let fabric = FakeFabric::start();
        let mut client = Stdio::start(Program::with(&fabric));
        if let Some(era) = era {
            client.speak(era);
        }
        // An unreadable id is `null` up to 2025-06-18 and before any handshake, absent from 2025-11-25 on.
        let null_id = !matches!(era, Some(Era::Legacy("2025-11-25")));
        for (line, code, id) in rows() {
            client.send_raw(line);
            client.send_raw(b"\n");
            let answer = client.recv();
            let shown = format!("{era:?} {:?} → {answer}", String::from_utf8_lossy(line));
            assert_eq!(answer["error"]["code"], code, "{shown}");
            assert!(
                answer["error"]["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{shown}"
            );
            match id {
                Some(id) => assert_eq!(answer.get("id"), Some(&id), "{shown}"),
                None if null_id => assert_eq!(answer.get("id"), Some(&Value::Null), "{shown}"),
                None => assert_eq!(answer.get("id"), None, "{shown}"),
            }
        }
        client.expect_nothing_else();
    }
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

#[test]
fn odd_but_readable_lines_get_one_answer() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"a\":{}{}}}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let only_deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let twice = r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_owned();
    let escaped = r#"{"\u006asonrpc":"2.0","id":3,"\u006dethod":"pin\u0067"}"#.to_owned();
    let lone = r#"{"jsonrpc":"2.0","id":4,"method":"\ud800"}"#.to_owned();
    let huge =
        r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}"#.to_owned();
    for line in [deep, only_deep, twice, escaped.clone(), lone, huge] {
        client.send_raw(line.as_bytes());
        client.send_raw(b"\n");
        let answer = client.recv();
        assert!(
            answer.get("result").is_some() || answer["error"]["code"].is_number(),
            "{answer}"
        );
        if line == escaped {
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 3, "result": {}}));
        }
        client.expect_nothing_else();
    }
}

/// Any message, with its id if that must be answered.
fn hostile(rng: &mut Rng, n: u64) -> (Vec<u8>, Option<Value>) {
    const METHODS: [&str; 12] = [
        "ping",
        "initialize",
        "tools/list",
        "tools/call",
        "prompts/get",
        "resources/read",
        "completion/complete",
        "logging/setLevel",
        "server/discover",
        "notifications/cancelled",
        "",
        "no/such",
    ];
    let value = |rng: &mut Rng| match rng.within(0..10) {
        0 => Value::Null,
        1 => json!(rng.next()),
        2 => json!(-0.5),
        3 => json!([[], {}]),
        4 => json!({"name": "fabric_list_patterns", "arguments": {}}),
        5 => {
            json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": rng.text(0..6), "stream": rng.text(0..3)}})
        }
        6 => with_meta(json!({"name": rng.text(0..9)})),
        7 => {
            json!({"protocolVersion": rng.text(0..12), "_meta": {"progressToken": rng.text(0..4)}})
        }
        8 => json!({"level": rng.text(0..8), "uri": rng.text(0..30), "cursor": rng.text(0..5)}),
        _ => json!(rng.text(0..60)),
    };
    // Broken lines have distinct ids, so that a changed digit never yields another line's id.
    let broken = rng.one_in(3);
    let n = if broken { n + 1_000_000 } else { n };
    let id = if rng.one_in(2) {
        json!(n)
    } else {
        json!(format!("{n} {}", rng.text(0..9)))
    };
    let method = if rng.one_in(8) {
        rng.text(0..30)
    } else {
        (*rng.pick(&METHODS)).to_owned()
    };
    let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
    if !rng.one_in(4) {
        message["params"] = value(rng);
    }
    if rng.one_in(10) {
        message["extra"] = value(rng);
    }
    if rng.one_in(12) {
        message["method"] = value(rng);
    }
    let mut line = message.to_string().into_bytes();
    if broken {
        // Changed bytes: all that is known is that there is at most one answer.
        for _ in 0..rng.within(1..6) {
            let at = rng.within(0..line.len());
            line[at] = rng.next() as u8;
        }
        line.retain(|byte| *byte != b'\n');
        return (line, None);
    }
    (line, Some(id))
}

#[test]
fn hostile_messages_are_answered_once_each_and_never_end_the_pipe() {
    const LINES: u64 = 50;
    cases(20, |rng, _| {
        let fabric = FakeFabric::start();
        let mut client = Stdio::start(Program::with(&fabric));
        if rng.one_in(2) {
            client.speak(*rng.pick(&ERAS));
        }
        let mut expected = Vec::new();
        let mut unreadable = 0;
        for n in 0..LINES {
            let (mut line, id) = hostile(rng, 1000 + n);
            line.push(b'\n');
            client.send_raw(&line);
            match id {
                Some(id) => expected.push(id),
                None => unreadable += 1,
            }
        }
        for id in &expected {
            client.answer(id);
        }
        // There are no more unexpected answers than broken lines.
        client.begin_as(&json!("the end"), "ping", Value::Null);
        client.answer(&json!("the end"));
        let left = client.unasked();
        assert!(
            left.len() <= unreadable,
            "{} answers nobody asked for: {left:?}",
            left.len()
        );
        assert!(
            left.iter().all(|answer| !expected.contains(&answer["id"])),
            "answered twice: {left:?}"
        );
    });
}
