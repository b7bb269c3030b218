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
use crate::support::{Era, LEGACY, poll};

/// The protocol's 2 s, or the drain timeout below, plus the needs of a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Far more than the buffers of pipes and sockets hold.
fn flood() -> Reply {
    Reply::sse()
        .step(Step::Repeat(line(&content(&"word ".repeat(2_000))), 2_000))
        .gate()
        .complete()
}

fn run() -> Value {
    json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x", "stream": true},
           "_meta": {"progressToken": 1}})
}

#[test]
fn the_end_of_input_and_a_signal_end_it_although_its_output_is_unread() {
    let ends: [fn(&mut Stdio); 2] = [Stdio::close_stdin, |client| client.process.signal("TERM")];
    for end in ends {
        let fabric = FakeFabric::start();
        fabric.once_run(flood());
        let program = Program::with(&fabric).env("FABRIC_MCP_DRAIN_TIMEOUT", "0.3");
        let mut client = Stdio::start(program.stdout(Output::Unread));
        let params = with_meta(run());
        client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        fabric.wait_requests("POST /chat", 1);
        end(&mut client);
        assert_eq!(client.wait_exit(ENDS_WITHIN).code(), Some(0));
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
                slow.begin("tools/call", run());
                Box::new(slow)
            }
            _ => {
                let mut slow = Streamable::to(&server, *era, None);
                let message = slow.message("tools/call", run());
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
        assert!(poll(ENDS_WITHIN, || ended(pid).then_some(())).is_some());
        drop(slow);
    }
}

#[test]
fn a_caller_that_reads_nothing_is_refused_calls_in_the_end() {
    let fabric = FakeFabric::start();
    let text = "word ".repeat(200_000);
    let pattern = json!({"Name": "ai", "Description": "", "Pattern": text});
    fabric.on("GET /patterns/ai", Reply::json(pattern));
    // With these, 16 calls may work at once, and 33 may have no written answer.
    let program = Program::with(&fabric).flags("--max-connections 16 --max-runs 1");
    let server = serve(Wire::Sse, program);
    let mut deaf = Sse::to(&server, Era::Legacy(LEGACY[0]), None);
    let params = json!({"name": "fabric_get_pattern_details", "arguments": {"pattern_name": "ai", "max_chars": 1_000_000}});
    let ids: Vec<Value> = (0..49).map(|n| json!(format!("call-{n}"))).collect();
    for id in &ids {
        let message =
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params.clone()});
        // Each on a connection of its own: the thread of one whose call is refused waits for the reader, too.
        let answer = server.connect().post(&deaf.endpoint, &[], &message);
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
    let health = server.get("/healthz", &[]);
    assert_eq!(health.status, 200);
    let answers: Vec<Value> = ids.iter().map(|id| deaf.answer(id)).collect();
    let is_refused = |answer: &&Value| {
        let text = answer["result"]["content"][0]["text"].as_str();
        answer["result"]["isError"] == true
            && text.is_some_and(|text| text.contains("error:too-many-requests"))
    };
    let refused = answers.iter().filter(is_refused).count();
    assert!((1..=33).contains(&refused), "{refused} of {}", ids.len());
}

/// Whether this child has ended: gone, or a zombie.
fn ended(pid: u32) -> bool {
    let asked = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output();
    let stat = asked.expect("the ps command").stdout;
    stat.is_empty() || stat.starts_with(b"Z")
}
