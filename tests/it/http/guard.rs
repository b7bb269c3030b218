//! Access checks: Host and Origin, the token, CORS, rates, and the addresses to listen on.

use serde_json::{Value, json};

use super::{Modern, POST, list_patterns, run};
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, Era, expect};

const TOKEN: &str = "a-token-of-some-length";

fn server(fabric: &FakeFabric, args: &[&str]) -> HttpServer {
    HttpServer::start(
        args.iter()
            .fold(Program::with(fabric), |program, arg| program.arg(arg)),
    )
}

#[test]
fn foreign_hosts_and_origins_get_an_error_that_names_the_flag() {
    let fabric = FakeFabric::start();
    let names = [
        "--allowed-host",
        "mcp.example.com",
        "--allowed-origin",
        "https://app.example.com",
    ];
    let server = server(
        &fabric,
        &[&names[..], &["--allow-unauthenticated"]].concat(),
    );
    let mut http = server.connect();
    for (name, value, flag) in [
        (
            "Host",
            "evil.example.com",
            "--allowed-host evil.example.com",
        ),
        (
            "Origin",
            "http://evil.example.com",
            "--allowed-origin http://evil.example.com",
        ),
        ("Origin", "null", "--allowed-origin null"),
    ] {
        for (method, path) in [
            ("POST", "/mcp"),
            ("GET", "/metrics"),
            ("GET", "/nowhere"),
            ("OPTIONS", "/mcp"),
        ] {
            let answer = http.request(method, path, &[(name, value)], None);
            assert_eq!(answer.status, 403, "{name}: {value}, {path}");
            assert!(answer.text().contains(flag), "{}", answer.text());
            assert!(answer.header("access-control-allow-origin").is_none());
        }
        assert_eq!(
            http.request("GET", "/healthz", &[(name, value)], None)
                .status,
            200,
            "anyone may ask that"
        );
    }
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    for header in [
        ("Host", "mcp.example.com"),
        ("Host", "localhost:99"),
        ("Origin", "https://app.example.com"),
        ("Origin", "http://localhost:5173"),
    ] {
        let mut headers = discover.headers();
        headers.push(header);
        assert_eq!(
            http.post("/mcp", &headers, &discover.message).status,
            200,
            "{header:?}"
        );
    }
}

#[test]
fn a_token_is_asked_of_everyone_but_probes_and_preflights() {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN));
    let mut http = server.connect();
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    let near = format!("{}x", &TOKEN[..TOKEN.len() - 1]);
    let cases = [
        (None, 401),
        (Some("Bearer".to_owned()), 401),
        (Some("Bearer ".to_owned()), 401),
        (Some(format!("Basic {TOKEN}")), 401),
        (Some(TOKEN.to_owned()), 401),
        (Some(format!("Bearer {near}")), 401),
        (Some(format!("Bearer {TOKEN}x")), 401),
        (Some(format!("Bearer {}", &TOKEN[1..])), 401),
        (Some(format!("Bearer {}", TOKEN.to_uppercase())), 401),
        (Some(format!("Bearer {TOKEN}")), 200),
        (Some(format!("bearer  {TOKEN}")), 200),
    ];
    for (authorization, status) in &cases {
        let mut headers = discover.headers();
        headers.extend(
            authorization
                .iter()
                .map(|value| ("Authorization", &**value)),
        );
        let answer = http.post("/mcp", &headers, &discover.message);
        assert_eq!(answer.status, *status, "{authorization:?}");
        assert_eq!(
            answer.header("www-authenticate"),
            (*status == 401).then_some("Bearer")
        );
        assert!(!answer.text().contains(TOKEN));
    }
    let mut twice = discover.headers();
    let right = format!("Bearer {TOKEN}");
    twice.extend([
        ("Authorization", &*right),
        ("Authorization", "Bearer other"),
    ]);
    assert_eq!(http.post("/mcp", &twice, &discover.message).status, 401);
    // Before the type, the method and the body.
    assert_eq!(
        http.request(
            "POST",
            "/mcp",
            &[("Content-Type", "text/plain")],
            Some(b"{")
        )
        .status,
        401
    );
    assert_eq!(http.request("PUT", "/mcp", &[], None).status, 401);
    assert_eq!(http.request("GET", "/metrics", &[], None).status, 401);
    assert_eq!(
        http.request("GET", "/metrics", &[("Authorization", &right)], None)
            .status,
        200
    );
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http.request("GET", path, &[], None).status, 200, "{path}");
    }
    assert_eq!(
        http.request("GET", "/.well-known/oauth-protected-resource", &[], None)
            .status,
        404
    );
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
    let answer = http.request("OPTIONS", "/mcp", &preflight, None);
    assert_eq!((answer.status, &*answer.body), (204, &b""[..]));
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://app.example.com")
    );
    assert_eq!(
        answer.header("access-control-allow-methods"),
        Some("GET, POST, DELETE, OPTIONS")
    );
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some(
            "content-type, authorization, mcp-protocol-version, mcp-param-x, mcp-session-id, last-event-id, accept"
        )
    );
    assert_eq!(answer.header("vary"), Some("Origin"));
    assert!(answer.header("access-control-allow-credentials").is_none());
    // On every answer, including errors and streams.
    fabric.on("POST /chat", Reply::run(&["x"]));
    let authorization = format!("Bearer {TOKEN}");
    let run = Modern::new(json!(1), "tools/call", run(json!(0)));
    let mut headers = run.headers();
    headers.extend([origin, ("Authorization", &*authorization)]);
    let answers = [
        http.request("POST", "/mcp", &[origin], Some(b"{}")),
        http.request("GET", "/nowhere", &[origin], None),
        http.post("/mcp", &headers, &run.message),
        http.request(
            "POST",
            "/mcp",
            &[origin, ("Authorization", &*authorization), POST[0]],
            Some(b"{"),
        ),
    ];
    for (answer, status) in answers.iter().zip([401, 404, 200, 400]) {
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some("https://app.example.com"),
            "{answer:?}"
        );
        assert_eq!(
            answer.header("access-control-expose-headers"),
            Some("Mcp-Session-Id, WWW-Authenticate")
        );
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    let without = http.request("POST", "/mcp", &[], Some(b"{}"));
    assert!(without.header("access-control-allow-origin").is_none());
}

#[test]
fn runs_are_limited_by_rate_and_nothing_else_counts() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::run(&["x"]));
    let server = server(&fabric, &["--max-calls-per-minute", "2"]);
    let mut http = server.connect();
    let mut call = |params: Value| {
        let call = Modern::new(json!(1), "tools/call", params);
        let headers = [&call.headers()[..], &[("Accept", "application/json")]].concat();
        http.post("/mcp", &headers, &call.message).json()["result"].take()
    };
    let chain = json!({"pattern_name": "ai", "input_text": "x", "then": ["gone"]});
    let chain = json!({"name": "fabric_run_pattern", "arguments": chain});
    for _ in 0..3 {
        expect::failure(Era::Modern, &call(chain.clone()), "pattern-not-found");
        assert_eq!(call(list_patterns())["isError"], false);
    }
    for _ in 0..2 {
        assert_eq!(call(run(json!(0)))["isError"], false);
    }
    let refused = call(run(json!(0)));
    expect::failure(Era::Modern, &refused, "too-many-requests");
    let wait = refused["_meta"]["error"]["retry_after_ms"].as_u64();
    assert!(wait.is_some_and(|wait| (1..=30_000).contains(&wait)));
    assert_eq!(call(list_patterns())["isError"], false);
    fabric.expect_chats(2);
}

#[test]
fn it_listens_on_ipv6_and_says_what_is_wrong_where_it_cannot() {
    let fabric = FakeFabric::start();
    let first = server(&fabric, &["--host", "::1"]);
    assert!(
        first
            .process
            .stderr()
            .contains(&format!("at http://[::1]:{}/mcp", first.address.port()))
    );
    let host = format!("[::1]:{}", first.address.port());
    let discover = Modern::new(json!(1), "server/discover", json!({}));
    let mut headers = discover.headers();
    headers.push(("Host", &host));
    assert_eq!(
        first
            .connect()
            .post("/mcp", &headers, &discover.message)
            .status,
        200
    );
    let taken = first.address.port().to_string();
    let cases = [
        (
            ["--host", "::1", "--port", &taken],
            "another program listens there",
        ),
        (
            ["--host", "192.0.2.1", "--port", "0"],
            "choose another --host",
        ),
    ];
    for (args, reason) in cases {
        let program = args.iter().fold(
            Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN),
            |p, arg| p.arg(arg),
        );
        let finished = program.flags("--transport http").run(DEADLINE);
        finished.expect_code(1).expect_stderr(reason);
        let lines: Vec<_> = finished
            .stderr
            .lines()
            .filter(|line| line.contains("cannot listen on"))
            .collect();
        assert_eq!(lines.len(), 1, "{}", finished.stderr);
    }
}
