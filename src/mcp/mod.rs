//! The Model Context Protocol: takes a decoded message and says what to do. Nothing here reads or writes a socket,
//! starts a thread, or knows HTTP.
//!
//! ```text
//!   bytes ──inspect──> Inbound ──Server::receive──> Action ┬ Nothing
//!                                                          ├ Answer   send it
//!                                                          ├ Call     needs Fabric: run it somewhere, send its answer
//!                                                          ├ Listen   keep it, tell it of changes
//!                                                          ├ Cancel   stop the call or subscription of that id
//!                                                          └ Batch    all of that, answered as one array
//! ```
//! In scope: every rule of every revision. Not in scope: what a tool does (`tools`), how bytes come and go
//! (`transport`).

mod answer;
mod call;
mod completion;
mod lifecycle;
mod notifier;
mod outlet;
mod pages;
mod prompts;
mod resources;
mod revision;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tools;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::budget::{Full, MEMORY};
use crate::config::{MAX_BATCH_ANSWERS, MAX_VALUES};
use crate::fabric::{Catalog, Client, Error, Kind, no_room, too_many};
use crate::jsonrpc::{self, Id, Incoming, Invalid, Message};
use crate::text::shown;
use crate::tools::Policy;

pub(crate) use answer::{Answer, Refusal, error_object};
pub(crate) use call::Call;
pub(crate) use lifecycle::{Mirror, Session};
pub(crate) use outlet::Outlet;
pub(crate) use revision::Revision;
pub(crate) use subscriptions::{Listen, Listener, Registration};

use answer::ResultWriter;
use call::Work;
use lifecycle::{Caller, Meta};
use subscriptions::Subscriptions;

/// What to do about a message.
pub(crate) enum Action {
    /// Nothing: a notification, or an answer to something.
    Nothing,
    /// Send this.
    Answer(Answer),
    /// Run this where it may take its time, then send its answer.
    Call(Box<Call>),
    /// Keep this until it is cancelled or we end.
    Listen(Box<Listen>),
    /// Stop the call or subscription of this id, if there is one. Nothing is sent for it from then on.
    Cancel(Id),
    /// Do all of this, in order; send the answers as one array when all are there, or nothing if there are none.
    Batch(Vec<Action>),
}

impl Action {
    /// Bytes of the answer, if it is one.
    pub(crate) fn answered(&self) -> usize {
        if let Action::Answer(answer) = self { answer.body.len() } else { 0 }
    }
}

/// One line or body, read as far as a transport has to know it before anything is done.
pub(crate) struct Inbound<'a> {
    incoming: Result<Incoming<'a>, Invalid>,
    modern: bool,
    initialize: bool,
}

/// Reads one line or body. `modern_header` is for HTTP: its `MCP-Protocol-Version` is 2026-07-28 or later.
pub(crate) fn inspect(bytes: &[u8], modern_header: bool) -> Inbound<'_> {
    let incoming = jsonrpc::read(bytes);
    let (modern, initialize) = match &incoming {
        Ok(Incoming::One(Message::Request { method, params, .. })) => {
            let modern = is_modern(method, &Meta::read(*params).unwrap_or_default(), modern_header);
            (modern, !modern && method == "initialize")
        }
        _ => (modern_header, false),
    };
    Inbound { incoming, modern, initialize }
}

/// The era of a request, as its own envelope says, else its method, else HTTP's header.
fn is_modern(method: &str, meta: &Meta<'_>, modern_header: bool) -> bool {
    meta.is_modern() || method == "server/discover" || (modern_header && method != "initialize")
}

impl Inbound<'_> {
    /// Is it of the stateless era?
    pub(crate) fn is_modern(&self) -> bool {
        self.modern
    }

    /// Does it open a legacy session?
    pub(crate) fn is_initialize(&self) -> bool {
        self.initialize
    }

    /// Refuses every request whose id is in flight on its connection, as `in_use` says, or occurs twice in its batch. The
    /// first one goes on. To be called before [`Server::receive`], where ids are shared: not for modern HTTP.
    pub(crate) fn refuse_ids(&mut self, in_use: impl Fn(&Id) -> bool) {
        let refusal = |id: &Id| Invalid { id: Some(id.clone()), code: jsonrpc::INVALID_REQUEST, reason: ID_IN_USE };
        match &mut self.incoming {
            Ok(Incoming::One(Message::Request { id, .. })) if in_use(id) => self.incoming = Err(refusal(id)),
            Ok(Incoming::Batch(items)) => {
                let mut seen = HashSet::new();
                for item in items {
                    if let Ok(Message::Request { id, .. }) = item
                        && (in_use(id) || !seen.insert(id.clone()))
                    {
                        *item = Err(refusal(id));
                    }
                }
            }
            _ => {}
        }
    }

    /// Is it no message at all, so that it cannot belong to any session?
    pub(crate) fn is_unreadable(&self) -> bool {
        self.incoming.is_err()
    }

    /// The id of a single request.
    pub(crate) fn id(&self) -> Option<&Id> {
        match &self.incoming {
            Ok(Incoming::One(Message::Request { id, .. })) => Some(id),
            _ => None,
        }
    }

    /// Will it be answered?
    pub(crate) fn is_request(&self) -> bool {
        match &self.incoming {
            Ok(Incoming::One(message)) => matches!(message, Message::Request { .. }),
            Ok(Incoming::Batch(items)) => {
                !items.iter().all(|m| matches!(m, Ok(Message::Notification { .. } | Message::Response)))
            }
            Err(_) => true,
        }
    }
}

/// The protocol, with what its answers are made from. One for the whole process.
pub(crate) struct Server {
    fabric: Arc<Client>,
    catalog: Arc<Catalog>,
    policy: Policy,
    subscriptions: Arc<Subscriptions>,
    tools: tools::Lists,
}

impl Server {
    /// A server in front of `fabric`.
    pub(crate) fn new(fabric: Arc<Client>, catalog: Arc<Catalog>, policy: Policy) -> Server {
        let subscriptions = Arc::new(Subscriptions::default());
        let listeners = subscriptions.clone();
        catalog.on_change(move || listeners.lists_changed());
        Server { fabric, catalog, policy, subscriptions, tools: tools::Lists::default() }
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
        Server::new(fabric, catalog, Policy::default())
    }

    /// Fabric, for those who ask it something outside of any call.
    pub(crate) fn fabric(&self) -> &Arc<Client> {
        &self.fabric
    }

    /// Whoever wants to hear of changes.
    pub(crate) fn subscriptions(&self) -> &Arc<Subscriptions> {
        &self.subscriptions
    }

    /// The catalogue behind prompts, resources and completion.
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Says what to do about a message on the connection of `session`. `mirror` is what HTTP's headers repeat of a
    /// modern request.
    pub(crate) fn receive(&self, session: &Arc<Session>, inbound: Inbound<'_>, mirror: Option<&Mirror>) -> Action {
        match inbound.incoming {
            Err(invalid) => Action::Answer(refuse(session, invalid, inbound.modern)),
            Ok(Incoming::One(message)) => self.one(session, message, inbound.modern, mirror, false),
            Ok(Incoming::Batch(items)) => {
                if inbound.modern || !session.revision().is_some_and(Revision::has_batches) {
                    let reason = "Arrays of messages exist only in 2025-03-26: send one message at a time.";
                    let invalid = Invalid { id: None, code: jsonrpc::INVALID_REQUEST, reason };
                    return Action::Answer(refuse(session, invalid, inbound.modern));
                }
                let mut answered = 0;
                Action::Batch(items.into_iter().map(|item| self.in_batch(session, item, &mut answered)).collect())
            }
        }
    }

    /// `answered` is how many bytes of answers to its batch there are already.
    fn in_batch(&self, session: &Arc<Session>, item: Result<Message<'_>, Invalid>, answered: &mut usize) -> Action {
        let id = match &item {
            Ok(Message::Request { id, .. }) => Some(id.clone()),
            _ => None,
        };
        let (mut answer, id) = match (self.item(session, item), id) {
            (Action::Answer(answer), Some(id)) => (answer, id),
            (action, _) => return action,
        };
        let refused = |error| Refusal::from_fabric(error).answer(Some(&id), session.no_id(), false);
        if *answered + answer.body.len() > MAX_BATCH_ANSWERS {
            answer = refused(batch_full());
        } else if answer.charge(true).is_err() {
            answer = refused(no_room());
        }
        *answered += answer.body.len();
        Action::Answer(answer)
    }

    fn item(&self, session: &Arc<Session>, item: Result<Message<'_>, Invalid>) -> Action {
        match item {
            Err(invalid) => Action::Answer(refuse(session, invalid, false)),
            Ok(Message::Request { id, method, params })
                if method == "initialize" || is_modern(&method, &Meta::read(params).unwrap_or_default(), false) =>
            {
                let reason = "This request cannot be part of a batch: send it by itself.";
                Action::Answer(refuse(session, Invalid { id: Some(id), code: jsonrpc::INVALID_REQUEST, reason }, false))
            }
            Ok(message) => self.one(session, message, false, None, true),
        }
    }

    fn one(
        &self,
        session: &Arc<Session>,
        message: Message<'_>,
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
                let request = Request { id, method: &method, params, in_batch };
                let refused = |refusal: Refusal| refusal.answer(Some(&request.id), session.no_id(), modern);
                let mut answer = match self.request(session, &request, modern, mirror) {
                    Ok(Action::Answer(answer)) => answer,
                    Ok(action) => return action,
                    Err(refusal) => refused(refusal),
                };
                // A refusal may repeat what was asked for, however long.
                if answer.body.len() > UNCOUNTED && answer.charge(in_batch).is_err() {
                    answer = refused(Refusal::from_fabric(too_many()));
                }
                Action::Answer(answer)
            }
        }
    }

    fn request(
        &self,
        session: &Arc<Session>,
        request: &Request<'_>,
        modern: bool,
        mirror: Option<&Mirror>,
    ) -> Result<Action, Refusal> {
        let Request { id, method, params, .. } = request;
        let meta = Meta::read(*params).map_err(Refusal::of_envelope)?;
        if modern {
            let caller = meta.modern(method, *params, mirror).map_err(Refusal::of_envelope)?;
            return match *method {
                "server/discover" => Ok(Action::Answer(lifecycle::discover(id, caller.revision))),
                "subscriptions/listen" => Ok(Action::Listen(Box::new(Listen::new(id, caller.revision, *params)?))),
                _ => self.feature(session, request, caller),
            };
        }
        if *method == "initialize" {
            return lifecycle::initialize(session, id, *params).map(Action::Answer);
        }
        let empty = |revision| Ok(Action::Answer(ResultWriter::new(id, revision).end(serde_json::Map::new())));
        let Some(revision) = session.revision() else {
            return match *method {
                "ping" => empty(Revision::NEWEST_LEGACY),
                _ => Err(Refusal::params(
                    "Nothing is agreed on yet: send initialize first, or put io.modelcontextprotocol/protocolVersion \
                     (2026-07-28) and clientCapabilities into params._meta of each request.",
                )),
            };
        };
        match *method {
            "ping" => empty(revision),
            "logging/setLevel" => lifecycle::set_level(session, *params).and_then(|()| empty(revision)),
            "prompts/list" | "resources/list" => {
                session.follow_lists();
                self.feature(session, request, meta.legacy(revision)?)
            }
            _ => self.feature(session, request, meta.legacy(revision)?),
        }
    }

    /// The methods that both eras have.
    fn feature(&self, session: &Arc<Session>, request: &Request<'_>, caller: Caller) -> Result<Action, Refusal> {
        let Request { id, method, params, .. } = request;
        let length = params.map_or(0, |raw| raw.get().len());
        if length > MAX_VALUES && !params.is_none_or(|raw| jsonrpc::has_at_most(raw.get(), MAX_VALUES)) {
            return Err(Refusal::params(format!("params hold more than {MAX_VALUES} values, the limit.")));
        }
        let mut memory = MEMORY.open();
        if request.in_batch {
            memory = memory.without_reserve();
        }
        // What was decoded, and what is made of it for Fabric; a prompt's arguments are copied once more.
        let copies = if *method == "tools/call" { 2 } else { 3 };
        if let Err(Full) = memory.grow(length * copies) {
            return match *method {
                "tools/call" => Ok(Action::Answer(tools::refused(id, caller.revision, too_many()))),
                _ => Err(Refusal::from_fabric(too_many())),
            };
        }
        let work = match *method {
            "tools/list" => return self.tools.list(id, caller.revision, *params).map(Action::Answer),
            "resources/templates/list" => {
                return resources::templates(id, caller.revision, *params).map(Action::Answer);
            }
            "tools/call" => match tools::call(*params, caller.revision, &self.policy)? {
                tools::Prepared::Job { tool, job } => Work::Tool { tool, job },
                tools::Prepared::Refused(error) => {
                    return Ok(Action::Answer(tools::refused(id, caller.revision, error)));
                }
            },
            "prompts/list" => Work::PromptsList { cursor: pages::cursor(*params)? },
            "prompts/get" => Work::PromptsGet(prompts::Get::read(*params)?),
            "resources/list" => Work::ResourcesList { cursor: pages::cursor(*params)? },
            "resources/read" => Work::ResourcesRead(resources::Read::parse(*params, caller.revision)?),
            "completion/complete" => Work::Complete(completion::Complete::read(*params)?),
            other => {
                let shown = shown(other, 64);
                return Err(Refusal::new(jsonrpc::METHOD_NOT_FOUND, format!("There is no method \"{shown}\" here.")));
            }
        };
        Ok(Action::Call(Box::new(Call::new(request, caller, session.clone(), work, memory))))
    }
}

/// One request, taken apart.
struct Request<'a> {
    id: Id,
    method: &'a str,
    params: Option<&'a RawValue>,
    in_batch: bool,
}

/// An answer up to this size that needs no Fabric is not counted: a connection has one. Bytes.
const UNCOUNTED: usize = 64 << 10;

/// The answers to a batch are as long as they may be, without this one.
pub(crate) fn batch_full() -> Error {
    let detail = format!(
        "The answers to this batch would have more than {} MiB together, the limit. Send this request by itself.",
        MAX_BATCH_ANSWERS >> 20
    );
    Error::new(Kind::ResponseTooLarge, detail)
}

/// Why a request is refused whose id is that of another one without an answer.
pub(crate) const ID_IN_USE: &str =
    "This id is in use by a request that has no answer yet: give every request an id of its own.";

fn refuse(session: &Session, invalid: Invalid, modern: bool) -> Answer {
    Refusal::new(invalid.code, invalid.reason).answer(invalid.id.as_ref(), session.no_id(), modern)
}

/// The id that a `notifications/cancelled` names. Anything else, and anything malformed, is ignored as the
/// specification asks.
fn cancelled(method: &str, params: Option<&RawValue>) -> Option<Id> {
    if method != "notifications/cancelled" {
        return None;
    }
    let [id] = jsonrpc::members(params?.get(), ["requestId"]).ok()?;
    Id::from_raw(id?)
}

/// The members of a method's params that have these names, or of an object in them, in their order and raw; those of
/// `{}` if there are none.
///
/// # Errors
/// -32602 with `usage`, which says what the method takes.
fn params<'a, const N: usize>(
    params: Option<&'a RawValue>,
    names: [&str; N],
    usage: &str,
) -> Result<[Option<&'a RawValue>; N], Refusal> {
    jsonrpc::members(params.map_or("{}", RawValue::get), names).map_err(|_| Refusal::params(usage))
}

/// The string that a member must be, borrowed where it has no escapes.
///
/// # Errors
/// -32602 with `usage`, also if it is not there.
fn text<'a>(member: Option<&'a RawValue>, usage: &str) -> Result<Cow<'a, str>, Refusal> {
    member.and_then(jsonrpc::text).ok_or_else(|| Refusal::params(usage))
}

/// The same for one that may be left out.
fn optional_text<'a>(member: Option<&'a RawValue>, usage: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    given(member).map(|member| text(Some(member), usage)).transpose()
}

/// A member that may be left out, where `null` is as good as that.
fn given(member: Option<&RawValue>) -> Option<&RawValue> {
    member.filter(|raw| raw.get() != "null")
}
