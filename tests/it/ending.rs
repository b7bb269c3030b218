//! SIGTERM on stdio and on HTTP+SSE: no new runs, subscriptions end at once, and interrupted calls get an error.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::support::expect::{contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, with_meta};
use crate::support::transports::{Wire, serve};
use crate::support::web::Sse;
use crate::support::{DEADLINE, Era};

fn run() -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai"}})
}

#[track_caller]
fn is_stopped(answer: &Value) {
    includes(
        &answer["result"]["_meta"]["error"],
        json!({"type": "urn:fabric-mcp:error:cancelled"}),
    );
    contains(answer.to_string(), ["The server was stopped"]);
}

/// A server on stdio with one slot for runs, which is taken, and a subscription.
fn busy(fabric: &FakeFabric, drain: &str) -> (Stdio, Value, Value) {
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let program = Program::with(fabric)
        .env("FABRIC_MCP_MAX_RUNS", "1")
        .env("FABRIC_MCP_DRAIN_TIMEOUT", drain);
    let mut client = Stdio::speaking(Era::Modern, program);
    let listening = client.begin(
        "subscriptions/listen",
        json!({"notifications": {"promptsListChanged": true}}),
    );
    client.next_note();
    let running = client.begin("tools/call", run());
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
    includes(
        &client.answer(&listening)["result"],
        json!({"resultType": "complete"}),
    );
    let late = client.begin("tools/call", run());
    is_stopped(&client.answer(&late));
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let refused = client.begin("subscriptions/listen", filter);
    contains(
        &client.answer(&refused)["error"]["message"],
        ["was stopped"],
    );
    fabric.release_all();
    includes(
        &client.answer(&running)["result"],
        json!({"isError": false}),
    );
    is_stopped(&client.answer(&queued));
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
    fabric.expect_chats(1);
}

#[test]
fn a_run_on_stdio_that_outlasts_the_drain_gets_an_error() {
    let fabric = FakeFabric::start();
    let (mut client, running, listening) = busy(&fabric, "0.05");
    let queued = client.begin("tools/call", run());
    client.process.signal("INT");
    client.answer(&listening);
    is_stopped(&client.answer(&running));
    is_stopped(&client.answer(&queued));
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
    fabric.expect_chats(2);
}

#[test]
fn a_signal_on_http_and_sse_ends_subscriptions_at_once_and_tells_whom_it_cuts() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let server = serve(
        Wire::Sse,
        Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.5"),
    );
    let mut client = Sse::to(&server, Era::Modern, None);
    let listening = client.begin(
        "subscriptions/listen",
        json!({"notifications": {"promptsListChanged": true}}),
    );
    let running = client.begin("tools/call", with_meta(run()));
    fabric.wait_held(1);
    server.process.signal("TERM");
    let first = loop {
        let message = client.next_message();
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(first["id"], listening, "{first}");
    is_stopped(&client.answer(&running));
    fabric.wait_none_open();
}
