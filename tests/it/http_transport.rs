//! The HTTP transports over real sockets: that the server listens and answers.

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::stdio::initialize_params;

#[test]
fn it_says_where_it_listens_and_answers_there() {
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric));
    assert_eq!(server.path, "/mcp");
    let mut http = server.connect();
    assert_eq!(http.request("GET", "/healthz", &[], None).status, 200);
    let initialize =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("2025-11-25")});
    let answer = http.post(&server.path, &[], &initialize);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("mcp-session-id").is_some_and(|id| id.starts_with("2025-11-25.")), "{answer:?}");
    let stderr = server.process.stderr();
    assert!(stderr.contains(&server.address.to_string()), "{stderr}");
}
