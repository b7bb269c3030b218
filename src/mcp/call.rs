//! A call: a request that needs Fabric. It is made where messages are read and run where time may pass.

use std::sync::{Arc, Mutex};

use serde_json::Map;

use crate::budget::{Charge, Full};
use crate::fabric::{self, Error, Kind, Wait};
use crate::jsonrpc::{Id, NoId};
use crate::sync::lock;
use crate::tools::{self as registry, Failure, Job, Tool};
use crate::{logging, random};

use super::answer::{Answer, Refusal, ResultWriter};
use super::completion::Complete;
use super::lifecycle::{Caller, Session};
use super::notifier::Notifier;
use super::outlet::Outlet;
use super::pages::Cursor;
use super::{Request, Server, prompts, resources, tools};

/// What is to be done.
pub(super) enum Work {
    Tool { tool: &'static Tool, job: Box<dyn Job> },
    PromptsList { cursor: Cursor },
    PromptsGet(prompts::Get),
    ResourcesList { cursor: Cursor },
    ResourcesRead(resources::Read),
    Complete(Complete),
}

/// One request that needs Fabric, its params checked.
pub(crate) struct Call {
    id: Id,
    caller: Caller,
    session: Arc<Session>,
    work: Work,
    request_id: String,
    /// What its params hold; handed on when it runs.
    memory: Mutex<Charge>,
    in_batch: bool,
}

impl Call {
    pub(super) fn new(
        request: &Request<'_>,
        caller: Caller,
        session: Arc<Session>,
        work: Work,
        memory: Charge,
    ) -> Call {
        let (id, in_batch) = (request.id.clone(), request.in_batch);
        Call { id, caller, session, work, request_id: random::request_id(), memory: Mutex::new(memory), in_batch }
    }

    /// The id that its answer carries.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// Was it asked in the stateless era?
    pub(crate) fn is_modern(&self) -> bool {
        !self.caller.revision.is_legacy()
    }

    /// Is it a run of a pattern: long, costly, and limited in number?
    pub(crate) fn is_run(&self) -> bool {
        self.runs() > 0
    }

    /// How many runs it makes: one for each step of a chain. They are counted against the rate limit.
    pub(crate) fn runs(&self) -> u32 {
        match &self.work {
            Work::Tool { job, .. } => job.runs(),
            _ => 0,
        }
    }

    /// Does its work and makes the answer. Notifications go to `outlet` meanwhile. Blocks as long as Fabric takes,
    /// within the limits of the configuration.
    pub(crate) fn run(&self, server: &Server, outlet: Arc<dyn Outlet>) -> Answer {
        let _scope = logging::request_scope(&self.request_id);
        let memory = std::mem::replace(&mut *lock(&self.memory), Charge::none());
        let notifier = Notifier::new(outlet, self.caller.clone(), self.session.clone(), memory);
        let mut answer = self.work(server, Arc::new(notifier));
        match answer.charge(self.in_batch) {
            Ok(()) => answer,
            Err(Full) => self.fail(fabric::no_room()),
        }
    }

    fn work(&self, server: &Server, notifier: Arc<Notifier>) -> Answer {
        if let Work::Tool { tool, job } = &self.work {
            let work = registry::Work { fabric: server.fabric.clone(), caller: notifier };
            let result = registry::run(tool, job.as_ref(), &work, &self.request_id);
            return tools::result(&self.id, self.caller.revision, &result, &self.request_id);
        }
        let wait: Arc<dyn Wait> = notifier;
        let mut result = ResultWriter::new(&self.id, self.caller.revision);
        let done = match &self.work {
            Work::Tool { .. } => Ok(()),
            Work::PromptsList { cursor } => prompts::list(server, *cursor, self.caller.revision, &wait, &mut result),
            Work::PromptsGet(get) => get.run(server, &wait, &mut result),
            Work::ResourcesList { cursor } => {
                resources::list(server, *cursor, self.caller.revision, &wait, &mut result)
            }
            Work::ResourcesRead(read) => read.run(server, self.caller.revision, &wait, &mut result),
            Work::Complete(complete) => complete.run(server, &wait, &mut result),
        };
        match done {
            Ok(()) => result.end(Map::new()),
            Err(refusal) => {
                refusal.error.count();
                self.refuse(refusal)
            }
        }
    }

    /// The answer when the call cannot be run at all, or ended in a way it could not answer itself: no worker free, the
    /// rate limit, a panic, cancelled where an answer is due all the same.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        match &self.work {
            Work::Tool { tool, .. } => {
                registry::count(tool, Some(&error), None);
                log::info!(target: "fabric_mcp::tools", "tool={} ok=false error={} request_id={}", tool.name, error.kind.name(), self.request_id);
                tools::result(&self.id, self.caller.revision, &Err(Failure::from(error)), &self.request_id)
            }
            _ => self.refuse(Refusal::from_fabric(error)),
        }
    }

    /// The answer after a panic.
    pub(crate) fn panicked(&self) -> Answer {
        self.fail(Error::new(
            Kind::Internal,
            format!(
                "fabric-mcp itself failed: this is a bug. Please report it with the log lines of request_id {}.",
                self.request_id
            ),
        ))
    }

    fn refuse(&self, refusal: Refusal) -> Answer {
        refusal.answer_as(Some(&self.id), NoId::Absent, self.is_modern(), &self.request_id)
    }
}
