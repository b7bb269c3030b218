//! What all transports share: running a call so that nothing it does can hurt another, knowing which calls are in
//! flight, and watching the lists for those who listen.
//!
//! Transports only carry: bytes in to `mcp`, its answers out. What a message means is not decided here.

mod inflight;
mod poller;
pub(crate) mod stdio;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::mcp::{Answer, Call, Outlet, Server};

/// Runs a call on this thread. A panic in it costs this call only; the panic hook has logged where it was.
fn run(server: &Server, call: &Call, outlet: Arc<dyn Outlet>) -> Answer {
    catch_unwind(AssertUnwindSafe(|| call.run(server, outlet))).unwrap_or_else(|_| call.panicked())
}
