//! The listening socket: accepting, one thread per connection, and shutdown.
//!
//! A client that connects while the kernel's backlog is full retries after a second, and std asks for a backlog of only
//! 128, so it is raised.
//!
//! In scope: surviving failures of `accept` and `spawn`. Not in scope: what happens on a connection.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::registry::{Lease, LogLimit, Registry};
use super::request::FULL;
use super::{Handler, connection, response};
use crate::config::HttpLimits;
use crate::net::reachable;
use crate::sync::lock;

/// Longest pause of `accept` after a local error (no file descriptors, no memory), to avoid spinning; it ends early
/// when an evicted connection has closed.
const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The listen backlog; the kernel may have a lower limit. Enough for thousands of clients that connect at once:
/// accepting one and starting its thread takes about 50 µs.
#[cfg_attr(
    not(unix),
    allow(dead_code, reason = "std cannot ask for it elsewhere")
)]
const HTTP_BACKLOG: i32 = 4096;
/// Timeout of the connection that wakes `accept` on shutdown.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server on one address. Dropping it stops it, and closes connections that serve no request.
pub(crate) struct HttpServer {
    registry: Arc<Registry>,
    stopping: Arc<AtomicBool>,
    address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl HttpServer {
    /// Listens on the first available address; port 0 takes any free port. Until [`HttpServer::serve`], connections
    /// wait in the kernel's backlog.
    pub(crate) fn bind(
        addresses: impl ToSocketAddrs,
        limits: HttpLimits,
    ) -> io::Result<HttpServer> {
        let listener = TcpListener::bind(addresses)?;
        lengthen_backlog(&listener);
        Ok(HttpServer {
            registry: Arc::new(Registry::new(limits)),
            stopping: Arc::default(),
            address: listener.local_addr()?,
            listener: Mutex::new(Some(listener)),
            acceptor: Mutex::new(None),
        })
    }

    /// The address it listens on, with the real port.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests in progress. A client may get its answer slightly before its request stops counting.
    #[cfg(test)]
    pub(super) fn admitted(&self) -> usize {
        self.registry.admitted()
    }

    /// Starts serving on its own threads. Fails if called before, or if no thread can be started.
    pub(crate) fn serve(&self, handler: Arc<dyn Handler>) -> io::Result<()> {
        let already = || {
            io::Error::new(
                ErrorKind::AlreadyExists,
                "this server has been started before",
            )
        };
        let listener = lock(&self.listener).take().ok_or_else(already)?;
        let (registry, stopping) = (Arc::clone(&self.registry), Arc::clone(&self.stopping));
        let accept = move || {
            let accepted = listener.accept();
            (!stopping.load(Ordering::SeqCst)).then_some(accepted)
        };
        let acceptor = thread::Builder::new()
            .name("http-accept".to_owned())
            .spawn(move || accept_loop(&registry, accept, &handler))?;
        *lock(&self.acceptor) = Some(acceptor);
        Ok(())
    }

    /// The number of connections whose last response is not written.
    pub(crate) fn connections(&self) -> usize {
        self.registry.connections()
    }

    /// Stops accepting and closes the listening socket. Existing connections stay open.
    pub(crate) fn stop_accepting(&self) {
        lock(&self.listener).take();
        self.stopping.store(true, Ordering::SeqCst);
        let Some(acceptor) = lock(&self.acceptor).take() else {
            return;
        };
        // std cannot interrupt `accept`, so a connection wakes it. If that fails, `accept` is not blocked.
        let woken = TcpStream::connect_timeout(&reachable(self.address), WAKE_TIMEOUT);
        if woken.is_ok() {
            let _ = acceptor.join();
        }
    }

    /// Graceful shutdown: stops accepting, closes idle connections, and closes the others once their request is
    /// answered. Streams end when their owners end them. Returns the number of unanswered connections left at
    /// `deadline`, or 0 earlier.
    pub(crate) fn drain(&self, deadline: Instant) -> usize {
        self.stop_accepting();
        self.registry.drain(deadline)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.drain(Instant::now());
    }
}

/// Raises the listen backlog; if that fails, std's value stays.
fn lengthen_backlog(listener: &TcpListener) {
    #[cfg(unix)]
    {
        use std::ffi::c_int;
        use std::os::fd::AsRawFd;
        #[allow(
            unsafe_code,
            reason = "std has no way to set a backlog; this is POSIX's function, safe for any numbers"
        )]
        unsafe extern "C" {
            safe fn listen(socket: c_int, backlog: c_int) -> c_int;
        }
        listen(listener.as_raw_fd(), HTTP_BACKLOG);
    }
    #[cfg(not(unix))]
    let _ = listener;
}

/// Accepts until there is nothing more, and starts the connections' threads. Survives every error of `accept`.
pub(super) fn accept_loop(
    registry: &Arc<Registry>,
    mut accept: impl FnMut() -> Option<io::Result<(TcpStream, SocketAddr)>>,
    handler: &Arc<dyn Handler>,
) {
    let (mut refusals, mut failures) = (LogLimit::default(), LogLimit::default());
    while let Some(accepted) = accept() {
        match accepted {
            Ok((socket, peer)) => match registry.admit(socket, peer) {
                Ok(lease) => start(lease, handler),
                Err(mut socket) => {
                    if refusals.passes() {
                        log::warn!("{peer}: answered 503, all connections are in use");
                    }
                    // A new socket has buffer space for these few bytes: this does not block.
                    let _ = response::refusal(FULL).and_then(|bytes| socket.write_all(&bytes));
                }
            },
            // The client has aborted.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::ConnectionAborted
                        | ErrorKind::ConnectionReset
                        | ErrorKind::Interrupted
                ) => {}
            Err(e) => {
                // A local error, most likely no file descriptors. Each evicted connection ends one such failure and
                // allows the next.
                if failures.passes() {
                    log::error!("cannot accept connections, trying again: {e}");
                }
                registry.make_room(HTTP_ACCEPT_PAUSE);
            }
        }
    }
}

/// Starts the thread of a connection; if that fails, the connection is dropped.
fn start(lease: Lease, handler: &Arc<dyn Handler>) {
    let (peer, stack_size) = (lease.0.peer, lease.0.registry.limits.stack_size);
    let handler = Arc::clone(handler);
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .stack_size(stack_size);
    if let Err(e) = thread.spawn(move || connection::serve(lease, &*handler)) {
        log::error!("{peer}: dropped, no thread for it: {e}");
    }
}
