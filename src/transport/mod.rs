//! What all transports share: running a call so that nothing it does can hurt another, knowing which calls are in
//! flight, and watching the lists for those who listen.
//!
//! Transports only carry: bytes in to `mcp`, its answers out. What a message means is not decided here.
//!
//! ```text
//!   stdio ─────────────────────▶ pipe ─▶ workers ─┐
//!   listening ─▶ web ─┬─ sse ──▶ pipe ─▶ workers ─┼─▶ run ─▶ mcp
//!                     └─ streamable ─▶ reply ─────┘
//! ```

mod admission;
mod base64;
mod batch;
mod guard;
mod inflight;
pub(crate) mod listening;
mod ops;
mod pipe;
mod poller;
mod reply;
mod sessions;
mod sse;
pub(crate) mod stdio;
mod streamable;
mod streams;
mod web;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::jsonrpc::{INVALID_REQUEST, Id, NoId};
use crate::mcp::{Answer, Call, ID_IN_USE, Outlet, Refusal, Server};

/// Runs a call on this thread. A panic in it costs this call only; the panic hook has logged where it was.
fn run(server: &Server, call: &Call, outlet: Arc<dyn Outlet>) -> Answer {
    catch_unwind(AssertUnwindSafe(|| call.run(server, outlet))).unwrap_or_else(|_| call.panicked())
}

/// The answer to a request whose id is in use: the first one goes on.
fn duplicate(id: &Id, modern: bool) -> Answer {
    Refusal::new(INVALID_REQUEST, ID_IN_USE).answer(Some(id), NoId::Absent, modern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{self, Action, Session};

    /// An outlet with a bug.
    struct Broken;

    impl Outlet for Broken {
        fn notify(&self, _: &[u8]) {}
        fn stopped(&self) -> bool {
            panic!("s3cret input")
        }
    }

    #[test]
    fn a_panic_becomes_the_answer_of_its_call() {
        let server = Server::without_fabric();
        let message = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fabric_run_pattern",
            "arguments":{"pattern_name":"ai"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let action = server.receive(&Arc::new(Session::stdio()), mcp::inspect(message, false), None);
        let Action::Call(call) = action else { panic!("no call") };
        let text = String::from_utf8(run(&server, &call, Arc::new(Broken)).body).unwrap();
        assert!(text.starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#), "{text}");
        assert!(text.contains("urn:fabric-mcp:error:internal-server-error") && text.contains("request_id"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
