//! Hosts and `host:port`, as in URLs and the headers `Host` and `Origin`.
//!
//! In scope: parsing and writing them. Not in scope: which ones are allowed (`config`, `cli`, `transport`), and
//! resolving names.

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
    /// See [`AuthorityError`].
    pub(crate) fn parse(text: &str) -> Result<Host, AuthorityError> {
        match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Host::Ip(address.into())),
            Err(_) => match Authority::parse(text)? {
                Authority { host, port: None } => Ok(host),
                Authority { port: Some(_), .. } => Err(AuthorityError::Port),
            },
        }
    }

    /// The address; an IPv4-mapped IPv6 address as IPv4.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::Ip(address) => Some(address.to_canonical()),
        }
    }

    /// Whether only this machine can reach it. Of names, only localhost counts.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Host::Name(name) => name == "localhost",
            Host::Ip(address) => address.to_canonical().is_loopback(),
        }
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

/// Why a text is not an [`Authority`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorityError {
    /// The host is missing.
    NoHost,
    /// The name contains a character other than letters, digits, `-`, `.` and `_`.
    Name,
    /// A bracket is not closed.
    Bracket,
    /// The text in brackets is not an IPv6 address.
    NotIpv6,
    /// Something other than a port follows the brackets.
    AfterBracket,
    /// There is more than one colon, as in an IPv6 address without brackets.
    Colons,
    /// The port is not a number from 1 to 65535.
    Port,
}

impl Authority {
    /// Parses `name`, `1.2.3.4` or `[::1]`, with or without `:port`.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub(crate) fn parse(text: &str) -> Result<Authority, AuthorityError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or(AuthorityError::Bracket)?;
                let address: Ipv6Addr = address.parse().map_err(|_| AuthorityError::NotIpv6)?;
                let port = match after {
                    "" => None,
                    _ => Some(
                        after
                            .strip_prefix(':')
                            .ok_or(AuthorityError::AfterBracket)?,
                    ),
                };
                (Host::Ip(address.into()), port)
            }
            None => {
                let (host, port) = text
                    .split_once(':')
                    .map_or((text, None), |(host, port)| (host, Some(port)));
                if port.is_some_and(|port| port.contains(':')) {
                    return Err(AuthorityError::Colons);
                }
                if host.is_empty() {
                    return Err(AuthorityError::NoHost);
                }
                if !host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
                {
                    return Err(AuthorityError::Name);
                }
                (
                    host.parse()
                        .map_or_else(|_| Host::Name(host.to_ascii_lowercase()), Host::Ip),
                    port,
                )
            }
        };
        Ok(Authority {
            host,
            port: port.map(parse_port).transpose()?,
        })
    }
}

fn parse_port(text: &str) -> Result<u16, AuthorityError> {
    // `parse` alone accepts a plus sign.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|port| digits && *port > 0)
        .ok_or(AuthorityError::Port)
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
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
            assert_eq!(
                Authority::parse(given).map(|a| a.to_string()).as_deref(),
                Ok(written),
                "{given}"
            );
        }
    }

    #[test]
    fn invalid_authorities_say_why() {
        for (given, error) in [
            ("", AuthorityError::NoHost),
            (":80", AuthorityError::NoHost),
            ("a b", AuthorityError::Name),
            ("fäbric", AuthorityError::Name),
            ("joe@fabric", AuthorityError::Name),
            ("[::1", AuthorityError::Bracket),
            ("[fabric]", AuthorityError::NotIpv6),
            ("[127.0.0.1]", AuthorityError::NotIpv6),
            ("[::1]80", AuthorityError::AfterBracket),
            ("[::1]x:80", AuthorityError::AfterBracket),
            ("::1", AuthorityError::Colons),
            ("a:80:80", AuthorityError::Colons),
            ("a:", AuthorityError::Port),
            ("[::1]:", AuthorityError::Port),
            ("a:0", AuthorityError::Port),
            ("a:+1", AuthorityError::Port),
            ("a:65536", AuthorityError::Port),
        ] {
            assert_eq!(Authority::parse(given), Err(error), "{given}");
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
            assert_eq!(
                Host::parse(given).map(|host| host.is_loopback()),
                Ok(loopback),
                "{given}"
            );
        }
        assert_eq!(Host::parse("a:80"), Err(AuthorityError::Port));
        assert_eq!(
            Host::parse("[::ffff:10.0.0.1]").unwrap().address(),
            "10.0.0.1".parse().ok()
        );
    }
}
