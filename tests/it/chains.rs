//! Chains of patterns: the plan is validated before anything runs, and a failure keeps the output of the steps before
//! it.

use serde_json::{Value, json};

use crate::support::Caller;
use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::ready;
use crate::support::transports::{self, EACH};

fn chain(first: &str, then: Value) -> Value {
    json!({"pattern_name": first, "input_text": "x", "then": then})
}

#[test]
fn a_plan_with_a_hole_is_refused_before_anything_is_run() {
    let (fabric, mut client) = ready();
    let step = |name: &str| json!({"pattern_name": name});
    let letter = json!({"pattern_name": "write_letter", "variables": {"sender": "me"}});
    let coding = "create_coding_feature";
    let gone = vec![step("summarize"), step("gone")];
    let (unknown, wrong) = ("pattern-not-found", "invalid-request");
    let first = "then[0].pattern_name";
    let cases = [
        ("ai", vec![step("sumarize")], unknown, first),
        ("sumarize", vec![step("ai")], unknown, "summarize"),
        ("ai", gone, unknown, "then[1]"),
        ("ai", vec![step("translate")], wrong, "lang_code"),
        ("ai", vec![letter], wrong, "recipient"),
        (coding, vec![step("ai")], wrong, coding),
        ("ai", vec![step(coding)], wrong, coding),
        ("ai", vec![step("../x")], wrong, first),
    ];
    for (first, then, kind, says) in cases {
        let arguments = chain(first, json!(then));
        let said = client.failure("fabric_run_pattern", arguments.clone(), kind);
        assert!(said.contains(says), "{arguments}: {said}");
    }
    fabric.expect_chats(0);
}

#[test]
fn a_step_that_failed_after_others_were_run_is_not_said_to_have_run_nothing() {
    let (fabric, mut client) = ready();
    fabric.once_run(Reply::gated(&["kept", ""]));
    fabric.once_run(Reply::failure(500, json!("x")));
    let plan = chain("summarize", json!(["ai"]));
    let call = client.begin_call("fabric_run_pattern", plan, None);
    fabric.wait_held(1);
    fabric.names(json!(["summarize"]));
    fabric.release();
    let said = client.answer(&call).to_string();
    expect::contains(&said, ["Step 2 of 2 (ai)", "`then[0].pattern_name`: "]);
    assert!(!said.contains("Nothing was run"), "{said}");
}

#[test]
fn each_step_gets_the_output_of_the_one_before_over_every_transport() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        let step = json!({"pattern_name": "translate", "variables": {"lang_code": "de"}});
        let plan = chain("ai", json!([step]));
        let result = client.call("fabric_run_pattern", plan.clone());
        let text = &result["content"][0]["text"];
        assert_eq!(text, "Ran translate on: Ran ai on: x", "{wire:?}");
        fabric.expect_chats(2);

        fabric.forget();
        let usage = json!({"input_tokens": 6, "output_tokens": 8, "total_tokens": 14});
        let used = json!({"type": "usage", "usage": usage});
        fabric.once_run(Reply::sse().content("kept one").event(used).complete());
        fabric.once_run(Reply::sse().content("kept two").cut());
        let result = client.call("fabric_run_pattern", plan.clone());
        expect::failure(era, &result, "fabric-stream-interrupted");
        let first = "Output of step 1 (ai), which is not the result: kept one";
        expect::contains(&result, [first, "\"kept two\""]);
        // What was paid for is told, whatever came of it.
        let run = json!({"run_id": result["_meta"]["run_id"]});
        let got = client.call("fabric_get_run", run);
        let text = got["content"].to_string();
        expect::contains(&text, [first, "kept two", "The run failed. Step 2"]);
        // Older revisions have nothing structured.
        let data = &got["structuredContent"];
        assert!(data.is_null() || data["usage"] == usage, "{got}");
        fabric.expect_chats(2);

        fabric.forget();
        fabric.once_run(Reply::failure(500, json!("open /home/fabric-host/x")));
        client.failure("fabric_run_pattern", plan, "fabric-internal-error");
        fabric.expect_chats(1);
    }
}
