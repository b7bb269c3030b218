//! Calls as weak models and people in a hurry make them: harmless differences are understood, everything else is answered
//! with all that must be changed, and nothing is paid for that cannot come out right.
//!
//! `calls.tsv`: a tool, arguments, and what must come of them: after `= ` what Fabric is sent or, where it runs nothing, what
//! the result has; otherwise what the refusal says, with ` | ` in between. `inputs.tsv`: short inputs that are the text
//! itself.

use serde_json::{Value, json};

use crate::support::Caller;
use crate::support::fabric::FakeFabric;
use crate::support::stdio::Stdio;

const RUN: &str = "fabric_run_pattern";

#[test]
fn wrong_calls_are_taken_or_answered_with_all_that_is_wrong_and_none_is_paid_for() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    client.result("prompts/list", json!({}));
    client.success("fabric_list_models", json!({}));
    client.result("prompts/get", json!({"name": "Extract Wisdom"}));
    let mut bad = Vec::new();
    let rows: Vec<&str> = include_str!("calls.tsv").lines().collect();
    assert_eq!(rows.len(), 120);
    for row in rows {
        let [tool, arguments, outcome]: [&str; 3] =
            row.splitn(3, '\t').collect::<Vec<_>>().try_into().unwrap();
        fabric.forget();
        let tool = match tool {
            "details" => "fabric_get_pattern_details",
            _ => RUN,
        };
        let arguments: Value = serde_json::from_str(arguments).expect(row);
        let result = client.call(tool, arguments);
        let said = result["content"][0]["text"].as_str().unwrap_or_default();
        let chats = fabric.chats();
        let is_right = match outcome.strip_prefix('=') {
            Some(expected) => {
                let expected: Value = serde_json::from_str(expected).unwrap_or(json!({}));
                let found = match tool {
                    RUN => chats
                        .last()
                        .map_or(&Value::Null, |chat| &chat["prompts"][0]),
                    _ => &result["structuredContent"],
                };
                let mut members = expected.as_object().unwrap().iter();
                result["isError"] == false
                    && found.is_object()
                    && members.all(|(name, value)| found[name] == *value)
            }
            None => {
                let mut words = outcome.split(" | ");
                result["isError"] == true
                    && chats.is_empty()
                    && words.all(|words| said.contains(words))
            }
        };
        if !is_right {
            bad.push(format!("{row}\n    {said}"));
        }
    }
    assert!(bad.is_empty(), "{} of 120:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn short_inputs_that_are_the_text_itself_are_run() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let mut refused = Vec::new();
    for input in include_str!("inputs.tsv").lines() {
        let input = input.replace("\\n", "\n");
        let result = client.call(RUN, json!({"pattern_name": "ai", "input_text": input}));
        if result["isError"] == true {
            refused.push(format!("{input}: {}", result["content"][0]["text"]));
        }
    }
    assert!(refused.len() <= 2, "{}", refused.join("\n"));
    fabric.expect_chats(200 - refused.len());
}
