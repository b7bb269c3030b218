//! The response to one request: JSON if nothing precedes the result, else an event stream.
//!
//! ```text
//!   undecided ─┬─ the first notification, or 15 s of silence ─▶ streaming ─▶ over
//!              └─ the result ──────────────────────────────────────────────▶ over
//! ```
//! In scope: the `Accept` header, when to decide, keep-alives, detecting a disconnect. Not in scope: content.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::access::Pass;
use crate::account::Guard;
use crate::config::{GONE_CHECK, SSE_COMMENT};
use crate::fabric::{Error, Kind};
use crate::http::{EventStream, Head};
use crate::protocol::jsonrpc::{self, INVALID_REQUEST};
use crate::protocol::{Answer, NoId};
use crate::server::{Call, refuse};
use crate::sync::{lock, try_lock};
use crate::tools::{CallHead, Peer};

use super::super::batch::Batch;
use super::super::inflight::Cancel;
use super::sessions::LiveSession;
use super::web::{JSON, Later, Visit};

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
    /// Reads `Accept`. Without it, everything is accepted. Weights are ignored: what MCP's clients name, they accept.
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
            let media = range.split(';').next().unwrap_or_default().trim_end();
            let is_one_of =
                |types: [&str; 3]| types.iter().any(|known| known.eq_ignore_ascii_case(media));
            accepts.json |= is_one_of(["application/json", "application/*", "*/*"]);
            accepts.events |= is_one_of(["text/event-stream", "text/*", "*/*"]);
        }
        accepts
    }
}

/// The response to one request.
pub(super) struct Reply(Mutex<ReplyState>);

struct ReplyState {
    kind: ReplyKind,
    may_go_on: bool,
    /// The caller's share of the connections, until the response is over.
    share: Option<Guard>,
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

impl Reply {
    /// An undecided response. A stream of one that `may_go_on` after it says so in its head, which goes out before anyone
    /// knows.
    pub(super) fn new(mut visit: Visit<'_>, may_go_on: bool) -> Reply {
        if may_go_on {
            visit.free_buffer();
        }
        let now = Instant::now();
        let mut later = visit.defer();
        Reply(Mutex::new(ReplyState {
            share: later.share.take(),
            kind: ReplyKind::Undecided(later),
            may_go_on,
            last: now,
            looked: now,
        }))
    }

    /// Starts the stream, if the client accepts one: for long answers, and for proxies with a first-byte timeout.
    pub(super) fn open(&self) {
        self.state().streaming();
    }

    /// Writes to the stream before the result. Does nothing if only JSON is accepted, or after the end.
    pub(super) fn write(&self, write: impl FnOnce(&mut EventStream) -> io::Result<()>) {
        self.state().write(write);
    }

    /// Writes a comment if nothing was written for [`SSE_COMMENT`].
    pub(super) fn keep_alive(&self) {
        let mut state = self.state();
        if state.last.elapsed() >= SSE_COMMENT {
            state.write(EventStream::comment);
        }
    }

    /// Has the client disconnected, or is the response over? Checks at most every [`GONE_CHECK`], and not during a write,
    /// which detects it itself.
    pub(super) fn is_gone(&self) -> bool {
        let Some(mut state) = try_lock(&self.0) else {
            return false;
        };
        let is_new = state.looked.elapsed() < GONE_CHECK;
        let is_gone = match &mut state.kind {
            ReplyKind::Over => return true,
            _ if is_new => return false,
            ReplyKind::Undecided(later) => later.deferred.gone(),
            ReplyKind::Streaming(stream) => stream.gone(),
        };
        state.looked = Instant::now();
        if is_gone {
            // Dropping the stream aborts the connection.
            state.end();
        }
        is_gone
    }

    /// Ends with the result, in parts. An error status is always JSON; `headers` are further ones of a response that is
    /// undecided. `closes`: the connection ends with it, because its thread goes on with a run.
    pub(super) fn finish(
        &self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[&[u8]],
        closes: bool,
    ) {
        let (kind, _share) = self.state().end();
        match kind {
            ReplyKind::Undecided(mut later) => {
                if closes {
                    later.deferred.close = true;
                }
                later.answer(status, headers, body);
            }
            ReplyKind::Streaming(stream) => stream.end_with(body),
            ReplyKind::Over => {}
        }
    }

    /// Ends a stream without a result. If only JSON is accepted, returns what has to be answered.
    pub(super) fn end(&self) -> Option<Later> {
        let (kind, _share) = self.state().end();
        let stream = match kind {
            ReplyKind::Undecided(later) if later.accepts.events => later.stream(&[]),
            ReplyKind::Undecided(later) => return Some(later),
            ReplyKind::Streaming(stream) => stream,
            ReplyKind::Over => return None,
        };
        let _ = stream.finish();
        None
    }

    fn state(&self) -> MutexGuard<'_, ReplyState> {
        lock(&self.0)
    }
}

impl ReplyState {
    fn end(&mut self) -> (ReplyKind, Option<Guard>) {
        let kind = std::mem::replace(&mut self.kind, ReplyKind::Over);
        (kind, self.share.take())
    }

    /// The stream, started now if the client accepts one.
    fn streaming(&mut self) -> Option<&mut EventStream> {
        if matches!(&self.kind, ReplyKind::Undecided(later) if later.accepts.events)
            && let ReplyKind::Undecided(mut later) =
                std::mem::replace(&mut self.kind, ReplyKind::Over)
        {
            if self.may_go_on {
                later.deferred.close = true;
            }
            self.kind = ReplyKind::Streaming(later.stream(&[]));
        }
        match &mut self.kind {
            ReplyKind::Streaming(stream) => Some(stream),
            ReplyKind::Undecided(_) | ReplyKind::Over => None,
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut EventStream) -> io::Result<()>) {
        if let Some(stream) = self.streaming() {
            // A stream that failed reports itself as gone.
            let _ = write(stream);
            self.last = Instant::now();
        }
    }
}

/// Answers at once.
pub(super) fn respond(visit: Visit<'_>, status: u16, headers: &[(&str, &str)], answer: &Answer) {
    visit.defer().answer(status, headers, &answer.body.parts());
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
    pass: Arc<Pass>,
    /// When it was last checked whether the caller's token is still good; `None` once it is not.
    looked: Mutex<Option<Instant>>,
}

impl PostPeer {
    /// For `call`, which is answered by `reply`, perhaps as part of a batch.
    pub(super) fn new(
        reply: Arc<Reply>,
        call: &Call,
        cancel: Cancel,
        session: Option<Arc<LiveSession>>,
        batch: Option<Arc<Batch>>,
        pass: &Arc<Pass>,
    ) -> PostPeer {
        PostPeer {
            reply,
            head: call.head.clone(),
            cancel,
            // A run goes on in a session: its answer is lost, but not the run.
            leaving_cancels: session.is_none() || !call.is_run(),
            session,
            batch,
            pass: pass.clone(),
            looked: Mutex::new(Some(Instant::now())),
        }
    }

    /// Was the caller's token taken away? Then the response ends with an error that says so; a paid run goes on.
    fn is_cut(&self) -> bool {
        let mut looked = lock(&self.looked);
        match *looked {
            None => return true,
            // A run checks for its end at every piece of output.
            Some(at) if at.elapsed() < CALLER_CHECK => return false,
            Some(_) => *looked = Some(Instant::now()),
        }
        if self.pass.require(self.pass.role).is_ok() {
            return false;
        }
        *looked = None;
        drop(looked);
        let error = refuse(revoked().into(), Some(&self.head.id), NoId::Absent, false);
        self.reply.finish(401, &[], &error.body.parts(), true);
        true
    }
}

impl Peer for PostPeer {
    fn notify(&self, message: &[u8]) {
        if !self.cancel.is_cancelled() {
            self.reply.write(|stream| stream.event(&[message]));
        }
    }

    fn answer(&self, answer: Answer, is_over: bool) {
        let wanted = match &self.session {
            Some(live) => live.inflight.finish(&self.head.id, &self.cancel),
            None => true,
        };
        if let Some(batch) = &self.batch {
            batch.answer(&self.head.id, wanted.then_some(answer));
        } else if wanted {
            let (status, body) = (status(&answer), answer.body.parts());
            self.reply.finish(status, &[], &body, !is_over);
        } else if let Some(later) = self.reply.end() {
            let cancelled = self.head.fail(Error::cancelled());
            later.respond(200, &[JSON], &cancelled.body.parts());
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

/// The status of an answer that is not a stream.
pub(super) fn status(answer: &Answer) -> u16 {
    match answer.code {
        Some(jsonrpc::PARSE_ERROR | INVALID_REQUEST | -32022..=-32020) if answer.modern => 400,
        Some(jsonrpc::METHOD_NOT_FOUND) if answer.modern => 404,
        Some(_) if answer.modern && answer.envelope => 400,
        // To legacy clients 404 says that the session is lost, and nothing else does.
        _ => 200,
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
            (&["text/html"], false, false),
        ] {
            let found = Accepts::of(values.iter().copied());
            assert_eq!(found, Accepts { json, events }, "{values:?}");
        }
    }
}
