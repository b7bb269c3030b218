//! The fault matrix: everything Fabric can do wrong with a run, against every era. Each cell has its URN, one
//! `POST /chat`, what had arrived, no path of Fabric's host, and a next call that works at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::expect::{self, partial};
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::fixtures::HOST_PATH;
use crate::support::process::Program;
use crate::support::reply::{End, Framing, Reply, Step, content, line};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, Era};

/// Seconds without a byte from Fabric that end a run in these tests. Long enough for a busy machine to send the next
/// byte in, short enough to wait for.
const IDLE: &str = "1.5";

/// What a faulty run must end in.
enum Outcome {
    /// Success with exactly this text.
    Text(String),
    /// Failure of this kind, with what had arrived.
    Fails(&'static str, &'static str),
}
use Outcome::{Fails, Text};

struct Fault {
    name: &'static str,
    reply: Reply,
    outcome: Outcome,
    /// Part of the paragraph that the caller needs.
    says: &'static str,
}

fn fault(name: &'static str, reply: Reply, outcome: Outcome) -> Fault {
    Fault { name, reply, outcome, says: "" }
}

const UNAVAILABLE: &str = "fabric-api-unavailable";
const UNAUTHORIZED: &str = "fabric-api-unauthorized";
const INTERNAL: &str = "fabric-internal-error";
const API_ERROR: &str = "fabric-api-error";
const INTERRUPTED: &str = "fabric-stream-interrupted";
const TOO_LARGE: &str = "response-too-large";

/// Faults before the first byte of a body.
fn answers() -> Vec<Fault> {
    let leaky = |status| Reply::failure(status, json!({"error": format!("open {HOST_PATH}/x/system.md")}));
    let html = "<!DOCTYPE html><html><body>Log in to the proxy</body></html>";
    vec![
        fault("reset before the headers", Reply::resets(), Fails(UNAVAILABLE, "")),
        fault("close before the headers", Reply::closes(), Fails(UNAVAILABLE, "")),
        fault("silence before the headers", Reply::silence(), Fails(UNAVAILABLE, "")),
        fault("400", leaky(400), Fails(API_ERROR, "")),
        fault("401", Reply::failure(401, json!({"error": "Wrong API Key"})), Fails(UNAUTHORIZED, "")),
        fault("403", leaky(403), Fails(UNAUTHORIZED, "")),
        fault("404", Reply::new(404, "text/plain", "404 page not found"), Fails(API_ERROR, "")),
        fault("429", leaky(429).header("Retry-After", "7"), Fails(API_ERROR, "")),
        fault("500 with a path", Reply::failure(500, json!(format!("open {HOST_PATH}"))), Fails(INTERNAL, "")),
        fault("501", leaky(501), Fails(INTERNAL, "")),
        fault("502", leaky(502), Fails(UNAVAILABLE, "")),
        fault("503", leaky(503).header("Retry-After", "0"), Fails(UNAVAILABLE, "")),
        fault("504", leaky(504), Fails(UNAVAILABLE, "")),
        fault("204", Reply::new(204, "text/plain", ""), Fails(API_ERROR, "")),
        fault("HTML with 200", Reply::new(200, "text/html", html), Fails(API_ERROR, "")),
        fault(
            "gzip nobody asked for",
            Reply::new(200, "text/readystream", *b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x04\0")
                .header("Content-Encoding", "gzip"),
            Fails(API_ERROR, ""),
        ),
        fault("JSON that is no event", Reply::json(json!([1, 2])), Fails(API_ERROR, "")),
    ]
}

/// Faults in a stream.
fn streams() -> Vec<Fault> {
    let part = || Reply::sse().content("part one ").content("ä two");
    let whole = || Reply::run(&["part one ", "ä two"]);
    let got = "part one ä two";
    let text = || Text(got.to_owned());
    let usage = json!({"type": "usage", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}});
    let length = |reply: &Reply| reply.body().len();
    vec![
        fault("nothing at all", Reply::sse(), Fails(INTERRUPTED, "")),
        fault("nothing but a length of 0", Reply::sse().framing(Framing::Length), Fails(INTERRUPTED, "")),
        fault("nothing, then silence", Reply::sse().hang(), Fails(INTERRUPTED, "")),
        fault("nothing, then a cut", Reply::sse().cut(), Fails(INTERRUPTED, "")),
        fault("no complete", part(), Fails(INTERRUPTED, got)),
        fault("no complete, until close", part().framing(Framing::UntilClose), Fails(INTERRUPTED, got)),
        fault("cut in mid-stream", part().cut(), Fails(INTERRUPTED, got)),
        fault("cut in mid-event", part().bytes("data: {\"type\":\"con").cut(), Fails(INTERRUPTED, got)),
        fault("silence in mid-stream", part().hang(), Fails(INTERRUPTED, got)),
        fault("silence in mid-event", part().bytes("data: {\"ty").hang(), Fails(INTERRUPTED, got)),
        fault("usage and no content", Reply::sse().event(usage.clone()).complete(), Fails(API_ERROR, "")),
        fault("complete without content", Reply::sse().complete(), Fails(API_ERROR, "")),
        fault("malformed JSON", part().bytes("data: {oops\n\n").complete(), Fails(API_ERROR, got)),
        fault("an event that is a number", part().bytes("data: 5\n\n").complete(), Fails(API_ERROR, got)),
        Fault {
            says: "model not found",
            ..fault("error first", Reply::sse().error("Error: model not found").complete(), Fails(API_ERROR, ""))
        },
        Fault {
            says: "rate limited",
            ..fault("error in the middle", part().error("rate limited").complete(), Fails(API_ERROR, got))
        },
        fault("error without complete", part().error("rate limited").cut(), Fails(API_ERROR, got)),
        fault("error with a path", part().error(&format!("open {HOST_PATH}/x")).complete(), Fails(API_ERROR, got)),
        fault("error without text", Reply::sse().event(json!({"type": "error"})).complete(), Fails(API_ERROR, "")),
        fault(
            "length too long, cut",
            part().framing(Framing::Claim(length(&part()) + 9)).cut(),
            Fails(INTERRUPTED, got),
        ),
        fault(
            "length cuts `complete` off",
            whole().framing(Framing::Claim(length(&part()))).ending(End::Close),
            Fails(INTERRUPTED, got),
        ),
        fault(
            "bad chunk size",
            Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            Fails(INTERRUPTED, ""),
        ),
        fault("drip", whole().dripped(), text()),
        fault("drip until close", whole().framing(Framing::UntilClose).dripped(), text()),
        fault("trailers", whole().framing(Framing::Chunked(vec![("X-Late".into(), "yes".into())])), text()),
        fault("unknown events", part().event(json!({"type": "thinking", "content": "hm"})).complete(), text()),
        fault(
            "usage in the middle",
            Reply::sse().content("part one ").event(usage).content("ä two").complete(),
            text(),
        ),
        fault("empty content", part().content("").event(json!({"type": "content"})).complete(), text()),
        fault(
            "no format",
            Reply::sse().event(json!({"type": "content", "content": got})).event(json!({"type": "complete"})),
            text(),
        ),
        fault("closed after complete", whole().ending(End::Close), text()),
        fault("cut after complete", whole().cut(), text()),
        fault("silence after complete", whole().hang(), text()),
        fault("content after complete", whole().content("late"), text()),
        fault(
            "20,000 tiny events",
            Reply::sse().step(Step::Repeat(line(&content("a ")), 20_000)).complete(),
            Text("a ".repeat(20_000)),
        ),
    ]
}

/// Faults of size; they take a while, so they run once and not for every era.
fn sizes() -> Vec<Fault> {
    let mib = "m".repeat(1 << 20);
    vec![
        fault("one event of 8 MiB", Reply::run(&[&mib.repeat(8)]), Text(mib.repeat(8))),
        fault("64 MiB", Reply::sse().step(Step::Repeat(line(&content(&mib)), 64)).complete(), Fails(TOO_LARGE, "*")),
        fault("one line over 32 MiB", Reply::run(&[&mib.repeat(33)]), Fails(TOO_LARGE, "*")),
        fault(
            "an endless line",
            Reply::sse().bytes("data: ").step(Step::Repeat(vec![b'x'; 1 << 20], 200)),
            Fails(TOO_LARGE, "*"),
        ),
    ]
}

fn run() -> Value {
    json!({"pattern_name": "summarize", "input_text": "input", "stream": true})
}

/// One cell: the fault, then a run that works.
fn cell(era: Era, fabric: &FakeFabric, client: &mut impl Caller, fault: &Fault) {
    fabric.forget();
    fabric.once("POST /chat", fault.reply.clone());
    let result = client.call("fabric_run_pattern", run());
    fabric.expect_chats(1);
    match &fault.outcome {
        Text(text) => {
            expect::success(era, &result);
            let got = result["content"][0]["text"].as_str().unwrap();
            assert!(got == text, "{}: {} bytes instead of {}", fault.name, got.len(), text.len());
        }
        Fails(kind, kept) => {
            let paragraph = expect::failure(era, &result, kind);
            assert!(paragraph.contains(fault.says), "{}: {paragraph}", fault.name);
            if *kept != "*" {
                assert_eq!(partial(&result), *kept, "{}: {result}", fault.name);
            }
            assert!(partial(&result).len() <= 64 << 10, "{}: the kept part is limited", fault.name);
            if fault.name == "429" {
                assert_eq!(result["_meta"]["error"]["retry_after_ms"], 7000, "{result}");
            }
        }
    }
    let next = client.call("fabric_run_pattern", json!({"pattern_name": "ai", "input_text": "next"}));
    assert_eq!(next["content"][0]["text"], "Ran ai on: next", "the call after {}", fault.name);
    fabric.expect_chats(2);
}

/// Every fault in every era; the eras run side by side, because most of the time is spent waiting for silence to end.
fn matrix(eras: &[Era], faults: &[Fault]) {
    let fallen: Vec<String> = thread::scope(|scope| {
        let rows: Vec<_> = eras.iter().map(|era| scope.spawn(|| row(*era, faults))).collect();
        rows.into_iter().flat_map(|row| row.join().expect("a row of cells")).collect()
    });
    assert!(fallen.is_empty(), "{} cells failed:\n{}", fallen.len(), fallen.join("\n"));
}

/// Every fault in one era, all with the same server; gives the cells that failed.
fn row(era: Era, faults: &[Fault]) -> Vec<String> {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_IDLE_TIMEOUT", IDLE);
    let mut client = Stdio::speaking(era, program);
    let mut fallen = Vec::new();
    for fault in faults {
        // The other cells are worth knowing when one fails.
        let outcome = catch_unwind(AssertUnwindSafe(|| cell(era, &fabric, &mut client, fault)));
        if let Err(why) = outcome {
            let why = why.downcast_ref::<String>().map_or("", String::as_str);
            let why: String = why.chars().take(600).collect();
            fallen.push(format!("{era:?}: {}: {why}", fault.name));
        }
    }
    expect::no_leak(&client.stderr());
    fallen
}

#[test]
fn a_faulty_answer_ends_in_its_urn() {
    matrix(&ERAS, &answers());
}

#[test]
fn a_faulty_stream_ends_in_its_urn_or_in_its_text() {
    matrix(&ERAS, &streams());
}

#[test]
fn sizes_are_limited() {
    matrix(&[Era::Legacy("2025-11-25")], &sizes());
}

#[test]
fn nobody_listens() {
    let fabric = FakeFabric::start();
    for url in [format!("http://127.0.0.1:{}", closed_port()), "http://fabric-host.invalid".to_owned()] {
        let program = Program::new([]).env("FABRIC_BASE_URL", &url).env("FABRIC_MCP_CONNECT_TIMEOUT", "2");
        let mut client = Stdio::speaking(Era::Modern, program);
        expect::failure(Era::Modern, &client.call("fabric_run_pattern", run()), UNAVAILABLE);
        expect::failure(Era::Modern, &client.call("fabric_list_patterns", json!({})), UNAVAILABLE);
    }
    fabric.expect_chats(0);
}

#[test]
fn fabric_may_come_up_later_and_go_down_again() {
    let port = closed_port();
    let program = Program::new([]).env("FABRIC_BASE_URL", &format!("http://127.0.0.1:{port}"));
    let mut client = Stdio::speaking(Era::Modern, program);
    expect::failure(Era::Modern, &client.call("fabric_list_strategies", json!({})), UNAVAILABLE);
    let fabric = FakeFabric::start_at(port).expect("the port given up a moment ago");
    expect::success(Era::Modern, &client.call("fabric_list_strategies", json!({})));
    drop(fabric);
    expect::failure(Era::Modern, &client.call("fabric_list_strategies", json!({})), UNAVAILABLE);
}

#[test]
fn a_connection_closed_between_requests_costs_nothing() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    for _ in 0..3 {
        expect::success(Era::Legacy("2025-11-25"), &client.call("fabric_list_strategies", json!({})));
        fabric.forget();
        fabric.close_connections();
        let result = client.call("fabric_run_pattern", run());
        assert_eq!(result["content"][0]["text"], "Ran summarize on: input", "{result}");
        fabric.expect_chats(1);
        fabric.close_connections();
    }
}

#[test]
fn a_redirect_is_not_followed_and_the_key_stays_here() {
    let fabric = FakeFabric::start();
    let other = FakeFabric::start();
    fabric.require_key("canary-key");
    let mut client = Stdio::speaking(Era::Modern, Program::with(&fabric).env("FABRIC_API_KEY", "canary-key"));
    for (status, place) in [(302, "/chat"), (307, "/chat"), (308, "/chat"), (301, "/strategies")] {
        let reply = Reply::new(status, "text/plain", "").header("Location", &format!("{}{place}", other.url()));
        fabric.forget();
        fabric.once("POST /chat", reply.clone());
        expect::failure(Era::Modern, &client.call("fabric_run_pattern", run()), API_ERROR);
        fabric.expect_chats(1);
        fabric.once("GET /strategies", reply);
        expect::failure(Era::Modern, &client.call("fabric_list_strategies", json!({})), API_ERROR);
    }
    assert_eq!((other.accepted(), other.routes()), (0, Vec::new()), "the other host must not be contacted");
}

#[test]
fn reads_are_tried_again_when_that_can_help_and_only_then() {
    let cases: Vec<(&str, Vec<Reply>, usize, Option<&str>)> = vec![
        ("503 twice", vec![failing(503), failing(503)], 3, None),
        ("502 once", vec![failing(502)], 2, None),
        ("504 for ever", vec![failing(504), failing(504), failing(504)], 3, Some(UNAVAILABLE)),
        ("reset once", vec![Reply::resets()], 2, None),
        ("closed once", vec![Reply::closes()], 2, None),
        ("500", vec![failing(500)], 1, Some(INTERNAL)),
        ("429", vec![failing(429)], 1, Some(API_ERROR)),
        ("401", vec![failing(401)], 1, Some(UNAUTHORIZED)),
        ("not JSON", vec![Reply::new(200, "application/json", "{oops")], 1, Some(API_ERROR)),
        ("another shape", vec![Reply::json(json!({"a": 1}))], 1, Some(API_ERROR)),
        ("HTML", vec![Reply::new(200, "text/html", "<html>")], 1, Some(API_ERROR)),
        ("silence", vec![Reply::silence()], 1, Some(UNAVAILABLE)),
    ];
    for era in [Era::Legacy("2024-11-05"), Era::Modern] {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric).env("FABRIC_MCP_REQUEST_TIMEOUT", IDLE));
        for (name, replies, tries, kind) in &cases {
            eprintln!("{era:?}: {name}");
            fabric.forget();
            replies.iter().for_each(|reply| fabric.once("GET /strategies", reply.clone()));
            let result = client.call("fabric_list_strategies", json!({}));
            match kind {
                Some(kind) => drop(expect::failure(era, &result, kind)),
                None => drop(expect::success(era, &result)),
            }
            assert_eq!(fabric.requests_of("GET /strategies").len(), *tries, "{name}");
        }
    }
}

fn failing(status: u16) -> Reply {
    Reply::failure(status, json!({"error": format!("open {HOST_PATH}/x")}))
}

#[test]
fn a_json_body_over_16_mib_is_refused() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let era = Era::Legacy("2025-11-25");
    let big = Reply::new(200, "application/json", "").step(Step::Bytes(b"[\"".to_vec()));
    let big = big.step(Step::Repeat(vec![b'x'; 1 << 20], 17)).bytes("\"]").framing(Framing::UntilClose);
    fabric.once("GET /strategies", big);
    expect::failure(era, &client.call("fabric_list_strategies", json!({})), TOO_LARGE);
    expect::success(era, &client.call("fabric_list_strategies", json!({})));
}

#[test]
fn the_run_limit_ends_a_run_that_never_falls_silent() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_RUN_TIMEOUT", "1");
    let mut client = Stdio::speaking(Era::Modern, program);
    // More small pieces than can be sent in the time a run has.
    fabric.once("POST /chat", Reply::sse().content("kept").step(Step::Repeat(b": alive\n\n".to_vec(), 500_000_000)));
    let result = client.call("fabric_run_pattern", run());
    expect::failure(Era::Modern, &result, INTERRUPTED);
    assert_eq!(partial(&result), "kept");
    fabric.wait_closed(DEADLINE);
}

#[cfg(feature = "tls")]
#[test]
fn a_server_without_tls_behind_https_is_unavailable() {
    let fabric = FakeFabric::start();
    let url = format!("https://127.0.0.1:{}", fabric.port());
    let mut client = Stdio::speaking(Era::Modern, Program::new([]).env("FABRIC_BASE_URL", &url));
    expect::failure(Era::Modern, &client.call("fabric_run_pattern", run()), UNAVAILABLE);
    fabric.expect_chats(0);
}

#[test]
fn a_fabric_behind_a_path_is_reached() {
    for slash in ["", "/"] {
        let fabric = FakeFabric::start();
        fabric.prefix("/behind/proxy");
        let url = format!("{}/behind/proxy{slash}", fabric.url());
        let mut client = Stdio::speaking(Era::Modern, Program::new([]).env("FABRIC_BASE_URL", &url));
        assert_eq!(client.call("fabric_run_pattern", run())["content"][0]["text"], "Ran summarize on: input");
        assert_eq!(fabric.requests_of("POST /behind/proxy/chat").len(), 1, "{:?}", fabric.routes());
    }
}

#[test]
fn a_proxy_in_the_environment_is_not_used_for_loopback() {
    let fabric = FakeFabric::start();
    let proxy = FakeFabric::start();
    let mut program = Program::with(&fabric);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        program = program.env(name, &proxy.url());
    }
    let mut client = Stdio::speaking(Era::Modern, program);
    expect::success(Era::Modern, &client.call("fabric_list_patterns", json!({})));
    expect::success(Era::Modern, &client.call("fabric_run_pattern", run()));
    assert_eq!(proxy.accepted(), 0);
}

#[test]
fn heartbeats_keep_coming_while_fabric_is_silent() {
    // The one test that lets real time pass: a heartbeat is due after 5 s of silence.
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    fabric.once("POST /chat", Reply::sse().gate().content("late").complete());
    let id = client.begin_call("fabric_run_pattern", run(), Some(json!(0)));
    let begun = std::time::Instant::now();
    let note = client.next_note();
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((&note["method"], &note["params"]["progressToken"]), (&json!("notifications/progress"), &json!(0)));
    assert!(note["params"].get("message").is_none(), "a heartbeat has no message: {note}");
    assert!(note["params"]["progress"].as_f64().is_some_and(|progress| progress > 0.0), "{note}");
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "late");
}
