//! Batches: only 2025-03-26 has them.

use super::*;

const ONLY_THERE: &str = "Arrays of messages exist only in 2025-03-26: send one message at a time.";
const NOT_HERE: &str = "This request cannot be part of a batch: send it by itself.";

#[test]
fn an_array_is_refused_outside_of_2025_03_26() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#;
    for (pipe, member) in [
        (TestClient::new(), "\"id\":null,"),
        (TestClient::speaking(Revision::R2024_11_05), "\"id\":null,"),
        (TestClient::speaking(Revision::R2025_06_18), "\"id\":null,"),
        (TestClient::speaking(Revision::R2025_11_25), ""),
    ] {
        assert_eq!(pipe.say(batch), error(member, -32600, ONLY_THERE));
        // A refused batch has no effect, not even its notifications.
        let cancel =
            r#"[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]"#;
        assert_eq!(pipe.say(cancel), error(member, -32600, ONLY_THERE));
    }
}

#[test]
fn each_item_is_handled_like_a_single_message() {
    let pipe = TestClient::speaking(Revision::R2025_03_26);
    let modern = request_in(Revision::R2026_07_28, "tools/list", "");
    let no_object = error("\"id\":null,", -32600, "A message is a JSON object.");
    let words = "\"id\" must be a string of at most 1024 bytes or a 64-bit integer.";
    let bad_id = error("\"id\":null,", -32600, words);
    let words = "There is no method \"no/such\" here.";
    let unknown = error("\"id\":4,", -32601, words);
    let refused = |id: u8| error(&format!("\"id\":{id},"), -32600, NOT_HERE);
    let message = |fields: &str| format!(r#"{{"jsonrpc":"2.0",{fields}}}"#);
    let call = r#""id":3,"method":"tools/call","params":{"name":"fabric_list_models"}"#;
    let cancel = r#""method":"notifications/cancelled","params":{"requestId":3}"#;
    let agree = r#""id":5,"method":"initialize","params":{"protocolVersion":"2024-11-05"}"#;
    let pong = message(r#""id":2,"result":{}"#);
    let items = [
        (r#""id":2,"method":"ping""#, pong),
        (r#""method":"notifications/initialized""#, "-".to_owned()),
        (call, "call 3".into()),
        (cancel, "cancel 3".into()),
        (r#""id":"x","result":{}"#, "-".into()),
        (r#""id":{},"method":"ping""#, bad_id),
        (r#""id":4,"method":"no/such""#, unknown),
        (agree, refused(5)),
        (r#""id":6,"method":"server/discover""#, refused(6)),
    ];
    let mut items: Vec<_> = items.map(|(fields, shown)| (message(fields), shown)).into();
    items.push((modern, refused(1)));
    items.extend(["7", "[]"].map(|item| (item.to_owned(), no_object.clone())));
    let (said, shown): (Vec<_>, Vec<_>) = items.iter().cloned().unzip();
    let batch = format!("[{}]", said.join(", "));
    let expected = format!("[{}]", shown.join(" | "));
    assert_eq!(pipe.say(&batch), expected);
    assert_eq!(
        pipe.session.revision(),
        Some(Revision::R2025_03_26),
        "the refused initialize agreed on nothing"
    );
    for (item, shown) in items {
        assert_eq!(pipe.say(&format!("[{item}]")), format!("[{shown}]"));
    }
}

#[test]
fn a_batch_may_not_use_an_id_twice() {
    let words = "This id is in use by a request that has no answer yet: give every request an id of its own.";
    let mut pipe = TestClient::speaking(Revision::R2025_03_26);
    pipe.in_use = vec!["9"];
    let ping = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let pong = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    let refused = |id: &str| error(&format!("\"id\":{id},"), -32600, words);
    let batch = ["1", "\"1\"", "1", "9", r#""\u0031""#].map(ping).join(",");
    let expected = [
        pong("1"),
        pong("\"1\""),
        refused("1"),
        refused("9"),
        refused("\"1\""),
    ]
    .join(" | ");
    assert_eq!(pipe.say(&format!("[{batch}]")), format!("[{expected}]"));
}

#[test]
fn an_unreadable_or_too_long_batch_is_one_error() {
    let pipe = TestClient::speaking(Revision::R2025_03_26);
    let expected = error("\"id\":null,", -32600, "An empty batch is not a request.");
    assert_eq!(pipe.say("[]"), expected);
    let expected = error("\"id\":null,", -32700, "The message is not JSON.");
    assert_eq!(pipe.say("[{},"), expected);
    let batch = |n: usize| format!("[{}1]", "1,".repeat(n - 1));
    let words = "The batch holds too many messages: send at most 1000 at once.";
    let too_long = error("\"id\":null,", -32600, words);
    assert_eq!(pipe.say(&batch(crate::config::MAX_BATCH + 1)), too_long);
    assert_ne!(pipe.say(&batch(crate::config::MAX_BATCH)), too_long);
}
