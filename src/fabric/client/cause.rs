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
        let mut expected = Cause::Tls;
        for line in "\
CertificateExpired
invalid peer certificate: certificate expired: verification time 1795302000 (UNIX), but certificate is not valid after
invalid peer certificate: Expired
CertificateNotYetValid
invalid peer certificate: certificate not valid yet: verification time 1795302000 (UNIX), but certificate is not valid
invalid peer certificate: NotValidYet
CertificateUnknownIssuer
invalid peer certificate: UnknownIssuer
CertificateOfAuthority
invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))
CertificateWrongName
invalid peer certificate: certificate not valid for name \"expired.example\"; certificate is only valid for DnsName(
NotTls
received corrupt message of type InvalidContentType
Tls
received fatal alert: HandshakeFailure"
            .lines()
        {
            let named = |cause: &&Cause| format!("{cause:?}") == line;
            match Cause::ALL.iter().find(named) {
                Some(cause) => expected = *cause,
                None => assert_eq!(tls_cause(line), expected, "{line}"),
            }
        }
    }

    #[test]
    fn causes_are_told_from_how_a_connection_fails() {
        use Stage::{Body, Head, Request};
        use ureq::Error::{ConnectionFailed, HostNotFound, Tls};
        let io = |kind: ErrorKind| ureq::Error::Io(kind.into());
        let late = ureq::Error::Timeout;
        let run = |error, stage| of(&error, stage, false, false, true);
        let tls = |error, stage| of(&error, stage, true, false, true);
        let read = |error, stage| of(&error, stage, false, false, false);
        let proxied = |error, stage| of(&error, stage, false, true, false);
        let plain = |cause| (cause, String::new());
        let why = |cause, why: &str| (cause, why.to_owned());
        let (refused, reset) = (ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset);
        assert_eq!(run(io(refused), Request), plain(Cause::Refused));
        assert_eq!(run(io(reset), Head), plain(Cause::Closed));
        assert_eq!(tls(io(reset), Head), plain(Cause::ClosedTls));
        assert_eq!(run(io(reset), Body), plain(Cause::BrokeOff));
        let timed_out = tls(io(ErrorKind::TimedOut), Request);
        assert_eq!(timed_out, plain(Cause::ConnectTimeout));
        let denied = run(io(ErrorKind::PermissionDenied), Request);
        assert_eq!(denied, why(Cause::NoConnection, "permission denied"));
        assert_eq!(run(HostNotFound, Request), plain(Cause::UnknownHost));
        let unresolved = run(late(Timeout::Resolve), Request);
        assert_eq!(unresolved, plain(Cause::ConnectTimeout));
        for stage in [Head, Body] {
            assert_eq!(run(late(Timeout::Global), stage), plain(Cause::RunTimeout));
        }
        assert_eq!(run(late(Timeout::PerWrite), Request), plain(Cause::Unread));
        assert_eq!(run(late(Timeout::PerRead), Body), plain(Cause::RunSilent));
        assert_eq!(tls(Tls("no"), Request), why(Cause::Tls, "no"));
        let failed = run(ConnectionFailed, Request);
        assert_eq!(failed, why(Cause::NoConnection, "not connected"));
        for (stage, cause) in [
            (Request, Cause::Silent),
            (Head, Cause::Silent),
            (Body, Cause::Unfinished),
        ] {
            assert_eq!(read(late(Timeout::Global), stage), plain(cause));
        }
        assert_eq!(proxied(HostNotFound, Request).0, Cause::Proxy);
    }
}
