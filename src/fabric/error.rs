//! The taxonomy of what can go wrong with a call, as a caller sees it.
//!
//! In scope: which kind of failure it was, its URN, and a sentence that is safe to show. Not in scope: how a failure
//! is put into a JSON-RPC error or a tool result (`tools`, `mcp`) and how it is noticed (`client`, `events`).
//! A `detail` never holds a key, a path of any host, or the body of an HTTP error.

use std::fmt;
use std::time::Duration;

/// What happened. Each kind is one URN, `urn:fabric-mcp:error:…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// No connection, DNS, TLS, connect timeout, no response headers in time; 502, 503, 504.
    ApiUnavailable,
    /// 401 and 403.
    ApiUnauthorized,
    /// Any other 5xx.
    FabricInternal,
    /// 429 and other 4xx, a redirect, an unreadable or unexpected body, an `error` event, `complete` without content.
    ApiError,
    /// After the headers: the stream ended, was cut, or stayed silent too long before `complete`.
    StreamInterrupted,
    /// A limit on sizes was hit.
    ResponseTooLarge,
    /// The pattern is not on Fabric's list of names.
    PatternNotFound,
    /// A refused name, variable, argument or pattern.
    InvalidRequest,
    /// Workers and queue are full, or the rate limit was hit.
    TooManyRequests,
    /// The caller cancelled.
    Cancelled,
    /// A bug of ours, a panic included.
    Internal,
}

impl Kind {
    /// Every kind, for tables and tests over all of them.
    pub(crate) const ALL: [Kind; 11] = [
        Kind::ApiUnavailable,
        Kind::ApiUnauthorized,
        Kind::FabricInternal,
        Kind::ApiError,
        Kind::StreamInterrupted,
        Kind::ResponseTooLarge,
        Kind::PatternNotFound,
        Kind::InvalidRequest,
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
            Kind::StreamInterrupted => "fabric-stream-interrupted",
            Kind::ResponseTooLarge => "response-too-large",
            Kind::PatternNotFound => "pattern-not-found",
            Kind::InvalidRequest => "invalid-request",
            Kind::TooManyRequests => "too-many-requests",
            Kind::Cancelled => "cancelled",
            Kind::Internal => "internal-server-error",
        }
    }

    /// A short human title, the same for every failure of this kind.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::ApiUnavailable => "Fabric cannot be reached",
            Kind::ApiUnauthorized => "Fabric refused the API key",
            Kind::FabricInternal => "Fabric failed",
            Kind::ApiError => "Fabric answered with an error",
            Kind::StreamInterrupted => "Fabric's answer was cut short",
            Kind::ResponseTooLarge => "The answer is too large",
            Kind::PatternNotFound => "No such pattern",
            Kind::InvalidRequest => "The request was refused",
            Kind::TooManyRequests => "Too many requests",
            Kind::Cancelled => "Cancelled",
            Kind::Internal => "Internal error",
        }
    }

    /// The whole URN.
    pub(crate) fn urn(self) -> String {
        format!("urn:fabric-mcp:error:{}", self.name())
    }
}

/// One failure: its kind and a sentence or two that say what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// What happened.
    pub(crate) kind: Kind,
    /// Safe to show to any caller: names the operand and the way out.
    pub(crate) detail: String,
    /// When trying again makes sense, if that is known.
    pub(crate) retry_after: Option<Duration>,
}

impl Error {
    /// A failure of `kind`, told by `detail`.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Error {
        Error { kind, detail: detail.into(), retry_after: None }
    }

    /// The caller cancelled: nobody reads the text.
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
        assert_eq!((names.len(), titles.len()), (Kind::ALL.len(), Kind::ALL.len()));
        assert_eq!(Kind::ApiUnavailable.urn(), "urn:fabric-mcp:error:fabric-api-unavailable");
    }
}
