//! What the two clients of HTTP share in how they reach a server: name lookup, TLS, the proxy of the environment, no
//! redirects.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Agent, Proxy, ProxyProtocol};

use crate::sync::{lock, wait_while};
use crate::url::Host;

/// Most name lookups of one client at once. The system's lookup cannot be ended: with silent name servers it lasts for
/// half a minute, longer than its caller waits.
const MAX_LOOKUPS: usize = 8;
/// Stack of a lookup, in bytes: std's default, because the system may load modules for it.
const LOOKUP_STACK: usize = 2 << 20;

/// The configuration of an agent for the server of `url`, which errors call `name`: with buffers of `buffer` bytes, and
/// `kept` idle connections. `ca_file` (`SSL_CERT_FILE`) holds the certificates to trust instead of the built-in roots; it
/// is often set machine-wide, and ignored for http.
///
/// # Errors
/// Why it cannot work, in words for the user.
pub(crate) fn config(
    name: &str,
    url: &str,
    ca_file: Option<&Path>,
    buffer: usize,
    kept: usize,
) -> Result<AgentBuilder, String> {
    let wrong = || format!("{name} is not a URL: give it as http://HOST:PORT");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = Host::parse(uri.host().unwrap_or_default()).map_err(|_| wrong())?;
    let proxy = Proxy::try_from_env().filter(|_| !host.leads_here());
    let proxy = usable(proxy, &uri)?;
    let builder = Agent::config_builder()
        .http_status_as_error(false)
        // A redirect would take the credentials along to wherever it points.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(proxy)
        .user_agent(concat!("fabric-mcp/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .input_buffer_size(buffer)
        .output_buffer_size(buffer)
        // A buffer that is full must be an error, not the end of the stream that ureq takes it for.
        .max_response_header_size(buffer - 1)
        .max_idle_connections(kept)
        .max_idle_connections_per_host(kept);
    match uri.scheme_str() {
        Some("https") => with_tls(builder, name, ca_file),
        _ => Ok(builder),
    }
}

#[cfg(feature = "tls")]
fn with_tls(
    builder: AgentBuilder,
    _: &str,
    ca_file: Option<&Path>,
) -> Result<AgentBuilder, String> {
    let Some(file) = ca_file else {
        return Ok(builder);
    };
    let shown = file.display();
    let pem = std::fs::read(file)
        .map_err(|e| format!("SSL_CERT_FILE: cannot read {shown}: {}", e.kind()))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(format!("SSL_CERT_FILE: {shown} is not a readable PEM file")),
        }
    }
    if certificates.is_empty() {
        return Err(format!("SSL_CERT_FILE: there is no certificate in {shown}"));
    }
    let roots = ureq::tls::RootCerts::Specific(Arc::new(certificates));
    let tls = ureq::tls::TlsConfig::builder().root_certs(roots);
    Ok(builder.tls_config(tls.build()))
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: AgentBuilder, name: &str, _: Option<&Path>) -> Result<AgentBuilder, String> {
    Err(format!(
        "{name} is https, but this build has no TLS: use http, or build with `tls`"
    ))
}

type AgentBuilder = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// The proxy of the environment, if `uri` is to be reached through it.
fn usable(proxy: Option<Proxy>, uri: &Uri) -> Result<Option<Proxy>, String> {
    let Some(proxy) = proxy.filter(|proxy| !proxy.is_no_proxy(uri)) else {
        return Ok(None);
    };
    match proxy.protocol() {
        ProxyProtocol::Http => Ok(Some(proxy)),
        ProxyProtocol::Https if cfg!(feature = "tls") => Ok(Some(proxy)),
        other => Err(format!(
            "ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names a {other} proxy, which is not supported: name an http one, or \
             add the host to NO_PROXY"
        )),
    }
}

/// The name lookups of one client; clones share [`MAX_LOOKUPS`]. ureq resolves the host of each request, even on a pooled
/// connection: addresses and `localhost` need no thread for it. Nothing is cached.
#[derive(Clone)]
pub(crate) struct Lookups {
    running: Arc<(Mutex<usize>, Condvar)>,
    look_up: Arc<LookUp>,
    stack: usize,
}

/// Finds the addresses of a host, with a port.
type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// No thread could be started for a lookup. Inside [`ureq::Error::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoThread;

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no thread for a name lookup")
    }
}

impl std::error::Error for NoThread {}

impl Lookups {
    /// With the system's lookup.
    pub(crate) fn new() -> Lookups {
        Lookups {
            running: Arc::default(),
            look_up: Arc::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect)),
            stack: LOOKUP_STACK,
        }
    }

    /// The addresses of `host`, by a thread that is waited for as long as `timeout` says.
    fn find(
        &self,
        host: String,
        port: u16,
        timeout: NextTimeout,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        let late = ureq::Error::Timeout(timeout.reason);
        let begun = Instant::now();
        let Some(place) = LookupPlace::enter(&self.running, *timeout.after) else {
            return Err(late);
        };
        let look_up = Arc::clone(&self.look_up);
        let (found, finds) = sync_channel(1);
        let work = move || {
            let _place = place;
            // Fails if nobody waits any more.
            let _ = found.send(look_up(&host, port));
        };
        thread::Builder::new()
            .name("lookup".into())
            .stack_size(self.stack)
            .spawn(work)
            .map_err(|_| ureq::Error::Other(Box::new(NoThread)))?;
        match finds.recv_timeout(timeout.after.saturating_sub(begun.elapsed())) {
            Ok(Ok(addresses)) => Ok(addresses),
            // The system may fail for want of a file, which says nothing about the name.
            Ok(Err(error)) if is_out_of_sockets(&error) => Err(ureq::Error::Io(error)),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(ureq::Error::HostNotFound),
            Err(RecvTimeoutError::Timeout) => Err(late),
        }
    }
}

/// One of [`MAX_LOOKUPS`], until it is dropped.
struct LookupPlace(Arc<(Mutex<usize>, Condvar)>);

impl LookupPlace {
    /// Waits for a free place, `limit` at most.
    fn enter(running: &Arc<(Mutex<usize>, Condvar)>, limit: Duration) -> Option<LookupPlace> {
        let (count, freed) = &**running;
        let is_full = |count: &mut usize| *count >= MAX_LOOKUPS;
        let (mut count, is_free) = wait_while(freed, lock(count), limit, is_full);
        if !is_free {
            return None;
        }
        *count += 1;
        Some(LookupPlace(Arc::clone(running)))
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        *lock(&self.0.0) -= 1;
        self.0.1.notify_one();
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

impl Resolver for Lookups {
    fn resolve(
        &self,
        uri: &Uri,
        _: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        // musl compares with /etc/hosts by the letter.
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let found = match Host::parse(&host) {
            Ok(Host::Ip(address)) => vec![(address, port).into()],
            Ok(name) if name.leads_here() => {
                vec![
                    (Ipv4Addr::LOCALHOST, port).into(),
                    (Ipv6Addr::LOCALHOST, port).into(),
                ]
            }
            _ => self.find(host, port, timeout)?,
        };
        let mut addresses = self.empty();
        // As many as ureq has room for.
        let _ = found
            .into_iter()
            .try_for_each(|address| addresses.try_push(address));
        if addresses.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(addresses)
    }
}

/// Out of file descriptors: ENFILE and EMFILE, which have the same numbers on every Unix, and WSAEMFILE. std has no
/// kind for them.
pub(crate) fn is_out_of_sockets(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(23 | 24) => cfg!(unix),
        Some(10024) => cfg!(windows),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LONG: Duration = Duration::from_secs(20);

    /// Lookups whose results the test sends one by one; each reports its name first.
    struct ScriptedLookups {
        lookups: Lookups,
        names: Receiver<String>,
        results: Sender<io::Result<Vec<SocketAddr>>>,
    }

    fn scripted() -> ScriptedLookups {
        let ((named, names), (results, script)) = (channel(), channel());
        let script = Mutex::new(script);
        let look_up = move |host: &str, port: u16| {
            let _ = named.send(format!("{host}:{port}"));
            lock(&script).recv().unwrap()
        };
        let lookups = Lookups {
            look_up: Arc::new(look_up),
            ..Lookups::new()
        };
        ScriptedLookups {
            lookups,
            names,
            results,
        }
    }

    fn resolve(
        lookups: &Lookups,
        url: &str,
        after: Duration,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        let timeout = NextTimeout {
            after: after.into(),
            reason: ureq::Timeout::Resolve,
            ..NextTimeout::default()
        };
        let config = Agent::config_builder().build();
        lookups
            .resolve(&url.parse().unwrap(), &config, timeout)
            .map(|found| found.to_vec())
    }

    fn found() -> Vec<SocketAddr> {
        vec!["192.0.2.1:80".parse().unwrap()]
    }

    #[test]
    fn only_so_many_lookups_run_at_once_and_the_next_one_waits() {
        let ScriptedLookups {
            lookups,
            names,
            results,
        } = scripted();
        let is_late = |result: Result<Vec<SocketAddr>, ureq::Error>| {
            matches!(result, Err(ureq::Error::Timeout(ureq::Timeout::Resolve)))
        };
        for _ in 0..MAX_LOOKUPS {
            assert!(is_late(resolve(&lookups, "http://slow", Duration::ZERO)));
            assert_eq!(names.recv().unwrap(), "slow:80");
        }
        assert!(is_late(resolve(&lookups, "https://B", Duration::ZERO)));
        thread::scope(|scope| {
            let next = scope.spawn(|| resolve(&lookups, "https://B", LONG));
            results.send(Ok(vec![])).unwrap();
            assert_eq!(names.recv().unwrap(), "b:443");
            (0..MAX_LOOKUPS).for_each(|_| results.send(Ok(found())).unwrap());
            assert_eq!(next.join().unwrap().unwrap(), found());
        });
        assert!(names.try_recv().is_err(), "a lookup without a place");
    }

    #[test]
    fn without_a_thread_a_lookup_is_an_error_and_the_next_one_is_tried() {
        let ScriptedLookups {
            lookups,
            names,
            results,
        } = scripted();
        let starved = Lookups {
            stack: 1 << 47,
            ..lookups.clone()
        };
        for _ in 0..=MAX_LOOKUPS {
            let none = resolve(&starved, "http://h", LONG);
            assert!(
                matches!(&none, Err(ureq::Error::Other(why)) if why.is::<NoThread>()),
                "{none:?}"
            );
        }
        results.send(Ok(found())).unwrap();
        assert_eq!(resolve(&lookups, "http://h", LONG).unwrap(), found());
        assert_eq!(names.recv().unwrap(), "h:80");
    }

    #[test]
    fn addresses_and_localhost_need_no_thread() {
        let starved = Lookups {
            stack: 1 << 47,
            ..Lookups::new()
        };
        for (url, expected) in [
            ("http://192.0.2.1", "192.0.2.1:80"),
            ("https://[::1]:8443", "[::1]:8443"),
        ] {
            assert_eq!(
                resolve(&starved, url, LONG).unwrap(),
                [expected.parse().unwrap()],
                "{url}"
            );
        }
        for url in ["http://LocalHost:8080", "http://a.localhost:8080"] {
            let expected = ["127.0.0.1:8080", "[::1]:8080"].map(|address| address.parse().unwrap());
            assert_eq!(resolve(&starved, url, LONG).unwrap(), expected);
        }
    }

    #[test]
    fn what_a_lookup_finds_is_told() {
        let ScriptedLookups {
            lookups, results, ..
        } = scripted();
        let resolved = |found| {
            results.send(found).unwrap();
            resolve(&lookups, "http://h", LONG)
        };
        assert_eq!(resolved(Ok(vec![found()[0]; 40])).unwrap().len(), 16);
        for unknown in [Ok(vec![]), Err(io::Error::other("no such name"))] {
            assert!(matches!(resolved(unknown), Err(ureq::Error::HostNotFound)));
        }
        #[cfg(unix)]
        {
            let full = resolved(Err(io::Error::from_raw_os_error(24)));
            assert!(
                matches!(&full, Err(ureq::Error::Io(error)) if is_out_of_sockets(error)),
                "{full:?}"
            );
        }
    }

    #[test]
    fn only_proxies_that_work_are_used() {
        let uri: Uri = "http://issuer.example".parse().unwrap();
        let proxy = |url: &str| Some(Proxy::new(url).unwrap());
        assert_eq!(usable(None, &uri), Ok(None));
        assert_eq!(
            usable(proxy("http://proxy:3128"), &uri),
            Ok(proxy("http://proxy:3128"))
        );
        assert!(
            usable(proxy("socks5://proxy:1080"), &uri).is_err_and(|why| why.contains("NO_PROXY"))
        );
        let exempt = Proxy::builder(ProxyProtocol::Socks5)
            .host("p")
            .no_proxy("issuer.example")
            .build()
            .unwrap();
        assert_eq!(usable(Some(exempt), &uri), Ok(None));
    }
}
