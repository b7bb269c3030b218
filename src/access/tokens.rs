//! The named tokens: one from the environment, and those of a file, which is read again when it changes.
//!
//! ```text
//!  each half second ─▶ read ─▶ 100 ms old? ─▶ another text? ─▶ tokens
//!             SIGHUP ─▶ read ────────────────────────────────▶ tokens
//! ```
//! A thread of its own looks at the file, so no request waits for the disk. A file that was just written may be
//! incomplete, so it counts only once it is as old as [`SETTLE_TIME`]. A line with a mistake grants nothing, and a file
//! that is empty or cannot be read changes nothing. Both are logged when they are found, and then once a minute. No
//! message repeats a word of the file, because a word in the wrong place may be a token.

use std::collections::{BTreeSet, HashMap};
use std::fs::{Metadata, OpenOptions};
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::error::{AccessError, Flaw};
use super::identity::{Identity, Role};
use crate::account::Accounts;
use crate::config::{MAX_SECRET, Secret, TOKEN_PREFIX, is_model};
use crate::encoding::sha256::sha256_hex;
use crate::os::files::{self, open_plain};
use crate::os::random;
use crate::sync::{lock, spawn};
use crate::text::{counted, is_misspelled, unusable};
use crate::time::{self, Clock, SystemClock};

/// What messages call the file.
const SETTING: &str = "--tokens-file (FABRIC_MCP_TOKENS_FILE)";
/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long a file must have been unchanged before it counts.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Largest file, in bytes: some 10,000 tokens.
const MAX_FILE: u64 = 1 << 20;
/// How often a mistake is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Most mistakes that are told at once.
const MOST_TOLD: usize = 20;
/// The end of the message of a file that changes nothing.
const STAY: &str = "; the tokens that were valid before stay valid";
/// The name for all callers without a line of their own.
const OTHERS: &str = "*";
/// The fingerprint for that line, which has no token. No token has this fingerprint.
const NOBODY: Fingerprint = [0; 2];
/// How a token begins if the file has only its SHA-256.
const HASHED: &str = "sha256:";
/// The name of `FABRIC_MCP_AUTH_TOKEN`.
const DEFAULT: &str = "default";
/// Shortest token, in characters.
const MIN_TOKEN: usize = 32;
/// Longest name, in characters.
const MAX_NAME: usize = 64;

/// The named tokens.
pub(crate) struct Tokens {
    default: Option<Secret>,
    file: Option<PathBuf>,
    has_ledger: bool,
    /// The accounts, where each name has a seat.
    accounts: Accounts,
    clock: Box<dyn Clock>,
    table: Mutex<TokenTable>,
    watch: Mutex<Watch>,
}

/// Who has which token, by its [`fingerprint`], and may do what with it. The tokens themselves are not kept.
type TokenTable = HashMap<Fingerprint, TokenHolder>;

/// What a token is looked up by, its SHA-256: nobody can guess one, and it says nothing about the token. The map adds a key
/// that is made for this process, so that nobody can choose tokens that are slow to look up either.
pub(super) type Fingerprint = [u128; 2];

/// Who has a token, and what its line allows.
type TokenHolder = (Identity, Arc<Allowance>);

/// What a line of the file allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) role: Role,
    /// Models that may be run: names, or beginnings of names with a `*` after them; if empty, all.
    pub(crate) models: Vec<String>,
    /// Runs a minute, instead of those of `--max-calls-per-minute`.
    pub(crate) runs_per_minute: Option<u32>,
    /// Tokens a month, by the ledger.
    pub(crate) tokens_per_month: Option<u64>,
    /// The last day on which the line counts, in UTC.
    pub(super) until: Option<String>,
}

/// What the last look at the file found: its text and whether everybody may read it, or why it could not be read.
#[derive(Default)]
struct Watch {
    seen: Option<Result<(Fingerprint, bool), String>>,
    faults: Vec<String>,
    /// When these were logged.
    told: Duration,
}

impl Tokens {
    /// The token of `FABRIC_MCP_AUTH_TOKEN`, which is called `default`, and those of the file. Each name gets a seat among
    /// `accounts`. A budget needs a ledger.
    ///
    /// # Errors
    /// The file cannot be read, is empty or has mistakes: a line for each, which begins with the variable's name.
    pub(crate) fn open(
        default: Option<Secret>,
        file: Option<PathBuf>,
        has_ledger: bool,
        accounts: &Accounts,
    ) -> Result<Tokens, String> {
        let tokens = Tokens {
            table: Mutex::new(parse("", default.as_ref(), true).0),
            default,
            file,
            has_ledger,
            accounts: accounts.clone(),
            clock: Box::new(SystemClock::new()),
            watch: Mutex::default(),
        };
        let (change, faults) = tokens.look(&mut lock(&tokens.watch), Duration::ZERO);
        report((change, Vec::new()));
        if tokens.file.is_none() {
            tokens.seat(&lock(&tokens.table));
        }
        match faults.join("\n").replace(STAY, "") {
            told if told.is_empty() => Ok(tokens),
            told => Err(told),
        }
    }

    /// Reads the file as a server does, with or without a ledger.
    ///
    /// # Errors
    /// The mistakes of the file, a line each.
    pub(crate) fn check(key: Option<Secret>, file: PathBuf, ledger: bool) -> Result<bool, String> {
        let read = Tokens::open(key, Some(file), ledger, &Accounts::alone(1));
        let named = |why: String| why.replace(SETTING, "--check-tokens");
        read.map(|_| true).map_err(named)
    }

    /// Whether there is no token and no tokens file.
    pub(super) fn is_empty(&self) -> bool {
        self.default.is_none() && self.file.is_none()
    }

    /// Whether the file has a mistake or cannot be read.
    pub(crate) fn is_failing(&self) -> bool {
        !lock(&self.watch).faults.is_empty()
    }

    /// Looks at the file from now on.
    pub(super) fn watch(self: &Arc<Tokens>) {
        let tokens = self.clone();
        if self.file.is_some() {
            let otherwise = "the tokens file is read again only after SIGHUP";
            spawn("tokens", otherwise, move || {
                loop {
                    thread::sleep(LOOK);
                    report(tokens.look(&mut lock(&tokens.watch), SETTLE_TIME));
                }
            });
        }
    }

    /// Reads the file now, after SIGHUP, and logs the result.
    pub(crate) fn reload(&self) {
        let mut watch = lock(&self.watch);
        watch.seen = None;
        report(self.look(&mut watch, Duration::ZERO));
    }

    /// Who has the token with this fingerprint, and what that caller may do.
    ///
    /// # Errors
    /// [`Flaw::UNKNOWN`], or its line has expired.
    pub(super) fn holder(&self, token: Fingerprint) -> Result<TokenHolder, Flaw> {
        let holder = lock(&self.table).get(&token).cloned();
        let (identity, allowance) = holder.ok_or(Flaw::UNKNOWN)?;
        let today = time::timestamp(self.clock.today());
        match &allowance.until {
            Some(day) if **day < today[..day.len()] => Err(Flaw::EXPIRED),
            _ => Ok((identity, allowance)),
        }
    }

    /// What callers without a line may do, as the line `*` says; `None` if there is no such line.
    ///
    /// # Errors
    /// [`AccessError::Closed`]: it has expired.
    pub(super) fn others(&self) -> Result<Option<Arc<Allowance>>, AccessError> {
        let own = self.holder(NOBODY).map(|(_, own)| Some(own));
        let none = |flaw| (flaw == Flaw::UNKNOWN).then_some(None);
        own.or_else(|flaw| none(flaw).ok_or(AccessError::Closed))
    }

    /// Takes over the good lines of the file if it has changed, unless it was changed less than `rest` ago. Returns what
    /// has changed, and the mistakes to log now.
    fn look(&self, watch: &mut Watch, rest: Duration) -> (Option<String>, Vec<String>) {
        let Some(file) = &self.file else {
            return (None, Vec::new());
        };
        let (now, mut change) = (self.clock.steady(), None);
        let content = content(file);
        let modified = content.as_ref().map_or(0, |(.., modified)| *modified);
        // A time in the future comes from another machine's clock.
        let age = self.clock.today().checked_sub(modified);
        if age.is_some_and(|age| age < time::whole(rest)) {
            return (None, Vec::new());
        }
        let seen = content.as_ref().map_err(String::clone);
        let seen = Some(seen.map(|(text, is_open, _)| (fingerprint(text), *is_open)));
        let is_new = watch.seen != seen;
        if is_new {
            watch.seen = seen;
            let named = format!("{SETTING}: \"{}\"", file.display());
            let parsed = content.map_err(|why| format!("{SETTING}: {why}"));
            let parsed = parsed.and_then(|(text, is_open, _)| {
                if is_open {
                    log::warn!(
                        "{SETTING}: every user of this machine can read or change \"{}\"; run chmod o-rwx on it",
                        file.display()
                    );
                }
                if text.trim_ascii().is_empty() {
                    return Err(format!("{named} is empty; put a comment into it to remove every token"));
                }
                Ok(parse(&text, self.default.as_ref(), self.has_ledger))
            });
            watch.faults = match parsed {
                Ok((table, faults)) => {
                    change = Some(format!("{named} was read: {}", self.take(table)));
                    faults.iter().map(|why| format!("{named}, {why}")).collect()
                }
                Err(why) => vec![why + STAY],
            };
        }
        let is_due = is_new || watch.told + LOG_INTERVAL <= now;
        if is_due {
            watch.told = now;
        }
        let faults = is_due.then(|| watch.faults.clone());
        (change, faults.unwrap_or_default())
    }

    fn seat(&self, table: &TokenTable) {
        let names = table.values().map(|(identity, _)| identity.to_string());
        let is_own = |name: &String| *name != Identity::token(OTHERS).to_string();
        self.accounts.seat(names.filter(is_own).collect());
    }

    /// Takes over these tokens, and says whose were added, changed and removed.
    fn take(&self, table: TokenTable) -> String {
        let mut current = lock(&self.table);
        let nobody = TokenTable::new();
        let (old, new) = (names(&current, &nobody), names(&table, &nobody));
        let differ = &names(&table, &current) | &names(&current, &table);
        let tokens = table.keys().filter(|print| **print != NOBODY);
        let mut told = counted(tokens.count(), "token");
        for (what, names) in [
            ("added", &new - &old),
            ("changed", &(&differ & &old) & &new),
            ("removed", &old - &new),
        ] {
            if !names.is_empty() {
                told += &format!("; {what}: {}", Vec::from_iter(names).join(", "));
            }
        }
        self.seat(&table);
        *current = table;
        told
    }
}

/// The names of a table with a token that `other` lacks, or for which it has something else.
fn names(table: &TokenTable, other: &TokenTable) -> BTreeSet<String> {
    let differs = |line: &(&Fingerprint, &TokenHolder)| other.get(line.0) != Some(line.1);
    let lines = table.iter().filter(differs);
    lines.map(|(_, (identity, _))| identity.name()).collect()
}

/// The fingerprint of a token.
pub(super) fn fingerprint(token: &str) -> Fingerprint {
    of_hex(&sha256_hex(token.as_bytes())).unwrap_or(NOBODY)
}

/// The fingerprint that 64 lower-case hex digits stand for, as the file may have them.
fn of_hex(hex: &str) -> Option<Fingerprint> {
    let (first, last) = hex.split_at_checked(32)?;
    Some([random::parse(first)?, random::parse(last)?]).filter(|print| *print != NOBODY)
}

impl Allowance {
    /// A role without any limits.
    pub(super) fn of(role: Role) -> Allowance {
        Allowance {
            role,
            ..Allowance::default()
        }
    }

    /// Adds a word KEY=VALUE of a line. A word without an = may be a token on a line of the wrong form, and what is not
    /// even like a key may be part of one.
    fn add(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').ok_or(FORM)?;
        // `parse` alone accepts a plus sign.
        let is_good = |number: &u64| *number > 0 && !value.starts_with('+');
        let number = value.parse().ok().filter(is_good);
        let few = number.and_then(|number| u32::try_from(number).ok());
        let is_day = value.len() == 10 && time::parse(value).is_some();
        match key {
            "models" if self.models.is_empty() && value.split(',').all(is_model) => {
                self.models = value.split(',').map(str::to_owned).collect();
            }
            "runs-per-minute" if self.runs_per_minute.is_none() && few.is_some() => {
                self.runs_per_minute = few;
            }
            "tokens-per-month" if self.tokens_per_month.is_none() && number.is_some() => {
                self.tokens_per_month = number;
            }
            "until" if is_day && self.until.is_none() => {
                self.until = Some(value.to_owned());
            }
            _ => {
                let is_like = |word: &str| word.len() > 4 && is_misspelled(key, word);
                let is_known = KEYS.split([' ', '=']).any(is_like);
                let wrong = if is_known { key } else { "a word with =" };
                return Err(format!("{wrong} is wrong; {KEYS}"));
            }
        }
        Ok(())
    }
}

/// The text of a file, whether everybody may read or change it, and when it was changed, in milliseconds since 1970.
fn content(path: &Path) -> Result<(String, bool, u64), String> {
    let unreadable = |error: io::Error| {
        let why = unusable("file", path, &error);
        format!("{why}; give one with the lines that fabric-mcp --generate token NAME ROLE prints")
    };
    // The operator may have put a link there; `open_plain` follows none.
    let path = path.canonicalize().map_err(unreadable)?;
    let file = open_plain(&path, OpenOptions::new().read(true)).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let refused = |why| format!("\"{}\" is not used: {why}", path.display());
    let text = files::text(file, MAX_FILE).map_err(refused)?;
    let modified = metadata.modified().map_or(0, time::milliseconds);
    Ok((text, is_open(&metadata), modified))
}

#[cfg(unix)]
fn is_open(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o006 != 0
}

#[cfg(not(unix))]
fn is_open(_: &Metadata) -> bool {
    false
}

/// Logs what [`Tokens::look`] says.
fn report((change, faults): (Option<String>, Vec<String>)) {
    change.inspect(|change| log::info!("{change}"));
    for fault in faults {
        log::error!("{fault}");
    }
}

/// What a line looks like.
const FORM: &str =
    "a line is NAME ROLE TOKEN [KEY=VALUE…], with spaces between; a comment begins with #";

/// What a key looks like.
const KEYS: &str = "a key is models=NAME,NAME… (without quotes, and with * only at the end of a name), \
    runs-per-minute=NUMBER, tokens-per-month=NUMBER (1 or more) or until=YYYY-MM-DD, the last day; each at most once";

/// Why a budget is refused without a ledger.
const NO_LEDGER: &str = "tokens-per-month= is counted in the ledger, so it needs --state-dir";

/// The tokens in the `text` of the file, with `default`, the one from the environment; and the mistakes of the lines
/// that grant nothing, each with its line number.
fn parse(text: &str, default: Option<&Secret>, has_ledger: bool) -> (TokenTable, Vec<String>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut table, mut faults) = (TokenTable::new(), Vec::new());
    // The line where each name and each token was first found. Line 0 is the environment.
    let (mut names, mut tokens) = (HashMap::new(), HashMap::new());
    let environment = default.map(|token| {
        let token = fingerprint(token.expose());
        (DEFAULT, Allowance::of(Role::Run), token)
    });
    let lines = text.lines().map(line_of);
    for (at, line) in iter::once(Ok(environment)).chain(lines).enumerate() {
        let add = || -> Result<(), String> {
            let Some((name, allowance, token)) = line? else {
                return Ok(());
            };
            if allowance.tokens_per_month.is_some() && !has_ledger {
                return Err(NO_LEDGER.to_owned());
            }
            // Each token may end on a day of its own.
            let bare = Allowance {
                until: None,
                ..allowance.clone()
            };
            let (before, first) = names.entry(name).or_insert_with(|| (at, bare.clone()));
            let there = place(*before);
            // The token of the environment has no keys.
            if first.role != bare.role || *before > 0 && *first != bare {
                let why = format!("this name has another role or other keys {there}");
                return Err(why + "; give it the same on each line");
            }
            if let Some(before) = tokens.insert(token, at) {
                let why = format!("this token is {} too", place(before));
                return Err(why + "; give each line its own");
            }
            table.insert(token, (Identity::token(name), Arc::new(allowance)));
            Ok(())
        };
        if let Err(why) = add()
            && faults.len() < MOST_TOLD
        {
            faults.push(format!("line {at}: {why}"));
        }
    }
    // Without a line for all others, OAuth callers have no limits. A line for them that has a mistake must not have
    // that effect.
    let is_others = |line: &str| {
        let words = Vec::from_iter(line.split_ascii_whitespace().take(3));
        let has_star = words.iter().take(2).any(|word| word.contains(OTHERS));
        let third = words.get(2);
        let has_no_token = third.is_some_and(|word| ["-", "–", "—"].contains(word));
        has_star && !words[0].starts_with('#') || has_no_token
    };
    let is_bad = |line: &str| line_of(line).is_err() || line.trim_start().starts_with(OTHERS);
    if !table.contains_key(&NOBODY) && text.lines().any(|line| is_bad(line) && is_others(line)) {
        let mut none = Allowance::of(Role::Metrics);
        none.until = Some("1970-01-01".to_owned());
        table.insert(NOBODY, (Identity::token(OTHERS), Arc::new(none)));
        faults.push("so nobody without a line of their own is admitted now".to_owned());
    }
    (table, faults)
}

/// Name, what is allowed, and the token's fingerprint of a line; `None` if there is nothing on it. A word that begins with
/// `#` begins a comment.
fn line_of(line: &str) -> Result<Option<(&str, Allowance, Fingerprint)>, String> {
    let words = line.split_ascii_whitespace();
    let mut words = words.take_while(|word| !word.starts_with('#'));
    let Some(name) = words.next() else {
        return Ok(None);
    };
    let (role, token) = words.next().zip(words.next()).ok_or(FORM)?;
    if name != OTHERS {
        check_name(name)?;
    }
    let role = Role::named(role).ok_or("the second word must be the role: run, read or metrics")?;
    let mut allowance = Allowance::of(role);
    words.try_for_each(|word| allowance.add(word))?;
    let lower = token.to_ascii_lowercase();
    let token = match lower.strip_prefix(HASHED) {
        _ if name == OTHERS && token == "-" => Ok(NOBODY),
        _ if name == OTHERS => Err("the line for * must have a - where other lines have a token"),
        Some(hash) => of_hex(hash).ok_or("sha256: is not followed by 64 hex digits"),
        None if token.len() > MAX_SECRET || !token.bytes().all(|b| b.is_ascii_graphic()) => {
            Err("the token has more than 4096 characters, or one beyond visible ASCII")
        }
        None if token.len() < MIN_TOKEN => Err(
            "the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one",
        ),
        None => Ok(fingerprint(token)),
    };
    Ok(Some((name, allowance, token?)))
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.len() > MAX_NAME || !name.bytes().all(is_allowed) || name.is_empty() {
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

/// A line for the file with a name, a role and keys, and the fresh token of 256 random bits whose SHA-256 is in it.
///
/// # Errors
/// What is wrong with these words.
pub(crate) fn generate(words: &[String]) -> Result<(String, Secret), String> {
    let [name, role, keys @ ..] = words else {
        return Err("give a name and a role, as in --generate token alice read".into());
    };
    check_name(name)?;
    let (token, keys) = (token(), keys.join(" "));
    let hash = sha256_hex(token.as_bytes());
    let line = format!("{name} {role} {HASHED}{hash} {keys}");
    line_of(&line)?;
    Ok((line.trim_end().to_owned() + "\n", Secret::new(token)))
}

/// A new token, of 256 random bits.
pub(crate) fn token() -> String {
    format!("{TOKEN_PREFIX}{}{}", random::id(), random::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::hand::HandClock;
    use std::fs::{self, File};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccccccccccccccccccccc";

    fn mistake(text: &str, default: Option<&str>) -> String {
        let default = default.map(Secret::new);
        let (_, faults) = parse(text, default.as_ref(), false);
        faults.join("|")
    }

    #[test]
    fn lines_are_read_however_they_are_spaced() {
        let text = format!(
            "\u{feff}# the team\r\n\r\nalice run {A}\r\n\t bob.b@x-1_  read\t{B}  # his laptop\r\n   # more\r\nalice run {A}2\r\n{} read {}",
            "n".repeat(MAX_NAME),
            "t".repeat(MAX_SECRET)
        );
        let (table, faults) = parse(&text, Some(&Secret::new("short")), false);
        assert_eq!(faults, [""; 0]);
        let find = |token: &str| {
            let found = table.get(&fingerprint(token));
            found.map(|(identity, allowance)| (identity.to_string(), allowance.role))
        };
        assert_eq!(table.len(), 5);
        assert_eq!(find(A), Some(("token:alice".into(), Role::Run)));
        let found = find(&format!("{A}2"));
        assert_eq!(found, Some(("token:alice".into(), Role::Run)));
        assert_eq!(find(B), Some(("token:bob.b@x-1_".into(), Role::Read)));
        assert_eq!(find("short"), Some(("token:default".into(), Role::Run)));
        for bad in ["", "alice", &A[1..], &format!("{A}1"), "#"] {
            assert_eq!(find(bad), None, "{bad}");
        }
    }

    #[test]
    fn mistakes_are_told_by_their_line_and_never_by_a_token() {
        let shape = FORM;
        let name = "a name has 1 to 64 letters, digits, dots, hyphens, underscores and @";
        let role = "the second word must be the role: run, read or metrics";
        let short = "the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one";
        let odd = "line 1: the token has more than 4096 characters, or one beyond visible ASCII";
        let taken = "this token is on line 1 too; give each line its own";
        let (long, twice) = ("n".repeat(65), |next| format!("alice run {A}{next} {A}"));
        for (text, expected) in [
            (A.to_owned(), format!("line 1: {shape}")),
            (format!("alice {A}"), format!("line 1: {shape}")),
            (format!("alice run #{A}"), format!("line 1: {shape}")),
            (format!("alice run {A} {B}"), format!("line 1: {shape}")),
            (format!("\n# x\nal:ice run {A}"), format!("line 3: {name}")),
            (format!("älice run {A}"), format!("line 1: {name}")),
            (format!("{long} run {A}"), format!("line 1: {name}")),
            (format!("alice Run {A}"), format!("line 1: {role}")),
            (format!("alice {A} run"), format!("line 1: {role}")),
            (format!("{A} run alice"), format!("line 1: {short}")),
            (format!("alice run {}", &A[1..]), format!("line 1: {short}")),
            (format!("alice run {A}é"), odd.into()),
            (format!("alice run {A}\u{a0}x"), odd.into()),
            (format!("alice run {A}\0"), odd.into()),
            (format!("alice run {}", "x".repeat(4097)), odd.into()),
            (twice("\r\n\r\nbob read"), format!("line 3: {taken}")),
            (twice("\nalice run"), format!("line 2: {taken}")),
            (
                format!("alice run {A}\nbob run {B}\nalice read {A}3"),
                "line 3: this name has another role or other keys on line 1; give it the same on each line"
                    .into(),
            ),
        ] {
            let found = mistake(&text, None);
            assert_eq!(found, expected);
            assert!(!found.contains("aaaa") && !found.contains("bbbb"));
        }
        let found = mistake(&format!("default run {A}"), Some(B));
        assert_eq!(found, "", "the token of the environment can be rotated");
        let wanted = "line 1: this name has another role or other keys in FABRIC_MCP_AUTH_TOKEN; give it the same on each line";
        assert_eq!(mistake(&format!("default read {A}"), Some(B)), wanted);
        let wanted = "line 2: this token is in FABRIC_MCP_AUTH_TOKEN too; give each line its own";
        assert_eq!(mistake(&format!("\nalice run {A}"), Some(A)), wanted);
    }

    #[test]
    fn what_is_generated_can_be_read_and_is_never_the_same() {
        let make =
            |name: &str, role: &str| generate(&[name, role, "until=2099-01-01"].map(str::to_owned));
        let [(line, token), (other, _)] = [(); 2].map(|()| make("ci", "read").unwrap());
        assert_eq!((line.len(), &line[..15]), (97, "ci read sha256:"));
        assert!(line.ends_with(" until=2099-01-01\n"));
        let two = line.clone() + &other.replace("ci", "cj");
        let (table, faults) = parse(&two, None, false);
        assert_eq!((table.len(), faults.len()), (2, 0));
        assert!(table.contains_key(&fingerprint(token.expose())));
        // Whoever reads the file has no token.
        let shown = line.split(' ').nth(2).unwrap();
        assert!(token.expose().starts_with("fmcp_") && !line.contains(token.expose()));
        assert!(!table.contains_key(&fingerprint(shown)));
        let upper = line.replace("sha256:", "SHA256:").to_uppercase();
        let hash = upper.split([':', ' ']).nth(3).unwrap();
        let plain = format!("a read {}\nb read sha256:{hash}", token.expose());
        let twice = "line 2: this token is on line 1 too; give each line its own";
        assert_eq!(mistake(&plain, None), twice);
        assert!(make("a b", "run").is_err() && make("", "run").is_err());
    }

    /// A tokens file, and a clock that is set by hand.
    struct TokenBench {
        path: PathBuf,
        tokens: Tokens,
        clock: HandClock,
    }

    impl TokenBench {
        fn new(content: &str) -> TokenBench {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let name = format!(
                "fabric-mcp-{}-tokens-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            );
            let path = std::env::temp_dir().join(name);
            let clock = HandClock::default();
            write(&path, content, 9000, &clock);
            let tokens = Tokens {
                clock: Box::new(clock.clone()),
                ..Tokens::open(None, Some(path.clone()), false, &Accounts::alone(1)).unwrap()
            };
            TokenBench {
                path,
                tokens,
                clock,
            }
        }

        /// Writes the file, so many milliseconds ago.
        fn write(&self, content: impl AsRef<[u8]>, age: i64) {
            write(&self.path, content, age, &self.clock);
        }

        /// Looks at the file this much later. Returns what has changed, and what is logged about mistakes.
        fn after(&self, milliseconds: u64) -> Option<Result<String, String>> {
            self.clock.pass(milliseconds);
            let mut watch = lock(&self.tokens.watch);
            let (change, faults) = self.tokens.look(&mut watch, SETTLE_TIME);
            let name = format!("{SETTING}: \"{}\"", self.path.display());
            let bare = |what: String| what.replace(&name, "");
            match faults.is_empty() {
                true => change.map(bare).map(Ok),
                false => Some(Err(bare(faults.join("|")))),
            }
        }

        fn names(&self) -> Vec<String> {
            let holders = [A, B, C].map(|token| self.tokens.holder(fingerprint(token)));
            let holders = holders.into_iter().flatten();
            holders.map(|(identity, _)| identity.name()).collect()
        }
    }

    impl Drop for TokenBench {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(path: &Path, content: impl AsRef<[u8]>, age: i64, clock: &HandClock) {
        fs::write(path, content).unwrap();
        let modified = Duration::from_millis(clock.today().saturating_add_signed(-age));
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + modified)
            .unwrap();
    }

    /// Some lines of these tokens.
    fn lines(tokens: &[&str]) -> String {
        let name = |token: &str| match &token[..1] {
            "a" => "alice run",
            "b" => "bob read",
            _ => "cyd read",
        };
        let line = |token: &&str| format!("{} {token}\n", name(token));
        tokens.iter().map(line).collect()
    }

    fn change(tokens: usize, names: &str) -> Option<Result<String, String>> {
        Some(Ok(format!(
            " was read: {}{names}",
            counted(tokens, "token")
        )))
    }

    #[test]
    fn a_changed_file_is_read_once_and_says_whose_tokens_changed() {
        let bench = TokenBench::new(&lines(&[A]));
        assert_eq!(bench.after(1000), None);
        bench.write(lines(&[A, B]), 100);
        assert_eq!(bench.after(1000), change(2, "; added: bob"));
        assert_eq!(bench.names(), ["alice", "bob"]);
        assert_eq!(bench.after(1000), None);
        // Of the same length and time.
        bench.write(lines(&[A, C]), 100);
        assert_eq!(bench.after(1000), change(2, "; added: cyd; removed: bob"));
        bench.write(lines(&[A, C]), 200);
        assert_eq!(bench.after(1000), None, "only its time is another");
        bench.write(lines(&[A]).replace("run", "read"), 100);
        let both = change(1, "; changed: alice; removed: cyd");
        assert_eq!(bench.after(1000), both);
        let text = format!("alice read {A} models=x\nalice read {B} models=x");
        bench.write(text, 100);
        assert_eq!(bench.after(1000), change(2, "; changed: alice"));
        bench.write("# nobody", 100);
        assert_eq!(bench.after(1000), change(0, "; removed: alice"));
        assert_eq!(bench.names(), [""; 0]);
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let bench = TokenBench::new(&lines(&[A]));
        bench.clock.pass(1000);
        bench.write("#", 99);
        let found = (bench.after(0), bench.names());
        assert_eq!(found, (None, vec!["alice".to_owned()]));
        bench.write(lines(&[B]), 0);
        assert_eq!(bench.after(99), None);
        let to = |new: &str, old: &str| change(1, &format!("; added: {new}; removed: {old}"));
        assert_eq!(bench.after(1), to("bob", "alice"));
        // A clock that is ahead of ours must not keep it unread.
        bench.write(lines(&[A]), -9000);
        assert_eq!(bench.after(1000), to("alice", "bob"));
        // On demand at once, however fresh, and once more when it has rested.
        bench.write(lines(&[B]), 0);
        bench.tokens.reload();
        assert_eq!(bench.names(), ["bob"]);
        bench.write(lines(&[C]), 0);
        let found = (bench.after(1000), bench.after(1000));
        assert_eq!(found, (to("cyd", "bob"), None));
    }

    #[test]
    fn a_bad_line_grants_nothing_and_the_good_ones_count_at_once() {
        let bench = TokenBench::new(&lines(&[A, B]));
        // Alice is to go, and Bob's new line has a mistake.
        bench.write(lines(&[C]) + "bob rum " + B + "\nalice", 100);
        let role = ", line 2: the second word must be the role: run, read or metrics";
        let told = format!("{role}|, line 3: {FORM}");
        assert_eq!(bench.after(1000), Some(Err(told.clone())));
        assert_eq!(bench.names(), ["cyd"]);
        assert!(bench.tokens.is_failing());
        assert_eq!((bench.after(1000), bench.after(58_000)), (None, None));
        let found = bench.after(1000);
        assert_eq!(found, Some(Err(told)), "once a minute");
        bench.write(lines(&[C]) + "* read -", 100);
        assert_eq!(bench.after(1000), change(1, "; added: *"));
        assert!(!bench.tokens.is_failing());
    }

    #[test]
    fn a_file_that_is_empty_or_cannot_be_read_changes_nothing() {
        let bench = TokenBench::new(&lines(&[A]));
        let told = |why: &str| Some(Err(format!("{why}{STAY}")));
        let twice = || (bench.after(1000), bench.after(1000));
        bench.write(" \n", 100);
        let empty = " is empty; put a comment into it to remove every token";
        assert_eq!(twice(), (told(empty), None));
        bench.write(b"\xff\xfe", 100);
        assert_eq!(twice(), (told(" is not used: it is not UTF-8"), None));
        bench.write(vec![b'\n'; (1 << 20) + 1], 100);
        assert_eq!(
            twice(),
            (told(" is not used: it is larger than 1 MiB"), None)
        );
        fs::remove_file(&bench.path).unwrap();
        let (missing, again) = twice();
        let missing = missing.unwrap().unwrap_err();
        assert!(missing.contains("no such file: ") && again.is_none());
        fs::create_dir(&bench.path).unwrap();
        let (folder, again) = twice();
        let why = folder.clone().unwrap().unwrap_err();
        assert!(
            why.contains(": it is not a plain file") && again.is_none(),
            "{why}"
        );
        assert_eq!(bench.after(60_000), folder);
        fs::remove_dir(&bench.path).unwrap();
        assert!(bench.names() == ["alice"] && bench.tokens.is_failing());
        bench.write(lines(&[B]), 100);
        assert_eq!(bench.after(1000), change(1, "; added: bob; removed: alice"));
        assert_eq!(bench.names(), ["bob"]);
    }

    #[test]
    fn keys_say_what_a_name_may_do_and_a_star_what_all_others_may() {
        let keys = "models=gpt-4o-mini,llama* runs-per-minute=5 tokens-per-month=1000 until=2026-07-28 # x";
        let text = format!(
            "alice run {A} {keys}\nalice run {B} {}\n* read - models=tiny",
            keys.replace("28", "29")
        );
        let (table, faults) = parse(&text, None, true);
        assert_eq!((table.len(), faults), (3, Vec::new()));
        let help = include_str!("../cli/topics/access.txt");
        let fields = format!("{:?}", Allowance::default()).replace('_', "-");
        for field in fields.split(", ").skip(1) {
            let key = field.split(':').next().unwrap().to_owned() + "=";
            let is_told = KEYS.contains(&key) && help.contains(&format!("\n  {key}"));
            assert!(is_told, "{key} in KEYS, and in src/cli/topics/access.txt");
        }
        let allowance = &table[&fingerprint(A)].1;
        assert_eq!(allowance.models, ["gpt-4o-mini", "llama*"]);
        let found = (allowance.runs_per_minute, allowance.tokens_per_month);
        assert_eq!(found, (Some(5), Some(1000)));
        let hex = "sha256: is not followed by 64 hex digits";
        let star = "the line for * must have a - where other lines have a token|so nobody without a line of their own is admitted now";
        let ledger = "tokens-per-month= is counted in the ledger, so it needs --state-dir";
        let bad = "modles=x|models=a,,b|models=a*b|models=\"a\"|models=x models=y|runs-per-minute=0|Until=x|\
            runs-per-minute=+5|runs-per-minute=4294967296|until=2099-01-01 until=2099-01-01|until=2026-02-30";
        for keys in bad.split('|') {
            let why = mistake(&format!("a run {A} {keys}"), None);
            let key = keys.split('=').next().unwrap();
            assert_eq!(why, format!("line 1: {key} is wrong; {KEYS}"), "{keys}");
        }
        let secret = mistake(&format!("a run {A} {B}=x"), None);
        assert_eq!(secret, format!("line 1: a word with = is wrong; {KEYS}"));
        for (line, why) in [
            (format!("a run {A} x"), FORM),
            (format!("a run SHA256:{A}"), hex),
            (format!("a run {A} tokens-per-month=9"), ledger),
            (format!("a run sha256:{A}"), hex),
            (format!("a run sha256:{:064}", 0), hex),
            (format!("* run {A}"), star),
        ] {
            assert_eq!(mistake(&line, None), format!("line 1: {why}"));
        }
        let other = format!("a run {A} models=x\na run {B} models=y");
        let why = "line 2: this name has another role or other keys on line 1; give it the same on each line";
        assert_eq!(mistake(&other, None), why);
        assert_eq!(mistake(&format!("default run {A} models=x"), Some(B)), "");
        // The first of the tokens ends with its day, here at midnight.
        let bench = TokenBench::new(&text.replace(" tokens-per-month=1000", ""));
        assert_eq!(bench.names(), ["alice", "alice"]);
        bench.clock.pass(43_200_000);
        assert_eq!(bench.tokens.holder(fingerprint(A)), Err(Flaw::EXPIRED));
        assert_eq!(bench.names(), ["alice"]);
        let others = bench.tokens.others().unwrap().unwrap();
        let found = (others.role, &*others.models);
        assert_eq!(found, (Role::Read, &["tiny".to_owned()][..]));
        for typo in [
            "* read - modles=tiny",
            "a\n *read -",
            "'*' read -",
            "all read -",
            "read * -",
        ] {
            let until = parse(typo, None, true).0[&NOBODY].1.until.clone();
            assert_eq!(until.as_deref(), Some("1970-01-01"), "they may do nothing");
        }
        let others = |line: &str| parse(line, None, true).0.contains_key(&NOBODY);
        assert!(!others(&format!("- run {A}")) && !others("bob - left\n# * read -"));
    }

    #[test]
    fn a_bad_file_is_no_start() {
        let (alone, secret) = (Accounts::alone(1), || Some(Secret::new("x")));
        let open = |default, file| Tokens::open(default, file, false, &alone);
        let missing = open(secret(), Some("/no/such".into())).err().unwrap();
        let expected = "--tokens-file (FABRIC_MCP_TOKENS_FILE): no such file: \"/no/such\"; give \
            one with the lines that fabric-mcp --generate token NAME ROLE prints";
        assert_eq!(missing, expected);
        let checked = Tokens::check(None, "/no/such".into(), false).unwrap_err();
        assert!(checked.starts_with("--check-tokens: no such file: \"/no/such\";"));
        assert!(open(None, None).unwrap().is_empty());
        let only = open(secret(), None).unwrap();
        let has = |token: &str| only.holder(fingerprint(token)).is_ok();
        assert!(!only.is_empty() && has("x") && !has("") && !has("xx"));
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_the_file_is_known() {
        use std::os::unix::fs::PermissionsExt;
        let bench = TokenBench::new(&lines(&[A]));
        for mode in [0o600, 0o640, 0o660, 0o644, 0o602] {
            fs::set_permissions(&bench.path, fs::Permissions::from_mode(mode)).unwrap();
            let found = is_open(&fs::metadata(&bench.path).unwrap());
            assert_eq!(found, [0o644, 0o602].contains(&mode), "{mode:o}");
        }
        bench.after(1000);
        fs::set_permissions(&bench.path, fs::Permissions::from_mode(0o600)).unwrap();
        let told = change(1, "");
        assert_eq!(bench.after(1000), told, "a change of that is noticed");
    }
}
