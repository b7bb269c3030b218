//! The command line: its output, and its errors.

use std::time::Duration;

use crate::support::DEADLINE;
use crate::support::process::{Finished, Program};

const LIMIT: Duration = DEADLINE;

fn run<const N: usize>(args: [&str; N]) -> Finished {
    Program::new(args).run(LIMIT)
}

#[test]
fn texts_go_to_stdout_alone() {
    let version = concat!("fabric-mcp ", env!("CARGO_PKG_VERSION"), "\n");
    for (args, part) in [
        ("--version", version),
        ("-V", version),
        ("-h", "\n  --install CLIENT "),
        ("--help network", "\n  --allowed-host HOST "),
    ] {
        let finished = Program::new([]).flags(args).run(LIMIT);
        finished.expect_code(0).expect_stdout(part);
        let is_so = finished.stderr.is_empty() && (part != version || finished.stdout == version);
        assert!(is_so, "{finished:?}");
    }
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
    let topic = ["netwrok", "did you mean network?"];
    wrong(&run(["--help", "netwrok"]), &topic);
}
