//! A streamed run of the demo, as a client would make it: `tools/call` with a progress token.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::protocol::{Revision, Session};
use crate::server::{Audience, Server};
use crate::sync::lock;

use super::diagnosis::Problem;

/// The pattern of the run.
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

/// Measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DemoRun {
    /// Notifications that carried text.
    pub(super) pieces: usize,
    /// Characters in the result.
    pub(super) characters: usize,
    /// From the request to the first piece.
    pub(super) first: Duration,
    /// From the request to the result.
    pub(super) total: Duration,
}

/// Runs the pattern and passes each piece of text to `show` as it arrives. The inner error says why the run failed.
///
/// # Errors
/// Those of `show`; the run then continues in the background.
pub(super) fn run(
    server: &Arc<Server>,
    show: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<Result<DemoRun, Problem>> {
    let session = Arc::new(Session::of(Revision::NEWEST_LEGACY));
    let started = Instant::now();
    let (pieces, arrived) = mpsc::channel();
    let audience = Arc::new(TextChannel(Mutex::new(pieces)));
    let server = server.clone();
    // The thread drops the sink and with it the only sender, which ends the loop below.
    let running = thread::Builder::new()
        .name("demo run".into())
        .spawn(move || server.ask(&session, CALL, audience))?;
    let mut seen = DemoRun::default();
    for piece in arrived {
        if seen.pieces == 0 {
            seen.first = started.elapsed();
        }
        seen.pieces += 1;
        show(&piece)?;
    }
    seen.total = started.elapsed();
    let Ok(answer) = running.join() else {
        return Ok(Err(failed("it panicked".into())));
    };
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
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
    Problem::error(
        "demo-run",
        what,
        "This is a bug of fabric-mcp: please report it.",
    )
}

/// Sends the text of progress notifications to a channel.
struct TextChannel(Mutex<Sender<String>>);

impl Audience for TextChannel {
    fn hear(&self, notification: &Value) {
        if let Some(text) = notification["params"]["message"].as_str() {
            // Fails once the receiver has stopped reading.
            let _ = lock(&self.0).send(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_runs_the_reported_pattern() {
        let call: Value = serde_json::from_str(CALL).unwrap();
        assert_eq!(call["params"]["arguments"]["pattern_name"], PATTERN);
    }
}
