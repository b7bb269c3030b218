//! Log lines of failed and refused calls, and of requests to Fabric; and their metrics.

use serde_json::{Value, json};

use crate::http::access::File;
use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::{Process, Program};
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, ERAS, Era};

const NEWEST: Era = Era::Legacy("2025-11-25");

fn run(pattern: &str) -> Value {
    json!({"pattern_name": pattern, "input_text": "canary-input"})
}

/// Waits for a line that contains all of `parts`.
#[track_caller]
fn line(process: &Process, parts: &[&str]) -> String {
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    let found = process
        .log
        .wait(DEADLINE, |log| log.lines().find(has_all).map(str::to_owned));
    found.unwrap_or_else(|| process.fail(&format!("no line has {parts:?}")))
}

#[test]
fn a_failed_call_is_a_warning_with_its_reason_and_the_status() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .env("FABRIC_MCP_LOG_LEVEL", "warning")
        .env("FABRIC_MCP_IDLE_TIMEOUT", "1");
    let mut client = Stdio::speaking(NEWEST, program);
    for (reply, parts) in [
        (
            Reply::sse()
                .error("Error: model not found, see /srv/canary/x")
                .complete(),
            vec![
                "error=fabric-api-error status=200",
                "reason=\"Fabric could not run the pattern. Error: model not found, see [path]\"",
            ],
        ),
        (
            Reply::sse()
                .content("canary-output")
                .error("no such thing: \"canary-input\", canary-output")
                .complete(),
            vec![
                "reason=\"Fabric could not run the pattern. no such thing: \\\"[...]\\\", [...]\"",
            ],
        ),
        (
            Reply::failure(500, json!("canary")),
            vec![
                "error=fabric-internal-error status=500",
                "reason=\"Fabric at ",
            ],
        ),
        (
            Reply::failure(401, json!("canary")),
            vec!["error=fabric-api-unauthorized status=401"],
        ),
        (
            Reply::sse().content("canary").cut(),
            vec!["error=fabric-stream-interrupted status=200"],
        ),
        (
            Reply::json(json!([])),
            vec![
                "error=fabric-api-error status=200",
                "something that is not Fabric's",
            ],
        ),
        (
            Reply::silence(),
            vec!["error=fabric-timeout reason=", "was silent for 1 s"],
        ),
        (
            Reply::closes(),
            vec!["error=fabric-api-unavailable reason="],
        ),
    ] {
        fabric.once_run(reply);
        let result = client.call("fabric_run_pattern", run("summarize"));
        let id = result["_meta"]["error"]["request_id"]
            .as_str()
            .unwrap()
            .to_owned();
        let line = line(&client.process, &[&id]);
        contains(
            &line,
            [" WARN ", "tool=fabric_run_pattern pattern=summarize "],
        );
        assert!(
            parts.iter().all(|part| line.contains(part)),
            "{parts:?}: {line}"
        );
    }
    fabric.on("GET /patterns/names", Reply::failure(500, json!("canary")));
    let error = client.error("prompts/list", json!({}));
    let id = error["data"]["request_id"].as_str().unwrap().to_owned();
    let line = line(&client.process, &[&id]);
    let begin = "WARN  [fabric_mcp::server] method=prompts/list ok=false code=-32603 error=fabric-internal-error status=500";
    assert!(line.contains(begin), "{line}");
    assert!(!client.stderr().contains("canary"), "{}", client.stderr());
}

#[test]
fn refusals_before_a_run_are_counted_for_every_caller() {
    for era in ERAS.into_iter().skip(1) {
        let fabric = FakeFabric::start();
        let server = transports::serve(
            Wire::Streamable,
            Program::with(&fabric).flags("--max-calls-per-minute 1"),
        );
        let mut client = Streamable::to(&server, era, None);
        let mut call = |tool: &str, arguments: Value| {
            client.request("tools/call", json!({"name": tool, "arguments": arguments}))
        };
        call(
            "fabric_run_pattern",
            json!({"pattern_name": "ai", "temperature": 99}),
        );
        call("fabric_run_pattern", json!({}));
        call("fabric_list_models", json!({"x": 1}));
        call("fabric_run_pattern", run("ai"));
        call("fabric_run_pattern", run("ai"));
        fabric.expect_chats(1);
        for (tool, outcome, count) in [
            ("fabric_run_pattern", "invalid-request", 2),
            ("fabric_list_models", "invalid-request", 1),
            ("fabric_run_pattern", "too-many-requests", 1),
            ("fabric_run_pattern", "ok", 1),
        ] {
            let sample =
                format!("fabric_mcp_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}");
            assert!(
                metrics(&server).lines().any(|line| line == sample),
                "{era:?}: {sample}\n{}",
                metrics(&server)
            );
        }
        expect_no_failure_of_fabric(&server);
        let line = line(&server.process, &["error=too-many-requests"]);
        contains(
            &line,
            [
                " WARN ",
                "tool=fabric_run_pattern pattern=ai model=default ok=false",
            ],
        );
        assert!(line.contains("reason="), "{line}");
    }
}

fn metrics(server: &HttpServer) -> String {
    server.get("/metrics", &[]).text()
}

#[track_caller]
fn expect_no_failure_of_fabric(server: &HttpServer) {
    let text = metrics(server);
    assert!(text.contains("# TYPE fabric_mcp_fabric_errors_total counter\n"));
    assert!(!text.contains("fabric_mcp_fabric_errors_total{"), "{text}");
}

#[test]
fn the_help_describes_every_family_of_metrics() {
    let fabric = FakeFabric::start();
    let prices = File::new("help", &["default 1 2\n"]);
    let program = Program::with(&fabric).env("FABRIC_MCP_PRICES", prices.0.to_str().unwrap());
    let server = transports::serve(Wire::Streamable, program);
    let help = Program::new(["--help", "metrics"]).run(DEADLINE).stdout;
    let text = metrics(&server);
    let mut families = 0;
    for line in text.lines() {
        let Some((name, _)) = line
            .strip_prefix("# TYPE ")
            .filter(|line| line.starts_with("fabric_mcp_"))
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        assert!(help.contains(name), "{name} is not in\n{help}");
        families += 1;
    }
    assert!(families > 10, "{text}");
}

#[test]
fn what_a_client_sends_looks_like_no_field_of_the_log() {
    let fabric = FakeFabric::start();
    let logged = r#"answered 403: The Host \"evil\"x ok=true\" is not "#;
    for format in ["logfmt", "json"] {
        let program = Program::with(&fabric).arg("--log-format").arg(format);
        let server = transports::serve(Wire::Streamable, program);
        let headers = [("Host", "evil\"x ok=true")];
        let answer = server.get("/mcp", &headers);
        assert_eq!(answer.status, 403);
        let line = line(&server.process, &["answered 403"]);
        assert!(line.contains(logged), "{line}");
        match format {
            "json" => assert!(serde_json::from_str::<Value>(&line).unwrap()["ok"].is_null()),
            _ => assert!(
                line.contains("] message=\"127.0.0.1:") && line.ends_with('"'),
                "{line}"
            ),
        }
    }
}

#[test]
fn a_silent_run_is_counted_under_its_own_kind() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_IDLE_TIMEOUT", "0.5");
    let server = transports::serve(Wire::Streamable, program);
    fabric.once_run(Reply::silence());
    Streamable::to(&server, NEWEST, None).call("fabric_run_pattern", run("ai"));
    for sample in [
        "fabric_mcp_calls_total{tool=\"fabric_run_pattern\",outcome=\"fabric-timeout\"} 1",
        "fabric_mcp_fabric_errors_total{kind=\"fabric-timeout\"} 1",
    ] {
        assert!(
            metrics(&server).lines().any(|line| line == sample),
            "{sample}\n{}",
            metrics(&server)
        );
    }
}

#[test]
fn the_debug_level_has_one_line_for_each_request_to_fabric_and_each_retry() {
    let fabric = FakeFabric::start();
    fabric.require_key("canary-key-1234");
    let program = Program::with(&fabric)
        .env("FABRIC_API_KEY", "canary-key-1234")
        .env("FABRIC_MCP_LOG_LEVEL", "debug");
    let mut client = Stdio::speaking(NEWEST, program);
    client
        .process
        .wait_stderr("method=GET path=/patterns/names status=200 duration_ms=");
    for _ in 0..2 {
        fabric.once("GET /models/names", Reply::failure(503, json!("canary")));
    }
    client.call("fabric_list_models", json!({}));
    client.call(
        "fabric_get_pattern_details",
        json!({"pattern_name": "überblick für alle"}),
    );
    client.call("fabric_run_pattern", run("ai"));
    fabric.once_run(Reply::closes());
    client.call("fabric_run_pattern", run("ai"));
    client.process.wait_stderr("ok=false");
    let log = client.stderr();
    let lines: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once("DEBUG [fabric_mcp::fabric] "))
        .map(|(_, l)| l)
        .collect();
    // The start-up check, then the requests of the calls, in order.
    let expected = [
        "method=GET path=/patterns/names status=200",
        "method=GET path=/models/names status=503 error=fabric-api-unavailable",
        "method=GET path=/models/names try=2 status=503 error=fabric-api-unavailable",
        "method=GET path=/models/names try=3 status=200",
        "method=GET path=/patterns/%C3%BCberblick%20f%C3%BCr%20alle status=200",
        "method=POST path=/chat status=200",
        "method=POST path=/chat error=fabric-api-unavailable",
    ];
    let cut: Vec<&str> = lines
        .iter()
        .map(|line| line.split_once(" duration_ms=").unwrap().0)
        .collect();
    assert_eq!(cut, expected, "{log}");
    assert!(!log.contains("canary"), "{log}");
    let quiet = Stdio::speaking(NEWEST, Program::with(&fabric));
    quiet.process.wait_stderr("onnect");
    assert!(!quiet.stderr().contains("DEBUG"), "{}", quiet.stderr());
}
