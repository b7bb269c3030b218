//! Runs that outlive their calls: calls answered early, `fabric_get_run`, `fabric_cancel_run`, owners, and the state
//! folder.

use std::fs;
use std::thread;
#[cfg(unix)]
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::rng::cases;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, expect, extended, poll};

const RUN: &str = "fabric_run_pattern";
const GET: &str = "fabric_get_run";

fn run(more: Value) -> Value {
    extended(
        json!({"pattern_name": "summarize", "input_text": "s3cret input"}),
        more,
    )
}

/// Starts a run, and does not wait for it.
#[track_caller]
fn begin(client: &mut dyn Caller) -> String {
    id(&client.call(RUN, run(json!({"wait_seconds": 0}))))
}

/// The structured content of a result.
#[track_caller]
fn data(result: &Value) -> &Value {
    assert_eq!(result["isError"], false, "{result}");
    &result["structuredContent"]
}

/// Fails unless the client's run has this status and text.
#[track_caller]
fn expect_run(client: &mut dyn Caller, run_id: &str, status: &str, text: &str) {
    let got = client.call(GET, json!({"run_id": run_id}));
    let expected = json!({"status": status, "output_text": text});
    expect::includes(data(&got), expected);
}

/// The run id in a text.
#[track_caller]
fn told_id(told: &Value) -> String {
    let told = told.as_str().unwrap();
    let id = told
        .split_whitespace()
        .find(|word| word.starts_with("run_") && word.len() == 36);
    id.unwrap_or_else(|| panic!("no id: {told}")).to_owned()
}

#[track_caller]
fn id(result: &Value) -> String {
    let id = data(result)["run_id"].as_str();
    id.unwrap_or_else(|| panic!("no run_id: {result}"))
        .to_owned()
}

impl TempFolder {
    fn program(&self, fabric: &FakeFabric) -> Program {
        Program::with(fabric)
            .arg("--state-dir")
            .arg(self.path("state").to_str().unwrap())
    }
}

/// Polls the run until it has `chars` characters or has ended.
fn get_until(client: &mut dyn Caller, run_id: &str, chars: u64) -> Value {
    let arguments = json!({"run_id": run_id, "wait_seconds": 0});
    let got = poll(DEADLINE, || {
        let result = client.call(GET, arguments.clone());
        let run = data(&result);
        let is_long = run["total_chars"].as_u64().unwrap() >= chars;
        (is_long || run["status"] != "working").then_some(result)
    });
    got.expect("the text comes")
}

#[test]
fn a_call_is_answered_in_time_and_its_run_goes_on_on_every_wire() {
    // Concurrently, with enough time for the first piece on a busy machine.
    thread::scope(|scope| {
        for (wire, era) in transports::all() {
            scope.spawn(move || answered_in_time(wire, era));
        }
    });
}

fn answered_in_time(wire: Wire, era: Era) {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["part ", "and rest"]));
    let program = Program::with(&fabric).flags("--answer-within 3");
    let mut client = transports::open(wire, era, program, None);
    let result = client.call(RUN, run(json!({})));
    assert_eq!(result["isError"], false, "{wire:?} {era:?} {result}");
    let told = &result["content"][1]["text"];
    expect::contains(told, ["still working", "fabric_get_run"]);
    let run_id = told_id(told);
    assert_eq!(result["_meta"]["run_id"], *run_id, "{wire:?} {era:?}");
    let text = |result: &Value| result["content"][0]["text"].clone();
    assert_eq!(text(&result), "part ", "{wire:?} {era:?} {result}");
    if era >= Era::R2025_06_18 {
        let expected = json!({"status": "working", "run_id": run_id, "output_text": "part ", "warnings": [told]});
        expect::includes(&expect::success(era, &result), expected);
    }
    fabric.release();
    let rest = client.call(GET, json!({"run_id": run_id}));
    assert_eq!(text(&rest), "part and rest", "{wire:?} {era:?}");
    assert_eq!(rest["content"].as_array().unwrap().len(), 1, "{rest}");
    let part = json!({"run_id": run_id, "offset": 5, "max_chars": 3});
    let rest = client.call(GET, part);
    assert_eq!(text(&rest), "and", "{wire:?} {era:?}");
    expect::contains(&rest["content"][1]["text"], ["offset 8"]);
    fabric.expect_chats(1);
}

#[test]
fn a_run_can_be_started_without_waiting_and_stopped() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("äpart").gate().complete());
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let run_id = begin(&mut client);
    let got = get_until(&mut client, &run_id, 5);
    assert_eq!(got["content"][0]["text"], "äpart");
    let stopped = client.call("fabric_cancel_run", json!({"run_id": run_id}));
    assert_eq!(stopped["content"][0]["text"], "äpart", "{stopped}");
    expect::contains(&stopped["content"][1]["text"], ["was cancelled"]);
    assert_eq!(fabric.wait_closed(DEADLINE).route, "POST /chat");
    let again = client.call("fabric_cancel_run", json!({"run_id": run_id}));
    assert_eq!(again["content"], stopped["content"]);
}

#[test]
fn a_run_can_be_stopped_while_many_calls_wait_for_it() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().gate());
    let mut client = Stdio::speaking(
        Era::NEWEST_LEGACY,
        Program::with(&fabric).flags("--max-runs 1"),
    );
    let run_id = begin(&mut client);
    let waiting = (0..16).map(|_| client.begin_call(GET, json!({"run_id": run_id}), None));
    let waiting: Vec<_> = waiting.collect();
    let stopped = client.call("fabric_cancel_run", json!({"run_id": run_id}));
    assert!(stopped.to_string().contains("was cancelled"), "{stopped}");
    for id in waiting {
        assert_eq!(data(&client.answer(&id)["result"])["status"], "cancelled");
    }
}

#[test]
fn a_cut_output_can_be_read_to_its_end() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["añb", "cd"]));
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let result = client.call(RUN, run(json!({"max_chars": 2})));
    let run_id = id(&result);
    let cut = json!({"output_text": "añ", "omitted_chars": 3});
    expect::includes(data(&result), cut);
    let next = format!("fabric_get_run, run_id {run_id} and offset 2.");
    expect::contains(&result["content"][1]["text"], [&*next]);
    let dry = client.call(RUN, run(json!({"max_chars": 2, "dry_run": true})));
    assert!(data(&dry)["omitted_chars"].as_u64() > Some(3), "{dry}");
    let beyond = json!(["There is nothing at this offset: the output has 5 characters."]);
    for (offset, text, warnings) in [
        (2, "bcd", &Value::Null),
        (5, "", &Value::Null),
        (99, "", &beyond),
    ] {
        let got = client.call(GET, json!({"run_id": "last", "offset": offset}));
        let rest =
            json!({"run_id": run_id, "output_text": text, "status": "completed", "total_chars": 5});
        expect::includes(data(&got), rest);
        assert_eq!(data(&got)["warnings"], *warnings);
    }
    fabric.forget();
    client.call(RUN, json!({"pattern_name": "ai", "input_from": "last"}));
    assert_eq!(fabric.chats()[0]["prompts"][0]["userInput"], "añbcd");
}

#[test]
fn a_call_with_a_progress_token_gets_the_text_as_it_arrives() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["one ", "two ", "three"]));
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let run_id = begin(&mut client);
    get_until(&mut client, &run_id, 4);
    let rest = json!({"run_id": run_id, "offset": 4});
    let get = client.begin_call(GET, rest, Some(json!("t")));
    fabric.release();
    assert_eq!(client.next_progress_text(), "two ");
    // Cancelling the call ends the waiting, not the run.
    client.cancel(&get);
    let get = client.begin_call(GET, json!({"run_id": run_id}), None);
    fabric.release();
    let result = client.answer(&get)["result"].take();
    let whole = json!([{"type": "text", "text": "one two three"}]);
    assert_eq!(result["content"], whole, "{result}");
}

#[test]
fn cancelling_a_call_that_waits_stops_its_run_and_keeps_its_text() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let arguments = run(json!({"stream": true}));
    let call = client.begin_call(RUN, arguments, Some(json!("t")));
    assert_eq!(client.next_progress_text(), "part");
    client.cancel(&call);
    fabric.wait_closed(DEADLINE);
    let listed = poll(DEADLINE, || {
        let runs = data(&client.call(GET, json!({})))["runs"].clone();
        (runs[0]["status"] == "cancelled").then_some(runs)
    })
    .expect("a cancelled run");
    let expected = json!({"patterns": ["summarize"], "total_chars": 4});
    expect::includes(&listed[0], expected);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let run_id = listed[0]["run_id"].as_str().unwrap();
    expect_run(&mut client, run_id, "cancelled", "part");
}

#[test]
fn runs_that_outlive_their_calls_still_count_and_block_nothing_else() {
    for (wire, era) in transports::EACH {
        let fabric = FakeFabric::start();
        fabric.on_run(Reply::sse().content("x").gate().complete());
        let program = Program::with(&fabric).flags("--max-runs 1");
        let mut client = transports::open(wire, era, program, None);
        let mut begin = || client.call(RUN, run(json!({"wait_seconds": 0})));
        let run_id = told_id(&begin()["content"][1]["text"]);
        expect::failure(era, &begin(), "too-many-requests");
        client.success("fabric_list_patterns", json!({}));
        fabric.wait_held(1);
        fabric.release();
        client.call(GET, json!({"run_id": run_id}));
        let next = poll(DEADLINE, || {
            let next = client.call(RUN, run(json!({"wait_seconds": 0})));
            (next["isError"] == false).then_some(())
        });
        assert!(next.is_some(), "{wire:?}: the place is free again");
        fabric.release_all();
    }
}

#[test]
fn a_run_is_its_owners_and_over_http_without_a_login_the_id_is_the_key() {
    let fabric = FakeFabric::start();
    let server = transports::serve(Wire::Streamable, Program::with(&fabric));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let run_id = id(&client.call(RUN, run(json!({}))));
    let mut other = Streamable::to(&server, Era::NEWEST_LEGACY, None);
    let text = "Ran summarize on: s3cret input";
    expect_run(&mut other, &run_id.to_uppercase(), "completed", text);
    let unknown = format!("run_{}", "0".repeat(32));
    let mut words = Vec::new();
    for wrong in [unknown.as_str(), "nope", "run_", "../../etc/passwd"] {
        for tool in [GET, "fabric_cancel_run"] {
            let said = other.failure(tool, json!({"run_id": wrong}), "invalid-request");
            words.push(said.split("request_id").next().unwrap().to_owned());
        }
    }
    words.dedup();
    assert_eq!(words.len(), 1, "{words:?}");
    let said = other.failure(GET, json!({}), "invalid-request");
    expect::contains(&said, ["--tokens-file", "fabric_run_pattern"]);

    let token = "a-token-that-is-long-enough";
    let named = Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", token);
    let mut named = transports::open(Wire::Streamable, Era::NEWEST_LEGACY, named, Some(token));
    let run_id = id(&named.call(RUN, run(json!({}))));
    let listed = named.call(GET, json!({}));
    assert_eq!(data(&listed)["runs"][0]["run_id"], run_id);
}

#[test]
fn runs_are_found_by_their_words_and_time_and_a_refused_call_is_none() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("history"));
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let asked = |client: &mut Stdio, arguments: Value| data(&client.call(GET, arguments)).clone();
    for refused in [
        json!({"pattern_name": "nope"}),
        json!({"session_name": "../x"}),
        json!({"input_text": ""}),
    ] {
        assert_eq!(client.call(RUN, run(refused))["isError"], true);
    }
    let none = asked(&mut client, json!({}));
    assert_eq!(none["runs"], json!([]));
    let parts = ["No run of yours is kept", "--keep-runs"];
    expect::contains(none["warnings"][0].as_str().unwrap(), parts);
    fabric.on_run(Reply::run(&[
        "\n# Résumé of the contracts, which the lawyers of both companies had signed by then",
    ]));
    client.call(RUN, run(json!({"model_name": "gpt-4o"})));
    fabric.on_run(Reply::run(&["short"]));
    client.call(RUN, run(json!({"pattern_name": "ai"})));
    let all = asked(&mut client, json!({}));
    let row = json!({
        "patterns": ["summarize"], "model": "gpt-4o", "status": "completed", "total_chars": 82,
        "excerpt": "\n# Résumé of the contracts, which the lawyers of both compan",
    });
    expect::includes(&all["runs"][1], row);
    expect::includes(&all["runs"][0], json!({"patterns": ["ai"]}));
    let today = all["runs"][0]["created_at"].as_str().unwrap()[..10].to_owned();
    let mut other = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    for (arguments, found) in [
        (json!({"query": "gpt4 contr"}), 1),
        (json!({"query": "Summarize GPT resume"}), 1),
        (json!({"query": "summarize ai"}), 0),
        (json!({"query": "ai", "since": "2d"}), 1),
        (json!({"since": "1 W"}), 2),
        (json!({"since": today}), 2),
        (json!({"since": "2999-12-31T23:59:59Z"}), 0),
        (json!({"since": "0h"}), 0),
    ] {
        let got = asked(&mut other, arguments.clone());
        let shown = got["runs"].as_array().unwrap().len();
        assert_eq!(shown, found, "{arguments}: {got}");
        let why = got["warnings"][0].as_str().unwrap_or_default();
        let is_so = why.starts_with("Of the 2 runs kept since 20") == (found == 0);
        assert!(is_so, "{got}");
    }
    for count in 3..=51 {
        client.call(RUN, run(json!({})));
        let got = asked(&mut client, json!({}));
        assert_eq!(got["runs"].as_array().unwrap().len(), count.min(50));
        assert_eq!(got["warnings"].is_array(), count > 50, "{got}");
    }
    let id = asked(&mut other, json!({}))["runs"][0]["run_id"].take();
    let got = asked(&mut other, json!({"run_id": id, "query": "contracts"}));
    expect::contains(&got["warnings"][0], ["`query`", "Leave run_id out"]);
    let refused = other.failure(GET, json!({"since": "yesterday"}), "invalid-request");
    expect::contains(&refused, ["`since` must be a date in UTC", "2d"]);
}

#[test]
fn with_a_folder_a_run_outlives_the_process() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("restart"));
    fabric.on_run(Reply::run(&["whole ", "output"]));
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let whole = id(&client.call(RUN, run(json!({}))));
    fabric.on_run(Reply::sse().content("cut ").gate().complete());
    let cut = begin(&mut client);
    get_until(&mut client, &cut, 4);
    // At the end of stdin the process ends: running ones are stored as interrupted.
    client.close_stdin();
    assert!(client.wait_exit(DEADLINE).success());

    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    expect_run(&mut client, &whole, "completed", "whole output");
    expect_run(&mut client, &cut, "interrupted", "cut ");
    let listed = client.call(GET, json!({}));
    assert_eq!(data(&listed)["runs"].as_array().unwrap().len(), 2);
    fabric.expect_chats(2);
    let entries = fs::read_dir(folder.path("state")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let found = files.len();
    assert_eq!(found, 5, "two for each run, and the ledger: {files:?}");
    for file in files {
        let text = String::from_utf8(fs::read(file).unwrap()).unwrap();
        assert!(!text.contains("s3cret"), "the input is never kept");
    }
}

#[test]
fn a_killed_process_leaves_whole_outputs_and_readable_cut_ones() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("kill"));
    let piece = |n: usize| format!("<{n} é漢🎼 {}>", "x".repeat(n * 397 % 5000));
    let pieces: Vec<String> = (0..60).map(piece).collect();
    let text = pieces.concat();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let (mut whole, mut cut, mut begun) = (Vec::new(), Vec::new(), 0);
    cases(8, |rng, _| {
        let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
        fabric.on_run(Reply::run(&pieces));
        whole.push(id(&client.call(RUN, run(json!({})))));
        let mut begin = || begin(&mut client);
        cut.extend([(); 3].map(|()| begin()));
        fabric.on_run(Reply::sse().content("<0").gate().complete());
        cut.push(begin());
        begun += 5;
        fabric.wait_requests("POST /chat", begun);
        // Somewhere within what they write.
        (0..rng.within(0..1 << 20)).for_each(|_| std::hint::spin_loop());
        client.process.child.kill().unwrap();
        client.process.wait_exit(DEADLINE);
    });
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let mut get = |run_id: &str| {
        // The process that finds a dead owner's run locks it while it writes the end: until then others see it working.
        let got = get_until(&mut client, run_id, u64::MAX);
        let field = |name: &str| data(&got)[name].as_str().unwrap().to_owned();
        (field("status"), field("output_text"))
    };
    for run_id in &whole {
        assert_eq!(get(run_id), ("completed".to_owned(), text.clone()));
    }
    for run_id in &cut {
        let (status, found) = get(run_id);
        let is_whole = status == "completed" && found == text;
        let is_cut = status == "interrupted" && text.starts_with(&found);
        assert!(is_whole || is_cut, "{status} {found}");
    }
    fabric.expect_chats(begun);
}

#[test]
fn what_the_earlier_steps_gave_outlives_a_cancellation_and_the_process() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("steps"));
    let mut reader = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let then = json!({"then": [{"pattern_name": "ai"}, {"pattern_name": "ai"}]});
    for end in ["cancelled", "interrupted"] {
        let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
        fabric.forget();
        fabric.once_run(Reply::run(&["kept one"]));
        fabric.once_run(Reply::sse().content("part").gate().complete());
        let chain = extended(run(then.clone()), json!({"wait_seconds": 0}));
        let run_id = id(&client.call(RUN, chain));
        fabric.wait_requests("POST /chat", 2);
        match end {
            "cancelled" => drop(client.call("fabric_cancel_run", json!({"run_id": run_id}))),
            _ => client.process.child.kill().unwrap(),
        }
        let got = get_until(&mut reader, &run_id, u64::MAX);
        assert_eq!(data(&got)["status"], end, "{got}");
        expect::contains(
            &got,
            ["Output of step 1 (summarize), which is not the result: kept one"],
        );
        fabric.expect_chats(2);
    }
}

#[test]
fn processes_that_share_a_folder_answer_for_each_other() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("shared"));
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let [mut one, mut two, mut three] =
        [(); 3].map(|()| Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric)));
    let run_id = begin(&mut one);
    let got = get_until(&mut two, &run_id, 4);
    let working = json!({"status": "working", "output_text": "part"});
    expect::includes(data(&got), working);
    let listed = two.call(GET, json!({}));
    assert_eq!(data(&listed)["runs"][0]["run_id"], run_id);
    // In the way of what tells the first process, as a full disk would be.
    let obstacle = folder.path("state").join(format!("{run_id}.cancel"));
    fs::create_dir(&obstacle).unwrap();
    let failed = three.call("fabric_cancel_run", json!({"run_id": run_id}));
    assert_eq!(failed["isError"], true, "{failed}");
    let why = "The run goes on: another process works on it";
    expect::contains(&failed, [why]);
    fs::remove_dir(obstacle).unwrap();
    let stopped = three.call("fabric_cancel_run", json!({"run_id": run_id}));
    assert_eq!(data(&stopped)["status"], "cancelled", "{stopped}");
    assert_eq!(fabric.wait_closed(DEADLINE).route, "POST /chat");
    for client in [&mut one, &mut two, &mut three] {
        expect_run(client, &run_id, "cancelled", "part");
    }
}

#[cfg(unix)]
#[test]
fn a_terminated_server_keeps_partial_output() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("term"));
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let token = "a-token-that-is-long-enough";
    let program = || {
        let program = folder
            .program(&fabric)
            .flags("--drain-timeout 0.2")
            .env("FABRIC_MCP_AUTH_TOKEN", token);
        transports::serve(Wire::Streamable, program)
    };
    let server = program();
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, Some(token));
    let run_id = begin(&mut client);
    get_until(&mut client, &run_id, 4);
    drop(client);
    let mut server = std::sync::Arc::into_inner(server).unwrap();
    server.process.signal("TERM");
    assert!(server.process.wait_exit(DEADLINE).success());
    let server = program();
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, Some(token));
    expect_run(&mut client, &run_id, "interrupted", "part");
}

#[test]
fn a_server_that_keeps_nothing_waits_for_the_end() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--keep-runs 0 --answer-within 0.001");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    fabric.on_run(Reply::gated(&["a", "b"]));
    let call = client.begin_call(RUN, run(json!({})), None);
    fabric.wait_held(1);
    fabric.release();
    let result = client.answer(&call)["result"].take();
    let expected = json!({"output_format": "markdown", "output_text": "ab", "status": "completed"});
    assert_eq!(*data(&result), expected);
    let refused = client.call(RUN, run(json!({"wait_seconds": 5})));
    expect::failure(Era::NEWEST_LEGACY, &refused, "invalid-request");
    fabric.expect_chats(1);
    fabric.on_run(Reply::run(&["ab"]));
    let program = Program::with(&fabric).flags("--keep-runs 0");
    let mut client = transports::open(Wire::Streamable, Era::MODERN, program, None);
    let cut = client.success(RUN, run(json!({"max_chars": 1})));
    expect::contains(&cut["warnings"][0], ["Do not run the pattern again"]);
    assert_eq!(cut["run_id"], Value::Null);
}

#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_files_fails_no_run() {
    let (fabric, runs) = (FakeFabric::start(), TempFolder::new("file-size"));
    let long = "longer than a few blocks of 512 bytes ".repeat(99);
    fabric.once_run(Reply::sse().content(&long).gate().complete());
    fabric.once_run(Reply::run(&["short"]));
    let program = runs.program(&fabric).after("ulimit -f 3");
    let server = transports::serve(Wire::Streamable, program);
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, None);
    let result = client.call(RUN, run(json!({"wait_seconds": 0})));
    server.process.wait_stderr("kept in memory only");
    // A short one can still be written.
    let short = client.call(RUN, run(json!({})));
    expect_run(&mut client, &id(&short), "completed", "short");
    assert_eq!(server.metric("fabric_mcp_state_dir_failing"), Some(1.0));
    fabric.release_all();
    expect_run(&mut client, &id(&result), "completed", &long);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_told_until_it_can_be() {
    let (fabric, runs) = (FakeFabric::start(), TempFolder::new("full"));
    let state = runs.path("state");
    let server = transports::serve(Wire::Streamable, runs.program(&fabric));
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, None);
    let failing = || server.metric("fabric_mcp_state_dir_failing") == Some(1.0);
    server.process.wait_stderr("Successfully connected");
    assert!(!failing());
    // A plain file in its place, as root may write everywhere.
    let aside = runs.path("aside");
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "").unwrap();
    let result = client.call(RUN, run(json!({})));
    assert!(failing() && failing());
    server.process.wait_stderr("kept in memory only");
    let log = server.process.stderr();
    let found = ["kept in memory only", "written again"].map(|words| log.matches(words).count());
    assert_eq!(found, [1, 0], "{log}");
    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    assert!(!failing());
    let words = "the state folder can be written again";
    server.process.wait_stderr(words);
    let file = format!("{}.json", data(&result)["run_id"].as_str().unwrap());
    assert!(state.join(file).exists());
    // If that is so until the end of the process, its log has the lines of the ledger.
    fs::remove_dir_all(&state).unwrap();
    fs::write(&state, "").unwrap();
    let result = client.call(RUN, run(json!({})));
    drop(client);
    let mut server = std::sync::Arc::into_inner(server).unwrap();
    server.process.signal("TERM");
    assert!(server.process.wait_exit(DEADLINE).success());
    let log = server.process.stderr();
    let run_id = data(&result)["run_id"].as_str().unwrap();
    let is_line = |line: &str| line.contains("not written to the ledger") && line.contains(run_id);
    assert!(log.lines().any(is_line), "{log}");
}

#[test]
fn runs_of_a_newer_version_are_left_alone_with_a_warning() {
    let (fabric, runs) = (FakeFabric::start(), TempFolder::new("newer"));
    let state = runs.path("state");
    fs::create_dir(&state).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let record = state.join(format!("run_{}.json", "1".repeat(32)));
    fs::write(&record, r#"{"version":2}"#).unwrap();
    let server = transports::serve(Wire::Streamable, runs.program(&fabric));
    let words = "has runs that a newer fabric-mcp wrote, such as run_1111";
    server.process.wait_stderr(words);
    let said = server.process.stderr();
    assert!(record.exists());
    assert_eq!(said.matches("the state folder").count(), 1, "{said}");
}

#[cfg(unix)]
#[test]
fn a_silent_run_is_said_to_be_silent_where_its_text_would_be() {
    const AGO: Duration = Duration::from_secs(40);
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("silent"));
    let reply = Reply::sse().gate().content("late").complete();
    fabric.on_run(reply);
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let begun = client.call(RUN, run(json!({"wait_seconds": 0})));
    assert_eq!(begun["content"][0]["text"], "", "not yet: {begun}");
    fabric.wait_held(1);
    // As if it had begun some time ago.
    let path = folder.path("state").join(id(&begun));
    let record = fs::read(path.with_extension("json")).unwrap();
    let mut record: Value = serde_json::from_slice(&record).unwrap();
    let updated = record["updated"].as_u64().unwrap() - AGO.as_millis() as u64;
    record["updated"] = updated.into();
    fs::write(path.with_extension("json"), record.to_string()).unwrap();
    let text = path.with_extension("txt");
    let text = fs::File::options().append(true).open(text).unwrap();
    text.set_modified(SystemTime::now() - AGO).unwrap();
    let mut other = Stdio::speaking(Era::NEWEST_LEGACY, folder.program(&fabric));
    let arguments = json!({"run_id": id(&begun), "wait_seconds": 0});
    let result = other.call(GET, arguments);
    let said = result["content"][0]["text"].as_str().unwrap();
    let end = "the run is given up after 300 s. fabric_cancel_run stops it.";
    let is_so = said.starts_with("Nothing has arrived for 4") && said.ends_with(end);
    assert!(is_so, "{result}");
    assert_eq!(data(&result)["output_text"], "");
    assert_eq!(data(&result)["warnings"][0], said);
    assert_eq!(result["content"].as_array().unwrap().len(), 2, "{result}");
    fabric.release_all();
    let late = get_until(&mut client, &id(&begun), 4);
    assert_eq!(late["content"][0]["text"], "late");
}
