//! The two HTTP transports as a whole: listening, and stopping gracefully.
//!
//! In scope: putting the parts together, and their order at the end. Not in scope: signals (`main`).

mod guard;
mod ops;
mod page;
mod post;
mod queue;
mod refusals;
mod sessions;
mod sse;
mod streamable;
mod web;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::access::Access;
use crate::config::{ABORT_GRACE, Config, HttpLimits, Transport};
use crate::http::{Exchange, HttpServer, listen};
use crate::server::Server;
use crate::url::Host;

use super::drain;

use self::guard::RequestGuard;
use self::ops::Ops;
use self::refusals::Refusals;
use self::sse::Sse;
use self::streamable::Streamable;
use self::web::{Endpoint, Web};

/// While a server ends, how long a new connection may take to send a request that is still served: a proxy would not
/// send that one to another server.
const LAST_REQUESTS: Duration = Duration::from_millis(100);

/// A server that listens. Dropping it cuts everything.
pub(crate) struct HttpTransport {
    pub(crate) http: HttpServer,
    web: Arc<Web>,
}

impl HttpTransport {
    /// Listens where `config` says, and serves from now on.
    ///
    /// # Errors
    /// One line that says why the server cannot listen there, and what to do.
    pub(crate) fn start(
        server: Arc<Server>,
        access: Arc<Access>,
        config: &Config,
    ) -> Result<HttpTransport, String> {
        let limits = HttpLimits {
            max_connections: config.http.max_connections,
            ..HttpLimits::default()
        };
        let (listener, address) = listen((config.host.as_str(), config.port))
            .and_then(|listener| listener.local_addr().map(|address| (listener, address)))
            .map_err(|error| cannot_listen(config, &error))?;
        let endpoint: Box<dyn Endpoint> = match config.transport {
            Transport::Sse => Box::new(Sse::default()),
            Transport::Stdio | Transport::Http => Box::new(Streamable::default()),
        };
        let web = Arc::new(Web {
            guard: RequestGuard::new(&config.http, &config.host, address),
            access,
            ops: Ops::new(server.backend.clone()),
            refusals: Refusals::default(),
            server,
            config: config.clone(),
            endpoint,
        });
        let served = web.clone();
        let handler = move |exchange: Exchange<'_>| served.handle(exchange);
        let http = HttpServer::start(listener, limits, Arc::new(handler))
            .map_err(|error| format!("cannot serve: no thread can be started: {error}"))?;
        Ok(HttpTransport { http, web })
    }

    /// Accepts nothing new, sends no new run to Fabric, lets running calls finish within `limit`, and ends all streams
    /// properly. Calls that still run then are cancelled, and their answers say so.
    pub(crate) fn stop(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let backend = &self.web.server.backend;
        self.http.close();
        thread::sleep(LAST_REQUESTS);
        backend.accounts.close();
        // Idle connections end now, the others with their answer.
        self.http.drain(Instant::now());
        queue::wake();
        drain(backend, limit);
        // What has been answered still has to be written.
        self.http.drain(deadline.max(Instant::now() + ABORT_GRACE));
        backend.runs.interrupt_all();
    }
}

fn cannot_listen(config: &Config, error: &io::Error) -> String {
    let (host, port) = (&config.host, config.port);
    // With brackets, if it needs them.
    let host = Host::parse(host).map_or(host.clone(), |host| host.to_string());
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or choose another --port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; choose another --host"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges; choose another --port"
        }
        _ => "check --host and --port",
    };
    format!("cannot listen on {host}:{port}: {hint} ({error})")
}
