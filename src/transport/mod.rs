//! Bytes in and out: stdio, Streamable HTTP, HTTP+SSE. Transports only carry.

mod batch;
pub(crate) mod http;
mod inflight;
mod pipe;
pub(crate) mod stdio;
mod threads;

use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, ID_IN_USE, Id, NoId, Refusal};
use crate::server::refuse;

/// The answer to a request whose id is in use: the first one goes on.
fn duplicate(id: &Id, modern: bool) -> Answer {
    refuse(
        Refusal::new(INVALID_REQUEST, ID_IN_USE),
        Some(id),
        NoId::Absent,
        modern,
    )
}
