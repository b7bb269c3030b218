//! The answer to one POST of Streamable HTTP: JSON if nothing has to be said before the result, else a stream.
//!
//! ```text
//!   undecided ─┬─ the first notification, or 15 s of silence ─▶ streaming ─▶ over
//!              └─ the result ──────────────────────────────────────────────▶ over
//! ```
//! In scope: what the client takes, when to decide, signs of life, noticing that the client has left. Not in scope: what
//! is said.

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

/// How often it is looked whether the caller of a call may still hear of it.
const CALLER_CHECK: Duration = Duration::from_millis(500);

/// Which of the two kinds of answer a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) events: bool,
}

impl Accepts {
    /// Reads `Accept`. Without one, everything is taken.
    pub(super) fn read(head: &Head) -> Accepts {
        Accepts::of(head.headers_named("accept"))
    }

    fn of<'v>(values: impl Iterator<Item = &'v str>) -> Accepts {
        let mut ranges = values.flat_map(|value| value.split(',')).map(str::trim).filter(|r| !r.is_empty()).peekable();
        let everything = ranges.peek().is_none();
        let mut accepts = Accepts { json: everything, events: everything };
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            if parts.any(is_zero) {
                continue;
            }
            accepts.json |= matches!(&*media, "application/json" | "application/*" | "*/*");
            accepts.events |= matches!(&*media, "text/event-stream" | "text/*" | "*/*");
        }
        accepts
    }
}

/// Is this parameter the weight 0, which means "not this"?
fn is_zero(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="));
    weight.is_some_and(|weight| weight.starts_with('0') && weight.bytes().all(|b| matches!(b, b'0' | b'.')))
}

/// One answer.
pub(super) struct Reply {
    accepts: Accepts,
    state: Mutex<State>,
}

struct State {
    kind: Kind,
    /// When something was written last, or since when the client waits.
    last: Instant,
    /// When it was last looked whether the client is there.
    looked: Instant,
}

enum Kind {
    Undecided(Later),
    Streaming(EventStream),
    Over,
}

impl Reply {
    /// An answer that is not decided yet.
    pub(super) fn new(later: Later, accepts: Accepts) -> Reply {
        let now = Instant::now();
        Reply { accepts, state: Mutex::new(State { kind: Kind::Undecided(later), last: now, looked: now }) }
    }

    /// Begins the stream, if the client takes one: for what will be long, and for proxies that want a first byte.
    pub(super) fn open(&self) {
        self.state().streaming(self.accepts);
    }

    /// Writes a message before the result. Dropped where only JSON is taken.
    pub(super) fn event(&self, message: &[u8]) {
        let mut state = self.state();
        if let Some(stream) = state.streaming(self.accepts) {
            // A stream that fails is gone from then on.
            let _ = stream.event(message);
            state.last = Instant::now();
        }
    }

    /// A comment, if nothing was written for long.
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

    /// Has the client left? Looks at most every [`GONE_CHECK`].
    pub(super) fn is_gone(&self) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        if now - state.looked < GONE_CHECK {
            return matches!(state.kind, Kind::Over);
        }
        state.looked = now;
        let gone = match &mut state.kind {
            Kind::Undecided(later) => later.is_gone(),
            Kind::Streaming(stream) => stream.gone(),
            Kind::Over => true,
        };
        if gone {
            // Dropping it cuts what is left of the connection.
            state.kind = Kind::Over;
        }
        gone
    }

    /// Ends with the result, in these parts; `status` counts where it is not a stream.
    pub(super) fn finish(&self, status: u16, body: &[&[u8]]) {
        match self.take() {
            Kind::Undecided(later) if self.accepts.json => later.respond(status, &[JSON], body),
            Kind::Undecided(later) => last_event(later.stream(), body),
            Kind::Streaming(stream) => last_event(stream, body),
            Kind::Over => {}
        }
    }

    /// Ends without a result, which nobody waits for. A stream just ends; where only JSON is taken something must be
    /// said, which `otherwise` gives: status and body.
    pub(super) fn finish_without(&self, otherwise: impl FnOnce() -> (u16, Vec<u8>)) {
        let stream = match self.take() {
            Kind::Undecided(later) if self.accepts.events => later.stream(),
            Kind::Undecided(later) => {
                let (status, body) = otherwise();
                let headers = if body.is_empty() { &[][..] } else { &[JSON] };
                return later.respond(status, headers, &[&body]);
            }
            Kind::Streaming(stream) => stream,
            Kind::Over => return,
        };
        let _ = stream.finish();
    }

    fn take(&self) -> Kind {
        std::mem::replace(&mut self.state().kind, Kind::Over)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// The stream, begun now if it was not and the client takes one.
    fn streaming(&mut self, accepts: Accepts) -> Option<&mut EventStream> {
        if accepts.events
            && matches!(self.kind, Kind::Undecided(_))
            && let Kind::Undecided(later) = std::mem::replace(&mut self.kind, Kind::Over)
        {
            self.kind = Kind::Streaming(later.stream());
        }
        match &mut self.kind {
            Kind::Streaming(stream) => Some(stream),
            Kind::Undecided(_) | Kind::Over => None,
        }
    }
}

/// A client that left does not get it: nothing can be done about that.
fn last_event(mut stream: EventStream, body: &[&[u8]]) {
    if stream.event_of(body).is_ok() {
        let _ = stream.finish();
    }
}

/// Where the notifications of a call go, and what stops it.
pub(super) struct CallSink {
    reply: Arc<Reply>,
    /// What stops the call whoever waits for it.
    pub(super) stops: Stops,
    /// Whether leaving means cancelling: modern.
    leaving_cancels: bool,
    access: Arc<Access>,
    pass: Arc<Pass>,
    /// The caller's token was taken away: it hears nothing more, but what is paid for goes on.
    cut: AtomicBool,
    /// When it was last looked whether it was.
    looked: Mutex<Instant>,
}

impl CallSink {
    /// For a call of `guest` that is answered by `reply`.
    pub(super) fn new(reply: Arc<Reply>, stops: Stops, leaving_cancels: bool, guest: Guest<'_>) -> CallSink {
        let (access, pass) = (guest.access.clone(), guest.pass.clone());
        let (cut, looked) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        CallSink { reply, stops, leaving_cancels, access, pass, cut, looked }
    }

    fn is_cut(&self) -> bool {
        if !self.cut.load(Ordering::Relaxed) && self.is_due() && self.access.is_removed(&self.pass) {
            self.cut.store(true, Ordering::Relaxed);
            self.reply.finish_without(|| (401, Vec::new()));
        }
        self.cut.load(Ordering::Relaxed)
    }

    /// A run asks at every piece of its output whether it is to stop.
    fn is_due(&self) -> bool {
        let mut looked = lock(&self.looked);
        let due = looked.elapsed() >= CALLER_CHECK;
        if due {
            *looked = Instant::now();
        }
        due
    }
}

impl Sink for CallSink {
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
            assert_eq!(Accepts::of(values.iter().copied()), Accepts { json, events }, "{values:?}");
        }
    }
}
