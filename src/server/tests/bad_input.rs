//! What must be refused, and what must not be answered, in every revision.

use super::*;
use crate::sync::lock;

/// A client in every state that a pipe can have.
fn pipes() -> Vec<(TestClient, bool)> {
    let with_null = |revision: Revision| revision < Revision::R2025_11_25;
    let legacy = Revision::ALL.into_iter().filter(|r| r.is_legacy());
    let pipes = legacy.map(|revision| (TestClient::speaking(revision), with_null(revision)));
    let mut pipes: Vec<_> = pipes.collect();
    pipes.push((TestClient::new(), true));
    pipes
}

/// A code, the id of the answer (`-` if the line has no readable one) and a message, then the lines that get them.
const BAD: &str = r#"
-32700 - The message is not JSON.
    nonsense
    {
    {'jsonrpc':'2.0'}
    {"jsonrpc":"2.0","id":1,"method":"ping"
    {"jsonrpc":"2.0","id":1,"method":"ping"},
    {"jsonrpc":"2.0","id":01,"method":"ping"}
    {"jsonrpc":"2.0","id":NaN,"method":"ping"}
    {"jsonrpc":"2.0","id":1,"method":"ping",}
    [{]
-32600 - A message is a JSON object.
    5
    null
    true
    "ping"
-32600 - "jsonrpc" must be "2.0".
    {}
-32600 1 "jsonrpc" must be "2.0".
    {"id":1,"method":"ping"}
    {"jsonrpc":"1.0","id":1,"method":"ping"}
    {"jsonrpc":2.0,"id":1,"method":"ping"}
-32600 "a" "jsonrpc" must be "2.0".
    {"jsonrpc":null,"id":"\u0061","method":"ping"}
-32600 - "method" is missing.
    {"jsonrpc":"2.0"}
-32600 -5 "method" is missing.
    {"jsonrpc":"2.0","id":-5}
-32600 1 "method" must be a string.
    {"jsonrpc":"2.0","id":1,"method":5}
    {"jsonrpc":"2.0","id":1,"method":null}
-32600 - "method" must be a string.
    {"jsonrpc":"2.0","method":["ping"]}
-32600 - "id" must be a string of at most 1024 bytes or a 64-bit integer.
    {"jsonrpc":"2.0","id":null,"method":"ping"}
    {"jsonrpc":"2.0","id":{},"method":"ping"}
    {"jsonrpc":"2.0","id":[1],"method":"ping"}
    {"jsonrpc":"2.0","id":true,"method":"ping"}
    {"jsonrpc":"2.0","id":1.0,"method":"ping"}
    {"jsonrpc":"2.0","id":1e2,"method":"ping"}
-32600 1 The message is nested more than 127 levels deep, or holds a number that is too large.
    {"jsonrpc":"2.0","id":1,"method":"m","params":1e999}
-32600 1 The message has the same field twice.
    {"jsonrpc":"2.0","id":1,"method":"a","method":"b"}
    {"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}
-32600 "x" The message has the same field twice.
    {"jsonrpc":"2.0","jsonrpc":"2.0","id":"x","method":"ping"}
-32600 - The message has the same field twice.
    {"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}
-32600 - An empty batch is not a request.
    []
     [ ] 
"#;

#[test]
fn every_bad_line_gets_its_code_and_a_readable_id_back() {
    let (not_json, not_utf8) = ("The message is not JSON.", "The message is not UTF-8.");
    let deep = "[".repeat(100_000);
    let deep_end = format!("{deep}{}", "]".repeat(100_000));
    for (pipe, null) in pipes() {
        let no_id = if null { "\"id\":null," } else { "" };
        let (mut code, mut member, mut words) = (0, String::new(), "");
        for line in BAD.trim_start_matches('\n').lines() {
            let Some(line) = line.strip_prefix("    ") else {
                let mut head = line.splitn(3, ' ');
                code = head.next().unwrap().parse().unwrap();
                member = match head.next().unwrap() {
                    "-" => no_id.to_owned(),
                    id => format!("\"id\":{id},"),
                };
                words = head.next().unwrap();
                continue;
            };
            assert_eq!(pipe.say(line), error(&member, code, words), "{line}");
        }
        for (line, words) in [
            (&b"\0"[..], not_json),
            (deep.as_bytes(), not_json),
            ("\u{feff}\u{feff}{}".as_bytes(), not_json),
            (" \u{feff}{}".as_bytes(), not_json),
            ("\u{a0}{}".as_bytes(), not_json),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}",
                not_json,
            ),
            (b"\xff", not_utf8),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}",
                not_utf8,
            ),
        ] {
            assert_eq!(pipe.say_bytes(line), error(no_id, -32700, words));
        }
        let nested = request("ping").replace("}", &format!(r#","params":{{"x":{deep_end}}}}}"#));
        let refused = pipe.say(&nested);
        assert!(refused.contains("more than 127 levels deep"), "{refused}");
        assert!(refused.contains(r#""id":1,"#), "{refused}");
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(pipe.say(&request("ping")), answer, "the pipe goes on");
        for spelled in [
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
            r#" {"jsonrpc":"2\u002e0","i\u0064":1,"method":"p\u0069ng","extra":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#,
        ] {
            assert_eq!(pipe.say(spelled), answer, "{spelled}");
        }
    }
}

#[test]
fn params_that_are_no_object_are_wrong_params() {
    let words = |what: &str| format!("\"{what}\" must be an object, with each field once.");
    let twice = "params hold an object with the same field twice.";
    for (pipe, _) in pipes() {
        for method in ["ping", "initialize"] {
            for (params, words) in [
                ("[]", words("params")),
                ("5", words("params")),
                (r#"{"_meta":[]}"#, words("_meta")),
                (r#"{"_meta":5}"#, words("_meta")),
                (
                    r#"{"_meta":{"progressToken":1,"progressToken":1}}"#,
                    twice.to_owned(),
                ),
                (r#"{"_meta":{},"_meta":{}}"#, twice.to_owned()),
            ] {
                let line =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
                assert_eq!(pipe.say(&line), error(ID, -32602, &words), "{line}");
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
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{back},"result":{{}}}}"#);
            assert_eq!(pipe.say(&line), expected);
        }
    }
}

#[test]
fn an_id_in_flight_is_refused_before_anything_is_done() {
    let words = "This id is in use by a request that has no answer yet: give every request an id of its own.";
    let mut pipe = TestClient::speaking(Revision::R2024_11_05);
    pipe.in_use = vec!["1"];
    for revision in [Revision::R2024_11_05, Revision::R2026_07_28] {
        let all = "ping tools/list initialize logging/setLevel no/such subscriptions/listen";
        for method in all.split(' ') {
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
    assert_eq!(*lock(&pipe.session.level), None);
    let found = pipe.say(r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#);
    assert_eq!(found, r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(pipe.say(cancel), "cancel 1");
    assert_eq!(pipe.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "-");
}
