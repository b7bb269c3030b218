//! Log lines of failed and refused calls, and of requests to Fabric; and their metrics.

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::process::{Process, Program};
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, ERAS, Era};

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
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    let path = Reply::sse().error("Error: model not found, see /srv/canary/x");
    let echo = Reply::sse().content("canary-output");
    let echo = echo.error("no such thing: \"canary-input\", canary-output");
    let not_run = "reason=\"Fabric could not run the pattern. ";
    let said = format!("{not_run}Error: model not found, see [path]\"");
    let wrong = |status| Reply::failure(status, json!("canary"));
    let at_fabric = "reason=\"Fabric at ";
    let cut = Reply::sse().content("canary").cut();
    let list = Reply::json(json!([]));
    let unexpected = "something that Fabric would not send";
    for (reply, status, reason) in [
        (path.complete(), "api-error status=200", &*said),
        (echo.complete(), "api-error status=200", "reason=[...]"),
        (wrong(500), "internal-error status=500", at_fabric),
        (wrong(401), "api-unauthorized status=401", ""),
        (cut, "stream-interrupted status=200", ""),
        (list, "api-error status=200", unexpected),
        (Reply::silence(), "timeout reason=", "was silent for 1 s"),
        (Reply::closes(), "api-unavailable reason=", ""),
    ] {
        fabric.once_run(reply);
        let result = client.call("fabric_run_pattern", run("summarize"));
        let id = result["_meta"]["error"]["request_id"].as_str().unwrap();
        let line = line(&client.process, &[id]);
        let status = format!("error=fabric-{status}");
        let tool = "tool=fabric_run_pattern pattern=summarize ";
        contains(line, [" WARN ", tool, &status, reason]);
    }
    fabric.on("GET /patterns/names", Reply::failure(500, json!("canary")));
    let error = client.error("prompts/list", json!({}));
    let id = error["data"]["request_id"].as_str().unwrap();
    let begin = "WARN  [fabric_mcp::server] method=prompts/list ok=false code=-32603 error=fabric-internal-error status=500";
    contains(line(&client.process, &[id]), [begin]);
    assert!(!client.stderr().contains("canary"), "{}", client.stderr());
}

#[test]
fn what_the_operator_refuses_is_logged_with_its_pattern_and_the_reason() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--read-only --deny-pattern ai --default-model m");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    client.failure("fabric_run_pattern", run("summarize"), "forbidden");
    let wrong = json!({"dry_run": true, "top_p": 5, "pattern_name": "summarize", "then": ["../y"]});
    client.failure("fabric_run_pattern", wrong, "invalid-request");
    let prompt = json!({"type": "ref/prompt", "name": "ai"});
    let argument = json!({"name": "x", "value": ""});
    let params = json!({"name": "ai", "ref": prompt, "argument": argument});
    for method in ["prompts/get", "completion/complete"] {
        client.error(method, params.clone());
    }
    let denied = "pattern=ai model=default ok=false code=-32602 error=invalid-request reason=\"`";
    for begin in [
        "pattern=summarize model=m ok=false error=forbidden reason=\"This server does not run",
        "pattern=summarize model=m dry_run=true ok=false error=invalid-request argument=top_p",
        &format!("{denied}name`: the pattern ai is denied"),
        &format!("{denied}ref.name`: the pattern ai is denied"),
    ] {
        client.process.wait_stderr(begin);
    }
}

#[test]
fn refusals_before_a_run_are_counted_for_every_caller() {
    for era in ERAS.into_iter().skip(1) {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).flags("--max-calls-per-minute 1");
        let server = transports::serve(Wire::Streamable, program);
        let mut client = Streamable::to(&server, era, None);
        let mut answer = Value::Null;
        let hot = json!({"pattern_name": "ai", "temperature": 99});
        let denied =
            json!({"tempo": 1, "pattern_name": "create_coding_feature", "model_name": "m"});
        let denied = client.request(
            "tools/call",
            json!({"name": "fabric_run_pattern", "arguments": denied}),
        );
        let is_result = era >= Era::R2025_11_25;
        assert_eq!(denied["result"]["isError"] == true, is_result, "{denied}");
        assert_eq!(denied["error"]["code"] == -32602, !is_result, "{denied}");
        contains(denied, ["`tempo`", "--allow-pattern", "no model named"]);
        let said = line(&server.process, &["pattern=create_coding_feature"]);
        let refused = "tool=fabric_run_pattern pattern=create_coding_feature model=m ok=false error=invalid-request reason=\"`pattern_name`: create_coding_feature writes";
        contains(&said, [refused, "caller="]);
        assert!(!said.contains("tempo"), "{said}");
        for (tool, arguments) in [
            ("fabric_run_pattern", hot),
            ("fabric_run_pattern", json!({})),
            ("fabric_list_models", json!({"x": 1})),
            ("fabric_nope", json!({})),
            ("fabric_run_pattern", run("ai")),
            ("fabric_run_pattern", run("ai")),
        ] {
            answer = client.request("tools/call", json!({"name": tool, "arguments": arguments}));
        }
        contains(answer, ["You may begin at most 1 run a minute"]);
        fabric.expect_chats(1);
        let metrics = server.metrics();
        for (tool, outcome, count) in [
            ("fabric_run_pattern", "invalid-request", 3),
            ("fabric_list_models", "invalid-request", 1),
            ("fabric_run_pattern", "too-many-requests", 1),
            ("fabric_run_pattern", "ok", 1),
        ] {
            let sample = format!(
                "\nfabric_mcp_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}\n"
            );
            contains(&metrics, [&*sample]);
        }
        // None of these is a failure of Fabric.
        let kind = "# TYPE fabric_mcp_fabric_errors_total counter\n";
        contains(&metrics, [kind]);
        let part = "fabric_mcp_fabric_errors_total{";
        assert!(!metrics.contains(part), "{metrics}");
        let unknown = line(&server.process, &["tool=fabric_nope"]);
        contains(unknown, [" WARN ", "caller=", "reason="]);
        let line = line(&server.process, &["error=too-many-requests"]);
        let call = "tool=fabric_run_pattern pattern=ai model=default ok=false";
        contains(line, [" WARN ", call, "reason="]);
    }
}

#[test]
fn what_a_client_sends_looks_like_no_field_of_the_log() {
    let fabric = FakeFabric::start();
    let logged = r#"answered 403: The Host \"evil\"x ok=true\" is not "#;
    for format in ["logfmt", "json"] {
        let program = Program::with(&fabric).arg("--log-format").arg(format);
        let server = transports::serve(Wire::Streamable, program);
        let answer = server.get("/mcp", &[("Host", "evil\"x ok=true")]);
        assert_eq!(answer.status, 403);
        let line = line(&server.process, &["answered 403"]);
        assert!(line.contains(logged), "{line}");
        if format == "json" {
            assert!(serde_json::from_str::<Value>(&line).unwrap()["ok"].is_null());
        } else {
            contains(&line, ["] message=\"127.0.0.1:"]);
            assert!(line.ends_with('"'), "{line}");
        }
    }
}

#[test]
fn a_silent_run_is_counted_under_its_own_kind() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_IDLE_TIMEOUT", "0.5");
    let server = transports::serve(Wire::Streamable, program);
    fabric.once_run(Reply::silence());
    Streamable::to(&server, Era::NEWEST_LEGACY, None).call("fabric_run_pattern", run("ai"));
    let samples = [
        "\nfabric_mcp_calls_total{tool=\"fabric_run_pattern\",outcome=\"fabric-timeout\"} 1\n",
        "\nfabric_mcp_fabric_errors_total{kind=\"fabric-timeout\"} 1\n",
    ];
    contains(server.metrics(), samples);
}

#[test]
fn the_debug_level_has_one_line_for_each_request_to_fabric_and_each_retry() {
    let fabric = FakeFabric::start();
    fabric.require_key("canary-key-1234");
    let program = Program::with(&fabric)
        .env("FABRIC_API_KEY", "canary-key-1234")
        .env("FABRIC_MCP_LOG_LEVEL", "debug");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    let checked = "method=GET path=/patterns/names status=200 duration_ms=";
    client.process.wait_stderr(checked);
    for _ in 0..2 {
        fabric.once("GET /models/names", Reply::failure(503, json!("canary")));
    }
    client.call("fabric_list_models", json!({}));
    let details = json!({"pattern_name": "überblick für alle"});
    client.call("fabric_get_pattern_details", details);
    client.call("fabric_run_pattern", run("ai"));
    fabric.once_run(Reply::closes());
    client.call("fabric_run_pattern", run("ai"));
    client.process.wait_stderr("ok=false");
    let log = client.stderr();
    let lines = log.lines().filter_map(|line| {
        let (_, line) = line.split_once("DEBUG [fabric_mcp::fabric] ")?;
        Some(line.split_once(" duration_ms=").unwrap().0)
    });
    // The start-up check, then the requests of the calls, in order.
    let expected = [
        "method=GET path=/patterns/names status=200",
        "method=GET path=/models/names status=503 error=fabric-api-unavailable",
        "method=GET path=/models/names status=503 error=fabric-api-unavailable",
        "method=GET path=/models/names status=200",
        "method=GET path=/patterns/%C3%BCberblick%20f%C3%BCr%20alle status=200",
        "method=POST path=/chat status=200",
        "method=POST path=/chat error=fabric-api-unavailable",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected, "{log}");
    assert!(!log.contains("canary"), "{log}");
    let quiet = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    quiet.process.wait_stderr("onnect");
    assert!(!quiet.stderr().contains("DEBUG"), "{}", quiet.stderr());
}
