//! Quality of the search, measured on tasks.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::patterns::ROWS;
use super::{Index, purpose};

/// The lines of a file of tasks, in columns.
fn lines(file: &str) -> Vec<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/search");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// An index over Fabric's patterns, and others.
fn index(others: &[(&str, String)]) -> Index {
    let known = ROWS.keys().map(|name| (*name, String::new()));
    let mut all: Vec<(&str, String)> = known.chain(others.iter().cloned()).collect();
    all.sort();
    Index::build(all)
}

/// How many of 100 queries find a right pattern first, among five and among ten.
fn recall<'a>(index: &Index, tasks: impl IntoIterator<Item = (&'a str, &'a str)>) -> [usize; 3] {
    let ranks = tasks.into_iter().map(|(query, right)| {
        let found = index.search(query, 10, |_| true);
        let mut names = found.hits.iter();
        names.position(|name| right.split(' ').any(|right| right == *name))
    });
    let ranks: Vec<usize> = ranks.map(|rank| rank.unwrap_or(10)).collect();
    assert!(!ranks.is_empty());
    [1, 5, 10].map(|at| 100 * ranks.iter().filter(|rank| **rank < at).count() / ranks.len())
}

fn assert_at_least(found: [usize; 3], least: [usize; 3], what: &str) {
    eprintln!("{what}: first, among five, among ten: {found:?} %");
    let is_so = found.iter();
    let is_so = is_so.zip(least).all(|(found, least)| *found >= least);
    assert!(is_so, "{what}: {found:?} < {least:?}");
}

#[test]
fn tasks_find_their_pattern() {
    let (index, tasks) = (index(&[]), lines("tasks.tsv"));
    for (kind, least) in [
        ("model", [97, 99, 99]),
        ("people", [90, 97, 98]),
        ("language", [90, 95, 97]),
        ("spoken", [80, 93, 97]),
        ("form", [92, 98, 98]),
    ] {
        let tasks = tasks.iter().filter(|task| task[0] == kind);
        let found = recall(
            &index,
            tasks.map(|task| (task[1].as_str(), task[2].as_str())),
        );
        assert_at_least(found, least, kind);
    }
    for (frame, least) in [
        ("fabric pattern to", 93),
        ("I need a prompt that can", 93),
        ("find me the best fabric pattern to", 93),
    ] {
        let framed = tasks.iter().filter(|task| task[0] == "model");
        let framed: Vec<String> = framed.map(|task| format!("{frame} {}", task[1])).collect();
        let right = tasks.iter().filter(|task| task[0] == "model");
        let right = right.map(|task| task[2].as_str());
        let found = recall(&index, framed.iter().map(String::as_str).zip(right));
        assert_at_least(found, [least, 98, 98], frame);
    }
}

#[test]
fn tasks_in_other_languages_find_some_but_not_many() {
    let (index, tasks) = (index(&[]), lines("tasks.tsv"));
    let spoken = tasks.iter().filter(|task| task[0] == "spoken");
    let found = spoken.map(|task| (task, index.search(&task[1], 10, |_| true)));
    let rows = found.map(|(task, found)| {
        assert!(!found.hits.is_empty(), "{task:?}");
        found.hits.len()
    });
    let rows: Vec<usize> = rows.collect();
    let all: usize = rows.iter().sum();
    assert!((4 * rows.len()..=6 * rows.len()).contains(&all), "{all}");
}

#[test]
fn what_no_pattern_does_is_mostly_said_to_fit_weakly() {
    let (index, tasks) = (index(&[]), lines("tasks.tsv"));
    let share = |kind: &str| {
        let warnings = tasks.iter().filter(|task| task[0] == kind);
        let warnings: Vec<_> = warnings
            .map(|task| index.search(&task[1], 1, |_| true).warning)
            .collect();
        100 * warnings.iter().flatten().count() / warnings.len()
    };
    let (none, people, model) = (share("none"), share("people"), share("model"));
    let is_so = none >= 85 && people <= 10 && model <= 2;
    assert!(is_so, "{none} {people} {model}");
}

#[test]
fn a_verb_weighs_more_than_what_it_is_about() {
    let (index, verbs) = (index(&[]), lines("verbs.tsv"));
    let queries: Vec<(String, &str)> = verbs
        .iter()
        .flat_map(|line| {
            line[1]
                .split(", ")
                .map(|noun| (format!("{} {noun}", line[0]), line[2].as_str()))
        })
        .collect();
    assert_eq!(queries.len(), 12 * 22);
    let found = recall(
        &index,
        queries
            .iter()
            .map(|(query, right)| (query.as_str(), *right)),
    );
    assert_at_least(found, [90, 99, 99], "verbs and nouns");
}

#[test]
fn peoples_own_patterns_are_found_by_their_text() {
    let own = lines("own.tsv");
    let others: Vec<(&str, String)> = own
        .iter()
        .map(|line| (line[0].as_str(), line[1].replace("\\n", "\n")))
        .collect();
    assert_eq!(others.len(), 40);
    let index = index(&others);
    let tasks = own.iter();
    let tasks = tasks.flat_map(|line| line[2].split("; ").map(|query| (query, line[0].as_str())));
    assert_at_least(recall(&index, tasks), [80, 90, 92], "own patterns");
}

#[test]
fn the_table_has_a_sentence_and_requests_for_each_pattern() {
    let rows = include_str!("patterns.tsv").lines().count();
    assert_eq!(ROWS.len(), rows, "patterns.tsv: a name twice, or no tabs");
    let mut sentences: Vec<&str> = ROWS.values().map(|row| row.sentence).collect();
    sentences.sort_unstable();
    assert!(sentences.windows(2).all(|two| two[0] != two[1]));
    for (name, row) in &*ROWS {
        let requests: Vec<&str> = row.requests.split("; ").collect();
        let is_so = (20..=140).contains(&row.sentence.len()) && row.sentence.ends_with('.');
        assert!(is_so, "{name}: {}", row.sentence);
        let is_so = (6..=30).contains(&requests.len());
        assert!(is_so, "{name}: {} requests", requests.len());
        let mut lengths = requests.iter().map(|request| request.len());
        assert!(lengths.all(|length| (1..=80).contains(&length)), "{name}");
        assert!(
            row.sentence.is_ascii() && row.requests.is_ascii() && !row.requests.contains('\t'),
            "{name}"
        );
    }
}

/// `FABRIC_MCP_PATTERNS=…/data/patterns cargo test --locked --bin fabric-mcp -- --ignored --nocapture a_folder`
#[test]
#[ignore = "needs Fabric's patterns: FABRIC_MCP_PATTERNS names their folder"]
fn a_folder_of_patterns_is_compared_with_the_table() {
    let folder = std::env::var("FABRIC_MCP_PATTERNS").unwrap();
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let patterns = entries.filter(|entry| entry.path().join("system.md").exists());
    let names = patterns.map(|entry| entry.file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    let new: Vec<&String> = names
        .iter()
        .filter(|name| !ROWS.contains_key(name.as_str()))
        .collect();
    let gone: Vec<&&str> = ROWS
        .keys()
        .filter(|name| !names.iter().any(|other| other == **name))
        .collect();
    eprintln!(
        "{} patterns; not in the table: {new:?}; only in the table: {gone:?}",
        names.len()
    );
    assert!(!names.is_empty());
}

#[test]
fn purposes_need_no_index() {
    let own = "# IDENTITY\n\nYou are a cook. You extract the ingredients of a dish.\n";
    let found = purpose("my_dish", own);
    assert_eq!(found, "Extract the ingredients of a dish.");
    assert_eq!(purpose("summarize", own), ROWS["summarize"].sentence);
}

#[test]
#[ignore = "measures times: run it alone, with --release"]
fn cost_is_bounded_whatever_the_query() {
    let own: Vec<(String, String)> = (0..10_000)
        .map(|n| {
            (
                format!("pattern_{n}"),
                format!("You review part {n} of a pull request {n}."),
            )
        })
        .collect();
    let others = own.iter().map(|(name, text)| (name.as_str(), text.clone()));
    let others: Vec<(&str, String)> = others.collect();
    let letters = |n: u32| [n / 26 % 26, n % 26].map(|n| char::from(b'a' + n as u8));
    let unknown = (0..300).map(|n| format!("qzx{}qjxwkv ", String::from_iter(letters(n))));
    let unknown: String = unknown.collect();
    let queries = [
        format!("review it, not for {}", unknown.replace(' ', " not for ")),
        unknown,
        "review a part of a pull request ".repeat(200),
        "qpattern ".repeat(500),
        "pattern prompt ".repeat(300),
        "漢".repeat(1400),
        "x".repeat(5000),
        "a_b ".repeat(1000),
    ];
    for (index, most) in [
        (index(&[]), Duration::from_millis(5)),
        (index(&others), Duration::from_millis(10)),
    ] {
        for query in &queries {
            let timed = |_| {
                let begun = Instant::now();
                index.search(query, 10, |_| true);
                begun.elapsed()
            };
            let taken = (0..5).map(timed).min().unwrap();
            eprintln!(
                "at most {most:?}, {:?}…: {taken:?}",
                query.chars().take(12).collect::<String>()
            );
            assert!(taken < most, "{taken:?}");
        }
    }
}
