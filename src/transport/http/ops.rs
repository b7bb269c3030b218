//! `/healthz`, `/readyz` and `/metrics`.
//!
//! In scope: their responses. Not in scope: access (`web`) and counters (`metrics`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::account::Resource;
use crate::fabric::{Cached, Kind, Observer, Poll, Until};
use crate::sync::Finally;
use crate::tools::Backend;
use crate::{metrics, time};

/// Most probes that wait for Fabric, since each holds a thread and anybody may send them. Others get the last result, or
/// "not ready".
const MAX_WAITING: usize = 16;
/// How long `/readyz` waits for Fabric.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a result of `/readyz` is cached.
const READY_TTL: Duration = Duration::from_secs(1);

/// The endpoints for operators.
pub(super) struct Ops {
    /// Why Fabric cannot be used, if so: cached for [`READY_TTL`] and read once at a time.
    unready: Cached<Option<Kind>>,
    waiting: AtomicUsize,
    backend: Arc<Backend>,
}

/// The paths of the endpoints without authentication.
pub(super) const PROBES: [&str; 2] = ["/healthz", READY];
const READY: &str = "/readyz";

impl Ops {
    /// Endpoints of a server with this backend.
    pub(super) fn new(backend: Arc<Backend>) -> Ops {
        time::started();
        Ops {
            unready: Cached::new(READY_TIMEOUT),
            waiting: AtomicUsize::new(0),
            backend,
        }
    }

    /// The answer to one of [`PROBES`]: the status, and a JSON body that anyone may read: it tells nothing about this
    /// host.
    pub(super) fn probe(&self, path: &str) -> (u16, Vec<u8>) {
        let failed = (path == READY).then(|| self.unready()).flatten();
        match failed {
            None => (200, br#"{"status":"ok"}"#.to_vec()),
            Some(kind) => {
                let (urn, title) = (kind.urn(), kind.title());
                let failure = json!({ "status": "unavailable", "type": urn, "title": title });
                (503, failure.to_string().into_bytes())
            }
        }
    }

    /// Why Fabric cannot be used, if so. One that is started when it is needed can be, unless that has just failed.
    pub(super) fn unready(&self) -> Option<Kind> {
        let fabric = &self.backend.fabric;
        if fabric.rests() {
            let process = fabric.process.as_ref();
            return process.and_then(|process| Some(process.failure()?.kind));
        }
        let observer: Observer = Arc::new(Until::after(READY_TIMEOUT, Arc::new(Poll)));
        let read = || {
            let asked = fabric.names(Duration::ZERO, &observer);
            Ok(Arc::new(asked.err().map(|error| match error.kind {
                // Only `Until` cancels this read: Fabric took too long.
                Kind::Cancelled => Kind::ApiUnavailable,
                kind => kind,
            })))
        };
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _leave = Finally(|| _ = self.waiting.fetch_sub(1, Ordering::Relaxed));
        let found = match others < MAX_WAITING {
            true => self.unready.get(READY_TTL, observer.as_ref(), read).ok(),
            false => self.unready.latest(None),
        };
        found.map_or(Some(Kind::ApiUnavailable), |found| *found)
    }

    /// The text of `/metrics`.
    pub(super) fn metrics(&self, connections: usize, sessions: usize) -> String {
        metrics::CONNECTIONS.set([], connections as u64);
        metrics::SESSIONS.set([], sessions as u64);
        metrics::RUNS_KEPT.set([], self.backend.runs.kept() as u64);
        metrics::STATE_FAILING.set([], u64::from(self.backend.runs.is_failing()));
        metrics::UNWRITTEN.set([], self.backend.runs.unwritten() as u64);
        metrics::FABRIC_UP.set([], u64::from(self.unready().is_none()));
        let accounts = &self.backend.accounts;
        metrics::RUNS_IN_FLIGHT.set([], accounts.used(Resource::Runs) as u64);
        metrics::MEMORY.set([], accounts.used(Resource::Memory) as u64);
        metrics::MEMORY_LIMIT.set([], accounts.total(Resource::Memory) as u64);
        metrics::text()
    }
}
