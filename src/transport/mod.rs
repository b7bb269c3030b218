//! Bytes in and out: stdio, Streamable HTTP, HTTP+SSE. Transports only carry.

mod batch;
pub(crate) mod http;
mod inflight;
mod pipe;
pub(crate) mod stdio;

use std::thread;

use crate::config::WORKER_STACK;
use crate::fabric::{Error, Kind};
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, ID_IN_USE, Id, NoId, Refusal};
use crate::server::refuse;

/// Starts a thread for a call.
///
/// # Errors
/// `too-many-requests`: the system has none.
fn start(call: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = thread::Builder::new()
        .name("call".to_owned())
        .stack_size(WORKER_STACK);
    thread.spawn(call).map(drop).map_err(|_| {
        Error::new(
            Kind::TooManyRequests,
            "The system has no thread for this call: nothing was run. Try again in a moment.",
        )
    })
}

/// The answer to a request whose id is in use: the first one goes on.
fn duplicate(id: &Id, modern: bool) -> Answer {
    refuse(
        Refusal::new(INVALID_REQUEST, ID_IN_USE),
        Some(id),
        NoId::Absent,
        modern,
    )
}
