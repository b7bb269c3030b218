//! The caches of Fabric's long lists: patterns and models.
//!
//! In scope: single-flight reads and expiry. Not in scope: how callers share one read (`cached`), the list of names
//! (`routes`), when to poll and what subscribers are sent (`server`).

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::cached::Cached;
use super::{
    CallObserver, Client, Error, Kind, Models, Name, NameList, Observer, Strategy, Until, no_room,
};
use crate::config::{MAX_FABRIC_BODY, MAX_PATTERN_TEXTS};
use crate::logging;
use crate::search::{Index, purpose};
use crate::sync::SLICE;

/// Concurrent requests to Fabric during a refresh.
const CATALOG_REQUESTS: usize = 8;

/// The pages of a list for clients, as JSON; written on first use, because thousands of patterns take long.
pub(crate) type Pages = OnceLock<Vec<Arc<[u8]>>>;

/// All patterns and strategies as of the start of a refresh.
pub(crate) struct Snapshot {
    /// When it expires.
    pub(crate) until: Instant,
    /// The list of names it was built from.
    names: Arc<NameList>,
    /// Sorted by name.
    pub(crate) patterns: Vec<Entry>,
    strategies: Arc<Strategies>,
    /// Built on first use: callers that need only variables do not wait for it.
    index: OnceLock<Index>,
    /// The patterns that are offered as skills, by the skills' names, for all who list them.
    pub(crate) skills: OnceLock<BTreeMap<String, String>>,
    /// The list of prompts without and with titles.
    pub(crate) prompts: [Pages; 2],
    /// The same of resources.
    pub(crate) resources: [Pages; 2],
    /// The list of skills.
    pub(crate) skill_pages: Pages,
}

impl Snapshot {
    /// The pattern of this name.
    pub(crate) fn pattern(&self, name: &str) -> Option<&Entry> {
        let by_name = |entry: &Entry| entry.name.as_str().cmp(name);
        let at = self.patterns.binary_search_by(by_name);
        self.patterns.get(at.ok()?)
    }

    /// The strategies, sorted by name.
    pub(crate) fn strategies(&self) -> &[Strategy] {
        (*self.strategies).as_deref().unwrap_or_default()
    }

    /// The search index.
    pub(crate) fn index(&self) -> &Index {
        let texts = self.patterns.iter().map(|entry| {
            let text = entry.text.as_deref().unwrap_or_default();
            (entry.name.as_str(), text)
        });
        self.index.get_or_init(|| Index::build(texts))
    }

    /// What the pattern of this name does.
    pub(crate) fn description<'a>(&'a self, name: &'a str) -> &'a str {
        self.pattern(name).map_or(name, |entry| &entry.description)
    }

    /// How many patterns have no text.
    pub(crate) fn unread(&self) -> usize {
        let texts = self.patterns.iter().map(|entry| &entry.text);
        texts.filter(|text| text.is_none()).count()
    }
}

/// One pattern of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The whole text; `None` if it could not be read or exceeds [`MAX_PATTERN_TEXTS`].
    pub(crate) text: Option<Box<str>>,
    /// [`Pattern::summary`](super::Pattern::summary).
    description: String,
    /// [`Pattern::variables`](super::Pattern::variables).
    pub(crate) variables: Vec<String>,
}

/// All patterns, and how many of them could not be read.
type PatternsRead = (Vec<Entry>, u32);

/// How long a caller waits for another's read before it starts its own, where a read takes long: of strategies with
/// their texts, of anything in folders, and of models: Fabric asks its vendors for them, and meanwhile gives a second
/// caller an empty list.
pub(super) const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// How old the models and the configuration may be: to answer, Fabric may have to ask its vendors.
const SHARED: Duration = Duration::from_secs(5);

/// The strategies; `None` if there is no folder of them.
pub(crate) type Strategies = Option<Vec<Strategy>>;

/// The catalogue. Shared by all threads.
pub(crate) struct Catalog {
    fabric: Arc<Client>,
    /// The time-to-live of what was read.
    pub(crate) ttl: Duration,
    models: Cached<Models>,
    strategies: Cached<Strategies>,
    configuration: Cached<Map<String, Value>>,
    snapshot: Cached<Snapshot>,
}

impl Catalog {
    /// An empty catalogue. `ttl` counts from the start of a read of `fabric`.
    pub(crate) fn new(fabric: Arc<Client>, ttl: Duration) -> Catalog {
        Catalog {
            fabric,
            ttl,
            models: Cached::new(LONG_PATIENCE),
            strategies: Cached::new(LONG_PATIENCE),
            configuration: Cached::new(LONG_PATIENCE),
            // A refresh is many requests, each with its own timeout.
            snapshot: Cached::new(Duration::MAX),
        }
    }

    /// All patterns and strategies, refreshed if expired (single-flight; an error goes to every caller that waited).
    pub(crate) fn snapshot(&self, observer: &Observer) -> Result<Arc<Snapshot>, Error> {
        self.snapshot.invalidate(|old| old.until <= Instant::now());
        loop {
            let read = || self.refresh(observer);
            let snapshot = self.snapshot.get(self.ttl, observer.as_ref(), read)?;
            // The list of names may have changed since, or during the read.
            let is_outdated = |newest| newest != snapshot.names;
            if !self.fabric.cached_names().is_some_and(is_outdated) {
                return Ok(snapshot);
            }
            self.snapshot.invalidate(|old| ptr::eq(old, &*snapshot));
        }
    }

    /// The newest snapshot of any age, without a request to Fabric.
    pub(crate) fn latest(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.latest(None)
    }

    fn refresh(&self, observer: &Observer) -> Result<Arc<Snapshot>, Error> {
        let begun = Instant::now();
        let names = self.fabric.names(Duration::ZERO, observer)?;
        let (patterns, failed) = self.read_patterns(&names, observer)?;
        let strategies = match self.strategies(observer) {
            // A Fabric without strategies still has patterns.
            Err(error) if !is_general(&error) => {
                log::warn!("the catalogue has no strategies: {error}");
                Arc::default()
            }
            strategies => strategies?,
        };
        Ok(Arc::new(Snapshot {
            // What could not be read is asked for again the sooner, the more there is of it.
            until: begun + self.ttl / (1 + failed.min(9)),
            names,
            patterns,
            strategies,
            index: OnceLock::new(),
            skills: OnceLock::new(),
            prompts: Default::default(),
            resources: Default::default(),
            skill_pages: Pages::default(),
        }))
    }

    /// The strategies, from a read that begins after this call; callers that arrive during a read share the next one.
    pub(crate) fn strategies(&self, observer: &Observer) -> Result<Arc<Strategies>, Error> {
        // Strategies from folders are in memory before their length is known, so room for the most is taken first.
        let most = match self.fabric.has_fabric() {
            true => 0,
            false => MAX_FABRIC_BODY,
        };
        let read = || {
            observer.hold(most)?;
            let read = self.fabric.strategies(observer).map(Arc::new);
            observer.release(most);
            read
        };
        self.strategies.get(Duration::ZERO, observer.as_ref(), read)
    }

    /// Fabric's configuration, with each value changed by `redact` before it is kept. At most [`SHARED`] old.
    pub(crate) fn configuration(
        &self,
        redact: fn(&mut Value),
        observer: &Observer,
    ) -> Result<Arc<Map<String, Value>>, Error> {
        let read = || {
            let mut read = self.fabric.configuration(observer)?;
            read.values_mut().for_each(redact);
            Ok(Arc::new(read))
        };
        self.configuration.get(SHARED, observer.as_ref(), read)
    }

    /// All models, at most [`SHARED`] old.
    pub(crate) fn models(&self, observer: &Observer) -> Result<Arc<Models>, Error> {
        let read = || self.fabric.models(observer).map(Arc::new);
        self.models.get(SHARED, observer.as_ref(), read)
    }

    /// Lets a Fabric of our own list its models before the first run that names one: it would do so for that run, and
    /// meanwhile finds none for other callers. Another Fabric may also have other models than the one before.
    ///
    /// # Errors
    /// Fabric cannot be started, or the caller cancelled.
    pub(crate) fn list_models_once(&self, observer: &Observer) -> Result<(), Error> {
        observer.still_waiting()?;
        let Some(own) = self.fabric.own(observer)? else {
            return Ok(());
        };
        let ask = || {
            self.models.invalidate(|_| true);
            let limited: Observer = Arc::new(Until::after(LONG_PATIENCE, observer.clone()));
            // If that fails, the run itself will say why.
            let _ = self.models(&limited);
            observer.still_waiting().map(Arc::new)
        };
        let asked = own.asked.get(Duration::MAX, observer.as_ref(), ask);
        asked.map(drop)
    }

    /// The models of the last read, if that has not expired. Sends no request.
    pub(crate) fn cached_models(&self) -> Option<Arc<Models>> {
        self.models.latest(Instant::now().checked_sub(self.ttl))
    }

    /// Reads every pattern, up to [`CATALOG_REQUESTS`] at once. One that cannot be read stays listed by name, and is
    /// counted; if too many fail because Fabric is gone, the refresh fails.
    fn read_patterns(&self, names: &NameList, observer: &Observer) -> Result<PatternsRead, Error> {
        let next = AtomicUsize::new(0);
        // Only this thread asks `observer` whether to go on, which need not support several threads.
        let stop = Arc::new(AtomicBool::new(false));
        let entries = std::thread::scope(|scope| {
            // A failure must be looked at before more is requested.
            let (sender, receiver) = mpsc::sync_channel(CATALOG_REQUESTS);
            for _ in 0..CATALOG_REQUESTS.min(names.len()) {
                let (sender, stop, next) = (sender.clone(), Arc::clone(&stop), &next);
                let helper = move || {
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(name) = names.get(at) else { return };
                        let held = AtomicUsize::new(0);
                        let (stop, payer) = (Arc::clone(&stop), Arc::clone(observer));
                        let observer: Observer = Arc::new(OfOne { stop, payer, held });
                        let read = self.read_pattern(name, &observer);
                        if sender.send((at, read)).is_err() {
                            return;
                        }
                    }
                };
                let thread = std::thread::Builder::new().name("catalog".into());
                // If the system has no more threads, work with fewer.
                if thread.spawn_scoped(scope, helper).is_err() {
                    break;
                }
            }
            drop(sender);
            let entries = collect(names, &receiver, observer.as_ref());
            stop.store(true, Ordering::Relaxed);
            entries
        })?;
        if next.into_inner() == 0 && !names.is_empty() {
            let detail =
                "This machine could not start a thread to read the patterns. Try again later.";
            return Err(Error::new(Kind::Internal, detail));
        }
        Ok(entries)
    }

    fn read_pattern(&self, name: &str, observer: &Observer) -> Result<Entry, Error> {
        let wanted = Name::parse("name", name)?;
        let pattern = self.fabric.fetch_pattern(&wanted, observer)?;
        Ok(Entry {
            name: name.to_owned(),
            description: pattern.summary(name),
            variables: pattern.variables(),
            text: Some(pattern.system_prompt.into_boxed_str()),
        })
    }
}

/// The patterns of these names, as `received` says: the place of each, and its entry.
fn collect(
    names: &NameList,
    received: &mpsc::Receiver<(usize, Result<Entry, Error>)>,
    observer: &dyn CallObserver,
) -> Result<PatternsRead, Error> {
    let unread = |name: &str| Entry {
        name: name.to_owned(),
        description: purpose(name, ""),
        ..Entry::default()
    };
    let mut entries: Vec<Entry> = names.iter().map(unread).collect();
    let (mut general, mut failed, mut room, mut left_out) = (0, 0, MAX_PATTERN_TEXTS, 0);
    loop {
        let next = received.recv_timeout(SLICE);
        observer.still_waiting()?;
        match next {
            Ok((at, Ok(mut entry))) => {
                let length = entry.text.as_deref().map_or(0, str::len);
                if length <= room {
                    room -= length;
                } else {
                    entry.text = None;
                    left_out += 1;
                }
                entries[at] = entry;
            }
            Ok((_, Err(error))) => {
                failed += 1;
                general += usize::from(is_general(&error));
                if general >= CATALOG_REQUESTS.min(names.len()) {
                    return Err(error);
                }
                let message = format!("a pattern could not be read for the catalogue: {error}");
                logging::debug(module_path!(), message);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    if left_out > 0 {
        log::warn!(
            "the patterns' texts have more than {} MiB together: {left_out} are known by name only",
            MAX_PATTERN_TEXTS >> 20
        );
    }
    Ok((entries, failed))
}

/// Failures of Fabric as a whole, or for want of memory: not of one request.
fn is_general(error: &Error) -> bool {
    matches!(
        error.kind,
        Kind::ApiUnavailable | Kind::ApiUnauthorized | Kind::Cancelled
    ) || error.retry_after.is_some()
        || *error == no_room()
}

/// The wait for one of many patterns: a flag stops it, and the caller pays for the body while it is read.
struct OfOne {
    stop: Arc<AtomicBool>,
    payer: Observer,
    held: AtomicUsize,
}

impl CallObserver for OfOne {
    fn still_waiting(&self) -> Result<(), Error> {
        let goes_on = (!self.stop.load(Ordering::Relaxed)).then_some(());
        goes_on.ok_or_else(Error::cancelled)
    }

    fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.payer.hold(bytes)?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for OfOne {
    fn drop(&mut self) {
        self.payer.release(*self.held.get_mut());
    }
}

#[cfg(test)]
mod tests;
