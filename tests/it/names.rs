//! Names unknown to Fabric: errors suggest the closest ones, and come before anything is paid for where possible.

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{Caller, Era};

const ERA: Era = Era::Legacy("2025-11-25");

fn ready() -> (FakeFabric, Stdio) {
    let fabric = FakeFabric::start();
    let client = Stdio::ready(&fabric);
    (fabric, client)
}

fn refused(client: &mut Stdio, arguments: Value) -> String {
    client.failure("fabric_run_pattern", arguments, "invalid-request")
}

fn ran(client: &mut Stdio, arguments: Value) -> Vec<String> {
    let data = client.success("fabric_run_pattern", arguments);
    let warnings = data["warnings"].as_array().cloned().unwrap_or_default();
    warnings
        .iter()
        .map(|warning| warning.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn contexts_and_sessions_are_listed_and_complete() {
    let (fabric, mut client) = ready();
    fabric.on(
        "GET /sessions/names",
        Reply::json(json!(["talk", "old talk"])),
    );
    let data = client.success("fabric_list_contexts", json!({}));
    assert_eq!(
        data,
        json!({"contexts": ["work"], "sessions": ["old talk", "talk"]})
    );
    let mut complete = |argument: &str, value: &str| {
        let params = json!({"ref": {"type": "ref/prompt", "name": "ai"}, "argument": {"name": argument, "value": value}});
        client.result("completion/complete", params)["completion"]["values"].clone()
    };
    assert_eq!(complete("context_name", "w"), json!(["work"]));
    assert_eq!(complete("session_name", "tal"), json!(["talk", "old talk"]));
    assert_eq!(complete("session_name", "x"), json!([]));
    fabric.on("GET /sessions/names", Reply::json(Value::Null));
    fabric.on(
        "GET /contexts/names",
        Reply::failure(
            500,
            json!({"error": format!("open {}", fixtures::HOST_PATH)}),
        ),
    );
    let result = client.call("fabric_list_contexts", json!({}));
    let data = expect::success(ERA, &result);
    expect::includes(&data, json!({"contexts": [], "sessions": []}));
    assert!(
        data["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("Fabric has no contexts"),
        "{data}"
    );
    assert!(!result.to_string().contains("fabric-host"), "{result}");
    fabric.on("GET /contexts/names", Reply::failure(401, json!({})));
    client.failure("fabric_list_contexts", json!({}), "fabric-api-unauthorized");
}

#[test]
fn a_context_that_is_not_there_is_refused_and_a_new_session_begins() {
    let (fabric, mut client) = ready();
    let run =
        |context: &str| json!({"pattern_name": "ai", "input_text": "x", "context_name": context});
    let said = refused(&mut client, run("wrok"));
    expect::contains(
        &said,
        ["`context_name`: Fabric has no context named \"wrok\". Did you mean \"work\"?"],
    );
    expect::contains(
        &said,
        ["fabric_list_contexts has them all. Nothing was run."],
    );
    fabric.expect_chats(0);
    assert_eq!(ran(&mut client, run("work")), [""; 0]);
    // A recently stored one is found.
    fabric.on("GET /contexts/names", Reply::json(json!(["work", "new"])));
    assert_eq!(ran(&mut client, run("new")), [""; 0]);
    // An unavailable list is no reason to refuse.
    fabric.on("GET /contexts/names", Reply::failure(404, json!("x")));
    assert_eq!(ran(&mut client, run("newer")), [""; 0]);
    fabric.on("GET /sessions/names", Reply::json(json!(["talk"])));
    let run =
        |session: &str| json!({"pattern_name": "ai", "input_text": "x", "session_name": session});
    assert_eq!(ran(&mut client, run("talk")), [""; 0]);
    let warnings = ran(&mut client, run("tolk"));
    expect::contains(
        &warnings[0],
        ["no session named \"tolk\"", "mean \"talk\"?"],
    );
}

#[test]
fn a_strategy_that_is_not_there_is_refused() {
    let (fabric, mut client) = ready();
    let run = |strategy: &str| json!({"pattern_name": "ai", "input_text": "x", "strategy_name": strategy});
    let said = refused(&mut client, run("Self-Refine"));
    expect::contains(
        &said,
        ["no strategy named \"Self-Refine\". Did you mean \"self-refine\"? fabric_list_strategies"],
    );
    let said = refused(
        &mut client,
        json!({"pattern_name": "ai", "then": ["ai", {"pattern_name": "ai", "strategy_name": "cto"}]}),
    );
    expect::contains(&said, ["`then[1].strategy_name`", "\"cot\""]);
    fabric.expect_chats(0);
    fabric.on(
        "GET /strategies",
        Reply::json(json!([{"name": "new", "description": "", "prompt": ""}])),
    );
    ran(&mut client, run("new"));
}

#[test]
fn a_single_run_asks_for_models_only_when_it_failed() {
    let run = |model: &str, vendor: &str| json!({"pattern_name": "ai", "model_name": model, "vendor_name": vendor});
    for (model, vendor, says) in [
        (
            "gpt-y",
            "",
            "Fabric has no model named \"gpt-y\". Did you mean \"gpt-x\"? fabric_list_models has them all.",
        ),
        (
            "gpt-x",
            "OpenIA",
            "Fabric has no vendor named \"OpenIA\". Did you mean \"OpenAI\"? fabric_list_models",
        ),
        (
            "gpt-x",
            "openai",
            "Fabric lists \"OpenAI\": write it in this case.",
        ),
        (
            "GPT-X",
            "OPENAI",
            "Fabric lists \"OpenAI\" and \"gpt-x\": write it in this case.",
        ),
    ] {
        let (fabric, mut client) = ready();
        ran(&mut client, run("GPT-X", ""));
        assert!(fabric.requests_of("GET /models/names").is_empty());
        fabric.once_run(
            Reply::sse()
                .error("Error: could not find vendor.")
                .complete(),
        );
        let said = client.failure("fabric_run_pattern", run(model, vendor), "fabric-api-error");
        expect::contains(&said, [says, "could not find vendor"]);
        assert_eq!(fabric.requests_of("GET /models/names").len(), 1);
    }
}

#[test]
fn models_and_vendors_of_a_whole_plan_are_checked() {
    let (fabric, mut client) = ready();
    let plan =
        |step: Value| json!({"pattern_name": "ai", "input_text": "x", "then": ["summarize", step]});
    let said = refused(
        &mut client,
        plan(json!({"pattern_name": "ai", "model_name": "lama3:8b"})),
    );
    expect::contains(
        &said,
        ["`then[1].model_name`: Fabric has no model", "llama3:8b"],
    );
    let said = refused(
        &mut client,
        plan(json!({"pattern_name": "ai", "model_name": "gpt-x", "vendor_name": "Olama"})),
    );
    expect::contains(&said, ["`then[1].vendor_name`", "\"Ollama\""]);
    let said = refused(
        &mut client,
        json!({"pattern_name": "ai", "model_name": "nope-nope", "then": ["ai"]}),
    );
    expect::contains(
        &said,
        ["`model_name`: Fabric has no model named \"nope-nope\""],
    );
    fabric.expect_chats(0);
    assert_eq!(
        fabric.requests_of("GET /models/names").len(),
        3,
        "one a plan"
    );
    fabric.forget();
    ran(
        &mut client,
        plan(json!({"pattern_name": "ai", "model_name": "gpt-x", "vendor_name": "openai"})),
    );
    fabric.expect_chats(3);
    assert!(
        fabric.requests_of("GET /models/names").is_empty(),
        "they are known"
    );
}

#[test]
fn models_that_cannot_be_listed_do_not_stop_a_plan() {
    let (fabric, mut client) = ready();
    fabric.on("GET /models/names", Reply::failure(500, json!("x")));
    let warnings = ran(
        &mut client,
        json!({"pattern_name": "ai", "input_text": "x", "model_name": "m", "then": ["ai"]}),
    );
    expect::contains(&warnings[0], ["not checked before the run"]);
}

#[test]
fn missing_variables_are_errors_before_a_run_and_unused_ones_warnings() {
    let (fabric, mut client) = ready();
    let run = |variables: Value| json!({"pattern_name": "write_letter", "input_text": "x", "variables": variables});
    let said = refused(&mut client, run(json!({"sender": "me"})));
    expect::contains(
        &said,
        ["`variables` lacks \" recipient \", which the pattern write_letter needs."],
    );
    fabric.expect_chats(0);
    let warnings = ran(
        &mut client,
        run(json!({"sender": "me", " recipient ": "you", "extra": "x"})),
    );
    assert_eq!(
        warnings,
        ["The pattern write_letter has no variable \"extra\": its value was not used."]
    );
    fabric.expect_chats(1);
    // The pattern is unknown here, and Fabric is not asked.
    fabric.forget();
    ran(&mut client, run(json!({})));
    assert_eq!(fabric.routes(), ["POST /chat"]);
    // Fabric itself names only one.
    let both = "lacks \" recipient \" and \"sender\", which";
    let error = Reply::sse().error("Error: missing required variable: sender");
    fabric.once_run(error.complete());
    let said = refused(&mut client, run(json!({})));
    assert!(said.contains(both), "{said}");
    fabric.forget();
    client.result("prompts/list", json!({}));
    let said = refused(&mut client, run(json!({})));
    assert!(said.contains(both), "{said}");
    fabric.expect_chats(0);
    let error = client.error("prompts/get", json!({"name": "write_letter"}));
    assert!(error["message"].as_str().unwrap().contains(both), "{error}");
    // The pattern has changed since.
    fabric.on(
        "GET /patterns/write_letter",
        Reply::json(json!({"Name": "write_letter", "Pattern": "Write."})),
    );
    ran(&mut client, run(json!({})));
}

#[test]
fn patterns_that_no_fabric_can_run_say_so() {
    let (fabric, mut client) = ready();
    let text = "Repair {{ title || 'none' }} and {{f(x)}} of {{name}}.";
    fabric.text("ai", text);
    let details = client.success("fabric_get_pattern_details", json!({"pattern_name": "ai"}));
    expect::includes(
        &details,
        json!({"runnable": false, "variables": [], "system_prompt": text}),
    );
    expect::contains(
        &details["warnings"][0],
        ["no Fabric can run the pattern ai"],
    );
    let found = client.success("fabric_list_patterns", json!({"query": "ai"}));
    assert!(
        found["patterns"][0] == "ai" && found["warnings"].to_string().contains("no Fabric can run"),
        "{found}"
    );
    let prompts = client.result("prompts/list", json!({}));
    assert!(
        prompts["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|prompt| prompt["name"] != "ai"),
        "{prompts}"
    );
    expect::includes(
        &client.error("prompts/get", json!({"name": "ai"})),
        json!({"code": -32602}),
    );
    let said = refused(
        &mut client,
        json!({"pattern_name": "ai", "input_text": "x"}),
    );
    expect::contains(&said, ["`pattern_name`: no Fabric can run the pattern ai"]);
    fabric.expect_chats(0);
}
