//! Why there was no response, or only a part of one.

use std::io::ErrorKind;

use ureq::Timeout;

use super::Stage;
use crate::agent::{NoThread, is_out_of_sockets};
use crate::fabric::Cause;

/// Why the transport failed, and what the words of the cause quote as `{why}`. `is_run` is a request that may be silent
/// for a while.
pub(super) fn of(
    error: &ureq::Error,
    stage: Stage,
    is_https: bool,
    is_proxied: bool,
    is_run: bool,
) -> (Cause, String) {
    let plain = |cause| (cause, String::new());
    let quoting = |cause, why: &str| (cause, why.to_owned());
    match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => plain(Cause::ConnectTimeout),
        ureq::Error::Timeout(Timeout::PerWrite) => plain(Cause::Unread),
        ureq::Error::Timeout(Timeout::PerRead) if is_run => plain(Cause::RunSilent),
        ureq::Error::Timeout(_) if is_run && stage != Stage::Request => plain(Cause::RunTimeout),
        ureq::Error::Timeout(_) if stage == Stage::Body => plain(Cause::Unfinished),
        ureq::Error::Timeout(_) => plain(Cause::Silent),
        // With a proxy, its name alone is looked up, and it alone is connected to.
        ureq::Error::HostNotFound if is_proxied => {
            quoting(Cause::Proxy, "its name cannot be resolved")
        }
        ureq::Error::Io(e) if is_proxied && e.kind() == ErrorKind::ConnectionRefused => {
            quoting(Cause::Proxy, "nothing listens there")
        }
        ureq::Error::HostNotFound => plain(Cause::UnknownHost),
        ureq::Error::ConnectProxyFailed(_) => quoting(Cause::Proxy, "it refuses"),
        ureq::Error::Other(other) if other.is::<NoThread>() => plain(Cause::NoThread),
        ureq::Error::LargeResponseHeader(..) => plain(Cause::HeadTooLarge),
        ureq::Error::Io(e) if is_out_of_sockets(e) => quoting(Cause::NoSocket, &e.to_string()),
        _ if stage == Stage::Body => plain(Cause::BrokeOff),
        ureq::Error::Tls(why) => quoting(tls_cause(why), why),
        #[cfg(feature = "tls")]
        ureq::Error::Rustls(e) => quoting(tls_cause(&e.to_string()), &e.to_string()),
        ureq::Error::Io(e) => match e.kind() {
            ErrorKind::TimedOut => plain(Cause::ConnectTimeout),
            ErrorKind::ConnectionRefused => plain(Cause::Refused),
            // rustls reports its errors with this kind; nothing else here does.
            ErrorKind::InvalidData if is_https => {
                quoting(tls_cause(&e.to_string()), &e.to_string())
            }
            // So does a server without TLS.
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                plain(if is_https {
                    Cause::ClosedTls
                } else {
                    Cause::Closed
                })
            }
            kind => quoting(Cause::NoConnection, &kind.to_string()),
        },
        ureq::Error::ConnectionFailed => quoting(Cause::NoConnection, "not connected"),
        _ => plain(Cause::NotHttp),
    }
}

/// By text, because rustls is only a dependency of ureq; anything unknown is [`Cause::Tls`].
fn tls_cause(why: &str) -> Cause {
    let why = why.to_ascii_lowercase().replace(' ', "");
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    // First, because the text after it contains names, which may be any word.
    if has(&["validforname"]) {
        Cause::CertificateWrongName
    } else if has(&["notvalidyet", "notyetvalid"]) {
        Cause::CertificateNotYetValid
    } else if has(&["expired"]) {
        Cause::CertificateExpired
    } else if has(&["causedasendentity"]) {
        Cause::CertificateOfAuthority
    } else if has(&["unknownissuer", "selfsigned"]) {
        Cause::CertificateUnknownIssuer
    } else if has(&["invalidcontenttype", "corruptmessage"]) {
        Cause::NotTls
    } else {
        Cause::Tls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_from_what_rustls_says() {
        for (why, cause) in [
            (
                "invalid peer certificate: certificate expired: verification time 1795302000 (UNIX), but certificate is \
                 not valid after 1609459200 (185842800 seconds ago)",
                Cause::CertificateExpired,
            ),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1795302000 (UNIX), but \
                 certificate is not valid before 1893456000 (98154000 seconds in future)",
                Cause::CertificateNotYetValid,
            ),
            (
                "invalid peer certificate: Expired",
                Cause::CertificateExpired,
            ),
            (
                "invalid peer certificate: NotValidYet",
                Cause::CertificateNotYetValid,
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                Cause::CertificateUnknownIssuer,
            ),
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                Cause::CertificateOfAuthority,
            ),
            (
                "invalid peer certificate: certificate not valid for name \"expired.example\"; certificate is only \
                 valid for DnsName(\"other.example\")",
                Cause::CertificateWrongName,
            ),
            (
                "received corrupt message of type InvalidContentType",
                Cause::NotTls,
            ),
            ("received fatal alert: HandshakeFailure", Cause::Tls),
        ] {
            assert_eq!(tls_cause(why), cause, "{why}");
        }
    }

    #[test]
    fn causes_are_told_from_how_a_connection_fails() {
        let io = |kind: ErrorKind| ureq::Error::Io(kind.into());
        let timeout = |which| ureq::Error::Timeout(which);
        let (http, https) = (false, true);
        for (error, stage, is_https, cause, why) in [
            (
                io(ErrorKind::ConnectionRefused),
                Stage::Request,
                http,
                Cause::Refused,
                "",
            ),
            (
                io(ErrorKind::ConnectionReset),
                Stage::Head,
                http,
                Cause::Closed,
                "",
            ),
            (
                io(ErrorKind::ConnectionReset),
                Stage::Head,
                https,
                Cause::ClosedTls,
                "",
            ),
            (
                io(ErrorKind::ConnectionReset),
                Stage::Body,
                http,
                Cause::BrokeOff,
                "",
            ),
            (
                io(ErrorKind::TimedOut),
                Stage::Request,
                https,
                Cause::ConnectTimeout,
                "",
            ),
            (
                io(ErrorKind::PermissionDenied),
                Stage::Request,
                http,
                Cause::NoConnection,
                "permission denied",
            ),
            (
                ureq::Error::HostNotFound,
                Stage::Request,
                http,
                Cause::UnknownHost,
                "",
            ),
            (
                timeout(Timeout::Resolve),
                Stage::Request,
                http,
                Cause::ConnectTimeout,
                "",
            ),
            (
                timeout(Timeout::Global),
                Stage::Head,
                http,
                Cause::RunTimeout,
                "",
            ),
            (
                timeout(Timeout::Global),
                Stage::Body,
                http,
                Cause::RunTimeout,
                "",
            ),
            (
                timeout(Timeout::PerWrite),
                Stage::Request,
                http,
                Cause::Unread,
                "",
            ),
            (
                timeout(Timeout::PerRead),
                Stage::Body,
                http,
                Cause::RunSilent,
                "",
            ),
            (
                ureq::Error::Tls("no"),
                Stage::Request,
                https,
                Cause::Tls,
                "no",
            ),
            (
                ureq::Error::ConnectionFailed,
                Stage::Request,
                http,
                Cause::NoConnection,
                "not connected",
            ),
        ] {
            let found = of(&error, stage, is_https, false, true);
            assert_eq!((found.0, found.1.as_str()), (cause, why), "{error}");
        }
        for (stage, cause) in [
            (Stage::Request, Cause::Silent),
            (Stage::Head, Cause::Silent),
            (Stage::Body, Cause::Unfinished),
        ] {
            let found = of(&timeout(Timeout::Global), stage, http, false, false);
            assert_eq!(found.0, cause, "no run");
        }
        let proxied = of(
            &ureq::Error::HostNotFound,
            Stage::Request,
            http,
            true,
            false,
        );
        assert_eq!(proxied.0, Cause::Proxy);
    }
}
