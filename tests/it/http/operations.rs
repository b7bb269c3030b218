//! `/healthz`, `/readyz` and `/metrics`.

use serde_json::json;

use super::{Modern, WebSession, list_patterns, run, start};
use crate::support::fabric::closed_port;
use crate::support::http::HttpServer;
use crate::support::poll;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, expect};

#[test]
fn ready_means_that_fabric_answers() {
    let ok = r#"{"status":"ok"}"#;
    let url = format!("http://127.0.0.1:{}", closed_port());
    let server = HttpServer::start(Program::new(["--fabric-url", &url]));
    assert_eq!(server.get("/healthz", &[]).text(), ok);
    let answer = server.get("/readyz", &[]);
    let kind = "urn:fabric-mcp:error:fabric-api-unavailable";
    assert_eq!(answer.expect_status(503).json()["type"], kind);
    expect::no_leak(&answer.text());
    let (_fabric, server) = start();
    let mut http = server.connect();
    let answer = http.get("/readyz", &[]);
    assert_eq!(answer.expect_status(200).text(), ok);
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
        ("::", &ours, "the server at http://[::1]:"),
        ("", &closed.to_string(), "refused"),
        (
            "",
            &silent.to_string(),
            "/healthz does not answer within 2 s; ",
        ),
        ("", &other, "/healthz answers with HTTP 404; "),
        ("", "x", "FABRIC_MCP_PORT: \"x\" is not a number"),
    ] {
        let check = Program::new(["--healthcheck"]).env("FABRIC_MCP_HOST", host);
        let check = check.env("FABRIC_MCP_PORT", port).run(DEADLINE);
        check
            .expect_code(i32::from(!said.is_empty()))
            .expect_stderr(said);
        assert_eq!(check.stderr.lines().count(), usize::from(!said.is_empty()));
        assert_eq!(check.stdout, "");
    }
    // Here all of 127.0.0.0/8 is this machine.
    if cfg!(target_os = "linux") {
        let server = HttpServer::start(Program::with(&fabric).flags("--host 127.0.0.2"));
        let flags = format!(
            "--healthcheck --host 127.0.0.2 --port {}",
            server.address.port()
        );
        Program::new([]).flags(&flags).run(DEADLINE).expect_code(0);
    }
}

#[test]
fn many_probes_are_one_question_to_fabric_and_few_wait() {
    let (fabric, server) = start();
    server.process.wait_stderr("Successfully connected");
    fabric.forget();
    let names = Reply::sse().header("Content-Type", "application/json");
    fabric.once("GET /patterns/names", names.gate().bytes("[\"x\"]"));
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        for _ in 0..24 {
            let (tell, server) = (tell.clone(), &server);
            scope.spawn(move || tell.send(server.get("/readyz", &[]).status));
        }
        let next = |many| Vec::from_iter(told.iter().take(many));
        assert_eq!(
            next(8),
            [503; 8],
            "16 wait, and of the others nothing is known"
        );
        fabric.release_all();
        assert_eq!(next(16), [200; 16]);
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
    fabric.once_run(Reply::run(&["four", "five "]));
    fabric.once_run(Reply::sse().gate().cut());
    let mut http = server.connect();
    let list = Modern::new(json!(1), "tools/call", list_patterns()).send(&mut http, "/mcp");
    expect::contains(list.text(), ["false"]);
    let run = Modern::new(json!(1), "tools/call", run(json!(0)));
    run.send(&mut http, "/mcp");
    let mut events = run.stream(&server);
    fabric.wait_held(1);
    assert_eq!(server.metric("fabric_mcp_runs_in_flight"), Some(1.0));
    fabric.release_all();
    while events.next().unwrap().is_some() {}
    let session = WebSession::open(&server, "2025-11-25");
    assert_eq!(server.metric("fabric_mcp_sessions"), Some(1.0));
    session.delete();
    for sample in [
        "sessions 0",
        "runs_in_flight 0",
        "runs_kept 2",
        "relayed_bytes_total 9",
        r#"calls_total{tool="fabric_list_patterns",outcome="ok"} 1"#,
        r#"calls_total{tool="fabric_run_pattern",outcome="ok"} 1"#,
        r#"calls_total{tool="fabric_run_pattern",outcome="fabric-stream-interrupted"} 1"#,
        r#"fabric_errors_total{kind="fabric-stream-interrupted"} 1"#,
        r#"call_duration_seconds_count{tool="fabric_run_pattern"} 2"#,
    ] {
        let sample = format!("\nfabric_mcp_{sample}\n");
        expect::contains(server.metrics(), [&*sample]);
    }
    drop(events);
    let connections = || server.metric("fabric_mcp_connections").unwrap();
    // Our connection, and that of the request itself.
    let two = poll(DEADLINE, || (connections() == 2.0).then_some(()));
    assert!(two.is_some(), "{} connections", connections());
}
