//! Tail latency: the slowest answers and chunks under load.
//!
//! One thread per connection, asleep between its requests: a thread with many connections is itself a queue, which
//! distorts the measurement. The threads share the cores with the server and Fabric, so the first row is the baseline:
//! the same load on a bare echo.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::Bench;
use crate::clock::now_ns;
use crate::fabric::pattern_name;
use crate::http::{self, modern};
use crate::process::listener;
use crate::report::{Row, Samples};
use crate::wire::Connection;

const CONNECTIONS: u64 = 256;
/// Average pause between two requests of a connection: 1,280 per second in total, half the capacity of two cores.
const PAUSE: Duration = Duration::from_millis(200);
/// The stream of a run in the mix.
const RUN: &str = "tick_10_5000";
/// The output for a slow reader.
const SLOW: &str = "size_4194304";

/// A random generator with a fixed seed: xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits of neighbouring seeds are similar at first.
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % limit
    }

    /// A random duration with this mean.
    pub(crate) fn time(&mut self, mean: Duration) -> Duration {
        mean * self.below(2001) as u32 / 1000
    }
}

/// Reads about 800 KB per second, in small pieces.
pub(crate) struct Slow<R>(pub(crate) R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        thread::sleep(Duration::from_millis(5));
        let most = buffer.len().min(4 << 10);
        self.0.read(&mut buffer[..most])
    }
}

/// Spawns a thread with a small stack, because there are hundreds.
fn spawn<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    thread::Builder::new()
        .stack_size(256 << 10)
        .spawn_scoped(scope, work)
        .unwrap()
}

fn call(tool: &str, arguments: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{{}}}}}}}"#,
        http::ENVELOPE
    );
    modern("tools/call", tool, &body)
}

fn details(number: usize) -> Vec<u8> {
    call(
        "fabric_get_pattern_details",
        &format!(r#"{{"pattern_name":"{}"}}"#, pattern_name(number)),
    )
}

/// Samples of lists, details and chunks.
type Times = [Samples; 3];

/// One connection of the mix, until `end`. `lists_only`: requests only lists.
fn client(
    address: SocketAddr,
    seed: u64,
    pause: Duration,
    end: Instant,
    lists_only: bool,
) -> Times {
    let (mut random, mut times) = (Random(seed), Times::default());
    let mut connection = Connection::open(address);
    let list = http::tools_list();
    let details: Vec<_> = (0..20).map(details).collect();
    loop {
        thread::sleep(random.time(pause));
        if Instant::now() >= end {
            return times;
        }
        let kind = match random.below(10) {
            0..7 => 0,
            _ if lists_only => 0,
            7..9 => 1,
            _ => 2,
        };
        if kind == 2 {
            http::run(&mut connection, RUN, &mut times[2]);
            continue;
        }
        let request = if kind == 0 {
            &list
        } else {
            &details[random.below(20) as usize]
        };
        let sent = now_ns();
        connection.send(request);
        assert_eq!(connection.skip_answer().0, 200, "a request was refused");
        times[kind].micros.push((now_ns() - sent) as f64 / 1e3);
    }
}

/// Requests lists continuously, 64 at a time.
fn flood(address: SocketAddr, over: &AtomicBool) {
    let mut connection = Connection::open(address);
    let requests = http::tools_list().repeat(64);
    while !over.load(Ordering::Relaxed) {
        connection.send(&requests);
        for _ in 0..64 {
            connection.skip_answer();
        }
    }
}

/// Requests large outputs and reads them slowly.
fn slow_reader(address: SocketAddr, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let mut connection = Connection::open(address);
        connection.send(&http::modern_run(SLOW));
        let mut body = Slow(connection.answer().1);
        let mut buffer = [0; 4 << 10];
        while !over.load(Ordering::Relaxed) && body.read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}

/// All connections for `seconds`; `noise` adds the two slow readers and the flood.
fn load(
    address: SocketAddr,
    seconds: u64,
    pause: Duration,
    noise: bool,
    lists_only: bool,
) -> Times {
    let over = AtomicBool::new(false);
    let mut all = Times::default();
    thread::scope(|scope| {
        let end = Instant::now() + Duration::from_secs(seconds);
        if noise {
            (0..2).for_each(|_| drop(spawn(scope, || slow_reader(address, &over))));
            drop(spawn(scope, || flood(address, &over)));
        }
        let clients: Vec<_> = (1..=CONNECTIONS)
            .map(|seed| spawn(scope, move || client(address, seed, pause, end, lists_only)))
            .collect();
        for client in clients {
            for (all, times) in all.iter_mut().zip(client.join().unwrap()) {
                all.micros.extend(times.micros);
                all.seconds = seconds as f64;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    all
}

/// Lists, details and chunks over 256 connections.
pub(crate) fn mix(bench: &Bench) -> Vec<Row> {
    let (_server, address) = match http::serve(bench) {
        Ok(server) => server,
        Err(skipped) => return skipped,
    };
    let mut first = Connection::open(address);
    first.send(&http::tools_list());
    let length = first.skip_answer().1.to_string();
    // Callers do this before they request details: it builds the index, which details use.
    first.send(&call(
        "fabric_list_patterns",
        r#"{"query":"the risks in a report"}"#,
    ));
    first.skip_answer();
    let (_echo, echo) = listener(&["--echo-http", &length]);
    let [floor, ..] = load(echo, 4, PAUSE, false, true);
    let row = |name: String, times: &Samples| Row::new(name).rate(times.per_second()).tails(times);
    let mut rows = vec![row(
        "tails: bare echo, 256 paced connections".to_owned(),
        &floor,
    )];
    let kinds = ["tools/list", "details", "chunks of runs"];
    let loads = [
        ("paced, no noise", 8, PAUSE, false),
        ("paced", 8, PAUSE, true),
        ("no pause", 8, Duration::ZERO, true),
    ];
    for (name, seconds, pause, noise) in loads {
        let times = load(address, seconds, pause, noise, false);
        for (kind, times) in kinds.iter().zip(&times) {
            rows.push(row(format!("tails: {kind}, {name}"), times));
        }
    }
    rows
}

/// The delay of chunks with 1, 100 and 500 streams, compared with as many streams read directly from Fabric.
pub(crate) fn relay(bench: &Bench) -> Vec<Row> {
    let (server, address) = match http::serve(bench) {
        Ok(server) => server,
        Err(skipped) => return skipped,
    };
    let mut rows = Vec::new();
    for count in [1, 100, 500] {
        let mut floor = Samples::default();
        thread::scope(|scope| {
            let direct = || http::direct(bench.fabric_address, "tick_100_20000");
            let readers: Vec<_> = (0..count).map(|_| spawn(scope, direct)).collect();
            readers
                .into_iter()
                .for_each(|reader| floor.micros.extend(reader.join().unwrap().micros));
        });
        let (_, ours, _) = http::streams(&server, address, count, 100);
        rows.push(Row::new(format!("relay tails: direct, {count} streams")).tails(&floor));
        let row = Row::new(format!("relay tails: {count} streams")).tails(&ours);
        rows.push(row.times_floor(ours.percentile(0.99), floor.percentile(0.99)));
    }
    rows
}
