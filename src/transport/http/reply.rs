//! The response to one POST of Streamable HTTP: JSON if nothing precedes the result, else an event stream.
//!
//! ```text
//!   undecided ─┬─ the first notification, or 15 s of silence ─▶ streaming ─▶ over
//!              └─ the result ──────────────────────────────────────────────▶ over
//! ```
//! In scope: the `Accept` header, when to decide, keep-alives, detecting a disconnect. Not in scope: content.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::access::{Access, Pass};
use crate::config::{GONE_CHECK, SSE_COMMENT};
use crate::features::Sink;
use crate::http::{EventStream, Head};
use crate::sync::lock;

use super::web::{Guest, JSON, Later};
use crate::calls::admission::Stops;

/// How often it is checked whether the caller of a call may still receive its answer.
const CALLER_CHECK: Duration = Duration::from_millis(500);

/// The media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) events: bool,
}

impl Accepts {
    /// Reads `Accept`. Without it, everything is accepted.
    pub(super) fn read(head: &Head) -> Accepts {
        Accepts::of(head.headers_named("accept"))
    }

    fn of<'v>(values: impl Iterator<Item = &'v str>) -> Accepts {
        let mut ranges = values
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|r| !r.is_empty())
            .peekable();
        let everything = ranges.peek().is_none();
        let mut accepts = Accepts {
            json: everything,
            events: everything,
        };
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if parts.any(is_zero) {
                continue;
            }
            let is_one_of =
                |types: [&str; 3]| types.iter().any(|known| known.eq_ignore_ascii_case(media));
            accepts.json |= is_one_of(["application/json", "application/*", "*/*"]);
            accepts.events |= is_one_of(["text/event-stream", "text/*", "*/*"]);
        }
        accepts
    }
}

/// Is this parameter the weight 0, which excludes a type?
fn is_zero(parameter: &str) -> bool {
    let weight = parameter
        .strip_prefix("q=")
        .or_else(|| parameter.strip_prefix("Q="));
    weight.is_some_and(|weight| {
        weight.starts_with('0') && weight.bytes().all(|b| matches!(b, b'0' | b'.'))
    })
}

/// The response to one POST.
pub(super) struct PostReply {
    accepts: Accepts,
    state: Mutex<ReplyState>,
}

struct ReplyState {
    kind: ReplyKind,
    /// When something was written last; at first, when the request came.
    last: Instant,
    /// When the last check for a disconnect was.
    looked: Instant,
}

enum ReplyKind {
    Undecided(Later),
    Streaming(EventStream),
    Over,
}

impl PostReply {
    /// An undecided response.
    pub(super) fn new(later: Later, accepts: Accepts) -> PostReply {
        let now = Instant::now();
        PostReply {
            accepts,
            state: Mutex::new(ReplyState {
                kind: ReplyKind::Undecided(later),
                last: now,
                looked: now,
            }),
        }
    }

    /// Starts the stream, if the client accepts one: for long answers, and for proxies with a first-byte timeout.
    pub(super) fn open(&self) {
        self.state().streaming(self.accepts);
    }

    /// Writes a message before the result. Dropped if only JSON is accepted.
    pub(super) fn event(&self, message: &[u8]) {
        let mut state = self.state();
        if let Some(stream) = state.streaming(self.accepts) {
            // A stream that failed reports itself as gone.
            let _ = stream.event(message);
            state.last = Instant::now();
        }
    }

    /// Writes a comment if nothing was written for [`SSE_COMMENT`].
    pub(super) fn keep_alive(&self) {
        let mut state = self.state();
        if state.last.elapsed() < SSE_COMMENT {
            return;
        }
        if let Some(stream) = state.streaming(self.accepts) {
            let _ = stream.comment();
        }
        state.last = Instant::now();
    }

    /// Has the client disconnected? Checks at most every [`GONE_CHECK`].
    pub(super) fn is_gone(&self) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        if now - state.looked < GONE_CHECK {
            return matches!(state.kind, ReplyKind::Over);
        }
        state.looked = now;
        let gone = match &mut state.kind {
            ReplyKind::Undecided(later) => later.is_gone(),
            ReplyKind::Streaming(stream) => stream.gone(),
            ReplyKind::Over => true,
        };
        if gone {
            // Dropping the stream aborts the connection.
            state.kind = ReplyKind::Over;
        }
        gone
    }

    /// Ends with the result, in parts; `status` is for JSON only.
    pub(super) fn finish(&self, status: u16, body: &[&[u8]]) {
        match self.take() {
            ReplyKind::Undecided(later) if self.accepts.json => {
                later.respond(status, &[JSON], body)
            }
            ReplyKind::Undecided(later) => last_event(later.stream(&[]), body),
            ReplyKind::Streaming(stream) => last_event(stream, body),
            ReplyKind::Over => {}
        }
    }

    /// Ends without a result. A stream just ends; if only JSON is accepted, `otherwise` gives status and body.
    pub(super) fn finish_without(&self, otherwise: impl FnOnce() -> (u16, Vec<u8>)) {
        let stream = match self.take() {
            ReplyKind::Undecided(later) if self.accepts.events => later.stream(&[]),
            ReplyKind::Undecided(later) => {
                let (status, body) = otherwise();
                let headers = if body.is_empty() { &[][..] } else { &[JSON] };
                return later.respond(status, headers, &[&body]);
            }
            ReplyKind::Streaming(stream) => stream,
            ReplyKind::Over => return,
        };
        let _ = stream.finish();
    }

    fn take(&self) -> ReplyKind {
        std::mem::replace(&mut self.state().kind, ReplyKind::Over)
    }

    fn state(&self) -> MutexGuard<'_, ReplyState> {
        lock(&self.state)
    }
}

impl ReplyState {
    /// The stream, started now if the client accepts one.
    fn streaming(&mut self, accepts: Accepts) -> Option<&mut EventStream> {
        if accepts.events
            && matches!(self.kind, ReplyKind::Undecided(_))
            && let ReplyKind::Undecided(later) = std::mem::replace(&mut self.kind, ReplyKind::Over)
        {
            self.kind = ReplyKind::Streaming(later.stream(&[]));
        }
        match &mut self.kind {
            ReplyKind::Streaming(stream) => Some(stream),
            ReplyKind::Undecided(_) | ReplyKind::Over => None,
        }
    }
}

/// Errors are ignored: the client has left.
fn last_event(mut stream: EventStream, body: &[&[u8]]) {
    if stream.event_of(body).is_ok() {
        let _ = stream.finish();
    }
}

/// The sink of a call.
pub(super) struct PostSink {
    /// Where notifications go.
    reply: Arc<PostReply>,
    /// What stops the call, apart from a disconnect.
    pub(super) stops: Stops,
    /// Whether a disconnect cancels the call: in the modern revision, and where nothing is lost but the answer.
    leaving_cancels: bool,
    access: Arc<Access>,
    pass: Arc<Pass>,
    /// The caller's token was revoked: nothing more is sent, but a paid run continues.
    cut: AtomicBool,
    /// Time of the last check for that.
    looked: Mutex<Instant>,
}

impl PostSink {
    /// For a call of `guest` that is answered by `reply`.
    pub(super) fn new(
        reply: Arc<PostReply>,
        stops: Stops,
        leaving_cancels: bool,
        guest: Guest<'_>,
    ) -> PostSink {
        let (access, pass) = (guest.access.clone(), guest.pass.clone());
        let (cut, looked) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        PostSink {
            reply,
            stops,
            leaving_cancels,
            access,
            pass,
            cut,
            looked,
        }
    }

    fn is_cut(&self) -> bool {
        if !self.cut.load(Ordering::Relaxed) && self.is_due() && self.access.is_removed(&self.pass)
        {
            self.cut.store(true, Ordering::Relaxed);
            self.reply.finish_without(|| (401, Vec::new()));
        }
        self.cut.load(Ordering::Relaxed)
    }

    /// A run checks for its end at every piece of output.
    fn is_due(&self) -> bool {
        let mut looked = lock(&self.looked);
        let due = looked.elapsed() >= CALLER_CHECK;
        if due {
            *looked = Instant::now();
        }
        due
    }
}

impl Sink for PostSink {
    fn notify(&self, message: &[u8]) {
        if !self.stops.is_cancelled() {
            self.reply.event(message);
        }
    }

    fn stopped(&self) -> bool {
        self.stops.is_stopped() || (!self.is_cut() && self.leaving_cancels && self.reply.is_gone())
    }

    fn idle(&self) {
        self.reply.keep_alive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_read_leniently() {
        for (values, json, events) in [
            (&[][..], true, true),
            (&[""], true, true),
            (&["*/*"], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "text/event-stream"], true, true),
            (&["application/json"], true, false),
            (&["TEXT/Event-Stream;charset=utf-8"], false, true),
            (&["application/*;q=0.5,text/html"], true, false),
            (&["text/event-stream;q=0, */*;q=0.1"], true, true),
            (&["application/json;q=0.000"], false, false),
            (&["text/html"], false, false),
        ] {
            assert_eq!(
                Accepts::of(values.iter().copied()),
                Accepts { json, events },
                "{values:?}"
            );
        }
    }
}
