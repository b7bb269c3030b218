//! `--connect`: the binary on stdio in front of the binary over HTTP, and in front of a server that misbehaves.

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::fabric::{FakeFabric, closed_port};
use crate::support::http::HttpServer;
use crate::support::process::{Output, Program};
use crate::support::reply::{Framing, Reply, Step};
use crate::support::stdio::{Stdio, initialize_params, with_meta};
use crate::support::{Caller, DEADLINE, ERAS, Era, cancellation, poll, run_params};

const TOKEN: &str = "token-of-thirty-two-characters-a";
const ROUTE: &str = "POST /mcp";
const ENDS: [Era; 2] = [Era::R2025_11_25, Era::MODERN];

/// The relay to this endpoint, with a token.
fn to(url: &str) -> Program {
    Program::new(["--connect", url]).env("FABRIC_MCP_AUTH_TOKEN", TOKEN)
}

/// The relay to a misbehaving server.
fn to_fake(server: &FakeFabric) -> Program {
    to(&format!("{}/mcp", server.url()))
}

/// A Fabric, a server in front of it that wants the token, and the relay to that.
fn start() -> (FakeFabric, HttpServer, Program) {
    start_with("")
}

/// The same with these flags of the server.
fn start_with(flags: &str) -> (FakeFabric, HttpServer, Program) {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN);
    let server = HttpServer::start(program.flags(flags));
    let relay = to(&format!("http://{}{}", server.address, server.path));
    (fabric, server, relay)
}

/// An answer to `id` as JSON, with white space in it, as some write it.
fn result(id: u64, result: Value) -> Reply {
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    Reply::new(200, "application/json", answer.replace(':', " : "))
}

fn answer(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {}})
}

fn ping(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

/// The answer to `initialize` that opens a session.
fn welcome() -> Reply {
    let offered = json!({"prompts": {"listChanged": true}, "tools": {}});
    let opened = json!({"protocolVersion": Era::R2025_11_25.name(), "capabilities": offered});
    result(1, opened).header("Mcp-Session-Id", "session-1")
}

/// The relay to a server that opens a session, which it has opened.
fn opened(server: &FakeFabric) -> Stdio {
    let mut client = Stdio::start(to_fake(server));
    client.result("initialize", initialize_params(Era::R2025_11_25.name()));
    client
}

/// A stream of events.
fn events() -> Reply {
    Reply::sse().header("Content-Type", "text/event-stream")
}

fn note(number: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": number}})
}

#[test]
fn every_revision_works_as_on_stdio() {
    let (fabric, _server, relay) = start();
    fabric.on("POST /chat", Reply::run(&["one ", "two"]));
    for era in ERAS {
        let mut client = Stdio::speaking(era, relay.clone());
        let result = client.result("tools/call", run_params(json!(0)));
        assert_eq!(result["content"][0]["text"], "one two", "{era:?}");
        let notes = client.notes();
        assert_eq!(notes[0]["params"]["progressToken"], 0, "{notes:?}");
        // Its name needs encoding in a header.
        let error = client.error("tools/call", json!({"name": " ü", "arguments": {}}));
        assert_eq!(error["code"], -32602, "{error}");
        let error = client.error("no/such", json!({}));
        assert_eq!(error["code"], -32601, "{error}");
        client.send_raw(b"no JSON\n{\"jsonrpc\":\"2.0\",\"id\":7}\n");
        let codes = [client.recv(), client.recv()].map(|answer| answer["error"]["code"].clone());
        assert_eq!(codes, [json!(-32700), json!(-32600)]);
        client.end(DEADLINE);
    }
}

#[test]
fn batches_pass() {
    let (fabric, _server, relay) = start();
    fabric.on("POST /chat", Reply::sse().content("x").gate());
    let mut client = Stdio::speaking(Era::R2025_03_26, relay);
    client.send(&json!([ping(7), ping(8)]));
    assert_eq!(client.recv(), json!([answer(7), answer(8)]));
    // What is no request has its error in the array, without an id.
    client.send(&json!([7, ping(8)]));
    let answers = client.recv();
    let found = (&answers[0]["error"]["code"], &answers[1]["id"]);
    assert_eq!(found, (&json!(-32600), &json!(8)));
    // What is cancelled has no answer, whatever it and its cancellation are parts of.
    let run = run_params(json!(0));
    let run = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": run});
    let (no, batch) = (cancellation(7), json!([cancellation(7), ping(8)]));
    for (first, then) in [(json!([run, ping(8)]), &no), (run.clone(), &batch)] {
        client.send(&first);
        assert_eq!(client.next_progress_text(), "x");
        client.send(then);
        assert_eq!(client.recv(), json!([answer(8)]));
    }
    client.send(&json!([run, no]));
    client.send(&json!([run, no, ping(8)]));
    assert_eq!(client.recv(), json!([answer(8)]));
    client.close_stdin();
    assert_eq!(client.rest(), [Value::Null; 0]);
}

#[test]
fn parts_of_a_batch_are_cancelled_and_answered_each_by_itself() {
    let server = FakeFabric::start();
    let opened = json!({"protocolVersion": Era::R2025_03_26.name(), "capabilities": {}});
    server.once(ROUTE, result(1, opened));
    let reply = events().event(note(1)).gate().event(json!([answer(8)]));
    server.once(ROUTE, reply);
    server.once(ROUTE, events().event(answer(8)).event(json!([answer(7)])));
    let mut client = Stdio::start(to_fake(&server));
    client.result("initialize", initialize_params(Era::R2025_03_26.name()));
    client.send(&json!([ping(7), ping(8)]));
    assert_eq!(client.recv(), note(1));
    client.cancel(&json!(7));
    // The relay answers this itself, after it has read the cancellation.
    client.send(&json!({"jsonrpc": "2.0", "id": 9, "method": 7}));
    assert_eq!(client.recv()["error"]["code"], -32600);
    server.release();
    assert_eq!(client.recv(), json!([answer(8)]));
    // Other servers answer some parts before others, or not at all.
    client.send(&json!([ping(7), ping(8), ping(9)]));
    let parts = [client.recv(), client.recv()];
    assert_eq!(parts, [answer(8), json!([answer(7)])]);
    assert_eq!(client.answer(&json!(9))["error"]["code"], -32603);
}

#[test]
fn cancelling_stops_the_run_and_nothing_more_is_said_of_it() {
    let (fabric, _server, relay) = start();
    fabric.on("POST /chat", Reply::sse().content("x").gate());
    for era in ENDS {
        let mut client = Stdio::speaking(era, relay.clone());
        let id = client.begin("tools/call", run_params(json!(0)));
        assert_eq!(client.next_progress_text(), "x");
        if !era.is_modern() {
            client.result("initialize", initialize_params(era.name()));
        }
        client.cancel(&id);
        fabric.wait_closed(DEADLINE);
        // The id can be used again.
        client.begin_as(&id, "tools/list", json!({}));
        assert!(client.answer(&id)["result"].is_object(), "{era:?}");
        assert!(client.unasked().is_empty(), "{era:?}");
    }
}

#[test]
fn what_a_cancellation_closed_is_not_used_again() {
    let server = FakeFabric::start();
    // Without a length, its end by the cancellation is no error.
    let endless = events().framing(Framing::UntilClose).event(note(1));
    server.once(ROUTE, endless.hang());
    server.on(ROUTE, result(2, json!({})));
    let mut client = Stdio::speaking(Era::MODERN, to_fake(&server));
    let id = client.begin("tools/list", json!({}));
    client.next_note();
    client.cancel(&id);
    server.wait_closed(DEADLINE);
    for _ in 0..3 {
        client.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": with_meta(json!({}))}));
        let answer = client.answer(&json!(2));
        assert!(answer["result"].is_object(), "{answer}");
    }
}

#[test]
fn an_answer_is_found_beside_other_messages_and_a_notification_has_none() {
    let server = FakeFabric::start();
    server.once(ROUTE, welcome());
    // JSON may be laid out over several lines, which stdio allows no message to be, and be sent as another type.
    let lines = "\u{feff}{\"jsonrpc\": \"2.0\",\r\n \"id\": 2,\n \"result\": {\"x\": 1}\n}";
    for said in ["{}", &answer(7).to_string(), lines] {
        server.once(ROUTE, Reply::new(200, "text/plain", said));
    }
    let parts =
        "data: {\"jsonrpc\":\"2.0\",\ndata:\"id\":3, \r\n: x\r\ndata: \"result\":\ndata: {}}\n\n";
    server.once(ROUTE, events().bytes(parts));
    server.once(ROUTE, events().event(json!([note(1), answer(4)])));
    let mut client = opened(&server);
    for _ in 0..2 {
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    assert_eq!(client.result("ping", json!({}))["x"], 1);
    assert_eq!(client.result("ping", json!({})), json!({}));
    // Nor is an array that answers one request.
    assert_eq!(client.error("ping", json!({}))["code"], -32603);
    client.end(DEADLINE);
    assert_eq!(client.stderr().matches("WARN").count(), 0);
}

#[test]
fn an_answer_is_passed_on_only_where_its_id_waits_and_a_session_only_where_it_opens() {
    let server = FakeFabric::start();
    let answer = |id, said| json!({"jsonrpc": "2.0", "id": id, "result": {"said": said}});
    server.once(ROUTE, welcome());
    server.once(ROUTE, Reply::silence());
    let others = events().event(answer(2, "no"));
    let others = others.event(json!([answer(9, "no"), answer(3, "no")]));
    let own = others.event(answer(3, "yes")).event(answer(3, "no"));
    server.once(ROUTE, own.header("Mcp-Session-Id", "session-2"));
    server.once(ROUTE, events().event(answer(2, "no")));
    let mut client = opened(&server);
    client.begin("ping", json!({}));
    server.wait_requests(ROUTE, 2);
    assert_eq!(client.result("ping", json!({}))["said"], "yes");
    let error = client.error("ping", json!({}));
    assert_eq!(error["code"], -32603, "{error}");
    let last = &server.requests_of(ROUTE)[3];
    assert_eq!(last.header("mcp-session-id"), Some("session-1"));
}

#[test]
fn an_answer_may_be_as_large_as_a_run_makes_it() {
    let (fabric, _server, relay) = start();
    let text = "word \"quoted\"\n".repeat(300_000);
    fabric.on("POST /chat", Reply::run(&[&text]));
    let mut client = Stdio::speaking(Era::MODERN, relay);
    let arguments = json!({"pattern_name": "summarize", "input_text": "x"});
    let result = client.call("fabric_run_pattern", arguments);
    assert!(result["content"][0]["text"] == text);
}

#[test]
fn all_messages_on_their_way_share_one_bound() {
    let server = FakeFabric::start();
    server.on(ROUTE, Reply::silence());
    let mut client = Stdio::speaking(Era::MODERN, to_fake(&server));
    let long = json!({"x": "x".repeat(7 << 20)});
    // What is sent is held at once; when an answer is, only the system knows.
    (0..5).for_each(|_| drop(client.begin("tools/list", long.clone())));
    server.wait_requests(ROUTE, 5);
    server.once(ROUTE, events().step(Step::Repeat(vec![b'x'; 1 << 20], 40)));
    let error = client.error("tools/list", json!({}));
    contains(&error["message"], ["64 MiB"]);
    (0..4).for_each(|_| drop(client.begin("tools/list", long.clone())));
    let error = client.error("tools/list", long);
    contains(&error["message"], ["This request was not sent"]);
}

#[test]
fn nobody_waits_for_a_server_that_never_comes_to_an_end() {
    let server = FakeFabric::start();
    server.on(ROUTE, events().step(Step::Drip(b": x\n".repeat(1 << 23))));
    let relay = to_fake(&server);
    std::thread::scope(|scope| {
        let check = relay.clone().arg("--check");
        scope.spawn(move || {
            let late = check.run(DEADLINE);
            late.expect_code(1)
                .expect_stderr("does not answer within 10 s");
        });
        let mut client = Stdio::start(relay);
        let error = client.error("initialize", initialize_params(Era::R2025_11_25.name()));
        contains(&error["message"], ["does not answer within 10 s"]);
    });
}

#[test]
fn a_cancellation_that_overtakes_its_request_is_sent_again() {
    let server = FakeFabric::start();
    server.once(ROUTE, welcome());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n";
    server.once(ROUTE, Reply::raw("").gate().bytes(head));
    server.on(ROUTE, Reply::new(202, "text/plain", ""));
    let mut client = opened(&server);
    let id = client.begin("tools/call", run_params(json!(0)));
    server.wait_held(1);
    client.cancel(&id);
    server.wait_requests(ROUTE, 3);
    server.release();
    server.wait_requests(ROUTE, 4);
    for request in &server.requests_of(ROUTE)[2..] {
        assert_eq!(request.json()["method"], "notifications/cancelled");
        assert_eq!(request.json()["params"]["requestId"], id);
    }
}

#[test]
fn what_is_in_flight_at_the_end_of_input_is_answered() {
    let (fabric, server, relay) = start();
    fabric.on("POST /chat", Reply::gated(&["x", "y"]));
    for era in ENDS {
        let mut client = Stdio::speaking(era, relay.clone());
        let listen = json!({"notifications": {"toolsListChanged": true}});
        let id = client.begin("tools/call", run_params(json!(0)));
        assert_eq!(client.next_progress_text(), "x");
        if era.is_modern() {
            client.begin_as(&json!("listen"), "subscriptions/listen", listen);
            client.next_note();
        } else {
            client.result("initialize", initialize_params(era.name()));
        }
        client.close_stdin();
        fabric.release();
        assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "xy");
        // A subscription keeps nobody waiting.
        assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
        let bearer = format!("Bearer {TOKEN}");
        let metrics = server.get("/metrics", &[("Authorization", &bearer)]);
        contains(metrics.text(), ["fabric_mcp_sessions 0\n"]);
    }
}

#[test]
fn a_server_that_never_answers_does_not_outlast_the_input() {
    let server = FakeFabric::start();
    for is_welcome in [false, true] {
        if is_welcome {
            server.once(ROUTE, welcome());
        }
        server.on(ROUTE, events().hang());
        let mut client = Stdio::start(to_fake(&server));
        let id = client.begin("initialize", initialize_params(Era::R2025_11_25.name()));
        if is_welcome {
            client.answer(&id);
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client.end(DEADLINE);
    }
}

#[test]
fn a_session_is_repeated_and_ended_and_offers_no_more_than_it_keeps() {
    let server = FakeFabric::start();
    let mut late = welcome();
    late.steps.insert(0, Step::Gate);
    server.once(ROUTE, late);
    server.once(ROUTE, Reply::new(202, "text/plain", ""));
    server.once(ROUTE, result(2, json!({})));
    let ended = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32600, "message": "Ended."}});
    server.once(ROUTE, Reply::failure(404, ended));
    server.on("DELETE /mcp", Reply::new(204, "text/plain", ""));
    let mut client = Stdio::start(to_fake(&server));
    let opened = client.begin("initialize", initialize_params(Era::R2025_11_25.name()));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let list = client.begin("tools/list", json!({}));
    // What follows waits for the session.
    server.wait_held(1);
    assert_eq!(server.requests().len(), 1);
    server.release();
    // Changed lists are told on a stream of their own, and there is none.
    let offered = &client.answer(&opened)["result"]["capabilities"];
    let expected = json!({"prompts": {"listChanged": false}, "tools": {}});
    assert_eq!(*offered, expected);
    client.answer(&list);
    let error = client.error("tools/list", json!({}));
    let words = ["has ended this session", "Start the client again"];
    contains(&error["message"], words);
    client.end(DEADLINE);
    let requests = server.requests();
    let methods: Vec<&str> = requests.iter().map(|one| &*one.method).collect();
    assert_eq!(methods, ["POST", "POST", "POST", "POST", "DELETE"]);
    let bearer = format!("Bearer {TOKEN}");
    for (at, request) in requests.iter().enumerate() {
        let session = |value| (at > 0).then_some(value);
        for (name, value) in [
            ("authorization", Some(&*bearer)),
            ("mcp-session-id", session("session-1")),
            ("mcp-protocol-version", session("2025-11-25")),
        ] {
            assert_eq!(request.header(name), value, "{request:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_session() {
    let server = FakeFabric::start();
    server.on(ROUTE, welcome());
    server.on("DELETE /mcp", Reply::new(204, "text/plain", ""));
    let mut client = opened(&server);
    client.process.signal("TERM");
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
    assert_eq!(server.requests_of("DELETE /mcp").len(), 1);
}

#[test]
fn what_goes_wrong_is_told_with_what_to_do_and_sent_once() {
    let elsewhere = FakeFabric::start();
    let server = FakeFabric::start();
    let other = format!("{}/mcp", elsewhere.url());
    let refused = |status, words: &str| {
        let error = json!({"jsonrpc": "2.0", "error": {"code": -32600, "message": words}});
        Reply::failure(status, error)
    };
    let page = |status| Reply::new(status, "text/html", "<html>");
    let cut = "fabric_get_run before you start it again";
    let json = |text: &str| Reply::new(200, "application/json", text);
    let long = json(&format!("[{}]", " ".repeat(65 << 20)));
    let away = |status| page(status).header("Location", &other);
    let slow = "Try again in a moment. It says: Slow.";
    let add = "Add --allowed-host x.";
    let short = json("{\"js").framing(Framing::Claim(99)).cut();
    for (reply, said) in [
        (away(302), "give --connect the URL that it leads to"),
        (away(307), "is not followed"),
        (refused(401, "No."), "HTTP 401: the server at http"),
        (refused(403, add), "It says: Add --allowed-host x."),
        (page(404), "that of fabric-mcp is /mcp"),
        (refused(429, "Slow."), slow),
        (page(503), "Try again in a moment"),
        (page(502), cut),
        (page(500), "Its own log says why"),
        (page(200), "does not answer as an MCP server"),
        (json("{\"no\": 1}"), "does not answer as an MCP server"),
        (Reply::closes(), cut),
        (Reply::resets(), cut),
        (short, cut),
        (events().event(note(1)).cut(), cut),
        // It ends properly, but without an answer.
        (events().event(note(1)), cut),
        (long, "fabric_get_run with max_chars"),
    ] {
        server.once(ROUTE, reply);
        let mut client = Stdio::speaking(Era::MODERN, to_fake(&server).flags("--log-level debug"));
        let error = client.error("tools/call", run_params(json!(0)));
        contains(&error["message"], [said]);
        assert_eq!(server.requests_of(ROUTE).len(), 1, "{said}");
        client.close_stdin();
        client.wait_exit(DEADLINE);
        assert!(!client.stderr().contains(TOKEN) && !error.to_string().contains(TOKEN));
        server.forget();
    }
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.routes());
    let nowhere = to(&format!("http://127.0.0.1:{}/mcp", closed_port()));
    let error = Stdio::speaking(Era::MODERN, nowhere).error("tools/list", json!({}));
    contains(&error["message"], ["(Connection refused"]);
    // A batch has an error for each of its requests.
    server.once(ROUTE, Reply::closes());
    let mut client = Stdio::start(to_fake(&server));
    client.send(&json!([ping(7), ping(8)]));
    let ids = [client.recv()["id"].clone(), client.recv()["id"].clone()];
    assert_eq!(ids, [json!(7), json!(8)]);
}

#[test]
fn too_much_is_refused_at_once() {
    let server = FakeFabric::start();
    server.on(ROUTE, Reply::silence());
    let mut client = Stdio::speaking(Era::MODERN, to_fake(&server));
    let first = client.begin("tools/list", json!({}));
    let twice = with_meta(json!({}));
    client.send(&json!({"jsonrpc": "2.0", "id": first, "method": "tools/list", "params": twice}));
    assert_eq!(client.recv()["error"]["code"], -32600, "the id is in use");
    for _ in 1..64 {
        client.begin("tools/list", json!({}));
    }
    let error = client.error("tools/list", json!({}));
    let message = error["message"].as_str().unwrap();
    let is_so = message.starts_with("This request was not sent: 64 others");
    assert!(is_so, "{message}");
    let long = json!({"x": "x".repeat(9 << 20)});
    client.send(&json!({"jsonrpc": "2.0", "id": "long", "method": "x", "params": long}));
    assert_eq!(client.answer(&json!("long"))["error"]["code"], -32600);
    // A cancellation makes room, once its thread has ended.
    server.wait_requests(ROUTE, 64);
    client.cancel(&first);
    let has_room = poll(DEADLINE, || {
        client.begin("tools/list", json!({}));
        (server.requests_of(ROUTE).len() > 64).then_some(())
    });
    assert!(has_room.is_some());
}

#[test]
fn nobody_who_reads_is_the_end() {
    let (_fabric, _server, relay) = start();
    let mut client = Stdio::start(relay.stdout(Output::Closed));
    client.begin("tools/list", with_meta(json!({})));
    assert_eq!(client.wait_exit(DEADLINE).code(), Some(0));
}

#[test]
fn a_check_says_whether_the_server_can_be_used() {
    let (_fabric, _server, relay) = start();
    // Variables for a server of one's own do not matter.
    let relay = relay
        .env("FABRIC_MCP_PORT", "x")
        .env("FABRIC_BASE_URL", "y");
    let good = relay.clone().arg("--check").run(DEADLINE);
    good.expect_code(0)
        .expect_stdout("ms, and accepts the token.");
    let wrong = relay.env("FABRIC_MCP_AUTH_TOKEN", "wrong").arg("--check");
    let bad = wrong.run(DEADLINE);
    bad.expect_code(1).expect_stderr("refuses the token");
}

#[test]
fn a_call_there_is_printed() {
    let (fabric, _server, relay) = start();
    fabric.on("POST /chat", Reply::run(&["one ", "two"]));
    let call = |flags: &str| {
        relay
            .clone()
            .flags(&format!("{flags} pattern_name=summarize"))
    };
    let mut process = call("--call fabric_run_pattern").start();
    process.write(b"a text");
    assert_eq!(process.finish(DEADLINE).stdout, "one two\n");
    let refused = call("--call fabric_get_pattern_details --json x=1").run(DEADLINE);
    refused
        .expect_code(1)
        .expect_stderr("`x` is not an argument");
    // Without room for a task, the answer is the text so far.
    let said = |text: &str| json!({"isError": false, "content": [{"type": "text", "text": text}], "_meta": {"run_id": "run_1"}});
    let done = json!({"taskId": "run_1", "status": "completed", "result": said("whole")});
    for answer in [said("part"), json!({}), done] {
        fabric.once(ROUTE, result(1, answer));
    }
    let followed =
        to_fake(&fabric).flags("--call fabric_run_pattern pattern_name=summarize input_text=x");
    assert_eq!(followed.run(DEADLINE).stdout, "whole\n");
}

/// --answer-within of a server, whose run takes longer than 10 s, and other flags; an argument of the call, the last text of
/// its run, and what the call ends with: exit code, stdout and the end of stderr.
#[cfg(unix)]
const FOLLOWED: [&str; 7] = [
    "0.2 --tool fabric_get_run|stream=true|last|0|first last\n| s.\n",
    "0.2 --plain-results|language=de|last|0|first last\n| s.\n",
    "0.2 --tool fabric_get_run|max_chars=8|last|0|first la\n|offset 8.\n",
    "0.2 --tool fabric_get_run|--json|last|0|\"first last\"| s.\n",
    "0.2 --tool fabric_get_run|--json||1|\"run_id\": \"run_|interrupted\n",
    "0.2 --tool fabric_get_run|stream=true||130|first \n|Cancelled.\n",
    "999 --tool fabric_get_run|stream=true||130|first \n|Cancelled.\n",
];

#[cfg(unix)]
#[test]
fn a_run_there_is_followed_to_its_end() {
    let follow = |row: &str| {
        let row: Vec<_> = row.split('|').collect();
        let [flags, more, last, code, printed, said] = row[..] else {
            panic!("{row:?}")
        };
        let flags = format!("--tool fabric_run_pattern --answer-within {flags}");
        let (fabric, _server, relay) = start_with(&flags);
        let reply = Reply::sse().content("first ").gate().content(last);
        fabric.on_run(if code == "0" {
            reply.complete()
        } else {
            reply.cut()
        });
        let call = relay.flags("--call fabric_run_pattern pattern_name=summarize input_text=x");
        let process = call.arg(more).start();
        process.wait_stderr("fabric-mcp: Nothing has arrived for 1");
        if code == "130" {
            process.signal("INT");
            fabric.wait_closed(DEADLINE);
        }
        fabric.release();
        let finished = process.finish(DEADLINE);
        finished.expect_code(code.parse().unwrap());
        finished.expect_stdout(printed);
        let is_whole = finished.stdout == printed || more == "--json";
        let is_so = is_whole && finished.stderr.ends_with(said);
        assert!(is_so, "{row:?}: {finished:?}");
    };
    std::thread::scope(|scope| FOLLOWED.map(|row| scope.spawn(move || follow(row))).len());
}
