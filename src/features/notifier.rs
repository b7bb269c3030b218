//! What a caller hears while its call runs: progress and log messages, by the rules of its revision.
//!
//! Text is collected while it keeps arriving and goes out as one notification right before the next read may block: no
//! timers, no added delay, and a flood becomes few messages.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::fabric::{Stop, Wait};
use crate::jsonrpc::{self, Id};
use crate::protocol::{Feature, Level, RequestContext, Session};
use crate::sync::lock;
use crate::tools::{self, ChunkKind};

use super::Sink;

/// Silence of Fabric after which a heartbeat progress is sent.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The level of streamed chunks.
const CHUNK_LEVEL: Level = Level::Info;

/// Tells one caller how its call goes.
pub(super) struct Notifier {
    sink: Arc<dyn Sink>,
    context: RequestContext,
    session: Arc<Session>,
    state: Mutex<State>,
}

struct State {
    stream_text: bool,
    pending: String,
    /// The format of the pending text.
    format: String,
    /// Characters relayed and heartbeats sent: grows with every notification.
    progress: u64,
    /// When the caller last heard of us.
    last: Instant,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    progress_token: &'a Id,
    progress: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct LogMessage<'a> {
    level: &'a str,
    logger: &'a str,
    data: Chunk<'a>,
}

/// Fabric's own shape of a piece of output.
#[derive(Serialize)]
struct Chunk<'a> {
    r#type: &'a str,
    format: &'a str,
    content: &'a str,
}

impl Notifier {
    pub(super) fn new(sink: Arc<dyn Sink>, context: RequestContext, session: Arc<Session>) -> Notifier {
        let state = State {
            stream_text: false,
            pending: String::new(),
            format: String::new(),
            progress: 0,
            last: Instant::now(),
        };
        Notifier { sink, context, session, state: Mutex::new(state) }
    }

    /// Only the thread that runs the call comes here, so nobody ever waits for this.
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn progress(&self, state: &mut State, step: u64, text: Option<&str>) {
        let Some(progress_token) = &self.context.progress_token else { return };
        state.progress += step;
        state.last = Instant::now();
        let message = text.filter(|_| self.context.revision.knows(Feature::ProgressMessage));
        let params = Progress { progress_token, progress: state.progress, message };
        self.sink.notify(&jsonrpc::notification("notifications/progress", &params));
    }

    /// Modern callers ask for log messages with each request, legacy ones once per connection. To a legacy one that has
    /// not asked, it is up to us what is sent: chunks, unless they reach it as progress already.
    fn wants_chunks(&self) -> bool {
        let is_legacy = self.context.revision.is_legacy();
        match if is_legacy { self.session.level() } else { self.context.level } {
            Some(least) => CHUNK_LEVEL >= least,
            None => is_legacy && self.context.progress_token.is_none(),
        }
    }

    fn log_chunk(&self, kind: ChunkKind, format: &str, content: &str) {
        if self.wants_chunks() {
            let data = Chunk { r#type: kind.name(), format, content };
            let params = LogMessage { level: CHUNK_LEVEL.name(), logger: "fabric_run_pattern", data };
            self.sink.notify(&jsonrpc::notification("notifications/message", &params));
        }
    }

    fn flush_pending(&self, state: &mut State) {
        if state.pending.is_empty() {
            return;
        }
        let text = std::mem::take(&mut state.pending);
        let characters = text.chars().count() as u64;
        if state.stream_text {
            self.progress(state, characters, Some(&text));
            self.log_chunk(ChunkKind::Content, &state.format, &text);
        } else {
            self.progress(state, characters, None);
        }
        // The buffer is kept for the next batch.
        state.pending = text;
        state.pending.clear();
    }
}

impl Wait for Notifier {
    fn before_blocking(&self) {
        self.flush_pending(&mut self.state());
    }

    fn still_waiting(&self) -> Result<(), Stop> {
        if self.sink.stopped() {
            return Err(Stop);
        }
        let mut state = self.state();
        if state.last.elapsed() >= HEARTBEAT {
            self.progress(&mut state, 1, None);
        }
        drop(state);
        self.sink.idle();
        Ok(())
    }
}

impl tools::Caller for Notifier {
    fn chunk(&self, kind: ChunkKind, format: &str, content: &str) {
        let mut state = self.state();
        if kind == ChunkKind::Content {
            if state.format != format {
                self.flush_pending(&mut state);
                state.format = format.to_string();
            }
            state.pending.push_str(content);
        } else {
            self.flush_pending(&mut state);
            if state.stream_text {
                self.log_chunk(kind, format, content);
            }
        }
    }

    fn flush(&self) {
        self.before_blocking();
    }

    fn stream_text(&self, wanted: bool) {
        self.state().stream_text = wanted;
    }

    fn say(&self, message: &str) {
        let mut state = self.state();
        self.flush_pending(&mut state);
        self.progress(&mut state, 1, Some(message));
    }
}
