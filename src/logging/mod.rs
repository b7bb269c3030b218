//! The log on stderr: a bounded queue, written by its own thread.
//!
//! In scope: which records are logged, escaping, the queue, panics. Not in scope: what is worth a line.
//!
//! `simple_logger` writes the lines that are not JSON: `2026-07-28T12:00:00.000Z INFO  [target] message`. Queueing, the
//! time of the call (its timestamps need another crate), and surviving a closed stderr (it panics) are added here.
//!
//! - A caller never waits for stderr: it puts its line into a queue of [`MAX_LOG_LINES`]. When that is full the line is
//!   dropped, and the number of dropped lines is logged once there is room.
//! - A closed stderr ends nothing: the panic is caught, and the next line is tried again.
//! - Only our own records are logged: at trace level, ureq shows each byte it sends, API key included.
//! - After [`start`], nobody else may write to stderr: `simple_logger` may block while it holds its lock.

mod json;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, LocalKey};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use simple_logger::SimpleLogger;

use crate::config::{LogFormat, LogLevel};
use crate::error::Error;
use crate::sync::lock;
use crate::time::Stamp;

/// Lines that may wait for stderr; further ones are dropped and counted.
const MAX_LOG_LINES: usize = 1024;
/// Longest message of one log line, in bytes; the rest is cut off.
const MAX_LOG_LINE: usize = 4 << 10;

/// The target of records that are logged even at level `critical`.
const CRITICAL: &str = "critical";

/// How lines are written.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

static LOGGER: Logger = Logger {
    queue: Queue::new(),
    started: AtomicBool::new(false),
    critical_only: AtomicBool::new(false),
    has_writer: AtomicBool::new(false),
};

/// Starts logging records of `level` and above. The thread starts with the first line, to not delay the first answer.
/// Called again, it only changes the level.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let _ = FORMAT.set(format);
    LOGGER
        .critical_only
        .store(level == LogLevel::Critical, Ordering::Relaxed);
    log::set_max_level(match level {
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Warning => LevelFilter::Warn,
        LogLevel::Error | LogLevel::Critical => LevelFilter::Error,
    });
    // Fails if this logger is set already.
    let _ = log::set_logger(&LOGGER);
    LOGGER.started.store(true, Ordering::Release);
}

/// Logs why the process is about to end, at every level.
pub(crate) fn critical(message: impl fmt::Display) {
    log::error!(target: CRITICAL, "{message}");
    if !LOGGER.has_writer.load(Ordering::Acquire) {
        // There can be no thread for the log, so this one is it; nobody waits for it any more.
        IS_LOG_THREAD.set(true);
        let stderr = SimpleLogger::new();
        while let Some(line) = LOGGER.queue.pop() {
            let _ = catch_unwind(AssertUnwindSafe(|| line.write(&stderr)));
        }
    }
}

/// Waits, `limit` at most, until all lines are written; false if they are not. For the end of the process.
pub(crate) fn flush(limit: Duration) -> bool {
    LOGGER.queue.flush(limit)
}

/// Appends an error's kind, Fabric's HTTP status, and the reason as `shown` gives it, unless that may quote the caller.
pub(crate) fn failure(line: &mut String, error: &Error, shown: impl FnOnce(&str) -> String) {
    logfmt(line, "error", error.kind.name());
    if let Some(status) = error.status {
        logfmt(line, "status", status);
    }
    if !error.kind.quotes_caller() {
        logfmt(line, "reason", shown(&error.detail));
    }
}

/// Appends `key=value`, after a space unless the line is empty. Values are quoted and escaped where needed, so that
/// foreign text cannot end the line or look like another field.
pub(crate) fn logfmt(line: &mut String, key: &str, value: impl fmt::Display) {
    if !line.is_empty() {
        line.push(' ');
    }
    line.push_str(key);
    line.push('=');
    let start = line.len();
    // Fails only if the value's Display does; what it wrote until then stays.
    let _ = write!(line, "{value}");
    let plain = |c: char| !c.is_whitespace() && !needs_escape(c) && !matches!(c, '=' | '"' | '\\');
    if line.len() == start || !line[start..].chars().all(plain) {
        let value = line.split_off(start);
        line.push('"');
        for c in value.chars() {
            if matches!(c, '"' | '\\') {
                line.push('\\');
            }
            push_escaped(line, c);
        }
        line.push('"');
    }
}

/// Sets the request id that a panic of this thread is logged with, until the guard is dropped.
pub(crate) fn request_scope(id: &str) -> Scope<String> {
    Scope::enter(&REQUEST, id.to_owned())
}

/// Adds `caller=name` to each log line of this thread until the guard is dropped. The name is formatted only for a
/// line.
pub(crate) fn caller_scope(name: impl fmt::Display + 'static) -> CallerScope {
    Scope::enter(&CALLER, Box::new(name))
}

/// See [`caller_scope`].
pub(crate) type CallerScope = Scope<Box<dyn fmt::Display>>;

type ThreadLocal<T> = LocalKey<RefCell<Option<T>>>;

/// A value of this thread until the guard is dropped; then the one before.
#[must_use = "the scope ends when this is dropped"]
pub(crate) struct Scope<T: 'static> {
    value: &'static ThreadLocal<T>,
    before: Option<T>,
    /// Not `Send`: dropped on another thread, it would change that thread's value.
    _not_send: PhantomData<*const ()>,
}

impl<T> Scope<T> {
    fn enter(value: &'static ThreadLocal<T>, now: T) -> Scope<T> {
        Scope {
            value,
            before: value.replace(Some(now)),
            _not_send: PhantomData,
        }
    }
}

impl<T> Drop for Scope<T> {
    fn drop(&mut self) {
        let before = self.before.take();
        // Fails while the thread is being torn down.
        let _ = self.value.try_with(|value| value.replace(before));
    }
}

/// Logs each panic as one error line with its location, thread and request id, but without its message, which may hold a
/// caller's text. Before [`start`], panics go to the default hook.
pub(crate) fn install_panic_hook() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_LOG_THREAD.get() {
            // stderr is closed.
        } else if LOGGER.started.load(Ordering::Acquire) {
            log::error!("{}", describe(panic));
        } else {
            default(panic);
        }
    }));
}

thread_local! {
    static REQUEST: RefCell<Option<String>> = const { RefCell::new(None) };
    static CALLER: RefCell<Option<Box<dyn fmt::Display>>> = const { RefCell::new(None) };
    static IS_LOG_THREAD: Cell<bool> = const { Cell::new(false) };
}

fn describe(panic: &PanicHookInfo<'_>) -> String {
    let mut line = "A bug: a thread panicked.".to_owned();
    if let Some(place) = panic.location() {
        logfmt(
            &mut line,
            "place",
            format_args!(
                "{}:{}:{}",
                short_path(place.file()),
                place.line(),
                place.column()
            ),
        );
    }
    logfmt(
        &mut line,
        "thread",
        thread::current().name().unwrap_or("unnamed"),
    );
    let request = REQUEST
        .try_with(|request| request.try_borrow().ok()?.clone())
        .ok()
        .flatten();
    if let Some(id) = request {
        logfmt(&mut line, "request_id", id);
    }
    line
}

/// The last three parts of an absolute path: a library's path would show the build machine's folders.
fn short_path(file: &str) -> &str {
    if !file.starts_with('/') && !file.contains(':') {
        return file;
    }
    match file.rmatch_indices(['/', '\\']).nth(2) {
        Some((at, _)) => &file[at + 1..],
        None => file,
    }
}

struct Logger {
    queue: Queue,
    started: AtomicBool,
    critical_only: AtomicBool,
    /// The thread that writes has begun.
    has_writer: AtomicBool,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let critical = target == CRITICAL;
        let ours = target
            .strip_prefix(env!("CARGO_CRATE_NAME"))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        critical || ours && !self.critical_only.load(Ordering::Relaxed)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        self.queue.push(LogLine::new(record));
        if self.has_writer.swap(true, Ordering::AcqRel) {
            return;
        }
        let writer = thread::Builder::new().name("log".to_owned()).spawn(|| {
            IS_LOG_THREAD.set(true);
            let stderr = SimpleLogger::new();
            write_lines(&LOGGER.queue, |line| line.write(&stderr));
        });
        if writer.is_err() {
            // The lines wait, as stderr must not be written from here. The next one tries again.
            self.has_writer.store(false, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

#[derive(Debug, PartialEq, Eq)]
struct LogLine {
    at: Stamp,
    level: Level,
    target: String,
    message: String,
    /// The caller. Separate, so that it is not cut off with the message.
    caller: Option<String>,
}

impl LogLine {
    fn new(record: &Record<'_>) -> LogLine {
        let mut message = EscapedLine(String::new());
        // Fails where the message is cut, and if a Display fails: what was written until then is logged.
        let _ = message.write_fmt(*record.args());
        let caller = CALLER
            .try_with(|caller| Some(caller.try_borrow().ok()?.as_ref()?.to_string()))
            .ok()
            .flatten();
        LogLine {
            at: Stamp::now(),
            level: record.level(),
            target: record.target().to_owned(),
            message: message.0,
            caller,
        }
    }

    fn dropped(count: u64) -> LogLine {
        let message = format!("stderr was not read in time: {count} log lines were dropped.");
        LogLine {
            at: Stamp::now(),
            level: Level::Warn,
            target: module_path!().to_owned(),
            message,
            caller: None,
        }
    }

    fn write(&self, to: &dyn Log) {
        let priority = if journald_reads_stderr() {
            priority(self.level)
        } else {
            ""
        };
        if FORMAT.get() == Some(&LogFormat::Json) {
            let (time, level) = (self.at.to_string(), self.level.as_str());
            let object = json::object(
                &time,
                level,
                &self.target,
                &self.message,
                self.caller.as_deref(),
            );
            let _ = io::stderr().write_all(format!("{priority}{object}\n").as_bytes());
            return;
        }
        // If stderr is closed, the next call panics.
        let _ = io::stderr().write_all(format!("{priority}{} ", self.at).as_bytes());
        let mut message = self.message.clone();
        if let Some(caller) = &self.caller {
            logfmt(&mut message, "caller", caller);
        }
        to.log(
            &Record::builder()
                .level(self.level)
                .target(&self.target)
                .args(format_args!("{message}"))
                .build(),
        );
    }
}

/// The priority of a line for journald, as sd-daemon(3) has it.
fn priority(level: Level) -> &'static str {
    match level {
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    }
}

/// Whether journald reads stderr. `JOURNAL_STREAM` names its socket, but is inherited by programs that write elsewhere.
fn journald_reads_stderr() -> bool {
    static READS: OnceLock<bool> = OnceLock::new();
    *READS.get_or_init(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        !stream.is_empty() && stderr_is().is_some_and(|stderr| stderr == stream)
    })
}

/// Device and inode of stderr, as `JOURNAL_STREAM` has them.
#[cfg(unix)]
fn stderr_is() -> Option<String> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    let copy = io::stderr().as_fd().try_clone_to_owned().ok()?;
    let metadata = std::fs::File::from(copy).metadata().ok()?;
    Some(format!("{}:{}", metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn stderr_is() -> Option<String> {
    None
}

/// A message as it is formatted: escaped to one line, cut at [`MAX_LOG_LINE`] bytes.
struct EscapedLine(String);

impl fmt::Write for EscapedLine {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            if self.0.len() + c.len_utf8() > MAX_LOG_LINE {
                self.0.push('…');
                return Err(fmt::Error);
            }
            push_escaped(&mut self.0, c);
        }
        Ok(())
    }
}

/// Whether a character would break the line or change how it is displayed: controls, line separators, and direction
/// marks.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_escaped(line: &mut String, c: char) {
    if needs_escape(c) {
        line.extend(c.escape_default());
    } else {
        line.push(c);
    }
}

/// Lines waiting for stderr.
struct Queue {
    state: Mutex<Lines>,
    /// A line came, or one was written.
    changed: Condvar,
}

struct Lines {
    waiting: VecDeque<LogLine>,
    /// How many were dropped and not yet logged.
    dropped: u64,
    /// The thread is writing, so it need not be woken.
    writing: bool,
}

impl Lines {
    fn take_dropped(&mut self) -> Option<LogLine> {
        let count = std::mem::take(&mut self.dropped);
        (count > 0).then(|| LogLine::dropped(count))
    }
}

impl Queue {
    const fn new() -> Queue {
        let lines = Lines {
            waiting: VecDeque::new(),
            dropped: 0,
            writing: false,
        };
        Queue {
            state: Mutex::new(lines),
            changed: Condvar::new(),
        }
    }

    /// Adds a line, or counts it as dropped. Never waits for stderr.
    fn push(&self, line: LogLine) {
        let mut lines = lock(&self.state);
        if lines.waiting.len() < MAX_LOG_LINES {
            let dropped = lines.take_dropped();
            lines.waiting.extend(dropped.into_iter().chain([line]));
        } else {
            lines.dropped += 1;
        }
        if !lines.writing {
            drop(lines);
            self.changed.notify_all();
        }
    }

    /// The next line, if there is one.
    fn pop(&self) -> Option<LogLine> {
        let mut lines = lock(&self.state);
        lines.waiting.pop_front().or_else(|| lines.take_dropped())
    }

    /// Waits for the next line to write.
    fn next(&self) -> LogLine {
        let mut lines = lock(&self.state);
        lines.writing = false;
        loop {
            if let Some(line) = lines.waiting.pop_front().or_else(|| lines.take_dropped()) {
                lines.writing = true;
                return line;
            }
            // Wakes `flush`.
            self.changed.notify_all();
            lines = self
                .changed
                .wait(lines)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn flush(&self, limit: Duration) -> bool {
        let unwritten =
            |lines: &mut Lines| lines.writing || !lines.waiting.is_empty() || lines.dropped > 0;
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), limit, unwritten);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Writes lines as they come. If `write` panics, only its line is lost.
fn write_lines(queue: &Queue, mut write: impl FnMut(&LogLine)) {
    loop {
        let line = queue.next();
        let _ = catch_unwind(AssertUnwindSafe(|| write(&line)));
    }
}

#[cfg(test)]
mod tests;
