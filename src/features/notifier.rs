//! Notifications during a call: progress and log messages, by the rules of the request's revision.
//!
//! Text is collected while it keeps arriving and sent as one notification right before the next read may block: no
//! timers, no added delay, and many small events become few messages.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::{Charge, Full};
use crate::fabric::{Stop, Wait};
use crate::jsonrpc::{self, Id};
use crate::protocol::{Feature, Level, RequestContext, Session};
use crate::sync::lock;
use crate::tools::{self, ChunkKind};

use super::Sink;
use super::tasks::RELATED_TASK;

/// Silence of Fabric before a heartbeat progress notification.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Most text of one notification, in bytes, so that little waits for a slow reader whatever Fabric sends at once.
const MOST_TEXT: usize = 16 << 10;
/// A progress token up to this length (a UUID fits) may be repeated with every flush. Bytes.
const SHORT_TOKEN: usize = 64;
/// The level of streamed chunks.
const CHUNK_LEVEL: Level = Level::INFO;

/// Sends the notifications of one call.
pub(super) struct Notifier {
    /// `None` once the call is answered.
    sink: Mutex<Option<Arc<dyn Sink>>>,
    context: RequestContext,
    session: Arc<Session>,
    state: Mutex<NotifierState>,
    /// The task that the run became: its caller may then disconnect without cancelling it, and notifications name it
    /// (2025-11-25).
    task: OnceLock<Value>,
    /// The call's budget charge.
    memory: Mutex<Charge>,
}

struct NotifierState {
    stream_text: bool,
    /// Text to send.
    pending: String,
    /// Characters to count in the next progress, without their text.
    unsaid: u64,
    /// The format of the pending text.
    format: String,
    /// Characters relayed and heartbeats sent: grows with every notification.
    progress: u64,
    /// Time of the last notification.
    last: Instant,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    progress_token: &'a Id,
    progress: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

#[derive(Serialize)]
struct LogMessage<'a> {
    level: &'a str,
    logger: &'a str,
    data: Chunk<'a>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

/// Fabric's own shape of a piece of output.
#[derive(Serialize)]
struct Chunk<'a> {
    r#type: &'a str,
    format: &'a str,
    content: &'a str,
}

impl Notifier {
    /// A notifier for one call, which holds `memory` already.
    pub(super) fn new(
        sink: Arc<dyn Sink>,
        context: RequestContext,
        session: Arc<Session>,
        memory: Charge,
    ) -> Notifier {
        let state = NotifierState {
            stream_text: false,
            pending: String::new(),
            unsaid: 0,
            format: String::new(),
            progress: 0,
            last: Instant::now(),
        };
        Notifier {
            sink: Mutex::new(Some(sink)),
            context,
            session,
            state: Mutex::new(state),
            task: OnceLock::new(),
            memory: Mutex::new(memory),
        }
    }

    /// The call is being answered: stops notifications, and a disconnect no longer cancels the run.
    pub(super) fn detach(&self) {
        *lock(&self.sink) = None;
    }

    /// The call is answered with a task: notifications continue, and a disconnect no longer cancels the run.
    pub(super) fn become_task(&self, id: &str) {
        let _ = self.task.set(json!({ RELATED_TASK: { "taskId": id } }));
    }

    /// Sends a whole message, unless detached.
    pub(super) fn notify(&self, message: &[u8]) {
        // Under the lock, so that no message is in flight when `detach` returns.
        if let Some(sink) = &*lock(&self.sink) {
            sink.notify(message);
        }
    }

    /// Locked by the call's thread only, so it never blocks.
    fn state(&self) -> MutexGuard<'_, NotifierState> {
        lock(&self.state)
    }

    fn progress(&self, state: &mut NotifierState, step: u64, text: Option<&str>) {
        let Some(progress_token) = &self.context.progress_token else {
            return;
        };
        state.progress += step;
        state.last = Instant::now();
        let message = text.filter(|_| self.context.revision.knows(Feature::ProgressMessage));
        let params = Progress {
            progress_token,
            progress: state.progress,
            message,
            meta: self.task.get(),
        };
        self.notify(&jsonrpc::notification("notifications/progress", &params));
    }

    /// Modern callers request log messages with each request, legacy ones once per connection. For legacy callers
    /// without a level the choice is ours: chunks, unless they get them as progress.
    fn wants_chunks(&self) -> bool {
        let is_legacy = self.context.revision.is_legacy();
        match if is_legacy {
            self.session.level()
        } else {
            self.context.level
        } {
            Some(least) => CHUNK_LEVEL >= least,
            None => is_legacy && self.context.progress_token.is_none(),
        }
    }

    fn log_chunk(&self, kind: ChunkKind, format: &str, content: &str) {
        if self.wants_chunks() {
            let data = Chunk {
                r#type: kind.name(),
                format,
                content,
            };
            let params = LogMessage {
                level: CHUNK_LEVEL.name(),
                logger: "fabric_run_pattern",
                data,
                meta: self.task.get(),
            };
            self.notify(&jsonrpc::notification("notifications/message", &params));
        }
    }

    fn flush_pending(&self, state: &mut NotifierState) {
        let unsaid = std::mem::take(&mut state.unsaid);
        if unsaid > 0 {
            self.progress(state, unsaid, None);
        }
        if state.pending.is_empty() {
            return;
        }
        let text = std::mem::take(&mut state.pending);
        self.progress(state, text.chars().count() as u64, Some(&text));
        self.log_chunk(ChunkKind::Content, &state.format, &text);
    }
}

impl Wait for Notifier {
    fn before_blocking(&self) {
        let mut state = self.state();
        // Each message repeats a long token: wait until there is as much text, at most one slice.
        let token = self
            .context
            .progress_token
            .as_ref()
            .map_or(0, |token| token.json().len());
        if token <= SHORT_TOKEN || state.pending.len() + state.unsaid as usize >= token {
            self.flush_pending(&mut state);
        }
    }

    fn still_waiting(&self) -> Result<(), Stop> {
        let may_leave = self.task.get().is_some();
        if !may_leave && lock(&self.sink).as_ref().is_some_and(|sink| sink.stopped()) {
            return Err(Stop);
        }
        let mut state = self.state();
        self.flush_pending(&mut state);
        if state.last.elapsed() >= HEARTBEAT {
            self.progress(&mut state, 1, None);
        }
        drop(state);
        if let Some(sink) = &*lock(&self.sink) {
            sink.idle();
        }
        Ok(())
    }

    fn hold(&self, bytes: usize) -> Result<(), Full> {
        lock(&self.memory).grow(bytes)
    }

    fn release(&self, bytes: usize) {
        lock(&self.memory).shrink(bytes);
    }
}

/// The text in pieces of at most [`MOST_TEXT`] bytes, cut between characters.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(MOST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

impl tools::Caller for Notifier {
    fn chunk(&self, kind: ChunkKind, format: &str, content: &str) {
        let mut state = self.state();
        if kind == ChunkKind::Content {
            if !state.stream_text {
                state.unsaid += content.chars().count() as u64;
                return;
            }
            if state.format != format {
                self.flush_pending(&mut state);
                state.format = format.to_string();
            }
            for piece in pieces(content) {
                if state.pending.len() + piece.len() > MOST_TEXT {
                    self.flush_pending(&mut state);
                }
                state.pending.push_str(piece);
            }
        } else {
            self.flush_pending(&mut state);
            if state.stream_text {
                self.log_chunk(kind, format, content);
            }
        }
    }

    fn flush(&self) {
        self.flush_pending(&mut self.state());
    }

    fn begin_step(&self, stream: bool, _: bool) {
        self.state().stream_text = stream;
    }

    fn say(&self, message: &str) {
        let mut state = self.state();
        self.flush_pending(&mut state);
        self.progress(&mut state, 1, Some(message));
    }
}
