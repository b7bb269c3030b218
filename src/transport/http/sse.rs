//! HTTP+SSE, the transport of 2024-11-05: a GET opens the stream on which everything is answered, POSTs carry messages.
//!
//! ```text
//!   GET ─▶ event "endpoint" ─▶ messages … ─▶ the client leaves: its work is cancelled, its id is gone
//!   POST to the endpoint ─▶ 202, and the answer comes on the stream
//! ```
//! Calls run on threads of their own, so that a client that keeps one connection for its POSTs can cancel them. In scope:
//! the two paths and their statuses. Not in scope: what is done with a message (`pipe`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::access::Identity;
use crate::account::Resource;
use crate::config::Config;
use crate::http::Method;
use crate::protocol::{NoId, Session};
use crate::random;
use crate::server::{Action, Server};
use crate::sync::lock;

use super::super::pipe::{Outlet, Pipe};
use super::super::read;
use super::reply::revocation;
use super::streams::Streams;
use super::web::{Endpoint, Guest, JSON, Visit};

/// What stands after the stream's path to make that of the endpoint for messages.
const MESSAGES: &str = "/message";
/// The parameter that names the session there.
const SESSION_ID: &str = "sessionId";

/// Who opened each session, and its pipe.
type SseSessions = HashMap<String, (Identity, Arc<Pipe>)>;

/// The two endpoints.
pub(super) struct Sse {
    path: String,
    messages: String,
    server: Arc<Server>,
    streams: Arc<Streams>,
    sessions: Mutex<SseSessions>,
}

impl Endpoint for Sse {
    fn methods(&self, path: &str) -> Option<&'static str> {
        if path == self.path {
            Some("GET, OPTIONS")
        } else if path == self.messages {
            Some("POST, OPTIONS")
        } else {
            None
        }
    }

    fn serve(&self, visit: Visit<'_>, guest: Guest<'_>) {
        match visit.head().method {
            Method::Post => self.post(visit, guest),
            _ => self.get(visit, guest),
        }
    }

    fn sessions(&self) -> usize {
        self.lock().len()
    }
}

impl Sse {
    /// The endpoints at `config.path` and below it.
    pub(super) fn new(config: &Config, server: Arc<Server>, streams: Arc<Streams>) -> Sse {
        Sse {
            messages: format!("{}{MESSAGES}", config.path.trim_end_matches('/')),
            path: config.path.clone(),
            server,
            streams,
            sessions: Mutex::default(),
        }
    }

    fn get(&self, visit: Visit<'_>, guest: Guest<'_>) {
        if !visit.accepts.events {
            return visit.refuse(
                406,
                "This path answers with a stream: accept text/event-stream.",
            );
        }
        let Some(visit) = visit.stay(guest, false) else {
            return;
        };
        let id = random::id();
        let channel = self.streams.open(visit);
        let pipe = Arc::new(Pipe::new(
            self.server.clone(),
            Session::http(),
            channel.clone(),
        ));
        self.lock()
            .insert(id.clone(), (guest.pass.identity.clone(), pipe.clone()));
        let endpoint = format!("{}?{SESSION_ID}={id}", self.messages);
        let endpoint = endpoint.as_bytes();
        channel
            .reply
            .write(|stream| stream.named_event("endpoint", endpoint));
        channel.carry(guest, |is_revoked| {
            pipe.end_listening();
            if is_revoked {
                channel.send(&[&revocation()]);
            }
        });
        self.lock().remove(&id);
        pipe.inflight.cancel_all();
    }

    fn post(&self, visit: Visit<'_>, guest: Guest<'_>) {
        let Some(visit) = visit.with_json() else {
            return;
        };
        let id = visit.head().query_value(SESSION_ID);
        let session = id.and_then(|id| self.lock().get(id).cloned());
        let Some((_, pipe)) = session.filter(|(owner, _)| guest.pass.identity.shares_with(owner))
        else {
            return visit.refuse(
                404,
                "There is no such session: it lives as long as the stream it was opened with.",
            );
        };
        let Some((visit, body)) = visit.read_body(guest) else {
            return;
        };
        let (parsing, inbound) = match read(&body, false, NoId::Absent, guest.account) {
            Ok(read) => read,
            Err(answer) => return visit.no_room(&answer),
        };
        let is_message = inbound.incoming.is_ok();
        let action = pipe.decide(inbound, guest.account);
        if let (Action::Answer(answer), false) = (&action, is_message) {
            return visit.respond(400, &[JSON], &answer.body.parts());
        }
        drop((body, parsing));
        let answer = visit.defer();
        let Some(_acting) = guest
            .account
            .wait_for(Resource::Messages, &mut || !answer.deferred.gone())
        else {
            return;
        };
        answer.respond(202, &[], &[]);
        // May block on a slow reader.
        pipe.act(action, guest.pass);
    }

    fn lock(&self) -> MutexGuard<'_, SseSessions> {
        lock(&self.sessions)
    }
}
