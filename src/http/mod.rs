//! An HTTP/1.1 server on `std::net`, one thread per connection, with a limit on everything a peer can ask for.
//!
//! In scope: accepting, reading heads and bodies, keep-alive and pipelining, sized responses, event streams, detecting
//! disconnects, and graceful shutdown. Not in scope: what the requests mean (this folder knows nothing of MCP or
//! Fabric), TLS (left to a proxy), and compression.
//!
//! # tiny_http
//! The types ([`Method`], [`HTTPVersion`](tiny_http::HTTPVersion), status codes and their reasons) are tiny_http's. Its
//! `Server` is not used, because it cannot be made safe from outside (0.12.0, measured):
//! - a request with `Content-Length: 200000000000` and an unread body allocates that much in a `Drop`: the process
//!   aborts;
//! - its thread pool loses wake-ups: the fifth of five keep-alive connections opened at once hangs;
//! - its listener stops for good on the first EMFILE, ECONNABORTED or failed thread spawn;
//! - it has no limits on heads, bodies, times or connections; and two `Content-Length` headers pass (smuggling);
//! - it hides the socket: no TCP_NODELAY, and a disconnect is only detected by a failing write.
//!
//! Its `Response` is not used either: its date panics with a clock before 1970, it writes no `Connection`, a head costs 23
//! allocations, and streams would be pulled 8 KiB at a time and never flushed. A head is written into memory here, and the
//! body follows in the same system call without being copied. If tiny_http publishes a server without these faults, only
//! this folder changes.
//!
//! # The life of a connection
//! ```text
//!            accept ── no place left: another connection is evicted
//!              │
//!              ▼   idle_timeout, eviction, drain
//!   ┌────▶   idle ──────────────────────────────────▶ closed
//!   │          │ first byte
//!   │          ▼   bad head: 400 408 414 417 431 501 505; eviction
//!   │        head ──────────────────────────────────▶ answered, read on for a moment, closed
//!   │          │ Exchange
//!   │          ▼   panic, no answer: 500; eviction, unless the request is admitted
//!   │       handler ── `Connection: close` is sent ──▶ no place any more; closed when the handler returns
//!   │          │
//!   └──────────┴── unread body, aborted stream ─────▶ closed
//! ```
mod body;
mod connection;
mod registry;
mod request;
mod responder;
mod server;
mod socket;

#[cfg(test)]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;

pub(crate) use body::Body;
pub(crate) use connection::Exchange;
pub(crate) use request::{Head, Rejection};
pub(crate) use responder::{JSON, Responder, names};
pub(crate) use server::{HttpServer, listen};
pub(crate) use tiny_http::Method;

/// Answers the requests of an [`HttpServer`], each with [`Exchange::respond`] or [`Exchange::responder`]. Called on the
/// connection's own thread, concurrently. If it returns or panics without an answer, the client gets a 500; after a panic
/// the connection is closed.
pub(crate) type Handler = dyn Fn(Exchange<'_>) + Send + Sync;
