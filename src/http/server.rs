//! The listening socket: accepting, one thread per connection, and shutdown.
//!
//! A client that connects while the kernel's backlog is full retries after a second, and std asks for a backlog of only
//! 128, so it is raised.
//!
//! In scope: surviving failures of `accept` and `spawn`. Not in scope: what happens on a connection.

use std::io::{self, ErrorKind};
use std::iter;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::registry::{Lease, Registry, Slots};
use super::{Handler, connection};
use crate::config::HttpLimits;
use crate::sync::{self, lock, wait_while};
use crate::url::reachable;

/// Most connections that wait to be accepted.
const BACKLOG: usize = 4096;
/// Timeout of the connection that wakes `accept` on shutdown.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server on one address. Dropping it stops it, and closes connections that serve no request.
pub(crate) struct HttpServer {
    pub(super) registry: Arc<Registry>,
    /// The address it listens on, with the real port.
    pub(crate) address: SocketAddr,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

/// Listens on the first available address; port 0 takes any free port. Until a server is started, connections wait in the
/// kernel's backlog.
pub(crate) fn listen(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addresses)?;
    #[cfg(unix)]
    lengthen_backlog(&listener);
    Ok(listener)
}

impl HttpServer {
    /// Starts serving on its own threads. Fails if no thread can be started.
    pub(crate) fn start(
        listener: TcpListener,
        limits: HttpLimits,
        handler: Arc<dyn Handler>,
    ) -> io::Result<HttpServer> {
        let registry = Arc::new(Registry {
            limits,
            ..Registry::default()
        });
        let (shared, address) = (Arc::clone(&registry), listener.local_addr()?);
        let acceptor = thread::Builder::new()
            .name("http-accept".to_owned())
            .spawn(move || {
                accept_loop(&shared, || listener.accept(), &handler);
                // A client that has connected already is served too, because a proxy would not ask another server then.
                let _ = listener.set_nonblocking(true);
                for (socket, peer) in iter::from_fn(|| listener.accept().ok()).take(BACKLOG) {
                    let _ = socket.set_nonblocking(false);
                    start(shared.admit(socket, peer), &handler);
                }
            })?;
        Ok(HttpServer {
            registry,
            address,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Accepts nothing new. Whoever has connected is served.
    pub(crate) fn close(&self) {
        self.registry.closed.store(true, SeqCst);
        if let Some(acceptor) = lock(&self.acceptor).take() {
            // std cannot interrupt `accept`, so a connection wakes it. If that fails, `accept` is not blocked.
            let woken = TcpStream::connect_timeout(&reachable(self.address), WAKE_TIMEOUT);
            if let Ok(own) = woken.and_then(|stream| stream.local_addr()) {
                let _ = acceptor.join();
                let slots = lock(&self.registry.slots);
                let is_there = |slots: &mut Slots| slots.values().any(|slot| slot.peer == own);
                let changed = &self.registry.changed;
                drop(wait_while(changed, slots, WAKE_TIMEOUT, is_there));
            }
        }
    }

    /// Graceful shutdown: stops accepting, closes idle connections, and closes the others once their request is
    /// answered. Streams end when their owners end them. Returns the number of unanswered connections left at
    /// `deadline`, or 0 earlier.
    pub(crate) fn drain(&self, deadline: Instant) -> usize {
        self.close();
        self.registry.drain(deadline)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.drain(Instant::now());
    }
}

/// Raises the listen backlog, as far as the kernel allows; if that fails, std's value stays. Enough for thousands of
/// clients that connect at once: accepting one and starting its thread takes about 50 µs.
#[cfg(unix)]
fn lengthen_backlog(listener: &TcpListener) {
    use std::ffi::c_int;
    use std::os::fd::AsRawFd;
    #[allow(
        unsafe_code,
        reason = "std has no way to set a backlog; this is POSIX's function, safe for any numbers"
    )]
    unsafe extern "C" {
        safe fn listen(socket: c_int, backlog: c_int) -> c_int;
    }
    listen(listener.as_raw_fd(), BACKLOG as c_int);
}

/// Accepts until the server stops, and starts the connections' threads. Survives every error of `accept`.
pub(super) fn accept_loop(
    registry: &Arc<Registry>,
    mut accept: impl FnMut() -> io::Result<(TcpStream, SocketAddr)>,
    handler: &Arc<dyn Handler>,
) {
    while !registry.closed.load(SeqCst) {
        match accept() {
            Ok((socket, peer)) => start(registry.admit(socket, peer), handler),
            Err(e) => match e.kind() {
                // By the client.
                ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => {}
                _ => registry.make_room(&e),
            },
        }
    }
}

/// Starts the thread of a connection; if that fails, the connection is dropped.
fn start(lease: Lease, handler: &Arc<dyn Handler>) {
    let (peer, stack_size) = (lease.0.peer, lease.0.registry.limits.stack_size);
    let handler = Arc::clone(handler);
    let serve = move || connection::serve(lease, &*handler);
    if let Err(e) = sync::start("http", stack_size, Box::new(serve)) {
        log::error!("{peer}: dropped, no thread for it: {e}");
    }
}
