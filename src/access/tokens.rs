//! The named tokens: the one of the environment, and those of a file that is read again when it has changed.
//!
//! ```text
//!   request, run, tick of a stream ─▶ a second since the last look? ─▶ read ─▶ 100 ms old? ─▶ another text? ─▶ tokens
//!                                                            SIGHUP ─▶ read ────────────────────────────────▶ tokens
//! ```
//! There is no thread for this: whoever checks a token looks at the file. One that was just written may be incomplete, so
//! it counts [`REST`] later. A file that is unreadable or has a mistake changes nothing.
//! No message repeats a word of the file: a word in the wrong place may be a token.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::digest::{Digest, digest};
use super::identity::{Identity, Role};
use crate::account::Accounts;
use crate::config::{MAX_SECRET, Secret};
use crate::logging;
use crate::os::random;
use crate::sync::{lock, try_lock};
use crate::text::{counted, unusable};
use crate::time::{self, Clock, SystemClock};

/// What names the file.
const SETTING: &str = "--tokens-file (FABRIC_MCP_TOKENS_FILE)";
/// How often the file is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);
/// How long a file must have been unchanged before it counts.
const REST: Duration = Duration::from_millis(100);
/// Largest file, in bytes: some 10,000 tokens.
const MAX_FILE: u64 = 1 << 20;
/// The name of `FABRIC_MCP_AUTH_TOKEN`.
const DEFAULT: &str = "default";
/// The prefix of tokens that are generated here. None of them is ever sent to an OAuth issuer.
pub(super) const PREFIX: &str = "fmcp_";
/// Shortest token, in characters.
const MIN_TOKEN: usize = 32;
/// Longest name, in characters.
const MAX_NAME: usize = 64;

/// The named tokens.
pub(crate) struct Tokens {
    default: Option<Secret>,
    file: Option<PathBuf>,
    /// Where each name has a seat.
    accounts: Accounts,
    clock: Box<dyn Clock>,
    table: Mutex<TokenTable>,
    watch: Mutex<Watch>,
}

/// Who has which token, and may do what with it. The tokens themselves are not kept.
type TokenTable = HashMap<Digest, (Identity, Role)>;

/// When the file is looked at next, and what it was the last time: its text and whether everybody may read it, or why it
/// could not be read.
#[derive(Default)]
struct Watch {
    due: Duration,
    seen: Option<Result<(Digest, bool), String>>,
}

impl Tokens {
    /// The token of `FABRIC_MCP_AUTH_TOKEN`, which is called `default`, and those of the file. Each name gets a seat among
    /// `accounts`.
    ///
    /// # Errors
    /// The file cannot be read or has a mistake: one line that begins with the variable's name.
    pub(crate) fn open(
        default: Option<Secret>,
        file: Option<PathBuf>,
        accounts: &Accounts,
    ) -> Result<Tokens, String> {
        let tokens = Tokens {
            table: Mutex::new(parse(b"", default.as_ref())?),
            default,
            file,
            accounts: accounts.clone(),
            clock: Box::new(SystemClock::new()),
            watch: Mutex::default(),
        };
        let read = tokens.read(&mut lock(&tokens.watch), Duration::ZERO)?;
        report(Ok(read));
        tokens.seat(&lock(&tokens.table));
        Ok(tokens)
    }

    /// Is there no token at all, nor a file for some?
    pub(super) fn is_empty(&self) -> bool {
        self.default.is_none() && self.file.is_none()
    }

    /// Reads the file now, as SIGHUP asks for, and says in the log what came of it.
    pub(crate) fn reload(&self) {
        let mut watch = lock(&self.watch);
        watch.seen = None;
        report(self.read(&mut watch, Duration::ZERO));
    }

    /// The holder of the token with this digest by the file's present state. Cheap enough for every request.
    pub(super) fn holder(&self, digest: Digest) -> Option<(Identity, Role)> {
        // Not while another thread is reading.
        if self.file.is_some()
            && let Some(mut watch) = try_lock(&self.watch)
            && watch.due <= self.clock.steady()
        {
            let _nobody = logging::no_caller_scope();
            report(self.read(&mut watch, REST));
        }
        lock(&self.table).get(&digest).cloned()
    }

    /// Takes the file's tokens and says what has changed; `None` if the file has not, or not `rest` ago.
    fn read(&self, watch: &mut Watch, rest: Duration) -> Result<Option<String>, String> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        watch.due = self.clock.steady() + LOOK;
        let content = content(file);
        let modified = content.as_ref().map_or(0, |(.., modified)| *modified);
        // A time of the future is another machine's.
        let age = self.clock.today().checked_sub(modified);
        if age.is_some_and(|age| age < time::whole(rest)) {
            watch.due = self.clock.steady() + REST;
            return Ok(None);
        }
        let seen = content.as_ref().map_err(String::clone);
        let seen = Some(seen.map(|(text, is_open, _)| (digest(text), *is_open)));
        if watch.seen == seen {
            return Ok(None);
        }
        watch.seen = seen;
        let (text, is_open, _) = content.map_err(|why| format!("{SETTING}: {why}"))?;
        let shown = file.display();
        if is_open {
            log::warn!(
                "{SETTING}: every user of this machine can read or change \"{shown}\"; run chmod o-rwx on it"
            );
        }
        let named = format!("{SETTING}: \"{shown}\"");
        let table = parse(&text, self.default.as_ref());
        let table = table.map_err(|mistake| format!("{named}, {mistake}"))?;
        if table.is_empty() {
            log::warn!(
                "{named} has no token, so none is good; add a line that fabric-mcp --generate token NAME ROLE prints"
            );
        }
        Ok(Some(format!("{named} was read: {}", self.take(table))))
    }

    fn seat(&self, table: &TokenTable) {
        let names = table.values().map(|(identity, _)| identity.to_string());
        self.accounts.seat(names.collect());
    }

    fn take(&self, table: TokenTable) -> String {
        let beyond = |table: &TokenTable, other: &TokenTable| {
            let holders = table.iter();
            holders
                .filter(|(digest, holder)| other.get(digest) != Some(holder))
                .count()
        };
        let mut current = lock(&self.table);
        let (new, gone) = (beyond(&table, &current), beyond(&current, &table));
        self.seat(&table);
        *current = table;
        let tokens = counted(current.len(), "token");
        format!("{tokens}, {new} new, {gone} gone")
    }
}

/// The bytes of a file, whether everybody may read or change it, and when it was changed, in milliseconds since 1970.
fn content(path: &Path) -> Result<(Vec<u8>, bool, u64), String> {
    let unreadable = |error: io::Error| {
        let why = unusable("file", path, &error);
        format!("{why}; give one with the lines that fabric-mcp --generate token NAME ROLE prints")
    };
    let refused = |why: &str| Err(format!("\"{}\" {why}", path.display()));
    // Before it is opened: that alone would wait for ever at a pipe.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return refused("is no regular file, so it could not be read again");
    }
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE {
        return refused("is larger than 1 MiB");
    }
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

fn report(read: Result<Option<String>, String>) {
    match read {
        Ok(None) => {}
        Ok(Some(change)) => log::info!("{change}"),
        Err(why) => log::error!("{why}; the tokens that were good before stay so"),
    }
}

/// The tokens of the file's `text`, and `default`, the one of the environment. The error names the line and what is wrong
/// in it.
fn parse(text: &[u8], default: Option<&Secret>) -> Result<TokenTable, String> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|_| "this is not UTF-8 text")?;
    let mut table = TokenTable::new();
    // Where each name and each token was first. Line 0 is the environment.
    let mut names = HashMap::new();
    let mut tokens = HashMap::new();
    let environment = default.map(|token| (DEFAULT, Role::Run, token.expose()));
    let lines = iter::once(Ok(environment)).chain(text.lines().map(line_of));
    for (at, line) in lines.enumerate() {
        let Some((name, role, token)) = line.map_err(|why| format!("line {at}: {why}"))? else {
            continue;
        };
        let (before, first) = *names.entry(name).or_insert((at, role));
        if first != role {
            let (role, first, place) = (role.name(), first.name(), place(before));
            return Err(format!(
                "line {at}: this name has the role {role} here and {first} {place}; give it one role"
            ));
        }
        if let Some(before) = tokens.insert(token, at) {
            let place = place(before);
            return Err(format!(
                "line {at}: this token stands {place} too; give each line its own"
            ));
        }
        let identity = Identity::token(name);
        table.insert(digest(token.as_bytes()), (identity, role));
    }
    Ok(table)
}

/// Name, role and token of a line; `None` if there is nothing on it. A word that begins with `#` begins a comment.
fn line_of(line: &str) -> Result<Option<(&str, Role, &str)>, &'static str> {
    let mut words = line
        .split_ascii_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let Some(name) = words.next() else {
        return Ok(None);
    };
    let (Some(role), Some(token), None) = (words.next(), words.next(), words.next()) else {
        return Err("a line is NAME ROLE TOKEN, with spaces between; a comment begins with #");
    };
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

/// A line for the file with a fresh token of 256 random bits.
///
/// # Errors
/// What is wrong with the name.
pub(crate) fn generate(name: &str, role: Role) -> Result<String, &'static str> {
    check_name(name)?;
    Ok(format!("{name} {} {}\n", role.name(), token()))
}

/// A new token, of 256 random bits.
pub(crate) fn token() -> String {
    format!("{PREFIX}{}{}", random::id(), random::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::hand::HandClock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccccccccccccccccccccc";

    fn mistake(text: &str, default: Option<&str>) -> String {
        let default = default.map(Secret::new);
        parse(text.as_bytes(), default.as_ref())
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn lines_are_read_however_they_are_spaced() {
        let text = format!(
            "\u{feff}# the team\r\n\r\nalice run {A}\r\n\t bob.b@x-1_  read\t{B}  # his laptop\r\n   # more\r\nalice run {A}2\r\n{} read {}",
            "n".repeat(MAX_NAME),
            "t".repeat(MAX_SECRET)
        );
        let table = parse(text.as_bytes(), Some(&Secret::new("short"))).unwrap();
        let find = |token: &str| {
            table
                .get(&digest(token.as_bytes()))
                .map(|(identity, role)| (identity.to_string(), *role))
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
        let shape = "a line is NAME ROLE TOKEN, with spaces between; a comment begins with #";
        let name = "a name has 1 to 64 letters, digits, dots, hyphens, underscores and @";
        let role = "the role, the second word, is none of run, read and metrics";
        let short = "the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one";
        let ascii = "line 1: the token holds other characters than visible ASCII";
        let large = "line 1: the token is longer than 4096 characters";
        let taken = "this token stands on line 1 too; give each line its own";
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
            (format!("alice run {A}é"), ascii.into()),
            (format!("alice run {A}\u{a0}x"), ascii.into()),
            (format!("alice run {A}\0"), ascii.into()),
            (format!("alice run {}", "x".repeat(4097)), large.into()),
            (twice("\r\n\r\nbob read"), format!("line 3: {taken}")),
            (twice("\nalice run"), format!("line 2: {taken}")),
            (
                format!("alice run {A}\nbob run {B}\nalice read {A}3"),
                "line 3: this name has the role read here and run on line 1; give it one role"
                    .into(),
            ),
        ] {
            let found = mistake(&text, None);
            assert_eq!(found, expected);
            assert!(!found.contains("aaaa") && !found.contains("bbbb"));
        }
        let found = mistake(&format!("default run {A}"), Some(B));
        assert_eq!(found, "", "the token of the environment can be rotated");
        assert_eq!(
            mistake(&format!("default read {A}"), Some(B)),
            "line 1: this name has the role read here and run in FABRIC_MCP_AUTH_TOKEN; give it one role"
        );
        assert_eq!(
            mistake(&format!("\nalice run {A}"), Some(A)),
            "line 2: this token stands in FABRIC_MCP_AUTH_TOKEN too; give each line its own"
        );
        let utf16 = parse(b"# x\n\xff\xfea\0", None).err();
        assert_eq!(utf16.as_deref(), Some("this is not UTF-8 text"));
    }

    #[test]
    fn what_is_generated_can_be_read_and_is_never_the_same() {
        let line = generate("ci", Role::Read).unwrap();
        assert_eq!((line.len(), &line[..13]), (78, "ci read fmcp_"));
        let two = format!("{line}{}", generate("ci", Role::Read).unwrap());
        assert_eq!(mistake(&two, None), "");
        assert!(generate("a b", Role::Run).is_err() && generate("", Role::Run).is_err());
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
                ..Tokens::open(None, Some(path.clone()), &Accounts::alone(1)).unwrap()
            };
            lock(&tokens.watch).due = clock.steady() + LOOK;
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

        /// Looks, some time after the last look.
        fn after(&self, milliseconds: u64) -> Option<Result<String, String>> {
            self.clock.pass(milliseconds);
            let mut watch = lock(&self.tokens.watch);
            if self.clock.steady() < watch.due {
                return None;
            }
            let read = self.tokens.read(&mut watch, REST).transpose()?;
            let name = format!("{SETTING}: \"{}\"", self.path.display());
            let bare = |what: String| what.replace(&name, "");
            Some(read.map(bare).map_err(bare))
        }

        fn names(&self) -> Vec<String> {
            let holders = [A, B, C].map(|token| self.tokens.holder(digest(token.as_bytes())));
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

    fn change(tokens: usize, new: usize, gone: usize) -> Option<Result<String, String>> {
        Some(Ok(format!(
            " was read: {}, {new} new, {gone} gone",
            counted(tokens, "token")
        )))
    }

    #[test]
    fn a_changed_file_is_read_once() {
        let bench = TokenBench::new(&lines(&[A]));
        assert_eq!(bench.after(1000), None);
        bench.write(lines(&[A, B]), 100);
        assert_eq!(bench.after(999), None, "once a second at most");
        assert_eq!(bench.after(1), change(2, 1, 0));
        assert_eq!(bench.names(), ["alice", "bob"]);
        assert_eq!(bench.after(1000), None);
        // Of the same length and time.
        bench.write(lines(&[A, C]), 100);
        assert_eq!(bench.after(1000), change(2, 1, 1));
        bench.write(lines(&[A, C]), 200);
        assert_eq!(bench.after(1000), None, "only its time is another");
        bench.write(lines(&[A]).replace("run", "read"), 100);
        assert_eq!(bench.after(1000), change(1, 1, 2), "another role");
        bench.write("", 100);
        assert_eq!(bench.after(1000), change(0, 0, 1), "nobody is left");
        assert_eq!(bench.names(), [""; 0]);
    }

    #[test]
    fn whoever_asks_for_a_holder_looks_at_the_file() {
        let bench = TokenBench::new(&lines(&[A]));
        bench.write(lines(&[B]), 100);
        bench.clock.pass(999);
        assert_eq!(bench.names(), ["alice"]);
        bench.clock.pass(1);
        assert_eq!(bench.names(), ["bob"]);
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let bench = TokenBench::new(&lines(&[A]));
        bench.clock.pass(1000);
        bench.write("", 99);
        assert_eq!(
            (bench.after(0), bench.names()),
            (None, vec!["alice".to_owned()])
        );
        bench.write(lines(&[B]), 0);
        assert_eq!(bench.after(99), None);
        assert_eq!(bench.after(1), change(1, 1, 1));
        // A clock that is ahead of ours must not keep it unread.
        bench.write(lines(&[A]), -9000);
        assert_eq!(bench.after(1000), change(1, 1, 1));
        // On demand at once, however fresh, and once more when it has rested.
        bench.write(lines(&[B]), 0);
        bench.tokens.reload();
        assert_eq!(bench.names(), ["bob"]);
        bench.write(lines(&[C]), 0);
        assert_eq!(
            (bench.after(1000), bench.after(1000)),
            (change(1, 1, 1), None)
        );
    }

    #[test]
    fn a_bad_file_changes_nothing_and_is_told_once() {
        let bench = TokenBench::new(&lines(&[A]));
        let told = |why: &str| (Some(Err(why.to_owned())), None);
        let twice = || (bench.after(1000), bench.after(1000));
        bench.write(lines(&[B]) + "cyd read short", 100);
        let short = ", line 2: the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one";
        assert_eq!(twice(), told(short));
        bench.write(vec![b'\n'; (1 << 20) + 1], 100);
        assert_eq!(twice(), told(" is larger than 1 MiB"));
        fs::remove_file(&bench.path).unwrap();
        let (missing, again) = twice();
        let missing = missing.unwrap().unwrap_err();
        assert!(missing.contains("no such file: ") && again.is_none());
        fs::create_dir(&bench.path).unwrap();
        let folder = " is no regular file, so it could not be read again";
        assert_eq!(twice(), told(folder));
        fs::remove_dir(&bench.path).unwrap();
        assert_eq!(bench.names(), ["alice"]);
        bench.write(lines(&[B]), 100);
        assert_eq!(
            (bench.after(1000), bench.names()),
            (change(1, 1, 1), vec!["bob".to_owned()])
        );
    }

    #[test]
    fn a_bad_file_is_no_start() {
        let missing = Tokens::open(
            Some(Secret::new("x")),
            Some("/no/such".into()),
            &Accounts::alone(1),
        )
        .err();
        let expected = "--tokens-file (FABRIC_MCP_TOKENS_FILE): no such file: \"/no/such\"; give one with the lines \
                        that fabric-mcp --generate token NAME ROLE prints";
        assert_eq!(missing.as_deref(), Some(expected));
        assert!(
            Tokens::open(None, None, &Accounts::alone(1))
                .unwrap()
                .is_empty()
        );
        let only = Tokens::open(Some(Secret::new("x")), None, &Accounts::alone(1)).unwrap();
        let has = |token: &str| only.holder(digest(token.as_bytes())).is_some();
        assert!(!only.is_empty() && has("x") && !has("") && !has("xx"));
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_the_file_is_known() {
        use std::os::unix::fs::PermissionsExt;
        let bench = TokenBench::new(&lines(&[A]));
        for (mode, open) in [
            (0o600, false),
            (0o640, false),
            (0o660, false),
            (0o644, true),
            (0o602, true),
        ] {
            fs::set_permissions(&bench.path, fs::Permissions::from_mode(mode)).unwrap();
            let found = is_open(&fs::metadata(&bench.path).unwrap());
            assert_eq!(found, open, "{mode:o}");
        }
        bench.after(1000);
        fs::set_permissions(&bench.path, fs::Permissions::from_mode(0o600)).unwrap();
        let told = change(1, 0, 0);
        assert_eq!(bench.after(1000), told, "a change of that is noticed");
    }
}
