//! Streamable HTTP: one POST a message, at one path, for the legacy revisions and the modern one side by side.
//!
//! ```text
//!   POST ─▶ Content-Type (415) ─▶ Accept (406) ─▶ body (413 …) ─▶ parse (400) ─┬─ modern: by itself
//!                                                                              ├─ initialize: a new session
//!                                                                              └─ legacy: in its session (400, 404)
//! ```
//! A call runs on its connection's own thread; those of a batch have some more. In scope: statuses, sessions, the
//! mirrored headers, whether leaving means cancelling. Not in scope: what comes before the message (`web`), what it
//! means (`protocol`), how its answer is written (`reply`).

use std::borrow::Cow;
use std::sync::Arc;

use crate::access::Role;
use crate::base64;
use crate::config::Config;
use crate::fabric::{Error, Kind};
use crate::http::{Head, Method};
use crate::protocol::jsonrpc::{INVALID_PARAMS, INVALID_REQUEST};
use crate::protocol::{
    Answer, Inbound, Mirror, NoId, Refusal, Revision, Session, without_handshake,
};
use crate::server::{Action, Call, Listen, Listener, Server, refuse};
use crate::sync::lock;

use super::super::batch::Batch;
use super::super::inflight::Cancel;
use super::super::pipe::Outlet;
use super::super::threads::start;
use super::super::{begin, read};
use super::reply::{PostPeer, Reply, respond, revocation, revoked, status};
use super::sessions::{LiveSession, Sessions};
use super::streams::Streams;
use super::web::{Endpoint, Guest, Visit};

/// Allowed methods, with and without sessions.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const METHODS_WITHOUT_SESSION: &str = "POST, OPTIONS";

/// The header that carries a legacy session's id.
const SESSION_ID: &str = "Mcp-Session-Id";

/// What is answered to the id of a session that was ended, or is another's.
const SESSION_ENDED: &str = "This session has ended: send initialize to begin another one.";

/// The endpoint.
pub(super) struct Streamable {
    path: String,
    server: Arc<Server>,
    streams: Arc<Streams>,
    sessions: Sessions,
    /// The state for requests without a session; never changed.
    stateless: Arc<Session>,
}

impl Endpoint for Streamable {
    fn methods(&self, path: &str) -> Option<&'static str> {
        let is_ours =
            path == self.path || path.strip_suffix('/').is_some_and(|path| path == self.path);
        is_ours.then_some(METHODS)
    }

    fn serve(&self, visit: Visit<'_>, guest: Guest<'_>) {
        match visit.head().method {
            Method::Post => self.post(visit, guest),
            Method::Delete => self.delete(visit, guest),
            _ => self.get(visit, guest),
        }
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// What a message leads to.
enum Next {
    /// An answer of this status.
    Answer(u16, Answer),
    /// The answer that opens this session.
    Welcome(String, Answer),
    /// An action, in a session or by itself.
    Act(Action, Option<Arc<LiveSession>>),
}

impl Streamable {
    /// The endpoint at `config.path`.
    pub(super) fn new(config: &Config, server: Arc<Server>, streams: Arc<Streams>) -> Streamable {
        Streamable {
            path: config.path.clone(),
            server,
            streams,
            sessions: Sessions::default(),
            stateless: Arc::new(Session::http()),
        }
    }

    fn post(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(visit) = visit.with_json() else {
            return;
        };
        if !visit.accepts.json && !visit.accepts.events {
            return visit.refuse(
                406,
                "Answers are application/json or text/event-stream: accept at least one of them.",
            );
        }
        let Some((visit, body)) = visit.read_body(guest) else {
            return;
        };
        let modern_header = visit
            .head()
            .header("mcp-protocol-version")
            .is_some_and(is_modern_version);
        let read = read(&body, modern_header, NoId::Absent, guest.account);
        let (parsing, inbound) = match read {
            Ok(read) => read,
            Err(answer) => return visit.no_room(&answer),
        };
        // An array where there are no batches is no request either.
        let is_one = inbound.id().is_some();
        let next = if inbound.modern || inbound.incoming.is_err() {
            self.stateless(visit.head(), inbound, guest)
        } else if inbound.initialize {
            self.initialize(visit.head(), inbound, guest)
        } else {
            self.legacy(visit.head(), inbound, guest)
        };
        // What follows may block.
        drop((body, parsing));
        let (action, live) = match next {
            Next::Answer(status, answer) => return respond(visit, status, &[], &answer),
            Next::Welcome(id, answer) => {
                return respond(visit, 200, &[(SESSION_ID, &id)], &answer);
            }
            Next::Act(action, live) => (action, live),
        };
        match (action, live) {
            (Action::Answer(answer), _) => {
                let status = if is_one { status(&answer) } else { 400 };
                respond(visit, status, &[], &answer);
            }
            (Action::Call(call), live) => self.run(visit, guest, *call, live),
            (Action::Listen(mut listen), None) => {
                listen.admit(&self.server, &guest.pass.identity);
                self.listen(visit, guest, &listen);
            }
            (Action::Batch(actions), Some(live)) => self.batch(visit, guest, &live, actions),
            (Action::Cancel(id), Some(live)) => {
                live.inflight.cancel(&id);
                visit.respond(202, &[], &[]);
            }
            // Without a session a cancel would hit other clients' requests: ids belong to their POST alone.
            _ => visit.respond(202, &[], &[]),
        }
    }

    fn stateless(&self, head: &Head, inbound: Inbound<'_>, guest: Guest<'_>) -> Next {
        let mirror = inbound.is_request().then(|| mirror(head));
        let mirror = mirror.as_ref();
        let action = self
            .server
            .receive(&self.stateless, inbound, mirror, guest.account);
        Next::Act(action, None)
    }

    fn initialize(&self, head: &Head, inbound: Inbound<'_>, guest: Guest<'_>) -> Next {
        let who = &guest.pass.identity;
        let given = head.header(SESSION_ID);
        if given.is_some_and(|id| self.sessions.is_live(id, who)) {
            let reason = "This session has been initialized already: leave out Mcp-Session-Id to begin another one.";
            return refused(200, INVALID_REQUEST, reason, &inbound);
        }
        let session = Arc::new(Session::http());
        let action = self.server.receive(&session, inbound, None, guest.account);
        match (action, session.revision()) {
            (Action::Answer(answer), Some(revision)) if answer.code.is_none() => {
                Next::Welcome(self.sessions.open(who, session, revision), answer)
            }
            (action, _) => Next::Act(action, None),
        }
    }

    fn legacy(&self, head: &Head, mut inbound: Inbound<'_>, guest: Guest<'_>) -> Next {
        let Some(id) = head.header(SESSION_ID) else {
            let without = without_handshake();
            let reason = format!(
                "This request belongs to no session: send initialize first and repeat the Mcp-Session-Id of its answer, or \
                 {without}"
            );
            return refused(400, INVALID_PARAMS, &reason, &inbound);
        };
        if !has_known_version(head) {
            let known = Revision::ALL.map(Revision::name).join(", ");
            let reason = format!("This MCP-Protocol-Version is not supported: use one of {known}.");
            return refused(400, INVALID_REQUEST, &reason, &inbound);
        }
        let Some(live) = self.sessions.find(id, &guest.pass.identity) else {
            return refused(404, INVALID_REQUEST, SESSION_ENDED, &inbound);
        };
        inbound.refuse_ids(|id| live.inflight.contains(id));
        let action = self
            .server
            .receive(&live.session, inbound, None, guest.account);
        self.follow(&live, guest);
        Next::Act(action, Some(live))
    }

    /// Does a call on this thread. In a session it may be cancelled by its id; without one, by leaving.
    fn run(&self, visit: Visit<'_>, guest: Guest<'_>, call: Call, live: Option<Arc<LiveSession>>) {
        let Some(visit) = visit.stay(guest, false) else {
            return;
        };
        let head = call.head.clone();
        if call.is_run()
            && let Err(refusal) = guest.pass.require(Role::Run)
        {
            let answer = head.fail(Error::new(Kind::Forbidden, refusal.detail()));
            // An OAuth client may get itself a larger scope.
            let challenge = guest.access.challenge(refusal, Some(guest.pass));
            return match challenge {
                Some(value) => respond(visit, 403, &[("WWW-Authenticate", &value)], &answer),
                None => respond(visit, 200, &[], &answer),
            };
        }
        let begun = live.as_ref().map(|live| begin(&live.inflight, &call));
        let cancel = match begun.unwrap_or(Ok(Cancel::default())) {
            Ok(cancel) => cancel,
            Err(answer) => return respond(visit, 200, &[], &answer),
        };
        let reply = Arc::new(Reply::new(visit, call.is_run()));
        let peer = Arc::new(PostPeer::new(reply, &call, cancel, live, None, guest.pass));
        let here = |work: Box<dyn FnOnce() + Send>| {
            work();
            Ok(())
        };
        call.serve(&self.server, self.server.caller(guest.pass, peer), here);
    }

    /// Does each call on a thread, which may go on with a run after the array is sent.
    fn batch(
        &self,
        visit: Visit<'_>,
        guest: Guest<'_>,
        live: &Arc<LiveSession>,
        actions: Vec<Action>,
    ) {
        let Some(visit) = visit.stay(guest, false) else {
            return;
        };
        let Some((batch, calls)) = Batch::begin(actions, &live.inflight, guest.account) else {
            return visit.respond(202, &[], &[]);
        };
        let may_go_on = calls.iter().any(|(call, _)| call.is_run());
        let reply = Arc::new(Reply::new(visit, may_go_on));
        for (call, cancel) in calls {
            let (live, batch) = (Some(live.clone()), Some(batch.clone()));
            let peer = PostPeer::new(reply.clone(), &call, cancel, live, batch, guest.pass);
            let caller = self.server.caller(guest.pass, Arc::new(peer));
            call.serve(&self.server, caller, start);
        }
        batch.wait();
        let is_sent = batch.send(|array| reply.finish(200, &[], array, may_go_on));
        if !is_sent && let Some(later) = reply.end() {
            later.respond(202, &[], &[]);
        }
    }

    fn listen(&self, visit: Visit<'_>, guest: Guest<'_>, listen: &Listen) {
        if !visit.accepts.events {
            return visit.refuse(
                406,
                "A subscription is answered with a stream: accept text/event-stream.",
            );
        }
        let Some(visit) = visit.stay(guest, false) else {
            return;
        };
        let channel = self.streams.open(visit);
        // The acknowledgement comes first: only then can anything be told.
        channel.send(&[&listen.acknowledgement()]);
        let listener = listen.listener(guest.account.clone(), channel.changes());
        let _place = self.server.subscriptions.add(listener);
        channel.carry(guest, |is_revoked| {
            let end = match is_revoked {
                true => listen.fail(revoked()),
                false => listen.end(),
            };
            channel.send(&end.body.parts())
        });
    }

    fn get(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(id) = visit.head().header(SESSION_ID) else {
            return visit.not_allowed(METHODS_WITHOUT_SESSION);
        };
        if !visit.accepts.events {
            return visit.refuse(406, "A session's stream is text/event-stream: accept that.");
        }
        let Some(live) = self.sessions.find(id, &guest.pass.identity) else {
            return visit.refuse(404, SESSION_ENDED);
        };
        if !has_known_version(visit.head()) {
            return visit.refuse(400, "This MCP-Protocol-Version is not supported.");
        }
        let replaces = lock(&live.stream).is_some();
        let Some(visit) = visit.stay(guest, replaces) else {
            return;
        };
        // Register before the head is sent: the client's next GET must find it.
        let mut place = lock(&live.stream);
        let channel = self.streams.open(visit);
        let before = place.replace(channel.clone());
        drop(place);
        // A new stream replaces the old one: nothing is sent on both.
        if let Some(before) = before {
            before.end();
        }
        self.follow(&live, guest);
        channel.carry(guest, |is_revoked| {
            if is_revoked {
                channel.send(&[&revocation()]);
            }
        });
        lock(&live.stream).take_if(|current| Arc::ptr_eq(current, &channel));
    }

    fn delete(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(id) = visit.head().header(SESSION_ID) else {
            return visit.not_allowed(METHODS_WITHOUT_SESSION);
        };
        if !has_known_version(visit.head()) {
            return visit.refuse(400, "This MCP-Protocol-Version is not supported.");
        }
        let Some(live) = self.sessions.end(id, &guest.pass.identity) else {
            return visit.refuse(404, "This session has ended already.");
        };
        live.inflight.cancel_all();
        if let Some(stream) = lock(&live.stream).take() {
            stream.end();
        }
        visit.respond(204, &[], &[]);
    }

    /// A session that has listed prompts or resources gets notifications of changes on its stream, once it has one.
    fn follow(&self, live: &LiveSession, guest: Guest<'_>) {
        if !live.session.follows_lists() {
            return;
        }
        let stream = lock(&live.stream).clone();
        if let Some(stream) = stream {
            stream.follow(|| {
                let listener =
                    Listener::legacy(&self.server, guest.account.clone(), stream.changes());
                self.server.subscriptions.add(listener)
            });
        }
    }
}

/// The answer to a message that is not taken.
fn refused(status: u16, code: i32, reason: &str, inbound: &Inbound<'_>) -> Next {
    let refusal = Refusal::new(code, reason);
    let answer = refuse(refusal, inbound.id(), NoId::Absent, false);
    Next::Answer(status, answer)
}

/// Is this version, known or not, one of those without sessions? Versions are dates, which compare as text.
fn is_modern_version(version: &str) -> bool {
    let is_date = version.len() == 10
        && version.bytes().enumerate().all(|(at, b)| {
            if at == 4 || at == 7 {
                b == b'-'
            } else {
                b.is_ascii_digit()
            }
        });
    is_date && version >= Revision::R2026_07_28.name()
}

fn has_known_version(head: &Head) -> bool {
    head.header("mcp-protocol-version")
        .is_none_or(|version| Revision::named(version).is_some())
}

/// What the headers repeat of a modern request. A header that comes twice equals nothing a body can hold.
fn mirror(head: &Head) -> Mirror<'_> {
    let one = |name: &str| {
        let mut values = head.headers_named(name).map(Cow::Borrowed);
        values
            .next()
            .map(|first| values.fold(first, |all, value| all + ", " + value))
    };
    Mirror {
        version: one("mcp-protocol-version"),
        method: one("mcp-method"),
        name: one("mcp-name").map(|value| base64::from_header(value)),
    }
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
