//! OAuth callers: what they learn about the issuer, and how its introspection of their tokens is used. The issuer is a
//! fake.

use serde_json::{Value, json};

use super::{Modern, list_patterns, run};
use crate::support::expect::{contains, includes};
use crate::support::extended;
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
    let word =
        json!({"active": true, "sub": "user|7", "aud": RESOURCE, "scope": "openid fabric:run"});
    extended(word, more)
}

#[track_caller]
fn send(server: &HttpServer, token: &str, modern: Modern) -> Answer {
    let bearer = format!("Bearer {token}");
    modern.with("Authorization", &bearer).post(server)
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
    let refused = call().post(&server);
    let challenge = refused.expect_status(401).header("www-authenticate");
    let challenge = challenge.unwrap_or_default();
    let url = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    let metadata = format!("resource_metadata=\"{url}\"");
    contains(challenge, ["Bearer ", &*metadata, "scope=\""]);
    assert!(!challenge.contains("error="), "{challenge}");
    let mut http = server.connect();
    let place = "/.well-known/oauth-protected-resource";
    for path in [place, &*format!("{place}/mcp")] {
        let origin = ("Origin", "http://localhost:6274");
        let document = http.get(path, &[origin, ("Host", "mcp.example.com")]);
        let header = |name| document.expect_status(200).header(name);
        assert_eq!(header("content-type"), Some("application/json"), "{path}");
        assert_eq!(header("access-control-allow-origin"), Some(origin.1));
        let expected = json!({"resource": RESOURCE, "authorization_servers": [issuer.url()]});
        includes(&document.json(), expected);
        assert_eq!(http.request("OPTIONS", path, &[origin], None).status, 204);
        assert_eq!(http.get(path, &[("Host", "evil.example.com")]).status, 403);
    }
    let other = http.get(&format!("{place}/other"), &[]);
    assert_eq!(other.status, 404);
}

#[test]
fn the_issuers_word_decides() {
    let (fabric, issuer) = (FakeFabric::start(), issuer());
    fabric.on_run(Reply::run(&["x"]));
    let server = server(&fabric, &issuer.url());
    // What else it may say is in `src/access/oauth/tests.rs`.
    let nobody = json!({"sub": null, "username": "al", "client_id": "app"});
    let cases = [
        ("good", active(json!({})), 200),
        ("reads", active(json!({"scope": "fabric:read"})), 200),
        ("no-scope", active(json!({"scope": "openid"})), 403),
        ("inactive", json!({"active": false}), 401),
        ("no-subject", active(nobody), 401),
    ];
    for (name, word, status) in &cases {
        issuer.once("POST /introspect", Reply::json(word.clone()));
        for _ in 0..2 {
            let answer = send(&server, &format!("opaque-{name}-c4nary"), call());
            assert_eq!(answer.status, *status, "{name}: {}", answer.text());
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            let error = match status {
                401 => "error=\"invalid_token\"",
                403 => "error=\"insufficient_scope\"",
                _ => "",
            };
            contains(challenge, [error]);
            assert_eq!(challenge.is_empty(), error.is_empty(), "{name}");
            let is_told = answer.text().contains("have it add sub");
            assert_eq!(is_told, *name == "no-subject", "{name}");
            let said = answer.text() + challenge;
            assert!(!said.contains("c4nary"), "{name}: {said}");
        }
    }
    let asked = issuer.requests_of("POST /introspect");
    assert_eq!(asked.len(), cases.len(), "each answer was kept");
    for request in asked {
        let basic = request.header("authorization").unwrap_or_default();
        let is_form = request.body.starts_with(b"token=opaque-");
        assert!(basic.starts_with("Basic ") && is_form, "{basic}");
    }
    // Paid calls need another scope, which the answer names; the body still answers the request.
    send(&server, "opaque-good-c4nary", paid()).expect_status(200);
    let refused = send(&server, "opaque-reads-c4nary", paid());
    let challenge = refused.expect_status(403).header("www-authenticate");
    contains(challenge.unwrap(), ["insufficient_scope", "fabric:run"]);
    let answer = refused.json();
    assert_eq!(answer["id"], 2);
    let error = json!({"type": "urn:fabric-mcp:error:forbidden"});
    includes(&answer["result"]["_meta"]["error"], error);
    fabric.expect_chats(1);
    // Named tokens work at the same time.
    send(&server, "a-token-of-the-environment", call()).expect_status(200);
    server.process.wait_stderr("caller=default");
    let log = server.process.stderr();
    contains(&log, ["caller=oauth:user|7"]);
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
