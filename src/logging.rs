//! The log on stderr: a bounded queue, written by its own thread.
//!
//! In scope: which records are logged, the two formats and their escaping, the queue, panics. Not in scope: what is worth
//! a line.
//!
//! A line is a list of fields, and each format is made from them. What the macros of `log` get is a sentence: the field
//! `message`. `simple_logger` writes the lines that are not JSON: `2026-07-28T12:00:00.000Z INFO  [target] key=value`.
//! Queueing, the time of the call (its timestamps need another crate), and surviving a closed stderr (it panics) are added
//! here.
//!
//! - A caller never waits for stderr: it puts its line into a queue of [`MAX_LOG_LINES`]. When that is full the line is
//!   dropped, and the number of dropped lines is logged once there is room.
//! - A closed stderr ends nothing: the panic is caught, and the next line is tried again.
//! - Only our own records are logged: at trace level, ureq shows each byte it sends, API key included.
//! - After [`start`], nobody else may write to stderr: `simple_logger` may block while it holds its lock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write as _;
#[cfg(unix)]
use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
#[cfg(unix)]
use std::os::{fd::AsFd, unix::fs::MetadataExt};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::thread::{self, LocalKey, Thread};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::{Value, json};
use simple_logger::SimpleLogger;

use crate::config::WORKER_STACK;
use crate::error::{Error, Kind};
use crate::sync::{self, Finally, lock};
use crate::text::{is_unprintable, prefix};
use crate::time;

/// Lines that may wait for stderr; further ones are dropped and counted.
const MAX_LOG_LINES: usize = 1024;
/// Longest text of one field, in bytes; the rest is cut off. A line has a dozen fields, and few of them come from outside.
const MAX_TEXT: usize = 4 << 10;

/// How long the writing thread sleeps when it has written all lines. Waking it for each line would take callers more
/// time than everything else about that line.
const PAUSE: Duration = Duration::from_millis(2);

/// The target of what is logged even at level `critical`.
const CRITICAL: &str = "critical";
/// The field of a sentence. If it is the first field, its key is left out where nothing in it could be taken for a
/// field.
const MESSAGE: &str = "message";

/// Whether lines are JSON; set at the start.
static AS_JSON: OnceLock<bool> = OnceLock::new();

static LOGGER: LazyLock<Logger> = LazyLock::new(Logger::default);

/// Starts logging panics, and records of `level` and above; without a level, only what ends the process. The log's
/// thread starts with the first line, so that it does not delay the first answer. A second call only changes the level.
pub(crate) fn start(level: Option<Level>, as_json: bool) {
    let _ = AS_JSON.set(as_json);
    log::set_max_level(level.map_or(LevelFilter::Off, |level| level.to_level_filter()));
    // Fails if this logger is set already.
    let _ = log::set_logger(&*LOGGER);
    std::panic::set_hook(Box::new(log_panic));
}

/// Logs why the process is about to end, at every level.
pub(crate) fn critical(message: impl Into<String>) {
    LOGGER.push(Level::Error, CRITICAL, Line::sentence(message));
    // If the log's thread has not begun, this one writes: nothing waits for it any more.
    if !mem::replace(&mut lock(&LOGGER.0).has_writer, true) {
        LOGGER.write();
    }
}

/// Logs a sentence at level debug. In releases, the macros of `log` do nothing at that level, because those of
/// libraries would be a hundredth of the program.
pub(crate) fn debug(target: &'static str, message: String) {
    Line::sentence(message).log(Level::Debug, target);
}

/// Waits, `limit` at most, until all lines are written; false if they are not. For the end of the process.
pub(crate) fn flush(limit: Duration) -> bool {
    LOGGER.flush(limit)
}

/// The fields of one line, in their order: text, which is quoted where it must be, or numbers and booleans, which are
/// written as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    /// A line that begins with a sentence.
    pub(crate) fn sentence(message: impl Into<String>) -> Line {
        let mut line = Line::default();
        line.field(MESSAGE, message.into());
        line
    }

    /// Adds a field. `key` is of lower-case letters and `_`; a key that comes again has several values.
    pub(crate) fn field(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Line {
        let mut value = value.into();
        if let Value::String(text) = &mut value
            && text.len() > MAX_TEXT
        {
            text.truncate(prefix(text, MAX_TEXT).len());
            text.push('…');
        }
        self.fields.push((key, value));
        self
    }

    /// Adds a field, if there is a value.
    pub(crate) fn optional(
        &mut self,
        key: &'static str,
        value: Option<impl Into<Value>>,
    ) -> &mut Line {
        if let Some(value) = value {
            self.field(key, value);
        }
        self
    }

    /// Adds the pattern and the model of an error that is about a rule of the operator's.
    pub(crate) fn policy_refusal(&mut self, error: &Error) {
        if let Some([pattern, model, _]) = error.policy_refusal.as_deref() {
            self.field("pattern", pattern.as_str())
                .field("model", model.as_str());
        }
    }

    /// Adds an error's kind, Fabric's HTTP status, and the `reason`, unless that may quote the caller.
    pub(crate) fn failure(&mut self, error: &Error) {
        let reason = match error.is_private {
            true => "[...]",
            false => &error.detail,
        };
        let by_policy = error.policy_refusal.as_deref().map(|[.., why]| &**why);
        let reason = by_policy.or((!error.kind.quotes_caller()).then_some(reason));
        self.field("error", error.kind.name())
            .optional("status", error.status)
            .optional("reason", reason);
    }

    /// Logs it for `target`, a module's path, if `level` is logged.
    pub(crate) fn log(self, level: Level, target: &str) {
        if level <= log::max_level() {
            LOGGER.add(level, target, self);
        }
    }

    /// As `key=value`. Text from outside can neither end the line nor look like another field.
    pub(crate) fn to_logfmt(&self) -> String {
        let mut out = String::with_capacity(256);
        for (at, (key, value)) in self.fields.iter().enumerate() {
            if at > 0 {
                out.push(' ');
            }
            let Value::String(value) = value else {
                // Writing to a String cannot fail.
                let _ = write!(out, "{key}={value}");
                continue;
            };
            let is_sentence = at == 0 && *key == MESSAGE;
            let is_plain = |c: char| {
                !is_unprintable(c)
                    && !matches!(c, '=' | '"' | '\\')
                    && (is_sentence || !c.is_whitespace())
            };
            let is_bare = !value.is_empty() && value.chars().all(is_plain);
            if !(is_bare && is_sentence) {
                out.push_str(key);
                out.push('=');
            }
            if is_bare {
                out.push_str(value);
            } else {
                let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                let _ = write!(out, "\"{}\"", printable(&escaped));
            }
        }
        out
    }
}

/// The level of a call that ended with `error`: cancelling is not a fault.
pub(crate) fn level(error: &Error) -> Level {
    match error.kind {
        Kind::Cancelled => Level::Info,
        _ => Level::Warn,
    }
}

/// Escapes what would break the line or change how it is displayed.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unprintable(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

type ThreadLocal = LocalKey<RefCell<Option<String>>>;

/// A value of this thread until the guard is dropped, on the same thread; then the one before.
pub(crate) fn scope(value: &'static ThreadLocal, now: String) -> Finally<impl FnMut()> {
    let mut before = value.replace(Some(now));
    Finally(move || value.set(before.take()))
}

thread_local! {
    /// A panic of this thread is logged with this request id.
    pub(crate) static REQUEST: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Each log line of this thread says `caller=` and this name.
    pub(crate) static CALLER: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_LOG_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Logs a panic as one error line with its location, thread and request id, but without its message, which may hold a
/// caller's text.
fn log_panic(panic: &PanicHookInfo<'_>) {
    // That thread panics because stderr is closed.
    if !IS_LOG_THREAD.get() {
        let mut line = Line::sentence("A bug: a thread panicked.");
        line.optional("place", panic.location().map(ToString::to_string))
            .field("thread", thread::current().name().unwrap_or("unnamed"))
            .optional("request_id", REQUEST.with_borrow(Clone::clone));
        line.log(Level::Error, module_path!());
    }
}

#[derive(Default)]
struct Logger(Mutex<LogQueue>);

/// The lines that wait for the thread that writes.
#[derive(Default)]
struct LogQueue {
    lines: VecDeque<LogEntry>,
    /// How many lines were dropped and not yet logged.
    dropped: u64,
    /// Whether a line that was taken out is being written.
    is_writing: bool,
    /// Whether the thread that writes has begun, or nobody needs it any more.
    has_writer: bool,
    /// The thread that writes.
    writer: Option<Thread>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let rest = metadata.target().strip_prefix(env!("CARGO_CRATE_NAME"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = Line::sentence(record.args().to_string());
            self.add(record.level(), record.target(), line);
        }
    }

    fn flush(&self) {}
}

impl Logger {
    /// Puts a line into the queue, with the caller of this thread, and starts the thread that writes, unless it has begun.
    fn add(&self, level: Level, target: &str, mut line: Line) {
        line.optional("caller", CALLER.with_borrow(Clone::clone));
        self.push(level, target, line);
        let queue = &mut *lock(&self.0);
        if !queue.has_writer {
            let write = || {
                lock(&LOGGER.0).writer = Some(thread::current());
                loop {
                    LOGGER.write();
                    thread::sleep(PAUSE);
                    // Returns at once if a line has come meanwhile.
                    thread::park();
                }
            };
            // If it fails, the lines wait, as stderr must not be written from here. The next one tries again.
            queue.has_writer = sync::start("log", WORKER_STACK, Box::new(write)).is_ok();
        }
    }

    /// Adds a line, or counts it as dropped. Never waits for stderr.
    fn push(&self, level: Level, target: &str, line: Line) {
        let entry = LogEntry::new(level, target, line);
        let queue = &mut *lock(&self.0);
        match queue.lines.len() < MAX_LOG_LINES {
            true => queue.lines.push_back(entry),
            false => queue.dropped += 1,
        }
        queue.writer.as_ref().inspect(|writer| writer.unpark());
    }

    /// The next line to write. How many were dropped is logged now that there is room.
    fn next(&self) -> Option<LogEntry> {
        let queue = &mut *lock(&self.0);
        let next = queue.lines.pop_front();
        let count = mem::take(&mut queue.dropped);
        if count > 0 {
            let told = format!("stderr was not read in time: {count} log lines were dropped.");
            let entry = LogEntry::new(Level::Warn, module_path!(), Line::sentence(told));
            queue.lines.push_back(entry);
        }
        queue.is_writing = next.is_some();
        next
    }

    /// Writes the lines that there are. If stderr is closed and that panics, only the line is lost.
    fn write(&self) {
        IS_LOG_THREAD.set(true);
        let stderr = SimpleLogger::new();
        while let Some(line) = self.next() {
            let _ = catch_unwind(AssertUnwindSafe(|| line.write(&stderr)));
        }
    }

    fn flush(&self, limit: Duration) -> bool {
        sync::poll(limit, Duration::from_millis(1), || {
            let queue = lock(&self.0);
            queue.lines.is_empty() && !queue.is_writing
        })
    }
}

/// A line with its time, level and target.
struct LogEntry {
    /// Milliseconds since 1970.
    at: u64,
    level: Level,
    target: String,
    line: Line,
}

impl LogEntry {
    /// A line of now.
    fn new(level: Level, target: &str, line: Line) -> LogEntry {
        LogEntry {
            at: time::milliseconds_now(),
            level,
            target: target.to_owned(),
            line,
        }
    }

    fn write(&self, to: &dyn Log) {
        // As sd-daemon(3) has it.
        let priority = match self.level {
            _ if !*JOURNALD_READS => "",
            Level::Error => "<3>",
            Level::Warn => "<4>",
            Level::Info => "<6>",
            Level::Debug | Level::Trace => "<7>",
        };
        let is_json = AS_JSON.get() == Some(&true);
        let begin = match is_json {
            true => format!("{}\n", self.json()),
            false => format!("{} ", time::timestamp(self.at)),
        };
        let _ = io::stderr().write_all(format!("{priority}{begin}").as_bytes());
        if !is_json {
            // If stderr is closed, the next call panics.
            to.log(
                &Record::builder()
                    .level(self.level)
                    .target(&self.target)
                    .args(format_args!("{}", self.line.to_logfmt()))
                    .build(),
            );
        }
    }

    fn json(&self) -> Value {
        let mut object = json!({
            "time": time::timestamp(self.at),
            "level": self.level.as_str().to_ascii_lowercase(),
            "target": self.target,
        });
        for (key, value) in &self.line.fields {
            let value = match value {
                Value::String(text) => printable(text).into(),
                other => other.clone(),
            };
            match (&mut object[*key], value) {
                // A chain has several patterns.
                (Value::String(before), Value::String(text)) => *before += &format!(",{text}"),
                (member, value) => *member = value,
            }
        }
        object
    }
}

/// Whether journald reads stderr. `JOURNAL_STREAM` has the device and inode of its socket, but is inherited by programs that
/// write elsewhere.
static JOURNALD_READS: LazyLock<bool> = LazyLock::new(|| {
    #[cfg(unix)]
    if let Ok(stream) = std::env::var("JOURNAL_STREAM")
        && let Ok(stderr) = io::stderr().as_fd().try_clone_to_owned()
        && let Ok(found) = File::from(stderr).metadata()
    {
        return stream == format!("{}:{}", found.dev(), found.ino());
    }
    false
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_full_queue_drops_and_says_how_many() {
        let logger = Logger::default();
        let push = |text: &str| logger.push(Level::Info, "fabric_mcp", Line::sentence(text));
        let take = || logger.next().map(|entry| entry.line.to_logfmt());
        for _ in 0..MAX_LOG_LINES {
            push("first");
        }
        for _ in 0..7 {
            push("lost");
        }
        assert!(!logger.flush(Duration::from_millis(1)));
        assert_eq!(take().as_deref(), Some("first"));
        push("late");
        let lost = "stderr was not read in time: 7 log lines were dropped.";
        let firsts = vec!["first"; MAX_LOG_LINES - 1];
        // It came when the queue was full again.
        let one = lost.replace("7 log lines were", "1 log lines were");
        for expected in firsts.into_iter().chain([lost, &one]) {
            assert_eq!(take().as_deref(), Some(expected));
        }
        let is_so = !logger.flush(Duration::from_millis(1));
        assert!(is_so, "taken, but not written");
        assert_eq!(take(), None);
        assert!(logger.flush(Duration::from_millis(1)));
    }

    #[test]
    fn foreign_text_is_quoted_where_it_could_be_something_else() {
        let red = r#"message="\u{1b}[31mred\u{0}\u{7f}\u{9b}""#;
        let turned = r#"message="a\u{2028}b\u{202e}c\u{2066}d\u{61c}""#;
        for (given, logged) in [
            ("a: sentence, {} é 日本 (x)", "a: sentence, {} é 日本 (x)"),
            ("", r#"message="""#),
            ("Host evil ok=true", r#"message="Host evil ok=true""#),
            (
                r#"Host "evil"x ok=true""#,
                r#"message="Host \"evil\"x ok=true\"""#,
            ),
            (r"a\b", r#"message="a\\b""#),
            ("a\nb\r\tc", r#"message="a\nb\r\tc""#),
            ("\u{1b}[31mred\u{0}\u{7f}\u{9b}", red),
            ("a\u{2028}b\u{202e}c\u{2066}d\u{61c}", turned),
        ] {
            assert_eq!(Line::sentence(given).to_logfmt(), logged);
        }
        let mut line = Line::sentence("It listens.");
        line.field("auth", "token")
            .field("message", "x")
            .field("rows", 3)
            .field("model", "meta-llama/x:8b")
            .field("spaced", "a b")
            .field("empty", "");
        let expected = r#"It listens. auth=token message=x rows=3 model=meta-llama/x:8b spaced="a b" empty="""#;
        assert_eq!(line.to_logfmt(), expected);
    }

    #[test]
    fn a_text_is_bounded() {
        let fits = "x".repeat(MAX_TEXT);
        assert_eq!(Line::sentence(fits.as_str()).to_logfmt(), fits);
        for more in [format!("{fits}y"), format!("{fits}more")] {
            let mut line = Line::sentence(more);
            assert_eq!(line.to_logfmt(), format!("{fits}…"));
            // What comes after a long text has room.
            line.field("request_id", "0123456789abcdef");
            assert!(line.to_logfmt().ends_with("… request_id=0123456789abcdef"));
        }
    }

    #[test]
    fn fields_are_the_members_of_an_object() {
        let mut line = Line::default();
        line.field("duration_ms", 3)
            .field("ok", true)
            .field("code", -32602)
            // Hex digits and names may all be decimal digits.
            .field("request_id", "7173816100000000")
            .field("pattern", "true")
            .field("pattern", "b")
            .field("reason", "a \"b\" c=d\n\\\u{202e}")
            .field("empty", "");
        let mut entry = LogEntry {
            at: 7,
            level: Level::Info,
            target: "fabric_mcp::x".to_owned(),
            line,
        };
        assert_eq!(
            entry.json().to_string(),
            r#"{"code":-32602,"duration_ms":3,"empty":"","level":"info","ok":true,"pattern":"true,b","reason":"a \"b\" c=d\\n\\\\u{202e}","request_id":"7173816100000000","target":"fabric_mcp::x","time":"1970-01-01T00:00:00.007Z"}"#
        );
        let mut line = Line::sentence("It \"listens\". x=y");
        line.field("auth", "token");
        entry.line = line;
        assert_eq!(
            entry.json().to_string(),
            r#"{"auth":"token","level":"info","message":"It \"listens\". x=y","target":"fabric_mcp::x","time":"1970-01-01T00:00:00.007Z"}"#
        );
    }

    #[test]
    fn the_caller_is_the_last_field() {
        let logger = Logger::default();
        // Nobody takes the line away.
        lock(&logger.0).has_writer = true;
        let _scope = scope(&CALLER, "alice ok=true".to_owned());
        let mut line = Line::default();
        line.field("ok", false);
        logger.add(Level::Info, "fabric_mcp", line);
        let entry = logger.next().unwrap();
        assert_eq!(entry.line.to_logfmt(), r#"ok=false caller="alice ok=true""#);
    }

    #[test]
    fn only_our_own_records_are_logged() {
        for (target, logged) in [
            ("fabric_mcp", true),
            ("fabric_mcp::tools::run_pattern", true),
            ("fabric_mcpx", false),
            ("ureq::run", false),
            ("ureq_proto::util", false),
            ("rustls::client", false),
            ("tiny_http", false),
            ("", false),
        ] {
            let metadata = Metadata::builder().target(target).build();
            assert_eq!(Logger::default().enabled(&metadata), logged, "{target}");
        }
    }

    #[test]
    fn scopes_nest() {
        let current = || REQUEST.with_borrow(Clone::clone);
        let outer = scope(&REQUEST, "outer".to_owned());
        let inner = scope(&REQUEST, "inner".to_owned());
        assert_eq!(current().as_deref(), Some("inner"));
        drop(inner);
        assert_eq!(current().as_deref(), Some("outer"));
        drop(outer);
        assert_eq!(current(), None);
    }

    /// Not a test: what the tests below start, in a process of its own, since there is one logger to a process.
    #[test]
    #[ignore = "the other tests' child process"]
    fn child() {
        match std::env::var("FABRIC_MCP_TEST_LOGGING").unwrap().as_str() {
            "nothing" => assert!(flush(Duration::from_secs(60))),
            "levels" => {
                start(Some(Level::Info), false);
                log::debug!("debug");
                log::info!("info\nline");
                log::warn!(target: "ureq", "not ours");
                let worker = thread::Builder::new().name("worker".to_owned()).spawn(|| {
                    let _scope = scope(&REQUEST, "0123456789abcdef".to_owned());
                    panic!("text of the caller");
                });
                assert!(worker.unwrap().join().is_err());
                start(None, false);
                log::error!("error");
                critical("the end");
                assert!(flush(Duration::from_secs(60)));
            }
            other => panic!("{other}"),
        }
        std::process::exit(42);
    }

    fn command(what: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["logging::tests::child", "--exact", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .env("FABRIC_MCP_TEST_LOGGING", what)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    #[test]
    fn the_end_waits_for_no_line_where_there_was_none() {
        let status = command("nothing").status().unwrap();
        assert_eq!(status.code(), Some(42));
    }

    #[test]
    fn stderr_gets_what_it_should() {
        let output = command("levels").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let place = text
            .split("place=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        assert!(place.starts_with("src/logging.rs:"), "{text}");
        let expected = [
            "INFO  [fabric_mcp::logging::tests] message=\"info\\nline\"".to_owned(),
            format!(
                "ERROR [fabric_mcp::logging] A bug: a thread panicked. place={place} thread=worker \
                 request_id=0123456789abcdef"
            ),
            "ERROR [critical] the end".to_owned(),
        ];
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_once("Z ").unwrap())
            .collect();
        let found = lines.iter().map(|(_, rest)| *rest).collect::<Vec<_>>();
        assert_eq!(found, expected);
        // 2026-07-28T12:00:00.000
        let is_so = lines
            .iter()
            .all(|(stamp, _)| stamp.len() == 23 && stamp.as_bytes()[10] == b'T');
        assert!(is_so, "{text}");
        assert_eq!(output.status.code(), Some(42));
    }
}
