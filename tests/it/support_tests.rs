//! Tests of the test support: with a fake Fabric that did not misbehave, every fault test passes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::DEADLINE;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, Http};
use crate::support::reply::{End, Framing, Reply, Step};
use crate::support::rng::Rng;

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
    fabric.on("POST /chat", Reply::gated(&["one", "two"]));
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
