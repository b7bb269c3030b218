//! Metrics in the text format of Prometheus.
//!
//! In scope: every family of samples, and the text format. Not in scope: access, and when something is counted. The
//! code that asks for the text sets the gauges.

mod process;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Cause, Error};
use crate::sync::lock;

/// Upper bounds of the histogram's buckets, in seconds: a cached list takes under a millisecond, a run minutes.
const BUCKETS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1., 2.5, 5., 10., 30., 60., 300., 1800.,
];

/// The outcome of a successful call; a failed one has the name of its error.
pub(crate) const OK: &str = "ok";

/// Every family, and `write_families`, which writes them. A new one is a line here, and where it is counted.
macro_rules! families {
    ($($id:ident: $family:ty = $kind:literal, $name:literal, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub(crate) static $id: $family = <$family>::new($name, $labels);)*

        fn write_families(out: &mut String) {
            $(out.push_str(concat!("# HELP fabric_mcp_", $name, " ", $help, "\n"));
            out.push_str(concat!("# TYPE fabric_mcp_", $name, " ", $kind, "\n"));
            $id.write(out);)*
        }
    };
}

families! {
    BUILD_INFO: Family<&'static str, 1> = "gauge", "build_info", ["version"], "The running version.";
    RUNS_IN_FLIGHT: Single = "gauge", "runs_in_flight", [], "Runs that are working now.";
    RUNS_KEPT: Single = "gauge", "runs_kept", [], "Runs that have ended and can still be read.";
    STATE_FAILING: Single = "gauge", "state_dir_failing", [], "1 if runs or lines of the ledger cannot be written to --state-dir.";
    UNWRITTEN: Single = "gauge", "ledger_lines_unwritten", [], "Lines of the ledger that could not be written to --state-dir.";
    TOKENS_FILE_FAILING: Single = "gauge", "tokens_file_failing", [], "1 if the tokens file has mistakes or cannot be read.";
    MEMORY: Single = "gauge", "memory_bytes", [], "Bytes of --max-memory that requests, runs and answers use.";
    MEMORY_LIMIT: Single = "gauge", "memory_limit_bytes", [], "The bytes of --max-memory.";
    FABRIC_UP: Single = "gauge", "fabric_up", [], "1 if Fabric answers.";
    CONNECTIONS: Single = "gauge", "connections", [], "Open connections.";
    SESSIONS: Single = "gauge", "sessions", [], "Remembered sessions of older revisions.";
    RELAYED_BYTES: Single = "counter", "relayed_bytes_total", [], "Text of runs that came from Fabric, in bytes.";
    FABRIC_ERRORS: Family<&'static str, 1> = "counter", "fabric_errors_total", ["kind"], "Failures of Fabric, by kind.";
    CALLERS_REFUSED: Family<&'static str, 1> = "counter", "callers_refused_total", ["reason"], "Requests refused because of their token or its role, by reason.";
    RESPONSES: Family<u16, 1> = "counter", "http_responses_total", ["status"], "Responses over HTTP, by status.";
    TOKENS: Family<&'static str, 1> = "counter", "tokens_total", ["direction"], "Tokens that models read and wrote.";
    WITHOUT_USAGE: Single = "counter", "runs_without_usage_total", [], "Runs, and steps of chains, whose tokens Fabric did not report.";
    CALLS: Family<&'static str, 2> = "counter", "calls_total", ["tool", "outcome"], "Calls of tools, by tool and outcome.";
    CALL_DURATION: Histogram = "histogram", "call_duration_seconds", ["tool"], "How long calls of tools took.";
}

/// Samples that differ in the values of their `N` labels.
pub(crate) struct Family<T, const N: usize, V = u64> {
    name: &'static str,
    labels: [&'static str; N],
    samples: Mutex<BTreeMap<[T; N], V>>,
}

/// One sample without labels.
type Single = Family<&'static str, 0>;
/// How long something took, by the value of one label.
type Histogram = Family<&'static str, 1, Times>;

impl<T: Ord, const N: usize, V: Default> Family<T, N, V> {
    const fn new(name: &'static str, labels: [&'static str; N]) -> Self {
        Family {
            name,
            labels,
            samples: Mutex::new(BTreeMap::new()),
        }
    }

    /// Changes the sample with these values of the labels.
    fn change(&self, values: [T; N], change: impl FnOnce(&mut V)) {
        change(lock(&self.samples).entry(values).or_default());
    }
}

impl<T: Ord + Display, const N: usize> Family<T, N> {
    /// Adds `more` to the sample with these values of the labels.
    pub(crate) fn add(&self, values: [T; N], more: u64) {
        self.change(values, |sample| *sample += more);
    }

    /// Sets the sample with these values of the labels.
    pub(crate) fn set(&self, values: [T; N], value: u64) {
        self.change(values, |sample| *sample = value);
    }

    fn write(&self, out: &mut String) {
        let samples = lock(&self.samples);
        if N == 0 && samples.is_empty() {
            write_sample(out, self.name, &[], 0);
        }
        for (values, sample) in &*samples {
            let values = values.each_ref().map(T::to_string);
            let labels: [_; N] = std::array::from_fn(|at| (self.labels[at], values[at].as_str()));
            write_sample(out, self.name, &labels, sample);
        }
    }
}

#[derive(Default)]
pub(crate) struct Times {
    /// How many ended in each of [`BUCKETS`], not cumulative; the last one is `+Inf`.
    buckets: [u64; BUCKETS.len() + 1],
    sum: Duration,
}

impl Histogram {
    fn observe(&self, values: [&'static str; 1], took: Duration) {
        let bucket = BUCKETS.partition_point(|bound| *bound < took.as_secs_f64());
        self.change(values, |times| {
            times.buckets[bucket] += 1;
            times.sum += took;
        });
    }

    fn write(&self, out: &mut String) {
        for ([value], times) in &*lock(&self.samples) {
            let label = (self.labels[0], *value);
            let mut count = 0;
            for (bound, more) in BUCKETS.iter().map(Some).chain([None]).zip(&times.buckets) {
                count += more;
                let bound = bound.map_or_else(|| "+Inf".to_owned(), f64::to_string);
                let bucket = format!("{}_bucket", self.name);
                write_sample(out, &bucket, &[label, ("le", &bound)], count);
            }
            let sum = times.sum.as_secs_f64();
            write_sample(out, &format!("{}_sum", self.name), &[label], sum);
            write_sample(out, &format!("{}_count", self.name), &[label], count);
        }
    }
}

/// Counts the error that a call ended with, if Fabric failed.
pub(crate) fn failure(error: &Error) {
    // A limit of this server is not a failure of Fabric.
    if error.kind.is_of_fabric() && error.cause != Some(Cause::RunTimeout) {
        FABRIC_ERRORS.add([error.kind.name()], 1);
    }
}

/// Counts a call of `tool`; `outcome` is [`OK`] or the name of the error. A call refused before it ran has no duration.
pub(crate) fn call(tool: &'static str, outcome: &'static str, took: Option<Duration>) {
    CALLS.add([tool, outcome], 1);
    if let Some(took) = took {
        CALL_DURATION.observe([tool], took);
    }
}

/// All metrics in version 0.0.4 of the text format.
pub(crate) fn text() -> String {
    BUILD_INFO.set([env!("CARGO_PKG_VERSION")], 1);
    let mut out = String::with_capacity(4096);
    write_families(&mut out);
    out.push_str(&process::metrics().unwrap_or_default());
    out
}

/// Writes a sample; writing to a string cannot fail.
fn write_sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    let _ = write!(out, "fabric_mcp_{name}");
    let mut before = '{';
    // No label needs an escape: their values are words of this program, and numbers.
    for (label, text) in labels {
        let _ = write!(out, "{before}{label}=\"{text}\"");
        before = ',';
    }
    let end = if labels.is_empty() { "" } else { "}" };
    let _ = writeln!(out, "{end} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn written(write: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn every_family_is_described_once() {
        let (text, help) = (text(), include_str!("../cli/topics/metrics.txt"));
        let described = |line: &str| text.lines().filter(|other| *other == line).count();
        let mut families = 0;
        for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
            let name = line.split(' ').nth(2).unwrap();
            let kinds = ["counter", "gauge", "histogram"];
            let kinds = kinds.map(|kind| described(&format!("# TYPE {name} {kind}")));
            assert_eq!((described(line), kinds.iter().sum()), (1, 1), "{name}");
            let is_told = help.contains(name) || !name.starts_with("fabric_mcp_");
            assert!(is_told, "{name} is not in src/cli/topics/metrics.txt");
            families += 1;
        }
        assert!(families > 16, "{text}");
        assert!(text.ends_with('\n') && !text.contains("\n\n"));
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("build_info{{version=\"{version}\"}} 1\n")));
    }

    #[test]
    fn samples_are_written_by_label() {
        let single: Single = Family::new("a", []);
        assert_eq!(written(|out| single.write(out)), "fabric_mcp_a 0\n");
        single.set([], 2);
        single.add([], 3);
        assert!(written(|out| single.write(out)).ends_with("fabric_mcp_a 5\n"));
        let family = Family::new("b_total", ["kind", "way"]);
        family.add(["y", "out"], 1);
        family.add(["x", "in"], u64::MAX - 1);
        family.add(["x", "in"], 1);
        let expected = "fabric_mcp_b_total{kind=\"x\",way=\"in\"} 18446744073709551615\n\
             fabric_mcp_b_total{kind=\"y\",way=\"out\"} 1\n";
        assert_eq!(written(|out| family.write(out)), expected);
    }

    #[test]
    fn a_histogram_is_cumulative() {
        let times = Histogram::new("t_seconds", ["tool"]);
        times.observe(["x"], Duration::from_millis(500));
        times.observe(["x"], Duration::from_secs(3600));
        let text = written(|out| times.write(out));
        for line in [
            "fabric_mcp_t_seconds_bucket{tool=\"x\",le=\"0.1\"} 0",
            "fabric_mcp_t_seconds_bucket{tool=\"x\",le=\"0.5\"} 1",
            "fabric_mcp_t_seconds_bucket{tool=\"x\",le=\"1800\"} 1",
            "fabric_mcp_t_seconds_bucket{tool=\"x\",le=\"+Inf\"} 2",
            "fabric_mcp_t_seconds_sum{tool=\"x\"} 3600.5",
            "fabric_mcp_t_seconds_count{tool=\"x\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_this_server_refuses_is_no_failure_of_fabric() {
        let of_fabric = Kind::ALL.iter().filter(|kind| kind.is_of_fabric());
        let of_fabric: Vec<_> = of_fabric.map(|kind| kind.name()).collect();
        let expected =
            "api-unavailable api-unauthorized internal-error api-error timeout stream-interrupted";
        let expected = expected.split(' ').map(|kind| format!("fabric-{kind}"));
        assert_eq!(of_fabric, Vec::from_iter(expected));
    }
}
