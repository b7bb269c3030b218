//! Many hostile event streams from Fabric, with an oracle: a simple decoder with the whole stream in memory predicts
//! each run's outcome, which must not depend on how the bytes are split into packets.

use serde_json::{Value, json};

use crate::support::expect::{self, partial};
use crate::support::fabric::FakeFabric;
use crate::support::reply::{Framing, Reply};
use crate::support::rng::{Rng, cases};
use crate::support::stdio::Stdio;
use crate::support::{Caller, Era};

const ERA: Era = Era::Legacy("2025-11-25");
const API_ERROR: &str = "fabric-api-error";
const INTERRUPTED: &str = "fabric-stream-interrupted";

/// The outcome of a run: its text, or a failure with partial output.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Well(String),
    Badly(&'static str, String),
}

/// The outcome of a stream by a simple implementation: WHATWG's lines and fields, then Fabric's events.
fn oracle(stream: &[u8]) -> Ended {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    while at < stream.len() {
        match stream[at] {
            b'\r' | b'\n' => {
                at += usize::from(stream[at..].starts_with(b"\r\n"));
                lines.push(Vec::new());
            }
            byte => lines.last_mut().expect("a line").push(byte),
        }
        at += 1;
    }
    // The end of the stream ends an event like a blank line; only that event can be cut off.
    let last = lines.len() - 1;
    let mut data: Vec<Vec<u8>> = Vec::new();
    let mut text = String::new();
    let mut failed = false;
    for (n, line) in lines.iter().enumerate() {
        if !line.is_empty() {
            let (field, value) = match line.iter().position(|byte| *byte == b':') {
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => (&line[..], &line[line.len()..]),
            };
            if field == b"data" {
                data.push(value.strip_prefix(b" ").unwrap_or(value).to_vec());
            }
        }
        if line.is_empty() || n == last {
            let joined = std::mem::take(&mut data).join(&b'\n');
            if joined.is_empty() {
                continue;
            }
            match event(&joined) {
                Some(("content", content)) => text.push_str(&content),
                Some(("error", _)) => failed = true,
                Some(("complete", _)) if !failed && !text.is_empty() => return Ended::Well(text),
                Some(("complete", _)) => return Ended::Badly(API_ERROR, text),
                Some(_) => {}
                None if n == last && !failed => return Ended::Badly(INTERRUPTED, text),
                None => return Ended::Badly(API_ERROR, text),
            }
        }
    }
    Ended::Badly(if failed { API_ERROR } else { INTERRUPTED }, text)
}

/// An event's type and content; `None` if it is invalid.
fn event(data: &[u8]) -> Option<(&'static str, String)> {
    let Ok(Value::Object(members)) = serde_json::from_slice(data) else {
        return None;
    };
    let text = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    };
    let (kind, content) = (text("type")?, text("content")?);
    text("format")?;
    let kind = ["content", "error", "complete"]
        .into_iter()
        .find(|known| *known == kind);
    Some((kind.unwrap_or("other"), content))
}

/// A stream of valid and invalid events.
fn stream(rng: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    if rng.one_in(8) {
        stream.extend_from_slice(b"\xef\xbb\xbf");
    }
    let ends: &[&[u8]] = if rng.one_in(3) {
        &[b"\n", b"\r\n", b"\r"]
    } else {
        &[b"\n"]
    };
    for _ in 0..rng.within(0..9) {
        let lines: Vec<Vec<u8>> = match rng.within(0..24) {
            0 => vec![b": a comment".to_vec()],
            1 => vec![
                b"event: message".to_vec(),
                b"id: 7".to_vec(),
                b"retry: 5".to_vec(),
            ],
            2 => vec![b"data".to_vec()],
            3 => vec![b"data:".to_vec(), b"data: ".to_vec()],
            4 => vec![
                b"dat: {}".to_vec(),
                b" data: {\"type\":\"error\"}".to_vec(),
                b"DATA: x".to_vec(),
            ],
            5 => vec![b"\xef\xbb\xbfdata: {\"type\":\"error\"}".to_vec()],
            6 => vec![data(
                rng,
                &json!({"type": "error", "content": "no such model"}),
            )],
            7 => vec![data(
                rng,
                &json!({"type": "usage", "usage": {"input_tokens": 1, "output_tokens": 2}}),
            )],
            8 => vec![data(
                rng,
                &json!({"type": "later", "content": rng.clone().text(0..9)}),
            )],
            9 => vec![data(rng, &json!({"content": "no type"}))],
            10 => {
                let wrong = [
                    json!(5),
                    json!([1]),
                    json!("x"),
                    json!({"type": 5}),
                    json!({"type": "content", "content": 5}),
                ];
                let wrong = rng.pick(&wrong).clone();
                vec![data(rng, &wrong)]
            }
            11 => vec![mutated(rng)],
            // JSON may be split between lines wherever white space is allowed.
            12 => vec![
                b"data: {\"type\":".to_vec(),
                b"data:\"content\",".to_vec(),
                b"data:  \"content\": \"ab\"}".to_vec(),
            ],
            13 => vec![data(rng, &json!({"type": "complete", "format": "plain"}))],
            _ => {
                let text = rng.text(0..30);
                vec![data(
                    rng,
                    &json!({"type": "content", "format": "markdown", "content": text}),
                )]
            }
        };
        for line in lines {
            stream.extend_from_slice(&line);
            stream.extend_from_slice(rng.pick::<&[u8]>(ends));
        }
        if !rng.one_in(40) {
            stream.extend_from_slice(rng.pick::<&[u8]>(ends));
        }
    }
    if !rng.one_in(4) {
        stream.extend_from_slice(&data(rng, &json!({"type": "complete", "format": "plain"})));
        stream.extend_from_slice(rng.pick::<&[u8]>(ends));
        stream.extend_from_slice(rng.pick::<&[u8]>(ends));
    }
    if rng.one_in(5) {
        stream.truncate(rng.within(0..stream.len() + 1));
    }
    stream
}

fn data(rng: &mut Rng, event: &Value) -> Vec<u8> {
    let start = *rng.pick(&["data: ", "data:"]);
    format!("{start}{event}").into_bytes()
}

/// A content event with one byte changed, added or removed.
fn mutated(rng: &mut Rng) -> Vec<u8> {
    let mut line = data(rng, &json!({"type": "content", "content": "é and more"}));
    let at = rng.within(0..line.len());
    let byte = *rng.pick(b"\"{}:,\\ x0\t[");
    match rng.within(0..3) {
        0 => line[at] = byte,
        1 => line.insert(at, byte),
        _ => drop(line.remove(at)),
    }
    line
}

/// The stream in packets of random size, ended by a close.
fn reply(rng: &mut Rng, stream: &[u8]) -> Reply {
    let framing = if rng.one_in(2) {
        Framing::UntilClose
    } else {
        Framing::Chunked(Vec::new())
    };
    let mut reply = Reply::sse().framing(framing);
    let mut rest = stream;
    while !rest.is_empty() {
        let most = if rng.one_in(2) { 4 } else { 200 };
        let (piece, more) = rest.split_at(rng.within(1..most).min(rest.len()));
        reply = reply.bytes(piece);
        rest = more;
    }
    reply
}

#[test]
fn a_stream_means_the_same_however_hostile_and_however_cut() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let mut well = 0;
    cases(300, |rng, n| {
        let stream = stream(rng);
        let expected = oracle(&stream);
        // Split in two random ways, and unsplit: the packets must not matter.
        for reply in [
            reply(rng, &stream),
            reply(rng, &stream),
            Reply::sse().bytes(stream.clone()),
        ] {
            fabric.once("POST /chat", reply);
            let result = client.call("fabric_run_pattern", json!({"pattern_name": "ai"}));
            let shown = || format!("case {n}: {:?}\n{result}", String::from_utf8_lossy(&stream));
            let ended = if result["isError"] == true {
                let urn = result["_meta"]["error"]["type"].as_str().unwrap_or("");
                let kind = urn.strip_prefix(expect::URN).unwrap_or("");
                let kind = [API_ERROR, INTERRUPTED]
                    .into_iter()
                    .find(|known| *known == kind);
                Ended::Badly(
                    kind.unwrap_or_else(|| panic!("{}", shown())),
                    partial(&result).to_owned(),
                )
            } else {
                expect::success(ERA, &result);
                well += 1;
                Ended::Well(result["content"][0]["text"].as_str().unwrap().to_owned())
            };
            assert_eq!(ended, expected, "{}", shown());
        }
    });
    eprintln!("{well} of the runs ended well");
}
