//! A streamed run of the demo, made as a client makes it: `tools/call` with a progress token. The demo's model makes no
//! call to anyone, so that it costs nothing.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::features::{Action, Server, Sink};
use crate::protocol::{Inbound, Revision, Session};
use crate::sync::lock;

use super::diagnosis::Problem;

/// The pattern that is run.
pub(super) const PATTERN: &str = "write_commit_message";
/// The call that runs it.
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
    "name":"fabric_run_pattern",
    "arguments":{
        "pattern_name":"write_commit_message",
        "input_text":"Retry a request to the cache twice before falling back to the database.",
        "stream":true
    },
    "_meta":{"progressToken":1}
}}"#;

/// What was seen of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Notifications that carried text.
    pub(super) pieces: usize,
    /// Characters in the result.
    pub(super) characters: usize,
    /// From the request to the first piece.
    pub(super) first: Duration,
    /// From the request to the result.
    pub(super) total: Duration,
}

/// Makes the run, and hands each piece of text to `show` when it arrives. The inner error is what went wrong with it.
///
/// # Errors
/// Those of `show`. The run is left to itself then.
pub(super) fn run(
    server: &Arc<Server>,
    show: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<Result<Seen, Problem>> {
    let session = Arc::new(Session::of(Revision::NEWEST_LEGACY));
    let Action::Call(call) = server.receive(&session, Inbound::read(CALL.as_bytes(), false), None) else {
        return Ok(Err(failed("the call was refused".into())));
    };
    let started = Instant::now();
    let (pieces, arrived) = mpsc::channel();
    let sink = Arc::new(Relay(Mutex::new(pieces)));
    let server = server.clone();
    // The sink, and with it the channel's only sender, ends with the thread.
    let running = thread::Builder::new().name("rehearsal".into()).spawn(move || call.run(&server, sink))?;
    let mut seen = Seen::default();
    for piece in arrived {
        if seen.pieces == 0 {
            seen.first = started.elapsed();
        }
        seen.pieces += 1;
        show(&piece)?;
    }
    seen.total = started.elapsed();
    let Ok(answer) = running.join() else { return Ok(Err(failed("it panicked".into()))) };
    let answer: Value = serde_json::from_str(&String::from_utf8_lossy(&answer.body)).unwrap_or_default();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    seen.characters = text.chars().count();
    if answer["result"]["isError"] == true || seen.characters == 0 {
        return Ok(Err(failed(format!("the answer was {text:?}"))));
    }
    if seen.pieces < 2 {
        return Ok(Err(failed("its text did not stream".into())));
    }
    Ok(Ok(seen))
}

fn failed(why: String) -> Problem {
    let what = format!("The demo's run failed: {why}.");
    Problem::error("demo-run", what, "This is a bug of fabric-mcp: please report it.")
}

/// Takes the text out of progress notifications.
struct Relay(Mutex<Sender<String>>);

impl Sink for Relay {
    fn notify(&self, message: &[u8]) {
        let notification: Value = serde_json::from_str(&String::from_utf8_lossy(message)).unwrap_or_default();
        if let Some(text) = notification["params"]["message"].as_str() {
            // Whoever does not listen any more has seen enough.
            let _ = lock(&self.0).send(text.to_owned());
        }
    }

    fn stopped(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_runs_the_pattern_that_is_told() {
        let call: Value = serde_json::from_str(CALL).unwrap();
        assert_eq!(call["params"]["arguments"]["pattern_name"], PATTERN);
    }
}
