//! The report of `--check`: as text, written as it comes to be known, or as one JSON object.
//!
//! The keys of the JSON never change their meaning; new ones may come.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::diagnosis::Problem;
use super::handshake::Era;
use super::rehearsal::{PATTERN, Seen};

/// Widest line of the demo's run, in characters.
const WIDTH: usize = 96;

/// What Fabric makes of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Key {
    /// It was not found out.
    #[default]
    Unknown,
    /// None is set, and none is asked for.
    NotNeeded,
    /// Accepted; without it there is no answer.
    Accepted,
    /// Sent, but there is an answer without it too.
    Unused,
    /// Asked for, and none is set.
    Missing,
    /// Refused.
    Refused,
}

impl Key {
    fn name(self) -> &'static str {
        match self {
            Key::Unknown => "unknown",
            Key::NotNeeded => "not-needed",
            Key::Accepted => "accepted",
            Key::Unused => "unused",
            Key::Missing => "missing",
            Key::Refused => "refused",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Key::Unknown => "not known",
            Key::NotNeeded => "none set, none needed",
            Key::Accepted => "accepted",
            Key::Unused => "sent, but Fabric answers without it too",
            Key::Missing => "missing",
            Key::Refused => "refused",
        }
    }
}

/// Everything that was found out.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Where Fabric is, or should be.
    pub(super) url: String,
    /// Whether it is the built-in one.
    pub(super) demo: bool,
    /// Whether Fabric answered, if only that it wants a key.
    pub(super) reachable: bool,
    /// What it made of the key.
    pub(super) key: Key,
    /// How long it took to list the patterns over a connection that was there.
    pub(super) latency: Option<Duration>,
    /// How many patterns there are.
    pub(super) patterns: Option<usize>,
    /// How many models there are, of how many vendors.
    pub(super) models: Option<(usize, usize)>,
    /// How many strategies there are.
    pub(super) strategies: Option<usize>,
    /// Whether it seems to be one of the old versions.
    pub(super) looks_old: bool,
    /// How our own protocol layer does.
    pub(super) mcp: Vec<Era>,
    /// What was seen of the demo's run.
    pub(super) rehearsal: Option<Seen>,
    /// What is wrong, in the order it was found.
    pub(super) problems: Vec<Problem>,
}

impl Report {
    /// Nothing that the check fails for was found.
    pub(super) fn is_good(&self) -> bool {
        !self.problems.iter().any(|problem| problem.is_error)
    }

    fn json(&self) -> Value {
        let mut eras = Map::new();
        for era in &self.mcp {
            eras.insert(era.revision.to_owned(), era.tools.is_ok().into());
        }
        let problems: Vec<Value> = self.problems.iter().map(problem_json).collect();
        json!({
            "schema_version": 1,
            "ok": self.is_good(),
            "version": env!("CARGO_PKG_VERSION"),
            "fabric": {
                "url": self.url,
                "demo": self.demo,
                "reachable": self.reachable,
                "api_key": self.key.name(),
                "latency_ms": self.latency.map(milliseconds),
                "patterns": self.patterns,
                "models": self.models.map(|(models, _)| models),
                "vendors": self.models.map(|(_, vendors)| vendors),
                "strategies": self.strategies,
                "looks_old": self.looks_old,
            },
            "mcp": eras,
            "demo_run": self.rehearsal.as_ref().map(|seen| json!({
                "pieces": seen.pieces,
                "characters": seen.characters,
                "first_piece_ms": milliseconds(seen.first),
                "total_ms": milliseconds(seen.total),
            })),
            "problems": problems,
        })
    }
}

fn problem_json(problem: &Problem) -> Value {
    let severity = if problem.is_error { "error" } else { "warning" };
    json!({"code": problem.code, "severity": severity, "what": problem.what, "fix": problem.fix})
}

/// To a hundredth.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}

/// Writes a report step by step.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    /// How many characters of the demo's run are on the current line.
    column: usize,
    /// Blanks of it that are not written yet.
    blanks: usize,
}

impl<'a> Writer<'a> {
    /// Writes to `out`: with `json` nothing but one object at the end.
    pub(super) fn new(out: &'a mut dyn Write, json: bool) -> Writer<'a> {
        Writer { out, json, column: 0, blanks: 0 }
    }

    pub(super) fn begin(&mut self, report: &Report) -> io::Result<()> {
        let demo = if report.demo { " (the built-in demo)" } else { "" };
        self.write(&format!("fabric-mcp {}: checking Fabric at {}{demo}\n\n", env!("CARGO_PKG_VERSION"), report.url))
    }

    pub(super) fn connection(&mut self, report: &Report) -> io::Result<()> {
        let address = match report.latency {
            Some(time) => format!("{} answers in {} ms", report.url, milliseconds(time)),
            None if report.reachable => format!("{} answers", report.url),
            None => format!("{} does not answer as Fabric does", report.url),
        };
        self.line(report.reachable, "address", &address)?;
        if report.reachable {
            self.line(!matches!(report.key, Key::Missing | Key::Refused), "key", report.key.told())?;
        }
        match report.patterns {
            Some(count) => self.line(count > 0, "patterns", &count.to_string()),
            None => Ok(()),
        }
    }

    pub(super) fn contents(&mut self, report: &Report) -> io::Result<()> {
        match report.models {
            Some((models, vendors)) => {
                let plural = if vendors == 1 { "" } else { "s" };
                self.line(models > 0, "models", &format!("{models} of {vendors} vendor{plural}"))?;
            }
            None => self.line(false, "models", "cannot be listed")?,
        }
        match report.strategies {
            Some(count) => self.line(true, "strategies", &count.to_string()),
            None => self.line(false, "strategies", "cannot be listed"),
        }
    }

    pub(super) fn mcp(&mut self, report: &Report) -> io::Result<()> {
        for era in &report.mcp {
            let text = match &era.tools {
                Ok(tools) => format!("{} and tools/list work, {tools} tools", era.opening),
                Err(why) => why.clone(),
            };
            self.line(era.tools.is_ok(), &format!("MCP {}", era.revision), &text)?;
        }
        Ok(())
    }

    pub(super) fn rehearsal_begins(&mut self) -> io::Result<()> {
        self.write(&format!(
            "\nA streamed run of the pattern {PATTERN}. The demo's model only says what a real one would be sent:\n\n"
        ))
    }

    /// One piece of the run, at once. Lines are broken between words and set off from the report; blanks wait for the
    /// word after them, so that no line ends with one.
    pub(super) fn rehearsal_text(&mut self, text: &str) -> io::Result<()> {
        let mut shown = String::with_capacity(text.len() + 8);
        for piece in text.split_inclusive([' ', '\n']) {
            let word = piece.trim_end_matches([' ', '\n']);
            if !word.is_empty() {
                let length = word.chars().count();
                if self.column > 0 && self.column + self.blanks + length > WIDTH {
                    shown.push('\n');
                    (self.column, self.blanks) = (0, 0);
                }
                if self.column == 0 {
                    shown.push_str("  ");
                    self.column = 2;
                }
                shown.extend(std::iter::repeat_n(' ', self.blanks));
                shown.push_str(word);
                self.column += self.blanks + length;
                self.blanks = 0;
            }
            if piece.ends_with('\n') {
                shown.push('\n');
                (self.column, self.blanks) = (0, 0);
            } else if piece.ends_with(' ') {
                self.blanks += 1;
            }
        }
        self.write(&shown)
    }

    pub(super) fn rehearsal_ends(&mut self, report: &Report) -> io::Result<()> {
        match &report.rehearsal {
            Some(seen) => {
                let text = format!(
                    "{} pieces, the first after {} ms, the last after {} ms",
                    seen.pieces,
                    milliseconds(seen.first),
                    milliseconds(seen.total)
                );
                self.write("\n\n")?;
                self.line(true, "streaming", &text)
            }
            None => self.write("\n\n"),
        }
    }

    pub(super) fn end(&mut self, report: &Report) -> io::Result<()> {
        if self.json {
            let mut text = serde_json::to_string_pretty(&report.json()).unwrap_or_default();
            text.push('\n');
            self.out.write_all(text.as_bytes())?;
            return self.out.flush();
        }
        for problem in &report.problems {
            let severity = if problem.is_error { "Problem" } else { "Warning" };
            self.write(&format!("\n{severity}: {} [{}]\n    Fix: {}\n", problem.what, problem.code, problem.fix))?;
        }
        self.write(match (report.is_good(), report.problems.is_empty()) {
            (true, true) => "\nEverything works.\n",
            (true, false) => "\nEverything works, but see above.\n",
            (false, _) => "\nNot everything works.\n",
        })
    }

    fn line(&mut self, good: bool, name: &str, text: &str) -> io::Result<()> {
        let mark = if good { "ok" } else { "--" };
        self.write(&format!("  {mark}  {name:<15} {text}\n"))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            url: "http://f:1".into(),
            reachable: true,
            key: Key::Accepted,
            latency: Some(Duration::from_micros(1234)),
            patterns: Some(3),
            models: Some((5, 1)),
            strategies: Some(0),
            mcp: vec![Era { revision: "2025-11-25", opening: "initialize", tools: Ok(6) }],
            ..Report::default()
        }
    }

    fn written(report: &Report, json: bool) -> String {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, json);
        writer.begin(report).unwrap();
        writer.connection(report).unwrap();
        writer.contents(report).unwrap();
        writer.mcp(report).unwrap();
        writer.end(report).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_text_reads_like_this() {
        let mut report = report();
        report.problems.push(Problem::warning("no-models", "No models.", "Set one up."));
        assert_eq!(
            written(&report, false),
            format!(
                "fabric-mcp {}: checking Fabric at http://f:1\n\n\
                 \x20 ok  address         http://f:1 answers in 1.23 ms\n\
                 \x20 ok  key             accepted\n\
                 \x20 ok  patterns        3\n\
                 \x20 ok  models          5 of 1 vendor\n\
                 \x20 ok  strategies      0\n\
                 \x20 ok  MCP 2025-11-25  initialize and tools/list work, 6 tools\n\
                 \n\
                 Warning: No models. [no-models]\n\
                 \x20   Fix: Set one up.\n\
                 \n\
                 Everything works, but see above.\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn scripts_can_rely_on_these_keys() {
        let mut report = report();
        report.problems.push(Problem::error("key-refused", "Refused.", "Set it."));
        report.rehearsal = Some(Seen { pieces: 2, characters: 9, ..Seen::default() });
        let text = written(&report, true);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json,
            json!({
                "schema_version": 1, "ok": false, "version": env!("CARGO_PKG_VERSION"),
                "fabric": {"url": "http://f:1", "demo": false, "reachable": true, "api_key": "accepted",
                    "latency_ms": 1.23, "patterns": 3, "models": 5, "vendors": 1, "strategies": 0, "looks_old": false},
                "mcp": {"2025-11-25": true},
                "demo_run": {"pieces": 2, "characters": 9, "first_piece_ms": 0.0, "total_ms": 0.0},
                "problems": [{"code": "key-refused", "severity": "error", "what": "Refused.", "fix": "Set it."}],
            })
        );
    }

    #[test]
    fn long_lines_of_the_run_are_broken_between_words() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, false);
        for word in ["abc ".repeat(40).as_str(), "end ", "\n", "\n", "- ", "next"] {
            writer.rehearsal_text(word).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.ends_with(" end\n\n  - next"), "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        assert_eq!(text.matches("abc").count(), 40);
    }
}
