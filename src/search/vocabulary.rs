//! The words of all patterns, with lookup of misspelt ones.

use super::thesaurus::Group;
use super::typing::{Letters, distance};

/// Weight of an approximate match.
pub(super) const NEARLY: f32 = 0.8;

/// All terms: groups by number, words by text.
pub(super) struct Vocabulary {
    /// The number of the first word.
    first: u32,
    /// All words, concatenated.
    text: String,
    /// End of each word.
    ends: Vec<u32>,
    /// The numbers of words, sorted by text.
    sorted: Vec<u32>,
    /// A letter mask per word, to skip dissimilar words quickly.
    masks: Vec<u32>,
}

impl Vocabulary {
    /// The text of a word.
    pub(super) fn word(&self, term: u32) -> &str {
        let Some(at) = term.checked_sub(self.first) else {
            return "";
        };
        let start = at
            .checked_sub(1)
            .map_or(0, |before| self.ends[before as usize]);
        self.ends
            .get(at as usize)
            .and_then(|&end| self.text.get(start as usize..end as usize))
            .unwrap_or("")
    }

    /// The number of a word.
    pub(super) fn find(&self, word: &str) -> Option<u32> {
        self.sorted
            .binary_search_by(|&term| self.word(term).cmp(word))
            .ok()
            .map(|at| self.sorted[at])
    }

    /// Words within one or two typing errors of an unknown one, or that it is a prefix of, with weights.
    pub(super) fn nearly(&self, word: &str, is_known: impl Fn(u32) -> bool) -> Vec<(u32, f32)> {
        let wanted = Letters::new(word);
        let most = match wanted.len() {
            0..=3 => 0,
            4..=7 => 1,
            _ => 2,
        };
        let mut best: Vec<(usize, u32)> = Vec::new();
        for (term, mask) in (self.first..).zip(&self.masks) {
            if !wanted.may_be_within(*mask, most) && !wanted.is_part_of(*mask) {
                continue;
            }
            let candidate = self.word(term);
            let is_start =
                wanted.len() >= 3 && candidate.len() > word.len() && candidate.starts_with(word);
            let edits = if most == 0 {
                None
            } else {
                distance(&wanted, &Letters::new(candidate), most)
            };
            let Some(rank) = edits.or(is_start.then_some(most.max(1))) else {
                continue;
            };
            if is_known(term) {
                best.push((rank, term));
            }
        }
        best.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0)
                .then_with(|| self.word(a.1).cmp(self.word(b.1)))
        });
        let least = best.first().map_or(0, |(rank, _)| *rank);
        best.retain(|(rank, _)| *rank == least);
        best.truncate(4);
        let weight = NEARLY / (best.len().max(1) as f32).sqrt();
        best.into_iter().map(|(_, term)| (term, weight)).collect()
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.text.capacity()
            + 4 * (self.ends.capacity() + self.sorted.capacity() + self.masks.capacity())
    }
}

/// The vocabulary of `words`, whose numbers begin at `first`.
pub(super) fn vocabulary(first: u32, words: &[(String, bool, &[Group])]) -> Vocabulary {
    let mut vocabulary = Vocabulary {
        first,
        text: String::new(),
        ends: Vec::new(),
        sorted: Vec::new(),
        masks: Vec::new(),
    };
    for (word, ..) in words {
        vocabulary.text.push_str(word);
        vocabulary.ends.push(vocabulary.text.len() as u32);
        vocabulary.masks.push(Letters::new(word).mask());
    }
    let mut sorted: Vec<u32> = (first..first + words.len() as u32).collect();
    sorted.sort_unstable_by(|a, b| {
        words[(a - first) as usize]
            .0
            .cmp(&words[(b - first) as usize].0)
    });
    vocabulary.sorted = sorted;
    vocabulary
}
