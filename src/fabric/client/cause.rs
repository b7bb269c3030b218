//! Why there was no response, for `--check`.

use std::io::ErrorKind;

use ureq::Timeout;

use crate::fabric::Cause;

/// The cause of a failure before the response.
pub(super) fn of(error: &ureq::Error, is_https: bool) -> Option<Cause> {
    match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => Some(Cause::ConnectTimeout),
        ureq::Error::Timeout(_) => Some(Cause::Silent),
        ureq::Error::HostNotFound => Some(Cause::UnknownHost),
        ureq::Error::ConnectProxyFailed(_) => Some(Cause::Proxy),
        ureq::Error::Tls(why) => Some(tls_cause(why)),
        #[cfg(feature = "tls")]
        ureq::Error::Rustls(e) => Some(tls_cause(&e.to_string())),
        ureq::Error::Io(e) => match e.kind() {
            ErrorKind::TimedOut => Some(Cause::ConnectTimeout),
            ErrorKind::ConnectionRefused => Some(Cause::Refused),
            ErrorKind::InvalidData if is_https => Some(tls_cause(&e.to_string())),
            // A server without TLS closes the connection.
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset if is_https => {
                Some(Cause::NotTls)
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Some(Cause::NotHttp)
            }
            _ => None,
        },
        ureq::Error::ConnectionFailed => Some(Cause::Refused),
        ureq::Error::Http(_) | ureq::Error::Protocol(_) => Some(Cause::NotHttp),
        _ => None,
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
        for (error, is_https, expected) in [
            (
                io(ErrorKind::ConnectionRefused),
                false,
                Some(Cause::Refused),
            ),
            (io(ErrorKind::ConnectionReset), false, Some(Cause::NotHttp)),
            (io(ErrorKind::ConnectionReset), true, Some(Cause::NotTls)),
            (io(ErrorKind::TimedOut), true, Some(Cause::ConnectTimeout)),
            (io(ErrorKind::PermissionDenied), false, None),
            (ureq::Error::HostNotFound, false, Some(Cause::UnknownHost)),
            (
                ureq::Error::Timeout(Timeout::Resolve),
                false,
                Some(Cause::ConnectTimeout),
            ),
            (
                ureq::Error::Timeout(Timeout::Global),
                false,
                Some(Cause::Silent),
            ),
            (ureq::Error::Tls("no"), true, Some(Cause::Tls)),
        ] {
            assert_eq!(of(&error, is_https), expected, "{error}");
        }
    }
}
