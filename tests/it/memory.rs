//! The memory budget: what is released when, which requests are refused, and which still succeed.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::http::{Http, HttpServer};
#[cfg(target_os = "linux")]
use crate::support::process::Output;
use crate::support::process::Program;
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::Stdio;
use crate::support::transports::{Wire, serve};
use crate::support::web::{Sse, Streamable, messages};
use crate::support::{ACKNOWLEDGED, Caller, DEADLINE, Era, expect, poll};

const MIB: usize = 1 << 20;
const TOO_MANY: &str = "urn:fabric-mcp:error:too-many-requests";
const TOO_LARGE: &str = "urn:fabric-mcp:error:response-too-large";

/// The smallest budget: 32 MiB, of which one of several callers may use 24.
fn small(fabric: &FakeFabric) -> Program {
    Program::with(fabric).flags("--max-memory 32 --allow-unauthenticated")
}

fn run(input: &str) -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": input}})
}

/// Waits until so many bytes are charged, as `/metrics` says.
#[track_caller]
fn wait_charged(server: &HttpServer, wanted: impl Fn(usize) -> bool) {
    let charged = || server.metric("fabric_mcp_memory_bytes").unwrap() as usize;
    let reached = poll(DEADLINE, || wanted(charged()).then_some(()));
    assert!(reached.is_some(), "{} bytes are held", charged());
}

/// A request whose last byte is missing.
fn unfinished(server: &HttpServer, path: &str, size: usize) -> Http {
    let mut http = server.connect();
    let host = server.address;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nX-Forwarded-For: 10.0.0.1\r\n\
         Content-Length: {size}\r\n\r\n"
    );
    // A server that refuses it may close the connection early.
    let _ = http
        .send_raw(head.as_bytes())
        .and_then(|()| http.send_raw(&vec![b' '; size - 1]));
    http
}

#[test]
fn small_requests_are_served_while_large_ones_fill_the_budget() {
    let fabric = FakeFabric::start();
    for (wire, era) in [
        (Wire::Streamable, Era::MODERN),
        (Wire::Sse, Era::R2024_11_05),
    ] {
        // Whoever sends the large ones is another caller.
        let server = serve(wire, small(&fabric).flags("--trusted-proxy 127.0.0.1"));
        let mut sse = (wire == Wire::Sse).then(|| Sse::to(&server, era, None));
        let path = sse.as_ref().map_or("/mcp", |sse| &sse.endpoint).to_owned();
        let send = || unfinished(&server, &path, 8 * MIB);
        let held = [(); 2].map(|()| send());
        wait_charged(&server, |bytes| bytes >= 16 * MIB);
        // Before the end of the body.
        let answer = send().answer().expect("an answer");
        assert_eq!(answer.expect_status(503).header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["data"]["type"], TOO_MANY);
        assert_eq!(server.get("/healthz", &[]).status, 200);
        let run = run(&"x".repeat(16 << 10));
        let answer = match &mut sse {
            Some(sse) => sse.request("tools/call", run),
            None => Streamable::to(&server, era, None).request("tools/call", run),
        };
        expect::success(era, &answer["result"]);
        drop(held);
        wait_charged(&server, |bytes| bytes < MIB);
    }
}

#[test]
fn a_skill_is_held_until_it_is_read() {
    let fabric = FakeFabric::start();
    fabric.names(json!(["long"]));
    fabric.text("long", &"x".repeat(11 * MIB));
    let server = Arc::new(HttpServer::start(small(&fabric)));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    client.request("skills/list", json!({}));
    let read = json!({"uri": "skill://fabric/long/SKILL.md"});
    let message = client.message("resources/read", read);
    let mut unread = client.send_apart(&message);
    wait_charged(&server, |bytes| bytes > 10 * MIB);
    // Whichever comes second finds no room for its answer.
    let is_refused = |answer: Value| answer["error"]["data"]["type"] == TOO_LARGE;
    let other = client.send_apart(&message).answer().unwrap().json();
    assert!(is_refused(other) || is_refused(unread.answer().unwrap().json()));
    drop(unread);
    wait_charged(&server, |bytes| bytes < MIB);
}

#[test]
fn the_values_of_an_answer_count_and_not_only_its_bytes() {
    let fabric = FakeFabric::start();
    // Half a megabyte, of which some 50 become.
    let lists = vec![json!([]); 200_000];
    fabric.on("GET /config", Reply::json(json!({ "lists": lists })));
    let server = Arc::new(HttpServer::start(small(&fabric)));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let call = json!({"name": "fabric_get_configuration", "arguments": {}});
    let result = client.request("tools/call", call)["result"].take();
    assert_eq!(result["_meta"]["error"]["type"], TOO_LARGE);
}

#[test]
fn a_body_is_released_once_it_is_read() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let server = Arc::new(HttpServer::start(small(&fabric)));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let listen = client.message("subscriptions/listen", filter);
    let mut padded = listen.to_string().into_bytes();
    padded.resize(8 * MIB, b' ');
    let mut headers = client.headers(&listen);
    headers.push(("Content-Type", "application/json".to_owned()));
    headers.push(("Accept", "text/event-stream".to_owned()));
    let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let open = || {
        let mut http = server.connect();
        http.send("POST", "/mcp", &headers, Some(&padded)).unwrap();
        let mut events = http.events().unwrap();
        assert_eq!(events.next_json()["method"], ACKNOWLEDGED);
        events
    };
    let _streams = [(); 4].map(|()| open());
    wait_charged(&server, |bytes| bytes < MIB);
    // A run holds its input until Fabric has received it, even if its client has disconnected.
    let mut legacy = Streamable::to(&server, Era::R2025_11_25, None);
    let input = "y".repeat(7 * MIB);
    for n in 1..=4 {
        let message = legacy.message("tools/call", run(&input));
        let http = legacy.send_apart(&message);
        fabric.wait_requests("POST /chat", n);
        if n % 2 == 0 {
            http.close();
        } else {
            std::mem::forget(http);
        }
        wait_charged(&server, |bytes| bytes < MIB);
    }
    fabric.release_all();
}

#[test]
fn the_output_of_another_run_is_held_until_it_is_sent() {
    let fabric = FakeFabric::start();
    // With braces the pattern is read before the run.
    let piece = line(&content(&"{".repeat(64 << 10)));
    fabric.on_run(Reply::sse().step(Step::Repeat(piece, 64)).complete());
    fabric.once("GET /patterns/summarize", Reply::silence());
    let server = Arc::new(HttpServer::start(small(&fabric)));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let id =
        client.request("tools/call", run("in"))["result"]["structuredContent"]["run_id"].take();
    let on = json!({"pattern_name": "summarize", "input_from": {"run_id": id}});
    let call = json!({"name": "fabric_run_pattern", "arguments": on});
    let message = client.message("tools/call", call);
    let _waiting = client.send_apart(&message);
    fabric.wait_requests("GET /patterns/summarize", 1);
    // Of the first run, and of the second.
    wait_charged(&server, |bytes| bytes >= 8 * MIB);
}

#[test]
fn a_call_beyond_the_budget_is_refused_by_its_id_and_the_pipe_goes_on() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let program = small(&fabric).env("FABRIC_MCP_MAX_RUNS", "1");
    let mut client = Stdio::speaking(Era::R2025_11_25, program);
    let input = "z".repeat(4 * MIB);
    let ids = (0..12).map(|_| client.begin("tools/call", run(&input)));
    let ids: Vec<Value> = ids.collect();
    let refused = client.answer(&ids[11]);
    // For want of memory, or, where the others are slow to begin, of threads.
    assert!(refused.to_string().contains(TOO_MANY), "{refused}");
    client.result("ping", json!({}));
    fabric.release_all();
    let mut is_done = |id: &&Value| client.answer(id)["result"]["isError"] == false;
    let done = ids[..11].iter().filter(&mut is_done).count();
    assert!((1..11).contains(&done), "{done}");
    let again = client.begin("tools/call", run(&input));
    expect::includes(&client.answer(&again)["result"], json!({"isError": false}));
}

#[test]
fn an_output_beyond_the_budget_ends_with_its_partial_text() {
    let fabric = FakeFabric::start();
    let piece = line(&content(&"x".repeat(64 << 10)));
    let server = Arc::new(HttpServer::start(small(&fabric).flags("--keep-runs 0")));
    // The second text fits, but not in an answer, which contains it twice.
    for pieces in [600, 200] {
        let reply = Reply::sse().step(Step::Repeat(piece.clone(), pieces));
        fabric.on_run(reply.complete());
        let mut client = Streamable::to(&server, Era::MODERN, None);
        let result = client.request("tools/call", run("in"))["result"].take();
        let said = &result["content"][0];
        assert_eq!(result["_meta"]["error"]["type"], TOO_LARGE, "{said}");
        assert!(expect::partial(&result).len() > 60_000);
        drop(client);
        wait_charged(&server, |bytes| bytes < MIB);
    }
    // A run that is kept can be read in parts.
    let server = serve(Wire::Streamable, small(&fabric));
    let mut client = Streamable::to(&server, Era::MODERN, None);
    let said = client.request("tools/call", run("in"))["result"]["content"][0]["text"].take();
    expect::contains(&said, ["Nothing is lost", "fabric_get_run", "Do not"]);
    let text = said.as_str().unwrap();
    let id = &text[text.find("run_id run_").unwrap() + 7..][..36];
    let part = json!({"run_id": id, "offset": 200 * (64 << 10) - 2, "max_chars": 9});
    assert_eq!(client.success("fabric_get_run", part)["output_text"], "xx");
}

#[test]
fn the_answers_to_a_batch_are_held_within_the_budget_and_lists_are_shared() {
    let (fabric, era) = (FakeFabric::start(), Era::R2025_03_26);
    let names: Vec<String> = (0..600).map(|n| format!("p{n:0120}")).collect();
    fabric.names(json!(names));
    fabric.text("p*", "You answer with great care, and in many words.");
    let program = || small(&fabric).env("FABRIC_MCP_MAX_RUNS", "700");
    let mut stdio = Stdio::speaking(era, program());
    let server = Arc::new(HttpServer::start(program()));
    let mut http = Streamable::to(&server, era, None);
    let names = json!({"name": "fabric_list_patterns", "arguments": {}});
    for (method, params, member, count) in [
        ("tools/call", names, "content", 600),
        ("prompts/list", json!({}), "prompts", 150),
    ] {
        let request = |id| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let batch: Value = (1_000..1_000 + count).map(request).collect();
        stdio.send(&batch);
        let answer = http.post(&batch);
        for answers in [stdio.recv(), messages(&answer).pop().expect("an answer")] {
            let answers = answers.as_array().expect("an array");
            assert_eq!(answers.len(), count);
            // Where there is no room for its arguments either, a call is refused as a request.
            let is_served = |answer: &&Value| answer["result"]["_meta"]["error"] == answer["error"];
            let (served, refused): (Vec<_>, Vec<_>) = answers.iter().partition(is_served);
            // All are equal, and so are the lengths of their ids.
            let is_first =
                |answer: &&Value| answer["result"][member] == served[0]["result"][member];
            assert!(served[0]["result"][member].is_array() && served.iter().all(is_first));
            let bytes = served.len() * served[0].to_string().len();
            if member == "prompts" {
                assert!(refused.is_empty() && bytes > 32 * MIB, "{bytes}");
                continue;
            }
            assert!((16 * MIB..=32 * MIB).contains(&bytes), "{bytes}");
            let is_it = |one: &str, answer: &Value| answer.to_string().contains(one);
            let of = |one| refused.iter().filter(|answer| is_it(one, answer)).count();
            assert!(of(TOO_LARGE) > 50, "{}", refused[0]);
            // A batch can have more calls than there are places.
            assert_eq!(of(TOO_LARGE) + of(TOO_MANY), refused.len());
        }
        wait_charged(&server, |bytes| bytes < MIB);
    }
}

#[test]
fn a_long_token_is_repeated_only_with_as_much_text() {
    let fabric = FakeFabric::start();
    let count = 2_000;
    // Each event is a separate write.
    let run = (0..count).fold(Reply::sse(), |run, _| run.content("word "));
    fabric.on_run(run.complete());
    let mut client = Stdio::ready(&fabric);
    let token = "t".repeat(1024);
    let arguments = json!({"pattern_name": "ai", "input_text": "x", "stream": true});
    let id = client.begin_call("fabric_run_pattern", arguments, Some(json!(token)));
    let answer = client.answer(&id);
    let text = "word ".repeat(count);
    assert_eq!(answer["result"]["content"][0]["text"], text);
    let notes = client.notes();
    let texts = notes.iter().map(|note| note["params"]["message"].as_str());
    assert_eq!(texts.flatten().collect::<String>(), text);
    // Each has at least as much text as its token, except those sent after a slice.
    assert!(notes.len() < 200, "{} notes", notes.len());
}

#[cfg(target_os = "linux")]
#[test]
fn without_memory_for_a_thread_it_says_so_and_ends() {
    let ended = Program::new(["--demo"]).after("ulimit -d 1500");
    let ended = ended.run(DEADLINE);
    let words = "the demo's Fabric cannot be started";
    ended.expect_code(1).expect_stderr(words);
    // stderr is closed by the time stdin is, which the shell waits for.
    let unread = Program::new(["--demo"]).stderr(Output::Closed);
    let unread = unread.after("read end; ulimit -d 1500");
    unread.run(DEADLINE).expect_code(1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_small_address_space_is_enough() {
    let program = Program::new(["--demo", "--log-level", "warning"]).after("ulimit -v 65536");
    let mut client = Stdio::speaking(Era::MODERN, program);
    for query in ["commit", "summary", "code"] {
        // On several threads at once, each of which may get its own arena.
        let ids: Vec<Value> = (0..8)
            .map(|_| {
                let call = json!({"name": "fabric_list_patterns", "arguments": {"query": query}});
                client.begin("tools/call", call)
            })
            .collect();
        for id in ids {
            expect::success(Era::MODERN, &client.answer(&id)["result"]);
        }
    }
    // Of 8 MiB, neither members that no message has are kept, nor what stands in the place of an id.
    let members: String = (0..700_000).map(|n| format!(",\"{n:x}\":0")).collect();
    let ids = "0,".repeat(3 * MIB);
    let members = format!(r#""id":1{members}"#);
    for own in [members, format!(r#""x":1e999,"id":[{ids}0]"#)] {
        let message = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"ping\",{own}}}\n");
        client.send_raw(message.as_bytes());
        assert_eq!(client.recv()["jsonrpc"], "2.0");
    }
    client.end(DEADLINE);
}
