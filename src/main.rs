//! fabric-mcp: a Model Context Protocol server in front of Fabric's REST API.
mod cli;
mod config;
mod fabric;
mod logging;
mod random;
mod signals;
mod time;
fn main() {}
