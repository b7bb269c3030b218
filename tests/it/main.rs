//! Integration tests: the real binary over real pipes and sockets, against a Fabric that misbehaves on request.
//!
//! In scope: what a client, an operator or Fabric can see from outside. Not in scope: rules that need no process; their
//! tests sit beside the code. Every test starts its own Fabric and its own server, so tests run in any order and at
//! once. No test waits for a fixed time: a gate, an answer or a closed connection synchronises it, and a deadline only
//! ends a test that has already failed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::print_stderr,
    reason = "seeds and transcripts of failures go to the test's own output"
)]

#[allow(dead_code, reason = "tests ask for a part of it")]
#[path = "../../src/protocol/revision.rs"]
mod revision;
mod support;
#[allow(unused, reason = "tests use one of its macros")]
#[path = "../../src/table.rs"]
mod table;

mod asked;
mod call;
mod cancelling;
mod chains;
mod check_and_demo;
mod check_problems;
mod cli;
mod concurrency;
mod concurrency_http;
mod connect;
mod contracts;
mod ending;
mod fabric_connection;
mod faults;
// Its consumers are there on Unix only.
#[cfg(unix)]
mod generate;
mod hostile;
mod http;
#[cfg(target_os = "linux")]
mod idle;
mod inputs;
mod install;
mod layers;
mod limits;
mod live;
mod logs;
mod memory;
mod names;
mod packages;
mod patterns_dir;
mod process;
mod process_http;
mod protocol;
mod readme;
mod runs;
mod schemas;
mod search;
mod secrets;
mod service;
mod skills;
mod skills_on_disk;
mod start_fabric;
mod strategies;
mod streaming;
mod surface;
mod tasks;
mod templates;
mod thinking;
mod tls;
mod tools;
mod transcripts;
mod unread_output;
