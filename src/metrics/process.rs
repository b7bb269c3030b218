//! Process metrics from `/proc`, under the names of Prometheus' own client libraries.

use std::fs;

use crate::time;

/// Clock ticks per second: Linux uses this unit towards programs on every architecture.
const TICKS: f64 = 100.0;

/// Metrics of the process in the text format. `None` where there is no `/proc`.
pub(super) fn metrics() -> Option<String> {
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).ok();
    let [stat, status, limits] = ["stat", "status", "limits"].map(read);
    // Includes the descriptor that lists this folder, as in other programs.
    let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
    of(&stat?, &status?, &limits?, open_files)
}

fn of(stat: &str, status: &str, limits: &str, open_files: usize) -> Option<String> {
    // The program's name may hold blanks and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = times.flat_map(str::parse::<u64>).sum();
    let value = |text: &str, name: &str| {
        let mut lines = text.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name))?;
        rest.split_ascii_whitespace().next().map(str::to_owned)
    };
    let bytes = |name: &str| Some(value(status, name)?.parse::<u64>().ok()? << 10);
    Some(format!(
        include_str!("process.txt"),
        started = time::started(),
        cpu = ticks as f64 / TICKS,
        resident = bytes("VmRSS:")?,
        addresses = bytes("VmSize:")?,
        threads = value(status, "Threads:")?,
        max_files = value(limits, "Max open files")?.replace("unlimited", "+Inf"),
        open_files = open_files,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 0 0 20 0 9 0 100 1 2";
        let status = "Name:\ta\nVmSize:\t   20 kB\nVmRSS:\t    3 kB\nThreads:\t9\n";
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024   4096   files\n";
        let text = of(stat, status, limits, 7).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        // The first is of the clock.
        let samples: Vec<_> = samples.skip(1).collect();
        let expected = [
            "process_cpu_seconds_total 3.25",
            "process_resident_memory_bytes 3072",
            "process_virtual_memory_bytes 20480",
            "process_threads 9",
            "process_max_fds 1024",
            "process_open_fds 7",
        ];
        assert_eq!(samples, expected);
        assert_eq!(of("", "", "", 0), None);
    }
}
