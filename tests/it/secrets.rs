//! Canaries in a key, configuration values, inputs, outputs and pattern texts: they must not appear where they do not
//! belong.

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era, expect};
#[test]
fn foreign_text_cannot_forge_a_log_line_or_a_terminal() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let forged = "x\n2026-01-01T00:00:00Z ERROR forged tool=none\r\u{1b}[2J\u{85}\u{2028}";
    fabric.once("POST /chat", Reply::sse().error(forged).complete());
    client.call(
        "fabric_run_pattern",
        json!({"pattern_name": "ai", "model_name": "m forged=1 \"q\""}),
    );
    client.request("tools/call", json!({"name": forged, "arguments": {}}));
    client.request(forged, json!({}));
    client.send(&json!({"jsonrpc": "2.0", "method": forged}));
    client.close_stdin();
    client.wait_exit(DEADLINE);
    let log = client.stderr();
    assert!(
        !log.lines()
            .any(|line| line.starts_with("2026-01-01T00:00:00Z")),
        "{log}"
    );
    assert!(
        !log.contains('\u{1b}') && !log.contains('\r') && !log.contains('\u{85}'),
        "{log:?}"
    );
}

#[test]
fn fabrics_texts_are_relayed_without_its_key() {
    let (fabric, key) = (FakeFabric::start(), "correct-horse");
    let mut client = Stdio::speaking(
        Era::Legacy("2025-11-25"),
        Program::with(&fabric).env("FABRIC_API_KEY", key),
    );
    let said = format!("model not found for {key}");
    fabric.once("POST /chat", Reply::sse().error(&said).complete());
    fabric.once(
        "POST /youtube/transcript",
        Reply::failure(500, json!({"error": said})),
    );
    let run = client.call("fabric_run_pattern", json!({"pattern_name": "ai"}));
    let transcript = client.call(
        "fabric_get_transcript",
        json!({"url": "https://youtu.be/dQw4w9WgXcQ"}),
    );
    for result in [run, transcript] {
        let said = expect::failure(Era::Legacy("2025-11-25"), &result, "fabric-api-error");
        assert!(said.contains("model not found for [key]"), "{said}");
    }
    assert!(!client.stderr().contains(key), "{}", client.stderr());
}
