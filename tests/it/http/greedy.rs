//! Callers who take all they can get: whatever they hold, others get their own share at once.

use std::fmt::Write;
use std::iter::repeat_with;
use std::sync::Arc;

use serde_json::json;

use super::access::File;
use crate::support::Era;
use crate::support::fabric::FakeFabric;
#[cfg(unix)]
use crate::support::folder::TempFolder;
use crate::support::http::{Http, HttpServer};
use crate::support::reply::Reply;
use crate::support::transports::{Wire, client, serve};
use crate::support::web::{Sse, Streamable};

const MODEST: &str = "token-of-thirty-two-characters-modest";

fn greedy(n: usize) -> String {
    format!("token-of-thirty-two-characters-greedy{n}")
}

/// A file with the tokens of one modest caller and so many greedy ones.
fn tokens(name: &str, many: usize) -> File {
    let mut lines = format!("modest run {MODEST}\n");
    for n in 0..many {
        let _ = writeln!(lines, "greedy{n} run {}", greedy(n));
    }
    File::new(name, &[&lines])
}

/// A caller takes as many streams as it gets, and begins so many runs that stay. Returns what keeps them.
fn take_all(
    server: &Arc<HttpServer>,
    wire: Wire,
    token: &str,
    runs: usize,
) -> (Vec<Http>, Option<Sse>) {
    let run = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "greedy"}});
    if wire == Wire::Sse {
        let sessions = repeat_with(|| {
            let mut http = server.connect();
            let bearer = format!("Bearer {token}");
            let headers = [("Accept", "text/event-stream"), ("Authorization", &*bearer)];
            http.send("GET", &server.path, &headers, None).ok()?;
            http.events()
                .ok()
                .filter(|events| events.head.status == 200)
        });
        let mut client = Sse::to(server, Era::MODERN, Some(token));
        (0..runs).for_each(|_| drop(client.begin("tools/call", run.clone())));
        let sessions = sessions.map_while(|session| session);
        let sessions = sessions.take(100).map(|events| events.into_connection());
        return (sessions.collect(), Some(client));
    }
    let mut client = Streamable::to(server, Era::MODERN, Some(token));
    let mut held: Vec<Http> = (0..runs)
        .map(|_| {
            let message = client.message("tools/call", run.clone());
            client.send_apart(&message)
        })
        .collect();
    let listen = json!({"notifications": {"promptsListChanged": true}});
    let streams = repeat_with(|| {
        let message = client.message("subscriptions/listen", listen.clone());
        let events = client.send_apart(&message).events().ok();
        events.filter(|events| events.head.status == 200)
    });
    let streams = streams.map_while(|stream| stream).take(100);
    held.extend(streams.map(|events| events.into_connection()));
    (held, None)
}

/// The modest caller gets what it asks for, and the server says that it lives.
fn is_served(server: &Arc<HttpServer>, wire: Wire, fabric: &FakeFabric) {
    let mut modest = client(server, wire, Era::MODERN, Some(MODEST));
    fabric.on_run(Reply::run(&["served"]));
    for _ in 0..5 {
        let run = json!({"pattern_name": "ai", "input_text": "modest"});
        let result = modest.call("fabric_run_pattern", run);
        assert_eq!(result["content"][0]["text"], "served", "{result}");
        modest.success("fabric_list_strategies", json!({}));
        server.get("/healthz", &[]).expect_status(200);
    }
}

#[test]
fn two_and_five_greedy_callers_take_nothing_from_a_modest_one() {
    for (wire, many) in [
        (Wire::Streamable, 2),
        (Wire::Streamable, 5),
        (Wire::Sse, 2),
        (Wire::Sse, 5),
    ] {
        let fabric = FakeFabric::start();
        fabric.on_run(Reply::gated(&["x", "y"]));
        let file = tokens(&format!("greedy-{wire:?}-{many}"), many);
        let flags = "--max-runs 24 --max-connections 96";
        let server = serve(wire, file.program(&fabric).flags(flags));
        let held = (0..many).map(|n| take_all(&server, wire, &greedy(n), 24));
        let held: Vec<_> = held.collect();
        fabric.wait_held(12);
        is_served(&server, wire, &fabric);
        drop(held);
        fabric.release_all();
    }
}

#[test]
fn whoever_reads_no_answers_keeps_no_more_connections_than_its_own() {
    let fabric = FakeFabric::start();
    let file = tokens("greedy-unread", 1);
    let program = file.program(&fabric).flags("--max-connections 12");
    let server = serve(Wire::Streamable, program);
    let mut client = Streamable::to(&server, Era::MODERN, Some(&greedy(0)));
    let list = client.message("tools/list", json!({}));
    let mut unread: Vec<Http> = (0..16).map(|_| client.send_apart(&list)).collect();
    // Beyond what it may keep, a connection is closed to make room.
    for n in 0..16_000 {
        let _ = client.send_on(&mut unread[n % 16], &list);
    }
    is_served(&server, Wire::Streamable, &fabric);
}

#[cfg(unix)]
#[test]
fn files_to_open_are_left_for_others() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["x", "y"]));
    let state = TempFolder::new("greedy-files");
    let file = tokens("greedy-files", 1);
    let program = file.program(&fabric);
    let program = program.flags("--max-runs 64 --max-connections 64 --state-dir");
    let server = serve(
        Wire::Streamable,
        program.arg(state.text()).after("ulimit -n 100"),
    );
    let words = "--max-runs is 10 instead of 64, --max-connections 10 instead of 64";
    server.process.wait_stderr(words);
    let _held = take_all(&server, Wire::Streamable, &greedy(0), 40);
    is_served(&server, Wire::Streamable, &fabric);
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_full_disk_only_runs_of_who_fills_it_go() {
    use std::process::Command;

    let fabric = FakeFabric::start();
    let state = TempFolder::new("greedy-disk");
    let disk = state.write("disk/here", "").with_file_name("");
    let mount = |program: &str, options: &[&str]| {
        let done = Command::new(program).args(options).arg(&disk).status();
        done.is_ok_and(|status| status.success())
    };
    let options = ["-t", "tmpfs", "-o", "size=1m,mode=700", "none"];
    if !mount("mount", &options) {
        return eprintln!("skipped: nothing can be mounted here");
    }
    let file = tokens("greedy-disk", 1);
    let program = file.program(&fabric).arg("--state-dir");
    let program = program.arg(disk.to_str().unwrap());
    let server = serve(Wire::Streamable, program.clone());
    let keep = |token: &str, length: usize| {
        let mut client = client(&server, Wire::Streamable, Era::MODERN, Some(token));
        fabric.on_run(Reply::run(&[&"x".repeat(length)]));
        let run = json!({"pattern_name": "ai", "input_text": "x"});
        client.success("fabric_run_pattern", run)["run_id"].clone()
    };
    let greedy: Vec<_> = (0..3).map(|_| keep(&greedy(0), 400 << 10)).collect();
    let modest: Vec<_> = (0..5).map(|_| keep(MODEST, 10 << 10)).collect();
    drop(server);
    let server = serve(Wire::Streamable, program);
    let mut client = client(&server, Wire::Streamable, Era::MODERN, Some(MODEST));
    for run_id in modest {
        let found = client.success("fabric_get_run", json!({"run_id": run_id}));
        assert_eq!(found["status"], "completed", "{found}");
    }
    drop((client, server, greedy));
    assert!(mount("umount", &[]));
}
