//! What has happened since the start, as Prometheus asks for it.
//!
//! In scope: the counters of calls and the text format. Not in scope: who may read them, and what only a transport knows
//! (connections, sessions: given to [`render`]). Counted on every transport; shown over HTTP.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::budget::MEMORY;
use crate::sync::lock;
use crate::time;

/// The upper bounds of the histogram's buckets, in milliseconds: a cached list takes well under a millisecond, a run minutes.
const BUCKETS: [u64; 14] = [1, 5, 10, 50, 100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];

/// The outcome of a call that worked; of any other it is the kind of the error.
pub(crate) const OK: &str = "ok";

/// One program's counters.
static TOTAL: Metrics = Metrics::new();

struct Metrics {
    /// By tool. A call asks Fabric, so a lock is nothing beside it.
    calls: Mutex<BTreeMap<&'static str, Calls>>,
    fabric_errors: Mutex<BTreeMap<&'static str, u64>>,
    runs: AtomicUsize,
    relayed: AtomicU64,
}

/// The calls of one tool.
#[derive(Default)]
struct Calls {
    outcomes: BTreeMap<&'static str, u64>,
    /// How many took at most as long as each of [`BUCKETS`] and longer than the one before; the last, longer than any.
    buckets: [u64; BUCKETS.len() + 1],
    time: Duration,
}

/// A call of `tool` ended, after `took` unless it was refused before it ran; `outcome` is [`OK`] or the name of the
/// error.
pub(crate) fn call(tool: &'static str, outcome: &'static str, took: Option<Duration>) {
    TOTAL.call(tool, outcome, took);
}

/// Fabric failed in the way that `kind` names.
pub(crate) fn fabric_error(kind: &'static str) {
    TOTAL.fabric_error(kind);
}

/// Bytes of a run's text have come from Fabric.
pub(crate) fn relayed(bytes: usize) {
    TOTAL.relayed.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Counts a run for as long as it is kept.
pub(crate) struct Run(());

impl Run {
    /// A run begins.
    pub(crate) fn begin() -> Run {
        TOTAL.runs.fetch_add(1, Ordering::Relaxed);
        Run(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        TOTAL.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Everything, in the text format of Prometheus, version 0.0.4. `connections` and `sessions` are the transport's.
pub(crate) fn render(connections: usize, sessions: usize) -> String {
    TOTAL.render(connections, sessions)
}

impl Metrics {
    const fn new() -> Metrics {
        Metrics {
            calls: Mutex::new(BTreeMap::new()),
            fabric_errors: Mutex::new(BTreeMap::new()),
            runs: AtomicUsize::new(0),
            relayed: AtomicU64::new(0),
        }
    }

    fn call(&self, tool: &'static str, outcome: &'static str, took: Option<Duration>) {
        let mut calls = lock(&self.calls);
        let calls = calls.entry(tool).or_default();
        *calls.outcomes.entry(outcome).or_default() += 1;
        let Some(took) = took else { return };
        calls.buckets
            [BUCKETS.iter().position(|bound| took <= Duration::from_millis(*bound)).unwrap_or(BUCKETS.len())] += 1;
        calls.time += took;
    }

    fn fabric_error(&self, kind: &'static str) {
        *lock(&self.fabric_errors).entry(kind).or_default() += 1;
    }

    fn render(&self, connections: usize, sessions: usize) -> String {
        let mut out = Text(String::with_capacity(4096));
        out.family("build_info", "gauge", "The version that runs.");
        out.sample("build_info", format_args!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1);
        out.single("runs_in_flight", "gauge", "Runs of a pattern at this moment.", self.runs.load(Ordering::Relaxed));
        out.single("memory_bytes", "gauge", "What requests, runs and answers hold of --max-memory.", MEMORY.used());
        out.single("connections", "gauge", "Connections at this moment.", connections);
        out.single("sessions", "gauge", "Legacy sessions that are remembered.", sessions);
        out.single(
            "relayed_bytes_total",
            "counter",
            "Text of runs that came from Fabric, in bytes.",
            self.relayed.load(Ordering::Relaxed),
        );
        out.family("fabric_errors_total", "counter", "Failures of Fabric, by kind.");
        for (kind, count) in &*lock(&self.fabric_errors) {
            out.sample("fabric_errors_total", format_args!("{{kind=\"{kind}\"}}"), count);
        }
        let calls = lock(&self.calls);
        out.family("calls_total", "counter", "Calls of tools, by tool and outcome.");
        for (tool, calls) in &*calls {
            for (outcome, count) in &calls.outcomes {
                out.sample("calls_total", format_args!("{{tool=\"{tool}\",outcome=\"{outcome}\"}}"), count);
            }
        }
        out.family("call_duration_seconds", "histogram", "How long calls of tools took.");
        for (tool, calls) in &*calls {
            let mut count = 0;
            for (bound, more) in BUCKETS.iter().map(Some).chain([None]).zip(calls.buckets) {
                count += more;
                let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| time::decimal(u128::from(*bound), 3));
                out.sample("call_duration_seconds_bucket", format_args!("{{tool=\"{tool}\",le=\"{bound}\"}}"), count);
            }
            out.sample("call_duration_seconds_sum", format_args!("{{tool=\"{tool}\"}}"), time::seconds(calls.time));
            out.sample("call_duration_seconds_count", format_args!("{{tool=\"{tool}\"}}"), count);
        }
        out.0
    }
}

/// The format: `# HELP` and `# TYPE` of each family, then its samples. Writing to a string cannot fail.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP fabric_mcp_{name} {help}\n# TYPE fabric_mcp_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: std::fmt::Arguments<'_>, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "fabric_mcp_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
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
        metrics.call("fabric_run_pattern", "cancelled", Some(Duration::from_secs(3600)));
        metrics.call("fabric_run_pattern", "too-many-requests", None);
        metrics.fabric_error("fabric-api-error");
        let text = metrics.render(3, 2);
        for line in [
            "# TYPE fabric_mcp_runs_in_flight gauge",
            "fabric_mcp_runs_in_flight 0",
            "fabric_mcp_connections 3",
            "fabric_mcp_sessions 2",
            "fabric_mcp_relayed_bytes_total 0",
            "fabric_mcp_fabric_errors_total{kind=\"fabric-api-error\"} 1",
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
}
