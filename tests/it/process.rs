//! The process: how it ends, and how it handles broken pipes, full pipes and signals.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::expect::{contains, includes};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::folder::TempFolder;
use crate::support::process::{Output, Program};
use crate::support::reply::{Reply, Step};
use crate::support::stdio::{Stdio, deaf, ready, with_meta};
use crate::support::{Caller, DEADLINE, Era, poll, scaled};

/// The protocol's 2 s after the end of input, plus time to start and end a process.
const PROMISED: Duration = Duration::from_secs(3);
/// The same on a very busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

fn run() -> Value {
    json!({"pattern_name": "ai", "input_text": "x", "stream": true})
}

#[test]
fn the_end_of_input_ends_the_process() {
    let fabric = FakeFabric::start();
    let mut never_spoken = Stdio::start(Program::with(&fabric));
    let mut idle = Stdio::ready(&fabric);
    for client in [&mut never_spoken, &mut idle] {
        client.end(scaled(ENDS_WITHIN));
        assert_eq!(client.rest(), Vec::<Value>::new());
    }
}

#[test]
fn the_end_of_input_in_mid_run_ends_within_two_seconds() {
    let mut times = Vec::new();
    for reply in [
        Reply::silence(),
        Reply::sse().content("x").gate(),
        Reply::sse().gate(),
    ] {
        let (fabric, mut client) = ready();
        fabric.once_run(reply);
        client.begin_call("fabric_run_pattern", run(), None);
        fabric.wait_requests("POST /chat", 1);
        let begun = Instant::now();
        client.end(scaled(ENDS_WITHIN));
        times.push(begun.elapsed());
        fabric.wait_closed(DEADLINE);
        fabric.expect_chats(1);
    }
    // A busy machine may delay one or two.
    let is_so = times.iter().any(|time| *time <= scaled(PROMISED));
    assert!(is_so, "{times:?}");
}

/// Writes to one whose stdout is closed until it ends.
fn end_of_deaf(client: &mut Stdio) -> ExitStatus {
    // Another process may still hold a copy of the pipe's other end, so one ping may not be enough.
    let ping = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    let ended = poll(DEADLINE, || (!client.process.write(ping)).then_some(()));
    assert!(ended.is_some(), "it goes on, though nobody reads");
    client.wait_exit(DEADLINE)
}

#[test]
fn a_closed_stdout_ends_it_quietly_and_loses_no_line_of_the_log() {
    let fabric = FakeFabric::start();
    for calls in [false, true] {
        let mut client = deaf(Program::with(&fabric));
        client.process.wait_stderr("started on stdio transport");
        if calls {
            let call = with_meta(json!({"name": "fabric_list_patterns", "arguments": {}}));
            client
                .send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
            // Its answer cannot be written, which ends the process.
            client.process.wait_stderr("tool=fabric_list_patterns");
        }
        let status = end_of_deaf(&mut client);
        let log = client.stderr();
        assert!(status.code().is_some(), "no signal: {status}\n{log}");
        assert!(!log.contains("panic"), "{log}");
    }
}

#[test]
fn a_stdout_closed_in_mid_run_loses_no_text() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("deaf"));
    let program = || {
        Program::with(&fabric)
            .arg("--state-dir")
            .arg(folder.path("state").to_str().unwrap())
    };
    let mut client = deaf(program());
    fabric.once_run(Reply::sse().content("paid").gate());
    let params = with_meta(
        json!({"name": "fabric_run_pattern", "arguments": run(), "_meta": {"progressToken": 1}}),
    );
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    client.wait_exit(DEADLINE);
    let mut next = Stdio::speaking(Era::R2025_11_25, program());
    let runs = next.call("fabric_get_run", json!({}));
    let run_id = &runs["structuredContent"]["runs"][0]["run_id"];
    let kept = &next.call("fabric_get_run", json!({"run_id": run_id}))["structuredContent"];
    let found = (&kept["status"], &kept["output_text"]);
    assert_eq!(found, (&json!("interrupted"), &json!("paid")), "{runs}");
}

#[test]
fn a_closed_stderr_changes_nothing() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .flags("--log-level debug")
        .stderr(Output::Closed);
    let mut client = Stdio::speaking(Era::R2025_11_25, program);
    for _ in 0..20 {
        client.success("fabric_list_strategies", json!({}));
    }
    client.end(scaled(ENDS_WITHIN));
}

#[test]
fn an_unread_stderr_blocks_nothing() {
    // A pipe on Linux holds 64 KiB; this produces many times that.
    const CALLS: usize = 2_000;
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .flags("--log-level debug")
        .stderr(Output::Unread);
    let mut client = Stdio::speaking(Era::R2025_11_25, program);
    let arguments = json!({"pattern_name": format!(".{}", "n".repeat(100))});
    for _ in 0..CALLS {
        includes(
            &client.call("fabric_get_pattern_details", arguments.clone()),
            json!({"isError": true}),
        );
    }
    client.success("fabric_run_pattern", run());
    client.end(scaled(ENDS_WITHIN));
}

#[test]
fn the_start_up_check_is_logged_and_never_delays_the_first_answer() {
    let fabric = FakeFabric::start();
    let mut held = Reply::json(json!(["ai"]));
    held.steps.insert(0, Step::Gate);
    fabric.once("GET /patterns/names", held);
    let mut client = Stdio::speaking(Era::R2025_11_25, Program::with(&fabric));
    let started = "Fabric MCP Server started on stdio transport.";
    client.process.wait_stderr(started);
    assert_eq!(client.result("ping", Value::Null), json!({}));
    // The check is still waiting.
    assert!(!client.stderr().contains("Successfully connected"));
    fabric.release();
    let connected = format!("Successfully connected to Fabric API at {}.", fabric.url());
    client.process.wait_stderr(&connected);
}

#[test]
fn a_failed_start_up_check_is_an_error_that_says_what_to_do() {
    let url = format!("http://127.0.0.1:{}", closed_port());
    let mut client = Stdio::start(Program::new([]).env("FABRIC_BASE_URL", &url));
    let failed = format!("Failed to connect to Fabric API at {url}. Details: ");
    client.process.wait_stderr(&failed);
    let log = client.stderr();
    let line = log.lines().find(|line| line.contains(&failed)).unwrap();
    // With what to do.
    contains(line, ["ERROR", "fabric --serve"]);
    assert_eq!(client.result("ping", Value::Null), json!({}), "it runs on");
}

#[test]
fn stdout_carries_nothing_but_messages_at_any_log_level() {
    for level in ["debug", "critical"] {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).arg("--log-level").arg(level);
        let mut client = Stdio::speaking(Era::R2025_11_25, program);
        client.call("fabric_list_patterns", json!({}));
        client.expect_nothing_else();
        client.end(scaled(ENDS_WITHIN));
        assert_eq!(client.rest(), Vec::<Value>::new());
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_an_idle_server_with_0() {
    for name in ["TERM", "INT"] {
        let (_fabric, mut client) = ready();
        client.process.signal(name);
        assert_eq!(client.wait_exit(DEADLINE).code(), Some(0), "SIG{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_lets_a_run_finish_and_a_second_one_does_not() {
    let (fabric, mut client) = ready();
    fabric.once_run(Reply::sse().content("done").gate().complete());
    let id = client.begin_call("fabric_run_pattern", run(), None);
    fabric.wait_held(1);
    client.process.signal("TERM");
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "done");
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));

    let mut client = Stdio::ready(&fabric);
    fabric.once_run(Reply::sse().content("never").gate());
    client.begin_call("fabric_run_pattern", run(), None);
    fabric.wait_held(1);
    client.process.signal("TERM");
    // Two pending signals are merged into one.
    client.process.wait_stderr("SIGTERM: letting runs finish");
    client.process.signal("TERM");
    client.wait_exit(scaled(Duration::from_secs(5)));
    fabric.wait_closed(DEADLINE);
}
