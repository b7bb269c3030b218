//! Calls as weak models and people in a hurry make them: harmless differences are understood, everything else is
//! answered with all that must be changed, and a run that cannot succeed is never paid for.
//!
//! `calls.tsv`: a tool, arguments, and what must come of them: after `= ` what Fabric is sent or, where it runs nothing, what
//! the result has; otherwise what the refusal says, with ` | ` in between. `inputs.tsv`: short inputs that are the text
//! itself. `tools.tsv`: names that no tool has, and what is told: a free call is never sent to the tool that costs money.

use serde_json::{Value, json};

use crate::support::Caller;
use crate::support::stdio::ready;

const RUN: &str = "fabric_run_pattern";

#[test]
fn wrong_calls_are_taken_or_answered_with_all_that_is_wrong_and_none_is_paid_for() {
    let (fabric, mut client) = ready();
    client.result("prompts/list", json!({}));
    client.success("fabric_list_models", json!({}));
    client.result("prompts/get", json!({"name": "Extract Wisdom"}));
    let tools = include_str!("tools.tsv").lines();
    for (called, told) in tools.filter_map(|row| row.split_once('\t')) {
        let error = client.error("tools/call", json!({"name": called}));
        assert!(error.to_string().contains(told), "{error}");
    }
    let mut bad = Vec::new();
    let rows: Vec<&str> = include_str!("calls.tsv").lines().collect();
    assert_eq!(rows.len(), 169);
    for row in rows {
        let [tool, arguments, outcome]: [&str; 3] =
            row.splitn(3, '\t').collect::<Vec<_>>().try_into().unwrap();
        fabric.forget();
        let tool = match tool {
            "details" => "fabric_get_pattern_details",
            "strategies" => "fabric_list_strategies",
            "transcript" => "fabric_get_transcript",
            _ => RUN,
        };
        let arguments: Value = serde_json::from_str(arguments).expect(row);
        let result = client.call(tool, arguments.clone());
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
        if result["isError"] == true && tool == RUN {
            let next = corrected(arguments, said);
            let result = client.call(tool, next.clone());
            if result["isError"] == true {
                let again = &result["content"][0]["text"];
                bad.push(format!("{row}\n    {said}\n    {next}\n    {again}"));
            }
        }
    }
    assert!(bad.is_empty(), "{} of 169:\n{}", bad.len(), bad.join("\n"));
}

/// The call that a refused one becomes if all is done that the answer says: arguments are renamed as suggested, what is wrong
/// is replaced by what is suggested or left out, and the input is a text.
fn corrected(mut call: Value, said: &str) -> Value {
    for part in said.split("? ").flat_map(|part| part.split(". ")) {
        let mut parts = part.splitn(3, '`').skip(1);
        let (Some(path), Some(rest)) = (parts.next(), parts.next()) else {
            continue;
        };
        // What stands in a wrapper goes with it.
        if rest.starts_with(" is missing") || path.starts_with("options.") {
            continue;
        }
        let (object, name) = match path.rsplit_once('.') {
            None => (&mut call, path),
            Some(("input_from", name)) => (&mut call["input_from"], name),
            Some((_, name)) => (&mut call["then"][0], name),
        };
        let object = object.as_object_mut().unwrap();
        let value = object.remove(name).unwrap_or_default();
        if rest.contains("\"lang_code\"") {
            object.insert("variables".to_owned(), json!({"lang_code": "de"}));
        } else if let Some((_, meant)) = rest.split_once("did you mean ") {
            let meant = meant.split([' ', ',', '?']).next().unwrap();
            object.insert(meant.to_owned(), value);
        } else if let Some((_, meant)) = part.split_once("Did you mean \"") {
            object.insert(name.to_owned(), meant.split('"').next().into());
        }
    }
    let usual = ["ai", "translate"][usize::from(call["variables"].is_object())];
    if call["pattern_name"].as_str().is_none_or(str::is_empty) {
        call["pattern_name"] = json!(usual);
    }
    let has_source = match &call["input_from"] {
        Value::String(text) => !text.is_empty(),
        from => from.as_object().is_some_and(|from| !from.is_empty()),
    };
    if !has_source && (said.contains("input_text") || call["input_text"].is_null()) {
        call["input_text"] = json!("the text itself");
    }
    call
}

#[test]
fn short_inputs_that_are_the_text_itself_are_run() {
    let (fabric, mut client) = ready();
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
