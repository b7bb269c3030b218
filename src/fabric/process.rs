//! A Fabric of our own: `--start-fabric`.
//!
//! ```text
//!   request ─┬─ one is up ───────────▶ its address and key, in use until the response is dropped
//!            ├─ one is starting ─────▶ wait for it
//!            └─ none ─▶ find, start ─▶ a thread watches: has it ended, is it idle?
//!
//!   this process ── pipe ──▶ helper (this program again) ──▶ fabric --serve
//! ```
//! The helper kills Fabric when the pipe closes, which the system sees to however this process ends: nothing is left
//! behind, not after `kill -9` either.
//!
//! In scope: which program that is, its environment, start, output and end. Not in scope: requests (`client`).

use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::observer::SLICE;
use super::{Cached, CallObserver, Cause, Error, Kind};
use crate::agent;
use crate::config::{API_KEY, BASE_URL, OWN_VARIABLE, WORKER_STACK};
use crate::os::{random, signals};
use crate::sync::{lock, spawn, start};

/// The first argument that makes this program the helper; the command follows. Not for people.
pub(crate) const HELPER: &str = "--hold-fabric";

/// What Fabric is called: by most installers, and by Homebrew.
const NAMES: [&str; 2] = match cfg!(windows) {
    true => ["fabric.exe", "fabric-ai.exe"],
    false => ["fabric", "fabric-ai"],
};
/// Where installers put it, if PATH does not say: Go, pipx and the like, by hand, Homebrew's two, winget. From the home.
const FOLDERS: &str = "go/bin .local/bin /usr/local/bin /opt/homebrew/bin \
                       /home/linuxbrew/.linuxbrew/bin AppData/Local/Microsoft/WinGet/Links";
/// How long `--version` may take.
const VERSION: Duration = Duration::from_secs(5);
/// How long a start may take, and one answer meanwhile.
const START: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(1);
/// How often to look.
const LOOK: Duration = Duration::from_millis(10);
/// How long it must live after its first answer, which may be another server's; and how long its last words may take.
const PROOF: Duration = Duration::from_millis(50);
/// It is ended after so long without a request.
const IDLE: Duration = Duration::from_secs(600);
/// After three ends within this time, nothing is started for as long.
const MINUTE: Duration = Duration::from_secs(60);
/// Ports that are tried: another program may take one before Fabric does.
const PORTS: usize = 3;
/// Lines of its output that are kept, and the longest, in bytes.
const LINES: usize = 40;
const LINE: u64 = 1 << 10;

/// The Fabric that this process starts. Shared by all threads.
pub(crate) struct Process {
    /// A path or a name; empty for [`NAMES`].
    program: PathBuf,
    up: Cached<Running>,
    /// When the last request began, or was seen in flight.
    used: Mutex<Instant>,
    /// When one ended by itself: the last three times.
    ends: Mutex<VecDeque<Instant>>,
    /// Its last lines, and what else was found.
    output: Mutex<VecDeque<String>>,
}

/// One that is up. Ended when nobody has it any more.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(super) key: String,
    pub(crate) program: PathBuf,
    /// As its `--version` says.
    pub(crate) version: String,
    /// How long its start took.
    pub(crate) took: Duration,
    helper: Mutex<Child>,
}

impl Running {
    fn lives(&self) -> bool {
        matches!(lock(&self.helper).try_wait(), Ok(None))
    }

    /// Whether it comes up, and asks for its key, which nobody else gets to see.
    fn comes_up(&self, begun: Instant, wait: &dyn CallObserver) -> Result<bool, Error> {
        let url = format!("{}/patterns/names", self.url);
        let refuses = |key| agent::status(&url, Some(key), ANSWER) == Ok(401);
        while self.lives() && begun.elapsed() < START {
            wait.still_waiting()?;
            if refuses("wrong") {
                thread::sleep(PROOF);
                // Another server, which has taken the port, refuses both.
                return Ok(self.lives() && !refuses(&self.key));
            }
            thread::sleep(LOOK);
        }
        Ok(false)
    }
}

impl Drop for Running {
    /// Closes the helper's pipe, and waits.
    fn drop(&mut self) {
        let _ = lock(&self.helper).wait();
    }
}

impl Process {
    /// Starts nothing yet. `program` is a path or a name; empty for the usual names.
    pub(crate) fn new(program: PathBuf) -> Process {
        Process {
            program,
            up: Cached::new(Duration::MAX),
            used: Mutex::new(Instant::now()),
            ends: Mutex::default(),
            output: Mutex::default(),
        }
    }

    /// The one that is up.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.up.latest(None)
    }

    /// Its last lines, or what was found instead of it.
    pub(crate) fn output(&self) -> Vec<String> {
        lock(&self.output).iter().cloned().collect()
    }

    /// Whoever comes next gets another one, since Fabric reads its settings only at its start.
    pub(super) fn retire(&self) {
        self.up.invalidate(|_| true);
    }

    /// The one that is up, started if need be; ended only when it is dropped.
    ///
    /// # Errors
    /// It cannot be started: for all who waited for it. Cancelled, as `wait` says.
    pub(crate) fn ask(self: &Arc<Process>, wait: &dyn CallObserver) -> Result<Arc<Running>, Error> {
        self.sweep();
        *lock(&self.used) = Instant::now();
        let failed = |error: &Error| self.tell(&format!("No Fabric was started: {error}"));
        let launch = |_: Option<&_>| self.launch(wait).inspect_err(failed);
        self.up.get(Duration::MAX, wait, launch)
    }

    /// Forgets one that has ended.
    fn sweep(&self) {
        let mut ended = false;
        self.up.invalidate(|one| {
            ended = !one.lives();
            ended
        });
        if ended {
            let mut ends = lock(&self.ends);
            ends.push_back(Instant::now());
            if ends.len() > 3 {
                ends.pop_front();
            }
            drop(ends);
            thread::sleep(PROOF);
            self.tell("Fabric has ended.");
        }
    }

    /// Logs what happened, and the last words.
    fn tell(&self, what: &str) {
        log::error!("{what}");
        for line in self.output() {
            log::warn!("Fabric: {line}");
        }
    }

    /// Until it has ended: forgets it if it was idle for long.
    fn watch(&self, one: &Weak<Running>) {
        loop {
            thread::sleep(SLICE);
            self.sweep();
            let Some(one) = one.upgrade() else { return };
            // More than the cache and this.
            if Arc::strong_count(&one) > 2 {
                *lock(&self.used) = Instant::now();
            } else if lock(&self.used).elapsed() >= IDLE {
                log::info!("Fabric was idle, and is ended.");
                self.retire();
            }
        }
    }

    fn launch(self: &Arc<Process>, wait: &dyn CallObserver) -> Result<Arc<Running>, Error> {
        if let [Some(first), Some(last)] = [0, 2].map(|at| lock(&self.ends).get(at).copied())
            && last - first < MINUTE
            && last.elapsed() < MINUTE
        {
            return Err(not_started(
                "it has ended three times within a minute, so wait for a minute",
            ));
        }
        lock(&self.output).clear();
        let (program, version) = find(&self.program, &|line| self.note(line))?;
        self.note(format!("{} is {version}", program.display()));
        let begun = Instant::now();
        for _ in 0..PORTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let address = free.and_then(|free| free.local_addr());
            let address = address.map_err(not_started)?;
            let key = random::id();
            let mut one = Running {
                url: format!("http://{address}"),
                helper: Mutex::new(self.hold(&program, &address.to_string(), &key)?),
                key,
                program: program.clone(),
                version: version.clone(),
                took: Duration::ZERO,
            };
            if one.comes_up(begun, wait)? {
                one.took = begun.elapsed();
                log::info!("Fabric {version} was started.");
                let one = Arc::new(one);
                let (process, weak) = (self.clone(), Arc::downgrade(&one));
                let watch = move || process.watch(&weak);
                spawn("fabric", "Fabric is kept until the end", watch);
                return Ok(one);
            }
            drop(one);
            if TcpListener::bind(address).is_ok() {
                break;
            }
        }
        thread::sleep(PROOF);
        let home = env::home_dir().unwrap_or_default();
        let is_set_up = home.join(".config/fabric/.env").exists();
        if !is_set_up || self.output().iter().any(|line| line.contains("--setup")) {
            return Err(Error::of(Kind::ApiUnavailable, Cause::NotSetUp, &[]));
        }
        Err(not_started(match begun.elapsed() < START {
            true => "it ended at once",
            false => "it was not up within 10 s",
        }))
    }

    /// Starts the helper with Fabric. Both write to our `output`.
    fn hold(self: &Arc<Process>, program: &Path, address: &str, key: &str) -> Result<Child, Error> {
        let (output, writer) = io::pipe().map_err(not_started)?;
        // On Linux the file may have been replaced meanwhile; and whoever kills by name spares the helper.
        let own = Path::new("/proc/self/exe");
        let own = if own.exists() {
            own.into()
        } else {
            env::current_exe().unwrap_or_default()
        };
        let mut helper = command(own.as_os_str());
        helper
            .arg(HELPER)
            .arg(program)
            .args(["--serve", "--address", address, "--api-key", key]);
        let other = writer.try_clone().map_err(not_started)?;
        let helper = helper
            .stdin(Stdio::piped())
            .stdout(other)
            .stderr(writer)
            .spawn();
        let process = self.clone();
        let collect = move || {
            let (mut output, mut line) = (BufReader::new(output), Vec::new());
            while (&mut output)
                .take(LINE)
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                process.note(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        };
        start("output", WORKER_STACK, Box::new(collect)).map_err(not_started)?;
        helper.map_err(not_started)
    }

    /// Keeps a line, unless it is one of those that list the routes at every start.
    fn note(&self, line: String) {
        let mut output = lock(&self.output);
        if !line.is_empty() && !line.starts_with("[GIN-debug]") {
            output.push_back(line);
        }
        if output.len() > LINES {
            output.pop_front();
        }
    }
}

fn not_started(why: impl ToString) -> Error {
    let values = [("why", &*why.to_string())];
    Error::of(Kind::ApiUnavailable, Cause::NotStarted, &values)
}

/// The helper: runs the command until stdin closes, a signal comes, or the command ends.
pub(crate) fn be_helper(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (ends, end) = channel();
    let (of_signals, mut signals) = (ends.clone(), signals::install(true));
    spawn("signals", "signals are not handled", move || {
        signals.wait();
        let _ = of_signals.send(());
    });
    let pipe = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ends.send(());
    };
    // Before Fabric: without this thread nothing would end it.
    let watched = start("pipe", WORKER_STACK, Box::new(pipe));
    let program = args.next().unwrap_or_default();
    let Ok(mut fabric) = watched.and_then(|()| detached(&program).args(args).spawn()) else {
        return ExitCode::FAILURE;
    };
    let begun = Instant::now();
    while matches!(fabric.try_wait(), Ok(None)) {
        // At the start it may end for a taken port.
        let pause = (begun.elapsed() / 10).clamp(LOOK, SLICE);
        if end.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    kill(&mut fabric);
    ExitCode::SUCCESS
}

/// A command in a process group of its own, since Ctrl-C is for us; without stdin, which Fabric would read.
fn detached(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)] // CREATE_NO_WINDOW, CREATE_NEW_PROCESS_GROUP
    std::os::windows::process::CommandExt::creation_flags(&mut command, 0x0800_0200);
    command.stdin(Stdio::null());
    command
}

/// The same without our secrets, which a pattern can have shown, and with installers' folders on its PATH, where Fabric
/// looks for yt-dlp.
fn command(program: &OsStr) -> Command {
    let mut command = detached(program);
    for (name, _) in env::vars_os() {
        let known = name.to_string_lossy().to_ascii_uppercase();
        if known.starts_with(OWN_VARIABLE) || [API_KEY, BASE_URL].contains(&&*known) {
            command.env_remove(name);
        }
    }
    if let Ok(path) = env::join_paths(folders()) {
        command.env("PATH", path);
    }
    command
}

/// Kills what [`command`] made, and all that it started itself: std can do only the former.
fn kill(child: &mut Child) {
    let id = child.id().to_string();
    let (killer, args) = match cfg!(windows) {
        true => ("taskkill", vec!["/t", "/f", "/pid", &id]),
        false => ("/bin/sh", vec!["-c", "kill -9 -$0", &id]),
    };
    let mut killer = Command::new(killer);
    killer.args(args).stdin(Stdio::null());
    // Its output is nobody's.
    let _ = killer.output();
    let _ = child.kill();
    let _ = child.wait();
}

/// Where to look for programs. Relative ones are left out: nothing is started from wherever somebody happens to be.
fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::home_dir().unwrap_or_default();
    let installers = FOLDERS.split(' ').map(|folder| home.join(folder));
    let all = env::split_paths(&path).chain(installers);
    all.filter(|folder| folder.is_absolute()).collect()
}

/// The program, and its version; `tell` gets what was found instead.
///
/// # Errors
/// There is none.
pub(crate) fn find(given: &Path, tell: &dyn Fn(String)) -> Result<(PathBuf, String), Error> {
    let names = match given.as_os_str().is_empty() {
        true => NAMES.map(PathBuf::from).to_vec(),
        false => vec![given.to_owned()],
    };
    let folders = folders();
    let all = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let mut all: Vec<PathBuf> = all.collect();
    // A whole path is the same in every folder.
    all.dedup();
    for program in all.into_iter().filter(|program| program.is_file()) {
        match version(&program) {
            Some(version) => return Ok((program, version)),
            None => tell(format!(
                "{} does not answer --version as Fabric 1.4 does",
                program.display()
            )),
        }
    }
    Err(Error::of(Kind::ApiUnavailable, Cause::NoProgram, &[]))
}

/// What its `--version` says, if it is Fabric's.
fn version(program: &Path) -> Option<String> {
    let mut asked = command(program.as_os_str());
    asked
        .arg("--version")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = asked.spawn().ok()?;
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < VERSION {
        thread::sleep(LOOK);
    }
    kill(&mut child);
    let mut said = [0; 64];
    let length = child.stdout.take()?.read(&mut said).ok()?;
    let line = str::from_utf8(&said[..length]).ok()?.trim();
    let patch = line.trim_start_matches('v').strip_prefix("1.4.")?;
    patch.parse::<u32>().is_ok().then(|| line.to_owned())
}
