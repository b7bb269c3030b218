//! A Fabric of our own: `--start-fabric`.
//!
//! ```text
//!   request ─┬─ one is up ───────────▶ its address and key, in use until the response is dropped
//!            ├─ one is starting ─────▶ wait for it
//!            └─ none ─▶ find, start ─▶ a thread watches: has it ended, is it idle?
//!
//!   this process ── pipe ──▶ helper (this program again) ──▶ fabric --serve
//! ```
//! The helper kills Fabric when the pipe closes. The system closes it however this process ends, so that no Fabric is
//! left behind, not even after `kill -9`. A shell does the killing, so that it also works if the helper itself is
//! killed.
//!
//! In scope: which program that is, its environment, start, output and end. Not in scope: requests (`client`).

use std::collections::HashSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio, exit};
use std::ptr;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{Cached, CallObserver, Cause, Error, Kind};
use crate::agent;
use crate::config::{API_KEY, BASE_URL, OWN_VARIABLE, WORKER_STACK};
use crate::os::random;
use crate::sync::{SLICE, lock, poll, spawn, start};
use crate::time::milliseconds;

/// The first argument that makes this program the helper; the command follows. Not for people.
pub(crate) const HELPER: &str = "--hold-fabric";

/// The names under which installers put it on PATH: most of them, and Homebrew.
const NAMES: [&str; 2] = ["fabric", "fabric-ai"];
/// Where installers put Fabric, relative to the home folder, in case PATH does not have these: Go, pipx, by hand,
/// Homebrew, winget.
const FOLDERS: &str = "go/bin .local/bin /usr/local/bin /opt/homebrew/bin \
                       /home/linuxbrew/.linuxbrew/bin AppData/Local/Microsoft/WinGet/Links";
/// How long to wait for the end of a Fabric, or of its `--version`.
const END: Duration = Duration::from_secs(5);
/// How long a start may take, and each answer during the start or when Fabric may hang.
const START: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(1);
/// How long after a start that failed nothing is started: a call may need several requests.
const REST: Duration = Duration::from_secs(1);
/// How often to look whether it is up.
const LOOK: Duration = Duration::from_millis(10);
/// How long Fabric must stay up after its first answer, which may come from another server; and how long to wait for
/// its last output.
const PROOF: Duration = Duration::from_millis(50);
/// Fabric is ended after this long without a request.
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
    /// The last one that was replaced because it had not found a model.
    retired: Mutex<Weak<Running>>,
    /// When the last request began, or was seen in flight.
    used: Mutex<Instant>,
    /// When Fabric ended by itself the last three times, the oldest first.
    ends: Mutex<[Option<Instant>; 3]>,
    /// The last lines of Fabric's output, and what else was found.
    output: Mutex<Vec<String>>,
}

/// A Fabric that is up. It is ended when this value is no longer held.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(super) key: String,
    pub(crate) program: PathBuf,
    /// As its `--version` says.
    pub(crate) version: String,
    /// When the settings that it has read were written.
    settings: Option<u64>,
    /// Has a value once it has been asked for its models, whatever it answered.
    pub(super) asked: Cached<()>,
    helper: Mutex<Child>,
}

impl Running {
    fn lives(&self) -> bool {
        matches!(lock(&self.helper).try_wait(), Ok(None))
    }

    /// Whether Fabric comes up and requires its key, which only this process knows.
    fn comes_up(&self, begun: Instant, observer: &dyn CallObserver) -> Result<bool, Error> {
        while self.lives() && begun.elapsed() < START {
            observer.still_waiting()?;
            if self.refuses("wrong") {
                thread::sleep(PROOF);
                // Another server, which has taken the port, refuses both.
                return Ok(self.lives() && !self.refuses(&self.key));
            }
            thread::sleep(LOOK);
        }
        Ok(false)
    }

    fn refuses(&self, key: &str) -> bool {
        let url = format!("{}/patterns/names", self.url);
        agent::get(&url, Some(key), ANSWER).is_ok_and(|reply| reply.status() == 401)
    }
}

impl Drop for Running {
    /// Closes the helper's pipe, and waits: not for ever, as the system may be unable to end Fabric.
    fn drop(&mut self) {
        drop(lock(&self.helper).stdin.take());
        poll(END, LOOK, || !self.lives());
    }
}

impl Process {
    /// Starts nothing yet. `program` is a path or a name; empty for the usual names.
    pub(crate) fn new(program: PathBuf) -> Process {
        Process {
            program,
            up: Cached::new(Duration::MAX).resting(REST),
            retired: Mutex::default(),
            used: Mutex::new(Instant::now()),
            ends: Mutex::default(),
            output: Mutex::default(),
        }
    }

    /// The one that is up.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.up.latest(None)
    }

    /// Why the last start failed, if that was within the last minute and no start has worked since.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.up.failure(MINUTE)
    }

    /// The last lines of Fabric's output, or what was found instead of Fabric.
    pub(crate) fn output(&self) -> Vec<String> {
        lock(&self.output).clone()
    }

    /// The next request gets a new Fabric; requests that the old one still works on go on. There are never more than
    /// two, so nothing is done until the one before has ended.
    pub(crate) fn retire(&self) {
        let mut retired = lock(&self.retired);
        if retired.strong_count() == 0
            && let Some(one) = self.running()
            && self.up.invalidate(|up| ptr::eq(up, &*one))
        {
            *retired = Arc::downgrade(&one);
            // If nobody works with it, its end is waited for here.
            drop(retired);
            log::info!("Fabric has found no model, so it is ended; the next call starts it again.");
        }
    }

    /// After a request that got no answer in time: if Fabric answers nothing at all, the next request gets a new one.
    /// Requests that the old one still works on go on until their time is over.
    pub(super) fn replace_if_hung(&self) {
        if let Some(one) = self.running()
            && !one.refuses("wrong")
            && self.up.invalidate(|up| ptr::eq(up, &*one))
        {
            self.tell("Fabric no longer answers, so it is ended; the next call starts it again.");
        }
    }

    /// The Fabric that is up; it is started if need be, and ended only when the value is dropped.
    ///
    /// # Errors
    /// Fabric cannot be started; all callers that waited for it, or ask soon after, get this. Cancelled, if
    /// `observer` says so.
    pub(crate) fn ask(
        self: &Arc<Process>,
        observer: &dyn CallObserver,
    ) -> Result<Arc<Running>, Error> {
        self.sweep();
        // Fabric reads its settings only when it starts.
        let settings = settings();
        self.up.invalidate(|one| one.settings != settings);
        *lock(&self.used) = Instant::now();
        let failed = |error: &Error| match error.kind {
            // The line of its call says so.
            Kind::Cancelled => {}
            _ => self.tell(&format!("No Fabric was started: {error}")),
        };
        let launch = || self.launch(observer).inspect_err(failed);
        self.up.get(Duration::MAX, observer, launch)
    }

    /// Forgets one that has ended.
    fn sweep(&self) {
        if self.up.invalidate(|one| !one.lives()) {
            lock(&self.ends).rotate_left(1);
            lock(&self.ends)[2] = Some(Instant::now());
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

    /// Forgets it once it has been idle for long. `None` if it has ended.
    fn look_after(&self, one: &Weak<Running>) -> Option<()> {
        self.sweep();
        let one = one.upgrade()?;
        // A third holder, besides the cache and this function: a request is using Fabric.
        if Arc::strong_count(&one) > 2 {
            *lock(&self.used) = Instant::now();
        } else if lock(&self.used).elapsed() >= IDLE && self.up.invalidate(|up| ptr::eq(up, &*one))
        {
            log::info!("Fabric was ended, because nobody used it.");
        }
        Some(())
    }

    fn launch(self: &Arc<Process>, observer: &dyn CallObserver) -> Result<Arc<Running>, Error> {
        if let [Some(first), _, Some(last)] = *lock(&self.ends)
            && last - first < MINUTE
            && last.elapsed() < MINUTE
        {
            let why = "it has ended three times within a minute, so wait for a minute";
            return Err(not_started(why));
        }
        lock(&self.output).clear();
        let (program, version) = find(&self.program, &|line| self.note(line))?;
        self.note(format!("{} is {version}", program.display()));
        let (begun, settings) = (Instant::now(), settings());
        let said = |words| self.output().iter().any(|line| line.contains(words));
        for _ in 0..PORTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let address = free.and_then(|one| one.local_addr()).map_err(not_started)?;
            let (at, key) = (address.to_string(), random::id());
            let args = ["--serve", "--address", &at, "--api-key", &key];
            let helper = self.hold(&program, &args).map_err(not_started)?;
            let one = Arc::new(Running {
                url: format!("http://{address}"),
                key,
                program: program.clone(),
                version: version.clone(),
                settings,
                asked: Cached::new(Duration::MAX),
                helper: Mutex::new(helper),
            });
            if one.comes_up(begun, observer)? {
                log::info!("Fabric {version} was started.");
                let (process, weak) = (self.clone(), Arc::downgrade(&one));
                let is_over = move || process.look_after(&weak).is_none();
                let watch = move || _ = poll(Duration::MAX, SLICE, is_over);
                spawn("fabric-watch", "Fabric is not ended when it is idle", watch);
                return Ok(one);
            }
            drop(one);
            thread::sleep(PROOF);
            // Go says it so on every system; whoever took the port may have left it since.
            if !said(": bind: ") && TcpListener::bind(address).is_ok() {
                break;
            }
        }
        if settings.is_none() || said("--setup") {
            return Err(Error::of(Cause::NotSetUp, &[]));
        }
        let why = ["it did not answer within 10 s", "it ended at once"];
        Err(not_started(why[usize::from(begun.elapsed() < START)]))
    }

    /// Starts the helper with Fabric. Both write to our `output`.
    fn hold(self: &Arc<Process>, program: &Path, args: &[&str]) -> io::Result<Child> {
        let mut helper = held(program, args)?;
        let (process, output) = (self.clone(), helper.stderr.take());
        let collect = move || {
            let (mut output, mut line) = (output.map(BufReader::new), Vec::new());
            while let Some(output) = &mut output
                && let Ok(1..) = output.take(LINE).read_until(b'\n', &mut line)
            {
                process.note(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        };
        start("fabric-output", WORKER_STACK, Box::new(collect))?;
        Ok(helper)
    }

    /// Keeps a line, unless it is one of those that list the routes at every start.
    fn note(&self, line: String) {
        let mut output = lock(&self.output);
        if !line.is_empty() && !line.starts_with("[GIN-debug]") {
            output.push(line);
        }
        if output.len() > LINES {
            output.remove(0);
        }
    }
}

/// When `fabric --setup` last wrote its settings, if it has: in Unix milliseconds.
fn settings() -> Option<u64> {
    let file = env::home_dir()?.join(".config/fabric/.env");
    file.metadata().ok()?.modified().ok().map(milliseconds)
}

fn not_started(why: impl ToString) -> Error {
    Error::of(Cause::NotStarted, &[("why", &*why.to_string())])
}

/// The helper: runs the command until stdin closes, or the command or the helper ends.
pub(crate) fn be_helper(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    // An empty line first: with it, the reader need not wait for a process that the command leaves behind with the pipe
    // open.
    let _ = writeln!(io::stderr());
    let mut fabric = detached(&args.next().unwrap_or_default());
    let Ok(fabric) = fabric.args(args).stdout(io::stderr()).spawn() else {
        return ExitCode::FAILURE;
    };
    // std can kill only its own children, not what they have started. So a shell does it, once its pipe closes; a kill
    // of all processes with our name does not hit the shell, and the signals that end a session do not end it. The shell
    // of Windows looks for programs in the current folder first.
    let (shell, flag, kill) = match cfg!(windows) {
        true => (
            "cmd",
            "/d/c",
            r"set /p x= & %SystemRoot%\System32\taskkill.exe /t /f /pid ",
        ),
        false => ("/bin/sh", "-c", "trap '' 1 2 3 15; read x; kill -9 -"),
    };
    let mut guard = detached(shell.as_ref());
    guard.args([flag, &format!("{kill}{}", fabric.id())]);
    guard.stdout(Stdio::null()).stderr(Stdio::null());
    let guard = guard.stdin(Stdio::piped()).spawn();
    let both = Arc::new(Mutex::new((fabric, guard)));
    let watched = both.clone();
    let end = move || {
        let (fabric, guard) = &mut *lock(&both);
        // Closes the pipe first.
        let _ = guard.as_mut().map(Child::wait);
        let _ = fabric.kill();
        let ended = fabric.wait();
        exit(i32::from(!ended.is_ok_and(|status| status.success())))
    };
    let at_end = end.clone();
    let begun = Instant::now();
    spawn("end", "the end of Fabric will not be noticed", move || {
        while matches!(lock(&watched).0.try_wait(), Ok(None)) {
            // Right after its start it may end because the port is taken.
            thread::sleep((begun.elapsed() / 10).clamp(LOOK, SLICE));
        }
        at_end();
    });
    // Read on this thread, which always exists. Nothing is ever written to the pipe.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    end()
}

/// A command in a process group of its own, because Ctrl-C is meant for this program; and without stdin, because Fabric
/// would read it.
fn detached(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)] // CREATE_NO_WINDOW, CREATE_NEW_PROCESS_GROUP
    std::os::windows::process::CommandExt::creation_flags(&mut command, 0x0800_0200);
    command.stdin(Stdio::null());
    command
}

/// Starts the helper with this command: without our secrets, because a pattern could show them, and with installers'
/// folders on its PATH, where Fabric looks for yt-dlp. The command's output goes to its stderr.
fn held(program: &Path, args: &[&str]) -> io::Result<Child> {
    // On Linux the program's file may have been replaced in the meantime; and a kill by name then spares the helper. On
    // Windows this would be a file below the root of the current drive, where others may make one.
    let mut own = PathBuf::from("/proc/self/exe");
    if cfg!(windows) || !own.exists() {
        own = env::current_exe()?;
    }
    let mut command = detached(own.as_os_str());
    for (name, _) in env::vars_os() {
        let known = name.to_string_lossy().to_ascii_uppercase();
        if known.starts_with(OWN_VARIABLE) || [API_KEY, BASE_URL].contains(&&*known) {
            command.env_remove(name);
        }
    }
    command.envs(env::join_paths(folders()).map(|path| ("PATH", path)));
    // Fabric reads its strategies below it on Windows too, which does not set it.
    command.envs(env::home_dir().map(|home| ("HOME", home)));
    command.arg(HELPER).arg(program).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn()
}

/// The folders where programs are looked for. Relative ones are left out, so that nothing is started from the current
/// folder.
fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::home_dir().unwrap_or_default();
    // Windows' separators are others.
    let in_home = |folder| home.join(folder).components().collect();
    let all = env::split_paths(&path).chain(FOLDERS.split(' ').map(in_home));
    all.filter(|folder| folder.is_absolute()).collect()
}

/// The program, and its version; `tell` gets what was found instead.
///
/// # Errors
/// There is none.
pub(crate) fn find(given: &Path, tell: &dyn Fn(String)) -> Result<(PathBuf, String), Error> {
    let usual = NAMES.map(Path::new);
    let is_given = !given.as_os_str().is_empty();
    let names = if is_given { &[given][..] } else { &usual };
    let folders = folders();
    let in_each = |name| folders.iter().map(move |folder| folder.join(name));
    let mut all = Vec::from_iter(names.iter().flat_map(in_each));
    // Like Windows, which adds .exe to a name without an extension.
    let is_bare = |program: &&mut PathBuf| cfg!(windows) && program.extension().is_none();
    for program in all.iter_mut().filter(is_bare) {
        program.set_extension("exe");
    }
    // PATH may have installers' folders; and an absolute path is the same whichever folder it is joined to.
    let mut seen = HashSet::new();
    all.retain(|program| program.is_file() && seen.insert(program.clone()));
    for program in all {
        if let Some(version) = version(&program) {
            return Ok((program, version));
        }
        let what = "does not answer --version as Fabric 1.4 does";
        tell(format!("{} {what}", program.display()));
    }
    let cause = [Cause::NoProgram, Cause::WrongProgram][usize::from(is_given)];
    Err(Error::of(cause, &[]))
}

/// What its `--version` says, if it is Fabric's.
fn version(program: &Path) -> Option<String> {
    let mut helper = held(program, &["--version"]).ok()?;
    poll(END, LOOK, || !matches!(helper.try_wait(), Ok(None)));
    // A program that still runs is ended here, and counts as failed.
    helper.wait().ok().filter(|ended| ended.success())?;
    let mut said = [0; LINE as usize];
    let length = helper.stderr.take()?.read(&mut said).ok()?;
    let said = String::from_utf8_lossy(&said[..length]);
    // Warnings may come before it.
    let is_version = |line: &&str| {
        let patch = line.trim_start_matches('v').strip_prefix("1.4.");
        patch.is_some_and(|patch| patch.parse::<u32>().is_ok())
    };
    let mut lines = said.lines().map(str::trim);
    lines.find(is_version).map(str::to_owned)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json};
    use super::super::{Catalog, Chat, Name, Observer, Unobserved};
    use super::*;

    /// One that is up, at this address.
    fn up(process: &Process, url: &str) -> Arc<Running> {
        let mut helper = Command::new("cat");
        let one = Running {
            url: url.to_owned(),
            key: String::new(),
            program: PathBuf::new(),
            version: String::new(),
            settings: settings(),
            asked: Cached::new(IDLE),
            helper: Mutex::new(helper.stdin(Stdio::piped()).spawn().unwrap()),
        };
        let up = process.up.get(IDLE, &Unobserved, || Ok(Arc::new(one)));
        up.ok().unwrap()
    }

    fn ago(time: Duration) -> Instant {
        Instant::now().checked_sub(time).unwrap()
    }

    #[test]
    fn one_is_ended_after_long_idleness_but_not_while_it_is_used() {
        let process = Arc::new(Process::new(PathBuf::new()));
        let [old, one] = [(); 2].map(|()| {
            let one = up(&process, "");
            process.retire();
            one
        });
        assert!(process.running().is_some(), "the old one is still at work");
        let kill = format!("kill -0 {}", lock(&one.helper).id());
        let weak = [&old, &one].map(Arc::downgrade);
        let is_over = |idle: Duration, which: usize| {
            *lock(&process.used) = ago(idle);
            process.look_after(&weak[which]).is_none()
        };
        let is_used = || lock(&process.used).elapsed() < MINUTE;
        assert!(!is_over(IDLE, 1) && is_used());
        *lock(&process.used) = ago(IDLE);
        let _ = process.ask(&Unobserved);
        assert!(is_used(), "asked for");
        drop(one);
        for (idle, which) in [(IDLE, 0), (IDLE - MINUTE, 1)] {
            assert!(!is_over(idle, which) && !is_used());
            assert!(process.running().is_some(), "{idle:?}");
        }
        assert!(!is_over(IDLE, 1) && is_over(IDLE, 1));
        let killed = Command::new("sh").args(["-c", &kill]).output().unwrap();
        assert!(!killed.status.success(), "it was not waited for");
    }

    #[test]
    fn nothing_is_started_just_after_a_failure_or_three_ends_within_a_minute() {
        let new = || Arc::new(Process::new("/no/fabric".into()));
        let why = |process: &Arc<Process>, ends: [u64; 3]| {
            *lock(&process.ends) = ends.map(|end| Some(ago(Duration::from_secs(end))));
            process.ask(&Unobserved).err().unwrap().cause.unwrap()
        };
        for (ends, says) in [
            ([50, 20, 0], Cause::NotStarted),
            ([61, 20, 0], Cause::WrongProgram),
            ([90, 80, 61], Cause::WrongProgram),
        ] {
            assert_eq!(why(&new(), ends), says, "{ends:?}");
        }
        // Again if a second passes in between.
        let rests = (0..9).map(|_| new()).any(|process| {
            let first = why(&process, [90, 80, 61]);
            first == why(&process, [0; 3])
        });
        assert!(rests, "it has just failed");
    }

    #[test]
    fn a_run_with_a_model_first_asks_for_all_and_is_told_that_its_fabric_has_ended() {
        let models = json(r#"{"models": ["m"], "vendors": {"v": ["m"]}}"#);
        let fixture = Fixture::new(move |_, request, stream| {
            request.line.starts_with("GET") && stream.write_all(models.as_bytes()).is_ok()
        });
        let (mut client, process) = (fixture.client(), Arc::new(Process::new(PathBuf::new())));
        up(&process, &fixture.url);
        client.process = Some(process);
        let (client, wait) = (Arc::new(client), Arc::new(Unobserved) as Observer);
        let catalog = Catalog::new(client.clone(), IDLE);
        for _ in 0..2 {
            catalog.list_models_once(&wait).unwrap();
            let chat = Chat::new(Name::parse("", "p").unwrap(), "in");
            let checked = client.check(Box::new(chat), &wait).unwrap();
            let ended = client.run(checked, &wait, &mut |_| Ok(())).unwrap_err();
            assert_eq!(ended.cause, Some(Cause::FabricEnded));
        }
        let asked = fixture.requests().into_iter().map(|seen| seen.line);
        let all = ["GET /models/names", "POST /chat", "POST /chat"];
        assert_eq!(Vec::from_iter(asked), all);
    }
}
