//! Words of a text or a name: in lower case, without accents, split where a reader splits them.
//!
//! In scope: word boundaries in any script, and stop words. Not in scope: inflection (`stem`).

/// Longest word, in characters; longer ones are cut.
const LONGEST: usize = 32;

/// How a word relates to its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordKind {
    /// The text between two separators, in text order.
    Whole,
    /// A part of the whole word that follows it: `graph` of `GraphViz`, `10` of `top10`.
    Piece,
}

/// Passes the words of `text` to `each` in order, until it returns false. Linear in time and memory.
pub(super) fn words(text: &str, mut each: impl FnMut(&str, WordKind) -> bool) {
    let mut chars = text.chars().peekable();
    let mut word = Word::default();
    while let Some(c) = chars.next() {
        let is_mark = matches!(c, '\u{300}'..='\u{36f}');
        if c.is_alphanumeric() || is_mark {
            if is_unspaced(c) != word.is_unspaced && !word.is_empty() && !word.end(&mut each) {
                return;
            }
            word.is_unspaced = is_unspaced(c);
            if !is_mark {
                word.push(c);
            }
            continue;
        }
        if word.is_empty() {
            continue;
        }
        if !word.end(&mut each) {
            return;
        }
        if matches!(c, '\'' | '’') {
            // The rest of `it's`, `don't` and `they'll` is not a word.
            let tail: String = chars
                .clone()
                .take(3)
                .take_while(|c| c.is_alphanumeric())
                .collect();
            if tail.chars().count() < 3 {
                chars.by_ref().take(tail.chars().count()).for_each(drop);
            }
        }
    }
    if !word.is_empty() {
        word.end(&mut each);
    }
}

/// The whole words of a short text.
pub(super) fn whole_words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    words(text, |word, kind| {
        if kind == WordKind::Whole {
            found.push(word.to_owned());
        }
        true
    });
    found
}

/// Scripts without spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The current word.
#[derive(Default)]
struct Word {
    /// Folded.
    text: String,
    /// Number of characters kept.
    chars: usize,
    /// Where pieces begin, except the first.
    cuts: Vec<usize>,
    last: Option<Class>,
    /// Where the last character begins.
    last_at: usize,
    is_unspaced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
}

impl Word {
    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn push(&mut self, c: char) {
        if self.chars >= LONGEST && !self.is_unspaced {
            return;
        }
        let class = match c {
            c if c.is_numeric() => Class::Digit,
            c if c.is_uppercase() => Class::Upper,
            _ => Class::Lower,
        };
        match (self.last, class) {
            (Some(Class::Lower), Class::Upper)
            | (Some(Class::Digit), Class::Lower | Class::Upper) => {
                self.cuts.push(self.text.len());
            }
            (Some(Class::Lower | Class::Upper), Class::Digit) => self.cuts.push(self.text.len()),
            // `PDFFile`: the last capital belongs to the next piece.
            (Some(Class::Upper), Class::Lower)
                if self.last_at > self.cuts.last().copied().unwrap_or(0) =>
            {
                self.cuts.push(self.last_at);
            }
            _ => {}
        }
        (self.last, self.last_at) = (Some(class), self.text.len());
        self.chars += 1;
        for lower in c.to_lowercase() {
            match folded(lower) {
                Some(plain) => self.text.push_str(plain),
                None if !matches!(lower, '\u{300}'..='\u{36f}') => self.text.push(lower),
                None => {}
            }
        }
    }

    /// Passes on the word and its pieces, and starts the next.
    fn end(&mut self, each: &mut impl FnMut(&str, WordKind) -> bool) -> bool {
        let goes_on = if self.is_unspaced {
            self.pairs(each)
        } else {
            self.tell(each)
        };
        self.text.clear();
        self.cuts.clear();
        (self.chars, self.last) = (0, None);
        goes_on
    }

    fn tell(&self, each: &mut impl FnMut(&str, WordKind) -> bool) -> bool {
        if !self.cuts.is_empty() {
            let starts = std::iter::once(0).chain(self.cuts.iter().copied());
            let ends = self
                .cuts
                .iter()
                .copied()
                .chain(std::iter::once(self.text.len()));
            for piece in starts
                .zip(ends)
                .filter_map(|(start, end)| self.text.get(start..end))
            {
                let is_worth = piece.len() > 2 || piece.bytes().all(|b| b.is_ascii_digit());
                if is_worth && !each(piece, WordKind::Piece) {
                    return false;
                }
            }
        }
        // A single letter means nothing.
        (self.text.len() == 1 && self.text.bytes().all(|b| b.is_ascii_lowercase()))
            || each(&self.text, WordKind::Whole)
    }

    /// In scripts without spaces, every two neighbours are a word.
    fn pairs(&self, each: &mut impl FnMut(&str, WordKind) -> bool) -> bool {
        let ends: Vec<usize> = self
            .text
            .char_indices()
            .map(|(at, _)| at)
            .chain([self.text.len()])
            .collect();
        if ends.len() == 2 {
            return each(&self.text, WordKind::Whole);
        }
        ends.windows(3).all(|pair| {
            self.text
                .get(pair[0]..pair[2])
                .is_none_or(|pair| each(pair, WordKind::Whole))
        })
    }
}

/// The text in lower case, Latin letters without their accents.
pub(super) fn plain_letters(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text
        .chars()
        .flat_map(char::to_lowercase)
        .filter(|c| !matches!(c, '\u{300}'..='\u{36f}'))
    {
        match folded(c) {
            Some(letters) => plain.push_str(letters),
            None => plain.push(c),
        }
    }
    plain
}

/// Latin letters without their accents.
fn folded(c: char) -> Option<&'static str> {
    Some(match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' => "d",
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'ğ' => "g",
        'ì'..='ï' | 'ī' | 'į' | 'ı' => "i",
        'ł' => "l",
        'ñ' | 'ń' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'œ' => "oe",
        'ř' => "r",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'ß' => "ss",
        'ť' | 'ţ' | 'ț' => "t",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => "u",
        'ý' | 'ÿ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => return None,
    })
}

/// Words without meaning for a task. Sorted.
const STOP: &[&str] = &[
    "a",
    "able",
    "about",
    "after",
    "again",
    "all",
    "already",
    "also",
    "always",
    "am",
    "an",
    "and",
    "another",
    "any",
    "anybody",
    "anyone",
    "anything",
    "are",
    "as",
    "ask",
    "asked",
    "asks",
    "at",
    "be",
    "because",
    "been",
    "before",
    "being",
    "best",
    "between",
    "both",
    "but",
    "by",
    "can",
    "cannot",
    "could",
    "day",
    "dear",
    "did",
    "do",
    "does",
    "doing",
    "don",
    "done",
    "down",
    "each",
    "either",
    "else",
    "etc",
    "every",
    "everything",
    "few",
    "for",
    "from",
    "get",
    "gets",
    "getting",
    "give",
    "given",
    "gives",
    "go",
    "goes",
    "going",
    "good",
    "got",
    "had",
    "has",
    "have",
    "having",
    "he",
    "hello",
    "help",
    "helps",
    "her",
    "here",
    "hers",
    "hey",
    "hi",
    "him",
    "his",
    "how",
    "however",
    "i",
    "if",
    "im",
    "in",
    "into",
    "is",
    "it",
    "its",
    "itself",
    "just",
    "keep",
    "kind",
    "know",
    "let",
    "like",
    "look",
    "looking",
    "lot",
    "made",
    "make",
    "makes",
    "making",
    "many",
    "may",
    "maybe",
    "me",
    "might",
    "more",
    "most",
    "much",
    "must",
    "my",
    "myself",
    "need",
    "needed",
    "needs",
    "never",
    "new",
    "no",
    "not",
    "now",
    "of",
    "off",
    "often",
    "ok",
    "on",
    "one",
    "ones",
    "only",
    "or",
    "other",
    "others",
    "our",
    "ours",
    "out",
    "over",
    "own",
    "per",
    "please",
    "quite",
    "rather",
    "really",
    "right",
    "same",
    "say",
    "says",
    "see",
    "she",
    "should",
    "so",
    "some",
    "somebody",
    "someone",
    "something",
    "stuff",
    "such",
    "sure",
    "take",
    "takes",
    "tell",
    "than",
    "thank",
    "thanks",
    "that",
    "the",
    "their",
    "theirs",
    "them",
    "then",
    "there",
    "these",
    "they",
    "thing",
    "things",
    "this",
    "those",
    "through",
    "to",
    "today",
    "too",
    "try",
    "trying",
    "up",
    "upon",
    "us",
    "use",
    "used",
    "useful",
    "uses",
    "using",
    "very",
    "via",
    "want",
    "wanted",
    "wants",
    "was",
    "way",
    "we",
    "well",
    "were",
    "what",
    "whatever",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "why",
    "will",
    "wish",
    "with",
    "within",
    "without",
    "would",
    "yes",
    "yet",
    "you",
    "your",
    "yours",
];

/// Whether this is a stop word.
pub(super) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> String {
        let mut found = Vec::new();
        words(text, |word, kind| {
            found.push(if kind == WordKind::Piece {
                format!("({word})")
            } else {
                word.to_owned()
            });
            true
        });
        found.join(" ")
    }

    #[test]
    fn words_end_where_a_reader_sees_it() {
        for (text, expected) in [
            ("", ""),
            ("summarize_pull-requests", "summarize pull requests"),
            ("createGPTPrompt", "(create) (gpt) (prompt) creategptprompt"),
            ("top10list", "(top) (10) (list) top10list"),
            ("prepare_7s", "prepare (7) 7s"),
            (
                "It's John’s; they'll, don't l'essai",
                "it john they don essai",
            ),
            (
                "Résumé re\u{301}sume\u{301} Straße Æon",
                "resume resume strasse aeon",
            ),
            ("C++ e-mail", "mail"),
            ("漢字検索", "漢字 字検 検索"),
            ("a漢b", "漢"),
            ("Анализ текста", "анализ текста"),
            ("LaTeX GraphViz", "latex (graph) (viz) graphviz"),
        ] {
            assert_eq!(all(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_word_without_end_is_cut_and_one_may_stop_early() {
        assert_eq!(all(&"x".repeat(100_000)).len(), LONGEST);
        assert!(all(&"aB".repeat(100_000)).len() < 4 * LONGEST);
        let mut seen = 0;
        words("a1 b2 c3", |_, _| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2);
    }

    #[test]
    fn the_list_of_stop_words_is_sorted() {
        assert!(STOP.is_sorted_by(|a, b| a < b));
        assert!(is_stop("the") && !is_stop("summarize"));
    }
}
