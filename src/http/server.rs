//! The listening socket: accepting, one thread per connection, and shutdown.
//!
//! A client that connects while the kernel's backlog is full retries after a second, and std asks for a backlog of only
//! 128, so it is raised. Starting a thread takes longer than connecting, so a second thread does that.
//!
//! In scope: surviving failures of `accept` and `spawn`. Not in scope: what happens on a connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::registry::{Lease, Registry};
use super::request::FULL;
use super::{Handler, connection, response, socket};
use crate::config::{HTTP_ACCEPT_LOG, HTTP_LINGER_TIME, HttpLimits};
use crate::sync::lock;

/// Longest pause of `accept` after a local error (no file descriptors, no memory), to avoid spinning; it ends early
/// when an evicted connection has closed.
const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The listen backlog; the kernel may have a lower limit. Enough for thousands of clients that connect at once:
/// accepting one takes about 20 µs.
#[cfg_attr(
    not(unix),
    allow(dead_code, reason = "std cannot ask for it elsewhere")
)]
const HTTP_BACKLOG: i32 = 4096;
/// How many rejected connections are kept open briefly, so that clients can read the 503.
const MAX_TURNED_AWAY: usize = 32;
/// Timeout of the connection that wakes `accept` on shutdown.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A server on one address. Dropping it stops it and closes all connections.
pub(crate) struct HttpServer {
    registry: Arc<Registry>,
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
    pub(super) fn held(&self) -> usize {
        self.registry.held()
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
        let registry = Arc::clone(&self.registry);
        let stack_size = registry.limits.stack_size;
        // Bounded by `max_connections`: connections in the queue are counted and can be evicted.
        let (admitted, to_start) = mpsc::channel();
        thread::Builder::new()
            .name("http-start".to_owned())
            .spawn(move || {
                for lease in to_start {
                    start(lease, &handler, stack_size);
                }
            })?;
        let acceptor = thread::Builder::new()
            .name("http-accept".to_owned())
            .spawn(move || {
                accept_loop(
                    &registry,
                    || listener.accept(),
                    |lease| drop(admitted.send(lease)),
                );
            })?;
        *lock(&self.acceptor) = Some(acceptor);
        Ok(())
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.registry.connections()
    }

    /// Stops accepting and closes the listening socket. Existing connections stay open.
    pub(crate) fn stop_accepting(&self) {
        lock(&self.listener).take();
        if !self.registry.stop() {
            return;
        }
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
    /// answered. Streams end when their owners end them. Returns the number of connections left at `deadline`, or 0
    /// earlier.
    pub(crate) fn drain(&self, deadline: Instant) -> usize {
        self.stop_accepting();
        self.registry.drain(deadline)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop_accepting();
        self.registry.cut();
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

/// An address for connecting to a listener on `bound`, which may be unspecified (`0.0.0.0`, `::`).
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// Accepts until the server stops, and queues admitted connections. Survives every error of `accept`.
pub(super) fn accept_loop(
    registry: &Arc<Registry>,
    mut accept: impl FnMut() -> io::Result<(TcpStream, SocketAddr)>,
    mut admitted: impl FnMut(Lease),
) {
    let mut turned_away = TurnedAway::default();
    let mut told: Option<Instant> = None;
    while !registry.stopping() {
        match accept() {
            Ok(_) if registry.stopping() => return,
            Ok((socket, peer)) => {
                match registry.admit(socket, peer) {
                    Ok(lease) => admitted(lease),
                    Err(socket) => turned_away.push(socket, peer),
                }
                turned_away.forget();
            }
            // The client has aborted.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
                ) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => {
                // A local error, most likely no file descriptors. Each evicted connection ends one such failure and
                // allows the next, so the log is rate limited.
                if told.is_none_or(|told| told.elapsed() >= HTTP_ACCEPT_LOG) {
                    log::error!("cannot accept connections, trying again: {e}");
                    told = Some(Instant::now());
                }
                turned_away = TurnedAway::default();
                registry.make_room(HTTP_ACCEPT_PAUSE);
            }
        }
    }
}

/// Starts the thread of a connection; if that fails, the connection is dropped.
pub(super) fn start(lease: Lease, handler: &Arc<dyn Handler>, stack_size: usize) {
    if lease.slot.closing() {
        return;
    }
    let peer = lease.slot.peer;
    let handler = Arc::clone(handler);
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .stack_size(stack_size);
    if let Err(e) = thread.spawn(move || connection::serve(lease, &*handler)) {
        log::error!("{peer}: dropped, no thread for it: {e}");
    }
}

/// Rejected connections after their 503. Closing at once could send a reset that overtakes the response, and waiting
/// blocks `accept`, so the latest few are kept until clients have had time to read.
#[derive(Default)]
struct TurnedAway(VecDeque<(Instant, TcpStream)>);

impl TurnedAway {
    fn push(&mut self, socket: TcpStream, peer: SocketAddr) {
        log::warn!("{peer}: answered 503, all connections are in use");
        if self.0.len() == MAX_TURNED_AWAY {
            self.0.pop_front();
        }
        // A new socket has buffer space for these few bytes; non-blocking nevertheless, so that `accept` never blocks.
        let told = socket.set_nonblocking(true).and_then(|()| {
            socket::write_all(
                &socket,
                &mut [IoSlice::new(&response::refusal_bytes(FULL)?)],
                Duration::ZERO,
            )
        });
        if told.is_ok() && socket.shutdown(Shutdown::Write).is_ok() {
            self.0.push_back((Instant::now(), socket));
        }
    }

    fn forget(&mut self) {
        while self
            .0
            .front()
            .is_some_and(|(since, _)| since.elapsed() > HTTP_LINGER_TIME)
        {
            self.0.pop_front();
        }
    }
}
