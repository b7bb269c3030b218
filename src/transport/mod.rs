//! Bytes in and out: stdio, Streamable HTTP, HTTP+SSE. Transports only carry.

mod batch;
pub(crate) mod http;
mod inflight;
mod pipe;
pub(crate) mod stdio;
mod threads;

use std::time::Duration;

use crate::account::{Account, Full, Guard, Resource};
use crate::config::{ABORT_GRACE, MAX_LINE_VALUES};
use crate::fabric::too_many;
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, ID_IN_USE, Id, Inbound, NoId, Refusal, VALUE};
use crate::server::{Call, refuse};
use crate::tools::Backend;

use inflight::{Cancel, Inflight};

pub(crate) use pipe::Outlet;
pub(crate) use threads::start;

/// Decodes a line or body. What that may take of memory is held until the guard is dropped.
///
/// # Errors
/// The answer if there is no room for it.
fn read<'a>(
    bytes: &'a [u8],
    modern_header: bool,
    no_id: NoId,
    account: &Account,
) -> Result<(Guard, Inbound<'a>), Answer> {
    let values = (bytes.len() / 2 + 1).min(MAX_LINE_VALUES);
    match account.take(Resource::Memory, bytes.len() + VALUE * values) {
        Ok(parsing) => Ok((parsing, Inbound::read(bytes, modern_header))),
        Err(Full) => {
            let id = Id::sought(bytes);
            Err(refuse(too_many().into(), id.as_ref(), no_id, modern_header))
        }
    }
}

/// Registers a call.
///
/// # Errors
/// The answer if its id is in use. That has been refused before; but over HTTP two messages may come at the same moment.
fn begin(inflight: &Inflight, call: &Call) -> Result<Cancel, Answer> {
    let (id, is_modern) = (&call.head.id, !call.head.request.revision.is_legacy());
    inflight.begin(id).ok_or_else(|| duplicate(id, is_modern))
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

/// Lets calls and runs finish within `limit`. The others are stopped then, and answered so.
fn drain(backend: &Backend, limit: Duration) {
    if !backend.accounts.wait_idle(limit) {
        log::warn!("calls still run after the drain timeout: they are stopped");
        backend.runs.interrupt_all();
        backend.accounts.abort();
        backend.accounts.wait_idle(ABORT_GRACE);
    }
}
