//! Bytes in and out: stdio, Streamable HTTP, HTTP+SSE, and `--connect`, from stdio to a server over HTTP.

pub(crate) mod connect;
pub(crate) mod http;
mod inflight;
mod pipe;
pub(crate) mod stdio;
mod threads;

use std::time::Duration;

use crate::account::{Account, QuotaExceeded, Reservation, Resource};
use crate::config::{ABORT_GRACE, MAX_LINE_VALUES};
use crate::fabric::too_many;
use crate::protocol::{Answer, Id, Inbound, VALUE};
use crate::server::refuse;
use crate::tools::Backend;

pub(crate) use threads::start;

/// Decodes a line or body. The memory that this may take is held until the guard is dropped.
///
/// # Errors
/// The answer if there is no room for it.
fn read<'a>(
    bytes: &'a [u8],
    modern_header: bool,
    no_id: Option<Id>,
    account: &Account,
) -> Result<(Reservation, Inbound<'a>), Answer> {
    let take = |values: usize| {
        let memory = bytes.len() + VALUE * values.min(MAX_LINE_VALUES);
        account.take(Resource::Memory, memory)
    };
    // Counting takes time, so it is done only where there is no room for as many values as there may be at most.
    let count = || bytes.iter().filter(|byte| b",:[{".contains(byte)).count() + 1;
    match take(bytes.len() / 2 + 1).or_else(|QuotaExceeded| take(count())) {
        Ok(parsing) => Ok((parsing, Inbound::read(bytes, modern_header))),
        Err(QuotaExceeded) => {
            let id = Id::sought(&mut &*bytes).or(no_id);
            Err(refuse(too_many().into(), id.as_ref(), modern_header))
        }
    }
}

/// Lets calls and runs finish within `limit`. Those that take longer are stopped, and their answers say so.
fn drain(backend: &Backend, limit: Duration) {
    if !backend.accounts.wait_idle(limit) {
        log::warn!("calls that still run after the drain timeout are stopped");
        backend.runs.interrupt_all();
        backend.accounts.abort();
        backend.accounts.wait_idle(ABORT_GRACE);
    }
}
