//! The log: lines on stderr, written by a thread of its own.
//!
//! In scope: which records are logged, how foreign text is made harmless, the bounded queue, panics. Not in scope: what
//! is worth a line (everyone else). This is the only file that names `simple_logger`, which writes the lines:
//! `2026-07-28T12:00:00.000Z INFO  [target] message`. The time, which is that of logging and not of writing, is put in
//! front of them here: what `simple_logger` does that with is larger than itself, and [`Stamp`] has what it takes.
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
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use simple_logger::SimpleLogger;

use crate::config::{LogLevel, MAX_LOG_LINE, MAX_LOG_LINES};
use crate::sync::{Signal, lock, spawn};
use crate::time::Stamp;

/// The target of records that are logged even at level `critical`.
const CRITICAL: &str = "critical";

/// How long lines that end a silence wait for more to be written with: a busy server would else wake the thread for each.
const GATHER: Duration = Duration::from_millis(5);
/// So many lines are written at once, before the queue is full.
const MANY: usize = MAX_LOG_LINES / 2;

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
                let stderr = SimpleLogger::new();
                serve(&LOGGER.queue, |line| line.write(&stderr));
            };
            // Without memory for a thread, the lines wait, and the next one tries again.
            if spawn(thread::Builder::new().name("log".to_owned()), write).is_err() {
                self.thread.store(false, Ordering::Release);
            }
        }
    }

    fn flush(&self) {}
}

/// One line that waits.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    at: Stamp,
    level: Level,
    target: String,
    message: String,
}

impl Line {
    fn new(record: &Record<'_>) -> Line {
        let mut message = Message { text: String::new() };
        // An error is the message's end: it is full, or a Display of its own gave up.
        let _ = message.write_fmt(*record.args());
        Line { at: Stamp::now(), level: record.level(), target: record.target().to_owned(), message: message.text }
    }

    fn dropped(count: u64) -> Line {
        let message = format!("stderr was not read in time: {count} log lines were dropped.");
        Line { at: Stamp::now(), level: Level::Warn, target: module_path!().to_owned(), message }
    }

    fn write(&self, to: &dyn Log) {
        // If stderr is closed, what follows panics, which `serve` catches.
        let _ = io::stderr().write_all(format!("{} ", self.at).as_bytes());
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
    empty: Signal,
}

struct State {
    lines: VecDeque<Line>,
    dropped: u64,
    /// The thread waits for `filled`: only then is waking it worth a system call.
    idle: bool,
    /// The thread is writing a line.
    writing: bool,
    /// Somebody waits for `empty`, or has: the end of the process.
    hurry: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

impl Queue {
    const fn new() -> Queue {
        let state = State { lines: VecDeque::new(), dropped: 0, idle: false, writing: false, hurry: false };
        Queue { state: Mutex::new(state), filled: Condvar::new(), empty: Signal::new() }
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
        if state.idle || state.lines.len() == MANY {
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
            let may_wait = |state: &mut State| !state.hurry && state.lines.len() < MANY;
            let gathered = self.filled.wait_timeout_while(state, GATHER, may_wait);
            state = gathered.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_empty(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.hurry = true;
        self.filled.notify_one();
        self.empty.wait_while(state, limit, |state| state.writing || !state.is_empty()).1
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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
mod tests;
