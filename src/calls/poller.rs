//! Polls the list of patterns for changes while there are subscribers.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::config::WORKER_STACK;
use crate::fabric::{Age, NoWait, Wait};
use crate::features::Server;
use crate::sync::lock;

/// Starts and stops the polling thread. One per process.
pub(crate) struct Poller {
    server: Arc<Server>,
    running: Mutex<bool>,
}

impl Poller {
    /// A poller that is not running.
    pub(crate) fn new(server: Arc<Server>) -> Arc<Poller> {
        Arc::new(Poller {
            server,
            running: Mutex::new(false),
        })
    }

    /// A subscriber was added: reads the list of names once per time-to-live of the catalogue until there are no subscribers. The
    /// catalogue notifies them.
    pub(crate) fn listened(self: &Arc<Poller>) {
        let mut running = lock(&self.running);
        if *running {
            return;
        }
        let poller = self.clone();
        let thread = thread::Builder::new()
            .name("poller".into())
            .stack_size(WORKER_STACK);
        match thread.spawn(move || poller.run()) {
            Ok(_) => *running = true,
            Err(error) => log::warn!("changes of the lists cannot be watched for: {error}"),
        }
    }

    fn run(&self) {
        loop {
            thread::sleep(self.server.catalog.ttl());
            let mut running = lock(&self.running);
            // Under the lock: a subscriber added right after this starts the thread again.
            if !self.server.subscriptions.any() {
                *running = false;
                return;
            }
            drop(running);
            let wait: Arc<dyn Wait> = Arc::new(NoWait);
            if let Err(error) = self.server.catalog.names(Age::Fresh, &wait) {
                log::debug!("the list of patterns could not be read: {error}");
            }
        }
    }
}
