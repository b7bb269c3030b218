//! A call: a request that needs Fabric. Created where messages are read, run on a thread that may block.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use crate::access::Identity;
use crate::budget::{Charge, Full, MEMORY};
use crate::fabric::{Error, Wait, no_room};
use crate::jsonrpc::Id;
use crate::protocol::{Answer, Refusal, RequestContext, ResultWriter, Session};
use crate::runs::Owner;
use crate::sync::lock;
use crate::{logging, metrics, random};

use super::notifier::Notifier;
use super::{Request, Server, Sink, refusal};

/// What one request of a feature does, its params read. Most are a function.
pub(super) trait Operation: Send + Sync {
    /// Does it, and writes the members of the result.
    ///
    /// # Errors
    /// Becomes a JSON-RPC error.
    fn run(&self, call: &Running<'_>, result: &mut ResultWriter) -> Result<(), Refusal>;

    /// Writes the result of a call that could not be run, or panicked.
    ///
    /// # Errors
    /// Where that is a JSON-RPC error.
    fn fail(&self, error: Error, _request_id: &str, _result: &mut ResultWriter) -> Result<(), Refusal> {
        Err(error.into())
    }

    /// How many paid runs of a model it makes.
    fn runs(&self) -> u32 {
        0
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

/// What an operation works with.
pub(super) struct Running<'a> {
    pub(super) server: &'a Server,
    pub(super) notifier: &'a Arc<Notifier>,
    pub(super) request_id: &'a str,
    /// Who called.
    pub(super) identity: &'a Identity,
    pub(super) owner: &'a Owner,
    pub(super) context: &'a RequestContext,
    /// The place for a run to take.
    pub(super) held: Cell<Option<Box<dyn Send>>>,
}

/// Who makes a call.
pub(crate) struct Visitor {
    pub(crate) identity: Identity,
    /// Whose runs it sees, and whose its own run will be.
    pub(crate) owner: Owner,
    /// Where its notifications go.
    pub(crate) sink: Arc<dyn Sink>,
    /// The place of its run among those that may run at once: kept as long as the run, which may be longer than the call.
    pub(crate) held: Option<Box<dyn Send>>,
}

impl Running<'_> {
    /// Whoever waits, as Fabric's client wants it.
    pub(super) fn wait(&self) -> Arc<dyn Wait> {
        self.notifier.clone()
    }
}

/// One request that needs Fabric, its params checked.
pub(crate) struct Call {
    id: Id,
    method: &'static str,
    context: RequestContext,
    session: Arc<Session>,
    operation: Box<dyn Operation>,
    /// Ties its answer to its log line.
    pub(crate) request_id: String,
    /// What its params hold of the budget; handed on when it runs.
    memory: Mutex<Charge>,
    in_batch: bool,
}

impl Call {
    pub(super) fn new(request: Request<'_>, operation: Box<dyn Operation>) -> Call {
        let Request { id, method, context, session, in_batch, memory, .. } = request;
        let (session, memory) = (session.clone(), Mutex::new(memory));
        Call { id, method, context, session, operation, request_id: random::request_id(), memory, in_batch }
    }

    /// The id that its answer carries.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// Was it asked in the stateless era?
    pub(crate) fn is_modern(&self) -> bool {
        !self.context.revision.is_legacy()
    }

    /// Is it a run of a pattern: long, costly, and limited in number?
    pub(crate) fn is_run(&self) -> bool {
        self.runs() > 0
    }

    /// How many runs it makes: one for each step of a chain. They are counted against the rate limit.
    pub(crate) fn runs(&self) -> u32 {
        self.operation.runs()
    }

    /// Does its work for `visitor` and makes the answer. Blocks as long as Fabric takes, within
    /// the limits of the configuration.
    pub(crate) fn run(&self, server: &Server, visitor: Visitor) -> Answer {
        let _scope = logging::request_scope(&self.request_id);
        let memory = std::mem::replace(&mut *lock(&self.memory), MEMORY.open());
        let notifier = Arc::new(Notifier::new(visitor.sink, self.context.clone(), self.session.clone(), memory));
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
            self.operation.run(&running, result).inspect_err(|refusal| metrics::failure(&refusal.error))
        });
        match answer.charge(self.in_batch) {
            Ok(()) => answer,
            Err(Full) => self.fail(no_room()),
        }
    }

    /// The answer when the call cannot be run at all, or ended in a way it could not answer itself: no worker free, the
    /// rate limit, a panic, cancelled where an answer is due all the same.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        self.answer(|result| self.operation.fail(error, &self.request_id, result))
    }

    fn answer(&self, write: impl FnOnce(&mut ResultWriter) -> Result<(), Refusal>) -> Answer {
        let mut result = ResultWriter::new(&self.id, self.context.revision);
        match write(&mut result) {
            Ok(()) => result.end(),
            Err(refusal) => refusal::fail(refusal, self.method, &self.id, self.is_modern(), &self.request_id),
        }
    }
}
