//! Subscribers to changes of lists and tasks: modern `subscriptions/listen`, and legacy clients that list prompts or
//! resources. While there are any, the list of patterns is read once per time-to-live of the catalogue.

use std::sync::{Arc, Mutex, Once, Weak};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::{Account, Reservation};
use crate::fabric::{Error, Observer, Poll};
use crate::logging;
use crate::protocol::{Answer, Id, Node, Params, Refusal, ResultWriter, Revision, jsonrpc};
use crate::runs::{Run, RunState};
use crate::sync::{lock, spawn};
use crate::tools::{Backend, Peer};

use super::{Action, Request, Server, refuse, tasks};

/// Most tasks of one subscription.
const MAX_TASKS: usize = 64;
/// What it means if a thread for them cannot be started.
const UNTOLD: &str = "subscribers cannot be told of changes";
/// Interval between checks of a subscription's tasks.
const LOOK: Duration = Duration::from_millis(500);

/// The `_meta` key of the subscription that a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// An accepted `subscriptions/listen`: 2026-07-28, basic/patterns/subscriptions.
pub(crate) struct SubscribeRequest {
    /// The id of the request, which cancels it; `null` for a legacy client, which subscribes by its connection alone.
    pub(crate) id: Id,
    revision: Revision,
    prompts: bool,
    resources: bool,
    /// The requested tasks that are the caller's own; `None` if no tasks were requested.
    tasks: Option<Vec<Run>>,
}

/// Parses `subscriptions/listen`. Unsupported kinds are ignored, which is not an error.
///
/// # Errors
/// -32602 without a filter.
pub(super) fn listen(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "subscriptions/listen needs params.notifications, an object such as \
        {\"promptsListChanged\": true}, with true or false as values.";
    let filter = Params::new(request.params, usage).object("notifications")?;
    let keeps = server.backend.runs.keeps();
    let task_ids = match filter.get("taskIds").filter(|_| keeps) {
        None => Some(Vec::new()),
        Some(_) if !request.context().tasks => return Err(tasks::undeclared()),
        Some(Node::List(ids)) if ids.len() <= MAX_TASKS => ids.iter().map(Node::text).collect(),
        Some(_) => None,
    };
    let too_many = || format!("taskIds must be a list of up to {MAX_TASKS} strings.");
    let mut task_ids = task_ids.ok_or_else(|| Refusal::params(too_many()))?;
    let wanted = |name| match filter.get(name) {
        None | Some(Node::Bool(false)) => Ok(false),
        Some(Node::Bool(true)) => Ok(true),
        Some(_) => Err(filter.refusal()),
    };
    // A task that was named several times is told once.
    task_ids.sort_unstable();
    task_ids.dedup();
    let (revision, caller) = (request.context().revision, &request.head.caller);
    let find = |id: &&str| server.backend.runs.find(id, &caller.identity);
    Ok(Action::Subscribe(Box::new(SubscribeRequest {
        tasks: (!task_ids.is_empty()).then(|| task_ids.iter().filter_map(find).collect()),
        prompts: wanted("promptsListChanged")? && !server.backend.policy.no_prompts,
        resources: wanted("resourcesListChanged")?,
        id: request.head.id,
        revision,
    })))
}

impl SubscribeRequest {
    /// The first message: what was accepted.
    pub(super) fn acknowledgement(&self) -> Answer {
        let mut honoured = json!({});
        for list in self.lists() {
            honoured[format!("{list}ListChanged")] = true.into();
        }
        if let Some(tasks) = &self.tasks {
            honoured["taskIds"] = tasks.iter().map(|run| run.id().to_string()).collect();
        }
        let mut params = self.params();
        params["notifications"] = honoured;
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params).into()
    }

    /// The answer when the server ends it gracefully.
    pub(crate) fn end(&self) -> Answer {
        let mut result = ResultWriter::new(Some(&self.id), self.revision);
        result.meta(SUBSCRIPTION_ID, &self.id);
        result.end()
    }

    /// The answer when it cannot be kept.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        refuse(error.into(), Some(&self.id), true)
    }

    /// What is sent after the end where no stream of its own closes: the specification has servers send a cancellation.
    pub(crate) fn cancelled(&self) -> Answer {
        let params = json!({ "requestId": self.id, "reason": "The server is shutting down." });
        jsonrpc::notification("notifications/cancelled", &params).into()
    }

    /// The lists whose changes it wants to hear of.
    fn lists(&self) -> impl Iterator<Item = &'static str> {
        let all = [("prompts", self.prompts), ("resources", self.resources)];
        all.into_iter()
            .filter_map(|(list, is_wanted)| is_wanted.then_some(list))
    }

    /// The params that all its messages have.
    fn params(&self) -> Value {
        match &self.id {
            Id::Null => json!({}),
            id => json!({ "_meta": { SUBSCRIPTION_ID: id } }),
        }
    }
}

/// A subscriber's registration; dropping it ends the notifications.
pub(crate) type Registration = Arc<Subscriber>;

/// One subscriber.
pub(crate) struct Subscriber {
    /// What it has asked for.
    pub(crate) request: SubscribeRequest,
    /// What its notifications are charged to while they are written.
    account: Account,
    /// Must not wait for its client if there are others, because they have to be told too.
    peer: Arc<dyn Peer>,
    /// Its share of the resource, if nothing else holds that.
    _share: Option<Reservation>,
}

impl Server {
    /// Subscribes a legacy client: it gets every notification, without subscription ids.
    pub(crate) fn follow(&self, account: &Account, peer: Arc<dyn Peer>) -> Registration {
        let request = SubscribeRequest {
            id: Id::Null,
            revision: Revision::NEWEST_LEGACY,
            prompts: !self.backend.policy.no_prompts,
            resources: true,
            tasks: None,
        };
        self.subscriptions.add(request, account, peer, None)
    }
}

impl Subscriber {
    /// Sends the result of each of its tasks once that task ends, until all have ended or the subscriber is gone.
    fn watch(subscriber: &Weak<Subscriber>, mut working: Vec<Run>, backend: &Backend) {
        while let Some(subscriber) = subscriber.upgrade() {
            for run in working.extract_if(.., |run| run.bare().state != RunState::Working) {
                let (params, revision) = (subscriber.request.params(), subscriber.request.revision);
                let message = tasks::changed(&run, backend, params, revision, &subscriber.account);
                message.inspect(|message| subscriber.peer.notify(message, &|| true));
            }
            // The subscriber may leave during the wait.
            drop(subscriber);
            let Some(run) = working.first() else { return };
            run.wait(u64::MAX, LOOK);
        }
    }
}

/// All subscribers of the process.
pub(crate) struct Subscriptions {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
    /// A thread reads the list of patterns for them, from the first one on.
    poller: Once,
    backend: Arc<Backend>,
}

impl Subscriptions {
    /// No subscribers to changes of what this backend lists.
    pub(super) fn new(backend: Arc<Backend>) -> Subscriptions {
        Subscriptions {
            subscribers: Mutex::default(),
            poller: Once::new(),
            backend,
        }
    }

    /// Acknowledges a request to `peer`, and tells it of changes until the registration is dropped. A legacy client is
    /// told without an acknowledgement.
    pub(crate) fn add(
        self: &Arc<Subscriptions>,
        request: SubscribeRequest,
        account: &Account,
        peer: Arc<dyn Peer>,
        share: Option<Reservation>,
    ) -> Registration {
        if request.id != Id::Null {
            peer.answer(request.acknowledgement());
        }
        let subscriber = Arc::new(Subscriber {
            request,
            account: account.clone(),
            peer,
            _share: share,
        });
        // Forgets those that have left.
        drop(self.registered());
        lock(&self.subscribers).push(Arc::downgrade(&subscriber));
        self.poller.call_once(|| {
            let subscriptions = self.clone();
            spawn("list-poller", UNTOLD, move || subscriptions.poll());
        });
        if let Some(tasks) = subscriber.request.tasks.clone() {
            let (weak, backend) = (Arc::downgrade(&subscriber), self.backend.clone());
            spawn("task-watch", UNTOLD, move || {
                Subscriber::watch(&weak, tasks, &backend)
            });
        }
        subscriber
    }

    /// All that are registered.
    fn registered(&self) -> Vec<Registration> {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Reads the list of patterns while there are subscribers. The catalogue tells of changes.
    fn poll(&self) {
        let observer: Observer = Arc::new(Poll);
        let (catalog, fabric) = (&self.backend.catalog, &self.backend.fabric);
        loop {
            thread::sleep(catalog.ttl);
            if !self.registered().is_empty()
                && let Err(error) = fabric.names(Duration::ZERO, &observer)
            {
                let message = format!("the list of patterns could not be read: {error}");
                logging::debug(module_path!(), message);
            }
        }
    }

    /// Notifies all subscribers of changed lists. The lock is not held while sending.
    pub(crate) fn lists_changed(&self) {
        for one in self.registered() {
            for list in one.request.lists() {
                let method = format!("notifications/{list}/list_changed");
                let message = jsonrpc::notification(&method, &one.request.params());
                one.peer.notify(&message, &|| true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a peer was told.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Peer for Heard {
        fn notify(&self, message: &[u8], _: &dyn Fn() -> bool) {
            let message = String::from_utf8(message.to_vec()).unwrap();
            lock(&self.0).push(message);
        }

        fn answer(&self, answer: Answer) {
            self.notify(&answer.body, &|| true);
        }

        fn stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn those_that_have_left_take_no_memory() {
        let server = Server::without_fabric();
        let all = &server.subscriptions;
        for _ in 0..3 {
            let account = server.backend.accounts.of("");
            drop(server.follow(&account, Arc::<Heard>::default()));
        }
        assert!(lock(&all.subscribers).len() <= 1);
    }

    #[test]
    fn subscribers_get_what_they_requested_until_they_leave() {
        let server = Server::without_fabric();
        let (all, account) = (&server.subscriptions, server.backend.accounts.of(""));
        let (modern, legacy) = (Arc::<Heard>::default(), Arc::<Heard>::default());
        let wanted = SubscribeRequest {
            id: Id::Text("s".into()),
            revision: Revision::R2026_07_28,
            prompts: false,
            resources: true,
            tasks: None,
        };
        let first = all.add(wanted, &account, modern.clone(), None);
        let second = server.follow(&account, legacy.clone());
        all.lists_changed();
        drop(first);
        all.lists_changed();
        drop(second);
        all.lists_changed();
        let expected = [
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"resourcesListChanged":true}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#,
        ];
        assert_eq!(*lock(&modern.0), expected);
        let heard = lock(&legacy.0);
        assert_eq!(heard.len(), 4);
        let expected =
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{}}"#;
        assert_eq!(heard[0], expected);
    }
}
