//! Chains of patterns: the plan is validated before anything runs, and a failure keeps the output of the steps before
//! it.

use serde_json::{Value, json};

use crate::support::Caller;
use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, EACH};

fn chain(first: &str, then: Value) -> Value {
    json!({"pattern_name": first, "input_text": "x", "then": then})
}

#[test]
fn a_plan_with_a_hole_is_refused_before_anything_is_run() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let cases = [
        (
            chain("ai", json!([{"pattern_name": "sumarize"}])),
            "pattern-not-found",
            "then[0].pattern_name",
        ),
        (
            chain("sumarize", json!([{"pattern_name": "ai"}])),
            "pattern-not-found",
            "summarize",
        ),
        (
            chain(
                "ai",
                json!([{"pattern_name": "summarize"}, {"pattern_name": "gone"}]),
            ),
            "pattern-not-found",
            "then[1]",
        ),
        (
            chain("ai", json!([{"pattern_name": "translate"}])),
            "invalid-request",
            "lang_code",
        ),
        (
            chain(
                "ai",
                json!([{"pattern_name": "write_letter", "variables": {"sender": "me"}}]),
            ),
            "invalid-request",
            "recipient",
        ),
        (
            chain("create_coding_feature", json!([{"pattern_name": "ai"}])),
            "invalid-request",
            "create_coding_feature",
        ),
        (
            chain("ai", json!([{"pattern_name": "create_coding_feature"}])),
            "invalid-request",
            "create_coding_feature",
        ),
        (
            chain("ai", json!([{"pattern_name": "../x"}])),
            "invalid-request",
            "then[0].pattern_name",
        ),
    ];
    for (arguments, kind, says) in cases {
        let said = client.failure("fabric_run_pattern", arguments.clone(), kind);
        assert!(said.contains(says), "{arguments}: {said}");
    }
    fabric.expect_chats(0);
}

#[test]
fn each_step_gets_the_output_of_the_one_before_over_every_transport() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        let plan = chain(
            "ai",
            json!([{"pattern_name": "translate", "variables": {"lang_code": "de"}}]),
        );
        let result = client.call("fabric_run_pattern", plan.clone());
        assert_eq!(
            result["content"][0]["text"], "Ran translate on: Ran ai on: x",
            "{wire:?}: {result}"
        );
        fabric.expect_chats(2);

        fabric.forget();
        fabric.once_run(Reply::run(&["kept one"]));
        fabric.once_run(Reply::sse().content("kept two").cut());
        let result = client.call("fabric_run_pattern", plan.clone());
        expect::failure(era, &result, "fabric-stream-interrupted");
        let said = result["content"].to_string();
        expect::contains(&said, ["kept one", "kept two", "Step 2 of 2"]);
        fabric.expect_chats(2);

        fabric.forget();
        fabric.once_run(Reply::failure(500, json!("open /home/fabric-host/x")));
        client.failure("fabric_run_pattern", plan, "fabric-internal-error");
        fabric.expect_chats(1);
    }
}
