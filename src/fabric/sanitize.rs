//! Removes secrets and paths from Fabric's error texts before a caller sees them.

use crate::text::is_invisible;

/// Longest text that is passed on from an `error` event, in characters.
const MAX_RELAYED_ERROR: usize = 500;
/// The end of a text that was longer.
const CUT: &str = "… (cut: Fabric's own log has all of it)";

/// The text of an `error` event as a caller may see it: one line of at most 500 characters without control characters,
/// with paths (Unix and Windows), URLs and anything that looks like a key replaced by `[path]`, `[url]` and `[key]`.
/// Names of models stay: they are usually the clue.
///
/// It cannot know every secret, so in doubt it replaces.
pub(crate) fn sanitize(text: &str) -> String {
    // Replacing shortens the text, so read more than is kept, but not megabytes; a word cut off there may be half a
    // key.
    let most = MAX_RELAYED_ERROR * 8;
    let text = match text.char_indices().nth(most) {
        Some((end, _)) => text[..end]
            .rsplit_once(char::is_whitespace)
            .map_or("", |(whole, _)| whole),
        None => text,
    };
    let plain = without_colours(text);
    let words = plain.split(|c: char| c.is_whitespace() || c.is_control());
    let words = words.map(|word| word.replace(is_invisible, ""));
    let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    let line = Scrubber::default().scrub(&without_urls(&words.join(" ")));
    if line.chars().count() <= MAX_RELAYED_ERROR {
        return line;
    }
    let kept = MAX_RELAYED_ERROR - CUT.chars().count();
    line.chars().take(kept).chain(CUT.chars()).collect()
}

/// The text with a space for each control sequence of a terminal (ECMA-48): the end of one would hide that a path or a
/// key begins after it.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.trim_start_matches(|c| matches!(c, ' '..='?'));
        out.push(' ');
        out.push_str(end.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(end));
    }
    out
}

fn without_urls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let before = &rest[..at];
        let scheme = before
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let after = &rest[at..];
        let end = after.find([' ', '"', '\'', '`', '<', '>']);
        let end = end.unwrap_or(after.len());
        // Trailing punctuation and closing brackets do not belong to the URL.
        let url = after[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}']);
        out.push_str(scheme);
        out.push_str("[url]");
        rest = &after[url.len().max(3)..];
    }
    out.push_str(rest);
    out
}

/// Scans a line piece by piece and remembers the previous piece.
#[derive(Default)]
struct Scrubber {
    /// The last piece, in lower case.
    last: String,
    /// The next piece is the value of a secret.
    secret: bool,
    /// The last word was a path: the next may continue it, if a name has spaces.
    path: bool,
}

impl Scrubber {
    fn scrub(&mut self, line: &str) -> String {
        let mut out = String::with_capacity(line.len());
        for piece in line.split_inclusive(is_delimiter) {
            let bare = piece.trim_end_matches(is_delimiter);
            if !bare.is_empty() {
                self.piece(bare, &mut out);
            }
            let delimiter = &piece[bare.len()..];
            match delimiter {
                "=" => {
                    self.secret |= is_secret(&self.last)
                        || ["token", "auth"].iter().any(|n| self.last.ends_with(n))
                }
                " " => self.secret |= matches!(self.last.as_str(), "bearer" | "basic"),
                _ => {}
            }
            self.path &= delimiter == " ";
            out.push_str(delimiter);
        }
        out
    }

    /// One piece without delimiters. May contain colons, because drives and paths have them.
    fn piece(&mut self, piece: &str, out: &mut String) {
        let bare = piece.trim_end_matches(['.', ':', '!', '?']);
        let after = &piece[bare.len()..];
        let continued = std::mem::take(&mut self.path) && bare.contains(['/', '\\']);
        if continued || is_windows_path(bare) {
            self.path = true;
            out.push_str("[path]");
        } else {
            for (i, part) in bare.split(':').enumerate() {
                if i > 0 {
                    out.push(':');
                    self.secret |= is_secret(&self.last);
                }
                self.part(part, out);
            }
        }
        out.push_str(after);
        self.path &= after.is_empty();
        // A trailing colon: if the last part was a secret's label, its value follows.
        self.secret |= after.starts_with(':') && is_secret(&self.last);
    }

    fn part(&mut self, part: &str, out: &mut String) {
        let is_scheme = matches!(part.to_ascii_lowercase().as_str(), "bearer" | "basic");
        if is_unix_path(part) {
            self.path = true;
            out.push_str("[path]");
        } else if !is_scheme
            && !part.is_empty()
            && (std::mem::take(&mut self.secret) || is_key(part))
        {
            out.push_str("[key]");
        } else {
            out.push_str(part);
        }
        if !part.is_empty() {
            self.last = part.to_lowercase();
        }
    }
}

fn is_delimiter(c: char) -> bool {
    " \"'`()<>[]{},;|=&@“”‘’«»".contains(c)
}

/// Absolute, or relative to the home or current folder; not `and/or` or `vendor/model`.
fn is_unix_path(part: &str) -> bool {
    let mut relative = ["~/", "./", "../"].iter();
    let is_relative = relative.any(|start| part.starts_with(start));
    let is_absolute = part.match_indices('/').any(|(at, _)| {
        let before = part[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '/' | '.' | '-' | '_' | '~'))
    });
    (is_relative || is_absolute) && part.contains(|c| !matches!(c, '/' | '~' | '.'))
}

/// `C:\x`, `\\host\share`, `dir\file`: any backslash in an error message is taken for a path.
fn is_windows_path(piece: &str) -> bool {
    piece
        .split('\\')
        .skip(1)
        .any(|after| after.starts_with(|c: char| c.is_alphanumeric() || c == '.'))
}

/// Labels whose value is a secret.
fn is_secret(name: &str) -> bool {
    let mut labels = "key password passwd pwd secret authorization".split(' ');
    labels.any(|end| name.ends_with(end))
}

/// How vendors' keys begin.
const PREFIXES: &str = "sk- sk_ pk- pk_ rk_ xai- gsk_ ghp_ gho_ ghs_ github_pat_ glpat- hf_ r8_ \
    nvapi- pplx- xoxb- xoxp- AIza eyJ";

/// One of [`PREFIXES`], or a long run of letters *and* digits; names of models are broken up by dashes and dots.
fn is_key(part: &str) -> bool {
    let has_prefix = PREFIXES.split(' ').any(|prefix| {
        part.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= 6)
    });
    has_prefix
        || part.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
            let mixed = run.contains(|c: char| c.is_ascii_digit()) && run.contains(|c: char| c.is_ascii_alphabetic());
            run.len() >= 32 || (run.len() >= 20 && mixed)
        })
        // Masked, as newer vendors write it back: `abcd****wxyz`.
        || part.contains("***")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_urls_and_keys_are_replaced() {
        for case in [
            "Error: could not get pattern nope: open /home/u/.config/fabric/patterns/nope/system.md: no such file => Error: could not get pattern nope: open [path]: no such file",
            "open C:\\Users\\Bob Smith\\x.md: denied => open [path] [path]: denied",
            "open C:/Users/bob/x: denied => open C:[path]: denied",
            "read \"\\\\host\\share\\f\". => read \"[path]\".",
            "at patterns\\nope\\system.md => at [path]",
            "in ~/.config and ./x, ../y; (/tmp/z) => in [path] and [path], [path]; ([path])",
            "path=/etc/passwd, file:/etc/shadow => path=[path], file:[path]",
            "\u{1b}[1;31m/home/u/x\u{1b}[0m: \u{1b}[1msk-abcdef1 => [path] : [key]",
            "in …/home/u/x or *//srv/y => in [path] or [path]",
            "open /tmp/x: meta-llama/y is unknown => open [path]: meta-llama/y is unknown",
            "open '/srv/my files/a b/c' => open '[path] [path] [path]'",
            r#"Post "https://api.openai.com/v1/chat?key=abc": dial tcp: timeout => Post "[url]": dial tcp: timeout"#,
            "see http://user:pw@h/x, or (https://y.z/a_b). => see [url], or ([url]).",
            "url=file:///etc/x ws://[::1]:80/p => url=[url] [url]",
            "Incorrect API key provided: sk-proj-abc123_DEF456. => Incorrect API key provided: [key].",
            "key sk-ab***********************xyz wrong => key [key] wrong",
            "Authorization: Bearer abc.def => Authorization: Bearer [key]",
            r#"got {"api_key": "hunter2"} => got {"api_key": "[key]"}"#,
            "token=abc&x=1 PASSWORD: geheim => token=[key]&x=1 PASSWORD: [key]",
            "invalid api key: my-own => invalid api key: [key]",
            "AIzaSyA1234567 gsk_abcdefgh hf_abcdefgh eyJhbGciOi.x.y => [key] [key] [key] [key]",
            "id 0123456789abcdef0123456789abcdef => id [key]",
            "id 0123456789abcdef0123 => id [key]",
            "sent Bearer abc.def, Basic dXNlcg => sent Bearer [key], Basic [key]",
            "password:geheim was refused => password:[key] was refused",
            r"open dir\.ssh: denied => open [path]: denied",
        ] {
            let (text, expected) = case.split_once(" => ").expect("two parts");
            assert_eq!(sanitize(text), expected, "{text}");
        }
    }

    #[test]
    fn the_clue_stays() {
        for text in [
            "Error: could not get pattern rig_vars: missing required variable: lang_code",
            "model \"meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8\" not found",
            "the model claude-3-5-sonnet-20241022 and llama3:8b, gpt-4o-mini-2024-07-18 were tried",
            "accounts/fireworks/models/llama-v3p1-8b does not exist and/or is not 1/2 ready (I/O error)",
            r"the escape \+ is unknown",
            "order 12345678901234567890 of internationalizationtests",
            "rate limited: 429, try again in 20s; status code: 500",
            "request 123e4567-e89b-12d3-a456-426614174000 failed",
            "unexpected token } in JSON, max_tokens: 4096 > 2048",
            "Fehler: Modell „größer“ nicht gefunden — 漢字",
            "a / b // c : d = e",
            "",
        ] {
            assert_eq!(sanitize(text), text);
        }
    }

    #[test]
    fn it_is_one_short_line() {
        let found = sanitize(" a\r\n\tb\u{0}c\u{1b}[31m\u{202e}d\u{200b}e \u{85} f");
        assert_eq!(found, "a b c de f");
        let long = sanitize(&"wörd ".repeat(10_000));
        assert_eq!((long.chars().count(), long.ends_with(CUT)), (500, true));
        assert_eq!(sanitize(&"x ".repeat(250)).chars().count(), 499);
        // A key across the read limit is not shown in part.
        let cut = format!("{} sk-{}", "/a".repeat(1990), "k1".repeat(400));
        assert_eq!(sanitize(&cut), "[path]");
        assert_eq!(sanitize(&"y1".repeat(5_000)), "");
    }
}
