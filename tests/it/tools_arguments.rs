//! Wrong arguments: each is refused before any request to Fabric, and the error names the field.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, ERAS, expect};

/// A tool, arguments that it must refuse, and the field that the error must name.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    const RUN: &str = "fabric_run_pattern";
    const DETAILS: &str = "fabric_get_pattern_details";
    let mut rows = Vec::new();
    for name in [
        json!(""),
        json!("../up"),
        json!("a\nb"),
        json!(5),
        Value::Null,
    ] {
        rows.push((DETAILS, json!({"pattern_name": name}), "pattern_name"));
        rows.push((RUN, json!({"pattern_name": name}), "pattern_name"));
    }
    let run = |field: &'static str, value: Value| {
        (RUN, json!({"pattern_name": "ai", field: value}), field)
    };
    rows.extend([
        (DETAILS, json!({}), "pattern_name"),
        (RUN, json!({}), "pattern_name"),
        (
            RUN,
            json!({"pattern_name": "ai", "no_such_field": 1}),
            "no_such_field",
        ),
        (DETAILS, json!({"pattern_name": "ai", "name": "x"}), "name"),
        ("fabric_list_models", json!({"x_field": 1}), "x_field"),
        ("fabric_list_patterns", json!({"query": 5}), "query"),
        ("fabric_list_patterns", json!({"limit": -1}), "limit"),
        run("input_text", json!(5)),
        run("stream", json!("yes")),
        run("search", json!("yes")),
        run("model_name", json!("a\nb")),
        run("vendor_name", json!("a\u{1b}[0m")),
        run("language", json!(5)),
        run("temperature", json!(2.01)),
        run("temperature", json!("0.5")),
        run("top_p", json!(1.01)),
        run("presence_penalty", json!(2.01)),
        run("frequency_penalty", json!(2.01)),
        run("thinking", json!("banana")),
        run("variables", json!(["a"])),
        run("variables", json!({"lang": 5})),
        run(
            "variables",
            json!({"lang": "{{plugin:sys:env:OPENAI_API_KEY}}"}),
        ),
        run("variables", json!({"lang": "ok {{"})),
        run("variables", json!({"{{x": "v"})),
        run("attachments", json!("a.txt")),
    ]);
    rows
}

#[test]
fn wrong_arguments_are_refused_by_name_in_each_revisions_way() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        client.process.wait_stderr("onnected to Fabric API");
        fabric.forget();
        for (tool, arguments, field) in refused() {
            let answer =
                client.request("tools/call", json!({"name": tool, "arguments": arguments}));
            let shown = format!("{era:?} {tool} {arguments} → {answer}");
            let text = if era.from("2025-11-25") {
                expect::failure(era, &answer["result"], "invalid-request")
            } else {
                let error = &answer["error"];
                assert_eq!(error["code"], -32602, "{shown}");
                assert_eq!(
                    error["data"]["type"], "urn:fabric-mcp:error:invalid-request",
                    "{shown}"
                );
                expect::error_object(&error["data"]);
                error["message"].as_str().unwrap_or("").to_owned()
            };
            assert!(
                text.contains(field),
                "the refusal must name `{field}`: {shown}"
            );
        }
        assert_eq!(
            fabric.routes(),
            Vec::<String>::new(),
            "Fabric must hear of none of it"
        );
        client.expect_nothing_else();
    }
}

#[test]
fn a_refusal_never_repeats_a_secret_looking_value() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let arguments = json!({"pattern_name": "ai", "variables": {"k": "{{canary-value}}"}});
    let result = client.call("fabric_run_pattern", arguments);
    assert_eq!(result["isError"], true);
    assert!(
        !result.to_string().contains("canary-value") && !client.stderr().contains("canary-value"),
        "{result}"
    );
}
