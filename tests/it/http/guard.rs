//! Access checks: Host and Origin, the token, CORS, rates, and the addresses to listen on.

use serde_json::{Value, json};

use super::{Modern, POST, list_patterns, run};
use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, Era, expect};

const TOKEN: &str = "a-token-of-some-length";

#[test]
fn foreign_hosts_and_origins_get_an_error_that_names_the_flag() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .flags("--allowed-host mcp.example.com --allowed-origin https://app.example.com")
        .flags("--allow-unauthenticated");
    let server = HttpServer::start(program);
    let mut http = server.connect();
    for (name, value, flag) in [
        ("Host", "evil.example.com", "--allowed-host"),
        ("Origin", "http://evil.example.com", "--allowed-origin"),
        ("Origin", "null", "--allowed-origin"),
    ] {
        for (method, path) in [
            ("POST", "/mcp"),
            ("GET", "/metrics"),
            ("GET", "/nowhere"),
            ("OPTIONS", "/mcp"),
        ] {
            let answer = http.request(method, path, &[(name, value)], None);
            assert_eq!(answer.status, 403, "{name}: {value}, {path}");
            contains(answer.text(), [&*format!("{flag} {value}")]);
            assert!(answer.header("access-control-allow-origin").is_none());
        }
        let health = http.get("/healthz", &[(name, value)]);
        assert_eq!(health.status, 200, "anyone may ask that");
    }
    for (name, value) in [
        ("Host", "mcp.example.com"),
        ("Host", "localhost:99"),
        ("Origin", "https://app.example.com"),
        ("Origin", "http://localhost:5173"),
    ] {
        let discover = Modern::new(json!(1), "server/discover", json!({})).with(name, value);
        assert_eq!(discover.post(&server).status, 200, "{name}: {value}");
    }
}

#[test]
fn a_token_is_asked_of_everyone_but_probes_and_preflights() {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN));
    let mut http = server.connect();
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    let right = format!("Bearer {TOKEN}");
    let near = format!("Bearer {}x", &TOKEN[..TOKEN.len() - 1]);
    for (values, status) in [
        (&[][..], 401),
        (&["Bearer "], 401),
        (&[&*near], 401),
        (&[&*format!("{right}x")], 401),
        (&[&*right.to_uppercase()], 401),
        (&[&*right, "Bearer other"], 401),
        (&[&*right], 200),
        (&[&*format!("bearer  {TOKEN}")], 200),
    ] {
        let tokens = values.iter().map(|value| ("Authorization", *value));
        let headers: Vec<_> = discover.headers().into_iter().chain(tokens).collect();
        let answer = http.post("/mcp", &headers, &discover.message);
        assert_eq!(answer.status, status, "{values:?}");
        let challenge = (status == 401).then_some("Bearer");
        assert_eq!(answer.header("www-authenticate"), challenge, "{values:?}");
        assert!(!answer.text().contains(TOKEN));
    }
    // Before the type, the method and the body.
    let plain = [("Content-Type", "text/plain")];
    for (method, path, body) in [
        ("POST", "/mcp", Some(&b"{"[..])),
        ("PUT", "/mcp", None),
        ("GET", "/metrics", None),
    ] {
        let answer = http.request(method, path, &plain, body);
        assert_eq!(answer.status, 401, "{method} {path}");
    }
    let authorization = [("Authorization", &*right)];
    assert_eq!(http.get("/metrics", &authorization).status, 200);
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/.well-known/oauth-protected-resource", 404),
    ] {
        assert_eq!(http.get(path, &[]).status, status, "{path}");
    }
    assert!(!server.process.stderr().contains(TOKEN));
}

#[test]
fn pages_of_allowed_origins_get_cors() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN);
    let server = HttpServer::start(program.flags("--allowed-origin https://app.example.com"));
    let mut http = server.connect();
    let origin = ("Origin", "https://app.example.com");
    let asked = "content-type, Authorization,mcp-protocol-version, mcp-param-x, Mcp-Session-Id, last-event-id, x-evil, accept";
    let preflight = [
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", asked),
    ];
    let allowed = "content-type, authorization, mcp-protocol-version, mcp-param-x, mcp-session-id, last-event-id, accept";
    let answer = http.request("OPTIONS", "/mcp", &preflight, None);
    assert_eq!(&*answer.expect_status(204).body, b"");
    for (header, value) in [
        ("access-control-allow-origin", Some(origin.1)),
        (
            "access-control-allow-methods",
            Some("GET, POST, DELETE, OPTIONS"),
        ),
        ("access-control-allow-headers", Some(allowed)),
        ("access-control-allow-credentials", None),
        ("vary", Some("Origin")),
    ] {
        assert_eq!(answer.header(header), value, "{header}");
    }
    // On every answer, including errors and streams.
    fabric.on_run(Reply::run(&["x"]));
    let authorization = format!("Bearer {TOKEN}");
    let authorized = [origin, ("Authorization", &*authorization), POST[0]];
    let run = Modern::new(json!(1), "tools/call", run(json!(0)));
    let run = run.with(origin.0, origin.1);
    let run = run.with("Authorization", &authorization);
    for (answer, status) in [
        (http.request("POST", "/mcp", &[origin], Some(b"{}")), 401),
        (http.get("/nowhere", &[origin]), 404),
        (run.send(&mut http, "/mcp"), 200),
        (http.request("POST", "/mcp", &authorized, Some(b"{")), 400),
    ] {
        for (header, value) in [
            ("access-control-allow-origin", origin.1),
            (
                "access-control-expose-headers",
                "Mcp-Session-Id, WWW-Authenticate",
            ),
            ("vary", "Origin"),
        ] {
            let found = answer.expect_status(status).header(header);
            assert_eq!(found, Some(value), "{status}");
        }
    }
    let without = http.request("POST", "/mcp", &[], Some(b"{}"));
    assert!(without.header("access-control-allow-origin").is_none());
}

#[test]
fn runs_are_limited_by_rate_and_nothing_else_counts() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["x"]));
    let program = Program::with(&fabric).flags("--max-calls-per-minute 2");
    let server = HttpServer::start(program);
    let call = |params: Value| {
        let call = Modern::new(json!(1), "tools/call", params);
        let call = call.with("Accept", "application/json");
        call.post(&server).json()["result"].take()
    };
    let chain = json!({"pattern_name": "ai", "input_text": "x", "then": ["gone"]});
    let chain = json!({"name": "fabric_run_pattern", "arguments": chain});
    for _ in 0..3 {
        expect::failure(Era::MODERN, &call(chain.clone()), "pattern-not-found");
        assert_eq!(call(list_patterns())["isError"], false);
    }
    for _ in 0..2 {
        assert_eq!(call(run(json!(0)))["isError"], false);
    }
    let refused = call(run(json!(0)));
    expect::failure(Era::MODERN, &refused, "too-many-requests");
    let wait = refused["_meta"]["error"]["retry_after_ms"].as_u64();
    assert!(wait.is_some_and(|wait| (1..=30_000).contains(&wait)));
    assert_eq!(call(list_patterns())["isError"], false);
    fabric.expect_chats(2);
}

#[test]
fn it_listens_on_ipv6_and_says_what_is_wrong_where_it_cannot() {
    let fabric = FakeFabric::start();
    let first = HttpServer::start(Program::with(&fabric).flags("--host ::1"));
    let port = first.address.port();
    let at = format!("at http://[::1]:{port}/mcp");
    contains(first.process.stderr(), [&*at]);
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    let discover = discover.with("Host", &format!("[::1]:{port}"));
    discover.post(&first).expect_status(200);
    let taken = format!("--host ::1 --port {port}");
    for (flags, reason) in [
        (&*taken, "another program listens there"),
        ("--host 192.0.2.1 --port 0", "choose another --host"),
    ] {
        let program = Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN);
        let program = program.flags(flags).flags("--transport http");
        let finished = program.run(DEADLINE);
        finished.expect_code(1).expect_stderr(reason);
        let told = finished.stderr.matches("cannot listen on").count();
        assert_eq!(told, 1, "{}", finished.stderr);
    }
}
