//! HTTP+SSE, the transport of 2024-11-05: a GET opens the stream on which everything is answered, POSTs carry messages.
//!
//! ```text
//!   GET ─▶ event "endpoint" ─▶ messages … ─▶ the client leaves: its work is cancelled, its id is gone
//!   POST to the endpoint ─▶ 202, and the answer comes on the stream
//! ```
//! Calls run on threads of their own, so that a client that keeps one connection for its POSTs can cancel them. In scope:
//! the two paths and their statuses. Not in scope: what is done with a message (`pipe`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::access::{Caller, Identity};
use crate::account::Resource;
use crate::http::Method;
use crate::os::random;
use crate::protocol::Session;
use crate::server::Action;
use crate::sync::lock;
use crate::tools::Peer;

use super::super::pipe::Pipe;
use super::super::read;
use super::post::revocation;
use super::queue::Queue;
use super::web::{Done, Endpoint, HttpError, HttpRequest};

/// What follows the stream's path in the path of the endpoint for messages.
const MESSAGES: &str = "/message";
/// The parameter that names the session there.
const SESSION_ID: &str = "sessionId";
/// What is answered to a message without one.
const NO_SESSION: &str =
    "There is no such session: it ends with the stream that opened it. Open a new stream.";

/// The two endpoints, and for each session who opened it, and its pipe.
#[derive(Default)]
pub(super) struct Sse(Mutex<HashMap<String, (Identity, Arc<Pipe>)>>);

impl Endpoint for Sse {
    fn methods(&self, rest: &str) -> Option<&'static str> {
        match rest {
            "" | "/" => Some("GET, OPTIONS"),
            MESSAGES => Some("POST, OPTIONS"),
            _ => None,
        }
    }

    fn serve(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        match incoming.exchange.head.method {
            Method::Post => self.post(incoming, caller),
            _ => self.get(incoming, caller),
        }
    }

    fn sessions(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Sse {
    fn get(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        incoming.require_stream()?;
        incoming.stay(caller)?;
        let id = random::id();
        let (mut responder, queue) = Queue::open(incoming, caller);
        let (server, session) = (incoming.web.server.clone(), Session::default());
        let pipe = Arc::new(Pipe::new(server, session, queue.clone()));
        let owner = caller.identity.clone();
        lock(&self.0).insert(id.clone(), (owner, pipe.clone()));
        let path = incoming.web.config.path.trim_end_matches('/');
        let first = format!("event: endpoint\ndata: {path}{MESSAGES}?{SESSION_ID}={id}\n\n");
        // A stream that fails is gone.
        let _ = responder.send(&[first.as_bytes()]);
        queue.carry(responder, caller, |is_revoked| {
            pipe.end_listening();
            if is_revoked {
                queue.answer(revocation());
            }
            // Calls that are not over may still be answered here.
            is_revoked || caller.account.held(Resource::CallThreads) == 0
        });
        lock(&self.0).remove(&id);
        if queue.stopped() {
            pipe.inflight.end();
        }
        Ok(())
    }

    fn post(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done {
        incoming.require_json()?;
        let id = incoming.exchange.head.query_value(SESSION_ID);
        let session = id.and_then(|id| lock(&self.0).get(id).cloned());
        // A stream that was cut may still be in its last write.
        let session = session
            .filter(|(owner, pipe)| caller.identity.shares_with(owner) && !pipe.line.stopped());
        let (_, pipe) = session.ok_or_else(|| HttpError::new(404, NO_SESSION))?;
        let body = incoming.read_body(caller)?;
        let (parsing, inbound) = read(&body.bytes, false, None, &caller.account)
            .map_err(|answer| HttpError::answer(503, answer))?;
        let is_message = !inbound.is_invalid();
        let action = match pipe.decide(inbound, caller) {
            Action::Answer(answer) if !is_message => return Err(HttpError::answer(400, answer)),
            action => action,
        };
        drop((body, parsing));
        // First, so that a cancellation finds what was accepted, and no second request takes its id.
        pipe.act(action, caller);
        incoming.respond(202, &[], &[])
    }
}
