//! Short HTTP exchanges with a server that is not Fabric.
//!
//! In scope: everything that is HTTP and TLS, and its limits: no redirects, no proxy for this machine, a bounded body, one
//! limit on all of the time. Not in scope: what is asked and what the answer means.

use std::path::Path;
use std::time::Duration;

use ureq::http::{Response, header};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use crate::agent::{self, Lookups, NoThread};
use crate::config::Secret;

/// Buffer of one connection, in each direction: room for the longest credentials and any sensible head of an answer.
const BUFFER: usize = 16 << 10;
/// Largest body of an answer, in bytes. Metadata of OpenID providers has some 10 KB.
const MAX_BODY: u64 = 256 << 10;

/// A client for one server. Every exchange has a connection of its own.
pub(super) struct Outbound(Agent);

/// Status and body of an answer, or why there is none: the predicate of a sentence about the server.
pub(super) type OutboundAnswer = Result<(u16, Vec<u8>), String>;

impl Outbound {
    /// Prepares everything that does not need the server of `url` to be there. `ca_file` holds the certificates to trust
    /// instead of the built-in roots.
    pub(super) fn new(url: &str, ca_file: Option<&Path>) -> Result<Outbound, String> {
        let config = agent::config("the URL", url, ca_file, BUFFER, 0)?;
        let config = config.accept("application/json").build();
        let lookups = Lookups::new();
        let agent = Agent::with_parts(config, DefaultConnector::new(), lookups);
        Ok(Outbound(agent))
    }

    /// A GET that ends within `time`.
    pub(super) fn get(&self, url: &str, time: Duration) -> OutboundAnswer {
        let request = self.0.get(url).config().timeout_global(Some(time)).build();
        answer(request.call(), time)
    }

    /// A POST of an encoded form that ends within `time`.
    pub(super) fn post(
        &self,
        url: &str,
        authorization: &Secret,
        form: &str,
        time: Duration,
    ) -> OutboundAnswer {
        let request = self
            .0
            .post(url)
            .header(header::AUTHORIZATION, authorization.expose())
            .content_type("application/x-www-form-urlencoded")
            .config()
            .timeout_global(Some(time))
            .build();
        answer(request.send(form), time)
    }
}

fn answer(response: Result<Response<Body>, ureq::Error>, time: Duration) -> OutboundAnswer {
    let read = |response: Response<Body>| {
        let status = response.status().as_u16();
        let body = response.into_body().into_with_config().limit(MAX_BODY);
        Ok((status, body.read_to_vec()?))
    };
    response
        .and_then(read)
        .map_err(|error| explain(error, time))
}

/// Never with a part of the request: ureq's errors have none.
fn explain(error: ureq::Error, time: Duration) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("does not answer within {} s", time.as_secs_f64()),
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
        ureq::Error::BodyExceedsLimit(limit) => format!("answers with more than {limit} bytes"),
        ureq::Error::ConnectionFailed => "cannot be reached".to_owned(),
        ureq::Error::Other(other) if other.is::<NoThread>() => {
            format!("cannot be reached ({NoThread})")
        }
        _ => "does not speak HTTP".to_owned(),
    }
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
}
