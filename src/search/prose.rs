//! Splits Markdown into plain sentences, each with its part of the pattern.

/// Most sentences of one text.
const MOST_SENTENCES: usize = 60;

/// A part of a pattern, by its heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// The introduction: before any heading, and below IDENTITY, PURPOSE, ROLE.
    Intro,
    /// Below GOAL, TASK, OBJECTIVE.
    Goal,
    /// Steps, rules for output and everything else.
    Rest,
}

/// One sentence, on one line.
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) part: PatternPart,
}

/// The text's sentences in order, without headings, code, examples and Markdown.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let mut reader = ProseReader {
        part: Some(PatternPart::Intro),
        paragraph: String::new(),
        found: Vec::new(),
    };
    let mut is_fenced = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") || line.starts_with("~~~") {
            is_fenced = !is_fenced;
            reader.end_paragraph();
        } else if is_fenced {
        } else if let Some(heading) = heading(line) {
            reader.end_paragraph();
            reader.part = part(&heading, reader.part);
        } else if line.is_empty() || is_rule(line) {
            reader.end_paragraph();
        } else if let Some(item) = list_item(line) {
            reader.end_paragraph();
            reader.add(item);
        } else {
            reader.add(line);
        }
        if reader.found.len() >= MOST_SENTENCES {
            break;
        }
    }
    reader.end_paragraph();
    reader.found
}

struct ProseReader {
    /// `None` for parts that are skipped, such as examples.
    part: Option<PatternPart>,
    paragraph: String,
    found: Vec<Sentence>,
}

impl ProseReader {
    fn add(&mut self, line: &str) {
        self.paragraph.push_str(line);
        self.paragraph.push(' ');
    }

    fn end_paragraph(&mut self) {
        let text = plain(&std::mem::take(&mut self.paragraph));
        let Some(part) = self.part else { return };
        let mut rest = text.as_str();
        while !rest.is_empty() && self.found.len() < MOST_SENTENCES {
            let (sentence, after) = rest.split_at(sentence_end(rest));
            self.found.push(Sentence {
                text: sentence.trim().to_owned(),
                part,
            });
            rest = after.trim_start();
        }
    }
}

/// The words of a heading in capitals: `# GOAL`, `<identity>`, `**Task**`, `GOAL:`. `None` if the line is not a
/// heading.
pub(super) fn heading(line: &str) -> Option<String> {
    let line = line.trim();
    let inner = line.trim_start_matches('#');
    let is_marked =
        inner.len() < line.len() && (inner.is_empty() || inner.starts_with([' ', '\t', '*']));
    let is_tag = line.starts_with('<') && line.ends_with('>') && line.matches('<').count() == 1;
    let is_bold = line.starts_with("**")
        && line.trim_end_matches(':').ends_with("**")
        && line.matches("**").count() == 2;
    let is_label = line.len() <= 60
        && line.ends_with(':')
        && line.chars().any(char::is_uppercase)
        && !line.chars().any(char::is_lowercase)
        || line == "IDENTITY and GOAL:";
    if !(is_marked || is_tag || is_bold || is_label) {
        return None;
    }
    let words = inner.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    // `# IDENTITY // Who you are`
    let words = words.split("//").next().unwrap_or(words);
    Some(words.trim_matches('/').trim().to_uppercase())
}

fn part(heading: &str, before: Option<PatternPart>) -> Option<PatternPart> {
    let has = |words: &[&str]| words.iter().any(|word| heading.contains(word));
    if has(&[
        "EXAMPLE",
        "TEMPLATE",
        "ESSAY",
        "SAMPLE",
        "REFERENCE",
        "KNOWLEDGE",
        "SYNTAX",
        "BACKGROUND ON",
    ]) {
        None
    } else if has(&["GOAL", "YOUR TASK", "OBJECTIVE", "MISSION"])
        || heading == "TASK"
        || heading == "PROMPT"
    {
        Some(PatternPart::Goal)
    } else if has(&["IDENTITY", "PURPOSE", "ROLE", "SYSTEM", "BACKGROUND"])
        || heading.starts_with("YOU ARE")
    {
        Some(PatternPart::Intro)
    } else if before == Some(PatternPart::Intro)
        && heading.split(' ').count() > 3
        && !has(&["STEP", "OUTPUT", "INPUT"])
    {
        // A title.
        Some(PatternPart::Intro)
    } else if has(&["INPUT"]) && !has(&["OUTPUT"]) {
        None
    } else {
        Some(PatternPart::Rest)
    }
}

fn is_rule(line: &str) -> bool {
    line.starts_with("//")
        || line.starts_with('|')
        || line
            .chars()
            .all(|c| matches!(c, '-' | '=' | '*' | '_' | ' '))
}

/// The text after a bullet or number.
fn list_item(line: &str) -> Option<&str> {
    if let Some(item) = ["- ", "* ", "+ ", "• ", ". ", "-- "]
        .iter()
        .find_map(|bullet| line.strip_prefix(bullet))
    {
        return Some(item);
    }
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == line.len() {
        None
    } else {
        rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))
    }
}

/// Markdown as one line of plain text, without markup, line breaks and control characters.
pub(super) fn plain(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    for word in markdown.split(|c: char| c.is_whitespace() || c.is_control()) {
        let unmarked: String;
        let mut word = word;
        if word.contains(['*', '`', '[', ']']) {
            // `[text](address)` keeps its text.
            let (shown, after) = match word.split_once("](") {
                Some((shown, address)) => (
                    shown,
                    address.split_once(')').map_or("", |(_, after)| after),
                ),
                None => (word, ""),
            };
            unmarked = format!("{shown}{after}").replace(['*', '`', '[', ']'], "");
            word = &unmarked;
        }
        word = word.trim_matches('_').trim_start_matches(['#', '>']);
        if !word.is_empty() {
            text.push_str(if text.is_empty() { "" } else { " " });
            text.push_str(word);
        }
    }
    text
}

/// The end of the first sentence: after a `.`, `!` or `?` that no lower-case letter follows (as in `e.g. this`).
fn sentence_end(text: &str) -> usize {
    for (at, mark) in text.match_indices(['.', '!', '?', '。']) {
        let end = at + mark.len();
        let rest = text[end..].trim_start_matches(['"', '”', ')']);
        if mark == "。" {
            return end;
        }
        if !rest.starts_with(' ') || rest.trim_start().starts_with(char::is_lowercase) {
            continue;
        }
        // `vs. The`, `e.g. Ten`, `3. Do`, `A. Smith`.
        let before = text[..at].rsplit([' ', '(']).next().unwrap_or("");
        let is_short = mark == "."
            && (matches!(before, "e.g" | "i.e" | "vs" | "etc" | "Dr" | "Mr" | "St")
                || before.len() < 2 && before != "I");
        if !is_short {
            return text.len() - rest.len();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, PatternPart)> {
        sentences(text)
            .into_iter()
            .map(|sentence| (sentence.text, sentence.part))
            .collect()
    }

    #[test]
    fn sentences_know_their_part() {
        let text = "# IDENTITY and PURPOSE\n\nYou **name** rocks, e.g. granite\nor basalt. You are `kind`.\n\n# STEPS\n\n\
                    1. Look at it. Then think.\n- See [the list](http://x/y).\n\n```\ncode. Here\n```\n# EXAMPLE\n\nNo.\n\
                    # GOAL // why\nName it!\n# INPUT:\n\nINPUT:\nmore";
        let expected = [
            (
                "You name rocks, e.g. granite or basalt.",
                PatternPart::Intro,
            ),
            ("You are kind.", PatternPart::Intro),
            ("Look at it.", PatternPart::Rest),
            ("Then think.", PatternPart::Rest),
            ("See the list.", PatternPart::Rest),
            ("Name it!", PatternPart::Goal),
        ];
        assert_eq!(
            read(text),
            expected.map(|(text, part)| (text.to_owned(), part))
        );
    }

    #[test]
    fn headings_come_in_many_shapes() {
        for (line, expected) in [
            ("# GOAL", Some("GOAL")),
            ("### IDENTITY AND PURPOSE:", Some("IDENTITY AND PURPOSE")),
            ("# IDENTITY // Who you are", Some("IDENTITY")),
            ("<identity>", Some("IDENTITY")),
            ("**Task**", Some("TASK")),
            ("**Task**:", Some("TASK")),
            ("STEPS:", Some("STEPS")),
            ("IDENTITY and GOAL:", Some("IDENTITY AND GOAL")),
            ("#tag", None),
            ("A sentence with:", None),
            ("**a** and **b**", None),
            ("<p>text</p>", None),
            ("", None),
        ] {
            assert_eq!(heading(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn nothing_hostile_costs_more_than_its_length() {
        assert_eq!(read(&"a. B".repeat(4096)).len(), MOST_SENTENCES);
        assert_eq!(read(&"A. ".repeat(5000)).len(), 1);
        assert_eq!(read(&"Aaa. ".repeat(5000)).len(), MOST_SENTENCES);
        assert_eq!(read(&"- x\n".repeat(5000)).len(), MOST_SENTENCES);
        assert_eq!(read("漢字。検索。").len(), 2);
        assert!(read("```\n# a\nb").is_empty());
    }
}
