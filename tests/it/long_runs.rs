//! Long runs with default settings, in real time: `cargo test --test it long_ -- --ignored`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Era;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::web::Streamable;

/// Longest silence towards the client: a heartbeat is due after 5 s.
const QUIET: Duration = Duration::from_secs(7);

fn run() -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x", "stream": true},
           "_meta": {"progressToken": "long"}})
}

/// The messages that a client received during a run.
struct Seen {
    notes: usize,
    longest: Duration,
    text: String,
}

/// Reads messages until the answer; checks that none takes too long, and that progress always grows.
fn watch(mut next: impl FnMut() -> Value) -> Seen {
    let mut seen = Seen {
        notes: 0,
        longest: Duration::ZERO,
        text: String::new(),
    };
    let mut progress = -1.0;
    loop {
        let begun = Instant::now();
        let message = next();
        seen.longest = seen.longest.max(begun.elapsed());
        assert!(
            begun.elapsed() < QUIET,
            "{:?} without a sign of life",
            begun.elapsed()
        );
        if message["method"] == "notifications/progress" {
            let now = message["params"]["progress"].as_f64().expect("a number");
            assert!(now > progress, "{message} after {progress}");
            progress = now;
            seen.notes += 1;
        }
        if message.get("id").is_some() {
            assert_ne!(message["result"]["isError"], true, "{message}");
            seen.text = message["result"]["content"][0]["text"]
                .as_str()
                .expect("a text")
                .to_owned();
            return seen;
        }
    }
}

/// A server whose calls wait for the end of their runs.
fn patient(fabric: &FakeFabric) -> Program {
    Program::with(fabric).flags("--answer-within 0")
}

fn on_stdio(fabric: &FakeFabric) -> Seen {
    let mut client = Stdio::speaking(Era::Legacy("2025-11-25"), patient(fabric));
    client.begin("tools/call", run());
    watch(|| client.recv())
}

fn on_http(fabric: &FakeFabric, era: Era) -> Seen {
    let mut client = Streamable::to(&Arc::new(HttpServer::start(patient(fabric))), era, None);
    let message = client.message("tools/call", run());
    let mut events: Events = client.stream(&message);
    watch(|| events.next_json())
}

/// The same check over stdio and both eras of HTTP; `pace` opens Fabric's gates.
fn everywhere(reply: Reply, pace: impl Fn(&FakeFabric) + Sync, check: impl Fn(&Seen) + Sync) {
    thread::scope(|scope| {
        for n in 0..3 {
            let (reply, pace, check) = (&reply, &pace, &check);
            scope.spawn(move || {
                let fabric = FakeFabric::start();
                fabric.on("POST /chat", reply.clone());
                thread::scope(|scope| {
                    scope.spawn(|| pace(&fabric));
                    let seen = match n {
                        0 => on_stdio(&fabric),
                        1 => on_http(&fabric, Era::Legacy("2025-11-25")),
                        _ => on_http(&fabric, Era::Modern),
                    };
                    eprintln!(
                        "{n}: {} notifications, at most {:?} apart",
                        seen.notes, seen.longest
                    );
                    check(&seen);
                });
                fabric.expect_chats(1);
            });
        }
    });
}

#[test]
#[ignore = "takes two minutes"]
fn long_stream_of_two_minutes() {
    const PIECES: usize = 240;
    let reply = (0..PIECES)
        .fold(Reply::sse(), |reply, n| {
            reply.content(&format!("{n} ")).gate()
        })
        .complete();
    let text: String = (0..PIECES).map(|n| format!("{n} ")).collect();
    everywhere(
        reply,
        |fabric| {
            fabric.wait_held(1);
            for _ in 0..PIECES {
                thread::sleep(Duration::from_millis(500));
                fabric.release();
            }
        },
        |seen| {
            assert_eq!(seen.text, text);
            assert!(seen.notes >= PIECES, "{}", seen.notes);
        },
    );
}

#[test]
#[ignore = "takes a minute and a half"]
fn long_silence_of_90_seconds_before_the_first_byte() {
    let whole = Reply::run(&["late"]);
    let mut head = b"HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\n\r\n".to_vec();
    head.extend(whole.body());
    let mut reply = Reply::raw("").gate().bytes(head);
    reply.steps.remove(0);
    everywhere(
        reply,
        |fabric| {
            fabric.wait_held(1);
            thread::sleep(Duration::from_secs(90));
            fabric.release();
        },
        |seen| {
            assert_eq!(seen.text, "late");
            assert!(
                (16..=18).contains(&(seen.notes - 1)),
                "a heartbeat every 5 s: {}",
                seen.notes
            );
        },
    );
}

#[test]
#[ignore = "takes half a minute"]
fn long_silence_without_progress_is_kept_open_by_comments() {
    let fabric = FakeFabric::start();
    for era in [Era::Legacy("2025-11-25"), Era::Modern] {
        fabric.once("POST /chat", Reply::sse().gate().content("late").complete());
        let mut client = Streamable::ready(&fabric, era);
        let params = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai"}});
        let message = client.message("tools/call", params);
        let mut events = client.stream(&message);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(33));
                fabric.release();
            });
            assert_eq!(events.next_json()["result"]["content"][0]["text"], "late");
        });
        assert_eq!(events.comments, 2, "one every 15 s");
    }
}
