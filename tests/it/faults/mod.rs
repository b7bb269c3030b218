//! The fault matrix: every fault of Fabric during a run, over every transport and in every era. Each cell checks the
//! URN, one `POST /chat`, the partial output, no path of Fabric's host, and a next call that works at once.

pub(crate) mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::expect::{self, partial};
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::transports::{self, EACH, Wire};
use crate::support::{Caller, Era};

use table::{Fails, Fault, Text};

/// The idle timeout of runs in these tests, in seconds. Long enough for a busy machine to send the next byte, short
/// enough to wait for.
const IDLE: &str = "3";

/// Fabric's key, searched for in every failure and log.
const KEY: &str = "canary-key-0f1e2d3c";

fn run(stream: bool) -> Value {
    json!({"pattern_name": "summarize", "input_text": "input", "stream": stream})
}

/// One cell: a run with the fault, then one that works.
fn cell(era: Era, fabric: &FakeFabric, client: &mut dyn Caller, fault: &Fault) {
    fabric.forget();
    fabric.once_run(fault.reply.clone());
    let result = client.call("fabric_run_pattern", run(fault.stream));
    fabric.expect_chats(1);
    match &fault.outcome {
        Text(text) => {
            expect::success(era, &result);
            let got = result["content"][0]["text"].as_str().unwrap();
            let (have, want) = (got.len(), text.len());
            assert!(got == text, "{}: {have} bytes of {want}", fault.name);
        }
        Fails(kind, kept) => {
            let paragraph = expect::failure(era, &result, kind);
            contains(&paragraph, [fault.says]);
            if *kept != "*" {
                assert_eq!(partial(&result), *kept, "{}: {result}", fault.name);
            }
            // The kept part is limited.
            assert!(partial(&result).len() <= 64 << 10, "{}", fault.name);
            assert!(!result.to_string().contains(KEY), "{}", fault.name);
            if fault.name == "429" {
                assert_eq!(result["_meta"]["error"]["retry_after_ms"], 7000, "{result}");
            }
        }
    }
    let next = json!({"pattern_name": "ai", "input_text": "next"});
    let next = client.call("fabric_run_pattern", next);
    let text = &next["content"][0]["text"];
    assert_eq!(text, "Ran ai on: next", "the call after {}", fault.name);
    fabric.expect_chats(2);
}

/// Every fault in each of these rows. Rows run concurrently, because they mostly wait for silence to end.
fn matrix(rows: &[(Wire, Era)], faults: &[Fault]) {
    let fallen: Vec<String> = thread::scope(|scope| {
        let rows: Vec<_> = rows
            .iter()
            .map(|(wire, era)| scope.spawn(|| row(*wire, *era, faults)))
            .collect();
        rows.into_iter()
            .flat_map(|row| row.join().expect("a row of cells"))
            .collect()
    });
    let count = fallen.len();
    assert!(count == 0, "{count} cells failed:\n{}", fallen.join("\n"));
}

/// Every fault over one transport in one era, with one server; returns the failed cells.
fn row(wire: Wire, era: Era, faults: &[Fault]) -> Vec<String> {
    let fabric = FakeFabric::start();
    fabric.require_key(KEY);
    let program = Program::with(&fabric)
        .env("FABRIC_MCP_IDLE_TIMEOUT", IDLE)
        .env("FABRIC_API_KEY", KEY);
    let mut client = transports::open(wire, era, program, None);
    let mut fallen = Vec::new();
    for fault in faults {
        // When one cell fails, the results of the others are still useful.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            cell(era, &fabric, client.as_mut(), fault)
        }));
        if let Err(why) = outcome {
            let why = why.downcast_ref::<String>().map_or("", String::as_str);
            let why: String = why.chars().take(600).collect();
            fallen.push(format!("{wire:?} {era:?}: {}: {why}", fault.name));
        }
    }
    let log = client.process().stderr();
    expect::no_leak(&log);
    assert!(!log.contains(KEY), "{log}");
    fallen
}

#[test]
fn a_faulty_answer_ends_in_its_urn() {
    matrix(&transports::all(), &table::answers());
}

#[test]
fn a_200_that_is_not_a_run_invites_no_second_one() {
    matrix(&EACH, &table::bodies());
}

#[test]
fn a_faulty_stream_ends_in_its_urn_or_in_its_text() {
    matrix(&transports::all(), &table::streams());
}
