//! Hosts, `host:port`, origins and URLs.
//!
//! In scope: parsing and writing them, and which hosts are this machine. Not in scope: which ones are allowed (`cli`,
//! `transport`), and resolving names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IPv4 address, or the /64 prefix of an IPv6 address, which usually belongs to one owner.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

/// The address at which this process reaches its own listener on `bound`, which may be unspecified (`0.0.0.0`, `::`).
pub(crate) fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// A host. Case and the spelling of an IPv6 address do not matter for equality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name, in lower case.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

impl Host {
    /// Parses a host without a port; an IPv6 address may lack its brackets.
    ///
    /// # Errors
    /// One line. It repeats nothing of the text, which may be a password, except single characters of the path.
    pub(crate) fn parse(text: &str) -> Result<Host, String> {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Host::Ip(address.into()));
        }
        let Authority { host, port } = Authority::parse(text)?;
        port.map_or(Ok(host), |_| Err(PORT.into()))
    }

    /// The address; an IPv4-mapped IPv6 address as IPv4.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::Ip(address) => Some(address.to_canonical()),
        }
    }

    /// Whether every program takes this for the machine it runs on. Of names, only localhost counts.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Host::Name(name) => name == "localhost",
            Host::Ip(address) => address.to_canonical().is_loopback(),
        }
    }

    /// Whether our own connections to it stay on this machine: also with a name below localhost (RFC 6761, 6.3), which
    /// other programs may look up elsewhere.
    pub(crate) fn leads_here(&self) -> bool {
        let name = format!(".{self}");
        name.trim_end_matches('.').ends_with(".localhost") || self.is_loopback()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Ip(IpAddr::V4(address)) => address.fmt(f),
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A host with an optional port: RFC 3986's authority without user-info.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// The host.
    pub(crate) host: Host,
    /// The port, never 0.
    pub(crate) port: Option<u16>,
}

impl Authority {
    /// Parses `name`, `1.2.3.4` or `[::1]`, with or without `:port`.
    ///
    /// # Errors
    /// One line. It repeats nothing of the text, which may be a password, except single characters of the path.
    pub(crate) fn parse(text: &str) -> Result<Authority, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let opened = host.strip_prefix('[');
        let bracketed = opened.and_then(|host| host.strip_suffix(']'));
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let host = match bracketed {
            Some(address) => Host::Ip(address.parse::<Ipv6Addr>().map_err(|_| BRACKETS)?.into()),
            None if host.is_empty() => return Err(NO_HOST.into()),
            None if host.contains([':', '[', ']']) => return Err(BRACKETS.into()),
            None if !host.bytes().all(is_good) => return Err(NO_NAME.into()),
            None => host
                .parse()
                .map_or_else(|_| Host::Name(host.to_ascii_lowercase()), Host::Ip),
        };
        // `parse` alone accepts a plus sign.
        let number = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+'));
        let port = port.map(|text| number(text).filter(|port| *port > 0).ok_or(PORT));
        let port = port.transpose()?;
        Ok(Authority { host, port })
    }
}

const BRACKETS: &str = "the URL's host cannot be read; an IPv6 address, and no other host, goes in brackets, as in http://[::1]:8080";
const PORT: &str = "the URL's port must be a number from 1 to 65535";
const NO_NAME: &str =
    "the URL's host may have only letters, digits, - . and _; write other names in punycode";
const NO_SCHEME: &str = "the URL must begin with http:// or https://, as in http://127.0.0.1:8080";
const USER: &str = "the URL holds a user name or password, which would end up in logs; take the part \
    before the @ out: a key or token has a variable of its own (FABRIC_API_KEY, FABRIC_MCP_AUTH_TOKEN)";
const NO_HOST: &str = "the URL has no host; write one as in http://127.0.0.1:8080";

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

/// Scheme, authority and the rest of an absolute URL; nothing of it is checked.
pub(crate) fn split(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    Some((scheme, authority, rest))
}

/// An origin as browsers write it, in lower case and without the scheme's default port; and its host.
pub(crate) fn origin(text: &str) -> Option<(String, Host)> {
    let origin = text.to_ascii_lowercase();
    let (scheme, authority) = origin.split_once("://")?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let is_scheme =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(allowed);
    let host = Authority::parse(authority).ok().filter(|_| is_scheme)?.host;
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let bare = origin.strip_suffix(default_port).unwrap_or(&origin);
    Some((bare.to_owned(), host))
}

/// Scheme, authority and path of a URL of http or https without user-info, query and fragment.
fn parts(text: &str) -> Result<(&'static str, Authority, &str), String> {
    let (scheme, authority, path) = split(text).unwrap_or_default();
    let mut known = ["http", "https"].into_iter();
    let scheme = known.find(|known| scheme.eq_ignore_ascii_case(known));
    let scheme = scheme.ok_or(NO_SCHEME)?;
    if authority.contains('@') {
        return Err(USER.into());
    }
    if path.contains(['?', '#']) {
        return Err("the URL must end with the path, without ? or #".into());
    }
    let is_bad = |c: &char| !c.is_ascii_graphic() || "\\\"<>^`{|}".contains(*c);
    if let Some(bad) = path.chars().find(is_bad) {
        return Err(format!(
            "the URL's path must not hold {bad:?}; write it percent-encoded"
        ));
    }
    Ok((scheme, Authority::parse(authority)?, path))
}

/// Validates Fabric's URL: scheme, host, and optional port and path prefix. Returns it with scheme and host in lower case
/// and without trailing slashes. The error is one line without the name of the flag or variable, and repeats no part of
/// the URL that may be a password: anything before an `@`, or a query.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    let text = text.trim_ascii();
    // The guess is shown only if no part of it can be a password.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
    // Fabric writes `:8080` for a port of this machine.
    let host = ["", "127.0.0.1"][usize::from(text.starts_with(':'))];
    let guess = format!("{host}{}", text.trim_start_matches('/'));
    let is_guess = !guess.contains("//") && guess.chars().all(plain);
    if is_guess && parts(&format!("http://{guess}")).is_ok() {
        let why = "the URL has no scheme; did you mean";
        return Err(format!("{why} http://{guess} or https://{guess}?"));
    }
    let (scheme, authority, path) = parts(text)?;
    let path = path.trim_end_matches('/');
    Ok(format!("{scheme}://{authority}{path}"))
}

/// A URL that is an identifier, kept and compared byte for byte: https, or http on this machine; no user-info, query or
/// fragment.
#[derive(Clone, Debug)]
pub(crate) struct WebUrl {
    text: String,
    /// The host.
    pub(crate) host: Host,
    /// Where the path begins.
    path: usize,
}

impl WebUrl {
    /// Takes `text` as it is. The error is one line without the name of the flag, and repeats nothing of the URL: what is
    /// wrong in it may be a password.
    pub(crate) fn parse(text: &str) -> Result<WebUrl, String> {
        let (_, authority, path) = parts(text)?;
        let web = WebUrl {
            text: text.to_owned(),
            path: text.len() - path.len(),
            host: authority.host,
        };
        if !web.is_https() && !web.host.leads_here() {
            let why = "the URL must begin with https://; http:// is accepted only for this machine (127.0.0.1, localhost)";
            return Err(why.to_owned());
        }
        Ok(web)
    }

    /// The URL as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Is it https?
    pub(crate) fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        &self.text[..self.path]
    }

    /// The path without the slash at its end; nothing if there is none.
    pub(crate) fn path(&self) -> &str {
        let path = &self.text[self.path..];
        path.strip_suffix('/').unwrap_or(path)
    }

    /// Is `other` the same URL, byte for byte? Only an empty path may be written as a slash: to RFC 3986 (6.2.3) these
    /// are one URL, and the URL classes of most languages add it.
    pub(crate) fn is(&self, other: &str) -> bool {
        let bare = other.strip_suffix('/').unwrap_or(other);
        self.text == other || self.path().is_empty() && self.origin() == bare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_have_one_spelling() {
        for (given, written) in [
            ("LocalHost", "localhost"),
            ("my_host.x-y:80", "my_host.x-y:80"),
            ("fabric:0080", "fabric:80"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("[0:0::1]", "[::1]"),
            ("[::FFFF:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"),
        ] {
            let authority = Authority::parse(given).unwrap();
            assert_eq!(authority.to_string(), written, "{given}");
        }
    }

    #[test]
    fn invalid_authorities_say_why() {
        let no_host = "the URL has no host; write one as in http://127.0.0.1:8080";
        let name = "the URL's host may have only letters";
        for (given, why) in [
            ("", no_host),
            (":80", no_host),
            ("a b", name),
            ("fäbric", name),
            ("joe@fabric", name),
            ("[::1", BRACKETS),
            ("[fabric]", BRACKETS),
            ("[127.0.0.1]", BRACKETS),
            ("[::1]80", BRACKETS),
            ("[::1]x:80", BRACKETS),
            ("::1", BRACKETS),
            ("a:80:80", BRACKETS),
            ("a:", PORT),
            ("[::1]:", PORT),
            ("a:0", PORT),
            ("a:+1", PORT),
            ("a:65536", PORT),
        ] {
            let error = Authority::parse(given).expect_err(given);
            assert!(error.starts_with(why), "{given}: {error}");
        }
    }

    #[test]
    fn hosts_stand_alone() {
        for (given, loopback) in [
            ("::1", true),
            ("[::1]", true),
            ("::ffff:127.0.0.1", true),
            ("127.9.9.9", true),
            ("LOCALHOST", true),
            ("localhost.example.com", false),
            ("0.0.0.0", false),
            ("::ffff:10.0.0.1", false),
        ] {
            let found = Host::parse(given).map(|host| host.is_loopback());
            assert_eq!(found, Ok(loopback), "{given}");
        }
        assert_eq!(Host::parse("a:80"), Err(PORT.to_owned()));
        let found = Host::parse("[::ffff:10.0.0.1]").unwrap().address();
        assert_eq!(found, "10.0.0.1".parse().ok());
    }

    #[test]
    fn good_urls_are_kept_in_one_form() {
        for (given, kept) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("HTTP://Fabric.Example", "http://fabric.example"),
            ("http://fabric/API/v1//", "http://fabric/API/v1"),
            ("http://fabric/a@b/%20", "http://fabric/a@b/%20"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
            (" http://fabric\n", "http://fabric"),
        ] {
            assert_eq!(base_url(given).as_deref(), Ok(kept), "{given}");
        }
    }

    #[test]
    fn bad_urls_are_refused_with_the_way_out() {
        let no_scheme = "the URL must begin with http:// or https://, as in http://127.0.0.1:8080";
        let port = "the URL's port must be a number from 1 to 65535";
        let host = "the URL's host may have only letters, digits, - . and _; write other names in punycode";
        let ends = "the URL must end with the path, without ? or #";
        let meant = |url: &str| {
            format!("the URL has no scheme; did you mean http://{url} or https://{url}?")
        };
        let encode =
            |what: char| format!("the URL's path must not hold {what:?}; write it percent-encoded");
        // Hosts and ports are judged as above.
        for (given, reason) in [
            ("", no_scheme),
            ("localhost:8080", &meant("localhost:8080")),
            ("//fabric/api", &meant("fabric/api")),
            (":8080", &meant("127.0.0.1:8080")),
            ("http//fabric:8080", no_scheme),
            ("[::1]:8080", &meant("[::1]:8080")),
            ("joe:pass@fabric", no_scheme),
            ("fabric?key=pass", no_scheme),
            ("ftp://fabric", no_scheme),
            ("http:/fabric", no_scheme),
            ("http:\\\\fabric", no_scheme),
            ("http://joe:pass@fabric:8080", USER),
            ("https://pass@fabric", USER),
            ("http://joe:pa/ss@fabric", port),
            ("http://joe:pass/@fabric", port),
            ("http://fabric/?key=pass", ends),
            ("http://fabric?key=pass", ends),
            ("http://fabric#pass", ends),
            ("http:///patterns", NO_HOST),
            ("http://fabric:65536", port),
            ("http://fäbric", host),
            ("http://fabric\r\nX: y", host),
            ("http://::1:8080", BRACKETS),
            ("http://fabric/a b", &encode(' ')),
            ("http://fabric/a\nb", &encode('\n')),
            ("http://fabric/{x}", &encode('{')),
        ] {
            let error = base_url(given).expect_err(given);
            assert_eq!(error, reason, "{given}");
            let bare = error.replace("password", "");
            assert!(!bare.contains("pass") && !bare.contains("joe"), "{error}");
        }
    }

    #[test]
    fn urls_are_kept_to_the_letter() {
        for (text, origin, path) in [
            ("https://As.example", "https://As.example", ""),
            ("https://as.example/", "https://as.example", ""),
            ("https://as:8443/Tenant/1/", "https://as:8443", "/Tenant/1"),
            ("http://127.0.0.1:80/a@b", "http://127.0.0.1:80", "/a@b"),
            ("http://[::1]:9/x", "http://[::1]:9", "/x"),
            ("http://LOCALHOST", "http://LOCALHOST", ""),
        ] {
            let url = WebUrl::parse(text).unwrap();
            let found = (url.as_str(), url.origin(), url.path());
            assert_eq!(found, (text, origin, path));
        }
    }

    #[test]
    fn other_urls_are_refused_and_not_repeated() {
        let local = "the URL must begin with https://; http:// is accepted only for this machine \
            (127.0.0.1, localhost)";
        let end = "the URL must end with the path, without ? or #";
        let blank = "the URL's path must not hold ' '; write it percent-encoded";
        for (text, why) in [
            ("", NO_SCHEME),
            ("as.example", NO_SCHEME),
            ("ftp://as.example", NO_SCHEME),
            ("HTTPS://as.example", local),
            ("http://as.example", local),
            ("http://10.0.0.1", local),
            ("http://localhost.example", local),
            ("https://joe:pass@as.example", USER),
            ("http://127.0.0.1@as.example", USER),
            ("https://as.example/?key=pass", end),
            ("https://as.example#pass", end),
            ("https://as.example/a b", blank),
            ("https://äs.example", NO_NAME),
            ("https:///path", NO_HOST),
            ("https://as.example:65536", PORT),
            ("https://[::1", BRACKETS),
        ] {
            let error = WebUrl::parse(text).expect_err(text);
            assert_eq!(error, why, "{text}");
            assert!(!error.contains("pass@") && !error.contains("joe"));
        }
    }

    #[test]
    fn only_the_slash_of_no_path_may_differ() {
        let is = |url: &str, other: &str| WebUrl::parse(url).unwrap().is(other);
        for (url, others) in [
            ("https://h", "https://h https://h/"),
            ("https://h/", "https://h https://h/"),
            ("https://h/mcp", "https://h/mcp"),
        ] {
            assert!(others.split(' ').all(|other| is(url, other)), "{url}");
        }
        for (url, others) in [
            (
                "https://h/mcp",
                "https://h/mcp/ https://H/mcp https://h:443/mcp https://h/MCP https://h ",
            ),
            (
                "https://h",
                "https://h// https://h/x https:// https://h:443 http://h",
            ),
        ] {
            assert!(!others.split(' ').any(|other| is(url, other)), "{url}");
        }
    }
}
