//! Groups of words and phrases with similar meaning: [`thesaurus.txt`](thesaurus.txt), as stems.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::stem::stem;
use super::words::whole_words;

/// Number of a group.
pub(super) type Group = u16;

/// The groups by member. Shared by all indexes.
pub(super) struct Thesaurus {
    /// Number of groups.
    pub(super) len: usize,
    words: HashMap<String, Vec<Group>>,
    /// By first stem: the stems that follow, and the group.
    phrases: HashMap<String, Vec<(Vec<String>, Group)>>,
}

impl Thesaurus {
    /// The thesaurus; parsed on first use.
    pub(super) fn get() -> &'static Thesaurus {
        static THESAURUS: OnceLock<Thesaurus> = OnceLock::new();
        THESAURUS.get_or_init(|| Thesaurus::parse(include_str!("thesaurus.txt")))
    }

    fn parse(text: &str) -> Thesaurus {
        let mut thesaurus = Thesaurus {
            len: 0,
            words: HashMap::new(),
            phrases: HashMap::new(),
        };
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let group = thesaurus.len as Group;
            thesaurus.len += 1;
            for member in line.split(',') {
                let mut stems: Vec<String> =
                    whole_words(member).iter().map(|word| stem(word)).collect();
                if stems.len() > 1 {
                    let following = stems.split_off(1);
                    let first = stems.swap_remove(0);
                    thesaurus
                        .phrases
                        .entry(first)
                        .or_default()
                        .push((following, group));
                } else if let Some(word) = stems.pop() {
                    let groups = thesaurus.words.entry(word).or_default();
                    if !groups.contains(&group) {
                        groups.push(group);
                    }
                }
            }
        }
        thesaurus
    }

    /// The groups of one word.
    pub(super) fn groups(&self, stem: &str) -> &[Group] {
        self.words.get(stem).map_or(&[], Vec::as_slice)
    }

    /// The groups of phrases that begin with `first` and continue with `following`, each with the phrase's length in
    /// stems.
    pub(super) fn phrases<'a>(
        &'a self,
        first: &str,
        following: &'a [&str],
    ) -> impl Iterator<Item = (Group, usize)> + 'a {
        let phrases = self.phrases.get(first).map_or(&[][..], Vec::as_slice);
        phrases
            .iter()
            .filter(|(stems, _)| {
                following.len() >= stems.len() && following.iter().zip(stems).all(|(a, b)| a == b)
            })
            .map(|(stems, group)| (*group, stems.len() + 1))
    }

    /// Whether a phrase begins with this stem.
    pub(super) fn opens_phrase(&self, stem: &str) -> bool {
        self.phrases.contains_key(stem)
    }

    /// Most stems in a phrase.
    pub(super) const LONGEST: usize = 8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_file_is_well_formed() {
        let text = include_str!("thesaurus.txt");
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        assert!(lines.len() >= 150, "{} groups", lines.len());
        let mut seen = HashSet::new();
        for line in lines {
            assert_eq!(line, line.to_lowercase());
            let members: Vec<&str> = line.split(", ").collect();
            assert!(members.len() > 1, "{line}");
            for member in &members {
                let is_plain = member
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b' ');
                assert!(
                    is_plain && !member.is_empty() && member.trim() == *member,
                    "{member:?} in {line}"
                );
                let words = whole_words(member).len();
                assert!(
                    (1..=Thesaurus::LONGEST).contains(&words),
                    "{member:?} in {line}: {words} words"
                );
            }
            assert_eq!(
                members.iter().collect::<HashSet<_>>().len(),
                members.len(),
                "a word twice: {line}"
            );
            let mut sorted = members.clone();
            sorted.sort_unstable();
            assert!(seen.insert(sorted), "a group twice: {line}");
        }
    }

    #[test]
    fn words_and_phrases_find_their_groups() {
        let thesaurus =
            Thesaurus::parse("# no group\n\npull request, pr, diff\nmail, email\nmail, pr\n");
        assert_eq!(thesaurus.len, 3);
        assert_eq!(thesaurus.groups("pr"), [0, 2]);
        assert!(thesaurus.groups("pull").is_empty());
        assert_eq!(
            thesaurus
                .phrases("pul", &["request", "x"])
                .collect::<Vec<_>>(),
            [(0, 2)]
        );
        assert_eq!(thesaurus.phrases("pul", &[]).count(), 0);
        assert_eq!(thesaurus.phrases("pul", &["x"]).count(), 0);
    }
}
