//! What words mean: `languages.tsv`.
//!
//! A line is a concept, its weight, and the words for it in English, German, French, Spanish, Portuguese, Chinese,
//! Japanese, Korean, Russian, Polish and Italian; in scripts without spaces these have four characters at most. A foreign
//! word of at least four letters stands for all words that begin with it, a longer one also for compounds that end with it.
//! Verbs that say what is to be done have a weight of their own, other words have one by how few patterns have them. Lines
//! without a concept are words that say little or, with weight 0, nothing. A foreign word in several lines may mean each.

use std::collections::{HashMap, HashSet};
use std::iter;
use std::sync::LazyLock;

use super::stem::stem;
use super::words::is_unspaced;
use crate::text::decimal;

const TABLE: &str = include_str!("languages.tsv");

/// Fewest letters of a foreign word that stands for all that begin with it.
const PREFIX: usize = 4;
/// Most letters that an ending has.
const ENDING: usize = 3;

/// Most characters of a word in a script without spaces.
const UNSPACED: usize = 4;

/// The table, parsed on first use.
pub(crate) static LANGUAGE: LazyLock<Language> = LazyLock::new(Language::parse);

/// The table.
#[derive(Default)]
pub(crate) struct Language {
    /// English words that say nothing about a task.
    pub(crate) ignored: HashSet<&'static str>,
    /// The same in other languages: they tell that a query is not English.
    pub(crate) foreign_ignored: HashSet<&'static str>,
    /// Stems of words that weigh the same everywhere.
    pub(super) weights: HashMap<String, f32>,
    /// Stems of verbs that say what is to be done.
    pub(super) verbs: HashSet<String>,
    /// Stems of English words, with the concept's stem.
    pub(super) synonyms: HashMap<String, String>,
    /// Foreign words, with the concepts that each may mean.
    foreign: HashMap<&'static str, Vec<&'static str>>,
}

impl Language {
    fn parse() -> Language {
        let mut language = Language::default();
        for line in TABLE.lines().skip(1) {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or_default();
            let (name, weight, english) = (column(), decimal(column()), column());
            let concept = stem(name);
            let weight = weight.map(|weight| weight as f32);
            let foreign = columns.flat_map(str::split_whitespace);
            if weight == Some(0.0) {
                language.ignored.extend(english.split(' '));
                language.foreign_ignored.extend(foreign);
                continue;
            }
            let stems = english.split(' ').map(stem).chain([concept.clone()]);
            for word in stems.filter(|word| !word.is_empty()) {
                if let Some(weight) = weight {
                    language.weights.insert(word.clone(), weight);
                    if !concept.is_empty() {
                        language.verbs.insert(word.clone());
                    }
                }
                if word != concept && !concept.is_empty() {
                    language.synonyms.insert(word, concept.clone());
                }
            }
            for word in foreign {
                language.foreign.entry(word).or_default().push(name);
            }
        }
        language
    }

    /// Whether a query in lower case has words of another language.
    pub(super) fn is_foreign(&self, words: &[String]) -> bool {
        words.iter().any(|word| {
            let is_in = |list: &HashSet<&str>| list.contains(word.as_str());
            !word.is_ascii() || is_in(&self.foreign_ignored) && !is_in(&self.ignored)
        })
    }

    /// The names of the concepts that a word of another language may mean, whatever its ending is.
    pub(crate) fn meanings(&self, word: &str) -> &[&'static str] {
        let fewest = PREFIX * word.chars().next().map_or(1, char::len_utf8);
        let ends = word.char_indices().rev().take(ENDING).map(|(at, _)| at);
        let ends = ends.filter(|end| *end >= fewest);
        let mut heads = iter::once(word.len()).chain(ends);
        let meanings = heads.find_map(|end| self.foreign.get(&word[..end]));
        meanings.map_or(&[], Vec::as_slice)
    }

    /// The words known of another language in a run, each as the stems of the concepts that it may mean: one word, or in
    /// scripts without spaces all.
    pub(super) fn foreign(&self, run: &str) -> Vec<Vec<String>> {
        let stems = |concepts: &Vec<&str>| concepts.iter().map(|name| stem(name)).collect();
        let meaning = |word: &str| self.foreign.get(word).map(stems);
        if run.starts_with(is_unspaced) {
            let chars: Vec<char> = run.chars().collect();
            let (mut found, mut rest) = (Vec::new(), &chars[..]);
            while !rest.is_empty() {
                let mut lengths = (1..=rest.len().min(UNSPACED)).rev();
                let word = |n| Some((n, meaning(&String::from_iter(&rest[..n]))?));
                let (length, meant) = lengths.find_map(word).unzip();
                found.extend(meant);
                rest = &rest[length.unwrap_or(1)..];
            }
            return found;
        }
        // The longest first; of a compound, its last part if the first is not known.
        let fewest = PREFIX * run.chars().next().map_or(1, char::len_utf8);
        let ends = (fewest.min(run.len())..=run.len()).rev();
        let heads = ends.filter_map(|end| run.get(..end));
        let tails = (fewest..run.len().saturating_sub(fewest)).filter_map(|at| run.get(at..));
        heads.chain(tails).filter_map(meaning).take(1).collect()
    }
}
