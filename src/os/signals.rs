//! SIGTERM, SIGINT and SIGHUP for a thread that waits for them.
//!
//! In scope: the self-pipe from the signal handler to that thread; the second signal, which ends the process at once. Not
//! in scope: the graceful end on the first one (`transport`). SIGPIPE stays ignored, as Rust's runtime sets it, and SIGXFSZ
//! is too: a log or a kept run that reaches `ulimit -f` is a failed write, no reason to end what runs.
//!
//! `unsafe`, because std has no signals. The handler does only what is async-signal-safe: it writes a byte to the pipe or
//! calls `_exit`, and uses nothing but atomics.

use std::io::{PipeReader, Read};

use crate::table::table;

#[cfg(unix)]
pub(crate) use unix::install;

table! {
    /// A signal that asks the process to end, or to read its files again: its number and name.
    Signal: (u8, &'static str) as pub(crate) row {
        /// Read the files again.
        Hangup = (1, "SIGHUP");
        /// Ctrl-C.
        Interrupt = (2, "SIGINT");
        /// Sent by service managers.
        Terminate = (15, "SIGTERM");
    }
}

impl Signal {
    /// The name, for the log.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }
}

/// The signals that have arrived.
pub(crate) struct Signals {
    /// `None` outside of Unix, or if no pipe could be made: then signals have the effect that the system gives them.
    pipe: Option<PipeReader>,
}

impl Signals {
    /// Blocks until a signal arrives. After one that ends the process, the next such ends it with exit code 128 + its
    /// number.
    pub(crate) fn wait(&mut self) -> Signal {
        let mut number = [0];
        let mut fails = |pipe: &mut PipeReader| pipe.read_exact(&mut number).is_err();
        while self.pipe.as_mut().is_none_or(&mut fails) {
            // There is no pipe, or reading failed, which cannot happen while it is open. Do not end, and do not spin.
            std::thread::park();
        }
        let known = Signal::ALL.into_iter().find(|one| number == [one.row().0]);
        known.unwrap_or(Signal::Terminate)
    }
}

/// There are no such signals here.
#[cfg(not(unix))]
pub(crate) fn install(_hangup: bool) -> Signals {
    Signals { pipe: None }
}

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

    use super::{Signal, Signals};

    // POSIX: `signal` with these numbers, and the value of SIG_IGN, are the same on every Unix Rust supports.
    const SIGHUP: c_int = Signal::Hangup.row().0 as c_int;
    const SIGINT: c_int = Signal::Interrupt.row().0 as c_int;
    const SIGTERM: c_int = Signal::Terminate.row().0 as c_int;
    /// The number on Linux, except on MIPS, PA-RISC and SPARC, on macOS and on the BSDs.
    const SIGXFSZ: c_int = 25;
    const SIG_IGN: usize = 1;

    /// Whether a signal that ends the process has arrived before.
    static RECEIVED: AtomicBool = AtomicBool::new(false);
    /// The end of the pipe that the handler writes to.
    static PIPE: AtomicI32 = AtomicI32::new(-1);

    #[allow(
        unsafe_code,
        reason = "std has no signals; these are POSIX functions with their POSIX signatures"
    )]
    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
        fn write(fd: c_int, bytes: *const u8, count: usize) -> isize;
        fn _exit(code: c_int) -> !;
    }

    /// Installs the handlers, once in a process. A SIGINT that the process was started to ignore (`nohup`, a background
    /// job of a script) stays ignored. SIGHUP is left as it is unless `hangup`.
    pub(crate) fn install(hangup: bool) -> Signals {
        let Ok((reader, writer)) = std::io::pipe() else {
            return Signals { pipe: None };
        };
        // Never closed: the handler may run at any time.
        PIPE.store(writer.into_raw_fd(), Ordering::SeqCst);
        let handler = on_signal as extern "C" fn(c_int) as usize;
        #[allow(unsafe_code, reason = "std has no way to set a signal handler")]
        // SAFETY: `signal` takes any handler with C's ABI and one int; ours only does what POSIX allows in a handler.
        unsafe {
            if signal(SIGINT, handler) == SIG_IGN {
                signal(SIGINT, SIG_IGN);
            }
            signal(SIGTERM, handler);
            signal(SIGXFSZ, SIG_IGN);
            if hangup {
                signal(SIGHUP, handler);
            }
        }
        Signals { pipe: Some(reader) }
    }

    extern "C" fn on_signal(number: c_int) {
        if number != SIGHUP && RECEIVED.swap(true, Ordering::SeqCst) {
            #[allow(
                unsafe_code,
                reason = "the only way to end a process that is safe in a handler"
            )]
            // SAFETY: async-signal-safe by POSIX; takes any int.
            unsafe {
                _exit(128 + number)
            }
        }
        let byte = number as u8;
        #[allow(unsafe_code, reason = "std's own writing is not safe in a handler")]
        // SAFETY: async-signal-safe by POSIX; one byte that lives until it returns, to a pipe that is never closed. It
        // blocks or fails only after thousands of SIGHUPs that nobody has read.
        unsafe {
            write(PIPE.load(Ordering::SeqCst), &raw const byte, 1);
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Lines, Write};
    use std::process::{Child, ChildStdout, Command, Stdio};

    /// Not a test: what the tests below start, in a process of its own.
    #[test]
    #[ignore = "the other tests' child process"]
    fn child() {
        let mut signals = install(true);
        let say = |text: &str| writeln!(std::io::stdout(), "\nsaid {text}").unwrap();
        say("ready");
        while {
            let signal = signals.wait();
            say(signal.name());
            signal == Signal::Hangup
        } {}
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        std::process::exit(0);
    }

    /// The child after it has installed its handlers.
    fn start() -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["os::signals::tests::child", "--exact", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(said(&mut lines), "ready");
        (child, lines)
    }

    fn said(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
        lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("said ").map(str::to_owned))
            .unwrap()
    }

    fn send(child: &Child, signal: &str) {
        let kill = format!("kill -{signal} {}", child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Whether this process, and so its children, ignores SIGINT, as background jobs of a shell do. Known on Linux only.
    fn ignores_interrupts() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 2 != 0)
    }

    #[test]
    fn hangups_and_the_first_other_signal_are_reported_and_end_nothing() {
        for signals in ["HUP HUP HUP TERM", "INT"] {
            if signals == "INT" && ignores_interrupts() {
                continue;
            }
            let (mut child, mut lines) = start();
            for signal in signals.split(' ') {
                send(&child, signal);
                assert_eq!(said(&mut lines), format!("SIG{signal}"));
            }
            drop(child.stdin.take());
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
    }

    #[test]
    fn the_second_signal_ends_the_process_at_once() {
        for (first, second, code) in [
            ("TERM", "TERM", 143),
            ("TERM", "INT", 130),
            ("INT", "TERM", 143),
        ] {
            if (first == "INT" || second == "INT") && ignores_interrupts() {
                continue;
            }
            let (mut child, mut lines) = start();
            // Held open, because closing stdin would end the child: `wait` closes the one that it finds in `child`.
            let _stdin = child.stdin.take();
            send(&child, first);
            said(&mut lines);
            send(&child, second);
            assert_eq!(child.wait().unwrap().code(), Some(code));
        }
    }
}
