//! Callers' text can never become a template call of Fabric: such requests are refused before Fabric can execute it.

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::{FakeFabric, Request};
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::transports::{self, EACH};
use crate::support::{Caller, Era, extended, names};

const CALL: &str = "{{plugin:sys:env:NAME}}";
const SENTINEL: &str = "__FABRIC_INPUT_SENTINEL_TOKEN__";

fn posts(fabric: &FakeFabric) -> usize {
    let requests = fabric.requests();
    let is_post = |request: &&Request| request.method == "POST";
    requests.iter().filter(is_post).count()
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
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    for (text, variables, input, named) in attacks() {
        fabric.text("ai", &text);
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
            let is_so = said.contains(named) && said.contains("then[0]");
            assert!(is_so, "{text}: {said}");
            assert_eq!(posts(&fabric), 0, "{text}");
        }
    }
}

#[test]
fn the_output_of_a_step_is_checked_as_the_input_of_the_next() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    fabric.text("ai", "{{{{input}}}}");
    fabric.once_run(Reply::run(&["kept ", CALL]));
    let plan =
        json!({"pattern_name": "summarize", "input_text": "x", "then": [{"pattern_name": "ai"}]});
    let result = client.call("fabric_run_pattern", plan);
    expect::failure(Era::NEWEST_LEGACY, &result, "invalid-request");
    let said = result["content"].to_string();
    expect::contains(&said, ["kept", "Step 2 of 2"]);
    fabric.expect_chats(1);
}

#[test]
fn no_attack_is_rendered_as_a_prompt() {
    for (text, variables, input, named) in attacks() {
        let fabric = FakeFabric::start();
        fabric.text("ai", &text);
        let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
        // A prompt accepts only the variables of its pattern.
        let mut names = variables.as_object().unwrap().keys();
        if !names.all(|name| text.contains(&format!("{{{{{name}}}}}"))) {
            continue;
        }
        let arguments = extended(variables, json!({"input_text": input}));
        let error = client.error("prompts/get", json!({"name": "ai", "arguments": arguments}));
        assert_eq!(error["code"], -32602, "{text}: {error}");
        assert!(error.to_string().contains(named), "{text}: {error}");
        assert_eq!(posts(&fabric), 0, "{text}");
    }
}

#[test]
fn ordinary_runs_cost_no_extra_request_and_others_one() {
    let (fabric, mut client) = ready();
    let (code, json) = ("fn f() { g({{}}) }", r#"{"a": {"b": {}}}"#);
    let variables = json!({"lang_code": json, "other": "{"});
    let chat = "POST /chat";
    let run = |input: &str| json!({"pattern_name": "ai", "input_text": input});
    let sent = |input: &str| json!({"userInput": input});
    for (arguments, routes, sent) in [
        (run("a } b"), &[chat][..], sent("a } b")),
        (run(code), &["GET /patterns/ai", chat], sent(code)),
        (
            json!({"pattern_name": "translate", "input_text": "x", "variables": variables}),
            &["GET /patterns/translate", chat],
            json!({"variables": variables}),
        ),
    ] {
        fabric.forget();
        client.success("fabric_run_pattern", arguments);
        assert_eq!(fabric.routes(), routes);
        expect::includes(&fabric.chats()[0]["prompts"][0], sent);
    }
}

#[test]
fn a_pattern_that_cannot_be_read_is_not_run_with_variables() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let run = |client: &mut Stdio, name: &str, input: &str, variables: Value| {
        let call = json!({"pattern_name": name, "input_text": input, "variables": variables});
        client.call("fabric_run_pattern", call)
    };
    let result = run(&mut client, "translat", "x", json!({"x": "y"}));
    let said = expect::failure(Era::NEWEST_LEGACY, &result, "pattern-not-found");
    expect::contains(said, ["\"translate\"", "lacks \"lang_code\"", "\"x\""]);
    let broken = Reply::failure(500, json!(format!("open {}/ai", fixtures::HOST_PATH)));
    fabric.on("GET /patterns/ai", broken);
    for (input, variables) in [
        ("x", json!({"x": "y"})),
        ("{{x}}", json!({})),
        (SENTINEL, json!({})),
    ] {
        let result = run(&mut client, "ai", input, variables);
        expect::failure(Era::NEWEST_LEGACY, &result, "fabric-internal-error");
    }
    fabric.expect_chats(0);
    // An older Fabric does not return the patterns of a custom folder: code is accepted there.
    expect::success(
        Era::NEWEST_LEGACY,
        &run(&mut client, "ai", "fn f() { }", json!({})),
    );
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
        let refusal = "urn:fabric-mcp:error:invalid-request";
        for name in "ai|Ai|u\u{308}berblick fu\u{308}r alle|create_codıng_feature".split('|') {
            let then = json!([{"pattern_name": "translate"}, {"pattern_name": name}]);
            for call in [
                json!({"pattern_name": name, "input_text": "x"}),
                json!({"pattern_name": name, "then": [{"pattern_name": "summarize"}]}),
                json!({"pattern_name": "summarize", "then": then}),
            ] {
                let call = json!({"name": "fabric_run_pattern", "arguments": call});
                let answer = client.ask("tools/call", call).to_string();
                // In the oldest revision it is a protocol error.
                assert!(answer.contains(refusal), "{name}: {answer}");
            }
            let reference = json!({"type": "ref/prompt", "name": name});
            let argument = json!({"name": "strategy_name", "value": ""});
            let get = json!({"name": name, "arguments": {"input_text": "x"}});
            let complete = json!({"ref": reference, "argument": argument});
            for (method, params) in [("prompts/get", get), ("completion/complete", complete)] {
                let error = client.ask(method, params)["error"].take();
                assert_eq!(error["code"], -32602, "{method} {name}: {error}");
                assert_eq!(error["data"]["type"], refusal, "{error}");
            }
        }
        assert_eq!(posts(&fabric), 0);
        let listed = client.ask("prompts/list", json!({}))["result"].take();
        let mut left = fixtures::sorted_names();
        left.retain(|name| !["ai", "create_coding_feature", "überblick für alle"].contains(name));
        assert_eq!(names(&listed["prompts"]), left);
        // Reading does not execute anything.
        for name in ["ai", "create_coding_feature"] {
            client.success("fabric_get_pattern_details", json!({"pattern_name": name}));
            let uri = format!("fabric://pattern/{name}");
            let read = client.ask("resources/read", json!({"uri": uri}));
            assert!(read["result"]["contents"][0]["text"].is_string(), "{read}");
        }
    }
}

#[test]
fn an_allowed_pattern_is_a_prompt_again_unless_it_is_denied_too() {
    let allowed = |program: Program| program.flags("--allow-pattern Create_Coding_Feature");
    let fabric = FakeFabric::start();
    let get = json!({"name": "create_coding_feature", "arguments": {"input_text": "x"}});
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, allowed(Program::with(&fabric)));
    client.result("prompts/get", get.clone());
    let denied = allowed(Program::with(&fabric)).flags("--deny-pattern create_coding_feature");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, denied);
    assert_eq!(client.request("prompts/get", get)["error"]["code"], -32602);
}
