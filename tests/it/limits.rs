//! Each bound, just below and just above it.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::{Stdio, ready};
use crate::support::{ACKNOWLEDGED, Caller, Era, expect};

const MIB: usize = 1 << 20;

#[test]
fn input_may_be_as_long_as_a_line() {
    let (fabric, mut client) = ready();
    // How long exactly a line may be is in `src/transport/stdio.rs`.
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"{}\"}}\n",
        "i".repeat(8 * MIB)
    );
    client.send_raw(long.as_bytes());
    let answer = client.recv();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let input = "i".repeat(8 * MIB - 4096);
    let arguments = json!({"pattern_name": "ai", "input_text": input});
    client.success("fabric_run_pattern", arguments);
    assert_eq!(fabric.chats()[0]["prompts"][0]["userInput"], json!(input));
}

#[test]
fn a_run_may_give_32_mib() {
    let (fabric, mut client) = ready();
    // Just above; what is below is in `src/fabric/routes/tests.rs`, with smaller numbers.
    let mib = line(&content(&"m".repeat(MIB)));
    let reply = Reply::sse().step(Step::Repeat(mib, 32));
    fabric.once_run(reply.content("m").complete());
    let arguments = json!({"pattern_name": "ai", "input_text": "x"});
    let result = client.call("fabric_run_pattern", arguments);
    expect::failure(Era::NEWEST_LEGACY, &result, "response-too-large");
    let kept = expect::partial(&result).len();
    assert!((60_000..=64 << 10).contains(&kept), "{kept}");
}

#[test]
fn sixteen_runs_at_once_sixty_four_queued_and_the_next_is_refused() {
    const WORKERS: usize = 16;
    const QUEUE: usize = 64;
    let (fabric, mut client) = ready();
    client.process.wait_stderr("onnected to Fabric API");
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let run = json!({"pattern_name": "ai", "input_text": "x"});
    let ids = (0..WORKERS).map(|_| client.begin_call("fabric_run_pattern", run.clone(), None));
    let mut ids: Vec<Value> = ids.collect();
    fabric.wait_held(WORKERS);
    ids.extend((0..QUEUE).map(|_| client.begin_call("fabric_run_pattern", run.clone(), None)));
    let result = client.call("fabric_run_pattern", run.clone());
    expect::failure(Era::NEWEST_LEGACY, &result, "too-many-requests");
    let found = client.result("ping", Value::Null);
    assert_eq!(found, json!({}), "cheap methods are still answered");
    fabric.expect_chats(WORKERS);
    fabric.release_all();
    for id in &ids {
        assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
    }
    fabric.expect_chats(WORKERS + QUEUE);
    client.success("fabric_run_pattern", run);
}

#[test]
fn subscriptions_are_as_many_as_connections_may_be() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::MODERN, Program::with(&fabric));
    let listen = || json!({"notifications": {"promptsListChanged": true}});
    let ids = (0..512).map(|_| client.begin("subscriptions/listen", listen()));
    let ids: Vec<Value> = ids.collect();
    for _ in &ids {
        assert_eq!(client.next_note()["method"], ACKNOWLEDGED);
    }
    let error = client.error("subscriptions/listen", listen());
    let kind = "urn:fabric-mcp:error:too-many-requests";
    assert_eq!(error["data"]["type"], kind);
    client.cancel(&ids[5]);
    client.begin("subscriptions/listen", listen());
    assert_eq!(client.next_note()["method"], ACKNOWLEDGED);
}
