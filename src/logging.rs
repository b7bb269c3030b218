//! The log: lines on stderr, written by a thread of its own.
//!
//! In scope: which records are logged, how foreign text is made harmless, the bounded queue, panics. Not in scope: what
//! is worth a line (everyone else). This is the only file that names `simple_logger`, which stamps the lines
//! (`2026-07-28T12:00:00.000Z INFO  [target] message`) with the time they are written and writes them.
//!
//! - A caller never waits for stderr. It leaves its line in a queue of [`MAX_LOG_LINES`]; when that is full, because
//!   nobody reads our stderr, the line is dropped, and the number of lost lines is told once there is room.
//! - `simple_logger` panics when stderr is closed: caught here, said nowhere, and the next line is tried again.
//! - Only our own records are logged, at any level. Those of libraries never are: at trace level, ureq's protocol layer
//!   shows each byte it sends, API key included, and one of these days a debug line may.
//! - Once the log has begun, nobody else writes to stderr: `simple_logger` may hold its lock, blocked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use simple_logger::SimpleLogger;

use crate::config::{LogLevel, MAX_LOG_LINE, MAX_LOG_LINES};

/// The target of records that are logged even at level `critical`.
const CRITICAL: &str = "critical";

static LOGGER: Logger = Logger {
    queue: Queue::new(),
    started: AtomicBool::new(false),
    critical_only: AtomicBool::new(false),
    thread: AtomicBool::new(false),
};

/// Begins to log records of `level` and above. Cheap: the thread starts with the first line. Called again, it only
/// changes the level.
pub(crate) fn start(level: LogLevel) {
    LOGGER.critical_only.store(level == LogLevel::Critical, Ordering::Relaxed);
    log::set_max_level(match level {
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Warning => LevelFilter::Warn,
        LogLevel::Error | LogLevel::Critical => LevelFilter::Error,
    });
    // Fails when it has been called before: then this logger is already the one.
    let _ = log::set_logger(&LOGGER);
    LOGGER.started.store(true, Ordering::Release);
}

/// Logs why the process is about to end, at every level.
pub(crate) fn critical(message: impl fmt::Display) {
    log::error!(target: CRITICAL, "{message}");
}

/// Waits until everything logged so far is on stderr, `limit` at most; says whether it is. For the end of the process.
pub(crate) fn flush(limit: Duration) -> bool {
    LOGGER.queue.wait_empty(limit)
}

/// Appends ` key=value` (without the space at the start of a line). A value that is empty or holds a space, `=`, `"`, a
/// backslash or anything that is not plainly visible is quoted and escaped, so that foreign text can neither end the
/// line nor look like another field.
pub(crate) fn logfmt(line: &mut String, key: &str, value: impl fmt::Display) {
    if !line.is_empty() {
        line.push(' ');
    }
    line.push_str(key);
    line.push('=');
    let start = line.len();
    // Writing to a String fails only if the value's own Display does: what it wrote until then stays.
    let _ = write!(line, "{value}");
    let plain = |c: char| !c.is_whitespace() && !hidden(c) && !matches!(c, '=' | '"' | '\\');
    if line.len() == start || !line[start..].chars().all(plain) {
        let value = line.split_off(start);
        line.push('"');
        for c in value.chars() {
            if matches!(c, '"' | '\\') {
                line.push('\\');
            }
            push_visible(line, c);
        }
        line.push('"');
    }
}

/// Names the request this thread works on until the guard is dropped: a panic's log line then has its id.
pub(crate) fn request_scope(id: &str) -> RequestScope {
    RequestScope { before: REQUEST.replace(Some(id.to_owned())), _this_thread: PhantomData }
}

/// See [`request_scope`].
#[must_use = "the scope ends when this is dropped"]
pub(crate) struct RequestScope {
    before: Option<String>,
    /// Dropping it on another thread would restore the wrong one's.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        let before = self.before.take();
        // The thread may be on its way out and its variable gone.
        let _ = REQUEST.try_with(|request| request.replace(before));
    }
}

/// From now on a panic is one error line in the log: its place, its thread and the request it cost, never its message,
/// which may hold a caller's text. Before [`start`], a panic is told as ever.
pub(crate) fn install_panic_hook() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_LOG_THREAD.get() {
            // stderr is gone. There is nobody to tell.
        } else if LOGGER.started.load(Ordering::Acquire) {
            log::error!("{}", told(panic));
        } else {
            default(panic);
        }
    }));
}

thread_local! {
    static REQUEST: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_LOG_THREAD: Cell<bool> = const { Cell::new(false) };
}

fn told(panic: &PanicHookInfo<'_>) -> String {
    let mut line = "A bug: a thread panicked.".to_owned();
    if let Some(place) = panic.location() {
        logfmt(&mut line, "place", format_args!("{}:{}:{}", short(place.file()), place.line(), place.column()));
    }
    logfmt(&mut line, "thread", thread::current().name().unwrap_or("unnamed"));
    let request = REQUEST.try_with(|request| request.try_borrow().ok()?.clone()).ok().flatten();
    if let Some(id) = request {
        logfmt(&mut line, "request_id", id);
    }
    line
}

/// A source file's path without the folders of the machine that built us: a library's has them.
fn short(file: &str) -> &str {
    if !file.starts_with('/') && !file.contains(':') {
        return file;
    }
    match file.rmatch_indices(['/', '\\']).nth(2) {
        Some((at, _)) => &file[at + 1..],
        None => file,
    }
}

/// Decides which records are logged and starts the thread.
struct Logger {
    queue: Queue,
    started: AtomicBool,
    critical_only: AtomicBool,
    /// Whether the thread runs.
    thread: AtomicBool,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let critical = target == CRITICAL;
        let ours =
            target.strip_prefix(env!("CARGO_CRATE_NAME")).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        critical || ours && !self.critical_only.load(Ordering::Relaxed)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        self.queue.push(Line::new(record));
        if !self.thread.swap(true, Ordering::AcqRel) {
            let write = || {
                IS_LOG_THREAD.set(true);
                let stderr = SimpleLogger::new().with_utc_timestamps();
                serve(&LOGGER.queue, |line| line.write(&stderr));
            };
            // Without memory for a thread, the lines wait, and the next one tries again.
            if thread::Builder::new().name("log".to_owned()).spawn(write).is_err() {
                self.thread.store(false, Ordering::Release);
            }
        }
    }

    fn flush(&self) {}
}

/// One line that waits.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    level: Level,
    target: String,
    message: String,
}

impl Line {
    fn new(record: &Record<'_>) -> Line {
        let mut message = Message { text: String::new() };
        // An error is the message's end: it is full, or a Display of its own gave up.
        let _ = message.write_fmt(*record.args());
        Line { level: record.level(), target: record.target().to_owned(), message: message.text }
    }

    fn dropped(count: u64) -> Line {
        let message = format!("stderr was not read in time: {count} log lines were dropped.");
        Line { level: Level::Warn, target: module_path!().to_owned(), message }
    }

    fn write(&self, to: &dyn Log) {
        to.log(
            &Record::builder().level(self.level).target(&self.target).args(format_args!("{}", self.message)).build(),
        );
    }
}

/// Collects a message: one line, harmless, [`MAX_LOG_LINE`] bytes at most.
struct Message {
    text: String,
}

impl fmt::Write for Message {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            if self.text.len() + c.len_utf8() > MAX_LOG_LINE {
                self.text.push('…');
                return Err(fmt::Error);
            }
            push_visible(&mut self.text, c);
        }
        Ok(())
    }
}

/// Whether a character would change how the rest of a line is shown: controls, other line ends, and those that turn the
/// direction of writing.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_visible(line: &mut String, c: char) {
    if hidden(c) {
        line.extend(c.escape_default());
    } else {
        line.push(c);
    }
}

/// Lines on their way to stderr.
struct Queue {
    state: Mutex<State>,
    /// There is a line to write.
    filled: Condvar,
    /// There is none, and none is being written.
    empty: Condvar,
}

struct State {
    lines: VecDeque<Line>,
    dropped: u64,
    /// The thread waits for `filled`: only then is waking it worth a system call.
    idle: bool,
    /// The thread is writing a line.
    writing: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

impl Queue {
    const fn new() -> Queue {
        let state = State { lines: VecDeque::new(), dropped: 0, idle: false, writing: false };
        Queue { state: Mutex::new(state), filled: Condvar::new(), empty: Condvar::new() }
    }

    /// Adds a line, or counts it as dropped. Never waits for the one who writes.
    fn push(&self, line: Line) {
        let mut state = self.lock();
        if state.lines.len() < MAX_LOG_LINES {
            if state.dropped > 0 {
                let lost = Line::dropped(std::mem::take(&mut state.dropped));
                state.lines.push_back(lost);
            }
            state.lines.push_back(line);
        } else {
            state.dropped += 1;
        }
        if state.idle {
            state.idle = false;
            drop(state);
            self.filled.notify_one();
        }
    }

    /// The next line to write; lost ones are told of in the place where they would have been. Waits for one.
    fn next(&self) -> Line {
        let mut state = self.lock();
        state.writing = false;
        if state.is_empty() {
            self.empty.notify_all();
        }
        loop {
            let lost = |state: &mut State| match std::mem::take(&mut state.dropped) {
                0 => None,
                count => Some(Line::dropped(count)),
            };
            if let Some(line) = state.lines.pop_front().or_else(|| lost(&mut state)) {
                state.idle = false;
                state.writing = true;
                return line;
            }
            state.idle = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_empty(&self, limit: Duration) -> bool {
        let unwritten = |state: &mut State| state.writing || !state.is_empty();
        let (_state, timeout) =
            self.empty.wait_timeout_while(self.lock(), limit, unwritten).unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes lines as they come, for ever. A writer that panics loses that line and nothing else.
fn serve(queue: &Queue, mut write: impl FnMut(&Line)) {
    loop {
        let line = queue.next();
        let _ = catch_unwind(AssertUnwindSafe(|| write(&line)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Read};
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    fn line(message: &str) -> Line {
        Line { level: Level::Info, target: "fabric_mcp".to_owned(), message: message.to_owned() }
    }

    fn of(message: fmt::Arguments<'_>) -> String {
        Line::new(&Record::builder().args(message).build()).message
    }

    /// A queue of its own whose writer asks `permit` before each line and tells what it wrote.
    fn served() -> (&'static Queue, mpsc::Sender<()>, mpsc::Receiver<String>) {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (permit, permits) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            serve(queue, |line| {
                // Fails once the test is over.
                let _ = permits.recv().map(|()| tell.send(line.message.clone()));
            })
        });
        (queue, permit, told)
    }

    #[test]
    fn lines_come_out_in_order() {
        let (queue, permit, told) = served();
        for n in 0..10 {
            queue.push(line(&n.to_string()));
            permit.send(()).unwrap();
        }
        let all: Vec<_> = (0..10).map(|_| told.recv().unwrap()).collect();
        assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert!(queue.wait_empty(Duration::from_secs(60)));
    }

    #[test]
    fn a_full_queue_drops_and_says_how_many() {
        let (queue, permit, told) = served();
        queue.push(line("held"));
        permit.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), "held");
        queue.push(line("first"));
        while !queue.lock().lines.is_empty() {
            thread::yield_now();
        }
        // The writer holds the first line and waits for a permit: nothing moves while the queue is filled.
        for _ in 0..MAX_LOG_LINES {
            queue.push(line("kept"));
        }
        for _ in 0..7 {
            queue.push(line("lost"));
        }
        assert!(!queue.wait_empty(Duration::from_millis(1)));
        // One permit lets the writer take a line: the next one fits again, behind a word about those that did not.
        permit.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), "first");
        while queue.lock().lines.len() == MAX_LOG_LINES {
            thread::yield_now();
        }
        queue.push(line("late"));
        for expected in vec!["kept"; MAX_LOG_LINES].into_iter().chain([LOST, "late"]) {
            permit.send(()).unwrap();
            assert_eq!(told.recv().unwrap(), expected);
        }
        assert!(queue.wait_empty(Duration::from_secs(60)));
    }

    const LOST: &str = "stderr was not read in time: 7 log lines were dropped.";

    #[test]
    fn a_writer_that_panics_loses_one_line() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            IS_LOG_THREAD.set(true);
            serve(queue, |line| {
                // Unlike `panic!`, this does not call the hook and so prints nothing among the tests' own lines.
                if line.message == "bad" {
                    std::panic::resume_unwind(Box::new(()));
                }
                tell.send(line.message.clone()).unwrap();
            })
        });
        for message in ["one", "bad", "two"] {
            queue.push(line(message));
        }
        assert_eq!((told.recv().unwrap(), told.recv().unwrap()), ("one".to_owned(), "two".to_owned()));
        assert!(queue.wait_empty(Duration::from_secs(60)));
    }

    #[test]
    fn foreign_text_stays_on_its_line() {
        for (given, logged) in [
            ("plain é 日本 {}", "plain é 日本 {}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred\u{0}\u{7f}\u{9b}", "\\u{1b}[31mred\\u{0}\\u{7f}\\u{9b}"),
            ("a\u{2028}b\u{202e}c\u{2066}", "a\\u{2028}b\\u{202e}c\\u{2066}"),
        ] {
            assert_eq!(of(format_args!("{given}")), logged);
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let fits = "x".repeat(MAX_LOG_LINE);
        assert_eq!(of(format_args!("{fits}")), fits);
        assert_eq!(of(format_args!("{fits}y")), format!("{fits}…"));
        assert_eq!(of(format_args!("{}{}", fits, "more")), format!("{fits}…"));
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut line = String::new();
        logfmt(&mut line, "tool", "fabric_run_pattern");
        logfmt(&mut line, "rows", 3);
        logfmt(&mut line, "model", "meta-llama/x:8b");
        logfmt(&mut line, "empty", "");
        logfmt(&mut line, "spaced", "a b");
        logfmt(&mut line, "equals", "a=b");
        logfmt(&mut line, "quotes", r#"say "\" "#);
        logfmt(&mut line, "lines", "a\nok=true\u{2028}");
        logfmt(&mut line, "name", "日本");
        assert_eq!(
            line,
            r#"tool=fabric_run_pattern rows=3 model=meta-llama/x:8b empty="" spaced="a b" equals="a=b" quotes="say \"\\\" " lines="a\nok=true\u{2028}" name=日本"#
        );
    }

    #[test]
    fn only_our_own_records_are_logged() {
        let logger = |critical_only: bool| Logger {
            queue: Queue::new(),
            started: AtomicBool::new(true),
            critical_only: AtomicBool::new(critical_only),
            thread: AtomicBool::new(true),
        };
        let enabled = |logger: &Logger, target: &str| logger.enabled(&Metadata::builder().target(target).build());
        for (target, usually, when_critical) in [
            ("fabric_mcp", true, false),
            ("fabric_mcp::tools::run_pattern", true, false),
            ("critical", true, true),
            ("fabric_mcpx", false, false),
            ("ureq::run", false, false),
            ("ureq_proto::util", false, false),
            ("rustls::client", false, false),
            ("tiny_http", false, false),
            ("", false, false),
        ] {
            assert_eq!(enabled(&logger(false), target), usually, "{target}");
            assert_eq!(enabled(&logger(true), target), when_critical, "{target}");
        }
    }

    #[test]
    fn paths_of_the_build_machine_are_cut() {
        for (file, shown) in [
            ("src/tools/mod.rs", "src/tools/mod.rs"),
            ("/home/me/.cargo/registry/src/index/ureq-3.5.1/src/run.rs", "ureq-3.5.1/src/run.rs"),
            ("C:\\Users\\me\\ureq-3.5.1\\src\\run.rs", "ureq-3.5.1\\src\\run.rs"),
            ("/a/b", "/a/b"),
        ] {
            assert_eq!(short(file), shown);
        }
    }

    #[test]
    fn scopes_nest() {
        let current = || REQUEST.with_borrow(Clone::clone);
        let outer = request_scope("outer");
        let inner = request_scope("inner");
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
            "levels" => {
                install_panic_hook();
                start(LogLevel::Info);
                log::debug!("debug");
                log::info!("info\nline");
                log::warn!(target: "ureq", "not ours");
                let worker = thread::Builder::new().name("worker".to_owned()).spawn(|| {
                    let _scope = request_scope("0123456789abcdef");
                    panic!("text of the caller");
                });
                assert!(worker.unwrap().join().is_err());
                start(LogLevel::Critical);
                log::error!("error");
                critical("the end");
                assert!(flush(Duration::from_secs(60)));
            }
            "blocked" => {
                install_panic_hook();
                start(LogLevel::Info);
                // More than the pipe, the queue and the writer hold together, were they never read.
                for n in 0..20_000 {
                    log::info!("{n} {}", "x".repeat(100));
                }
                assert!(!flush(Duration::from_millis(1)));
            }
            "closed" => {
                // Until the parent has closed our stderr.
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                install_panic_hook();
                start(LogLevel::Info);
                for n in 0..100 {
                    log::info!("{n}");
                }
                assert!(flush(Duration::from_secs(60)));
            }
            other => panic!("{other}"),
        }
        std::process::exit(42);
    }

    fn command(what: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "logging::tests::child", "--ignored", "--nocapture", "--test-threads=1"])
            .env("FABRIC_MCP_TEST_LOGGING", what)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    #[test]
    fn stderr_gets_what_it_should() {
        let output = command("levels").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let place = text.split("place=").nth(1).unwrap().split(' ').next().unwrap();
        assert!(place.starts_with("src/logging.rs:"), "{text}");
        let expected = [
            "INFO  [fabric_mcp::logging::tests] info\\nline".to_owned(),
            format!(
                "ERROR [fabric_mcp::logging] A bug: a thread panicked. place={place} thread=worker \
                 request_id=0123456789abcdef"
            ),
            "ERROR [critical] the end".to_owned(),
        ];
        let lines: Vec<_> = text.lines().map(|line| line.split_once("Z ").unwrap()).collect();
        assert_eq!(lines.iter().map(|(_, rest)| *rest).collect::<Vec<_>>(), expected);
        // 2026-07-28T12:00:00.000
        assert!(lines.iter().all(|(stamp, _)| stamp.len() == 23 && stamp.as_bytes()[10] == b'T'), "{text}");
        assert_eq!(output.status.code(), Some(42));
    }

    #[test]
    fn a_stderr_nobody_reads_blocks_nobody() {
        let mut child = command("blocked").spawn().unwrap();
        // It ends by itself though its stderr, held open here, is not read.
        assert_eq!(child.wait().unwrap().code(), Some(42));
        let mut text = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_to_string(&mut text).unwrap();
        assert!(text.lines().next().unwrap().contains(" 0 xxx"));
    }

    #[test]
    fn a_closed_stderr_ends_nothing() {
        let mut child = command("closed").stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(42));
    }

    /// Prints what the log costs its callers: `cargo test --release -- --ignored --nocapture cost_of_logging`.
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_logging() {
        let before = std::time::Instant::now();
        start(LogLevel::Info);
        let started = before.elapsed();
        log::info!("first");
        let first = before.elapsed() - started;
        let mut times: Vec<_> = (0..500)
            .map(|n| {
                let before = std::time::Instant::now();
                log::info!("tool=fabric_list_patterns ok=true rows={n} duration_ms=1 request_id=0123456789abcdef");
                before.elapsed()
            })
            .collect();
        times.sort();
        println!("start {started:?}, first line {first:?}, then p50 {:?} p99 {:?}", times[250], times[495]);
    }
}
