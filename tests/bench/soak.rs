//! `cargo bench -- --soak MINUTES`: a mixed load with faults on one server over HTTP and one over stdio, each answer checked.
//!
//! ```text
//!   4 clients over HTTP ─▶ fabric-mcp ─┐
//!   a slow reader       ─▶             ├─▶ stand-in, ended and started again every 20 s
//!   1 client on stdio   ─▶ fabric-mcp ─┘      tokens replaced every 10 s
//! ```
//! Every run says what no other says. The exit code is 1 if an answer was wrong or a run was lost: one that was `working` and
//! is not found, or that the server over HTTP does not count as ended in some way. Memory is for people to judge.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use serde_json::{Value, json};

use crate::fabric;
use crate::process::{self, Process, http_server, listener};
use crate::stdio::Pipe;
use crate::tails::{Random, Slow};
use crate::wire::{self, Connection};

const SAMPLE: Duration = Duration::from_secs(10);
/// How long after a restart of Fabric a call may still fail.
const GRACE: Duration = Duration::from_secs(3);
/// More wrong answers than that end the soak.
const ENOUGH: usize = 50;
/// Between two calls of a client, on average.
const PAUSE: Duration = Duration::from_millis(4);
/// Runs are kept that long, or memory would grow for an hour by right.
const FLAGS: [&str; 2] = ["--keep-runs", "30"];
const TOKEN: &str = "a-token-of-thirty-two-characters-0";

/// What is known of all.
struct Soak {
    begun: Instant,
    over: AtomicBool,
    /// Calls may fail that began before this, in milliseconds since `begun`.
    troubled_until: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
    lost: AtomicU64,
    /// Runs begun over HTTP.
    runs: AtomicU64,
    /// What was listed first, in the legacy era and in the modern one.
    tools: [OnceLock<Value>; 2],
    word: AtomicU64,
}

/// What came of a call, or what was wrong with it.
type Done = Result<String, String>;

/// A client on some wire.
trait Client {
    /// Sends `message` and gives the answer; `each` sees what comes before.
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value;
    /// Begins a run and gives it up once it has begun to speak.
    fn abandon(&mut self, message: &Value);
    /// Sends what is no message, and gives the answer.
    fn malformed(&mut self) -> Value;
    fn is_modern(&self) -> bool;
    /// After a failure; false if it cannot go on.
    fn reopen(&mut self) -> bool;
}

struct Http {
    address: SocketAddr,
    connection: Connection,
    /// Read as by somebody slow.
    is_slow: bool,
}

impl Http {
    fn open(address: SocketAddr, is_slow: bool) -> Http {
        Http { address, connection: Connection::open(address), is_slow }
    }

    fn request(message: &Value) -> Vec<u8> {
        let mut headers = format!(
            "Authorization: Bearer {TOKEN}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {}\r\n",
            message["method"].as_str().unwrap_or_default()
        );
        if let Some(name) = message["params"]["name"].as_str() {
            headers.push_str(&format!("Mcp-Name: {name}\r\n"));
        }
        wire::post("/mcp", &headers, &message.to_string())
    }
}

/// Gives the messages of a body, JSON or events, to `each` until that says true.
fn messages(body: impl io::Read, mut each: impl FnMut(Value) -> bool) {
    wire::lines(body, |line, _| {
        let line = line.strip_prefix(b"data: ").unwrap_or(line);
        line.starts_with(b"{") && each(serde_json::from_slice(line).expect("JSON"))
    });
}

impl Client for Http {
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value {
        self.connection.send(&Http::request(message));
        let (_, body) = self.connection.answer();
        let mut answer = Value::Null;
        let take = |message: Value| match message.get("id") {
            Some(_) => {
                answer = message;
                true
            }
            None => {
                each(&message);
                false
            }
        };
        if self.is_slow {
            messages(Slow(body), take)
        } else {
            messages(body, take)
        }
        answer
    }

    fn abandon(&mut self, message: &Value) {
        let mut connection = Connection::open(self.address);
        connection.send(&Http::request(message));
        let mut line = Vec::new();
        // Its first event, and no more.
        io::BufRead::read_until(&mut io::BufReader::new(connection.answer().1), b'\n', &mut line).expect("an event");
    }

    fn malformed(&mut self) -> Value {
        let headers = format!("Authorization: Bearer {TOKEN}\r\n");
        self.connection.send(&wire::post("/mcp", &headers, "{\"jsonrpc\":\"2.0\",\"id\":1,"));
        let (status, body) = self.connection.answer();
        assert_eq!(status, 400, "a malformed message");
        let mut answer = Value::Null;
        messages(body, |message| {
            answer = message;
            true
        });
        answer
    }

    fn is_modern(&self) -> bool {
        true
    }

    fn reopen(&mut self) -> bool {
        self.connection = Connection::open(self.address);
        true
    }
}

struct Lines {
    pipe: Pipe,
    given_up: HashSet<String>,
}

impl Lines {
    fn next(&mut self) -> Value {
        let message: Value = serde_json::from_slice(self.pipe.line()).expect("JSON");
        let id = message["id"].as_str().unwrap_or_default();
        assert!(!self.given_up.contains(id), "a cancelled run was answered: {message}");
        message
    }
}

impl Client for Lines {
    fn ask(&mut self, message: &Value, each: &mut dyn FnMut(&Value)) -> Value {
        self.pipe.send(&format!("{message}\n"));
        loop {
            let message = self.next();
            if message.get("id").is_some() {
                return message;
            }
            each(&message);
        }
    }

    fn abandon(&mut self, message: &Value) {
        self.pipe.send(&format!("{message}\n"));
        if self.next().get("id").is_some() {
            // It has failed.
            return;
        }
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}});
        self.pipe.send(&format!("{cancelled}\n"));
        self.given_up.insert(message["id"].as_str().unwrap_or_default().to_owned());
    }

    fn malformed(&mut self) -> Value {
        self.pipe.send("{\"jsonrpc\":\"2.0\",\"id\":1,\n");
        loop {
            let message = self.next();
            if message.get("error").is_some() {
                return message;
            }
        }
    }

    fn is_modern(&self) -> bool {
        false
    }

    fn reopen(&mut self) -> bool {
        false
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
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn wrong(&self, what: String) {
        eprintln!("wrong: {what:.600}");
        let mut wrong = self.wrong.lock().unwrap();
        wrong.push(what);
        if wrong.len() > ENOUGH {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// A word that no other run has.
    fn word(&self) -> String {
        format!("w{}", self.word.fetch_add(1, Ordering::Relaxed))
    }

    fn message(&self, client: &dyn Client, method: &str, mut params: Value) -> Value {
        if client.is_modern() {
            let envelope: Value = serde_json::from_str(&format!("{{{}}}", crate::http::ENVELOPE)).unwrap();
            let meta = params["_meta"].take();
            params["_meta"] = envelope;
            if let Some(token) = meta.get("progressToken") {
                params["_meta"]["progressToken"] = token.clone();
            }
        }
        json!({"jsonrpc": "2.0", "id": self.word(), "method": method, "params": params})
    }

    fn ask(
        &self,
        client: &mut dyn Client,
        method: &str,
        params: Value,
        each: &mut dyn FnMut(&Value),
    ) -> Result<Value, String> {
        let message = self.message(client, method, params);
        let mut answer = client.ask(&message, each);
        // Only results of 2026-07-28 say what they are.
        let is_modern = answer["result"]["resultType"] == "complete";
        if answer["id"] != message["id"] || answer["result"].is_null() || is_modern != client.is_modern() {
            return Err(format!("{message} was answered {answer}"));
        }
        Ok(answer["result"].take())
    }

    /// The structured result of a tool, or `Ok(Err(kind))` where Fabric's trouble excuses it. `broken` is whether its run
    /// was to fail.
    fn call(
        &self,
        client: &mut dyn Client,
        tool: &str,
        arguments: Value,
        broken: bool,
        said: &mut String,
    ) -> Result<Result<Value, String>, String> {
        let begun = self.milliseconds();
        let token = json!(self.word());
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}});
        let mut each = |note: &Value| {
            // Others are late ones of a run that was given up.
            if note["params"]["progressToken"] == token {
                said.push_str(note["params"]["message"].as_str().unwrap_or_default());
            }
        };
        let mut result = self.ask(client, "tools/call", params, &mut each)?;
        if result["isError"] == false {
            return Ok(Ok(result["structuredContent"].take()));
        }
        let texts = result["content"].as_array().cloned().unwrap_or_default();
        let kind = texts.iter().find_map(|text| text["text"].as_str()?.rsplit_once("urn:fabric-mcp:error:"));
        let kind = kind.map_or(String::new(), |(_, kind)| kind.to_owned());
        let is_excused = broken || begun < self.troubled_until.load(Ordering::Relaxed);
        match kind.starts_with("fabric-") && is_excused {
            true => Ok(Err(kind)),
            false => Err(format!("{tool} {arguments}: {result}")),
        }
    }

    fn list(&self, client: &mut dyn Client) -> Done {
        let result = self.ask(client, "tools/list", json!({}), &mut |_| {})?;
        let first = self.tools[usize::from(client.is_modern())].get_or_init(|| result["tools"].clone());
        if *first == result["tools"] { Ok("lists".into()) } else { Err(format!("another list: {result}")) }
    }

    fn patterns(&self, client: &mut dyn Client) -> Done {
        let result = match self.call(client, "fabric_list_patterns", json!({}), false, &mut String::new())? {
            Ok(result) => result,
            Err(kind) => return Ok(kind),
        };
        let names: Vec<String> = (0..250).map(fabric::pattern_name).collect();
        if result["patterns"] == json!(names) { Ok("pattern lists".into()) } else { Err(format!("{result}")) }
    }

    fn details(&self, client: &mut dyn Client, number: u64) -> Done {
        let name = fabric::pattern_name(number as usize);
        let arguments = json!({"pattern_name": name});
        let result = match self.call(client, "fabric_get_pattern_details", arguments, false, &mut String::new())? {
            Ok(result) => result,
            Err(kind) => return Ok(kind),
        };
        let text = fabric::pattern_text(&format!("patterns/{name}"));
        if result["system_prompt"] == json!(text) { Ok("details".into()) } else { Err(format!("{result}")) }
    }

    fn began(&self, client: &dyn Client) {
        if client.is_modern() {
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A run to its end, streamed or not; or one that is answered while it works, and read later.
    fn run(&self, client: &mut dyn Client, kind: &str, stream: bool, outlives: bool) -> Done {
        let (count, word) = (20, self.word());
        let input = format!("{kind}_{count}_2000_{word}");
        let text: String = (0..count).map(|number| fabric::piece(&word, number)).collect();
        let mut arguments = json!({"pattern_name": fabric::pattern_name(1), "input_text": input, "stream": stream});
        if outlives {
            arguments["wait_seconds"] = json!(0);
        }
        self.began(client);
        let (mut said, begun, broken) = (String::new(), self.milliseconds(), kind != "say");
        let mut result = match self.call(client, "fabric_run_pattern", arguments, broken, &mut said)? {
            Ok(result) => result,
            Err(_) if !text.starts_with(&said) => return Err(format!("{input}: streamed {said:?}")),
            Err(kind) => return Ok(format!("failed: {kind}")),
        };
        if stream && result["status"] == "completed" && said != text {
            return Err(format!("{input}: streamed {said:?}"));
        }
        let mut name = if stream { "runs, streamed" } else { "runs" };
        if result["status"] == "working" {
            name = "runs, read later";
            let arguments = json!({"run_id": result["run_id"]});
            let got = self.call(client, "fabric_get_run", arguments, false, &mut String::new());
            if got.is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            result = got?.unwrap_or_default();
        }
        let output = result["output_text"].as_str().unwrap_or("none");
        let is_excused = broken || begun < self.troubled_until.load(Ordering::Relaxed);
        match result["status"].as_str() {
            Some("completed") if output == text && !broken => Ok(name.into()),
            Some("failed") if text.starts_with(output) && is_excused => Ok("failed, read later".into()),
            _ => Err(format!("{input}: {result}")),
        }
    }

    /// 1 MB to somebody slow.
    fn large(&self, client: &mut dyn Client) -> Done {
        self.began(client);
        let arguments = json!({"pattern_name": fabric::pattern_name(3), "input_text": "size_1048576"});
        let result = match self.call(client, "fabric_run_pattern", arguments, false, &mut String::new())? {
            Ok(result) => result,
            Err(kind) => return Ok(format!("failed: {kind}")),
        };
        if result["output_text"] == json!(fabric::text(1024).repeat(1024)) {
            Ok("slow reads".into())
        } else {
            Err("a large run".into())
        }
    }

    fn abandon(&self, client: &mut dyn Client) -> Done {
        let input = format!("say_500_10000_{}", self.word());
        let arguments = json!({"pattern_name": fabric::pattern_name(2), "input_text": input, "stream": true});
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments, "_meta": {"progressToken": "p"}});
        let message = self.message(client, "tools/call", params);
        self.began(client);
        client.abandon(&message);
        Ok("abandoned".into())
    }

    fn malformed(&self, client: &mut dyn Client) -> Done {
        let answer = client.malformed();
        if answer["error"]["code"] == -32700 { Ok("malformed".into()) } else { Err(format!("malformed: {answer}")) }
    }

    /// One client, until the end.
    fn work(&self, seed: u64, client: &mut dyn Client, one: fn(&Soak, &mut dyn Client, &mut Random) -> Done) {
        let mut random = Random(seed);
        while !self.over.load(Ordering::Relaxed) {
            thread::sleep(random.time(PAUSE));
            let begun = self.milliseconds();
            match catch_unwind(AssertUnwindSafe(|| one(self, client, &mut random))) {
                Ok(Ok(what)) => self.count(&what),
                Ok(Err(what)) => self.wrong(format!("begun at {begun} ms: {what}")),
                Err(panic) => {
                    let said = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
                    self.wrong(format!("begun at {begun} ms: {said}"));
                    if !client.reopen() {
                        self.over.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Fabric ends, and begins again on its port.
    fn restart(&self, fabric: &mut Process, port: &str) {
        self.troubled_until.store(u64::MAX, Ordering::Relaxed);
        let _ = fabric.0.kill();
        let _ = fabric.0.wait();
        thread::sleep(Duration::from_millis(300));
        *fabric = listener(&["--fabric", port]).0;
        self.troubled_until.store(self.milliseconds() + GRACE.as_millis() as u64, Ordering::Relaxed);
        self.count("restarts");
    }

    /// Replaces one of the tokens and waits until the server knows.
    fn replace_token(&self, file: &str, pid: u32, address: SocketAddr, number: usize) {
        let token = |number: usize| format!("a-token-of-thirty-two-characters-b{number}");
        fs::write(file, format!("soak run {TOKEN}\nother read {}\n", token(number))).unwrap();
        // Every other time the server has to find it out by itself.
        if number % 2 == 0 {
            Command::new("sh").args(["-c", &format!("kill -HUP {pid}")]).status().unwrap();
        }
        let end = Instant::now() + Duration::from_secs(5);
        let is_let_in = |number| metrics(address, &token(number)).0 == 200;
        while !is_let_in(number) || is_let_in(number - 1) {
            if Instant::now() > end {
                return self.wrong(format!("token {number} is not known, or the one before it still is"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.count("token changes");
    }

    /// Runs that the server over HTTP counts as ended, less those begun.
    fn missing(&self, address: SocketAddr) -> i64 {
        let text = metrics(address, TOKEN).1;
        let calls = text.lines().filter(|line| line.starts_with("fabric_mcp_calls_total{tool=\"fabric_run_pattern\""));
        let ended: i64 = calls.filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok()).sum();
        self.runs.load(Ordering::Relaxed) as i64 - ended
    }

    fn told(&self) -> String {
        let counts = self.counts.lock().unwrap();
        counts.iter().map(|(what, count)| format!(" · {what} {count}")).collect()
    }
}

/// What all clients but the slow one do.
fn mixed(soak: &Soak, client: &mut dyn Client, random: &mut Random) -> Done {
    match random.below(100) {
        0..40 => soak.list(client),
        40..50 => soak.patterns(client),
        50..65 => soak.details(client, random.below(250)),
        65..80 => soak.run(client, "say", true, false),
        80..84 => soak.run(client, "say", false, false),
        84..89 => soak.run(client, "say", false, true),
        89..91 => soak.run(client, "fail", true, false),
        91..93 => soak.run(client, "cut", true, false),
        93..97 => soak.abandon(client),
        _ => soak.malformed(client),
    }
}

/// `/metrics`, as the holder of `token` sees it.
fn metrics(address: SocketAddr, token: &str) -> (u16, String) {
    let mut connection = Connection::open(address);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    connection.send(request.as_bytes());
    let (status, body) = connection.answer();
    (status, io::read_to_string(body).unwrap())
}

/// By how much `y` grows in an hour, by least squares; x are seconds.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let part = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>();
    part / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>() * 3600.0
}

/// Runs it all and gives the exit code.
pub(crate) fn run(minutes: f64) -> i32 {
    let length = Duration::from_secs_f64(minutes * 60.0);
    let (mut fabric, at) = listener(&["--fabric", "0"]);
    let (url, port) = (format!("http://{at}"), at.port().to_string());
    let tokens = format!("{}/soak-{}.tokens", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    fs::write(&tokens, format!("soak run {TOKEN}\n")).unwrap();
    let (server, address) = http_server(&url, &[&FLAGS[..], &["--tokens-file", &tokens]].concat()).expect("a server");
    let mut lines = Lines { pipe: Pipe::server_with(&url, &FLAGS), given_up: HashSet::new() };
    let pids = [server.0.id(), lines.pipe.process.0.id()];
    let (soak, mut samples) = (Soak::new(), Vec::new());
    thread::scope(|scope| {
        let soak = &soak;
        for seed in 1..=4 {
            scope.spawn(move || soak.work(seed, &mut Http::open(address, false), mixed));
        }
        scope.spawn(move || soak.work(5, &mut Http::open(address, true), |soak, client, _| soak.large(client)));
        scope.spawn(|| soak.work(6, &mut lines, mixed));
        for number in 1.. {
            thread::sleep(
                SAMPLE
                    .saturating_sub(Duration::from_secs_f64(soak.begun.elapsed().as_secs_f64() % SAMPLE.as_secs_f64())),
            );
            let (seconds, usage) = (soak.begun.elapsed().as_secs_f64(), pids.map(process::usage));
            samples.push((seconds, usage));
            let [[mb, threads, files], [mb2, threads2, files2]] = usage;
            println!(
                "{seconds:6.0} s  http {mb:.1} MB {threads} threads {files} files · stdio {mb2:.1} MB {threads2} threads \
                 {files2} files{} · wrong {}",
                soak.told(),
                soak.wrong.lock().unwrap().len()
            );
            if soak.begun.elapsed() >= length || soak.over.load(Ordering::Relaxed) {
                break;
            }
            soak.replace_token(&tokens, pids[0], address, number);
            if number % 2 == 0 {
                soak.restart(&mut fabric, &port);
            }
        }
        soak.over.store(true, Ordering::Relaxed);
    });
    let _ = fs::remove_file(&tokens);
    // Those given up may take a moment to end.
    let end = Instant::now() + Duration::from_secs(10);
    while soak.missing(address) != 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    let half = &samples[samples.len() / 2..];
    for (server, name) in ["http", "stdio"].iter().enumerate() {
        for (what, unit) in ["MB", "threads", "files"].iter().enumerate() {
            let points: Vec<_> = half.iter().map(|(seconds, usage)| (*seconds, usage[server][what])).collect();
            println!("{name}: {:+.2} {unit} an hour, over the second half", slope(&points));
        }
    }
    let (wrong, lost) = (soak.wrong.lock().unwrap().len(), soak.lost.load(Ordering::Relaxed));
    let missing = soak.missing(address);
    println!(
        "{} runs over http, {missing} without an end; {wrong} wrong answers, {lost} lost runs",
        soak.runs.load(Ordering::Relaxed)
    );
    i32::from(wrong > 0 || lost > 0 || missing != 0)
}
