//! Canaries over every transport: Fabric's key, our own token, configuration values, inputs, outputs and pattern texts
//! pass through every tool, prompt, resource and error at every log level, and must not appear in an answer, log line
//! or metric where they do not belong.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::access::File;
use crate::support::expect::{self, no_leak};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::fixtures::{CONFIG_CANARY, HOST_PATH, PATTERN_CANARY};
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::transports::{self, EACH, Wire};
use crate::support::{Caller, DEADLINE, Era, extended, poll};

const KEY: &str = "canary-key-93f2c1aa";
const TOKEN: &str = "canary-token-7be1d0c2";
/// A token in the tokens file.
const NAMED: &str = "canary-named-6c05-b6d1-4f6f-90ac-11ee";
/// The client secret at the OAuth issuer.
const SECRET: &str = "canary-secret-0b93d7";
const GUESS: &str = "canary-guess-55aa";
const INPUT: &str = "canary-input";
const OUTPUT: &str = "canary-output";
const VARIABLE: &str = "canary-variable";
const MODEL: &str = "canary-model";

/// Must never be in a log or a metric, at any level.
const NEVER_LOGGED: [&str; 10] = [
    KEY,
    TOKEN,
    NAMED,
    SECRET,
    GUESS,
    INPUT,
    OUTPUT,
    VARIABLE,
    PATTERN_CANARY,
    CONFIG_CANARY,
];
/// Must never be in a message to a client.
const NEVER_SAID: [&str; 6] = [KEY, TOKEN, NAMED, SECRET, CONFIG_CANARY, HOST_PATH];

fn run() -> Value {
    json!({"pattern_name": "translate", "input_text": INPUT, "stream": true, "model_name": MODEL,
           "variables": {"lang_code": VARIABLE}})
}

fn call(client: &mut dyn Caller, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}});
    client.ask("tools/call", params).to_string()
}

/// Every request that involves a secret, with success and failure.
fn exercise(client: &mut dyn Caller, fabric: &FakeFabric) {
    for (tool, said) in client.call_every_tool() {
        expect::success(client.era(), &said);
        let belongs_there = tool == "fabric_get_pattern_details";
        let found = said.to_string().contains(PATTERN_CANARY);
        assert_eq!(found, belongs_there, "{tool}: {said}");
    }
    let translate = || json!({"pattern_name": "translate"});
    let get = |more: Value| {
        let arguments = extended(json!({"input": INPUT}), more);
        json!({"name": "translate", "arguments": arguments})
    };
    let run_with = |arguments: Value| json!({"name": "fabric_run_pattern", "arguments": arguments});
    let wrong = json!({"pattern_name": "ai", "variables": {INPUT: 5}, INPUT: VARIABLE});
    let complete = json!({"ref": {"type": "ref/prompt", "name": "translate"}, "argument": {"name": "lang_code", "value": VARIABLE}});
    let foreign = json!({"uri": format!("fabric://patterns/{INPUT}")});
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", get(json!({"lang_code": VARIABLE}))),
        ("prompts/get", get(json!({}))),
        ("resources/list", json!({})),
        (
            "resources/read",
            json!({"uri": "fabric://patterns/translate"}),
        ),
        ("resources/read", foreign),
        ("completion/complete", complete),
        (INPUT, json!({})),
        (
            "tools/call",
            run_with(json!({"pattern_name": INPUT, "input_text": [5]})),
        ),
        ("tools/call", run_with(wrong)),
    ] {
        client.ask(method, params);
    }
    fabric.once_run(Reply::run(&[OUTPUT, " and more"]));
    assert!(call(client, "fabric_run_pattern", run()).contains(OUTPUT));
    let secrets = format!("{KEY} {CONFIG_CANARY} {PATTERN_CANARY} {HOST_PATH}/x");
    for status in [302, 400, 401, 403, 404, 429, 500, 502] {
        let reply = Reply::failure(status, json!({"error": secrets}))
            .header("Location", &format!("http://127.0.0.1:9/{CONFIG_CANARY}"))
            .header("X-Secret", CONFIG_CANARY);
        for (route, tool, arguments) in [
            ("POST /chat", "fabric_run_pattern", run()),
            ("GET /config", "fabric_get_configuration", json!({})),
            ("GET /models/names", "fabric_list_models", json!({})),
            ("GET /strategies", "fabric_list_strategies", json!({})),
            (
                "GET /patterns/translate",
                "fabric_get_pattern_details",
                translate(),
            ),
        ] {
            // GETs are retried after a 502.
            let is_retried = status == 502 && tool != "fabric_run_pattern";
            let times = if is_retried { 3 } else { 1 };
            (0..times).for_each(|_| fabric.once(route, reply.clone()));
            no_leak(&call(client, tool, arguments));
        }
    }
    let failed = |error: String| Reply::sse().content(OUTPUT).error(&error).complete();
    let broken = Reply::sse().content(OUTPUT);
    let broken = broken.bytes(format!("data: {{{CONFIG_CANARY}\n\n"));
    for reply in [
        broken.complete(),
        failed(format!("Error: open {HOST_PATH}/x")),
        failed(format!("key sk-{CONFIG_CANARY}-0001 is wrong")),
        failed(format!("wrong key: {KEY}")),
        failed(format!("what is \"{INPUT}\", {VARIABLE}, {OUTPUT}?")),
        Reply::new(200, "text/plain", secrets.clone()),
        Reply::json(json!({"error": secrets})),
        Reply::sse().bytes(format!("{secrets}\n")),
        Reply::sse().content(OUTPUT).cut(),
        Reply::new(200, "text/html", format!("<html>{CONFIG_CANARY}")),
        Reply::raw(format!("{CONFIG_CANARY} no HTTP\r\n\r\n")),
    ] {
        fabric.once_run(reply);
        no_leak(&call(client, "fabric_run_pattern", run()));
    }
    let no_json = format!("{{\"a\":\"{CONFIG_CANARY}\" oops");
    for reply in [
        Reply::new(200, "application/json", no_json),
        Reply::json(json!([CONFIG_CANARY])),
        Reply::json(json!(CONFIG_CANARY)),
    ] {
        fabric.once("GET /config", reply);
        no_leak(&call(client, "fabric_get_configuration", json!({})));
    }
}

/// Requests without a token, with a wrong one, and invalid ones.
fn knock(server: &HttpServer) -> String {
    let mut said = String::new();
    let bearer = format!("Bearer {GUESS}");
    let good = format!("Bearer {TOKEN}");
    let path = server.path.as_str();
    let (guess, good) = (("Authorization", &*bearer), ("Authorization", &*good));
    let plain = ("Content-Type", "text/plain");
    let query = "/canary-guess-55aa?token=canary-guess-55aa";
    let cases = [
        ("POST", path, &[][..]),
        ("POST", path, &[guess]),
        ("GET", "/metrics", &[guess]),
        ("GET", "/healthz", &[guess]),
        ("GET", "/readyz", &[("X-API-Key", GUESS)]),
        ("POST", path, &[good, plain]),
        ("PUT", path, &[good]),
        ("GET", query, &[good]),
    ];
    for (method, path, headers) in cases {
        let body: Option<&[u8]> = (method == "POST").then_some(b"{}");
        let answer = server.connect().request(method, path, headers, body);
        said.push_str(&format!("{:?} {}\n", answer.headers, answer.text()));
    }
    said
}

#[test]
fn no_canary_is_found_over_any_transport_at_any_level() {
    let rows: Vec<(Wire, Era, &str)> = EACH
        .into_iter()
        .chain([
            (Wire::Streamable, Era::MODERN),
            (Wire::Sse, Era::MODERN),
            (Wire::Stdio, Era::R2025_06_18),
        ])
        .flat_map(|(wire, era)| ["debug", "info", "error"].map(|level| (wire, era, level)))
        .collect();
    std::thread::scope(|scope| {
        for (wire, era, level) in rows {
            scope.spawn(move || row(wire, era, level));
        }
    });
}

fn row(wire: Wire, era: Era, level: &str) {
    let fabric = FakeFabric::start();
    fabric.require_key(KEY);
    let name = format!("secrets-{wire:?}-{era:?}-{level}");
    let tokens = File::new(&name, &[&format!("alice read {NAMED}\n")]);
    let issuer = format!("http://127.0.0.1:{}", closed_port());
    let format = if level == "info" { "json" } else { "logfmt" };
    // At level error, the log does not say where it listens.
    let is_silent = wire != Wire::Stdio && level == "error";
    let program = Program::with(&fabric)
        .env("FABRIC_API_KEY", KEY)
        .env("FABRIC_MCP_AUTH_TOKEN", TOKEN)
        .env("FABRIC_MCP_TOKENS_FILE", tokens.0.to_str().unwrap())
        .env("FABRIC_MCP_OAUTH_ISSUER", &issuer)
        .env("FABRIC_MCP_OAUTH_RESOURCE", "https://mcp.example.com/mcp")
        .env("FABRIC_MCP_OAUTH_CLIENT_ID", "fabric-mcp")
        .env("FABRIC_MCP_OAUTH_CLIENT_SECRET", SECRET)
        .env("FABRIC_MCP_LOG_FORMAT", format)
        .env(
            "FABRIC_MCP_LOG_LEVEL",
            if is_silent { "info" } else { level },
        );
    let mut client = transports::open(wire, era, program, Some(TOKEN));
    exercise(client.as_mut(), &fabric);
    let mut said = String::new();
    if let Some(server) = client.server() {
        said.push_str(&knock(server));
        let bad = "bob read short\n";
        tokens.write(&[&format!("alice read {NAMED}\n"), bad, NAMED]);
        let metrics = |token: &str| {
            let bearer = format!("Bearer {token}");
            let answer = server.get("/metrics", &[("Authorization", &bearer)]);
            answer.expect_status(200).text()
        };
        metrics(NAMED);
        let text = metrics(TOKEN);
        expect::contains(&text, ["fabric_run_pattern"]);
        assert!(!text.contains(MODEL), "{text}");
        let mut never = NEVER_LOGGED.iter();
        let found = never.find(|canary| text.contains(**canary));
        assert_eq!(found, None, "in the metrics:\n{text}");
    }
    let exchanged = client.process().said.text();
    let ours = exchanged.lines().filter(|line| line.starts_with('←'));
    ours.for_each(|line| said.push_str(&format!("{line}\n")));
    for canary in NEVER_SAID {
        if let Some(line) = said.lines().find(|line| line.contains(canary)) {
            panic!("{canary:?} was said, {wire:?} {era:?} {level}: {line}");
        }
    }
    // The last call's line may not have arrived yet, at levels that have such lines.
    let limit = if level == "error" {
        Duration::ZERO
    } else {
        DEADLINE
    };
    let last = "fabric_get_configuration";
    poll(limit, || {
        client.process().stderr().contains(last).then_some(())
    });
    let log = client.process().stderr();
    assert!(!log.contains("panic"), "{log}");
    for canary in NEVER_LOGGED {
        if let Some(line) = log.lines().find(|line| line.contains(canary)) {
            panic!("{canary:?} is in the log, {wire:?} {era:?} {level}: {line}");
        }
    }
}
