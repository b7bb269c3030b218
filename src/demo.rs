//! A Fabric of our own for `--demo`: everything works with it on a machine that has no Fabric and no network.
//!
//! In scope: the routes this program calls, in the shapes a current Fabric answers, with patterns written for it and a
//! model that makes no call but streams back the prompt it would have been sent. Not in scope: the rest of Fabric, such
//! as plugins in templates, sessions that are kept, and its API key.

use std::fmt::Write;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::config::HttpLimits;
use crate::http::{Exchange, Handler, Method, Server};
use crate::text::percent_decode;

/// The model used when a run names none: a word every [`WORD_PAUSE`], so that a person sees it stream.
const DRY_RUN: &str = "demo-dry-run";
/// The same without pauses.
const INSTANT: &str = "demo-instant";
/// The only vendor.
const VENDOR: &str = "Demo";
/// Between two words of [`DRY_RUN`].
const WORD_PAUSE: Duration = Duration::from_millis(15);

const PATTERNS: [(&str, &str); 8] = [
    ("create_diagram", include_str!("demo/patterns/create_diagram.md")),
    ("explain_code", include_str!("demo/patterns/explain_code.md")),
    ("extract_action_items", include_str!("demo/patterns/extract_action_items.md")),
    ("improve_writing", include_str!("demo/patterns/improve_writing.md")),
    ("review_design", include_str!("demo/patterns/review_design.md")),
    ("summarize", include_str!("demo/patterns/summarize.md")),
    ("translate", include_str!("demo/patterns/translate.md")),
    ("write_commit_message", include_str!("demo/patterns/write_commit_message.md")),
];

const STRATEGIES: [Strategy; 3] = [
    Strategy {
        name: "cot",
        description: "Reason in steps before answering",
        prompt: "Work through the task in small steps, each building on the one before, and only then give the result.",
    },
    Strategy {
        name: "self-refine",
        description: "Draft, criticise, improve",
        prompt: "Write a first version, list its weaknesses to yourself, and give only the version that mends them.",
    },
    Strategy {
        name: "tot",
        description: "Compare several lines of thought",
        prompt: "Sketch three different ways to approach the task, judge each, and follow the best to its end.",
    },
];

/// Names and texts of contexts.
const CONTEXTS: [(&str, &str); 1] = [("plain_english", "Write plain English for readers who are not native speakers.")];

/// What `/config` shows: made up, and safe to see redacted. Empty means not set.
const CONFIG: [(&str, &str); 11] = [
    ("anthropic", "demo-key-that-opens-nothing-0001"),
    ("deepseek", ""),
    ("gemini", ""),
    ("grokai", ""),
    ("groq", ""),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("mistral", ""),
    ("ollama", "http://127.0.0.1:11434"),
    ("openai", "demo-key-that-opens-nothing-0002"),
    ("openrouter", ""),
    ("silicon", ""),
];

/// The built-in Fabric. It ends when this is dropped.
pub(crate) struct Demo {
    url: String,
    _server: Server,
}

impl Demo {
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Starts it on a free port of the loopback interface. Fails only where no socket or thread can be had.
pub(crate) fn start() -> io::Result<Demo> {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0), HttpLimits::default())?;
    server.serve(Arc::new(Fabric))?;
    Ok(Demo { url: format!("http://{}", server.local_addr()), _server: server })
}

#[derive(Serialize)]
struct Strategy {
    name: &'static str,
    description: &'static str,
    prompt: &'static str,
}

/// Fabric writes the fields of a pattern in upper case.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Pattern<'a> {
    name: &'a str,
    description: &'a str,
    pattern: &'a str,
}

/// [`CONFIG`] as an object.
struct Config;

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(CONFIG)
    }
}

/// One entry of the `prompts` of a run.
struct Prompt<'a>(&'a Value);

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Event<'a> {
    Content { format: &'a str, content: &'a str },
    Usage { usage: Usage },
    Error { format: &'a str, content: &'a str },
    Complete { format: &'a str },
}

#[derive(Serialize)]
struct Usage {
    input_tokens: usize,
    output_tokens: usize,
    total_tokens: usize,
}

struct Fabric;

impl Handler for Fabric {
    fn handle(&self, exchange: Exchange<'_>) {
        let head = exchange.head();
        let parts: Vec<&str> = head.path().trim_start_matches('/').split('/').collect();
        match (head.method(), parts.as_slice()) {
            (Method::Get, ["patterns", "names"]) => json(exchange, 200, &PATTERNS.map(|(name, _)| name)),
            (Method::Get, ["patterns", name]) => raw_pattern(exchange, name),
            (Method::Post, ["patterns", name, "apply"]) => applied_pattern(exchange, name),
            (Method::Get, ["models", "names"]) => {
                json(exchange, 200, &json!({"models": [DRY_RUN, INSTANT], "vendors": {VENDOR: [DRY_RUN, INSTANT]}}));
            }
            (Method::Get, ["strategies"]) => json(exchange, 200, &STRATEGIES),
            (Method::Get, ["config"]) => json(exchange, 200, &Config),
            (Method::Get, ["contexts", "names"]) => json(exchange, 200, &CONTEXTS.map(|(name, _)| name)),
            (Method::Get, ["sessions", "names"]) => json(exchange, 200, &[(); 0]),
            (Method::Post, ["chat"]) => chat(exchange),
            _ => exchange.respond(404, &[("Content-Type", "text/plain")], b"404 page not found"),
        }
    }
}

fn json(exchange: Exchange<'_>, status: u16, value: &impl Serialize) {
    let body = serde_json::to_vec(value).unwrap_or_default();
    exchange.respond(status, &[("Content-Type", "application/json; charset=utf-8")], &body);
}

fn bad_request(exchange: Exchange<'_>, why: &str) {
    json(exchange, 400, &json!({ "error": why }));
}

fn raw_pattern(exchange: Exchange<'_>, encoded: &str) {
    let name = percent_decode(encoded).unwrap_or_default();
    match pattern(&name) {
        Ok(pattern) => json(exchange, 200, &Pattern { name: &name, description: "", pattern }),
        Err(message) => json(exchange, 500, &message),
    }
}

fn applied_pattern(mut exchange: Exchange<'_>, encoded: &str) {
    let name = percent_decode(encoded).unwrap_or_default();
    let Some(body) = body(&mut exchange) else { return bad_request(exchange, "EOF") };
    let asked: Value = match serde_json::from_str(&body) {
        Ok(asked) => asked,
        Err(e) => return bad_request(exchange, &e.to_string()),
    };
    match pattern(&name).and_then(|text| fill_in(text, &asked["variables"], field(&asked, "input"))) {
        Ok(pattern) => json(exchange, 200, &Pattern { name: &name, description: "", pattern: &pattern }),
        Err(message) => json(exchange, 500, &message),
    }
}

/// A body that cannot be read is treated as an empty one, which is no JSON either.
fn body(exchange: &mut Exchange<'_>) -> Option<String> {
    String::from_utf8(exchange.read_body().ok()?.to_vec()).ok()
}

fn chat(mut exchange: Exchange<'_>) {
    let body = body(&mut exchange).unwrap_or_default();
    let chat: Value = match serde_json::from_str(&body) {
        Ok(chat) => chat,
        Err(e) => return bad_request(exchange, &format!("invalid request format: {e}")),
    };
    let mut stream = exchange.stream(&[
        ("Content-Type", "text/readystream"),
        ("Cache-Control", "no-cache"),
        ("X-Accel-Buffering", "no"),
    ]);
    let mut send = |event: Event<'_>| stream.event(&serde_json::to_vec(&event).unwrap_or_default());
    for prompt in chat["prompts"].as_array().into_iter().flatten().map(Prompt) {
        let sent = match prompt.text(field(&chat, "language")) {
            Ok(text) => answer(&text, prompt.pause(), &mut send),
            Err(message) => send(Event::Error { format: "plain", content: &format!("Error: {message}") }),
        };
        // A failed write means that the caller left: Fabric, too, then drops the run.
        if sent.and_then(|()| send(Event::Complete { format: "plain" })).is_err() {
            return;
        }
    }
    let _ = stream.finish();
}

/// A field that holds a text; empty if there is none.
fn field<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// The model: word after word of what it was sent, then what that would have cost.
fn answer(text: &str, pause: Duration, send: &mut impl FnMut(Event<'_>) -> io::Result<()>) -> io::Result<()> {
    let format = if text.starts_with("flowchart") { "mermaid" } else { "markdown" };
    let mut words = 0;
    for content in text.split_inclusive([' ', '\n']) {
        if words > 0 && !pause.is_zero() {
            std::thread::sleep(pause);
        }
        words += 1;
        send(Event::Content { format, content })?;
    }
    let input = text.split_whitespace().count();
    send(Event::Usage { usage: Usage { input_tokens: input, output_tokens: words, total_tokens: input + words } })
}

impl<'a> Prompt<'a> {
    fn field(&self, name: &str) -> &'a str {
        field(self.0, name)
    }

    fn pause(&self) -> Duration {
        if self.field("model").eq_ignore_ascii_case(INSTANT) { Duration::ZERO } else { WORD_PAUSE }
    }

    /// What a model would be sent: strategy, context, pattern, input, and the language to answer in. Errors are worded
    /// as Fabric words them.
    fn text(&self, language: &str) -> Result<String, String> {
        let (vendor, model) = (self.field("vendor"), self.field("model"));
        let known = ["", DRY_RUN, INSTANT].iter().any(|known| known.eq_ignore_ascii_case(model));
        if !["", VENDOR].iter().any(|known| known.eq_ignore_ascii_case(vendor)) {
            let model = if model.is_empty() { DRY_RUN } else { model };
            return Err(format!("model {model} not available for vendor {vendor}"));
        }
        if !known {
            let defaults = format!("Default Model = {DRY_RUN}\n Default Vendor = {VENDOR}.");
            return Err(format!(" Requested Model = {model}\n {defaults}\n\ncould not find vendor"));
        }
        let (context, strategy, input) =
            (self.field("contextName"), self.field("strategyName"), self.field("userInput"));
        let context = match CONTEXTS.iter().find(|(name, _)| *name == context) {
            Some((_, text)) => text,
            None if context.is_empty() => "",
            None => return Err(format!("could not find context {context}: could not load {context}")),
        };
        let pattern = match self.field("patternName") {
            "" => input.to_owned(),
            name => pattern(name)
                .and_then(|text| fill_in(text, &self.0["variables"], input))
                .map_err(|e| format!("could not get pattern {name}: {e}"))?,
        };
        let strategy = match STRATEGIES.iter().find(|known| known.name == strategy) {
            Some(strategy) => strategy.prompt,
            None if strategy.is_empty() => "",
            None => return Err(format!("could not load strategy {strategy}: strategy {strategy} not found")),
        };
        let sections = [strategy, context, &pattern].map(str::trim);
        let mut text = sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
        if !["", "en"].contains(&language) {
            let _ = write!(text, "\n\nIMPORTANT: Give the whole answer in this language: {language}");
        }
        if text.is_empty() { Err("no session, pattern or user messages provided".to_owned()) } else { Ok(text) }
    }
}

/// The text of a pattern, or Fabric's words for not having it.
fn pattern(name: &str) -> Result<&'static str, String> {
    let found = PATTERNS.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, text)| *text)
        .ok_or_else(|| format!("pattern '{name}' not found. Run 'fabric -l' to see available patterns"))
}

/// Fills in `{{input}}` and `{{variable}}`. The first variable without a value is the error. Values are not looked at
/// again, so braces in an input stay what they are.
fn fill_in(pattern: &str, variables: &Value, input: &str) -> Result<String, String> {
    let mut filled = String::with_capacity(pattern.len() + input.len());
    let mut rest = pattern;
    while let Some((before, name, after)) = placeholder(rest) {
        filled.push_str(before);
        match name {
            "input" => filled.push_str(input),
            _ => filled.push_str(variables[name].as_str().ok_or_else(|| format!("missing required variable: {name}"))?),
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Splits `text` at its first `{{name}}`.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write as _};
    use std::net::TcpStream;

    /// Sends a request and gives the status, the head and the body, whose chunks are joined.
    fn ask(demo: &Demo, line: &str, body: &str) -> (u16, String, String) {
        let mut client = TcpStream::connect(demo.url().strip_prefix("http://").unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = body.len();
        write!(client, "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = if head.contains("chunked") { joined(body) } else { body.to_owned() };
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

    fn run(demo: &Demo, prompt: Value) -> String {
        let body = json!({"prompts": [prompt], "language": "", "temperature": 0.7, "topP": 0.9, "search": false});
        let (status, head, body) = ask(demo, "POST /chat", &body.to_string());
        assert!(status == 200 && head.contains("\r\nContent-Type: text/readystream\r\n"), "{head}");
        body
    }

    #[test]
    fn every_route_has_fabrics_shape() {
        let demo = start().unwrap();
        let not_found = r#""pattern 'nope' not found. Run 'fabric -l' to see available patterns""#;
        let missing = r#""missing required variable: lang_code""#;
        for (line, body, status, starts) in [
            ("GET /patterns/names", "", 200, r#"["create_diagram","explain_code","extract_action_items","#),
            (
                "GET /patterns/summarize",
                "",
                200,
                r##"{"Name":"summarize","Description":"","Pattern":"# IDENTITY and PU"##,
            ),
            ("GET /patterns/summ%61rize", "", 200, r#"{"Name":"summarize""#),
            ("GET /patterns/nope", "", 500, not_found),
            ("POST /patterns/nope/apply", "{}", 500, not_found),
            ("POST /patterns/translate/apply", r#"{"input":"x"}"#, 500, missing),
            ("POST /patterns/translate/apply", "nonsense", 400, r#"{"error":""#),
            ("GET /models/names", "", 200, r#"{"models":["demo-dry-run","demo-instant"],"vendors":{"Demo":["demo-dry"#),
            ("GET /strategies", "", 200, r#"[{"name":"cot","description":"Reason in steps before answering","prompt""#),
            ("GET /config", "", 200, r#"{"anthropic":"demo-key-that-opens-nothing-0001","deepseek":"","#),
            ("GET /contexts/names", "", 200, r#"["plain_english"]"#),
            ("GET /sessions/names", "", 200, "[]"),
            ("POST /chat", "nonsense", 400, r#"{"error":"invalid request format: "#),
            ("GET /chat", "", 404, "404 page not found"),
            ("GET /", "", 404, "404 page not found"),
        ] {
            let (got, _, answer) = ask(&demo, line, body);
            assert!(got == status && answer.starts_with(starts), "{line}: {got} {answer}");
        }
    }

    #[test]
    fn apply_fills_in_variables_and_input_but_not_the_inputs_own_braces() {
        let demo = start().unwrap();
        let body = r#"{"input":"a {{lang_code}} b","variables":{"lang_code":"de"}}"#;
        let (_, _, answer) = ask(&demo, "POST /patterns/translate/apply", body);
        assert!(answer.contains("the target language, de.") && answer.contains("a {{lang_code}} b"), "{answer}");
    }

    #[test]
    fn a_run_streams_the_prompt_back_word_by_word() {
        let demo = start().unwrap();
        let body = run(&demo, json!({"model": INSTANT, "userInput": "one two\nthree"}));
        assert_eq!(
            body,
            "data: {\"type\":\"content\",\"format\":\"markdown\",\"content\":\"one \"}\n\n\
             data: {\"type\":\"content\",\"format\":\"markdown\",\"content\":\"two\\n\"}\n\n\
             data: {\"type\":\"content\",\"format\":\"markdown\",\"content\":\"three\"}\n\n\
             data: {\"type\":\"usage\",\"usage\":{\"input_tokens\":3,\"output_tokens\":3,\"total_tokens\":6}}\n\n\
             data: {\"type\":\"complete\",\"format\":\"plain\"}\n\n"
        );
        let whole = json!({"model": INSTANT, "vendor": "demo", "userInput": "Hallo {{x}}", "patternName": "translate",
            "strategyName": "cot", "contextName": "plain_english", "variables": {"lang_code": "fr"}});
        let text: String = run(&demo, whole)
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok())
            .filter_map(|event| event["content"].as_str().map(str::to_owned))
            .collect();
        let order = [STRATEGIES[0].prompt, CONTEXTS[0].1, "# IDENTITY and PURPOSE", "into fr only", "Hallo {{x}}"];
        let places: Vec<_> = order.iter().map(|part| text.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn failures_are_events_in_fabrics_words() {
        let demo = start().unwrap();
        for (prompt, message) in [
            (
                json!({"patternName": "translate"}),
                "could not get pattern translate: missing required variable: lang_code",
            ),
            (
                json!({"patternName": "nope"}),
                "could not get pattern nope: pattern 'nope' not found. Run 'fabric -l' to",
            ),
            (
                json!({"userInput": "x", "strategyName": "nope"}),
                "could not load strategy nope: strategy nope not found",
            ),
            (json!({"userInput": "x", "contextName": "nope"}), "could not find context nope: could not load nope"),
            (json!({"userInput": "x", "model": "nope"}), " Requested Model = nope\\n Default Model = demo-dry-run\\n"),
            (json!({"userInput": "x", "vendor": "nope"}), "model demo-dry-run not available for vendor nope"),
            (json!({}), "no session, pattern or user messages provided"),
        ] {
            let body = run(&demo, prompt);
            let start = format!("data: {{\"type\":\"error\",\"format\":\"plain\",\"content\":\"Error: {message}");
            assert!(body.starts_with(&start), "{body}");
            assert!(body.ends_with("}\n\ndata: {\"type\":\"complete\",\"format\":\"plain\"}\n\n"), "{body}");
        }
    }

    #[test]
    fn every_pattern_is_complete_and_sorted() {
        assert!(PATTERNS.map(|(name, _)| name).is_sorted());
        for (name, text) in PATTERNS {
            for part in ["# IDENTITY and PURPOSE\n", "# STEPS\n", "# OUTPUT INSTRUCTIONS\n", "# INPUT\n\n{{input}}\n"] {
                assert!(text.contains(part), "{name} has no {part}");
            }
        }
    }
}
