//! Typing distance between words or names.

/// The letters of a word; case and word separators are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letters(Vec<char>);

/// Longer words are cut, which bounds the work.
const LONGEST: usize = 128;

impl Letters {
    pub(super) fn new(text: &str) -> Letters {
        let chars = text.trim().chars().flat_map(char::to_lowercase);
        Letters(
            chars
                .map(|c| if matches!(c, '-' | ' ' | '.') { '_' } else { c })
                .take(LONGEST)
                .collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The set of letters as a bit mask, one bit per class of letters.
    pub(super) fn mask(&self) -> u32 {
        self.0
            .iter()
            .fold(0, |mask, c| mask | 1 << (*c as u32 % 31))
    }

    /// Whether a word with that mask may be within this many edits.
    pub(super) fn may_be_within(&self, mask: u32, edits: usize) -> bool {
        let own = self.mask();
        (own & !mask).count_ones() as usize <= edits && (mask & !own).count_ones() as usize <= edits
    }

    /// Whether a word with that mask may contain all these letters.
    pub(super) fn is_part_of(&self, mask: u32) -> bool {
        self.mask() & !mask == 0
    }

    /// Share of letter pairs that both have, in thousandths.
    pub(super) fn likeness(&self, other: &Letters) -> u32 {
        let pairs = |letters: &Letters| {
            let mut pairs: Vec<(char, char)> = letters
                .0
                .windows(2)
                .map(|pair| (pair[0], pair[1]))
                .collect();
            pairs.sort_unstable();
            pairs
        };
        let (mine, theirs) = (pairs(self), pairs(other));
        let all = mine.len() + theirs.len();
        let (mut i, mut j, mut both) = (0, 0, 0);
        while let (Some(a), Some(b)) = (mine.get(i), theirs.get(j)) {
            both += usize::from(a == b);
            i += usize::from(a <= b);
            j += usize::from(b <= a);
        }
        (2000 * both / all.max(1)) as u32
    }
}

/// The number of insertions, deletions, replacements and swaps of neighbours; `None` if more than `most`.
pub(super) fn distance(a: &Letters, b: &Letters, most: usize) -> Option<usize> {
    let (a, b) = (&a.0, &b.0);
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    if most == 0 {
        return (a == b).then_some(0);
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (row[j] + usize::from(x != y))
                .min(row[j + 1] + 1)
                .min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            next[j + 1] = least;
        }
        if next.iter().all(|&edits| edits > most) {
            return None;
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|&edits| edits <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(a: &str, b: &str, most: usize) -> Option<usize> {
        distance(&Letters::new(a), &Letters::new(b), most)
    }

    #[test]
    fn the_distance_counts_typing_errors() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "ABC", 0),
            ("ab", "ba", 1),
            ("sumarize", "summarize", 1),
            ("smumarize", "summarize", 1),
            ("extract wisdom", "extract_wisdom", 0),
            ("漢字", "漢子", 1),
        ] {
            assert_eq!(edits(a, b, 9), Some(expected), "{a} {b}");
            assert_eq!(edits(b, a, expected), Some(expected), "{a} {b}");
            if expected > 0 {
                assert_eq!(edits(a, b, expected - 1), None, "{a} {b}");
            }
        }
    }

    #[test]
    fn masks_and_likeness_measure_similarity() {
        let a = Letters::new("wisdom");
        assert!(
            a.may_be_within(Letters::new("wisdon").mask(), 1)
                && !a.may_be_within(Letters::new("xyz").mask(), 1)
        );
        assert!(a.is_part_of(Letters::new("extract_wisdom").mask()));
        assert_eq!(a.likeness(&a), 1000);
        assert_eq!(a.likeness(&Letters::new("xyz")), 0);
        assert_eq!(Letters::new("").likeness(&Letters::new("")), 0);
    }
}
