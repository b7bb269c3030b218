//! Bytes in and out: stdio, Streamable HTTP, HTTP+SSE. Transports only carry.

mod batch;
pub(crate) mod http;
mod inflight;
mod pipe;
pub(crate) mod stdio;
mod threads;

use std::time::Duration;

use crate::config::ABORT_GRACE;
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, ID_IN_USE, Id, NoId, Refusal};
use crate::server::refuse;
use crate::tools::Backend;

/// The answer to a request whose id is in use: the first one goes on.
fn duplicate(id: &Id, modern: bool) -> Answer {
    refuse(
        Refusal::new(INVALID_REQUEST, ID_IN_USE),
        Some(id),
        NoId::Absent,
        modern,
    )
}

/// Lets calls and runs finish within `limit`. The others are stopped then, and answered so.
fn drain(backend: &Backend, limit: Duration) {
    if !backend.accounts.wait_idle(limit) {
        log::warn!("calls still run after the drain timeout: they are stopped");
        backend.runs.interrupt_all();
        backend.accounts.abort();
        backend.accounts.wait_idle(ABORT_GRACE);
    }
}
