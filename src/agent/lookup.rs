//! Name lookup, one at a time for each name and client.
//!
//! The system's lookup cannot be ended: with silent name servers it lasts for half a minute, longer than its caller
//! waits. So whoever needs the name meanwhile waits for the same lookup instead of starting another. Its result is for
//! those who waited: nothing is cached.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::sync::{lock, wait_while};
use crate::url::Host;

/// How often a caller that waits for a lookup is asked whether to continue.
const SLICE: Duration = Duration::from_millis(100);
/// A lookup that has lasted longer is shared no more: the network, or the system's resolver, may work again.
const SHARED: Duration = Duration::from_secs(30);
/// Stack of a lookup, in bytes: std's default, because the system may load modules for it.
const STACK: usize = 2 << 20;

/// Finds the addresses of a host, with a port.
type LookUp = dyn Fn(&str, u16) -> LookupResult + Send + Sync;
/// What a lookup found.
type LookupResult = io::Result<Vec<SocketAddr>>;
/// Asks the caller of this thread whether to continue.
type Ask = dyn Fn() -> Result<(), ureq::Error> + Send + Sync;

/// The name lookups of one client; clones share them. ureq resolves the host of each request, even on a pooled
/// connection: addresses and `localhost` need no thread for it.
#[derive(Clone)]
pub(crate) struct Lookups {
    /// The newest lookup.
    current: Arc<Mutex<Option<Arc<Lookup>>>>,
    look_up: Arc<LookUp>,
    ask: Arc<Ask>,
    shared: Duration,
    stack: usize,
}

struct Lookup {
    host: String,
    port: u16,
    begun: Instant,
    found: Mutex<Option<LookupResult>>,
    landed: Condvar,
}

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
    /// With the system's lookup. Callers who wait are asked by `ask`, on their own thread.
    pub(crate) fn new(ask: fn() -> Result<(), ureq::Error>) -> Lookups {
        let look_up = |host: &str, port| {
            let found = (host, port).to_socket_addrs().map(Iterator::collect);
            #[cfg(target_env = "musl")]
            let found = found.or_else(|error| {
                let found = super::getent::find(host, port).unwrap_or_default();
                if found.is_empty() {
                    Err(error)
                } else {
                    Ok(found)
                }
            });
            found
        };
        Lookups {
            current: Arc::default(),
            look_up: Arc::new(look_up),
            ask: Arc::new(ask),
            shared: SHARED,
            stack: STACK,
        }
    }

    /// The lookup of `host` that is in flight, or a new one.
    fn current(&self, host: &str, port: u16) -> Result<Arc<Lookup>, NoThread> {
        let mut current = lock(&self.current);
        let is_shared = |lookup: &&Arc<Lookup>| {
            (&*lookup.host, lookup.port) == (host, port)
                && lookup.begun.elapsed() < self.shared
                && lock(&lookup.found).is_none()
        };
        if let Some(lookup) = current.as_ref().filter(is_shared) {
            return Ok(Arc::clone(lookup));
        }
        let (host, begun) = (host.to_owned(), Instant::now());
        let lookup = Arc::new(Lookup {
            host,
            port,
            begun,
            found: Mutex::default(),
            landed: Condvar::new(),
        });
        let (flight, look_up) = (Arc::clone(&lookup), Arc::clone(&self.look_up));
        let fly = move || {
            let found = look_up(&flight.host, flight.port);
            *lock(&flight.found) = Some(found);
            flight.landed.notify_all();
        };
        let thread = thread::Builder::new()
            .name("lookup".into())
            .stack_size(self.stack);
        thread.spawn(fly).map_err(|_| NoThread)?;
        *current = Some(Arc::clone(&lookup));
        Ok(lookup)
    }

    /// The addresses of `host`, by a lookup that others may share.
    fn shared(
        &self,
        host: &str,
        port: u16,
        timeout: NextTimeout,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        let begun = Instant::now();
        let lookup = self
            .current(host, port)
            .map_err(|none| ureq::Error::Other(Box::new(none)))?;
        loop {
            let left = timeout.after.saturating_sub(begun.elapsed());
            let (found, _) = wait_while(
                &lookup.landed,
                lock(&lookup.found),
                left.min(SLICE),
                |found| found.is_none(),
            );
            match &*found {
                Some(Ok(addresses)) => return Ok(addresses.clone()),
                Some(Err(error)) => return Err(failure(error)),
                None if left.is_zero() => return Err(ureq::Error::Timeout(timeout.reason)),
                None => {}
            }
            drop(found);
            (self.ask)()?;
        }
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
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(ureq::Error::HostNotFound);
        };
        let port = authority
            .port_u16()
            .unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 });
        // musl compares with /etc/hosts by the letter.
        let host = authority
            .host()
            .trim_matches(['[', ']'])
            .to_ascii_lowercase();
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![(address, port).into()],
            // RFC 6761, section 6.3: names below it, too, whatever the system knows.
            Err(_) if Host::parse(&host).is_ok_and(|host| host.leads_here()) => {
                vec![
                    (Ipv4Addr::LOCALHOST, port).into(),
                    (Ipv6Addr::LOCALHOST, port).into(),
                ]
            }
            Err(_) => self.shared(&host, port, timeout)?,
        };
        let mut addresses = self.empty();
        // As many as ureq has room for.
        let _ = found
            .into_iter()
            .try_for_each(|address| addresses.try_push(address));
        if addresses.is_empty() {
            Err(ureq::Error::HostNotFound)
        } else {
            Ok(addresses)
        }
    }
}

/// The system may fail to look up a name for want of a file, which says nothing about the name.
fn failure(error: &io::Error) -> ureq::Error {
    match error.raw_os_error() {
        Some(code) if is_out_of_sockets(error) => {
            ureq::Error::Io(io::Error::from_raw_os_error(code))
        }
        _ => ureq::Error::HostNotFound,
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
    use std::collections::HashSet;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    const LONG: Duration = Duration::from_secs(20);

    /// Lookups whose results the test sends one by one; each reports its name first. Callers who wait report their
    /// thread again and again.
    struct HeldLookups {
        lookups: Lookups,
        names: Receiver<String>,
        results: Sender<LookupResult>,
        waits: Receiver<ThreadId>,
    }

    fn held() -> HeldLookups {
        let ((named, names), (results, held), (asked, waits)) = (channel(), channel(), channel());
        let held = Mutex::new(held);
        let look_up = move |host: &str, port: u16| {
            let _ = named.send(format!("{host}:{port}"));
            lock(&held).recv().unwrap()
        };
        let ask = move || {
            let _ = asked.send(thread::current().id());
            Ok(())
        };
        let (look_up, ask) = (Arc::new(look_up), Arc::new(ask));
        let lookups = Lookups {
            look_up,
            ask,
            ..Lookups::new(|| Ok(()))
        };
        HeldLookups {
            lookups,
            names,
            results,
            waits,
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
        let config = ureq::Agent::config_builder().build();
        lookups
            .resolve(&url.parse().unwrap(), &config, timeout)
            .map(|found| found.to_vec())
    }

    fn found() -> Vec<SocketAddr> {
        vec!["192.0.2.1:80".parse().unwrap()]
    }

    #[test]
    fn callers_share_the_lookup_that_is_in_flight_and_no_later_one() {
        let HeldLookups {
            lookups,
            names,
            results,
            waits,
        } = held();
        for _ in 0..2 {
            thread::scope(|scope| {
                let callers: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| resolve(&lookups, "http://h/x", LONG)))
                    .collect();
                let mut waiting: HashSet<_> =
                    callers.iter().map(|caller| caller.thread().id()).collect();
                while !waiting.is_empty() {
                    waiting.remove(&waits.recv_timeout(LONG).unwrap());
                }
                names.recv().unwrap();
                results.send(Ok(found())).unwrap();
                callers
                    .into_iter()
                    .for_each(|caller| assert_eq!(caller.join().unwrap().unwrap(), found()));
            });
            assert!(names.try_recv().is_err(), "a second lookup");
        }
    }

    #[test]
    fn a_caller_that_gives_up_leaves_the_lookup_to_the_next() {
        let HeldLookups {
            mut lookups,
            names,
            results,
            waits,
        } = held();
        for _ in 0..3 {
            let late = resolve(&lookups, "http://h", Duration::ZERO);
            assert!(
                matches!(late, Err(ureq::Error::Timeout(ureq::Timeout::Resolve))),
                "{late:?}"
            );
        }
        let waiting = lookups.clone();
        lookups.ask = Arc::new(|| Err(ureq::Error::ConnectionFailed));
        let stopped = resolve(&lookups, "http://h", LONG);
        assert!(
            matches!(stopped, Err(ureq::Error::ConnectionFailed)),
            "{stopped:?}"
        );
        let patient = thread::spawn(move || resolve(&waiting, "http://h", LONG));
        waits.recv().unwrap();
        results.send(Ok(found())).unwrap();
        assert_eq!(patient.join().unwrap().unwrap(), found());
        assert_eq!(
            (names.recv().unwrap().as_str(), names.try_recv().is_err()),
            ("h:80", true)
        );
    }

    #[test]
    fn a_lookup_that_does_not_land_is_not_waited_for_for_good() {
        let HeldLookups {
            mut lookups,
            names,
            results,
            ..
        } = held();
        lookups.shared = Duration::ZERO;
        for _ in 0..2 {
            assert!(resolve(&lookups, "http://h", Duration::ZERO).is_err());
            names.recv().unwrap();
        }
        (0..2).for_each(|_| results.send(Ok(found())).unwrap());
    }

    #[test]
    fn another_name_has_a_lookup_of_its_own() {
        let HeldLookups {
            lookups,
            names,
            results,
            ..
        } = held();
        for (url, name) in [("https://a", "a:443"), ("https://B", "b:443")] {
            assert!(resolve(&lookups, url, Duration::ZERO).is_err());
            assert_eq!(names.recv().unwrap(), name);
        }
        (0..2).for_each(|_| results.send(Ok(found())).unwrap());
    }

    #[test]
    fn without_a_thread_a_lookup_is_an_error_and_the_next_one_is_tried() {
        let HeldLookups {
            lookups,
            names,
            results,
            ..
        } = held();
        let starved = Lookups {
            stack: 1 << 47,
            ..lookups.clone()
        };
        for _ in 0..2 {
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
            ..Lookups::new(|| Ok(()))
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
        let HeldLookups {
            lookups, results, ..
        } = held();
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
}
