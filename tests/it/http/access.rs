//! Callers with tokens and roles: permissions, ownership, and changes of the tokens.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;

use serde_json::{Value, json};

use super::{Modern, WebSession, code, list_patterns, request, run};
use crate::support::expect::{self, contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::http::{Answer, Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::initialize_params;
use crate::support::{DEADLINE, Era, cancellation, extended, poll};

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

    pub(crate) fn program(&self, fabric: &FakeFabric) -> Program {
        Program::with(fabric).env("FABRIC_MCP_TOKENS_FILE", self.0.to_str().unwrap())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[track_caller]
fn send(server: &HttpServer, letter: char, modern: Modern) -> Answer {
    modern.with("Authorization", &bearer(letter)).post(server)
}

fn get(server: &HttpServer, path: &str, letter: char) -> Answer {
    server.get(path, &[("Authorization", &bearer(letter))])
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
        (send(server, letter, call()).status == status).then_some(())
    });
    assert!(answered.is_some(), "never {status} for {letter}");
}

#[test]
fn a_seat_with_little_memory_is_told_at_the_start() {
    let fabric = FakeFabric::start();
    let file = File::new("seats", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric).flags("--max-memory 32"));
    server.process.wait_stderr(
        "2 callers at once can be sure of only 4 MiB of memory each, too little for a large input \
         or output: raise --max-memory to 64 MiB or more",
    );
    let enough = HttpServer::start(file.program(&fabric).flags("--max-memory 64"));
    assert!(!enough.process.stderr().contains("callers at once"));
}

#[test]
fn each_role_may_do_what_it_says() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["one"]));
    let file = File::new("roles", &["# a comment\n", ALICE, RITA, PROM]);
    let server = HttpServer::start(file.program(&fabric));
    for (letter, listing, metrics) in [
        ('a', 200, 200),
        ('r', 200, 200),
        ('p', 403, 200),
        ('x', 401, 401),
    ] {
        assert_eq!(send(&server, letter, call()).status, listing, "{letter}");
        assert_eq!(get(&server, "/metrics", letter).status, metrics, "{letter}");
    }
    assert_eq!(send(&server, 'a', paid()).status, 200);
    fabric.expect_chats(1);
    let refused = send(&server, 'r', paid());
    let result = &refused.expect_status(200).json()["result"];
    let text = expect::failure(Era::MODERN, result, "forbidden");
    let why = "the request needs the role run, or the OAuth scope fabric:run";
    contains(text, [why]);
    // Of a batch, only the parts that cost money are refused.
    let session = WebSession::of(&server, "2025-03-26", Some(bearer('r')));
    let batch = json!([
        request(json!(1), "tools/call", run(json!(0))),
        request(json!(2), "tools/call", list_patterns()),
    ]);
    let json_only = session.accepting("application/json");
    let answers = server.post(&json_only, &batch).json();
    let answers = answers.as_array().unwrap();
    for (id, is_error) in [(1, true), (2, false)] {
        let is_it = |answer: &&Value| answer["id"] == id && answer["result"]["isError"] == is_error;
        assert!(answers.iter().any(|answer| is_it(&answer)), "{answers:?}");
    }
    fabric.expect_chats(1);
    let body = send(&server, 'p', call());
    let error = json!({"type": "urn:fabric-mcp:error:forbidden"});
    includes(&body.json()["error"]["data"], error);
    assert_eq!(body.header("www-authenticate"), None);
    server.process.wait_stderr("error=forbidden");
    let log = server.process.stderr();
    contains(&log, ["ok=true", "caller=alice"]);
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

/// The last event of a stream whose token was taken away.
#[track_caller]
fn expect_revocation(events: &mut Events) {
    contains(events.next_json().to_string(), ["Your token was removed"]);
    assert!(events.next().unwrap().is_none());
}

#[test]
fn a_session_does_not_exist_for_others() {
    let fabric = FakeFabric::start();
    let other = "another-token-of-bob-with-32-chars-c";
    let file = File::new("sessions", &[ALICE, BOB, &format!("bob run {other}\n")]);
    let server = HttpServer::start(file.program(&fabric));
    let list = request(json!(1), "tools/list", json!({}));
    let initialize = request(json!(0), "initialize", initialize_params("2025-06-18"));
    let cancel = cancellation(1);
    let session = |id: &str, bearer: String| WebSession {
        server: &server,
        id: id.to_owned(),
        bearer: Some(bearer),
    };
    let opened = WebSession::of(&server, "2025-06-18", Some(bearer('a'))).id;
    for id in [&*opened, "2025-06-18.0123456789abcdef0123456789abcdef"] {
        let (alice, bob) = (session(id, bearer('a')), session(id, bearer('b')));
        alice.post(&list).expect_status(200);
        for message in [&list, &cancel, &json!([list])] {
            assert_eq!(bob.post(message).status, 404, "{message}");
        }
        let get = bob.accepting("text/event-stream");
        server.get("/mcp", &get).expect_status(404);
        bob.delete().expect_status(404);
        // To Bob the session is unknown, so he may open one.
        let answer = bob.post(&initialize);
        let new = answer.expect_status(200).header("mcp-session-id");
        assert!(new.is_some_and(|new| new != id));
        // Nothing happened to hers.
        alice.post(&list).expect_status(200);
        assert_eq!(code(&alice.post(&initialize)), -32600);
        alice.delete().expect_status(204);
    }
    // Two tokens with one name are one caller.
    let bob = WebSession::of(&server, "2025-06-18", Some(bearer('b')));
    let same = session(&bob.id, format!("Bearer {other}"));
    same.post(&list).expect_status(200);
}

#[test]
fn an_sse_session_does_not_exist_for_others() {
    let fabric = FakeFabric::start();
    let file = File::new("sse", &[ALICE, BOB]);
    let program = file.program(&fabric).flags("--transport sse --port 0");
    let server = HttpServer::listening(program);
    let mut events = server.events("/sse", &[("Authorization", &bearer('a'))]);
    let endpoint = events.next().unwrap().unwrap().data;
    let message = request(json!(0), "initialize", initialize_params("2024-11-05"));
    for (letter, status) in [('b', 404), ('x', 401), ('a', 202)] {
        let headers = [("Authorization", &*bearer(letter))];
        let answer = server.connect().post(&endpoint, &headers, &message);
        assert_eq!(answer.status, status, "{letter}");
    }
    let version = json!({"protocolVersion": "2024-11-05"});
    includes(&events.next_json()["result"], version);
    fabric.on_run(Reply::sse().gate().content("one").complete());
    let message = request(json!(1), "tools/call", run(json!("p")));
    let headers = [("Authorization", &*bearer('a'))];
    let answer = server.connect().post(&endpoint, &headers, &message);
    answer.expect_status(202);
    fabric.wait_held(1);
    // The stream ends with its token, and the run goes on.
    file.write(&[BOB]);
    expect_revocation(&mut events);
    assert_eq!(get(&server, "/sse", 'a').status, 401);
    fabric.release_all();
    server.process.wait_stderr("tool=fabric_run_pattern");
    let log = server.process.stderr();
    let is_run = |line: &&str| line.contains("tool=fabric_run_pattern");
    let line = log.lines().find(is_run).unwrap();
    assert!(line.contains("ok=true"), "{line}");
}

#[test]
fn one_caller_leaves_connections_to_the_others() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().gate().complete());
    let file = File::new("share", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric).flags("--max-connections 16"));
    let of = |modern: Modern, letter| modern.with("Authorization", &bearer(letter));
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = |letter| {
        of(
            Modern::new(json!("l"), "subscriptions/listen", filter.clone()),
            letter,
        )
    };
    let waiting = of(Modern::new(json!("w"), "tools/call", run(json!("p"))), 'a');
    let session = WebSession::of(&server, "2025-11-25", Some(bearer('a')));
    let first = session.get();
    let kind = |n| if n < 6 { listen('a') } else { waiting.clone() };
    let hers: Vec<_> = (0..10).map(|n| kind(n).stream(&server)).collect();
    // On one connection: the server notices later that a client has left.
    let mut spare = server.connect();
    for modern in [listen('a'), waiting.clone(), of(call(), 'a')] {
        let refused = modern.send(&mut spare, &server.path);
        assert_eq!(refused.expect_status(429).header("retry-after"), Some("1"));
        let error = &refused.json()["error"];
        let kind = json!({"type": "urn:fabric-mcp:error:too-many-requests"});
        includes(&error["data"], kind);
        let way_out = "close a stream, or raise --max-connections";
        contains(&error["message"], [way_out]);
    }
    let bobs = of(call(), 'b').send(&mut spare, &server.path);
    bobs.expect_status(200);
    // A stream of a session replaces the one before, which its client may have lost.
    let second = session.get();
    // It takes the other's place, and gives none away.
    let refused = listen('a').send(&mut spare, &server.path);
    refused.expect_status(429);
    drop((listen('b').stream(&server), first, second, hers));
}

#[test]
fn tokens_change_under_load_and_only_the_removed_notice() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().gate().content("one").gate().complete());
    let file = File::new("rotation", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric));
    let session = WebSession::of(&server, "2025-11-25", Some(bearer('b')));
    let mut session_stream = session.get();
    let notifications =
        json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let listen = Modern::new(json!("l"), "subscriptions/listen", notifications);
    let bobs = |modern: Modern| modern.with("Authorization", &bearer('b')).stream(&server);
    let mut subscription = bobs(listen);
    subscription.next_json();
    let mut running = bobs(paid());
    fabric.wait_held(1);
    let silent = paid().with("Authorization", &bearer('b'));
    let silent = silent.with("Accept", "application/json");
    thread::scope(|scope| {
        // Dropped also when an assertion fails, so that the load ends.
        let goes_on = Arc::new(());
        let silent = scope.spawn(|| silent.send(&mut server.connect(), &server.path));
        fabric.wait_held(2);
        let work = |goes_on: Weak<()>| {
            let mut count = 0;
            while goes_on.strong_count() > 0 {
                assert_eq!(send(&server, 'a', call()).status, 200);
                count += 1;
            }
            count
        };
        let load = [(); 4].map(|()| Arc::downgrade(&goes_on));
        let load = load.map(|goes_on| scope.spawn(move || work(goes_on)));
        let carol = "carol read token-of-thirty-two-characters-c\n";
        file.write(&[ALICE, carol]);
        expect_revocation(&mut session_stream);
        expect_revocation(&mut subscription);
        // The run it pays for continues, but without notifications.
        expect_revocation(&mut running);
        let cut = silent.join().unwrap();
        let found = cut.expect_status(401).header("www-authenticate");
        assert_eq!(found, Some("Bearer"));
        wait_status(&server, 'b', 401);
        wait_status(&server, 'c', 200);
        // A line with a mistake is logged, and keeps nobody who is gone.
        file.write(&[ALICE, "dave run short\n"]);
        let words = ", line 2: the token is shorter than 32 characters";
        server.process.wait_stderr(words);
        assert_eq!(send(&server, 'c', call()).status, 401);
        let log = server.process.stderr();
        let told = log.matches("nothing more is sent here").count();
        assert_eq!(told, 3, "a line for each request: {log}");
        drop(goes_on);
        assert!(load.into_iter().all(|thread| thread.join().unwrap() > 0));
    });
    assert!(fabric.left().is_empty(), "the run was cut");
    fabric.release_all();
    let words = "tool=fabric_run_pattern pattern=summarize";
    server.process.wait_stderr(words);
    let log = server.process.stderr();
    let line = log
        .lines()
        .find(|line| line.contains("tool=fabric_run_pattern"))
        .unwrap();
    let is_so = line.contains("ok=true") && line.ends_with("caller=bob");
    assert!(is_so, "{line}");
    assert!(!log.contains("token-of-thirty-two"), "{log}");
}

#[test]
fn a_file_without_tokens_admits_nobody() {
    let fabric = FakeFabric::start();
    let file = File::new("empty", &["# alice left\n"]);
    let server = HttpServer::start(file.program(&fabric));
    assert_eq!(send(&server, 'a', call()).status, 401);
    server.process.wait_stderr("was read: 0 tokens");
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
    let found = server.process.wait_exit(crate::support::DEADLINE).code();
    assert_eq!(found, Some(0));
}

#[test]
fn runs_and_rates_are_counted_for_each_caller() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().gate().content("x").complete());
    let file = File::new("limits", &[ALICE, BOB]);
    let server = HttpServer::start(file.program(&fabric).flags("--max-runs-per-caller 1"));
    let begin = |letter| {
        let run = paid().with("Authorization", &bearer(letter));
        run.stream(&server)
    };
    let mut first = begin('a');
    fabric.wait_held(1);
    let refused = send(&server, 'a', paid()).text();
    let why = "You have 1 run under way, which is as many as this server allows one caller";
    contains(refused, [why]);
    let mut other = begin('b');
    fabric.wait_held(2);
    fabric.release_all();
    for events in [&mut first, &mut other] {
        while events.next_json().get("id").is_none() {}
    }
}

#[test]
fn each_step_is_a_line_of_the_ledger_however_it_ended() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("ledger"));
    let usage = |input: u64, output: u64| json!({"type": "usage", "usage": {"input_tokens": input, "output_tokens": output}});
    let text = || Reply::sse().content("x");
    fabric.on_run(text().event(usage(3, 1)).event(usage(0, 4)).complete());
    let tokens = File::new("usage", &[ALICE, BOB]);
    let prices = folder.write("prices", "gpt-x 2 10\n");
    let state = folder.path("state");
    let start = || {
        let program = tokens.program(&fabric).arg("--state-dir");
        HttpServer::start(program.arg(state.to_str().unwrap()))
    };
    let mut server = start();
    let call = |more: Value| {
        let arguments = extended(json!({"pattern_name": "ai", "input_text": "12345"}), more);
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments});
        Modern::new(json!(1), "tools/call", params)
    };
    let run = |letter: char, more: Value| {
        send(&server, letter, call(more)).expect_status(200);
    };
    run('a', json!({"model_name": "gpt-x"}));
    let step = json!({"pattern_name": "summarize", "model_name": "llama3:8b"});
    run('a', json!({"model_name": "gpt-x", "then": [step]}));
    run('b', json!({}));
    let uncounted = Reply::sse().content("without usage").event(usage(0, 0));
    // Some vendors count what they write only at the end.
    let broken = Reply::sse().event(usage(9, 1)).content("123456789");
    for reply in [
        uncounted.complete(),
        broken.error("broken").complete(),
        Reply::failure(500, json!({"error": "x"})),
        // A Fabric that ends while its model works: there are headers only with the first text.
        Reply::closes(),
    ] {
        fabric.once_run(reply);
        let variables = json!({"lang_code": "12345678"});
        let more = json!({"pattern_name": "translate", "variables": variables});
        run('b', more);
    }
    for words in [
        "pattern=ai pattern=summarize model=gpt-x model=llama3:8b duration_ms=",
        "ok=true bytes=1 input_tokens=6 output_tokens=8 request_id=",
    ] {
        server.process.wait_stderr(words);
    }
    let metrics = get(&server, "/metrics", 'a').text();
    let input = r#"fabric_mcp_tokens_total{direction="input"} 21"#;
    let unwritten = "fabric_mcp_ledger_lines_unwritten 0";
    let without_usage = "fabric_mcp_runs_without_usage_total 2";
    contains(&metrics, [input, unwritten, without_usage]);
    let holds = !metrics.contains("alice") && !metrics.contains("gpt-x");
    assert!(holds, "{metrics}");
    // A run that its caller cancels, and one whose process is killed.
    fabric.on_run(Reply::sse().content("12345").gate().complete());
    let begin = |letter: char, model: &str| {
        let call = call(json!({"model_name": model})).with("Authorization", &bearer(letter));
        let events = call.stream(&server);
        fabric.wait_held(1);
        events
    };
    let all = |ending: &str| {
        let files = fs::read_dir(&state).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let texts = files.filter(|path| path.extension().is_some_and(|found| found == ending));
        String::from_iter(texts.map(|path| fs::read_to_string(path).unwrap()))
    };
    let until = |is_so: &dyn Fn() -> bool| {
        let holds = poll(DEADLINE, || is_so().then_some(())).is_some();
        assert!(holds, "{}", all("tsv"))
    };
    drop(begin('a', "default"));
    until(&|| all("tsv").lines().count() == 9);
    let _killed = begin('b', "m");
    until(&|| all("txt").matches("12345").count() == 3);
    server.process.child.kill().unwrap();
    server.process.wait_exit(DEADLINE);
    let other = start();
    let program = || Program::new(["--state-dir", state.to_str().unwrap()]);
    let usage = |args: &str| program().flags("--usage").flags(args).run(DEADLINE);
    // The next process writes its line.
    until(&|| all("tsv").lines().count() == 10);
    let expected = "\
        caller\tmodel\truns\tsteps\tinput_tokens\toutput_tokens\testimated_tokens\tcost\n\
        token:alice\tdefault\t1\t1\t2\t2\t4\t\n\
        token:alice\tgpt-x\t2\t2\t6\t8\t0\t0.000092\n\
        token:alice\tllama3:8b\t0\t1\t3\t4\t0\t\n\
        token:bob\tdefault\t5\t5\t20\t11\t24\t\n\
        token:bob\tm\t1\t1\t2\t2\t4\t\n";
    let shown = usage(&format!("--prices {}", prices.display()));
    shown.expect_stderr("there is no price for default, llama3:8b, m: ");
    assert_eq!(shown.stdout, expected, "{}", all("tsv"));
    let shown = usage("--json 1970-01-01..");
    assert!(!shown.stderr.contains("price"), "{shown:?}");
    let json: Value = serde_json::from_str(&shown.expect_code(0).stdout).unwrap();
    let row = json!({"caller": "token:bob", "model": "m", "runs": 1, "steps": 1, "input_tokens": 2, "output_tokens": 2, "estimated_tokens": 4});
    assert_eq!(json["usage"][4], row);
    for outcome in "ok cancelled interrupted fabric-api-error".split(' ') {
        let holds = all("tsv").contains(&format!("\t{outcome}\trun_"));
        assert!(holds, "{outcome}");
    }
    drop(other);
    let demo = "--demo --call fabric_run_pattern pattern_name=summarize input_text=x";
    program().flags(demo).run(DEADLINE).expect_code(0);
    assert_eq!(all("tsv").lines().count(), 10, "it costs nothing");
    let newer = "state/run_0000000000000000000000000000000a.json";
    folder.write(newer, "{\"version\":9}");
    folder.write("state/usage-1999-01.tsv", "x\n");
    let shown = usage("1999-01");
    shown.expect_stderr("1 run cannot be read (unsupported)");
    shown.expect_stderr("1 line of the ledger cannot be read");
    assert_eq!(shown.stdout.lines().count(), 1);
    assert!(!usage("1998-12").stderr.contains("of the ledger"));
}

#[test]
fn a_model_that_is_taken_away_between_two_steps_is_refused_with_a_reason() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().gate().content("x").complete());
    let models = json!({"models": ["small"], "vendors": {"V": ["small"]}});
    fabric.on("GET /models/names", Reply::json(models));
    let line = |models: &str| ALICE.replace('\n', &format!(" models={models}\n"));
    let file = File::new("steps", &[&line("small")]);
    let server = HttpServer::start(file.program(&fabric));
    let chain =
        json!({"pattern_name": "ai", "input_text": "x", "then": [{"pattern_name": "summarize"}]});
    let params = json!({"name": "fabric_run_pattern", "arguments": chain});
    let chain = Modern::new(json!(1), "tools/call", params);
    let _running = chain.with("Authorization", &bearer('a')).stream(&server);
    fabric.wait_held(1);
    file.write(&[&line("large")]);
    server.process.wait_stderr("changed: alice");
    fabric.release_all();
    let why =
        "error=invalid-request reason=\"`then[0].model_name`: you may not run the model small";
    server.process.wait_stderr(why);
    fabric.expect_chats(1);
}

#[test]
fn a_line_of_the_file_limits_models_runs_and_tokens() {
    let (fabric, folder) = (FakeFabric::start(), TempFolder::new("limits"));
    let usage = json!({"type": "usage", "usage": {"input_tokens": 6, "total_tokens": 11}});
    fabric.on_run(Reply::sse().content("x").event(usage).complete());
    fabric.on("GET /models/names", Reply::json(json!({"models": ["small", "llama3:8b", "large"], "vendors": {"V": ["small", "llama3:8b", "large"]}})));
    let intern = ALICE.replace('\n', " models=small,llama* tokens-per-month=20\n");
    let slow = BOB.replace('\n', " runs-per-minute=1\n");
    let file = File::new("policy", &[&intern, &slow, "* read - models=tiny\n"]);
    let start = || {
        let program = file.program(&fabric).arg("--state-dir").arg(folder.text());
        HttpServer::start(program.arg("--allow-unauthenticated"))
    };
    let servers = [start(), start()];
    let run = |more: Value| {
        let arguments = extended(json!({"pattern_name": "ai", "input_text": "12345"}), more);
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments});
        Modern::new(json!(1), "tools/call", params)
    };
    let refused = |answer: Answer, kind: &str, words: &str| {
        let result = answer.expect_status(200).json()["result"].clone();
        contains(expect::failure(Era::MODERN, &result, kind), [words]);
    };
    let models = json!({"name": "fabric_list_models", "arguments": {}});
    let models = Modern::new(json!(1), "tools/call", models);
    let listed =
        |answer: Answer| answer.json()["result"]["structuredContent"]["models_by_vendor"].clone();
    let own = listed(send(&servers[0], 'a', models.clone()));
    assert_eq!(own, json!({"V": ["small", "llama3:8b"]}));
    let why = "you may not run the model large; give one of yours: small, llama*.";
    let large = run(json!({"model_name": "large"}));
    refused(send(&servers[0], 'a', large), "invalid-request", why);
    let step = json!({"pattern_name": "summarize", "model_name": "large"});
    let chain = send(&servers[0], 'a', run(json!({"then": [step]})));
    refused(chain, "invalid-request", "then[0].model_name");
    servers[0].process.wait_stderr("tool=fabric_run_pattern pattern=summarize model=large ok=false error=invalid-request reason=");
    let log = servers[0].process.stderr();
    let refusals = log.lines();
    let refusals = refusals.filter(|line| line.contains("you may not run the model large"));
    let found = refusals.filter(|line| line.ends_with("caller=alice"));
    assert_eq!(found.count(), 2, "{log}");
    // Her input counts wherever it comes from.
    let transcript = json!({"transcript": "word ".repeat(20)});
    fabric.on("POST /youtube/transcript", Reply::json(transcript));
    let from = json!({"input_text": "", "input_from": {"youtube": "https://youtu.be/abc-DEF_123"}});
    let video = send(&servers[0], 'a', run(from)).text();
    contains(&video, ["20 are left, and this input has about 25."]);
    fabric.expect_chats(0);
    // Of 20 tokens each run uses 11, whichever process it is in; the second may overshoot.
    for server in &servers {
        send(server, 'a', run(json!({}))).expect_status(200);
    }
    let is_so = fabric
        .chats()
        .iter()
        .all(|chat| chat["prompts"][0]["model"] == "small");
    assert!(is_so, "the first of hers");
    for server in &servers {
        let why = "You may use 20 model tokens a month; 0 are left";
        refused(send(server, 'a', run(json!({}))), "too-many-requests", why);
        server.process.wait_stderr("pattern=ai model=small");
    }
    send(&servers[0], 'b', run(json!({}))).expect_status(200);
    let why = "You may begin at most 1 run a minute.";
    let again = send(&servers[0], 'b', run(json!({})));
    refused(again, "too-many-requests", why);
    fabric.expect_chats(3);
    // Who has no token has the role of the line for all others.
    refused(
        run(json!({"model_name": "tiny"})).post(&servers[0]),
        "forbidden",
        "the request needs the role run",
    );
    assert_eq!(listed(models.post(&servers[0])), json!({}));
    assert_eq!(send(&servers[0], 'x', call()).status, 401);
    // A mistake of one line is no mistake of another.
    let closed = "* read - until=1999-01-01\n";
    file.write(&[&slow.replace("run ", "rum "), RITA, closed]);
    wait_status(&servers[0], 'a', 401);
    let found = ['b', 'r'].map(|letter| send(&servers[0], letter, call()).status);
    assert_eq!(found, [401, 200]);
    assert_eq!(run(json!({})).post(&servers[0]).status, 403);
    servers[0]
        .process
        .wait_stderr("line 1: the second word must be the role: run");
    let metrics = get(&servers[0], "/metrics", 'r').text();
    contains(&metrics, ["\nfabric_mcp_tokens_file_failing 1\n"]);
    let check = |code: i32, told: &str| {
        let done = Program::new(["--check-tokens", file.0.to_str().unwrap()]).run(DEADLINE);
        contains(&done.expect_code(code).stderr, [told]);
    };
    check(2, "line 1: the second word must be");
    file.write(&["alice\n", "bob\n"]);
    check(2, "policy\", line 2: a line is NAME ROLE TOKEN");
    file.write(&["\n"]);
    let empty = " is empty; put a comment into it";
    check(2, empty);
    let start = file.program(&fabric).flags("--transport http --port 0");
    contains(&start.run(DEADLINE).expect_code(2).stderr, [empty]);
    file.write(&[&intern, RITA]);
    let no_folder = file.program(&fabric);
    let no_folder = no_folder.flags("--transport http --port 0").run(DEADLINE);
    let parts = ["tokens-per-month= is counted in the ledger, so it needs --state-dir"];
    contains(&no_folder.expect_code(2).stderr, parts);
    check(2, parts[0]);
    let path = file.0.to_str().unwrap();
    let check = Program::new(["--check-tokens", path, "--state-dir", "runs"]);
    check.run(DEADLINE).expect_code(0);
}
