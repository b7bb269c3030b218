use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::fabric::NoWait;
use crate::sync::lock;

const TTL: Duration = Duration::from_secs(300);

/// A fake Fabric that counts its reads and can fail.
#[derive(Default)]
struct FakeSource {
    names: Mutex<Vec<String>>,
    broken: BTreeSet<&'static str>,
    gone: AtomicBool,
    lists: AtomicUsize,
    patterns: AtomicUsize,
    strategies: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl FakeSource {
    fn of(names: &[&str]) -> FakeSource {
        FakeSource {
            names: Mutex::new(names.iter().map(|n| (*n).to_owned()).collect()),
            ..FakeSource::default()
        }
    }

    fn rename(&self, names: &[&str]) {
        *lock(&self.names) = names.iter().map(|n| (*n).to_owned()).collect();
    }

    fn read(&self) -> (usize, usize) {
        (
            self.lists.load(Ordering::SeqCst),
            self.patterns.load(Ordering::SeqCst),
        )
    }

    fn check(&self) -> Result<(), Error> {
        match self.gone.load(Ordering::SeqCst) {
            true => Err(Error::new(Kind::ApiUnavailable, "gone")),
            false => Ok(()),
        }
    }
}

impl Source for FakeSource {
    fn names(&self, _: Option<&Arc<Names>>, _: &Arc<dyn Wait>) -> Result<Arc<Names>, Error> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        Ok(Arc::new(
            lock(&self.names).iter().map(String::as_str).collect(),
        ))
    }

    fn listed_pattern(&self, name: &Name, _: &Arc<dyn Wait>) -> Result<Pattern, Error> {
        self.patterns.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(
            self.now.fetch_add(1, Ordering::SeqCst) + 1,
            Ordering::SeqCst,
        );
        std::thread::yield_now();
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.check()?;
        if self.broken.contains(name.as_str()) {
            return Err(Error::new(Kind::FabricInternal, "broken"));
        }
        let system_prompt = format!(
            "# PURPOSE\nYou extract {} from a text.\n{{{{x}}}}",
            name.as_str()
        );
        Ok(Pattern {
            name: name.as_str().into(),
            system_prompt,
            ..Pattern::default()
        })
    }

    fn strategies(&self, _: &Arc<dyn Wait>) -> Result<Option<Vec<Strategy>>, Error> {
        self.strategies.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        Ok(Some(vec![Strategy {
            name: "cot".into(),
            ..Strategy::default()
        }]))
    }

    fn models(&self, _: &Arc<dyn Wait>) -> Result<Models, Error> {
        self.check()?;
        Ok(Models::default())
    }

    fn stored(&self, _: StoredKind, _: &Arc<dyn Wait>) -> Result<Option<Names>, Error> {
        self.check()?;
        Ok(None)
    }
}

fn catalog(fake: FakeSource) -> (Arc<FakeSource>, Catalog<FakeSource>) {
    let fake = Arc::new(fake);
    (Arc::clone(&fake), Catalog::new(fake, TTL))
}

fn no_wait() -> Arc<dyn Wait> {
    Arc::new(NoWait)
}

#[test]
fn without_the_texts_the_names_will_do() {
    let (fake, catalog) = catalog(FakeSource::of(&["a", "b"]));
    assert!(catalog.snapshot_or_names(&no_wait()).unwrap().1.is_none());
    // Its names are still fresh when Fabric goes away.
    fake.gone.store(true, Ordering::SeqCst);
    catalog.snapshot.invalidate(|_| true);
    let (snapshot, error) = catalog.snapshot_or_names(&no_wait()).unwrap();
    assert_eq!(
        (names_of(&snapshot), snapshot.unread(), error.unwrap().kind),
        (vec!["a", "b"], 2, Kind::ApiUnavailable)
    );
    assert_eq!(snapshot.index().search("b", 5).hits[0].name, "b");
    let (_, catalog) = self::catalog(FakeSource {
        gone: AtomicBool::new(true),
        ..FakeSource::of(&["a"])
    });
    assert_eq!(
        catalog.snapshot_or_names(&no_wait()).unwrap_err().kind,
        Kind::ApiUnavailable
    );
}

fn names_of(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .patterns
        .iter()
        .map(|entry| entry.name.as_str())
        .collect()
}

#[test]
fn everything_is_read_once_and_for_its_time() {
    let (fake, catalog) = catalog(FakeSource::of(&["a", "b"]));
    let snapshot = catalog.snapshot(&no_wait()).unwrap();
    let entry = snapshot.pattern("b").unwrap();
    assert_eq!(
        (entry.text.as_deref(), &entry.variables[..]),
        (
            Some("# PURPOSE\nYou extract b from a text.\n{{x}}"),
            &["x".to_owned()][..]
        )
    );
    assert_eq!(snapshot.description("b"), "Extract b from a text.");
    assert_eq!(snapshot.strategies[0].name, "cot");
    assert_eq!(snapshot.pattern("c"), None);
    assert!(Arc::ptr_eq(
        &snapshot,
        &catalog.snapshot(&no_wait()).unwrap()
    ));
    assert_eq!(
        *catalog.names(Age::Cached, &no_wait()).unwrap(),
        ["a", "b"].into_iter().collect()
    );
    assert_eq!(fake.read(), (1, 2));
    catalog.snapshot.invalidate(|_| true);
    assert!(!Arc::ptr_eq(
        &snapshot,
        &catalog.snapshot(&no_wait()).unwrap()
    ));
    assert_eq!(fake.read(), (2, 4));
}

#[test]
fn strategies_alone_cost_one_request_and_none_after_everything_was_read() {
    let (fake, catalog) = catalog(FakeSource::of(&["a"]));
    for _ in 0..3 {
        let strategies = catalog.strategies(Age::Cached, &no_wait()).unwrap();
        assert_eq!(strategies.as_ref().as_ref().unwrap()[0].name, "cot");
    }
    assert_eq!(
        (fake.read(), fake.strategies.load(Ordering::SeqCst)),
        ((0, 0), 1)
    );
    let (fake, catalog) = self::catalog(FakeSource::of(&["a"]));
    catalog.snapshot(&no_wait()).unwrap();
    catalog.strategies(Age::Cached, &no_wait()).unwrap();
    assert_eq!(fake.strategies.load(Ordering::SeqCst), 1);
}

#[test]
fn fresh_lists_are_read_anew() {
    let (fake, catalog) = catalog(FakeSource::of(&["a"]));
    catalog.names(Age::Cached, &no_wait()).unwrap();
    fake.rename(&["b"]);
    assert_eq!(
        *catalog.names(Age::Cached, &no_wait()).unwrap(),
        ["a"].into_iter().collect()
    );
    assert_eq!(
        *catalog.names(Age::Fresh, &no_wait()).unwrap(),
        ["b"].into_iter().collect()
    );
    assert_eq!(
        *catalog.names(Age::Cached, &no_wait()).unwrap(),
        ["b"].into_iter().collect()
    );
    catalog.strategies(Age::Cached, &no_wait()).unwrap();
    catalog.strategies(Age::Fresh, &no_wait()).unwrap();
    assert_eq!(fake.strategies.load(Ordering::SeqCst), 2);
}

#[test]
fn a_large_list_is_read_whole_with_few_requests_at_once() {
    let names: Vec<String> = (0..250).map(|i| format!("p{i:03}")).collect();
    let (fake, catalog) = catalog(FakeSource::of(
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    assert_eq!(names_of(&catalog.snapshot(&no_wait()).unwrap()), names);
    assert_eq!(fake.read(), (1, 250));
    let most = fake.most.load(Ordering::SeqCst);
    assert!((1..=CATALOG_REQUESTS).contains(&most), "{most} at once");
}

#[test]
fn single_failures_leave_the_name_and_a_plain_description() {
    let names = ["../odd", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let fake = FakeSource {
        broken: BTreeSet::from(["a", "b", "c", "d", "e", "f", "g", "h"]),
        ..FakeSource::of(&names)
    };
    let (_, catalog) = catalog(fake);
    let snapshot = catalog.snapshot(&no_wait()).unwrap();
    assert_eq!(names_of(&snapshot), names);
    assert_eq!(snapshot.pattern("a").unwrap().text, None);
    assert_eq!(
        (
            snapshot.description("a"),
            snapshot.description("i"),
            snapshot.unread()
        ),
        ("A.", "Extract i from a text.", 9)
    );
    assert!(snapshot.description("../odd").ends_with('.'));
}

#[test]
fn a_fabric_that_goes_away_fails_the_refresh_without_asking_for_every_pattern() {
    let names: Vec<String> = (0..250).map(|i| format!("p{i:03}")).collect();
    let (fake, catalog) = catalog(FakeSource::of(
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    fake.gone.store(true, Ordering::SeqCst);
    let known = catalog
        .read_patterns(&names.iter().map(String::as_str).collect(), &no_wait())
        .unwrap_err();
    assert_eq!(known.kind, Kind::ApiUnavailable);
    assert_eq!(
        catalog.snapshot(&no_wait()).unwrap_err().kind,
        Kind::ApiUnavailable
    );
    // Nothing of the failed read is kept.
    fake.gone.store(false, Ordering::SeqCst);
    assert_eq!(catalog.snapshot(&no_wait()).unwrap().patterns.len(), 250);
}

#[test]
fn an_empty_fabric_is_a_catalogue_too() {
    let (_, catalog) = catalog(FakeSource::of(&[]));
    assert!(catalog.snapshot(&no_wait()).unwrap().patterns.is_empty());
}

#[test]
fn changed_names_are_detected_by_every_read() {
    let (fake, catalog) = catalog(FakeSource::of(&["a"]));
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changes);
    catalog.on_change(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let changes = || changes.load(Ordering::SeqCst);
    let poll = || catalog.names(Age::Fresh, &no_wait());
    // Neither the first list nor an identical one is a change.
    poll().unwrap();
    catalog.snapshot(&no_wait()).unwrap();
    poll().unwrap();
    assert_eq!(changes(), 0);
    // A poll finds another list, which invalidates the previous snapshot.
    fake.rename(&["a", "b"]);
    poll().unwrap();
    poll().unwrap();
    assert_eq!(changes(), 1);
    assert_eq!(names_of(&catalog.snapshot(&no_wait()).unwrap()), ["a", "b"]);
    // A refresh finds another list.
    fake.rename(&["c"]);
    catalog.snapshot.invalidate(|_| true);
    assert_eq!(names_of(&catalog.snapshot(&no_wait()).unwrap()), ["c"]);
    poll().unwrap();
    assert_eq!(changes(), 2);
    // A failed read is not a change.
    fake.gone.store(true, Ordering::SeqCst);
    assert_eq!((poll().is_err(), changes()), (true, 2));
}

#[test]
fn after_a_change_is_reported_nothing_outdated_is_returned() {
    let (fake, catalog) = catalog(FakeSource::of(&["a"]));
    let catalog = Arc::new(catalog);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (asks, finds) = (Arc::downgrade(&catalog), Arc::clone(&found));
    catalog.on_change(move || {
        let snapshot = asks.upgrade().unwrap().snapshot(&no_wait()).unwrap();
        lock(&finds).push(names_of(&snapshot).join(" "));
    });
    catalog.snapshot(&no_wait()).unwrap();
    fake.rename(&["a", "b"]);
    catalog.names(Age::Fresh, &no_wait()).unwrap();
    assert_eq!(*lock(&found), ["a b"]);
}

#[test]
fn a_card_follows_its_text() {
    let (_, catalog) = catalog(FakeSource::of(&["a"]));
    let purpose = |text: &str| catalog.card("a", text).purpose;
    for what in ["rocks", "mines"] {
        assert_eq!(
            purpose(&format!("# PURPOSE\nYou extract {what} from maps.")),
            format!("Extract {what} from maps.")
        );
    }
}
