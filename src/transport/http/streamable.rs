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

use std::sync::Arc;

use crate::access::{Identity, Role};
use crate::account::Guard;
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
use super::super::duplicate;
use super::super::inflight::Cancel;
use super::super::pipe::{Flush, Line};
use super::super::read;
use super::super::threads::start;
use super::base64;
use super::reply::{Accepts, PostPeer, PostReply, revocation, revoked, status};
use super::sessions::{Live, SessionId, Sessions};
use super::streams::Streams;
use super::web::{Endpoint, Guest, JSON, Visit};

/// Allowed methods, with and without sessions.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const METHODS_WITHOUT_SESSION: &str = "POST, OPTIONS";

/// The header that carries a legacy session's id.
const SESSION_ID: &str = "Mcp-Session-Id";

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
        match visit.head().method() {
            Method::Post => self.post(visit, guest),
            Method::Delete => self.delete(visit, guest),
            _ => self.get(visit, guest),
        }
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// One POST whose message has been read.
struct Post<'a> {
    visit: Visit<'a>,
    guest: Guest<'a>,
    accepts: Accepts,
}

/// What to do once a message has been read and its body freed.
enum Next {
    /// Answer 202.
    Accept,
    Answer(u16, Answer),
    /// Answer with the id of a new session.
    Welcome(String, Answer),
    /// Run it, in a session or for itself.
    Run(Box<Call>, Option<(Arc<Live>, Cancel)>),
    Listen(Box<Listen>),
    Batch(Arc<Live>, Vec<Action>),
}

impl Streamable {
    /// The endpoint at `config.path`.
    pub(super) fn new(config: &Config, server: Arc<Server>, streams: Arc<Streams>) -> Streamable {
        Streamable {
            path: config.path.clone(),
            server,
            streams,
            sessions: Sessions::new(),
            stateless: Arc::new(Session::http()),
        }
    }

    fn post(&self, visit: Visit<'_>, guest: Guest<'_>) {
        if !visit.is_json() {
            return visit.refuse(
                415,
                "A message is JSON: send it with Content-Type: application/json.",
            );
        }
        let accepts = Accepts::read(visit.head());
        if !accepts.json && !accepts.events {
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
        let post = Post {
            visit,
            guest,
            accepts,
        };
        let (head, who) = (post.visit.head(), &guest.pass.identity);
        let next = if inbound.incoming.is_err() {
            match self
                .server
                .receive(&self.stateless, inbound, None, guest.account)
            {
                Action::Answer(answer) => Next::Answer(400, answer),
                _ => Next::Accept,
            }
        } else if inbound.modern {
            self.modern(head, inbound, guest)
        } else if inbound.initialize {
            self.initialize(head, who, inbound, guest)
        } else {
            self.legacy(head, who, inbound, guest)
        };
        // What follows may block.
        drop((body, parsing));
        match next {
            Next::Accept => post.visit.accepted(),
            Next::Answer(status, answer) => post.answer(status, &answer),
            Next::Welcome(id, answer) => post.answer_with(200, &[(SESSION_ID, &id)], &answer),
            Next::Run(call, session) => self.run(post, *call, session),
            Next::Listen(mut listen) => {
                listen.admit(&self.server, &post.guest.pass.identity);
                self.listen(post, &listen);
            }
            Next::Batch(live, actions) => self.batch(post, &live, actions),
        }
    }

    fn modern(&self, head: &Head, inbound: Inbound<'_>, guest: Guest<'_>) -> Next {
        let mirror = inbound.is_request().then(|| mirror(head));
        match self
            .server
            .receive(&self.stateless, inbound, mirror.as_ref(), guest.account)
        {
            Action::Answer(answer) => Next::Answer(status(&answer), answer),
            Action::Call(call) => Next::Run(call, None),
            Action::Listen(listen) => Next::Listen(listen),
            // A cancel would hit other clients' requests: here ids belong to their POST alone.
            Action::Nothing | Action::Cancel(_) | Action::Batch(_) => Next::Accept,
        }
    }

    fn initialize(
        &self,
        head: &Head,
        who: &Identity,
        inbound: Inbound<'_>,
        guest: Guest<'_>,
    ) -> Next {
        let given = head.header(SESSION_ID).and_then(SessionId::parse);
        if given.is_some_and(|id| self.sessions.is_live(id, who)) {
            let reason = "This session has been initialized already: leave out Mcp-Session-Id to begin another one.";
            let answer = refuse(
                Refusal::new(INVALID_REQUEST, reason),
                inbound.id(),
                NoId::Absent,
                false,
            );
            return Next::Answer(200, answer);
        }
        let session = Arc::new(Session::http());
        let Action::Answer(answer) = self.server.receive(&session, inbound, None, guest.account)
        else {
            return Next::Accept;
        };
        match session.revision() {
            Some(revision) if answer.code.is_none() => Next::Welcome(
                self.sessions.open(who, session, revision).to_string(),
                answer,
            ),
            _ => Next::Answer(status(&answer), answer),
        }
    }

    fn legacy(
        &self,
        head: &Head,
        who: &Identity,
        mut inbound: Inbound<'_>,
        guest: Guest<'_>,
    ) -> Next {
        let refused = |status, code, reason: &str| {
            Next::Answer(
                status,
                refuse(
                    Refusal::new(code, reason),
                    inbound.id(),
                    NoId::Absent,
                    false,
                ),
            )
        };
        let Some(id) = head.header(SESSION_ID) else {
            let without = without_handshake();
            let reason = format!(
                "This request belongs to no session: send initialize first and repeat the Mcp-Session-Id of its answer, or \
                 {without}"
            );
            return refused(400, INVALID_PARAMS, &reason);
        };
        if !has_known_version(head) {
            let known = Revision::ALL.map(Revision::name).join(", ");
            let reason = format!("This MCP-Protocol-Version is not supported: use one of {known}.");
            return refused(400, INVALID_REQUEST, &reason);
        }
        let Some(live) = SessionId::parse(id).and_then(|id| self.sessions.find(id, who)) else {
            return refused(
                404,
                INVALID_REQUEST,
                "This session has ended: send initialize to begin another one.",
            );
        };
        let is_one = inbound.id().is_some();
        inbound.refuse_ids(|id| live.inflight.contains(id));
        let action = self
            .server
            .receive(&live.session, inbound, None, guest.account);
        self.follow(&live, guest);
        match action {
            Action::Nothing | Action::Listen(_) => Next::Accept,
            // An array where there are no batches is no request either.
            Action::Answer(answer) => {
                Next::Answer(if is_one { status(&answer) } else { 400 }, answer)
            }
            Action::Cancel(id) => {
                live.inflight.cancel(&id);
                Next::Accept
            }
            Action::Call(call) => match live.inflight.begin(call.head().id()) {
                Some(cancel) => Next::Run(call, Some((live, cancel))),
                None => {
                    let head = call.head();
                    Next::Answer(200, duplicate(head.id(), head.is_modern()))
                }
            },
            Action::Batch(actions) => Next::Batch(live, actions),
        }
    }

    /// Does a call on this thread. In a session it may be cancelled by its id; without one, by leaving.
    fn run(&self, post: Post<'_>, call: Call, session: Option<(Arc<Live>, Cancel)>) {
        let (head, guest, is_run) = (call.head().clone(), post.guest, call.is_run());
        let (live, cancel) = session.map_or((None, Cancel::default()), |(live, cancel)| {
            (Some(live), cancel)
        });
        let finish = || {
            if let Some(live) = &live {
                live.inflight.finish(head.id(), &cancel);
            }
        };
        let Some((post, share)) = post.stay() else {
            return finish();
        };
        if is_run && let Err(refusal) = guest.pass.require(Role::Run) {
            finish();
            let error = Error::new(Kind::Forbidden, refusal.detail());
            let answer = head.fail(error);
            // An OAuth client may get itself a larger scope.
            let challenge = guest.access.challenge(refusal, Some(guest.pass));
            return match challenge {
                Some(value) => post.answer_with(403, &[("WWW-Authenticate", &value)], &answer),
                None => post.answer(200, &answer),
            };
        }
        let place = match call.place(guest.account) {
            Ok(place) => place,
            Err(error) => {
                finish();
                return post.answer(200, &head.fail(error));
            }
        };
        let reply = Arc::new(PostReply::new(post.visit.defer(), post.accepts, is_run));
        let peer = PostPeer::new(reply, head, cancel, live, is_run, guest);
        let peer = share.into_iter().fold(peer, PostPeer::with);
        let caller = self.server.caller(guest.pass, Arc::new(peer));
        call.run(&self.server, caller, place);
    }

    /// Registers all ids before anything runs, so that items act in their order; then does each call on a thread, which
    /// may go on with a run after the array is sent.
    fn batch(&self, post: Post<'_>, live: &Arc<Live>, actions: Vec<Action>) {
        let Some((post, _share)) = post.stay() else {
            return;
        };
        let guest = post.guest;
        let mut answers = Vec::new();
        let mut calls = Vec::new();
        for action in actions {
            match action {
                Action::Nothing | Action::Listen(_) | Action::Batch(_) => {}
                Action::Cancel(id) => live.inflight.cancel(&id),
                Action::Answer(answer) => answers.push(answer),
                Action::Call(call) => match live.inflight.begin(call.head().id()) {
                    Some(cancel) => calls.push((call, cancel)),
                    None => {
                        let head = call.head();
                        answers.push(duplicate(head.id(), head.is_modern()));
                    }
                },
            }
        }
        if answers.is_empty() && calls.is_empty() {
            return post.visit.accepted();
        }
        let may_go_on = calls.iter().any(|(call, _)| call.is_run());
        let reply = Arc::new(PostReply::new(post.visit.defer(), post.accepts, may_go_on));
        let batch = Batch::new(answers, calls.len());
        for (call, cancel) in calls {
            let (head, is_run) = (call.head().clone(), call.is_run());
            let live = Some(live.clone());
            let peer = PostPeer::new(reply.clone(), head.clone(), cancel, live, is_run, guest);
            let peer = Arc::new(peer.in_batch(batch.clone()));
            let caller = self.server.caller(guest.pass, peer);
            let peer = caller.peer.clone();
            let server = self.server.clone();
            let begun = call
                .place_of_batch(&caller)
                .and_then(|place| start(move || call.run(&server, caller, place)));
            if let Err(error) = begun {
                peer.answer(head.fail(error), true);
            }
        }
        batch.wait();
        batch.send(|array| match array {
            None => reply.finish_without(|| (202, Vec::new())),
            Some(array) => reply.finish(200, array, may_go_on),
        });
    }

    fn listen(&self, post: Post<'_>, listen: &Listen) {
        if !post.accepts.events {
            return post.visit.refuse(
                406,
                "A subscription is answered with a stream: accept text/event-stream.",
            );
        }
        let Some((post, _share)) = post.stay() else {
            return;
        };
        let guest = post.guest;
        let entered = self.streams.add(post.visit.stream(&[]));
        let channel = &entered.channel;
        // The acknowledgement comes first: only then can anything be told.
        channel.send(&[&listen.acknowledgement()], Flush::Now);
        channel.follow(|changes| {
            let listener = listen.listener(guest.account.clone(), move |message: &[u8]| {
                changes.tell(message)
            });
            self.server.subscriptions.add(listener)
        });
        channel.carry(guest, |is_revoked| {
            let end = match is_revoked {
                true => listen.fail(revoked()),
                false => listen.end(),
            };
            channel.send(&end.body.parts(), Flush::Now)
        });
    }

    fn get(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(id) = visit.head().header(SESSION_ID) else {
            return visit.not_allowed(METHODS_WITHOUT_SESSION);
        };
        if !Accepts::read(visit.head()).events {
            return visit.refuse(406, "A session's stream is text/event-stream: accept that.");
        }
        let Some(live) =
            SessionId::parse(id).and_then(|id| self.sessions.find(id, &guest.pass.identity))
        else {
            return visit.refuse(
                404,
                "This session has ended: send initialize to begin another one.",
            );
        };
        if !has_known_version(visit.head()) {
            return visit.refuse(400, "This MCP-Protocol-Version is not supported.");
        }
        let replaces = lock(&live.stream).is_some();
        let Some((visit, _share)) = visit.stay(guest, replaces) else {
            return;
        };
        // Register before the head is sent: the client's next GET must find it.
        let mut place = lock(&live.stream);
        let entered = self.streams.add(visit.stream(&[]));
        let before = place.replace(entered.channel.clone());
        drop(place);
        // A new stream replaces the old one: nothing is sent on both.
        if let Some(before) = before {
            before.end();
        }
        self.follow(&live, guest);
        entered.channel.carry(guest, |is_revoked| {
            if is_revoked {
                entered.channel.send(&[&revocation()], Flush::Now);
            }
        });
        let mut current = lock(&live.stream);
        if current
            .as_ref()
            .is_some_and(|channel| Arc::ptr_eq(channel, &entered.channel))
        {
            *current = None;
        }
    }

    fn delete(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(id) = visit.head().header(SESSION_ID) else {
            return visit.not_allowed(METHODS_WITHOUT_SESSION);
        };
        if !has_known_version(visit.head()) {
            return visit.refuse(400, "This MCP-Protocol-Version is not supported.");
        }
        match SessionId::parse(id)
            .ok_or(())
            .and_then(|id| self.sessions.end(id, &guest.pass.identity))
        {
            Ok(live) => {
                if let Some(live) = live {
                    live.inflight.cancel_all();
                    if let Some(stream) = lock(&live.stream).take() {
                        stream.end();
                    }
                }
                visit.respond(204, &[], &[]);
            }
            Err(()) => visit.refuse(404, "This session has ended already."),
        }
    }

    /// A session that has listed prompts or resources gets notifications of changes on its stream, once it has one.
    fn follow(&self, live: &Live, guest: Guest<'_>) {
        if !live.session.follows_lists() {
            return;
        }
        let stream = lock(&live.stream).clone();
        if let Some(stream) = stream {
            stream.follow(|changes| {
                let account = guest.account.clone();
                let listener =
                    Listener::legacy(account, move |message: &[u8]| changes.tell(message));
                self.server.subscriptions.add(listener)
            });
        }
    }
}

impl Post<'_> {
    /// See [`Visit::stay`].
    fn stay(self) -> Option<(Self, Option<Guard>)> {
        let (visit, share) = self.visit.stay(self.guest, false)?;
        Some((Post { visit, ..self }, share))
    }

    fn answer(self, status: u16, answer: &Answer) {
        self.answer_with(status, &[], answer);
    }

    /// What is answered at once: JSON, or one event where only a stream is taken. An error status is always JSON.
    fn answer_with(self, status: u16, headers: &[(&str, &str)], answer: &Answer) {
        if self.accepts.json || status != 200 {
            let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
            return self.visit.respond(status, &headers, &answer.body.parts());
        }
        let mut stream = self.visit.stream(headers);
        if stream.event_of(&answer.body.parts()).is_ok() {
            let _ = stream.finish();
        }
    }
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
fn mirror(head: &Head) -> Mirror {
    let one = |name: &str| {
        let values: Vec<&str> = head.headers_named(name).collect();
        (!values.is_empty()).then(|| values.join(", "))
    };
    Mirror {
        version: one("mcp-protocol-version"),
        method: one("mcp-method"),
        name: one("mcp-name").map(|value| base64::header_value(&value)),
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

    #[test]
    fn statuses_follow_era_and_code() {
        let answer = |code, modern, envelope| {
            status(&Answer {
                envelope,
                ..Answer::new(Vec::new(), code, modern)
            })
        };
        for code in [
            None,
            Some(-32601),
            Some(-32602),
            Some(-32603),
            Some(-32600),
            Some(-32002),
        ] {
            assert_eq!(answer(code, false, false), 200, "{code:?}");
        }
        for (code, envelope, expected) in [
            (None, false, 200),
            (Some(-32602), false, 200),
            (Some(-32603), false, 200),
            (Some(-32602), true, 400),
            (Some(-32700), false, 400),
            (Some(-32600), false, 400),
            (Some(-32020), false, 400),
            (Some(-32022), false, 400),
            (Some(-32601), false, 404),
        ] {
            assert_eq!(answer(code, true, envelope), expected, "{code:?}");
        }
    }
}
