//! The response to one request: JSON if nothing precedes the result, else an event stream.
//!
//! ```text
//!   undecided ─┬─ the first notification, or 15 s of silence ─▶ streaming ─▶ over
//!              └─ the result ──────────────────────────────────────────────▶ over
//! ```
//! In scope: the `Accept` header, when to decide, keep-alives, detecting a disconnect. Not in scope: content.

use std::io;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::access::Caller;
use crate::config::{GONE_CHECK, SSE_COMMENT};
use crate::fabric::{Error, Kind};
use crate::http::Deferred;
use crate::protocol::Answer;
use crate::protocol::jsonrpc;
use crate::server::{Call, refuse};
use crate::sync::{lock, try_lock};
use crate::tools::{CallHead, Peer};

use super::super::batch::Batch;
use super::super::inflight::Cancel;
use super::sessions::LiveSession;
use super::web::{JSON, Later, Visit};

/// The media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) events: bool,
}

impl Accepts {
    /// Reads the values of `Accept`. Without any, everything is accepted. Weights are ignored: what MCP's clients name, they
    /// accept.
    pub(super) fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Accepts {
        let media = values.flat_map(|value| value.split([',', ';']));
        let media = media.map(str::trim).filter(|media| !media.is_empty());
        let accepts = |types: [&str; 3]| {
            let is_one = |media: &str| types.iter().any(|known| known.eq_ignore_ascii_case(media));
            media.clone().next().is_none() || media.clone().any(is_one)
        };
        Accepts {
            json: accepts(["application/json", "application/*", "*/*"]),
            events: accepts(["text/event-stream", "text/*", "*/*"]),
        }
    }
}

/// The response to one request.
pub(super) struct Reply(Mutex<ReplyState>);

struct ReplyState {
    /// `None` once it is over.
    later: Option<Later>,
    /// When something was written last; at first, when the request came.
    last: Instant,
    /// When the last check for a disconnect was.
    looked: Instant,
}

impl Reply {
    /// An undecided response. One whose thread `may_go_on` after it is the last of its connection: the head of a stream
    /// says so before anyone knows.
    pub(super) fn new(visit: &mut Visit<'_>, may_go_on: bool) -> Reply {
        let mut later = visit.defer();
        if may_go_on {
            visit.exchange.free_buffer();
            later.deferred.close = true;
        }
        let now = Instant::now();
        Reply(Mutex::new(ReplyState {
            later: Some(later),
            last: now,
            looked: now,
        }))
    }

    /// Starts the stream, if the client accepts one: for long answers, and for proxies with a first-byte timeout.
    pub(super) fn open(&self) {
        lock(&self.0).streaming();
    }

    /// Writes to the stream before the result. Does nothing if only JSON is accepted, or after the end.
    pub(super) fn write(&self, write: impl FnOnce(&mut Deferred) -> io::Result<()>) {
        let mut state = lock(&self.0);
        if let Some(stream) = state.streaming() {
            // A stream that failed reports itself as gone.
            let _ = write(stream);
            state.last = Instant::now();
        }
    }

    /// Writes a comment if nothing was written for [`SSE_COMMENT`].
    pub(super) fn keep_alive(&self) {
        let silence = lock(&self.0).last.elapsed();
        if silence >= SSE_COMMENT {
            self.write(Deferred::comment);
        }
    }

    /// Has the client disconnected, or is the response over? Checks at most every [`GONE_CHECK`], and not during a write,
    /// which detects it itself.
    pub(super) fn is_gone(&self) -> bool {
        let Some(mut state) = try_lock(&self.0) else {
            return false;
        };
        let Some(later) = &state.later else {
            return true;
        };
        if state.looked.elapsed() < GONE_CHECK {
            return false;
        }
        let is_gone = later.deferred.gone();
        state.looked = Instant::now();
        if is_gone {
            // Dropping the response aborts the connection.
            state.later = None;
        }
        is_gone
    }

    /// Ends with the result, in parts. An error status is JSON unless there is a stream.
    pub(super) fn finish(&self, status: u16, body: &[&[u8]]) {
        let later = lock(&self.0).later.take();
        if let Some(later) = later {
            later.answer(status, &[], body);
        }
    }

    /// Ends a stream without a result. If only JSON is accepted, returns what has to be answered.
    pub(super) fn end(&self) -> Option<Later> {
        let mut state = lock(&self.0);
        state.streaming();
        let later = state.later.take()?;
        drop(state);
        if !later.deferred.is_stream {
            return Some(later);
        }
        let _ = later.deferred.finish();
        None
    }
}

impl ReplyState {
    /// The stream, started now if the client accepts one.
    fn streaming(&mut self) -> Option<&mut Deferred> {
        let can_begin = |later: &mut Later| later.accepts.events && !later.deferred.is_stream;
        if let Some(later) = self.later.take_if(can_begin) {
            self.later = Some(later.stream(&[]));
        }
        let deferred = &mut self.later.as_mut()?.deferred;
        deferred.is_stream.then_some(deferred)
    }
}

/// The client of a call that came in a POST of Streamable HTTP.
pub(super) struct PostPeer {
    reply: Arc<Reply>,
    head: Arc<CallHead>,
    cancel: Cancel,
    /// Its session; without one, leaving cancels, as ids belong to their POST alone.
    session: Option<Arc<LiveSession>>,
    /// The batch that its answer belongs to.
    batch: Option<Arc<Batch>>,
    /// Leaving cancels it: in the modern revision, and where nothing is lost but the answer.
    leaving_cancels: bool,
    caller: Arc<Caller>,
    /// Done once the caller's token was taken away.
    cut: Once,
}

impl PostPeer {
    /// For `call`, which is answered by `reply`, perhaps as part of a batch.
    pub(super) fn new(
        reply: Arc<Reply>,
        call: &Call,
        cancel: Cancel,
        session: Option<Arc<LiveSession>>,
        batch: Option<Arc<Batch>>,
        caller: &Arc<Caller>,
    ) -> PostPeer {
        PostPeer {
            reply,
            head: call.head.clone(),
            cancel,
            // A run goes on in a session: its answer is lost, but not the run.
            leaving_cancels: session.is_none() || !call.is_run(),
            session,
            batch,
            caller: caller.clone(),
            cut: Once::new(),
        }
    }

    /// Was the caller's token taken away? Then the response ends with an error that says so; a paid run goes on.
    fn is_cut(&self) -> bool {
        if !self.cut.is_completed() && self.caller.require(self.caller.role).is_err() {
            self.cut.call_once(|| {
                let id = Some(&self.head.id);
                let error = refuse(revoked().into(), id, false);
                self.reply.finish(401, &[&error.body]);
            });
        }
        self.cut.is_completed()
    }
}

impl Peer for PostPeer {
    fn notify(&self, message: &[u8]) {
        if !self.cancel.is_cancelled() {
            self.reply.write(|stream| stream.event(&[message]));
        }
    }

    fn answer(&self, answer: Answer) {
        let wanted = match &self.session {
            Some(live) => live.inflight.finish(&self.head.id, &self.cancel),
            None => true,
        };
        if let Some(batch) = &self.batch {
            batch.answer(&self.head.id, wanted.then_some(answer));
        } else if wanted {
            self.reply.finish(answer.status, &[&answer.body]);
        } else if let Some(later) = self.reply.end() {
            let cancelled = self.head.fail(Error::cancelled());
            later.respond(200, &[JSON], &[&cancelled.body]);
        }
    }

    fn stopped(&self) -> bool {
        self.cancel.is_cancelled()
            || (!self.is_cut() && self.leaving_cancels && self.reply.is_gone())
    }

    fn begins(&self) {
        self.reply.open();
    }

    fn idle(&self, _: Duration) {
        self.reply.keep_alive();
    }
}

/// The caller's token was taken away while it was served.
pub(super) fn revoked() -> Error {
    Error::new(
        Kind::Forbidden,
        "Your token was removed, changed or has expired, so nothing more is sent here. Get a valid one, then ask again: a \
         run that had begun goes on.",
    )
}

/// The last message of a stream whose caller's token was taken away.
pub(super) fn revocation() -> Vec<u8> {
    let params = json!({ "level": "error", "data": revoked().detail });
    jsonrpc::notification("notifications/message", &params)
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
            (&["text/html"], false, false),
        ] {
            let found = Accepts::of(values.iter().copied());
            assert_eq!(found, Accepts { json, events }, "{values:?}");
        }
    }
}
