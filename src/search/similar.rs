//! Names as people read them, and names of skills: kebab case, as the Skills extension requires.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use super::words::plain_letters;

/// Longest name of a skill.
const LONGEST: usize = 64;

/// The skill name of each pattern: 1 to 64 characters `a`–`z`, `0`–`9` and single inner hyphens, all different. A
/// pattern whose name has no such character has none. The result does not depend on the order of the names.
pub(crate) fn skill_names<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<&'a str, String> {
    let mut ordered = Vec::from_iter(names);
    // Names that are valid already come first, so that they stay the same.
    ordered.sort_by_cached_key(|name| (kebab(name) != name.replace('_', "-"), *name));
    ordered.dedup();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut skills: BTreeMap<&str, String> = BTreeMap::new();
    for name in ordered {
        let wanted = kebab(name);
        if wanted.is_empty() {
            continue;
        }
        let numbered = |number: u32| {
            let suffix = format!("-{number}");
            let room = &wanted[..wanted.len().min(LONGEST - suffix.len())];
            room.trim_end_matches('-').to_owned() + &suffix
        };
        let mut all = iter::once(wanted.clone()).chain((2..).map(numbered));
        let free = all.find(|skill| taken.insert(skill.clone()));
        skills.extend(free.map(|skill| (name, skill)));
    }
    skills
}

/// The name of a pattern in kebab case, which other patterns may share; empty if no letter is left.
fn kebab(name: &str) -> String {
    let plain = plain_letters(name);
    let words = plain.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit());
    let words = words.filter(|word| !word.is_empty());
    let mut kebab = Vec::from_iter(words).join("-");
    kebab.truncate(LONGEST);
    kebab.truncate(kebab.trim_end_matches('-').len());
    kebab
}

/// `Extract wisdom` for `extract_wisdom`.
pub(crate) fn humanised(name: &str) -> String {
    let is_separator = |c: char| matches!(c, '_' | '-' | '.') || c.is_control();
    let spaced = without_camel_case(name, ' ').replace(is_separator, " ");
    let words = spaced.split_whitespace().map(|word| {
        let mut acronyms = ACRONYMS.split(' ');
        let acronym = acronyms.find(|acronym| acronym.eq_ignore_ascii_case(word));
        acronym.map_or_else(|| word.to_lowercase(), str::to_owned)
    });
    match Vec::from_iter(words).join(" ").as_str() {
        "" => name.to_owned(),
        words => capitalised(words),
    }
}

/// A name with `between` its words where it is in camelCase.
pub(super) fn without_camel_case(name: &str, between: char) -> String {
    let (mut parted, mut before) = (String::with_capacity(name.len()), ' ');
    let has_capitals = name.chars().skip(1).any(char::is_uppercase);
    for c in name.chars() {
        let begins = c.is_uppercase() || c.is_numeric() && has_capitals;
        if begins && before.is_lowercase() || c.is_uppercase() && before.is_numeric() {
            parted.push(between);
        }
        parted.push(c);
        before = c;
    }
    parted
}

/// Words of names that keep capitals.
const ACRONYMS: &str = "AI API ASCII CFP CSS CSV CTF CV DIY DSRP GitHub HackerOne HTML JSON LaTeX \
    LOE MCP NPC PDF PRD QA RPG SIEM SOC SQL STRIDE URL XML YAML YouTube";

/// The text with an initial capital.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_kebab_case_and_clashes_get_a_number_after_exact_names() {
        let all = "_a__b- -c_=a-b-c|summarize_pull-requests=summarize-pull-requests|v1.2=v1-2|\
                   Ärger_Über-x=arger-uber-x|漢字=|_=|=|漢字 d=d|\
                   a-b=a-b|a-b-2=a-b-2|a_b=a-b-3|A b=a-b-4|a b=a-b-5";
        let pairs = all.split('|').filter_map(|pair| pair.split_once('='));
        let names = pairs.clone().map(|(name, _)| name);
        let named = pairs.filter(|(_, skill)| !skill.is_empty());
        let expected: BTreeMap<_, _> = named.map(|(name, skill)| (name, skill.into())).collect();
        assert_eq!(skill_names(names.clone()), expected);
        assert_eq!(
            skill_names(Vec::from_iter(names).into_iter().rev()),
            expected
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let names: Vec<String> = ["", "_", "1", "2"]
            .iter()
            .map(|end| "x".repeat(62) + "_y" + end + "zzz")
            .collect();
        let skills = skill_names(names.iter().map(String::as_str));
        assert_eq!(skills.values().collect::<BTreeSet<_>>().len(), 4);
        for skill in skills.values() {
            assert!(
                (1..=64).contains(&skill.len()) && !skill.ends_with('-') && !skill.contains("--"),
                "{skill}"
            );
        }
    }
}
