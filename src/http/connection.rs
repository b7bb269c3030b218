//! The request loop of one connection, and the exchange that a handler gets.
//!
//! In scope: keep-alive, unread bodies, panics, and when the connection closes. Not in scope: reading heads (`request`)
//! and bodies (`body`), writing (`response`, `stream`).

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::body::{self, Body, BodyError};
use super::deferred::Deferred;
use super::registry::{Lease, StreamState};
use super::request::{self, Framing, Head, Rejection};
use super::response::{self, After};
use super::socket::Connection;
use super::{Handler, Method};

const UNANSWERED: Rejection = Rejection {
    status: 500,
    text: "The server failed to answer this request.",
};

/// Serves a connection until it ends, or until a stream takes it over.
pub(super) fn serve(lease: Lease, handler: &dyn Handler) {
    let peer = lease.slot.peer;
    let Ok(mut connection) = Connection::new(Arc::new(lease)) else {
        return;
    };
    let mut head = Head::empty();
    loop {
        match request::next_head(&mut connection, &mut head) {
            Ok(true) => {}
            Ok(false) => return,
            Err(rejection) => {
                log::debug!("{peer}: answered {}: {}", rejection.status, rejection.text);
                if response::refuse(&connection.lease, rejection).is_ok() {
                    connection.linger();
                }
                return;
            }
        }
        match answer(&mut connection, &head, handler) {
            Then::Next => {}
            Then::Leave => return,
            Then::Linger => return connection.linger(),
        }
    }
}

/// What to do after an answer.
enum Then {
    /// Read the next request.
    Next,
    /// Nothing: the connection has ended, or a stream owns it.
    Leave,
    /// Close after a lingering read, so that the client sees the response.
    Linger,
}

/// The state of the response to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Nothing,
    /// Sent completely.
    Sent(After),
    Failed,
    Stream(After),
}

fn answer(connection: &mut Connection, head: &Head, handler: &dyn Handler) -> Then {
    let mut state = ExchangeState {
        body: head.framing,
        read_failed: false,
        progress: Answered::Nothing,
    };
    let exchange = Exchange {
        head,
        connection: &mut *connection,
        state: &mut state,
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| handler.handle(exchange))).is_err();
    if state.progress == Answered::Nothing {
        log::error!(
            "{} {} from {} was not answered",
            head.method(),
            head.path(),
            connection.slot().peer
        );
        return if response::refuse(&connection.lease, UNANSWERED).is_ok() {
            Then::Linger
        } else {
            Then::Leave
        };
    }
    let slot = connection.slot();
    let after = match state.progress {
        Answered::Sent(after) => after,
        // The stream may finish concurrently on another thread; the first of the two decides who closes the connection.
        Answered::Stream(after)
            if !slot.end_stream(StreamState::Detached) && slot.stream_finished() =>
        {
            after
        }
        Answered::Stream(_) | Answered::Failed | Answered::Nothing => return Then::Leave,
    };
    connection.lease.answered();
    let unread = state.body != Framing::None || !connection.unread().is_empty();
    match after {
        After::Keep if !panicked => Then::Next,
        _ if unread => Then::Linger,
        _ => Then::Leave,
    }
}

/// The result of an exchange, for the connection.
struct ExchangeState {
    /// The unread part of the request's body.
    body: Framing,
    read_failed: bool,
    progress: Answered,
}

/// A request that needs exactly one response.
pub(crate) struct Exchange<'a> {
    head: &'a Head,
    connection: &'a mut Connection,
    state: &'a mut ExchangeState,
}

impl<'a> Exchange<'a> {
    /// The request's head. Outlives the exchange, so it remains readable while answering.
    pub(crate) fn head(&self) -> &'a Head {
        self.head
    }

    /// The peer's address: the client, or a proxy in front of this server.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.connection.slot().peer
    }

    /// Reads the whole body, within its limits of size, time and memory. Sends `100 Continue` only here, so that a
    /// client whose request is rejected need not send its body. A second call returns an empty body. After an error the
    /// connection closes with the response.
    pub(crate) fn read_body(&mut self) -> Result<Body, BodyError> {
        let body = body::read_body(self.connection, self.state.body, self.head.expects_continue);
        match &body {
            Ok(_) => self.state.body = Framing::None,
            Err(_) => self.state.read_failed = true,
        }
        body
    }

    /// Protects the connection from eviction until its request is answered; for complete, admitted requests. False if
    /// `max_connections` are protected already: then answer briefly.
    pub(crate) fn hold(&self) -> bool {
        self.connection.lease.hold()
    }

    /// Answers with a body of known size, in parts. Adds the headers for framing; omits headers that are not visible
    /// ASCII. If the client has disconnected or does not read for `write_timeout`, the connection ends.
    pub(crate) fn respond(mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        let after = self.after();
        let head_only = *self.head.method() == Method::Head;
        let sent = response::respond(
            &self.connection.lease,
            self.head.version(),
            status,
            headers,
            body,
            head_only,
            after,
        );
        if let Err(e) = &sent {
            log::debug!("{}: the answer could not be sent: {e}", self.peer());
        }
        self.state.progress = if sent.is_ok() {
            Answered::Sent(after)
        } else {
            Answered::Failed
        };
    }

    /// Defers the response: whether it is sized or a stream is decided later, perhaps on another thread.
    pub(crate) fn defer(mut self) -> Deferred {
        let after = if *self.head.version() == (1, 1) {
            self.after()
        } else {
            After::Close
        };
        self.state.progress = Answered::Stream(after);
        Deferred::new(
            self.connection,
            self.head.version().clone(),
            *self.head.method() == Method::Head,
            after,
        )
    }

    /// Whether the connection can be reused after this response. An unread body is skipped if already buffered, but not
    /// waited for.
    fn after(&mut self) -> After {
        if let (Framing::Length(length), false) = (self.state.body, self.state.read_failed) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length <= self.connection.unread().len() {
                self.connection.consume(length);
                self.state.body = Framing::None;
            }
        }
        let reusable = self.state.body == Framing::None
            && self.head.keep_alive
            && !self.connection.lease.registry.draining();
        if reusable { After::Keep } else { After::Close }
    }
}
