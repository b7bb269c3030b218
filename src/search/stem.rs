//! A stemmer for English: inflected, derived, British and American forms get the same stem.
//!
//! A stem need not be a word: it must be the same for related words and, where it matters, different for unrelated
//! ones.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Forms that no rule finds, and words that only seem to have an ending: each line's words have the first one as stem.
const IRREGULAR: &str = include_str!("irregular.txt");

/// Endings of derived words, each with the fewest letters before it.
const ENDINGS: [(usize, &str); 2] = [
    (
        4,
        "izational ization isation ational fulness ousness iveness ability ibility ically ations \
         ation ative ators ator izer iser able ible ical ize ise ate ity ist ism ive ful ous ion \
         ic iz er or ly",
    ),
    (5, "ition ment ness ally ance ence al at is"),
];

/// The stem of a lower-case word; words in other scripts are unchanged.
pub(super) fn stem(word: &str) -> String {
    if let Some(stem) = STEMS.get(word) {
        return stem.to_string();
    }
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = word.replace("our", "or").replace("yse", "yze");
    singular(&mut stem);
    inflected(&mut stem);
    let longest = ENDINGS.iter().filter_map(|(fewest, endings)| {
        let found = endings.split(' ').filter(|ending| stem.ends_with(*ending));
        let lengths = found.map(str::len);
        lengths.filter(|length| stem.len() >= fewest + length).max()
    });
    stem.truncate(stem.len() - longest.max().unwrap_or(0));
    trimmed(&mut stem);
    stem
}

/// The stems of these words.
static STEMS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let forms = |line: &'static str| {
        let stem = line.split(' ').next().unwrap_or_default();
        line.split(' ').map(move |word| (word, stem))
    };
    IRREGULAR.lines().flat_map(forms).collect()
});

fn singular(word: &mut String) {
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    if ends(&["ies"]) && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ends(&["s"]) && !ends(&["ss", "us", "is"]) {
        word.pop();
    }
}

fn inflected(word: &mut String) {
    let left = word.strip_suffix("ing").or(word.strip_suffix("ed"));
    let has_vowel = |left: &&str| left.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    if let Some(left) = left.filter(has_vowel).filter(|left| left.len() > 2) {
        word.truncate(left.len());
    }
}

/// `label` of `labell`, `creat` of `create`, `summar` of `summary`, `story` of `stori`.
fn trimmed(word: &mut String) {
    if word.len() > 3 && word.ends_with('e') || word.len() > 6 && word.ends_with('y') {
        word.pop();
    }
    if let [.., a, b] = word.as_bytes()
        && a == b
        && word.len() > 3
        && !b"aeiou".contains(b)
    {
        word.pop();
    }
    if word.len() > 3 && word.ends_with('i') {
        word.pop();
        word.push('y');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_meet() {
        for forms in [
            "summary summaries summarize summarise summarized summarised summarizing summarising summarization summariser",
            "analyze analyse analyzes analyses analysis analyzing analysing analyst analysts analytic analytical analyzer",
            "organization organisation organize organise organizing organised",
            "color colour colours coloured",
            "behavior behaviour behaviours",
            "label labels labelled labeled labelling",
            "model modelling modeling models modelled",
            "create creates created creating creation creator creative",
            "extract extracts extracted extracting extraction extractor",
            "explain explains explaining explanation explanations",
            "translate translation translator translating translations",
            "write writes writing written wrote writer",
            "vulnerable vulnerability vulnerabilities",
            "secure security securing",
            "visual visualize visualise visualization visualisation visualizations",
            "story stories",
            "recommend recommendation recommendations recommended recommending",
            "predict prediction predictions predicting",
            "quiz quizzes",
            "improve improvement improving improvements",
            "describe description describing",
            "philosophy philosopher philosophical philosophies",
            "psychology psychological psychologist",
            "strategy strategic strategies",
            "map maps mapping mapped",
            "person people persons",
            "rate rating rated ratings",
            "fallacy fallacies fallacious",
        ] {
            let stems: Vec<String> = forms.split(' ').map(stem).collect();
            let is_so = stems.iter().all(|stem| *stem == stems[0]);
            assert!(is_so, "{forms}: {stems:?}");
        }
    }

    #[test]
    fn other_words_do_not() {
        let all = "general generate|custom customer|form formal format|story store|\
                   person personality|author auth|offer off|logic log logo|paper pap|doc document|\
                   new news|string str|need ne|organ org|user us";
        for words in all.split('|') {
            let mut stems: Vec<String> = words.split(' ').map(stem).collect();
            stems.sort();
            stems.dedup();
            assert_eq!(stems.len(), words.split(' ').count(), "{words}: {stems:?}");
        }
    }

    #[test]
    fn words_of_other_scripts_and_short_ones_stay() {
        for word in ["анализов", "漢字", "k8s", "", "is", "going", "ski", "egg"] {
            assert_eq!(stem(word), word);
        }
    }
}
