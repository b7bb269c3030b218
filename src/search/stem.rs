//! A stemmer for English: inflected, derived, British and American forms get the same stem.
//!
//! A stem need not be a word: it must be the same for related words and, where it matters, different for unrelated
//! ones.

/// Irregular forms, and words that only seem to have an ending. Sorted.
const IRREGULAR: &[(&str, &str)] = &[
    ("analytics", "analys"),
    ("artefact", "artifact"),
    ("artefacts", "artifact"),
    ("author", "author"),
    ("authors", "author"),
    ("better", "better"),
    ("bought", "buy"),
    ("built", "build"),
    ("catalogue", "catalog"),
    ("centre", "cent"),
    ("children", "child"),
    ("compliance", "compliance"),
    ("compliant", "compliance"),
    ("cooking", "cook"),
    ("crises", "crisis"),
    ("criteria", "criterion"),
    ("customer", "customer"),
    ("customers", "customer"),
    ("data", "data"),
    ("defence", "defens"),
    ("description", "describ"),
    ("descriptions", "describ"),
    ("descriptive", "describ"),
    ("drawn", "draw"),
    ("drew", "draw"),
    ("explanation", "explain"),
    ("explanations", "explain"),
    ("explanatory", "explain"),
    ("fallacies", "fallaci"),
    ("fallacious", "fallaci"),
    ("fallacy", "fallaci"),
    ("found", "find"),
    ("general", "general"),
    ("gotten", "get"),
    ("grey", "gray"),
    ("hidden", "hide"),
    ("hypotheses", "hypothesi"),
    ("hypothesis", "hypothesi"),
    ("indices", "index"),
    ("knew", "know"),
    ("knowledge", "knowledge"),
    ("known", "know"),
    ("learnt", "learn"),
    ("led", "lead"),
    ("legal", "legal"),
    ("licence", "licens"),
    ("litre", "liter"),
    ("lives", "life"),
    ("lost", "lose"),
    ("meant", "mean"),
    ("men", "man"),
    ("metre", "meter"),
    ("news", "news"),
    ("offence", "offens"),
    ("paid", "pay"),
    ("people", "person"),
    ("personality", "personality"),
    ("practise", "practic"),
    ("programme", "program"),
    ("programmes", "program"),
    ("proof", "proof"),
    ("proven", "prove"),
    ("said", "say"),
    ("sang", "sing"),
    ("sold", "sell"),
    ("speech", "speech"),
    ("spent", "spend"),
    ("spoke", "speak"),
    ("spoken", "speak"),
    ("sung", "sing"),
    ("taught", "teach"),
    ("theatre", "theat"),
    ("theses", "thesis"),
    ("thesis", "thesis"),
    ("thought", "think"),
    ("thoughts", "think"),
    ("told", "tell"),
    ("understood", "understand"),
    ("wives", "wife"),
    ("women", "woman"),
    ("writ", "writ"),
    ("written", "writ"),
    ("wrote", "writ"),
];

/// Parts of British spellings, with the American ones.
const BRITISH: &[(&str, &str)] = &[
    ("isation", "ization"),
    ("avour", "avor"),
    ("aviour", "avior"),
    ("colour", "color"),
    ("humour", "humor"),
    ("rumour", "rumor"),
    ("labour", "labor"),
    ("neighbour", "neighbor"),
    ("honour", "honor"),
    ("armour", "armor"),
    ("logue", "log"),
    ("sceptic", "skeptic"),
    ("paedia", "pedia"),
    ("ageing", "aging"),
    ("fulfill", "fulfil"),
    ("enroll", "enrol"),
    ("judgement", "judgment"),
    ("cheque", "check"),
];

/// Endings of derived words, longest first, their replacements, and the minimum number of letters before them.
const DERIVED: &[(&str, &str, usize)] = &[
    ("izational", "", 4),
    ("ization", "", 4),
    ("ational", "", 4),
    ("ability", "", 4),
    ("ibility", "", 4),
    ("fulness", "", 4),
    ("ousness", "", 4),
    ("iveness", "", 4),
    ("ically", "", 4),
    ("ysis", "ys", 3),
    ("ytical", "ys", 3),
    ("ytic", "ys", 3),
    ("ations", "", 4),
    ("ation", "", 4),
    ("ative", "", 4),
    ("ators", "", 4),
    ("ator", "", 4),
    ("izer", "", 4),
    ("iser", "", 4),
    ("yzer", "ys", 3),
    ("yser", "ys", 3),
    ("yst", "ys", 3),
    ("yze", "ys", 3),
    ("yse", "ys", 3),
    ("ment", "", 5),
    ("ness", "", 5),
    ("able", "", 4),
    ("ible", "", 4),
    ("ical", "", 4),
    ("ally", "", 5),
    ("ance", "", 5),
    ("ence", "", 5),
    ("tion", "t", 3),
    ("sion", "s", 3),
    ("less", "", 4),
    ("ful", "", 4),
    ("ous", "", 5),
    ("ive", "", 4),
    ("ize", "", 4),
    ("ise", "", 4),
    ("ate", "", 4),
    ("ity", "", 4),
    ("ist", "", 4),
    ("ism", "", 4),
    ("iz", "", 4),
    ("is", "", 5),
    ("yz", "ys", 3),
    ("at", "", 5),
    ("al", "", 5),
    ("ic", "", 4),
    ("er", "", 4),
    ("or", "", 4),
    ("ly", "", 4),
    ("y", "", 6),
];

/// The stem of a lower-case word; words in other scripts are unchanged.
pub(super) fn stem(word: &str) -> String {
    if let Ok(at) = IRREGULAR.binary_search_by_key(&word, |(form, _)| form) {
        return IRREGULAR[at].1.to_owned();
    }
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut word = word.to_owned();
    for (british, american) in BRITISH {
        if word.contains(british) {
            word = word.replace(british, american);
        }
    }
    singular(&mut word);
    if let Ok(at) = IRREGULAR.binary_search_by_key(&word.as_str(), |(form, _)| form) {
        return IRREGULAR[at].1.to_owned();
    }
    inflected(&mut word);
    let derived = DERIVED
        .iter()
        .find(|(ending, _, left)| word.len() >= left + ending.len() && word.ends_with(ending));
    if let Some((ending, instead, _)) = derived {
        word.truncate(word.len() - ending.len());
        word.push_str(instead);
    }
    trimmed(&mut word);
    word
}

fn singular(word: &mut String) {
    let cut = |word: &mut String, n: usize| word.truncate(word.len() - n);
    if word.ends_with("ies") && word.len() > 4 {
        cut(word, 3);
        word.push('y');
    } else if ["sses", "ches", "shes", "xes", "zzes"]
        .iter()
        .any(|ending| word.ends_with(ending))
    {
        cut(word, 2);
    } else if word.ends_with('s')
        && !["ss", "us", "is"]
            .iter()
            .any(|ending| word.ends_with(ending))
    {
        cut(word, 1);
    }
}

fn inflected(word: &mut String) {
    for ending in ["ing", "ed"] {
        let Some(left) = word.strip_suffix(ending) else {
            continue;
        };
        let has_vowel = left
            .bytes()
            .any(|b| matches!(b, b'a' | b'e' | b'i' | b'o' | b'u' | b'y'));
        if left.len() > 2 && has_vowel && !left.ends_with('e') {
            word.truncate(left.len());
            if word.ends_with('i') {
                word.pop();
                word.push('y');
            }
            return;
        }
    }
}

/// `label` of `labell`, `creat` of `create`.
fn trimmed(word: &mut String) {
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    let bytes = word.as_bytes();
    if let [.., a, b] = bytes
        && a == b
        && word.len() > 3
        && !matches!(b, b'a' | b'e' | b'i' | b'o' | b'u')
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
            "catalog catalogue catalogs",
            "describe description describing",
            "philosophy philosopher philosophical philosophies",
            "psychology psychological psychologist",
            "strategy strategic strategies",
            "map maps mapping mapped",
            "person people persons",
            "rate rating rated ratings",
            "fallacy fallacies fallacious",
            "center centre",
            "license licence",
        ] {
            let stems: Vec<String> = forms.split(' ').map(stem).collect();
            assert!(
                stems.iter().all(|stem| *stem == stems[0]),
                "{forms}: {stems:?}"
            );
        }
    }

    #[test]
    fn other_words_do_not() {
        for words in [
            "general generate",
            "custom customer",
            "form formal format",
            "story store",
            "person personality",
            "author auth",
            "offer off",
            "logic log logo",
            "paper pap",
            "doc document",
            "new news",
            "string str",
            "need ne",
            "organ org",
            "user us",
        ] {
            let mut stems: Vec<String> = words.split(' ').map(stem).collect();
            stems.sort();
            stems.dedup();
            assert_eq!(stems.len(), words.split(' ').count(), "{words}: {stems:?}");
        }
    }

    #[test]
    fn words_of_other_scripts_stay() {
        for word in ["анализов", "漢字", "k8s", "", "is", "7"] {
            assert_eq!(stem(word), word);
        }
    }

    #[test]
    fn the_table_of_irregular_forms_is_sorted() {
        assert!(IRREGULAR.is_sorted_by(|a, b| a.0 < b.0));
    }
}
