//! The topics of `--help TOPIC` and the man page: the files in `topics`, with values from the code in their holes.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::flags::{FABRIC, FLAGS, HTTP, RUNS, SERVER};
use crate::clients::CLIENTS;
use crate::error::{Cause, Kind};
use crate::{account, config, runs};

/// A topic of the help.
pub(crate) struct Topic {
    /// The word after `--help`.
    pub(crate) name: &'static str,
    /// The flags that belong to it.
    pub(crate) section: Option<&'static str>,
    /// Its file: a title, and what [`Topic::text`] has.
    text: &'static str,
}

/// A topic whose file is called after it.
macro_rules! topic {
    ($name:literal, $section:expr) => {
        Topic {
            name: $name,
            section: $section,
            text: include_str!(concat!("topics/", $name, ".txt")),
        }
    };
}

/// In the order of the manual page.
pub(crate) const TOPICS: &[Topic] = &[
    topic!("clients", None),
    topic!("call", None),
    topic!("tools", None),
    topic!("streaming", None),
    topic!("results", None),
    topic!("errors", None),
    topic!("prompts", None),
    topic!("problems", None),
    topic!("fabric", Some(FABRIC)),
    topic!("patterns", None),
    topic!("runs", Some(RUNS)),
    topic!("keeping", None),
    topic!("network", Some(HTTP)),
    topic!("access", None),
    topic!("oauth", None),
    topic!("proxy", None),
    topic!("service", Some(SERVER)),
    topic!("security", None),
    topic!("limits", None),
    topic!("logs", None),
    topic!("metrics", None),
    topic!("usage", None),
];

/// The names of all topics.
pub(crate) fn topic_names() -> Vec<&'static str> {
    TOPICS.iter().map(|topic| topic.name).collect()
}

impl Topic {
    pub(crate) fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default()
    }

    /// What follows the title, with the values of this build: paragraphs, lines to be copied, which are indented by 4, and
    /// terms, indented by 2, with what they mean, indented by 10.
    pub(crate) fn text(&self) -> String {
        filled(self.text.split_once("\n\n").map_or("", |(_, text)| text))
    }
}

/// Values of `config`, each with its name, which is that of its hole, and in its unit.
macro_rules! bounds {
    ($($unit:ident: $($name:ident)+;)+) => {
        [$($((stringify!($name), $unit(config::$name)),)+)+]
    };
}

/// The text with values in the place of `<NAME>`.
fn filled(text: &str) -> String {
    let count = |number: usize| number.to_string();
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let kept = |in_folder| {
        let (runs, bytes) = runs::bounds(in_folder);
        format!("{runs} and {}", mib(bytes))
    };
    let limits = CLIENTS.iter().map(|c| (c.name, c.limit_words));
    let kinds = Kind::ALL.iter().map(|kind| (kind.name(), kind.help()));
    let holes = [
        ("SHARED_SEATS", count(account::SHARED_SEATS)),
        ("IN_MEMORY", kept(false)),
        ("IN_FOLDER", kept(true)),
        ("CLIENT_LIMITS", list(limits)),
        ("KINDS", list(kinds)),
        ("CAUSES", causes()),
    ];
    let bounds = bounds! {
        mib: MAX_MESSAGE MAX_RUN_OUTPUT MAX_FABRIC_BODY MAX_PATTERN_TEXTS MAX_PATTERN_FILE;
        kib: MAX_STRING MAX_VARIABLE_VALUE MAX_PARTIAL_TEXT MAX_ID MAX_HEAD;
        count: MAX_NAME MAX_VARIABLES MAX_CHAIN_STEPS MAX_BATCH MAX_QUEUED_RUNS HTTP_MAX_RUNS;
        count: MAX_SESSIONS MAX_HEADERS SHOWN_PROMPT MAX_ENTRIES;
    };
    let all = bounds.into_iter().chain(holes);
    let text = all.fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("<{name}>"), &value)
    });
    FLAGS.iter().fold(text, |text, flag| {
        text.replace(&format!("<--{}>", flag.long), flag.default_value())
    })
}

/// What `--check` reports under a code, and what helps; none for an unknown code.
pub(super) fn problem(code: &str) -> Vec<(String, String)> {
    let causes = Cause::ALL.iter().filter(|cause| cause.code() == code);
    let rows = causes.map(|cause| (open(cause.what()), open(cause.fix())));
    let kind = Kind::named(code).map(|kind| (kind.title().to_owned(), kind.help().to_owned()));
    rows.chain(kind).collect()
}

/// The codes of all that `--check` reports.
pub(crate) fn codes() -> Vec<&'static str> {
    let causes = Cause::ALL.iter().map(|cause| cause.code());
    let kinds = Kind::ALL.iter().map(|kind| kind.name());
    let codes = causes.chain(kinds).filter(|code| !code.is_empty());
    Vec::from_iter(codes.collect::<BTreeSet<_>>())
}

/// A cause's text for the help, which cannot know what fills its holes.
fn open(template: &str) -> String {
    let template = match template {
        "{why}" => "A setting may be a mistake: the check says which one, and why.",
        "{fix}" => "The check says why, and what to do.",
        other => other.trim_end_matches(" {why}"),
    };
    let holes = ["url", "request", "status", "limit", "flag", "why", "fix"].into_iter();
    holes.fold(template.replace("{later}", "later"), |text, hole| {
        text.replace(&format!("{{{hole}}}"), "…")
    })
}

/// Terms, and below each what it means, as a file has them.
pub(super) fn list(rows: impl IntoIterator<Item = (impl Display, impl Display)>) -> String {
    let rows = rows.into_iter();
    let rows = rows.map(|(term, meaning)| format!("  {term}\n          {meaning}"));
    rows.collect::<Vec<_>>().join("\n")
}

/// What can be wrong with Fabric, in the words of results and of `--check`.
fn causes() -> String {
    // The others only repeat the reason of another cause, which is listed anyway.
    let all = Cause::ALL.iter();
    let own = all.filter(|cause| !cause.what().ends_with("{why}"));
    list(own.map(|cause| (open(cause.what()), open(cause.fix()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::{COMMAND, SECTIONS};
    use std::collections::HashSet;

    #[test]
    fn topics_are_named_once_and_each_section_of_settings_has_one() {
        let names: HashSet<_> = TOPICS.iter().map(|topic| topic.name).collect();
        let files = std::fs::read_dir("src/cli/topics").unwrap().count();
        let numbers = (names.len(), TOPICS.len());
        assert_eq!(numbers, (files, files), "TOPICS, and src/cli/topics");
        let readme = include_str!("../../README.md");
        let mut names = names.into_iter();
        let missing = names.find(|name| !readme.contains(&format!("`{name}`")));
        assert_eq!(missing, None, "the topics of README.md");
        for section in SECTIONS {
            let found = TOPICS.iter();
            let found = found.filter(|topic| topic.section == Some(section)).count();
            assert_eq!(found, usize::from(section != COMMAND), "{section:?}");
        }
        let mut problems = codes().into_iter().flat_map(problem);
        let bare = problems.find(|(what, fix)| what.ends_with('…') || fix.ends_with('…'));
        assert_eq!(bare, None);
    }

    #[test]
    fn every_paragraph_reads_as_it_is_meant() {
        for topic in TOPICS {
            let text = topic.text();
            assert!(text.starts_with("    "), "{}: an example first", topic.name);
            assert!(!text.contains("\n\n\n"), "{}", topic.name);
            for paragraph in text.trim_end().split("\n\n") {
                let lines: Vec<&str> = paragraph.lines().collect();
                let blanks = |line: &&str| line.len() - line.trim_start().len();
                let fits = |most| lines.iter().all(|one| one.chars().count() <= most);
                let is_good = match blanks(&lines[0]) {
                    0 => {
                        let is_plain = lines.iter().all(|one| blanks(one) == 0);
                        is_plain && paragraph.ends_with(['.', ':']) && fits(80)
                    }
                    2 => {
                        let terms = lines.iter().map(|line| blanks(line) == 2);
                        // Each has a meaning.
                        let terms: Vec<bool> = terms.chain([true]).collect();
                        lines.iter().all(|line| [2, 10].contains(&blanks(line)))
                            && terms.windows(2).all(|two| two != [true, true])
                    }
                    _ => fits(72) && lines.iter().all(|one| blanks(one) >= 4),
                };
                assert!(is_good, "{}: {paragraph}", topic.name);
            }
            let hole = text.split('<').skip(1).find(|rest| {
                rest.split_once('>').is_some_and(|(name, _)| {
                    name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
                })
            });
            assert_eq!(hole, None, "{}", topic.name);
        }
    }
}
