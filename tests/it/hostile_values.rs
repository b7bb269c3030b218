//! Many hostile names and headers, each with an oracle for their meaning.

use std::sync::Arc;

use serde_json::json;

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::http::{Http, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::rng::{Rng, cases};
use crate::support::stdio::{Stdio, with_meta};
use crate::support::web::{base64, modern_headers};
use crate::support::{Caller, Era};

/// Whether a name is valid (`fabric-api.md` in short): 1 to 128 letters, digits, spaces, `_`, `-`, `.` and accents; no
/// leading `.` or `~`, no trailing `.` or space.
fn may_be_a_name(name: &str) -> bool {
    let good =
        |c: char| c.is_alphanumeric() || " _-.".contains(c) || ('\u{300}'..='\u{36f}').contains(&c);
    (1..=128).contains(&name.chars().count())
        && !name.starts_with(['.', '~'])
        && !name.ends_with(['.', ' '])
        && name.chars().all(good)
}

fn name(rng: &mut Rng) -> String {
    const PATHS: [&str; 22] = [
        "..",
        ".",
        "/",
        "\\",
        "~",
        "../",
        "..\\",
        "%2e%2e%2f",
        "/etc/passwd",
        "C:",
        "\0",
        "\n",
        "{{",
        "?",
        "#",
        "%00",
        "＃",
        "．．／",
        "\u{202e}",
        "\u{200b}",
        "\u{301}",
        "⁄",
    ];
    const WORDS: [&str; 8] = ["summarize", "a", " ", "é", "漢字", "٣", "_-", "x.y"];
    let mut name = String::new();
    match rng.within(0..10) {
        0 => name = rng.text(0..12),
        1 => name = rng.pick(&WORDS).repeat(rng.within(1..140)),
        _ => {
            let nasty = rng.one_in(2);
            for _ in 0..rng.within(0..4) {
                name.push_str(if nasty && rng.one_in(2) {
                    rng.pick::<&str>(&PATHS)
                } else {
                    rng.pick::<&str>(&WORDS)
                });
            }
        }
    }
    name
}

#[test]
fn a_name_reaches_fabric_only_if_it_can_do_no_harm() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let era = Era::Legacy("2025-11-25");
    let mut taken = 0;
    cases(600, |rng, _| {
        let name = name(rng);
        fabric.forget();
        // So that a valid name is not refused as unknown.
        fabric.on("GET /strategies", Reply::json(json!([{"name": name}])));
        fabric.on("GET /contexts/names", Reply::json(json!([name])));
        for field in "pattern_name strategy_name context_name session_name".split(' ') {
            let mut arguments = json!({"pattern_name": "ai", "input_text": "x"});
            arguments[field] = json!(name);
            let result = client.call("fabric_run_pattern", arguments);
            let refused =
                result["_meta"]["error"]["type"] == format!("{}invalid-request", expect::URN);
            // An empty optional name counts as none.
            let fine = may_be_a_name(&name) || (name.is_empty() && field != "pattern_name");
            assert_eq!(!refused, fine, "{field} = {name:?}: {result}");
            if refused {
                expect::failure(era, &result, "invalid-request");
            }
            taken += usize::from(fine);
        }
        client.call("fabric_get_pattern_details", json!({"pattern_name": name}));
        // Requests contain exactly this name, and paths contain it only escaped.
        let plain = |path: &str| {
            path.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/-_.~%".contains(&b))
        };
        for request in fabric.requests() {
            assert!(
                plain(&request.path) && !request.path.contains("/."),
                "{name:?} became {}",
                request.path
            );
            assert!(
                request.path.matches('/').count() <= 2,
                "{name:?} became {}",
                request.path
            );
        }
        for chat in fabric.chats() {
            for field in ["patternName", "strategyName", "contextName", "sessionName"] {
                let sent = chat["prompts"][0][field].as_str().unwrap_or("");
                assert!(
                    sent.is_empty() || sent == "ai" || (sent == name && may_be_a_name(sent)),
                    "{chat}"
                );
            }
        }
    });
    eprintln!("{taken} names were taken");
}

/// Simple RFC 4648 decoder: the bytes of `text` if it is valid base64 with padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let bits = text.trim_end_matches('=').len() * 6;
    // Valid only if it encodes back to itself.
    let digit = |b: u8| (0..64_u8).find(|n| base64(&[n << 2]).as_bytes()[0] == b);
    let mut bytes = vec![0_u8; bits / 8];
    for (at, b) in text.trim_end_matches('=').bytes().enumerate() {
        let value = digit(b)?;
        for bit in 0..6 {
            let place = at * 6 + bit;
            if value >> (5 - bit) & 1 == 1 && place / 8 < bytes.len() {
                bytes[place / 8] |= 128 >> (place % 8);
            }
        }
    }
    (base64(&bytes) == text).then_some(bytes)
}

/// The meaning of a header's value: itself, or the decoded text between the markers. `None` if that is not text.
fn meaning(value: &str) -> Option<String> {
    match value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    {
        Some(encoded) => String::from_utf8(decoded(encoded)?).ok(),
        None => Some(value.to_owned()),
    }
}

fn header(rng: &mut Rng) -> String {
    let text = rng.text(0..12);
    let mut encoded = match rng.within(0..4) {
        0 => base64(&rng.bytes(0..9)),
        _ => base64(text.as_bytes()),
    };
    if rng.one_in(2) && !encoded.is_empty() {
        let at = rng.within(0..encoded.len());
        let with = *rng.pick(&["", "=", "A", "-", "_", "/", "+", "z", " ", "?", "=="]);
        encoded.replace_range(at..at + rng.within(0..2), with);
    }
    let around: [(&str, &str); 8] = [
        ("=?base64?", "?="),
        ("=?base64?", "?="),
        ("=?base64?", "?="),
        ("=?BASE64?", "?="),
        ("=?base64?", ""),
        ("=?base64?", "="),
        ("", ""),
        ("=?utf-8?", "?="),
    ];
    let (start, end) = *rng.pick(&around);
    format!("{start}{encoded}{end}")
}

#[test]
fn an_encoded_header_means_what_it_encodes_and_nothing_else() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    let mut http: Option<Http> = None;
    let mut same = 0;
    cases(1500, |rng, _| {
        let header = header(rng);
        let meant = meaning(header.trim());
        // The body has the header's meaning, or something similar.
        let name = match (rng.within(0..4), &meant) {
            (0, _) => header.clone(),
            (1, Some(meant)) => format!("{meant}x"),
            (_, Some(meant)) => meant.clone(),
            (_, None) => "x".to_owned(),
        };
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                             "params": with_meta(json!({"name": name, "arguments": {}}))});
        let mut connection = http.take().unwrap_or_else(|| server.connect());
        let answer = connection.post(
            &server.path,
            &modern_headers("tools/call", Some(&header)),
            &message,
        );
        http = Some(connection);
        let code = answer.json()["error"]["code"].as_i64();
        // There is no such tool; but that is checked after header and body are compared.
        let expected = if meant.as_ref() == Some(&name) {
            -32602
        } else {
            -32020
        };
        assert_eq!(
            code,
            Some(expected),
            "{header:?} for {name:?}, which means {meant:?}: {}",
            answer.text()
        );
        same += usize::from(expected == -32602);
    });
    eprintln!("{same} headers matched");
}
