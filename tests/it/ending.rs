//! SIGTERM on stdio and on HTTP+SSE: no new runs, subscriptions end at once, and interrupted calls get an error.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, with_meta};
use crate::support::transports::{Wire, serve};
use crate::support::web::Sse;
use crate::support::{DEADLINE, Era};

fn run() -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x"}})
}

#[track_caller]
fn is_stopped(answer: &Value) {
    let said = expect::failure(Era::MODERN, &answer["result"], "cancelled");
    expect::contains(said, ["The server was stopped"]);
}

fn listen(client: &mut Stdio) -> Value {
    let filter = json!({"notifications": {"promptsListChanged": true}});
    client.begin("subscriptions/listen", filter)
}

/// A server on stdio with one slot for runs, which a chain has, and a subscription.
fn busy(fabric: &FakeFabric, drain: &str) -> (Stdio, Value, Value) {
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let program = Program::with(fabric)
        .env("FABRIC_MCP_MAX_RUNS", "1")
        .env("FABRIC_MCP_DRAIN_TIMEOUT", drain);
    let mut client = Stdio::speaking(Era::MODERN, program);
    let listening = listen(&mut client);
    client.next_note();
    let mut chain = run();
    chain["arguments"]["then"] = json!(["ai"]);
    let running = client.begin("tools/call", chain);
    fabric.wait_held(1);
    (client, running, listening)
}

#[test]
fn a_signal_on_stdio_ends_subscriptions_at_once_and_begins_no_run() {
    let fabric = FakeFabric::start();
    let (mut client, running, listening) = busy(&fabric, "60");
    let queued = client.begin("tools/call", run());
    client.process.signal("TERM");
    // While the run is in progress.
    let end = client.answer(&listening);
    assert_eq!(end["result"]["resultType"], "complete", "{end}");
    let late = client.begin("tools/call", run());
    is_stopped(&client.answer(&late));
    let refused = listen(&mut client);
    let refusal = client.answer(&refused);
    expect::contains(&refusal["error"]["message"], ["was stopped"]);
    fabric.release_all();
    let finished = client.answer(&running);
    assert_eq!(finished["result"]["isError"], false, "{finished}");
    is_stopped(&client.answer(&queued));
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
    fabric.expect_chats(2);
}

#[test]
fn what_outlasts_the_drain_on_stdio_gets_an_error() {
    let fabric = FakeFabric::start();
    fabric.once("GET /models/names", Reply::silence());
    let (mut client, running, listening) = busy(&fabric, "0.05");
    let queued = client.begin("tools/call", run());
    let free = client.begin("tools/call", json!({"name": "fabric_list_models"}));
    fabric.wait_requests("GET /models/names", 1);
    client.process.signal("INT");
    client.answer(&listening);
    for id in [running, queued, free] {
        is_stopped(&client.answer(&id));
    }
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
    fabric.expect_chats(1);
    fabric.wait_none_open();
}

#[test]
fn queued_calls_still_run_after_the_end_of_input() {
    let fabric = FakeFabric::start();
    let (mut client, running, _) = busy(&fabric, "60");
    let queued = client.begin("tools/call", run());
    client.close_stdin();
    fabric.release_all();
    for id in [running, queued] {
        assert_eq!(client.answer(&id)["result"]["isError"], json!(false));
    }
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
    fabric.expect_chats(3);
}

#[test]
fn a_signal_on_http_and_sse_ends_subscriptions_at_once_and_tells_whom_it_cuts() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let program = Program::with(&fabric).flags("--drain-timeout 0.5");
    let server = serve(Wire::Sse, program);
    let mut client = Sse::to(&server, Era::MODERN, None);
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let listening = client.begin("subscriptions/listen", filter);
    let running = client.begin("tools/call", with_meta(run()));
    fabric.wait_held(1);
    server.process.signal("TERM");
    let mut messages = std::iter::repeat_with(|| client.next_message());
    let first = messages.find(|message| message.get("id").is_some());
    assert_eq!(first.unwrap()["id"], listening);
    is_stopped(&client.answer(&running));
    fabric.wait_none_open();
}
