//! Names that musl does not find, by the `getent` of the system.
//!
//! musl asks all name servers at once and takes the first answer, even that there is no such name; it knows nothing of
//! the system's modules (NSS), as for mDNS; and it finds names in `/etc/hosts` as they are spelt there. The system's C
//! library, where it is another one, does better: `getent` speaks for it. Without it, the name is not found.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

const GETENT: &str = "/usr/bin/getent";

/// The addresses of `host`, with `port`: none if it is not found.
///
/// # Errors
/// `getent` could not be started.
pub(super) fn find(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // It must not be taken for an option.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.starts_with('-') || !host.bytes().all(is_name) {
        return Ok(Vec::new());
    }
    let output = Command::new(GETENT)
        .args(["ahosts", host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    Ok(listed(&String::from_utf8_lossy(&output.stdout), port))
}

/// A line for each kind of socket of each address, which is its first word.
fn listed(lines: &str, port: u16) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for address in lines
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse::<IpAddr>().ok())
    {
        let address = SocketAddr::from((address, port));
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_listed_once() {
        let lines = "::1             STREAM localhost\n::1             DGRAM  \n192.0.2.7 STREAM\n192.0.2.7 RAW\n\nfe80::1%e 1\n";
        assert_eq!(
            listed(lines, 8080),
            [
                "[::1]:8080".parse().unwrap(),
                "192.0.2.7:8080".parse().unwrap()
            ]
        );
        assert_eq!(listed("", 1), []);
    }

    #[test]
    fn the_systems_names_are_found_and_nothing_else_is_asked() {
        if !std::path::Path::new(GETENT).exists() {
            return;
        }
        assert!(
            find("localhost", 80)
                .unwrap()
                .iter()
                .any(|found| found.ip().is_loopback())
        );
        for odd in ["--help", "-s", "a b", "a;b", "h/x", "h:1"] {
            assert_eq!(find(odd, 80).unwrap(), [], "{odd}");
        }
    }
}
