//! Every tool, prompt and resource against a real `fabric --serve`. Ignored by default:
//!
//! ```text
//! FABRIC_MCP_LIVE_URL=http://127.0.0.1:8080 FABRIC_API_KEY=… cargo test --locked -- --ignored live
//! ```
//!
//! They run the pattern `FABRIC_MCP_LIVE_PATTERN` (default `summarize`) with Fabric's default model: use one that costs
//! nothing. Only the test of templates writes, a single pattern, into the folder
//! `FABRIC_MCP_LIVE_PATTERNS`.

use serde_json::{Value, json};

use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, Era, expect};

/// The program in front of the real Fabric.
fn program() -> Program {
    let url = std::env::var("FABRIC_MCP_LIVE_URL")
        .expect("FABRIC_MCP_LIVE_URL is where fabric --serve listens");
    let key = std::env::var("FABRIC_API_KEY").unwrap_or_default();
    Program::new([])
        .env("FABRIC_BASE_URL", &url)
        .env("FABRIC_API_KEY", &key)
}

fn pattern() -> String {
    std::env::var("FABRIC_MCP_LIVE_PATTERN").unwrap_or_else(|_| "summarize".to_owned())
}

fn ready(era: Era) -> Stdio {
    Stdio::speaking(era, program())
}

/// The data of a tool's success, in the modern era.
#[track_caller]
fn data(client: &mut Stdio, tool: &str, arguments: Value) -> Value {
    client.success(tool, arguments)
}

fn names(list: &Value) -> Vec<&str> {
    let names = list.as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_check_finds_nothing_wrong() {
    let finished = program().flags("--check --json").run(DEADLINE);
    finished.expect_code(0);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(report["fabric"]["patterns"].as_u64() > Some(0), "{report}");
    eprintln!("{report:#}");
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_tools_that_read() {
    let mut client = ready(Era::MODERN);
    let listed = data(&mut client, "fabric_list_patterns", json!({}));
    let all = names(&listed["patterns"]);
    let is_so = all.contains(&pattern().as_str()) && all.is_sorted();
    assert!(is_so, "{all:?}");
    let arguments = json!({"query": pattern(), "limit": 3});
    let found = data(&mut client, "fabric_list_patterns", arguments);
    assert_eq!(found["matches"][0]["name"], pattern(), "{found}");

    let details = data(
        &mut client,
        "fabric_get_pattern_details",
        json!({"pattern_name": pattern()}),
    );
    assert_eq!(details["name"], pattern().as_str());
    let is_so = details["system_prompt"].as_str();
    let is_so = is_so.is_some_and(|text| !text.is_empty());
    assert!(is_so, "{details}");

    let models = data(&mut client, "fabric_list_models", json!({}));
    assert!(models["models_by_vendor"].is_object(), "{models}");
    let strategies = data(&mut client, "fabric_list_strategies", json!({}));
    for strategy in strategies["strategies"].as_array().unwrap() {
        let arguments = json!({"strategy_name": strategy["name"]});
        let one = data(&mut client, "fabric_list_strategies", arguments);
        let is_so = one["strategies"][0]["prompt"].is_string();
        assert!(is_so, "{one}");
    }
    let configuration = data(&mut client, "fabric_get_configuration", json!({}));
    for (name, value) in configuration.as_object().unwrap() {
        let value = value.as_str().unwrap_or_default();
        let safe = value.is_empty()
            || value == "[REDACTED_BY_MCP_SERVER]"
            || ["true", "false"].contains(&value)
            || value.starts_with("http");
        assert!(safe, "{name} is not redacted");
    }
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_every_pattern_can_be_described() {
    let mut client = ready(Era::MODERN);
    let listed = data(&mut client, "fabric_list_patterns", json!({}));
    for name in names(&listed["patterns"]) {
        let arguments = json!({"pattern_name": name});
        let details = data(&mut client, "fabric_get_pattern_details", arguments);
        let is_so = details["description"].is_string() && details["variables"].is_array();
        assert!(is_so, "{name}: {details}");
    }
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_run_in_every_revision() {
    for era in ERAS {
        let mut client = ready(era);
        let arguments = json!({"pattern_name": pattern(), "input_text": "Two and two are four."});
        let result = client.call("fabric_run_pattern", arguments);
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let is_so = result["isError"] != true && !text.is_empty();
        assert!(is_so, "{era:?}: {result}");
    }
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_streamed_run() {
    let mut client = ready(Era::MODERN);
    let arguments =
        json!({"pattern_name": pattern(), "input_text": "Two and two are four.", "stream": true});
    let id = client.begin_call("fabric_run_pattern", arguments, Some(json!("live")));
    let answer = client.answer(&id);
    let run = expect::success(Era::MODERN, &answer["result"]);
    let whole = run["output_text"].as_str().unwrap().to_owned();
    let notes = client.notes();
    let texts = notes.iter().map(|note| note["params"]["message"].as_str());
    assert_eq!(texts.flatten().collect::<String>(), whole);
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_prompts() {
    for era in ERAS {
        let mut client = ready(era);
        let listed = client.result("prompts/list", json!({}));
        let prompts = listed["prompts"].as_array().unwrap();
        let descriptions = prompts.iter().map(|prompt| prompt["description"].as_str());
        assert!(!descriptions.map(Option::unwrap).any(str::is_empty));
        let arguments = json!({"input_text": "Two and two are four."});
        let params = json!({"name": pattern(), "arguments": arguments});
        let prompt = client.result("prompts/get", params);
        let text = prompt["messages"][0]["content"]["text"]
            .as_str()
            .unwrap_or_default();
        assert!(text.contains("Two and two are four."), "{era:?}: {prompt}");
        let completed = client.result(
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": pattern()}, "argument": {"name": "strategy_name", "value": ""}}),
        );
        assert!(completed["completion"]["values"].is_array(), "{completed}");
    }
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_resources() {
    for era in ERAS {
        let mut client = ready(era);
        let templates = client.result("resources/templates/list", json!({}));
        let found = templates["resourceTemplates"].as_array().map(Vec::len);
        assert_eq!(found, Some(2), "{templates}");
        let listed = client.result("resources/list", json!({}));
        let resources = listed["resources"].as_array().unwrap();
        let kinds = ["fabric://pattern/", "fabric://strategy/"];
        for kind in kinds {
            let of_kind = resources
                .iter()
                .find(|resource| resource["uri"].as_str().unwrap().starts_with(kind));
            // A Fabric may have no strategies, but it has patterns.
            let Some(resource) = of_kind else {
                assert_ne!(kind, kinds[0], "{era:?}: {listed}");
                continue;
            };
            let read = client.result("resources/read", json!({"uri": resource["uri"]}));
            assert_eq!(read["contents"][0]["uri"], resource["uri"]);
            assert!(read["contents"][0]["text"].is_string(), "{read}");
        }
    }
}

/// Needs `FABRIC_MCP_LIVE_PATTERNS`, the folder of that Fabric's patterns: writes `fabric_mcp_live_attack` there.
#[test]
#[ignore = "needs a real Fabric"]
fn live_templates_run_nothing_of_the_callers() {
    const NAME: &str = "fabric_mcp_live_attack";
    let folder = std::env::var("FABRIC_MCP_LIVE_PATTERNS")
        .expect("FABRIC_MCP_LIVE_PATTERNS is Fabric's folder");
    let folder = std::path::Path::new(&folder).join(NAME);
    std::fs::create_dir_all(&folder).unwrap();
    let serve = |text: &str| std::fs::write(folder.join("system.md"), text).unwrap();
    serve("");
    let mut client = ready(Era::MODERN);
    let mut run = |text: &str, variables: &Value, input: &str| {
        serve(text);
        let run = json!({"pattern_name": NAME, "input_text": input, "variables": variables});
        client.call("fabric_run_pattern", run)
    };
    let attacks = super::templates::attacks();
    for (text, variables, input, named) in &attacks {
        let said = expect::failure(Era::MODERN, &run(text, variables, input), "invalid-request");
        assert!(said.contains(named), "{text}: {said}");
    }
    let json = r#"{"a": {"b": {} } }"#;
    for (text, variables, input) in [
        (
            "Say {{x}} {{y}}.",
            json!({"x": json, "y": "{ code }"}),
            "{{plugin:sys:env:HOME}}",
        ),
        ("{{{x}}}", json!({"x": "plain"}), "a {{{{input}}}}"),
        (
            "{{plugin:datetime:today}} {{x}}",
            json!({"x": json}),
            "{{x}}",
        ),
        ("{{{input}}}", json!({}), "{a}"),
    ] {
        let output =
            expect::success(Era::MODERN, &run(text, &variables, input))["output_text"].to_string();
        // The model echoes its prompt, which must contain the input unchanged.
        let part = json!(input).to_string();
        assert!(output.contains(part.trim_matches('"')), "{text}: {output}");
    }
    let params = json!({"name": NAME, "arguments": {"input_text": "{a}"}});
    let prompt = client.request("prompts/get", params);
    assert!(prompt["result"].is_object(), "{prompt}");
    eprintln!("{} attacks refused", attacks.len());
}
