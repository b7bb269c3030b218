//! Checks where an HTTP request comes from: its `Host`, its `Origin`, and the address of its caller.
//!
//! In scope: `Host` and `Origin` (against DNS rebinding), proxies, CORS. Not in scope: who a caller is (`access`) and how
//! often it may call (`account`).

use std::net::{IpAddr, SocketAddr};

use crate::config::Http;
use crate::http::Head;
use crate::protocol::{HEADER_PREFIX, SESSION_HEADER};
use crate::text::shown;
use crate::url::{self, Authority, Host};

/// How long browsers may keep the answer to a preflight, in seconds.
pub(super) const PREFLIGHT_MAX_AGE: &str = "3600";

/// The rules for one listening address.
pub(super) struct RequestGuard {
    settings: Http,
    /// What the server was told to listen on, if that is a name.
    name: Host,
    /// What it listens on; `None` if that is every address of this machine.
    bound: Option<IpAddr>,
}

impl RequestGuard {
    /// The rules of `settings` for a server on `bound`, which was told to listen on `name`.
    pub(super) fn new(settings: &Http, name: &str, bound: SocketAddr) -> RequestGuard {
        RequestGuard {
            settings: settings.clone(),
            name: Host::Name(name.to_ascii_lowercase()),
            bound: Some(bound.ip().to_canonical()).filter(|ip| !ip.is_unspecified()),
        }
    }

    /// Checks `Host` and `Origin`. Returns the origin, if there is one, since CORS has to repeat it.
    ///
    /// # Errors
    /// Why it is refused, naming the flag that lets the request in.
    pub(super) fn origin<'a>(&self, head: &'a Head) -> Result<Option<&'a str>, String> {
        let host = head.host().ok_or(
            "The request has no Host header, so the server cannot tell which host it is for.",
        )?;
        if !self.is_host(host) {
            let host = shown(host, 128);
            return Err(format!(
                "The Host \"{host}\" is not one of this server's names. If it is meant to be, start the server with --allowed-host {host}."
            ));
        }
        // Browsers send only one; if there are more, each must be allowed.
        let mut origins = head.headers_named("origin");
        if let Some(bad) = origins.find(|origin| !self.is_origin(origin)) {
            let bad = shown(bad, 128);
            return Err(format!(
                "Pages of the Origin \"{bad}\" may not use this server. If they are meant to, start it with --allowed-origin {bad}."
            ));
        }
        Ok(head.header("origin"))
    }

    /// The address of the caller: `peer`, or behind trusted proxies the nearest address that is none of them, by the
    /// `values` of `X-Forwarded-For`.
    pub(super) fn caller(&self, values: &[&str], peer: IpAddr) -> IpAddr {
        let mut at = peer.to_canonical();
        // Each proxy appends its peer on the right; entries left of an untrusted one can be forged.
        for hop in values.iter().rev().flat_map(|value| value.rsplit(',')) {
            let is_proxy = self.settings.trusted_proxies.contains(&at);
            match address(hop.trim()).filter(|_| is_proxy) {
                Some(before) => at = before,
                None => break,
            }
        }
        at
    }

    fn is_host(&self, text: &str) -> bool {
        // RFC 3986 allows an empty port.
        let Ok(given) = Authority::parse(text.strip_suffix(':').unwrap_or(text)) else {
            return false;
        };
        // Rebinding needs a name: an address in `Host` is the one the client has connected to, and with an unspecified
        // address each of this machine's is meant.
        let any_address = self.bound.is_none() && given.host.address().is_some();
        let allows = |allowed: &Authority| {
            allowed.host == given.host && (allowed.port.is_none() || allowed.port == given.port)
        };
        any_address || self.is_local(&given.host) || self.settings.allowed_hosts.iter().any(allows)
    }

    fn is_origin(&self, text: &str) -> bool {
        url::origin(text).is_some_and(|(origin, host)| {
            let is_web = origin.starts_with("http://") || origin.starts_with("https://");
            is_web && self.is_local(&host) || self.settings.allowed_origins.contains(&origin)
        })
    }

    /// Whether this is a name of this machine, or the address we listen on.
    fn is_local(&self, host: &Host) -> bool {
        let is_bound = self.bound.is_some() && host.address() == self.bound;
        is_bound || *host == self.name || host.is_loopback()
    }
}

/// An entry of `X-Forwarded-For`: some proxies add a port.
fn address(text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok();
    ip.map(|ip: IpAddr| ip.to_canonical())
        .or_else(|| Authority::parse(text).ok()?.host.address())
}

/// What every answer to a page of an allowed origin carries.
pub(super) fn cors(origin: &str) -> Vec<(&'static str, String)> {
    let exposed = format!("{SESSION_HEADER}, WWW-Authenticate");
    vec![
        ("Access-Control-Allow-Origin", origin.to_owned()),
        ("Access-Control-Expose-Headers", exposed),
        ("Vary", "Origin".to_owned()),
    ]
}

/// The headers of MCP among those that a page wants to send, as its preflight says. CORS has no wildcard for `mcp-`, so
/// they are named one by one.
pub(super) fn allowed_headers(head: &Head) -> String {
    const KNOWN: [&str; 4] = ["authorization", "content-type", "accept", "last-event-id"];
    let wanted = head.headers_named("access-control-request-headers");
    let wanted = wanted.flat_map(|value| value.split(','));
    let lower = wanted.map(|name| name.trim().to_ascii_lowercase());
    let is_ours = |name: &String| KNOWN.contains(&&**name) || name.starts_with(HEADER_PREFIX);
    Vec::from_iter(lower.filter(is_ours)).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(bound: &str, name: &str) -> RequestGuard {
        let settings = Http {
            allowed_hosts: ["mcp.example.com", "other.example.com:8443", "[2001:db8::1]"]
                .map(|host| Authority::parse(host).unwrap())
                .into(),
            allowed_origins: vec![
                "https://app.example.com".into(),
                "chrome-extension://abc".into(),
            ],
            trusted_proxies: ["10.0.0.1", "10.0.0.2", "2001:db8::1"]
                .map(|ip| ip.parse().unwrap())
                .into(),
            ..Http::default()
        };
        RequestGuard::new(&settings, name, bound.parse().unwrap())
    }

    #[test]
    fn hosts_are_ours_or_refused() {
        let loopback = guard("127.0.0.1:8000", "127.0.0.1");
        let all = "127.0.0.1:8000 LOCALHOST localhost:1 localhost: [::1]:8000 127.9.9.9 \
                   [::ffff:127.0.0.1] MCP.example.com mcp.example.com:99 other.example.com:8443 \
                   [2001:db8::1]:5";
        for good in all.split(' ') {
            assert!(loopback.is_host(good), "{good}");
        }
        let texts = "evil.example.com||:8000|localhost.evil.example.com|mcp.example.com.evil.org|\
                     10.0.0.1|::1|other.example.com|other.example.com:8444|localhost:80:80|\
                     localhost:x|127.0.0.1@evil.example.com|evil.example.com:127.0.0.1|\
                     [127.0.0.1]|localhost:123456";
        for bad in texts.split('|') {
            assert!(!loopback.is_host(bad), "{bad}");
        }
        let everywhere = guard("0.0.0.0:8000", "0.0.0.0");
        assert!(everywhere.is_host("10.0.0.1:8000") && everywhere.is_host("[fe80::1]:8000"));
        assert!(!everywhere.is_host("evil.example.com"));
        let named = guard("10.0.0.1:8000", "Box.local");
        assert!(
            named.is_host("box.local:8000")
                && named.is_host("10.0.0.1")
                && !named.is_host("10.0.0.2")
        );
    }

    #[test]
    fn origins_are_ours_or_refused() {
        let guard = guard("127.0.0.1:8000", "127.0.0.1");
        let all = "http://localhost:3000 https://127.0.0.1 http://[::1]:5 https://app.example.com \
                   https://APP.example.com:443 chrome-extension://abc";
        for good in all.split(' ') {
            assert!(guard.is_origin(good), "{good}");
        }
        let texts = "null||http://evil.example.com|http://app.example.com|\
                     https://app.example.com:444|http://localhost.evil.example.com|\
                     file://localhost|https://app.example.com.evil.org|http://10.0.0.1";
        for bad in texts.split('|') {
            assert!(!guard.is_origin(bad), "{bad}");
        }
    }

    #[test]
    fn only_our_proxies_say_who_has_called() {
        let guard = guard("127.0.0.1:8000", "127.0.0.1");
        for (peer, values, caller) in [
            ("10.0.0.1", &["198.51.100.7"][..], "198.51.100.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.3", &["198.51.100.7"], "10.0.0.3"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
            (
                "10.0.0.1",
                &["1.1.1.1", "198.51.100.7, 10.0.0.2"],
                "198.51.100.7",
            ),
            ("10.0.0.1", &["10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7,"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("2001:db8::1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("2001:db8::1", &["[2001:db8::7]"], "2001:db8::7"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7"),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            let found = guard.caller(values, peer).to_string();
            assert_eq!(found, caller, "{peer} {values:?}");
        }
    }
}
