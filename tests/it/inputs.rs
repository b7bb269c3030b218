//! What a run works on: links and nothing, transcripts, outputs of earlier runs; and dry runs.

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, EACH};
use crate::support::{Caller, expect};

const RUN: &str = "fabric_run_pattern";

#[test]
fn a_link_alone_is_not_run_and_an_input_that_is_none_brings_a_warning() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let mut link = json!({"pattern_name": "ai", "input_text": " https://youtu.be/abc-DEF_123\n"});
    let said = client.failure(RUN, link.clone(), "invalid-request");
    assert!(
        said.contains("`input_text`") && said.contains("words around it"),
        "{said}"
    );
    fabric.expect_chats(0);
    link["search"] = json!(true);
    let data = client.success(RUN, link);
    assert!(data.get("warnings").is_none(), "{data}");
    for (arguments, words) in [
        (json!({"pattern_name": "ai"}), "There was no input"),
        (
            json!({"pattern_name": "ai", "input_text": "/tmp/x.md"}),
            "only a path",
        ),
    ] {
        let data = client.success(RUN, arguments);
        assert!(
            data["warnings"][0].as_str().unwrap().contains(words),
            "{data}"
        );
    }
    fabric.expect_chats(3);
}

#[test]
fn a_dry_run_shows_what_prompts_get_shows_and_runs_nothing() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).flags("--max-calls-per-minute 1");
        let mut client = transports::open(wire, era, program, None);
        let arguments = json!({"lang_code": "de", "input_text": "x", "strategy_name": "cot"});
        let prompt = client.ask(
            "prompts/get",
            json!({"name": "translate", "arguments": arguments}),
        );
        let prompt = &prompt["result"]["messages"][0]["content"]["text"];
        for _ in 0..2 {
            let dry = json!({"pattern_name": "translate", "input_text": "x", "strategy_name": "cot",
                "context_name": "work", "variables": {"lang_code": "de"}, "then": ["ai"], "dry_run": true});
            let result = client.call(RUN, dry);
            expect::success(era, &result);
            assert_eq!(&result["content"][0]["text"], prompt, "{wire:?}");
            let said = result["content"].to_string();
            assert!(said.contains("cot") && said.contains("work"), "{said}");
        }
        let lacking = json!({"pattern_name": "translate", "dry_run": true});
        let said = client.call(RUN, lacking).to_string();
        assert!(said.contains("lang_code"), "{said}");
        fabric.expect_chats(0);
    }
}
