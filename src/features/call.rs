//! A call: a request that needs Fabric. Created on the reading thread, run on a thread that may block.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use crate::access::Identity;
use crate::budget::{Charge, Full, MEMORY};
use crate::fabric::{Error, Wait, no_room};
use crate::jsonrpc::Id;
use crate::protocol::{Answer, Refusal, RequestContext, ResultWriter, Session};
use crate::runs::Owner;
use crate::sync::lock;
use crate::tools::RunSlot;
use crate::{logging, metrics, random};

use super::notifier::Notifier;
use super::{Request, Server, Sink, refusal};

/// The work of one request whose params are parsed. Most are functions.
pub(super) trait Operation: Send + Sync {
    /// Runs the operation and writes the members of the result.
    ///
    /// # Errors
    /// They become JSON-RPC errors.
    fn run(&self, call: &Running<'_>, result: &mut ResultWriter) -> Result<(), Refusal>;

    /// Writes the result of a call that could not run, or panicked.
    ///
    /// # Errors
    /// The failure, where it is a JSON-RPC error and not a result.
    fn fail(
        &self,
        error: Error,
        _request_id: &str,
        _result: &mut ResultWriter,
    ) -> Result<(), Refusal> {
        Err(error.into())
    }

    /// Number of paid model runs.
    fn runs(&self) -> u32 {
        0
    }

    /// Does it wait for a run that another call has started?
    fn waits(&self) -> bool {
        false
    }
}

impl<F> Operation for F
where
    F: Fn(&Running<'_>, &mut ResultWriter) -> Result<(), Refusal> + Send + Sync,
{
    fn run(&self, call: &Running<'_>, result: &mut ResultWriter) -> Result<(), Refusal> {
        self(call, result)
    }
}

/// The context of an operation.
pub(super) struct Running<'a> {
    pub(super) server: &'a Server,
    pub(super) notifier: &'a Arc<Notifier>,
    pub(super) request_id: &'a str,
    /// The caller.
    pub(super) identity: &'a Identity,
    pub(super) owner: &'a Owner,
    pub(super) context: &'a RequestContext,
    /// The slot for a run, taken by it.
    pub(super) held: Cell<Option<Box<dyn RunSlot>>>,
}

/// The caller of a call.
pub(crate) struct Visitor {
    pub(crate) identity: Identity,
    /// The owner of the caller's runs, this one included.
    pub(crate) owner: Owner,
    /// Where its notifications go.
    pub(crate) sink: Arc<dyn Sink>,
    /// The run's slot among the concurrent runs. Kept until the run ends, which may be after the call.
    pub(crate) held: Option<Box<dyn RunSlot>>,
}

impl Running<'_> {
    /// The caller as Fabric's client waits for it.
    pub(super) fn wait(&self) -> Arc<dyn Wait> {
        self.notifier.clone()
    }
}

/// One request that needs Fabric, with checked params.
pub(crate) struct Call {
    id: Id,
    method: &'static str,
    context: RequestContext,
    session: Arc<Session>,
    operation: Box<dyn Operation>,
    /// Correlates the answer with its log line.
    pub(crate) request_id: String,
    /// The budget charge of its params; handed over when it runs.
    memory: Mutex<Charge>,
    in_batch: bool,
}

impl Call {
    pub(super) fn new(request: Request<'_>, operation: Box<dyn Operation>) -> Call {
        let Request {
            id,
            method,
            context,
            session,
            in_batch,
            memory,
            ..
        } = request;
        let (session, memory) = (session.clone(), Mutex::new(memory));
        Call {
            id,
            method,
            context,
            session,
            operation,
            request_id: random::request_id(),
            memory,
            in_batch,
        }
    }

    /// The id of its answer.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// Is it a request of the stateless era?
    pub(crate) fn is_modern(&self) -> bool {
        !self.context.revision.is_legacy()
    }

    /// Is it a run of a pattern: long, costly, and limited in number?
    pub(crate) fn is_run(&self) -> bool {
        self.runs() > 0
    }

    /// How many runs it makes: one per step of a chain. They count against the rate limit.
    pub(crate) fn runs(&self) -> u32 {
        self.operation.runs()
    }

    /// Does it wait for a run that another call has started?
    pub(crate) fn waits(&self) -> bool {
        self.operation.waits()
    }

    /// Runs the operation for `visitor` and writes the answer. Blocks as long as Fabric takes, within the configured
    /// timeouts.
    pub(crate) fn run(&self, server: &Server, visitor: Visitor) -> Answer {
        let _scope = logging::request_scope(&self.request_id);
        let memory = std::mem::replace(&mut *lock(&self.memory), MEMORY.open());
        let notifier = Arc::new(Notifier::new(
            visitor.sink,
            self.context.clone(),
            self.session.clone(),
            memory,
        ));
        let running = Running {
            server,
            notifier: &notifier,
            request_id: &self.request_id,
            identity: &visitor.identity,
            owner: &visitor.owner,
            context: &self.context,
            held: Cell::new(visitor.held),
        };
        let mut answer = self.answer(|result| {
            self.operation
                .run(&running, result)
                .inspect_err(|refusal| metrics::failure(&refusal.error))
        });
        match answer.charge(self.in_batch) {
            Ok(()) => answer,
            Err(Full) => self.fail(no_room()),
        }
    }

    /// The answer of a call that could not run or did not finish: no free worker, rate limit, panic, or cancelled when
    /// an answer is required all the same.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        self.answer(|result| self.operation.fail(error, &self.request_id, result))
    }

    fn answer(&self, write: impl FnOnce(&mut ResultWriter) -> Result<(), Refusal>) -> Answer {
        let mut result = ResultWriter::new(&self.id, self.context.revision);
        match write(&mut result) {
            Ok(()) => result.end(),
            Err(refusal) => refusal::fail(
                refusal,
                self.method,
                &self.id,
                self.is_modern(),
                &self.request_id,
            ),
        }
    }
}
