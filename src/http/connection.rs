//! The request loop of one connection, and the exchange that a handler gets.
//!
//! In scope: keep-alive, unread bodies, panics, and when the connection closes. Not in scope: reading heads (`request`)
//! and bodies (`body`), writing (`responder`).

use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;

use crate::account::{Account, Resource};
use crate::logging;
use crate::sync::{Finally, lock};

use super::Handler;
use super::registry::{ConnectionPhase, Owner};
use super::request::{self, Head, Rejection};
use super::responder::Responder;
use super::socket::Connection;

/// Serves a connection until it ends.
pub(super) fn serve(mut connection: Connection, handler: &Handler) {
    let mut head = Head::empty();
    loop {
        match request::next_head(&mut connection, &mut head) {
            Ok(true) => {}
            Ok(false) => return,
            Err(rejection) => return refuse(&mut connection, rejection),
        }
        let exchange = Exchange {
            head: &head,
            connection: &mut connection,
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| handler(exchange))).is_err();
        let slot = &connection.slot;
        // Whoever still has the response cannot complete it any more.
        slot.end_response(None, Shutdown::Both);
        match slot.phase() {
            ConnectionPhase::Idle if !panicked => {}
            ConnectionPhase::Request => {
                let (method, path) = (&head.method, head.path());
                log::error!("{method} {path} from {} was not answered", slot.peer);
                let text = "The server failed to answer this request.";
                return refuse(&mut connection, Rejection(500, text));
            }
            _ if connection.has_unread() => return connection.linger(),
            _ => return,
        }
    }
}

/// Answers with a rejection in plain text, and closes.
fn refuse(connection: &mut Connection, Rejection(status, text): Rejection) {
    let message = format!("{}: answered {status}: {text}", connection.slot.peer);
    logging::debug(module_path!(), message);
    let headers = [("Content-Type", "text/plain; charset=utf-8")];
    // The answer is in HTTP/1.1, whatever the request was, and says that the connection closes.
    let head = &Head::empty();
    let exchange = Exchange { head, connection };
    exchange.respond(status, &headers, &[text.as_bytes(), b"\n"]);
    connection.linger();
}

/// A request that needs exactly one response.
pub(crate) struct Exchange<'a> {
    /// The request's head. Outlives the exchange, so it remains readable while answering.
    pub(crate) head: &'a Head,
    pub(super) connection: &'a mut Connection,
}

impl<'a> Exchange<'a> {
    /// The peer's address: the client, or a proxy in front of this server.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.connection.slot.peer
    }

    /// How many connections the server has.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.connection.slot.registry.slots).len()
    }

    /// Looks up the caller, which may take long. `look_up` can ask whether the connection is still there: once it was
    /// evicted, nobody gets an answer.
    pub(crate) fn look_up<T>(&self, look_up: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
        let slot = &self.connection.slot;
        let counter = &slot.registry.looking_up;
        counter.fetch_add(1, SeqCst);
        let _end = Finally(|| _ = counter.fetch_sub(1, SeqCst));
        look_up(&|| slot.phase() != ConnectionPhase::Evicted)
    }

    /// Says whose connection it is, if callers are told apart, before the body is read: of whoever has most connections, one is
    /// evicted.
    pub(crate) fn own(&self, account: &Account) {
        if !account.is_alone() {
            lock(&self.connection.slot.state).owner = Owner::Caller(account.address());
        }
    }

    /// Protects the connection from eviction until its request is answered; for complete, admitted requests. `account` pays
    /// for one of [`Resource::Streams`]; false if it may not, or the connection must close: then answer briefly.
    pub(crate) fn hold(&self, account: &Account) -> bool {
        let mut state = lock(&self.connection.slot.state);
        if state.phase == ConnectionPhase::Request && state.paid.is_none() {
            state.paid = account.take(Resource::Streams, 1).ok();
        }
        state.paid.is_some()
    }

    /// Answers with a body of known size: [`Responder::respond`].
    pub(crate) fn respond(mut self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        self.responder().respond(status, headers, body);
    }

    /// Frees the read buffer, before a wait during which nothing is read.
    pub(crate) fn free_buffer(&mut self) {
        self.connection.free_buffer(0);
    }

    /// Sends the response, once. The connection can be reused afterwards, unless a part of the body is missing.
    pub(crate) fn responder(&mut self) -> Responder {
        Responder::new(self.connection, self.head)
    }
}
