//! The areas of a pattern, by keywords of its name and purpose. Prefers none to a wrong one.

use super::words::whole_words;

/// Most areas of one pattern.
const MOST: usize = 3;

/// Areas, with their keywords in names and in purposes. Fewer for purposes, because a purpose has to be about the area
/// itself.
const AREAS: &[(&str, &str, &str)] = &[
    (
        "ai",
        "ai prompt prompts llm mcp agent agents",
        "llm chatbot",
    ),
    (
        "business",
        "business sales offer hormozi 7s product prd monetization commerce sponsors affiliate concall startup invoice",
        "startup salesperson sales sponsors sponsorships affiliate monetization investors earnings prd",
    ),
    (
        "career",
        "career jobs resume interview hiring skills",
        "career recruiter",
    ),
    (
        "development",
        "code coding git commit pull github diff terraform developer programming java software feature api frontend \
         semgrep agility duke",
        "programming codebases git terraform developers java css software",
    ),
    (
        "learning",
        "quiz flash flashcards lecture study reading mnemonic math homework course",
        "student students flashcards anki",
    ),
    (
        "legal",
        "agreement legal contract patent conditions bill legislation",
        "contracts legislation patents",
    ),
    ("meetings", "meeting minutes agenda", "meeting meetings"),
    (
        "personal",
        "telos yoga heal partner encouragement negative blindspots neglected dunning diy",
        "telos yoga healing",
    ),
    (
        "politics",
        "bill legislation candidates proposition election political",
        "political legislation ballot election",
    ),
    (
        "psychology",
        "personality psychology freud",
        "psychological psyche psychology psychologist",
    ),
    ("research", "paper academic research patent", "academic"),
    (
        "security",
        "security secure malware incident sigma nuclei semgrep hackerone vulnerability cyber stride ctf phishing ttrc \
         pentest poc exploit",
        "cybersecurity malware vulnerability vulnerabilities pentest penetration siem dmarc security",
    ),
    ("summaries", "summarize summary summarise minutes recap", ""),
    ("video", "video youtube videoid", "youtube"),
    (
        "visualization",
        "visualization visualize graph conceptmap mermaid excalidraw markmap diagram logo art",
        "visualize visualization visualizations diagram ascii graphviz logos",
    ),
    (
        "writing",
        "writing essay prose typos blog newsletter tweet email humanize latex grammar",
        "essays prose",
    ),
];

/// The areas of a pattern, in alphabetical order.
pub(super) fn areas(name: &str, purpose: &str) -> Vec<&'static str> {
    let (name, purpose) = (whole_words(name), whole_words(purpose));
    let has = |words: &[String], telling: &str| {
        telling
            .split_whitespace()
            .any(|word| words.iter().any(|own| own == word))
    };
    let all = AREAS
        .iter()
        .filter(|(_, of_name, of_purpose)| has(&name, of_name) || has(&purpose, of_purpose));
    all.map(|(area, ..)| *area).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telling_words_name_the_area() {
        assert_eq!(areas("name_rocks", "Name the rocks in a text."), [""; 0]);
        assert_eq!(areas("review_code", "Find what is wrong."), ["development"]);
        assert_eq!(
            areas("x", "Finds vulnerabilities in essays."),
            ["security", "writing"]
        );
        assert_eq!(areas("summarize_meeting", ""), ["meetings", "summaries"]);
        assert_eq!(areas("", ""), [""; 0]);
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(AREAS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
