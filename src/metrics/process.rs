//! Process metrics from `/proc`, under the names of Prometheus' own client libraries.

use std::fs;
use std::io;

/// Clock ticks per second: Linux uses this unit towards programs on every architecture.
const TICKS: u64 = 100;

/// Metrics of the process: name, type, help and value. Nothing where there is no `/proc`.
pub(super) fn metrics() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let (Ok(stat), Ok(status), Ok(limits)) = (read("stat"), read("status"), read("limits")) else {
        return Vec::new();
    };
    let mut all = of(&stat, &status, &limits);
    // Without the one that lists the folder.
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        all.push((
            "process_open_fds",
            "gauge",
            "Open files.",
            files.count().saturating_sub(1).to_string(),
        ));
    }
    all
}

fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/self/{name}"))
}

fn of(
    stat: &str,
    status: &str,
    limits: &str,
) -> Vec<(&'static str, &'static str, &'static str, String)> {
    // The program's name may hold blanks and brackets.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_ascii_whitespace()
        .collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let line = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next())
    };
    let bytes = |name: &str| {
        line(name)
            .and_then(|kib| kib.parse::<u64>().ok())
            .map(|kib| (kib << 10).to_string())
    };
    let most = limits.lines().find_map(|line| {
        line.strip_prefix("Max open files")?
            .split_ascii_whitespace()
            .next()
    });
    let cpu = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    let cpu = cpu.map(|ticks| format!("{}.{:02}", ticks / TICKS, ticks % TICKS));
    [
        (
            "process_cpu_seconds_total",
            "counter",
            "Time of the processor, in seconds.",
            cpu,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory in use.",
            bytes("VmRSS:"),
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Addresses in use.",
            bytes("VmSize:"),
        ),
        (
            "process_threads",
            "gauge",
            "Threads.",
            line("Threads:").map(str::to_owned),
        ),
        (
            "process_max_fds",
            "gauge",
            "Most files that may be open.",
            most.map(|n| n.replace("unlimited", "+Inf")),
        ),
    ]
    .into_iter()
    .filter_map(|(name, kind, help, value)| Some((name, kind, help, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 0 0 20 0 9 0 100 1 2";
        let status = "Name:\ta\nVmSize:\t   20 kB\nVmRSS:\t    3 kB\nThreads:\t9\n";
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024   4096   files\n";
        let all: Vec<_> = of(stat, status, limits)
            .into_iter()
            .map(|(name, _, _, value)| (name, value))
            .collect();
        let expected = [
            ("process_cpu_seconds_total", "3.25"),
            ("process_resident_memory_bytes", "3072"),
            ("process_virtual_memory_bytes", "20480"),
            ("process_threads", "9"),
            ("process_max_fds", "1024"),
        ];
        assert_eq!(all, expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(of("", "", ""), []);
    }
}
