//! The shared, timed list of patterns and strategies behind prompts, resources and completion.
//!
//! In scope: reading it once for all callers, keeping it for its time and no longer, and telling when the list of
//! patterns has changed. Not in scope: how callers share one reading (`shared`), when to poll, and what listeners are told
//! (`transport`, `mcp`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::wait::SLICE;
use super::{Client, Error, Kind, Name, Names, NoWait, Pattern, Stop, Strategy, Wait};
use crate::sync::lock;

/// Requests to Fabric at once while the catalogue is refreshed.
const CATALOG_REQUESTS: usize = 8;

/// All patterns and strategies, as they were when a refresh began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Until when it is good.
    pub(crate) until: Instant,
    /// Sorted by name.
    pub(crate) patterns: Vec<Entry>,
    /// Sorted by name.
    pub(crate) strategies: Vec<Strategy>,
}

impl Snapshot {
    /// The pattern of this name.
    pub(crate) fn pattern(&self, name: &str) -> Option<&Entry> {
        let at = self.patterns.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.patterns.get(at)
    }

    /// The strategy of this name.
    pub(crate) fn strategy(&self, name: &str) -> Option<&Strategy> {
        let at = self.strategies.binary_search_by(|strategy| strategy.name.as_str().cmp(name)).ok()?;
        self.strategies.get(at)
    }
}

/// What a list shows of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// [`Pattern::summary`].
    pub(crate) description: String,
    /// [`Pattern::variables`].
    pub(crate) variables: Vec<String>,
}

/// Where the catalogue reads from: Fabric, or a test.
pub(crate) trait Source: Send + Sync {
    /// The names of all patterns.
    fn names(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Names>, Error>;
    /// One pattern of that list.
    fn pattern(&self, name: &Name, wait: &Arc<dyn Wait>) -> Result<Pattern, Error>;
    /// The sorted strategies.
    fn strategies(&self, wait: &Arc<dyn Wait>) -> Result<Vec<Strategy>, Error>;
}

impl Source for Client {
    fn names(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Names>, Error> {
        self.pattern_names(wait)
    }

    fn pattern(&self, name: &Name, wait: &Arc<dyn Wait>) -> Result<Pattern, Error> {
        self.listed_pattern(name, wait)
    }

    fn strategies(&self, wait: &Arc<dyn Wait>) -> Result<Vec<Strategy>, Error> {
        Client::strategies(self, wait)
    }
}

/// The catalogue. Shared by all threads.
pub(crate) struct Catalog<S: Source = Client> {
    source: Arc<S>,
    names: Shared<Names>,
    strategies: Shared<Vec<Strategy>>,
    snapshot: Shared<Snapshot>,
    /// The names as they were last seen, whether still good or not, and when their reading began.
    known: Mutex<Option<(Instant, Arc<Names>)>>,
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl<S: Source> Catalog<S> {
    /// An empty catalogue; what is read from `source` is good for `ttl`, counted from the start of the reading.
    pub(crate) fn new(source: Arc<S>, ttl: Duration) -> Catalog<S> {
        Catalog {
            source,
            names: Shared::kept(ttl),
            strategies: Shared::kept(ttl),
            snapshot: Shared::kept(ttl),
            known: Mutex::new(None),
            on_change: OnceLock::new(),
        }
    }

    /// Sets what is called when anyone's reading finds other pattern names than the one before; not called for the
    /// first. Runs on the reading thread and must not block. Only the first setting counts.
    pub(crate) fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_change.set(Box::new(hook));
    }

    /// How long what was read is good for.
    pub(crate) fn ttl(&self) -> Duration {
        self.names.ttl()
    }

    /// Everything. Refreshed if its time is over, by one caller for all; a refresh that fails fails for all who waited.
    pub(crate) fn snapshot(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Snapshot>, Error> {
        self.snapshot_at(&Instant::now, wait)
    }

    fn snapshot_at(&self, now: &dyn Fn() -> Instant, wait: &Arc<dyn Wait>) -> Result<Arc<Snapshot>, Error> {
        self.snapshot.value(now, wait.as_ref(), || {
            let begun = now();
            let names = self.source.names(wait)?;
            self.names.put(begun, Arc::clone(&names));
            let patterns = self.read_patterns(&names, wait)?;
            let strategies = match self.source.strategies(wait) {
                // A Fabric without strategies still has patterns.
                Err(error) if !is_general(&error) => {
                    log::warn!("the catalogue has no strategies: {error}");
                    Vec::new()
                }
                other => {
                    let strategies = other?;
                    self.strategies.put(begun, Arc::new(strategies.clone()));
                    strategies
                }
            };
            // Last, so that whoever is told asks anew and waits for this very refresh, or the next one.
            if self.learn(begun, &names) {
                self.tell();
            }
            Ok(Arc::new(Snapshot { until: begun + self.ttl(), patterns, strategies }))
        })
    }

    /// Only the names of all patterns, for which one request is enough.
    pub(crate) fn names(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Names>, Error> {
        self.names_at(&Instant::now, wait)
    }

    fn names_at(&self, now: &dyn Fn() -> Instant, wait: &Arc<dyn Wait>) -> Result<Arc<Names>, Error> {
        self.names.value(now, wait.as_ref(), || {
            let begun = now();
            let names = self.source.names(wait)?;
            if self.learn(begun, &names) {
                self.snapshot.forget();
                self.tell();
            }
            Ok(names)
        })
    }

    /// Only the strategies, sorted by name, for which one request is enough.
    pub(crate) fn strategies(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Vec<Strategy>>, Error> {
        self.strategies.value(&Instant::now, wait.as_ref(), || self.source.strategies(wait).map(Arc::new))
    }

    /// Reads the list of names, and nothing else. `true` if it differs from what was last known; then the rest is read
    /// anew when it is next asked for.
    pub(crate) fn poll(&self) -> Result<bool, Error> {
        self.poll_at(Instant::now())
    }

    fn poll_at(&self, now: Instant) -> Result<bool, Error> {
        let wait: Arc<dyn Wait> = Arc::new(NoWait);
        let names = self.source.names(&wait)?;
        self.names.put(now, Arc::clone(&names));
        let is_changed = self.learn(now, &names);
        if is_changed {
            self.snapshot.forget();
            self.tell();
        }
        Ok(is_changed)
    }

    /// Remembers the names that were read from `begun` on, unless later ones are known. True if they are others than before:
    /// then forget what came of those, and [`Catalog::tell`].
    fn learn(&self, begun: Instant, names: &Arc<Names>) -> bool {
        let mut known = lock(&self.known);
        if known.as_ref().is_some_and(|(later, _)| *later > begun) {
            return false;
        }
        let before = known.replace((begun, Arc::clone(names)));
        before.is_some_and(|(_, before)| before != *names)
    }

    /// Tells that the names have changed. Whoever is told may ask at once, so nothing outdated may be left by now.
    fn tell(&self) {
        if let Some(hook) = self.on_change.get() {
            hook();
        }
    }

    /// Reads every pattern, up to [`CATALOG_REQUESTS`] at once. One that cannot be read stays listed by its name; if
    /// that becomes a habit, because Fabric has gone, the refresh fails.
    fn read_patterns(&self, names: &Names, wait: &Arc<dyn Wait>) -> Result<Vec<Entry>, Error> {
        let mut entries: Vec<Option<Entry>> = vec![None; names.len()];
        let next = AtomicUsize::new(0);
        // Only this thread asks the caller, who need not expect to be asked from several.
        let stop = Arc::new(Flag(AtomicBool::new(false)));
        let helpers_wait: Arc<dyn Wait> = Arc::clone(&stop) as Arc<dyn Wait>;
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let mut helpers = 0;
            while helpers < CATALOG_REQUESTS.min(names.len()) {
                let sender = sender.clone();
                let (next, stop, wait) = (&next, &stop, &helpers_wait);
                let helper = move || {
                    while stop.still_waiting().is_ok() {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(name) = names.get(at) else { return };
                        if sender.send((at, self.read_pattern(name, wait))).is_err() {
                            return;
                        }
                    }
                };
                // A system short of threads gets by with fewer.
                if std::thread::Builder::new().name("catalog".into()).spawn_scoped(scope, helper).is_err() {
                    break;
                }
                helpers += 1;
            }
            drop(sender);
            if helpers == 0 && !names.is_empty() {
                return Err(Error::new(
                    Kind::Internal,
                    "No thread is left to read the patterns with. Try again later.",
                ));
            }
            // Whichever way this ends, the helpers do.
            let _stop = StopOnDrop(&stop);
            let mut general = 0;
            let mut asked = Instant::now();
            loop {
                let received = receiver.recv_timeout(SLICE);
                // By the clock: patterns that keep coming must not keep a caller who has left.
                if asked.elapsed() >= SLICE {
                    wait.still_waiting().map_err(|Stop| Error::cancelled())?;
                    asked = Instant::now();
                }
                let (at, result) = match received {
                    Ok(read) => read,
                    Err(mpsc::RecvTimeoutError::Timeout) => continue,
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                };
                entries[at] = match result {
                    Ok(entry) => Some(entry),
                    Err(error) => {
                        general += usize::from(is_general(&error));
                        if general >= CATALOG_REQUESTS.min(names.len()) {
                            return Err(error);
                        }
                        log::debug!("a pattern could not be read for the catalogue: {error}");
                        None
                    }
                };
            }
            Ok(())
        })?;
        let listed = |(entry, name): (Option<Entry>, &str)| {
            entry.unwrap_or_else(|| Entry {
                name: name.to_owned(),
                description: Pattern::fallback_summary(name),
                variables: Vec::new(),
            })
        };
        Ok(entries.into_iter().zip(names.iter()).map(listed).collect())
    }

    fn read_pattern(&self, name: &str, wait: &Arc<dyn Wait>) -> Result<Entry, Error> {
        let pattern = self.source.pattern(&Name::parse("name", name)?, wait)?;
        Ok(Entry { name: name.to_owned(), description: pattern.summary(), variables: pattern.variables() })
    }
}

/// Failures that are about Fabric as a whole, not about one thing in it.
fn is_general(error: &Error) -> bool {
    matches!(error.kind, Kind::ApiUnavailable | Kind::ApiUnauthorized | Kind::Cancelled) || error.retry_after.is_some()
}

/// A flag that ends whoever waits under it.
struct Flag(AtomicBool);

impl Wait for Flag {
    fn still_waiting(&self) -> Result<(), Stop> {
        if self.0.load(Ordering::Relaxed) { Err(Stop) } else { Ok(()) }
    }
}

struct StopOnDrop<'a>(&'a Flag);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
