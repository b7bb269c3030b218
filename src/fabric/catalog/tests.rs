use std::io::Write;
use std::sync::Mutex;

use super::super::fixture::{Fixture, json, status};
use super::*;
use crate::fabric::Unobserved;
use crate::sync::lock;

const TTL: Duration = Duration::from_secs(300);
const NAMES: &str = "GET /patterns/names";
const STRATEGIES: &str = "GET /strategies";

/// What Fabric has at the moment; `None` if it refuses every request.
type Listed = Arc<Mutex<Option<Vec<String>>>>;

fn list(listed: &Listed, names: &[&str]) {
    *lock(listed) = Some(names.iter().map(|name| (*name).to_owned()).collect());
}

/// A Fabric with these patterns, of which `broken` cannot be read.
fn fabric(names: &[&str]) -> (Fixture, Listed, Catalog) {
    let listed = Listed::default();
    list(&listed, names);
    let answers = Arc::clone(&listed);
    let fixture = Fixture::new(move |_, request, stream| {
        let answer = match (&*lock(&answers), request.line.as_str()) {
            (None, _) => status("401 X", ""),
            (Some(names), NAMES) => json(&serde_json::json!(names).to_string()),
            (_, STRATEGIES) => json(r#"[{"name":"cot"}]"#),
            (_, line) => match line.strip_prefix("GET /patterns/") {
                Some("broken") => status("500 X", ""),
                Some(name) => {
                    let text = format!("# PURPOSE\nYou extract {name} from a text.\n{{{{x}}}}");
                    json(&serde_json::json!({"Pattern": text}).to_string())
                }
                None => status("404 X", ""),
            },
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let catalog = Catalog::new(Arc::new(fixture.client()), TTL);
    (fixture, listed, catalog)
}

fn unobserved() -> Observer {
    Arc::new(Unobserved)
}

fn kind<T>(read: Result<T, Error>) -> Option<Kind> {
    read.err().map(|error| error.kind)
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
    let (fabric, _, catalog) = fabric(&["a", "b"]);
    let snapshot = catalog.snapshot(&unobserved()).unwrap();
    let entry = snapshot.pattern("b").unwrap();
    assert_eq!(
        (entry.text.as_deref(), &entry.variables[..]),
        (
            Some("# PURPOSE\nYou extract b from a text.\n{{x}}"),
            &["x".to_owned()][..]
        )
    );
    assert_eq!(snapshot.description("b"), "Extract b from a text.");
    assert_eq!(snapshot.strategies()[0].name, "cot");
    assert_eq!(snapshot.pattern("c"), None);
    assert!(Arc::ptr_eq(
        &snapshot,
        &catalog.snapshot(&unobserved()).unwrap()
    ));
    assert_eq!(
        *catalog.fabric.names(catalog.ttl, &unobserved()).unwrap(),
        ["a", "b"].into_iter().collect()
    );
    let counts =
        |fabric: &Fixture| ["GET /patterns/a", NAMES, STRATEGIES].map(|line| fabric.count(line));
    assert_eq!(counts(&fabric), [1, 1, 1]);
    catalog.snapshot.invalidate(|_| true);
    assert!(!Arc::ptr_eq(
        &snapshot,
        &catalog.snapshot(&unobserved()).unwrap()
    ));
    assert_eq!(counts(&fabric), [2, 2, 2]);
}

#[test]
fn fresh_lists_are_read_anew_and_others_once() {
    let (fabric, listed, catalog) = fabric(&["a"]);
    let names = |age| names_as_text(&catalog.fabric.names(age, &unobserved()).unwrap());
    assert_eq!(names(catalog.ttl), "a");
    list(&listed, &["b"]);
    assert_eq!(names(catalog.ttl), "a");
    assert_eq!(names(Duration::ZERO), "b");
    assert_eq!(names(catalog.ttl), "b");
    assert_eq!(fabric.count(NAMES), 2);
}

fn names_as_text(names: &NameList) -> String {
    names.iter().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_large_list_is_read_whole_with_few_requests_at_once() {
    let names: Vec<String> = (0..250).map(|i| format!("p{i:03}")).collect();
    let (fabric, listed, catalog) = fabric(&[]);
    assert!(catalog.snapshot(&unobserved()).unwrap().patterns.is_empty());
    *lock(&listed) = Some(names.clone());
    catalog.fabric.names(Duration::ZERO, &unobserved()).unwrap();
    assert_eq!(names_of(&catalog.snapshot(&unobserved()).unwrap()), names);
    let requests = fabric.requests();
    let of_patterns = |line: &str| line.starts_with("GET /patterns/p");
    let found = requests.iter().filter(|r| of_patterns(&r.line)).count();
    assert_eq!(found, 250);
    assert!(requests.iter().all(|r| r.connection < CATALOG_REQUESTS));
    // A Fabric that goes away fails the refresh, without a request for every pattern.
    let known = names.iter().map(String::as_str).collect();
    *lock(&listed) = None;
    let read = catalog.read_patterns(&known, &unobserved());
    assert_eq!(kind(read), Some(Kind::ApiUnauthorized));
    assert!(fabric.requests().len() < requests.len() + 50);
    catalog.snapshot.invalidate(|_| true);
    let read = catalog.snapshot(&unobserved());
    assert_eq!(kind(read), Some(Kind::ApiUnauthorized));
    // Nothing of the failed read is kept.
    *lock(&listed) = Some(names);
    assert_eq!(catalog.snapshot(&unobserved()).unwrap().patterns.len(), 250);
}

#[test]
fn single_failures_leave_the_name_and_a_plain_description() {
    let (_fabric, _, catalog) = fabric(&["../odd", "broken", "i"]);
    let snapshot = catalog.snapshot(&unobserved()).unwrap();
    assert_eq!(
        names_of(&snapshot),
        ["broken", "i"],
        "and what cannot be asked for is left out"
    );
    assert_eq!(snapshot.pattern("broken").unwrap().text, None);
    let found = ["broken", "i"].map(|name| snapshot.description(name));
    assert_eq!(found, ["Broken.", "Extract i from a text."]);
    assert_eq!(snapshot.unread(), 1);
    assert!(snapshot.until <= Instant::now() + TTL / 2, "asked again");
}

#[test]
fn changed_names_are_detected_by_every_read() {
    let (_fabric, listed, catalog) = fabric(&["a"]);
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changes);
    catalog.fabric.on_change(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let changes = || changes.load(Ordering::SeqCst);
    let poll = || catalog.fabric.names(Duration::ZERO, &unobserved());
    // Neither the first list nor an identical one is a change.
    poll().unwrap();
    catalog.snapshot(&unobserved()).unwrap();
    poll().unwrap();
    assert_eq!(changes(), 0);
    // A poll finds another list, which invalidates the previous snapshot.
    list(&listed, &["a", "b"]);
    poll().unwrap();
    poll().unwrap();
    assert_eq!(changes(), 1);
    let found = catalog.snapshot(&unobserved()).unwrap();
    assert_eq!(names_of(&found), ["a", "b"]);
    // A refresh finds another list.
    list(&listed, &["c"]);
    catalog.snapshot.invalidate(|_| true);
    assert_eq!(names_of(&catalog.snapshot(&unobserved()).unwrap()), ["c"]);
    poll().unwrap();
    assert_eq!(changes(), 2);
    // A failed read is not a change.
    *lock(&listed) = None;
    assert_eq!((poll().is_err(), changes()), (true, 2));
}

#[test]
fn after_a_change_is_reported_nothing_outdated_is_returned() {
    let (_fabric, listed, catalog) = fabric(&["a"]);
    let catalog = Arc::new(catalog);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (asks, finds) = (Arc::downgrade(&catalog), Arc::clone(&found));
    catalog.fabric.on_change(move || {
        let snapshot = asks.upgrade().unwrap().snapshot(&unobserved()).unwrap();
        lock(&finds).push(names_of(&snapshot).join(" "));
    });
    catalog.snapshot(&unobserved()).unwrap();
    list(&listed, &["a", "b"]);
    catalog.fabric.names(Duration::ZERO, &unobserved()).unwrap();
    assert_eq!(*lock(&found), ["a b"]);
}

/// An account with this much room, what it holds, and all that it was charged.
struct Payer(usize, AtomicUsize, AtomicUsize);

impl CallObserver for Payer {
    fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.2.fetch_add(bytes, Ordering::SeqCst);
        let held = self.1.fetch_add(bytes, Ordering::SeqCst) + bytes;
        (held <= self.0).then_some(()).ok_or_else(no_room)
    }

    fn release(&self, bytes: usize) {
        self.1.fetch_sub(bytes, Ordering::SeqCst);
    }
}

#[test]
fn who_asks_pays_for_each_pattern_while_it_is_read() {
    let names: Vec<String> = (0..50).map(|i| format!("p{i}")).collect();
    let names = Vec::from_iter(names.iter().map(String::as_str));
    let (_fabric, _, catalog) = fabric(&names);
    let read = |room| {
        let payer = Arc::new(Payer(room, AtomicUsize::new(0), AtomicUsize::new(0)));
        catalog.snapshot.invalidate(|_| true);
        let read = catalog.snapshot(&(payer.clone() as Observer));
        let [held, charged] = [&payer.1, &payer.2].map(|all| all.load(Ordering::SeqCst));
        (kind(read), held, charged)
    };
    let (failed, held, charged) = read(usize::MAX);
    assert_eq!(failed, None);
    assert!(
        charged > held + 50 * 100,
        "{charged}, and {held} at the end"
    );
    assert_eq!(read(held).0, Some(Kind::ResponseTooLarge));
}
