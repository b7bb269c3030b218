//! Quality of the search: on our own patterns always, and on Fabric's if a path to them is given.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::index::SearchResult;
use super::purpose::MAX_SUMMARY;
use super::{Index, card};

/// Patterns in Fabric's style.
const PATTERNS: &[(&str, &str)] = &[
    (
        "summarize_talk",
        "# IDENTITY and PURPOSE\n\nYou are an expert at condensing recorded talks. Take a deep breath and think step by \
         step.\n\n# STEPS\n\n- Read the transcript.\n\n# OUTPUT INSTRUCTIONS\n\n- Only output Markdown.\n",
    ),
    (
        "write_commit_note",
        "# IDENTITY\n\nYou are a developer.\n\n# GOAL\n\nWrite a note about the changes in a Git diff for those who read \
         the history.\n\n# OUTPUT INSTRUCTIONS\n\n- Only output Markdown.\n",
    ),
    (
        "review_unit_tests",
        "# IDENTITY and PURPOSE\n\nYou review unit tests and list the cases that nobody thought of.\n\n# OUTPUT \
         INSTRUCTIONS\n\n- Only output Markdown.\n",
    ),
    (
        "create_flash_cards",
        "# IDENTITY\n\nYou are a teacher who creates cards with a question and an answer from a chapter.\n\n# OUTPUT \
         INSTRUCTIONS\n\n- Only output Markdown.\n",
    ),
    (
        "analyze_mail_headers",
        "# IDENTITY\n\nYour task is to tell whether a mail is forged by looking at its headers.\n\nCheck the mail \
         server's path, DKIM and SPF.\n",
    ),
    (
        "find_fallacies",
        "# IDENTITY\n\nYou detect flawed reasoning in arguments and name each flaw.\n\n# OUTPUT INSTRUCTIONS\n\n- Only \
         output Markdown.\n",
    ),
    (
        "extract_recipe",
        "# PURPOSE\n\nYou extract the ingredients and the steps of a dish from a text.\n",
    ),
    ("make_agenda", ""),
    ("要約する", "# IDENTITY\n\n会議の要約を作成します。\n"),
    ("резюме_текста", "# IDENTITY\n\nСокращает длинный текст.\n"),
];

fn index() -> Index {
    Index::build(PATTERNS.iter().copied())
}

fn names<'a>(found: &SearchResult<'a>) -> Vec<&'a str> {
    found.hits.iter().map(|card| card.name.as_str()).collect()
}

#[test]
fn the_right_pattern_ranks_first_for_free_text() {
    let index = index();
    for (query, expected) in [
        // A pattern's own words, other forms, other spelling, synonyms.
        ("summarize a talk", "summarize_talk"),
        ("summarising talks", "summarize_talk"),
        ("tl;dr of a lecture", "summarize_talk"),
        ("commit message", "write_commit_note"),
        (
            "describe my changes for the version control",
            "write_commit_note",
        ),
        ("test cases", "review_unit_tests"),
        ("QA", "review_unit_tests"),
        ("flashcards of my chapter", "create_flash_cards"),
        ("anki", "create_flash_cards"),
        ("is this e-mail phishing?", "analyze_mail_headers"),
        ("logical fallacy", "find_fallacies"),
        ("what can I cook", "extract_recipe"),
        // Typing errors.
        ("fallacis", "find_fallacies"),
        ("sumarize", "summarize_talk"),
        ("recipie", "extract_recipe"),
        // Names, exact and nearly, also within a sentence.
        ("make_agenda", "make_agenda"),
        ("Make Agenda", "make_agenda"),
        (
            "run find_fallacies on the speech about a recipe, please",
            "find_fallacies",
        ),
        // Other scripts.
        ("要約", "要約する"),
        ("текста", "резюме_текста"),
        ("резюме", "резюме_текста"),
    ] {
        let found = index.search(query, 5);
        assert_eq!(names(&found).first(), Some(&expected), "{query}: {found:?}");
        assert_eq!(index.search(query, 5), found);
        assert_eq!(names(&index.search(query, 1)), [expected]);
    }
}

#[test]
fn nothing_found_names_the_nearest_and_the_unknown() {
    let index = index();
    let found = index.search("zzqqxw flumbergast", 5);
    assert_eq!(
        (names(&found), &found.unknown[..]),
        (vec![], &["zzqqxw".to_owned(), "flumbergast".to_owned()][..])
    );
    let found = index.search("mke_agnda_x", 5);
    assert_eq!(
        found
            .hits
            .first()
            .map(|card| card.name.as_str())
            .or(found.nearest.first().copied()),
        Some("make_agenda")
    );
    for query in ["", " ", "?!", "\u{301}"] {
        assert!(index.search(query, 5).hits.is_empty(), "{query:?}");
    }
    assert!(index.search("summarize", 0).hits.is_empty());
    assert_eq!(
        Index::build(Vec::<(String, String)>::new())
            .search("summarize", 5)
            .hits
            .len(),
        0
    );
}

#[test]
fn purposes_say_what_is_done_in_one_sentence() {
    for ((name, text), expected) in PATTERNS.iter().zip([
        "Condense recorded talks.",
        "Write a note about the changes in a Git diff for those who read the history.",
        "Review unit tests and list the cases that nobody thought of.",
        "Create cards with a question and an answer from a chapter.",
        "Tell whether a mail is forged by looking at its headers.",
        "Detect flawed reasoning in arguments and name each flaw.",
        "Extract the ingredients and the steps of a dish from a text.",
        "Make agenda.",
        "要約する.",
        "Резюме текста.",
    ]) {
        assert_eq!(card(name, text).purpose, expected);
    }
    let same = Index::build([
        ("rate_rocks", PATTERNS[2].1),
        ("rate_stones", PATTERNS[2].1),
    ]);
    let purposes: Vec<&str> = same
        .cards()
        .iter()
        .map(|card| card.purpose.as_str())
        .collect();
    assert_eq!(
        purposes,
        [
            "Rate rocks: review unit tests and list the cases that nobody thought of.",
            "Rate stones: review unit tests and list the cases that nobody thought of."
        ]
    );
    let long = card(
        "x",
        &format!(
            "You extract {} from the text.",
            "many different things, ".repeat(50)
        ),
    )
    .purpose;
    assert!(
        long.chars().count() <= MAX_SUMMARY
            && long.ends_with("….")
            && long.starts_with("Extract many"),
        "{long}"
    );
}

#[test]
fn hostile_texts_are_bounded() {
    let texts = [
        "x".repeat(200_000),
        "漢".repeat(60_000),
        "{{a}} <b> **c** ".repeat(10_000),
        "\u{301}".repeat(50_000),
        "# \n- \n> ".repeat(20_000),
        "pull request ".repeat(10_000),
        (0..40_000).map(|n| format!("w{n} ")).collect(),
    ];
    let patterns = (0..700).map(|n| (format!("pattern_{n}"), texts[n % texts.len()].as_str()));
    let index = Index::build(patterns);
    assert!(index.size() < 16 << 20, "{} bytes", index.size());
    for query in [
        "pattern_699".to_owned(),
        "x".repeat(100_000),
        "pull request ".repeat(10_000),
        "漢".repeat(5_000),
    ] {
        assert!(!index.search(&query, 10).hits.is_empty());
    }
    assert_eq!(names(&index.search("pattern_699", 3))[0], "pattern_699");
}

/// A file of tasks, a line each: its kind, the query, and the acceptable patterns.
fn tasks(file: &str) -> Vec<(String, String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/search")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), 3, "{line}");
            (
                fields[0].to_owned(),
                fields[1].to_owned(),
                fields[2].split(' ').map(str::to_owned).collect(),
            )
        })
        .collect()
}

/// How many of 100 tasks find an acceptable pattern at rank 1, within 5, and within 10.
fn recall(index: &Index, tasks: &[(String, String, Vec<String>)], title: &str) -> [usize; 3] {
    assert!(!tasks.is_empty());
    let ranks = tasks.iter().map(|(_, query, wanted)| {
        let found = index.search(query, 10);
        names(&found)
            .iter()
            .position(|name| wanted.iter().any(|wanted| wanted == name))
            .unwrap_or(10)
    });
    let ranks: Vec<usize> = ranks.collect();
    let recall =
        [1, 5, 10].map(|at| 100 * ranks.iter().filter(|rank| **rank < at).count() / ranks.len());
    eprintln!(
        "{title}: {} tasks, first {} %, at 5 {} %, at 10 {} %",
        ranks.len(),
        recall[0],
        recall[1],
        recall[2]
    );
    recall
}

/// `FABRIC_MCP_PATTERNS=…/data/patterns cargo test --locked -- --ignored --nocapture recall_on_fabrics`
#[test]
#[ignore = "needs Fabric's patterns: FABRIC_MCP_PATTERNS names their folder"]
fn recall_on_fabrics_patterns_has_a_floor() {
    let folder = std::env::var("FABRIC_MCP_PATTERNS").unwrap();
    let mut patterns: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if let Ok(text) = fs::read_to_string(entry.path().join("system.md")) {
            patterns.push((entry.file_name().into_string().unwrap(), text));
        }
    }
    patterns.sort();
    assert!(patterns.len() > 200);
    let begun = Instant::now();
    let index = Index::build(
        patterns
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    );
    eprintln!(
        "{} patterns in {:?}, {} bytes",
        patterns.len(),
        begun.elapsed(),
        index.size()
    );
    let (descriptions, tasks_written): (Vec<_>, Vec<_>) = tasks("tasks.tsv")
        .into_iter()
        .partition(|(kind, ..)| kind == "description");
    let [_, five, _] = recall(&index, &descriptions, "descriptions");
    assert!(five >= 93);
    let [first, five, ten] = recall(&index, &tasks_written, "tasks");
    assert!(first >= 70 && five >= 88 && ten >= 92);
    // Written later, harder, by other authors.
    let [first, five, ten] = recall(&index, &tasks("later.tsv"), "later tasks");
    assert!(first >= 45 && five >= 75 && ten >= 82);
    let purposes: Vec<&str> = index
        .cards()
        .iter()
        .map(|card| card.purpose.as_str())
        .collect();
    let own = purposes
        .iter()
        .filter(|purpose| purposes.iter().filter(|other| other == purpose).count() == 1)
        .count();
    let you = purposes
        .iter()
        .filter(|purpose| purpose.starts_with("You"))
        .count();
    assert!(
        100 * own >= 97 * purposes.len() && 100 * you <= 5 * purposes.len(),
        "{own} own, {you} You"
    );
    for purpose in purposes {
        assert!(
            purpose.ends_with(['.', '!', '?'])
                && (3..=MAX_SUMMARY).contains(&purpose.chars().count()),
            "{purpose}"
        );
        assert!(!purpose.contains(['\n', '*', '`']), "{purpose}");
    }
}
