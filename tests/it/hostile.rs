//! Many hostile JSON-RPC lines on stdio, with an oracle: every readable id is answered exactly once, a request without
//! one gets its error, notifications get nothing, every output line is JSON-RPC, and `ping` works at the end.
//!
//! The generator records what it wrote, and the revision at that time. `FABRIC_MCP_FUZZ_CASES` sets the number of lines
//! (default 5,000), `FABRIC_MCP_FUZZ_SEED` the seed. Writing and reading are concurrent.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::thread;

use serde_json::{Value, json};

use crate::support::process::Program;
use crate::support::rng::Rng;
use crate::support::stdio::{Stdio, initialize_params, with_meta};
use crate::support::{DEADLINE, LEGACY};

/// Number of lines beyond the size limit, in one run.
const HUGE_LINES: usize = 2;

/// Prefix of the ids of mutated lines: so long that no mutation turns one into another id.
const MUTANT: &str = "zzzzzzzzzzzzzzzzzzzzzzzz";

const METHODS: [&str; 16] = [
    "ping",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "completion/complete",
    "logging/setLevel",
    "server/discover",
    "notifications/initialized",
    "sampling/createMessage",
    "tasks/get",
    "",
];

/// The expected output.
#[derive(Default)]
struct Expected {
    /// Number of answers per id, as JSON: minimum, maximum, and whether in an array.
    ids: HashMap<String, (usize, usize, bool)>,
    /// Ids of subscriptions: answered at the end of input, or before if there are too many.
    listens: HashSet<String>,
    /// Errors without an id outside arrays: exactly this many, and at most one more per mutant.
    no_id: usize,
    /// Errors without an id inside arrays.
    no_id_in_batch: usize,
    /// Mutated lines: each has at most one answer.
    mutants: usize,
}

pub(crate) struct Generator {
    rng: Rng,
    expected: Expected,
    /// The current revision.
    revision: Option<&'static str>,
    next: usize,
    huge: usize,
    /// The last few ids, for cancelling or reuse.
    recent: Vec<Value>,
}

impl Generator {
    pub(crate) fn new(rng: Rng) -> Generator {
        Generator {
            rng,
            expected: Expected::default(),
            revision: None,
            next: 0,
            huge: 0,
            recent: Vec::new(),
        }
    }

    /// A new id that is answered once, in an array or on its own.
    fn id(&mut self, in_batch: bool) -> Value {
        self.next += 1;
        let n = self.next;
        let id = match self.rng.within(0..4) {
            0 => json!(n),
            1 => json!(-(n as i64)),
            2 => json!(format!("{n}")),
            _ => json!(format!("{n} {}", self.rng.text(0..9))),
        };
        self.expected.ids.insert(id.to_string(), (1, 1, in_batch));
        if !in_batch {
            self.recent.push(id.clone());
            if self.recent.len() > 8 {
                self.recent.remove(0);
            }
        }
        id
    }

    /// A request's method and params; never `initialize` or a subscription.
    fn request(&mut self) -> (String, Value) {
        let method = if self.rng.one_in(8) {
            self.rng.text(0..30)
        } else {
            (*self.rng.pick(&METHODS)).to_owned()
        };
        let params = match self.rng.within(0..9) {
            0 => json!({"name": "fabric_list_patterns", "arguments": {}}),
            1 => {
                json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "summarize", "model_name": "demo-instant",
                        "input_text": self.rng.text(0..80), "stream": true}, "_meta": {"progressToken": self.next}})
            }
            2 => json!({"name": "fabric_run_pattern", "arguments": self.rng.json(2)}),
            3 => json!({"name": "summarize", "arguments": {"input_text": self.rng.text(0..50)}}),
            4 => {
                json!({"uri": format!("fabric://pattern/{}", self.rng.text(0..9)), "level": self.rng.text(0..8)})
            }
            5 => json!({"ref": {"type": "ref/resource", "uri": "fabric://pattern/{name}"},
                        "argument": {"name": "name", "value": self.rng.text(0..5)}}),
            6 => json!({"_meta": self.rng.json(2)}),
            _ => self.rng.json(3),
        };
        (method, params)
    }

    fn line(&mut self) -> Vec<u8> {
        match self.rng.within(0..40) {
            0..10 => self.good_request(),
            10..14 => self.modern_request(),
            14..18 => self.no_answer(),
            18..24 => self.malformed_with_id(),
            24..28 => self.malformed_without_id(),
            28..32 => self.mutant(),
            32..35 => self.batch(),
            35 => self.initialize(),
            36 => self.listen(),
            37 => self.cancel(),
            38 => self.again(),
            _ => self.large(),
        }
    }

    /// The body of a POST: one message of the modern era or of a legacy session.
    pub(crate) fn body(&mut self, modern: bool) -> Vec<u8> {
        match self.rng.within(0..6) {
            0 => self.no_answer(),
            1 => self.malformed_with_id(),
            2 => self.mutant(),
            _ if modern => self.modern_request(),
            _ => self.good_request(),
        }
    }

    fn good_request(&mut self) -> Vec<u8> {
        let id = self.id(false);
        let (method, params) = self.request();
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !self.rng.one_in(4) {
            message["params"] = params;
        }
        if self.rng.one_in(10) {
            let name = self.rng.text(0..6);
            // A member named like one of JSON-RPC's changes what the message is.
            message[format!("x{name}")] = self.rng.json(2);
        }
        let text = message.to_string();
        // Surrounding white space, byte order marks and carriage returns are ignored.
        let text = match self.rng.within(0..6) {
            0 => format!("\u{feff}{text}"),
            1 => format!(" \t{text} \r"),
            2 => format!("{text}\r"),
            _ => text,
        };
        text.into_bytes()
    }

    fn modern_request(&mut self) -> Vec<u8> {
        let id = self.id(false);
        let (method, params) = self.request();
        let mut params = if params.is_object() {
            with_meta(params)
        } else {
            with_meta(Value::Null)
        };
        if self.rng.one_in(4) {
            let key = ["protocolVersion", "clientCapabilities", "logLevel"][self.rng.within(0..3)];
            params["_meta"] = json!({});
            params["_meta"][format!("io.modelcontextprotocol/{key}")] = self.rng.json(1);
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            .to_string()
            .into_bytes()
    }

    fn no_answer(&mut self) -> Vec<u8> {
        let (method, params) = self.request();
        match self.rng.within(0..6) {
            0 => json!({"jsonrpc": "2.0", "id": self.next, "result": params}).to_string().into_bytes(),
            1 => json!({"jsonrpc": "2.0", "id": null, "error": params}).to_string().into_bytes(),
            2 => json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"x": 1}}})
                .to_string()
                .into_bytes(),
            3 => b" \t\r".to_vec(),
            4 => "\u{feff}".into(),
            _ => json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string().into_bytes(),
        }
    }

    fn malformed_with_id(&mut self) -> Vec<u8> {
        let id = self.id(false);
        let text = match self.rng.within(0..7) {
            0 => json!({"id": id, "method": "ping"}).to_string(),
            1 => json!({"jsonrpc": self.rng.json(1), "id": id, "method": 5}).to_string(),
            2 => json!({"jsonrpc": "2.0", "id": id}).to_string(),
            3 => json!({"jsonrpc": "2.0", "id": id, "method": [self.rng.json(1)]}).to_string(),
            4 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","method":"ping"}}"#),
            5 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{}},"params":{{}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{}}}"#,
                self.rng.pick(&["[]", "5", "null"])
            ),
        };
        text.into_bytes()
    }

    fn malformed_without_id(&mut self) -> Vec<u8> {
        self.expected.no_id += 1;
        let n = self.next;
        match self.rng.within(0..9) {
            0 => b"{".to_vec(),
            1 => [
                b"\xff",
                self.rng.text(0..9).replace(['\n', '\r'], "").as_bytes(),
            ]
            .concat(),
            2 => b"null".to_vec(),
            3 => b"[]".to_vec(),
            4 => format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#,
                self.rng.pick(&["null", "1.5", "{}", "[]", "1e9"])
            )
            .into(),
            5 => format!(r#"{{"jsonrpc":"2.0","id":{n},"id":{n},"method":"ping"}}"#).into(),
            6 => format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping""#).into(),
            7 => "[".repeat(self.rng.within(1..20_000)).into(),
            _ => format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"a\u{1}b\"}}").into(),
        }
    }

    /// A request with some bytes changed: it has at most one answer.
    fn mutant(&mut self) -> Vec<u8> {
        let (method, params) = self.request();
        let message = json!({"jsonrpc": "2.0", "id": format!("{MUTANT}{}", self.next), "method": method, "params": params});
        let mut line = message.to_string().into_bytes();
        for _ in 0..self.rng.within(1..6) {
            self.rng.mutate(&mut line);
        }
        line.retain(|byte| *byte != b'\n');
        self.expected.mutants += 1;
        line
    }

    fn batch(&mut self) -> Vec<u8> {
        let batches = self.revision == Some("2025-03-26");
        let count = self.rng.within(1..9);
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..count {
            items.push(match self.rng.within(0..6) {
                0 => json!({"jsonrpc": "2.0", "method": "notifications/x"}),
                1 => {
                    self.expected.no_id_in_batch += usize::from(batches);
                    json!(7)
                }
                2 if batches => {
                    json!({"jsonrpc": "2.0", "id": self.id(true), "method": "initialize"})
                }
                _ if batches => {
                    let id = self.id(true);
                    let (method, params) = self.request();
                    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
                }
                _ => json!({"jsonrpc": "2.0", "id": 0, "method": "ping"}),
            });
        }
        self.expected.no_id += usize::from(!batches);
        Value::Array(items).to_string().into_bytes()
    }

    fn initialize(&mut self) -> Vec<u8> {
        let id = self.id(false);
        let version = match self.rng.within(0..4) {
            0 => "2026-07-28",
            1 => "draft",
            _ => LEGACY[self.rng.within(0..4)],
        };
        self.revision = Some(
            LEGACY
                .into_iter()
                .find(|known| *known == version)
                .unwrap_or("2025-11-25"),
        );
        json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": initialize_params(version)})
            .to_string()
            .into_bytes()
    }

    /// Answered at the latest at the end of input.
    fn listen(&mut self) -> Vec<u8> {
        let id = self.id(false);
        self.expected.listens.insert(id.to_string());
        let params = json!({"notifications": {"promptsListChanged": true, "toolsListChanged": self.rng.one_in(2)}});
        json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": with_meta(params)})
            .to_string()
            .into_bytes()
    }

    fn cancel(&mut self) -> Vec<u8> {
        let id = if self.recent.is_empty() {
            json!("none")
        } else {
            self.rng.pick(&self.recent).clone()
        };
        if let Some((least, ..)) = self.expected.ids.get_mut(&id.to_string()) {
            *least = 0;
        }
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": self.rng.text(0..20)}})
            .to_string()
            .into_bytes()
    }

    /// A reused id, perhaps while in flight: answered or refused, in either case once more.
    fn again(&mut self) -> Vec<u8> {
        let Some(id) = self.recent.last().cloned() else {
            return self.good_request();
        };
        if let Some((least, most, _)) = self.expected.ids.get_mut(&id.to_string()) {
            *least += 1;
            *most += 1;
        }
        let (method, params) = self.request();
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            .to_string()
            .into_bytes()
    }

    fn large(&mut self) -> Vec<u8> {
        if self.huge < HUGE_LINES && self.rng.one_in(20) {
            self.huge += 1;
            self.expected.no_id += 1;
            return vec![b'['; 10 << 20];
        }
        let id = self.id(false);
        let (open, close) = ("[".repeat(5_000), "]".repeat(5_000));
        let pad = "\\u00e9".repeat(self.rng.within(0..3_000));
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{pad}","arguments":{{"a":{open}{close}}}}}}}"#)
            .into_bytes()
    }
}

/// The actual output.
#[derive(Default)]
struct Answers {
    /// Number of answers per id, on their own and in arrays.
    ids: HashMap<String, (usize, usize)>,
    no_id: usize,
    no_id_in_batch: usize,
    notifications: usize,
    lines: usize,
}

impl Answers {
    /// Records a message.
    fn take(&mut self, message: &Value) {
        self.lines += 1;
        match message {
            Value::Array(items) => items.iter().for_each(|item| self.answer(item, true)),
            one if one.get("method").is_some() => {
                assert!(
                    one.get("id").is_none() && one["params"].is_object(),
                    "{one}"
                );
                let method = one["method"].as_str().unwrap_or_default();
                assert!(method.starts_with("notifications/"), "{one}");
                self.notifications += 1;
            }
            one => self.answer(one, false),
        }
    }

    fn answer(&mut self, answer: &Value, in_batch: bool) {
        let error = &answer["error"];
        assert!(
            answer["result"].is_object() != error.is_object(),
            "{answer}"
        );
        if error.is_object() {
            let known = [
                -32700, -32600, -32601, -32602, -32603, -32002, -32021, -32022,
            ];
            assert!(known.map(Value::from).contains(&error["code"]), "{answer}");
            assert_ne!(
                error["message"].as_str().unwrap_or_default(),
                "",
                "{answer}"
            );
        }
        match answer.get("id") {
            None | Some(Value::Null) if in_batch => self.no_id_in_batch += 1,
            None | Some(Value::Null) => self.no_id += 1,
            Some(id) => {
                assert!(id.is_string() || id.is_i64() || id.is_u64(), "{answer}");
                let count = self.ids.entry(id.to_string()).or_default();
                *(if in_batch { &mut count.1 } else { &mut count.0 }) += 1;
            }
        }
    }

    /// Number of answers still due.
    fn due(&self, expected: &Expected) -> usize {
        let due = expected
            .ids
            .iter()
            .filter(|(id, _)| !expected.listens.contains(*id))
            .map(|(id, (least, _, in_batch))| {
                let (alone, together) = self.ids.get(id).copied().unwrap_or_default();
                least.saturating_sub(if *in_batch { together } else { alone })
            });
        due.sum::<usize>() + expected.no_id.saturating_sub(self.no_id)
    }

    fn judge(&self, expected: &Expected) {
        let mut unknown = 0;
        for (id, (alone, together)) in &self.ids {
            match expected.ids.get(id) {
                Some((least, most, in_batch)) => {
                    let (right, wrong) = if *in_batch {
                        (together, alone)
                    } else {
                        (alone, together)
                    };
                    assert!(
                        (least..=most).contains(&right) && *wrong == 0,
                        "{id}: {least} to {most} answers, not {right}, {wrong}"
                    );
                }
                None => unknown += alone + together,
            }
        }
        for (id, (least, ..)) in &expected.ids {
            assert!(
                *least == 0 || self.ids.contains_key(id),
                "{id} was never answered"
            );
        }
        assert!(
            self.no_id >= expected.no_id,
            "{} errors without an id, not {}",
            self.no_id,
            expected.no_id
        );
        let beyond = unknown + self.no_id - expected.no_id;
        assert!(
            beyond <= expected.mutants,
            "{beyond} answers nobody asked for, {} changed lines",
            expected.mutants
        );
        assert_eq!(
            self.no_id_in_batch, expected.no_id_in_batch,
            "errors without an id in arrays"
        );
    }
}

#[test]
fn hostile_lines_are_answered_once_each_and_never_end_the_pipe() {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.trim().parse().ok())
            .unwrap_or(default)
    };
    let (count, seed) = (
        number("FABRIC_MCP_FUZZ_CASES", 5_000),
        number("FABRIC_MCP_FUZZ_SEED", 1),
    );
    eprintln!("{count} lines: FABRIC_MCP_FUZZ_CASES={count} FABRIC_MCP_FUZZ_SEED={seed}");
    let mut client = Stdio::start(Program::new(["--demo", "--log-level", "error"]));
    let mut stdin = client.process.stdin.take().unwrap();
    let writing = thread::spawn(move || {
        let mut generator = Generator::new(Rng::new(seed));
        for _ in 0..count {
            let mut line = generator.line();
            line.extend_from_slice(b"\n");
            // A broken pipe means that the server has ended, which the reader reports better.
            if stdin.write_all(&line).is_err() {
                break;
            }
        }
        let _ = stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"the end\",\"method\":\"ping\"}\n");
        // The input stays open until everything is answered.
        (generator.expected, stdin)
    });
    let mut answers = Answers::default();
    while !answers.ids.contains_key("\"the end\"") {
        answers.take(&client.recv());
    }
    let (mut expected, stdin) = writing.join().expect("the writer");
    expected.ids.insert("\"the end\"".into(), (1, 1, false));
    while answers.due(&expected) > 0 {
        answers.take(&client.recv());
    }
    drop(stdin);
    client
        .rest()
        .iter()
        .for_each(|message| answers.take(message));
    answers.judge(&expected);
    assert!(client.wait_exit(DEADLINE).success());
    assert!(!client.stderr().contains("panic"), "{}", client.stderr());
    eprintln!(
        "{} lines back: {} ids, {} errors without one, {} notifications; {} changed lines",
        answers.lines,
        answers.ids.len(),
        answers.no_id,
        answers.notifications,
        expected.mutants
    );
}
