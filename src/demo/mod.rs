//! The Fabric built into this program: behind `--demo` an HTTP server, which needs no network, and behind
//! `--patterns-dir` folders, without any server (`folders`).
//!
//! In scope: the routes this program calls, in the format of a current Fabric. The demo has patterns of its own, and its
//! "model" echoes the prompt that a real model gets. Not in scope: template plugins, stored sessions, API keys.

mod folders;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::Accounts;
use crate::config::{DEFAULT_MEMORY, HttpLimits};
use crate::encoding::json::decode;
use crate::encoding::percent::percent_decode;
use crate::fabric::{BuiltInFabric, Error, Kind, Strategy, template};
use crate::http::{Exchange, HttpServer, listen};

pub(crate) use folders::Folders;

/// What is said before the output of a run.
pub(crate) const NOTE: &str =
    "This is the demo: it calls no model, and shows the prompt that a model would be sent.";

/// The only model: one word per [`WORD_PAUSE`], to show streaming.
const DRY_RUN: &str = "demo-dry-run";
/// The only vendor.
const VENDOR: &str = "Demo";
/// Pause between two words of [`DRY_RUN`].
const WORD_PAUSE: Duration = Duration::from_millis(15);

/// A pattern whose file is called after it.
macro_rules! pattern {
    ($name:literal) => {
        ($name, include_str!(concat!("patterns/", $name, ".md")))
    };
}

const PATTERNS: [(&str, &str); 8] = [
    pattern!("create_diagram"),
    pattern!("explain_code"),
    pattern!("extract_action_items"),
    pattern!("improve_writing"),
    pattern!("review_design"),
    pattern!("summarize"),
    pattern!("translate"),
    pattern!("write_commit_message"),
];

/// The response of `/strategies`.
const STRATEGIES: &str = include_str!("strategies.json");
/// The response of `/config`, with made-up keys. Empty means not set.
const CONFIG: &str = include_str!("config.json");
/// The only transcript, for every video: a line is a time in brackets and a sentence.
const TRANSCRIPT: &str = include_str!("transcript.txt");
/// The name of the only context, and its text.
const CONTEXT: [&str; 2] = [
    "plain_english",
    "Write plain English for readers who are not native speakers.",
];

/// Starts the demo on a free loopback port; dropping the server stops it.
pub(crate) fn start() -> io::Result<HttpServer> {
    let listener = listen((Ipv4Addr::LOCALHOST, 0))?;
    HttpServer::start(listener, HttpLimits::default(), Arc::new(handle))
}

/// Patterns and strategies.
trait Library: Send + Sync {
    /// The sorted names of the patterns.
    fn names(&self) -> Result<Vec<String>, Error>;
    /// The texts of a pattern: for the system, and the user's, which Fabric itself does not read.
    fn pattern(&self, name: &str) -> Option<(String, String)>;
    /// The strategies.
    fn strategies(&self) -> Vec<Strategy>;
}

impl<L: Library> BuiltInFabric for L {
    fn answer(&self, method: &str, path: &str, body: &[u8]) -> Result<Value, Error> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["patterns", "names"]) => Ok(json!(self.names()?)),
            ("GET", ["patterns", name]) => pattern_body(self, name, None),
            ("POST", ["patterns", name, "apply"]) => pattern_body(self, name, Some(&parsed(body))),
            ("GET", ["strategies"]) => Ok(json!(self.strategies())),
            _ => Err(Error::new(Kind::FabricInternal, "There is no such route.")),
        }
    }
}

/// The body for a pattern, rendered if `asked` has values for it; for an unknown one Fabric's message.
fn pattern_body(library: &dyn Library, name: &str, asked: Option<&Value>) -> Result<Value, Error> {
    let name = percent_decode(name).unwrap_or_default();
    let (mut text, user) = library.pattern(&name).ok_or_else(|| not_found(&name))?;
    if let Some(asked) = asked {
        text = render(&name, &text, asked, field(asked, "input"))?;
    }
    // Fabric capitalises these fields.
    let mut body = json!({"Name": name, "Description": "", "Pattern": text});
    if !user.is_empty() {
        body["user_prompt_template"] = user.into();
    }
    Ok(body)
}

fn not_found(name: &str) -> Error {
    let detail = format!("pattern '{name}' not found. Run 'fabric -l' to see available patterns");
    Error::new(Kind::FabricInternal, detail)
}

/// Puts in the input, and the `variables` that were `asked` for.
fn render(name: &str, text: &str, asked: &Value, input: &str) -> Result<String, Error> {
    let given = serde_json::from_value(asked["variables"].clone());
    template::rendered(name, text, &given.unwrap_or_default(), input)
}

/// What the demo has.
struct Included;

impl Library for Included {
    fn names(&self) -> Result<Vec<String>, Error> {
        Ok(PATTERNS.map(|(name, _)| name.to_owned()).into())
    }

    fn pattern(&self, name: &str) -> Option<(String, String)> {
        let found = PATTERNS.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| ((*text).to_owned(), String::new()))
    }

    fn strategies(&self) -> Vec<Strategy> {
        serde_json::from_str(STRATEGIES).expect("a test asks for them")
    }
}

/// Fabric's routes.
fn handle(mut exchange: Exchange<'_>) {
    let account = Accounts::alone(DEFAULT_MEMORY).of("");
    let body = exchange.read_body(&account);
    let body = body.map_or_else(|_| Vec::new(), |body| body.bytes);
    let head = exchange.head;
    let answer = match (head.method.as_str(), head.path()) {
        ("POST", "/chat") => return drop(chat(exchange, &parsed(&body))),
        ("GET", "/models/names") => {
            let models = [DRY_RUN];
            Ok(json!({"models": models, "vendors": {VENDOR: models}}))
        }
        ("GET", "/config") => Ok(parsed(CONFIG.as_bytes())),
        ("GET", "/contexts/names") => Ok(json!([CONTEXT[0]])),
        ("GET", "/sessions/names") => Ok(json!([])),
        ("POST", "/youtube/transcript") => Ok(transcript(&parsed(&body))),
        (method, path) => Included.answer(method, path, &body),
    };
    let (status, json) = match answer {
        Ok(json) => (200, json),
        Err(error) => (500, error.detail.into()),
    };
    let headers = [("Content-Type", "application/json; charset=utf-8")];
    exchange.respond(status, &headers, &[json.to_string().as_bytes()]);
}

/// The body of a request; null if there is none.
fn parsed(body: &[u8]) -> Value {
    decode(body).unwrap_or_default()
}

/// Runs one prompt: streams its text word by word, then the token counts.
///
/// # Errors
/// The caller disconnected, which like in Fabric ends the run.
fn chat(mut exchange: Exchange<'_>, chat: &Value) -> io::Result<()> {
    let mut stream = exchange.responder();
    let mut send = |event: Value| stream.event(&[event.to_string().as_bytes()]);
    let prompt = &chat["prompts"][0];
    match prompt_text(prompt, field(chat, "language")) {
        Ok(text) => {
            let mut words = 0;
            for content in text.split_inclusive([' ', '\n']) {
                send(json!({"type": "content", "format": "markdown", "content": content}))?;
                words += 1;
                std::thread::sleep(WORD_PAUSE);
            }
            let input = text.split_whitespace().count();
            let total = input + words;
            let usage =
                json!({"input_tokens": input, "output_tokens": words, "total_tokens": total});
            send(json!({"type": "usage", "usage": usage}))?;
        }
        Err(message) => {
            let content = format!("Error: {message}");
            send(json!({"type": "error", "format": "plain", "content": content}))?;
        }
    }
    send(json!({"type": "complete", "format": "plain"}))?;
    stream.end();
    Ok(())
}

/// The transcript, which is the same for every video.
fn transcript(asked: &Value) -> Value {
    let has_times = asked["timestamps"] == true;
    let lines = TRANSCRIPT.lines().map(|line| match line.split_once("] ") {
        Some((_, sentence)) if !has_times => sentence,
        _ => line,
    });
    let between = if has_times { "\n" } else { " " };
    let text = Vec::from_iter(lines).join(between);
    json!({
        "transcript": text,
        "title": "What broke on Friday",
        "description": "A made-up video: the demo asks nobody for transcripts.",
    })
}

/// A string field; empty if there is none.
fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// What a model would be sent, whatever its name: strategy, context, pattern with input, and the language to answer in.
/// Errors have Fabric's wording; a context or strategy that is not listed is refused before a run.
fn prompt_text(prompt: &Value, language: &str) -> Result<String, String> {
    let (context, strategy) = (field(prompt, "contextName"), field(prompt, "strategyName"));
    let name = field(prompt, "patternName");
    let pattern = Included
        .pattern(name)
        .ok_or_else(|| not_found(name))
        .and_then(|(text, _)| render(name, &text, prompt, field(prompt, "userInput")))
        .map_err(|e| format!("could not get pattern {name}: {}", e.detail))?;
    let mut strategies = Included.strategies().into_iter();
    let strategy = strategies.find(|known| known.name == strategy);
    let mut text = strategy.map_or(String::new(), |known| format!("{}\n", known.prompt));
    if context == CONTEXT[0] {
        text += &format!("{}\n", CONTEXT[1]);
    }
    text += pattern.trim();
    if !["", "en"].contains(&language) {
        text += &format!("\n\nIMPORTANT: Give the whole answer in this language: {language}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Route;
    use std::io::{Read, Write as _};
    use std::net::TcpStream;

    /// Sends a request; returns status, head, and body with its chunks joined.
    fn ask(demo: &HttpServer, line: &str, body: &str) -> (u16, String, String) {
        let mut client = TcpStream::connect(demo.address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let length = body.len();
        write!(client, "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.contains("chunked");
        let body = if is_chunked {
            joined(body)
        } else {
            body.to_owned()
        };
        (head[9..12].parse().unwrap(), head.to_owned(), body)
    }

    fn joined(mut chunks: &str) -> String {
        let mut body = String::new();
        loop {
            let (size, rest) = chunks.split_once("\r\n").unwrap();
            let (chunk, rest) = rest.split_at(usize::from_str_radix(size, 16).unwrap());
            body.push_str(chunk);
            chunks = rest.strip_prefix("\r\n").unwrap();
            if chunk.is_empty() {
                assert_eq!(chunks, "");
                return body;
            }
        }
    }

    fn run(demo: &HttpServer, prompt: Value) -> String {
        let body = json!({"prompts": [prompt], "language": "", "temperature": 0.7, "topP": 0.9, "search": false});
        let (status, head, body) = ask(demo, "POST /chat", &body.to_string());
        assert_eq!(status, 200, "{head}");
        assert!(head.contains("\r\nContent-Type: text/event-stream\r\n"));
        body
    }

    #[test]
    fn every_route_has_fabrics_shape() {
        let demo = start().unwrap();
        // A request and its body, then the status and how the answer begins. Events are in one line.
        let cases = r##"
GET /patterns/names => 200 ["create_diagram","explain_code","extract_action_items",
GET /patterns/summarize => 200 {"Description":"","Name":"summarize","Pattern":"# IDENTITY and PU
GET /patterns/summ%61rize => 200 {"Description":"","Name":"summarize"
GET /patterns/nope => 500 "pattern 'nope' not found. Run 'fabric -l' to see available patterns"
POST /patterns/nope/apply {} => 500 "pattern 'nope' not found.
POST /patterns/translate/apply {"input":"x"} => 500 "missing required variable: lang_code"
GET /models/names => 200 {"models":["demo-dry-run"],"vendors":{"Demo":["demo-dry
GET /strategies => 200 [{"description":"Reason in steps before answering","name":"cot","prompt"
GET /config => 200 {"anthropic":"demo-key-that-opens-nothing-0001","deepseek":"",
GET /contexts/names => 200 ["plain_english"]
GET /sessions/names => 200 []
POST /youtube/transcript {"url":"https://www.youtube.com/watch?v=x"} => 200 {"description":"A made-up video
POST /chat {"prompts":[{"patternName":"translate"}]} => 200 data: {"content":"Error: could not get pattern translate: missing required variable: lang_code","format":"plain","type":"error"} data: {"format":"plain","type":"complete"}
POST /chat {"prompts":[{"patternName":"nope"}]} => 200 data: {"content":"Error: could not get pattern nope: pattern 'nope' not found. Run 'fabric -l' to see available patterns","format":"plain","type":"error"} data: {"format":"plain","type":"complete"}
"##;
        for route in Route::ALL {
            let line = route.line().replace("{name}", "summarize");
            let (status, _, answer) = ask(&demo, &line, "{}");
            assert_eq!(
                status, 200,
                "src/demo/mod.rs has no answer to {line}: {answer}"
            );
        }
        for case in cases.trim_start().lines() {
            let (request, expected) = case.split_once(" => ").unwrap();
            let (status, starts) = expected.split_once(' ').unwrap();
            let mut words = request.splitn(3, ' ');
            let line = format!("{} {}", words.next().unwrap(), words.next().unwrap());
            let (line, body) = (line.as_str(), words.next().unwrap_or_default());
            let status: u16 = status.parse().unwrap();
            let (got, _, answer) = ask(&demo, line, body);
            let answer = answer.replace("\n\n", " ");
            assert_eq!(got, status, "{line}: {answer}");
            assert!(answer.starts_with(starts), "{line}: {answer}");
        }
    }

    #[test]
    fn apply_fills_in_variables_and_input_but_not_the_inputs_own_braces() {
        let demo = start().unwrap();
        let body = r#"{"input":"a {{lang_code}} b","variables":{"lang_code":"de"}}"#;
        let (_, _, answer) = ask(&demo, "POST /patterns/translate/apply", body);
        for part in ["the target language, de.", "a {{lang_code}} b"] {
            assert!(answer.contains(part), "{answer}");
        }
    }

    #[test]
    fn a_run_streams_the_prompt_back_word_by_word() {
        let demo = start().unwrap();
        let prompt =
            json!({"model": DRY_RUN, "userInput": "one two\nthree", "patternName": "summarize"});
        let body = run(&demo, prompt);
        let words = "data: {\"content\":\"one \",\"format\":\"markdown\",\"type\":\"content\"}\n\n\
             data: {\"content\":\"two\\n\",\"format\":\"markdown\",\"type\":\"content\"}\n\n\
             data: {\"content\":\"three\",\"format\":\"markdown\",\"type\":\"content\"}\n\n\
             data: {\"type\":\"usage\",\"usage\":{\"input_tokens\":";
        assert!(body.contains(words), "{body}");
        let end = "}}\n\ndata: {\"format\":\"plain\",\"type\":\"complete\"}\n\n";
        assert!(body.ends_with(end), "{body}");
        let whole = json!({"model": DRY_RUN, "vendor": "demo", "userInput": "Hallo {{x}}", "patternName": "translate",
            "strategyName": "cot", "contextName": "plain_english", "variables": {"lang_code": "fr"}});
        let text: String = run(&demo, whole)
            .lines()
            .filter_map(|line| {
                serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok()
            })
            .filter_map(|event| event["content"].as_str().map(str::to_owned))
            .collect();
        let order = [
            "Work through the task in small steps",
            CONTEXT[1],
            "# IDENTITY and PURPOSE",
            "into fr only",
            "Hallo {{x}}",
        ];
        let places = order.iter();
        let places: Vec<_> = places.map(|part| text.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn every_pattern_is_complete_and_sorted() {
        assert!(PATTERNS.map(|(name, _)| name).is_sorted());
        for (name, text) in PATTERNS {
            let all = "# IDENTITY and PURPOSE\n|# STEPS\n|# OUTPUT INSTRUCTIONS\n|\
                       # INPUT\n\n{{input}}\n";
            for part in all.split('|') {
                assert!(text.contains(part), "{name} has no {part}");
            }
            // Its description is this sentence, and one that is wrapped would be cut off.
            let purpose = text.lines().nth(2).unwrap_or_default();
            assert!(purpose.ends_with('.'), "{name}: {purpose}");
        }
    }
}
