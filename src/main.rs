//! fabric-mcp: a Model Context Protocol server in front of Fabric's REST API.
mod config;
mod fabric;
fn main() {}
