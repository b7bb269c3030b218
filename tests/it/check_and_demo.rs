//! `--check` and `--demo`: the output of the README's first command, and the findings of `--check`.

use serde_json::{Value, json};

use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, Era, expect};

#[test]
fn the_demo_checks_itself_and_shows_a_streamed_run() {
    let finished = Program::new(["--demo", "--check"]).run(DEADLINE);
    finished.expect_code(0);
    for word in ["pattern", "model", "strateg", "2026-07-28", "2025-11-25"] {
        finished.expect_stdout(word);
    }
    assert!(
        finished.stdout.lines().count() >= 6,
        "a readable report: {}",
        finished.stdout
    );
}

#[test]
fn the_check_reports_what_it_finds_and_starts_no_run() {
    let fabric = FakeFabric::start();
    fabric.require_key("canary-key");
    let finished = Program::with(&fabric)
        .arg("--check")
        .env("FABRIC_API_KEY", "canary-key")
        .run(DEADLINE);
    finished.expect_code(0).expect_stdout(&fabric.url());
    // 13 patterns, 3 models, 2 strategies.
    finished
        .expect_stdout("13")
        .expect_stdout("3")
        .expect_stdout("2");
    assert!(
        !finished.stdout.contains("canary") && !finished.stderr.contains("canary"),
        "{finished:?}"
    );
    fabric.expect_chats(0);
    assert!(
        fabric
            .requests()
            .iter()
            .all(|request| request.method == "GET"),
        "{:?}",
        fabric.routes()
    );
}

#[test]
fn the_check_fails_when_fabric_is_not_usable() {
    let fabric = FakeFabric::start();
    fabric.require_key("right");
    for key in ["", "wrong"] {
        let finished = Program::with(&fabric)
            .arg("--check")
            .env("FABRIC_API_KEY", key)
            .run(DEADLINE);
        finished.expect_code(1);
        assert!(
            format!("{}{}", finished.stdout, finished.stderr).contains("FABRIC_API_KEY"),
            "what to do: {finished:?}"
        );
    }
    let url = format!("http://127.0.0.1:{}", closed_port());
    let finished = Program::new(["--check"])
        .env("FABRIC_BASE_URL", &url)
        .run(DEADLINE);
    finished.expect_code(1);
    assert!(
        format!("{}{}", finished.stdout, finished.stderr).contains(&url),
        "{finished:?}"
    );
}

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
        assert!(
            text.contains("canary input"),
            "the dry run streams its prompt back: {text}"
        );
        let words = client.notes().len();
        assert!(words > 1, "it streams: {words} notifications");
        let missing = client.call(
            "fabric_run_pattern",
            json!({"pattern_name": "no such pattern"}),
        );
        expect::failure(era, &missing, "pattern-not-found");
    }
}

#[test]
fn two_demos_run_side_by_side() {
    let mut clients = [
        Stdio::speaking(Era::Modern, Program::new(["--demo"])),
        Stdio::speaking(Era::Modern, Program::new(["--demo"])),
    ];
    for client in &mut clients {
        client.success("fabric_list_patterns", json!({}));
    }
}
