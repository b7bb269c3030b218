//! Callers with tokens and roles: permissions, ownership, and changes of the tokens.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{Modern, POST, code, list_patterns, request, run, stream};
use crate::support::fabric::FakeFabric;
use crate::support::http::{Answer, Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::initialize_params;
use crate::support::{DEADLINE, poll};

/// Tokens differ in their last letter.
fn token(letter: char) -> String {
    format!("token-of-thirty-two-characters-{letter}")
}

fn bearer(letter: char) -> String {
    format!("Bearer {}", token(letter))
}

const ALICE: &str = "alice run token-of-thirty-two-characters-a\n";
const BOB: &str = "bob run token-of-thirty-two-characters-b\n";
const RITA: &str = "rita read token-of-thirty-two-characters-r\n";
const PROM: &str = "prom metrics token-of-thirty-two-characters-p\n";

/// A file of tokens, removed on drop.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, lines: &[&str]) -> File {
        let file = File(
            std::env::temp_dir().join(format!("fabric-mcp-tokens-{}-{name}", std::process::id())),
        );
        file.write(lines);
        file
    }

    /// Replaces the file as editors do.
    pub(crate) fn write(&self, lines: &[&str]) {
        let new = self.0.with_extension("new");
        fs::write(&new, lines.concat()).unwrap();
        fs::rename(&new, &self.0).unwrap();
    }

    fn program(&self, fabric: &FakeFabric) -> Program {
        Program::with(fabric).env("FABRIC_MCP_TOKENS_FILE", self.0.to_str().unwrap())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn send(server: &HttpServer, letter: char, modern: &Modern) -> Answer {
    let bearer = bearer(letter);
    let mut headers = modern.headers();
    headers.push(("Authorization", &bearer));
    server
        .connect()
        .post(&server.path, &headers, &modern.message)
}

fn get(server: &HttpServer, path: &str, letter: char) -> Answer {
    server
        .connect()
        .request("GET", path, &[("Authorization", &bearer(letter))], None)
}

fn call() -> Modern {
    Modern::new(json!(1), "tools/call", list_patterns())
}

fn paid() -> Modern {
    Modern::new(json!(2), "tools/call", run(json!(0)))
}

/// Repeats until the answer has this status: the file is checked once a second.
#[track_caller]
fn wait_status(server: &HttpServer, letter: char, status: u16) {
    let answered = poll(DEADLINE, || {
        (send(server, letter, &call()).status == status).then_some(())
    });
    assert!(answered.is_some(), "never {status} for {letter}");
}

#[test]
fn each_role_may_do_what_it_says() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::run(&["one"]));
    let file = File::new("roles", &["# a comment\n", ALICE, RITA, PROM]);
    let server = HttpServer::start(file.program(&fabric));
    for (letter, listing, metrics) in [
        ('a', 200, 200),
        ('r', 200, 200),
        ('p', 403, 200),
        ('x', 401, 401),
    ] {
        assert_eq!(send(&server, letter, &call()).status, listing, "{letter}");
        assert_eq!(get(&server, "/metrics", letter).status, metrics, "{letter}");
    }
    assert_eq!(send(&server, 'a', &paid()).status, 200);
    fabric.expect_chats(1);
    let refused = send(&server, 'r', &paid());
    let result = &refused.json()["result"];
    assert_eq!(
        (refused.status, &result["isError"]),
        (200, &json!(true)),
        "{}",
        refused.text()
    );
    assert_eq!(
        result["_meta"]["error"]["type"],
        "urn:fabric-mcp:error:forbidden"
    );
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("it takes the role run, or the OAuth scope fabric:run"),
        "{text}"
    );
    fabric.expect_chats(1);
    // Of a batch, only the parts that cost money are refused.
    let session = open(&server, 'r', "2025-03-26");
    let batch = json!([
        request(json!(1), "tools/call", run(json!(0))),
        request(json!(2), "tools/call", list_patterns()),
    ]);
    let bearer = bearer('r');
    let headers = [
        ("Authorization", &*bearer),
        ("Mcp-Session-Id", &session),
        ("Accept", "application/json"),
    ];
    let answers = server.connect().post("/mcp", &headers, &batch).json();
    let errors: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|a| (&a["id"], &a["result"]["isError"]))
        .collect();
    assert!(
        errors.contains(&(&json!(1), &json!(true))) && errors.contains(&(&json!(2), &json!(false))),
        "{answers}"
    );
    fabric.expect_chats(1);
    let body = send(&server, 'p', &call());
    assert_eq!(
        body.json()["error"]["data"]["type"],
        "urn:fabric-mcp:error:forbidden"
    );
    assert_eq!(body.header("www-authenticate"), None);
    let log = server.process.stderr();
    assert!(
        log.contains("ok=true") && log.contains("caller=alice") && log.contains("error=forbidden"),
        "{log}"
    );
    let metrics = get(&server, "/metrics", 'p').text();
    for line in [
        "fabric_mcp_callers_refused_total{reason=\"unknown\"} 2",
        "fabric_mcp_callers_refused_total{reason=\"forbidden\"} 2",
        "fabric_mcp_http_responses_total{status=\"403\"} 2",
        "fabric_mcp_fabric_up 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    for letter in ['a', 'r', 'p'] {
        assert!(!log.contains(&token(letter)) && !metrics.contains(&token(letter)));
    }
}

#[track_caller]
fn open(server: &HttpServer, letter: char, revision: &str) -> String {
    let message = request(json!(0), "initialize", initialize_params(revision));
    let answer = server
        .connect()
        .post("/mcp", &[("Authorization", &bearer(letter))], &message);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
        .header("mcp-session-id")
        .expect("a session id")
        .to_owned()
}

/// The last event of a stream whose token was taken away.
#[track_caller]
fn expect_revocation(events: &mut Events) {
    let last = events.next_json().to_string();
    assert!(last.contains("Your token was removed"), "{last}");
    assert!(events.next().unwrap().is_none());
}

#[test]
fn a_session_does_not_exist_for_others() {
    let fabric = FakeFabric::start();
    let file = File::new(
        "sessions",
        &[ALICE, BOB, "bob run another-token-of-bob-with-32-chars-c\n"],
    );
    let server = HttpServer::start(file.program(&fabric));
    let list = request(json!(1), "tools/list", json!({}));
    let opened = open(&server, 'a', "2025-06-18");
    let named = "2025-06-18.0123456789abcdef0123456789abcdef";
    let mut http = server.connect();
    let (alice, bob) = (bearer('a'), bearer('b'));
    for session in [&*opened, named] {
        let of = |bearer| {
            [
                ("Authorization", bearer),
                ("Mcp-Session-Id", session),
                ("Accept", "text/event-stream"),
            ]
        };
        assert_eq!(http.post("/mcp", &of(&*alice)[..2], &list).status, 200);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        for message in [&list, &cancel, &json!([list])] {
            assert_eq!(
                http.post("/mcp", &of(&*bob)[..2], message).status,
                404,
                "{message}"
            );
        }
        assert_eq!(http.request("GET", "/mcp", &of(&*bob), None).status, 404);
        assert_eq!(http.request("DELETE", "/mcp", &of(&*bob), None).status, 404);
        // To Bob the session is unknown, so he may open one.
        let initialize = request(json!(0), "initialize", initialize_params("2025-06-18"));
        let answer = http.post("/mcp", &of(&*bob)[..2], &initialize);
        assert!(
            answer.status == 200
                && answer
                    .header("mcp-session-id")
                    .is_some_and(|id| id != session)
        );
        assert_eq!(
            http.post("/mcp", &of(&*alice)[..2], &list).status,
            200,
            "nothing happened to hers"
        );
        assert_eq!(
            code(&http.post("/mcp", &of(&*alice)[..2], &initialize)),
            -32600
        );
        assert_eq!(
            http.request("DELETE", "/mcp", &of(&*alice)[..2], None)
                .status,
            204
        );
    }
    // Two tokens with one name are one caller.
    let session = open(&server, 'b', "2025-06-18");
    let other = (
        "Authorization",
        "Bearer another-token-of-bob-with-32-chars-c",
    );
    assert_eq!(
        http.post("/mcp", &[other, ("Mcp-Session-Id", &session)], &list)
            .status,
        200
    );
}

#[test]
fn an_sse_session_does_not_exist_for_others() {
    let fabric = FakeFabric::start();
    let file = File::new("sse", &[ALICE, BOB]);
    let program = file.program(&fabric).flags("--transport sse --port 0");
    let server = HttpServer::listening(program);
    let mut http = server.connect();
    http.send(
        "GET",
        "/sse",
        &[
            ("Accept", "text/event-stream"),
            ("Authorization", &bearer('a')),
        ],
        None,
    )
    .unwrap();
    let mut events = http.events().unwrap();
    let endpoint = events.next().unwrap().unwrap().data;
    let message = request(json!(0), "initialize", initialize_params("2024-11-05")).to_string();
    for (letter, status) in [('b', 404), ('x', 401), ('a', 202)] {
        let bearer = bearer(letter);
        let headers: Vec<_> = POST
            .into_iter()
            .chain([("Authorization", &*bearer)])
            .collect();
        let answer =
            server
                .connect()
                .request("POST", &endpoint, &headers, Some(message.as_bytes()));
        assert_eq!(answer.status, status, "{letter}");
    }
    assert_eq!(
        events.next_json()["result"]["protocolVersion"],
        "2024-11-05"
    );
    // The stream ends with its token.
    file.write(&[BOB]);
    expect_revocation(&mut events);
    assert_eq!(get(&server, "/sse", 'a').status, 401);
}

#[test]
fn one_caller_leaves_connections_to_the_others() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::sse().gate().complete());
    let file = File::new("share", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric).flags("--max-connections 16"));
    let (alice, bob) = (bearer('a'), bearer('b'));
    let held = |modern: &Modern, bearer: &str| {
        stream(
            &server,
            &[&modern.headers()[..], &[("Authorization", bearer)]].concat(),
            &modern.message,
        )
    };
    let listen = Modern::new(
        json!("l"),
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let waiting = Modern::new(json!("w"), "tools/call", run(json!("p")));
    let session = open(&server, 'a', "2025-11-25");
    let get = || {
        let mut http = server.connect();
        let headers = [
            ("Authorization", &*alice),
            ("Mcp-Session-Id", &session),
            ("Accept", "text/event-stream"),
        ];
        http.send("GET", "/mcp", &headers, None).unwrap();
        let events = http.events().unwrap();
        assert_eq!(events.head.status, 200, "{:?}", events.head);
        events
    };
    let first = get();
    let hers: Vec<_> = (0..11)
        .map(|n| held(if n < 6 { &listen } else { &waiting }, &alice))
        .collect();
    // On one connection: the server notices later that a client has left.
    let mut spare = server.connect();
    for modern in [&listen, &waiting, &call()] {
        let headers = [&modern.headers()[..], &[("Authorization", &alice)]].concat();
        let refused = spare.post(&server.path, &headers, &modern.message);
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            (429, Some("1")),
            "{}",
            refused.text()
        );
        let error = &refused.json()["error"];
        assert_eq!(
            error["data"]["type"],
            "urn:fabric-mcp:error:too-many-requests"
        );
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("close a stream, or raise --max-connections"),
            "{error}"
        );
    }
    let call = call();
    let headers = [&call.headers()[..], &[("Authorization", &bob)]].concat();
    assert_eq!(
        spare.post(&server.path, &headers, &call.message).status,
        200
    );
    // A stream of a session replaces the one before, which its client may have lost.
    let second = get();
    drop((held(&listen, &bob), first, second, hers));
}

#[test]
fn tokens_change_under_load_and_only_the_removed_notice() {
    let fabric = FakeFabric::start();
    fabric.on(
        "POST /chat",
        Reply::sse().gate().content("one").gate().complete(),
    );
    let file = File::new("rotation", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric));
    let session = open(&server, 'b', "2025-11-25");
    let bob = bearer('b');
    let authorization = ("Authorization", &*bob);
    let mut own = server.connect();
    own.send(
        "GET",
        "/mcp",
        &[
            authorization,
            ("Mcp-Session-Id", &session),
            ("Accept", "text/event-stream"),
        ],
        None,
    )
    .unwrap();
    let mut session_stream = own.events().unwrap();
    let notifications =
        json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let listen = Modern::new(json!("l"), "subscriptions/listen", notifications);
    let with_token = |modern: &Modern| {
        let mut headers = modern.headers();
        headers.push(authorization);
        stream(&server, &headers, &modern.message)
    };
    let mut subscription = with_token(&listen);
    subscription.next_json();
    let mut running = with_token(&paid());
    fabric.wait_held(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(send(&server, 'a', &call()).status, 200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let carol = "carol read token-of-thirty-two-characters-c\n";
        file.write(&[ALICE, carol]);
        expect_revocation(&mut session_stream);
        expect_revocation(&mut subscription);
        // The run it pays for continues, but without notifications.
        expect_revocation(&mut running);
        wait_status(&server, 'b', 401);
        wait_status(&server, 'c', 200);
        // An invalid file changes nothing and is logged.
        file.write(&[ALICE, "dave run short\n"]);
        server
            .process
            .wait_stderr(", line 2: the token is shorter than 32 characters");
        assert_eq!(send(&server, 'c', &call()).status, 200);
        done.store(true, Ordering::Relaxed);
        assert!(load.into_iter().all(|thread| thread.join().unwrap() > 0));
    });
    assert!(fabric.left().is_empty(), "the run was cut");
    fabric.release_all();
    server
        .process
        .wait_stderr("tool=fabric_run_pattern pattern=summarize");
    let log = server.process.stderr();
    let line = log
        .lines()
        .find(|line| line.contains("tool=fabric_run_pattern"))
        .unwrap();
    assert!(
        line.contains("ok=true") && line.ends_with("caller=bob"),
        "{line}"
    );
    assert!(!log.contains("token-of-thirty-two"), "{log}");
}

#[cfg(unix)]
#[test]
fn a_hangup_reads_the_file_again_at_once_and_ends_nothing() {
    let fabric = FakeFabric::start();
    let file = File::new("hangup", &[ALICE]);
    let mut server = HttpServer::start(file.program(&fabric));
    for n in 1..=3 {
        fs::write(
            &file.0,
            format!("{ALICE}{}", BOB.replace("bob", &format!("bob{n}"))),
        )
        .unwrap();
        server.process.signal("HUP");
        wait_status(&server, 'b', 200);
    }
    server.process.signal("TERM");
    assert_eq!(
        server.process.wait_exit(crate::support::DEADLINE).code(),
        Some(0)
    );
}

#[test]
fn runs_and_rates_are_counted_for_each_caller() {
    let fabric = FakeFabric::start();
    fabric.on("POST /chat", Reply::sse().gate().content("x").complete());
    let file = File::new("limits", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric).flags("--max-runs-per-caller 1"));
    let bearers = [bearer('a'), bearer('b')];
    let begin = |bearer: &str| {
        let run = paid();
        let mut headers = run.headers();
        headers.push(("Authorization", bearer));
        stream(&server, &headers, &run.message)
    };
    let mut first = begin(&bearers[0]);
    fabric.wait_held(1);
    let refused = send(&server, 'a', &paid());
    assert!(
        refused
            .text()
            .contains("You have 1 run under way, as many as this server takes from one caller"),
        "{}",
        refused.text()
    );
    let mut other = begin(&bearers[1]);
    fabric.wait_held(2);
    fabric.release_all();
    for events in [&mut first, &mut other] {
        while events.next_json().get("id").is_none() {}
    }
}

#[test]
fn what_runs_cost_is_counted_by_caller_and_model() {
    let fabric = FakeFabric::start();
    let usage = |input: u64, output: u64| json!({"type": "usage", "usage": {"input_tokens": input, "output_tokens": output}});
    let reply = Reply::sse().content("x").event(usage(3, 4)).complete();
    fabric.on("POST /chat", reply);
    let tokens = File::new("usage", &[ALICE, BOB]);
    let prices = File::new("prices", &["gpt-x 2 10\n", "default 0 100\n"]);
    let program = tokens
        .program(&fabric)
        .env("FABRIC_MCP_PRICES", prices.0.to_str().unwrap());
    let server = HttpServer::start(program);
    let run = |letter: char, more: Value| {
        let mut arguments = json!({"pattern_name": "ai", "input_text": "x"});
        let members = arguments.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments});
        let answer = send(
            &server,
            letter,
            &Modern::new(json!(1), "tools/call", params),
        );
        assert_eq!(answer.status, 200);
    };
    run('a', json!({"model_name": "GPT-X"}));
    run(
        'a',
        json!({"model_name": "gpt-x", "then": [{"pattern_name": "summarize", "model_name": "llama3:8b"}]}),
    );
    run('b', json!({"model_name": "gpt-made-up"}));
    run('b', json!({}));
    fabric.once("POST /chat", Reply::run(&["without usage"]));
    run('b', json!({}));
    let expected = [
        r#"fabric_mcp_tokens_total{caller="alice",model="gpt-x",direction="input"} 6"#,
        r#"fabric_mcp_tokens_total{caller="alice",model="gpt-x",direction="output"} 8"#,
        r#"fabric_mcp_tokens_total{caller="alice",model="llama3:8b",direction="output"} 4"#,
        r#"fabric_mcp_tokens_total{caller="bob",model="other",direction="input"} 3"#,
        r#"fabric_mcp_tokens_total{caller="bob",model="default",direction="output"} 4"#,
        r#"fabric_mcp_cost_total{caller="alice",model="gpt-x"} 0.000092"#,
        r#"fabric_mcp_cost_total{caller="bob",model="default"} 0.0004"#,
        "fabric_mcp_runs_without_usage_total 1",
    ];
    // Of named models they are shown once Fabric has listed those.
    let mut metrics = String::new();
    let found = poll(DEADLINE, || {
        metrics = get(&server, "/metrics", 'a').text();
        let has = |sample: &&str| metrics.lines().any(|line| line == *sample);
        expected.iter().all(has).then_some(())
    });
    assert!(found.is_some(), "{metrics}");
    for words in [
        "pattern=ai model=GPT-X duration_ms=",
        "pattern=ai pattern=summarize model=gpt-x model=llama3:8b duration_ms=",
        "ok=true bytes=1 input_tokens=6 output_tokens=8 request_id=",
        "pattern=ai model=default duration_ms=",
        "ok=true bytes=13 request_id=",
    ] {
        server.process.wait_stderr(words);
    }
}
