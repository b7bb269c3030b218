//! `/healthz`, `/readyz` and `/metrics`.
//!
//! In scope: what they say. Not in scope: who may ask (`web`), and the counters themselves (`metrics`).

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fabric::{Client, Error, Kind, Stop, Wait};
use crate::sync::lock;
use crate::{http, metrics};

/// How long `/readyz` waits for Fabric.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer of `/readyz` is good for further probes.
const READY_TTL: Duration = Duration::from_secs(1);

/// The answers for operators.
pub(super) struct Ops {
    ready: Ready,
    /// Weak, because that server holds us.
    connections: Weak<http::Server>,
}

/// A path that anyone may ask.
pub(super) enum Probe<'a> {
    Health,
    Ready(&'a Ready),
}

impl Ops {
    /// For a server in front of `fabric`.
    pub(super) fn new(fabric: Arc<Client>, connections: Weak<http::Server>) -> Ops {
        let ask = move || fabric.pattern_names(&(Arc::new(Until(Instant::now() + READY_TIMEOUT)) as Arc<dyn Wait>));
        Ops { ready: Ready::new(READY_TTL, Box::new(move || ask().map(drop))), connections }
    }

    /// The probe at `path`.
    pub(super) fn probe(&self, path: &str) -> Option<Probe<'_>> {
        match path {
            "/healthz" => Some(Probe::Health),
            "/readyz" => Some(Probe::Ready(&self.ready)),
            _ => None,
        }
    }

    /// The text of `/metrics`.
    pub(super) fn metrics(&self, sessions: usize) -> String {
        metrics::render(self.connections.upgrade().map_or(0, |server| server.connections()), sessions)
    }
}

impl Probe<'_> {
    /// The status, and a JSON body that tells nothing of this host: anyone may read it.
    pub(super) fn answer(self) -> (u16, Vec<u8>) {
        let failed = match self {
            Probe::Health => None,
            Probe::Ready(ready) => ready.ask(),
        };
        match failed {
            None => (200, br#"{"status":"ok"}"#.to_vec()),
            Some(kind) => {
                let body = json!({ "status": "unavailable", "type": kind.urn(), "title": kind.title() });
                (503, serde_json::to_vec(&body).unwrap_or_default())
            }
        }
    }
}

/// Whether Fabric answers. However many ask, Fabric is asked once a time, and not again within `ttl`.
pub(super) struct Ready {
    ttl: Duration,
    fabric: Box<dyn Fn() -> Result<(), Error> + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asking: bool,
    /// When Fabric was asked last, and what went wrong.
    last: Option<(Instant, Option<Kind>)>,
}

impl Ready {
    fn new(ttl: Duration, fabric: Box<dyn Fn() -> Result<(), Error> + Send + Sync>) -> Ready {
        Ready { ttl, fabric, state: Mutex::default(), changed: Condvar::new() }
    }

    /// What is wrong with Fabric, if anything is.
    fn ask(&self) -> Option<Kind> {
        let mut state = lock(&self.state);
        loop {
            match state.last {
                // While somebody asks, the others are told what was known before.
                Some((at, failed)) if state.asking || at.elapsed() < self.ttl => return failed,
                _ if !state.asking => break,
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.asking = true;
        drop(state);
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&self.fabric));
        let failed = match answer {
            Ok(Ok(())) => None,
            // Only our own limit on waiting cancels here.
            Ok(Err(error)) if error.kind == Kind::Cancelled => Some(Kind::ApiUnavailable),
            Ok(Err(error)) => Some(error.kind),
            Err(_panicked) => Some(Kind::Internal),
        };
        *lock(&self.state) = State { asking: false, last: Some((Instant::now(), failed)) };
        self.changed.notify_all();
        failed
    }
}

/// Waits until a moment.
struct Until(Instant);

impl Wait for Until {
    fn still_waiting(&self) -> Result<(), Stop> {
        if Instant::now() < self.0 { Ok(()) } else { Err(Stop) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn many_who_ask_at_once_are_one_question() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let ready = Ready::new(
            Duration::MAX,
            Box::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
                Err(Error::new(Kind::ApiUnavailable, "no"))
            }),
        );
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(ready.ask(), Some(Kind::ApiUnavailable)));
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn probes_say_what_they_found() {
        assert_eq!(Probe::Health.answer(), (200, br#"{"status":"ok"}"#.to_vec()));
        let panics = Ready::new(Duration::ZERO, Box::new(|| panic!("no")));
        let (status, body) = Probe::Ready(&panics).answer();
        assert_eq!(status, 503);
        assert!(String::from_utf8(body).unwrap().contains("urn:fabric-mcp:error:internal-server-error"));
        assert!(panics.ask().is_some(), "it can be asked again");
    }
}
