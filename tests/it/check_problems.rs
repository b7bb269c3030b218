//! `--check`: every possible problem of the connection is reported with its code and one line on how to fix it.

use serde_json::{Map, Value, json};

use crate::support::expect::{contains, includes};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::{DEADLINE, ERAS};

const NAMES: &str = "GET /patterns/names";

/// The JSON of a check that exits with `code`.
#[track_caller]
fn report(program: Program, code: i32) -> Value {
    let finished = program.flags("--check --json").run(DEADLINE);
    finished.expect_code(code);
    let report: Value = match serde_json::from_str(&finished.stdout) {
        Ok(report) => report,
        Err(_) => finished.fail("stdout is one JSON value"),
    };
    assert_eq!(report["ok"], code == 0, "{report}");
    assert_eq!(finished.stderr, "");
    report
}

/// The codes of all problems.
fn codes(report: &Value) -> Vec<&str> {
    let problems = report["problems"].as_array().unwrap().iter();
    let codes = problems.map(|problem| problem["code"].as_str().unwrap());
    codes.collect()
}

#[test]
fn scripts_get_stable_keys() {
    let fabric = FakeFabric::start();
    fabric.require_key("right");
    fabric.on("GET /config", Reply::json(json!({"openai": ""})));
    let mut report = report(Program::with(&fabric).env("FABRIC_API_KEY", "right"), 0);
    let latency = report["fabric"]["latency_ms"].take();
    assert!(latency.as_f64().is_some_and(|ms| ms > 0.0), "{latency}");
    let expected = json!({
        "schema_version": 1,
        "ok": true,
        "version": env!("CARGO_PKG_VERSION"),
        "fabric": {
            "url": fabric.url(), "demo": false, "reachable": true, "api_key": "accepted", "latency_ms": null,
            "patterns": 13, "models": 3, "vendors": 2, "strategies": 2, "looks_old": false,
        },
        "mcp": Map::from_iter(ERAS.map(|era| (era.name().to_owned(), json!(true)))),
        "demo_run": null,
        "problems": [],
    });
    assert_eq!(report, expected);
    fabric.expect_chats(0);
}

#[test]
fn every_wrong_address_has_its_diagnosis() {
    let text = |status, body| Reply::new(status, "text/plain", body);
    let html = |status, body| Reply::new(status, "text/html", body);
    let redirect = text(302, "").header("Location", "https://login.example/");
    let nginx = "<center>The plain HTTP request was sent to HTTPS port</center>";
    // As Go says it, without a length.
    let go = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let unreadable = Reply::failure(500, json!("could not read the directory"));
    let page = html(200, "<!doctype html><title>Sign in</title>");
    let page = page.header("Content-Type", "text/html; charset=utf-8");
    let rows = [
        ("web-page", page),
        ("redirect", redirect),
        ("not-http", Reply::raw("SSH-2.0-OpenSSH_9.9\r\n")),
        ("not-http", Reply::closes()),
        ("not-fabric", Reply::json(json!({"hello": "world"}))),
        ("not-fabric", text(200, "hello")),
        ("not-found", text(404, "404 page not found")),
        ("wants-tls", html(400, nginx)),
        ("wants-tls", Reply::raw(go)),
        ("fabric-api-error", text(400, "no")),
        ("bad-gateway", html(502, "<h1>502 Bad Gateway</h1>")),
        ("fabric-internal-error", unreadable),
    ];
    for (code, reply) in rows {
        let fabric = FakeFabric::start();
        fabric.on(NAMES, reply);
        let report = report(Program::with(&fabric), 1);
        assert_eq!(codes(&report), [code], "{report}");
        assert_eq!(report["fabric"]["reachable"], false, "{report}");
        let fix = report["problems"][0]["fix"].as_str().unwrap();
        assert!(fix.len() > 20 && !fix.contains('\n'), "{fix}");
    }
}

#[test]
fn a_missing_wrong_or_useless_key_is_reported() {
    let fabric = FakeFabric::start();
    fabric.require_key("right");
    for (key, state, code) in [
        ("", "missing", "key-missing"),
        ("wrong", "refused", "key-refused"),
        ("${env:FABRIC_API_KEY}", "refused", "key-placeholder"),
    ] {
        let report = report(Program::with(&fabric).env("FABRIC_API_KEY", key), 1);
        let found = (report["fabric"]["api_key"].as_str(), codes(&report));
        assert_eq!(found, (Some(state), vec![code]), "{report}");
    }
    let open = FakeFabric::start();
    let report = report(Program::with(&open).env("FABRIC_API_KEY", "canary"), 0);
    assert_eq!(report["fabric"]["api_key"], "unused");
    assert!(codes(&report).contains(&"key-not-asked-for"), "{report}");
    assert!(!report.to_string().contains("canary\""), "{report}");
}

#[test]
fn a_port_nothing_listens_on_a_host_nobody_knows_and_one_that_says_nothing() {
    let refused = format!("http://127.0.0.1:{}", closed_port());
    let silent = FakeFabric::start();
    silent.on(NAMES, Reply::silence());
    // Reserved for names that never resolve (RFC 6761).
    for (url, code, limit) in [
        (&*refused, "connection-refused", "30"),
        ("http://fabric.invalid:8080", "unknown-host", "30"),
        (&silent.url(), "no-answer", "0.3"),
    ] {
        let program = Program::new([]).env("FABRIC_BASE_URL", url);
        let report = report(program.env("FABRIC_MCP_REQUEST_TIMEOUT", limit), 1);
        assert_eq!(codes(&report), [code], "{report}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn tls_where_none_is_spoken() {
    let fabric = FakeFabric::start();
    let url = fabric.url().replace("http://", "https://");
    let report = report(Program::new([]).env("FABRIC_BASE_URL", &url), 1);
    assert_eq!(codes(&report), ["not-tls"], "{report}");
}

#[test]
fn an_empty_fabric_is_an_error_and_an_old_one_a_warning() {
    let fabric = FakeFabric::start();
    fabric.on(NAMES, Reply::json(Value::Null));
    let nothing = json!({"models": null, "vendors": {}});
    fabric.on("GET /models/names", Reply::json(nothing));
    let unreadable = json!({"error": "Failed to read strategies directory"});
    fabric.on("GET /strategies", Reply::failure(500, unreadable));
    let old = json!({"openai": "", "anthropic_use_oauth_login": ""});
    fabric.on("GET /config", Reply::json(old));
    let report = report(Program::with(&fabric), 1);
    includes(&report["problems"][0], json!({"severity": "error"}));
    let expected = ["no-patterns", "no-models", "no-strategies", "old-fabric"];
    assert_eq!(codes(&report), expected, "{report}");
    let folder = &report["problems"][2];
    includes(folder, json!({"severity": "warning"}));
    contains(&folder["what"], ["cannot read their folder"]);
    contains(&folder["fix"], ["fabric --setup"]);
    let members = json!({"strategies": 0, "looks_old": true});
    includes(&report["fabric"], members);
}

#[test]
fn only_a_pattern_that_is_there_is_proposed() {
    let fabric = FakeFabric::start();
    let finished = Program::with(&fabric).arg("--check").run(DEADLINE);
    finished
        .expect_code(0)
        .expect_stdout("pattern_name=summarize <");
    fabric.on(NAMES, Reply::json(json!(["ai"])));
    let finished = Program::with(&fabric).arg("--check").run(DEADLINE);
    finished.expect_code(0).expect_stdout("pattern_name=NAME <");
}

#[test]
fn the_demos_run_is_counted() {
    let report = report(Program::new(["--demo"]), 0);
    let run = &report["demo_run"];
    assert!(run["pieces"].as_u64() > Some(10), "it streams: {report}");
    let is_so = run["first_piece_ms"].as_f64() < run["total_ms"].as_f64();
    assert!(is_so, "{report}");
    assert_eq!(report["problems"], json!([]));
}

#[test]
fn a_fabric_without_a_vendor_and_doubtful_settings_are_reported() {
    let fabric = FakeFabric::start();
    // As in a new Fabric: its age is tested elsewhere.
    fabric.on("GET /config", Reply::json(json!({"openai": ""})));
    let models = |reply| fabric.on("GET /models/names", reply);
    let words = "no AI vendors configured, at /home/x";
    models(Reply::failure(500, json!({"error": words})));
    let report = report(Program::with(&fabric), 1);
    assert_eq!(codes(&report), ["no-vendor"], "{report}");
    assert!(!report.to_string().contains("/home/x"), "{report}");
    let called = Program::with(&fabric).flags("--call fabric_list_models");
    called.run(DEADLINE).expect_stderr("run `fabric --setup`");

    models(Reply::failure(429, json!({"error": "later"})));
    assert_eq!(codes(&self::report(Program::with(&fabric), 1)).len(), 1);

    let known = json!({"models": ["m"], "vendors": {"V": ["m"]}});
    models(Reply::json(known));
    let program = Program::with(&fabric)
        .env("FABRIC_MCP_AUTH_TOKEN", "short")
        .env("FABRIC_MCP_TRANSPORT", "http")
        .flags("--deny-pattern sumarize --deny-pattern SUMMARIZE --pattern-model x=m");
    let report = self::report(program, 0);
    assert_eq!(codes(&report), ["settings"; 3], "{report}");
    let denied =
        "--deny-pattern: Fabric has no pattern named \"sumarize\". Did you mean \"summarize\"?";
    let told = report["problems"][1]["what"].as_str().unwrap();
    assert!(told.starts_with(denied), "{report}");
    let found = &report["problems"][0]["severity"];
    assert_eq!(found, "warning", "{report}");
}
