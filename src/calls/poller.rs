//! Looks for other patterns while somebody listens for changes, and rests while nobody does.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::config::WORKER_STACK;
use crate::fabric::{NoWait, Wait};
use crate::features::Server;
use crate::sync::lock;

/// Starts and stops the looking. One for the process.
pub(crate) struct Poller {
    server: Arc<Server>,
    running: Mutex<bool>,
}

impl Poller {
    /// A poller at rest.
    pub(crate) fn new(server: Arc<Server>) -> Arc<Poller> {
        Arc::new(Poller { server, running: Mutex::new(false) })
    }

    /// Somebody has begun to listen: from now on the list of names is read once per life of the catalogue, until nobody
    /// listens any more. The catalogue itself tells the listeners.
    pub(crate) fn listened(self: &Arc<Poller>) {
        let mut running = lock(&self.running);
        if *running {
            return;
        }
        let poller = self.clone();
        let thread = thread::Builder::new().name("poller".into()).stack_size(WORKER_STACK);
        match thread.spawn(move || poller.run()) {
            Ok(_) => *running = true,
            Err(error) => log::warn!("changes of the lists cannot be watched for: {error}"),
        }
    }

    fn run(&self) {
        loop {
            thread::sleep(self.server.catalog().ttl());
            let mut running = lock(&self.running);
            // Under the lock: whoever begins to listen right after this finds nobody running.
            if !self.server.subscriptions().any() {
                *running = false;
                return;
            }
            drop(running);
            let wait: Arc<dyn Wait> = Arc::new(NoWait);
            if let Err(error) = self.server.catalog().fresh_names(&wait) {
                log::debug!("the list of patterns could not be read: {error}");
            }
        }
    }
}
