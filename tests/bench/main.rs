//! `cargo bench`: the cost of this server, compared with the same bytes without it.
//!
//! Every section has a baseline (its floor): a bare echo over the same pipe or socket, or Fabric read directly,
//! measured in the same run, because machines drift. `cargo bench -- NAME` runs the sections whose name contains NAME;
//! `-- --soak MINUTES` is a soak instead. `FABRIC_MCP_BINARY` measures another binary. Fabric and the echoes are this
//! program in other processes.
//!
//! Not in scope: passing or failing; people compare the numbers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on has nothing better to do"
)]

mod clock;
mod fabric;
mod http;
mod process;
mod report;
mod soak;
mod stdio;
mod wire;

use std::net::SocketAddr;

use report::Row;

/// Shared input of all sections.
pub(crate) struct Bench {
    /// The fake Fabric's URL.
    pub(crate) fabric: String,
    pub(crate) fabric_address: SocketAddr,
}

type Section = (&'static str, fn(&Bench) -> Vec<Row>);

const SECTIONS: [Section; 11] = [
    ("start", stdio::start),
    ("stdio", stdio::round_trips),
    ("patterns", stdio::list_patterns),
    ("search", stdio::search),
    ("relay", stdio::relay),
    ("size", stdio::size),
    ("http", http::requests),
    ("http-relay", http::relay),
    ("http-memory", http::memory),
    ("allocations", http::allocations),
    ("streams", http::streams),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--fabric", port] => return fabric::serve(port.parse().unwrap()),
        ["--soak", minutes, ..] => std::process::exit(soak::run(minutes.parse().unwrap())),
        ["--echo", bytes] => return stdio::serve_echo(bytes.parse().unwrap()),
        ["--echo-http", bytes] => return wire::serve_echo(bytes.parse().unwrap()),
        _ => {}
    }
    // Cargo itself adds `--bench`.
    let wanted = arguments.into_iter();
    let wanted: Vec<&str> = wanted.filter(|a| !a.starts_with("--")).collect();
    let (_fabric, fabric_address) = process::listener(&["--fabric", "0"]);
    let bench = Bench {
        fabric: format!("http://{fabric_address}"),
        fabric_address,
    };
    println!("{}", report::header());
    for (name, section) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w)) {
            for row in section(&bench) {
                println!("{}", row.line().trim_end());
            }
        }
    }
}
