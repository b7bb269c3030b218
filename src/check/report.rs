//! The report of `--check`: text, written line by line, or one JSON object.
//!
//! The keys of the JSON never change their meaning; new ones may be added.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::demo_run::{DemoRun, PATTERN};
use super::diagnosis::Problem;
use super::handshake::Era;
use crate::text::{WIDTH, wrapped};

/// The next step after problems, after success, and after the demo. `NAME` is a pattern.
const MEND: &str = "Next: mend the first problem above, and run the check again.\n";
const NEXT: &str = "Next: try a run, which this check leaves out because it may cost money:\n\
                    \x20 fabric-mcp --call fabric_run_pattern '{\"pattern_name\":\"NAME\"}' < FILE\n\
                    Then fabric-mcp --install CLIENT adds it to your assistant or editor;\n\
                    fabric-mcp --generate client-config lists the clients.\n";
const NEXT_AFTER_DEMO: &str = "Next: fabric-mcp --demo --install CLIENT adds this demo to your assistant or\n\
                               editor; fabric-mcp --generate client-config lists the clients. Then start your\n\
                               own Fabric, and check it: fabric-mcp --check\n";

/// How Fabric treats the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyStatus {
    /// Not known.
    #[default]
    Unknown,
    /// None is set, none is needed.
    NotNeeded,
    /// Accepted, and needed.
    Accepted,
    /// Sent, but not needed.
    Unused,
    /// Needed, but none is set.
    Missing,
    /// Refused.
    Refused,
}

impl KeyStatus {
    /// Its name in JSON, and its words in the text.
    fn shown(self) -> (&'static str, &'static str) {
        match self {
            KeyStatus::Unknown => ("unknown", "not known"),
            KeyStatus::NotNeeded => ("not-needed", "none set, none needed"),
            KeyStatus::Accepted => ("accepted", "accepted"),
            KeyStatus::Unused => ("unused", "sent, but Fabric answers without it too"),
            KeyStatus::Missing => ("missing", "missing"),
            KeyStatus::Refused => ("refused", "refused"),
        }
    }
}

/// The findings.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The configured URL of Fabric.
    pub(super) url: String,
    /// Whether it is the demo.
    pub(super) demo: bool,
    /// Whether Fabric answered, even if only to ask for a key.
    pub(super) reachable: bool,
    /// How it treats the key.
    pub(super) key: KeyStatus,
    /// Time to list the patterns over an open connection.
    pub(super) latency: Option<Duration>,
    /// How many patterns there are.
    pub(super) patterns: Option<usize>,
    /// Whether the pattern of the proposed run is one of them.
    pub(super) has_summarize: bool,
    /// The numbers of models and vendors.
    pub(super) models: Option<(usize, usize)>,
    /// How many strategies there are.
    pub(super) strategies: Option<usize>,
    /// Whether it looks like an old version.
    pub(super) looks_old: bool,
    /// The handshakes with our own server.
    pub(super) mcp: Vec<Era>,
    /// The run of the demo.
    pub(super) demo_run: Option<DemoRun>,
    /// All problems, in the order found.
    pub(super) problems: Vec<Problem>,
}

impl Report {
    /// Whether there are no errors.
    pub(super) fn is_good(&self) -> bool {
        !self.problems.iter().any(|problem| problem.is_error)
    }

    fn json(&self) -> Value {
        let eras: BTreeMap<_, _> = self
            .mcp
            .iter()
            .map(|era| (era.revision, era.tools.is_ok()))
            .collect();
        let problems: Vec<Value> = self.problems.iter().map(problem_json).collect();
        json!({
            "schema_version": 1,
            "ok": self.is_good(),
            "version": env!("CARGO_PKG_VERSION"),
            "fabric": {
                "url": self.url,
                "demo": self.demo,
                "reachable": self.reachable,
                "api_key": self.key.shown().0,
                "latency_ms": self.latency.map(milliseconds),
                "patterns": self.patterns,
                "models": self.models.map(|(models, _)| models),
                "vendors": self.models.map(|(_, vendors)| vendors),
                "strategies": self.strategies,
                "looks_old": self.looks_old,
            },
            "mcp": eras,
            "demo_run": self.demo_run.as_ref().map(|seen| json!({
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

/// How a report looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Lines of text.
    Plain,
    /// Lines of text, on a terminal that has colours.
    Coloured,
    /// One JSON object.
    Json,
}

/// Colours of a terminal, as ANSI has them.
const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";

/// Prints a report step by step.
pub(super) struct ReportWriter<'a> {
    out: &'a mut dyn Write,
    look: Look,
    /// Width of the current line of the demo's run, in characters.
    column: usize,
    /// Spaces to be written before the next word.
    blanks: usize,
}

impl<'a> ReportWriter<'a> {
    /// Writes to `out`; JSON only at the end.
    pub(super) fn new(out: &'a mut dyn Write, look: Look) -> ReportWriter<'a> {
        ReportWriter {
            out,
            look,
            column: 0,
            blanks: 0,
        }
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        match self.look {
            Look::Coloured => format!("\x1b[{colour}m{text}\x1b[0m"),
            Look::Plain | Look::Json => text.to_owned(),
        }
    }

    pub(super) fn begin(&mut self, report: &Report) -> io::Result<()> {
        let demo = if report.demo {
            " (the built-in demo)"
        } else {
            ""
        };
        self.write(&format!(
            "fabric-mcp {}: checking Fabric at {}{demo}\n\n",
            env!("CARGO_PKG_VERSION"),
            report.url
        ))
    }

    pub(super) fn connection(&mut self, report: &Report) -> io::Result<()> {
        let address = match report.latency {
            Some(time) => format!("{} answers in {} ms", report.url, milliseconds(time)),
            None if report.reachable => format!("{} answers", report.url),
            None => format!("no Fabric answers at {}", report.url),
        };
        self.line(report.reachable, "address", &address)?;
        if report.reachable {
            self.line(
                !matches!(report.key, KeyStatus::Missing | KeyStatus::Refused),
                "key",
                report.key.shown().1,
            )?;
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
                self.line(
                    models > 0,
                    "models",
                    &format!("{models}, from {vendors} vendor{plural}"),
                )?;
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

    pub(super) fn demo_run_begins(&mut self) -> io::Result<()> {
        let text = format!(
            "A streamed run of the pattern {PATTERN}. The demo's model only says what a real one would be sent:"
        );
        self.write(&format!("\n{}\n\n", wrapped(&text, 0)))
    }

    /// Prints one piece of the run, indented and wrapped between words. Spaces are written with the next word, so that
    /// no line ends with one.
    pub(super) fn demo_run_text(&mut self, text: &str) -> io::Result<()> {
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

    pub(super) fn demo_run_ends(&mut self, report: &Report) -> io::Result<()> {
        match &report.demo_run {
            Some(seen) => {
                let text = format!(
                    "{} pieces, first after {} ms, last after {} ms",
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
        if self.look == Look::Json {
            writeln!(self.out, "{:#}", report.json())?;
            return self.out.flush();
        }
        for problem in &report.problems {
            let (colour, severity) = if problem.is_error {
                (RED, "Problem")
            } else {
                (YELLOW, "Warning")
            };
            let what = wrapped(
                &format!("{severity}: {} [{}]", problem.what, problem.code),
                0,
            );
            let what = what.replacen(severity, &self.coloured(colour, severity), 1);
            self.write(&format!(
                "\n{what}\n    {}\n",
                wrapped(&format!("Fix: {}", problem.fix), 4)
            ))?;
        }
        let (verdict, next) = match (report.is_good(), report.problems.is_empty()) {
            (false, _) => (self.coloured(RED, "Not everything works."), MEND),
            (true, clean) => {
                let text = if clean {
                    "Everything works."
                } else {
                    "Everything works, but see above."
                };
                let colour = if clean { GREEN } else { YELLOW };
                (
                    self.coloured(colour, text),
                    if report.demo { NEXT_AFTER_DEMO } else { NEXT },
                )
            }
        };
        let next = if report.has_summarize {
            next.replace("NAME", "summarize")
        } else {
            next.to_owned()
        };
        self.write(&format!("\n{verdict}\n{next}"))
    }

    fn line(&mut self, good: bool, name: &str, text: &str) -> io::Result<()> {
        let mark = if good {
            self.coloured(GREEN, "ok")
        } else {
            self.coloured(RED, "--")
        };
        self.write(&format!("  {mark}  {name:<15} {text}\n"))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if self.look == Look::Json {
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
            key: KeyStatus::Accepted,
            latency: Some(Duration::from_micros(1234)),
            patterns: Some(3),
            has_summarize: true,
            models: Some((5, 1)),
            strategies: Some(0),
            mcp: vec![Era {
                revision: "2025-11-25",
                opening: "initialize",
                tools: Ok(6),
            }],
            ..Report::default()
        }
    }

    fn written(report: &Report, look: Look) -> String {
        let mut out = Vec::new();
        let mut writer = ReportWriter::new(&mut out, look);
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
        report
            .problems
            .push(Problem::warning("no-models", "No models.", "Set one up."));
        assert_eq!(
            written(&report, Look::Plain),
            format!(
                "fabric-mcp {}: checking Fabric at http://f:1\n\n\
                 \x20 ok  address         http://f:1 answers in 1.23 ms\n\
                 \x20 ok  key             accepted\n\
                 \x20 ok  patterns        3\n\
                 \x20 ok  models          5, from 1 vendor\n\
                 \x20 ok  strategies      0\n\
                 \x20 ok  MCP 2025-11-25  initialize and tools/list work, 6 tools\n\
                 \n\
                 Warning: No models. [no-models]\n\
                 \x20   Fix: Set one up.\n\
                 \n\
                 Everything works, but see above.\n\
                 Next: try a run, which this check leaves out because it may cost money:\n\
                 \x20 fabric-mcp --call fabric_run_pattern '{{\"pattern_name\":\"summarize\"}}' < FILE\n\
                 Then fabric-mcp --install CLIENT adds it to your assistant or editor;\n\
                 fabric-mcp --generate client-config lists the clients.\n",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn a_terminal_gets_colours_and_the_end_is_the_next_step() {
        let mut report = report();
        let good = written(&report, Look::Coloured);
        assert!(
            good.contains("  \x1b[32mok\x1b[0m  patterns        3\n"),
            "{good}"
        );
        assert!(
            good.contains("\n\x1b[32mEverything works.\x1b[0m\nNext: try a run"),
            "{good}"
        );
        report.demo = true;
        assert!(
            written(&report, Look::Plain)
                .ends_with("own Fabric, and check it: fabric-mcp --check\n")
        );
        report.patterns = Some(0);
        report.problems.push(Problem::warning("w", "W.", "F."));
        let warned = written(&report, Look::Coloured);
        assert!(
            warned.contains("  \x1b[31m--\x1b[0m  patterns        0\n"),
            "{warned}"
        );
        assert!(
            warned.contains("\n\x1b[33mWarning\x1b[0m: W. [w]\n    Fix: F.\n"),
            "{warned}"
        );
        report.problems.push(Problem::error("e", "E.", "F."));
        let bad = written(&report, Look::Coloured);
        let end = "\n\x1b[31mNot everything works.\x1b[0m\nNext: mend the first problem above, and run the check again.\n";
        assert!(
            bad.contains("\n\x1b[31mProblem\x1b[0m: E. [e]\n") && bad.ends_with(end),
            "{bad}"
        );
        assert!(
            !written(&report, Look::Plain).contains('\x1b')
                && !written(&report, Look::Json).contains('\x1b')
        );
    }

    #[test]
    fn scripts_can_rely_on_these_keys() {
        let mut report = report();
        report
            .problems
            .push(Problem::error("key-refused", "Refused.", "Set it."));
        report.demo_run = Some(DemoRun {
            pieces: 2,
            characters: 9,
            ..DemoRun::default()
        });
        let text = written(&report, Look::Json);
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
        let mut writer = ReportWriter::new(&mut out, Look::Plain);
        for word in ["abc ".repeat(40).as_str(), "end ", "\n", "\n", "- ", "next"] {
            writer.demo_run_text(word).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.ends_with(" end\n\n  - next"), "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        assert_eq!(text.matches("abc").count(), 40);
    }
}
