//! What a sentence of a pattern tells the model to do, as an order: "You are an expert at extracting jokes." becomes
//! "Extract jokes".

use super::prose::Part;

/// What is to be done.
pub(super) struct Action {
    /// Begins with a verb, without a stop at the end.
    pub(super) text: String,
    /// Hardly says anything: "Understand the input".
    pub(super) is_vague: bool,
}

/// Sentences with these are about how to think, not about what to do.
const BOILERPLATE: &[&str] = &[
    "deep breath", "step back", "step-by-step about how", "step by step about how", "step by step", "virtual whiteboard",
    "lot of freedom", "warnings or notes", "you always use the latest", "the following steps", "below steps",
    "fully digest", "deeply study", "deeply understand the input", "fully understand the input", "think deeply",
    "incoming telos file", "input instruction or question", "best possible output", "slow down and think", "input:",
];

/// What introduces the thing to do; behind it stands a verb in its basic form.
const BEFORE_VERB: &[&str] = &[
    "goal is to ", "goal here is to ", "goals are to ", "role is to ", "task is to ", "purpose is to ", "job is to ",
    "mission is to ", "objective is to ", "responsibility is to ", "job to ", "exercise is to ", "exercise are to ",
    "exercise is: ", "role involves ", "you need to ", "you are to ", "you must ", "designed to ", "you are able to ",
    "capable of ", "skilled at ", "skilled in ", "tasked with ", "tasked to ", "specialized in ", "specialised in ",
    "specializes in ", "specializing in ", "specialize in ", "specialise in ", "specialist in ", "specializing on ",
    "excel at ", "excels at ", "excel in ", "expert at ", "expert in ", "expert on ", "expert is ", "focused on ",
    "focuses on ", "focusing on ", "responsible for ", "take pride in ", "good at ", "service for ", "expertise in ",
    "proficient in ", "experience in ", "able to ", "desires to ", "job it is to ", "job will be to ", "entity whose sole purpose is to ",
    "about to ", "dedicated to ", "want you to ",
];

/// Verbs that patterns order, in their basic form. Sorted.
const VERBS: &[&str] = &[
    "add", "adapt", "advise", "analyse", "analyze", "answer", "apply", "articulate", "ask", "assess", "assist", "audit",
    "break", "bring", "build", "capture", "categorize", "challenge", "characterize", "check", "clarify", "classify",
    "clean", "coach", "collect", "combine", "compare", "compile", "compose", "compute", "condense", "conduct",
    "construct", "contrast", "convert", "convince", "coordinate", "craft", "create", "critique", "decompose", "define",
    "deliver", "demonstrate", "describe", "design", "detect", "determine", "develop", "diagnose", "discern",
    "discover", "dissect", "distill", "document", "draft", "draw", "edit", "emulate", "engage", "enhance", "enrich",
    "ensure", "establish", "estimate", "evaluate", "examine", "expand", "explain", "explore", "export", "extract",
    "facilitate", "figure", "find", "fix", "flag", "focus", "format", "formulate", "gather", "generate", "give", "grade",
    "guide", "handle", "help", "highlight", "identify", "illustrate", "implement", "improve", "inspect", "interpret",
    "investigate", "judge", "label", "list", "look", "make", "map", "measure", "model", "offer", "optimize", "organize",
    "outline", "output", "perform", "plan", "predict", "prepare", "present", "print", "prioritize", "process",
    "produce", "propose", "provide", "pull", "rank", "rate", "read", "recommend", "reconstruct", "refine", "reformat",
    "remove", "rephrase", "respond", "review", "revise", "rewrite", "sanitize", "score", "secure", "show", "simplify", "simulate",
    "solve", "sort", "structure", "suggest", "summarise", "summarize", "support", "surface", "synthesize", "tag", "tailor",
    "take", "teach", "test", "track", "transcribe", "transform", "translate", "turn", "uncover", "update", "use",
    "validate", "verify", "visualize", "write",
];

/// Verbs that say little about what is done. Sorted.
const VAGUE: &[&str] = &["coordinate", "ensure", "focus", "interpret", "know", "output", "process", "read", "take", "understand", "use"];

/// The order in a sentence, if there is one.
pub(super) fn action(sentence: &str, part: Part) -> Option<Action> {
    let lower = sentence.to_lowercase();
    // Lower case may have another length in some scripts: then nothing can be cut out of it.
    if lower.len() != sentence.len() || BOILERPLATE.iter().any(|phrase| lower.contains(phrase)) {
        return None;
    }
    let (order, is_certain) = ordered(sentence, &lower, part)?;
    let text = without_references(&order);
    if text.split(' ').count() < 3 || text.len() < 15 {
        return None;
    }
    let first = text.split(' ').next().unwrap_or("").to_lowercase();
    let is_vague = !is_certain || VAGUE.contains(&first.as_str()) && !text.contains(" and ") || text.len() < 25;
    Some(Action { text, is_vague })
}

/// The order, and whether its wording is one that introduces a purpose.
fn ordered(sentence: &str, lower: &str, part: Part) -> Option<(String, bool)> {
    let first = lower.split(|c: char| !c.is_alphabetic()).next().unwrap_or("");
    if VERBS.contains(&first) {
        return Some((sentence.to_owned(), part != Part::Rest));
    }
    if part == Part::Rest {
        return None;
    }
    let is_about_you = ["you", "your ", "as a", "i want", "the goal", "the purpose", "this ", "the output", "to "]
        .iter()
        .any(|start| lower.starts_with(start))
        || lower.contains(" your ");
    if !is_about_you {
        return None;
    }
    for (at, end) in markers(lower) {
        let Some(order) = basic(&sentence[end..]) else { continue };
        let _ = at;
        return Some((order, true));
    }
    // "You extract jokes", "a thing that takes text and …".
    for start in ["you ", " that ", " who ", " which ", " and you "] {
        for (at, _) in lower.match_indices(start) {
            if start == "you " && at != 0 {
                continue;
            }
            if let Some(order) = basic(without_adverb(&sentence[at + start.len()..])) {
                return Some((order, true));
            }
        }
    }
    None
}

/// Where something that introduces an order stands and ends, in the order of the text.
fn markers(lower: &str) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = BEFORE_VERB
        .iter()
        .flat_map(|marker| lower.match_indices(marker).map(|(at, marker)| (at, at + marker.len())))
        .collect();
    found.sort_unstable();
    found
}

fn without_adverb(text: &str) -> &str {
    match text.split_once(' ') {
        Some((first, rest)) if first.ends_with("ly") || matches!(first, "also" | "will" | "can") => without_adverb(rest),
        _ => text,
    }
}

/// The text with its verb, and those that are coordinated with it, in their basic form: "creating x and rating y" becomes
/// "create x and rate y". `None` if it does not begin with a verb.
fn basic(text: &str) -> Option<String> {
    let text = without_adverb(text.trim_start());
    let mut words = text.split(' ');
    let first = words.next()?;
    let form = form(first)?;
    let mut order = form.verb.to_owned() + form.mark;
    let mut before = first;
    let mut is_open = true;
    for word in words {
        order.push(' ');
        let is_coordinated = matches!(before, "and" | "or" | "then" | "&") || before.ends_with(',');
        match self::form(word).filter(|other| other.ending == form.ending && form.ending != Ending::None) {
            Some(other) if is_open && is_coordinated => {
                order.push_str(other.verb);
                order.push_str(other.mark);
            }
            other => {
                // "tools for reading and writing": what follows belongs to `reading`.
                is_open &= other.is_none() || form.ending != Ending::Ing;
                order.push_str(word);
            }
        }
        if !word.is_empty() && !word.ends_with("ly") {
            before = word;
        }
    }
    Some(order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    S,
    Ing,
}

struct Form<'a> {
    verb: &'static str,
    ending: Ending,
    /// A comma or the like behind the word.
    mark: &'a str,
}

/// The verb of a word such as `creating`, `takes`, `write`.
fn form(word: &str) -> Option<Form<'_>> {
    let bare = word.trim_end_matches([',', '.', ':', ';']);
    let mark = &word[bare.len()..];
    let bare = bare.to_lowercase();
    let known = |verb: &str| VERBS.binary_search(&verb).ok().map(|at| VERBS[at]);
    let found = |verb, ending| Some(Form { verb, ending, mark });
    if let Some(verb) = known(&bare) {
        return found(verb, Ending::None);
    }
    if let Some(stem) = bare.strip_suffix("ing") {
        let undoubled = stem.get(..stem.len().saturating_sub(1)).unwrap_or("");
        let verb = known(&format!("{stem}e")).or_else(|| known(stem)).or_else(|| known(undoubled))?;
        return found(verb, Ending::Ing);
    }
    let ies = bare.strip_suffix("ies").and_then(|stem| known(&format!("{stem}y")));
    let verb = ies.or_else(|| bare.strip_suffix('s').and_then(known)).or_else(|| bare.strip_suffix("es").and_then(known))?;
    found(verb, Ending::S)
}

/// The order without what only makes sense within the pattern: "using the format below".
fn without_references(order: &str) -> String {
    let mut text = order.trim().to_owned();
    let lower = text.to_lowercase();
    if lower.len() != text.len() {
        return text;
    }
    for start in
        [" using the ", " according to the ", " by following the ", " following the ", " as defined", " as described in the essay", " based on the steps", " based on the following", " per the ", ", using the ", " in the below", " given the following", " as follows", " in the input section provided below", " provided below", " below", ", as determined"]
    {
        let Some(at) = lower.find(start) else { continue };
        let tail = &lower[at..];
        let refers = ["below", "step", "format", "following", "output section", "follows"].iter().any(|word| tail.contains(word));
        if refers && tail.len() < 120 && at >= 20 && at < text.len() {
            text.truncate(at);
            break;
        }
    }
    text.trim_end_matches(['.', ',', ':', ';', ' ']).to_owned()
}
