//! One client on a pipe of its own, over which messages go both ways in any order: stdin and stdout, or an HTTP+SSE
//! session.
//!
//! ```text
//!   message ─▶ server ─┬─ an answer ──────────────────────────────▶ Line
//!                      ├─ a call ─▶ thread ─▶ notifications, answer ─▶ Line
//!                      └─ a subscription ─▶ kept, told of changes ───▶ Line
//! ```
//! What is cheap is answered where messages are read, and each call gets a thread, so that `notifications/cancelled` and
//! `ping` work meanwhile. In scope: ids in use, batches, cancelling, the end. Not in scope: how messages are framed.

use std::sync::{Arc, OnceLock};

use crate::access::Caller;
use crate::account::Resource;
use crate::fabric::{Error, too_many};
use crate::protocol::{Answer, Id, Inbound, Session};
use crate::server::{Action, Call, Listen, Listener, Registration, Server};
use crate::tools::Peer;

use super::batch::Batch;
use super::inflight::{Cancel, Inflight, InflightListen};
use super::{read, start};

/// The sending side of a pipe: whole messages, from any thread.
pub(crate) trait Outlet: Send + Sync {
    /// Sends one message, in parts, unless `wanted` says no. It is asked when it is this message's turn, so that what is answered
    /// after a cancellation comes after everything of the cancelled call. What cannot be sent is dropped;
    /// [`Outlet::is_gone`] tells why.
    fn send_if(&self, message: &[&[u8]], wanted: &dyn Fn() -> bool);

    /// Sends one message.
    fn send(&self, message: &[&[u8]]) {
        self.send_if(message, &|| true);
    }

    /// Sends a notification of changed lists, which must not wait for this client: others are to be told too.
    fn tell(&self, message: &[u8]);

    /// Has the client left?
    fn is_gone(&self) -> bool;
}

/// One client.
pub(crate) struct Pipe {
    pub(super) server: Arc<Server>,
    /// Its state.
    pub(crate) session: Arc<Session>,
    /// Its requests that have no answer yet.
    pub(crate) inflight: Arc<Inflight>,
    line: Arc<dyn Outlet>,
    /// The registration of a legacy client that follows lists.
    follower: OnceLock<Registration>,
}

impl Pipe {
    /// A client that has sent nothing yet.
    pub(crate) fn new(server: Arc<Server>, session: Session, line: Arc<dyn Outlet>) -> Pipe {
        Pipe {
            server,
            session: Arc::new(session),
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
            Action::Answer(answer) => self.line.send(&answer.parts()),
            Action::Cancel(id) => self.inflight.cancel(&id),
            Action::Call(call) => {
                let cancel = self.inflight.begin(&call.head.id);
                self.call(*call, cancel, None);
            }
            Action::Listen(listen) => self.listen(&listen, caller),
            Action::Batch(actions) => self.batch(actions, caller),
        }
        if self.session.follows_lists() {
            self.follower.get_or_init(|| {
                let account = caller.account.clone();
                let listener = Listener::legacy(&self.server, account, sink(self.line.clone()));
                self.server.subscriptions.add(listener)
            });
        }
    }

    /// Ends all subscriptions, and tells the client.
    pub(crate) fn end_listening(&self) {
        for message in self.inflight.end_listening() {
            self.line.send(&[&message]);
        }
    }

    fn batch(&self, actions: Vec<Action>, caller: &Caller) {
        let Some((batch, calls)) = Batch::begin(actions, &self.inflight, &caller.account) else {
            return;
        };
        if calls.is_empty() {
            batch.send(|array| self.line.send(array));
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

    fn listen(&self, listen: &Listen, caller: &Caller) {
        let refuse = |error| self.line.send(&[&listen.fail(error).body]);
        let account = &caller.account;
        if account.is_closed() {
            return refuse(Error::stopped());
        }
        let Ok(share) = account.take(Resource::Streams, 1) else {
            return refuse(too_many());
        };
        let cancel = self.inflight.begin(&listen.id);
        // The acknowledgement comes first: only then can anything be told.
        self.line.send(&[&listen.acknowledgement()]);
        let listener = listen.listener(account.clone(), sink(self.line.clone()));
        let listen_on = InflightListen {
            _place: self.server.subscriptions.add(listener),
            _share: share,
            end: vec![listen.end().body, listen.cancelled()],
        };
        self.inflight.listen(&listen.id, &cancel, listen_on);
    }
}

/// Where notifications of changed lists go.
pub(super) fn sink(line: Arc<dyn Outlet>) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    move |message: &[u8]| {
        line.tell(message);
        !line.is_gone()
    }
}

/// The client of a call on a pipe.
struct PipePeer {
    line: Arc<dyn Outlet>,
    inflight: Arc<Inflight>,
    id: Id,
    cancel: Cancel,
    batch: Option<Arc<Batch>>,
}

impl Peer for PipePeer {
    fn notify(&self, message: &[u8]) {
        self.line
            .send_if(&[message], &|| !self.cancel.is_cancelled());
    }

    fn answer(&self, answer: Answer) {
        let wanted = self.inflight.finish(&self.id, &self.cancel);
        if let Some(batch) = &self.batch {
            if batch.answer(&self.id, wanted.then_some(answer)) {
                batch.send(|array| self.line.send(array));
            }
        } else if wanted {
            self.line.send(&[&answer.body]);
        }
    }

    fn stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.line.is_gone()
    }
}
