//! The one error type of a call: its kind, with a URN, and a sentence that is safe to show.
//!
//! Not in scope: how a JSON-RPC error or a tool's result carries it (`protocol`, `tools`), and detecting failures. A
//! `detail` never holds a key, a path of any host, or the body of an HTTP error as it came.

use std::fmt;
use std::time::Duration;

/// The kind of failure. Each has a URN, `urn:fabric-mcp:error:…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// No connection, DNS, TLS, connect timeout, no answer in time to anything but a run; 502, 503, 504.
    ApiUnavailable,
    /// 401 and 403.
    ApiUnauthorized,
    /// Any other 5xx.
    FabricInternal,
    /// 429 and other 4xx, a redirect, an unreadable or unexpected body, a 200 that is not a run, an `error` event,
    /// `complete` without content.
    ApiError,
    /// A run that sent no content within the idle time.
    Timeout,
    /// The stream ended before `complete`, was silent for too long after content, or hit the run's time limit.
    StreamInterrupted,
    /// A size limit was hit.
    ResponseTooLarge,
    /// Fabric does not list the pattern.
    PatternNotFound,
    /// An invalid name, variable, argument or pattern.
    InvalidRequest,
    /// The caller's role does not allow it.
    Forbidden,
    /// Workers and queue are full, or the rate limit was hit.
    TooManyRequests,
    /// The caller cancelled.
    Cancelled,
    /// A bug of ours, a panic included; or this machine failed: it has no thread or no disk space left.
    Internal,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Kind; 13] = [
        Kind::ApiUnavailable,
        Kind::ApiUnauthorized,
        Kind::FabricInternal,
        Kind::ApiError,
        Kind::Timeout,
        Kind::StreamInterrupted,
        Kind::ResponseTooLarge,
        Kind::PatternNotFound,
        Kind::InvalidRequest,
        Kind::Forbidden,
        Kind::TooManyRequests,
        Kind::Cancelled,
        Kind::Internal,
    ];

    /// The last part of the URN; also the label in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::ApiUnavailable => "fabric-api-unavailable",
            Kind::ApiUnauthorized => "fabric-api-unauthorized",
            Kind::FabricInternal => "fabric-internal-error",
            Kind::ApiError => "fabric-api-error",
            Kind::Timeout => "fabric-timeout",
            Kind::StreamInterrupted => "fabric-stream-interrupted",
            Kind::ResponseTooLarge => "response-too-large",
            Kind::PatternNotFound => "pattern-not-found",
            Kind::InvalidRequest => "invalid-request",
            Kind::Forbidden => "forbidden",
            Kind::TooManyRequests => "too-many-requests",
            Kind::Cancelled => "cancelled",
            Kind::Internal => "internal-server-error",
        }
    }

    /// The kind of that [`Kind::name`].
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// A short title for people, the same for every failure of this kind.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::ApiUnavailable => "Fabric cannot be reached",
            Kind::ApiUnauthorized => "Fabric refused the API key",
            Kind::FabricInternal => "Fabric failed",
            Kind::ApiError => "Fabric answered with an error",
            Kind::Timeout => "The run went silent",
            Kind::StreamInterrupted => "Fabric's answer was cut short",
            Kind::ResponseTooLarge => "The answer is too large",
            Kind::PatternNotFound => "No such pattern",
            Kind::InvalidRequest => "The request was refused",
            Kind::Forbidden => "Not allowed for this caller",
            Kind::TooManyRequests => "Too many requests",
            Kind::Cancelled => "Cancelled",
            Kind::Internal => "Internal error",
        }
    }

    /// Did Fabric fail, rather than the caller, this server or one of its limits?
    pub(crate) fn is_of_fabric(self) -> bool {
        matches!(
            self,
            Kind::ApiUnavailable
                | Kind::ApiUnauthorized
                | Kind::FabricInternal
                | Kind::ApiError
                | Kind::Timeout
                | Kind::StreamInterrupted
        )
    }

    /// Does the detail of such an error quote what the caller sent?
    pub(crate) fn quotes_caller(self) -> bool {
        matches!(
            self,
            Kind::InvalidRequest | Kind::PatternNotFound | Kind::Cancelled
        )
    }

    /// What an HTTP status of Fabric other than 200 means.
    pub(crate) fn from_status(status: u16) -> Kind {
        match status {
            401 | 403 => Kind::ApiUnauthorized,
            502..=504 => Kind::ApiUnavailable,
            500.. => Kind::FabricInternal,
            _ => Kind::ApiError,
        }
    }

    /// The whole URN.
    pub(crate) fn urn(self) -> String {
        format!("urn:fabric-mcp:error:{}", self.name())
    }
}

/// One failure: its kind, and a sentence or two that say what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// The kind of failure.
    pub(crate) kind: Kind,
    /// Safe to show to any caller: names what was wrong and what to do next.
    pub(crate) detail: String,
    /// How long to wait before a retry, if known.
    pub(crate) retry_after: Option<Duration>,
    /// The cause, where known; for `--check`, which says what to fix.
    pub(crate) cause: Option<Cause>,
    /// The HTTP status that Fabric or a proxy answered with; for the log.
    pub(crate) status: Option<u16>,
    /// The argument that was refused; for the log.
    pub(crate) argument: Option<String>,
}

/// Why Fabric could not be used. Finer than [`Kind`], and never part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing listens on that port.
    Refused,
    /// The host's name cannot be resolved.
    UnknownHost,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// Connected, but no answer in time.
    Silent,
    /// The proxy from the environment does not connect.
    Proxy,
    /// The certificate has expired, or this machine's clock is fast.
    CertificateExpired,
    /// The certificate is not valid yet, or this machine's clock is slow.
    CertificateNotYetValid,
    /// The certificate's issuer is not trusted here.
    CertificateUnknownIssuer,
    /// The certificate is an authority's (`CA:TRUE`), which TLS does not take as a server's own.
    CertificateOfAuthority,
    /// The certificate is for another name.
    CertificateWrongName,
    /// The peer does not speak TLS.
    NotTls,
    /// The peer answers that it speaks TLS only.
    WantsTls,
    /// TLS failed in another way.
    Tls,
    /// The peer does not speak HTTP, or closes at once.
    NotHttp,
    /// A web page.
    WebPage,
    /// A redirect.
    Redirect,
    /// 401 or 403, and no key was sent.
    KeyMissing,
    /// 401 or 403 in spite of the key.
    KeyRefused,
    /// 404: another program, or another path.
    NotFound,
    /// 502, 503 or 504: a proxy answers, but Fabric does not.
    BadGateway,
    /// An answer that is not Fabric's.
    NotFabric,
}

impl Error {
    /// An error of `kind`, described by `detail`.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Error {
        Error {
            kind,
            detail: detail.into(),
            retry_after: None,
            cause: None,
            status: None,
            argument: None,
        }
    }

    /// The same error, about this argument. The part that the tool knows: what follows may be the caller's text.
    pub(crate) fn about(self, argument: impl Into<String>) -> Error {
        Error {
            argument: Some(argument.into()),
            ..self
        }
    }

    /// The same error with its cause.
    pub(crate) fn caused_by(self, cause: impl Into<Option<Cause>>) -> Error {
        Error {
            cause: cause.into(),
            ..self
        }
    }

    /// The same error with the HTTP status that led to it.
    pub(crate) fn after_status(self, status: u16) -> Error {
        Error {
            status: Some(status),
            ..self
        }
    }

    /// A panic.
    pub(crate) fn bug(request_id: &str) -> Error {
        let detail = "fabric-mcp itself failed: this is a bug. Please report it with the log lines of request_id";
        Error::new(Kind::Internal, format!("{detail} {request_id}."))
    }

    /// The process ends first.
    pub(crate) fn stopped() -> Error {
        let detail =
            "The server was stopped before this call had ended. Try again once it is back.";
        Error::new(Kind::Cancelled, detail)
    }

    /// The caller cancelled; nobody reads the text.
    pub(crate) fn cancelled() -> Error {
        Error::new(Kind::Cancelled, "The caller cancelled this call.")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_urn_and_title() {
        let names: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.name()).collect();
        let titles: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.title()).collect();
        assert_eq!(
            (names.len(), titles.len()),
            (Kind::ALL.len(), Kind::ALL.len())
        );
        assert_eq!(
            Kind::ApiUnavailable.urn(),
            "urn:fabric-mcp:error:fabric-api-unavailable"
        );
    }

    #[test]
    fn every_status_has_its_kind() {
        for (status, kind) in [
            (401, Kind::ApiUnauthorized),
            (403, Kind::ApiUnauthorized),
            (502, Kind::ApiUnavailable),
            (503, Kind::ApiUnavailable),
            (504, Kind::ApiUnavailable),
            (500, Kind::FabricInternal),
            (501, Kind::FabricInternal),
            (505, Kind::FabricInternal),
            (599, Kind::FabricInternal),
            (429, Kind::ApiError),
            (400, Kind::ApiError),
            (404, Kind::ApiError),
            (301, Kind::ApiError),
            (204, Kind::ApiError),
        ] {
            assert_eq!(Kind::from_status(status), kind, "{status}");
        }
    }
}
