//! Tests of the connection to Fabric: the log line at start, and `--check` with its report.
//!
//! In scope: the requests, their order, what the answers mean, and the report: text, written line by line, or one JSON
//! object whose keys never change their meaning. Not in scope: the words of problems (`error`). Nothing here starts a
//! run that costs money.

use std::env::consts::OS;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::cli::flags::get;
use crate::cli::start_flag;
use crate::clients::shell;
use crate::config::{self, BASE_URL, Config, MODEL_VARIABLE, Policy};
use crate::fabric::names::is_same;
use crate::fabric::{
    Cause, Chat, Client, Error, Event, Name, NameList, Observer, Process, Unobserved, not_found,
};
use crate::protocol::Revision;
use crate::server::Server;
use crate::sync::spawn;
use crate::text::{counted, for_terminal, wrapped};
use crate::url::base_url;

/// The pattern that is run with the demo, and its input.
const DEMO_PATTERN: &str = "write_commit_message";
const DEMO_INPUT: &str = "Retry a request to the cache twice before falling back to the database.";

/// The next step after problems, after success, and after the demo. `FLAG` is the one that leads to this
/// Fabric, if there is one, and `NAME` a pattern.
const FIX_FIRST: &str = "Next: fix the first problem above, and run the check again.\n";
const NEXT: &str = "Next: try a run, which this check leaves out because it may cost money:\n\
                    \x20 fabric-mcp FLAG--call fabric_run_pattern pattern_name=NAME < FILE\n\
                    Then fabric-mcp FLAG--install CLIENT adds the server to your assistant or\n\
                    editor; fabric-mcp --generate client-config lists the clients.\n";
const NEXT_AFTER_FOLDERS: &str = "Next: with the same --patterns-dir, fabric-mcp --install CLIENT adds these\n\
                                  patterns to your assistant or editor, whose own model then follows them.\n";
const NEXT_AFTER_DEMO: &str = "Next: fabric-mcp --demo --install CLIENT adds this demo to your assistant or\n\
                               editor; fabric-mcp --generate client-config lists the clients. Then start your\n\
                               own Fabric, and check it: fabric-mcp --check\n";

/// Looks through the kept runs, and logs whether Fabric answers, in the background, so that no client waits for it.
pub(crate) fn log_connection(server: &Arc<Server>) {
    let (client, runs) = (server.backend.fabric.clone(), server.backend.runs.clone());
    let otherwise = "the connection to Fabric is not tested";
    spawn("start-check", otherwise, move || {
        runs.sweep();
        if client.rests() {
            return log::info!("Fabric is started by the first call that needs it.");
        }
        let url = &client.settings.url;
        match client.names(Duration::ZERO, &unobserved()) {
            Ok(names) if !client.has_fabric() => {
                let patterns = counted(names.len(), "pattern");
                log::info!("Reading {patterns} from --patterns-dir, without any Fabric.");
            }
            Ok(names) if names.is_empty() => log::warn!("{}", Cause::NoPatterns.text()),
            Ok(_) => log::info!("Successfully connected to Fabric API at {url}."),
            Err(Error { detail, .. }) => {
                log::error!("Failed to connect to Fabric API at {url}. Details: {detail}");
            }
        }
    });
}

/// Runs `--check` and writes the report to stdout: line by line, or with `--json` as one object at the end. True unless there
/// are errors; warnings do not count.
///
/// # Errors
/// Those of stdout.
pub(crate) fn run(server: &Arc<Server>, config: &Config, access: &Access) -> io::Result<bool> {
    let mut out = io::stdout();
    let mut report = Report::new(config, &mut out);
    for warning in &config.warnings {
        report.found(Cause::Settings, &[("why", warning)]);
    }
    let client = &server.backend.fabric;
    let starts = client.process.as_ref();
    let reachable = starts.is_none_or(|process| start(process, &mut report))
        && ask_for_patterns(client, config, &mut report);
    if reachable {
        ask_for_the_rest(client, config, &mut report);
    }
    match access.oauth.as_ref().map(|oauth| oauth.probe()) {
        Some(Ok(works)) => report.line(true, "OAuth", &works),
        Some(Err(why)) => {
            report.line(false, "OAuth", "does not work");
            report.found(Cause::OAuthIssuer, &[("why", &why)]);
        }
        None => {}
    }
    report.protocol(config.policy.tools().count());
    if config.demo && reachable {
        run_demo(client, &mut report);
    }
    if starts.is_some() {
        report.problems.iter_mut().for_each(Error::say_of_own);
    }
    report.end()
}

/// Starts Fabric. True if it worked.
fn start(process: &Arc<Process>, report: &mut Report<'_>) -> bool {
    let asked = Instant::now();
    match process.ask(&Unobserved) {
        Ok(fabric) => {
            let (program, version) = (fabric.program.display(), &*fabric.version);
            let took = milliseconds(asked.elapsed());
            let text = format!("{program}, {version}, up in {took} ms");
            report.line(true, "program", &text);
            report.fabric("url", &*fabric.url);
            report.fabric("program", program.to_string());
            report.fabric("version", version);
            report.fabric("start_ms", took);
            true
        }
        Err(error) => {
            report.line(false, "program", "not started");
            let said = process.output();
            for line in &said {
                report.write(&format!("      {}\n", for_terminal(line)));
            }
            report.fabric("output", said);
            report.problems.push(error);
            false
        }
    }
}

/// Lists the patterns, which tests address, network and key. True if it worked.
fn ask_for_patterns(client: &Client, config: &Config, report: &mut Report<'_>) -> bool {
    let process = client.process.as_ref();
    let own = process.and_then(|process| process.running());
    let url = own.as_ref().map_or(&config.fabric.url, |own| &own.url);
    let asked = Instant::now();
    let names = match client.names(Duration::ZERO, &unobserved()) {
        Ok(names) => names,
        Err(error) => {
            let key = match error.cause {
                Some(Cause::KeyMissing) => MISSING,
                Some(Cause::KeyRefused | Cause::KeyPlaceholder) => REFUSED,
                _ => UNKNOWN,
            };
            if key == UNKNOWN {
                report.line(false, "address", &format!("no Fabric answers at {url}"));
            } else {
                report.address(&format!("{url} answers"));
                report.key(key);
            }
            report.problems.push(error);
            return false;
        }
    };
    let latency = milliseconds(asked.elapsed());
    report.fabric("latency_ms", latency);
    report.address(&format!("{url} answers in {latency} ms"));
    match own {
        // The start of this Fabric has shown that it requires its key.
        Some(_) => report.key(ACCEPTED),
        None if client.has_fabric() => report.key(key_status(config)),
        None => report.fabric("api_key", NOT_NEEDED.0),
    }
    report.count("patterns", names.len(), !names.is_empty());
    if names.contains("summarize") {
        report.next = report.next.replace("NAME", "summarize");
    }
    if names.is_empty() {
        report.found(Cause::NoPatterns, &[]);
    } else {
        report.unknown_patterns(&config.policy, &names);
    }
    true
}

/// Whether Fabric needs the key it accepted: asks again without it.
fn key_status(config: &Config) -> KeyStatus {
    if config.fabric.api_key.is_none() {
        return NOT_NEEDED;
    }
    let without = config::Fabric {
        api_key: None,
        ..config.fabric.clone()
    };
    match Client::new(&without).map(|client| client.names(Duration::ZERO, &unobserved())) {
        Ok(Ok(_)) => UNUSED,
        Ok(Err(error)) if error.cause == Some(Cause::KeyMissing) => ACCEPTED,
        _ => UNKNOWN,
    }
}

/// Sequentially: while Fabric answers another request, it may return an empty list of models.
fn ask_for_the_rest(client: &Client, config: &Config, report: &mut Report<'_>) {
    let wait = unobserved();
    // Folders have neither models nor a configuration.
    let has_fabric = client.has_fabric();
    match has_fabric.then(|| client.models(&wait)) {
        None => {}
        Some(Ok(models)) => {
            let vendors = models.vendors.values();
            let vendors = vendors.filter(|names| !names.is_empty()).count();
            let count = models.models.len();
            report.fabric("models", count);
            report.fabric("vendors", vendors);
            let text = format!("{count}, from {}", counted(vendors, "vendor"));
            report.line(count > 0, "models", &text);
            if count == 0 {
                report.found(Cause::NoModels, &[]);
            } else if !config.demo {
                report.default_model(&config.policy.default_model, &models.models);
            }
        }
        Some(Err(error)) => {
            report.line(false, "models", "cannot be listed");
            report.problems.push(error);
        }
    }
    match client.strategies(&wait) {
        Ok(strategies) => {
            let count = strategies.as_ref().map_or(0, Vec::len);
            report.count("strategies", count, true);
            if strategies.is_none() {
                report.found(Cause::NoStrategies, &[]);
            }
        }
        Err(error) => {
            report.line(false, "strategies", "cannot be listed");
            report.found_behind(Cause::StrategiesUnread, &error);
        }
    }
    match has_fabric.then(|| client.configuration(&wait)) {
        // The demo shows its made-up keys unmasked.
        Some(Ok(configuration)) if !config.demo && looks_old(&configuration) => {
            report.fabric("looks_old", true);
            report.found(Cause::OldFabric, &[]);
        }
        None | Some(Ok(_)) => {}
        Some(Err(error)) => report.found_behind(Cause::NoConfiguration, &error),
    }
}

/// Fabric's API does not return its version. Old versions have a setting that newer ones dropped, and show keys unmasked
/// (v1.4.300 does both, v1.4.470 neither).
fn looks_old(configuration: &Map<String, Value>) -> bool {
    let unmasked = |(name, value): (&String, &Value)| {
        let key = value.as_str().unwrap_or_default();
        // These hold an address, not a key.
        let is_address = matches!(name.as_str(), "ollama" | "lmstudio") || key.contains("://");
        key.len() > 4 && !is_address && !key.starts_with('*')
    };
    configuration.contains_key("anthropic_use_oauth_login") || configuration.iter().any(unmasked)
}

/// Streams a run of the demo, whose model costs nothing.
fn run_demo(client: &Client, report: &mut Report<'_>) {
    let head = format!(
        "A streamed run of the pattern {DEMO_PATTERN}. The demo's model only says what a real one would be sent:"
    );
    report.write(&format!("\n{}\n\n", wrapped(&head, 0)));
    let started = Instant::now();
    let (mut pieces, mut characters, mut first, mut begins) = (0, 0, None, true);
    let mut show = |event: Event| {
        if let Event::Content { content, .. } = event {
            first.get_or_insert_with(|| started.elapsed());
            pieces += 1;
            characters += content.chars().count();
            for line in content.split_inclusive('\n') {
                let indent = if begins && line != "\n" { "  " } else { "" };
                report.write(&format!("{indent}{line}"));
                begins = line.ends_with('\n');
            }
        }
        let is_read = report.written.is_ok();
        is_read.then_some(()).ok_or_else(Error::cancelled)
    };
    let ended = Name::parse("pattern_name", DEMO_PATTERN).and_then(|pattern| {
        let chat = Box::new(Chat::new(pattern, DEMO_INPUT.to_owned()));
        client.run(client.check(chat, &unobserved())?, &unobserved(), &mut show)
    });
    report.write("\n\n");
    let why = match ended {
        Err(error) => error.detail,
        Ok(()) if pieces < 2 => "its text did not stream".to_owned(),
        Ok(()) => {
            let [first, total] = [first.unwrap_or_default(), started.elapsed()].map(milliseconds);
            report.json["demo_run"] = json!({
                "pieces": pieces,
                "characters": characters,
                "first_piece_ms": first,
                "total_ms": total,
            });
            let text = format!("{pieces} pieces, first after {first} ms, last after {total} ms");
            return report.line(true, "streaming", &text);
        }
    };
    report.found(Cause::DemoRun, &[("why", why.trim_end_matches('.'))]);
}

fn unobserved() -> Observer {
    Arc::new(Unobserved)
}

/// To a hundredth.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}

/// How Fabric treats the key: its name in JSON, its words in the text, and whether that is good.
type KeyStatus = (&'static str, &'static str, bool);

const UNKNOWN: KeyStatus = ("unknown", "not known", true);
const NOT_NEEDED: KeyStatus = ("not-needed", "none set, none needed", true);
const ACCEPTED: KeyStatus = ("accepted", "accepted", true);
const UNUSED: KeyStatus = ("unused", "sent, but Fabric also answers without it", true);
const MISSING: KeyStatus = ("missing", "missing", false);
const REFUSED: KeyStatus = ("refused", "refused", false);

/// The report: its text goes out at once, JSON at the end.
struct Report<'a> {
    out: &'a mut dyn Write,
    is_json: bool,
    /// All but the problems.
    json: Value,
    /// In the order found.
    problems: Vec<Error>,
    /// What to do next if all is good.
    next: String,
    /// Whether all could be written.
    written: io::Result<()>,
}

impl<'a> Report<'a> {
    fn new(config: &Config, out: &'a mut dyn Write) -> Report<'a> {
        let (url, demo, version) = (&config.fabric.url, config.demo, env!("CARGO_PKG_VERSION"));
        let start = config.start_fabric.as_deref().map(start_flag);
        // Without the flag, another Fabric would be asked.
        let usual = base_url(&std::env::var(BASE_URL).unwrap_or_default());
        let usual = usual.unwrap_or_else(|_| get("fabric-url").default.to_owned());
        let given = (*url != usual).then(|| format!("--fabric-url={url}"));
        let flag = start.or(given).map(|flag| shell(&flag, OS) + " ");
        let (what, kind, next) = match config.patterns_dirs.is_empty() {
            _ if demo => ("Fabric at", " (the built-in demo)", NEXT_AFTER_DEMO),
            true => ("Fabric at", "", NEXT),
            false => ("the patterns in", " (without Fabric)", NEXT_AFTER_FOLDERS),
        };
        let mut report = Report {
            out,
            is_json: config.json,
            json: json!({
                "schema_version": 1,
                "version": version,
                "fabric": {
                    "url": url,
                    "demo": demo,
                    "reachable": false,
                    "api_key": UNKNOWN.0,
                    "latency_ms": null,
                    "patterns": null,
                    "models": null,
                    "vendors": null,
                    "strategies": null,
                    "looks_old": false,
                },
                "demo_run": null,
            }),
            problems: Vec::new(),
            next: next.replace("FLAG", &flag.unwrap_or_default()),
            written: Ok(()),
        };
        let head = format!("fabric-mcp {version}: checking {what} {url}{kind}");
        report.write(&format!("{head}\n\n"));
        report
    }

    /// Notes a fact about Fabric.
    fn fabric(&mut self, key: &str, value: impl Into<Value>) {
        self.json["fabric"][key] = value.into();
    }

    fn count(&mut self, key: &str, count: usize, good: bool) {
        self.fabric(key, count);
        self.line(good, key, &count.to_string());
    }

    fn address(&mut self, text: &str) {
        self.fabric("reachable", true);
        self.line(true, "address", text);
    }

    fn key(&mut self, (name, text, good): KeyStatus) {
        self.fabric("api_key", name);
        self.line(good, "key", text);
        if name == UNUSED.0 {
            self.found(Cause::KeyNotAskedFor, &[]);
        }
    }

    /// Patterns in settings that Fabric does not have: a typing error there would have no effect.
    fn unknown_patterns(&mut self, policy: &Policy, names: &NameList) {
        let denied = policy.denied.iter().map(|name| ("--deny-pattern", name));
        let allowed = policy.allowed.iter().map(|name| ("--allow-pattern", name));
        let models = policy.pattern_models.iter().map(|own| &own.pattern);
        // The environment may have variables for other Fabrics.
        let models = models.filter(|name| !name.starts_with(MODEL_VARIABLE));
        let models = models.map(|name| ("--pattern-model", name));
        for (flag, name) in denied.chain(allowed).chain(models) {
            let known = names.iter().any(|known| is_same(known, name));
            if let Some(name) = Name::parse(flag, name).ok().filter(|_| !known) {
                let why = format!("{flag}: {}", not_found(&name, names, &|_| true).detail);
                self.found(Cause::Settings, &[("why", &why)]);
            }
        }
    }

    /// The model of runs that name none, among those that Fabric lists.
    fn default_model(&mut self, model: &str, listed: &[String]) {
        let name = match model {
            "" => "Fabric's own",
            _ if listed.iter().any(|one| one.eq_ignore_ascii_case(model)) => model,
            _ => {
                let why = format!("--default-model: Fabric lists no model {model}.");
                self.found(Cause::Settings, &[("why", &why)]);
                let text = format!("{model}, which Fabric does not list");
                return self.line(false, "default model", &text);
            }
        };
        let text = format!("{name}; not tried, as only a run can test it");
        self.next.insert_str(0, "Lines marked ?? were not tried.\n");
        self.marked("??", "default model", &text);
    }

    /// What this program speaks, which needs no Fabric.
    fn protocol(&mut self, tools: usize) {
        let revisions = Revision::ALL.map(Revision::name);
        for name in revisions {
            self.json["mcp"][name] = true.into();
        }
        self.line(true, "MCP", &revisions.join(", "));
        self.line(true, "tools", &tools.to_string());
    }

    fn found(&mut self, cause: Cause, values: &[(&str, &str)]) {
        self.problems.push(Error::of(cause, values));
    }

    /// A problem whose reason is `error`.
    fn found_behind(&mut self, cause: Cause, error: &Error) {
        let (why, fix) = error.parts();
        self.found(cause, &[("why", why), ("fix", fix)]);
    }

    /// Writes the problems and the verdict. True without errors.
    fn end(mut self) -> io::Result<bool> {
        let (mut good, mut problems) = (true, Vec::new());
        for error in std::mem::take(&mut self.problems) {
            let is_error = error.cause.is_none_or(Cause::is_error);
            good &= !is_error;
            let (word, severity) = match is_error {
                true => ("Problem", "error"),
                false => ("Warning", "warning"),
            };
            let (code, (what, fix)) = (error.code(), error.parts());
            let text = wrapped(&format!("{word}: {what} [{code}]"), 0);
            let remedy = wrapped(&format!("Fix: {fix}"), 4);
            self.write(&format!("\n{text}\n    {remedy}\n"));
            problems.push(json!({"code": code, "severity": severity, "what": what, "fix": fix}));
        }
        let verdict = match (good, problems.is_empty()) {
            (false, _) => "Not everything works.",
            (true, false) => "Everything works, but read the warnings above.",
            (true, true) => "Everything works.",
        };
        let next = if good { &*self.next } else { FIX_FIRST };
        self.write(&format!("\n{verdict}\n{next}"));
        if self.is_json {
            self.json["ok"] = good.into();
            self.json["problems"] = problems.into();
            self.written = writeln!(self.out, "{:#}", self.json).and_then(|()| self.out.flush());
        }
        self.written.map(|()| good)
    }

    fn line(&mut self, good: bool, name: &str, text: &str) {
        self.marked(if good { "ok" } else { "--" }, name, text);
    }

    fn marked(&mut self, mark: &str, name: &str, text: &str) {
        self.write(&format!("  {mark}  {name:<15} {text}\n"));
    }

    /// Writes text, unless that has failed before.
    fn write(&mut self, text: &str) {
        if !self.is_json && self.written.is_ok() {
            let written = self.out.write_all(text.as_bytes());
            self.written = written.and_then(|()| self.out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fill` adds to a report, as it is printed.
    fn written(demo: bool, fill: impl FnOnce(&mut Report<'_>)) -> String {
        let config = Config {
            fabric: config::Fabric {
                url: "http://f:1".into(),
                ..config::Fabric::default()
            },
            demo,
            ..Config::default()
        };
        let mut out = Vec::new();
        let mut report = Report::new(&config, &mut out);
        fill(&mut report);
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_text_reads_like_this() {
        let text = written(false, |report| {
            let took = milliseconds(Duration::from_micros(1_234));
            report.address(&format!("http://f:1 answers in {took} ms"));
            report.key(ACCEPTED);
            report.protocol(10);
            report.found(Cause::NoModels, &[]);
        });
        assert_eq!(
            text,
            format!(
                "fabric-mcp {}: checking Fabric at http://f:1\n\n\
                 \x20 ok  address         http://f:1 answers in 1.23 ms\n\
                 \x20 ok  key             accepted\n\
                 \x20 ok  MCP             2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28\n\
                 \x20 ok  tools           10\n\
                 \n\
                 Warning: Fabric lists no models: no vendor is set up, or none of them answers.\n\
                 [no-models]\n\
                 \x20   Fix: Set up a vendor on Fabric's host with `fabric --setup`, then restart\n\
                 \x20   `fabric --serve`.\n\
                 \n\
                 Everything works, but read the warnings above.\n\
                 Next: try a run, which this check leaves out because it may cost money:\n\
                 \x20 fabric-mcp --fabric-url=http://f:1 --call fabric_run_pattern pattern_name=NAME < FILE\n\
                 Then fabric-mcp --fabric-url=http://f:1 --install CLIENT adds the server to your assistant or\n\
                 editor; fabric-mcp --generate client-config lists the clients.\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn the_default_model_is_looked_up_but_not_tried() {
        let listed = ["GPT-x".to_owned()];
        let own = "??  default model   Fabric's own; not tried, as only a run can test it\n\nEverything works.\nLines marked ??";
        let known = "??  default model   gpt-x; not tried, as only a run can test it\n";
        for (model, said) in [
            ("", own),
            ("gpt-x", known),
            (
                "y",
                "--  default model   y, which Fabric does not list\n\nWarning: --default-model: Fabric lists no model y.",
            ),
        ] {
            let text = written(false, |report| {
                report.default_model(model, &listed);
            });
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn the_end_is_the_next_step() {
        let good = written(false, |report| report.line(true, "patterns", "3"));
        assert!(good.contains("  ok  patterns        3\n"), "{good}");
        let part = "\nEverything works.\nNext: try a run";
        assert!(good.contains(part), "{good}");
        let demo = written(true, |_| {});
        let last = "own Fabric, and check it: fabric-mcp --check\n";
        assert!(demo.ends_with(last), "{demo}");
        let warned = written(true, |report| {
            report.found(Cause::Settings, &[("why", "W.")])
        });
        let fix = "Change the setting, or keep it if it is what you want.";
        let part = format!("\nWarning: W. [settings]\n    Fix: {fix}\n");
        assert!(warned.contains(&part), "{warned}");
        let bad = written(true, |report| {
            report.line(false, "patterns", "0");
            report.found(Cause::NoPatterns, &[]);
        });
        let end = "\nNot everything works.\nNext: fix the first problem above, and run the check again.\n";
        let is_so = bad.contains("\nProblem: Fabric has no patterns") && bad.ends_with(end);
        assert!(is_so, "{bad}");
        assert!(bad.contains("  --  patterns        0\n"), "{bad}");
    }

    #[test]
    fn old_versions_are_known_by_what_they_configure() {
        // Recorded from v1.4.300 and v1.4.470, keys made up.
        let old = json!({"anthropic": "", "anthropic_use_oauth_login": "", "openai": ""});
        let old_with_key = json!({"groq": "abcde", "mistral": "abcd", "openai": ""});
        let new = json!({"anthropic": "", "groq": "*bcde", "mistral": "abcd", "openai": "********abcd",
                         "lmstudio": "http://127.0.0.1:1234/v1", "ollama": "my-host"});
        for (configuration, is_old) in [
            (old, true),
            (old_with_key, true),
            (new, false),
            (json!({}), false),
        ] {
            let members = configuration.as_object().unwrap();
            assert_eq!(looks_old(members), is_old, "{configuration}");
        }
    }
}
