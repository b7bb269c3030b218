//! Clients that stop reading: they block neither other clients nor the end of the process.
#![cfg(unix)]

use std::any::Any;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::{Output, Program};
use crate::support::reply::{Reply, Step, content, line};
use crate::support::stdio::{Stdio, with_meta};
use crate::support::transports::{EACH, Wire, client, serve};
use crate::support::web::{Sse, Streamable};
use crate::support::{Era, poll, run_params, scaled};

/// The protocol's 2 s, or the drain timeout below, plus the needs of a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Far more than the buffers of pipes and sockets hold.
fn flood() -> Reply {
    Reply::sse()
        .step(Step::Repeat(line(&content(&"word ".repeat(2_000))), 2_000))
        .gate()
        .complete()
}

#[test]
fn the_end_of_input_and_a_signal_end_it_although_its_output_is_unread() {
    let ends: [fn(&mut Stdio); 2] = [Stdio::close_stdin, |client| client.process.signal("TERM")];
    for end in ends {
        let fabric = FakeFabric::start();
        fabric.once_run(flood());
        let program = Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3");
        let mut client = Stdio::start(program.stdout(Output::Unread));
        let params = with_meta(run_params(json!(1)));
        client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        fabric.wait_requests("POST /chat", 1);
        end(&mut client);
        assert_eq!(client.wait_exit(scaled(ENDS_WITHIN)).code(), Some(0));
        fabric.wait_none_open();
    }
}

#[test]
fn a_reader_that_stopped_holds_up_neither_others_nor_the_end() {
    for (wire, era) in &EACH[1..] {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3");
        let server = serve(*wire, program);
        fabric.once_run(flood());
        // Stays connected, and reads nothing, until the process has ended.
        let slow: Box<dyn Any> = match wire {
            Wire::Sse => {
                let mut slow = Sse::to(&server, *era, None);
                slow.begin("tools/call", run_params(json!(1)));
                Box::new(slow)
            }
            _ => {
                let mut slow = Streamable::to(&server, *era, None);
                let message = slow.message("tools/call", run_params(json!(1)));
                Box::new(slow.send_apart(&message))
            }
        };
        fabric.wait_requests("POST /chat", 1);
        let mut other = client(&server, *wire, *era, None);
        for _ in 0..3 {
            let arguments = json!({"pattern_name": "ai", "input_text": "x"});
            other.success("fabric_run_pattern", arguments);
        }
        drop(other);
        server.process.signal("TERM");
        let pid = server.process.child.id();
        assert!(poll(scaled(ENDS_WITHIN), || ended(pid).then_some(())).is_some());
        drop(slow);
    }
}

/// Posts a request on a connection of its own, as a client of HTTP+SSE may, again while there is no room for it; the status.
#[track_caller]
fn post(client: &Sse, id: usize, method: &str, params: &Value) -> u16 {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let http = || client.server.connect();
    let status = || http().post(&client.endpoint, &[], &message).status;
    let status = poll(scaled(ENDS_WITHIN), || {
        Some(status()).filter(|status| *status != 503)
    });
    status.expect("room for a message")
}

/// A server with two clients of HTTP+SSE, and a call whose answer has 1 MB.
fn two_clients(fabric: &FakeFabric) -> (Sse, Sse, Value) {
    let pattern = json!({"Name": "ai", "Description": "", "Pattern": "word ".repeat(200_000)});
    fabric.on("GET /patterns/ai", Reply::json(pattern));
    let server = serve(Wire::Sse, Program::with(fabric).flags("--answer-within 0"));
    let sse = || Sse::to(&server, Era::R2025_11_25, None);
    let arguments = json!({"pattern_name": "ai", "max_chars": 1_000_000});
    let params = json!({"name": "fabric_get_pattern_details", "arguments": arguments});
    (sse(), sse(), params)
}

#[test]
fn nobody_waits_for_anothers_reader_and_what_it_did_not_read_waits_for_it() {
    let fabric = FakeFabric::start();
    let (mut deaf, mut other, long) = two_clients(&fabric);
    // More than the buffers of sockets hold, and then many that would have to wait for them.
    (0..24).for_each(|id| assert_eq!(post(&deaf, 1000 + id, "tools/call", &long), 202));
    (24..124).for_each(|id| assert_eq!(post(&deaf, 1000 + id, "tools/list", &json!({})), 202));
    let answer = other.request("ping", json!({}));
    assert_eq!(answer["result"], json!({}), "{answer}");
    for id in 0..124 {
        let answer = deaf.answer(&json!(1000 + id));
        assert_ne!(answer["result"]["isError"], true,);
    }
}

#[test]
fn a_slow_reader_loses_progress_and_never_its_answer() {
    let fabric = FakeFabric::start();
    let piece = "word ".repeat(2_000);
    let pieces = Step::Repeat(line(&content(&piece)), 2_000);
    fabric.once_run(Reply::sse().step(pieces).complete());
    let (mut slow, ..) = two_clients(&fabric);
    let id = slow.begin("tools/call", run_params(json!(1)));
    // The run ends although nothing is read meanwhile.
    slow.server.process.wait_stderr("tool=fabric_run_pattern");
    let answer = slow.answer(&id);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), piece.len() * 2_000);
    let progress = |note: &Value| note["params"]["progress"].as_u64();
    let progress: Vec<_> = slow.notes.iter().filter_map(progress).collect();
    assert!(!progress.is_empty() && progress.is_sorted());
    assert!(progress.len() < 1_000, "{}", progress.len());
}

#[test]
fn a_stream_ends_if_an_answer_does_not_fit_its_queue() {
    let fabric = FakeFabric::start();
    let (mut deaf, mut other, long) = two_clients(&fabric);
    // 64 MiB may wait, beside what the buffers of sockets hold.
    let fits = |id: usize| post(&deaf, 1000 + id, "tools/call", &long) == 202;
    let _cut = (0..128).all(fits);
    deaf.server.process.wait_stderr("an answer does not fit");
    // The session ends with it, at once.
    assert_eq!(post(&deaf, 1, "ping", &json!({})), 404);
    let answer = other.request("ping", json!({}));
    assert_eq!(answer["result"], json!({}), "{answer}");
    // Cut, not ended: the client can tell.
    assert!(deaf.read_to_end().is_err());
    assert_eq!(post(&deaf, 1, "ping", &json!({})), 404);
}

/// Whether this child has ended: gone, or a zombie.
fn ended(pid: u32) -> bool {
    let asked = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output();
    let stat = asked.expect("the ps command").stdout;
    stat.is_empty() || stat.starts_with(b"Z")
}
