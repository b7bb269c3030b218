//! The tokens file: what may stand in it, and finding a token in it.
//!
//! In scope: lines and their mistakes, the table, making a new line. Not in scope: when the file is read (`watch`).
//! No message repeats a word of the file: a word in the wrong place may be a token.

use std::collections::HashMap;
use std::sync::Arc;

use super::digest::{Digest, Keyed, position, same};
use super::identity::{Identity, Role};
use crate::config::{MAX_SECRET, Secret};
use crate::random;

/// The name of `FABRIC_MCP_AUTH_TOKEN`.
const DEFAULT: &str = "default";
/// The prefix of tokens that are generated here. None of them is ever sent to an OAuth issuer.
pub(super) const PREFIX: &str = "fmcp_";
/// Shortest token, in characters.
const MIN_TOKEN: usize = 32;
/// Longest name, in characters.
const MAX_NAME: usize = 64;

/// Which line of the file is wrong, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    line: usize,
    why: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// The valid tokens.
pub(super) struct TokenTable {
    digests: Vec<Digest>,
    holders: Vec<Holder>,
}

/// The holder of a token.
pub(super) struct Holder {
    token: Secret,
    /// Who it is.
    pub(super) identity: Identity,
    /// What it may do.
    pub(super) role: Role,
}

impl TokenTable {
    /// The tokens of the file's `text`, and `default`, the one of the environment.
    pub(super) fn parse(
        text: &[u8],
        default: Option<&Secret>,
        keyed: &Keyed,
    ) -> Result<TokenTable, Mistake> {
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        let text = std::str::from_utf8(text).map_err(|error| Mistake {
            line: text[..error.valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1,
            why: "this is not UTF-8 text".to_owned(),
        })?;
        let mut table = TokenTable::of(default, keyed);
        // Where each name and each token was first, 0 being the environment.
        let mut names: HashMap<&str, (usize, Role)> = HashMap::new();
        let mut tokens: HashMap<&str, usize> = HashMap::new();
        if let Some(token) = default {
            names.insert(DEFAULT, (0, Role::Run));
            tokens.insert(token.expose(), 0);
        }
        for (at, line) in text.lines().enumerate() {
            let at = at + 1;
            let mistake = |why: String| Mistake { line: at, why };
            let Some((name, role, token)) = line_of(line).map_err(|why| mistake(why.to_owned()))?
            else {
                continue;
            };
            let (before, first) = *names.entry(name).or_insert((at, role));
            if first != role {
                let (role, first, place) = (role.name(), first.name(), place(before));
                let why = format!(
                    "this name has the role {role} here and {first} {place}; give it one role"
                );
                return Err(mistake(why));
            }
            if let Some(before) = tokens.insert(token, at) {
                return Err(mistake(format!(
                    "this token stands {} too; give each line its own",
                    place(before)
                )));
            }
            table.add(name, role, Secret::new(token), keyed);
        }
        Ok(table)
    }

    /// The token of the environment alone.
    pub(super) fn of(default: Option<&Secret>, keyed: &Keyed) -> TokenTable {
        let mut table = TokenTable {
            digests: Vec::new(),
            holders: Vec::new(),
        };
        if let Some(token) = default {
            table.add(DEFAULT, Role::Run, token.clone(), keyed);
        }
        table
    }

    fn add(&mut self, name: &str, role: Role, token: Secret, keyed: &Keyed) {
        self.digests.push(keyed.digest(token.expose().as_bytes()));
        self.holders.push(Holder {
            token,
            identity: Identity::Token(Arc::from(name)),
            role,
        });
    }

    /// The holder of this token, in a time that depends on the length of `given` and the number of tokens alone.
    pub(super) fn find(&self, given: &str, digest: Digest) -> Option<&Holder> {
        let holder = self.holder(digest);
        let token = holder.map_or("", |holder| holder.token.expose());
        holder.filter(|_| same(given.as_bytes(), token.as_bytes()))
    }

    /// The holder of the token with this digest.
    pub(super) fn holder(&self, digest: Digest) -> Option<&Holder> {
        position(&self.digests, digest).and_then(|at| self.holders.get(at))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    /// How many of these the other does not have, or not with this name and role.
    pub(super) fn beyond(&self, other: &TokenTable) -> usize {
        let has = |(digest, holder): (&Digest, &Holder)| {
            other
                .holder(*digest)
                .is_some_and(|known| known.identity == holder.identity && known.role == holder.role)
        };
        self.digests
            .iter()
            .zip(&self.holders)
            .filter(|entry| !has(*entry))
            .count()
    }
}

/// Name, role and token of a line; `None` if there is nothing on it. A word that begins with `#` begins a comment.
fn line_of(line: &str) -> Result<Option<(&str, Role, &str)>, &'static str> {
    let mut words = line
        .split_ascii_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let Some(name) = words.next() else {
        return Ok(None);
    };
    let (Some(role), Some(token)) = (words.next(), words.next()) else {
        return Err("a line is NAME ROLE TOKEN, with spaces between");
    };
    if words.next().is_some() {
        return Err(
            "something follows the token; a line is NAME ROLE TOKEN, and a comment begins with #",
        );
    }
    check_name(name)?;
    let role =
        Role::named(role).ok_or("the role, the second word, is none of run, read and metrics")?;
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the token holds other characters than visible ASCII");
    }
    if token.len() < MIN_TOKEN {
        return Err(
            "the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one",
        );
    }
    if token.len() > MAX_SECRET {
        return Err("the token is longer than 4096 characters");
    }
    Ok(Some((name, role, token)))
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.len() > MAX_NAME || !name.bytes().all(good) || name.is_empty() {
        return Err("a name has 1 to 64 letters, digits, dots, hyphens, underscores and @");
    }
    Ok(())
}

fn place(line: usize) -> String {
    match line {
        0 => "in FABRIC_MCP_AUTH_TOKEN".to_owned(),
        line => format!("on line {line}"),
    }
}

/// A line for the file with a fresh token of 256 random bits.
///
/// # Errors
/// What is wrong with the name.
pub(crate) fn generate(name: &str, role: Role) -> Result<String, &'static str> {
    check_name(name)?;
    Ok(format!(
        "{name} {} {PREFIX}{}{}\n",
        role.name(),
        random::id(),
        random::id()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn parse(text: &str) -> Result<TokenTable, Mistake> {
        TokenTable::parse(text.as_bytes(), None, &Keyed::new())
    }

    fn mistake(text: &str, default: Option<&str>) -> String {
        let default = default.map(Secret::new);
        TokenTable::parse(text.as_bytes(), default.as_ref(), &Keyed::new())
            .err()
            .map(|m| m.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn lines_are_read_however_they_are_spaced() {
        let keyed = Keyed::new();
        let text = format!(
            "\u{feff}# the team\r\n\r\nalice run {A}\r\n\t bob.b@x-1_  read\t{B}  # his laptop\r\n   # more\r\nalice run {A}2"
        );
        let table =
            TokenTable::parse(text.as_bytes(), Some(&Secret::new("short")), &keyed).unwrap();
        let find = |token: &str| {
            table
                .find(token, keyed.digest(token.as_bytes()))
                .map(|holder| (holder.identity.to_string(), holder.role))
        };
        assert_eq!(table.len(), 4);
        assert_eq!(find(A), Some(("token:alice".into(), Role::Run)));
        assert_eq!(
            find(&format!("{A}2")),
            Some(("token:alice".into(), Role::Run))
        );
        assert_eq!(find(B), Some(("token:bob.b@x-1_".into(), Role::Read)));
        assert_eq!(find("short"), Some(("token:default".into(), Role::Run)));
        for bad in ["", "alice", &A[1..], &format!("{A}1"), "#"] {
            assert_eq!(find(bad), None, "{bad}");
        }
        assert_eq!(parse("").map(|table| table.len()), Ok(0));
    }

    #[test]
    fn a_digest_alone_opens_nothing() {
        let keyed = Keyed::new();
        let table = TokenTable::parse(format!("alice run {A}").as_bytes(), None, &keyed).unwrap();
        assert!(table.find(B, keyed.digest(A.as_bytes())).is_none());
    }

    #[test]
    fn mistakes_are_told_by_their_line_and_never_by_a_token() {
        let shape = "a line is NAME ROLE TOKEN, with spaces between";
        let name = "a name has 1 to 64 letters, digits, dots, hyphens, underscores and @";
        let role = "the role, the second word, is none of run, read and metrics";
        let short = "the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one";
        for (text, expected) in [
            (A.to_owned(), format!("line 1: {shape}")),
            (format!("alice {A}"), format!("line 1: {shape}")),
            (format!("alice run #{A}"), format!("line 1: {shape}")),
            (
                format!("alice run {A} {B}"),
                "line 1: something follows the token; a line is NAME ROLE TOKEN, and a comment begins with #".into(),
            ),
            (format!("\n# x\nal:ice run {A}"), format!("line 3: {name}")),
            (format!("älice run {A}"), format!("line 1: {name}")),
            (format!("{} run {A}", "n".repeat(65)), format!("line 1: {name}")),
            (format!("alice Run {A}"), format!("line 1: {role}")),
            (format!("alice {A} run"), format!("line 1: {role}")),
            (format!("{A} run alice"), format!("line 1: {short}")),
            (format!("alice run {}", &A[1..]), format!("line 1: {short}")),
            (format!("alice run {A}é"), "line 1: the token holds other characters than visible ASCII".into()),
            (format!("alice run {A}\u{a0}x"), "line 1: the token holds other characters than visible ASCII".into()),
            (format!("alice run {A}\0"), "line 1: the token holds other characters than visible ASCII".into()),
            (format!("alice run {}", "x".repeat(4097)), "line 1: the token is longer than 4096 characters".into()),
            (
                format!("alice run {A}\r\n\r\nbob read {A}"),
                "line 3: this token stands on line 1 too; give each line its own".into(),
            ),
            (
                format!("alice run {A}\nalice run {A}"),
                "line 2: this token stands on line 1 too; give each line its own".into(),
            ),
            (
                format!("alice run {A}\nbob run {B}\nalice read {A}3"),
                "line 3: this name has the role read here and run on line 1; give it one role".into(),
            ),
        ] {
            let found = mistake(&text, None);
            assert_eq!(found, expected);
            assert!(!found.contains("aaaa") && !found.contains("bbbb"));
        }
        assert_eq!(
            mistake(&format!("default run {A}"), Some(B)),
            "",
            "the token of the environment can be rotated"
        );
        assert_eq!(
            mistake(&format!("default read {A}"), Some(B)),
            "line 1: this name has the role read here and run in FABRIC_MCP_AUTH_TOKEN; give it one role"
        );
        assert_eq!(
            mistake(&format!("\nalice run {A}"), Some(A)),
            "line 2: this token stands in FABRIC_MCP_AUTH_TOKEN too; give each line its own"
        );
        let utf16 = TokenTable::parse(b"# x\n\xff\xfea\0", None, &Keyed::new())
            .err()
            .map(|m| m.to_string());
        assert_eq!(utf16.as_deref(), Some("line 2: this is not UTF-8 text"));
    }

    #[test]
    fn what_is_generated_can_be_read_and_is_never_the_same() {
        let line = generate("ci", Role::Read).unwrap();
        assert_eq!((line.len(), &line[..13]), (78, "ci read fmcp_"));
        assert!(parse(&format!("{line}{}", generate("ci", Role::Read).unwrap())).is_ok());
        assert!(generate("a b", Role::Run).is_err() && generate("", Role::Run).is_err());
    }
}
