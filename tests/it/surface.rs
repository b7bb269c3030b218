//! What is offered: `--read-only`, `--tool` and `--prompt none`. What is not offered is refused, not only hidden.

use serde_json::{Value, json};

use crate::support::expect::{contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::transports::{self, Wire};
use crate::support::{DEADLINE, Era, names};
use crate::tasks::knowing;

const RUN: &str = "fabric_run_pattern";

#[test]
fn what_is_not_offered_is_neither_listed_nor_called() {
    for wire in [Wire::Stdio, Wire::Streamable] {
        for (flags, hidden) in [
            ("--tool fabric_run_pattern", "fabric_list_models"),
            ("--read-only --tool fabric_list_models", RUN),
        ] {
            let flags = &format!("--tool fabric_list_patterns {flags}");
            let fabric = FakeFabric::start();
            let program = Program::with(&fabric).flags(flags);
            let mut client = transports::open(wire, Era::MODERN, program, None);
            let list = client.ask("tools/list", knowing(json!({})))["result"]["tools"].take();
            let offered = names(&list);
            assert_eq!(offered.len(), 2, "{flags}: {offered:?}");
            assert!(!offered.contains(&hidden), "{flags}: {offered:?}");
            let told = client.ask("server/discover", knowing(json!({})));
            let told = told["result"]["instructions"].as_str().unwrap().to_owned();
            let only = format!("this server offers only {}.", offered.join(", "));
            assert!(told.ends_with(&only), "{told}");
            let call = json!({"name": hidden, "arguments": {"pattern_name": "summarize", "input_text": "x"}});
            let error = client.ask("tools/call", knowing(call))["error"].take();
            let message = format!(
                "There is no tool \"{hidden}\": the tools are {}.",
                offered.join(", ")
            );
            includes(&error, json!({"code": -32602, "message": message}));
            fabric.expect_chats(0);
            if hidden != RUN {
                let wrong =
                    json!({"pattern_name": "summarize", "input_text": "x", "strategy_name": "zz"});
                let said = client.failure(RUN, wrong, "invalid-request");
                let is_told = said.contains("named \"zz\". It has: \"cot\"");
                assert!(is_told && !said.contains("fabric_list"), "{said}");
                let cut = json!({"pattern_name": "summarize", "input_text": "x", "max_chars": 1});
                let cut = client.success(RUN, cut)["warnings"].to_string();
                assert!(
                    cut.contains("cut the output") && !cut.contains("fabric_get_run"),
                    "{cut}"
                );
            }
        }
    }
}

#[test]
fn a_read_only_server_shows_the_prompts_of_runs_and_makes_none() {
    for wire in [Wire::Stdio, Wire::Streamable] {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).flags("--read-only");
        let mut client = transports::open(wire, Era::R2025_11_25, program.clone(), None);
        let run = json!({"pattern_name": "summarize", "input_text": "x"});
        let task = json!({"name": RUN, "arguments": run, "task": {}});
        let answer = client.ask("tools/call", task);
        assert_eq!(answer["error"]["code"], -32601, "no task: {answer}");
        let mut client = transports::open(wire, Era::MODERN, program, None);
        let list = client.ask("tools/list", knowing(json!({})))["result"]["tools"].take();
        let mut tools = list.as_array().unwrap().iter();
        let tool = tools.find(|tool| tool["name"] == RUN).unwrap();
        let description = tool["description"].as_str().unwrap();
        let end = "Only with dry_run.";
        assert!(description.ends_with(end), "{description}");
        let told = client.ask("server/discover", knowing(json!({})));
        contains(&told["result"]["instructions"], ["works only with dry_run"]);
        let said = client.failure(RUN, run.clone(), "forbidden");
        contains(&said, ["--read-only", "dry_run"]);
        let mut dry = run;
        dry["dry_run"] = json!(true);
        let shown = client.success(RUN, dry);
        let is_so = shown["output_text"].as_str().unwrap().contains('x');
        assert!(is_so, "{shown}");
        fabric.expect_chats(0);
    }
}

#[test]
fn without_prompts_none_is_listed_completed_or_rendered() {
    for wire in [Wire::Stdio, Wire::Streamable] {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).flags("--prompt none");
        let mut client = transports::open(wire, Era::MODERN, program, None);
        let told = client.ask("server/discover", knowing(json!({})));
        let capabilities = &told["result"]["capabilities"];
        let is_so = capabilities["prompts"].is_null() && capabilities["resources"].is_object();
        assert!(is_so, "{told}");
        let list = client.ask("prompts/list", knowing(json!({})));
        assert_eq!(list["result"]["prompts"], json!([]), "{list}");
        let completion = json!({
            "ref": {"type": "ref/prompt", "name": "summarize"},
            "argument": {"name": "strategy_name", "value": ""},
        });
        for (method, asked, field) in [
            ("prompts/get", json!({"name": "summarize"}), "name"),
            ("completion/complete", completion, "ref.name"),
        ] {
            let answer = client.ask(method, knowing(asked));
            let message =
                format!("`{field}`: no prompts are offered (--prompt none); use the tools.");
            assert_eq!(answer["error"]["message"], message, "{answer}");
        }
    }
}

#[test]
fn the_shell_has_the_same_tools() {
    let listed = |flags: &str| {
        let finished = Program::new([]).flags(flags).run(DEADLINE);
        finished.expect_code(0);
        let mut lines = finished.stdout.lines();
        assert!(lines.all(|line| line.len() <= 80), "{finished:?}");
        let lines = finished.stdout.lines().map(str::to_owned);
        lines
            .filter(|line| !line.starts_with(' '))
            .collect::<Vec<_>>()
    };
    let one = listed("--list-tools --tool fabric_get_run");
    assert_eq!(one, ["fabric_get_run"]);
    let finished = Program::new(["--list-tools", "--json"]).run(DEADLINE);
    let list: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(names(&list["tools"]), listed("--list-tools"));
    let required = &list["tools"][1]["inputSchema"]["required"];
    assert_eq!(*required, json!(["pattern_name"]));
    let call = ["--tool", "fabric_get_run", "--call", RUN];
    let refused = Program::new(call).run(DEADLINE);
    let words = "there is no tool \"fabric_run_pattern\"";
    refused.expect_code(2).expect_stderr(words);
}

#[test]
fn unknown_names_fail_at_the_start() {
    for case in [
        r#"--check --tool fabric_list_model => --tool: there is no tool "fabric_list_model"; did you mean fabric_list_models?"#,
        r#"--tool list_models --list-tools => --tool: there is no tool "list_models"; did you mean fabric_list_models?"#,
        r#"--prompt nine => --prompt: "nine" is not one of the choices; give all or none"#,
    ] {
        let (flags, said) = case.split_once(" => ").unwrap();
        let finished = Program::new([]).flags(flags).run(DEADLINE);
        finished.expect_code(2).expect_stderr(said);
    }
}
