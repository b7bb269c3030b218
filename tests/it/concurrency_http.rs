//! Many concurrent clients over HTTP, sessions that end during their runs, and racing cancels: every request gets
//! exactly one answer or, if cancelled, none.

use std::process::Command;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::http::{Events, HttpServer};
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::rng::cases;
use crate::support::web::{Streamable, messages};
use crate::support::{Caller, DEADLINE, ERAS, Era, cancellation, run_arguments, run_params};

/// The remaining messages of an answer's stream.
#[track_caller]
fn rest(mut events: Events) -> Vec<Value> {
    let mut rest = Vec::new();
    while let Some(event) = events.next().expect("a proper end") {
        rest.push(serde_json::from_str(&event.data).expect("data is JSON"));
    }
    rest
}

fn is_answer(message: &Value) -> bool {
    message.get("id").is_some()
}

/// Limits of time that a busy machine does not reach.
const PATIENT: &str = "--connect-timeout 60 --answer-within 0";

/// Both ends of each connection to Fabric and the server are open files of this process. Linux allows 1024 by default;
/// without `prlimit`, the default has to do.
fn allow_many_files() {
    let _ = Command::new("prlimit")
        .arg("--pid")
        .arg(std::process::id().to_string())
        .arg("--nofile=8192:")
        .output();
}

#[test]
fn two_hundred_http_clients_get_their_own_answers() {
    const CLIENTS: usize = 200;
    allow_many_files();
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric).flags(PATIENT)));
    thread::scope(|scope| {
        for n in 0..CLIENTS {
            let server = &server;
            let body = move || {
                let era = ERAS[1 + n % 4];
                // All clients use the same ids at the same time.
                let mut client = Streamable::to(server, era, None);
                for round in 0..3 {
                    let input = format!("client {n} in round {round}");
                    let result = client.call("fabric_run_pattern", run_arguments(&input));
                    let text = format!("Ran summarize on: {input}");
                    assert_eq!(result["content"][0]["text"], text, "{result}");
                    client.success("fabric_list_strategies", json!({}));
                }
            };
            thread::Builder::new()
                .stack_size(512 << 10)
                .spawn_scoped(scope, body)
                .expect("a thread");
        }
    });
    fabric.expect_chats(3 * CLIENTS);
    let log = server.process.stderr();
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn two_hundred_runs_over_http_are_with_fabric_at_once() {
    const RUNS: usize = 200;
    allow_many_files();
    let fabric = FakeFabric::start();
    let server = HttpServer::start(Program::with(&fabric).flags(PATIENT));
    let mut client = Streamable::to(&Arc::new(server), Era::MODERN, None);
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let message = client.message("tools/call", run_params(json!(0)));
    let mut open: Vec<Events> = (0..RUNS).map(|_| client.stream(&message)).collect();
    fabric.wait_held(RUNS);
    // Half of the clients disconnect: only their runs are cancelled.
    for events in open.drain(..RUNS / 2) {
        events.into_connection().close();
    }
    for _ in 0..RUNS / 2 {
        fabric.wait_closed(DEADLINE);
    }
    fabric.release_all();
    for events in open {
        let mut said = rest(events);
        said.retain(is_answer);
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0]["result"]["content"][0]["text"], "x");
    }
    fabric.expect_chats(RUNS);
}

#[test]
fn a_session_that_ends_takes_its_runs_with_it_and_no_others() {
    let fabric = FakeFabric::start();
    let server = Arc::new(HttpServer::start(Program::with(&fabric)));
    fabric.on_run(Reply::sse().content("x").gate().complete());
    let mut clients = [(); 4].map(|()| Streamable::to(&server, Era::NEWEST_LEGACY, None));
    let open = clients.each_mut().map(|client| {
        let message = client.message("tools/call", run_params(json!(0)));
        client.stream(&message)
    });
    fabric.wait_held(4);
    for client in &clients[..2] {
        let session = [("Mcp-Session-Id", client.session().unwrap())];
        let mut http = server.connect();
        let ended = http.request("DELETE", &server.path, &session, None);
        assert_eq!(ended.status, 204);
        fabric.wait_closed(DEADLINE);
    }
    fabric.release_all();
    for (n, events) in open.into_iter().enumerate() {
        let said = rest(events);
        let answers = said.iter().filter(|message| is_answer(message)).count();
        assert_eq!(answers, usize::from(n >= 2), "client {n}: {said:?}");
    }
    let [first, .., last] = &mut clients;
    let message = first.message("ping", json!({}));
    assert_eq!(first.post(&message).status, 404, "ended is ended");
    last.success("fabric_list_strategies", json!({}));
}

#[test]
fn cancels_that_race_over_http_give_one_answer_or_none() {
    let fabric = FakeFabric::start();
    let mut client = Streamable::ready(&fabric, Era::NEWEST_LEGACY);
    cases(60, |rng, _| {
        let tool = *rng.pick(&["fabric_list_strategies", "fabric_list_patterns"]);
        let message = client.message("tools/call", json!({"name": tool, "arguments": {}}));
        let mut waiting = client.send_apart(&message);
        for _ in 0..rng.within(0..3) {
            client.request("ping", json!({}));
        }
        let cancel = cancellation(message["id"].clone());
        assert_eq!(client.post(&cancel).status, 202);
        let answer = waiting.answer().expect("something is always said");
        let said = messages(&answer);
        let answers: Vec<_> = said.iter().filter(|m| m["id"] == message["id"]).collect();
        assert!(answer.status == 200 && answers.len() <= 1, "{said:?}");
    });
}
