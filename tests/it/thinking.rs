//! `strip_thinking`: a block of thinking that opens an output is shown to nobody, wherever Fabric cuts it.

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::transports::{self, EACH};
use crate::support::{Caller, Era, extended};

const OUTPUT: &str = "<think>hm, <b> ü</think>\n\n<thinking>more</thinking>An ü of <think>.";
const ANSWER: &str = "An ü of <think>.";

fn run(more: Value) -> Value {
    let arguments = json!({"pattern_name": "ai", "input_text": "x", "strip_thinking": true});
    extended(arguments, more)
}

#[test]
fn thinking_is_left_out_wherever_fabric_cuts_it() {
    let (fabric, mut client) = ready();
    let cuts = (1..OUTPUT.len()).filter(|&at| OUTPUT.is_char_boundary(at));
    let cut = cuts.map(|at| Reply::run(&[&OUTPUT[..at], &OUTPUT[at..]]));
    for reply in cut.chain([Reply::run(&[OUTPUT]).dripped()]) {
        fabric.once_run(reply);
        let arguments = run(json!({"stream": true}));
        let id = client.begin_call("fabric_run_pattern", arguments, Some(json!("t")));
        let result = client.answer(&id)["result"].take();
        assert_eq!(result["structuredContent"]["output_text"], ANSWER);
        assert_eq!(result["structuredContent"].get("warnings"), None);
        let notes = client.notes();
        let texts = notes.iter().map(|note| note["params"]["message"].as_str());
        assert_eq!(texts.flatten().collect::<String>(), ANSWER, "{notes:?}");
        let run_id = result["structuredContent"]["run_id"].clone();
        let stored = client.call("fabric_get_run", json!({ "run_id": run_id }));
        assert_eq!(stored["structuredContent"]["output_text"], ANSWER);
    }
}

#[test]
fn each_step_gets_the_answer_of_the_one_before_and_nothing_is_run_on_none() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        fabric.once_run(Reply::run(&[OUTPUT]));
        let result = client.call("fabric_run_pattern", run(json!({"then": ["summarize"]})));
        let text = format!("Ran summarize on: {ANSWER}");
        assert_eq!(result["content"][0]["text"], text, "{result}");
        fabric.once_run(Reply::run(&["<think>hm</think>\n"]));
        let said = client.failure(
            "fabric_run_pattern",
            run(json!({"then": ["summarize"]})),
            "fabric-api-error",
        );
        contains(&said, ["Step 1 of 2 (ai) failed. The output was only"]);
        fabric.expect_chats(3);
    }
}

#[test]
fn what_does_not_end_is_text_and_an_output_of_nothing_else_is_said_to_be_so() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(
        Era::R2025_11_25,
        Program::with(&fabric).flags("--strip-thinking"),
    );
    for (output, text, warning) in [
        (
            "<think>hm",
            "<think>hm",
            "begins with thinking that does not end",
        ),
        ("<think>hm</think> ", "", "The output was only thinking"),
    ] {
        fabric.once_run(Reply::run(&[output]));
        let arguments = json!({"pattern_name": "ai", "input_text": "x"});
        let result = client.call("fabric_run_pattern", arguments);
        let got = &result["structuredContent"];
        assert_eq!(got["output_text"], text);
        contains(got["warnings"].to_string(), [warning]);
    }
    // What had arrived is not lost, and the call decides.
    fabric.once_run(Reply::sse().content("<think>hm").cut());
    let arguments = json!({"pattern_name": "ai", "input_text": "x"});
    let result = client.call("fabric_run_pattern", arguments);
    assert_eq!(result["content"][1]["text"], "<think>hm", "{result}");
    fabric.once_run(Reply::run(&[OUTPUT]));
    let result = client.call("fabric_run_pattern", run(json!({"strip_thinking": false})));
    assert_eq!(result["structuredContent"]["output_text"], OUTPUT);
}

#[test]
fn context_length_and_search_location_are_what_fabric_calls_them() {
    let (fabric, mut client) = ready();
    let arguments =
        run(json!({"context_length": 32768, "search": true, "search_location": "Europe/Berlin"}));
    client.call("fabric_run_pattern", arguments);
    let body = &fabric.requests_of("POST /chat")[0].body;
    let body: Value = serde_json::from_slice(body).unwrap();
    let expected = json!({
        "prompts": [{"userInput": "x", "vendor": "", "model": "", "contextName": "",
            "patternName": "ai", "strategyName": "", "sessionName": "", "variables": {}}],
        "language": "", "temperature": 0.7, "topP": 0.9, "frequencyPenalty": 0.0,
        "presencePenalty": 0.0, "modelContextLength": 32768, "thinking": "", "search": true,
        "searchLocation": "Europe/Berlin"
    });
    assert_eq!(body, expected);
}
