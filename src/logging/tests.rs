use super::*;
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;

fn line(message: &str) -> LogLine {
    LogLine {
        at: Stamp::now(),
        level: Level::Info,
        target: "fabric_mcp".to_owned(),
        message: message.to_owned(),
        caller: None,
    }
}

fn of(message: fmt::Arguments<'_>) -> String {
    LogLine::new(&Record::builder().args(message).build()).message
}

/// A queue of its own whose writer asks `permit` before each line and tells what it wrote.
fn served() -> (&'static Queue, mpsc::Sender<()>, mpsc::Receiver<String>) {
    let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
    let (permit, permits) = mpsc::channel();
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        write_lines(queue, |line| {
            // Fails once the test is over.
            let _ = permits.recv().map(|()| sender.send(line.message.clone()));
        })
    });
    (queue, permit, written)
}

#[test]
fn lines_come_out_in_order() {
    let (queue, permit, written) = served();
    for n in 0..10 {
        queue.push(line(&n.to_string()));
        permit.send(()).unwrap();
    }
    let all: Vec<_> = (0..10).map(|_| written.recv().unwrap()).collect();
    assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert!(queue.flush(Duration::from_secs(60)));
}

#[test]
fn a_full_queue_drops_and_says_how_many() {
    let (queue, permit, written) = served();
    queue.push(line("held"));
    permit.send(()).unwrap();
    assert_eq!(written.recv().unwrap(), "held");
    queue.push(line("first"));
    while !lock(&queue.state).waiting.is_empty() {
        thread::yield_now();
    }
    // The writer holds the first line and waits for a permit: nothing moves while the queue is filled.
    for _ in 0..MAX_LOG_LINES {
        queue.push(line("kept"));
    }
    for _ in 0..7 {
        queue.push(line("lost"));
    }
    assert!(!queue.flush(Duration::from_millis(1)));
    // One permit lets the writer take a line: the next one fits again, behind a word about those that did not.
    permit.send(()).unwrap();
    assert_eq!(written.recv().unwrap(), "first");
    while lock(&queue.state).waiting.len() == MAX_LOG_LINES {
        thread::yield_now();
    }
    queue.push(line("late"));
    for expected in vec!["kept"; MAX_LOG_LINES]
        .into_iter()
        .chain([LOST, "late"])
    {
        permit.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), expected);
    }
    assert!(queue.flush(Duration::from_secs(60)));
}

const LOST: &str = "stderr was not read in time: 7 log lines were dropped.";

#[test]
fn a_writer_that_panics_loses_one_line() {
    let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        IS_LOG_THREAD.set(true);
        write_lines(queue, |line| {
            // Unlike `panic!`, this does not call the hook and so prints nothing among the tests' own lines.
            if line.message == "bad" {
                std::panic::resume_unwind(Box::new(()));
            }
            sender.send(line.message.clone()).unwrap();
        })
    });
    for message in ["one", "bad", "two"] {
        queue.push(line(message));
    }
    assert_eq!(
        (written.recv().unwrap(), written.recv().unwrap()),
        ("one".to_owned(), "two".to_owned())
    );
    assert!(queue.flush(Duration::from_secs(60)));
}

#[test]
fn foreign_text_stays_on_its_line() {
    for (given, logged) in [
        ("plain é 日本 {}", "plain é 日本 {}"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        (
            "\u{1b}[31mred\u{0}\u{7f}\u{9b}",
            "\\u{1b}[31mred\\u{0}\\u{7f}\\u{9b}",
        ),
        (
            "a\u{2028}b\u{202e}c\u{2066}",
            "a\\u{2028}b\\u{202e}c\\u{2066}",
        ),
    ] {
        assert_eq!(of(format_args!("{given}")), logged);
    }
}

#[test]
fn a_line_is_bounded() {
    let fits = "x".repeat(MAX_LOG_LINE);
    assert_eq!(of(format_args!("{fits}")), fits);
    assert_eq!(of(format_args!("{fits}y")), format!("{fits}…"));
    assert_eq!(of(format_args!("{}{}", fits, "more")), format!("{fits}…"));
}

#[test]
fn fields_are_quoted_where_they_must_be() {
    let mut line = String::new();
    logfmt(&mut line, "tool", "fabric_run_pattern");
    logfmt(&mut line, "rows", 3);
    logfmt(&mut line, "model", "meta-llama/x:8b");
    logfmt(&mut line, "empty", "");
    logfmt(&mut line, "spaced", "a b");
    logfmt(&mut line, "equals", "a=b");
    logfmt(&mut line, "quotes", r#"say "\" "#);
    logfmt(&mut line, "lines", "a\nok=true\u{2028}");
    logfmt(&mut line, "name", "日本");
    assert_eq!(
        line,
        r#"tool=fabric_run_pattern rows=3 model=meta-llama/x:8b empty="" spaced="a b" equals="a=b" quotes="say \"\\\" " lines="a\nok=true\u{2028}" name=日本"#
    );
}

#[test]
fn only_our_own_records_are_logged() {
    let logger = |critical_only: bool| Logger {
        queue: Queue::new(),
        started: AtomicBool::new(true),
        critical_only: AtomicBool::new(critical_only),
        has_writer: AtomicBool::new(false),
    };
    let enabled =
        |logger: &Logger, target: &str| logger.enabled(&Metadata::builder().target(target).build());
    for (target, usually, when_critical) in [
        ("fabric_mcp", true, false),
        ("fabric_mcp::tools::run_pattern", true, false),
        ("critical", true, true),
        ("fabric_mcpx", false, false),
        ("ureq::run", false, false),
        ("ureq_proto::util", false, false),
        ("rustls::client", false, false),
        ("tiny_http", false, false),
        ("", false, false),
    ] {
        assert_eq!(enabled(&logger(false), target), usually, "{target}");
        assert_eq!(enabled(&logger(true), target), when_critical, "{target}");
    }
}

#[test]
fn paths_of_the_build_machine_are_cut() {
    for (file, shown) in [
        ("src/tools/mod.rs", "src/tools/mod.rs"),
        (
            "/home/me/.cargo/registry/src/index/ureq-3.5.1/src/run.rs",
            "ureq-3.5.1/src/run.rs",
        ),
        (
            "C:\\Users\\me\\ureq-3.5.1\\src\\run.rs",
            "ureq-3.5.1\\src\\run.rs",
        ),
        ("/a/b", "/a/b"),
    ] {
        assert_eq!(short_path(file), shown);
    }
}

#[test]
fn scopes_nest() {
    let current = || REQUEST.with_borrow(Clone::clone);
    let outer = request_scope("outer");
    let inner = request_scope("inner");
    assert_eq!(current().as_deref(), Some("inner"));
    drop(inner);
    assert_eq!(current().as_deref(), Some("outer"));
    drop(outer);
    assert_eq!(current(), None);
}

/// Not a test: what the tests below start, in a process of its own, since there is one logger to a process.
#[test]
#[ignore = "the other tests' child process"]
fn child() {
    match std::env::var("FABRIC_MCP_TEST_LOGGING").unwrap().as_str() {
        "levels" => {
            install_panic_hook();
            start(LogLevel::Info, LogFormat::Logfmt);
            log::debug!("debug");
            log::info!("info\nline");
            log::warn!(target: "ureq", "not ours");
            let worker = thread::Builder::new().name("worker".to_owned()).spawn(|| {
                let _scope = request_scope("0123456789abcdef");
                panic!("text of the caller");
            });
            assert!(worker.unwrap().join().is_err());
            start(LogLevel::Critical, LogFormat::Logfmt);
            log::error!("error");
            critical("the end");
            assert!(flush(Duration::from_secs(60)));
        }
        "blocked" => {
            install_panic_hook();
            start(LogLevel::Info, LogFormat::Logfmt);
            // More than the pipe, the queue and the writer hold together, were they never read.
            for n in 0..20_000 {
                log::info!("{n} {}", "x".repeat(100));
            }
            assert!(!flush(Duration::from_millis(1)));
        }
        "closed" => {
            // Until the parent has closed our stderr.
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            install_panic_hook();
            start(LogLevel::Info, LogFormat::Logfmt);
            for n in 0..100 {
                log::info!("{n}");
            }
            assert!(flush(Duration::from_secs(60)));
        }
        other => panic!("{other}"),
    }
    std::process::exit(42);
}

fn command(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "logging::tests::child",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("FABRIC_MCP_TEST_LOGGING", what)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

#[test]
fn stderr_gets_what_it_should() {
    let output = command("levels").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let place = text
        .split("place=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(place.starts_with("src/logging/tests.rs:"), "{text}");
    let expected = [
        "INFO  [fabric_mcp::logging::tests] info\\nline".to_owned(),
        format!(
            "ERROR [fabric_mcp::logging] A bug: a thread panicked. place={place} thread=worker \
             request_id=0123456789abcdef"
        ),
        "ERROR [critical] the end".to_owned(),
    ];
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.split_once("Z ").unwrap())
        .collect();
    assert_eq!(
        lines.iter().map(|(_, rest)| *rest).collect::<Vec<_>>(),
        expected
    );
    // 2026-07-28T12:00:00.000
    assert!(
        lines
            .iter()
            .all(|(stamp, _)| stamp.len() == 23 && stamp.as_bytes()[10] == b'T'),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(42));
}

#[test]
fn a_stderr_nobody_reads_blocks_nobody() {
    let mut child = command("blocked").spawn().unwrap();
    // It ends by itself though its stderr, held open here, is not read.
    assert_eq!(child.wait().unwrap().code(), Some(42));
    let mut text = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.lines().next().unwrap().contains(" 0 xxx"));
}

#[test]
fn a_closed_stderr_ends_nothing() {
    let mut child = command("closed").stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// Prints what the log costs its callers: `cargo test --release -- --ignored --nocapture cost_of_logging`.
#[test]
#[ignore = "a measurement"]
fn cost_of_logging() {
    let before = std::time::Instant::now();
    start(LogLevel::Info, LogFormat::Logfmt);
    let started = before.elapsed();
    log::info!("first");
    let first = before.elapsed() - started;
    let mut times: Vec<_> = (0..500)
        .map(|n| {
            let before = std::time::Instant::now();
            log::info!("tool=fabric_list_patterns ok=true rows={n} duration_ms=1 request_id=0123456789abcdef");
            before.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "start {started:?}, first line {first:?}, then p50 {:?} p99 {:?}",
        times[250], times[495]
    );
}
