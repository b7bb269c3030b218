//! Over Streamable HTTP: requests per second, relaying, memory. The baseline is this program, answering each
//! request with the same number of bytes.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Bench;
use crate::clock::now_ns;
use crate::process::{self, Process, http_server, listener};
use crate::report::{Row, Samples};
use crate::stdio;
use crate::wire::{self, Connection};

pub(crate) const ENVELOPE: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
const FLAGS: [&str; 4] = ["--max-connections", "4096", "--max-runs", "512"];

/// A server for one section.
fn serve(bench: &Bench) -> (Process, SocketAddr) {
    http_server(&bench.fabric, &FLAGS).unwrap()
}

/// A run as a JSON-RPC request, with `meta` before the token in its `_meta`.
pub(crate) fn run_message(pattern: &str, stream: bool, meta: &str) -> String {
    let token = match (stream, meta.is_empty()) {
        (true, true) => r#""progressToken":"p""#,
        (true, false) => r#","progressToken":"p""#,
        (false, _) => "",
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fabric_run_pattern","arguments":{{"pattern_name":"{pattern}","input_text":"x","stream":{stream}}},"_meta":{{{meta}{token}}}}}}}"#
    )
}

/// Whether this is the answer of a call, not a notification. Panics on an error.
pub(crate) fn is_answer(line: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&line[..line.len().min(64)]);
    assert!(
        !head.contains("\"error\""),
        "an error came back: {}",
        String::from_utf8_lossy(line)
    );
    head.contains("\"result\"")
}

/// Adds the age of each `t=<ns>` in `line`, relative to `now`.
pub(crate) fn stamps(line: &[u8], now: u64, samples: &mut Samples) {
    for (at, pair) in line.windows(2).enumerate() {
        if pair == b"t=" {
            let digits = line[at + 2..].iter().take_while(|b| b.is_ascii_digit());
            let sent = digits.fold(0u64, |n, digit| {
                n.wrapping_mul(10) + u64::from(digit - b'0')
            });
            samples.micros.push(now.saturating_sub(sent) as f64 / 1e3);
        }
    }
}

/// The stream of a pattern, read directly from Fabric.
pub(crate) fn direct(fabric: SocketAddr, pattern: &str) -> Samples {
    let mut samples = Samples::default();
    let mut connection = Connection::open(fabric);
    let begun = Instant::now();
    let body = format!(r#"{{"prompts":[{{"patternName":"{pattern}","userInput":""}}]}}"#);
    connection.send(&wire::post("/chat", "", &body));
    stdio::read_events(&mut connection, &mut samples);
    samples.seconds = begun.elapsed().as_secs_f64();
    samples
}

/// Sends `request` over `connections` kept-alive connections, about `count` times in total. Each of up to two
/// threads sends on all of its connections, then reads all answers: each connection always has one request in flight.
pub(crate) fn exchange(
    address: SocketAddr,
    request: &[u8],
    connections: usize,
    count: usize,
) -> Samples {
    let threads = connections.min(2);
    let mine = connections / threads;
    let rounds = (count / connections).max(1);
    let start = Barrier::new(threads + 1);
    let mut all = Samples::default();
    thread::scope(|scope| {
        let work = || {
            let mut open: Vec<_> = (0..mine).map(|_| (Connection::open(address), 0)).collect();
            let mut micros = Vec::with_capacity(rounds * mine);
            start.wait();
            for _ in 0..rounds {
                for (connection, sent) in &mut open {
                    *sent = now_ns();
                    connection.send(request);
                }
                for (connection, sent) in &mut open {
                    let (status, _) = connection.skip_answer();
                    assert_eq!(status, 200, "a request was refused");
                    micros.push((now_ns() - *sent) as f64 / 1e3);
                }
            }
            micros
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        start.wait();
        let begun = Instant::now();
        for handle in handles {
            all.micros.extend(handle.join().unwrap());
        }
        all.seconds = begun.elapsed().as_secs_f64();
    });
    all
}

/// A modern request.
fn modern(method: &str, name: &str, body: &str) -> Vec<u8> {
    let named = if name.is_empty() {
        String::new()
    } else {
        format!("Mcp-Name: {name}\r\n")
    };
    wire::post(
        "/mcp",
        &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{named}"),
        body,
    )
}

fn modern_run(pattern: &str) -> Vec<u8> {
    modern(
        "tools/call",
        "fabric_run_pattern",
        &run_message(pattern, true, ENVELOPE),
    )
}

fn tools_list() -> Vec<u8> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{ENVELOPE}}}}}}}"#
    );
    modern("tools/list", "", &body)
}

/// `tools/list` over kept-alive connections.
pub(crate) fn requests(bench: &Bench) -> Vec<Row> {
    let (server, address) = serve(bench);
    let request = tools_list();
    let mut first = Connection::open(address);
    first.send(&request);
    let (status, length) = first.skip_answer();
    assert_eq!(status, 200, "tools/list was refused");
    let (_echo, floor) = listener(&["--echo-http", &length.to_string()]);
    let mut rows = Vec::new();
    for connections in [1, 8, 64, 256] {
        let count = if connections == 1 { 10_000 } else { 40_000 };
        let floor = exchange(floor, &request, connections, count);
        let ours = exchange(address, &request, connections, count);
        rows.push(
            Row::new(format!("http tools/list, {connections} connections"))
                .latency(&ours)
                .rate(ours.per_second())
                .times_floor(
                    ours.seconds / ours.micros.len() as f64,
                    floor.seconds / floor.micros.len() as f64,
                )
                .megabytes(server.memory("VmRSS")),
        );
    }
    rows
}

/// Blocks that a request allocates on a connection that has served others, in the server and in what it uses to ask
/// Fabric.
pub(crate) fn allocations(bench: &Bench) -> Vec<Row> {
    let name = "fabric_list_patterns";
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{}},"_meta":{{{ENVELOPE}}}}}}}"#
    );
    let requests = [
        ("tools/list", tools_list()),
        (name, modern("tools/call", name, &call)),
    ];
    let row = |(name, request): (&str, Vec<u8>)| {
        let total = |count| {
            process::allocations(&bench.fabric, |address| {
                let mut connection = Connection::open(address);
                for _ in 0..count {
                    connection.send(&request);
                    assert_eq!(connection.skip_answer().0, 200, "a request was refused");
                }
            })
        };
        let each = total(20).zip(total(220));
        let each = each.map(|(few, many)| (many - few) / 200.0);
        let note = each.map_or("skipped: it needs valgrind".to_owned(), |each| {
            format!("{each:.1} allocations")
        });
        Row::new(format!("http {name}, each")).note(note)
    };
    requests.into_iter().map(row).collect()
}

/// Runs a pattern over `connection` and adds the delays of its chunks to `samples`.
fn run(connection: &mut Connection, pattern: &str, samples: &mut Samples) {
    connection.send(&modern_run(pattern));
    let (status, body) = connection.answer();
    assert_eq!(status, 200, "the run was refused");
    wire::lines(body, |line, now| {
        let ended = line.strip_prefix(b"data: ").is_some_and(is_answer);
        if !ended {
            stamps(line, now, samples);
        }
        ended
    });
}

/// The added delay of a chunk, and the time of a flood.
pub(crate) fn relay(bench: &Bench) -> Vec<Row> {
    let (server, address) = serve(bench);
    let mut connection = Connection::open(address);
    let direct = direct(bench.fabric_address, "tick_500_2000");
    let mut samples = Samples::default();
    run(&mut connection, "tick_500_2000", &mut samples);
    assert_eq!(samples.micros.len(), 500, "chunks were lost");
    let (_, flood) = stdio::flood(bench, |pattern, samples| {
        run(&mut connection, pattern, samples)
    });
    vec![
        Row::new("direct: 500 chunks 2 ms apart")
            .latency(&direct)
            .note("the floor of the next line"),
        Row::new("http relay: 500 chunks 2 ms apart")
            .latency(&samples)
            .times_floor(samples.p50(), direct.p50()),
        flood.note(format!(
            "over http; most memory {:.1} MB",
            server.memory("VmHWM")
        )),
    ]
}

/// Spawns `count` threads with small stacks and returns their samples; `meanwhile` runs while they do.
fn at_once(count: usize, work: impl Fn() -> Samples + Sync, meanwhile: impl FnOnce()) -> Samples {
    let mut all = Samples::default();
    thread::scope(|scope| {
        let spawn = |_| {
            let thread = thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, &work).unwrap()
        };
        let threads: Vec<_> = (0..count).map(spawn).collect();
        meanwhile();
        for thread in threads {
            all.micros.extend(thread.join().unwrap().micros);
        }
    });
    all
}

/// Concurrent streams of chunks 20 ms apart: the delay of each chunk, and the server's memory half-way.
fn relayed(server: &Process, address: SocketAddr, count: usize, chunks: usize) -> (Samples, f64) {
    let mut memory = 0.0;
    let work = || {
        let mut samples = Samples::default();
        let pattern = format!("tick_{chunks}_20000");
        run(&mut Connection::open(address), &pattern, &mut samples);
        samples
    };
    let all = at_once(count, work, || {
        thread::sleep(Duration::from_millis(chunks as u64 * 10));
        memory = server.memory("VmRSS");
    });
    assert_eq!(all.micros.len(), count * chunks, "chunks were lost");
    (all, memory)
}

/// The delay of chunks with 1, 100 and 500 streams, compared with as many streams read directly from Fabric.
pub(crate) fn streams(bench: &Bench) -> Vec<Row> {
    let (server, address) = serve(bench);
    let mut rows = Vec::new();
    for count in [1, 100, 500] {
        let work = || direct(bench.fabric_address, "tick_100_20000");
        let floor = at_once(count, work, || {});
        let (ours, memory) = relayed(&server, address, count, 100);
        rows.push(Row::new(format!("direct: {count} streams")).latency(&floor));
        let row = Row::new(format!("http relay: {count} streams")).latency(&ours);
        let [ours, floor] = [ours, floor].map(|samples| samples.percentile(0.99));
        rows.push(
            row.megabytes(memory)
                .times_floor(ours, floor)
                .note("floor: p99"),
        );
    }
    rows
}

/// Memory idle, with 64 runs, with 500 connections and with 2,000 sessions, each in a new process.
pub(crate) fn memory(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    let fresh = || {
        let (server, address) = serve(bench);
        // One of everything first, so that one-time costs are not counted.
        let mut connection = Connection::open(address);
        connection.send(&tools_list());
        connection.skip_answer();
        run(&mut connection, "tick_1_0", &mut Samples::default());
        let idle = server.memory("VmRSS");
        (server, address, connection, idle)
    };
    let each = |name: &str, memory: f64, idle: f64, count: usize, what: &str| {
        let kb = (memory - idle) * 1024.0 / count as f64;
        Row::new(format!("memory: http, {name}"))
            .megabytes(memory)
            .note(format!("{kb:.1} KB {what}"))
    };
    let (server, address, _connection, idle) = fresh();
    rows.push(
        Row::new("memory: http, idle")
            .megabytes(idle)
            .note("after a first request and run"),
    );
    let (_, memory) = relayed(&server, address, 64, 50);
    rows.push(each("64 runs", memory, idle, 64, "a run"));
    let (server, address, _connection, idle) = fresh();
    let open = || {
        let mut connection = Connection::open(address);
        connection.send(&tools_list());
        connection.skip_answer();
        connection
    };
    let open: Vec<Connection> = (0..500).map(|_| open()).collect();
    let memory = server.memory("VmRSS");
    let row = each(
        "500 idle connections",
        memory,
        idle,
        open.len(),
        "a connection",
    );
    rows.push(row);
    let (server, _, mut connection, idle) = fresh();
    for _ in 0..2000 {
        connection.send(&wire::post("/mcp", "", stdio::INITIALIZE));
        connection.skip_answer();
        assert!(connection.session.take().is_some(), "no session was opened");
    }
    let memory = server.memory("VmRSS");
    rows.push(each("2,000 idle sessions", memory, idle, 2000, "a session"));
    rows
}
