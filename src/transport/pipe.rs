//! A client with a pipe of its own, on which messages go both ways in any order: stdin and stdout, or an HTTP+SSE
//! session.
//!
//! ```text
//!   message ─▶ server ─┬─ an answer ──────────────────────────────▶ line
//!                      ├─ a call ─▶ thread ─▶ notifications, answer ─▶ line
//!                      └─ a subscription ─▶ kept, told of changes ───▶ line
//! ```
//! What is cheap is answered where messages are read, and each call gets a thread, so that `notifications/cancelled` and
//! `ping` work meanwhile. In scope: ids in use, batches, cancelling, the end. Not in scope: how messages are framed.

use std::sync::{Arc, OnceLock};

use crate::access::Caller;
use crate::account::Resource;
use crate::fabric::{Error, too_many};
use crate::protocol::{Answer, Id, Inbound, Session};
use crate::server::{Action, Call, Registration, Server, SubscribeRequest};
use crate::tools::Peer;

use super::inflight::{Batch, Cancel, Inflight, in_use};
use super::{read, start};

/// One client.
pub(crate) struct Pipe {
    pub(super) server: Arc<Server>,
    pub(crate) session: Session,
    /// Its requests that have no answer yet.
    pub(crate) inflight: Arc<Inflight>,
    /// Where all of it is sent.
    pub(super) line: Arc<dyn Peer>,
    /// The registration of a legacy client that follows lists.
    follower: OnceLock<Registration>,
}

impl Pipe {
    /// A client that has sent nothing yet.
    pub(crate) fn new(server: Arc<Server>, session: Session, line: Arc<dyn Peer>) -> Pipe {
        Pipe {
            server,
            session,
            inflight: Arc::default(),
            line,
            follower: OnceLock::new(),
        }
    }

    /// Decides what to do about a message. Its bytes can be freed afterwards.
    pub(crate) fn read(&self, bytes: &[u8], caller: &Arc<Caller>) -> Action {
        match read(bytes, false, self.session.no_id(), &caller.account) {
            Ok((_parsing, inbound)) => self.decide(inbound, caller),
            Err(answer) => Action::Answer(answer),
        }
    }

    /// Decides what to do about a message that is decoded already.
    pub(crate) fn decide(&self, mut inbound: Inbound<'_>, caller: &Arc<Caller>) -> Action {
        inbound.refuse_ids(|id| self.inflight.contains(id));
        self.server.receive(&self.session, inbound, None, caller)
    }

    /// Carries out `action`, for the caller that sent it.
    pub(crate) fn act(&self, action: Action, caller: &Caller) {
        match action {
            Action::Nothing => {}
            Action::Answer(answer) => self.line.answer(answer),
            Action::Cancel(id) => self.inflight.cancel(&id),
            Action::Call(call) => match self.inflight.begin(&call.head.id) {
                Some(cancel) => self.call(*call, cancel, None),
                None => self.line.answer(in_use(&call.head.id)),
            },
            Action::Subscribe(listen) => self.listen(*listen, caller),
            Action::Batch(actions) => self.batch(actions, caller),
        }
        if self.session.follows_lists() {
            let follow = || self.server.follow(&caller.account, self.line.clone());
            self.follower.get_or_init(follow);
        }
    }

    /// Ends all subscriptions, and tells the client.
    pub(crate) fn end_listening(&self) {
        for message in self.inflight.end_listening() {
            self.line.answer(message);
        }
    }

    fn batch(&self, actions: Vec<Action>, caller: &Caller) {
        let (batch, calls) = Batch::begin(actions, &self.inflight, &caller.account);
        // A batch without calls is complete already.
        if let Some(array) = batch.array() {
            self.line.answer(array);
        }
        for (cancel, call) in calls {
            self.call(*call, cancel, Some(batch.clone()));
        }
    }

    fn call(&self, call: Call, cancel: Cancel, batch: Option<Arc<Batch>>) {
        let peer = Arc::new(PipePeer {
            line: self.line.clone(),
            inflight: self.inflight.clone(),
            id: call.head.id.clone(),
            cancel,
            batch,
        });
        call.serve(&self.server, peer, start);
    }

    fn listen(&self, listen: SubscribeRequest, caller: &Caller) {
        let (id, account) = (listen.id.clone(), &caller.account);
        if account.is_closed() {
            return self.line.answer(listen.fail(Error::stopped()));
        }
        let Ok(share) = account.take(Resource::Streams, 1) else {
            return self.line.answer(listen.fail(too_many()));
        };
        let Some(cancel) = self.inflight.begin(&id) else {
            return self.line.answer(in_use(&id));
        };
        let (all, line) = (&self.server.subscriptions, self.line.clone());
        let place = all.add(listen, account, line, Some(share));
        self.inflight.listen(&id, &cancel, place);
    }
}

/// The client of a call on a pipe.
struct PipePeer {
    line: Arc<dyn Peer>,
    inflight: Arc<Inflight>,
    id: Id,
    cancel: Cancel,
    batch: Option<Arc<Batch>>,
}

impl Peer for PipePeer {
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool) {
        let is_wanted = || wanted() && !self.cancel.is_cancelled();
        self.line.notify(message, &is_wanted);
    }

    fn answer(&self, answer: Answer) {
        let wanted = self.inflight.finish(&self.id, &self.cancel);
        let mut answer = wanted.then_some(answer);
        if let Some(batch) = &self.batch {
            batch.answer(&self.id, answer.take());
            answer = batch.array();
        }
        if let Some(answer) = answer {
            self.line.answer(answer);
        }
    }

    fn stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.line.stopped()
    }
}
