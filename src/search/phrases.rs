//! The instruction in a sentence of a pattern, in the imperative: "You are an expert at extracting jokes." becomes
//! "Extract jokes".

use super::prose::PatternPart;
use super::verbs::VERBS;

/// An instruction to the model.
pub(super) struct Instruction {
    /// Begins with a verb; no full stop at the end.
    pub(super) text: String,
    /// Says almost nothing: "Understand the input".
    pub(super) is_vague: bool,
}

/// Sentences with these say how to think, not what to do.
const BOILERPLATE: &[&str] = &[
    "deep breath",
    "step back",
    "step-by-step about how",
    "step by step about how",
    "step by step",
    "virtual whiteboard",
    "lot of freedom",
    "warnings or notes",
    "you always use the latest",
    "the following steps",
    "below steps",
    "fully digest",
    "deeply study",
    "deeply understand the input",
    "fully understand the input",
    "think deeply",
    "incoming telos file",
    "input instruction or question",
    "best possible output",
    "slow down and think",
    "input:",
    "you deeply understand",
];

/// Phrases that introduce the task; a verb in its base form follows.
const BEFORE_VERB: &[&str] = &[
    "goal is to ",
    "goal here is to ",
    "goals are to ",
    "role is to ",
    "task is to ",
    "purpose is to ",
    "job is to ",
    "mission is to ",
    "objective is to ",
    "responsibility is to ",
    "job to ",
    "exercise is to ",
    "exercise are to ",
    "exercise is: ",
    "role involves ",
    "you need to ",
    "you are to ",
    "you must ",
    "designed to ",
    "you are able to ",
    "capable of ",
    "skilled at ",
    "skilled in ",
    "tasked with ",
    "tasked to ",
    "specialized in ",
    "specialised in ",
    "specializes in ",
    "specializing in ",
    "specialize in ",
    "specialise in ",
    "specialist in ",
    "specializing on ",
    "excel at ",
    "excels at ",
    "excel in ",
    "expert at ",
    "expert in ",
    "expert on ",
    "expert is ",
    "focused on ",
    "focuses on ",
    "focusing on ",
    "responsible for ",
    "take pride in ",
    "good at ",
    "service for ",
    "expertise in ",
    "proficient in ",
    "experience in ",
    "able to ",
    "desires to ",
    "job it is to ",
    "job will be to ",
    "entity whose sole purpose is to ",
    "about to ",
    "dedicated to ",
    "want you to ",
    "aims to ",
    "objective: to ",
    "exercise are ",
    "know how to ",
    "hard to ",
    "capabilities to ",
    "guide to ",
    "in your ability to ",
];

/// Verbs that say little about the task. Sorted.
const VAGUE: &[&str] = &[
    "accept",
    "assume",
    "consider",
    "consume",
    "coordinate",
    "ensure",
    "focus",
    "interpret",
    "know",
    "learn",
    "output",
    "process",
    "read",
    "receive",
    "study",
    "take",
    "understand",
    "use",
    "yield",
];

/// Vague verbs that are fine if another verb follows "and": "Take a text and list its jokes".
const PREPARING: &[&str] = &["output", "process", "read", "take"];

/// The instruction in a sentence, if there is one.
pub(super) fn action(sentence: &str, part: PatternPart) -> Option<Instruction> {
    let lower = sentence.to_lowercase();
    // In some scripts lower case changes the length; then offsets do not match, so skip the sentence.
    if lower.len() != sentence.len() || BOILERPLATE.iter().any(|phrase| lower.contains(phrase)) {
        return None;
    }
    let (order, is_certain) = ordered(sentence, &lower, part)?;
    let text = without_references(&order);
    if text.split(' ').count() < 3 || text.len() < 12 {
        return None;
    }
    let first = text.split(' ').next().unwrap_or("").to_lowercase();
    let is_prepared = PREPARING.contains(&first.as_str())
        && text.contains(" and ")
        && !text.contains(" and understand");
    let is_vague = !is_certain
        || VAGUE.contains(&first.as_str()) && !is_prepared
        || text.len() < 25
        || text.len() < 50 && text.contains("the input")
        || text.contains("appropriate information");
    Some(Instruction { text, is_vague })
}

/// The instruction, and whether its wording introduces a purpose.
fn ordered(sentence: &str, lower: &str, part: PatternPart) -> Option<(String, bool)> {
    for polite in ["please ", "take your time and ", "fully ", "carefully "] {
        if let Some(rest) = lower.strip_prefix(polite) {
            return ordered(&sentence[polite.len()..], rest, part);
        }
    }
    let first = lower
        .split(|c: char| !c.is_alphabetic())
        .next()
        .unwrap_or("");
    if known(first).is_some() {
        return Some((sentence.to_owned(), part != PatternPart::Rest));
    }
    if part == PatternPart::Rest {
        return None;
    }
    let is_about_you = [
        "you",
        "your ",
        "as a",
        "i want",
        "the goal",
        "the purpose",
        "this ",
        "the output",
        "to ",
        "objective",
        "title",
        "think",
        "given",
    ]
    .iter()
    .any(|start| lower.starts_with(start))
        || lower.contains(" your ");
    if !is_about_you {
        return None;
    }
    let marked = markers(lower)
        .into_iter()
        .find_map(|end| basic(&sentence[end..]));
    if let Some(order) = marked.or_else(|| agent(sentence)) {
        return Some((unwrapped(order), true));
    }
    if part == PatternPart::Goal
        && first == "given"
        && lower.split(' ').any(|word| known(word).is_some())
    {
        return Some((sentence.to_owned(), true));
    }
    // "You extract jokes", "a thing that takes text and …".
    for start in [
        "you ",
        ", you ",
        "— you ",
        " that ",
        " who ",
        " which ",
        " and you ",
    ] {
        for (at, _) in lower.match_indices(start) {
            if start == "you " && at != 0 {
                continue;
            }
            if let Some(order) = basic(without_adverb(&sentence[at + start.len()..])) {
                return Some((unwrapped(order), true));
            }
        }
    }
    None
}

/// "You are an expert extractor of jokes": "extract jokes".
fn agent(sentence: &str) -> Option<String> {
    let (before, things) = sentence.split_once(" of ")?;
    let agent = before.rsplit(' ').next()?.to_lowercase();
    let stem = agent
        .strip_suffix("er")
        .or_else(|| agent.strip_suffix("or"))?;
    let verb = known(&format!("{stem}e")).or_else(|| known(stem))?;
    Some(format!("{verb} {things}"))
}

/// "Coordinate agents that extract jokes" and "create a pattern that extracts jokes": "extract jokes".
fn unwrapped(order: String) -> String {
    let is_wrapped = order.starts_with("coordinate ") || order.starts_with("create a pattern ");
    let inner = if is_wrapped {
        order
            .split_once(" that ")
            .and_then(|(_, inner)| basic(inner))
    } else {
        None
    };
    inner.unwrap_or(order)
}

/// Ends of all phrases that introduce an instruction, in text order.
fn markers(lower: &str) -> Vec<usize> {
    let ends = BEFORE_VERB.iter().flat_map(|marker| {
        lower
            .match_indices(marker)
            .map(|(at, marker)| at + marker.len())
    });
    let mut found: Vec<usize> = ends.collect();
    found.sort_unstable();
    found
}

fn without_adverb(text: &str) -> &str {
    match text.split_once(' ') {
        Some((first, rest))
            if first.ends_with("ly") && first != "apply"
                || matches!(first, "also" | "will" | "can" | "then") =>
        {
            // "swiftly and effectively gather"
            without_adverb(rest.strip_prefix("and ").unwrap_or(rest))
        }
        _ => text,
    }
}

/// The text with its verb, and verbs coordinated with it, in base form: "creating x and rating y" becomes "create x and
/// rate y". `None` if it does not begin with a verb.
fn basic(text: &str) -> Option<String> {
    let text = without_adverb(text.trim_start());
    let mut words = text.split(' ');
    let first = words.next()?;
    let form = form(first)?;
    let mut order = form.verb.to_owned() + form.mark;
    let mut before = first;
    // Number of words since a verb was left unchanged: "tools for reading and writing" must not become "for reading and
    // write".
    let mut left = usize::MAX;
    for word in words {
        order.push(' ');
        left = left.saturating_add(1);
        let is_coordinated = matches!(before, "and" | "or" | "then" | "&") || before.ends_with(',');
        match self::form(word)
            .filter(|other| other.ending == form.ending && form.ending != VerbEnding::None)
        {
            Some(other) if is_coordinated && left > 2 => {
                order.push_str(other.verb);
                order.push_str(other.mark);
            }
            other => {
                if other.is_some() {
                    left = 0;
                }
                order.push_str(word);
            }
        }
        if !word.ends_with("ly") {
            before = word;
        }
    }
    Some(order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VerbEnding {
    None,
    S,
    Ing,
}

struct Form<'a> {
    verb: &'static str,
    ending: VerbEnding,
    /// Punctuation after the word.
    mark: &'a str,
}

fn known(verb: &str) -> Option<&'static str> {
    VERBS.binary_search(&verb).ok().map(|at| VERBS[at])
}

/// The verb of a word such as `creating`, `takes`, `write`.
fn form(word: &str) -> Option<Form<'_>> {
    let bare = word.trim_end_matches([',', '.', ':', ';']);
    let mark = &word[bare.len()..];
    let bare = bare.to_lowercase();
    let found = |verb, ending| Some(Form { verb, ending, mark });
    if let Some(verb) = known(&bare) {
        return found(verb, VerbEnding::None);
    }
    if let Some(stem) = bare.strip_suffix("ing") {
        let undoubled = stem.get(..stem.len().saturating_sub(1)).unwrap_or("");
        let verb = known(&format!("{stem}e"))
            .or_else(|| known(stem))
            .or_else(|| known(undoubled))?;
        return found(verb, VerbEnding::Ing);
    }
    let ies = bare
        .strip_suffix("ies")
        .and_then(|stem| known(&format!("{stem}y")));
    let verb = ies
        .or_else(|| bare.strip_suffix('s').and_then(known))
        .or_else(|| bare.strip_suffix("es").and_then(known))?;
    found(verb, VerbEnding::S)
}

/// Beginnings of clauses that refer to another part of the pattern.
const REFERENCES: &[&str] = &[
    " using the ",
    " according to the ",
    " by following the ",
    " following the ",
    " as defined",
    " as described in the ",
    " as determined by",
    " based on the steps",
    " based on the following",
    " per the ",
    " in the below",
    " given the following",
    " with following",
    " as follows",
    " in the input section",
    " provided below",
    " below",
    " and the knowledge below",
];

/// The instruction without references to the rest of the pattern: "using the format below".
fn without_references(order: &str) -> String {
    let mut text = order
        .trim()
        .replace(" and you must ", " and ")
        .replace(", and you ", " and ")
        .replace(" and you ", " and ");
    let lower = text.to_lowercase();
    if lower.len() == text.len() {
        let refers = |tail: &str| {
            tail.len() < 120
                && [
                    "below",
                    "step",
                    "format",
                    "following",
                    "output section",
                    "follows",
                    "input section",
                    "instructions",
                ]
                .iter()
                .any(|word| tail.contains(word))
        };
        let starts = REFERENCES.iter().filter_map(|start| lower.find(start));
        if let Some(at) = starts.filter(|&at| at >= 20 && refers(&lower[at..])).min() {
            text.truncate(at);
        }
    }
    let text = text.trim_end_matches(['.', ',', ':', ';', ' ', '!']);
    text.strip_suffix(" that").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sentence: &str) -> Option<String> {
        action(sentence, PatternPart::Intro).map(|action| action.text)
    }

    #[test]
    fn the_instruction_is_found_after_the_role() {
        for (sentence, expected) in [
            (
                "You are an expert at naming rocks and rating their beauty.",
                "name rocks and rate their beauty",
            ),
            ("You are a geologist. ", ""),
            ("You name the rocks in a text.", "name the rocks in a text"),
            (
                "Your goal is to list every rock of the text using the format below.",
                "list every rock of the text",
            ),
            (
                "As a geologist, your role is to swiftly and kindly explain rocks to children.",
                "explain rocks to children",
            ),
            (
                "You are an AI whose primary responsibility is to rate each rock.",
                "rate each rock",
            ),
            (
                "You are an expert extractor of rocks from maps.",
                "extract rocks from maps",
            ),
            (
                "You coordinate ten agents that describe rocks in detail.",
                "describe rocks in detail",
            ),
            (
                "You are a thing that takes a rock and writes a story about it.",
                "take a rock and write a story about it",
            ),
            (
                "You write tools for reading and writing maps.",
                "write tools for reading and writing maps",
            ),
            (
                "You take a rock and you output its age in years.",
                "take a rock and output its age in years",
            ),
            (
                "Please draw the rock of the text.",
                "draw the rock of the text",
            ),
            ("Take a deep breath and name the rock in the text.", ""),
            ("The rocks are old and heavy.", ""),
        ] {
            assert_eq!(order(sentence).unwrap_or_default(), expected, "{sentence}");
        }
    }

    #[test]
    fn tables_of_verbs_are_sorted() {
        assert!(VERBS.is_sorted_by(|a, b| a < b));
        assert!(
            VAGUE
                .iter()
                .all(|verb| known(verb).is_some() || *verb == "know")
        );
    }

    #[test]
    fn case_that_changes_lengths_is_no_trouble() {
        assert!(
            order("You extract İİİ from the ﬁles and more.").is_none_or(|text| !text.is_empty())
        );
    }
}
