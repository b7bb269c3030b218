//! What a pattern that is not in the table does: the first sentence of its text that says so.

use super::similar::{capitalised, humanised};
use super::words::plain_letters;

/// Longest sentence, in characters.
const LONGEST: usize = 140;
/// Most sentences that are looked at.
const MOST_SENTENCES: usize = 24;
/// Most of them that count as requests.
const MOST_REQUESTS: usize = 8;
/// Words that introduce a task: what follows them says what is done.
const INTRODUCTIONS: &str = " is to | are to |tasked with |you can |you will |you must ";
/// Words after which a verb says what is done, while a noun only goes on with a role.
const SKILLS: &str = "expert at |expert in |expert on |specialized in |specialised in |\
    specializes in |specialises in |specializing in |responsible for |excel at |skilled at |skilled in ";
/// How sentences begin that say who somebody is, not what they do.
const ROLES: &str = "You are |You have |You were |You should |You're |Act as |Act like |Role:|\
    Du bist |Sie sind |Tu es |Vous êtes |Eres |Sei un|Você é ";

/// Sentences with these say how to think or write, not what to do.
const BOILERPLATE: &str = "deep breath|step back|step by step|step-by-step|whiteboard|\
    fully digest|slow down|think deeply|only output|input:";

/// Words of headings below which the aim is said.
const GOALS: [&str; 4] = ["goal", "task", "purpose", "objective"];

/// What a pattern of this name and text does, in one sentence.
pub(super) fn sentence(name: &str, text: &str) -> String {
    let found = sentences(text);
    let aim = |(said, is_goal): &(String, bool)| aim(said, *is_goal);
    let mut aims = found.iter().filter_map(aim);
    let does = || found.iter().find(|(said, _)| !is_role(said));
    let any = || Some(does().or(found.first())?.0.clone());
    finished(&aims.next().or_else(any).unwrap_or_else(|| humanised(name)))
}

fn is_role(sentence: &str) -> bool {
    ROLES.split('|').any(|role| sentence.starts_with(role))
}

/// The task that a sentence states, if it states one.
fn aim(sentence: &str, is_goal: bool) -> Option<String> {
    let lower = sentence.to_lowercase();
    if lower.len() == sentence.len() {
        let end = |phrase: &str| Some(lower.find(phrase)? + phrase.len());
        let after = |all: &str| Some(&sentence[all.split('|').filter_map(end).min()?..]);
        let is_verb = |rest: &&str| rest.split(' ').next().unwrap_or_default().ends_with("ing");
        if let Some(rest) = after(INTRODUCTIONS).or_else(|| after(SKILLS).filter(is_verb)) {
            return Some(rest.to_owned());
        }
    }
    let does = sentence.strip_prefix("You ").filter(|_| !is_role(sentence));
    does.or(is_goal.then_some(sentence)).map(str::to_owned)
}

/// The first sentences that may say what is done, without Markdown, and whether each is below a heading that says so.
fn sentences(text: &str) -> Vec<(String, bool)> {
    let (mut found, mut is_goal) = (Vec::new(), false);
    for line in text.lines() {
        if let Some(heading) = heading(line) {
            let heading = plain_letters(heading);
            let has = |word: &&str| heading.contains(word);
            is_goal = GOALS.iter().any(has) && !heading.contains("identity");
            continue;
        }
        // Front matter, and <identity>You are …</identity>
        let described = line.strip_prefix("description:");
        let described = described.map(|said| said.trim_matches(['"', '\'', ' ']));
        let tagged = line.trim_start().strip_prefix('<');
        let inside = tagged.and_then(|tag| tag.split(['<', '>']).nth(1));
        let line = described.or(inside).unwrap_or(line);
        let line = line.trim_start_matches(|c: char| !c.is_alphabetic() && c != '{');
        let line = line.replace(['*', '`', '_'], "");
        let parts = line.split_inclusive(". ");
        for sentence in parts.flat_map(|part| part.split_inclusive(['。', '！', '？'])) {
            let sentence = sentence.trim();
            let lower = sentence.to_lowercase();
            // A variable says nothing, nor what only names one.
            let end = sentence.trim_end_matches('.').strip_suffix("}}");
            let before = end.and_then(|end| Some(end.rsplit_once("{{")?.0.trim()));
            let is_label = |before: &str| !before.ends_with(char::is_alphanumeric);
            let is_slot = before.is_some_and(|before| is_label(before) && !before.contains(' '));
            let says_something = sentence.contains(char::is_alphabetic) && !is_slot;
            if !says_something || BOILERPLATE.split('|').any(|phrase| lower.contains(phrase)) {
                continue;
            }
            found.push((sentence.to_owned(), is_goal || described.is_some()));
            if found.len() == MOST_SENTENCES {
                return found;
            }
        }
    }
    found
}

/// What may be asked of a pattern with this text: its first sentences.
pub(super) fn requests(text: &str) -> String {
    let said = sentences(text).into_iter().map(|(sentence, _)| sentence);
    Vec::from_iter(said.take(MOST_REQUESTS)).join("; ")
}

/// The words of a heading: `# GOAL`, `**Task**`, `GOAL:`.
fn heading(line: &str) -> Option<&str> {
    let line = line.trim_start_matches('\u{feff}').trim();
    let is_bold = line.starts_with("**") && line.trim_end_matches(':').ends_with("**");
    let is_label =
        line.len() <= 60 && line.ends_with(':') && !line.contains(|c: char| c.is_lowercase());
    let words = || line.trim_matches(|c: char| !c.is_alphanumeric());
    (line.starts_with('#') || is_bold || is_label).then(words)
}

/// A sentence of at most [`LONGEST`] characters, with an initial capital and a full stop.
fn finished(text: &str) -> String {
    let text = text.trim().trim_end_matches(['.', ',', ';', ':']);
    let mut text = capitalised(&text.replace(char::is_control, " "));
    if let Some((end, _)) = text.char_indices().nth(LONGEST - 2) {
        let word = text[..end].rfind(' ').filter(|at| *at > end / 2);
        text.truncate(word.unwrap_or(end));
        return text + "….";
    }
    if !text.ends_with(['!', '?', '。']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_that_says_what_is_done_is_taken() {
        let expert = "# IDENTITY\n\nYou are an expert at extracting **jokes** from `texts`.";
        let developer = "You are a developer.\n\n# GOAL\n\nWrite a note about a diff!";
        let cook = "You are a cook.\n\n# STEPS\n\n- Read it.\n\nYour task is to find recipes: all.";
        let duke = "Take a deep breath.\n**wine**\nCHESS GAMES:\nYou are Duke.";
        for (text, expected) in [
            ("You extract jokes. You are funny.", "Extract jokes."),
            (expert, "Extracting jokes from texts."),
            (developer, "Write a note about a diff!"),
            (cook, "Find recipes: all."),
            (duke, "You are Duke."),
            ("漢字を書きます。検索", "漢字を書きます。"),
            ("You split\u{7} lines.", "Split  lines."),
            ("- List all", "List all."),
            ("You are a lawyer.\nText: {{input}}", "You are a lawyer."),
            ("You are an expert in law. Explain it.", "Explain it."),
            ("You are an expert in SQL.", "You are an expert in SQL."),
            ("Act as a cook. {{x}}", "Act as a cook."),
            ("Du bist Lektor. Kürze den Text.", "Kürze den Text."),
            ("**Role:** Editor\n**Task:** Fix it.", "Task: Fix it."),
            ("{{x}} is a hero.", "{{x}} is a hero."),
            ("{{x}}: answer", "{{x}}: answer."),
            ("<a>\n<b>You are Duke.</b>\n</a>", "You are Duke."),
            ("\u{feff}# GOAL\nFind it.", "Find it."),
            ("---\nname: x\ndescription: \"Do it.\"\n---\nNo", "Do it."),
            ("# GOAL\n", "My name."),
            ("", "My name."),
        ] {
            assert_eq!(sentence("my_name", text), expected, "{text:?}");
        }
        let long = format!("You list {}.", "many different things, ".repeat(20));
        let long = sentence("x", &long);
        let is_cut = long.ends_with(" different….") && long.chars().count() <= LONGEST;
        assert!(is_cut && long.starts_with("List many"), "{long}");
    }

    #[test]
    fn nothing_hostile_costs_more_than_its_length() {
        for text in [
            "a. B".repeat(4096),
            "A. ".repeat(5000),
            "**".repeat(8000),
            "# \n".repeat(5000),
            "```\n".repeat(4000),
        ] {
            let is_so = sentence("x", &text).chars().count() <= LONGEST;
            assert!(is_so, "{text:.20}");
        }
    }
}
