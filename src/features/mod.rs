//! MCP's methods: one file per feature, one table of methods.
//!
//! ```text
//!   Inbound ──Server::receive──▶ Action ┬ Nothing
//!                                       ├ Answer   send it
//!                                       ├ Call     needs Fabric: run it somewhere, send its answer
//!                                       ├ Listen   keep it, send it changes
//!                                       ├ Cancel   stop the call or subscription of that id
//!                                       └ Batch    all of that, answered as one array
//! ```
//! In scope: which methods there are (`methods`), reading their params, running them (`call`). Not in scope: protocol
//! rules (`protocol`), what a tool does (`tools`), where calls run (`calls`), I/O (`transport`).

mod call;
mod completion;
mod methods;
mod notifier;
mod prompts;
mod refusal;
mod resources;
mod sink;
mod skills;
mod subscriptions;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::RawValue;

use crate::access::Identity;
use crate::budget::{Charge, MEMORY};
use crate::config::{self, MAX_BATCH_ANSWERS, MAX_VALUES};
use crate::fabric::{Catalog, Client, Error, Kind, Snapshot, no_room, too_many};
use crate::jsonrpc::{self, Id, Incoming, Invalid, Message};
use crate::protocol::inbound::{cancelled, is_modern};
use crate::protocol::{
    Answer, Cache, Inbound, Meta, Mirror, Refusal, RequestContext, ResultWriter, Revision, Session,
    without_handshake,
};
use crate::runs::{Owner, Runs};
use crate::text::shown;
use crate::tools::Policy;

pub(crate) use crate::tools::RunSlot;
pub(crate) use call::{Call, Visitor};
pub(crate) use refusal::refuse;
pub(crate) use sink::Sink;
pub(crate) use subscriptions::{Listen, Listener, Registration};

use call::Running;
use methods::Method;
use subscriptions::Subscriptions;

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

impl Action {
    /// Size of the answer in bytes; 0 for any other action.
    pub(crate) fn answered(&self) -> usize {
        if let Action::Answer(answer) = self {
            answer.body.len()
        } else {
            0
        }
    }
}

/// The store of runs, and how calls wait for them.
#[derive(Clone)]
pub(crate) struct Kept {
    /// The store.
    pub(crate) runs: Runs,
    /// The settings.
    pub(crate) settings: config::RunSettings,
    /// Whether callers are distinguished, so that each may list its own runs.
    pub(crate) lists: bool,
}

/// All features with their shared state. One per process.
pub(crate) struct Server {
    /// Fabric's client.
    pub(crate) fabric: Arc<Client>,
    /// The lists that prompts, resources and completion offer.
    pub(crate) catalog: Arc<Catalog>,
    policy: Policy,
    /// The subscribers to changed lists and tasks.
    pub(crate) subscriptions: Arc<Subscriptions>,
    tools: tools::Lists,
    skills: skills::Shelf,
    /// The runs.
    pub(crate) kept: Kept,
}

/// A request with a checked envelope, from which a feature parses its params.
struct Request<'a> {
    id: Id,
    method: &'static str,
    params: Option<&'a RawValue>,
    context: RequestContext,
    in_batch: bool,
    /// The budget charge of its params.
    memory: Charge,
    session: &'a Arc<Session>,
}

impl Request<'_> {
    /// The action that runs `operation` as a call.
    fn call(
        self,
        operation: impl Fn(&Running<'_>, &mut ResultWriter) -> Result<(), Refusal>
        + Send
        + Sync
        + 'static,
    ) -> Action {
        Action::Call(Box::new(Call::new(self, Box::new(operation))))
    }
}

impl Server {
    /// A server in front of `fabric`.
    pub(crate) fn new(
        fabric: Arc<Client>,
        catalog: Arc<Catalog>,
        policy: Policy,
        kept: Kept,
    ) -> Server {
        let subscriptions = Arc::new(Subscriptions::new(kept.settings.keep));
        let listeners = subscriptions.clone();
        catalog.on_change(move || listeners.lists_changed());
        Server {
            fabric,
            catalog,
            policy,
            subscriptions,
            tools: tools::Lists::default(),
            skills: skills::Shelf::default(),
            kept,
        }
    }

    /// A server whose Fabric cannot be reached, for tests of everything else.
    #[cfg(test)]
    pub(crate) fn without_fabric() -> Server {
        let time = std::time::Duration::from_secs(1);
        let settings = crate::config::Fabric {
            url: "http://127.0.0.1:9".into(),
            api_key: None,
            ca_file: None,
            connect_timeout: time,
            idle_timeout: time,
            run_timeout: time,
            request_timeout: time,
            models_timeout: time,
        };
        let fabric = Arc::new(Client::new(&settings).unwrap());
        let catalog = Arc::new(Catalog::new(fabric.clone(), time));
        // 0, so that no call is answered early on a busy machine.
        let settings = config::RunSettings {
            answer_within: std::time::Duration::ZERO,
            task_after: time,
            keep: time,
            state_dir: None,
        };
        let kept = Kept {
            runs: Runs::new(time, None, None),
            settings,
            lists: true,
        };
        Server::new(fabric, catalog, Policy::default(), kept)
    }

    /// The owner of a caller's runs.
    pub(crate) fn owner(&self, identity: &Identity) -> Owner {
        match identity {
            Identity::Local if self.kept.runs.has_folder() => Owner::Folder,
            Identity::Local => Owner::Process,
            Identity::Peer(_) => Owner::Key,
            named => Owner::Named(named.owner()),
        }
    }

    /// The action for a message on the connection of `session`. `mirror` holds the HTTP headers that repeat parts of a
    /// modern request.
    pub(crate) fn receive(
        &self,
        session: &Arc<Session>,
        inbound: Inbound<'_>,
        mirror: Option<&Mirror>,
    ) -> Action {
        let modern = inbound.modern;
        match inbound.incoming {
            Err(invalid) => Action::Answer(unreadable(session, invalid, modern)),
            Ok(Incoming::One(message)) => {
                self.one(session, message, inbound.meta, modern, mirror, false)
            }
            Ok(Incoming::Batch(items)) => {
                if modern || !session.revision().is_some_and(Revision::has_batches) {
                    let reason =
                        "Arrays of messages exist only in 2025-03-26: send one message at a time.";
                    let invalid = Invalid {
                        id: None,
                        code: jsonrpc::INVALID_REQUEST,
                        reason,
                    };
                    return Action::Answer(unreadable(session, invalid, modern));
                }
                let mut answered = 0;
                Action::Batch(
                    items
                        .into_iter()
                        .map(|item| self.in_batch(session, item, &mut answered))
                        .collect(),
                )
            }
        }
    }

    /// `answered` is the size of the batch's answers so far, in bytes.
    fn in_batch(
        &self,
        session: &Arc<Session>,
        item: Result<Message<'_>, Invalid>,
        answered: &mut usize,
    ) -> Action {
        let id = match &item {
            Ok(Message::Request { id, .. }) => Some(id.clone()),
            _ => None,
        };
        let (mut answer, id) = match (self.item(session, item), id) {
            (Action::Answer(answer), Some(id)) => (answer, id),
            (action, _) => return action,
        };
        let refused = |error: Error| refuse(error.into(), Some(&id), session.no_id(), false);
        if *answered + answer.body.len() > MAX_BATCH_ANSWERS {
            answer = refused(batch_full());
        } else if answer.charge(true).is_err() {
            answer = refused(no_room());
        }
        *answered += answer.body.len();
        Action::Answer(answer)
    }

    fn item(&self, session: &Arc<Session>, item: Result<Message<'_>, Invalid>) -> Action {
        let message = match item {
            Err(invalid) => return Action::Answer(unreadable(session, invalid, false)),
            Ok(message) => message,
        };
        let mut meta = Ok(Meta::default());
        if let Message::Request { id, method, params } = &message {
            meta = Meta::read(*params);
            if method == "initialize" || is_modern(method, &meta, false) {
                let reason = "This request cannot be part of a batch: send it by itself.";
                let invalid = Invalid {
                    id: Some(id.clone()),
                    code: jsonrpc::INVALID_REQUEST,
                    reason,
                };
                return Action::Answer(unreadable(session, invalid, false));
            }
        }
        self.one(session, message, meta, false, None, true)
    }

    fn one(
        &self,
        session: &Arc<Session>,
        message: Message<'_>,
        meta: Result<Meta<'_>, Refusal>,
        modern: bool,
        mirror: Option<&Mirror>,
        in_batch: bool,
    ) -> Action {
        match message {
            Message::Response => Action::Nothing,
            Message::Notification { method, params } => {
                cancelled(&method, params).map_or(Action::Nothing, Action::Cancel)
            }
            Message::Request { id, method, params } => {
                let refused = |refusal| refuse(refusal, Some(&id), session.no_id(), modern);
                let meta = meta.map_err(Refusal::of_envelope);
                let is_alone = meta.as_ref().is_ok_and(|meta| meta.is_alone);
                let found = meta
                    .and_then(|meta| self.find(session, &method, params, &meta, modern, mirror));
                let read = found.and_then(|(method, context)| {
                    let memory =
                        match (reserve(params, method.copies, in_batch)?, method.overloaded) {
                            (Some(memory), _) => memory,
                            (None, Some(overloaded)) => {
                                return Ok(Action::Answer(overloaded(&id, context.revision)));
                            }
                            (None, None) => return Err(too_many().into()),
                        };
                    let id = id.clone();
                    let params = params.filter(|_| !is_alone);
                    let request = Request {
                        id,
                        method: method.name,
                        params,
                        context,
                        session,
                        in_batch,
                        memory,
                    };
                    (method.read)(self, request)
                });
                let mut answer = match read {
                    Ok(Action::Answer(answer)) => answer,
                    Ok(action) => return action,
                    Err(refusal) => refused(refusal),
                };
                // An error may repeat a requested name of any length.
                if answer.body.len() > UNCOUNTED && answer.charge(in_batch).is_err() {
                    answer = refused(too_many().into());
                }
                Action::Answer(answer)
            }
        }
    }

    /// The method, and the request's context, after all checks of the envelope.
    fn find(
        &self,
        session: &Session,
        name: &str,
        params: Option<&RawValue>,
        meta: &Meta<'_>,
        modern: bool,
        mirror: Option<&Mirror>,
    ) -> Result<(&'static Method, RequestContext), Refusal> {
        let method = Method::named(name);
        let context = if modern {
            let mirror = mirror.map(|mirror| (mirror, method.and_then(|method| method.mirrored)));
            meta.modern(name, params, mirror)
                .map_err(Refusal::of_envelope)?
        } else {
            match (
                session.revision(),
                method.filter(|method| method.is_lifecycle),
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
                    format!("There is no method \"{}\" here.", shown(name, 64)),
                )
            })?;
        Ok((method, context))
    }
}

/// How long a client may cache data of a snapshot: not longer than its own time-to-live.
fn while_fresh(snapshot: &Snapshot) -> Cache {
    Cache::private(snapshot.until.saturating_duration_since(Instant::now()))
}

/// The answer to an invalid message, or one that is not allowed now.
fn unreadable(session: &Session, invalid: Invalid, modern: bool) -> Answer {
    refuse(
        Refusal::new(invalid.code, invalid.reason),
        invalid.id.as_ref(),
        session.no_id(),
        modern,
    )
}

/// A charge for `copies` of `params`; `None` if the budget is exhausted.
///
/// # Errors
/// -32602 for too many values.
fn reserve(
    params: Option<&RawValue>,
    copies: usize,
    in_batch: bool,
) -> Result<Option<Charge>, Refusal> {
    let text = params.map_or("", RawValue::get);
    if text.len() > MAX_VALUES && !jsonrpc::has_at_most(text, MAX_VALUES) {
        return Err(Refusal::params(format!(
            "params hold more than {MAX_VALUES} values, the limit."
        )));
    }
    let memory = MEMORY.open();
    let mut memory = if in_batch {
        memory.without_reserve()
    } else {
        memory
    };
    Ok(memory.grow(text.len() * copies).is_ok().then_some(memory))
}

/// The answers to this batch have reached their size limit.
pub(crate) fn batch_full() -> Error {
    let detail = format!(
        "The answers to this batch would have more than {} MiB together, the limit. Send this request by itself.",
        MAX_BATCH_ANSWERS >> 20
    );
    Error::new(Kind::ResponseTooLarge, detail)
}
