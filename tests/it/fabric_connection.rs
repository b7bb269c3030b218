//! The connection to Fabric: URLs, proxies, retries, and timeouts.

use std::time::Duration;

use serde_json::json;

use crate::faults::table::UNAVAILABLE;
use crate::support::expect::includes;
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::{Caller, Era, run_arguments};

#[test]
fn fabric_may_come_up_later_and_go_down_again() {
    let port = closed_port();
    let program = Program::new([]).env("FABRIC_BASE_URL", &format!("http://127.0.0.1:{port}"));
    let mut client = Stdio::speaking(Era::MODERN, program);
    client.failure("fabric_list_strategies", json!({}), UNAVAILABLE);
    let fabric = FakeFabric::start_at(port).expect("the port given up a moment ago");
    client.success("fabric_list_strategies", json!({}));
    drop(fabric);
    client.failure("fabric_list_strategies", json!({}), UNAVAILABLE);
}

#[test]
fn a_fabric_behind_a_path_is_reached() {
    for slash in ["", "/"] {
        let fabric = FakeFabric::start();
        fabric.prefix("/behind/proxy");
        let url = format!("{}/behind/proxy{slash}", fabric.url());
        let mut client =
            Stdio::speaking(Era::MODERN, Program::new([]).env("FABRIC_BASE_URL", &url));
        includes(
            &client.call("fabric_run_pattern", run_arguments("input"))["content"][0],
            json!({"text": "Ran summarize on: input"}),
        );
        let found = fabric.requests_of("POST /behind/proxy/chat").len();
        assert_eq!(found, 1, "{:?}", fabric.routes());
    }
}

#[test]
fn a_proxy_in_the_environment_is_not_used_for_loopback() {
    let fabric = FakeFabric::start();
    let proxy = FakeFabric::start();
    let mut program = Program::with(&fabric);
    for name in "http_proxy HTTP_PROXY https_proxy HTTPS_PROXY all_proxy ALL_PROXY".split(' ') {
        program = program.env(name, &proxy.url());
    }
    let mut client = Stdio::speaking(Era::MODERN, program);
    client.success("fabric_list_patterns", json!({}));
    client.success("fabric_run_pattern", run_arguments("input"));
    assert_eq!(proxy.accepted(), 0);
}

#[test]
fn heartbeats_keep_coming_while_fabric_is_silent() {
    // The one test that waits in real time: a heartbeat is due after 5 s of silence.
    let (fabric, mut client) = ready();
    fabric.on("GET /strategies", Reply::sse().hang());
    let wrong = json!({"pattern_name": "ai", "strategy_name": "x", "top_p": 9});
    let begun = std::time::Instant::now();
    client.failure("fabric_run_pattern", wrong, "invalid-request");
    let is_soon = begun.elapsed() < Duration::from_secs(20);
    assert!(is_soon, "its names are not waited for long");
    fabric.once_run(Reply::sse().gate().content("late").complete());
    let id = client.begin_call("fabric_run_pattern", run_arguments("input"), Some(json!(0)));
    let begun = std::time::Instant::now();
    let note = client.next_note();
    let is_so = begun.elapsed() >= Duration::from_secs(4);
    assert!(is_so, "{:?}", begun.elapsed());
    let members = json!({"method": "notifications/progress", "params": {"progressToken": 0}});
    includes(&note, members);
    // A heartbeat has no message.
    assert!(note["params"].get("message").is_none(), "{note}");
    assert!(note["params"]["progress"].as_f64() > Some(0.0), "{note}");
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "late");
}
