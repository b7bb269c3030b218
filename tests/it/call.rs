//! `--call`: tools from the shell. Text goes to stdout, everything else to stderr.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::expect::includes;
use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::http::HttpServer;
use crate::support::process::{Finished, Output, Program};
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era, poll};

const RUN: &str = "fabric_run_pattern";
const SUMMARIZE: &str = r#"{"pattern_name":"summarize","input_is_text":true}"#;

fn call<const N: usize>(fabric: &FakeFabric, args: [&str; N]) -> Program {
    let program = Program::with(fabric).arg("--call");
    args.iter().fold(program, |program, arg| program.arg(arg))
}

/// Runs the program with `input` on its stdin.
fn piped(program: Program, input: &[u8]) -> Finished {
    let mut process = program.start();
    process.write(input);
    process.finish(DEADLINE)
}

#[test]
fn only_text_goes_to_stdout() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["one ", "two"]));
    let finished = piped(call(&fabric, [RUN, SUMMARIZE]), b"the input\n");
    finished.expect_code(0);
    let found = (finished.stdout.as_str(), finished.stderr.as_str());
    assert_eq!(found, ("one two\n", ""));
    // A log only for those who ask for it.
    let logged = call(&fabric, [RUN, SUMMARIZE]).flags("--log-level info");
    piped(logged, b"x").expect_stderr("tool=fabric_run_pattern pattern=summarize");
    assert_eq!(fabric.chats()[0]["prompts"][0]["userInput"], "the input\n");
    // An argument takes precedence over stdin, which may then stay open.
    fabric.forget();
    let given = r#"{"pattern_name":"summarize","input_text":"given"}"#;
    let mut process = call(&fabric, [RUN, given]).start();
    let status = process.wait_exit(DEADLINE);
    assert!(status.success(), "{}", process.stderr());
    assert_eq!(fabric.chats()[0]["prompts"][0]["userInput"], "given");
}

#[test]
fn plain_results_are_text_alone_but_for_json_on_the_command_line() {
    let fabric = FakeFabric::start();
    let plain = || Program::with(&fabric).flags("--plain-results");
    let mut client = Stdio::speaking(Era::R2025_11_25, plain());
    let tools = client.result("tools/list", json!({}));
    assert!(!tools.to_string().contains("outputSchema"), "{tools}");
    for (tool, arguments) in [
        (RUN, json!({"pattern_name": "ai", "input_text": "x"})),
        ("fabric_list_strategies", json!({})),
    ] {
        let result = client.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
    }
    let server = HttpServer::start(plain());
    let url = format!("http://{}{}", server.address, server.path);
    for program in [plain(), Program::new(["--connect", &url])] {
        let json = program.flags("--json --call fabric_list_strategies");
        let json = json.run(DEADLINE);
        let shown: Value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
        assert!(shown["strategies"].is_array(), "{shown}");
    }
}

#[cfg(unix)]
#[test]
fn text_on_stdin_beside_an_input_is_an_error() {
    let fabric = FakeFabric::start();
    let given = r#"{"pattern_name":"summarize","input_text":"given"}"#;
    let earlier = r#"{"pattern_name":"summarize","input_from":{"run_id":"x"}}"#;
    let text = concat!("exec <'", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml'");
    for (arguments, argument) in [(given, "input_text"), (earlier, "input_from")] {
        let program = call(&fabric, [RUN, arguments]).after(text);
        program
            .run(DEADLINE)
            .expect_code(2)
            .expect_stderr(&format!("text is piped in, and {argument} is given too"));
    }
    fabric.expect_chats(0);
    piped(call(&fabric, [RUN, given]), b" \n").expect_code(0);
}

#[test]
fn text_is_written_during_the_run() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["first ", "last\n"]));
    let mut process = call(&fabric, [RUN, SUMMARIZE]).start();
    drop(process.stdin.take());
    let mut stdout = process.stdout.take().unwrap();
    let mut first = [0; 6];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first ");
    fabric.release();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "last\n", "no second line end");
    assert!(process.wait_exit(DEADLINE).success());
}

#[test]
fn a_run_is_waited_for_to_its_end() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["first ", "last"]));
    let program = call(&fabric, [RUN, SUMMARIZE]).flags("--json --answer-within 1 --task-after 1");
    let mut process = program.start();
    drop(process.stdin.take());
    let ended = poll(Duration::from_millis(1500), || {
        process.child.try_wait().unwrap()
    });
    assert_eq!(ended, None, "{}", process.stderr());
    fabric.release();
    let finished = process.finish(DEADLINE);
    finished.expect_code(0);
    let result: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(result["output_text"], "first last");
    includes(&result, json!({"status": "completed", "run_id": null}));
}

#[test]
fn a_run_can_be_found_in_the_state_folder() {
    let fabric = FakeFabric::start();
    let folder = TempFolder::new("call");
    let in_folder = |args: [&str; 3]| {
        call(&fabric, args)
            .arg("--state-dir")
            .arg(folder.text())
            .run(DEADLINE)
    };
    let ran = in_folder([RUN, SUMMARIZE, "--json"]);
    ran.expect_code(0);
    let ran: Value = serde_json::from_str(&ran.stdout).unwrap();
    let asked = json!({"run_id": ran["run_id"]}).to_string();
    let got = in_folder(["fabric_get_run", &asked, "--json"]);
    got.expect_code(0);
    let got: Value = serde_json::from_str(&got.stdout).unwrap();
    let found = (&got["output_text"], &got["status"]);
    assert_eq!(found, (&ran["output_text"], &json!("completed")));
    let refused = call(&fabric, [RUN, SUMMARIZE, "--json"])
        .arg("--state-dir")
        .arg(env!("CARGO_BIN_EXE_fabric-mcp"))
        .run(DEADLINE);
    let words = "--state-dir: not a folder: ";
    refused.expect_code(1).expect_stderr(words);
    let listed = call(&fabric, ["fabric_get_run", "--history"]).arg("--state-dir");
    let listed = listed.arg(env!("CARGO_BIN_EXE_fabric-mcp")).run(DEADLINE);
    let listed = listed.expect_code(0).expect_stderr(words);
    listed.expect_stdout(
        "No earlier run is known: runs are kept in memory only: --state-dir: not a folder: ",
    );
    let none = folder.path("no").display().to_string();
    let missing = call(&fabric, ["fabric_get_run", "--state-dir", &none]).run(DEADLINE);
    missing.expect_stdout("No earlier run is known: there is no folder");
    assert!(!folder.path("no").exists());
    fabric.expect_chats(1);
}

#[test]
fn other_tools_do_not_read_stdin() {
    let fabric = FakeFabric::start();
    let mut process = call(&fabric, ["fabric_list_strategies"]).start();
    assert!(process.wait_exit(DEADLINE).success());
    // Nor does a call that is refused anyway.
    let mut process = call(&fabric, [RUN, "{}"]).start();
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(1));
    let query = ["fabric_list_patterns", r#"{"query":"summarize meeting"}"#];
    let finished = call(&fabric, query).run(DEADLINE);
    finished.expect_code(0);
    let text: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(text["matches"][0]["name"], "summarize_meeting", "{text}");
    let structured = call(&fabric, query).arg("--json").run(DEADLINE);
    let found = serde_json::from_str::<Value>(&structured.stdout).unwrap();
    assert_eq!(found, text);
}

#[test]
fn the_structured_result_is_one_object() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["a", "b"]));
    let finished = call(&fabric, [RUN, SUMMARIZE, "--json"]).run(DEADLINE);
    finished.expect_code(0);
    let result: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(result["output_text"], "ab");
    let short = r#"{"pattern_name":"summarize","max_chars":1,"input_is_text":true}"#;
    let cut = call(&fabric, [RUN, short]).run(DEADLINE);
    cut.expect_code(0)
        .expect_stderr("max_chars cut the output to 1 of its 2 characters.");
    assert_eq!(cut.stdout, "a\n");
}

#[test]
fn steps_go_to_stderr() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("text").complete());
    let arguments = r#"{"pattern_name":"summarize","input_text":"x","then":["summarize"]}"#;
    let finished = call(&fabric, [RUN, arguments]).run(DEADLINE);
    finished.expect_code(0);
    assert_eq!(finished.stdout, "text\n");
    let expected = "fabric-mcp: Step 1 of 2: summarize\nfabric-mcp: Step 2 of 2: summarize\n";
    assert_eq!(finished.stderr, expected);
}

#[test]
fn failures_go_to_stderr_with_exit_code_1() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::sse().content("half").cut());
    let broken = call(&fabric, [RUN, SUMMARIZE]).run(DEADLINE);
    broken
        .expect_code(1)
        .expect_stderr("Try again if the rest is needed")
        .expect_stderr("urn:fabric-mcp:error:fabric-stream-interrupted");
    assert_eq!(broken.stdout, "half\n", "what had arrived, once");
    let found = broken.stderr.trim_end().lines().count();
    assert_eq!(found, 1, "{}", broken.stderr);
    let hot = r#"{"pattern_name":"summarize","temperature":9}"#;
    let wrong = call(&fabric, [RUN, hot]).run(DEADLINE);
    wrong.expect_code(1).expect_stderr("`temperature`");
    assert_eq!(wrong.stdout, "");
    let json = call(&fabric, [RUN, hot, "--json"]).run(DEADLINE);
    json.expect_code(1)
        .expect_stderr("`temperature`")
        .expect_stdout("urn:fabric-mcp:error:invalid-request");
    serde_json::from_str::<Value>(&json.stdout).unwrap();
    let folder = TempFolder::new("call-failure");
    let kept = call(&fabric, [RUN, SUMMARIZE, "--json"])
        .arg("--state-dir")
        .arg(folder.text())
        .run(DEADLINE);
    kept.expect_code(1);
    let kept: Value = serde_json::from_str(&kept.stdout).unwrap();
    assert_eq!(kept["output_text"], "half", "{kept}");
    let is_so = kept["run_id"].as_str().unwrap().starts_with("run_");
    assert!(is_so, "{kept}");
}

#[test]
fn advice_is_given_as_it_is_typed() {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric));
    let url = format!("http://{}{}", server.address, server.path);
    let wrong = r#"{"pattern_name":"translate","input_text":"https://youtu.be/x","lang_code":"de","then":[{"pattern_name":"translate","x":1}]}"#;
    let told = "did you mean variables.lang_code=de? `then[0].x` |give input_from.youtube=link, |\
        work on, add input_is_text=true|`then[0].variables` lacks|\
        Give then[0] {\"pattern_name\": \"translate\", \"variables\": {\"lang_code\": \"…\"}}. Nothing was run.";
    for program in [Program::with(&fabric), Program::new(["--connect", &url])] {
        let refused = program.arg("--call").arg(RUN).arg(wrong).run(DEADLINE);
        told.split('|')
            .fold(refused.expect_code(1), Finished::expect_stderr);
    }
}

#[test]
fn mistakes_in_arguments_exit_with_code_2() {
    let fabric = FakeFabric::start();
    let rows = "\
fabric_run_patern|{}|did you mean fabric_run_pattern?
list_models|{}|did you mean fabric_list_models?
fabric_list_patterns|[]|is not a JSON object
fabric_run_pattern|\u{1b}|is neither JSON nor KEY=VALUE
fabric_run_pattern|{\"pattern_name\":\"summarize\",\"wait_seconds\":0}|leave wait_seconds out";
    for row in rows.lines() {
        let (args, told) = row.rsplit_once('|').unwrap();
        let (tool, arguments) = args.split_once('|').unwrap();
        let finished = call(&fabric, [tool, arguments]).run(DEADLINE);
        finished.expect_code(2).expect_stderr(told);
        let found = finished.stderr.trim_end().lines().count();
        assert_eq!(found, 1, "{finished:?}");
    }
    let folder = TempFolder::new("call-mistakes");
    let file = folder.write(&format!("my {}.txt", "notes".repeat(16)), "");
    let file = file.to_str().unwrap();
    let told = format!("< '{file}', or give input_text=@'{file}'");
    let bare = call(&fabric, [RUN, file]).run(DEADLINE);
    bare.expect_code(2).expect_stderr(&told);
    let large = piped(call(&fabric, [RUN, SUMMARIZE]), b"\xff\xfe");
    large.expect_code(1).expect_stderr("not UTF-8");
    assert_eq!(fabric.accepted(), 0);
}

#[cfg(unix)]
#[test]
fn an_interrupt_cancels_the_run() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::sse().content("first ").gate());
    // While it still reads what a pipe cannot hold.
    let mut process = call(&fabric, [RUN, SUMMARIZE]).start();
    process.write(&[b'x'; 1 << 20]);
    process.signal("INT");
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(130));
    assert_eq!(process.stderr(), "fabric-mcp: Cancelled.\n");
    let mut process = call(&fabric, [RUN, SUMMARIZE]).start();
    drop(process.stdin.take());
    let mut stdout = process.stdout.take().unwrap();
    let mut first = [0; 6];
    stdout.read_exact(&mut first).unwrap();
    process.signal("INT");
    assert_eq!(fabric.wait_closed(DEADLINE).route, "POST /chat");
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(130));
    let said = process.stderr();
    assert!(said.starts_with("fabric-mcp: Cancelled. "), "{said}");
}

#[test]
fn a_reader_that_leaves_ends_the_run() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().step(Step::Repeat(line(&content("word ")), 5_000_000)));
    let program = call(&fabric, [RUN, SUMMARIZE]).stdout(Output::Closed);
    let finished = program.run(DEADLINE);
    assert_eq!(fabric.wait_closed(DEADLINE).route, "POST /chat");
    finished.expect_code(0);
    assert_eq!(finished.stderr, "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let fabric = FakeFabric::start();
    let program = call(&fabric, ["fabric_list_models"]).after("exec >/dev/full");
    let finished = program.run(DEADLINE);
    let words = "stdout cannot be written: ";
    finished.expect_code(1).expect_stderr(words);
}
