//! MCP's methods: one file per feature, one table of methods.
//!
//! ```text
//!   Inbound ──Server::receive──▶ Action ┬ Nothing
//!                                       ├ Answer   send it
//!                                       ├ Call     may block: do it on a thread, which sends its answer
//!                                       ├ Listen   keep it, send it changes
//!                                       ├ Cancel   stop the call or subscription of that id
//!                                       └ Batch    all of that, answered as one array
//! ```
//! In scope: which methods there are (`methods`), reading their params, doing them (`call`). Not in scope: protocol
//! rules (`protocol`), what a tool does (`tools`), threads and I/O (`transport`).

mod call;
mod completion;
mod local;
mod methods;
mod prompts;
mod resources;
mod skills;
mod subscriptions;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;
use std::time::Instant;

use crate::access::{Identity, Pass};
use crate::account::{Account, Full, Guard, Resource};
use crate::fabric::{Snapshot, too_many};
use crate::protocol::inbound::{cancelled, is_modern};
use crate::protocol::jsonrpc::{self, Incoming, Invalid, Message};
use crate::protocol::pages::{self, Cursor};
use crate::protocol::{
    Answer, Cache, Id, Inbound, Meta, Mirror, Node, Refusal, RequestContext, ResultWriter,
    Revision, Session, without_handshake,
};
use crate::runs::Owner;
use crate::text::shown;
use crate::tools::{Backend, Caller, Context, Peer, ToolCall};

pub(crate) use call::{Call, refuse};
pub(crate) use local::Audience;
pub(crate) use subscriptions::{Listen, Listener, Registration};
pub(crate) use tools::tools_json;

use methods::Method;
use subscriptions::Subscriptions;

/// How many copies of a request's params exist at once: decoded, and encoded for Fabric.
const COPIES: usize = 2;

/// Answers up to this size that need no Fabric are not charged: each connection has at most one. Bytes.
const UNCOUNTED: usize = 64 << 10;

/// How to handle a message.
pub(crate) enum Action {
    /// Nothing: a notification, or a response.
    Nothing,
    /// Send this.
    Answer(Answer),
    /// Run this on a thread that may block, then send its answer.
    Call(Box<Call>),
    /// Keep this subscription until it is cancelled or the server ends.
    Listen(Box<Listen>),
    /// Stop the call or subscription of this id, if any. Nothing more is sent for it.
    Cancel(Id),
    /// Do all of this, in order; send the answers as one array when all are complete, or nothing if there are none.
    Batch(Vec<Action>),
}

/// All features with their shared state. One per process.
pub(crate) struct Server {
    /// Fabric, the runs, and what callers hold.
    pub(crate) backend: Arc<Backend>,
    /// The subscribers to changed lists and tasks.
    pub(crate) subscriptions: Arc<Subscriptions>,
    tools: tools::Lists,
}

/// A request with a checked envelope, from which a feature reads its params.
struct Request<'a> {
    id: Id,
    method: &'static str,
    params: Option<&'a Node<'a>>,
    context: RequestContext,
    /// What its params hold of memory.
    memory: Guard,
    session: &'a Arc<Session>,
}

impl Request<'_> {
    /// Begins a result that needs no call.
    fn result(&self) -> ResultWriter {
        ResultWriter::new(&self.id, self.context.revision)
    }

    /// Reads the cursor of a list that changes. A legacy client that reads such a list is told of changes.
    fn cursor_of_changing_list(&self) -> Result<Cursor, Refusal> {
        if self.context.revision.is_legacy() {
            self.session.follow_lists();
        }
        pages::cursor(self.params)
    }

    /// The action that does `work` as a call.
    fn call(
        self,
        work: impl FnOnce(&Arc<Context>, &mut ResultWriter) -> Result<(), Refusal> + Send + 'static,
    ) -> Action {
        self.call_in(Resource::Calls, None, work)
    }

    /// The same with another kind of place, or for a tool.
    fn call_in(
        self,
        place: Resource,
        tool: Option<ToolCall>,
        work: impl FnOnce(&Arc<Context>, &mut ResultWriter) -> Result<(), Refusal> + Send + 'static,
    ) -> Action {
        Action::Call(Box::new(Call::new(self, place, tool, Box::new(work))))
    }
}

impl Server {
    /// A server with this backend.
    pub(crate) fn new(backend: Backend) -> Server {
        let subscriptions = Arc::new(Subscriptions::new(
            backend.catalog.clone(),
            backend.settings.keep,
        ));
        let listeners = subscriptions.clone();
        backend.catalog.on_change(move || listeners.lists_changed());
        Server {
            backend: Arc::new(backend),
            subscriptions,
            tools: tools::Lists::default(),
        }
    }

    /// The account of a caller.
    pub(crate) fn account(&self, identity: &Identity) -> Account {
        self.backend.accounts.of(identity)
    }

    /// The caller of a call, whom `peer` tells.
    pub(crate) fn caller(&self, pass: &Arc<Pass>, peer: Arc<dyn Peer>) -> Caller {
        let account = self.account(&pass.identity);
        Caller {
            owner: self.owner(&pass.identity),
            pass: pass.clone(),
            account,
            peer,
        }
    }

    /// The owner of a caller's runs.
    pub(crate) fn owner(&self, identity: &Identity) -> Owner {
        match identity {
            Identity::Local if self.backend.runs.has_folder() => Owner::Folder,
            Identity::Local => Owner::Process,
            Identity::Peer(_) => Owner::Key,
            named => Owner::Named(named.to_string()),
        }
    }

    /// The action for a message on the connection of `session`. `mirror` holds the HTTP headers that repeat parts of a
    /// modern request.
    pub(crate) fn receive(
        &self,
        session: &Arc<Session>,
        inbound: Inbound<'_>,
        mirror: Option<&Mirror<'_>>,
        account: &Account,
    ) -> Action {
        let modern = inbound.modern;
        let receiver = Receiver {
            server: self,
            session,
            modern,
            mirror,
            account,
        };
        match inbound.incoming {
            Err(invalid) => Action::Answer(receiver.unreadable(&invalid)),
            Ok(Incoming::One(message)) => receiver.one(&message),
            Ok(Incoming::Batch(items)) => {
                if modern || !session.revision().is_some_and(Revision::has_batches) {
                    let reason =
                        "Arrays of messages exist only in 2025-03-26: send one message at a time.";
                    return Action::Answer(receiver.invalid(reason, None));
                }
                let in_batch = |item| receiver.in_batch(item);
                Action::Batch(items.into_iter().map(in_batch).collect())
            }
        }
    }
}

/// Decides what to do about the messages of one line or body.
struct Receiver<'a> {
    server: &'a Server,
    session: &'a Arc<Session>,
    modern: bool,
    mirror: Option<&'a Mirror<'a>>,
    account: &'a Account,
}

impl Receiver<'_> {
    fn in_batch(&self, item: Result<Message<'_>, Invalid>) -> Action {
        match &item {
            Err(invalid) => Action::Answer(self.unreadable(invalid)),
            Ok(Message::Request(request))
                if request.method == "initialize" || is_modern(request, false) =>
            {
                let reason = "This request cannot be part of a batch: send it by itself.";
                Action::Answer(self.invalid(reason, Some(&request.id)))
            }
            Ok(message) => self.one(message),
        }
    }

    fn one(&self, message: &Message<'_>) -> Action {
        match message {
            Message::Response => Action::Nothing,
            Message::Notification { method, params } => {
                cancelled(method, params.as_ref()).map_or(Action::Nothing, Action::Cancel)
            }
            Message::Request(request) => {
                let refused = |refusal| self.refuse(refusal, Some(&request.id));
                let mut answer = match self.request(request) {
                    Ok(Action::Answer(answer)) => answer,
                    Ok(action) => return action,
                    Err(refusal) => refused(refusal),
                };
                // An error may repeat a requested name of any length.
                if answer.body.len() > UNCOUNTED && answer.charge(self.account).is_err() {
                    answer = refused(too_many().into());
                }
                Action::Answer(answer)
            }
        }
    }

    fn request(&self, request: &jsonrpc::RequestMessage<'_>) -> Result<Action, Refusal> {
        let params = request.params.as_ref();
        let meta = Meta::read(params).map_err(Refusal::of_envelope)?;
        if let Some(fault) = request.fault {
            return Err(Refusal::params(fault).of_envelope());
        }
        let (method, context) = self.find(request, &meta)?;
        let size = params.map_or(0, Node::size) * COPIES;
        let memory = self.account.take(Resource::Memory, size);
        let memory = memory.map_err(|Full| too_many())?;
        let request = Request {
            id: request.id.clone(),
            method: method.name,
            params,
            context,
            session: self.session,
            memory,
        };
        (method.read)(self.server, request)
    }

    /// The method, and the request's context, after all checks of the envelope.
    fn find(
        &self,
        request: &jsonrpc::RequestMessage<'_>,
        meta: &Meta<'_>,
    ) -> Result<(&'static Method, RequestContext), Refusal> {
        let method = Method::named(&request.method);
        let context = if self.modern {
            let mirror = self
                .mirror
                .map(|mirror| (mirror, method.and_then(|method| method.mirrored)));
            meta.modern(request, mirror).map_err(Refusal::of_envelope)?
        } else {
            match (
                self.session.revision(),
                method.filter(|method| method.is_lifecycle()),
            ) {
                (revision, Some(_)) => {
                    RequestContext::of(revision.unwrap_or(Revision::NEWEST_LEGACY))
                }
                (Some(revision), None) => meta.legacy(revision)?,
                (None, None) => {
                    let without = without_handshake();
                    return Err(Refusal::params(format!(
                        "Nothing is agreed on yet: send initialize first, or {without}"
                    )));
                }
            }
        };
        let method = method
            .filter(|method| method.is_in(context.revision))
            .ok_or_else(|| {
                Refusal::new(
                    jsonrpc::METHOD_NOT_FOUND,
                    format!(
                        "There is no method \"{}\" here.",
                        shown(&request.method, 64)
                    ),
                )
            })?;
        Ok((method, context))
    }

    fn refuse(&self, refusal: Refusal, id: Option<&Id>) -> Answer {
        refuse(refusal, id, self.session.no_id(), self.modern)
    }

    /// The answer to what is no message.
    fn unreadable(&self, invalid: &Invalid) -> Answer {
        let refusal = Refusal::new(invalid.code, invalid.reason);
        self.refuse(refusal, invalid.id.as_ref())
    }

    /// The answer to a message that is not allowed here.
    fn invalid(&self, reason: &str, id: Option<&Id>) -> Answer {
        self.refuse(Refusal::new(jsonrpc::INVALID_REQUEST, reason), id)
    }
}

/// How long a client may cache data of a snapshot: not longer than its own time-to-live.
fn while_fresh(snapshot: &Snapshot) -> Cache {
    Cache::private(snapshot.until.saturating_duration_since(Instant::now()))
}
