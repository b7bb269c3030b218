//! The binary as a child process, with only the environment that a test sets and all its output collected.
//!
//! A failing test prints the command, the exchanged messages and stderr.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio as Pipe,
};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fabric::FakeFabric;
use super::poll;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_fabric-mcp");
/// How much of each direction a failure prints, in bytes.
const SHOWN: usize = 16_000;
/// How much of a line is kept for that, in bytes.
const NOTED: usize = 1 << 20;

/// Held while a child starts: a concurrently forked child inherits our end of a pipe that must close.
static STARTING: Mutex<()> = Mutex::new(());

/// How to treat an output pipe of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A thread reads all of it.
    Read,
    /// Open but never read: it fills up.
    Unread,
    /// Our end is closed at once.
    Closed,
}

/// How to start the binary.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    /// A shell command to run before the binary, such as `ulimit -n 40`.
    pub(crate) prelude: Option<String>,
}

impl Program {
    /// With these arguments and an empty environment.
    pub(crate) fn new<const N: usize>(args: [&str; N]) -> Program {
        let args = args.map(str::to_owned).to_vec();
        Program {
            args,
            env: Vec::new(),
            stdout: Output::Read,
            stderr: Output::Read,
            prelude: None,
        }
    }

    /// Without arguments, in front of `fabric`.
    pub(crate) fn with(fabric: &FakeFabric) -> Program {
        Program::new([]).env("FABRIC_BASE_URL", &fabric.url())
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: &str) -> Program {
        self.args.push(arg.to_owned());
        self
    }

    /// Adds arguments, with blanks between them.
    pub(crate) fn flags(mut self, flags: &str) -> Program {
        self.args
            .extend(flags.split_whitespace().map(str::to_owned));
        self
    }

    /// Adds a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Program {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How to treat stdout.
    pub(crate) fn stdout(mut self, output: Output) -> Program {
        self.stdout = output;
        self
    }

    /// How to treat stderr.
    pub(crate) fn stderr(mut self, output: Output) -> Program {
        self.stderr = output;
        self
    }

    /// Adds a shell command; the shell then execs the binary.
    #[cfg(unix)]
    pub(crate) fn after(mut self, prelude: &str) -> Program {
        self.prelude = Some(prelude.to_owned());
        self
    }

    /// The command as typed in a shell.
    pub(crate) fn shown(&self) -> String {
        let mut shown = String::from("env -i");
        for (name, value) in &self.env {
            let _ = write!(shown, " {name}={value:?}");
        }
        if let Some(prelude) = &self.prelude {
            let _ = write!(shown, " {prelude}; exec");
        }
        shown.push_str(" fabric-mcp");
        for arg in &self.args {
            let _ = write!(shown, " {arg:?}");
        }
        shown
    }

    fn command(&self) -> Command {
        let mut command = match &self.prelude {
            None => Command::new(PathBuf::from(BINARY)),
            Some(prelude) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("{prelude}; exec \"$0\" \"$@\""), BINARY]);
                shell
            }
        };
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        // Only what the system (sockets on Windows) and coverage runs need.
        for kept in ["SystemRoot", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::piped());
        command
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Process {
        let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = self.command().spawn();
        let mut child = child.unwrap_or_else(|e| panic!("cannot start {BINARY}: {e}"));
        let stdin = child.stdin.take();
        if self.stdout == Output::Closed {
            child.stdout = None;
        }
        if self.stderr == Output::Closed {
            child.stderr = None;
        }
        drop(starting);
        // An unread pipe stays open in `child`.
        let is_read = self.stdout == Output::Read;
        let stdout = is_read.then(|| child.stdout.take().expect("stdout is piped"));
        let log = Log::default();
        if self.stderr == Output::Read {
            log.collect(child.stderr.take().expect("stderr is piped"));
        }
        Process {
            program: self.clone(),
            child,
            stdin,
            stdout,
            log,
            said: Transcript::default(),
        }
    }

    /// Runs it to its end with empty stdin and returns all its output; kills it after `limit`.
    pub(crate) fn run(&self, limit: Duration) -> Finished {
        self.start().finish(limit)
    }
}

/// A finished run of the binary.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) command: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Fails with all its output.
    #[track_caller]
    pub(crate) fn fail(&self, why: &str) -> ! {
        panic!(
            "{why}\n--- command: {}\n--- exit code: {:?}\n--- stdout:\n{}\n--- stderr:\n{}",
            self.command, self.code, self.stdout, self.stderr
        )
    }

    /// Fails unless it ended with this code.
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Finished {
        if self.code != Some(code) {
            self.fail(&format!("expected exit code {code}"));
        }
        self
    }

    /// Fails unless stdout contains this text.
    #[track_caller]
    pub(crate) fn expect_stdout(&self, text: &str) -> &Finished {
        if !self.stdout.contains(text) {
            self.fail(&format!("{text:?} is missing on stdout"));
        }
        self
    }

    /// Fails unless stderr contains this text.
    #[track_caller]
    pub(crate) fn expect_stderr(&self, text: &str) -> &Finished {
        if !self.stderr.contains(text) {
            self.fail(&format!("{text:?} is missing on stderr"));
        }
        self
    }
}

/// The stderr so far; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<LogState>);

#[derive(Default)]
struct LogState {
    /// The bytes so far, and whether stderr has ended.
    said: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Log {
    fn collect(&self, mut stderr: ChildStderr) {
        let log = self.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                let read = stderr.read(&mut bytes).unwrap_or(0);
                let mut said = log.0.said.lock().unwrap();
                said.0.extend_from_slice(&bytes[..read]);
                said.1 = read == 0;
                log.0.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.said.lock().unwrap().0).into_owned()
    }

    /// Waits until `found` returns a value for the text so far; `None` after `limit` or at the end of stderr.
    pub(crate) fn wait<T>(&self, limit: Duration, found: impl Fn(&str) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut said = self.0.said.lock().unwrap();
        loop {
            if let Some(value) = found(&String::from_utf8_lossy(&said.0)) {
                return Some(value);
            }
            let rest = end.checked_duration_since(Instant::now());
            let rest = rest.filter(|_| !said.1)?;
            said = self.0.changed.wait_timeout(said, rest).unwrap().0;
        }
    }

    /// Waits for the end of stderr, so that the child's last output is included.
    pub(crate) fn wait_end(&self, limit: Duration) {
        self.wait(limit, |_| None::<()>);
    }
}

/// All messages over a pipe, for failure reports and for tests that search for secrets.
#[derive(Clone, Default)]
pub(crate) struct Transcript(Arc<Mutex<String>>);

impl Transcript {
    /// Records a line; `mark` is its direction.
    pub(crate) fn note(&self, mark: &str, bytes: &[u8]) {
        let mut text = self.0.lock().unwrap();
        let kept = &bytes[..bytes.len().min(NOTED)];
        let _ = writeln!(text, "{mark} {}", String::from_utf8_lossy(kept).trim_end());
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

/// A running binary; killed when dropped.
pub(crate) struct Process {
    pub(crate) program: Program,
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) log: Log,
    pub(crate) said: Transcript,
}

impl Process {
    /// Everything on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.log.text()
    }

    /// Waits until stderr contains this text.
    #[track_caller]
    pub(crate) fn wait_stderr(&self, text: &str) {
        if self
            .log
            .wait(super::DEADLINE, |log| log.contains(text).then_some(()))
            .is_none()
        {
            self.fail(&format!("{text:?} never came on stderr"));
        }
    }

    /// Writes to stdin; `false` if the child no longer reads.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        self.said.note("→", bytes);
        let Some(stdin) = self.stdin.as_mut() else {
            return false;
        };
        stdin.write_all(bytes).and_then(|()| stdin.flush()).is_ok()
    }

    /// Ends its stdin and returns all its output; kills it after `limit`.
    pub(crate) fn finish(mut self, limit: Duration) -> Finished {
        drop(self.stdin.take());
        let reader = self.stdout.take().map(|stdout| {
            thread::spawn(|| std::io::read_to_string(stdout).expect("stdout is UTF-8"))
        });
        let status = self.wait_exit(limit);
        let stdout = reader.map(|reader| reader.join().expect("the reader of stdout"));
        Finished {
            command: self.program.shown(),
            code: status.code(),
            stdout: stdout.unwrap_or_default(),
            stderr: self.stderr(),
        }
    }

    /// Waits for its end; after `limit` kills it and fails.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        match poll(limit, || self.child.try_wait().expect("the child's state")) {
            Some(status) => {
                if self.program.stderr == Output::Read {
                    self.log.wait_end(limit);
                }
                status
            }
            None => {
                let _ = self.child.kill();
                self.fail(&format!("it did not end within {limit:?}"))
            }
        }
    }

    /// Sends a signal with the shell's own `kill`, because not every system has the program. Sends TERM in place of an
    /// INT that the child was started to ignore, as shells do for background jobs, these tests included.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let name = if name == "INT" && self.ignores_interrupts() {
            "TERM"
        } else {
            name
        };
        let sent = Command::new("sh")
            .arg("-c")
            .arg(format!("kill -{name} {}", self.child.id()))
            .status();
        assert!(sent.expect("a shell").success(), "kill -{name}");
    }

    /// Detectable only on Linux.
    #[cfg(unix)]
    fn ignores_interrupts(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 2 != 0)
    }

    /// Sets a limit with Linux's `prlimit`, such as `--nofile=3`. False if that is not possible.
    #[cfg(target_os = "linux")]
    pub(crate) fn limit(&self, what: &str) -> bool {
        let done = Command::new("prlimit")
            .arg(format!("--pid={}", self.child.id()))
            .arg(what)
            .status();
        let done = done.is_ok_and(|status| status.success());
        if !done {
            eprintln!("skipped: prlimit {what} cannot be done here");
        }
        done
    }

    /// Fails with the command, the exchanged messages, and stderr.
    #[track_caller]
    pub(crate) fn fail(&self, why: &str) -> ! {
        panic!(
            "{why}\n--- command: {}\n--- exchanged:\n{}\n--- stderr:\n{}",
            self.program.shown(),
            tail(&self.said.text()),
            tail(&self.stderr())
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A killed process loses its coverage data: in coverage runs, let it end by itself.
        #[cfg(unix)]
        if std::env::var_os("LLVM_PROFILE_FILE").is_some()
            && matches!(self.child.try_wait(), Ok(None))
        {
            drop(self.stdin.take());
            let kill = format!("kill {}", self.child.id());
            let _ = Command::new("sh")
                .arg("-c")
                .arg(kill)
                .stderr(Pipe::null())
                .status();
            poll(Duration::from_secs(3), || {
                self.child.try_wait().ok().flatten()
            });
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a long text, cut between characters.
fn tail(text: &str) -> String {
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let start = (text.len() - SHOWN..text.len()).find(|at| text.is_char_boundary(*at));
    let start = start.unwrap_or(0);
    format!("[{start} bytes not shown]\n{}", &text[start..])
}
