//! Many concurrent callers: every request gets exactly one answer.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{Era, expect};

#[test]
fn sixty_four_callers_on_one_pipe_get_their_own_answers() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    for round in 0..3 {
        let runs: Vec<(Value, String)> = (0..64)
            .map(|n| {
                let input = format!("caller {n} in round {round}");
                let arguments =
                    json!({"pattern_name": "ai", "input_text": input, "stream": n % 2 == 0});
                (
                    client.begin_call("fabric_run_pattern", arguments, Some(json!(n))),
                    input,
                )
            })
            .collect();
        for (id, input) in runs.into_iter().rev() {
            let answer = client.answer(&id);
            assert_eq!(
                answer["result"]["content"][0]["text"],
                format!("Ran ai on: {input}"),
                "{answer}"
            );
        }
        client.notes();
        client.expect_nothing_else();
    }
    fabric.expect_chats(3 * 64);
}

#[test]
fn eras_run_side_by_side() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::Legacy("2024-11-05"), Program::with(&fabric));
    fabric.on("POST /chat", Reply::sse().content("x").gate().complete());
    let legacy = client.begin_call("fabric_run_pattern", json!({"pattern_name": "ai"}), None);
    client.speak(Era::Modern);
    let modern = client.begin_call("fabric_run_pattern", json!({"pattern_name": "ai"}), None);
    fabric.wait_held(2);
    fabric.release_all();
    expect::success(Era::Modern, &client.answer(&modern)["result"]);
    expect::success(Era::Legacy("2024-11-05"), &client.answer(&legacy)["result"]);
}

/// A client whose server has logged its connection to Fabric and is idle.
fn greeted(fabric: &FakeFabric) -> Stdio {
    let client = Stdio::ready(fabric);
    fabric.forget();
    client
}

fn patterns(client: &mut Stdio, id: &Value) -> Value {
    client.answer(id)["result"]["structuredContent"]["patterns"].clone()
}

#[test]
fn a_hanging_list_blocks_no_other_call() {
    let fabric = FakeFabric::start();
    let mut client = greeted(&fabric);
    fabric.once("GET /patterns/names", Reply::silence());
    let hung = client.begin_call("fabric_list_patterns", json!({}), None);
    fabric.wait_requests("GET /patterns/names", 1);
    let others = [(); 8].map(|()| client.begin_call("fabric_list_patterns", json!({}), None));
    for other in &others {
        assert!(patterns(&mut client, other).is_array());
    }
    client.cancel(&hung);
    client.expect_nothing_else();
}

#[test]
fn no_caller_gets_a_list_read_before_its_request() {
    let fabric = FakeFabric::start();
    let mut client = greeted(&fabric);
    fabric.once(
        "GET /patterns/names",
        Reply::new(200, "application/json", "")
            .gate()
            .bytes(r#"["old"]"#),
    );
    let before = client.begin_call("fabric_list_patterns", json!({}), None);
    fabric.wait_held(1);
    fabric.on("GET /patterns/names", Reply::json(json!(["new", "old"])));
    let after = client.begin_call("fabric_list_patterns", json!({}), None);
    assert_eq!(patterns(&mut client, &after), json!(["new", "old"]));
    fabric.release();
    assert_eq!(patterns(&mut client, &before), json!(["old"]));
}
