//! The index over patterns, and its ranking.
//!
//! ```text
//! texts → words → stems and thesaurus groups ("terms") → for each term: which pattern, how strongly (postings)
//! query → the same terms → the sum of idf × strength over them → names, best first
//! ```
//! BM25F in two layers, each with its own idf: a pattern's name and purpose, and the rest of its text. A word of every
//! text ("output", "summary") may still distinguish names.

use std::collections::HashMap;

use super::areas::areas;
use super::prose::heading;
use super::purpose::{Candidate, candidates, told_apart};
use super::stem::stem;
use super::thesaurus::{Group, Thesaurus};
use super::typing::{Letters, distance};
use super::vocabulary::{NEARLY, Vocabulary, vocabulary};
use super::words::{WordKind, is_stop, words};

/// How much of each text is indexed, in bytes.
pub(crate) const MOST_TEXT: usize = 16 << 10;
/// Most different words; further ones are not indexed.
const MOST_TERMS: usize = 1 << 16;
/// Most postings; beyond it, only names are added.
const MOST_POSTINGS: usize = 1 << 20;
/// Most patterns.
const MOST_PATTERNS: usize = u16::MAX as usize;
/// Most words of a query; further ones are ignored.
const MOST_WORDS: usize = 64;

/// The index entry of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// Its name.
    pub(crate) name: String,
    /// What it does, in one sentence.
    pub(crate) purpose: String,
    /// Its areas; often none.
    pub(crate) tags: Vec<&'static str>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchResult<'a> {
    /// The matching patterns, best first.
    pub(crate) hits: Vec<&'a Card>,
    /// If nothing matches, the names most similar to the query, at most five.
    pub(crate) nearest: Vec<&'a str>,
    /// Words of the query that match no pattern, not even approximately.
    pub(crate) unknown: Vec<String>,
}

/// An index over all patterns. Read-only.
pub(crate) struct Index {
    cards: Vec<Card>,
    /// Term numbers: groups first, then words.
    vocabulary: Vocabulary,
    /// Start of each term's postings; the last element is the end of the last ones.
    starts: Vec<u32>,
    postings: Vec<Posting>,
    /// The idf of each term in names and purposes, and in texts.
    weights: Vec<[f32; 2]>,
}

/// How strongly a pattern matches a term.
#[derive(Clone, Copy, Debug)]
struct Posting {
    card: u16,
    /// In its name and purpose, and in its text; 0 to 255.
    strengths: [u8; 2],
}

/// Where a word occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Name,
    Purpose,
    /// Other sentences that may describe the pattern.
    Lead,
    Heading,
    Body,
}

/// By field: the weight of a word, and the normalisation by the field's length (BM25's b).
const FIELDS: [(f32, f32); 5] = [(5.0, 0.9), (2.6, 0.5), (1.2, 0.7), (0.9, 0.9), (1.0, 0.95)];
/// BM25's k1, for names and purposes, and for texts.
const SATURATION: [f32; 2] = [4.5, 1.9];
/// Weight of each layer.
const LAYERS: [f32; 2] = [1.0, 1.1];
/// Weight of a thesaurus group relative to the word itself.
const GROUP: f32 = 1.2;
/// The same for a group that a whole phrase of the query belongs to.
const PHRASE: f32 = 1.8;
/// Weight that the words of such a phrase keep.
const COVERED: f32 = 0.6;

/// The entry of one pattern, built without the others.
pub(crate) fn card(name: &str, text: &str) -> Card {
    let found = candidates(start_of(text, MOST_TEXT));
    let purpose = told_apart(&[name.to_owned()], &[found])
        .pop()
        .unwrap_or_default();
    let tags = areas(name, &purpose);
    Card {
        name: name.to_owned(),
        purpose,
        tags,
    }
}

impl Index {
    /// Builds an index over names and texts. A text may be empty: then only the name is indexed.
    pub(crate) fn build<N: Into<String>, T: AsRef<str>>(
        patterns: impl IntoIterator<Item = (N, T)>,
    ) -> Index {
        let mut builder = Builder::default();
        let mut names: Vec<String> = Vec::new();
        let mut sentences: Vec<Vec<Candidate>> = Vec::new();
        for (card, (name, text)) in patterns.into_iter().take(MOST_PATTERNS).enumerate() {
            let name: String = name.into();
            let text = start_of(text.as_ref(), MOST_TEXT);
            let found = candidates(text);
            builder.add(Field::Name, &name);
            if builder.has_room() {
                for candidate in &found {
                    builder.add(Field::Lead, &candidate.text);
                }
                for line in text.lines() {
                    let field = if heading(line).is_some() {
                        Field::Heading
                    } else {
                        Field::Body
                    };
                    builder.add(field, line);
                }
            }
            builder.end_pattern(card as u16);
            names.push(name);
            sentences.push(found);
        }
        let purposes = told_apart(&names, &sentences);
        drop(sentences);
        for (card, purpose) in purposes.iter().enumerate() {
            if builder.has_room() {
                builder.add(Field::Purpose, purpose);
            }
            builder.end_pattern(card as u16);
        }
        let cards = names.into_iter().zip(purposes).map(|(name, purpose)| {
            let tags = areas(&name, &purpose);
            Card {
                name,
                purpose,
                tags,
            }
        });
        builder.finish(cards.collect())
    }

    /// All patterns, in their original order.
    pub(crate) fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// At most `limit` patterns that match a query in free text. Deterministic.
    pub(crate) fn search(&self, query: &str, limit: usize) -> SearchResult<'_> {
        let mut scores = Scores::new(self.cards.len());
        let asked = self.read(query);
        for concept in &asked.concepts {
            scores.begin_concept();
            for (term, weight) in &concept.terms {
                let [above, below] = self
                    .weights
                    .get(*term as usize)
                    .copied()
                    .unwrap_or_default();
                for posting in self.postings(*term) {
                    let [name, text] = posting
                        .strengths
                        .map(|strength| f32::from(strength) / 255.0);
                    let score = LAYERS[0] * above * name + LAYERS[1] * below * text;
                    scores.add(posting.card, weight * score);
                }
            }
            scores.end_concept();
        }
        self.add_names(query, &mut scores);
        let mut ranked: Vec<(f32, u16)> = scores.touched();
        let better = |a: &(f32, u16), b: &(f32, u16)| {
            b.0.total_cmp(&a.0)
                .then_with(|| self.name(a.1).cmp(self.name(b.1)))
                .then(a.1.cmp(&b.1))
        };
        if ranked.len() > limit && limit > 0 {
            ranked.select_nth_unstable_by(limit - 1, better);
        }
        ranked.truncate(limit);
        ranked.sort_unstable_by(better);
        let hits: Vec<&Card> = ranked
            .iter()
            .filter_map(|(_, card)| self.cards.get(*card as usize))
            .collect();
        let nearest = if hits.is_empty() {
            self.nearest(query)
        } else {
            Vec::new()
        };
        SearchResult {
            hits,
            nearest,
            unknown: asked.unknown,
        }
    }

    fn name(&self, card: u16) -> &str {
        self.cards.get(card as usize).map_or("", |card| &card.name)
    }

    fn postings(&self, term: u32) -> &[Posting] {
        let at = |term: u32| {
            self.starts
                .get(term as usize)
                .map_or(0, |&start| start as usize)
        };
        self.postings.get(at(term)..at(term + 1)).unwrap_or(&[])
    }

    /// Parses a query: each word with its synonyms.
    fn read(&self, query: &str) -> Asked {
        let mut asked = Asked::default();
        let mut said: Vec<(String, bool)> = Vec::new();
        words(start_of(query, MOST_WORDS * 64), |word, kind| {
            if kind == WordKind::Whole || !said.iter().any(|(other, _)| other == word) {
                said.push((word.to_owned(), kind == WordKind::Whole));
            }
            said.len() < MOST_WORDS * 4
        });
        // Stop words count only if there are no others.
        let only_stops = said.iter().all(|(word, _)| is_stop(word));
        let thesaurus = Thesaurus::get();
        let stems: Vec<String> = said.iter().map(|(word, _)| stem(word)).collect();
        let refs: Vec<&str> = stems.iter().map(String::as_str).collect();
        let mut seen: Vec<&str> = Vec::new();
        // End of the recognised phrase.
        let mut covered = 0;
        for (at, ((word, _), stem)) in said.iter().zip(&stems).enumerate() {
            let following = refs.get(at + 1..).unwrap_or(&[]);
            for (group, length) in thesaurus.phrases(stem, following) {
                asked.add_group(group, PHRASE * (length as f32 / 2.0).sqrt());
                covered = covered.max(at + length);
            }
            let share = if at < covered { COVERED } else { 1.0 };
            if is_stop(word) && !only_stops
                || seen.contains(&stem.as_str())
                || asked.concepts.len() >= MOST_WORDS
            {
                continue;
            }
            seen.push(stem);
            let mut concept = Concept::default();
            if let Some(term) = self.vocabulary.find(stem) {
                concept.terms.push((term, share));
            }
            // `flash cards` and `flashcards`
            if let Some(next) = said.get(at + 1) {
                let joined = self::stem(&format!("{word}{}", next.0));
                if let Some(term) = self.vocabulary.find(&joined) {
                    concept.terms.push((term, share));
                }
                for group in thesaurus.groups(&joined) {
                    asked.add_group(*group, PHRASE);
                }
            }
            let groups = thesaurus.groups(stem);
            for group in groups {
                concept.terms.push((
                    u32::from(*group),
                    share * GROUP / three_quarters(groups.len() as f32),
                ));
            }
            if !concept
                .terms
                .iter()
                .any(|(term, _)| !self.postings(*term).is_empty())
            {
                concept.terms = self
                    .vocabulary
                    .nearly(stem, |term| !self.postings(term).is_empty());
                let corrected: Vec<u32> = concept.terms.iter().map(|(term, _)| *term).collect();
                for term in corrected {
                    for group in thesaurus.groups(self.vocabulary.word(term)) {
                        concept
                            .terms
                            .push((u32::from(*group), GROUP * NEARLY / 2.0));
                    }
                }
            }
            if concept.terms.is_empty() {
                asked.unknown.push(word.clone());
            } else {
                concept.weight = concept
                    .terms
                    .first()
                    .map_or(0.0, |(term, _)| self.weights[*term as usize][0]);
                asked.concepts.push(concept);
            }
        }
        asked
    }

    /// Ranks patterns first that the query names, exactly or nearly.
    fn add_names(&self, query: &str, scores: &mut Scores) {
        let wanted = Letters::new(query);
        if wanted.is_empty() {
            return;
        }
        let most = (wanted.len() / 6).clamp(usize::from(wanted.len() > 4), 3);
        let pieces: Vec<Letters> = query
            .split(|c: char| {
                c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '`' | '(' | ')')
            })
            .filter(|piece| piece.contains(['_', '-']))
            .take(MOST_WORDS)
            .map(Letters::new)
            .collect();
        for (card, Card { name, .. }) in self.cards.iter().enumerate() {
            let name = Letters::new(name);
            let bonus = match distance(&wanted, &name, most) {
                Some(0) => 1000.0,
                Some(edits) => 200.0 / edits as f32,
                None if pieces.contains(&name) => 500.0,
                None => continue,
            };
            scores.raise(card as u16, bonus);
        }
    }

    /// The names most similar to the query.
    fn nearest(&self, query: &str) -> Vec<&str> {
        let wanted = Letters::new(query);
        let mut ranked: Vec<(u32, &str)> = self
            .cards
            .iter()
            .map(|card| {
                (
                    wanted.likeness(&Letters::new(&card.name)),
                    card.name.as_str(),
                )
            })
            .collect();
        ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        ranked
            .into_iter()
            .take(5)
            .filter(|(likeness, _)| *likeness > 0)
            .map(|(_, name)| name)
            .collect()
    }

    /// Approximate memory use, in bytes.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        let cards: usize = self
            .cards
            .iter()
            .map(|card| card.name.capacity() + card.purpose.capacity() + 16 * card.tags.capacity())
            .sum();
        size_of_val(&*self.postings)
            + size_of_val(&*self.starts)
            + size_of_val(&*self.weights)
            + self.vocabulary.size()
            + size_of_val(&*self.cards)
            + cards
    }
}

/// The longest prefix of at most `most` bytes.
fn start_of(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[..end]
}

/// A parsed query.
#[derive(Default)]
struct Asked {
    concepts: Vec<Concept>,
    unknown: Vec<String>,
}

/// One word or phrase of a query: its terms, each with a weight.
#[derive(Default)]
struct Concept {
    terms: Vec<(u32, f32)>,
    weight: f32,
}

impl Asked {
    fn add_group(&mut self, group: Group, weight: f32) {
        let term = u32::from(group);
        if self
            .concepts
            .iter()
            .all(|concept| concept.terms != [(term, weight)])
        {
            self.concepts.push(Concept {
                terms: vec![(term, weight)],
                weight: 0.0,
            });
        }
    }
}

/// The scores of all patterns for one query.
struct Scores {
    all: Vec<f32>,
    concept: Vec<f32>,
    touched: Vec<u16>,
}

impl Scores {
    fn new(cards: usize) -> Scores {
        Scores {
            all: vec![0.0; cards],
            concept: vec![0.0; cards],
            touched: Vec::new(),
        }
    }

    fn begin_concept(&mut self) {
        self.touched.clear();
    }

    fn add(&mut self, card: u16, score: f32) {
        if let Some(sum) = self.concept.get_mut(card as usize) {
            if *sum == 0.0 {
                self.touched.push(card);
            }
            *sum += score;
        }
    }

    fn end_concept(&mut self) {
        for card in self.touched.drain(..) {
            let score = std::mem::take(&mut self.concept[card as usize]);
            // Several weak matches beat one strong match.
            self.all[card as usize] += three_quarters(score);
        }
    }

    fn raise(&mut self, card: u16, score: f32) {
        if let Some(sum) = self.all.get_mut(card as usize) {
            *sum += score;
        }
    }

    fn touched(&self) -> Vec<(f32, u16)> {
        (0..)
            .zip(&self.all)
            .filter(|(_, score)| **score > 0.0)
            .map(|(card, score)| (*score, card))
            .collect()
    }
}

/// An index under construction.
struct Builder {
    thesaurus: &'static Thesaurus,
    terms: HashMap<String, u32>,
    /// The term of a word as it occurs in texts; `None` for a stop word.
    known: HashMap<String, Option<u32>>,
    /// By term: its text, whether it begins a phrase, and its groups.
    words: Vec<(String, bool, &'static [Group])>,
    /// Word counts of the current pattern by term and field, and the terms with any.
    counts: Vec<[u8; 5]>,
    touched: Vec<u32>,
    /// Word count of each field of each pattern.
    lengths: Vec<[u16; 5]>,
    current: [u16; 5],
    raw: Vec<Raw>,
}

/// An unweighted posting.
struct Raw {
    term: u32,
    card: u16,
    counts: [u8; 5],
}

impl Default for Builder {
    fn default() -> Builder {
        let thesaurus = Thesaurus::get();
        Builder {
            thesaurus,
            terms: HashMap::new(),
            known: HashMap::new(),
            words: Vec::new(),
            counts: vec![[0; 5]; thesaurus.len],
            touched: Vec::new(),
            lengths: Vec::new(),
            current: [0; 5],
            raw: Vec::new(),
        }
    }
}

impl Builder {
    /// Whether more than names may be added.
    fn has_room(&self) -> bool {
        self.raw.len() < MOST_POSTINGS
    }

    fn add(&mut self, field: Field, text: &str) {
        let mut line: Vec<u32> = Vec::new();
        words(text, |word, kind| {
            let Some(term) = self.term(word) else {
                // A stop word interrupts a phrase, unless it is part of it.
                if kind == WordKind::Whole {
                    line.push(self.stop_term(word));
                }
                return true;
            };
            self.count(term, field);
            if kind == WordKind::Whole {
                self.current[field as usize] = self.current[field as usize].saturating_add(1);
                line.push(term);
            }
            true
        });
        let first = self.thesaurus.len as u32;
        for (at, term) in line.iter().enumerate() {
            let Some(&(_, opens, groups)) = self.words.get((term - first) as usize) else {
                continue;
            };
            for group in groups {
                self.count(u32::from(*group), field);
            }
            if opens {
                let said = |term: &u32| {
                    self.words
                        .get((term - first) as usize)
                        .map(|(word, ..)| word.as_str())
                };
                let mut following = line[at..].iter().take(Thesaurus::LONGEST).filter_map(said);
                let first = following.next().unwrap_or("");
                let following: Vec<&str> = following.collect();
                let groups: Vec<Group> = self
                    .thesaurus
                    .phrases(first, &following)
                    .map(|(group, _)| group)
                    .collect();
                for group in groups {
                    self.count(u32::from(group), field);
                }
            }
        }
    }

    fn count(&mut self, term: u32, field: Field) {
        let Some(counts) = self.counts.get_mut(term as usize) else {
            return;
        };
        if *counts == [0; 5] {
            self.touched.push(term);
        }
        counts[field as usize] = counts[field as usize].saturating_add(1);
    }

    fn term(&mut self, word: &str) -> Option<u32> {
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        let term = if is_stop(word) {
            None
        } else {
            self.intern(stem(word))
        };
        if self.known.len() < MOST_TERMS {
            self.known.insert(word.to_owned(), term);
        }
        term
    }

    fn stop_term(&mut self, word: &str) -> u32 {
        self.intern(word.to_owned())
            .unwrap_or(self.thesaurus.len as u32)
    }

    fn intern(&mut self, stem: String) -> Option<u32> {
        if let Some(term) = self.terms.get(&stem) {
            return Some(*term);
        }
        if self.words.len() >= MOST_TERMS {
            return None;
        }
        let term = self.counts.len() as u32;
        self.counts.push([0; 5]);
        let groups = if is_stop(&stem) {
            &[]
        } else {
            self.thesaurus.groups(&stem)
        };
        self.words
            .push((stem.clone(), self.thesaurus.opens_phrase(&stem), groups));
        self.terms.insert(stem, term);
        Some(term)
    }

    fn end_pattern(&mut self, card: u16) {
        for term in self.touched.drain(..) {
            let counts = std::mem::take(&mut self.counts[term as usize]);
            self.raw.push(Raw { term, card, counts });
        }
        let current = std::mem::take(&mut self.current);
        match self.lengths.get_mut(card as usize) {
            Some(lengths) => lengths
                .iter_mut()
                .zip(current)
                .for_each(|(sum, new)| *sum = sum.saturating_add(new)),
            None => self.lengths.push(current),
        }
    }

    fn finish(mut self, cards: Vec<Card>) -> Index {
        self.raw.sort_unstable_by_key(|raw| (raw.term, raw.card));
        let n = cards.len().max(1) as f32;
        let averages: [f32; 5] = std::array::from_fn(|field| {
            (self
                .lengths
                .iter()
                .map(|lengths| f32::from(lengths[field]))
                .sum::<f32>()
                / n)
                .max(1.0)
        });
        let strengths = |raw: &Raw| {
            let lengths = self
                .lengths
                .get(raw.card as usize)
                .copied()
                .unwrap_or_default();
            let mut sums = [0.0_f32; 2];
            for (field, (weight, b)) in FIELDS.iter().enumerate() {
                let length = 1.0 - b + b * f32::from(lengths[field]) / averages[field];
                sums[usize::from(field > Field::Purpose as usize)] +=
                    weight * f32::from(raw.counts[field]) / length;
            }
            [0, 1]
                .map(|layer| (255.0 * sums[layer] / (sums[layer] + SATURATION[layer])).ceil() as u8)
        };
        let mut starts = Vec::with_capacity(self.counts.len() + 1);
        let mut weights = Vec::with_capacity(self.counts.len());
        let mut postings: Vec<Posting> = Vec::with_capacity(self.raw.len());
        let mut raw = self.raw.iter().peekable();
        for term in 0..self.counts.len() as u32 {
            let start = postings.len();
            starts.push(start as u32);
            while let Some(first) = raw.next_if(|raw| raw.term == term) {
                let mut sum = Raw {
                    term,
                    card: first.card,
                    counts: first.counts,
                };
                while let Some(more) = raw.next_if(|raw| raw.term == term && raw.card == sum.card) {
                    sum.counts
                        .iter_mut()
                        .zip(more.counts)
                        .for_each(|(sum, new)| *sum = sum.saturating_add(new));
                }
                postings.push(Posting {
                    card: sum.card,
                    strengths: strengths(&sum),
                });
            }
            let of_term = postings.get(start..).unwrap_or(&[]);
            weights.push([0, 1].map(|layer| {
                let having = of_term
                    .iter()
                    .filter(|posting| posting.strengths[layer] > 0)
                    .count() as f32;
                ln(1.0 + (n - having + 0.5) / (having + 0.5))
            }));
        }
        starts.push(postings.len() as u32);
        postings.shrink_to_fit();
        Index {
            cards,
            vocabulary: vocabulary(self.thesaurus.len as u32, &self.words),
            starts,
            postings,
            weights,
        }
    }
}

// std's `powf` and `ln` would be the only users of libm: one more library to load at each start.

/// `x` to the power of 0.75.
fn three_quarters(x: f32) -> f32 {
    let root = x.sqrt();
    root * root.sqrt()
}

/// The natural logarithm of a number of at least 1, to within 0.01.
fn ln(x: f32) -> f32 {
    // Halved until below 2, where a parabola approximates it.
    let halvings = x.to_bits() / (1 << 23) - 127;
    let rest = f32::from_bits(x.to_bits() - halvings * (1 << 23)) - 1.0;
    std::f32::consts::LN_2 * (halvings as f32 + rest * (1.3465 - 0.3465 * rest))
}
