//! Why there was no response, or only a part of one.

use std::io::ErrorKind;

use ureq::Timeout;

use super::Stage;
use crate::agent::{NoThread, is_out_of_sockets};
use crate::fabric::Cause;

/// A failure of the transport.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    /// What the words of the cause quote as `{why}`.
    pub(super) why: String,
}

impl Failure {
    /// `is_run` is a request that may be silent for a while.
    pub(super) fn of(
        error: &ureq::Error,
        stage: Stage,
        is_https: bool,
        is_proxied: bool,
        is_run: bool,
    ) -> Failure {
        let (cause, why) = match error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => {
                (Cause::ConnectTimeout, String::new())
            }
            ureq::Error::Timeout(Timeout::PerWrite) => (Cause::Unread, String::new()),
            ureq::Error::Timeout(Timeout::PerRead) if is_run => (Cause::RunSilent, String::new()),
            ureq::Error::Timeout(_) if stage == Stage::Body => (Cause::Unfinished, String::new()),
            ureq::Error::Timeout(_) => (Cause::Silent, String::new()),
            // With a proxy, its name alone is looked up, and it alone is connected to.
            ureq::Error::HostNotFound if is_proxied => {
                (Cause::Proxy, "its name cannot be resolved".to_owned())
            }
            ureq::Error::Io(e) if is_proxied && e.kind() == ErrorKind::ConnectionRefused => {
                (Cause::Proxy, "nothing listens there".to_owned())
            }
            ureq::Error::HostNotFound => (Cause::UnknownHost, String::new()),
            ureq::Error::ConnectProxyFailed(_) => (Cause::Proxy, "it refuses".to_owned()),
            ureq::Error::Other(other) if other.is::<NoThread>() => (Cause::NoThread, String::new()),
            ureq::Error::LargeResponseHeader(..) => (Cause::HeadTooLarge, String::new()),
            ureq::Error::Io(e) if is_out_of_sockets(e) => (Cause::NoSocket, e.to_string()),
            _ if stage == Stage::Body => (Cause::BrokeOff, String::new()),
            ureq::Error::Tls(why) => (tls_cause(why), (*why).to_owned()),
            #[cfg(feature = "tls")]
            ureq::Error::Rustls(e) => (tls_cause(&e.to_string()), e.to_string()),
            ureq::Error::Io(e) => match e.kind() {
                ErrorKind::TimedOut => (Cause::ConnectTimeout, String::new()),
                ErrorKind::ConnectionRefused => (Cause::Refused, String::new()),
                // rustls reports its errors with this kind; nothing else here does.
                ErrorKind::InvalidData if is_https => (tls_cause(&e.to_string()), e.to_string()),
                // So does a server without TLS.
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    let cause = if is_https {
                        Cause::ClosedTls
                    } else {
                        Cause::Closed
                    };
                    (cause, String::new())
                }
                kind => (Cause::NoConnection, kind.to_string()),
            },
            ureq::Error::ConnectionFailed => (Cause::NoConnection, "not connected".to_owned()),
            _ => (Cause::NotHttp, String::new()),
        };
        Failure { cause, why }
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
                Cause::Silent,
                "",
            ),
            (
                timeout(Timeout::Global),
                Stage::Body,
                http,
                Cause::Unfinished,
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
            let found = Failure::of(&error, stage, is_https, false, true);
            assert_eq!((found.cause, found.why.as_str()), (cause, why), "{error}");
        }
        let proxied = Failure::of(
            &ureq::Error::HostNotFound,
            Stage::Request,
            http,
            true,
            false,
        );
        assert_eq!(proxied.cause, Cause::Proxy);
    }
}
