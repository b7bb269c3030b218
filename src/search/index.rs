//! The index over patterns, and its ranking.
//!
//! ```text
//! names, sentences, requests → words → stems and their concepts ("terms") → the patterns with each, and its weight
//! query → the same terms → the sum of their weights, and the likeness of the texts → names, best first
//! ```
//! The fewer patterns have a word, the more it weighs; verbs that say what to do have weights of their own. A pattern
//! for which the verb alone is a request ("summarize") comes before those that are also about something else
//! ("summarize_paper"), unless that is asked for.

use std::collections::{HashMap, HashSet};

use super::language::LANGUAGE;
use super::own::{requests, sentence};
use super::patterns::shipped;
use super::query::{ParsedQuery, Word, has_any, needs};
use super::similar::humanised;
use super::stem::stem;
use super::words::{plain_letters, words};
use crate::text::prefix;

/// How much of each text is read, in bytes.
const MOST_TEXT: usize = 16 << 10;
/// Most patterns.
const MOST_PATTERNS: usize = u16::MAX as usize;
/// Most terms; further words are not indexed.
const MOST_TERMS: usize = 1 << 16;
/// How many words of a query are corrected at most, and how many letters such a word has.
const MOST_CORRECTED: usize = 16;
const CORRECTED: std::ops::RangeInclusive<usize> = 5..=16;

/// Strengths of a word in a name of one word, in a sentence, and in a request.
const NAME: f32 = 4.0;
const SENTENCE: f32 = 2.0;
const REQUEST: f32 = 1.0;
/// Strength of a verb that is all that is said, and of one in a name that says more.
const ONLY_VERB: f32 = 6.0;
const NAME_VERB: f32 = 3.0;
/// How soon further occurrences of a word stop adding to the score (BM25's k1).
const SATURATION: f32 = 1.4;
/// Weight of an unknown word.
const UNKNOWN_WEIGHT: f32 = 0.5;
/// Share of a match by another word for the same concept, or after correcting a typing error.
const SYNONYM: f32 = 0.7;
/// Share of a verb in another language: most of them say less than the English one.
const FOREIGN_VERB: f32 = 0.6;
/// How much a verb counts in a query of at least this many words, where the other words say more.
const VERB_OF_MANY: f32 = 0.8;
const MANY: usize = 4;
/// How much the sum over words counts, compared to the likeness of the most similar text.
const WORDS: f32 = 3.0;
/// A best score below this is *unsure*, and below the second one *nothing fits*. Found with people's tasks, and with some
/// that no pattern is for.
const UNSURE: f32 = 1.05;
const NOTHING: f32 = 0.2;
/// How much the likeness to what no pattern does takes from that score.
const NO_TASK: f32 = 3.0;
/// What to tell the caller then.
pub(crate) const UNSURE_FIT: &str =
    "Unsure. If none of these does it, ask once more: what goes in, what should come out.";
pub(crate) const NOTHING_FITS: &str = "Nothing fits: almost certainly no pattern does this task.";
/// A result must have at least this share of the best score. The share rises by `RISE` for each result before it; the
/// first [`FEWEST`] are listed in any case.
const CANDIDATE: f32 = 0.47;
const RISE: f32 = 0.02;
const FEWEST: usize = 3;
/// At most this many needs of a query are looked at. If there are several, the best pattern for each that is not unsure
/// gets at least this share of the best score.
const MOST_NEEDS: usize = 4;
const OF_TWO: f32 = 0.8;
/// What a pattern keeps of its score if it does, or is about, what the query excludes; and if it only mentions that.
const EXCLUDED: f32 = 0.3;
const HARDLY: f32 = 0.7;
/// Requests that people make of a computer and no pattern is for.
const NO_TASKS: &str = include_str!("nothing.txt");
/// What to tell the caller if no word of the query is known.
const NOT_UNDERSTOOD: &str = "The query was not understood. Say in plain English what goes in and \
    what should come out (\"summarize a text\"), or leave query out to see all names. The \
    matches, if there are any, are only what people want most often.";
/// What is listed then for a query in another language.
const MOST_WANTED: &str = "summarize, translate, improve writing, explain code, ai, raw query";
/// Score of a pattern that the query names.
const NAMED: f32 = 100.0;

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchResult<'a> {
    /// The matching patterns, best first.
    pub(crate) hits: Vec<&'a str>,
    /// Which of the three best were left out, because they are not allowed.
    pub(crate) denied: Vec<&'a str>,
    /// What to tell the caller; nothing if the first match clearly fits.
    pub(crate) warning: Option<&'static str>,
}

/// An index over all patterns. Read-only.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The names of all patterns, in their original order.
    patterns: Vec<String>,
    /// Patterns by name in lower case, with spaces.
    names: HashMap<String, u16>,
    /// The numbers of terms, by word as well as by stem.
    terms: HashMap<String, u32>,
    postings: Vec<Postings>,
    /// Names, sentences, requests: whose each is, and the sum of its words' squared weights.
    texts: Vec<(u16, f32)>,
    /// The stems of words that were added, because most words come often, and finding a stem takes longest. Empty once
    /// the index is built.
    stems: HashMap<String, String>,
    /// Whether the pattern that is being added is somebody's own.
    is_own: bool,
}

/// Where a term occurs.
#[derive(Debug, Default)]
struct Postings {
    weight: f32,
    /// In which texts: 1 as such, [`SYNONYM`] as a concept.
    texts: Vec<(u32, f32)>,
    /// In which patterns, and how strongly: below 1.
    patterns: Vec<(u16, f32)>,
}

/// What the pattern of this name and text does, in one sentence of at most 140 characters.
pub(crate) fn purpose(name: &str, text: &str) -> String {
    match shipped(name) {
        Some(row) => row.sentence.to_owned(),
        None => sentence(name, prefix(text, MOST_TEXT)),
    }
}

impl Index {
    /// Builds an index over names and texts. A text may be empty: then the table's row or the name is indexed.
    pub(crate) fn build<N: Into<String>, T: AsRef<str>>(
        patterns: impl IntoIterator<Item = (N, T)>,
    ) -> Index {
        let mut index = Index::default();
        for (name, text) in patterns.into_iter().take(MOST_PATTERNS) {
            let name = name.into();
            let text = prefix(text.as_ref(), MOST_TEXT);
            let at = index.patterns.len() as u16;
            index.names.insert(spaced(&name), at);
            let row = shipped(&name);
            index.is_own = row.is_none();
            index.add(NAME, &humanised(&name));
            index.add(SENTENCE, &purpose(&name, text));
            let requests = row.map_or_else(|| requests(text), |row| row.requests.to_owned());
            let requests = requests.split("; ");
            requests.for_each(|text| index.add(REQUEST, text));
            index.patterns.push(name);
        }
        index.is_own = false;
        // A text that is most like a request adds nothing to the sum over words.
        let others = NO_TASKS.split(['\n', ';']);
        others.for_each(|text| index.add(0.0, text));
        index.patterns.push(String::new());
        index.weigh();
        index
    }

    /// Adds a text of the next pattern, whose words have this strength, less in a name of several.
    fn add(&mut self, usual: f32, text: &str) {
        let language = &*LANGUAGE;
        let (pattern, at) = (self.patterns.len() as u16, self.texts.len() as u32);
        let mut said = words(text);
        let says_something = |word: &String| !language.ignored.contains(word.as_str());
        if said.iter().any(says_something) {
            said.retain(says_something);
        }
        let length = said.len() as f32;
        let stem = |word: &String| {
            let known = self.stems.entry(word.clone());
            known.or_insert_with(|| stem(word)).clone()
        };
        let stems: Vec<String> = said.iter().map(stem).collect();
        for (word, stem) in said.iter().zip(&stems) {
            let is_verb = language.verbs.contains(stem);
            let strength = if is_verb && said.len() == 1 && usual > 0.0 {
                ONLY_VERB
            } else if usual != NAME {
                usual
            } else if is_verb && !stems.iter().all(|stem| language.verbs.contains(stem)) {
                NAME_VERB
            } else {
                NAME / (length * length.sqrt()).sqrt()
            };
            let own = self.term(word, stem).map(|term| (term, 1.0));
            let concept = language.synonyms.get(stem);
            let concept = concept.and_then(|concept| self.term(concept, concept));
            let concept = concept.map(|term| (term, SYNONYM));
            let verbatim = self.is_own.then(|| format!("={word}"));
            let verbatim = verbatim.and_then(|word| self.term(&word, &word));
            let verbatim = verbatim.map(|term| (term, SYNONYM));
            for (term, share) in own.into_iter().chain(concept).chain(verbatim) {
                let postings = &mut self.postings[term as usize];
                let strength = share * strength;
                match postings.texts.last_mut() {
                    Some((text, most)) if *text == at => *most = share.max(*most),
                    _ => postings.texts.push((at, share)),
                }
                match postings.patterns.last_mut() {
                    _ if strength == 0.0 => {}
                    // Verbs are in most requests of a pattern: that says nothing about how much it is about them.
                    Some((last, sum)) if *last == pattern && is_verb => *sum = sum.max(strength),
                    Some((last, sum)) if *last == pattern => *sum += strength,
                    _ => postings.patterns.push((pattern, strength)),
                }
            }
        }
        self.texts.push((pattern, 0.0));
    }

    /// The number of a word's term.
    fn term(&mut self, word: &str, stem: &str) -> Option<u32> {
        let known = self.terms.get(word);
        if known.is_some() || self.terms.len() >= MOST_TERMS {
            return known.or(self.terms.get(stem)).copied();
        }
        let next = self.postings.len() as u32;
        let term = *self.terms.entry(stem.to_owned()).or_insert(next);
        if term == next {
            self.postings.push(Postings::default());
        }
        self.terms.insert(word.to_owned(), term);
        Some(term)
    }

    /// Weighs terms by how few patterns have them, and texts by their terms.
    fn weigh(&mut self) {
        self.stems = HashMap::new();
        let all = self.patterns.len() as f32;
        for postings in &mut self.postings {
            let share = postings.patterns.len() as f32 / all;
            // No logarithm: the program would need libm, and a twentieth longer to start.
            postings.weight = 1.0 - share.sqrt().sqrt();
            for (_, strength) in &mut postings.patterns {
                *strength /= *strength + SATURATION;
            }
        }
        for (word, term) in &self.terms {
            if let Some(weight) = LANGUAGE.weights.get(word) {
                self.postings[*term as usize].weight = *weight;
            }
        }
        for postings in &self.postings {
            for (text, _) in postings.texts.iter().filter(|(_, share)| *share == 1.0) {
                self.texts[*text as usize].1 += postings.weight.powi(2);
            }
        }
    }

    /// At most `limit` patterns that match a query in free text and that `allows` lets pass. Deterministic.
    pub(crate) fn search(
        &self,
        query: &str,
        limit: usize,
        allows: impl Fn(&str) -> bool,
    ) -> SearchResult<'_> {
        let (needs, excluded) = needs(query, |word| self.terms.contains_key(word));
        let meant = needs.concat();
        let query = if meant.is_empty() { query } else { &meant };
        let request = ParsedQuery::parse(query);
        let mut scores = self.scores(&request.words);
        let no_task = scores.pop().unwrap_or_default();
        if needs.len() > 1 {
            let best = scores.iter().copied().fold(0.0, f32::max);
            for need in needs.iter().take(MOST_NEEDS) {
                let own = self.scores(&ParsedQuery::parse(need).words);
                let own = own.into_iter().zip(0..scores.len());
                let first = own.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
                if let Some((UNSURE.., at)) = first {
                    scores[at] = scores[at].max(OF_TWO * best);
                }
            }
        }
        let mut excluded = ParsedQuery::parse(prefix(&excluded, 128)).words;
        excluded.retain(|word| request.words.iter().all(|one| one.means() != word.means()));
        for at in self.named(query) {
            scores[usize::from(at)] += NAMED;
        }
        let names = self.patterns.iter().map(String::as_str);
        let mut ranked: Vec<(f32, &str)> = scores.into_iter().zip(names).collect();
        // "Suggest a title" asks for no pattern.
        let asked = query.to_lowercase();
        let mut subjects = ["pattern", "prompt", "fabric"].iter();
        let is_asked = request.is_foreign || subjects.any(|subject| asked.contains(subject));
        ranked.retain(|(score, name)| *score > 0.0 && (is_asked || *name != "suggest_pattern"));
        let better = |a: &(f32, &str), b: &(f32, &str)| b.0.total_cmp(&a.0).then(a.1.cmp(b.1));
        ranked.sort_by(better);
        // Reading all names would take long.
        for (score, name) in ranked.iter_mut().take(limit.saturating_mul(2)) {
            let sentence = shipped(name).map_or("", |row| row.sentence);
            *score *= match &excluded[..] {
                [] => 1.0,
                excluded if has_any(excluded, name, true) => EXCLUDED,
                excluded if has_any(excluded, sentence, false) => HARDLY,
                _ => 1.0,
            };
        }
        ranked.sort_by(better);
        let has_other_letters = query.chars().any(|c| !c.is_ascii() && c.is_alphabetic());
        let is_unknown = ranked.is_empty() && (request.is_foreign || has_other_letters);
        if is_unknown {
            let wanted = MOST_WANTED.split(", ");
            let wanted = wanted.filter_map(|name| self.names.get(name));
            ranked.extend(wanted.map(|at| (UNSURE, self.patterns[usize::from(*at)].as_str())));
        }
        let first = ranked.iter().take(FEWEST).map(|(_, name)| *name);
        let denied = first.filter(|name| !allows(name)).collect();
        let mut allowed = ranked.iter().filter(|(_, name)| allows(name)).peekable();
        let best = allowed.peek().filter(|_| !is_unknown);
        // People's own patterns have fewer words to be found by.
        let is_own = best.is_some_and(|(score, name)| *score >= UNSURE && shipped(name).is_none());
        let best = best.map(|(score, _)| *score);
        let least = |at: usize| best.unwrap_or_default() * (CANDIDATE + RISE * at as f32);
        let candidates = allowed
            .zip(0..limit)
            .take_while(|((score, _), at)| *at < FEWEST || *score >= least(*at));
        SearchResult {
            hits: candidates.map(|((_, name), _)| *name).collect(),
            denied,
            warning: match best.map(|best| best - NO_TASK * no_task) {
                None if no_task == 0.0 => Some(NOT_UNDERSTOOD),
                None => Some(NOTHING_FITS),
                // A low score may as well mean that few of the words are known.
                Some(..NOTHING) if !request.is_foreign && !is_own => Some(NOTHING_FITS),
                Some(..UNSURE) => Some(UNSURE_FIT),
                Some(_) => None,
            },
        }
    }

    /// The score of each pattern.
    fn scores(&self, said: &[Word]) -> Vec<f32> {
        // The sums of patterns, and after them those of texts.
        let all = self.patterns.len();
        let mut sums = vec![0_f32; all + self.texts.len()];
        let mut corrections = MOST_CORRECTED;
        let mut length = f32::MIN_POSITIVE;
        for word in said {
            let meant = self.meant(word, said.len() >= MANY, &mut corrections);
            let weight = match meant.first() {
                Some((term, share)) => share * self.postings[*term as usize].weight,
                None => word.share * word.weight().unwrap_or(UNKNOWN_WEIGHT),
            };
            length += weight.powi(2);
            // Of several terms that the word may mean, the best counts.
            let mut best_of = vec![0_f32; sums.len()];
            for (term, share) in meant {
                let postings = &self.postings[term as usize];
                for (pattern, strength) in &postings.patterns {
                    let best = &mut best_of[*pattern as usize];
                    *best = best.max(share * postings.weight * strength);
                }
                for (text, part) in &postings.texts {
                    let best = &mut best_of[all + *text as usize];
                    *best = best.max(share * part * postings.weight.powi(2));
                }
            }
            for (sum, best) in sums.iter_mut().zip(best_of) {
                *sum += best;
            }
        }
        let (patterns, texts) = sums.split_at(all);
        let mut likeness = vec![0_f32; all];
        for (sum, (pattern, squared)) in texts.iter().zip(&self.texts) {
            if *sum > 0.0 {
                let best = &mut likeness[*pattern as usize];
                *best = best.max(sum / (squared * length).sqrt());
            }
        }
        let scores = patterns.iter().zip(likeness);
        let total = |(sum, likeness)| WORDS * sum / length.sqrt() + likeness;
        scores.map(total).collect()
    }

    /// The terms that a word may mean, each with how sure that is.
    fn meant(&self, word: &Word, of_many: bool, corrections: &mut usize) -> Vec<(u32, f32)> {
        let known = |words: &[String], share: f32| -> Vec<(u32, f32)> {
            let terms = words.iter().filter_map(|word| self.terms.get(word));
            terms.map(|term| (*term, share)).collect()
        };
        let (own, concept) = word.stems.split_at(word.stems.len().min(1));
        let of_verb = |stems: &[String], share| {
            let has_verb = stems.iter().any(|stem| LANGUAGE.verbs.contains(stem));
            if has_verb { share } else { 1.0 }
        };
        let share = of_verb(own, if of_many { VERB_OF_MANY } else { 1.0 });
        let mut found = known(own, share);
        found.extend(known(concept, share * SYNONYM));
        if found.is_empty() {
            found = known(&word.foreign, of_verb(&word.foreign, FOREIGN_VERB));
        }
        let is_word = word.text.bytes().all(|b| b.is_ascii_lowercase());
        if found.is_empty() && *corrections > 0 && is_word && CORRECTED.contains(&word.text.len()) {
            *corrections -= 1;
            found = known(&edits(&word.text), SYNONYM);
        }
        found.iter_mut().for_each(|(_, share)| *share *= word.share);
        found
    }

    /// The patterns that a query names: as a whole, or by a word with `_` or `-`.
    fn named(&self, query: &str) -> HashSet<u16> {
        let pieces = query.split(|c: char| c.is_whitespace() || ",;:\"'`()?!".contains(c));
        let pieces = pieces.filter(|piece| piece.contains(['_', '-']));
        let names = std::iter::once(query).chain(pieces.take(MOST_CORRECTED));
        let known = |name| self.names.get(&spaced(name)).copied();
        names.filter_map(known).collect()
    }
}

/// A name in lower case, its separators as spaces.
fn spaced(name: &str) -> String {
    plain_letters(name.trim()).replace(['_', '-', '.'], " ")
}

/// All words that are one typing error away from one in Latin letters.
fn edits(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..=word.len() {
        let (head, tail) = word.split_at(at);
        let rest = tail.get(1..).unwrap_or_default();
        for letter in 'a'..='z' {
            found.push(format!("{head}{letter}{tail}"));
            found.push(format!("{head}{letter}{rest}"));
        }
        found.push(format!("{head}{rest}"));
        if let Some(swapped) = rest.get(..1) {
            found.push(format!("{head}{swapped}{}{}", &tail[..1], &rest[1..]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of Fabric's, and people's own patterns.
    const PATTERNS: [(&str, &str); 9] = [
        ("summarize", ""),
        ("summarize_meeting", ""),
        ("translate", ""),
        ("extract_recipe", ""),
        ("find_logical_fallacies", ""),
        ("suggest_pattern", ""),
        (
            "name_rocks",
            "# IDENTITY\n\nYou tell which mineral a stone on eBay is.\n\n# GEOLOGY\n",
        ),
        ("要約する", "# IDENTITY\n\n会議の要約を作成します。\n"),
        ("резюме_текста", "# IDENTITY\n\nСокращает длинный текст.\n"),
    ];

    fn index() -> Index {
        Index::build(PATTERNS)
    }

    fn first(query: &str) -> Option<&'static str> {
        let index = index();
        let found = index.search(query, 3, |_| true);
        assert_eq!(found, index.search(query, 3, |_| true));
        let name = found.hits.first()?;
        PATTERNS
            .iter()
            .map(|(known, _)| *known)
            .find(|known| known == name)
    }

    #[test]
    fn patterns_are_found_by_names_requests_texts_and_other_scripts() {
        for (query, expected) in [
            ("summarising a report", "summarize"),
            ("tl;dr", "summarize"),
            ("translate a meeting, no translations", "translate"),
            ("who has to do what after the call", "summarize_meeting"),
            ("what can I cook", "extract_recipe"),
            ("a call about rocks, no meeting", "name_rocks"),
            ("which mineral is it", "name_rocks"),
            ("eBay", "name_rocks"),
            ("要約", "要約する"),
            ("текста", "резюме_текста"),
            // Typing errors.
            ("sumarize", "summarize"),
            ("minreal", "name_rocks"),
            // Names, also within a sentence.
            ("Extract Recipe", "extract_recipe"),
            (
                "run find_logical_fallacies on the recipe, please",
                "find_logical_fallacies",
            ),
            ("suggest-pattern", "suggest_pattern"),
            ("which pattern should I use?", "suggest_pattern"),
        ] {
            assert_eq!(first(query), Some(expected), "{query}");
        }
        assert_ne!(first("suggest a title"), Some("suggest_pattern"));
    }

    #[test]
    fn what_is_not_understood_finds_nothing() {
        let index = index();
        for query in ["zzqqxw flumbergast", "", " ", "?!", "\u{301}"] {
            let found = index.search(query, 5, |_| true);
            let shown = (found.hits.len(), found.warning);
            assert_eq!(shown, (0, Some(NOT_UNDERSTOOD)), "{query:?}");
        }
        for query in ["бесконечность", "Zażółć gęślą"] {
            let found = index.search(query, 5, |_| true);
            let shown = (found.hits, found.warning);
            let wanted = vec!["summarize", "translate"];
            assert_eq!(shown, (wanted, Some(NOT_UNDERSTOOD)), "{query}");
        }
        assert_eq!(index.search("summarize", 0, |_| true).hits.len(), 0);
        assert_eq!(index.search("summarize", 5, |_| true).warning, None);
        let found = index.search("invite people to a meeting", 5, |_| true);
        assert_eq!(found.warning, Some(NOTHING_FITS));
        let empty = Index::build(Vec::<(String, String)>::new());
        assert!(empty.search("summarize", 5, |_| true).hits.is_empty());
    }

    #[test]
    fn hostile_texts_are_bounded() {
        let texts = [
            "x".repeat(200_000),
            "漢".repeat(60_000),
            "You {{a}} <b> **c** ".repeat(10_000),
            "\u{301}".repeat(50_000),
            "# \n- \n> ".repeat(20_000),
            (0..40_000).map(|n| format!("# w{n}\n")).collect(),
        ];
        let index =
            Index::build((0..700).map(|n| (format!("pattern_{n}"), &texts[n % texts.len()])));
        assert!(index.terms.len() < 20_000);
        for query in [
            "pattern_699".to_owned(),
            format!("pattern_699 {}", "漢".repeat(5_000)),
        ] {
            assert_eq!(index.search(&query, 10, |_| true).hits[0], "pattern_699");
        }
    }
}
