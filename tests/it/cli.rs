//! The command line: its output, and its errors.

use std::time::Duration;

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::process::{Finished, Program};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era, expect};

const LIMIT: Duration = DEADLINE;

/// Flags that must exist; each has a variable `FABRIC_MCP_…`, unless it only prints.
const FLAGS: [&str; 9] = [
    "--transport",
    "--host",
    "--port",
    "--path",
    "--fabric-url",
    "--log-level",
    "--allow-pattern",
    "--deny-pattern",
    "--idle-timeout",
];

fn run<const N: usize>(args: [&str; N]) -> Finished {
    Program::new(args).run(LIMIT)
}

#[test]
fn version_is_one_line_on_stdout() {
    for flag in ["--version", "-V"] {
        let finished = run([flag]);
        finished.expect_code(0);
        assert_eq!(
            finished.stdout,
            format!("fabric-mcp {}\n", env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn help_names_every_flag_and_variable() {
    let finished = run(["--help"]);
    finished.expect_code(0);
    for flag in FLAGS.into_iter().chain([
        "--check",
        "--demo",
        "--list-tools",
        "--version",
        "--help",
        "--install",
    ]) {
        finished.expect_stdout(flag);
    }
    finished
        .expect_stdout("FABRIC_BASE_URL")
        .expect_stdout("FABRIC_API_KEY")
        .expect_stdout("SSL_CERT_FILE");
    assert_eq!(finished.stderr, "");
    fits(&finished);
}

/// No line is wider than a terminal.
#[track_caller]
fn fits(finished: &Finished) {
    let longest = finished
        .stdout
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    assert!(
        longest <= 80,
        "a line of {longest} characters:\n{}",
        finished.stdout
    );
}

#[test]
fn short_help_fits_a_screen_and_topics_have_their_own() {
    let short = run(["-h"]);
    short
        .expect_code(0)
        .expect_stdout("--check")
        .expect_stdout("--demo")
        .expect_stdout("--install");
    fits(&short);
    assert!(short.stdout.lines().count() <= 25, "{}", short.stdout);
    let network = run(["--help", "network"]);
    network
        .expect_code(0)
        .expect_stdout("--allowed-host")
        .expect_stdout("proxy_pass");
    fits(&network);
    assert!(
        !network.stdout.contains("--idle-timeout"),
        "{}",
        network.stdout
    );
    wrong(
        &run(["--help", "netwrok"]),
        &["netwrok", "did you mean network?"],
    );
}

#[test]
fn the_catalogue_names_every_tool_and_its_arguments() {
    let finished = run(["--list-tools"]);
    finished.expect_code(0);
    for text in [
        "fabric_list_patterns",
        "fabric_get_pattern_details",
        "fabric_run_pattern",
        "fabric_list_models",
        "fabric_list_strategies",
        "fabric_get_configuration",
        "fabric_get_transcript",
        "pattern_name",
        "input_text",
        "temperature",
        "variables",
    ] {
        finished.expect_stdout(text);
    }
    assert_eq!(finished.stderr, "", "it needs no Fabric");
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
    wrong(&run(["--no-such-flag"]), &["--no-such-flag"]);
    wrong(&run(["--log-levle", "info"]), &["--log-levle"]);
    wrong(&run(["-x"]), &["-x"]);
    wrong(&run(["stray"]), &["stray"]);
    wrong(
        &run(["--transport", "carrier-pigeon"]),
        &["--transport", "carrier-pigeon", "stdio", "http", "sse"],
    );
    wrong(&run(["--transport"]), &["--transport"]);
    wrong(
        &run(["--log-level", "loud"]),
        &["--log-level", "loud", "info", "critical"],
    );
    wrong(&run(["--port", "65536"]), &["--port", "65536"]);
    wrong(&run(["--port", "-1"]), &["--port"]);
    wrong(&run(["--port", "http"]), &["--port", "http"]);
    wrong(
        &run(["--idle-timeout", "soon"]),
        &["--idle-timeout", "soon"],
    );
    wrong(&run(["--idle-timeout", "-1"]), &["--idle-timeout"]);
    wrong(&run(["--idle-timeout", "nan"]), &["--idle-timeout"]);
    wrong(&run(["--idle-timeout", "inf"]), &["--idle-timeout"]);
    wrong(&run(["--idle-timeout", "1e300"]), &["--idle-timeout"]);
    wrong(&run(["--fabric-url", "ftp://host"]), &["--fabric-url"]);
    wrong(&run(["--list-tools=yes"]), &["--list-tools"]);
    wrong(&run(["--api-key", "x"]), &["--api-key"]);
}

#[test]
fn a_wrong_variable_is_named() {
    let rows = [
        ("FABRIC_MCP_TRANSPORT", "pigeon"),
        ("FABRIC_MCP_LOG_LEVEL", "loud"),
        ("FABRIC_MCP_PORT", "many"),
        ("FABRIC_MCP_IDLE_TIMEOUT", "soon"),
        ("FABRIC_MCP_CONNECT_TIMEOUT", "-2"),
        ("FABRIC_BASE_URL", "ftp://host"),
        ("FABRIC_BASE_URL", "localhost:8080"),
        ("FABRIC_BASE_URL", "http://"),
        ("FABRIC_BASE_URL", "http://host:99999"),
        ("FABRIC_BASE_URL", "http://host with space"),
    ];
    for (name, value) in rows {
        wrong(&Program::new([]).env(name, value).run(LIMIT), &[name]);
    }
}

#[test]
fn a_secret_in_an_address_is_refused_and_not_repeated() {
    let url = "http://user:canary-pass@127.0.0.1:8080";
    for program in [
        Program::new([]).env("FABRIC_BASE_URL", url),
        Program::new(["--fabric-url", url]),
    ] {
        let finished = program.run(LIMIT);
        finished.expect_code(2);
        assert!(
            !finished.stderr.contains("canary-pass"),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn an_invalid_key_is_reported_but_not_printed() {
    let finished = Program::new([])
        .env("FABRIC_API_KEY", "canary\r\nX-Evil: 1")
        .run(LIMIT);
    wrong(&finished, &["FABRIC_API_KEY"]);
    assert!(!finished.stderr.contains("canary"), "{}", finished.stderr);
}

#[test]
fn flags_win_over_variables_and_variables_over_defaults() {
    let fabric = FakeFabric::start();
    let other = FakeFabric::start();
    let flag = Program::with(&other).arg("--fabric-url").arg(&fabric.url());
    let both = Program::with(&other).arg(&format!("--fabric-url={}", fabric.url()));
    for program in [flag, both] {
        let mut client = Stdio::speaking(Era::Modern, program);
        expect::success(
            Era::Modern,
            &client.call("fabric_list_strategies", json!({})),
        );
    }
    assert_eq!(other.accepted(), 0);
    assert_eq!(fabric.requests_of("GET /strategies").len(), 2);
    // An invalid variable is reported even where a flag overrides it or it is not used; either way the flag's value
    // applies.
    let named = Program::new(["--log-level", "info"])
        .env("FABRIC_MCP_LOG_LEVEL", "debug")
        .env("FABRIC_BASE_URL", &fabric.url());
    let mut client = Stdio::speaking(Era::Modern, named);
    client.call("fabric_list_strategies", json!({}));
    assert!(!client.stderr().contains("DEBUG"), "{}", client.stderr());
}

#[test]
fn an_empty_variable_is_unset() {
    let fabric = FakeFabric::start();
    let mut program = Program::with(&fabric);
    for name in [
        "FABRIC_MCP_TRANSPORT",
        "FABRIC_MCP_LOG_LEVEL",
        "FABRIC_MCP_PORT",
        "FABRIC_MCP_IDLE_TIMEOUT",
        "SSL_CERT_FILE",
    ] {
        program = program.env(name, "");
    }
    let mut client = Stdio::speaking(Era::Modern, program.env("FABRIC_API_KEY", ""));
    expect::success(
        Era::Modern,
        &client.call("fabric_list_strategies", json!({})),
    );
    assert!(
        fabric
            .requests()
            .iter()
            .all(|request| request.header("x-api-key").is_none())
    );
}

#[test]
fn a_missing_certificate_file_is_reported() {
    let finished = Program::new([])
        .env("SSL_CERT_FILE", "no/such/file.pem")
        .env("FABRIC_BASE_URL", "https://127.0.0.1:1")
        .run(LIMIT);
    finished.expect_stderr("SSL_CERT_FILE");
    assert_ne!(finished.code, None);
}
