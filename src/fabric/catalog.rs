//! The shared, timed list of patterns and strategies behind prompts, resources and completion.
//!
//! In scope: reading it once for all callers, keeping it for its time and no longer, and telling when the list of
//! patterns has changed. Not in scope: when to poll, and what listeners are told (`transport`, `mcp`).
//!
//! ```text
//!            first caller                      done, or failed
//! nothing ───────────────► being refreshed ──────────────────────► good for `ttl` ──► nothing
//!                          others wait, each asking its own Wait;
//!                          if the first is cancelled, one of them goes on
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::{Client, Error, Kind, Name, NoWait, Pattern, Stop, Strategy, Wait};
use crate::config::CATALOG_REQUESTS;

/// How often one who waits for another's refresh, or for helpers, is asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);

/// All patterns and strategies, as they were when a refresh began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
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
    /// The sorted names of all patterns.
    fn names(&self, wait: &Arc<dyn Wait>) -> Result<Vec<String>, Error>;
    /// One pattern of that list.
    fn pattern(&self, name: &Name, wait: &Arc<dyn Wait>) -> Result<Pattern, Error>;
    /// The sorted strategies.
    fn strategies(&self, wait: &Arc<dyn Wait>) -> Result<Vec<Strategy>, Error>;
}

impl Source for Client {
    fn names(&self, wait: &Arc<dyn Wait>) -> Result<Vec<String>, Error> {
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
    names: Shared<Vec<String>>,
    snapshot: Shared<Snapshot>,
    /// The names as they were last seen, whether still good or not.
    known: Mutex<Option<Arc<Vec<String>>>>,
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl<S: Source> Catalog<S> {
    /// An empty catalogue; what is read from `source` is good for `ttl`, counted from the start of the reading.
    pub(crate) fn new(source: Arc<S>, ttl: Duration) -> Catalog<S> {
        Catalog {
            source,
            names: Shared::new(ttl),
            snapshot: Shared::new(ttl),
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
        self.names.ttl
    }

    /// Everything. Refreshed if its time is over, by one caller for all; a refresh that fails fails for all who waited.
    pub(crate) fn snapshot(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Snapshot>, Error> {
        self.snapshot_at(&Instant::now, wait)
    }

    fn snapshot_at(&self, now: &dyn Fn() -> Instant, wait: &Arc<dyn Wait>) -> Result<Arc<Snapshot>, Error> {
        self.snapshot.value(now, wait.as_ref(), || {
            let begun = now();
            let names = Arc::new(self.source.names(wait)?);
            self.names.put(begun, Arc::clone(&names));
            let patterns = self.read_patterns(&names, wait)?;
            let strategies = match self.source.strategies(wait) {
                // A Fabric without strategies still has patterns.
                Err(error) if !is_general(&error) => {
                    log::warn!("the catalogue has no strategies: {error}");
                    Vec::new()
                }
                other => other?,
            };
            // Last, so that whoever is told asks anew and waits for this very refresh.
            self.learn(&names);
            Ok(Snapshot { patterns, strategies })
        })
    }

    /// Only the sorted names of all patterns, for which one request is enough.
    pub(crate) fn names(&self, wait: &Arc<dyn Wait>) -> Result<Arc<Vec<String>>, Error> {
        self.names_at(&Instant::now, wait)
    }

    fn names_at(&self, now: &dyn Fn() -> Instant, wait: &Arc<dyn Wait>) -> Result<Arc<Vec<String>>, Error> {
        self.names.value(now, wait.as_ref(), || {
            let names = self.source.names(wait)?;
            if self.learn(&Arc::new(names.clone())) {
                self.snapshot.forget();
            }
            Ok(names)
        })
    }

    /// Reads the list of names, and nothing else. `true` if it differs from what was last known; then the rest is read
    /// anew when it is next asked for.
    pub(crate) fn poll(&self) -> Result<bool, Error> {
        self.poll_at(Instant::now())
    }

    fn poll_at(&self, now: Instant) -> Result<bool, Error> {
        let wait: Arc<dyn Wait> = Arc::new(NoWait);
        let names = Arc::new(self.source.names(&wait)?);
        self.names.put(now, Arc::clone(&names));
        let is_changed = self.learn(&names);
        if is_changed {
            self.snapshot.forget();
        }
        Ok(is_changed)
    }

    /// Remembers the names, and tells when they are others than before.
    fn learn(&self, names: &Arc<Vec<String>>) -> bool {
        let before = lock(&self.known).replace(Arc::clone(names));
        let is_changed = before.is_some_and(|before| before != *names);
        if is_changed && let Some(hook) = self.on_change.get() {
            hook();
        }
        is_changed
    }

    /// Reads every pattern, up to [`CATALOG_REQUESTS`] at once. One that cannot be read stays listed by its name; if
    /// that becomes a habit, because Fabric has gone, the refresh fails.
    fn read_patterns(&self, names: &[String], wait: &Arc<dyn Wait>) -> Result<Vec<Entry>, Error> {
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
            loop {
                let (at, result) = match receiver.recv_timeout(SLICE) {
                    Ok(read) => read,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        wait.still_waiting().map_err(|Stop| Error::cancelled())?;
                        continue;
                    }
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
        let listed = |(entry, name): (Option<Entry>, &String)| {
            entry.unwrap_or_else(|| Entry {
                name: name.clone(),
                description: Pattern::fallback_summary(name),
                variables: Vec::new(),
            })
        };
        Ok(entries.into_iter().zip(names).map(listed).collect())
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

/// One value that is read when it is needed, by one caller for all, and kept for its time.
struct Shared<T> {
    ttl: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    value: Option<(Instant, Arc<T>)>,
    is_refreshing: bool,
    /// How many refreshes have ended, and how the last of them failed if it did.
    ended: u64,
    failure: Option<Error>,
    /// Counts what made a refresh outdated while it went on.
    forgotten: u64,
}

impl<T> Shared<T> {
    fn new(ttl: Duration) -> Shared<T> {
        let state = State { value: None, is_refreshing: false, ended: 0, failure: None, forgotten: 0 };
        Shared { ttl, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes a value that was read by other means, beginning at `begun`.
    fn put(&self, begun: Instant, value: Arc<T>) {
        lock(&self.state).value = Some((begun, value));
    }

    /// What is known is good no more.
    fn forget(&self) {
        let mut state = lock(&self.state);
        state.value = None;
        state.forgotten += 1;
    }

    /// The value, if need be by `read`, or by the `read` of another caller that is under way.
    fn value(
        &self,
        now: &dyn Fn() -> Instant,
        wait: &dyn Wait,
        read: impl FnOnce() -> Result<T, Error>,
    ) -> Result<Arc<T>, Error> {
        let mut state = lock(&self.state);
        let mut waited_for = None;
        loop {
            if let Some((begun, value)) = &state.value
                && now().saturating_duration_since(*begun) < self.ttl
            {
                return Ok(Arc::clone(value));
            }
            if !state.is_refreshing {
                // A refresh that was cancelled left no failure: its caller had gone, we have not.
                if waited_for.is_some_and(|ended| ended < state.ended)
                    && let Some(failure) = &state.failure
                {
                    return Err(failure.clone());
                }
                break;
            }
            waited_for.get_or_insert(state.ended);
            let (next, timeout) = self.changed.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() {
                drop(state);
                wait.still_waiting().map_err(|Stop| Error::cancelled())?;
                state = lock(&self.state);
            }
        }
        state.is_refreshing = true;
        let forgotten = state.forgotten;
        drop(state);
        // Also if `read` panics: others must not wait for ever.
        let mut refresh = Refresh { shared: self, outcome: Outcome::Abandoned };
        let begun = now();
        let result = read().map(Arc::new);
        refresh.outcome = match &result {
            Ok(value) => Outcome::Read { begun, value: Arc::clone(value), forgotten },
            Err(error) if error.kind != Kind::Cancelled => Outcome::Failed(error.clone()),
            Err(_) => Outcome::Abandoned,
        };
        result
    }
}

/// A refresh under way; its end, whichever it is, is its drop.
struct Refresh<'a, T> {
    shared: &'a Shared<T>,
    outcome: Outcome<T>,
}

enum Outcome<T> {
    Read {
        begun: Instant,
        value: Arc<T>,
        forgotten: u64,
    },
    Failed(Error),
    /// Cancelled, or a panic: says nothing about Fabric.
    Abandoned,
}

impl<T> Drop for Refresh<'_, T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_refreshing = false;
        state.ended += 1;
        state.failure = None;
        match std::mem::replace(&mut self.outcome, Outcome::Abandoned) {
            Outcome::Read { begun, value, forgotten } if state.forgotten == forgotten => {
                state.value = Some((begun, value));
            }
            Outcome::Failed(error) => state.failure = Some(error),
            Outcome::Read { .. } | Outcome::Abandoned => {}
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// A panic elsewhere leaves our values whole: they are only ever replaced.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::*;

    const TTL: Duration = Duration::from_secs(300);

    type Meanwhile = Box<dyn Fn() -> Result<(), Error> + Send + Sync>;

    /// A Fabric that counts, and that can be made to fail or to hold still.
    #[derive(Default)]
    struct Fake {
        names: Mutex<Vec<String>>,
        broken: BTreeSet<&'static str>,
        gone: AtomicBool,
        /// Called while a list of names is being read.
        meanwhile: Option<Meanwhile>,
        lists: AtomicUsize,
        patterns: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Fake {
        fn of(names: &[&str]) -> Fake {
            Fake { names: Mutex::new(names.iter().map(|n| (*n).to_owned()).collect()), ..Fake::default() }
        }

        fn rename(&self, names: &[&str]) {
            *lock(&self.names) = names.iter().map(|n| (*n).to_owned()).collect();
        }

        fn read(&self) -> (usize, usize) {
            (self.lists.load(Ordering::SeqCst), self.patterns.load(Ordering::SeqCst))
        }

        fn check(&self) -> Result<(), Error> {
            match self.gone.load(Ordering::SeqCst) {
                true => Err(Error::new(Kind::ApiUnavailable, "gone")),
                false => Ok(()),
            }
        }
    }

    impl Source for Fake {
        fn names(&self, _: &Arc<dyn Wait>) -> Result<Vec<String>, Error> {
            self.lists.fetch_add(1, Ordering::SeqCst);
            if let Some(meanwhile) = &self.meanwhile {
                meanwhile()?;
            }
            self.check()?;
            Ok(lock(&self.names).clone())
        }

        fn pattern(&self, name: &Name, _: &Arc<dyn Wait>) -> Result<Pattern, Error> {
            self.patterns.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            self.now.fetch_sub(1, Ordering::SeqCst);
            self.check()?;
            if self.broken.contains(name.as_str()) {
                return Err(Error::new(Kind::FabricInternal, "broken"));
            }
            let system_prompt = format!("# PURPOSE\nYou do {}.\n{{{{x}}}}", name.as_str());
            Ok(Pattern { name: name.as_str().into(), system_prompt, ..Pattern::default() })
        }

        fn strategies(&self, _: &Arc<dyn Wait>) -> Result<Vec<Strategy>, Error> {
            self.check()?;
            Ok(vec![Strategy { name: "cot".into(), ..Strategy::default() }])
        }
    }

    fn catalog(fake: Fake) -> (Arc<Fake>, Catalog<Fake>) {
        let fake = Arc::new(fake);
        (Arc::clone(&fake), Catalog::new(fake, TTL))
    }

    fn no_wait() -> Arc<dyn Wait> {
        Arc::new(NoWait)
    }

    fn names_of(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.patterns.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn everything_is_read_once_and_for_its_time() {
        let (fake, catalog) = catalog(Fake::of(&["a", "b"]));
        let start = Instant::now();
        let at = |seconds| move || start + Duration::from_secs(seconds);
        let snapshot = catalog.snapshot_at(&at(0), &no_wait()).unwrap();
        let entry = snapshot.pattern("b").unwrap();
        assert_eq!(
            (entry.description.as_str(), entry.variables.as_slice()),
            ("You do b.", ["x".to_owned()].as_slice())
        );
        assert_eq!(snapshot.strategy("cot").unwrap().name, "cot");
        assert_eq!((snapshot.pattern("c"), snapshot.strategy("x")), (None, None));
        let again = catalog.snapshot_at(&at(299), &no_wait()).unwrap();
        assert!(Arc::ptr_eq(&snapshot, &again));
        assert_eq!(*catalog.names_at(&at(299), &no_wait()).unwrap(), ["a", "b"]);
        assert_eq!(fake.read(), (1, 2));
        assert!(!Arc::ptr_eq(&snapshot, &catalog.snapshot_at(&at(300), &no_wait()).unwrap()));
        assert_eq!(fake.read(), (2, 4));
    }

    #[test]
    fn names_alone_cost_one_request() {
        let (fake, catalog) = catalog(Fake::of(&["a", "b"]));
        for _ in 0..3 {
            assert_eq!(*catalog.names(&no_wait()).unwrap(), ["a", "b"]);
        }
        assert_eq!(fake.read(), (1, 0));
    }

    #[test]
    fn the_time_counts_from_the_start_of_the_reading() {
        let (fake, catalog) = catalog(Fake::of(&["a"]));
        let start = Instant::now();
        // Each look at the clock is 200 s later than the one before.
        let looks = AtomicUsize::new(0);
        let clock = || start + Duration::from_secs(200) * looks.fetch_add(1, Ordering::SeqCst) as u32;
        catalog.snapshot_at(&clock, &no_wait()).unwrap();
        catalog.snapshot_at(&clock, &no_wait()).unwrap();
        assert_eq!(fake.read().0, 2);
    }

    #[test]
    fn a_large_list_is_read_whole_with_few_requests_at_once() {
        let names: Vec<String> = (0..250).map(|i| format!("p{i:03}")).collect();
        let (fake, catalog) = catalog(Fake::of(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(names_of(&catalog.snapshot(&no_wait()).unwrap()), names);
        assert_eq!(fake.read(), (1, 250));
        let most = fake.most.load(Ordering::SeqCst);
        assert!((1..=CATALOG_REQUESTS).contains(&most), "{most} at once");
    }

    #[test]
    fn single_failures_leave_the_name_and_a_plain_description() {
        let names = ["../odd", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let fake = Fake { broken: BTreeSet::from(["a", "b", "c", "d", "e", "f", "g", "h"]), ..Fake::of(&names) };
        let (_, catalog) = catalog(fake);
        let snapshot = catalog.snapshot(&no_wait()).unwrap();
        assert_eq!(names_of(&snapshot), names);
        assert_eq!(snapshot.pattern("../odd").unwrap().description, "Fabric pattern ../odd");
        assert_eq!(snapshot.pattern("a").unwrap().description, "Fabric pattern a");
        assert_eq!(snapshot.pattern("i").unwrap().description, "You do i.");
    }

    #[test]
    fn a_fabric_that_goes_away_fails_the_refresh_without_asking_for_every_pattern() {
        let names: Vec<String> = (0..250).map(|i| format!("p{i:03}")).collect();
        let (fake, catalog) = catalog(Fake::of(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        fake.gone.store(true, Ordering::SeqCst);
        let known = catalog.read_patterns(&names, &no_wait()).unwrap_err();
        assert_eq!(known.kind, Kind::ApiUnavailable);
        assert_eq!(catalog.snapshot(&no_wait()).unwrap_err().kind, Kind::ApiUnavailable);
        // Nothing of it stays.
        fake.gone.store(false, Ordering::SeqCst);
        assert_eq!(catalog.snapshot(&no_wait()).unwrap().patterns.len(), 250);
    }

    #[test]
    fn an_empty_fabric_is_a_catalogue_too() {
        let (_, catalog) = catalog(Fake::of(&[]));
        assert!(catalog.snapshot(&no_wait()).unwrap().patterns.is_empty());
    }

    /// Tells once, by a barrier, that it has begun to wait.
    struct Arrives(Arc<Barrier>, AtomicBool);

    impl Wait for Arrives {
        fn still_waiting(&self) -> Result<(), Stop> {
            if !self.1.swap(true, Ordering::SeqCst) {
                self.0.wait();
            }
            Ok(())
        }
    }

    #[test]
    fn callers_who_come_during_a_refresh_share_it() {
        // The refresh ends only when the second caller has been seen waiting.
        let waiting = Arc::new(Barrier::new(2));
        let held = Arc::clone(&waiting);
        let meanwhile = move || {
            held.wait();
            Ok(())
        };
        let fake = Fake { meanwhile: Some(Box::new(meanwhile)), ..Fake::of(&["a"]) };
        let (fake, catalog) = catalog(fake);
        let second: Arc<dyn Wait> = Arc::new(Arrives(waiting, AtomicBool::new(false)));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| catalog.snapshot(&no_wait()).unwrap());
            while fake.read().0 == 0 {
                std::thread::yield_now();
            }
            let late = catalog.snapshot(&second).unwrap();
            assert!(Arc::ptr_eq(&first.join().unwrap(), &late));
        });
        assert_eq!(fake.read(), (1, 1));
    }

    /// Two callers, of whom the first reads, and fails as told when the second has been seen waiting; what the second
    /// gets, and how many lists were read.
    fn second_of_two(first_fails: Error) -> (Result<Arc<Snapshot>, Error>, usize) {
        let failed = AtomicBool::new(false);
        let waiting = Arc::new(Barrier::new(2));
        let held = Arc::clone(&waiting);
        let meanwhile = move || {
            if failed.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            held.wait();
            Err(first_fails.clone())
        };
        let fake = Fake { meanwhile: Some(Box::new(meanwhile)), ..Fake::of(&["a"]) };
        let (fake, catalog) = catalog(fake);
        let second: Arc<dyn Wait> = Arc::new(Arrives(waiting, AtomicBool::new(false)));
        let result = std::thread::scope(|scope| {
            let first = scope.spawn(|| catalog.snapshot(&no_wait()).unwrap_err());
            while fake.read().0 == 0 {
                std::thread::yield_now();
            }
            let late = catalog.snapshot(&second);
            first.join().unwrap();
            late
        });
        (result, fake.read().0)
    }

    #[test]
    fn a_refresh_that_fails_fails_for_all_who_waited() {
        let error = Error::new(Kind::FabricInternal, "once");
        assert_eq!(second_of_two(error.clone()), (Err(error), 1));
    }

    #[test]
    fn if_the_one_who_reads_is_cancelled_another_goes_on() {
        let (result, lists) = second_of_two(Error::cancelled());
        assert_eq!((names_of(&result.unwrap()), lists), (vec!["a"], 2));
    }

    #[test]
    fn one_who_waits_may_leave_and_the_refresh_goes_on() {
        struct Leaves;
        impl Wait for Leaves {
            fn still_waiting(&self) -> Result<(), Stop> {
                Err(Stop)
            }
        }
        let (left, has_left) = mpsc::channel::<()>();
        let has_left = Mutex::new(has_left);
        let meanwhile = move || {
            lock(&has_left).recv().unwrap();
            Ok(())
        };
        let fake = Fake { meanwhile: Some(Box::new(meanwhile)), ..Fake::of(&["a"]) };
        let (fake, catalog) = catalog(fake);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| catalog.snapshot(&no_wait()));
            while fake.read().0 == 0 {
                std::thread::yield_now();
            }
            let leaves: Arc<dyn Wait> = Arc::new(Leaves);
            assert_eq!(catalog.snapshot(&leaves), Err(Error::cancelled()));
            left.send(()).unwrap();
            assert_eq!(names_of(&first.join().unwrap().unwrap()), ["a"]);
        });
    }

    #[test]
    fn a_refresh_that_panics_does_not_block_the_next() {
        let once = AtomicBool::new(true);
        let meanwhile = move || {
            assert!(!once.swap(false, Ordering::SeqCst), "on purpose");
            Ok(())
        };
        let fake = Fake { meanwhile: Some(Box::new(meanwhile)), ..Fake::of(&["a"]) };
        let (_, catalog) = catalog(fake);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| catalog.snapshot(&no_wait())));
        assert!(panicked.is_err());
        assert_eq!(names_of(&catalog.snapshot(&no_wait()).unwrap()), ["a"]);
    }

    #[test]
    fn other_names_are_noticed_by_whoever_reads_them() {
        let (fake, catalog) = catalog(Fake::of(&["a"]));
        let changes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&changes);
        catalog.on_change(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let start = Instant::now();
        let at = |seconds| move || start + Duration::from_secs(seconds);
        let changes = || changes.load(Ordering::SeqCst);
        // The first list changes nothing, nor does the same again.
        assert_eq!(catalog.poll_at(start), Ok(false));
        catalog.snapshot_at(&at(0), &no_wait()).unwrap();
        assert_eq!((catalog.poll_at(start), changes()), (Ok(false), 0));
        // A poll finds another, and what was read before counts no more.
        fake.rename(&["a", "b"]);
        assert_eq!((catalog.poll_at(start), changes()), (Ok(true), 1));
        assert_eq!(catalog.poll_at(start), Ok(false));
        assert_eq!(names_of(&catalog.snapshot_at(&at(1), &no_wait()).unwrap()), ["a", "b"]);
        // A refresh finds another.
        fake.rename(&["c"]);
        assert_eq!(names_of(&catalog.snapshot_at(&at(400), &no_wait()).unwrap()), ["c"]);
        assert_eq!((changes(), catalog.poll_at(start)), (2, Ok(false)));
        // Reading the names alone does.
        fake.rename(&["d"]);
        assert_eq!(*catalog.names_at(&at(800), &no_wait()).unwrap(), ["d"]);
        assert_eq!(changes(), 3);
        assert_eq!(names_of(&catalog.snapshot_at(&at(400), &no_wait()).unwrap()), ["d"]);
        // Failing does not.
        fake.gone.store(true, Ordering::SeqCst);
        assert_eq!((catalog.poll_at(start).is_err(), changes()), (true, 3));
    }
}
