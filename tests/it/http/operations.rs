//! `/healthz`, `/readyz` and `/metrics`.

use serde_json::json;

use super::{Modern, initialize, list_patterns, run, start};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::http::HttpServer;
use crate::support::poll;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, expect};

fn metric(server: &HttpServer, name: &str) -> Option<f64> {
    let text = server
        .connect()
        .request("GET", "/metrics", &[], None)
        .text();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn ready_means_that_fabric_answers() {
    let program = Program::new([
        "--fabric-url",
        &format!("http://127.0.0.1:{}", closed_port()),
    ]);
    let server = HttpServer::start(program);
    let mut http = server.connect();
    assert_eq!(
        http.request("GET", "/healthz", &[], None).text(),
        r#"{"status":"ok"}"#
    );
    let answer = http.request("GET", "/readyz", &[], None);
    assert_eq!(
        (answer.status, &answer.json()["type"]),
        (503, &json!("urn:fabric-mcp:error:fabric-api-unavailable"))
    );
    expect::no_leak(&answer.text());
    let (_fabric, server) = start();
    let mut http = server.connect();
    let answer = http.request("GET", "/readyz", &[], None);
    assert_eq!(
        (answer.status, answer.text()),
        (200, r#"{"status":"ok"}"#.to_owned())
    );
    http.send("HEAD", "/readyz", &[], None).unwrap();
    assert_eq!(http.head().unwrap().status, 200);
}

#[test]
fn a_healthcheck_asks_this_machine_and_nobody_else() {
    let (fabric, server) = start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port_of = |url: &str| url.rsplit(':').next().unwrap().to_owned();
    let (ours, other) = (server.address.port().to_string(), port_of(&fabric.url()));
    let (closed, silent) = (closed_port(), silent.local_addr().unwrap().port());
    for (host, port, said) in [
        ("0.0.0.0", ours.as_str(), ""),
        ("192.0.2.1", &ours, ""),
        ("localhost", &ours, ""),
        ("::", &ours, "no server lives at http://[::1]:"),
        ("", &closed.to_string(), "refused"),
        ("", &silent.to_string(), "/healthz: no answer within 2 s; "),
        ("", &other, "the answer begins with \"HTTP/1.1 404\"; "),
        ("", "x", "FABRIC_MCP_PORT: \"x\" is not a port"),
    ] {
        let check = Program::new(["--healthcheck"]).env("FABRIC_MCP_HOST", host);
        let check = check.env("FABRIC_MCP_PORT", port).run(DEADLINE);
        check
            .expect_code(i32::from(!said.is_empty()))
            .expect_stderr(said);
        assert_eq!(check.stderr.lines().count(), usize::from(!said.is_empty()));
        assert_eq!(check.stdout, "");
    }
}

#[test]
fn many_probes_are_one_question_to_fabric() {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric));
    server.process.wait_stderr("Successfully connected");
    fabric.forget();
    fabric.once("GET /patterns/names", Reply::json(json!(["x"])).gate());
    std::thread::scope(|scope| {
        let probes: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| server.connect().request("GET", "/readyz", &[], None).status))
            .collect();
        fabric.wait_requests("GET /patterns/names", 1);
        fabric.release_all();
        for probe in probes {
            assert_eq!(probe.join().unwrap(), 200);
        }
    });
    let asked = fabric.requests_of("GET /patterns/names").len();
    assert!(
        asked <= 2,
        "{asked} questions: one, and one more if the probes took longer than a second"
    );
}

#[test]
fn metrics_count_events() {
    let (fabric, server) = start();
    fabric.once("POST /chat", Reply::run(&["four", "five "]));
    fabric.once("POST /chat", Reply::sse().gate().cut());
    let mut http = server.connect();
    let text = Modern::new(json!(1), "tools/call", list_patterns())
        .send(&mut http, "/mcp")
        .text();
    assert!(text.contains("false"), "{text}");
    Modern::new(json!(1), "tools/call", run(json!(0))).send(&mut http, "/mcp");
    let mut events = Modern::new(json!(1), "tools/call", run(json!(0))).stream(&server);
    fabric.wait_held(1);
    assert_eq!(metric(&server, "fabric_mcp_runs_in_flight"), Some(1.0));
    fabric.release_all();
    while events.next().unwrap().is_some() {}
    let session = initialize(&server, "2025-11-25");
    assert_eq!(metric(&server, "fabric_mcp_sessions"), Some(1.0));
    http.request("DELETE", "/mcp", &[("Mcp-Session-Id", &session)], None);
    for (name, value) in [
        ("fabric_mcp_sessions", 0.0),
        ("fabric_mcp_runs_in_flight", 0.0),
        ("fabric_mcp_runs_kept", 2.0),
        ("fabric_mcp_relayed_bytes_total", 9.0),
        (
            r#"fabric_mcp_calls_total{tool="fabric_list_patterns",outcome="ok"}"#,
            1.0,
        ),
        (
            r#"fabric_mcp_calls_total{tool="fabric_run_pattern",outcome="ok"}"#,
            1.0,
        ),
        (
            r#"fabric_mcp_calls_total{tool="fabric_run_pattern",outcome="fabric-stream-interrupted"}"#,
            1.0,
        ),
        (
            r#"fabric_mcp_fabric_errors_total{kind="fabric-stream-interrupted"}"#,
            1.0,
        ),
        (
            r#"fabric_mcp_call_duration_seconds_count{tool="fabric_run_pattern"}"#,
            2.0,
        ),
    ] {
        assert_eq!(metric(&server, name), Some(value), "{name}");
    }
    drop(events);
    let connections = || metric(&server, "fabric_mcp_connections").unwrap();
    // Our connection, and that of the request itself.
    assert!(
        poll(DEADLINE, || (connections() == 2.0).then_some(())).is_some(),
        "{} connections",
        connections()
    );
}
