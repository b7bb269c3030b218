//! The valid tokens: read at the start, on demand, and when their file has changed.
//!
//! ```text
//!   request, tick of a stream ─▶ a second since the last look? ─▶ stat: another file? ─▶ 100 ms old? ─▶ read
//!                                                                       SIGHUP ────────────────────────▶ read
//! ```
//! There is no thread for this: whoever checks a token checks the file. A file that was just written may be incomplete,
//! or change again within the resolution of its timestamp, so it is read [`REST`] later. A file that is unreadable or
//! has a mistake changes nothing.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::clock::{TimeOfDay, time_of_day};
use super::digest::{Digest, Keyed};
use super::identity::{Identity, Role};
use super::tokens::TokenTable;
use crate::config::Secret;
use crate::sync::{lock, try_lock};

/// What names the file.
const SETTING: &str = "--tokens-file (FABRIC_MCP_TOKENS_FILE)";
/// How often the file is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);
/// How long a file must have been unchanged before it is read.
const REST: Duration = Duration::from_millis(100);
/// Largest file, in bytes: some 10,000 tokens.
const MAX_FILE: u64 = 1 << 20;

/// The named tokens.
pub(crate) struct Tokens {
    keyed: Keyed,
    default: Option<Secret>,
    file: Option<PathBuf>,
    table: Mutex<Arc<TokenTable>>,
    /// Counts the tables so far.
    generation: AtomicU64,
    begun: Instant,
    /// Before this the file is not looked at, in milliseconds since `begun`.
    due: AtomicU64,
    watch: Mutex<Watch>,
}

/// What is known of the file.
#[derive(Default)]
struct Watch {
    /// As it was read last; `None` if it is to be read again.
    seen: Option<SeenFile>,
    content: Option<Digest>,
    warned: bool,
}

/// A state of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SeenFile {
    There {
        len: u64,
        modified: Option<TimeOfDay>,
        /// Device, inode, and when the inode changed: with these, a file that was replaced or written under its old time.
        inode: [i64; 4],
    },
    Missing(ErrorKind),
}

impl SeenFile {
    fn of(metadata: &Metadata) -> SeenFile {
        #[cfg(unix)]
        let inode = {
            use std::os::unix::fs::MetadataExt;
            // Only ever compared: a cut does no harm.
            [
                metadata.dev() as i64,
                metadata.ino() as i64,
                metadata.ctime(),
                metadata.ctime_nsec(),
            ]
        };
        #[cfg(not(unix))]
        let inode = [0; 4];
        SeenFile::There {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            inode,
        }
    }

    fn has_rested(&self, now: TimeOfDay) -> bool {
        // A time in the future is another machine's clock.
        let age = |time: TimeOfDay| now.duration_since(time).unwrap_or(Duration::MAX);
        !matches!(self, SeenFile::There { modified: Some(time), .. } if age(*time) < REST)
    }
}

/// What reading the file has changed.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    tokens: usize,
    new: usize,
    gone: usize,
}

/// Proof that a caller has presented a named token.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldNamedToken {
    digest: Digest,
    generation: u64,
}

impl Tokens {
    /// The token of `FABRIC_MCP_AUTH_TOKEN`, which is called `default`, and those of the file.
    ///
    /// # Errors
    /// The file cannot be read or has a mistake: one line that begins with the variable's name.
    pub(crate) fn open(default: Option<Secret>, file: Option<PathBuf>) -> Result<Tokens, String> {
        let keyed = Keyed::new();
        let tokens = Tokens {
            table: Mutex::new(Arc::new(TokenTable::of(default.as_ref(), &keyed))),
            keyed,
            default,
            file,
            generation: AtomicU64::new(0),
            begun: Instant::now(),
            due: AtomicU64::new(LOOK.as_millis() as u64),
            watch: Mutex::default(),
        };
        if let Some(file) = &tokens.file {
            let change = tokens.read(file, &mut lock(&tokens.watch), time_of_day())?;
            report(file, Ok(change));
        }
        Ok(tokens)
    }

    /// Is there no token at all, nor a file for some?
    pub(super) fn is_empty(&self) -> bool {
        self.default.is_none() && self.file.is_none()
    }

    /// Reads the file now, as SIGHUP asks for, and says in the log what came of it.
    pub(crate) fn reload(&self) {
        let Some(file) = &self.file else { return };
        let mut watch = lock(&self.watch);
        watch.content = None;
        report(file, self.read(file, &mut watch, time_of_day()));
    }

    /// Reads the file if it has changed; looks at most every second. Cheap enough for every request.
    pub(super) fn poll(&self) {
        let Some(file) = &self.file else { return };
        if let Some(result) = self.look(file, self.begun.elapsed(), &time_of_day) {
            report(file, result);
        }
    }

    /// The holder of this token.
    pub(super) fn find(&self, given: &str) -> Option<(Identity, Role, HeldNamedToken)> {
        // Before the table, so that a later table is never taken for this one.
        let generation = self.generation.load(Ordering::Acquire);
        let table = lock(&self.table).clone();
        let digest = self.keyed.digest(given.as_bytes());
        let holder = table.find(given, digest)?;
        Some((
            holder.identity.clone(),
            holder.role,
            HeldNamedToken { digest, generation },
        ))
    }

    /// Is the token still valid, with the same name and role?
    pub(super) fn is_good(&self, shown: HeldNamedToken, identity: &Identity, role: Role) -> bool {
        if self.generation.load(Ordering::Acquire) == shown.generation {
            return true;
        }
        let table = lock(&self.table).clone();
        table
            .holder(shown.digest)
            .is_some_and(|holder| holder.identity == *identity && holder.role == role)
    }

    /// `None` if there was nothing to do.
    fn look(
        &self,
        file: &Path,
        now: Duration,
        time: &dyn Fn() -> TimeOfDay,
    ) -> Option<Result<Option<Change>, String>> {
        let now = now.as_millis() as u64;
        if now < self.due.load(Ordering::Relaxed) {
            return None;
        }
        // Not while another thread is checking.
        let mut watch = try_lock(&self.watch)?;
        self.due
            .store(now + LOOK.as_millis() as u64, Ordering::Relaxed);
        let seen = match fs::metadata(file) {
            Ok(metadata) => SeenFile::of(&metadata),
            Err(error) => SeenFile::Missing(error.kind()),
        };
        if watch.seen.as_ref() == Some(&seen) {
            return None;
        }
        let time = time();
        if !seen.has_rested(time) {
            self.due
                .store(now + REST.as_millis() as u64, Ordering::Relaxed);
            return None;
        }
        Some(self.read(file, &mut watch, time))
    }

    /// Loads the file's tokens, if it is valid and has changed.
    fn read(
        &self,
        file: &Path,
        watch: &mut Watch,
        time: TimeOfDay,
    ) -> Result<Option<Change>, String> {
        let content = content(file, watch);
        // A file that was just written is read again later.
        watch.seen.take_if(|seen| !seen.has_rested(time));
        let content = content.inspect_err(|_| watch.content = None)?;
        let digest = self.keyed.digest(&content);
        if watch.content.replace(digest) == Some(digest) {
            return Ok(None);
        }
        let table = TokenTable::parse(&content, self.default.as_ref(), &self.keyed)
            .map_err(|mistake| format!("{SETTING}: \"{}\", {mistake}", file.display()))?;
        let mut current = lock(&self.table);
        let change = Change {
            tokens: table.len(),
            new: table.beyond(&current),
            gone: current.beyond(&table),
        };
        *current = Arc::new(table);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(Some(change))
    }
}

/// The bytes of the file. Notes in `watch` which state of it that is.
fn content(path: &Path, watch: &mut Watch) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let unreadable =
        |error: &std::io::Error| format!("{SETTING}: \"{shown}\" cannot be read: {}", error.kind());
    // Before it is opened: that alone would wait for ever at a pipe.
    let metadata =
        fs::metadata(path).inspect_err(|error| watch.seen = Some(SeenFile::Missing(error.kind())));
    let metadata = metadata.map_err(|error| unreadable(&error))?;
    watch.seen = Some(SeenFile::of(&metadata));
    if !metadata.is_file() {
        return Err(format!(
            "{SETTING}: \"{shown}\" is no regular file, so it could not be read again"
        ));
    }
    let mut file = File::open(path).map_err(|error| unreadable(&error))?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    watch.seen = Some(SeenFile::of(&metadata));
    let mut content = Vec::new();
    (&mut file)
        .take(MAX_FILE + 1)
        .read_to_end(&mut content)
        .map_err(|error| unreadable(&error))?;
    if content.len() as u64 > MAX_FILE {
        return Err(format!("{SETTING}: \"{shown}\" is larger than 1 MiB"));
    }
    let open = is_open(&metadata);
    if open && !watch.warned {
        log::warn!(
            "{SETTING}: every user of this machine can read or change \"{shown}\"; chmod o-rwx it"
        );
    }
    watch.warned = open;
    Ok(content)
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

fn report(file: &Path, result: Result<Option<Change>, String>) {
    match result {
        Ok(None) => {}
        Ok(Some(Change { tokens, new, gone })) => {
            log::info!(
                "{SETTING}: \"{}\" was read: {tokens} tokens, {new} of them new, {gone} gone",
                file.display()
            );
        }
        Err(why) => log::error!("{why}; the tokens that were good before stay so"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const A: &str = "alice run aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
    const B: &str = "bob read bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n";
    /// As long as `B`.
    const C: &str = "cyd read cccccccccccccccccccccccccccccccc\n";

    /// A tokens file, and clocks that are set by hand.
    struct Bench {
        path: PathBuf,
        tokens: Tokens,
        time: TimeOfDay,
        now: Duration,
    }

    impl Bench {
        fn new(content: &str) -> Bench {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let name = format!(
                "fabric-mcp-{}-tokens-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            );
            let path = std::env::temp_dir().join(name);
            fs::write(&path, content).unwrap();
            let time = time_of_day();
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(time - Duration::from_secs(9))
                .unwrap();
            let tokens = Tokens::open(None, Some(path.clone())).unwrap();
            Bench {
                path,
                tokens,
                time,
                now: Duration::ZERO,
            }
        }

        /// Writes the file, `age` ago.
        fn write(&self, content: impl AsRef<[u8]>, age: Duration) {
            fs::write(&self.path, content).unwrap();
            File::options()
                .write(true)
                .open(&self.path)
                .unwrap()
                .set_modified(self.time - age)
                .unwrap();
        }

        /// Looks, some time after the last look.
        fn after(&mut self, milliseconds: u64) -> Option<Result<Option<Change>, String>> {
            self.now += Duration::from_millis(milliseconds);
            self.tokens.look(&self.path, self.now, &|| self.time)
        }

        fn names(&self) -> Vec<String> {
            let all = [A, B, C].map(|line| line.split_whitespace().nth(2).unwrap());
            all.iter()
                .filter_map(|token| self.tokens.find(token))
                .map(|found| found.0.name().to_string())
                .collect()
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }

    const OLD: Duration = Duration::from_millis(100);

    fn change(tokens: usize, new: usize, gone: usize) -> Option<Result<Option<Change>, String>> {
        Some(Ok(Some(Change { tokens, new, gone })))
    }

    #[test]
    fn a_changed_file_is_read_and_an_unchanged_one_is_not() {
        let mut bench = Bench::new(A);
        let alice = bench.tokens.find(&A[10..42]).unwrap();
        assert_eq!(bench.after(1000), None);
        bench.write(format!("{A}{B}"), OLD);
        assert_eq!(bench.after(999), None, "once a second at most");
        assert_eq!(bench.after(1), change(2, 1, 0));
        assert_eq!(bench.names(), ["alice", "bob"]);
        assert_eq!(bench.after(1000), None);
        // Of the same length and time: a file of another inode, or one that was written in place.
        bench.write(format!("{A}{C}"), OLD);
        assert_eq!(bench.after(1000), change(2, 1, 1));
        assert!(
            bench.tokens.is_good(alice.2, &alice.0, alice.1),
            "who is not concerned stays"
        );
        bench.write(format!("{A}{C}"), OLD * 2);
        assert_eq!(
            bench.after(1000),
            Some(Ok(None)),
            "only its time is another"
        );
        bench.write(C, OLD);
        assert_eq!(bench.after(1000), change(1, 0, 1));
        assert!(!bench.tokens.is_good(alice.2, &alice.0, alice.1));
        bench.write("", OLD);
        assert_eq!(bench.after(1000), change(0, 0, 1), "nobody is left");
        assert_eq!(bench.names(), [""; 0]);
    }

    #[test]
    fn a_token_whose_role_or_name_changed_is_another() {
        let mut bench = Bench::new(A);
        let (identity, role, shown) = bench.tokens.find(&A[10..42]).unwrap();
        for other in [A.replace("run", "read"), A.replace("alice", "alicia")] {
            bench.write(&other, OLD);
            assert_eq!(bench.after(1000), change(1, 1, 1));
            assert!(!bench.tokens.is_good(shown, &identity, role), "{other}");
        }
        bench.write(A, OLD);
        assert_eq!(bench.after(1000), change(1, 1, 1));
        assert!(bench.tokens.is_good(shown, &identity, role));
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let mut bench = Bench::new(A);
        bench.write("", OLD - Duration::from_millis(1));
        assert_eq!(
            (bench.after(1000), bench.names()),
            (None, vec!["alice".to_owned()])
        );
        bench.write(B, OLD);
        assert_eq!(bench.after(99), None);
        assert_eq!(
            (bench.after(1), bench.names()),
            (change(1, 1, 1), vec!["bob".to_owned()])
        );
        // A clock that is ahead of ours must not keep it unread.
        fs::write(&bench.path, A).unwrap();
        File::options()
            .write(true)
            .open(&bench.path)
            .unwrap()
            .set_modified(bench.time + OLD * 9)
            .unwrap();
        assert_eq!(bench.after(1000), change(1, 1, 1));
        // On demand at once, and then once more when it has rested.
        bench.write(B, Duration::ZERO);
        bench.tokens.reload();
        assert_eq!(bench.names(), ["bob"]);
        bench.time += OLD;
        assert_eq!(
            (bench.after(1000), bench.after(1000)),
            (Some(Ok(None)), None)
        );
    }

    #[test]
    fn a_bad_file_changes_nothing_and_is_told_once() {
        let mut bench = Bench::new(A);
        let shown = format!(
            "--tokens-file (FABRIC_MCP_TOKENS_FILE): \"{}\"",
            bench.path.display()
        );
        let told = |why: &str| Some(Err(format!("{shown}{why}")));
        bench.write(format!("{B}cyd read short"), OLD);
        let short = ", line 2: the token is shorter than 32 characters; fabric-mcp --generate token NAME ROLE makes a good one";
        assert_eq!((bench.after(1000), bench.after(1000)), (told(short), None));
        bench.write(vec![b'\n'; (1 << 20) + 1], OLD);
        assert_eq!(
            (bench.after(1000), bench.after(1000)),
            (told(" is larger than 1 MiB"), None)
        );
        fs::remove_file(&bench.path).unwrap();
        assert_eq!(
            (bench.after(1000), bench.after(1000)),
            (told(" cannot be read: entity not found"), None)
        );
        fs::create_dir(&bench.path).unwrap();
        bench.time += Duration::from_secs(60);
        let folder = told(" is no regular file, so it could not be read again");
        assert_eq!((bench.after(1000), bench.after(1000)), (folder, None));
        fs::remove_dir(&bench.path).unwrap();
        assert_eq!(bench.names(), ["alice"]);
        bench.write(B, OLD);
        assert_eq!(
            (bench.after(1000), bench.names()),
            (change(1, 1, 1), vec!["bob".to_owned()])
        );
    }

    #[test]
    fn a_bad_file_is_no_start() {
        let open = |path: &str| {
            Tokens::open(Some(Secret::new("x")), Some(path.into()))
                .err()
                .unwrap()
        };
        let missing =
            "--tokens-file (FABRIC_MCP_TOKENS_FILE): \"/no/such\" cannot be read: entity not found";
        assert_eq!(open("/no/such"), missing);
        assert!(Tokens::open(None, None).unwrap().is_empty());
        let only = Tokens::open(Some(Secret::new("x")), None).unwrap();
        assert!(!only.is_empty() && only.find("x").is_some() && only.find("").is_none());
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_the_file_is_known() {
        use std::os::unix::fs::PermissionsExt;
        let bench = Bench::new(A);
        for (mode, open) in [
            (0o600, false),
            (0o640, false),
            (0o660, false),
            (0o644, true),
            (0o602, true),
        ] {
            fs::set_permissions(&bench.path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                is_open(&fs::metadata(&bench.path).unwrap()),
                open,
                "{mode:o}"
            );
        }
    }
}
