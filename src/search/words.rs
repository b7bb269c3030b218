//! Words of a text or a name: in lower case, without accents.
//!
//! In scope: word boundaries in any script. Not in scope: inflection (`stem`), meaning (`language`).

/// Longest word, in characters; longer ones are cut.
const LONGEST: usize = 32;

/// The words of `text` in order; of scripts without spaces every two neighbouring characters. Single Latin letters mean
/// nothing and are left out.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in runs(&plain_letters(text)) {
        let is_letter = word.len() == 1 && word.starts_with(|c: char| c.is_ascii_lowercase());
        if word.starts_with(is_unspaced) {
            let chars: Vec<char> = word.chars().collect();
            let pairs = chars.windows(chars.len().min(2));
            found.extend(pairs.map(String::from_iter));
        } else if !is_letter {
            found.push(word.chars().take(LONGEST).collect());
        }
    }
    found
}

/// The longest stretches of letters and digits of one kind of script, in order.
pub(crate) fn runs(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for piece in text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '’')) {
        // What remains of `it's`, `don't` and `they'll` is not a word.
        for (at, part) in piece.split(['\'', '’']).enumerate() {
            if part.is_empty() || (at > 0 && part.len() <= 2) {
                continue;
            }
            let mut rest = part;
            while let Some(first) = rest.chars().next() {
                let is_other = |c| is_unspaced(c) != is_unspaced(first);
                let end = rest.find(is_other).unwrap_or(rest.len());
                let (run, after) = rest.split_at(end);
                found.push(run);
                rest = after;
            }
        }
    }
    found
}

/// Scripts without spaces between words.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The text in lower case, Latin letters without their accents.
pub(crate) fn plain_letters(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        match folded(c) {
            Some(letters) => plain.push_str(letters),
            None => plain.push(c),
        }
    }
    plain
}

/// Latin letters without their accents; nothing for a combining accent.
fn folded(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{300}'..='\u{36f}' => "",
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' => "d",
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'ё' => "е",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_where_a_reader_sees_it() {
        for (text, expected) in [
            ("", ""),
            ("summarize_pull-requests", "summarize pull requests"),
            ("prepare_7s 5", "prepare 7s 5"),
            (
                "It's John’s; they'll, don't l'essai",
                "it john they don essai",
            ),
            (
                "Résumé re\u{301}sume\u{301} Straße Æon Søren Škoda",
                "resume resume strasse aeon soren skoda",
            ),
            ("C++ e-mail", "mail"),
            ("漢字検索 漢", "漢字 字検 検索 漢"),
            ("a漢b", "漢"),
            ("Анализ текста", "анализ текста"),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text:?}");
        }
        assert_eq!(words(&"x".repeat(100)), ["x".repeat(LONGEST)]);
    }
}
