//! Problems and their fixes.
//!
//! In scope: turning a [`Cause`] into a [`Problem`]. Not in scope: finding causes (`fabric`).

use crate::fabric::{Cause, Error, Kind};

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Identifies it to scripts; never changes.
    pub(super) code: &'static str,
    /// Whether the check fails because of it.
    pub(super) is_error: bool,
    /// What was found.
    pub(super) what: String,
    /// What to do, in one line.
    pub(super) fix: String,
}

impl Problem {
    /// A problem that does not fail the check.
    pub(super) fn warning(
        code: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        Problem {
            code,
            is_error: false,
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// A problem that fails the check.
    pub(super) fn error(
        code: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        Problem {
            code,
            is_error: true,
            what: what.into(),
            fix: fix.into(),
        }
    }
}

/// Explains `error` of a request to `url`. `elsewhere` is where a Fabric was found instead.
pub(super) fn diagnose(error: &Error, url: &str, elsewhere: Option<&str>) -> Problem {
    let Some(cause) = error.cause else {
        let fix = match error.kind {
            Kind::ApiUnavailable | Kind::StreamInterrupted => {
                "Check the network between here and Fabric, and that `fabric --serve` runs."
            }
            Kind::Timeout => {
                "Look into Fabric's own log: the model may have failed; a slow one needs --idle-timeout."
            }
            _ => "Look into Fabric's own log.",
        };
        return Problem::error(error.kind.name(), error.detail.clone(), fix);
    };
    let moved =
        elsewhere.map(|found| format!("A Fabric answers at {found}: set FABRIC_BASE_URL to that."));
    let (code, what, fix) = match cause {
        Cause::Refused => (
            "connection-refused",
            format!("Nothing listens at {url}."),
            moved
                .as_deref()
                .unwrap_or("Start `fabric --serve`; if it runs, set FABRIC_BASE_URL to the host and port it prints."),
        ),
        Cause::UnknownHost => (
            "unknown-host",
            format!("The host name in {url} cannot be resolved."),
            "Correct the name in FABRIC_BASE_URL, or fix this machine's DNS; `getent hosts NAME` tests it.",
        ),
        Cause::ConnectTimeout => (
            "connect-timeout",
            format!("{url} does not accept the connection: the host is off, or a firewall drops it."),
            "Check the host and port in FABRIC_BASE_URL and the firewall; a slow network needs --connect-timeout.",
        ),
        Cause::Silent => (
            "no-answer",
            format!("Something accepts the connection at {url} but does not answer in time."),
            "Restart `fabric --serve`; if it is only slow, raise --request-timeout (for models, --models-timeout).",
        ),
        Cause::Proxy => (
            "proxy-failed",
            format!("The proxy of ALL_PROXY, HTTPS_PROXY or HTTP_PROXY does not connect to {url}."),
            "Correct that variable, or add Fabric's host to NO_PROXY.",
        ),
        Cause::CertificateExpired => (
            "certificate-expired",
            format!("The certificate at {url} has expired, or this machine's clock is fast."),
            "Check the clock with `date -u`; if it is right, renew the certificate.",
        ),
        Cause::CertificateNotYetValid => (
            "certificate-not-yet-valid",
            format!("The certificate at {url} is not valid yet, or this machine's clock is slow."),
            "Check the clock with `date -u`, and set it.",
        ),
        Cause::CertificateUnknownIssuer => (
            "certificate-unknown-issuer",
            format!("The certificate at {url} comes from an authority that is not trusted here."),
            "Set SSL_CERT_FILE to a PEM file with that authority's certificate.",
        ),
        Cause::CertificateOfAuthority => (
            "certificate-of-authority",
            format!("The server at {url} shows an authority's certificate (CA:TRUE), which cannot be a server's own."),
            "Make one by `openssl req -x509 -addext basicConstraints=CA:FALSE -addext subjectAltName=DNS:HOST` (or IP:…).",
        ),
        Cause::CertificateWrongName => (
            "certificate-wrong-name",
            format!("The certificate at {url} is for another host name."),
            "Use the name of the certificate in FABRIC_BASE_URL.",
        ),
        Cause::NotTls => (
            "not-tls",
            format!("What listens at {url} does not speak TLS."),
            "Write http:// instead of https:// in FABRIC_BASE_URL, or correct its port.",
        ),
        Cause::WantsTls => (
            "wants-tls",
            format!("What listens at {url} wants TLS."),
            "Write https:// instead of http:// in FABRIC_BASE_URL, or correct its port.",
        ),
        Cause::Tls => ("tls-failed", error.detail.clone(), "Check the proxy or server that ends TLS before Fabric."),
        Cause::NotHttp => (
            "not-http",
            format!("What listens at {url} does not answer in HTTP."),
            "Correct the port in FABRIC_BASE_URL, or write https:// if TLS is spoken there.",
        ),
        Cause::WebPage => (
            "web-page",
            format!("{url} answers with a web page: a proxy, a login page or another program."),
            "Set FABRIC_BASE_URL to the address of `fabric --serve` itself, with the path under which a proxy has it.",
        ),
        Cause::Redirect => (
            "redirect",
            format!("{url} answers with a redirect, which is not followed: the key would go along."),
            "Set FABRIC_BASE_URL to where it leads; `curl -sI URL` shows that.",
        ),
        Cause::KeyMissing => (
            "key-missing",
            "Fabric wants an API key, and FABRIC_API_KEY is not set.".into(),
            "Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given.",
        ),
        Cause::KeyRefused => (
            "key-refused",
            "Fabric refuses the key in FABRIC_API_KEY.".into(),
            "Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given; it may have changed.",
        ),
        Cause::NotFound => (
            "not-found",
            format!("{url} has no list of patterns: another program, or Fabric under another path."),
            "Correct the port and path in FABRIC_BASE_URL; without a proxy there is no path.",
        ),
        Cause::BadGateway => (
            "bad-gateway",
            format!("A proxy answers at {url}, but it does not reach Fabric."),
            "Start `fabric --serve` behind the proxy, and check the address the proxy has for it.",
        ),
        Cause::NotFabric => (
            "not-fabric",
            format!("{url} answers, but not as Fabric does."),
            "Correct the port in FABRIC_BASE_URL; if it is Fabric, update it or fabric-mcp.",
        ),
    };
    Problem::error(code, what, fix)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const CAUSES: [Cause; 21] = [
        Cause::Refused,
        Cause::UnknownHost,
        Cause::ConnectTimeout,
        Cause::Silent,
        Cause::Proxy,
        Cause::CertificateExpired,
        Cause::CertificateNotYetValid,
        Cause::CertificateUnknownIssuer,
        Cause::CertificateOfAuthority,
        Cause::CertificateWrongName,
        Cause::NotTls,
        Cause::WantsTls,
        Cause::Tls,
        Cause::NotHttp,
        Cause::WebPage,
        Cause::Redirect,
        Cause::KeyMissing,
        Cause::KeyRefused,
        Cause::NotFound,
        Cause::BadGateway,
        Cause::NotFabric,
    ];

    #[test]
    fn every_cause_has_its_code_and_a_fix_of_one_line() {
        let mut codes = HashSet::new();
        for cause in CAUSES {
            let error = Error::new(Kind::ApiUnavailable, "what it was.").caused_by(cause);
            let problem = diagnose(&error, "http://f:1", None);
            assert!(codes.insert(problem.code), "{cause:?}");
            assert!(
                problem.is_error && problem.what.ends_with('.'),
                "{problem:?}"
            );
            assert!(
                problem.fix.ends_with(['.']) || problem.fix.contains('`'),
                "{problem:?}"
            );
            assert!(
                !problem.fix.contains('\n') && problem.fix.len() <= 110,
                "{problem:?}"
            );
            assert!(
                problem
                    .code
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{problem:?}"
            );
        }
    }

    #[test]
    fn a_certificate_made_as_told_is_taken() {
        let error = Error::new(Kind::ApiUnavailable, "").caused_by(Cause::CertificateOfAuthority);
        let fix = diagnose(&error, "https://f", None).fix;
        assert!(
            fix.contains("basicConstraints=CA:FALSE -addext subjectAltName=DNS:"),
            "{fix}"
        );
    }

    #[test]
    fn an_unknown_cause_is_reported_as_it_is() {
        let problem = diagnose(
            &Error::new(Kind::FabricInternal, "It failed."),
            "http://f",
            None,
        );
        assert_eq!(
            problem,
            Problem::error(
                "fabric-internal-error",
                "It failed.",
                "Look into Fabric's own log."
            )
        );
        let silent = diagnose(
            &Error::new(Kind::Timeout, "It was silent."),
            "http://f",
            None,
        );
        assert_eq!(
            (silent.code, silent.what.as_str()),
            ("fabric-timeout", "It was silent.")
        );
        assert!(
            silent.fix.contains("the model may have failed")
                && silent.fix.contains("--idle-timeout"),
            "{silent:?}"
        );
    }

    #[test]
    fn a_fabric_that_was_found_elsewhere_is_named() {
        let error = Error::new(Kind::ApiUnavailable, "").caused_by(Cause::Refused);
        let problem = diagnose(&error, "http://127.0.0.1:9", Some("http://127.0.0.1:8080"));
        assert_eq!(
            problem.fix,
            "A Fabric answers at http://127.0.0.1:8080: set FABRIC_BASE_URL to that."
        );
    }
}
