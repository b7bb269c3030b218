//! One client on a pipe of its own, over which messages go both ways in any order: stdin and stdout, or an HTTP+SSE
//! session.
//!
//! ```text
//!   message ─▶ mcp ─┬─ an answer ──────────────────────────────▶ Line
//!                   ├─ a call ─▶ worker ─▶ notifications, answer ─▶ Line
//!                   └─ a subscription ─▶ kept, told of changes ───▶ Line
//! ```
//! What is cheap is answered where messages are read and calls are handed to workers, so that
//! `notifications/cancelled` and `ping` work meanwhile. In scope: ids in use, batches, cancelling, the end. Not in scope:
//! how messages are framed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::panicking;

use crate::access::Pass;
use crate::budget::MEMORY;
use crate::fabric::{Error, Kind, too_many};
use crate::features::{Action, Call, Listen, Listener, Registration, Server, Sink, Visitor};
use crate::jsonrpc;
use crate::protocol::{Answer, Inbound, Session};
use crate::sync::lock;

use super::admission::{self, Admission, Stops};
use super::batch::Room;
use super::inflight::{Cancel, Inflight, Writing};
use super::poller::Poller;
use super::workers::Workers;

/// Subscriptions (`subscriptions/listen`) at once on one pipe.
const MAX_SUBSCRIPTIONS: usize = 64;

/// Must a message be on its way when [`Line::send`] returns, or does the sender flush soon?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    Now,
    Later,
}

/// The sending side of a pipe: whole messages, from any thread.
pub(crate) trait Line: Send + Sync {
    /// Sends one message, in parts, unless `wanted` says no. It is asked when it is this message's turn, so that what is answered
    /// after a cancellation comes after everything of the cancelled call. What cannot be sent is dropped;
    /// [`Line::is_gone`] tells why.
    fn send_if(&self, message: &[&[u8]], flush: Flush, wanted: &dyn Fn() -> bool);

    /// Sends one message.
    fn send(&self, message: &[&[u8]], flush: Flush) {
        self.send_if(message, flush, &|| true);
    }

    /// Sends a notification of changed lists, which must not wait for this client: others are to be told too.
    fn tell(&self, message: &[u8]);

    /// Has the client left?
    fn is_gone(&self) -> bool;
}

/// What the pipes of one process share.
#[derive(Clone)]
pub(crate) struct Services {
    /// The protocol.
    pub(crate) server: Arc<Server>,
    /// The threads of runs.
    pub(crate) workers: Arc<Workers>,
    /// The threads of calls that wait for runs, so that these can be cancelled meanwhile.
    pub(crate) waiters: Arc<Workers>,
    /// The threads of all other calls, so that these never wait for runs.
    pub(crate) helpers: Arc<Workers>,
    /// Which calls may run.
    pub(crate) admission: Arc<Admission>,
    /// Polls for changes.
    pub(crate) poller: Arc<Poller>,
}

/// One client.
pub(crate) struct Pipe {
    /// What the pipes share.
    pub(crate) services: Services,
    /// Its state.
    pub(crate) session: Arc<Session>,
    /// Its requests that have no answer yet.
    pub(crate) inflight: Arc<Inflight>,
    line: Arc<dyn Line>,
    /// Whether a subscription that we end is cancelled too: where no stream closes, the specification wants that.
    cancels_subscriptions: bool,
    /// The registration of a legacy client that follows lists.
    follower: OnceLock<Registration>,
}

impl Pipe {
    /// A client that has sent nothing yet.
    pub(crate) fn new(
        services: Services,
        session: Session,
        line: Arc<dyn Line>,
        cancels_subscriptions: bool,
    ) -> Pipe {
        Pipe {
            services,
            session: Arc::new(session),
            inflight: Arc::default(),
            line,
            cancels_subscriptions,
            follower: OnceLock::new(),
        }
    }

    /// Decides what to do about a message. Its bytes can be freed afterwards.
    pub(crate) fn read(&self, mut inbound: Inbound<'_>) -> Action {
        inbound.refuse_ids(|id| self.inflight.contains(id));
        self.services.server.receive(&self.session, inbound, None)
    }

    /// Carries out `action`, for the caller with this pass.
    pub(crate) fn act(&self, action: Action, pass: &Arc<Pass>) {
        self.act_in(action, pass, &CallReply::Line(self.line.clone()));
        if self.session.follows_lists() && self.follower.get().is_none() {
            let sink = Arc::new(Told(self.line.clone()));
            let _ = self.follower.set(
                self.services
                    .server
                    .subscriptions
                    .add(Listener::legacy(sink)),
            );
            self.services.poller.listened();
        }
    }

    /// Ends all subscriptions, and tells the client.
    pub(crate) fn end_listening(&self) {
        for message in self.inflight.end_listening() {
            self.line.send(&[&message], Flush::Later);
        }
    }

    fn act_in(&self, action: Action, pass: &Arc<Pass>, reply: &CallReply) {
        match action {
            Action::Nothing => {}
            Action::Answer(answer) => reply.send(answer, Flush::Later),
            Action::Cancel(id) => self.inflight.cancel(&id),
            Action::Call(call) => self.call(call, pass, reply),
            Action::Listen(mut listen) => {
                listen.admit(&self.services.server, &pass.identity);
                self.listen(&listen);
            }
            Action::Batch(actions) => {
                let room = Room::beside(&actions);
                let batch = CallReply::Batch(Arc::new(Batch {
                    room,
                    answers: Mutex::default(),
                    line: self.line.clone(),
                    _writing: Writing::begin(&self.inflight),
                }));
                for action in actions {
                    self.act_in(action, pass, &batch);
                }
            }
        }
    }

    fn call(&self, call: Box<Call>, pass: &Arc<Pass>, reply: &CallReply) {
        // Ids in use have been refused; but over HTTP two messages may come at the same moment.
        let Some(cancel) = self.inflight.begin(call.id()) else {
            return reply.send(super::duplicate(call.id(), call.is_modern()), Flush::Later);
        };
        let mut permit = match self.services.admission.admit(&call, pass) {
            Ok(permit) => permit,
            Err(error) => {
                self.inflight.finish(call.id(), &cancel);
                return reply.send(call.fail(error), Flush::Later);
            }
        };
        let workers = match (call.is_run(), call.waits()) {
            (true, _) => &self.services.workers,
            (false, true) => &self.services.waiters,
            (false, false) => &self.services.helpers,
        };
        let call = Arc::new(call);
        let job = {
            let (server, inflight, call, cancel, reply) = (
                self.services.server.clone(),
                self.inflight.clone(),
                call.clone(),
                cancel.clone(),
                reply.clone(),
            );
            let admission = self.services.admission.clone();
            let identity = pass.identity.clone();
            let stops = Stops::new(cancel.clone(), admission.clone());
            let sink = Arc::new(CallSink {
                line: self.line.clone(),
                stops,
            });
            move || {
                // It may have been cancelled while it waited for a thread.
                if cancel.is_cancelled() {
                    return;
                }
                let end = Ending {
                    inflight: &inflight,
                    call: &call,
                    cancel: &cancel,
                };
                let answer = reply.room(&call, || {
                    match admission.still_open(&call).and_then(|()| permit.begin()) {
                        Ok(held) => {
                            let visitor = Visitor {
                                owner: server.owner(&identity),
                                identity,
                                sink: sink.clone(),
                                held,
                            };
                            sink.stops
                                .answer(&call, super::run(&server, &call, visitor))
                        }
                        Err(error) => call.fail(error),
                    }
                });
                let _writing = Writing::begin(&inflight);
                let wanted = inflight.finish(call.id(), &cancel);
                drop(end);
                // Release its place before writing to a possibly slow reader.
                drop(call);
                if wanted {
                    reply.send(answer, Flush::Now);
                }
            }
        };
        if workers.submit(Box::new(job)).is_err() {
            self.inflight.finish(call.id(), &cancel);
            reply.send(call.fail(admission::busy()), Flush::Later);
        }
    }

    fn listen(&self, listen: &Listen) {
        let refuse = |error| {
            self.line
                .send(&listen.fail(error).body.parts(), Flush::Later)
        };
        if self.inflight.listening() >= MAX_SUBSCRIPTIONS {
            return refuse(too_many_subscriptions());
        }
        if self.services.admission.is_closed() {
            return refuse(Error::stopped());
        }
        // Its id is kept here, with the listener, and in what is sent at its end.
        let mut memory = MEMORY.open().without_reserve();
        if memory.grow(8 * listen.id().json().len()).is_err() {
            return refuse(too_many());
        }
        let sink = Arc::new(Told(self.line.clone()));
        let mut end = vec![listen.end().body.into_bytes()];
        if self.cancels_subscriptions {
            end.push(listen.cancelled());
        }
        let place = || {
            // The acknowledgement comes first: only then can anything be told.
            self.line.send(&[&listen.acknowledgement()], Flush::Later);
            self.services
                .server
                .subscriptions
                .add(listen.listener(sink))
        };
        if self.inflight.listen(listen.id(), place, end, memory) {
            self.services.poller.listened();
        } else {
            self.line.send(
                &super::duplicate(listen.id(), true).body.parts(),
                Flush::Later,
            );
        }
    }
}

/// This pipe has reached its limit of subscriptions.
fn too_many_subscriptions() -> Error {
    Error::new(
        Kind::TooManyRequests,
        format!(
            "There are {MAX_SUBSCRIPTIONS} subscriptions already. Cancel one that is not needed, then try again."
        ),
    )
}

/// Where an answer goes: out by itself, or into the array of its batch.
#[derive(Clone)]
enum CallReply {
    Line(Arc<dyn Line>),
    Batch(Arc<Batch>),
}

impl CallReply {
    fn send(&self, answer: Answer, flush: Flush) {
        match self {
            CallReply::Line(line) => line.send(&answer.body.parts(), flush),
            CallReply::Batch(batch) => lock(&batch.answers).push(answer),
        }
    }

    /// The answer to a call, by `run` if there is room for it.
    fn room(&self, call: &Call, run: impl FnOnce() -> Answer) -> Answer {
        match self {
            CallReply::Line(_) => run(),
            CallReply::Batch(batch) => batch.room.answer(call, run),
        }
    }
}

/// The answers of one batch, shared by its pending calls; the last one to drop it sends the array.
struct Batch {
    answers: Mutex<Vec<Answer>>,
    room: Room,
    line: Arc<dyn Line>,
    /// Released after the array has been sent.
    _writing: Writing,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let answers = self
            .answers
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if !answers.is_empty() {
            self.line.send(
                &jsonrpc::array(answers.iter().map(|answer| answer.body.parts())),
                Flush::Now,
            );
        }
    }
}

/// Removes a call after a panic, so that its id is free and nobody waits for it.
struct Ending<'a> {
    inflight: &'a Inflight,
    call: &'a Call,
    cancel: &'a Cancel,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.inflight.finish(self.call.id(), self.cancel);
        }
    }
}

/// Where the notifications of a call go.
struct CallSink {
    line: Arc<dyn Line>,
    stops: Stops,
}

impl Sink for CallSink {
    fn notify(&self, message: &[u8]) {
        self.line
            .send_if(&[message], Flush::Now, &|| !self.stops.is_cancelled());
    }

    fn stopped(&self) -> bool {
        self.stops.is_stopped() || self.line.is_gone()
    }
}

/// The sink for notifications of changed lists.
struct Told(Arc<dyn Line>);

impl Sink for Told {
    fn notify(&self, message: &[u8]) {
        self.0.tell(message);
    }

    fn stopped(&self) -> bool {
        self.0.is_gone()
    }
}
