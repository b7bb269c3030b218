//! Over stdin and stdout: start-up, requests, lists, relaying. The baseline is this program, echoing lines of the same
//! length.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::process::{Process, binary, role, server};
use crate::report::{Row, Samples};
use crate::wire::{self, Connection};
use crate::{Bench, clock::now_ns, http};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const LIST_PATTERNS: &str =
    r#""method":"tools/call","params":{"name":"fabric_list_patterns","arguments":{}}"#;
const SEARCH: &str = r#""method":"tools/call","params":{"name":"fabric_list_patterns","arguments":{"query":"what are the risks in the report of our meeting"}}"#;

/// A child process with one message per line.
pub(crate) struct Pipe {
    pub(crate) process: Process,
    tx: ChildStdin,
    rx: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Pipe {
    pub(crate) fn open(mut command: Command) -> Pipe {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (tx, rx) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Pipe {
            process: Process(child),
            tx,
            rx: BufReader::with_capacity(64 << 10, rx),
            line: Vec::new(),
        }
    }

    /// The server in front of `fabric`, after the handshake.
    pub(crate) fn server(fabric: &str) -> Pipe {
        Pipe::server_with(fabric, &[])
    }

    /// The same with flags.
    pub(crate) fn server_with(fabric: &str, flags: &[&str]) -> Pipe {
        let mut command = server(fabric);
        command.args(flags);
        let mut pipe = Pipe::open(command);
        pipe.ask(INITIALIZE);
        pipe
    }

    fn echo(bytes: usize) -> Pipe {
        Pipe::open(role(&["--echo", &bytes.to_string()]))
    }

    pub(crate) fn send(&mut self, lines: &str) {
        self.tx.write_all(lines.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> &[u8] {
        self.line.clear();
        let is_so = self.rx.read_until(b'\n', &mut self.line).unwrap() > 0;
        assert!(is_so, "the server closed its output");
        &self.line
    }

    /// Sends one line and returns the answer's length.
    pub(crate) fn ask(&mut self, message: &str) -> usize {
        self.send(&format!("{message}\n"));
        self.line().len()
    }

    /// Sends `count` requests, `window` at a time. `what` is the message from its method on.
    fn exchange(&mut self, what: &str, count: usize, window: usize) -> Samples {
        let mut samples = Samples::default();
        let mut sent = VecDeque::new();
        let (mut next, begun) = (0, Instant::now());
        while samples.micros.len() < count {
            // Half a window at once: the server is measured, not our own writing.
            if sent.len() <= window / 2 && next < count {
                let until = count.min(next + window - sent.len());
                let lines: String = (next..until)
                    .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{what}}}\n"))
                    .collect();
                sent.resize(sent.len() + until - next, now_ns());
                next = until;
                self.send(&lines);
            }
            let line = self.line();
            assert!(
                !failed(line),
                "an error came back: {}",
                String::from_utf8_lossy(line)
            );
            // Answers may overtake each other; on average, the oldest request is close enough.
            let Some(at) = sent.pop_front() else { continue };
            samples.micros.push((now_ns() - at) as f64 / 1e3);
        }
        samples.seconds = begun.elapsed().as_secs_f64();
        samples
    }
}

/// Whether this is a JSON-RPC or tool error. Looks only at the head, and before a result's `_meta`.
fn failed(line: &[u8]) -> bool {
    let has = |part: &[u8], what: &[u8]| part.windows(what.len()).any(|window| window == what);
    has(&line[..line.len().min(64)], b"\"error\":")
        || has(
            &line[line.len().saturating_sub(1024)..],
            b"\"isError\":true",
        )
}

/// The baseline: answers each line with `bytes` bytes, without parsing.
pub(crate) fn serve_echo(bytes: usize) {
    let mut input = BufReader::with_capacity(64 << 10, io::stdin());
    let mut output = io::BufWriter::with_capacity(64 << 10, io::stdout());
    let mut reply = vec![b' '; bytes - 1];
    reply.push(b'\n');
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).unwrap() > 0 {
        output.write_all(&reply).unwrap();
        if !input.buffer().contains(&b'\n') {
            output.flush().unwrap();
        }
        line.clear();
    }
}

/// From `spawn` to the answer of `initialize`.
pub(crate) fn start(bench: &Bench) -> Vec<Row> {
    let measure = |command: &dyn Fn() -> Command| {
        let mut samples = Samples::default();
        for _ in 0..60 {
            let begun = Instant::now();
            let mut pipe = Pipe::open(command());
            pipe.ask(INITIALIZE);
            samples.micros.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        samples
    };
    let floor = measure(&|| role(&["--echo", "300"]));
    let ours = measure(&|| server(&bench.fabric));
    vec![
        Row::new("start to answered initialize")
            .latency(&ours)
            .times_floor(ours.p50(), floor.p50()),
    ]
}

/// Round trips and throughput of a request that needs no Fabric.
pub(crate) fn round_trips(bench: &Bench) -> Vec<Row> {
    let what = r#""method":"tools/list","params":{}"#;
    let mut pipe = Pipe::server(&bench.fabric);
    let length = pipe.ask(&format!(r#"{{"jsonrpc":"2.0","id":1,{what}}}"#));
    let mut echo = Pipe::echo(length);
    let row = |(shown, count, window)| {
        let floor = echo.exchange(what, count, window);
        let ours = pipe.exchange(what, count, window);
        Row::new(format!("stdio tools/list, {shown}"))
            .latency(&ours)
            .rate(ours.per_second())
            .times_floor(ours.seconds, floor.seconds)
    };
    [("one at a time", 10_000, 1), ("64 at once", 60_000, 64)]
        .map(row)
        .into()
}

/// `fabric_list_patterns` of 250 names, compared with the same list read directly from Fabric.
pub(crate) fn list_patterns(bench: &Bench) -> Vec<Row> {
    let mut pipe = Pipe::server(&bench.fabric);
    let mut rows = Vec::new();
    for (shown, count, window) in [("one at a time", 4000, 1), ("32 at once", 12_000, 32)] {
        let request = b"GET /patterns/names HTTP/1.1\r\nHost: fabric\r\n\r\n";
        let floor = http::exchange(bench.fabric_address, request, window, count);
        let ours = pipe.exchange(LIST_PATTERNS, count, window);
        rows.push(
            Row::new(format!("stdio fabric_list_patterns, {shown}"))
                .latency(&ours)
                .rate(ours.per_second())
                .times_floor(ours.seconds, floor.seconds)
                .note("floor: GET /patterns/names"),
        );
    }
    rows
}

/// `fabric_list_patterns` with a query: the first one, which reads all patterns and builds the index, and later ones,
/// compared with a `ping`; and the list.
pub(crate) fn search(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for count in [250, 10_000] {
        let mut pipe = Pipe::server(&format!("{}/names-{count}", bench.fabric));
        let first = pipe.exchange(SEARCH, 1, 1);
        let floor = pipe.exchange(r#""method":"ping""#, 2000, 1);
        let ours = pipe.exchange(SEARCH, 2000, 1);
        rows.push(Row::new(format!("stdio first search of {count} patterns")).latency(&first));
        let list = pipe.exchange(LIST_PATTERNS, 200, 1);
        rows.push(Row::new(format!("stdio list of {count} patterns")).latency(&list));
        rows.push(
            Row::new(format!("stdio search of {count} patterns"))
                .latency(&ours)
                .times_floor(ours.p50(), floor.p50())
                .note("floor: ping"),
        );
    }
    rows
}

/// One call with any number of notifications, whose bytes go to `each`. Returns the answer's length.
pub(crate) fn run(
    pipe: &mut Pipe,
    pattern: &str,
    stream: bool,
    mut each: impl FnMut(&[u8]),
) -> usize {
    pipe.send(&format!("{}\n", http::run_message(pattern, stream, "")));
    loop {
        let line = pipe.line();
        if http::is_answer(line) {
            return line.len();
        }
        each(line);
    }
}

/// The added delay of a chunk, and the time of a flood.
pub(crate) fn relay(bench: &Bench) -> Vec<Row> {
    let mut pipe = Pipe::server(&bench.fabric);
    let mut samples = Samples::default();
    let direct = http::direct(bench.fabric_address, "tick_500_2000");
    run(&mut pipe, "tick_500_2000", true, |line| {
        http::stamps(line, now_ns(), &mut samples)
    });
    assert_eq!(samples.micros.len(), 500, "chunks were lost");
    let (flood, floods) = flood(bench, |pattern, samples| {
        run(&mut pipe, pattern, true, |line| {
            http::stamps(line, now_ns(), samples)
        });
    });
    vec![
        Row::new("direct: 500 chunks 2 ms apart")
            .latency(&direct)
            .note("the floor of the next line"),
        Row::new("stdio relay: 500 chunks 2 ms apart")
            .latency(&samples)
            .times_floor(samples.p50(), direct.p50()),
        flood,
        floods.note(format!(
            "most memory {:.1} MB",
            pipe.process.memory("VmHWM")
        )),
    ]
}

/// A flood read directly and through the server, three times alternately; both rows.
pub(crate) fn flood(bench: &Bench, mut relayed: impl FnMut(&str, &mut Samples)) -> (Row, Row) {
    const CHUNKS: usize = 100_000;
    let pattern = format!("flood_{CHUNKS}");
    let (mut direct, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        direct.push(http::direct(bench.fabric_address, &pattern).seconds);
        let (mut samples, begun) = (Samples::default(), Instant::now());
        relayed(&pattern, &mut samples);
        ours.push(begun.elapsed().as_secs_f64());
        assert_eq!(samples.micros.len(), CHUNKS, "chunks were lost");
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[1]
    };
    let (direct, ours) = (median(&mut direct), median(&mut ours));
    let row = |name: &str, seconds: f64| {
        Row::new(format!("{name}: flood of 100,000 chunks"))
            .micros(seconds * 1e6)
            .rate(CHUNKS as f64 / seconds)
    };
    (
        row("direct", direct),
        row("relay", ours).times_floor(ours, direct),
    )
}

/// Memory of an idle process, and the size of the binary.
pub(crate) fn size(bench: &Bench) -> Vec<Row> {
    let pipe = Pipe::server(&bench.fabric);
    let bytes = std::fs::metadata(binary()).map_or(0, |file| file.len());
    vec![
        Row::new("size of the binary").megabytes(bytes as f64 / 1e6),
        Row::new("memory: stdio, idle").megabytes(pipe.process.memory("VmRSS")),
    ]
}

/// Reads the direct stream, as a client of Fabric sees it.
pub(crate) fn read_events(connection: &mut Connection, samples: &mut Samples) {
    let (_, body) = connection.answer();
    wire::lines(body, |line, now| {
        http::stamps(line, now, samples);
        line.starts_with(b"data: {\"type\":\"complete\"")
    });
}
