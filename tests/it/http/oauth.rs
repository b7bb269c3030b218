//! OAuth callers: what they learn about the issuer, and how its introspection of their tokens is used. The issuer is a
//! fake.

use serde_json::{Value, json};

use super::{Modern, list_patterns, run};
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;

const RESOURCE: &str = "https://mcp.example.com/mcp";
const SECRET: &str = "s3cret-of-the-resource-server";

fn issuer() -> FakeFabric {
    let issuer = FakeFabric::start();
    let url = issuer.url();
    let metadata = json!({"issuer": url, "introspection_endpoint": format!("{url}/introspect")});
    issuer.on(
        "GET /.well-known/oauth-authorization-server",
        Reply::json(metadata),
    );
    issuer
}

fn server(fabric: &FakeFabric, issuer: &str) -> HttpServer {
    let flags = format!(
        "--oauth-issuer {issuer} --oauth-resource {RESOURCE} --allowed-host mcp.example.com"
    );
    let program = Program::with(fabric)
        .flags(&flags)
        .env("FABRIC_MCP_OAUTH_CLIENT_ID", "fabric-mcp")
        .env("FABRIC_MCP_OAUTH_CLIENT_SECRET", SECRET)
        .env("FABRIC_MCP_AUTH_TOKEN", "a-token-of-the-environment")
        .env("FABRIC_MCP_LOG_LEVEL", "debug");
    HttpServer::start(program)
}

/// The issuer's response for a valid token.
fn active(more: Value) -> Value {
    let mut word =
        json!({"active": true, "sub": "user|7", "aud": RESOURCE, "scope": "openid fabric:run"});
    word.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    word
}

fn send(server: &HttpServer, token: &str, modern: &Modern) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = modern.headers();
    headers.push(("Authorization", &bearer));
    server.connect().post("/mcp", &headers, &modern.message)
}

fn call() -> Modern {
    Modern::new(json!(1), "tools/call", list_patterns())
}

fn paid() -> Modern {
    Modern::new(json!(2), "tools/call", run(json!(0)))
}

#[test]
fn clients_find_the_issuer_by_themselves() {
    let (fabric, issuer) = (FakeFabric::start(), issuer());
    let server = server(&fabric, &issuer.url());
    let mut http = server.connect();
    let refused = http.post("/mcp", &call().headers(), &call().message);
    let challenge = refused
        .header("www-authenticate")
        .unwrap_or_default()
        .to_owned();
    assert_eq!(refused.status, 401);
    let url = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    assert!(
        challenge.starts_with("Bearer ")
            && challenge.contains(&format!("resource_metadata=\"{url}\"")),
        "{challenge}"
    );
    assert!(
        challenge.contains("scope=\"") && !challenge.contains("error="),
        "{challenge}"
    );
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let origin = ("Origin", "http://localhost:6274");
        let document = http.request("GET", path, &[origin, ("Host", "mcp.example.com")], None);
        assert_eq!(
            (document.status, document.header("content-type")),
            (200, Some("application/json")),
            "{path}"
        );
        assert_eq!(
            document.header("access-control-allow-origin"),
            Some(origin.1)
        );
        let json = document.json();
        assert_eq!(
            (&json["resource"], &json["authorization_servers"]),
            (&json!(RESOURCE), &json!([issuer.url()]))
        );
        assert_eq!(http.request("OPTIONS", path, &[origin], None).status, 204);
        assert_eq!(
            http.request("GET", path, &[("Host", "evil.example.com")], None)
                .status,
            403
        );
    }
    assert_eq!(
        http.request(
            "GET",
            "/.well-known/oauth-protected-resource/other",
            &[],
            None
        )
        .status,
        404
    );
}

#[test]
fn the_issuers_word_decides() {
    let (fabric, issuer) = (FakeFabric::start(), issuer());
    fabric.on("POST /chat", Reply::run(&["x"]));
    let server = server(&fabric, &issuer.url());
    let cases = [
        ("good", active(json!({})), 200),
        ("reads", active(json!({"scope": "fabric:read"})), 200),
        ("no-scope", active(json!({"scope": "openid"})), 403),
        ("inactive", json!({"active": false}), 401),
        ("expired", active(json!({"exp": 1})), 401),
        (
            "no-subject",
            active(json!({"sub": null, "username": "al", "client_id": "app"})),
            401,
        ),
    ];
    for (name, word, status) in &cases {
        issuer.once("POST /introspect", Reply::json(word.clone()));
        let token = format!("opaque-{name}-c4nary");
        for _ in 0..2 {
            let answer = send(&server, &token, &call());
            assert_eq!(answer.status, *status, "{name}: {}", answer.text());
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            let error = match status {
                401 => "error=\"invalid_token\"",
                403 => "error=\"insufficient_scope\"",
                _ => "",
            };
            assert!(
                challenge.contains(error) && challenge.is_empty() == error.is_empty(),
                "{name}: {challenge}"
            );
            assert!(
                !answer.text().contains("c4nary") && !challenge.contains("c4nary"),
                "{name}"
            );
        }
    }
    assert_eq!(
        issuer.requests_of("POST /introspect").len(),
        cases.len(),
        "each answer was kept"
    );
    for request in issuer.requests_of("POST /introspect") {
        let basic = request.header("authorization").unwrap_or_default();
        assert!(
            basic.starts_with("Basic ") && request.body.starts_with(b"token=opaque-"),
            "{basic}"
        );
    }
    // Paid calls need another scope, which the answer names; the body still answers the request.
    assert_eq!(send(&server, "opaque-good-c4nary", &paid()).status, 200);
    let refused = send(&server, "opaque-reads-c4nary", &paid());
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    assert!(
        challenge.contains("insufficient_scope") && challenge.contains("fabric:run"),
        "{challenge}"
    );
    assert_eq!((refused.status, &refused.json()["id"]), (403, &json!(2)));
    assert_eq!(
        refused.json()["result"]["_meta"]["error"]["type"],
        "urn:fabric-mcp:error:forbidden"
    );
    fabric.expect_chats(1);
    // Named tokens work at the same time.
    assert_eq!(
        send(&server, "a-token-of-the-environment", &call()).status,
        200
    );
    server.process.wait_stderr("caller=default");
    let log = server.process.stderr();
    assert!(log.contains("caller=user|7"), "{log}");
    assert!(log.contains("have it add sub"), "{log}");
    for canary in ["c4nary", SECRET, "a-token-of-the-environment"] {
        assert!(!log.contains(canary), "{canary} in {log}");
    }
}

#[test]
fn check_tells_what_the_issuer_lacks() {
    let (fabric, issuer) = (FakeFabric::start(), issuer());
    let check = || {
        Program::with(&fabric)
            .env("FABRIC_MCP_OAUTH_CLIENT_ID", "fabric-mcp")
            .env("FABRIC_MCP_OAUTH_CLIENT_SECRET", SECRET)
            .env("FABRIC_MCP_OAUTH_ISSUER", &issuer.url())
            .env("FABRIC_MCP_OAUTH_RESOURCE", RESOURCE)
            .arg("--check")
            .run(crate::support::DEADLINE)
    };
    issuer.once("POST /introspect", Reply::json(json!({"active": false})));
    check().expect_stdout("  ok  OAuth           introspection works; ");
    issuer.once("POST /introspect", Reply::failure(401, json!({})));
    check()
        .expect_code(1)
        .expect_stdout("  --  OAuth           does not work")
        .expect_stdout("refuses this server itself (HTTP 401)");
}
