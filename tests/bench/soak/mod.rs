//! `cargo bench -- --soak MINUTES`: a mixed load with faults on one server over HTTP and one over stdio, with a check
//! of each answer.
//!
//! ```text
//!   4 clients over HTTP ─▶ fabric-mcp ─┐
//!   a slow reader       ─▶             ├─▶ stand-in, ended and started again every 20 s
//!   1 client on stdio   ─▶ fabric-mcp ─┘      tokens replaced every 10 s
//! ```
//! Every run has unique output. The exit code is 1 if an answer was wrong or a run was lost: one that was `working` and
//! is not found, or that the server over HTTP does not count as ended. Memory is left for people to judge.

mod calls;
mod client;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use crate::process::{self, Process, http_server, listener};
use crate::stdio::Pipe;
use calls::{Done, mixed};
use client::{Client, Http, Lines, TOKEN, metrics};

const SAMPLE: Duration = Duration::from_secs(10);
/// How long after a restart of Fabric calls may fail.
const GRACE: Duration = Duration::from_secs(3);
/// More wrong answers end the soak.
const ENOUGH: usize = 50;
/// Average pause between two calls of a client.
const PAUSE: Duration = Duration::from_millis(4);
/// Short retention: otherwise memory legitimately grows for an hour.
const FLAGS: [&str; 2] = ["--keep-runs", "30"];

/// State shared by all clients.
struct Soak {
    begun: Instant,
    over: AtomicBool,
    /// Calls that began before this may fail; in milliseconds since `begun`.
    troubled_until: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
    lost: AtomicU64,
    /// Runs started over HTTP.
    runs: AtomicU64,
    /// The first list of tools, in the legacy and in the modern era.
    tools: [OnceLock<Value>; 2],
    word: AtomicU64,
}

/// A random generator with a fixed seed: xorshift64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits of neighbouring seeds are similar at first.
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % limit
    }

    /// A random duration with this mean.
    pub(super) fn time(&mut self, mean: Duration) -> Duration {
        mean * self.below(2001) as u32 / 1000
    }
}

/// Stops all clients on drop, so also on a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Soak {
    fn new() -> Soak {
        Soak {
            begun: Instant::now(),
            over: AtomicBool::new(false),
            troubled_until: AtomicU64::new(0),
            counts: Mutex::default(),
            wrong: Mutex::default(),
            lost: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            tools: Default::default(),
            word: AtomicU64::new(1),
        }
    }

    fn milliseconds(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn count(&self, what: &str) {
        *self
            .counts
            .lock()
            .unwrap()
            .entry(what.to_owned())
            .or_default() += 1;
    }

    fn wrong(&self, what: String) {
        println!("wrong: {what:.600}");
        let mut wrong = self.wrong.lock().unwrap();
        wrong.push(what);
        if wrong.len() > ENOUGH {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs one client until the end.
    fn work(
        &self,
        seed: u64,
        client: &mut dyn Client,
        one: fn(&Soak, &mut dyn Client, &mut Random) -> Done,
    ) {
        let mut random = Random(seed);
        while !self.over.load(Ordering::Relaxed) {
            thread::sleep(random.time(PAUSE));
            let begun = self.milliseconds();
            match catch_unwind(AssertUnwindSafe(|| one(self, client, &mut random))) {
                Ok(Ok(what)) => self.count(&what),
                Ok(Err(what)) => self.wrong(format!("begun at {begun} ms: {what}")),
                Err(panic) => {
                    let said = panic.downcast_ref::<String>();
                    let said = said.map_or("a panic", String::as_str);
                    self.wrong(format!("begun at {begun} ms: {said}"));
                    if !client.reopen() {
                        self.over.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Restarts Fabric on the same port.
    fn restart(&self, fabric: &mut Process, port: &str) {
        self.troubled_until.store(u64::MAX, Ordering::Relaxed);
        let _ = fabric.0.kill();
        let _ = fabric.0.wait();
        thread::sleep(Duration::from_millis(300));
        *fabric = listener(&["--fabric", port]).0;
        self.troubled_until.store(
            self.milliseconds() + GRACE.as_millis() as u64,
            Ordering::Relaxed,
        );
        self.count("restarts");
    }

    /// Replaces one token and waits until the server has noticed.
    fn replace_token(&self, file: &str, pid: u32, address: SocketAddr, number: u32) {
        let token = |number: u32| format!("a-token-of-thirty-two-characters-b{number}");
        // Atomically: on a loaded machine, truncating and writing a file may be far apart.
        let next = format!("{file}.next");
        fs::write(
            &next,
            format!("soak run {TOKEN}\nother read {}\n", token(number)),
        )
        .unwrap();
        fs::rename(&next, file).unwrap();
        // Every other time without a signal: the server must detect the change.
        if number.is_multiple_of(2) {
            Command::new("sh")
                .args(["-c", &format!("kill -HUP {pid}")])
                .status()
                .unwrap();
        }
        let end = Instant::now() + Duration::from_secs(5);
        let is_let_in = |number| metrics(address, &token(number)).0 == 200;
        while !is_let_in(number) || is_let_in(number - 1) {
            if Instant::now() > end {
                return self.wrong(format!(
                    "token {number} is not known, or the one before it still is"
                ));
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.count("token changes");
    }

    /// Runs that the server over HTTP counts as ended, minus those started.
    fn missing(&self, address: SocketAddr) -> i64 {
        let text = metrics(address, TOKEN).1;
        let calls = text
            .lines()
            .filter(|line| line.starts_with("fabric_mcp_calls_total{tool=\"fabric_run_pattern\""));
        let ended = calls.filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok());
        let ended: i64 = ended.sum();
        self.runs.load(Ordering::Relaxed) as i64 - ended
    }

    fn told(&self) -> String {
        let counts = self.counts.lock().unwrap();
        counts
            .iter()
            .map(|(what, count)| format!(" · {what} {count}"))
            .collect()
    }
}

/// Growth of `y` per hour, by least squares; x in seconds.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let part = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>();
    part / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>() * 3600.0
}

/// Runs the soak and returns the exit code.
pub(crate) fn run(minutes: f64) -> i32 {
    let length = Duration::from_secs_f64(minutes * 60.0);
    let (mut fabric, at) = listener(&["--fabric", "0"]);
    let (url, port) = (format!("http://{at}"), at.port().to_string());
    let tokens = format!(
        "{}/soak-{}.tokens",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    fs::write(&tokens, format!("soak run {TOKEN}\n")).unwrap();
    let (server, address) =
        http_server(&url, &[&FLAGS[..], &["--tokens-file", &tokens]].concat()).expect("a server");
    let mut lines = Lines::open(Pipe::server_with(&url, &FLAGS));
    let pids = [server.0.id(), lines.pipe.process.0.id()];
    let (soak, mut samples) = (Soak::new(), Vec::new());
    thread::scope(|scope| {
        let soak = &soak;
        let _over = Over(&soak.over);
        for seed in 1..=4 {
            scope.spawn(move || soak.work(seed, &mut Http::open(address, false), mixed));
        }
        scope.spawn(move || {
            soak.work(5, &mut Http::open(address, true), |soak, client, _| {
                soak.large(client)
            })
        });
        scope.spawn(|| soak.work(6, &mut lines, mixed));
        for number in 1.. {
            thread::sleep((SAMPLE * number).saturating_sub(soak.begun.elapsed()));
            let (seconds, usage) = (soak.begun.elapsed().as_secs_f64(), pids.map(process::usage));
            samples.push((seconds, usage));
            let [[mb, threads, files], [mb2, threads2, files2]] = usage;
            println!(
                "{seconds:6.0} s  http {mb:.1} MB {threads} threads {files} files · stdio \
                 {mb2:.1} MB {threads2} threads {files2} files{} · wrong {}",
                soak.told(),
                soak.wrong.lock().unwrap().len()
            );
            if soak.begun.elapsed() >= length || soak.over.load(Ordering::Relaxed) {
                break;
            }
            soak.replace_token(&tokens, pids[0], address, number);
            if number.is_multiple_of(2) {
                soak.restart(&mut fabric, &port);
            }
        }
    });
    let _ = fs::remove_file(&tokens);
    // Abandoned runs may take a moment to end.
    let end = Instant::now() + Duration::from_secs(10);
    while soak.missing(address) != 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    let half = &samples[samples.len() / 2..];
    for (server, name) in ["http", "stdio"].iter().enumerate() {
        for (what, unit) in ["MB", "threads", "files"].iter().enumerate() {
            let points: Vec<_> = half
                .iter()
                .map(|(seconds, usage)| (*seconds, usage[server][what]))
                .collect();
            println!(
                "{name}: {:+.2} {unit} an hour, over the second half",
                slope(&points)
            );
        }
    }
    let wrong = soak.wrong.lock().unwrap().len();
    let lost = soak.lost.load(Ordering::Relaxed);
    let missing = soak.missing(address);
    println!(
        "{} runs over http, {missing} without an end; {wrong} wrong answers, {lost} lost runs",
        soak.runs.load(Ordering::Relaxed)
    );
    i32::from(wrong > 0 || lost > 0 || missing != 0)
}
