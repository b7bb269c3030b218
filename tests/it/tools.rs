//! The tools with a well-behaved Fabric: exact results, exact requests.

use serde_json::{Value, json};

use crate::support::expect::{self, contains};
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::{Caller, DEADLINE, ERAS, Era};

#[test]
fn every_tool_answers_in_every_revision() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        for (tool, result) in client.call_every_tool() {
            let data = expect::success(era, &result);
            let text = result["content"][0]["text"].as_str().unwrap();
            match tool.as_str() {
                "fabric_run_pattern" | "fabric_get_run" | "fabric_cancel_run" => {
                    assert_eq!(text, "Ran summarize on: a")
                }
                "fabric_get_transcript" => assert!(text.starts_with("Said in pt-BR"), "{text}"),
                _ => assert_eq!(
                    serde_json::from_str::<Value>(text).unwrap(),
                    data,
                    "{era:?} {tool}"
                ),
            }
        }
    }
}

#[test]
fn patterns_are_sorted_and_can_be_searched() {
    let (fabric, mut client) = ready();
    let all = client.success("fabric_list_patterns", json!({}));
    let sorted = fixtures::sorted_names();
    let expected = json!({"patterns": sorted});
    assert_eq!(all, expected, "no matches without a query");
    let mut listed = |arguments: Value| client.success("fabric_list_patterns", arguments);
    let mut list = |arguments: Value| listed(arguments)["patterns"].take();
    assert_eq!(list(json!({"limit": 2})), json!(sorted[..2]));
    for empty in ["", "  "] {
        assert_eq!(list(json!({"query": empty})), json!(sorted));
    }
    for (query, first) in [
        ("shortened texts", "summarize"),
        ("minutes of a MEETING", "summarize_meeting"),
        ("ÜBERBLICK", "überblick für alle"),
        ("sumarize", "summarize"),
        ("evidence", "analyze_claims"),
    ] {
        let found = listed(json!({"query": query, "limit": 1}));
        assert_eq!(found["matches"][0]["name"], first, "{query}: {found}");
        assert_eq!(found["matches"][1], Value::Null, "{query}: {found}");
    }
    let mut list = |arguments: Value| listed(arguments)["patterns"].take();
    for empty in [Value::Null, json!([])] {
        fabric.names(empty);
        assert_eq!(list(json!({})), json!([]));
    }
    let none = client.success("fabric_list_patterns", json!({}));
    contains(&none["warnings"][0], ["`fabric --updatepatterns`."]);
}

#[test]
fn details_have_the_purpose_and_variables_of_a_pattern() {
    let (_fabric, mut client) = ready();
    let summarize = json!({"name": "summarize", "description": "Summarize any text: one sentence, ten main points, five takeaways.",
        "system_prompt": fixtures::text("summarize"), "user_prompt_template": "", "tags": [], "variables": []});
    let letter = json!({"variables": [" recipient ", "sender"]});
    let says = |description| json!({"description": description});
    for (name, expected) in [
        ("summarize", summarize),
        // `input` is not a variable, nor are plugins and extensions.
        ("translate", json!({"variables": ["lang_code"]})),
        ("plugins", json!({"variables": []})),
        // Fabric looks a variable up by everything between the braces, including blanks.
        ("write_letter", letter),
        ("create_diagram", says("Draw a graph of what you read.")),
        ("empty", json!({"system_prompt": ""})),
        ("überblick für alle", says("Du gibst einen Überblick.")),
    ] {
        let arguments = json!({"pattern_name": name});
        let details = client.success("fabric_get_pattern_details", arguments);
        expect::includes(&details, expected);
        assert_eq!(details.as_object().unwrap().len(), 6, "{details}");
    }
}

#[test]
fn an_empty_list_of_models_is_asked_for_again_while_fabric_may_still_be_asking() {
    let (fabric, mut client) = ready();
    for _ in 0..2 {
        let none = json!({"models": null, "vendors": {}});
        fabric.once("GET /models/names", Reply::json(none));
    }
    let models = client.success("fabric_list_models", json!({}));
    assert_eq!(models["models_by_vendor"], fixtures::models()["vendors"]);
    let some = client.success("fabric_list_models", json!({"query": "Llama/x Meta"}));
    let expected = json!({"Ollama": ["meta-llama/x"]});
    assert_eq!(some["models_by_vendor"], expected);
    let none = client.success("fabric_list_models", json!({"query": "zz"}));
    expect::contains(&none["warnings"][0], ["has the query in it"]);
    fabric.wait_requests("GET /models/names", 3);
}

#[test]
fn the_configuration_is_redacted_by_default() {
    let (fabric, mut client) = ready();
    let result = client.call("fabric_get_configuration", json!({}));
    let config = expect::success(Era::NEWEST_LEGACY, &result);
    expect::no_leak(&result.to_string());
    for (key, value) in fixtures::config_kept().as_object().unwrap() {
        assert_eq!(&config[key], value, "`{key}` is harmless");
    }
    for (key, value) in fixtures::config().as_object().unwrap() {
        let kept = fixtures::config_kept();
        if value.as_str().is_some_and(|text| !text.is_empty()) && kept.get(key).is_none() {
            let hidden = config[key].as_str().unwrap_or("");
            let cut = key == "azure" && hidden == "https://models.example";
            let is_so = cut || hidden == "[REDACTED_BY_MCP_SERVER]";
            assert!(is_so, "`{key}`: {hidden:?}");
        }
    }
    let is_so = !result.to_string().contains("40711040711");
    assert!(is_so, "a number may be a secret too: {result}");
    // It is asked for at most once in 5 s.
    fabric.on("GET /config", Reply::json(json!({})));
    let found = client.success("fabric_get_configuration", json!({}));
    assert_eq!(found, config);
    let (fabric, mut client) = ready();
    fabric.on("GET /config", Reply::json(json!({})));
    let found = client.success("fabric_get_configuration", json!({}));
    assert_eq!(found, json!({}));
}

#[test]
fn a_run_sends_exactly_its_arguments_to_fabric() {
    let (fabric, mut client) = ready();
    let more = json!({"pattern_name": "ai", "input_text": "", "input_is_text": true});
    let got = client.success("fabric_run_pattern", more);
    let output = json!({"output_text": "Ran ai on: ", "output_format": "markdown"});
    expect::includes(&got, output);
    let usage = json!({"input_tokens": 6, "output_tokens": 8, "total_tokens": 14});
    assert_eq!(got["usage"], usage);
    let chat = fabric.chats().remove(0);
    let prompts = json!([{"userInput": "", "vendor": "", "model": "", "contextName": "", "patternName": "ai",
                          "strategyName": "", "sessionName": "", "variables": {}}]);
    assert_eq!(chat["prompts"], prompts, "{chat}");
    expect::includes(&chat, json!({"temperature": 0.7, "topP": 0.9}));
    assert!(chat.get("attachments").is_none(), "{chat}");

    let input = "Code {{plugin:sys:env:HOME}} and {{x}} \u{1f600}\n\t\0 \"quoted\"";
    let arguments = json!({
        "pattern_name": "überblick für alle", "input_text": input, "model_name": "meta-llama/x:8b",
        "vendor_name": "Ollama", "strategy_name": "cot", "context_name": "work", "session_name": "Mein Tag 1",
        "language": "de", "variables": {"lang_code": "de", "empty": ""}, "temperature": 0, "top_p": 1,
        "presence_penalty": -2, "frequency_penalty": 2, "thinking": "high", "search": true
    });
    client.success("fabric_run_pattern", arguments);
    let chat = fabric.chats().remove(1);
    let prompts = json!([{"userInput": input, "vendor": "Ollama", "model": "meta-llama/x:8b", "contextName": "work",
                          "patternName": "überblick für alle", "strategyName": "cot", "sessionName": "Mein Tag 1",
                          "variables": {"lang_code": "de", "empty": ""}}]);
    assert_eq!(chat["prompts"], prompts, "{chat}");
    let rest = ["language", "thinking", "search"].map(|name| chat[name].clone());
    assert_eq!(rest, [json!("de"), json!("high"), json!(true)], "{chat}");
    let numbers = ["temperature", "topP", "presencePenalty", "frequencyPenalty"]
        .map(|name| chat[name].as_f64());
    let expected = [Some(0.0), Some(1.0), Some(-2.0), Some(2.0)];
    assert_eq!(numbers, expected, "{chat}");
    let request = fabric.requests_of("POST /chat").remove(0);
    let media = request.header("content-type").unwrap();
    assert!(media.starts_with("application/json"), "{request:?}");
    assert!(request.header("x-api-key").is_none(), "no key was given");
}

#[test]
fn the_call_wins_then_the_patterns_model_then_the_default() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .env("FABRIC_MODEL_LAB_FLOUNCE", "V|theirs")
        .flags("--default-model small --default-language de --pattern-model ai=W|ours");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    let no_model = json!({"pattern_name": "lab-flounce", "input_text": "x"});
    let model =
        json!({"pattern_name": "ai", "model_name": "large", "language": "fr", "input_text": "x"});
    let plain = |pattern: &str| json!({"pattern_name": pattern, "input_text": "x"});
    for (arguments, vendor, model, language) in [
        (plain("ai"), "W", "ours", "de"),
        (no_model, "V", "theirs", "de"),
        (plain("summarize"), "", "small", "de"),
        (model, "", "large", "fr"),
    ] {
        fabric.forget();
        client.call("fabric_run_pattern", arguments);
        let chat = fabric.chats().remove(0);
        let prompt = &chat["prompts"][0];
        assert_eq!(
            (&prompt["vendor"], &prompt["model"], &chat["language"]),
            (&json!(vendor), &json!(model), &json!(language)),
            "{chat}"
        );
    }
}

#[test]
fn the_key_is_sent_with_every_request_and_a_missing_one_reported() {
    let fabric = FakeFabric::start();
    fabric.require_key("canary-key");
    let with = |key| Program::with(&fabric).env("FABRIC_API_KEY", key);
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, with("canary-key"));
    client.success("fabric_list_patterns", json!({}));
    let arguments = json!({"pattern_name": "ai", "input_text": "x"});
    client.success("fabric_run_pattern", arguments);
    for request in fabric.requests() {
        assert_eq!(request.header("x-api-key"), Some("canary-key"));
    }
    for wrong in ["", "wrong"] {
        let mut client = Stdio::speaking(Era::NEWEST_LEGACY, with(wrong));
        let text = client.failure("fabric_list_patterns", json!({}), "fabric-api-unauthorized");
        assert!(text.contains("FABRIC_API_KEY"), "what to do: {text}");
    }
}

#[test]
fn attachments_are_refused_unless_nothing_is_paid_for_them() {
    let (fabric, mut client) = ready();
    let run = json!({"pattern_name": "ai", "input_text": "x", "attachments": ["a.txt"]});
    let said = client.failure("fabric_run_pattern", run.clone(), "invalid-request");
    expect::contains(said, ["`attachments`", "input_text", "Nothing was run."]);
    fabric.expect_chats(0);
    for free in ["dry_run", "input_is_text"] {
        let mut run = run.clone();
        run[free] = json!(true);
        let done = client.success("fabric_run_pattern", run);
        expect::contains(&done["warnings"], ["`attachments`"]);
    }
    assert!(fabric.chats()[0].get("attachments").is_none());
}

#[test]
fn create_coding_feature_is_refused_unless_allowed() {
    let arguments = json!({"pattern_name": "create_coding_feature", "input_text": "x"});
    let (fabric, mut client) = ready();
    let text = client.failure("fabric_run_pattern", arguments.clone(), "invalid-request");
    assert!(text.contains("--allow-pattern"), "the way out: {text}");
    fabric.expect_chats(0);
    for then in [json!([]), json!(["ai"])] {
        let wrong =
            json!({"pattern_name": "create_codng_feature", "input_text": "x", "then": then});
        let text = client.failure("fabric_run_pattern", wrong, "pattern-not-found");
        assert!(!text.contains("create_coding_feature"), "{text}");
    }
    let program = Program::with(&fabric).flags("--allow-pattern create_coding_feature");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    fabric.forget();
    client.success("fabric_run_pattern", arguments);
    fabric.expect_chats(1);
}

#[test]
fn a_long_prompt_comes_in_parts_unless_all_is_asked_for() {
    let fabric = FakeFabric::start();
    let text = "é".repeat(8000) + "the rest";
    fabric.text("ai", &text);
    let mut client = Stdio::ready(&fabric);
    let mut details = |mut arguments: Value| {
        arguments["pattern_name"] = "ai".into();
        client.success("fabric_get_pattern_details", arguments)
    };
    let start = details(json!({}));
    assert_eq!(start["system_prompt"], "é".repeat(8000));
    expect::includes(&start, json!({"total_chars": 8008, "next_offset": 8000}));
    contains(&start["warnings"][0], ["again with offset 8000"]);
    let rest = details(json!({"offset": 8000}));
    let end = json!({"system_prompt": "the rest", "total_chars": 8008});
    expect::includes(&rest, end);
    let beyond = details(json!({"offset": 9000}));
    contains(&beyond["warnings"][0], ["nothing at this offset", "8008"]);
    let whole = details(json!({"max_chars": 9000}));
    assert_eq!(whole["system_prompt"], text);
    for (part, name) in [
        (&rest, "next_offset"),
        (&rest, "warnings"),
        (&whole, "total_chars"),
    ] {
        assert_eq!(part[name], Value::Null, "{name}");
    }
    // From the shell and as a resource, it is whole.
    let program = Program::with(&fabric)
        .flags("--call fabric_get_pattern_details")
        .arg(r#"{"pattern_name":"ai"}"#);
    let printed: Value = serde_json::from_str(&program.run(DEADLINE).stdout).unwrap();
    assert_eq!(printed["system_prompt"], text);
    let resource = client.result("resources/read", json!({"uri": "fabric://pattern/ai"}));
    assert!(resource.to_string().contains(&text));
}
