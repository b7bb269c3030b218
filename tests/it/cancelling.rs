//! Cancelling: nothing more is written for a cancelled id, and the connection to Fabric is closed at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::rng::cases;
use crate::support::stdio::{Stdio, initialize_params, ready};
use crate::support::{DEADLINE, ERAS, run_arguments, scaled};

/// Longest time from the cancel to the closed connection.
const PROMISED: Duration = Duration::from_millis(200);
/// Attempts to meet [`PROMISED`]: a busy machine may delay one.
const TRIES: usize = 5;

/// Starts a run that stalls in `reply`, waits until it has arrived, cancels it, and returns how long Fabric waited for
/// the close.
fn cancel_in(client: &mut Stdio, fabric: &FakeFabric, reply: Reply, streams: bool) -> Duration {
    fabric.forget();
    fabric.once_run(reply);
    let id = client.begin_call("fabric_run_pattern", run_arguments("x"), Some(json!("c")));
    fabric.wait_requests("POST /chat", 1);
    if streams {
        // In 2024-11-05, progress has no text.
        assert_eq!(client.next_note()["method"], "notifications/progress");
    }
    let cancelled = Instant::now();
    client.cancel(&id);
    let left = fabric.wait_closed(DEADLINE);
    assert_eq!(left.route, "POST /chat");
    client.notes();
    client.expect_nothing_else();
    left.at.saturating_duration_since(cancelled)
}

#[test]
fn a_cancelled_run_closes_its_connection_within_200_ms() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let silent = [
            ("before the headers", Reply::silence(), false),
            ("before the first event", Reply::sse().gate(), false),
            ("in mid-stream", Reply::sse().content("part ").gate(), true),
        ];
        for (when, reply, streams) in silent {
            let took = (0..TRIES).map(|_| cancel_in(&mut client, &fabric, reply.clone(), streams));
            let took = took.min().unwrap();
            assert!(took <= scaled(PROMISED), "{when}, {era:?}: {took:?}");
            fabric.expect_chats(1);
        }
        let id = client.begin_call("fabric_run_pattern", run_arguments("x"), None);
        let is_so = client.answer(&id)["result"].is_object();
        assert!(is_so, "the next run works");
    }
}

#[test]
fn a_cancelled_run_in_a_flood_ends() {
    let (fabric, mut client) = ready();
    fabric.once_run(Reply::flood("word "));
    let id = client.begin_call("fabric_run_pattern", run_arguments("x"), Some(json!("c")));
    client.next_progress_text();
    client.cancel(&id);
    fabric.wait_closed(DEADLINE);
    // Output relayed before the cancel may still be in the pipe; after a ping there is none.
    client.begin_as(&json!("after"), "ping", Value::Null);
    client.answer(&json!("after"));
    client.notes();
    client.expect_nothing_else();
}

#[test]
fn any_call_to_fabric_can_be_cancelled() {
    let (fabric, mut client) = ready();
    let video = json!({"url": "https://youtu.be/abc-DEF_123"});
    let wrong = json!({"pattern_name": "x", "temperature": 99});
    let calls = [
        ("fabric_list_models", "GET /models/names", json!({})),
        ("fabric_list_strategies", "GET /strategies", json!({})),
        ("fabric_get_configuration", "GET /config", json!({})),
        (
            "fabric_get_pattern_details",
            "GET /patterns/ai",
            json!({"pattern_name": "ai"}),
        ),
        ("fabric_get_transcript", "POST /youtube/transcript", video),
        ("fabric_run_pattern", "GET /patterns/names", wrong),
    ];
    for (tool, route, arguments) in calls {
        fabric.once(route, Reply::silence());
        fabric.forget();
        let id = client.begin_call(tool, arguments, None);
        fabric.wait_requests(route, 1);
        client.cancel(&id);
        assert_eq!(fabric.wait_closed(DEADLINE).route, route);
        client.expect_nothing_else();
        // A cancelled request is not tried again.
        assert_eq!(fabric.requests_of(route).len(), 1, "{route}");
    }
    let said = "tool=fabric_run_pattern model=default ok=false error=cancelled";
    client.process.wait_stderr(said);
    let calls = client.stderr().matches("tool=fabric_run_pattern").count();
    assert_eq!(calls, 1);
}

#[test]
fn a_run_that_is_waiting_for_a_worker_never_reaches_fabric() {
    const WORKERS: usize = 16;
    let (fabric, mut client) = ready();
    // Without chunks, the run is silent.
    client.result("logging/setLevel", json!({"level": "warning"}));
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let running =
        (0..WORKERS).map(|_| client.begin_call("fabric_run_pattern", run_arguments("x"), None));
    let running: Vec<Value> = running.collect();
    fabric.wait_held(WORKERS);
    let waiting = client.begin_call("fabric_run_pattern", run_arguments("x"), None);
    client.cancel(&waiting);
    fabric.wait_held(WORKERS);
    client.expect_nothing_else();
    fabric.release_all();
    for id in &running {
        assert!(client.answer(id)["result"].is_object());
    }
    client.expect_nothing_else();
    fabric.expect_chats(WORKERS);
}

#[test]
fn an_id_may_be_used_again_after_its_cancel() {
    let (fabric, mut client) = ready();
    let id = json!("again");
    let call = json!({"name": "fabric_run_pattern", "arguments": run_arguments("x")});
    for _ in 0..5 {
        fabric.once_run(Reply::sse().gate());
        client.begin_as(&id, "tools/call", call.clone());
        fabric.wait_held(1);
        client.cancel(&id);
        fabric.wait_closed(DEADLINE);
        client.expect_nothing_else();
    }
    client.begin_as(&id, "tools/call", call);
    let content = client.answer(&id)["result"]["content"].take();
    assert_eq!(content[0]["text"], "Ran summarize on: x");
}

#[test]
fn a_cancel_that_races_with_the_end_gives_one_answer_or_none() {
    let (_fabric, mut client) = ready();
    cases(100, |rng, _| {
        let id = client.begin_call("fabric_list_strategies", json!({}), None);
        // Random work in between, so that the cancel arrives at different moments.
        for _ in 0..rng.within(0..4) {
            client.result("ping", Value::Null);
        }
        client.cancel(&id);
        client.begin_as(&json!("fence"), "ping", Value::Null);
        client.answer(&json!("fence"));
        let unasked = client.unasked();
        let answers = unasked.iter().filter(|answer| answer["id"] == id).count();
        assert!(answers <= 1, "{answers} answers to {id}");
    });
}

#[test]
fn initialize_cannot_be_cancelled_into_silence() {
    let (_fabric, mut client) = ready();
    let id = client.begin("initialize", initialize_params("2025-11-25"));
    client.cancel(&id);
    let result = client.answer(&id)["result"].take();
    assert_eq!(result["protocolVersion"], "2025-11-25");
}
