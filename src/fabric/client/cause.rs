//! Why there was no response, or only a part of one.

use std::io::ErrorKind;

use ureq::Timeout;

use crate::agent::is_exhausted;
use crate::fabric::Cause;

/// Why the transport failed, and what the words of the cause quote as `{why}`. `is_run` is a request that may be silent
/// for a while; `in_body`: the head of the response had arrived.
pub(crate) fn cause_of(
    error: &ureq::Error,
    in_body: bool,
    is_https: bool,
    is_proxied: bool,
    is_run: bool,
) -> (Cause, String) {
    let plain = |cause| (cause, String::new());
    let quoting = |cause, why: &str| (cause, why.to_owned());
    match error {
        // With a proxy, only the proxy's name is looked up, and only the proxy is connected to.
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) if is_proxied => {
            quoting(Cause::Proxy, "it does not answer in time")
        }
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => plain(Cause::ConnectTimeout),
        ureq::Error::Timeout(Timeout::PerWrite) => plain(Cause::Unread),
        ureq::Error::Timeout(Timeout::PerRead) if is_run => plain(Cause::RunSilent),
        ureq::Error::Timeout(_) if is_run => plain(Cause::RunTimeout),
        ureq::Error::Timeout(_) if in_body => plain(Cause::Unfinished),
        ureq::Error::Timeout(_) => plain(Cause::Silent),
        ureq::Error::HostNotFound if is_proxied => {
            quoting(Cause::Proxy, "its host name cannot be resolved")
        }
        ureq::Error::HostNotFound => plain(Cause::UnknownHost),
        ureq::Error::ConnectProxyFailed(_) => quoting(Cause::Proxy, "it refuses"),
        ureq::Error::LargeResponseHeader(..) => plain(Cause::HeadTooLarge),
        ureq::Error::Io(e) if is_exhausted(e) => quoting(Cause::NoSocket, &e.to_string()),
        _ if in_body => plain(Cause::BrokeOff),
        ureq::Error::Tls(why) => quoting(tls_cause(why), why),
        ureq::Error::Io(e) => match e.kind() {
            ErrorKind::TimedOut => plain(Cause::ConnectTimeout),
            ErrorKind::ConnectionRefused if is_proxied => {
                quoting(Cause::Proxy, "nothing listens there")
            }
            ErrorKind::ConnectionRefused => plain(Cause::Refused),
            // rustls reports its errors with this kind; nothing else here does.
            ErrorKind::InvalidData if is_https => {
                quoting(tls_cause(&e.to_string()), &e.to_string())
            }
            // A server without TLS may end the connection like this too.
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => {
                plain([Cause::Closed, Cause::ClosedTls][usize::from(is_https)])
            }
            kind => quoting(Cause::NoConnection, &kind.to_string()),
        },
        ureq::Error::ConnectionFailed => quoting(Cause::NoConnection, "not connected"),
        _ => plain(Cause::NotHttp),
    }
}

/// What rustls says, in lower case and without spaces. The first goes on with names, which may contain any of the others.
const TLS: [(&str, Cause); 9] = [
    ("validforname", Cause::CertificateWrongName),
    ("notvalidyet", Cause::CertificateNotYetValid),
    ("notyetvalid", Cause::CertificateNotYetValid),
    ("expired", Cause::CertificateExpired),
    ("causedasendentity", Cause::CertificateOfAuthority),
    ("unknownissuer", Cause::CertificateUnknownIssuer),
    ("selfsigned", Cause::CertificateUnknownIssuer),
    ("invalidcontenttype", Cause::NotTls),
    ("corruptmessage", Cause::NotTls),
];

/// By text, because rustls is only a dependency of ureq; anything unknown is [`Cause::Tls`].
fn tls_cause(why: &str) -> Cause {
    let why = why.to_ascii_lowercase().replace(' ', "");
    let known = TLS.iter().find(|(words, _)| why.contains(words));
    known.map_or(Cause::Tls, |(_, cause)| *cause)
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
        const BODY: bool = true;
        const HEAD: bool = false;
        use ureq::Error::{ConnectionFailed, HostNotFound, Tls};
        let io = |kind: ErrorKind| ureq::Error::Io(kind.into());
        let late = ureq::Error::Timeout;
        let run = |error, stage| cause_of(&error, stage, false, false, true);
        let tls = |error, stage| cause_of(&error, stage, true, false, true);
        let read = |error, stage| cause_of(&error, stage, false, false, false);
        let proxied = |error, stage| cause_of(&error, stage, false, true, false);
        let plain = |cause| (cause, String::new());
        let why = |cause, why: &str| (cause, why.to_owned());
        let (refused, reset) = (ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset);
        assert_eq!(run(io(refused), HEAD), plain(Cause::Refused));
        assert_eq!(run(io(reset), HEAD), plain(Cause::Closed));
        assert_eq!(tls(io(reset), HEAD), plain(Cause::ClosedTls));
        assert_eq!(run(io(reset), BODY), plain(Cause::BrokeOff));
        let timed_out = tls(io(ErrorKind::TimedOut), HEAD);
        assert_eq!(timed_out, plain(Cause::ConnectTimeout));
        let denied = run(io(ErrorKind::PermissionDenied), HEAD);
        assert_eq!(denied, why(Cause::NoConnection, "permission denied"));
        assert_eq!(run(HostNotFound, HEAD), plain(Cause::UnknownHost));
        let unresolved = run(late(Timeout::Resolve), HEAD);
        assert_eq!(unresolved, plain(Cause::ConnectTimeout));
        for stage in [HEAD, BODY] {
            assert_eq!(run(late(Timeout::Global), stage), plain(Cause::RunTimeout));
        }
        assert_eq!(run(late(Timeout::PerWrite), HEAD), plain(Cause::Unread));
        assert_eq!(run(late(Timeout::PerRead), BODY), plain(Cause::RunSilent));
        assert_eq!(tls(Tls("no"), HEAD), why(Cause::Tls, "no"));
        let failed = run(ConnectionFailed, HEAD);
        assert_eq!(failed, why(Cause::NoConnection, "not connected"));
        for (stage, cause) in [(HEAD, Cause::Silent), (BODY, Cause::Unfinished)] {
            assert_eq!(read(late(Timeout::Global), stage), plain(cause));
        }
        for error in [HostNotFound, late(Timeout::Connect), io(refused)] {
            assert_eq!(proxied(error, HEAD).0, Cause::Proxy);
        }
    }
}
