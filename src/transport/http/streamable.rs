//! Streamable HTTP: one POST a message, at one path, for the legacy revisions and the modern one side by side.
//!
//! ```text
//!   POST ─▶ Content-Type (415) ─▶ Accept (406) ─▶ body (413 …) ─▶ parse (400) ─┬─ modern: by itself
//!                                                                              ├─ initialize: a new session
//!                                                                              └─ legacy: in its session (400, 404),
//!                                                                                 or by its version header alone
//! ```
//! A call runs on its connection's own thread; those of a batch have some more. In scope: statuses, sessions, the
//! mirrored headers, whether leaving means cancelling. Not in scope: what comes before the message (`web`), what it
//! means (`protocol`), how its answer is written (`http`).

use std::borrow::Cow;
use std::sync::{Arc, Mutex, Once};
use std::time::Instant;

use crate::access::{Caller, Role};
use crate::account::Resource;
use crate::config::ABORT_GRACE;
use crate::fabric::{Error, Kind};
use crate::http::{Head, Method, Responder};
use crate::protocol::jsonrpc::{INVALID_PARAMS, INVALID_REQUEST};
use crate::protocol::{
    Id, Inbound, Refusal, Revision, SESSION_HEADER, Session, VERSION_HEADER, without_handshake,
};
use crate::server::{Action, Call, SubscribeRequest, here, refuse};
use crate::sync::lock;
use crate::tools::Peer;

use super::super::inflight::{Batch, Cancel, in_use};
use super::super::read;
use super::super::threads::start;
use super::post::{Post, revocation, revoked};
use super::queue::Queue;
use super::sessions::{LiveSession, Sessions};
use super::web::{Done, Endpoint, HttpError, HttpRequest, NO_STREAM, Web};

/// Allowed methods, with and without sessions.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const METHODS_WITHOUT_SESSION: &str = "POST, OPTIONS";

const SESSION_ENDED: &str = "This session has ended: send initialize to begin another one.";

/// The endpoint.
#[derive(Default)]
pub(super) struct Streamable(Sessions);

impl Endpoint for Streamable {
    fn methods(&self, rest: &str) -> Option<&'static str> {
        matches!(rest, "" | "/").then_some(METHODS)
    }

    fn serve(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        match incoming.exchange.head.method {
            Method::Post => self.post(incoming, caller),
            Method::Delete => {
                self.session(incoming.exchange.head, caller, None)?.end();
                incoming.respond(204, &[], &[])
            }
            _ => self.get(incoming, caller),
        }
    }

    fn sessions(&self) -> usize {
        self.0.len()
    }
}

impl Streamable {
    fn post(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        incoming.require_json()?;
        let accepts = incoming.exchange.head.accepts;
        let detail =
            "Answers are application/json or text/event-stream: accept at least one of them.";
        HttpError::unless(accepts.json || accepts.events, 406, detail)?;
        let body = incoming.read_body(caller)?;
        let (head, server) = (incoming.exchange.head, &incoming.web.server);
        let modern_header = head.header(VERSION_HEADER).is_some_and(is_modern_version);
        let (parsing, mut inbound) = read(&body.bytes, modern_header, None, &caller.account)
            .map_err(|answer| HttpError::answer(503, answer))?;
        // In a revision without batches, an array is not a request either.
        let is_one = inbound.request().is_some();
        let (mut live, mut opened) = (None, None);
        let action = if inbound.modern || inbound.is_invalid() {
            // A header that comes twice equals nothing that a body can hold.
            let headers = |name: &str| {
                let values = head.headers_named(name).map(Cow::Borrowed);
                values.reduce(|all, value| all + ", " + value)
            };
            server.receive(&Session::default(), inbound, Some(&headers), caller)
        } else if inbound.initialize {
            let (who, given) = (&caller.identity, head.header(SESSION_HEADER));
            if given.is_some_and(|id| self.0.is_live(id, who)) {
                let reason = "This session has been initialized already: leave out Mcp-Session-Id to begin another one.";
                return Err(bad_message(200, INVALID_REQUEST, reason, inbound.id()));
            }
            let session = Session::default();
            let action = server.receive(&session, inbound, None, caller);
            // A refused one has agreed on no revision.
            let agreed = session.revision();
            opened = agreed.map(|revision| self.0.open(who, revision));
            action
        } else {
            let live = live.insert(self.session(head, caller, Some(&inbound))?);
            inbound.refuse_ids(|id| live.inflight.contains(id));
            let action = server.receive(&live.session, inbound, None, caller);
            follow(incoming.web, live, caller);
            action
        };
        // What follows may block.
        drop((body, parsing));
        match (action, live) {
            (Action::Answer(answer), _) => {
                let status = if is_one { answer.status } else { 400 };
                let mut responder = incoming.responder();
                let id = opened.map(|id| (SESSION_HEADER, id));
                responder.headers.extend(id);
                responder.answer(status, &answer.parts());
                Ok(())
            }
            (Action::Call(call), live) => run(incoming, caller, *call, live),
            (Action::Subscribe(asked), None) => listen(incoming, caller, *asked),
            (Action::Batch(actions), Some(live)) => batch(incoming, caller, &live, actions),
            (action, live) => {
                // Without a session a cancel would hit other clients' requests: ids belong to their POST alone.
                if let (Action::Cancel(id), Some(live)) = (action, live) {
                    live.inflight.cancel(&id);
                }
                incoming.respond(202, &[], &[])
            }
        }
    }

    /// The session that a request names; `inbound` is its message, if it has one. A message that names only its revision is
    /// a session of its own: gateways and scripts send single requests.
    fn session(
        &self,
        head: &Head,
        caller: &Arc<Caller>,
        inbound: Option<&Inbound<'_>>,
    ) -> Result<Arc<LiveSession>, HttpError> {
        let message_id = inbound.and_then(Inbound::id);
        let version = head.header(VERSION_HEADER);
        let revision = version.and_then(Revision::named);
        let Some(id) = head.header(SESSION_HEADER) else {
            if inbound.is_none() {
                return Err(HttpError::method(head, METHODS_WITHOUT_SESSION));
            }
            if let Some(revision) = revision.filter(|revision| revision.is_legacy()) {
                return Ok(LiveSession::new(&caller.identity, revision));
            }
            let without = without_handshake();
            let reason = format!(
                "This request belongs to no session: send initialize first and repeat the \
                 Mcp-Session-Id of its answer, or {without}"
            );
            return Err(bad_message(400, INVALID_PARAMS, &reason, message_id));
        };
        if version.is_some() && revision.is_none() {
            let known = Revision::ALL.map(Revision::name).join(", ");
            let reason = format!("This MCP-Protocol-Version is not supported: use one of {known}.");
            return Err(bad_message(400, INVALID_REQUEST, &reason, message_id));
        }
        let live = self.0.find(id, &caller.identity);
        live.ok_or_else(|| session_ended(message_id))
    }

    fn get(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        let live = self.session(incoming.exchange.head, caller, None)?;
        incoming.require_stream()?;
        // Registered before the head is sent: the client's next GET must find it. A new stream takes the place of the old
        // one: nothing is sent on both.
        let mut place = lock(&live.stream);
        if live.inflight.has_ended() {
            return Err(session_ended(None));
        }
        if let Some((before, _)) = place.take() {
            before.end();
            // The old stream gives back its place in a moment, unless its client reads nothing.
            let begun = Instant::now();
            let mut soon = || begun.elapsed() < ABORT_GRACE;
            drop(caller.account.wait_for(Resource::Streams, &mut soon));
        }
        incoming.stay(caller)?;
        let (responder, queue) = Queue::open(incoming, caller);
        *place = Some((queue.clone(), None));
        drop(place);
        follow(incoming.web, &live, caller);
        queue.carry(responder, caller, |is_revoked| {
            if is_revoked {
                queue.answer(revocation());
            }
            true
        });
        lock(&live.stream).take_if(|(current, _)| Arc::ptr_eq(current, &queue));
        Ok(())
    }
}

/// Does a call on this thread. In a session it may be cancelled by its id; without one, by leaving.
fn run(
    incoming: &mut HttpRequest<'_>,
    caller: &Arc<Caller>,
    call: Call,
    live: Option<Arc<LiveSession>>,
) -> Done {
    incoming.stay(caller)?;
    if call.is_run()
        && let Err(refusal) = caller.require(Role::Run)
    {
        let error = Error::new(Kind::Forbidden, refusal.detail());
        let answer = call.head.fail(error);
        // An OAuth client may get itself a larger scope.
        let challenge = caller.challenge(refusal);
        let status = if challenge.is_some() { 403 } else { 200 };
        return Err(HttpError::answer(status, answer).with("WWW-Authenticate", challenge));
    }
    let id = &call.head.id;
    let refused = |live: &LiveSession| match live.inflight.has_ended() {
        true => session_ended(Some(id)),
        false => HttpError::answer(200, in_use(id)),
    };
    let cancel = match &live {
        Some(live) => live.inflight.begin(id).ok_or_else(|| refused(live))?,
        None => Cancel::default(),
    };
    let responder = responder(incoming, call.is_run());
    let peer = Post {
        responder,
        head: call.head.clone(),
        cancel,
        session: live,
        batch: None,
        cut: Once::new(),
    };
    call.serve(&incoming.web.server, Arc::new(peer), here);
    Ok(())
}

/// Does each call on a thread, which may go on with a run after the array is sent.
fn batch(
    incoming: &mut HttpRequest<'_>,
    caller: &Arc<Caller>,
    live: &Arc<LiveSession>,
    actions: Vec<Action>,
) -> Done {
    incoming.stay(caller)?;
    let (batch, calls) = Batch::begin(actions, &live.inflight, &caller.account);
    if live.inflight.has_ended() {
        return Err(session_ended(None));
    }
    let may_go_on = calls.iter().any(|(_, call)| call.is_run());
    let responder = responder(incoming, may_go_on);
    for (cancel, call) in calls {
        let peer = Post {
            responder: responder.clone(),
            head: call.head.clone(),
            cancel,
            session: Some(live.clone()),
            batch: Some(batch.clone()),
            cut: Once::new(),
        };
        call.serve(&incoming.web.server, Arc::new(peer), start);
    }
    batch.wait();
    let mut responder = lock(&responder);
    match batch.array() {
        Some(array) => responder.answer(200, &array.parts()),
        None => {
            // Unless there is a stream, which ends.
            responder.respond(202, &[], &[]);
            responder.end();
        }
    }
    Ok(())
}

/// The response to calls. If a call `may_go_on` after its answer, it is the last one of its connection, and the head of
/// a stream has to say so beforehand.
fn responder(incoming: &mut HttpRequest<'_>, may_go_on: bool) -> Arc<Mutex<Responder>> {
    let mut responder = incoming.responder();
    if may_go_on {
        incoming.exchange.free_buffer();
        responder.close = true;
    }
    Arc::new(Mutex::new(responder))
}

fn listen(incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>, listen: SubscribeRequest) -> Done {
    let error = || Error::new(Kind::InvalidRequest, NO_STREAM);
    let named = |_| HttpError::answer(406, listen.fail(error()));
    incoming.require_stream().map_err(named)?;
    incoming.stay(caller)?;
    let (responder, queue) = Queue::open(incoming, caller);
    let all = &incoming.web.server.subscriptions;
    // The response already holds the reservation.
    let place = all.add(listen, &caller.account, queue.clone(), None);
    queue.carry(responder, caller, |is_revoked| {
        queue.answer(match is_revoked {
            true => place.request.fail(revoked()),
            false => place.request.end(),
        });
        true
    });
    Ok(())
}

/// A session that has listed prompts or resources gets notifications of changes on its stream, once it has one.
fn follow(web: &Web, live: &LiveSession, caller: &Caller) {
    if live.session.follows_lists()
        && let Some((queue, follower)) = &mut *lock(&live.stream)
    {
        follower.get_or_insert_with(|| web.server.follow(&caller.account, queue.clone()));
    }
}

/// The answer to a message that is not taken.
fn bad_message(status: u16, code: i32, reason: &str, id: Option<&Id>) -> HttpError {
    HttpError::answer(status, refuse(Refusal::new(code, reason), id, false))
}

/// The answer to a message in a session that was ended, or is another's.
fn session_ended(id: Option<&Id>) -> HttpError {
    bad_message(404, INVALID_REQUEST, SESSION_ENDED, id)
}

/// Is this version, known or not, one of those without sessions? Versions are dates, which compare as text.
fn is_modern_version(version: &str) -> bool {
    let is_date = |b: u8| b.is_ascii_digit() || b == b'-';
    version.len() == 10 && version.bytes().all(is_date) && version >= Revision::R2026_07_28.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_without_sessions_are_the_newer_dates() {
        for (version, modern) in [
            ("2026-07-28", true),
            ("2027-01-01", true),
            ("9999-99-99", true),
            ("2026-07-27", false),
            ("2025-11-25", false),
            ("latest", false),
            ("2026-07-281", false),
            ("", false),
            ("zzzz-zz-zz", false),
            ("2026/07/28", false),
        ] {
            assert_eq!(is_modern_version(version), modern, "{version}");
        }
    }
}
