//! Removes the caller's and the run's text from errors that are logged: vendors repeat it.

/// Shortest repetition that is removed, in bytes: any two texts share shorter ones.
const SHORTEST: usize = 12;

/// `reason` with `[...]` in place of whole words that it repeats of any of `private`.
pub(super) fn without_echo(reason: &str, private: &[&str]) -> String {
    let mut out = String::with_capacity(reason.len());
    let mut rest = reason;
    while let Some(start) = rest.find(is_word) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let ends = rest.char_indices().map(|(at, _)| at).skip(1);
        let ends = ends.chain([rest.len()]);
        let mut ends = ends.filter(|end| ends_word(rest, *end)).peekable();
        let first = ends.peek().copied().unwrap_or(rest.len());
        let is_echo = |end: &usize| private.iter().any(|text| text.contains(&rest[..*end]));
        let (shown, end) = match ends.take_while(is_echo).last() {
            Some(echo) if echo >= SHORTEST => ("[...]", echo),
            _ => (&rest[..first], first),
        };
        out.push_str(shown);
        rest = &rest[end..];
    }
    out + rest
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric()
}

fn ends_word(text: &str, at: usize) -> bool {
    text[..at].ends_with(is_word) && !text[at..].starts_with(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_goes_and_the_clue_stays() {
        let input = "Dear Ms Müller, my card is 4000-1234 and the model is not a clue. Ω";
        for case in [
            "Error: model not found => Error: model not found",
            r#"bad prompt: "Dear Ms Müller, my card" (400) => bad prompt: "[...]" (400)"#,
            "refused 'card is 4000-1234', and the rest => refused '[...]', and the rest",
            "Müller, my card is 4000-1234 and the model is not => [...]",
            "the model is broken, 4000-1234. => [...] broken, 4000-1234.",
            " => ",
            "… => …",
        ] {
            let (reason, expected) = case.split_once(" => ").expect("two parts");
            assert_eq!(without_echo(reason, &["", input]), expected, "{reason}");
        }
        let found = without_echo("canary-input: no", &["canary-input"]);
        assert_eq!(found, "[...]: no");
        let found = without_echo("Dear Ms Müller, my card", &[]);
        assert_eq!(found, "Dear Ms Müller, my card");
    }
}
