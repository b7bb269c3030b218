//! An HTTP/1.1 server on `std::net`, one thread a connection, with a bound on everything a peer can ask for.
//!
//! In scope: accepting, reading heads and bodies, keep-alive and pipelining, sized responses, event streams, noticing
//! that a client has gone, and stopping gracefully. Not in scope: what the requests mean (this folder knows nothing of
//! MCP or Fabric), TLS (a proxy's work), and compression.
//!
//! # tiny_http
//! The vocabulary ([`Method`], [`HTTPVersion`], headers, status codes) and the writing of responses whose size is known
//! are tiny_http's. Its `Server` is not used, because it cannot be made safe from outside (0.12.0, measured):
//! - a request with `Content-Length: 200000000000` and an unread body allocates that much in a `Drop`: the process
//!   aborts;
//! - its pool of threads loses wake-ups: the fifth of five keep-alive connections opened at once hangs;
//! - its listener ends for good on the first EMFILE, ECONNABORTED or failed spawn of a thread;
//! - it limits nothing: heads, bodies, times and connections; and two `Content-Length` headers pass (smuggling);
//! - it hides the socket: no TCP_NODELAY, and a client that left is only noticed by a failing write.
//!
//! `Response::raw_print` writes the head of a sized response, into memory; the body follows it in the same system call
//! without being copied. Streams write their own head and chunks, since `raw_print` pulls from a reader 8 KiB at a
//! time, never flushes, and buffers everything for HTTP/1.0. `Date` is always given to it, as its own panics when the
//! clock stands before 1970. If tiny_http publishes a server without these faults, only this folder changes.
//!
//! # The life of a connection
//! ```text
//!            accept ── cap reached, nobody to evict ▶ 503, closed
//!              │
//!              ▼   idle_timeout, eviction, drain
//!   ┌────▶   idle ──────────────────────────────────▶ closed
//!   │          │ first byte
//!   │          ▼   bad head: 400 408 414 417 431 501 505; eviction
//!   │        head ──────────────────────────────────▶ answered, read on for a moment, closed
//!   │          │ Exchange
//!   │          ▼   panic, no answer: 500; eviction, unless the handler holds the connection
//!   │       handler ── EventStream kept elsewhere ──▶ the thread ends, the stream owns the socket
//!   │          │
//!   └──────────┴── `Connection: close`, unread body ▶ closed
//! ```
mod body;
mod connection;
mod deferred;
mod registry;
mod request;
mod response;
mod server;
mod stream;
mod wire;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

pub(crate) use body::{Body, BodyError};
pub(crate) use connection::Exchange;
pub(crate) use deferred::Deferred;
pub(crate) use request::Head;
pub(crate) use server::Server;
pub(crate) use stream::EventStream;
pub(crate) use tiny_http::{HTTPVersion, Method};

/// What answers the requests of a [`Server`]. Called on the connection's own thread, many at once.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one request, by [`Exchange::respond`] or [`Exchange::stream`]. A handler that does neither, or that
    /// panics before, is answered for with a 500; after a panic the connection is closed.
    fn handle(&self, exchange: Exchange<'_>);
}
