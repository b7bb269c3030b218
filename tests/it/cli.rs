//! The command line: its output, and its errors.

use std::time::Duration;

use crate::support::DEADLINE;
use crate::support::process::{Finished, Program};

const LIMIT: Duration = DEADLINE;

fn run<const N: usize>(args: [&str; N]) -> Finished {
    Program::new(args).run(LIMIT)
}

#[test]
fn version_is_one_line_on_stdout() {
    for flag in ["--version", "-V"] {
        let finished = run([flag]);
        finished.expect_code(0);
        let found = finished.stdout;
        assert_eq!(found, format!("fabric-mcp {}\n", env!("CARGO_PKG_VERSION")));
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn short_help_names_what_to_try_first_and_topics_have_their_own() {
    let short = run(["-h"]);
    short
        .expect_code(0)
        .expect_stdout("--check")
        .expect_stdout("--demo")
        .expect_stdout("--install");
    let network = run(["--help", "network"]);
    network
        .expect_code(0)
        .expect_stdout("--allowed-host")
        .expect_stdout("proxy_pass");
    let part = "--idle-timeout";
    assert!(!network.stdout.contains(part), "{}", network.stdout);
    let all = ["netwrok", "did you mean network?"];
    wrong(&run(["--help", "netwrok"]), &all);
}

/// Expects one line on stderr with these words, nothing on stdout, and exit code 2.
#[track_caller]
fn wrong(finished: &Finished, words: &[&str]) {
    finished.expect_code(2);
    for word in words {
        finished.expect_stderr(word);
    }
    if finished.stderr.trim_end().lines().count() != 1 || !finished.stdout.is_empty() {
        finished.fail("one line on stderr and nothing on stdout");
    }
}

#[test]
fn a_wrong_flag_or_value_is_one_line_of_error() {
    wrong(&run(["--log-levle", "info"]), &["--log-levle"]);
    wrong(&run(["--port", "65536"]), &["--port", "65536"]);
    let program = Program::new([]).env("FABRIC_MCP_PORT", "many");
    wrong(&program.run(LIMIT), &["FABRIC_MCP_PORT"]);
}
