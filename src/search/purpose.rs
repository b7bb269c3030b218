//! One sentence that says what a pattern does, extracted from its text.
//!
//! Patterns are prompts: they tell a model who it is, to take a deep breath, and somewhere in between what to do. The
//! task is found by phrases that introduce it ("you are an expert at …", "your goal is to …") and rewritten as an
//! imperative: "Extract the jokes of a text." The first good sentence that few other patterns share is used.

use std::collections::HashMap;

use super::phrases::action;
use super::prose::{PatternPart, Sentence, sentences};
use super::stem::stem;
use super::words::{is_stop, whole_words};

/// Longest one-line description of a pattern, in characters.
pub(super) const MAX_SUMMARY: usize = 300;

/// A sentence shared by this many patterns describes none of them.
const COMMON: usize = 6;
/// Shorter sentences say little; in bytes.
const FEW: usize = 50;
/// Most sentences considered per pattern.
const MOST_CANDIDATES: usize = 16;

/// A sentence that may say what a pattern does.
pub(super) struct Candidate {
    pub(super) text: String,
    grade: Grade,
}

impl Candidate {
    /// Whether it has a word of the name other than the first, which is mostly a generic verb: "analyze", "create".
    fn says(&self, name: &str) -> bool {
        let named: Vec<String> = whole_words(name)
            .iter()
            .skip(1)
            .map(|word| stem(word))
            .collect();
        whole_words(&self.text)
            .iter()
            .any(|word| !is_stop(word) && named.contains(&stem(word)))
    }
}

/// How likely a sentence describes the pattern, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// From the introduction.
    Aim,
    /// The same, but almost without content.
    Vague,
    /// From its steps and rules for output.
    Step,
}

/// Sentences that may describe the pattern, most likely first.
pub(super) fn candidates(text: &str) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut aims = 0;
    for Sentence { text, part } in sentences(text) {
        // Steps are only considered if there is nothing better.
        if part == PatternPart::Rest && aims > 1 {
            continue;
        }
        let Some(action) = action(&text, part) else {
            continue;
        };
        let grade = match part {
            PatternPart::Rest => Grade::Step,
            PatternPart::Intro | PatternPart::Goal if action.is_vague => Grade::Vague,
            PatternPart::Intro | PatternPart::Goal => Grade::Aim,
        };
        aims += usize::from(grade == Grade::Aim);
        let text = finished(&action.text);
        if !found.iter().any(|other| other.text == text) {
            found.push(Candidate { text, grade });
        }
        if found.len() == MOST_CANDIDATES {
            break;
        }
    }
    found.sort_by_key(|candidate| candidate.grade);
    found
}

/// The purpose of each pattern: its first sentence that few others have. Identical purposes are distinguished by a
/// prefix with the name.
pub(super) fn told_apart(names: &[String], candidates: &[Vec<Candidate>]) -> Vec<String> {
    let mut shared: HashMap<&str, usize> = HashMap::new();
    for candidate in candidates.iter().flatten() {
        *shared.entry(&candidate.text).or_default() += 1;
    }
    let count = |candidate: &Candidate| shared.get(candidate.text.as_str()).copied().unwrap_or(0);
    let chosen: Vec<Option<&Candidate>> = candidates
        .iter()
        .zip(names)
        .map(|(all, name)| {
            let aims = || all.iter().filter(|candidate| candidate.grade == Grade::Aim);
            let own = || aims().filter(|candidate| count(candidate) == 1);
            // Prefer a unique sentence that shares a word with the name, or a longer one.
            let named = own().find(|candidate| candidate.says(name));
            let named =
                named.or_else(|| own().take(2).find(|candidate| candidate.text.len() >= FEW));
            let own = named.or_else(|| {
                all.iter().find(|candidate| {
                    candidate.grade == Grade::Vague && count(candidate) == 1 && candidate.says(name)
                })
            });
            let own = own.or_else(|| aims().find(|candidate| count(candidate) == 1));
            let own = own.or_else(|| aims().find(|candidate| count(candidate) < COMMON));
            let own = own.or_else(|| {
                all.iter()
                    .find(|candidate| count(candidate) == 1 && candidate.says(name))
            });
            own.or_else(|| all.iter().find(|candidate| count(candidate) == 1))
                .or_else(|| {
                    all.iter().find(|candidate| {
                        candidate.grade <= Grade::Vague && count(candidate) < COMMON
                    })
                })
        })
        .collect();
    let mut taken: HashMap<&str, usize> = HashMap::new();
    for candidate in chosen.iter().flatten() {
        *taken.entry(&candidate.text).or_default() += 1;
    }
    names
        .iter()
        .zip(&chosen)
        .map(|(name, chosen)| match chosen {
            None => finished(&humanised(name)),
            Some(chosen) if taken.get(chosen.text.as_str()).is_some_and(|&n| n > 1) => finished(
                &format!("{}: {}", humanised(name), uncapitalised(&chosen.text)),
            ),
            Some(chosen) => chosen.text.clone(),
        })
        .collect()
}

/// `Extract wisdom` for `extract_wisdom`.
pub(crate) fn humanised(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len());
    let mut before = ' ';
    for c in name.trim().chars() {
        if c.is_uppercase() && before.is_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if matches!(c, '_' | '-' | '.') || c.is_control() {
            ' '
        } else {
            c
        });
        before = c;
    }
    let words: Vec<String> = spaced
        .split_whitespace()
        .map(|word| {
            let lower = word.to_lowercase();
            match ACRONYMS
                .iter()
                .find(|acronym| acronym.to_lowercase() == lower)
            {
                Some(acronym) => (*acronym).to_owned(),
                None => lower,
            }
        })
        .collect();
    if words.is_empty() {
        name.to_owned()
    } else {
        capitalised(&words.join(" "))
    }
}

/// Words of names that keep capitals.
const ACRONYMS: &[&str] = &[
    "AI",
    "API",
    "ASCII",
    "CFP",
    "CSS",
    "CSV",
    "CTF",
    "CV",
    "DIY",
    "DSRP",
    "GitHub",
    "HackerOne",
    "HTML",
    "JSON",
    "LaTeX",
    "LOE",
    "MCP",
    "NPC",
    "PDF",
    "PRD",
    "QA",
    "RPG",
    "SIEM",
    "SOC",
    "SQL",
    "STRIDE",
    "URL",
    "XML",
    "YAML",
    "YouTube",
];

pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// The sentence without its initial capital, for use after a colon; abbreviations and names keep theirs.
fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

/// A sentence of at most [`MAX_SUMMARY`] characters, with an initial capital and a full stop.
fn finished(text: &str) -> String {
    let text = text.trim().trim_end_matches(|c: char| {
        matches!(c, '.' | ',' | ';' | ':' | '-' | '–' | '—' | '…') || c.is_whitespace()
    });
    let mut text = capitalised(text);
    if text.chars().count() >= MAX_SUMMARY {
        // Leaves room for the ellipsis and the full stop.
        let end = text
            .char_indices()
            .nth(MAX_SUMMARY - 2)
            .map_or(text.len(), |(at, _)| at);
        let kept = &text[..end];
        let cut = [", ", "; ", " "]
            .iter()
            .filter_map(|gap| kept.rfind(gap))
            .find(|at| *at > end / 2)
            .unwrap_or(end);
        text.truncate(cut);
        return text + "….";
    }
    for (inside, outside) in [(".\"", "\""), (".”", "”")] {
        if text.ends_with(inside) {
            text.truncate(text.len() - inside.len());
            text.push_str(outside);
        }
    }
    if !text.ends_with(['!', '?', '。']) {
        text.push('.');
    }
    text
}
