//! A call: a request that may block. It is made by the thread that reads messages, and works on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use log::Level;

use crate::account::{Reservation, Resource};
use crate::fabric::{Error, Kind, no_room};
use crate::logging::Line;
use crate::os::random;
use crate::protocol::{Answer, Feature, Id, Refusal, jsonrpc};
use crate::sync::Work;
use crate::tools::{
    self, Backend, CallHead, Context, ContextState, LOOK_UP, MethodWork, Peer, reserve_slots,
};
use crate::{logging, metrics};

use super::Server;

/// A request with checked params.
pub(crate) struct Call {
    /// What an answer to it needs.
    pub(crate) head: Arc<CallHead>,
    /// The memory that its params take.
    pub(super) memory: Reservation,
    pub(super) work: MethodWork,
}

impl Call {
    /// Does it run a pattern? Such a call may be answered before its end.
    pub(crate) fn is_run(&self) -> bool {
        self.head.plan.needs == Resource::Runs
    }

    /// Does the call on a thread that `start` finds, and sends the answer to `peer`: when it is done, or for a run,
    /// when the caller has waited long enough.
    pub(crate) fn serve(
        self,
        server: &Server,
        peer: Arc<dyn Peer>,
        start: impl FnOnce(Work) -> Result<(), Error>,
    ) {
        let (head, backend) = (self.head.clone(), server.backend.clone());
        let (account, told) = (&head.caller.account, peer.clone());
        let slots = match self.is_run() && account.is_closed() {
            true => Err(Error::stopped()),
            false => reserve_slots(account, head.plan.needs),
        };
        let begun = slots
            .and_then(|(slot, open)| start(Box::new(move || self.run(backend, told, slot, open))));
        if let Err(error) = begun {
            peer.answer(head.fail(error));
        }
    }

    /// Blocks until all is done, within the configured timeouts. A panic costs this call only. Whoever ends the process
    /// waits until `_open` is dropped.
    fn run(
        self,
        backend: Arc<Backend>,
        peer: Arc<dyn Peer>,
        slot: Reservation,
        _open: Reservation,
    ) {
        let (head, work) = (self.head, self.work);
        let _caller = head.caller.identity.log_scope();
        let _request = logging::scope(&logging::REQUEST, head.request_id.clone());
        let context = Arc::new(Context {
            backend,
            peer,
            head: head.clone(),
            memory: Mutex::new(self.memory),
            state: ContextState::default(),
            looks_up_until: Instant::now() + LOOK_UP,
        });
        let done = catch_unwind(AssertUnwindSafe(|| {
            if let Err(error) = context.enter(slot) {
                return head.fail(error);
            }
            let mut result = head.result().charged(context.account());
            match work(&context, &mut result) {
                Err(refusal) => head.refuse(refusal),
                Ok(()) if result.is_cut() => head.fail(no_room()),
                Ok(()) => result.end(),
            }
        }));
        // The panic hook has logged where it was.
        let answer = done.unwrap_or_else(|_panic| head.fail(Error::bug(&head.request_id)));
        context.leave();
        context.answer(answer);
    }
}

/// Lets [`Call::serve`] do the call on the thread that asks for it.
pub(crate) fn here(work: Work) -> Result<(), Error> {
    work();
    Ok(())
}

impl CallHead {
    /// The answer of a call that could not run or did not finish: there was no free place, or a panic.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        // What is wrong with the arguments helps the caller more, unless the caller has cancelled.
        let fault = self.plan.fault.clone();
        let fault = fault.filter(|_| error.kind != Kind::Cancelled);
        self.refuse(fault.unwrap_or(error).into())
    }

    /// The answer of a call that was refused.
    pub(super) fn refuse(&self, mut refusal: Refusal) -> Answer {
        let revision = self.request.revision;
        tools::report(self, None, &Err(refusal.error.clone()), None);
        if self.tool.is_none() {
            metrics::failure(&refusal.error);
            let mut line = Line::default();
            line.field("method", self.method);
            for (key, value) in &self.plan.fields {
                line.field(key, value.as_str());
            }
            let level = logging::level(&refusal.error);
            log_refusal(level, line, &refusal, &self.request_id);
        } else if self.ttl.is_none()
            && (self.plan.fault.is_none() || revision.knows(Feature::ArgumentErrorsAsResults))
        {
            // So that the model sees what is wrong and corrects it. If it asked for a task, a result would have to be one.
            let mut result = self.result();
            tools::write_failure(&refusal.error, &self.request_id, &mut result);
            return result.end();
        } else if self.plan.fault.is_some() {
            refusal.code = jsonrpc::INVALID_PARAMS;
        }
        refusal.answer(Some(&self.id), !revision.is_legacy(), &self.request_id)
    }
}

/// Answers a request that is invalid or cannot be served now. Not logged as a warning: clients probe.
pub(crate) fn refuse(refusal: Refusal, id: Option<&Id>, modern: bool) -> Answer {
    let request_id = random::request_id();
    log_refusal(Level::Info, Line::default(), &refusal, &request_id);
    refusal.answer(id, modern, &request_id)
}

fn log_refusal(level: Level, mut line: Line, refusal: &Refusal, request_id: &str) {
    line.policy_refusal(&refusal.error);
    line.field("ok", false).field("code", refusal.code);
    line.failure(&refusal.error);
    line.field("request_id", request_id);
    line.log(level, "fabric_mcp::server");
}
