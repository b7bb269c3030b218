//! Canaries in a key, configuration values, inputs, outputs and pattern texts: they must not appear where they do not
//! belong.

use serde_json::{Value, json};

use crate::support::expect::no_leak;
use crate::support::fabric::FakeFabric;
use crate::support::fixtures::{CONFIG_CANARY, HOST_PATH, PATTERN_CANARY};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::rng::{Rng, cases};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, Era, expect};

const KEY: &str = "canary-key-5d41402a";
const INPUT: &str = "canary-input";
const OUTPUT: &str = "canary-output";
const VARIABLE: &str = "canary-variable";

/// Must never be in a log, at any level.
const NEVER_LOGGED: [&str; 6] = [KEY, INPUT, OUTPUT, VARIABLE, PATTERN_CANARY, CONFIG_CANARY];

fn run() -> Value {
    json!({"pattern_name": "translate", "input_text": INPUT, "stream": true,
           "variables": {"lang_code": VARIABLE}, "attachments": [INPUT]})
}

#[test]
fn canaries_appear_only_where_they_belong() {
    for level in ["debug", "info"] {
        for era in ERAS {
            let fabric = FakeFabric::start();
            fabric.require_key(KEY);
            let program = Program::with(&fabric)
                .env("FABRIC_API_KEY", KEY)
                .env("FABRIC_MCP_LOG_LEVEL", level);
            let mut client = Stdio::speaking(era, program);
            for tool in [
                "fabric_list_patterns",
                "fabric_list_models",
                "fabric_list_strategies",
                "fabric_get_configuration",
            ] {
                let said = client.call(tool, json!({})).to_string();
                assert!(
                    !said.contains(CONFIG_CANARY) && !said.contains(PATTERN_CANARY),
                    "{tool}: {said}"
                );
            }
            client.call(
                "fabric_get_pattern_details",
                json!({"pattern_name": "translate"}),
            );
            fabric.once("POST /chat", Reply::run(&[OUTPUT, " and more"]));
            assert_eq!(
                client.call("fabric_run_pattern", run())["content"][0]["text"],
                format!("{OUTPUT} and more")
            );
            for status in [400, 401, 403, 404, 429, 500, 503] {
                let body = json!({"error": format!("{KEY} {CONFIG_CANARY} {HOST_PATH}/x")});
                fabric.once("POST /chat", Reply::failure(status, body.clone()));
                no_leak(&client.call("fabric_run_pattern", run()).to_string());
                fabric.once(
                    "GET /config",
                    Reply::failure(if status == 503 { 500 } else { status }, body),
                );
                no_leak(
                    &client
                        .call("fabric_get_configuration", json!({}))
                        .to_string(),
                );
            }
            for text in [INPUT, OUTPUT, VARIABLE] {
                fabric.once(
                    "POST /chat",
                    Reply::sse()
                        .content(OUTPUT)
                        .error(&format!("no: {text}."))
                        .complete(),
                );
                client.call("fabric_run_pattern", run());
            }
            for arguments in [
                json!({"pattern_name": "ai", INPUT: 5, "variables": {INPUT: VARIABLE}}),
                json!({"pattern_name": "ai", "variables": {INPUT: VARIABLE, "x": 5}}),
            ] {
                client.request(
                    "tools/call",
                    json!({"name": "fabric_run_pattern", "arguments": arguments}),
                );
            }
            fabric.once(
                "POST /chat",
                Reply::sse()
                    .content(OUTPUT)
                    .bytes(format!("data: {{{OUTPUT}\n\n"))
                    .complete(),
            );
            client.call("fabric_run_pattern", run());
            fabric.once(
                "GET /config",
                Reply::new(
                    200,
                    "application/json",
                    format!("{{\"a\":\"{CONFIG_CANARY}\" oops"),
                ),
            );
            client.call("fabric_get_configuration", json!({}));
            fabric.once("GET /config", Reply::json(json!([CONFIG_CANARY])));
            client.call("fabric_get_configuration", json!({}));
            client.close_stdin();
            client.wait_exit(DEADLINE);
            client.rest();
            let log = client.stderr();
            for canary in NEVER_LOGGED {
                assert!(
                    !log.contains(canary),
                    "{canary:?} is in the log at {level}, {era:?}:\n{log}"
                );
            }
            let answers: String = client
                .process
                .said
                .text()
                .lines()
                .filter(|line| line.starts_with('←'))
                .collect::<Vec<_>>()
                .join("\n");
            assert!(
                !answers.contains(KEY) && !answers.contains(CONFIG_CANARY),
                "{era:?}:\n{answers}"
            );
            assert!(!answers.contains(HOST_PATH), "{era:?}:\n{answers}");
        }
    }
}

#[test]
fn an_error_event_is_relayed_without_paths_addresses_and_keys() {
    let secrets = [
        HOST_PATH,
        "/etc/fabric/canary-path.env",
        "C:\\Users\\canary-user\\fabric",
        "\\\\canary-host\\share\\x",
        "~/canary-home/.env",
        "file:///canary-file/x",
        "https://user:canary-pass@api.example/v1?key=canary-query",
        "http://10.0.0.7:11434/canary",
        "sk-proj-Ab3dEf6hIj9lMn2pQr5tUv8xYz1canary",
        "sk-ant-api03-Ab3dEf6hIj9lMn2pQr5tUv8xYz1",
        "AIzaSyAb3dEf6hIj9lMn2pQr5tUv8xYz1Ab3dEf6",
        "ghp_Ab3dEf6hIj9lMn2pQr5tUv8xYz1Ab3dEf6",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    ];
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    for secret in secrets {
        for around in [
            ("Error: model not found, see ", " for more"),
            ("Error: model not found (", ")"),
            ("model not found: \"", "\""),
        ] {
            let text = format!("{}{secret}{}", around.0, around.1);
            fabric.once("POST /chat", Reply::sse().error(&text).complete());
            let result = client.call("fabric_run_pattern", json!({"pattern_name": "ai"}));
            let said = expect::failure(Era::Legacy("2025-11-25"), &result, "fabric-api-error");
            assert!(
                said.contains("model not found"),
                "the clue must stay: {said}"
            );
            let hidden = secret.trim_start_matches("Bearer ");
            assert!(
                !said.contains(hidden) && !said.contains("canary"),
                "{secret:?} leaked: {said}"
            );
        }
    }
    let clue = "missing required variable: lang_code";
    fabric.once("POST /chat", Reply::sse().error(clue).complete());
    let result = client.call("fabric_run_pattern", json!({"pattern_name": "ai"}));
    assert!(expect::failure(Era::Legacy("2025-11-25"), &result, "fabric-api-error").contains(clue));
}

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

/// A random configuration in which every secret is marked, with harmless values in between.
fn random_config(rng: &mut Rng, depth: usize) -> Value {
    let secret = |rng: &mut Rng| {
        let mark = format!("canary-config{}", rng.within(0..1000));
        match rng.within(0..8) {
            0 => format!("https://{mark}@host.example/"),
            1 => format!("https://user:{mark}@host.example:8443"),
            2 => format!("http://host.example/{mark}"),
            3 => format!("http://host.example?{mark}"),
            4 => format!("http://host.example#{mark}"),
            5 => format!("HTTP://host.example/{mark}"),
            6 => format!("{}{mark}", rng.text(0..8)),
            _ => mark,
        }
    };
    match rng.within(0..if depth == 0 { 4 } else { 7 }) {
        0 => json!(""),
        1 => json!("true"),
        2 | 3 => json!(secret(rng)),
        4 => (0..rng.within(0..4))
            .map(|_| random_config(rng, depth - 1))
            .collect(),
        _ => {
            let members = (0..rng.within(0..6)).map(|n| {
                (
                    format!("{}{n}", rng.text(0..10)),
                    random_config(rng, depth - 1),
                )
            });
            Value::Object(members.collect())
        }
    }
}

#[test]
fn no_secret_of_a_random_configuration_survives() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    cases(150, |rng, _| {
        let members = (0..rng.within(1..12))
            .map(|n| (format!("{}{n}", rng.text(0..14)), random_config(rng, 3)));
        let config = Value::Object(members.collect());
        fabric.once("GET /config", Reply::json(config.clone()));
        let result = client.call("fabric_get_configuration", json!({}));
        let redacted = expect::success(Era::Legacy("2025-11-25"), &result);
        assert!(
            !result.to_string().contains("canary"),
            "{config} became {redacted}"
        );
        for (key, value) in config.as_object().unwrap() {
            if value == "" || value == "true" {
                assert_eq!(&redacted[key], value, "harmless: {key:?}");
            }
        }
    });
}
