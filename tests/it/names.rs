//! Names unknown to Fabric: errors suggest the closest ones, and come before anything is paid for where possible.

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::{Caller, Era, extended};

/// Fails unless the run is refused and the error says all of this.
#[track_caller]
fn refused<const N: usize>(client: &mut Stdio, arguments: Value, says: [&str; N]) {
    let said = client.failure("fabric_run_pattern", arguments, "invalid-request");
    expect::contains(said, says);
}

fn ran(client: &mut Stdio, arguments: Value) -> Vec<String> {
    let data = client.success("fabric_run_pattern", arguments);
    let warnings = data["warnings"].as_array().cloned().unwrap_or_default();
    let text = |warning: &Value| warning.as_str().unwrap().to_owned();
    warnings.iter().map(text).collect()
}

/// A run of `ai` with these arguments.
fn ai(more: Value) -> Value {
    extended(json!({"pattern_name": "ai", "input_text": "x"}), more)
}

#[test]
fn contexts_and_sessions_are_listed() {
    let (fabric, mut client) = ready();
    let sessions = Reply::json(json!(["talk", "old talk"]));
    fabric.on("GET /sessions/names", sessions);
    let data = client.success("fabric_list_contexts", json!({}));
    let expected = json!({"contexts": ["work"], "sessions": ["old talk", "talk"]});
    assert_eq!(data, expected);
    fabric.on("GET /sessions/names", Reply::json(Value::Null));
    let path = format!("open {}", fixtures::HOST_PATH);
    let broken = Reply::failure(500, json!({"error": path}));
    fabric.on("GET /contexts/names", broken);
    let result = client.call("fabric_list_contexts", json!({}));
    let data = expect::success(Era::NEWEST_LEGACY, &result);
    expect::includes(&data, json!({"contexts": [], "sessions": []}));
    expect::contains(&data["warnings"][0], ["Fabric has no contexts"]);
    expect::no_leak(&result.to_string());
    fabric.on("GET /contexts/names", Reply::failure(401, json!({})));
    client.failure("fabric_list_contexts", json!({}), "fabric-api-unauthorized");
}

#[test]
fn a_context_that_is_not_there_is_refused_and_a_new_session_begins() {
    let (fabric, mut client) = ready();
    let run = |context: &str| ai(json!({"context_name": context}));
    let says = [
        "`context_name`: Fabric has no context named \"wrok\". Did you mean \"work\"?",
        "Give one that fabric_list_contexts lists. Leave it out for none or the default. Nothing",
    ];
    refused(&mut client, run("wrok"), says);
    fabric.expect_chats(0);
    assert_eq!(ran(&mut client, run("work")), [""; 0]);
    // A recently stored one is found.
    fabric.on("GET /contexts/names", Reply::json(json!(["work", "new"])));
    assert_eq!(ran(&mut client, run("new")), [""; 0]);
    // An unavailable list is no reason to refuse.
    fabric.on("GET /contexts/names", Reply::failure(404, json!("x")));
    assert_eq!(ran(&mut client, run("newer")), [""; 0]);
    fabric.on("GET /sessions/names", Reply::json(json!(["talk"])));
    let run = |session: &str| ai(json!({"session_name": session}));
    assert_eq!(ran(&mut client, run("talk")), [""; 0]);
    let warnings = ran(&mut client, run("tolk"));
    let says = ["The session \"tolk\" is new", "mean \"talk\"?"];
    expect::contains(&warnings[0], says);
}

#[test]
fn a_strategy_that_is_not_there_is_refused() {
    let (fabric, mut client) = ready();
    let run = |strategy: &str| ai(json!({"strategy_name": strategy}));
    let says = "no strategy named \"selfrefin\". Did you mean \"self-refine\"? Give one that fabric_list_strategies lists";
    refused(&mut client, run("selfrefin"), [says]);
    let plan = ai(json!({"then": ["ai", {"pattern_name": "ai", "strategy_name": "cto"}]}));
    let says = ["`then[1].strategy_name`", "\"cot\""];
    refused(&mut client, plan, says);
    fabric.expect_chats(0);
    let new = json!([{"name": "new", "description": "", "prompt": ""}]);
    fabric.on("GET /strategies", Reply::json(new));
    ran(&mut client, run("new"));
}

#[test]
fn a_single_run_asks_for_models_only_when_it_failed() {
    let run = |model: &str, vendor: &str| ai(json!({"model_name": model, "vendor_name": vendor}));
    let model = "Fabric has no model named \"gpt-y\". Did you mean \"gpt-x\"? Give one that fabric_list_models lists.";
    let vendor = "Fabric has no vendor named \"OpenIA\". Did you mean \"OpenAI\"? Give one that fabric_list_models lists";
    let case = "Fabric has no vendor named \"openai\". Did you mean \"OpenAI\"?";
    let model_case =
        "Fabric has no model named \"GPT-X\" of the vendor OpenAI. Did you mean \"gpt-x\"?";
    for (run, says) in [
        (run("gpt-y", ""), model),
        (run("gpt-x", "OpenIA"), vendor),
        (run("gpt-x", "openai"), case),
        (run("GPT-X", "OpenAI"), model_case),
    ] {
        let (fabric, mut client) = ready();
        ran(&mut client, ai(json!({"model_name": "GPT-X"})));
        assert!(fabric.requests_of("GET /models/names").is_empty());
        fabric.wait_requests("GET /patterns/names", 1);
        fabric.forget();
        let error = Reply::sse().error("Error: could not find vendor.");
        fabric.once_run(error.complete());
        let said = client.failure("fabric_run_pattern", run, "fabric-api-error");
        expect::contains(&said, [says, "could not find vendor"]);
        let asked = ["models", "patterns"].map(|list| format!("GET /{list}/names"));
        assert_eq!(asked.map(|list| fabric.requests_of(&list).len()), [1, 1]);
    }
    let (fabric, mut client) = ready();
    let words = "Error: Requested Model = gpt-y\n Default Model = m\n Default Vendor = V.\n\ncould not find vendor";
    fabric.once_run(Reply::sse().error(words).complete());
    let said = client.failure("fabric_run_pattern", run("gpt-y", ""), "invalid-request");
    expect::contains(&said, [&format!("`model_name`: {model}")]);
    let (fabric, mut client) = ready();
    fabric.once_run(Reply::failure(429, json!("slow")).header("Retry-After", "2"));
    client.failure("fabric_run_pattern", run("gpt-y", ""), "fabric-api-error");
    let asked = fabric.requests_of("GET /models/names");
    assert!(asked.is_empty(), "Fabric has asked for patience");
}

#[test]
fn models_and_vendors_of_a_whole_plan_are_checked() {
    let (fabric, mut client) = ready();
    let plan = |model: &str, vendor: &str| {
        let step = json!({"pattern_name": "ai", "model_name": model, "vendor_name": vendor});
        ai(json!({"then": ["summarize", step]}))
    };
    let says = ["`then[1].model_name`: Fabric has no model", "llama3:8b"];
    refused(&mut client, plan("lama3:8b", ""), says);
    let says = ["`then[1].vendor_name`", "\"Ollama\""];
    refused(&mut client, plan("gpt-x", "Olama"), says);
    let first = ai(json!({"model_name": "nope-nope", "then": ["ai"]}));
    let says = "`model_name`: Fabric has no model named \"nope-nope\"";
    refused(&mut client, first, [says]);
    fabric.expect_chats(0);
    let asked = || fabric.requests_of("GET /models/names").len();
    assert_eq!(asked(), 1, "once in 5 s");
    fabric.forget();
    ran(&mut client, plan("gpt-x", "openai"));
    fabric.expect_chats(3);
    assert_eq!(asked(), 0, "they are known");
}

#[test]
fn models_that_cannot_be_listed_do_not_stop_a_plan() {
    let (fabric, mut client) = ready();
    fabric.on("GET /models/names", Reply::failure(500, json!("x")));
    let plan = ai(json!({"model_name": "m", "then": ["Ai", "Ai"]}));
    let warnings = ran(&mut client, plan);
    assert_eq!(warnings.len(), 2, "each is said once");
    expect::contains(&warnings[1], ["not checked before the run"]);
}

#[test]
fn an_allowed_model_of_a_similar_name_is_taken_and_named() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--default-model gpt-x --allow-model gpt-x");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    let said = ran(&mut client, ai(json!({"model_name": "GPT X"})));
    expect::contains(&said[0], ["\"gpt-x\" was used instead"]);
    // What may not be run is not suggested.
    let other = ai(json!({"model_name": "llama3 8b", "then": ["ai"]}));
    let said = client.failure("fabric_run_pattern", other, "invalid-request");
    assert!(!said.contains("Did you mean"), "{said}");
}

#[test]
fn missing_variables_are_errors_before_a_run_and_unused_ones_warnings() {
    let (fabric, mut client) = ready();
    let run = |variables: Value| json!({"pattern_name": "write_letter", "input_text": "x", "variables": variables});
    let says = "`variables` lacks \" recipient \", which the pattern write_letter needs. Give variables {\" recipient \": \"…\", \"sender\": \"…\"}.";
    refused(&mut client, run(json!({"sender": "me"})), [says]);
    fabric.expect_chats(0);
    let all = json!({"sender": "me", " recipient ": "you", "extra": "x"});
    let unused = "The pattern write_letter has no variable \"extra\": its value was not used.";
    assert_eq!(ran(&mut client, run(all)), [unused]);
    fabric.expect_chats(1);
    // The pattern is unknown here, and Fabric is not asked.
    fabric.forget();
    ran(&mut client, run(json!({})));
    assert_eq!(fabric.routes(), ["POST /chat"]);
    // Fabric itself names only one.
    let both = "lacks \" recipient \" and \"sender\", which";
    let error = Reply::sse().error("Error: missing required variable: sender");
    fabric.once_run(error.complete());
    let mut wrong = run(json!({}));
    wrong["model_name"] = "gpt-y".into();
    refused(&mut client, wrong, [both, "no model named"]);
    fabric.forget();
    client.result("prompts/list", json!({}));
    refused(&mut client, run(json!({})), [both]);
    fabric.expect_chats(0);
    let error = client.error("prompts/get", json!({"name": "write_letter"}));
    assert!(error["message"].as_str().unwrap().contains(both), "{error}");
    // The pattern has changed since.
    fabric.text("write_letter", "Write.");
    ran(&mut client, run(json!({})));
}

#[test]
fn patterns_that_no_fabric_can_run_say_so() {
    let (fabric, mut client) = ready();
    let text = "Repair {{ title || 'none' }} and {{f(x)}} of {{name}}.";
    fabric.text("ai", text);
    let details = client.success("fabric_get_pattern_details", json!({"pattern_name": "ai"}));
    let expected = json!({"runnable": false, "variables": [], "system_prompt": text});
    expect::includes(&details, expected);
    let says = "no Fabric can run the pattern ai";
    expect::contains(&details["warnings"][0], [says]);
    let found = client.success("fabric_list_patterns", json!({"query": "ai"}));
    assert_eq!(found["matches"][0]["name"], "ai", "{found}");
    expect::contains(&found["warnings"], ["no Fabric can run"]);
    let prompts = client.result("prompts/list", json!({}));
    let mut prompts = prompts["prompts"].as_array().unwrap().iter();
    assert!(prompts.all(|prompt| prompt["name"] != "ai"));
    let error = client.error("prompts/get", json!({"name": "ai"}));
    assert_eq!(error["code"], -32602, "{error}");
    let says = format!("`pattern_name`: {says}");
    refused(&mut client, ai(json!({})), [&*says]);
    fabric.expect_chats(0);
}
