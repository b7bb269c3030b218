//! sd_notify(3) for a service of `Type=notify`, and the watchdog: datagrams to `NOTIFY_SOCKET`; and `--healthcheck`.
//!
//! In scope: the states this program reports, and whether it lives. Without the variable nothing is sent. Not in scope:
//! signals.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::agent;
use crate::sync::spawn;
use crate::url::reachable;

/// Timeout of the watchdog's request to this process, which normally takes a millisecond.
const ANSWER: Duration = Duration::from_secs(10);

/// Timeout of `--healthcheck`, less than what containers are usually given.
const HEALTHCHECK: Duration = Duration::from_secs(2);

/// Reports that the service listens on `address`. If systemd has a watchdog, starts a thread that requests `/healthz`
/// and reports each answer.
pub(crate) fn ready(address: SocketAddr) {
    tell("READY=1");
    let interval = std::env::var("WATCHDOG_USEC").ok();
    let interval = interval.and_then(|time| time.parse().ok());
    let Some(interval) = interval.filter(|time| *time > 0) else {
        return;
    };
    // Twice as often as systemd wants.
    let (period, address) = (Duration::from_micros(interval) / 2, reachable(address));
    let watch = move || {
        loop {
            // Tests that connections are accepted and get a thread, not only that this thread runs.
            if ask(address, ANSWER).is_ok() {
                tell("WATCHDOG=1");
            } else {
                log::error!(
                    "the server does not answer its own request, so systemd's watchdog gets \
                     no sign of life"
                );
            }
            thread::sleep(period);
        }
    };
    spawn("watchdog", "the watchdog has no thread", watch);
}

/// Asks the server that was started on this machine with this `--host` and `--port` whether it is up: at that address, or
/// at the loopback address of the same family if it means all addresses or is none of this machine.
///
/// # Errors
/// The server does not answer, or not within [`HEALTHCHECK`]: why, and what to do.
pub(crate) fn healthcheck(host: &str, port: u16) -> Result<(), String> {
    let address = match host.parse::<IpAddr>() {
        // An address of this machine can be bound here.
        Ok(ip) if UdpSocket::bind((ip, 0)).is_ok() => reachable((ip, port).into()),
        Ok(IpAddr::V6(_)) => (Ipv6Addr::LOCALHOST, port).into(),
        _ => (Ipv4Addr::LOCALHOST, port).into(),
    };
    ask(address, HEALTHCHECK).map_err(|error| {
        format!(
            "--healthcheck: the server at http://{address}/healthz {error}; start a server with \
             --transport http, and give --healthcheck the same FABRIC_MCP_HOST and FABRIC_MCP_PORT"
        )
    })
}

/// Requests `/healthz` and waits for a status of 200.
fn ask(address: SocketAddr, within: Duration) -> Result<(), String> {
    let reply = agent::get(&format!("http://{address}/healthz"), Some(""), within)?;
    match reply.status().as_u16() {
        200 => Ok(()),
        other => Err(format!("answers with HTTP {other}")),
    }
}

/// Sends systemd a state, as sd_notify(3) defines them.
#[cfg(unix)]
pub(crate) fn tell(state: &str) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    let send = || {
        let address = match name.as_bytes().strip_prefix(b"@") {
            #[cfg(target_os = "linux")]
            Some(name) => {
                <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?
            }
            _ => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A reader that does not read must not keep this process from serving, or from ending.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = send() {
        log::warn!("NOTIFY_SOCKET: systemd cannot be told {state}: {error}");
    }
}

#[cfg(not(unix))]
pub(crate) fn tell(_: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_all_is_reached_on_this_machine() {
        for (bound, asked) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), asked);
        }
    }
}
