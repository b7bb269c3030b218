//! The client of a call that came in a POST of Streamable HTTP, whose own connection gets the answer: JSON if nothing precedes
//! the result, else an event stream.
//!
//! In scope: when a disconnect cancels a call, and what a caller hears whose token was removed. Not in scope: the
//! response itself (`http`).

use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use serde_json::json;

use crate::account::Resource;
use crate::fabric::{Error, Kind};
use crate::http::Responder;
use crate::protocol::{Answer, jsonrpc};
use crate::server::refuse;
use crate::sync::lock;
use crate::tools::{CallHead, Peer};

use super::super::inflight::{Batch, Cancel};
use super::sessions::LiveSession;

/// The client of one such call.
pub(super) struct Post {
    /// The calls of a batch share it.
    pub(super) responder: Arc<Mutex<Responder>>,
    pub(super) head: Arc<CallHead>,
    pub(super) cancel: Cancel,
    /// The session of the call. Without one, a disconnect cancels the call, because ids belong to their POST alone.
    pub(super) session: Option<Arc<LiveSession>>,
    /// The batch that its answer belongs to.
    pub(super) batch: Option<Arc<Batch>>,
    /// Done once the caller's token was taken away.
    pub(super) cut: Once,
}

impl Post {
    /// Was the caller's token taken away? Then the response ends with an error that says so; a paid run goes on.
    fn is_cut(&self) -> bool {
        let caller = &self.head.caller;
        if !self.cut.is_completed()
            && let Some(refusal) = caller.revoked()
        {
            self.cut.call_once(|| {
                let id = Some(&self.head.id);
                let error = refuse(revoked().into(), id, false);
                let challenge = caller.challenge(refusal);
                let mut responder = lock(&self.responder);
                let challenge = challenge.map(|value| ("WWW-Authenticate", value));
                responder.headers.extend(challenge);
                responder.answer(401, &error.parts());
            });
        }
        self.cut.is_completed()
    }
}

impl Peer for Post {
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool) {
        if !self.cancel.is_cancelled() && wanted() {
            // Where only JSON is accepted, and after the end, it is dropped.
            let _ = lock(&self.responder).event(&[message]);
        }
    }

    fn answer(&self, answer: Answer) {
        let finish = |live: &Arc<LiveSession>| live.inflight.finish(&self.head.id, &self.cancel);
        let wanted = self.session.as_ref().is_none_or(finish);
        if let Some(batch) = &self.batch {
            return batch.answer(&self.head.id, wanted.then_some(answer));
        }
        let mut responder = lock(&self.responder);
        // HTTP asks for some answer, unless a stream has begun.
        if wanted || !responder.end() {
            responder.answer(answer.status, &answer.parts());
        }
    }

    fn stopped(&self) -> bool {
        // A run goes on in a session: its answer is lost, but not the run.
        let leaving_cancels = self.session.is_none() || self.head.plan.needs != Resource::Runs;
        self.cancel.is_cancelled()
            || (!self.is_cut() && leaving_cancels && lock(&self.responder).is_gone())
    }

    fn begins(&self) {
        lock(&self.responder).stream();
    }

    fn idle(&self, _: Duration) {
        lock(&self.responder).keep_alive();
    }
}

/// The caller's token was taken away while it was served.
pub(super) fn revoked() -> Error {
    Error::new(
        Kind::Forbidden,
        "Your token was removed, changed or has expired, or its issuer no longer confirms it, so \
         nothing more is sent here. Get a valid one, then ask again. A step that has begun goes on.",
    )
}

/// The last message of a stream whose caller's token was taken away.
pub(super) fn revocation() -> Answer {
    let params = json!({ "level": "error", "data": revoked().detail });
    jsonrpc::notification("notifications/message", &params).into()
}
