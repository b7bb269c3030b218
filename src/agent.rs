//! What the clients of HTTP share in how they reach a server: name lookup, TLS, the proxy of the environment, no
//! redirects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ureq::http::uri::Scheme;
use ureq::http::{Response, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, Proxy, ProxyProtocol};

use crate::config::CERT_FILE;
use crate::sync::{Finally, lock, start, wait_while};
use crate::url::Host;

/// Buffer of one connection, in each direction, in bytes: room for the longest credentials and any sensible head of an
/// answer. ureq's default is 256 KB for both.
const BUFFER: usize = 16 << 10;
/// Most name lookups of one client at once. The system's lookup cannot be ended: with silent name servers it lasts for
/// half a minute, longer than its caller waits.
const MAX_LOOKUPS: usize = 8;
/// Longest time for asking a server where its callers sign in.
const ASKING: Duration = Duration::from_secs(2);
/// Why a proxy cannot be used.
const NO_HTTP_PROXY: &str = "ALL_PROXY, HTTPS_PROXY or HTTP_PROXY does not name an http proxy, and \
    others are not supported: write it as http://HOST:PORT, or add the host to NO_PROXY";

/// The header of Fabric's key.
pub(crate) const KEY_HEADER: &str = "X-API-Key";
/// Stack of a lookup, in bytes: std's default, because the system may load modules for it.
const LOOKUP_STACK: usize = 2 << 20;

/// The configuration of an agent for the server of `url`, which errors call `name`: with buffers of [`BUFFER`] bytes,
/// and no idle connections. The proxy comes from the environment, and so do the certificates to trust instead of the
/// built-in roots (`SSL_CERT_FILE`). That variable is often set for the whole machine, and is ignored for http.
///
/// # Errors
/// Why it cannot work, in words for the user.
pub(crate) fn config(name: &str, url: &str) -> Result<AgentBuilder, String> {
    let wrong = || format!("{name} is not a URL: give it as http://HOST:PORT");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = Host::parse(uri.host().unwrap_or_default()).map_err(|_| wrong())?;
    let proxy = proxy(&uri, &host, &|name| std::env::var(name).ok())?;
    let builder = Agent::config_builder()
        .http_status_as_error(false)
        // A redirect would send the credentials to the address that it names.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(proxy)
        .user_agent(concat!("fabric-mcp/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        // A buffer that is full must be an error, not the end of the stream that ureq takes it for.
        .max_response_header_size(BUFFER - 1)
        .max_idle_connections(0)
        .max_idle_connections_per_host(0);
    match uri.scheme_str() {
        Some("https") => {
            let file = std::env::var_os(CERT_FILE).filter(|file| !file.is_empty());
            with_tls(builder, file.map(PathBuf::from))
        }
        _ => Ok(builder),
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: AgentBuilder, _: Option<PathBuf>) -> Result<AgentBuilder, String> {
    Err("the URL is https, but this build has no TLS: use http, or build with `tls`".to_owned())
}

#[cfg(feature = "tls")]
fn with_tls(builder: AgentBuilder, file: Option<PathBuf>) -> Result<AgentBuilder, String> {
    let Some(file) = &file else {
        return Ok(builder);
    };
    let shown = file.display();
    let refused = |why: String| {
        format!("SSL_CERT_FILE: {why}; give a PEM file with the certificates to trust")
    };
    let pem = std::fs::read(file)
        .map_err(|error| refused(crate::text::unusable("file", file, &error)))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        let item = item.map_err(|_| refused(format!("{shown} is not a readable PEM file")))?;
        if let ureq::tls::PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(refused(format!("there is no certificate in {shown}")));
    }
    let roots = ureq::tls::RootCerts::Specific(Arc::new(certificates));
    let tls = ureq::tls::TlsConfig::builder().root_certs(roots);
    Ok(builder.tls_config(tls.build()))
}

type AgentBuilder = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// The proxy through which `uri` is to be reached, by the variables that other programs read too.
///
/// # Errors
/// It cannot be used: why, and what to do.
fn proxy(
    uri: &Uri,
    host: &Host,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, String> {
    let read = |name: &str| {
        let either = variable(&name.to_ascii_lowercase()).or_else(|| variable(name));
        either.filter(|value| !value.trim_ascii().is_empty())
    };
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    let named = read(["HTTP_PROXY", "HTTPS_PROXY"][usize::from(is_https)]);
    let named = named.or_else(|| read("ALL_PROXY"));
    let exempt = read("NO_PROXY").unwrap_or_default();
    let named = named.filter(|_| !host.leads_here() && !is_exempt(host, &exempt));
    let is_usable = |proxy: &Proxy| match proxy.protocol() {
        ProxyProtocol::Https => cfg!(feature = "tls"),
        kind => kind == ProxyProtocol::Http,
    };
    let found = |named: String| Proxy::new(named.trim_ascii()).ok().filter(is_usable);
    let found = named.map(|named| found(named).ok_or_else(|| NO_HTTP_PROXY.to_owned()));
    found.transpose()
}

/// Whether NO_PROXY, with this value, has this host or a domain above it.
fn is_exempt(host: &Host, exempt: &str) -> bool {
    let name = format!(".{host}");
    exempt.split([',', ' ']).any(|entry| {
        let known = Host::parse(entry.trim_start_matches(['*', '.']));
        let start = entry.strip_suffix('*');
        start.is_some_and(|start| name[1..].starts_with(start))
            || known.is_ok_and(|known| name.ends_with(&format!(".{known}")))
    })
}

/// The name lookups of one client; clones share [`MAX_LOOKUPS`]. ureq resolves the host of each request, even on a pooled
/// connection: addresses and `localhost` need no thread for it. Nothing is cached.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    running: Arc<(Mutex<usize>, Condvar)>,
    look_up: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

impl Lookups {
    /// With the system's lookup.
    pub(crate) fn new() -> Lookups {
        Lookups {
            running: Arc::default(),
            look_up: |host, port| (host, port).to_socket_addrs().map(Iterator::collect),
        }
    }

    /// Looks up the addresses of `host` on a thread, and waits for that thread as long as `timeout` says.
    fn find(
        &self,
        host: String,
        port: u16,
        timeout: NextTimeout,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        let begun = Instant::now();
        let (running, freed) = &*self.running;
        let is_full = |running: &mut usize| *running >= MAX_LOOKUPS;
        let (mut count, is_free) = wait_while(freed, lock(running), *timeout.after, is_full);
        if !is_free {
            return Err(ureq::Error::Timeout(timeout.reason));
        }
        *count += 1;
        drop(count);
        let (running, look_up) = (self.running.clone(), self.look_up);
        let running = Finally(move || {
            *lock(&running.0) -= 1;
            running.1.notify_one();
        });
        let (found, finds) = sync_channel(1);
        let work = move || {
            let _running = running;
            // Fails if nobody waits any more.
            let _ = found.send(look_up(&host, port));
        };
        start("lookup", LOOKUP_STACK, Box::new(work))?;
        match finds.recv_timeout(timeout.after.saturating_sub(begun.elapsed())) {
            Ok(Ok(addresses)) => Ok(addresses),
            // The system may fail because it has no file descriptor left, which says nothing about the name.
            Ok(Err(error)) if is_exhausted(&error) => Err(ureq::Error::Io(error)),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(ureq::Error::HostNotFound),
            Err(RecvTimeoutError::Timeout) => Err(ureq::Error::Timeout(timeout.reason)),
        }
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
        let here: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let found = match Host::parse(uri.host().unwrap_or_default()) {
            Ok(Host::Ip(address)) => vec![(address, port).into()],
            Ok(name) if name.leads_here() => here.map(|address| (address, port).into()).into(),
            // musl compares with /etc/hosts by the letter: this is in lower case.
            Ok(name) => self.find(name.to_string(), port, timeout)?,
            Err(_) => return Err(ureq::Error::HostNotFound),
        };
        let mut addresses = self.empty();
        // As many addresses as ureq has room for.
        let _ = found
            .into_iter()
            .try_for_each(|address| addresses.try_push(address));
        if addresses.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(addresses)
    }
}

/// Whether the server at this URL has callers sign in at an OAuth issuer, as its answer to one without a token says. `None` if
/// it asks for a token, does not know the path, or is silent.
pub(crate) fn asks_for_oauth(url: &str) -> Option<bool> {
    let reply = get(url, None, ASKING).ok()?;
    let mut challenges = reply.headers().get_all("WWW-Authenticate").iter();
    let names = |it: &[u8]| String::from_utf8_lossy(it).contains("resource_metadata");
    let signs_in = challenges.any(|it| names(it.as_bytes()));
    (signs_in || !matches!(reply.status().as_u16(), 401..=404)).then_some(signs_in)
}

/// The response to a GET. `here` is the key (or "") of a server on this machine, which is asked without a proxy.
///
/// # Errors
/// Why there is none within `time`: the predicate of a sentence about the server.
pub(crate) fn get(url: &str, here: Option<&str>, time: Duration) -> Result<Response<Body>, String> {
    let config = config("the address", url)?.timeout_global(Some(time));
    let agent = |config: AgentBuilder| {
        Agent::with_parts(config.build(), DefaultConnector::new(), Lookups::new()).get(url)
    };
    let request = match here {
        Some(key) => agent(config.proxy(None)).header(KEY_HEADER, key),
        None => agent(config),
    };
    request.call().map_err(|error| reason(error, time))
}

/// Why there was no whole answer within `time`: the predicate of a sentence about the server. It quotes no part of the
/// request, because ureq's errors do not.
pub(crate) fn reason(error: ureq::Error, time: Duration) -> String {
    match error {
        ureq::Error::Timeout(_) => {
            format!("does not answer within {} s", time.as_secs_f64())
        }
        ureq::Error::BodyExceedsLimit(limit) => format!("answers with more than {limit} bytes"),
        ureq::Error::Io(error) => format!("cannot be reached ({error})"),
        error => format!("cannot be reached ({error})"),
    }
}

/// Out of threads for lookups; or out of file descriptors: ENFILE and EMFILE, which have the same numbers on every Unix,
/// and WSAEMFILE. std has no kind for those.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    match error.raw_os_error() {
        // No socket fails with this kind: one that has waited too long reports a timeout.
        _ if error.kind() == io::ErrorKind::WouldBlock => true,
        Some(23 | 24) => cfg!(unix),
        Some(10024) => cfg!(windows),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    /// Lookups of `slow` wait for it.
    static GATE: Mutex<()> = Mutex::new(());

    /// Lookups whose result depends on the name.
    fn scripted() -> Lookups {
        let look_up = |host: &str, port: u16| {
            let found = || SocketAddr::from(([192, 0, 2, 1], port));
            match host {
                "slow" => drop(lock(&GATE)),
                "unknown" => return Err(io::Error::other("no such name")),
                "full" => return Err(io::Error::from_raw_os_error(24)),
                "none" => return Ok(vec![]),
                _ => {}
            }
            Ok(vec![found(); 40])
        };
        Lookups {
            look_up,
            ..Lookups::new()
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

    #[test]
    fn only_so_many_lookups_run_at_once_and_the_next_one_waits() {
        let lookups = scripted();
        let is_late = |url: &str, after| {
            let result = resolve(&lookups, url, after);
            matches!(result, Err(ureq::Error::Timeout(ureq::Timeout::Resolve)))
        };
        let gate = lock(&GATE);
        for _ in 0..MAX_LOOKUPS {
            assert!(is_late("http://slow", Duration::ZERO));
        }
        assert_eq!(*lock(&lookups.running.0), MAX_LOOKUPS);
        assert!(is_late("https://B", Duration::from_millis(20)));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| resolve(&lookups, "https://B", LONG));
            drop(gate);
            let found = next.join().unwrap().unwrap();
            assert_eq!(found, [SocketAddr::from(([192, 0, 2, 1], 443)); 16]);
        });
    }

    #[test]
    fn addresses_and_localhost_need_no_lookup() {
        for (url, found) in [
            ("http://192.0.2.1", &["192.0.2.1:80"][..]),
            ("https://[::1]:8443", &["[::1]:8443"]),
            ("http://LocalHost:8080", &["127.0.0.1:8080", "[::1]:8080"]),
            ("http://a.localhost:8080", &["127.0.0.1:8080", "[::1]:8080"]),
        ] {
            let found: Vec<SocketAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(resolve(&scripted(), url, LONG).unwrap(), found, "{url}");
        }
    }

    #[test]
    fn a_lookup_that_finds_nothing_says_why() {
        for unknown in ["http://none", "http://unknown"] {
            let found = resolve(&scripted(), unknown, LONG);
            assert!(matches!(found, Err(ureq::Error::HostNotFound)), "{unknown}");
        }
        #[cfg(unix)]
        {
            let full = resolve(&scripted(), "http://full", LONG);
            let is_so = matches!(&full, Err(ureq::Error::Io(error)) if is_exhausted(error));
            assert!(is_so, "{full:?}");
        }
    }

    #[test]
    fn only_proxies_that_work_are_used() {
        let found = |url: &str, variables: &[(&str, &str)]| {
            let uri: Uri = url.parse().unwrap();
            let host = Host::parse(uri.host().unwrap()).unwrap();
            let set = |name: &str| variables.iter().find(|(set, _)| *set == name);
            let variable = |name: &str| set(name).map(|set| set.1.to_owned());
            let found = proxy(&uri, &host, &variable);
            found.map(|found| found.map(|found| found.host().to_owned()))
        };
        let (own, all) = (("HTTP_PROXY", "own:3128"), ("ALL_PROXY", "http://all"));
        let (tls, none) = (("https_proxy", "http://tls"), ("NO_PROXY", "*"));
        for (url, variables, proxy) in [
            ("http://h.example", &[tls, own, all], Some("own")),
            (
                "http://h.example",
                &[tls, ("HTTP_PROXY", " "), all],
                Some("all"),
            ),
            ("https://h.example", &[tls, own, all], Some("tls")),
            ("http://127.0.0.1", &[tls, own, all], None),
            (
                "http://h.example",
                &[tls, ("ALL_PROXY", "socks5://p"), none],
                None,
            ),
        ] {
            let expected = Ok(proxy.map(str::to_owned));
            assert_eq!(found(url, variables), expected, "{url} {variables:?}");
        }
        for wrong in ["socks5://proxy:1080", "what://proxy"] {
            let why = found("http://h.example", &[("HTTP_PROXY", wrong)]).unwrap_err();
            assert!(why.contains("NO_PROXY"), "{why}");
        }
    }

    #[test]
    fn no_proxy_has_hosts_and_domains() {
        let is_exempt = |host, exempt| is_exempt(&Host::parse(host).unwrap(), exempt);
        for exempt in ["*", "a, H.Example ,b", "example", "*.example", "h.*"] {
            assert!(is_exempt("h.example", exempt), "{exempt}");
        }
        for other in ["", ",,*x, .h", "x.h.example", "ample", "ex*"] {
            assert!(!is_exempt("h.example", other), "{other}");
        }
        assert!(is_exempt("[fd00::1]", "10.0.0.1,fd00:0::1"));
    }
}
