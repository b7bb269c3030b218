//! Tests of the test support: with a fake Fabric that did not misbehave, every fault test passes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, Http, address_in};
use crate::support::reply::{End, Framing, Reply, Step};
use crate::support::rng::Rng;
use crate::support::stdio::with_meta;
use crate::support::{DEADLINE, MODERN, expect, fixtures};

fn connect(fabric: &FakeFabric) -> Http {
    Http::connect(SocketAddr::from(([127, 0, 0, 1], fabric.port())))
}

fn chat(fabric: &FakeFabric) -> std::io::Result<Events> {
    let mut http = connect(fabric);
    http.send(
        "POST",
        "/chat",
        &[],
        Some(br#"{"prompts":[{"patternName":"ai","userInput":"hello"}]}"#),
    )?;
    http.events()
}

fn texts(mut events: Events) -> Vec<String> {
    let mut texts = Vec::new();
    while let Ok(Some(event)) = events.next() {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        texts.push(event["content"].as_str().unwrap_or("").to_owned());
    }
    texts
}

#[test]
fn good_routes_answer_in_fabrics_shapes_on_one_connection() {
    let fabric = FakeFabric::start();
    let mut http = connect(&fabric);
    let mut ask = |path: &str| http.request("GET", path, &[], None);
    assert_eq!(
        ask("/patterns/names").json().as_array().unwrap().len(),
        fixtures::PATTERNS.len()
    );
    assert_eq!(
        ask("/patterns/%C3%BCberblick%20f%C3%BCr%20alle").json()["Name"],
        "überblick für alle"
    );
    assert_eq!(ask("/strategies").json()[0]["name"], "cot");
    assert_eq!(
        ask("/models/names").json()["vendors"]["OpenAI"],
        json!(["gpt-x"])
    );
    assert_eq!(ask("/sessions/names").json(), Value::Null);
    let missing = ask("/patterns/nope");
    assert_eq!(missing.status, 500);
    assert!(
        missing
            .json()
            .as_str()
            .unwrap()
            .contains(fixtures::HOST_PATH)
    );
    assert_eq!(
        (ask("/nowhere").status, ask("/nowhere").text()),
        (404, "404 page not found".to_owned())
    );
    assert_eq!((fabric.accepted(), fabric.open()), (1, 1));
    assert_eq!(fabric.requests_of("GET /patterns/*").len(), 3);
}

#[test]
fn apply_fills_in_what_it_is_given_and_names_what_is_missing() {
    let fabric = FakeFabric::start();
    let mut http = connect(&fabric);
    let full = json!({"input": "Hallo", "variables": {"lang_code": "de"}});
    let text = http.post("/patterns/translate/apply", &[], &full).json()["Pattern"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        text.contains("into de.") && text.contains("Hallo"),
        "{text}"
    );
    let missing = http.post(
        "/patterns/translate/apply",
        &[],
        &json!({"input": "x", "variables": {}}),
    );
    assert_eq!(
        (missing.status, missing.json()),
        (500, json!("missing required variable: lang_code"))
    );
}

#[test]
fn a_run_streams_words_usage_and_complete() {
    let fabric = FakeFabric::start();
    let events = chat(&fabric).unwrap();
    assert_eq!(events.head.header("content-type"), Some("text/readystream"));
    assert_eq!(texts(events).concat(), "Ran ai on: hello");
    fabric.expect_chats(1);
    assert_eq!(fabric.chats()[0]["prompts"][0]["patternName"], "ai");
}

#[test]
fn a_key_is_asked_for() {
    let fabric = FakeFabric::start();
    fabric.require_key("right");
    let mut http = connect(&fabric);
    let mut ask =
        |headers: &[(&str, &str)]| http.request("GET", "/strategies", headers, None).status;
    assert_eq!(
        (
            ask(&[]),
            ask(&[("X-API-Key", "wrong")]),
            ask(&[("x-api-key", "right")])
        ),
        (401, 401, 200)
    );
}

#[test]
fn replies_are_taken_once_in_order_and_then_always() {
    let fabric = FakeFabric::start();
    fabric.on("GET /strategies", Reply::json(json!("always")));
    fabric.once("GET /strategies", Reply::json(json!("first")));
    fabric.once("GET /strategies", Reply::json(json!("second")));
    let mut http = connect(&fabric);
    let got: Vec<Value> = (0..4)
        .map(|_| http.request("GET", "/strategies", &[], None).json())
        .collect();
    assert_eq!(got, ["first", "second", "always", "always"]);
}

#[test]
fn a_gate_holds_what_follows_until_it_is_released() {
    let fabric = FakeFabric::start();
    fabric.on(
        "POST /chat",
        Reply::sse().content("one").gate().content("two").complete(),
    );
    let mut events = chat(&fabric).unwrap();
    assert_eq!(events.next_json()["content"], "one");
    fabric.wait_held(1);
    events.read_deadline(Duration::from_millis(30));
    assert!(events.next().is_err(), "the gate is shut");
    events.read_deadline(DEADLINE);
    fabric.release();
    assert_eq!(texts(events), ["two", ""]);
}

#[test]
fn a_client_that_leaves_is_noticed_at_a_gate_and_in_silence() {
    let fabric = FakeFabric::start();
    for reply in [
        Reply::sse().content("one").gate(),
        Reply::sse().content("one").hang(),
    ] {
        fabric.once("POST /chat", reply);
        let mut events = chat(&fabric).unwrap();
        assert_eq!(events.next_json()["content"], "one");
        events.into_connection().close();
        assert_eq!(fabric.wait_closed(DEADLINE).route, "POST /chat");
    }
    fabric.wait_none_open();
}

#[test]
fn a_reset_is_a_reset_and_a_cut_is_not() {
    let fabric = FakeFabric::start();
    fabric.once("POST /chat", Reply::resets());
    fabric.once("POST /chat", Reply::closes());
    fabric.once("POST /chat", Reply::sse().content("one").reset());
    assert_eq!(
        chat(&fabric).err().unwrap().kind(),
        ErrorKind::ConnectionReset
    );
    assert_eq!(
        chat(&fabric).err().unwrap().kind(),
        ErrorKind::UnexpectedEof
    );
    // The kernel may discard data sent before a reset: only the end is certain.
    let end = chat(&fabric).and_then(|mut events| {
        loop {
            if events.next()?.is_none() {
                return Ok(());
            }
        }
    });
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    fabric.once("GET /config", Reply::resets());
    let mut http = connect(&fabric);
    http.send("GET", "/config", &[], None).unwrap();
    assert_eq!(
        http.answer().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn bodies_are_framed_as_told() {
    let fabric = FakeFabric::start();
    let ask = |reply: Reply| {
        fabric.once("GET /config", reply);
        let mut http = connect(&fabric);
        http.send("GET", "/config", &[], None).unwrap();
        http.answer()
    };
    let reply = || Reply::new(200, "text/plain", "12345");
    assert_eq!(ask(reply()).unwrap().text(), "12345");
    assert_eq!(
        ask(reply().framing(Framing::Claim(3))).unwrap().text(),
        "123"
    );
    assert_eq!(
        ask(reply().framing(Framing::Claim(9)).cut())
            .unwrap_err()
            .kind(),
        ErrorKind::UnexpectedEof
    );
    assert_eq!(
        ask(reply().framing(Framing::UntilClose)).unwrap().text(),
        "12345"
    );
    assert_eq!(
        ask(reply().framing(Framing::Chunked(vec![("X-Late".into(), "1".into())])))
            .unwrap()
            .text(),
        "12345"
    );
    assert_eq!(
        ask(Reply::raw("SMTP hello\r\n")).unwrap_err().kind(),
        ErrorKind::InvalidData
    );
    assert_eq!(ask(reply().dripped()).unwrap().text(), "12345");
    assert_eq!(
        ask(reply().step(Step::Repeat(b"ab".to_vec(), 3)))
            .unwrap()
            .text(),
        "12345ababab"
    );
    let closing = ask(reply().ending(End::Close)).unwrap();
    assert_eq!(closing.status, 200);
}

#[test]
fn connections_can_be_closed_between_requests() {
    let fabric = FakeFabric::start();
    let mut http = connect(&fabric);
    assert_eq!(http.request("GET", "/strategies", &[], None).status, 200);
    fabric.close_connections();
    assert!(http.closed());
    assert_eq!((fabric.accepted(), fabric.open()), (1, 0));
    assert!(fabric.left().is_empty(), "the answer had been sent");
}

#[test]
fn chunked_requests_are_read() {
    let fabric = FakeFabric::start();
    let mut http = connect(&fabric);
    http.send_raw(
        b"POST /chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n",
    )
    .unwrap();
    assert_eq!(http.answer().unwrap().status, 200);
    assert_eq!(fabric.chats(), [json!({"a": 1})]);
}

#[test]
fn the_listening_line_is_found_in_whatever_stands_around_it() {
    let at = |line| address_in(line).map(|(address, path)| format!("{address} {path}"));
    assert_eq!(
        at("2026 INFO [x] Server started on http transport at http://127.0.0.1:4711/mcp").unwrap(),
        "127.0.0.1:4711 /mcp"
    );
    assert_eq!(
        at("Server started on sse transport at http://[::1]:80/a/b.").unwrap(),
        "[::1]:80 /a/b"
    );
    assert_eq!(
        at("connected to Fabric API at http://127.0.0.1:8080."),
        None
    );
}

#[test]
fn the_modern_meta_keeps_what_is_there() {
    let params = with_meta(json!({"name": "x", "_meta": {"progressToken": 0}}));
    assert_eq!(params["_meta"]["progressToken"], 0);
    assert_eq!(
        params["_meta"]["io.modelcontextprotocol/protocolVersion"],
        MODERN
    );
    assert!(with_meta(Value::Null)["_meta"].is_object());
}

#[test]
fn random_numbers_can_be_had_again() {
    let mut rng = Rng::new(0);
    // The first outputs of SplitMix64 for seed 0, from its reference implementation.
    assert_eq!(
        [rng.next(), rng.next()],
        [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
    );
    let draw = |seed| {
        let mut rng = Rng::new(seed);
        (
            rng.text(0..40),
            rng.bytes(0..40),
            *rng.pick(&[1, 2, 3]),
            rng.one_in(2),
        )
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    assert!((0..1000).all(|_| (3..5).contains(&rng.within(3..5))));
}

#[test]
fn times_are_told_from_what_only_looks_like_one() {
    assert!(expect::is_rfc3339_utc("2026-08-01T09:30:00Z"));
    assert!(expect::is_rfc3339_utc("2026-08-01T09:30:00.123Z"));
    for wrong in [
        "",
        "2026-08-01 09:30:00Z",
        "2026-08-01T09:30:00",
        "2026-08-01T09:30:00.Z",
        "2026-08-01T09:30:00+02:00",
    ] {
        assert!(!expect::is_rfc3339_utc(wrong), "{wrong}");
    }
}
