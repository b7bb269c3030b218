//! Subscribers to changes of lists and tasks: modern `subscriptions/listen`, and legacy clients with `listChanged`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::access::Identity;
use crate::config::WORKER_STACK;
use crate::fabric::Error;
use crate::jsonrpc::{self, Id, NoId};
use crate::protocol::params::{given, params};
use crate::protocol::{Answer, Refusal, RequestContext, ResultWriter, Revision};
use crate::runs::{Run, RunState};
use crate::sync::lock;

use super::{Server, Sink, refuse, tasks};

/// Most tasks of one subscription.
const MAX_TASKS: usize = 64;
/// Interval between checks of a subscription's tasks.
const LOOK: Duration = Duration::from_millis(500);

/// The `_meta` key of the subscription that a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// An accepted `subscriptions/listen`: 2026-07-28, basic/patterns/subscriptions.
pub(crate) struct Listen {
    id: Id,
    revision: Revision,
    prompts: bool,
    resources: bool,
    /// The requested tasks; after [`Listen::admit`], `tasks` has those of the caller.
    task_ids: Vec<String>,
    tasks: Vec<Run>,
}

impl Listen {
    /// Parses the request. Unsupported kinds are ignored, which is not an error.
    ///
    /// # Errors
    /// -32602 without a filter.
    pub(super) fn new(
        id: &Id,
        context: &RequestContext,
        keeps: bool,
        raw: Option<&RawValue>,
    ) -> Result<Listen, Refusal> {
        let usage = "subscriptions/listen needs params.notifications, an object such as {\"promptsListChanged\": true}, \
                     with true or false as values.";
        let wrong = || Refusal::params(usage);
        let [filter] = params(raw, ["notifications"], usage)?;
        let names = ["promptsListChanged", "resourcesListChanged", "taskIds"];
        let [prompts, resources, tasks] = params(Some(filter.ok_or_else(wrong)?), names, usage)?;
        let task_ids = match given(tasks).filter(|_| keeps) {
            None => Vec::new(),
            Some(_) if !context.tasks => return Err(tasks::undeclared()),
            Some(raw) => serde_json::from_str::<Vec<String>>(raw.get())
                .ok()
                .filter(|ids| ids.len() <= MAX_TASKS)
                .ok_or_else(|| {
                    Refusal::params(format!(
                        "taskIds must be a list of up to {MAX_TASKS} strings."
                    ))
                })?,
        };
        let wanted = |member: Option<&RawValue>| match member.map_or("false", RawValue::get) {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong()),
        };
        let (prompts, resources) = (wanted(prompts)?, wanted(resources)?);
        Ok(Listen {
            id: id.clone(),
            revision: context.revision,
            prompts,
            resources,
            task_ids,
            tasks: Vec::new(),
        })
    }

    /// Finds the requested tasks that belong to the caller.
    pub(crate) fn admit(&mut self, server: &Server, caller: &Identity) {
        let owner = server.owner(caller);
        self.tasks = self
            .task_ids
            .iter()
            .filter_map(|id| server.kept.runs.find(id, &owner))
            .collect();
    }

    /// The id that cancels it.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// The first message: what was accepted.
    pub(crate) fn acknowledgement(&self) -> Vec<u8> {
        let mut honoured = Map::new();
        for (key, wanted) in [
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                honoured.insert(key.into(), true.into());
            }
        }
        if !self.task_ids.is_empty() {
            let ids: Vec<String> = self.tasks.iter().map(|run| run.id().to_string()).collect();
            honoured.insert("taskIds".into(), ids.into());
        }
        let params = json!({ "_meta": self.meta(), "notifications": honoured });
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    /// The answer when the server ends it gracefully.
    pub(crate) fn end(&self) -> Answer {
        let mut result = ResultWriter::new(&self.id, self.revision);
        result.meta = self.meta();
        result.end()
    }

    /// The answer when it cannot be kept.
    pub(crate) fn fail(&self, error: Error) -> Answer {
        refuse(error.into(), Some(&self.id), NoId::Absent, true)
    }

    /// What stdio sends after the end, because no stream closes there: the specification has servers send a
    /// cancellation.
    pub(crate) fn cancelled(&self) -> Vec<u8> {
        jsonrpc::notification(
            "notifications/cancelled",
            &json!({ "requestId": self.id, "reason": "The server is shutting down." }),
        )
    }

    /// A listener that sends its notifications to `sink`.
    pub(crate) fn listener(&self, sink: Arc<dyn Sink>) -> Listener {
        Listener {
            meta: Some(self.meta()),
            prompts: self.prompts,
            resources: self.resources,
            tasks: self.tasks.clone(),
            sink,
        }
    }

    fn meta(&self) -> Map<String, Value> {
        let mut meta = Map::new();
        let id = serde_json::from_str(self.id.json()).unwrap_or(Value::Null);
        meta.insert(SUBSCRIPTION_ID.into(), id);
        meta
    }
}

/// One subscriber.
pub(crate) struct Listener {
    meta: Option<Map<String, Value>>,
    prompts: bool,
    resources: bool,
    tasks: Vec<Run>,
    sink: Arc<dyn Sink>,
}

impl Listener {
    /// A legacy client: gets every notification, without subscription ids.
    pub(crate) fn legacy(sink: Arc<dyn Sink>) -> Listener {
        Listener {
            meta: None,
            prompts: true,
            resources: true,
            tasks: Vec::new(),
            sink,
        }
    }

    /// Sends the status of its tasks until all have ended or the listener is gone.
    fn watch(listener: &Weak<Listener>, keep: Duration) {
        let mut told = HashMap::new();
        loop {
            let Some(listener) = listener
                .upgrade()
                .filter(|listener| !listener.sink.stopped())
            else {
                return;
            };
            let mut working = None;
            for run in &listener.tasks {
                let state = run.record().state;
                if told.insert(run.id(), state).unwrap_or(RunState::Working) != state {
                    let meta = listener.meta.clone().unwrap_or_default();
                    if let Some(message) = tasks::changed(run, keep, meta) {
                        listener.sink.notify(&message);
                    }
                }
                if state == RunState::Working {
                    working = Some(run.clone());
                }
            }
            // The listener may leave during the wait.
            drop(listener);
            let Some(working) = working else { return };
            working.wait(None, LOOK, &mut || true);
        }
    }

    fn tell(&self) {
        let methods = [
            ("notifications/prompts/list_changed", self.prompts),
            ("notifications/resources/list_changed", self.resources),
        ];
        for (method, _) in methods.into_iter().filter(|(_, wanted)| *wanted) {
            let params = self
                .meta
                .as_ref()
                .map_or_else(|| json!({}), |meta| json!({ "_meta": meta }));
            self.sink.notify(&jsonrpc::notification(method, &params));
        }
    }
}

/// All listeners of the process.
#[derive(Default)]
pub(crate) struct Subscriptions {
    listeners: Mutex<Vec<Arc<Listener>>>,
    /// Retention of runs.
    keep: Duration,
}

impl Subscriptions {
    /// No listeners; runs are kept for `keep`.
    pub(super) fn new(keep: Duration) -> Subscriptions {
        Subscriptions {
            keep,
            ..Subscriptions::default()
        }
    }

    /// Adds a listener, until the registration is dropped.
    pub(crate) fn add(self: &Arc<Subscriptions>, listener: Listener) -> Registration {
        let listener = Arc::new(listener);
        self.lock().push(listener.clone());
        if !listener.tasks.is_empty() {
            let (weak, keep) = (Arc::downgrade(&listener), self.keep);
            let thread = thread::Builder::new()
                .name("tasks".into())
                .stack_size(WORKER_STACK);
            if let Err(error) = thread.spawn(move || Listener::watch(&weak, keep)) {
                log::warn!("changes of tasks cannot be told: {error}");
            }
        }
        Registration {
            all: self.clone(),
            listener,
        }
    }

    /// Whether there are any listeners.
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Notifies all listeners of changed lists. The lock is not held while sending.
    pub(crate) fn lists_changed(&self) {
        let listeners = self.lock().clone();
        listeners.iter().for_each(|listener| listener.tell());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Listener>>> {
        lock(&self.listeners)
    }
}

/// A listener's registration; dropping it ends the notifications.
pub(crate) struct Registration {
    all: Arc<Subscriptions>,
    listener: Arc<Listener>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.all
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &self.listener));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn notify(&self, message: &[u8]) {
            self.0
                .lock()
                .unwrap()
                .push(String::from_utf8(message.to_vec()).unwrap());
        }
        fn stopped(&self) -> bool {
            false
        }
    }

    fn listen(params: &str) -> Listen {
        let id = Id::from_raw(&RawValue::from_string("\"s\"".into()).unwrap()).unwrap();
        let context = RequestContext::of(Revision::R2026_07_28);
        Listen::new(
            &id,
            &context,
            true,
            Some(&RawValue::from_string(params.into()).unwrap()),
        )
        .unwrap()
    }

    #[test]
    fn the_end_names_the_subscription() {
        let end =
            String::from_utf8(listen(r#"{"notifications":{}}"#).end().body.into_bytes()).unwrap();
        assert!(
            end.starts_with(
                r#"{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"#
            ),
            "{end}"
        );
        assert!(
            end.contains(r#""io.modelcontextprotocol/subscriptionId":"s""#),
            "{end}"
        );
    }

    #[test]
    fn listeners_get_what_they_requested_until_they_leave() {
        let all = Arc::new(Subscriptions::default());
        let (modern, legacy) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
        let asked = listen(r#"{"notifications":{"resourcesListChanged":true}}"#);
        let first = all.add(asked.listener(modern.clone()));
        let second = all.add(Listener::legacy(legacy.clone()));
        all.lists_changed();
        drop(first);
        assert!(all.any());
        all.lists_changed();
        drop(second);
        assert!(!all.any());
        all.lists_changed();
        assert_eq!(
            *modern.0.lock().unwrap(),
            [
                r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#
            ]
        );
        let heard = legacy.0.lock().unwrap();
        assert_eq!(heard.len(), 4);
        assert_eq!(
            heard[0],
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{}}"#
        );
    }
}
