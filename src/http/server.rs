//! The listening socket: accepting, one thread per connection, and shutdown.
//!
//! A client that connects while the kernel's backlog is full retries after a second, and std asks for a backlog of only
//! 128, so it is raised.
//!
//! In scope: surviving failures of `accept` and `spawn`. Not in scope: what happens on a connection.

use std::io::{self, ErrorKind};
use std::iter;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::registry::Registry;
use super::socket::Connection;
use super::{Handler, connection};
use crate::config::HttpLimits;
use crate::sync::{self, lock};
use crate::url::reachable;

/// Most connections that wait to be accepted.
const BACKLOG: usize = 4096;
/// Most threads that wait for a connection; all but one have served others before.
const MOST_WAITING: usize = 4;
/// Longest time for waking them on shutdown.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often that is tried.
const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// A server on one address. Dropping it stops it, and closes connections that serve no request.
pub(crate) struct HttpServer {
    /// The address it listens on, with the real port.
    pub(crate) address: SocketAddr,
    pub(super) acceptor: Arc<Acceptor>,
}

/// What all threads share that accept connections.
pub(super) struct Acceptor {
    /// The listener; `None` once the server stops. Each thread that waits in `accept` has a clone.
    listener: Mutex<Option<Arc<TcpListener>>>,
    pub(super) registry: Arc<Registry>,
    handler: Arc<Handler>,
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
        handler: Arc<Handler>,
    ) -> io::Result<HttpServer> {
        let address = listener.local_addr()?;
        let registry = Registry {
            limits,
            ..Registry::default()
        };
        let acceptor = Arc::new(Acceptor {
            listener: Mutex::new(Some(Arc::new(listener))),
            registry: Arc::new(registry),
            handler,
        });
        let accepting = Arc::clone(&acceptor);
        let thread = thread::Builder::new().name("http-accept".to_owned());
        thread.spawn(move || {
            while let Some(connection) = accepting.next() {
                accepting.start(connection);
            }
        })?;
        Ok(HttpServer { address, acceptor })
    }

    /// Accepts nothing new. Whoever has connected is served.
    pub(crate) fn close(&self) {
        let Some(listener) = lock(&self.acceptor.listener).take() else {
            return;
        };
        // std cannot interrupt `accept`, so connections wake the threads in it.
        let (begun, address) = (Instant::now(), reachable(self.address));
        while Arc::strong_count(&listener) > 1 && begun.elapsed() < WAKE_TIMEOUT {
            drop(TcpStream::connect_timeout(&address, WAKE_TIMEOUT));
            thread::sleep(WAKE_PAUSE);
        }
        // A client that has connected already is served too, because a proxy would not ask another server then.
        let _ = listener.set_nonblocking(true);
        let connected = iter::from_fn(|| self.acceptor.accept(&listener).ok());
        connected
            .take(BACKLOG)
            .for_each(|connection| self.acceptor.start(connection));
    }

    /// Graceful shutdown: stops accepting, closes idle connections, and closes the others once their request is
    /// answered. Streams end when their owners end them. Returns the number of unanswered connections left at
    /// `deadline`, or 0 earlier.
    pub(crate) fn drain(&self, deadline: Instant) -> usize {
        self.close();
        self.acceptor.registry.drain(deadline)
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

impl Acceptor {
    fn accept(&self, listener: &TcpListener) -> io::Result<Connection> {
        let (socket, peer) = listener.accept()?;
        // Some systems give it the listener's mode.
        let _ = socket.set_nonblocking(false);
        Ok(Connection::new(self.registry.admit(socket, peer)))
    }

    /// Waits for the next connection, whatever errors `accept` has; `None` once the server stops.
    fn next(&self) -> Option<Connection> {
        loop {
            let listener = lock(&self.listener).clone()?;
            match self.accept(&listener) {
                Ok(connection) => return Some(connection),
                Err(e) => match e.kind() {
                    // The client has closed the connection already.
                    ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => {}
                    _ => self.registry.make_room(&e),
                },
            }
        }
    }

    /// Starts the thread of a connection; if that fails, the connection is dropped. When the connection is over, the
    /// thread accepts another, unless enough threads wait for one. With only one thread to accept, a flood of
    /// connections would make everybody wait: that thread gets no more processor time than each of the many threads
    /// that serve connections.
    fn start(self: &Arc<Acceptor>, connection: Connection) {
        let (peer, stack_size) = (connection.slot.peer, self.registry.limits.stack_size);
        let acceptor = Arc::clone(self);
        let serve = move || {
            let mut next = Some(connection);
            while let Some(connection) = next {
                connection::serve(connection, &*acceptor.handler);
                next = acceptor.is_short().then(|| acceptor.next()).flatten();
            }
        };
        if let Err(e) = sync::start("http", stack_size, Box::new(serve)) {
            log::error!("{peer}: dropped, because no thread could be started: {e}");
        }
    }

    /// Do fewer threads wait in `accept` than [`MOST_WAITING`]?
    fn is_short(&self) -> bool {
        let listener = lock(&self.listener);
        let clones = listener.as_ref().map(Arc::strong_count);
        clones.is_some_and(|clones| clones <= MOST_WAITING)
    }
}
