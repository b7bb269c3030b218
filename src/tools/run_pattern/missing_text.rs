//! Whether an input is a text, or only names one, points to one, or asks for something to be done with one.

use std::sync::LazyLock;

use crate::search::{LANGUAGE, is_unspaced, known, plain_letters};
use crate::text::{is_invisible, is_misspelled, is_placeholder};

/// How links begin.
const SCHEMES: &str =
    "https:// http:// www. ftp:// sftp:// s3:// gs:// magnet:? mailto: data:text/";

/// Longest text that may be nothing but a request, in characters.
pub(super) const SHORT: usize = 200;

/// The words that such inputs are made of, each after the name of a list that it is in.
static LISTS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lists = include_str!("requests.txt").lines();
    let lists = lists.filter_map(|line| line.split_once(": "));
    let words = lists.map(|(list, words)| words.split(' ').map(move |word| (list, word)));
    words.flatten().collect()
});

/// The lists of words that only stand for a text, and are no part of a request about something else.
const HOLES: [&str; 6] = ["stands", "beside", "points", "polite", "pronouns", "asker"];

/// What is given for no text.
const NONE: &str = "null|none|nil|undefined|n/a|tbd|nan|object object";

/// What an input may contain besides words. The later in this list, the clearer it is that something is to be done with
/// it: texts about software mention source files, and the addresses of whole sites, without asking for that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Attachment,
    Source,
    Site,
    Link,
    File,
}

/// A word of an input, with the lists that it, or a part of it, is in.
struct Word<'a> {
    text: &'a str,
    lists: Vec<&'static str>,
}

/// The only thing that a text is about, if it is the path of that, or hardly says anything else.
pub(super) fn only_thing(text: &str) -> Option<Thing> {
    let is_long = text.chars().nth(SHORT).is_some();
    // Links and paths may be long.
    if is_long && (!text.is_ascii() || text.contains(char::is_whitespace)) {
        return None;
    }
    // "[title](link)" is two words.
    let text = &text.replace("](", " ").replace("href=", " ");
    let text = text.trim_matches(|c| "\"'`<>[]()$@“”«»".contains(c));
    if is_file_name(text) {
        return Some(Thing::File);
    }
    let plain = plain_letters(text);
    // "fetch('https://…')"
    let is_call = |(at, _): (usize, &str)| text[..at].ends_with(char::is_alphanumeric);
    let mut quotes = ["('", "(\""].iter();
    if quotes.any(|quote| text.match_indices(quote).any(is_call)) {
        return None;
    }
    // In scripts whose words are parted below, too.
    let is_one = !text.contains(char::is_whitespace) && text.matches('/').count() > 1;
    let whole = Word::new(&plain).thing().filter(|_| is_one);
    whole.or_else(|| thing_of_request(&plain).filter(|_| !is_long))
}

/// Whether a text is the path of a file, or its name.
fn is_file_name(text: &str) -> bool {
    let mut endings = LISTS.iter().filter(|(_, word)| word.starts_with('.'));
    let is_file = endings.any(|(_, ending)| text.ends_with(ending));
    // Paths may have blanks.
    let is_path = match text.as_bytes() {
        [b'\\', b'\\', ..] => true,
        [disk, b':', b'/' | b'\\', ..] => {
            disk.is_ascii_alphabetic()
                && (is_file || !text.contains('>') && text.matches(' ').count() < 3)
        }
        [b'/', ..] | [b'~' | b'.', b'/', ..] | [b'.', b'.', b'/', ..] => is_file,
        _ => false,
    };
    // Names of files may have blanks too, if they have a number and are written like titles.
    let in_title = |word: &str| word.starts_with(|c: char| c.is_uppercase() || !c.is_alphabetic());
    let is_title = text.contains(' ') && text.rsplit(' ').skip(1).all(in_title);
    let (start, end) = text.rsplit_once([' ', '(']).unwrap_or_default();
    let is_copy = start.contains(char::is_numeric) || end.contains(").");
    let is_numbered = is_copy && end.starts_with(char::is_numeric);
    let is_document = in_title(end) && Word::new(end).is("documents");
    let is_sure = is_document || text.contains(char::is_numeric);
    let is_name = is_file && (is_title && is_sure || is_numbered);
    is_path && !text.contains('\n') || is_name && !text.contains(['\n', ':', '"', '?'])
}

/// The clearest thing in a text that hardly says anything else: it may have two words of no list if it has one of the
/// `verbs`, one if it has another word that asks for something, and none otherwise. It takes a clearer request if the
/// thing itself is less clear.
fn thing_of_request(plain: &str) -> Option<Thing> {
    // "l'article" is two words, and what is in a script without blanks is a word.
    let plain = plain.replace(['\'', '’'], "' ");
    let plain = Vec::from_iter(plain.chars());
    let parts = plain.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b) || *b == '.');
    let parts = Vec::from_iter(parts.map(String::from_iter)).join(" ");
    let (mut found, mut letters, mut asks, mut is_alone) = (None, 0, 0, true);
    let (mut is_led, mut last) = (false, "");
    // The points of a list say nothing.
    let words = parts.split_whitespace();
    for text in words.filter(|text| !["-", "*", "•"].contains(text)) {
        let word = Word::new(text);
        // In parentheses, a link is a source.
        let thing = word.thing();
        let thing = thing.filter(|thing| *thing != Thing::Link || !text.starts_with('('));
        // What follows a colon or is quoted may be what is asked about.
        let is_given = last.ends_with(':') || text.starts_with(['"', '\'', '“', '„', '«']);
        if is_given && thing < Some(Thing::Source) {
            return None;
        }
        found = found.max(thing);
        is_led |= thing >= Some(Thing::Link) && letters == 0 && asks > 1 && !is_given;
        if thing.is_none() || text.starts_with(is_unspaced) {
            is_alone &= text.ends_with(':') || word.is("joins definite");
            // The name of a file says nothing; what follows a clear request mostly says how.
            let said = usize::from(thing < Some(Thing::File)) * word.said();
            letters += if is_led { said / 2 } else { said };
            let is_asking = usize::from(word.is("asks unspaced"));
            asks = asks.max(if word.is("verbs") { 2 } else { is_asking });
        }
        last = text;
    }
    let is_clear = is_alone || found >= Some(Thing::Link);
    found.filter(|_| letters / WORD + usize::from(!is_clear) <= asks)
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

/// Whether a short text has none of its own: it only stands where one should be ("{{input}}", "[paste text here]", "Input:",
/// "$(cat notes)"), points to one ("see above", "the user's article"), or asks for one to be worked on ("Summarize this").
pub(super) fn is_stand_in(text: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || is_mark(c) || "{}$%_/".contains(c);
    let plain = plain_letters(text);
    let words = plain.split(is_between).filter(|word| !word.is_empty());
    let words = Vec::from_iter(words.map(Word::new));
    let has = |wanted| words.iter().any(|word| word.is(wanted));
    let has_only = |wanted| words.iter().all(|word| word.is(wanted));
    let is_command = text.starts_with("$(") && text.find([')', '"', '\'']) == Some(text.len() - 1);
    let is_marked = is_placeholder(&text.replace(' ', "_")) || text.ends_with([':', '：']);
    let is_value = (is_marked || text.starts_with('$')) && has("stands");
    if is_command || is_value && has_only("stands beside") {
        return true;
    }
    // What is quoted or follows a colon is given.
    let mut given = [" '", " \"", " “", ": "].iter();
    if words.is_empty() || given.any(|mark| text.contains(mark)) {
        return false;
    }
    // "Summarize document", "I want you to summarize this article", and not "The user summarizes a document".
    let is_certain = |pair: &[Word<'_>]| pair[0].is("definite verbs") && pair[1].is("kinds");
    let said = words.iter().map(Word::said).sum::<usize>();
    if has("verbs") && said < WORD && words.windows(2).any(is_certain) {
        return true;
    }
    // A name is written as "The Post" is.
    let mut capitals = text.split([' ', '(']).filter(|word| !word.is_empty());
    let is_name = words.len() > 1 && capitals.all(|word| word.starts_with(char::is_uppercase));
    if is_name || !words.iter().all(Word::is_known) {
        return false;
    }
    let pointing = "stands beside definite points kinds verbs joins";
    let is_pointer =
        has("definite") && has("stands kinds") || has("points") && has("joins stands kinds");
    let asking = format!("{pointing} polite pronouns asker asks unspaced around attached");
    let is_about_it = words.len() == 1 && words[0].is_verb() || has("definite points pronouns");
    let is_request = has("verbs") && is_about_it && words[0].is("verbs polite");
    is_pointer && has_only(pointing) || is_request && has_only(&asking)
}

/// What may stand around a word.
fn is_mark(c: char) -> bool {
    "\"'`()[]<>*,;:!?.-–—，。：？！、¿¡“”„«»‘’".contains(c)
}

/// As many letters of scripts without blanks as a word of others counts for.
const WORD: usize = 4;

impl Word<'_> {
    fn new(text: &str) -> Word<'_> {
        let parts = Vec::from_iter(text.split('-').map(|part| part.trim_matches(is_mark)));
        let is_in = |(list, known): &&(&str, &str)| {
            parts.iter().any(|part| match *list {
                "unspaced" => part.starts_with(known) || part.ends_with(known),
                "documents" | "sources" => part.ends_with(known),
                // A letter has at most two bytes, and two may be wrong.
                "verbs" if part.len() > 6 && known.len() > 6 => {
                    part.len().abs_diff(known.len()) < 5 && is_misspelled(part, known)
                }
                "joins" if part.starts_with(char::is_numeric) => {
                    part.bytes().all(|b| b.is_ascii_digit())
                }
                _ => part == known || known.starts_with(is_unspaced) && part.contains(known),
            })
        };
        // "Run extract_wisdom on …"
        let verb = (text.contains('_') && known(text).is_some()).then_some("verbs");
        let found = LISTS.iter().filter(is_in).map(|(list, _)| *list);
        let lists = found.chain(verb).collect();
        Word { text, lists }
    }

    /// Whether it is in one of these lists.
    fn is(&self, names: &str) -> bool {
        names.split(' ').any(|name| self.lists.contains(&name))
    }

    /// Whether it is a verb and no noun, such as "要約", and does not only resemble a verb.
    fn is_verb(&self) -> bool {
        LISTS.contains(&("verbs", self.text)) && self.lists.iter().all(|list| *list == "verbs")
    }

    /// Whether all of it is known, if it is in a script without blanks.
    fn is_known(&self) -> bool {
        !self.text.starts_with(is_unspaced) || self.unlisted(|_| true) == 0
    }

    /// How much it says besides a request: a word, or the letters of scripts without blanks that are no part of one.
    fn said(&self) -> usize {
        let of_request = |list: &str| !HOLES.contains(&list);
        if self.text.starts_with(is_unspaced) {
            return self.unlisted(of_request);
        }
        let bare = self.text.trim_matches(is_mark);
        let is_known = bare.is_empty() || LANGUAGE.foreign_ignored.contains(bare);
        WORD * usize::from(!is_known && !self.lists.iter().any(|list| of_request(list)))
    }

    /// The number of its letters in scripts without blanks that are in none of some lists.
    fn unlisted(&self, counts: impl Fn(&str) -> bool) -> usize {
        let known = LISTS.iter().filter(|(list, _)| counts(list));
        let known = known.filter(|(_, known)| known.starts_with(is_unspaced));
        let rest = known.fold(self.text.to_owned(), |rest, (_, known)| {
            rest.replace(known, "")
        });
        rest.chars().filter(|c| is_unspaced(*c)).count()
    }

    /// What it names outside of the text.
    fn thing(&self) -> Option<Thing> {
        let word = self.text.trim_matches(is_mark);
        let (host, page) = word.split_once('/').unwrap_or_default();
        let is_host = host.starts_with(char::is_alphanumeric) && host.contains('.');
        let mut starts = SCHEMES.split(' ');
        if is_host && !page.is_empty() || starts.any(|start| word.starts_with(start)) {
            let slashes = word.trim_end_matches('/').matches('/').count();
            let has_path = slashes > 2 || !word.contains("://");
            return Some(if has_path { Thing::Link } else { Thing::Site });
        }
        let path = word.trim_start_matches(['~', '.']).strip_prefix('/');
        let (name, ending) = word.rsplit_once('.').unwrap_or_default();
        let is_path = path.is_some_and(|path| path.starts_with(char::is_alphabetic))
            || name.contains('/') && ending.ends_with(char::is_alphabetic)
            || word.starts_with("file://")
            || word.get(1..3) == Some(":\\");
        let named = self.lists.iter().filter_map(|list| match *list {
            "documents" => Some(Thing::File),
            "sources" => Some(Thing::Source),
            "attached" => Some(Thing::Attachment),
            _ => None,
        });
        named.chain(is_path.then_some(Thing::Source)).max()
    }
}
