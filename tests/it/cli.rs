//! The command line: its output, and its errors.

use crate::support::DEADLINE;
use crate::support::process::Program;

#[test]
fn the_version_is_one_line_on_stdout() {
    for flag in ["--version", "-V"] {
        let finished = Program::new([flag]).run(DEADLINE);
        finished.expect_code(0);
        let version = concat!("fabric-mcp ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(finished.stdout, version);
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn a_wrong_flag_or_value_is_one_line_of_error() {
    for (port, flags, words) in [
        ("", "--log-levle info", "--log-levle"),
        ("many", "", "FABRIC_MCP_PORT: \"many\""),
    ] {
        let program = Program::new([]).env("FABRIC_MCP_PORT", port);
        let finished = program.flags(flags).run(DEADLINE);
        finished.expect_code(2).expect_stderr(words);
        let is_line = finished.stderr.trim_end().lines().count() == 1;
        assert!(is_line && finished.stdout.is_empty(), "{finished:?}");
    }
}
