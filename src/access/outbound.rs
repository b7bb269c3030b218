//! Short HTTP exchanges with a server that is not Fabric.
//!
//! In scope: everything that is HTTP and TLS, and its limits: no redirects, no proxy for this machine, a bounded body, one
//! limit on all of the time. Not in scope: what is asked and what the answer means.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use ureq::http::{HeaderValue, Response, Uri, header};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use crate::agent::{self, Lookups, NoThread, Tls};

/// Buffer of one connection, in each direction: room for the longest credentials and any sensible head of an answer.
const BUFFER: usize = 16 << 10;
/// Unused connections that are kept.
const KEPT: usize = 16;

/// A client for one server.
pub(super) struct Outbound {
    kept: Agent,
    fresh: Agent,
}

/// What is sent.
#[derive(Clone, Copy)]
pub(super) enum OutboundRequest<'a> {
    /// A GET.
    Get,
    /// A POST of an encoded form. It may go out twice, so it must not do any harm.
    Form {
        /// The header `Authorization`.
        authorization: &'a Credentials,
        /// The form.
        body: &'a str,
    },
}

/// The value of a header `Authorization`; `Debug` does not show it.
#[derive(Debug)]
pub(super) struct Credentials(HeaderValue);

impl Credentials {
    /// `None` if a header cannot hold it.
    pub(super) fn new(value: &str) -> Option<Credentials> {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some(Credentials(value))
    }

    #[cfg(test)]
    pub(super) fn expose(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// The host of a URL, as it stands in it.
pub(super) fn host(url: &str) -> Option<String> {
    url.parse::<Uri>().ok()?.host().map(str::to_owned)
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct OutboundAnswer {
    /// HTTP's status.
    pub(super) status: u16,
    /// All of the body.
    pub(super) body: Vec<u8>,
}

/// Why an exchange failed, as the predicate of a sentence about the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutboundFailure {
    /// There was no answer.
    Unreachable(String),
    /// There was one that cannot be used.
    Unusable(String),
}

impl Outbound {
    /// Prepares everything that does not need the server of `url` to be there. `ca_file` holds the certificates to trust
    /// instead of the built-in roots.
    pub(super) fn new(url: &str, ca_file: Option<&Path>) -> Result<Outbound, String> {
        let uri: Uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
        let host = uri.host().ok_or("the URL has no host")?;
        let proxy = agent::proxy(host, &uri)?;
        let tls = Tls::new("the URL", ca_file, uri.scheme_str() == Some("https"))?;
        let lookups = Lookups::new();
        let agent = |kept| {
            let config = tls
                .config(proxy.clone(), BUFFER, kept)
                .accept("application/json")
                .build();
            Agent::with_parts(config, DefaultConnector::new(), lookups.clone())
        };
        Ok(Outbound {
            kept: agent(KEPT),
            fresh: agent(0),
        })
    }

    /// One exchange that ends within `time`, with an answer of at most `limit` bytes.
    pub(super) fn exchange(
        &self,
        url: &str,
        request: OutboundRequest<'_>,
        limit: usize,
        time: Duration,
    ) -> Result<OutboundAnswer, OutboundFailure> {
        let deadline = Instant::now() + time;
        let send = |agent: &Agent| {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            match request {
                OutboundRequest::Get => agent
                    .get(url)
                    .config()
                    .timeout_global(Some(left))
                    .build()
                    .call(),
                OutboundRequest::Form {
                    authorization,
                    body,
                } => agent
                    .post(url)
                    .header(header::AUTHORIZATION, &authorization.0)
                    .content_type("application/x-www-form-urlencoded")
                    .config()
                    .timeout_global(Some(left))
                    .build()
                    .send(body),
            }
        };
        // A kept connection may just be closing.
        let sent = match send(&self.kept) {
            Err(ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::Protocol(_)) => {
                send(&self.fresh)
            }
            sent => sent,
        };
        read(sent.map_err(|error| failure(error, time))?, limit, time)
    }
}

fn read(
    response: Response<Body>,
    limit: usize,
    time: Duration,
) -> Result<OutboundAnswer, OutboundFailure> {
    let (head, body) = response.into_parts();
    let too_large = || OutboundFailure::Unusable(format!("answers with more than {limit} bytes"));
    if body
        .content_length()
        .is_some_and(|length| length > limit as u64)
    {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut reader = body
        .into_with_config()
        .limit(u64::MAX)
        .reader()
        .take(limit as u64 + 1);
    match reader.read_to_end(&mut bytes) {
        Ok(read) if read > limit => Err(too_large()),
        Ok(_) => Ok(OutboundAnswer {
            status: head.status.as_u16(),
            body: bytes,
        }),
        Err(error) => Err(failure(error.into(), time)),
    }
}

/// Never with a part of the request: ureq's errors have none.
fn failure(error: ureq::Error, time: Duration) -> OutboundFailure {
    let seconds = time.as_secs_f64();
    OutboundFailure::Unreachable(match error {
        ureq::Error::Timeout(_) => format!("does not answer within {seconds} s"),
        ureq::Error::HostNotFound => "has a host name that cannot be resolved".to_owned(),
        ureq::Error::ConnectProxyFailed(_) => {
            "cannot be reached through the proxy that ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names"
                .to_owned()
        }
        // rustls puts its errors into this kind.
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            format!("does not speak TLS and HTTP as expected: {error}")
        }
        ureq::Error::Io(error) if agent::is_out_of_sockets(&error) => {
            format!("cannot be reached: {error}")
        }
        ureq::Error::Io(error) => format!("cannot be reached ({})", error.kind()),
        ureq::Error::Tls(why) => format!("offers no secure connection: {why}"),
        #[cfg(feature = "tls")]
        ureq::Error::Rustls(error) => format!("offers no secure connection: {error}"),
        ureq::Error::LargeResponseHeader(..) => {
            "answers with headers that are too large".to_owned()
        }
        ureq::Error::ConnectionFailed => "cannot be reached".to_owned(),
        ureq::Error::Other(other) if other.is::<NoThread>() => {
            format!("cannot be reached ({NoThread})")
        }
        _ => "does not speak HTTP".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_told_at_the_start() {
        assert!(Outbound::new("no url", None).is_err() && Outbound::new("/path", None).is_err());
        let missing = Some(Path::new("/no/such.pem"));
        assert!(Outbound::new("http://h", missing).is_ok());
        #[cfg(feature = "tls")]
        assert_eq!(
            Outbound::new("https://h", missing).err().as_deref(),
            Some("SSL_CERT_FILE: cannot read /no/such.pem: entity not found")
        );
        #[cfg(not(feature = "tls"))]
        assert!(Outbound::new("https://h", None).is_err_and(|why| why.contains("has no TLS")));
    }

    #[test]
    fn a_lookup_that_fails_is_told_apart_from_a_server_that_does_not_speak_http() {
        let unreachable = |error| match failure(error, Duration::ZERO) {
            OutboundFailure::Unreachable(why) => why,
            OutboundFailure::Unusable(why) => panic!("{why}"),
        };
        let none = ureq::Error::Other(Box::new(NoThread));
        assert_eq!(
            unreachable(none),
            "cannot be reached (no thread for a name lookup)"
        );
        assert_eq!(
            unreachable(ureq::Error::HostNotFound),
            "has a host name that cannot be resolved"
        );
    }
}
