//! Whether an input is a text, or only names one, points to one, or asks for something to be done with one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::LazyLock;

use crate::search::{LANGUAGE, is_unspaced, plain_letters, shipped};
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

/// The lists that each word is in.
static LISTS_OF: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut lists_of = HashMap::<&str, Vec<&str>>::new();
    for (list, word) in LISTS.iter() {
        lists_of.entry(word).or_default().push(list);
    }
    lists_of
});

/// The words that stand for others too, which they are a part of or nearly like.
static PARTIAL: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let is_partial = |(list, word): &&(&str, &str)| match *list {
        "verbs" | "asks" => word.len() > 6 || word.starts_with(is_unspaced),
        list => word.starts_with(is_unspaced) || ["documents", "sources"].contains(&list),
    };
    LISTS.iter().filter(is_partial).copied().collect()
});

/// The lists of words that only stand for a text, and are no part of a request about something else.
const HOLES: &str = "stands beside points polite modal you pronouns asker places clipboard commands users orders questions finite";

fn is_of_request(list: &str) -> bool {
    HOLES.split(' ').all(|hole| hole != list)
}

/// The words of scripts without blanks, of all lists and of those of requests, the longest first.
static UNSPACED: LazyLock<[Vec<&str>; 2]> = LazyLock::new(|| {
    [false, true].map(|of_request| {
        let lists = LISTS
            .iter()
            .filter(|(list, _)| !of_request || is_of_request(list));
        let words = lists
            .map(|(_, word)| *word)
            .chain(LANGUAGE.foreign_ignored.iter().copied());
        let mut words = Vec::from_iter(words.filter(|word| word.starts_with(is_unspaced)));
        words.sort_by_key(|word| Reverse(word.len()));
        words
    })
});

/// What is given for no text.
const NONE: &str = "null|none|nil|undefined|n/a|tbd|nan|object object|lorem|ninguno|aucun|nessuno|brak|无|没有|なし|없음";

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
struct InputWord<'a> {
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
    // "0 3 * * * /bin/x.sh"
    if text.contains("* *") {
        return None;
    }
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
    // It may be megabytes long, and is in no list.
    let (text, lists) = (plain.as_str(), Vec::new());
    let whole = InputWord { text, lists }.thing().filter(|_| is_one);
    if whole.is_some() || is_long {
        return whole;
    }
    thing_of_request(&plain)
}

/// Whether a text is the path of a file, or its name.
fn is_file_name(text: &str) -> bool {
    let mut endings = LISTS.iter().filter(|(_, word)| word.starts_with('.'));
    let ending = endings.find(|(_, ending)| text.ends_with(ending));
    let is_file = ending.is_some();
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
    let is_document = in_title(end) && ending.is_some_and(|(list, _)| *list == "documents");
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
        let word = InputWord::new(text);
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
            is_alone &= text.ends_with(':') || word.is("joins definite these mine");
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

/// Whether a short text has none of its own: it stands where one should be ("{{input}}", "[paste text here]", "Input:",
/// "$(cat notes)"), points to one ("see above", "the user's article"), or asks for one to be worked on ("Summarize this").
pub(super) fn is_stand_in(text: &str) -> bool {
    let text = text.trim_matches(['"', '\'', '`']);
    let is_shell = text.starts_with("$(") && text.find([')', '"', '\'']) == Some(text.len() - 1);
    let is_between = |c: char| c.is_whitespace() || is_mark(c) || "{}$%_/|=#…&".contains(c);
    let plain = plain_letters(text);
    let words = plain.split(is_between).filter(|word| !word.is_empty());
    let words = Vec::from_iter(words.map(InputWord::new));
    // What is quoted or follows a colon is given.
    let mut given = [" '", " \"", " “", ": ", " = "].iter();
    let is_given = given.any(|mark| text.replace(": [", "").contains(mark));
    let is_pipe = text.ends_with('|') && words.first().is_some_and(|word| word.is("commands"));
    is_shell
        || is_pipe
        || is_argument(text)
        || !is_given && !words.is_empty() && {
            is_gap(text, &words) || is_request(text, &words) || is_pointer(text, &words)
        }
}

/// Whether a text is an argument or a flag instead: "pattern: summarize", "-p extract_wisdom", "input_text".
fn is_argument(text: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || "=:,\"'(".contains(c);
    let words = Vec::from_iter(text.split(is_between).filter(|word| !word.is_empty()));
    let is_name =
        |word: &str| word == "input_text" || word.contains('_') && shipped(word).is_some();
    let is_set = ["pattern:", "pattern=", "pattern_name:", "pattern_name="]
        .iter()
        .any(|start| text.starts_with(start));
    let is_flag = |word: &str| ["-p", "--pattern"].contains(&word);
    words.len() == 1 && is_name(words[0])
        || is_set && shipped(words[1..].first().unwrap_or(&"")).is_some()
        || words
            .windows(2)
            .any(|pair| is_flag(pair[0]) && shipped(pair[1]).is_some())
}

/// Whether a text is marked as the place of another.
fn is_gap(text: &str, words: &[InputWord<'_>]) -> bool {
    let is_within = |pair: &&str| {
        let rest = text.strip_prefix(|c| pair.starts_with(c));
        rest.is_some_and(|rest| rest.ends_with(|c| pair.ends_with(c)))
    };
    let is_shouted = text.contains('_') && text == text.to_uppercase();
    let is_marked = ["<>", "()", "[]", "{}", "【】", "［］", "＜＞", "（）"]
        .iter()
        .any(is_within)
        || is_shouted
        || is_placeholder(text)
        || text.ends_with([':', '：', '_']);
    is_marked && unknown(words) == 0 && has(words, "stands kinds verbs asks places")
}

/// Whether something is to be done with a text that is not there, or is asked about it.
fn is_request(text: &str, words: &[InputWord<'_>]) -> bool {
    let first = &words[0];
    let is_led = |lists| words.get(1).is_some_and(|word| word.is(lists));
    let is_asking = first.is("polite")
        || first.is("modal") && is_led("you")
        || first.is("asker") && is_led("asker modal");
    let is_of_user =
        has(words, "verbs") && has_pair(&words[..words.len().min(3)], "users", "asker");
    let is_question = text.ends_with(['?', '？']) && !is_asking || first.is("questions");
    if is_question {
        let is_at_hand = has(words, "these points attached");
        return is_at_hand && has(words, "kinds stands") && unknown(words) == 0;
    }
    let is_order = first.is("orders verbs asks unspaced");
    let begins = is_order
        || is_asking
        || is_of_user
        || first.is("these mine definite") && has(words, "verbs");
    let is_bare = has(words, "verbs") && (is_asking || is_of_user || first.is("verbs"));
    let is_short = words.len() < 4 && has_pair(words, "orders verbs asks", "kinds stands");
    let is_at_hand = has(words, "these mine points pronouns attached users");
    let is_about_it =
        is_bare || is_short || is_at_hand || has_pair(words, "definite", "kinds stands");
    // "Make it less robotic"
    let most = usize::from(is_order && is_led("these pronouns"));
    begins && has(words, "verbs asks unspaced orders") && is_about_it && unknown(words) <= most
}

/// Whether a text is no sentence, and only says which other is meant.
fn is_pointer(text: &str, words: &[InputWord<'_>]) -> bool {
    let has_end = text.ends_with('.') && !text.ends_with("..") && words.len() > 3;
    let is_sentence = has_end || text.ends_with(['?', '？']) || has(words, "finite");
    // A name is written as "The Post" is.
    let mut capitals = text.split([' ', '(']).filter(|word| !word.is_empty());
    let is_name = words.len() > 1 && capitals.all(|word| word.starts_with(char::is_uppercase));
    let pointing = "stands beside definite these mine points kinds joins verbs asks asker";
    let is_whole = has(words, "definite these mine") && words.iter().all(|word| word.is(pointing));
    let is_elsewhere = has(words, "places") && has(words, "asker you") || has(words, "clipboard");
    let is_at_hand =
        words.len() > 1 && (is_elsewhere || has(words, "attached")) && !has(words, "verbs");
    let is_text = (is_whole || is_at_hand) && has(words, "kinds stands places clipboard");
    // "The above" is a name in longer texts.
    let is_place = has(words, "points")
        && (has(words, "joins stands kinds places") || words.len() < 3 && has(words, "definite"));
    !is_sentence && !is_name && (is_text || is_place) && unknown(words) == 0
}

/// How many words are in no list.
fn unknown(words: &[InputWord<'_>]) -> usize {
    words.iter().filter(|word| !word.is_known()).count()
}

/// Whether a word is in one of these lists.
fn has(words: &[InputWord<'_>], lists: &str) -> bool {
    words.iter().any(|word| word.is(lists))
}

/// Whether a word of some lists is before one of others.
fn has_pair(words: &[InputWord<'_>], first: &str, second: &str) -> bool {
    let mut pairs = words.windows(2);
    pairs.any(|pair| pair[0].is(first) && pair[1].is(second))
}

/// What may stand around a word.
fn is_mark(c: char) -> bool {
    "\"'`()[]<>*,;:!?.-–—，。：？！、¿¡“”„«»‘’【】［］＜＞（）".contains(c)
}

/// As many letters of scripts without blanks as a word of others counts for.
const WORD: usize = 4;

impl InputWord<'_> {
    fn new(text: &str) -> InputWord<'_> {
        let parts = Vec::from_iter(text.split('-').map(|part| part.trim_matches(is_mark)));
        let exact = parts.iter().filter_map(|part| LISTS_OF.get(part)).flatten();
        let is_in = |(list, known): &&(&str, &str)| {
            parts.iter().any(|part| match *list {
                "unspaced" => part.starts_with(known) || part.ends_with(known),
                "documents" | "sources" => part.ends_with(known),
                // Two letters may be wrong, but not the first.
                "verbs" | "asks" if part.len() > 6 && known.len() > 6 => {
                    part.chars().next() == known.chars().next() && is_misspelled(part, known)
                }
                _ => known.starts_with(is_unspaced) && part.contains(known),
            })
        };
        let found = PARTIAL.iter().filter(is_in).map(|(list, _)| *list);
        // "Run extract_wisdom on …"
        let verb = (text.contains('_') && shipped(text).is_some()).then_some("verbs");
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let number = parts.iter().any(is_number).then_some("joins");
        let meanings = LANGUAGE.meanings(text).iter();
        let meant = meanings.filter_map(|name| LISTS_OF.get(name)).flatten();
        let lists = exact
            .chain(meant)
            .copied()
            .chain(found)
            .chain(verb)
            .chain(number);
        let lists = lists.collect();
        InputWord { text, lists }
    }

    /// Whether it is in one of these lists.
    fn is(&self, names: &str) -> bool {
        names.split(' ').any(|name| self.lists.contains(&name))
    }

    /// Whether all of it is known.
    fn is_known(&self) -> bool {
        match self.text.starts_with(is_unspaced) {
            true => self.unlisted(false) == 0,
            false => {
                !self.lists.is_empty() || self.said() == 0 || LANGUAGE.ignored.contains(self.text)
            }
        }
    }

    /// How much it says besides a request: a word, or the letters of scripts without blanks that are no part of one.
    fn said(&self) -> usize {
        if self.text.starts_with(is_unspaced) {
            return self.unlisted(true);
        }
        let bare = self.text.trim_matches(is_mark);
        let is_known = bare.is_empty() || LANGUAGE.foreign_ignored.contains(bare);
        WORD * usize::from(!is_known && !self.lists.iter().copied().any(is_of_request))
    }

    /// The number of its letters in scripts without blanks that are in no list, or in none of a request.
    fn unlisted(&self, of_request: bool) -> usize {
        let known = UNSPACED[usize::from(of_request)].iter();
        let rest = known.fold(self.text.to_owned(), |rest, known| {
            match rest.contains(known) {
                true => rest.replace(known, ""),
                false => rest,
            }
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
