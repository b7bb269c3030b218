//! Whether an input is a text, or only names one, points to one, or asks for something to be done with one.
//!
//! The words of a short input are looked up in the lists of `requests.txt`. Words of some lists are evidence that the text
//! itself is missing: a request such as "summarize", "this" and "my", "clipboard" and "above", "attached", a file, a link.
//! Each list that the input has words of gives two points, whatever their number, but only one if other texts have such
//! words as well: "make", "this", "the text". A request together with a link or a document gives two more, and one with
//! "this text" one more. Other words are content: those of no list, and what makes a sentence, such as "because".
//! So is what is quoted or follows a colon. Letters of scripts without blanks are a quarter of a word each. The rest, such
//! as "of", "please" and "short", are neither.
//!
//! An input is refused if it has two points, and two more for each word of content: "Summarize my report" has five and no
//! content; "Summarize my report on bees and wasps" has five and two words of content, and is run.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use crate::runs::RunId;
use crate::search::{LANGUAGE, is_unspaced, plain_letters, runs, shipped};
use crate::text::{is_invisible, is_placeholder};

/// How links begin.
const SCHEMES: &str =
    "https:// http:// www. ftp:// sftp:// s3:// gs:// magnet:? mailto: data:text/";
/// How the addresses of files begin.
const FILES: &str = "file: sandbox: attachment:";

/// Longest text that may be nothing but a request, in characters.
pub(super) const SHORT: usize = 200;

/// Longest link or path, in bytes.
const LONGEST: usize = 8 << 10;

/// Most letters of a word in a script without blanks.
const UNSPACED: usize = 8;

/// As many letters of scripts without blanks as a word of others counts for.
const WORD: usize = 4;

/// How many points of evidence refuse an input, and how many more it takes for each word of content.
const ENOUGH: usize = 2;

/// What is given for no text.
const NONE: &str = "null|none|nil|undefined|%s|n/a|tbd|nan|object object|lorem|ninguno|aucun|nessuno|brak|无|没有|なし|없음";

/// The list that each word is in. A word that ends with "-" stands for all that begin with it.
static LIST_OF: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lists = include_str!("requests.txt").lines();
    let lists = lists.filter_map(|line| line.split_once(": "));
    let words = lists.map(|(list, words)| words.split(' ').map(move |word| (word, list)));
    words.flatten().collect()
});

/// What is missing: a file, what a link leads to, or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missing {
    Text,
    Link,
    File,
}

/// A word of an input, or a letter of a script without blanks: the list that it is in, if any, and how much it says.
struct InputWord {
    list: &'static str,
    content: usize,
}

impl InputWord {
    fn new(list: &'static str, text: &str) -> InputWord {
        let is_letter = text.starts_with(is_unspaced) || !text.contains(char::is_alphanumeric);
        let content = match list {
            "" | "says" | "be" if is_letter => 1,
            "" | "says" | "be" => WORD,
            "given" => 2 * WORD,
            _ => 0,
        };
        InputWord { list, content }
    }

    /// Whether it is in one of these lists.
    fn is(&self, lists: &str) -> bool {
        lists.split(' ').any(|list| list == self.list)
    }

    /// What it names outside of the text.
    fn missing(&self) -> Missing {
        match self.list {
            "documents" | "sources" | "attached" => Missing::File,
            "links" | "sites" => Missing::Link,
            _ => Missing::Text,
        }
    }
}

/// What is missing, if an input is no text. `may_be_sentence`: for a pattern that translates or improves, a sentence that
/// speaks of a file or another text is the text itself, unless it asks for that.
pub(super) fn missing(text: &str, may_be_sentence: bool) -> Option<Missing> {
    let is_short = text.chars().nth(SHORT).is_none();
    // Links and paths may be long.
    let may_be_path = |text: &str| text.is_ascii() && !text.contains(char::is_whitespace);
    if !is_short && (text.len() > LONGEST || !may_be_path(text)) {
        return None;
    }
    let text = text.trim_start_matches("* ");
    let quotes = ['"', '\'', '`'];
    let opened = text.strip_prefix(quotes);
    let bare = opened.and_then(|text| text.strip_suffix(quotes));
    let bare = bare.unwrap_or(text);
    if is_short && is_file_name(bare) {
        return Some(Missing::File);
    }
    // "[title](link)" is two words.
    let plain = plain_letters(&bare.replace("](", " ").replace("href=", " "));
    let words = match is_short {
        true => words(&plain),
        false => Vec::from_iter(named(&plain)),
    };
    // As a name has one, it has blanks here; "ai" is a text.
    let name = plain.trim_end_matches('.').replace(' ', "_");
    let is_name = name.contains('_') && shipped(&name).is_some();
    let is_shell = bare.starts_with("$(") && bare.find([')', '"', '\'']) == Some(bare.len() - 1);
    let is_missing = is_shell || is_name || is_evident(&words, is_marked(text), may_be_sentence);
    let missing = words.iter().map(InputWord::missing).max();
    missing.filter(|_| is_missing)
}

/// Whether there is enough evidence. A request counts where a text begins or ends with it, unless it hardly stands
/// elsewhere, and a kind of text where "the" or "this" is before it, or the whole text is marked as the place of another.
/// In a question about this text or a document, "is" is no content, nor is a word such as "news" in "this news article".
fn is_evident(words: &[InputWord], is_marked: bool, may_be_sentence: bool) -> bool {
    let is_polite = |word: &InputWord| word.is("polite modal");
    let first = words.iter().position(|word| !is_polite(word));
    let last = words.iter().rposition(|word| !is_polite(word));
    let begins = |lists: &str| first.is_some_and(|at| words[at].is(lists));
    let asks_first = begins("work ask") || !may_be_sentence && begins("be notice");
    let asks_last = last.is_some_and(|at| words[at].is("ask"));
    let (mut evidence, mut is_led) = (BTreeSet::new(), false);
    let (mut content, mut questions) = (0, 0);
    for (at, word) in words.iter().enumerate() {
        let is_next = |lists| words.get(at + 1).is_some_and(|next| next.is(lists));
        let is_kind =
            asks_first && word.list.is_empty() && words[at - 1].is("this") && is_next("text");
        match word.list {
            "modal" if !asks_first || first < Some(at) => content += WORD,
            "be" if evidence.contains("the text") && is_next("attached here") => {}
            "be" => questions += word.content,
            "text" => {
                evidence.extend(is_marked.then_some("place"));
                evidence.extend(is_led.then_some("the text"));
            }
            "" if is_kind => {}
            "" | "says" | "given" => content += word.content,
            "the" | "polite" | "modal" | "other" | "ask" | "notice" => {}
            list => _ = evidence.insert(list),
        }
        is_led = word.is("the this") || is_led && (is_kind || word.is("other attached here"));
    }
    let asks = asks_first || asks_last;
    let is_of_it =
        asks && !may_be_sentence && evidence.contains("this") && evidence.contains("the text");
    // "Is this code safe?" asks, "Is example.org down?" does not ask of a text.
    let is_request = asks && !begins("work") && (is_of_it || !begins("be"));
    evidence.extend(is_request.then_some("ask"));
    let has = |lists: &str| lists.split(' ').any(|list| evidence.contains(list));
    let asks_of = |lists: &str| has("work ask") && has(lists);
    let things = "links sites documents sources";
    if may_be_sentence && !has("work ask place") && words.iter().any(|word| !word.is(things)) {
        return false;
    }
    if !asks_first || !is_of_it && (may_be_sentence || !has("documents")) {
        content += questions;
    }
    let points = evidence.iter().map(|list| match *list {
        // "The content of the article" has no more; "The Article" may be a title.
        "the text" if content == 0 && words.len() > 2 => 2,
        "ask" | "this" | "the text" => 1,
        _ => 2,
    });
    let points =
        points.sum::<usize>() + 2 * usize::from(asks_of("links documents")) + usize::from(is_of_it);
    WORD * points >= ENOUGH * (WORD + content)
}

/// Whether a text is the path of a file, or its name, with blanks in it.
fn is_file_name(text: &str) -> bool {
    let (start, end) = text.rsplit_once(' ').unwrap_or_default();
    let Some(list) = ending(end).filter(|_| !text.contains(['\n', '"', '?'])) else {
        return false;
    };
    let is_part = |word: &str| word.starts_with(|c: char| c.is_uppercase() || !c.is_alphabetic());
    let is_title = list == "documents" && text.split(' ').all(is_part);
    let is_numbered = start.contains(char::is_numeric) && end.starts_with(char::is_numeric);
    let mut folders = start.split(' ');
    let first = folders.next().unwrap_or_default();
    let is_path = first.contains(['/', '\\']) && folders.count() < 3;
    is_path || !text.contains(": ") && (is_title || is_numbered || end.starts_with('('))
}

/// Whether a text is marked as the place of another: "{{input}}", "[paste text here]", "Input:", "YOUR_TEXT".
fn is_marked(text: &str) -> bool {
    let is_in_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    let is_within = text.starts_with(['【', '［', '＜', '（']);
    is_within && text.ends_with(['】', '］', '＞', '）'])
        || is_placeholder(text)
        || text.ends_with([':', '：', '_'])
        || text.contains('_') && text.chars().all(is_in_name)
}

/// Whether a text says nothing: it has only marks, or is "null" or the like.
pub(super) fn is_none(text: &str) -> bool {
    let is_around = |c| is_mark(c) || c.is_whitespace() || is_invisible(c) || "{}…".contains(c);
    match text.trim_matches(is_around) {
        "" => !text.contains([':', '?', '!']),
        // "Todo" is everything in Spanish.
        said => said == "TODO" || NONE.split('|').any(|none| none.eq_ignore_ascii_case(said)),
    }
}

/// The words of a text, and what it names instead of containing it.
fn words(text: &str) -> Vec<InputWord> {
    let (mut words, mut last, mut is_given) = (Vec::new(), "", false);
    for piece in text.split_whitespace() {
        let is_quoted = piece.starts_with(['"', '\'', '“', '„', '«', '「']);
        let named = named(piece);
        // What follows "Explain:" is content, but what follows "Title: [title]" is not.
        let is_value = last.ends_with([':', '：', '=']) && !piece.starts_with(['[', '<', '{']);
        is_given |= is_value;
        last = piece;
        if let Some(word) = named {
            words.push(word);
        } else if is_given || is_quoted || piece.trim_matches(['*', '=', '|']).is_empty() {
            words.push(InputWord::new("given", piece));
        } else if let Some(list) = LIST_OF.get(piece.trim_matches(is_mark)) {
            let is_place = is_placeholder(piece) && *list == "text";
            words.push(InputWord::new(if is_place { "place" } else { list }, piece));
        } else {
            let letters = Vec::from_iter(piece.chars());
            let parts = letters.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b));
            for part in parts.map(String::from_iter) {
                match self::named(&part) {
                    Some(word) => words.push(word),
                    None => runs(&part).iter().for_each(|run| add(run, &mut words)),
                }
            }
        }
    }
    words
}

/// Adds a word, or the words of a script without blanks, the longest that are known first.
fn add(run: &str, words: &mut Vec<InputWord>) {
    let mut rest = run;
    while let Some(first) = rest.chars().next() {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
        let (ends, least) = match is_unspaced(first) {
            true => (Vec::from_iter(ends.take(UNSPACED)), first.len_utf8()),
            false => (vec![rest.len()], rest.len()),
        };
        let mut found = ends.iter().rev().map(|end| (list_of(&rest[..*end]), *end));
        let found = found.find_map(|(list, end)| Some((list?, end)));
        let (list, end) = found.unwrap_or(("", least));
        words.push(InputWord::new(list, &rest[..end]));
        rest = &rest[end..];
    }
}

/// The list of a word: its own, that of words that begin like it, or that of what it means in another language.
fn list_of(word: &str) -> Option<&'static str> {
    let is_spaced = !word.starts_with(is_unspaced);
    let ends = word.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    let ends = ends.filter(|_| is_spaced);
    let heads = ends.map(|end| format!("{}-", &word[..end]));
    let mut lists = heads.filter_map(|head| LIST_OF.get(&*head));
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    let is_ignored = || LANGUAGE.ignored.contains(word) || LANGUAGE.foreign_ignored.contains(word);
    let meanings = || LANGUAGE.meanings(word).iter();
    let meant = || meanings().find_map(|name| LIST_OF.get(name));
    let list = LIST_OF.get(word).or_else(|| lists.next()).or_else(meant);
    list.copied()
        .or_else(|| (is_number || is_ignored()).then_some("other"))
}

/// What is known by more than its letters: a link, a file, the name of a pattern or the id of a run.
fn named(piece: &str) -> Option<InputWord> {
    let is_pattern = piece.contains('_') && shipped(piece.trim_matches(is_mark)).is_some();
    let list = thing(piece).or(is_pattern.then_some("work"));
    let list = list.or(RunId::parse(piece).map(|_| "here"));
    list.map(|list| InputWord::new(list, piece))
}

/// The list of what a piece of a text names outside of it.
fn thing(piece: &str) -> Option<&'static str> {
    let word = piece.trim_matches(|c| is_mark(c) || "{}$@".contains(c));
    // "fetch('https://…')" and "<a href='https://…'></a>"
    let word = word.split("('").next().unwrap_or_default();
    let word = word.split('"').next().unwrap_or_default();
    let begins = |starts: &str| starts.split(' ').any(|start| word.starts_with(start));
    let ending = ending(word);
    let (host, page) = word.split_once('/').unwrap_or_default();
    let is_in_host = |c: char| c.is_alphanumeric() || "-.:".contains(c);
    let is_host = host.contains('.') && host.chars().all(is_in_host) && !page.is_empty();
    if begins(FILES) {
        return Some("documents");
    } else if begins(SCHEMES) || is_host && ending.is_none() {
        let slashes = word.trim_end_matches('/').matches('/').count();
        let has_path = slashes > 2 || !word.contains("://");
        return Some(if has_path { "links" } else { "sites" });
    }
    let path = word.trim_start_matches(['~', '.']).strip_prefix('/');
    let (name, end) = word.rsplit_once('.').unwrap_or_default();
    let is_disk = word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.len() > 3;
    let is_path = path.is_some_and(|path| path.starts_with(char::is_alphabetic))
        || name.contains('/') && end.len() < 6 && end.ends_with(|c: char| c.is_ascii_alphabetic())
        || is_disk && [Some(":\\"), Some(":/")].contains(&word.get(1..3))
        || word.starts_with("\\\\");
    ending.or(is_path.then_some("sources"))
}

/// The list of the ending of a file's name.
fn ending(word: &str) -> Option<&'static str> {
    let ending = word.rfind('.').filter(|at| *at > 0 || word.len() > 3)?;
    LIST_OF.get(&*word[ending..].to_lowercase()).copied()
}

/// What may stand around a word.
fn is_mark(c: char) -> bool {
    "\"'`()[]<>*,;:!?.-–—，。：？！、¿¡“”„«»‘’【】［］＜＞（）".contains(c)
}
