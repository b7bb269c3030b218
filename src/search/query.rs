//! What a query asks for: its words without those that only frame a request.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::language::{LANGUAGE, Language};
use super::similar::without_camel_case;
use super::stem::stem;
use super::words::{is_unspaced, plain_letters, runs, words};
use crate::text::prefix;

/// Longest query that is read, in bytes; the rest is ignored.
const LONGEST: usize = 4 << 10;
/// Most words of a query, framing ones included; further ones are ignored.
const MOST_WORDS: usize = 128;
/// Weight of two characters of a script without spaces that are no known word: most of them are parts of two words.
const PAIR_WEIGHT: f32 = 0.2;

/// Most words after "not for" that are not meant.
const MOST_UNWANTED: usize = 6;
/// Words that negate at the beginning of a part of a sentence, or before [`NOT_FOR`].
const NOT: &str = "not no don't don’t dont isn't isn’t isnt nicht kein keine ne pas nao nie non не";
/// Words that begin what is meant after what is not.
const INSTEAD: &str = "but just only please nur sondern seulement mais solo tylko ale только а";
/// What negates a part of a sentence in scripts without spaces.
const NOT_UNSPACED: &str = "不要 不用 しないで せずに ではなく じゃなく 하지마 하지말 말고";
/// What is first written in another way, so that negations begin or end a part of a sentence.
const REWRITTEN: &str = " 하지>하지|하지 >하지| 대신>말고| 없이>말고| 말고>말고|말고>말고,|뭐 하는>뭐하는|は不要>ではなく|\
    の代わりに>ではなく|なしで>ではなく|しないで>しないで、|せずに>せずに、|なく>なく、|而不是>不要|而非>不要|不要>，不要";
/// Words before a part of a sentence, and those that exclude what follows.
const BUT: &str = "but and aber mais pero ma mas ale но";
const WITHOUT: &str = "without except ohne statt anstatt sans sin sem senza bez zamiast без вместо";
const INSTEAD_OF: [&str; 2] = [
    "instead rather anstelle lieu vez lugar invece",
    "of than von de du d'un d'une di",
];
const NOT_FOR: &str = "for about a an the as in of from fur pour para per dla для";
/// Words before another need.
const AND: &str = "and then also plus und dann et puis y luego e poi i oraz и";

/// What says in which form an answer is wanted, or where the text is from; `0` is any number. And how much such words
/// count.
static FORMS: LazyLock<HashSet<Vec<String>>> = LazyLock::new(|| {
    let forms = include_str!("forms.txt").split(['|', '\n']);
    forms.map(words).collect()
});
/// Most words of a form; a pair of characters of a script without spaces is one.
const LONGEST_FORM: usize = 6;
const FORM: f32 = 0.3;

/// How people ask for an explanation of what something does: how that begins, and how it ends.
const DOES: &str = "what does > do|was macht >|was tut >|wozu dient >|il fait quoi >|que fait >|a quoi sert >|que hace es>|que hace el >|que hace la >|\
    para que sirve >|para que serve >|o que > faz|que faz >|cosa fa >|che fa >|a cosa serve >|co robi >|do czego >|что делает >|что > делает";

/// What a query asks for.
pub(super) struct ParsedQuery {
    /// The words that say something, in order, each once.
    pub(super) words: Vec<Word>,
    /// Whether it is in another language.
    pub(super) is_foreign: bool,
}

/// A word of a query.
pub(super) struct Word {
    /// The word as it was given, in lower case and without accents.
    pub(super) text: String,
    /// The stem of the word and that of its concept; none if the query is in another language and the word is known in
    /// that language.
    pub(super) stems: Vec<String>,
    /// The stems of what it may mean as a word of another language.
    pub(super) foreign: Vec<String>,
    /// How much it counts.
    pub(super) share: f32,
}

impl Word {
    /// What it means at first.
    pub(super) fn means(&self) -> Option<&String> {
        self.stems.first().or(self.foreign.first())
    }

    /// How much it weighs, if not by how few patterns have it.
    pub(super) fn weight(&self) -> Option<f32> {
        let pair = self.text.starts_with(is_unspaced).then_some(PAIR_WEIGHT);
        pair.or_else(|| LANGUAGE.weights.get(self.stems.first()?).copied())
    }
}

impl ParsedQuery {
    pub(super) fn parse(query: &str) -> ParsedQuery {
        let language = &*LANGUAGE;
        let mut said = words(query);
        said.truncate(MOST_WORDS);
        let is_foreign = language.is_foreign(&said);
        let plain = plain_letters(query);
        let asked = plain.trim_end_matches(['?', ' ']);
        let mut does = DOES.split('|').filter_map(|does| does.split_once('>'));
        if does.any(|(begin, end)| asked.starts_with(begin) && asked.ends_with(end)) {
            said.push("explain".to_owned());
        }
        let runs = runs(&plain);
        let (forms, frames) = (forms(&said), frames(&said, language));
        let is_form = |word: &String| forms.iter().any(|form| *form == numeral(word));
        let only_frames = !frames.contains(&false);
        let mut request = ParsedQuery {
            words: Vec::new(),
            is_foreign,
        };
        for (text, is_frame) in said.iter().zip(frames) {
            let says_nothing =
                is_frame || is_foreign && language.foreign_ignored.contains(text.as_str());
            if says_nothing && !only_frames {
                continue;
            }
            let own = stem(text);
            let concept = language.synonyms.get(&own).cloned();
            let mut word = Word {
                text: text.clone(),
                stems: [own].into_iter().chain(concept).collect(),
                foreign: language.foreign(text).concat(),
                share: if is_form(text) { FORM } else { 1.0 },
            };
            // A word in another script is not English, but may be in somebody's own pattern.
            if is_foreign && text.is_ascii() && !word.foreign.is_empty() {
                word.stems.clear();
                // In somebody's own pattern, it is that word.
                word.foreign.push(format!("={text}"));
            }
            // Two characters may be parts of two words: what they mean is found below.
            if text.starts_with(is_unspaced) && !runs.contains(&text.as_str()) {
                word.foreign.clear();
            }
            request.add(word);
        }
        let longer = |run: &&str| run.starts_with(is_unspaced) && !said.contains(&run.to_string());
        for run in runs.into_iter().filter(longer) {
            let is_form = words(run).iter().all(is_form);
            for meant in language.foreign(run) {
                request.add(Word {
                    text: run.to_owned(),
                    stems: Vec::new(),
                    foreign: meant,
                    share: if is_form { FORM } else { 1.0 },
                });
            }
        }
        request
    }

    /// Adds a word unless it is already there.
    fn add(&mut self, word: Word) {
        let is_known = self.words.iter().any(|other| other.means() == word.means());
        if self.words.len() < MOST_WORDS && !is_known {
            self.words.push(word);
        }
    }
}

/// The needs that a query states, each as a text, and then what the query excludes. A camelCase name that is not a known
/// word becomes words joined by `_`.
pub(super) fn needs(query: &str, is_known: impl Fn(&str) -> bool) -> (Vec<String>, String) {
    let is_end = |c: char| c.is_whitespace() || "，。、；！？".contains(c);
    let query = prefix(query, LONGEST).to_owned();
    let pairs = REWRITTEN.split('|').filter_map(|pair| pair.split_once('>'));
    let query = pairs.fold(query, |query, (given, other)| query.replace(given, other));
    let words = query.split_inclusive(is_end);
    let words = words.map(str::trim).filter(|word| !word.is_empty());
    let plain = |word: &str| plain_letters(word.trim_matches(|c: char| !c.is_alphanumeric()));
    let said = words.map(|word| (word, plain(word)));
    let said: Vec<(&str, String)> = said.take(MOST_WORDS).collect();
    let is_in = |at: usize, list: &str| {
        let word = said.get(at).map(|(_, plain)| plain.as_str());
        list.split(' ').any(|other| Some(other) == word)
    };
    let ends = |word: &str| word.ends_with(|c| ",;.:!?，。、；！？".contains(c));
    let first = said.iter().take(4).position(|(word, _)| ends(word));
    // "No tests, write some" is about tests, "no tests, just types" is not.
    let begins = |end| is_in(end + 1, INSTEAD) || is_in(0, "don't don’t dont");
    let (mut needs, mut excluded, mut unwanted) = (vec![String::new()], String::new(), 0_usize);
    let mut begins = first.is_some_and(begins);
    for (at, (word, plain)) in said.iter().enumerate() {
        let after = at + 1 + usize::from(is_in(at + 1, "meant be intended made"));
        let negates = is_in(at, NOT) && (begins || word.starts_with('(') || is_in(after, NOT_FOR));
        let refuses = is_in(at, "don't don’t dont") && is_in(at + 1, "want need");
        let excludes = is_in(at, WITHOUT)
            || refuses && !(at + 2..at + 5).any(|at| is_in(at, "to you him her it this"))
            || is_in(at, "nothing") && is_in(at + 1, "about")
            || NOT_UNSPACED.split(' ').any(|not| word.contains(not));
        if negates || excludes || is_in(at, INSTEAD_OF[0]) && is_in(at + 1, INSTEAD_OF[1]) {
            unwanted = MOST_UNWANTED;
        } else if is_in(at, INSTEAD) {
            unwanted = 0;
        }
        if let (0, Some(need)) = (unwanted, needs.last_mut()) {
            let parted = without_camel_case(word, '_');
            need.push_str(if is_known(plain) { word } else { &parted });
            need.push(' ');
        } else {
            excluded += &format!("{word} ");
        }
        let ends = ends(word);
        begins = ends || is_in(at, BUT) || begins && is_in(at, "do please");
        let is_over = ends || word.ends_with(')');
        unwanted = if is_over {
            0
        } else {
            unwanted.saturating_sub(1)
        };
        if ends || is_in(at + 1, AND) {
            needs.push(String::new());
        }
    }
    needs.retain(|need| need.contains(char::is_alphanumeric));
    (needs, excluded)
}

/// The words of the [`FORMS`] that a query has.
fn forms(said: &[String]) -> Vec<&'static String> {
    let said = Vec::from_iter(said.iter().map(|word| numeral(word).to_owned()));
    let parts = (1..=LONGEST_FORM).flat_map(|length| said.windows(length));
    parts.filter_map(|part| FORMS.get(part)).flatten().collect()
}

/// The word, or `0` for any number.
fn numeral(word: &str) -> &str {
    word.parse::<u32>().map_or(word, |_| "0")
}

/// Whether a name, or a sentence, has one of these words or says the same: by a verb only if a name begins with it.
pub(super) fn has_any(of: &[Word], text: &str, is_name: bool) -> bool {
    words(text).iter().enumerate().any(|(at, word)| {
        let stem = stem(word);
        let counts = is_name && at == 0 || !LANGUAGE.weights.contains_key(&stem);
        of.iter().any(|one| {
            let mut meanings = one.stems.iter().chain(&one.foreign);
            is_name && one.text == *word || counts && meanings.any(|own| *own == stem)
        })
    })
}

/// Which words only frame the request: "a fabric pattern that …", "which prompt …", but not "improve a prompt".
fn frames(said: &[String], language: &Language) -> Vec<bool> {
    let is_ours =
        |word: &String| matches!(word.as_str(), "pattern" | "patterns" | "prompt" | "prompts");
    let mut frames = Vec::new();
    let (mut last_is_verb, mut has_verb) = (false, false);
    for (at, word) in said.iter().enumerate() {
        let is_ignored = language.ignored.contains(word.as_str());
        let is_verb = !is_ignored && language.verbs.contains(&stem(word));
        let before = at.checked_sub(1).map_or("", |before| &said[before]);
        let after = said.get(at + 1).map_or("", String::as_str);
        frames.push(if is_ours(word) && !last_is_verb {
            let is_introduced = matches!(before, "which" | "what" | "best" | "right" | "fabric");
            let goes_on = matches!(after, "to" | "for" | "that" | "which" | "who" | "can" | "i");
            is_introduced || goes_on || has_verb
        } else if word == "find" {
            said.iter().skip(at + 1).take(5).any(is_ours)
        } else {
            is_ignored
        });
        if !is_ignored {
            last_is_verb = is_verb;
            has_verb |= is_verb;
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(query: &str) -> String {
        let request = ParsedQuery::parse(query);
        let words = request.words.iter().map(|word| word.text.as_str());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_that_frame_a_request_say_nothing() {
        for (query, expected) in [
            ("a fabric pattern to summarize a text", "summarize text"),
            ("Which pattern extracts wisdom?", "extracts wisdom"),
            (
                "find me the best fabric prompt that can improve a prompt",
                "improve prompt",
            ),
            ("summarize an article, pattern", "summarize article"),
            ("extract patterns from data", "extract patterns data"),
            ("prompt injection", "prompt injection"),
            ("find patterns in data", "patterns data"),
            ("which pattern should I use", "which pattern should use"),
            ("text text texts", "text"),
            ("", ""),
        ] {
            assert_eq!(said(query), expected, "{query}");
        }
    }

    #[test]
    fn other_languages_are_read_by_their_words() {
        for (query, expected) in [
            ("Fasse diesen Artikel zusammen", "summar articl"),
            ("Résume cet article", "summar articl"),
            ("resume este texto", "summar text"),
            ("resuma o texto", "summar text"),
            ("总结这篇文章", "summar articl"),
        ] {
            let request = ParsedQuery::parse(query);
            let means = |stem: &str| {
                request.words.iter().any(|word| {
                    word.stems
                        .iter()
                        .chain(&word.foreign)
                        .any(|known| known == stem)
                })
            };
            assert!(expected.split(' ').all(means), "{query}");
        }
        assert_eq!(ParsedQuery::parse("my resume").words[0].stems[0], "resum");
    }

    #[test]
    fn a_query_states_needs_and_what_is_not_meant() {
        for (query, expected) in [
            ("analyzeMalware", "analyze_Malware"),
            ("a YouTube video", "a YouTube video"),
            ("an essay, not in his style", "an essay,"),
            ("cards, but not for Anki, please", "cards, | but | please"),
            ("an essay not for school", "an essay"),
            ("it isn't meant for code, не для кода", "it"),
            ("why is it not working", "why is it not working"),
            ("I don't want a summary, list it", "I | list it"),
            ("I don't want to watch it", "I don't want to watch it"),
            ("translate it instead of rating it", "translate it"),
            ("rate it, do not tweet it", "rate it, | do"),
            ("Don't tweet it, rate it", "rate it"),
            ("No summary. Just quotes.", "Just quotes."),
            ("keine Lieder, nur Zitate", "nur Zitate"),
            ("总结，不要翻译；写推文", "总结， | 写推文"),
            ("引用ではなく、要約して", "要約して"),
            ("翻訳せずに要約して", "要約して"),
            ("번역은 하지 마, 요약해 줘", "요약해 줘"),
            ("testo senza errori, nothing about X", "testo"),
            ("не резюме, а только цитаты", "а только цитаты"),
            ("No tests, write some", "No tests, | write some"),
            ("fix code and tweet it", "fix code | and tweet it"),
            ("cards (not Anki)", "cards"),
            ("I don't want songs", "I"),
            ("don't want my text to bore", "don't want my text to bore"),
            ("Karten statt einer Liste", "Karten"),
            ("un quiz au lieu d'un résumé", "un quiz au"),
            ("yorum, resumo sem citações", "yorum, | resumo"),
            ("写推文,而不是总结", "写推文,，"),
            ("퀴즈, 요약 대신", "퀴즈,"),
            ("", ""),
        ] {
            let (needs, _) = needs(query, |word| word == "youtube");
            let needs: Vec<&str> = needs.iter().map(|need| need.trim()).collect();
            assert_eq!(needs.join(" | "), expected, "{query}");
        }
    }

    #[test]
    fn a_request_has_few_words() {
        let many: String = (0..2000).map(|n| format!("w{n} ")).collect();
        for many in [many, String::from_iter('一'..='龥')] {
            assert!(ParsedQuery::parse(&many).words.len() <= MOST_WORDS);
        }
    }
}
