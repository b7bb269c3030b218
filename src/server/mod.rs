//! MCP's methods: one file per feature, one table of methods.
//!
//! ```text
//!   Inbound ──Server::receive──▶ Action ┬ Nothing
//!                                       ├ Answer   send it
//!                                       ├ Call     may block: do it on a thread, which sends its answer
//!                                       ├ Subscribe keep it, send it changes
//!                                       ├ Cancel   stop the call or subscription of that id
//!                                       └ Batch    all of that, answered as one array
//! ```
//! In scope: which methods there are (`methods`), reading their params, doing them (`call`). Not in scope: protocol
//! rules (`protocol`), what a tool does (`tools`), threads and I/O (`transport`).

mod call;
mod completion;
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
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::access::Caller;
use crate::account::{QuotaExceeded, Reservation, Resource};
use crate::fabric::{Snapshot, too_many};
use crate::os::random;
use crate::protocol::inbound::{cancelled, is_modern};
use crate::protocol::jsonrpc::{self, Invalid, Message};
use crate::protocol::pages::{self, Cursor};
use crate::protocol::{
    Answer, Id, Inbound, Meta, Node, Params, Refusal, RequestContext, RequestHeaders, ResultWriter,
    Revision, Session, without_handshake,
};
use crate::sync::lock;
use crate::text::shown;
use crate::tools::{Backend, CallHead, CallPlan, Context};

pub(crate) use call::{Call, here, refuse};
pub(crate) use skills::Skills;
pub(crate) use subscriptions::{Registration, SubscribeRequest};
pub(crate) use tools::tools_json;

use methods::{METHODS, Method};
use subscriptions::Subscriptions;

/// How to handle a message.
pub(crate) enum Action {
    /// Nothing: a notification, or a response.
    Nothing,
    /// Send this.
    Answer(Answer),
    /// Run this on a thread that may block, then send its answer.
    Call(Box<Call>),
    /// Keep this subscription until it is cancelled or the server ends.
    Subscribe(Box<SubscribeRequest>),
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
    head: CallHead,
    params: Option<&'a Node<'a>>,
    /// The memory that its params take.
    memory: Reservation,
    session: &'a Session,
}

impl Request<'_> {
    /// Its revision and the like.
    fn context(&self) -> &RequestContext {
        &self.head.request
    }

    /// Reads the cursor of a list that changes. A legacy client that reads such a list is told of changes.
    fn cursor_of_changing_list(&self) -> Result<Cursor, Refusal> {
        if self.context().revision.is_legacy() {
            self.session.follows_lists.store(true, Ordering::Relaxed);
        }
        pages::cursor(self.params)
    }

    /// The action that does `work` as a call.
    fn call(
        self,
        work: impl FnOnce(&Arc<Context>, &mut ResultWriter) -> Result<(), Refusal> + Send + 'static,
    ) -> Action {
        Action::Call(Box::new(Call {
            head: Arc::new(self.head),
            memory: self.memory,
            work: Box::new(work),
        }))
    }
}

impl Server {
    /// A server with this backend.
    pub(crate) fn new(backend: Backend) -> Server {
        let backend = Arc::new(backend);
        let subscriptions = Arc::new(Subscriptions::new(backend.clone()));
        let listeners = subscriptions.clone();
        backend.fabric.on_change(move || listeners.lists_changed());
        Server {
            backend,
            subscriptions,
            tools: tools::Lists::default(),
        }
    }

    /// The action for a message of `caller` on the connection of `session`. `headers` are those of HTTP that repeat parts of a
    /// modern request.
    pub(crate) fn receive(
        &self,
        session: &Session,
        inbound: Inbound<'_>,
        headers: Option<&RequestHeaders<'_>>,
        caller: &Arc<Caller>,
    ) -> Action {
        let receiver = Receiver {
            server: self,
            session,
            modern: inbound.modern,
            headers,
            caller,
        };
        let is_batch = inbound.is_batch;
        if is_batch && (inbound.modern || session.revision() != Some(Revision::R2025_03_26)) {
            let reason = "Arrays of messages exist only in 2025-03-26: send one message at a time.";
            return receiver.refuse(Refusal::new(jsonrpc::INVALID_REQUEST, reason), None);
        }
        let messages = inbound.messages.iter();
        let mut actions = messages.map(|message| receiver.message(message, is_batch));
        match is_batch {
            true => Action::Batch(actions.collect()),
            false => actions.next().unwrap_or(Action::Nothing),
        }
    }
}

/// Decides what to do about the messages of one line or body.
struct Receiver<'a, 'h> {
    server: &'a Server,
    session: &'a Session,
    modern: bool,
    headers: Option<&'a RequestHeaders<'h>>,
    caller: &'a Arc<Caller>,
}

impl Receiver<'_, '_> {
    fn message(&self, message: &Result<Message<'_>, Invalid>, is_batch: bool) -> Action {
        match message {
            Err((id, code, reason)) => self.refuse(Refusal::new(*code, *reason), id.as_ref()),
            Ok(Message::Request(request))
                if is_batch && (request.method == "initialize" || is_modern(request, false)) =>
            {
                let reason = "This request cannot be part of a batch: send it by itself.";
                let refusal = Refusal::new(jsonrpc::INVALID_REQUEST, reason);
                self.refuse(refusal, Some(&request.id))
            }
            Ok(Message::Request(request)) => {
                let refused = |refusal| self.refuse(refusal, Some(&request.id));
                self.request(request).unwrap_or_else(refused)
            }
            Ok(_) => cancelled(message).map_or(Action::Nothing, Action::Cancel),
        }
    }

    fn request(&self, request: &jsonrpc::RequestMessage<'_>) -> Result<Action, Refusal> {
        let params = request.params.as_ref();
        let meta = Meta::read(params).map_err(Refusal::of_envelope)?;
        if let Some(fault) = params.and_then(Node::fault) {
            return Err(Refusal::params(fault).of_envelope());
        }
        let context = self.context(request, &meta)?;
        let revision = context.revision;
        let is_meant = |(name, revisions, _): &&Method| {
            *name == request.method && revisions.contains(&revision)
        };
        let (method, _, read) = METHODS.iter().find(is_meant).ok_or_else(|| {
            let name = shown(&request.method, 64);
            let detail = format!("There is no method \"{name}\" here.");
            Refusal::new(jsonrpc::METHOD_NOT_FOUND, detail)
        })?;
        if !revision.is_legacy() {
            // Nothing is ever asked for, so no more is read of the answers.
            let usage = "params.inputResponses must be an object.";
            Params::new(params, usage).members("inputResponses")?;
        }
        let memory = params.map_or(0, Node::size);
        let memory = self.caller.account.take(Resource::Memory, memory);
        let memory = memory.map_err(|QuotaExceeded| too_many())?;
        let request = Request {
            head: CallHead {
                caller: self.caller.clone(),
                id: request.id.clone(),
                method,
                request: context,
                request_id: random::request_id(),
                tool: None,
                ttl: None,
                plan: CallPlan::default(),
            },
            params,
            memory,
            session: self.session,
        };
        read(self.server, request)
    }

    /// The request's context, after all checks of the envelope.
    fn context(
        &self,
        request: &jsonrpc::RequestMessage<'_>,
        meta: &Meta<'_>,
    ) -> Result<RequestContext, Refusal> {
        if self.modern {
            let context = meta.modern(request, self.headers);
            return context.map_err(Refusal::of_envelope);
        }
        let begins = matches!(&*request.method, "initialize" | "ping");
        let revision = self.session.revision();
        let revision = revision.or(begins.then_some(Revision::NEWEST_LEGACY));
        let revision = revision.ok_or_else(|| {
            let without = without_handshake();
            Refusal::params(format!(
                "No version is agreed on yet: send initialize first, or {without}"
            ))
        })?;
        Ok(RequestContext {
            revision,
            level: *lock(&self.session.level),
            progress_token: meta.progress_token()?,
            tasks: false,
        })
    }

    fn refuse(&self, refusal: Refusal, id: Option<&Id>) -> Action {
        let no_id = self.session.no_id();
        Action::Answer(refuse(refusal, id.or(no_id.as_ref()), self.modern))
    }
}

/// How long a client may cache data of a snapshot: not longer than its own time-to-live.
fn while_fresh(snapshot: &Snapshot) -> Option<Duration> {
    Some(snapshot.until.saturating_duration_since(Instant::now()))
}
