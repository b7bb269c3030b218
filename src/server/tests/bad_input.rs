//! What must be refused, and what must not be answered, in every revision.

use super::*;

/// A client in every state that a pipe can have.
fn pipes() -> Vec<(TestClient, bool)> {
    let with_null = |revision: Revision| revision < Revision::R2025_11_25;
    let legacy = Revision::ALL.into_iter().filter(|r| r.is_legacy());
    let mut pipes: Vec<_> = legacy
        .map(|revision| (TestClient::speaking(revision), with_null(revision)))
        .collect();
    pipes.push((TestClient::new(), true));
    pipes
}

#[test]
fn every_bad_line_gets_its_code_and_a_readable_id_back() {
    let (not_json, not_utf8) = ("The message is not JSON.", "The message is not UTF-8.");
    let (object, twice) = (
        "A message is a JSON object.",
        "The message has the same field twice.",
    );
    let (id, version) = (
        "\"id\" must be a string of at most 1024 bytes or a 64-bit integer.",
        "\"jsonrpc\" must be \"2.0\".",
    );
    let (method, no_method) = ("\"method\" must be a string.", "\"method\" is missing.");
    let deep = "[".repeat(100_000);
    let deep_end = format!("{}{}", deep, "]".repeat(100_000));
    let rows: Vec<(Vec<u8>, i32, &str, Option<&str>)> = vec![
        (b"nonsense".into(), -32700, not_json, None),
        (b"{".into(), -32700, not_json, None),
        (b"{}}".into(), -32700, not_json, None),
        (b"{'jsonrpc':'2.0'}".into(), -32700, not_json, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"".into(),
            -32700,
            not_json,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},".into(),
            -32700,
            not_json,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":01,\"method\":\"ping\"}".into(),
            -32700,
            not_json,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}".into(),
            -32700,
            not_json,
            None,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",}".into(),
            -32700,
            not_json,
            None,
        ),
        (b"\0".into(), -32700, not_json, None),
        (deep.clone().into(), -32700, not_json, None),
        (format!("{{\"a\":{deep}").into(), -32700, not_json, None),
        (b"\xff".into(), -32700, not_utf8, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}".into(),
            -32700,
            not_utf8,
            None,
        ),
        (b"5".into(), -32600, object, None),
        (b"null".into(), -32600, object, None),
        (b"true".into(), -32600, object, None),
        (b"\"ping\"".into(), -32600, object, None),
        (b"{}".into(), -32600, version, None),
        (
            br#"{"id":1,"method":"ping"}"#.into(),
            -32600,
            version,
            Some("1"),
        ),
        (
            br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.into(),
            -32600,
            version,
            Some("1"),
        ),
        (
            br#"{"jsonrpc":2.0,"id":"a","method":"ping"}"#.into(),
            -32600,
            version,
            Some("\"a\""),
        ),
        (
            br#"{"jsonrpc":null,"id":"\u0061","method":"ping"}"#.into(),
            -32600,
            version,
            Some("\"a\""),
        ),
        (br#"{"jsonrpc":"2.0"}"#.into(), -32600, no_method, None),
        (
            br#"{"jsonrpc":"2.0","id":-5}"#.into(),
            -32600,
            no_method,
            Some("-5"),
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":5}"#.into(),
            -32600,
            method,
            Some("1"),
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":null}"#.into(),
            -32600,
            method,
            Some("1"),
        ),
        (
            br#"{"jsonrpc":"2.0","method":["ping"]}"#.into(),
            -32600,
            method,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#.into(),
            -32600,
            id,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#.into(),
            -32600,
            twice,
            Some("1"),
        ),
        (
            br#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":"x","method":"ping"}"#.into(),
            -32600,
            twice,
            Some("\"x\""),
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}"#.into(),
            -32600,
            twice,
            None,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#.into(),
            -32600,
            twice,
            Some("1"),
        ),
        (
            b"[]".into(),
            -32600,
            "An empty batch is not a request.",
            None,
        ),
        (
            b" [ ] ".into(),
            -32600,
            "An empty batch is not a request.",
            None,
        ),
        (b"[{]".into(), -32700, not_json, None),
    ];
    for (pipe, null) in pipes() {
        for (line, code, words, id) in &rows {
            let member = match (id, null) {
                (Some(id), _) => format!("\"id\":{id},"),
                (None, true) => "\"id\":null,".into(),
                (None, false) => String::new(),
            };
            let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            assert_eq!(
                pipe.say_bytes(line),
                error(&member, *code, words),
                "{:?} {shown}",
                pipe.session.revision()
            );
        }
        // Nested too deeply to be read, but JSON: the id is found.
        let nested =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{deep_end}}}}}"#);
        let refused = pipe.say(&nested);
        assert!(
            refused.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"#),
            "{refused}"
        );
        assert_eq!(
            pipe.say(&request("ping")),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "the pipe goes on"
        );
    }
}

#[test]
fn params_that_are_no_object_are_wrong_params() {
    let words = |what: &str| format!("\"{what}\" must be an object, with each field once.");
    for (pipe, _) in pipes() {
        for method in ["ping", "initialize", "tools/list", "no/such"] {
            for params in ["[]", "5", "null", "\"x\"", "true", "[{}]"] {
                let line =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
                assert_eq!(
                    pipe.say(&line),
                    error(ID, -32602, &words("params")),
                    "{line}"
                );
            }
            for params in [r#"{"_meta":[]}"#, r#"{"_meta":5}"#] {
                let line =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
                assert_eq!(
                    pipe.say(&line),
                    error(ID, -32602, &words("_meta")),
                    "{line}"
                );
            }
            for params in [
                r#"{"_meta":{"progressToken":1,"progressToken":1}}"#,
                r#"{"_meta":{},"_meta":{}}"#,
            ] {
                let line =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
                let words = "params hold an object with the same field twice.";
                assert_eq!(pipe.say(&line), error(ID, -32602, words), "{line}");
            }
        }
    }
}

#[test]
fn notifications_and_responses_are_never_answered() {
    for (pipe, _) in pipes() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/unknown","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":[1]}"#,
            r#"{"jsonrpc":"2.0","method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":"2024-11-05"}}"#,
            r#"{"jsonrpc":"2.0","method":"","params":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        ] {
            let before = pipe.session.revision();
            assert_eq!(pipe.say(line), "-", "{line}");
            assert_eq!(pipe.session.revision(), before, "{line}");
        }
    }
}

#[test]
fn ids_are_echoed_unchanged() {
    for (pipe, _) in pipes() {
        for (sent, back) in [
            ("0", "0"),
            ("-1", "-1"),
            ("9007199254740993", "9007199254740993"),
            (r#""""#, r#""""#),
            (r#""1""#, r#""1""#),
            (r#""ä\n\"\\漢""#, r#""ä\n\"\\漢""#),
            (r#""\u0041\/\u20ac""#, r#""A/€""#),
            ("\"\u{2028}\"", "\"\u{2028}\""),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}"#);
            assert_eq!(
                pipe.say(&line),
                format!(r#"{{"jsonrpc":"2.0","id":{back},"result":{{}}}}"#)
            );
        }
    }
}

#[test]
fn an_id_in_flight_is_refused_before_anything_is_done() {
    let words = "This id is in use by a request that has no answer yet: give every request an id of its own.";
    let mut pipe = TestClient::speaking(Revision::R2024_11_05);
    pipe.in_use = vec!["1"];
    for revision in [Revision::R2024_11_05, Revision::R2026_07_28] {
        for method in [
            "ping",
            "tools/list",
            "initialize",
            "logging/setLevel",
            "no/such",
            "subscriptions/listen",
        ] {
            let line = request_in(
                revision,
                method,
                r#""protocolVersion":"2025-06-18","level":"debug""#,
            );
            assert_eq!(pipe.say(&line), error(ID, -32600, words), "{method}");
        }
    }
    assert_eq!(
        pipe.session.revision(),
        Some(Revision::R2024_11_05),
        "the refused initialize agreed on nothing"
    );
    assert_eq!(pipe.session.level(), None);
    assert_eq!(
        pipe.say(r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#),
        r#"{"jsonrpc":"2.0","id":"1","result":{}}"#
    );
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(pipe.say(cancel), "cancel 1");
    assert_eq!(pipe.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "-");
}
