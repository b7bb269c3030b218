//! Callers' text can never become a template call of Fabric: such requests are refused before Fabric can execute it.

use serde_json::{Map, Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, EACH};
use crate::support::{Caller, Era};

const ERA: Era = Era::Legacy("2025-11-25");
const CALL: &str = "{{plugin:sys:env:NAME}}";
const SENTINEL: &str = "__FABRIC_INPUT_SENTINEL_TOKEN__";

/// Makes `text` the text of the pattern `ai`.
fn serve(fabric: &FakeFabric, text: &str) {
    fabric.text("ai", text);
}

fn posts(fabric: &FakeFabric) -> usize {
    fabric
        .requests()
        .iter()
        .filter(|request| request.method == "POST")
        .count()
}

/// Pattern, variables, input, and what the error names.
pub(crate) fn attacks() -> Vec<(String, Value, String, &'static str)> {
    let twice = SENTINEL.repeat(2_114);
    let large = "i".repeat(1 << 20);
    let many = "{{x}}".repeat(200);
    let value = "x".repeat(64 << 10);
    let own = |text: &str, variables: Value, input: &str, named| {
        (text.to_owned(), variables, input.to_owned(), named)
    };
    vec![
        own("{{{x}}}", json!({"x": "{input}"}), CALL, "variables.x"),
        own("{{{{x}}}}", json!({"x": "input"}), CALL, "attern "),
        own("{{x}}", json!({"x": "{{x}}"}), "", "variables.x"),
        own("{{x}}", json!({"x": twice}), &large, "variables.x"),
        own(&many, json!({"x": value}), "", "8 MiB"),
        own("{{ext:a:b:{{x}}}}", json!({"x": "; reboot"}), "", "attern "),
        // A variable that is not in the pattern.
        own("text", json!({"x": CALL}), "", "variables.x"),
        // No variables at all.
        own("{{{{input}}}}", json!({}), CALL, "attern "),
        own("{{plugin:file:read:/a}}", json!({}), CALL, "attern "),
    ]
}

#[test]
fn no_attack_gets_further_than_the_pattern() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(ERA, Program::with(&fabric));
    for (text, variables, input, named) in attacks() {
        serve(&fabric, &text);
        let call = json!({"pattern_name": "ai", "input_text": input, "variables": variables});
        let said = client.failure("fabric_run_pattern", call.clone(), "invalid-request");
        assert!(said.contains(named), "{text}: {said}");
        // In each step of a chain: the second one's input is the first one's output.
        let mut first = call.clone();
        first["then"] = json!([{"pattern_name": "summarize"}]);
        let said = client.failure("fabric_run_pattern", first, "invalid-request");
        assert!(said.contains(named), "{text}: {said}");
        assert_eq!(posts(&fabric), 0, "{text}");
        if variables != json!({}) && !text.contains("{{input}}") {
            let step = json!({"pattern_name": "ai", "variables": variables});
            let second = json!({"pattern_name": "summarize", "input_text": "x", "then": [step]});
            let said = client.failure("fabric_run_pattern", second, "invalid-request");
            assert!(
                said.contains(named) && said.contains("then[0]"),
                "{text}: {said}"
            );
            assert_eq!(posts(&fabric), 0, "{text}");
        }
    }
}

#[test]
fn the_output_of_a_step_is_checked_as_the_input_of_the_next() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(ERA, Program::with(&fabric));
    serve(&fabric, "{{{{input}}}}");
    fabric.once_run(Reply::run(&["kept ", CALL]));
    let plan =
        json!({"pattern_name": "summarize", "input_text": "x", "then": [{"pattern_name": "ai"}]});
    let result = client.call("fabric_run_pattern", plan);
    expect::failure(ERA, &result, "invalid-request");
    let said = result["content"].to_string();
    expect::contains(&said, ["kept", "Step 2 of 2"]);
    fabric.expect_chats(1);
}

#[test]
fn no_attack_is_rendered_as_a_prompt() {
    for (text, variables, input, named) in attacks() {
        let fabric = FakeFabric::start();
        serve(&fabric, &text);
        let mut client = Stdio::speaking(ERA, Program::with(&fabric));
        let mut arguments = variables.as_object().cloned().unwrap_or_else(Map::new);
        // A prompt accepts only the variables of its pattern.
        if !arguments
            .keys()
            .all(|name| text.contains(&format!("{{{{{name}}}}}")))
        {
            continue;
        }
        arguments.insert("input_text".to_owned(), json!(input));
        let answer = client.request("prompts/get", json!({"name": "ai", "arguments": arguments}));
        assert_eq!(answer["error"]["code"], -32602, "{text}: {answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .is_some_and(|said| said.contains(named)),
            "{text}: {answer}"
        );
        assert_eq!(posts(&fabric), 0, "{text}");
    }
}

#[test]
fn ordinary_runs_cost_no_extra_request_and_others_one() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(ERA, Program::with(&fabric));
    client.process.wait_stderr("onnected to Fabric API");
    let routes = |client: &mut Stdio, call: Value| {
        fabric.forget();
        client.success("fabric_run_pattern", call);
        fabric.routes()
    };
    let plain = json!({"pattern_name": "ai", "input_text": "a } b"});
    assert_eq!(routes(&mut client, plain), ["POST /chat"]);
    let code = json!({"pattern_name": "ai", "input_text": "fn f() { g({{}}) }"});
    assert_eq!(
        routes(&mut client, code),
        ["GET /patterns/ai", "POST /chat"]
    );
    expect::includes(
        &fabric.chats()[0]["prompts"][0],
        json!({"userInput": "fn f() { g({{}}) }"}),
    );
    let json = r#"{"a": {"b": {}}}"#;
    let filled =
        json!({"pattern_name": "translate", "variables": {"lang_code": json, "other": "{"}});
    assert_eq!(
        routes(&mut client, filled),
        ["GET /patterns/translate", "POST /chat"]
    );
    assert_eq!(
        fabric.chats()[0]["prompts"][0]["variables"],
        json!({"lang_code": json, "other": "{"})
    );
}

#[test]
fn a_pattern_that_cannot_be_read_is_not_run_with_variables() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(ERA, Program::with(&fabric));
    let run = |client: &mut Stdio, name: &str, input: &str, variables: Value| {
        let call = json!({"pattern_name": name, "input_text": input, "variables": variables});
        client.call("fabric_run_pattern", call)
    };
    let result = run(&mut client, "sumarize", "x", json!({"x": "y"}));
    expect::contains(
        expect::failure(ERA, &result, "pattern-not-found"),
        ["\"summarize\""],
    );
    fabric.on(
        "GET /patterns/ai",
        Reply::failure(500, json!(format!("open {}/ai", fixtures::HOST_PATH))),
    );
    for (input, variables) in [
        ("x", json!({"x": "y"})),
        ("{{x}}", json!({})),
        (SENTINEL, json!({})),
    ] {
        let said = expect::failure(
            ERA,
            &run(&mut client, "ai", input, variables),
            "fabric-internal-error",
        );
        expect::no_leak(&said);
    }
    fabric.expect_chats(0);
    // An older Fabric does not return the patterns of a custom folder: code is accepted there.
    expect::success(ERA, &run(&mut client, "ai", "fn f() { }", json!({})));
    fabric.expect_chats(1);
}

#[test]
fn denied_patterns_are_denied_everywhere() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric)
            .arg("--deny-pattern")
            .arg("Überblick für Alle")
            .arg("--deny-pattern=AI");
        let mut client = transports::open(wire, era, program, None);
        let spelled = [
            "ai",
            "Ai",
            "u\u{308}berblick fu\u{308}r alle",
            "create_codıng_feature",
        ];
        for name in spelled {
            let calls = [
                json!({"pattern_name": name, "input_text": "x"}),
                json!({"pattern_name": name, "then": [{"pattern_name": "summarize"}]}),
                json!({"pattern_name": "summarize", "then": [{"pattern_name": "translate"}, {"pattern_name": name}]}),
            ];
            for call in calls {
                let answer = client.ask(
                    "tools/call",
                    json!({"name": "fabric_run_pattern", "arguments": call}),
                );
                // In the oldest revision it is a protocol error.
                assert!(
                    answer
                        .to_string()
                        .contains("urn:fabric-mcp:error:invalid-request"),
                    "{name}: {answer}"
                );
            }
            let reference = json!({"type": "ref/prompt", "name": name});
            let argument = json!({"name": "strategy_name", "value": ""});
            for (method, params) in [
                (
                    "prompts/get",
                    json!({"name": name, "arguments": {"input_text": "x"}}),
                ),
                (
                    "completion/complete",
                    json!({"ref": reference, "argument": argument}),
                ),
            ] {
                let answer = client.ask(method, params);
                assert_eq!(answer["error"]["code"], -32602, "{method} {name}: {answer}");
                assert_eq!(
                    answer["error"]["data"]["type"],
                    format!("{}invalid-request", expect::URN),
                    "{answer}"
                );
            }
        }
        assert_eq!(posts(&fabric), 0);
        let listed = client.ask("prompts/list", json!({}));
        let names: Vec<&str> = listed["result"]["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["name"].as_str().unwrap())
            .collect();
        let mut left = fixtures::sorted_names();
        left.retain(|name| !["ai", "create_coding_feature", "überblick für alle"].contains(name));
        assert_eq!(names, left);
        // Reading does not execute anything.
        for name in ["ai", "create_coding_feature"] {
            client.success("fabric_get_pattern_details", json!({"pattern_name": name}));
            let read = client.ask(
                "resources/read",
                json!({"uri": format!("fabric://pattern/{name}")}),
            );
            assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
        }
    }
}

#[test]
fn an_allowed_pattern_is_a_prompt_again_unless_it_is_denied_too() {
    let allowed = |program: Program| program.flags("--allow-pattern Create_Coding_Feature");
    let fabric = FakeFabric::start();
    let get = json!({"name": "create_coding_feature", "arguments": {"input_text": "x"}});
    let mut client = Stdio::speaking(ERA, allowed(Program::with(&fabric)));
    client.result("prompts/get", get.clone());
    let denied = allowed(Program::with(&fabric)).flags("--deny-pattern create_coding_feature");
    let mut client = Stdio::speaking(ERA, denied);
    assert_eq!(client.request("prompts/get", get)["error"]["code"], -32602);
}
