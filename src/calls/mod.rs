//! How a call runs, whatever the transport: whether it may (`admission`, `shares`), which are in flight (`inflight`), on
//! which thread (`workers`), for one client on one connection (`pipe`); and the polling of lists for subscribers
//! (`poller`).
//!
//! ```text
//!   transport/stdio ──────────────▶ pipe ─▶ workers ─┐
//!   transport/http ─┬─ sse ───────▶ pipe ─▶ workers ─┼─▶ run ─▶ features
//!                   └─ streamable ───────────────────┘
//! ```
//! Not in scope: what a message means (`features`), how bytes come and go (`transport`).

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod inflight;
pub(crate) mod pipe;
pub(crate) mod poller;
pub(crate) mod shares;
pub(crate) mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fabric::Error;
use crate::features::{Call, Server, Visitor, refuse};
use crate::jsonrpc::{INVALID_REQUEST, Id, NoId};
use crate::protocol::{Answer, ID_IN_USE, Refusal};

/// Runs a call on this thread. A panic in it costs this call only; the panic hook has logged where it was.
pub(crate) fn run(server: &Server, call: &Call, visitor: Visitor) -> Answer {
    let _scope = visitor.identity.log_scope();
    let answer = catch_unwind(AssertUnwindSafe(|| call.run(server, visitor)));
    answer.unwrap_or_else(|_| call.fail(Error::bug(&call.request_id)))
}

/// The answer to a request whose id is in use: the first one goes on.
pub(crate) fn duplicate(id: &Id, modern: bool) -> Answer {
    refuse(
        Refusal::new(INVALID_REQUEST, ID_IN_USE),
        Some(id),
        NoId::Absent,
        modern,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::Identity;
    use crate::features::{Action, Sink};
    use crate::protocol::{Inbound, Session};
    use crate::runs::Owner;

    /// A sink that panics.
    struct Broken;

    impl Sink for Broken {
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
        let action = server.receive(
            &Arc::new(Session::stdio()),
            Inbound::read(message, false),
            None,
        );
        let Action::Call(call) = action else {
            panic!("no call")
        };
        let visitor = Visitor {
            identity: Identity::Local,
            owner: Owner::Process,
            sink: Arc::new(Broken),
            held: None,
        };
        let text = String::from_utf8(run(&server, &call, visitor).body.into_bytes()).unwrap();
        assert!(
            text.starts_with(
                r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":["#
            ),
            "{text}"
        );
        assert!(
            text.contains("urn:fabric-mcp:error:internal-server-error")
                && text.contains("request_id"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
}
