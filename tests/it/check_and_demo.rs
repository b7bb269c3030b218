//! `--check` and `--demo`: the output of the README's first command, and the findings of `--check`.

use serde_json::{Value, json};

use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, ERAS, expect};

#[test]
fn everything_works_with_the_demo() {
    for era in ERAS {
        let mut client = Stdio::speaking(era, Program::new(["--demo"]));
        let listed = client.call("fabric_list_patterns", json!({}));
        let listed: Value =
            serde_json::from_str(listed["content"][0]["text"].as_str().unwrap()).unwrap();
        let names: Vec<&str> = listed["patterns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert!(names.len() >= 3, "a handful of patterns: {names:?}");
        for name in &names {
            let result = client.call("fabric_get_pattern_details", json!({"pattern_name": name}));
            let details = expect::success(era, &result);
            assert!(
                details["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{details}"
            );
        }
        for tool in [
            "fabric_list_models",
            "fabric_list_strategies",
            "fabric_get_configuration",
        ] {
            client.success(tool, json!({}));
        }
        let video = json!({"url": "https://youtu.be/abc-DEF_123", "timestamps": true});
        let result = client.call("fabric_get_transcript", video);
        expect::success(era, &result);
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(
            said.starts_with("[00:00:00] Welcome.") && said.lines().count() == 4,
            "{said}"
        );
        let plain = names.iter().find(|name| {
            let details = client.call("fabric_get_pattern_details", json!({"pattern_name": name}));
            let text = details["content"][0]["text"].as_str().unwrap_or("");
            serde_json::from_str::<Value>(text)
                .is_ok_and(|details| details["variables"] == json!([]))
        });
        let plain = plain.expect("a pattern without variables");
        let arguments =
            json!({"pattern_name": plain, "input_text": "canary input", "stream": true});
        let id = client.begin_call("fabric_run_pattern", arguments, Some(json!(1)));
        let answer = client.answer(&id);
        let text = answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        expect::contains(&text, ["canary input"]);
        let words = client.notes().len();
        assert!(words > 1, "it streams: {words} notifications");
        let missing = client.call(
            "fabric_run_pattern",
            json!({"pattern_name": "no such pattern"}),
        );
        expect::failure(era, &missing, "pattern-not-found");
    }
}
