//! Metrics in the text format of Prometheus.
//!
//! In scope: counters, and the text format. Not in scope: access, and the counts of connections and sessions, which are
//! arguments of [`Metrics::render`].

mod process;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::sync::lock;
use crate::time;

/// Upper bounds of the histogram's buckets, in seconds: a cached list takes under a millisecond, a run minutes.
const BUCKETS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1., 2.5, 5., 10., 30., 60., 300., 1800.,
];

/// Most callers, and most models, with their own label; the rest is [`OTHER`].
const MAX_LABELS: usize = 100;
/// The label of the rest.
const OTHER: &str = "other";

/// The outcome of a successful call; a failed one has the name of its error.
pub(crate) const OK: &str = "ok";

/// The counters of this process.
pub(crate) static TOTAL: Metrics = Metrics::new();

/// What is counted beside the [`Counter`]s.
pub(crate) struct Metrics {
    /// By tool. A call to Fabric takes far longer than the lock is held.
    calls: Mutex<BTreeMap<&'static str, CallStats>>,
    by_model: TokenCounts,
    by_caller: TokenCounts,
    runs: AtomicUsize,
}

/// A family of counters that differ in one label; a single counter if the label is empty.
pub(crate) struct Counter<K> {
    name: &'static str,
    label: &'static str,
    help: &'static str,
    values: Mutex<BTreeMap<K, u64>>,
}

/// Every [`Counter`], and `counters`, which writes them. A new one is a line here, and where it is counted.
macro_rules! counters {
    ($($id:ident($key:ty): $name:literal, $label:literal, $help:literal;)*) => {
        $(#[doc = $help] pub(crate) static $id: Counter<$key> = Counter::new($name, $label, $help);)*

        fn counters(out: &mut Exposition) {
            $($id.render(out);)*
        }
    };
}

counters! {
    RELAYED_BYTES(&'static str): "relayed_bytes_total", "", "Text of runs that came from Fabric, in bytes.";
    FABRIC_ERRORS(&'static str): "fabric_errors_total", "kind", "Failures of Fabric, by kind.";
    CALLERS_REFUSED(&'static str): "callers_refused_total", "reason", "Requests without a good token or the role they need, by reason.";
    RESPONSES(u16): "http_responses_total", "status", "Answers over HTTP, by status.";
}

impl<K: Ord + Display> Counter<K> {
    const fn new(name: &'static str, label: &'static str, help: &'static str) -> Counter<K> {
        Counter {
            name,
            label,
            help,
            values: Mutex::new(BTreeMap::new()),
        }
    }

    /// Adds `more` to the counter whose label has this value.
    pub(crate) fn add(&self, value: K, more: u64) {
        *lock(&self.values).entry(value).or_default() += more;
    }

    fn render(&self, out: &mut Exposition) {
        let values = lock(&self.values);
        if self.label.is_empty() {
            return out.single(
                self.name,
                "counter",
                self.help,
                values.values().sum::<u64>(),
            );
        }
        out.family(self.name, "counter", self.help);
        for (value, count) in &*values {
            out.sample(
                self.name,
                format_args!("{{{}=\"{value}\"}}", self.label),
                count,
            );
        }
    }
}

/// Tokens that runs read and wrote, by the value of a label.
type TokenCounts = Mutex<BTreeMap<String, (u64, u64)>>;

fn add_tokens(to: &TokenCounts, name: &str, input: u64, output: u64) {
    let mut to = lock(to);
    let name = if to.len() < MAX_LABELS || to.contains_key(name) {
        name
    } else {
        OTHER
    };
    let sum = to.entry(name.to_owned()).or_default();
    *sum = (sum.0.saturating_add(input), sum.1.saturating_add(output));
}

/// The calls of one tool.
#[derive(Default)]
struct CallStats {
    outcomes: BTreeMap<&'static str, u64>,
    /// Calls in each of [`BUCKETS`], not cumulative; the last one is `+Inf`.
    buckets: [u64; BUCKETS.len() + 1],
    time: Duration,
}

/// Counts the error that a call ended with, if it was Fabric that failed.
pub(crate) fn failure(error: &Error) {
    if error.kind.is_of_fabric() {
        FABRIC_ERRORS.add(error.kind.name(), 1);
    }
}

/// A run in flight, counted until it is dropped.
pub(crate) struct RunInFlight(());

impl RunInFlight {
    /// Counts one more.
    pub(crate) fn begin() -> RunInFlight {
        TOTAL.runs.fetch_add(1, Ordering::Relaxed);
        RunInFlight(())
    }
}

impl Drop for RunInFlight {
    fn drop(&mut self) {
        TOTAL.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    const fn new() -> Metrics {
        Metrics {
            calls: Mutex::new(BTreeMap::new()),
            by_model: Mutex::new(BTreeMap::new()),
            by_caller: Mutex::new(BTreeMap::new()),
            runs: AtomicUsize::new(0),
        }
    }

    /// Counts a call of `tool`; `outcome` is [`OK`] or the name of the error. A call refused before it ran has no
    /// duration.
    pub(crate) fn call(&self, tool: &'static str, outcome: &'static str, took: Option<Duration>) {
        let mut calls = lock(&self.calls);
        let calls = calls.entry(tool).or_default();
        *calls.outcomes.entry(outcome).or_default() += 1;
        let Some(took) = took else { return };
        calls.buckets[BUCKETS.partition_point(|bound| *bound < took.as_secs_f64())] += 1;
        calls.time += took;
    }

    /// Counts the tokens that a run of `model` for `caller` read and wrote.
    pub(crate) fn used(&self, model: &str, caller: &str, input: u64, output: u64) {
        add_tokens(&self.by_model, model, input, output);
        add_tokens(&self.by_caller, caller, input, output);
    }

    /// All metrics; `memory` is how much is held and how much there is. In version 0.0.4 of the text format.
    pub(crate) fn render(
        &self,
        connections: usize,
        sessions: usize,
        kept_runs: usize,
        fabric_up: bool,
        memory: (usize, usize),
    ) -> String {
        let mut out = Exposition(String::with_capacity(4096));
        out.family("build_info", "gauge", "The version that runs.");
        out.sample(
            "build_info",
            format_args!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")),
            1,
        );
        out.single(
            "runs_in_flight",
            "gauge",
            "Runs of a pattern at this moment.",
            self.runs.load(Ordering::Relaxed),
        );
        out.single(
            "runs_kept",
            "gauge",
            "Runs that have ended and can still be read.",
            kept_runs,
        );
        out.single(
            "memory_bytes",
            "gauge",
            "What requests, runs and answers hold of --max-memory.",
            memory.0,
        );
        out.single(
            "memory_limit_bytes",
            "gauge",
            "How much --max-memory is.",
            memory.1,
        );
        out.single(
            "fabric_up",
            "gauge",
            "Whether Fabric answers.",
            u8::from(fabric_up),
        );
        out.single(
            "connections",
            "gauge",
            "Connections at this moment.",
            connections,
        );
        out.single(
            "sessions",
            "gauge",
            "Legacy sessions that are remembered.",
            sessions,
        );
        counters(&mut out);
        for (family, label, help, sums) in [
            (
                "tokens_total",
                "model",
                "Tokens that models read and wrote, by model.",
                &self.by_model,
            ),
            (
                "caller_tokens_total",
                "caller",
                "Tokens that models read and wrote, by caller.",
                &self.by_caller,
            ),
        ] {
            out.family(family, "counter", help);
            for (name, (input, output)) in &*lock(sums) {
                let name = escaped(name);
                for (direction, sum) in [("input", input), ("output", output)] {
                    out.sample(
                        family,
                        format_args!("{{{label}=\"{name}\",direction=\"{direction}\"}}"),
                        sum,
                    );
                }
            }
        }
        let calls = lock(&self.calls);
        out.family(
            "calls_total",
            "counter",
            "Calls of tools, by tool and outcome.",
        );
        for (tool, calls) in &*calls {
            for (outcome, count) in &calls.outcomes {
                out.sample(
                    "calls_total",
                    format_args!("{{tool=\"{tool}\",outcome=\"{outcome}\"}}"),
                    count,
                );
            }
        }
        out.family(
            "call_duration_seconds",
            "histogram",
            "How long calls of tools took.",
        );
        for (tool, calls) in &*calls {
            let mut count = 0;
            for (bound, more) in BUCKETS.iter().map(Some).chain([None]).zip(calls.buckets) {
                count += more;
                let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
                out.sample(
                    "call_duration_seconds_bucket",
                    format_args!("{{tool=\"{tool}\",le=\"{bound}\"}}"),
                    count,
                );
            }
            out.sample(
                "call_duration_seconds_sum",
                format_args!("{{tool=\"{tool}\"}}"),
                calls.time.as_secs_f64(),
            );
            out.sample(
                "call_duration_seconds_count",
                format_args!("{{tool=\"{tool}\"}}"),
                count,
            );
        }
        drop(calls);
        let started = time::started().to_string();
        let started = (
            "process_start_time_seconds",
            "gauge",
            "When it started, in seconds since 1970.",
            started,
        );
        for (name, kind, help, value) in process::metrics().into_iter().chain([started]) {
            let _ = write!(
                out.0,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        }
        out.0
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The text format: `# HELP` and `# TYPE` of each family, then its samples. Writing to a string cannot fail.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(
            self.0,
            "# HELP fabric_mcp_{name} {help}\n# TYPE fabric_mcp_{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: std::fmt::Arguments<'_>, value: impl Display) {
        let _ = writeln!(self.0, "fabric_mcp_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, format_args!(""), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::new();
        metrics.call("fabric_run_pattern", OK, Some(Duration::from_millis(500)));
        metrics.call(
            "fabric_run_pattern",
            "cancelled",
            Some(Duration::from_secs(3600)),
        );
        metrics.call("fabric_run_pattern", "too-many-requests", None);
        metrics.used("a\"b", "alice", 10, 5);
        metrics.used("a\"b", "bob", 1, 1);
        let text = metrics.render(3, 2, 4, true, (1, 9));
        for line in [
            "# TYPE fabric_mcp_runs_in_flight gauge",
            "fabric_mcp_runs_in_flight 0",
            "fabric_mcp_connections 3",
            "fabric_mcp_fabric_up 1",
            "fabric_mcp_tokens_total{model=\"a\\\"b\",direction=\"input\"} 11",
            "fabric_mcp_caller_tokens_total{caller=\"alice\",direction=\"output\"} 5",
            "fabric_mcp_sessions 2",
            "# TYPE fabric_mcp_runs_kept gauge",
            "fabric_mcp_runs_kept 4",
            "# TYPE fabric_mcp_relayed_bytes_total counter",
            "# TYPE fabric_mcp_http_responses_total counter",
            "fabric_mcp_calls_total{tool=\"fabric_run_pattern\",outcome=\"cancelled\"} 1",
            "fabric_mcp_calls_total{tool=\"fabric_run_pattern\",outcome=\"ok\"} 1",
            "fabric_mcp_calls_total{tool=\"fabric_run_pattern\",outcome=\"too-many-requests\"} 1",
            "fabric_mcp_call_duration_seconds_bucket{tool=\"fabric_run_pattern\",le=\"0.1\"} 0",
            "fabric_mcp_call_duration_seconds_bucket{tool=\"fabric_run_pattern\",le=\"0.5\"} 1",
            "fabric_mcp_call_duration_seconds_bucket{tool=\"fabric_run_pattern\",le=\"1800\"} 1",
            "fabric_mcp_call_duration_seconds_bucket{tool=\"fabric_run_pattern\",le=\"+Inf\"} 2",
            "fabric_mcp_call_duration_seconds_sum{tool=\"fabric_run_pattern\"} 3600.5",
            "fabric_mcp_call_duration_seconds_count{tool=\"fabric_run_pattern\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with('\n') && !text.contains("\n\n"));
    }

    #[test]
    fn counters_are_written_by_label() {
        let (single, by_kind) = (
            Counter::new("a_total", "", "A."),
            Counter::new("b_total", "kind", "B."),
        );
        let mut out = Exposition(String::new());
        single.render(&mut out);
        single.add("", 2);
        single.add("", 3);
        single.render(&mut out);
        by_kind.add("x", 1);
        by_kind.render(&mut out);
        let samples: Vec<_> = out
            .0
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert_eq!(
            samples,
            [
                "fabric_mcp_a_total 0",
                "fabric_mcp_a_total 5",
                "fabric_mcp_b_total{kind=\"x\"} 1"
            ]
        );
    }

    #[test]
    fn only_so_many_callers_have_a_label() {
        let metrics = Metrics::new();
        for n in 0..MAX_LABELS + 5 {
            metrics.used("m", &format!("c{n:03}"), 1, 2);
        }
        let text = metrics.render(0, 0, 0, false, (0, 9));
        assert_eq!(
            text.matches("caller_tokens_total{").count(),
            2 * (MAX_LABELS + 1)
        );
        assert!(
            text.contains(
                "fabric_mcp_caller_tokens_total{caller=\"other\",direction=\"output\"} 10\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "fabric_mcp_caller_tokens_total{caller=\"c099\",direction=\"input\"} 1\n"
            ),
            "{text}"
        );
    }
}
