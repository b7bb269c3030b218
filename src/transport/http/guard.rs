//! Who may come in over HTTP: the names a request may use for us, the pages it may come from, the token it must show.
//!
//! In scope: `Host` and `Origin` (against DNS rebinding), the bearer token, CORS. Not in scope: how often somebody may
//! call (`admission`).

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::config::{Http, Secret};
use crate::http::Head;
use crate::net::{Authority, Host};
use crate::text::shown;

/// How long browsers may keep the answer to a preflight.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3600);

/// A request that is turned away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// HTTP's status.
    pub(super) status: u16,
    /// What happened, why, and the way out.
    pub(super) detail: String,
}

/// The rules for one listening address.
pub(super) struct Guard {
    bound: IpAddr,
    bound_name: String,
    hosts: Vec<Authority>,
    origins: Vec<String>,
    token: Option<Secret>,
}

impl Guard {
    /// The rules of `settings` for a server on `bound`, which was told to listen on `name`.
    pub(super) fn new(settings: &Http, name: &str, bound: SocketAddr) -> Guard {
        Guard {
            bound: bound.ip().to_canonical(),
            bound_name: name.to_ascii_lowercase(),
            hosts: settings.allowed_hosts.clone(),
            origins: settings.allowed_origins.clone(),
            token: settings.token.clone(),
        }
    }

    /// Is a token asked for?
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks `Host` and `Origin`. Gives the origin, if there is one, as CORS has to repeat it.
    ///
    /// # Errors
    /// 403, naming the flag that lets the request in.
    pub(super) fn origin<'a>(&self, head: &'a Head) -> Result<Option<&'a str>, Refused> {
        let forbidden = |detail| Err(Refused { status: 403, detail });
        let Some(host) = head.host() else {
            return forbidden("The request has no Host header, so it cannot be told for whom it is.".to_owned());
        };
        if !self.is_host(host) {
            return forbidden(format!(
                "The Host \"{}\" is not one of this server's names. If it is meant to be, start the server with --allowed-host {}.",
                shown(host, 128),
                shown(host, 128)
            ));
        }
        // More than one is nothing a browser sends: each must be good.
        let mut origins = head.headers_named("origin");
        let first = origins.next();
        match first.into_iter().chain(origins).find(|origin| !self.is_origin(origin)) {
            None => Ok(first),
            Some(bad) => forbidden(format!(
                "Pages of the Origin \"{}\" may not use this server. If they are meant to, start it with --allowed-origin {}.",
                shown(bad, 128),
                shown(bad, 128)
            )),
        }
    }

    /// Checks the bearer token.
    ///
    /// # Errors
    /// 401.
    pub(super) fn token(&self, head: &Head) -> Result<(), Refused> {
        let Some(token) = &self.token else { return Ok(()) };
        let mut values = head.headers_named("authorization");
        let given = match (values.next(), values.next()) {
            (Some(value), None) => value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")),
            _ => None,
        };
        match given {
            Some((_, given)) if same(given.trim_start().as_bytes(), token.expose().as_bytes()) => Ok(()),
            given => {
                let what = if given.is_some() { "The bearer token is not the right one" } else { "A token is needed" };
                let detail = format!(
                    "{what}: send the header \"Authorization: Bearer TOKEN\" with the token this server was started with."
                );
                Err(Refused { status: 401, detail })
            }
        }
    }

    fn is_host(&self, text: &str) -> bool {
        // RFC 3986 allows an empty port.
        let Ok(given) = Authority::parse(text.strip_suffix(':').unwrap_or(text)) else { return false };
        // Rebinding needs a name: an address in `Host` is the one the client has connected to, and with an unspecified
        // address each of this machine's is meant.
        let any_address = self.bound.is_unspecified() && given.host.address().is_some();
        let allows =
            |allowed: &Authority| allowed.host == given.host && (allowed.port.is_none() || allowed.port == given.port);
        any_address || self.is_local(&given.host) || self.hosts.iter().any(allows)
    }

    fn is_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let (default_port, web) = match scheme {
            "http" => (":80", true),
            "https" => (":443", true),
            _ => ("", false),
        };
        let local = web && Authority::parse(authority).is_ok_and(|authority| self.is_local(&authority.host));
        let bare = origin.strip_suffix(default_port).unwrap_or(&origin);
        local || self.origins.iter().any(|allowed| allowed == bare)
    }

    /// Whether this is a name of this machine, or the address we listen on.
    fn is_local(&self, host: &Host) -> bool {
        let bound = |ip: IpAddr| ip == self.bound && !ip.is_unspecified();
        host.is_loopback()
            || match host {
                Host::Name(name) => *name == self.bound_name,
                Host::Ip(address) => bound(address.to_canonical()),
            }
    }
}

/// Compares in a time that depends on the length of `given` alone.
fn same(given: &[u8], token: &[u8]) -> bool {
    let mut differs = u8::from(given.len() != token.len());
    for (at, byte) in given.iter().enumerate() {
        differs |= byte ^ token.get(at % token.len().max(1)).unwrap_or(&0);
    }
    black_box(differs) == 0
}

/// What every answer to a page of an allowed origin carries.
pub(super) fn cors(origin: &str) -> [(&str, &str); 3] {
    [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate"),
        ("Vary", "Origin"),
    ]
}

/// What the answer to a preflight carries beside [`cors`].
pub(super) struct Preflight {
    headers: String,
    max_age: String,
}

impl Preflight {
    /// Of the headers the page wants to send, those that MCP has: there is no wildcard for `mcp-` in CORS, so they are
    /// named one by one.
    pub(super) fn new(head: &Head) -> Preflight {
        const KNOWN: [&str; 4] = ["authorization", "content-type", "accept", "last-event-id"];
        let wanted = head.headers_named("access-control-request-headers").flat_map(|value| value.split(','));
        let is_ours = |name: &&str| KNOWN.contains(name) || name.starts_with("mcp-");
        let lower: Vec<String> = wanted.map(|name| name.trim().to_ascii_lowercase()).collect();
        let headers: Vec<&str> = lower.iter().map(String::as_str).filter(is_ours).collect();
        Preflight { headers: headers.join(", "), max_age: PREFLIGHT_MAX_AGE.as_secs().to_string() }
    }

    /// The headers; `allow` lists the methods.
    pub(super) fn headers<'a>(&'a self, allow: &'a str) -> [(&'static str, &'a str); 4] {
        [
            ("Allow", allow),
            ("Access-Control-Allow-Methods", allow),
            ("Access-Control-Allow-Headers", &self.headers),
            ("Access-Control-Max-Age", &self.max_age),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn guard(bound: &str, name: &str) -> Guard {
        let settings = Http {
            allowed_hosts: ["mcp.example.com", "other.example.com:8443", "[2001:db8::1]"]
                .map(|host| Authority::parse(host).unwrap())
                .into(),
            allowed_origins: vec!["https://app.example.com".into(), "chrome-extension://abc".into()],
            token: Some(Secret::new("0123456789abcdef")),
            allow_unauthenticated: false,
            max_calls_per_minute: 0,
            drain_timeout: Duration::ZERO,
            max_connections: 1,
        };
        Guard::new(&settings, name, bound.parse().unwrap())
    }

    #[test]
    fn hosts_are_ours_or_refused() {
        let loopback = guard("127.0.0.1:8000", "127.0.0.1");
        for good in [
            "127.0.0.1:8000",
            "LOCALHOST",
            "localhost:1",
            "localhost:",
            "[::1]:8000",
            "127.9.9.9",
            "[::ffff:127.0.0.1]",
            "MCP.example.com",
            "mcp.example.com:99",
            "other.example.com:8443",
            "[2001:db8::1]:5",
        ] {
            assert!(loopback.is_host(good), "{good}");
        }
        for bad in [
            "evil.example.com",
            "",
            ":8000",
            "localhost.evil.example.com",
            "mcp.example.com.evil.org",
            "10.0.0.1",
            "::1",
            "other.example.com",
            "other.example.com:8444",
            "localhost:80:80",
            "localhost:x",
            "127.0.0.1@evil.example.com",
            "evil.example.com:127.0.0.1",
            "[127.0.0.1]",
            "localhost:123456",
        ] {
            assert!(!loopback.is_host(bad), "{bad}");
        }
        let everywhere = guard("0.0.0.0:8000", "0.0.0.0");
        assert!(everywhere.is_host("10.0.0.1:8000") && everywhere.is_host("[fe80::1]:8000"));
        assert!(!everywhere.is_host("evil.example.com"));
        let named = guard("10.0.0.1:8000", "Box.local");
        assert!(named.is_host("box.local:8000") && named.is_host("10.0.0.1") && !named.is_host("10.0.0.2"));
    }

    #[test]
    fn origins_are_ours_or_refused() {
        let guard = guard("127.0.0.1:8000", "127.0.0.1");
        for good in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5",
            "https://app.example.com",
            "https://APP.example.com:443",
            "chrome-extension://abc",
        ] {
            assert!(guard.is_origin(good), "{good}");
        }
        for bad in [
            "null",
            "",
            "http://evil.example.com",
            "http://app.example.com",
            "https://app.example.com:444",
            "http://localhost.evil.example.com",
            "file://localhost",
            "https://app.example.com.evil.org",
            "http://10.0.0.1",
        ] {
            assert!(!guard.is_origin(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_compare_whole() {
        for (given, token, equal) in [
            ("abc", "abc", true),
            ("abd", "abc", false),
            ("ab", "abc", false),
            ("abcabc", "abc", false),
            ("", "abc", false),
            ("abca", "abc", false),
        ] {
            assert_eq!(same(given.as_bytes(), token.as_bytes()), equal, "{given}");
        }
    }
}
