//! The connection to Fabric: URLs, proxies, retries, and timeouts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::table::{
    API_ERROR, INTERNAL, INTERRUPTED, TOO_LARGE, UNAUTHORIZED, UNAVAILABLE,
};
use crate::support::expect::{self, partial};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::fixtures::HOST_PATH;
use crate::support::process::Program;
use crate::support::reply::{Framing, Reply, Step};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era};

/// The idle timeout of runs in these tests, in seconds. Long enough for a busy machine to send the next byte, short
/// enough to wait for.
const IDLE: &str = "3";

fn run() -> Value {
    json!({"pattern_name": "summarize", "input_text": "input", "stream": true})
}

#[test]
fn nobody_listens() {
    let fabric = FakeFabric::start();
    for url in [
        format!("http://127.0.0.1:{}", closed_port()),
        "http://fabric-host.invalid".to_owned(),
    ] {
        let program = Program::new([])
            .env("FABRIC_BASE_URL", &url)
            .env("FABRIC_MCP_CONNECT_TIMEOUT", "2");
        let mut client = Stdio::speaking(Era::Modern, program);
        expect::failure(
            Era::Modern,
            &client.call("fabric_run_pattern", run()),
            UNAVAILABLE,
        );
        expect::failure(
            Era::Modern,
            &client.call("fabric_list_patterns", json!({})),
            UNAVAILABLE,
        );
    }
    fabric.expect_chats(0);
}

#[test]
fn fabric_may_come_up_later_and_go_down_again() {
    let port = closed_port();
    let program = Program::new([]).env("FABRIC_BASE_URL", &format!("http://127.0.0.1:{port}"));
    let mut client = Stdio::speaking(Era::Modern, program);
    expect::failure(
        Era::Modern,
        &client.call("fabric_list_strategies", json!({})),
        UNAVAILABLE,
    );
    let fabric = FakeFabric::start_at(port).expect("the port given up a moment ago");
    expect::success(
        Era::Modern,
        &client.call("fabric_list_strategies", json!({})),
    );
    drop(fabric);
    expect::failure(
        Era::Modern,
        &client.call("fabric_list_strategies", json!({})),
        UNAVAILABLE,
    );
}

#[test]
fn a_connection_closed_between_requests_costs_nothing() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    for _ in 0..3 {
        expect::success(
            Era::Legacy("2025-11-25"),
            &client.call("fabric_list_strategies", json!({})),
        );
        fabric.forget();
        fabric.close_connections();
        let result = client.call("fabric_run_pattern", run());
        assert_eq!(
            result["content"][0]["text"], "Ran summarize on: input",
            "{result}"
        );
        fabric.expect_chats(1);
        fabric.close_connections();
    }
}

#[test]
fn a_redirect_is_not_followed_and_the_key_stays_here() {
    let fabric = FakeFabric::start();
    let other = FakeFabric::start();
    fabric.require_key("canary-key");
    let mut client = Stdio::speaking(
        Era::Modern,
        Program::with(&fabric).env("FABRIC_API_KEY", "canary-key"),
    );
    for (status, place) in [
        (302, "/chat"),
        (307, "/chat"),
        (308, "/chat"),
        (301, "/strategies"),
    ] {
        let reply = Reply::new(status, "text/plain", "")
            .header("Location", &format!("{}{place}", other.url()));
        fabric.forget();
        fabric.once("POST /chat", reply.clone());
        expect::failure(
            Era::Modern,
            &client.call("fabric_run_pattern", run()),
            API_ERROR,
        );
        fabric.expect_chats(1);
        fabric.once("GET /strategies", reply);
        expect::failure(
            Era::Modern,
            &client.call("fabric_list_strategies", json!({})),
            API_ERROR,
        );
    }
    assert_eq!(
        (other.accepted(), other.routes()),
        (0, Vec::new()),
        "the other host must not be contacted"
    );
}

#[test]
fn reads_are_tried_again_when_that_can_help_and_only_then() {
    let cases: Vec<(&str, Vec<Reply>, usize, Option<&str>)> = vec![
        ("503 twice", vec![failing(503), failing(503)], 3, None),
        ("502 once", vec![failing(502)], 2, None),
        (
            "504 for ever",
            vec![failing(504), failing(504), failing(504)],
            3,
            Some(UNAVAILABLE),
        ),
        ("reset once", vec![Reply::resets()], 2, None),
        ("closed once", vec![Reply::closes()], 2, None),
        ("501", vec![failing(501)], 1, Some(INTERNAL)),
        ("500, which is no folder", vec![failing(500)], 1, None),
        ("429", vec![failing(429)], 1, Some(API_ERROR)),
        ("401", vec![failing(401)], 1, Some(UNAUTHORIZED)),
        (
            "not JSON",
            vec![Reply::new(200, "application/json", "{oops")],
            1,
            Some(API_ERROR),
        ),
        (
            "another shape",
            vec![Reply::json(json!({"a": 1}))],
            1,
            Some(API_ERROR),
        ),
        (
            "HTML",
            vec![Reply::new(200, "text/html", "<html>")],
            1,
            Some(API_ERROR),
        ),
        ("silence", vec![Reply::silence()], 1, Some(UNAVAILABLE)),
    ];
    for era in [Era::Legacy("2024-11-05"), Era::Modern] {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(
            era,
            Program::with(&fabric).env("FABRIC_MCP_REQUEST_TIMEOUT", IDLE),
        );
        for (name, replies, tries, kind) in &cases {
            eprintln!("{era:?}: {name}");
            fabric.forget();
            replies
                .iter()
                .for_each(|reply| fabric.once("GET /strategies", reply.clone()));
            let result = client.call("fabric_list_strategies", json!({}));
            match kind {
                Some(kind) => drop(expect::failure(era, &result, kind)),
                None => drop(expect::success(era, &result)),
            }
            assert_eq!(
                fabric.requests_of("GET /strategies").len(),
                *tries,
                "{name}"
            );
        }
    }
}

fn failing(status: u16) -> Reply {
    Reply::failure(status, json!({"error": format!("open {HOST_PATH}/x")}))
}

#[test]
fn a_json_body_over_16_mib_is_refused() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let era = Era::Legacy("2025-11-25");
    let big = Reply::new(200, "application/json", "").step(Step::Bytes(b"[\"".to_vec()));
    let big = big
        .step(Step::Repeat(vec![b'x'; 1 << 20], 17))
        .bytes("\"]")
        .framing(Framing::UntilClose);
    fabric.once("GET /strategies", big);
    expect::failure(
        era,
        &client.call("fabric_list_strategies", json!({})),
        TOO_LARGE,
    );
    expect::success(era, &client.call("fabric_list_strategies", json!({})));
}

#[test]
fn the_run_limit_ends_a_run_that_never_falls_silent() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_RUN_TIMEOUT", "1");
    let mut client = Stdio::speaking(Era::Modern, program);
    // More small pieces than can be sent within the run timeout.
    fabric.once(
        "POST /chat",
        Reply::sse()
            .content("kept")
            .step(Step::Repeat(b": alive\n\n".to_vec(), 500_000_000)),
    );
    let result = client.call("fabric_run_pattern", run());
    expect::failure(Era::Modern, &result, INTERRUPTED);
    assert_eq!(partial(&result), "kept");
    fabric.wait_closed(DEADLINE);
}

#[cfg(feature = "tls")]
#[test]
fn a_server_without_tls_behind_https_is_unavailable() {
    let fabric = FakeFabric::start();
    let url = format!("https://127.0.0.1:{}", fabric.port());
    let mut client = Stdio::speaking(Era::Modern, Program::new([]).env("FABRIC_BASE_URL", &url));
    expect::failure(
        Era::Modern,
        &client.call("fabric_run_pattern", run()),
        UNAVAILABLE,
    );
    fabric.expect_chats(0);
}

#[test]
fn a_fabric_behind_a_path_is_reached() {
    for slash in ["", "/"] {
        let fabric = FakeFabric::start();
        fabric.prefix("/behind/proxy");
        let url = format!("{}/behind/proxy{slash}", fabric.url());
        let mut client =
            Stdio::speaking(Era::Modern, Program::new([]).env("FABRIC_BASE_URL", &url));
        assert_eq!(
            client.call("fabric_run_pattern", run())["content"][0]["text"],
            "Ran summarize on: input"
        );
        assert_eq!(
            fabric.requests_of("POST /behind/proxy/chat").len(),
            1,
            "{:?}",
            fabric.routes()
        );
    }
}

#[test]
fn a_proxy_in_the_environment_is_not_used_for_loopback() {
    let fabric = FakeFabric::start();
    let proxy = FakeFabric::start();
    let mut program = Program::with(&fabric);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        program = program.env(name, &proxy.url());
    }
    let mut client = Stdio::speaking(Era::Modern, program);
    expect::success(Era::Modern, &client.call("fabric_list_patterns", json!({})));
    expect::success(Era::Modern, &client.call("fabric_run_pattern", run()));
    assert_eq!(proxy.accepted(), 0);
}

#[test]
fn heartbeats_keep_coming_while_fabric_is_silent() {
    // The one test that waits in real time: a heartbeat is due after 5 s of silence.
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    fabric.once("POST /chat", Reply::sse().gate().content("late").complete());
    let id = client.begin_call("fabric_run_pattern", run(), Some(json!(0)));
    let begun = std::time::Instant::now();
    let note = client.next_note();
    assert!(
        begun.elapsed() >= Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        (&note["method"], &note["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(0))
    );
    assert!(
        note["params"].get("message").is_none(),
        "a heartbeat has no message: {note}"
    );
    assert!(
        note["params"]["progress"]
            .as_f64()
            .is_some_and(|progress| progress > 0.0),
        "{note}"
    );
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "late");
}
