//! `--check` and `--demo`: the output of the README's first command, and the findings of `--check`.

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, expect, extended};

#[test]
fn everything_works_with_the_demo() {
    for era in ERAS {
        let mut client = Stdio::speaking(era, Program::new(["--demo"]));
        let listed = client.success("fabric_list_patterns", json!({}));
        let names = listed["patterns"].as_array().unwrap();
        assert!(names.len() >= 3, "a handful of patterns: {names:?}");
        let mut plain = None;
        for name in names {
            let name = json!({"pattern_name": name});
            let details = client.success("fabric_get_pattern_details", name.clone());
            assert_ne!(details["description"].as_str().unwrap(), "", "{details}");
            plain = plain.or((details["variables"] == json!([])).then_some(name));
        }
        for (_, result) in client.call_every_tool() {
            expect::success(era, &result);
        }
        let video = json!({"url": "https://youtu.be/abc-DEF_123", "timestamps": true});
        let result = client.call("fabric_get_transcript", video);
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(said.starts_with("[00:00:00] Welcome."), "{said}");
        assert_eq!(said.lines().count(), 4, "{said}");
        let plain = plain.expect("a pattern without variables");
        let run = extended(plain, json!({"input_text": "canary input", "stream": true}));
        let id = client.begin_call("fabric_run_pattern", run, Some(json!(1)));
        // The demo streams its prompt back.
        let content = client.answer(&id)["result"]["content"].take();
        expect::contains(&content[0]["text"], ["canary input"]);
        let words = client.notes().len();
        assert!(words > 1, "it streams: {words} notifications");
        let unknown = json!({"pattern_name": "no such pattern"});
        client.failure("fabric_run_pattern", unknown, "pattern-not-found");
    }
}

#[test]
fn a_run_of_the_demo_says_that_there_is_no_model() {
    let arguments =
        r#"{"pattern_name":"summarize","model_name":"demo-dry-run","input_is_text":true}"#;
    let program = |json| {
        let program = Program::new(["--demo", "--call", "fabric_run_pattern", arguments]);
        match json {
            true => program.arg("--json").run(DEADLINE),
            false => program.run(DEADLINE),
        }
    };
    let said = program(false).stderr;
    let note = "This is the demo: it calls no model, ";
    assert!(said.starts_with(&format!("fabric-mcp: {note}")), "{said}");
    assert_eq!(said.matches(note).count(), 1, "once: {said}");
    let result: Value = serde_json::from_str(&program(true).stdout).unwrap();
    contains(result["warnings"].to_string(), [note]);
}
