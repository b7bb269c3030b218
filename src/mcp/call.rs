//! A call: a request that needs Fabric. It is made where messages are read and run where time may pass.

use std::sync::Arc;

use serde_json::Map;

use crate::fabric::{Error, Kind, Wait};
use crate::jsonrpc::{Id, NoId};
use crate::tools::{self as registry, Failure, Job, Tool};
use crate::{logging, random};

use super::answer::{Answer, Refusal, ResultWriter};
use super::completion::Complete;
use super::lifecycle::{Caller, Session};
use super::notifier::Notifier;
use super::outlet::Outlet;
use super::pages::Cursor;
use super::{Server, prompts, resources, tools};

/// What is to be done.
pub(super) enum Work {
    Tool { tool: &'static Tool, job: Box<dyn Job> },
    PromptsList { cursor: Cursor },
    PromptsGet(prompts::Get),
    ResourcesList { cursor: Cursor },
    ResourcesRead(resources::Read),
    Complete(Complete),
}

impl Work {
    fn method(&self) -> &'static str {
        match self {
            Work::Tool { .. } => "tools/call",
            Work::PromptsList { .. } => "prompts/list",
            Work::PromptsGet(_) => "prompts/get",
            Work::ResourcesList { .. } => "resources/list",
            Work::ResourcesRead(_) => "resources/read",
            Work::Complete(_) => "completion/complete",
        }
    }
}

/// One request that needs Fabric, its params checked.
pub(crate) struct Call {
    id: Id,
    caller: Caller,
    session: Arc<Session>,
    work: Work,
    request_id: String,
}

impl Call {
    pub(super) fn new(id: Id, caller: Caller, session: Arc<Session>, work: Work) -> Call {
        Call { id, caller, session, work, request_id: random::request_id() }
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
        let notifier = Arc::new(Notifier::new(outlet, self.caller.clone(), self.session.clone()));
        if let Work::Tool { tool, job } = &self.work {
            let work =
                registry::Work { fabric: server.fabric.clone(), catalog: server.catalog.clone(), caller: notifier };
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
            Work::Tool { tool, job } => {
                registry::log_refused(tool, Some(job.as_ref()), &error, &self.request_id);
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
        let refusal = refusal.of_method(self.work.method());
        refusal.answer_as(Some(&self.id), NoId::Absent, self.is_modern(), &self.request_id)
    }
}
