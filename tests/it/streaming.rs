//! Streaming, proven by handshake: the fake Fabric holds each chunk back until the client has received the previous
//! one.

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::{Stdio, ready};
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{ERAS, Era, run_arguments as run};

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {answer}"))
}

#[test]
fn each_chunk_reaches_the_client_before_fabric_sends_the_next() {
    for era in ERAS.into_iter().filter(|era| *era >= Era::R2025_03_26) {
        for token in [json!(0), json!("t-1"), json!(7)] {
            let fabric = FakeFabric::start();
            let mut client = Stdio::speaking(era, Program::with(&fabric));
            let texts = ["one ", "zwei ä ", "三"];
            let held = |reply: Reply, text| reply.content(text).gate();
            fabric.on_run(texts.into_iter().fold(Reply::sse(), held).complete());
            let id = client.begin_call("fabric_run_pattern", run("x"), Some(token.clone()));
            for expected in texts {
                let note = progress_with_text(&mut client);
                assert_eq!(note["params"]["message"], expected, "{era:?}");
                // The token keeps its type.
                assert_eq!(note["params"]["progressToken"], token);
                fabric.release();
            }
            let answer = client.answer(&id);
            assert_eq!(text(&answer), "one zwei ä 三");
            expect::success(era, &answer["result"]);
            fabric.expect_chats(1);
            // Heartbeats may come.
            let mut notes = client.notes().into_iter();
            assert!(notes.all(|note| note["params"].get("message").is_none()));
            client.expect_nothing_else();
        }
    }
}

fn progress_with_text(client: &mut Stdio) -> Value {
    loop {
        let note = client.next_note();
        if note["method"] == "notifications/progress" && note["params"]["message"].is_string() {
            return note;
        }
    }
}

#[test]
fn a_legacy_client_that_set_nothing_gets_the_text_once_and_as_it_comes() {
    for era in ERAS {
        for (token, method) in [
            (None, "notifications/message"),
            (Some(json!("p")), "notifications/progress"),
        ] {
            let fabric = FakeFabric::start();
            let mut client = Stdio::speaking(era, Program::with(&fabric));
            // A modern client gets only what it has requested.
            let hears = token.is_some() || era.is_legacy();
            let gated = Reply::gated(&["one ", "two"]);
            let whole = Reply::run(&["one ", "two"]);
            fabric.on_run(if hears { gated } else { whole });
            let is_token = token.is_some();
            let id = client.begin_call("fabric_run_pattern", run("x"), token);
            if hears {
                let note = client.next_note();
                assert_eq!(note["method"], method, "{era:?}: {note}");
                if !is_token {
                    let chunk = json!({"type": "content", "format": "markdown", "content": "one "});
                    assert_eq!(note["params"]["data"], chunk, "{era:?}: {note}");
                }
                fabric.release();
            }
            assert_eq!(text(&client.answer(&id)), "one two", "{era:?}");
            let rest = client.notes();
            let is_so = rest.iter().all(|note| note["method"] == method);
            assert!(is_so, "{era:?}: {rest:?}");
            assert_eq!(rest.is_empty(), !hears, "{era:?}: {rest:?}");
        }
    }
}

#[test]
fn over_http_the_text_comes_on_the_answer_of_the_call_where_the_client_takes_a_stream() {
    let fabric = FakeFabric::start();
    let server = transports::serve(Wire::Streamable, Program::with(&fabric));
    let params = json!({"name": "fabric_run_pattern", "arguments": run("x")});
    for era in ERAS
        .into_iter()
        .filter(|era| era.is_legacy() && *era >= Era::R2025_03_26)
    {
        let mut client = Streamable::to(&server, era, None);
        fabric.on_run(Reply::gated(&["one ", "two"]));
        let call = client.message("tools/call", params.clone());
        let mut events = client.stream(&call);
        for (kind, format, content) in [
            ("content", "markdown", "one "),
            ("content", "markdown", "two"),
            ("complete", "plain", ""),
        ] {
            let data = json!({"type": kind, "format": format, "content": content});
            assert_eq!(events.next_json()["params"]["data"], data, "{era:?}");
            if content == "one " {
                fabric.release();
            }
        }
        assert_eq!(text(&events.next_json()), "one two");
        // A client that accepts only JSON gets only the result.
        fabric.on_run(Reply::run(&["one ", "two"]));
        let message = client.message("tools/call", params.clone());
        let mut headers = client.headers(&message);
        headers.push(("Accept", "application/json".into()));
        let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let answer = server.post(&headers, &message);
        assert_eq!(text(&answer.json()), "one two", "{era:?}");
    }
}

#[test]
fn without_stream_progress_has_no_text_and_no_chunk_is_logged() {
    let (_fabric, mut client) = ready();
    client.result("logging/setLevel", json!({"level": "debug"}));
    let arguments = json!({"pattern_name": "ai", "input_text": "x", "stream": false});
    let id = client.begin_call("fabric_run_pattern", arguments, Some(json!("p")));
    assert_eq!(text(&client.answer(&id)), "Ran ai on: x");
    for note in client.notes() {
        assert_eq!(note["method"], "notifications/progress", "{note}");
        assert!(note["params"].get("message").is_none(), "{note}");
    }
}

#[test]
fn a_missing_format_is_filled_in_when_chunks_are_relayed() {
    let (fabric, mut client) = ready();
    let bare = Reply::sse().event(json!({"type": "content", "content": "bare"}));
    fabric.on_run(bare.gate().complete());
    let id = client.begin_call("fabric_run_pattern", run("x"), None);
    let data = client.next_note()["params"]["data"].take();
    expect::includes(&data, json!({"type": "content", "content": "bare"}));
    assert_ne!(data["format"].as_str().unwrap(), "", "{data}");
    fabric.release();
    assert_eq!(text(&client.answer(&id)), "bare");
}

#[test]
fn a_flood_becomes_few_messages_and_loses_nothing() {
    const EVENTS: usize = 20_000;
    let (fabric, mut client) = ready();
    let events = Reply::sse().step(Step::Repeat(line(&content("ab ")), EVENTS));
    fabric.on_run(events.complete().in_one());
    let id = client.begin_call("fabric_run_pattern", run("x"), Some(json!("flood")));
    let answer = client.answer(&id);
    assert_eq!(text(&answer), "ab ".repeat(EVENTS));
    let notes = client.notes();
    // They came in one packet.
    assert!(notes.len() < EVENTS / 4, "{} notifications", notes.len());
    let texts = notes.iter().map(|note| note["params"]["message"].as_str());
    assert_eq!(texts.flatten().collect::<String>(), "ab ".repeat(EVENTS));
}

#[test]
fn progress_always_grows() {
    let (fabric, mut client) = ready();
    let texts: Vec<String> = (0..200).map(|n| format!("{n} ä ")).collect();
    let each: Vec<&str> = texts.iter().map(String::as_str).collect();
    fabric.on_run(Reply::run(&each));
    let id = client.begin_call("fabric_run_pattern", run("x"), Some(json!("p")));
    client.answer(&id);
    let mut last = 0.0;
    for note in client.notes() {
        let progress = note["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{progress} after {last}: {note}");
        last = progress;
    }
    let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
    assert!(last >= characters as f64, "{last} of {characters}");
}

#[test]
fn two_streams_keep_their_tokens_apart() {
    let (fabric, mut client) = ready();
    fabric.once_run(Reply::gated(&["a1", "a2"]));
    let first = client.begin_call("fabric_run_pattern", run("a"), Some(json!(1)));
    assert_eq!(client.next_progress_text(), "a1");
    fabric.once_run(Reply::run(&["b1", "b2"]));
    let second = client.begin_call("fabric_run_pattern", run("b"), Some(json!("1")));
    assert_eq!(text(&client.answer(&second)), "b1b2");
    fabric.release();
    assert_eq!(text(&client.answer(&first)), "a1a2");
    for note in client.notes() {
        let token = &note["params"]["progressToken"];
        let message = note["params"]["message"].as_str().unwrap_or("");
        let stream = if *token == json!(1) { 'a' } else { 'b' };
        assert!(message.is_empty() || message.starts_with(stream), "{note}");
    }
}
