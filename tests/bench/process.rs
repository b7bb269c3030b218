//! The processes of a run: the server under test, and this program as Fabric and as baseline.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A child process, killed on drop.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Memory in MB: `VmRSS` is current, `VmHWM` the high-water mark. 0 without `/proc`.
    pub(crate) fn memory(&self, field: &str) -> f64 {
        memory(self.0.id(), field)
    }
}

fn memory(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1024.0
}

/// Current usage of a process: MB, threads, open files.
pub(crate) fn usage(pid: u32) -> [f64; 3] {
    let count =
        |what| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count) as f64;
    [memory(pid, "VmRSS"), count("task"), count("fd")]
}

/// The binary under test: this crate's, unless `FABRIC_MCP_BINARY` names another.
pub(crate) fn binary() -> String {
    std::env::var("FABRIC_MCP_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_fabric-mcp").into())
}

/// The server under test in front of `fabric`, without the variables that it reads.
pub(crate) fn server(fabric: &str) -> Command {
    in_front_of(fabric, Command::new(binary()))
}

fn in_front_of(fabric: &str, mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|n| n.starts_with("FABRIC_") || n.starts_with("MCP_"))
        {
            command.env_remove(name);
        }
    }
    command.env("FABRIC_BASE_URL", fabric).stderr(Stdio::null());
    command
}

/// How many blocks the server on HTTP allocates, `work` included, as valgrind counts them. `None` without valgrind.
pub(crate) fn allocations(fabric: &str, work: impl FnOnce(SocketAddr)) -> Option<f64> {
    let report = format!(
        "{}/bench-{}.valgrind",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let mut valgrind = Command::new("valgrind");
    valgrind.arg(format!("--log-file={report}")).arg(binary());
    let (mut server, address) =
        listening_server(in_front_of(fabric, valgrind), fabric, &[]).ok()?;
    work(address);
    let pid = server.0.id().to_string();
    // Its orderly end: only then does valgrind report.
    Command::new("kill").arg(pid).status().ok()?;
    server.0.wait().ok()?;
    let said = fs::read_to_string(&report).ok()?;
    let _ = fs::remove_file(&report);
    let count = said.split("total heap usage: ").nth(1)?;
    count.split(' ').next()?.replace(',', "").parse().ok()
}

/// The server under test on HTTP, and its address. The error is its log, if it exits instead.
pub(crate) fn http_server(fabric: &str, flags: &[&str]) -> Result<(Process, SocketAddr), String> {
    listening_server(server(fabric), fabric, flags)
}

fn listening_server(
    mut command: Command,
    fabric: &str,
    flags: &[&str],
) -> Result<(Process, SocketAddr), String> {
    // A file and not a pipe: reading its log takes CPU time from the measurement.
    let log = format!(
        "{}/bench-{}.log",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    command
        .args(["--transport", "http", "--port", "0"])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let child = command
        .stderr(File::create(&log).map_err(|e| e.to_string())?)
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut process = Process(child);
    for _ in 0..1000 {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if let Some(address) = listening(&said, fabric) {
            let _ = fs::remove_file(&log);
            return Ok((process, address));
        }
        if process.0.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err(said
                .lines()
                .last()
                .unwrap_or("it ended without a word")
                .to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err("it does not say where it listens".into())
}

/// The first address in a log that is not Fabric's.
fn listening(log: &str, fabric: &str) -> Option<SocketAddr> {
    log.match_indices("127.0.0.1:").find_map(|(at, host)| {
        let end = log[at + host.len()..].find(|c: char| !c.is_ascii_digit())? + at + host.len();
        let address = &log[at..end];
        (!fabric.contains(address))
            .then(|| address.parse().ok())
            .flatten()
    })
}

/// This program in another role.
pub(crate) fn role(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

/// This program in a role that listens; it prints its address in its first line.
pub(crate) fn listener(arguments: &[&str]) -> (Process, SocketAddr) {
    let mut child = role(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (Process(child), line.trim().parse().unwrap())
}
