//! fabric-mcp: a Model Context Protocol server in front of Fabric's REST API.
mod config;
mod demo;
mod fabric;
mod http;
fn main() {}
