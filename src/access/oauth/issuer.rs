//! The authorization server: discovery of its introspection endpoint (RFC 8414, OpenID), and introspection (RFC 7662).
//!
//! In scope: the endpoint, which is cached until it stops working, and one request. Not in scope: validating the
//! response (`claims`) and caching it (`answers`).

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use super::OAuthSettings;
use super::claims::Introspection;
use super::url::WebUrl;
use crate::access::outbound::{
    Credentials, Outbound, OutboundAnswer, OutboundFailure, OutboundRequest,
};
use crate::sync::lock;
use crate::text::percent_encode;

/// Largest answer, in bytes. Metadata of OpenID providers has some 10 KB.
const MAX_BODY: usize = 256 << 10;

/// The issuer of the tokens.
pub(super) struct Issuer {
    url: WebUrl,
    authorization: Credentials,
    ca_file: Option<PathBuf>,
    discovery: Outbound,
    /// The introspection endpoint. Locked during discovery, so that one caller does it for all.
    endpoint: Mutex<Option<Arc<IssuerEndpoint>>>,
    /// Longest exchange.
    limit: Duration,
}

struct IssuerEndpoint {
    url: String,
    outbound: Outbound,
}

/// The part of an issuer's metadata that counts here.
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    introspection_endpoint: Option<String>,
}

impl Issuer {
    /// Prepares everything that needs no connection. The error is one line that names what to correct.
    pub(super) fn new(settings: &OAuthSettings, limit: Duration) -> Result<Issuer, String> {
        // RFC 6749, 2.3.1: as in a form, then as in Basic. Encoded like this, both kinds of decoders read the same.
        let (id, secret) = (
            percent_encode(&settings.client_id),
            percent_encode(settings.client_secret.expose()),
        );
        let authorization = Credentials::new(&format!(
            "Basic {}",
            base64(format!("{id}:{secret}").as_bytes())
        ))
        .ok_or("the client id and secret cannot be sent")?;
        Ok(Issuer {
            discovery: Outbound::new(settings.issuer.as_str(), settings.ca_file.as_deref())?,
            url: settings.issuer.clone(),
            authorization,
            ca_file: settings.ca_file.clone(),
            endpoint: Mutex::new(None),
            limit,
        })
    }

    /// Introspects `token`. `is_down` tells whether another caller has found the issuer unreachable meanwhile.
    pub(super) fn introspect(
        &self,
        token: &str,
        is_down: &dyn Fn() -> bool,
    ) -> Result<Introspection, OutboundFailure> {
        let endpoint = self.endpoint(is_down)?;
        let body = format!(
            "token={}&token_type_hint=access_token",
            percent_encode(token)
        );
        let request = OutboundRequest::Form {
            authorization: &self.authorization,
            body: &body,
        };
        let answer = endpoint
            .outbound
            .exchange(&endpoint.url, request, MAX_BODY, self.limit);
        if let Err(OutboundFailure::Unreachable(_)) = answer {
            self.forget(&endpoint);
        }
        let answer = answer?;
        match answer.status {
            200 => serde_json::from_slice(&answer.body).map_err(|_| {
                OutboundFailure::Unusable(
                    "answers with something else than JSON as RFC 7662 has it".to_owned(),
                )
            }),
            // It may have moved.
            status @ (300..=399 | 404 | 405 | 410) => {
                self.forget(&endpoint);
                Err(OutboundFailure::Unusable(format!(
                    "answers HTTP {status} at its introspection endpoint"
                )))
            }
            status @ (401 | 403) => Err(OutboundFailure::Unusable(format!(
                "refuses this server itself (HTTP {status}): check FABRIC_MCP_OAUTH_CLIENT_ID and \
                 FABRIC_MCP_OAUTH_CLIENT_SECRET, and that this client may introspect"
            ))),
            status => Err(OutboundFailure::Unusable(format!(
                "answers HTTP {status} at its introspection endpoint"
            ))),
        }
    }

    /// Finds the endpoint, if it is not known.
    pub(super) fn probe(&self) -> Result<(), String> {
        match self.endpoint(&|| false) {
            Ok(_) => Ok(()),
            Err(OutboundFailure::Unreachable(why) | OutboundFailure::Unusable(why)) => Err(why),
        }
    }

    fn endpoint(&self, is_down: &dyn Fn() -> bool) -> Result<Arc<IssuerEndpoint>, OutboundFailure> {
        let mut known = lock(&self.endpoint);
        if let Some(endpoint) = &*known {
            return Ok(endpoint.clone());
        }
        if is_down() {
            return Err(OutboundFailure::Unreachable(
                "could not be asked a moment ago".to_owned(),
            ));
        }
        let endpoint = Arc::new(self.discover().map_err(OutboundFailure::Unreachable)?);
        *known = Some(endpoint.clone());
        Ok(endpoint)
    }

    fn forget(&self, endpoint: &Arc<IssuerEndpoint>) {
        lock(&self.endpoint).take_if(|known| Arc::ptr_eq(known, endpoint));
    }

    /// Tries each place where metadata may be. Reports the first failure that is not a 404.
    fn discover(&self) -> Result<IssuerEndpoint, String> {
        let mut reason = None;
        let begun = std::time::Instant::now();
        for url in self.places() {
            let left = self
                .limit
                .saturating_sub(begun.elapsed())
                .max(Duration::from_millis(1));
            let why = match self
                .discovery
                .exchange(&url, OutboundRequest::Get, MAX_BODY, left)
            {
                // Not tried elsewhere: that would only take as long again.
                Err(OutboundFailure::Unreachable(why)) => return Err(why),
                Err(OutboundFailure::Unusable(why)) => why,
                Ok(OutboundAnswer { status: 404, .. }) => continue,
                Ok(OutboundAnswer { status: 200, body }) => match self.read(&body) {
                    Ok(endpoint) => return Ok(endpoint),
                    Err(why) => why,
                },
                Ok(OutboundAnswer { status, .. }) => {
                    format!("answers HTTP {status} where its metadata should be")
                }
            };
            reason.get_or_insert(why);
        }
        Err(reason.unwrap_or_else(|| {
            "has no metadata, neither of OAuth nor of OpenID: check --oauth-issuer".to_owned()
        }))
    }

    /// RFC 8414 inserts the well-known name before the path; OpenID appends it, and with MCP may insert it as well.
    fn places(&self) -> Vec<String> {
        let (origin, path) = (self.url.origin(), self.url.path());
        let mut places = vec![
            format!("{origin}/.well-known/oauth-authorization-server{path}"),
            format!("{origin}/.well-known/openid-configuration{path}"),
        ];
        if !path.is_empty() {
            places.push(format!("{origin}{path}/.well-known/openid-configuration"));
        }
        places
    }

    fn read(&self, body: &[u8]) -> Result<IssuerEndpoint, String> {
        let metadata: IssuerMetadata = serde_json::from_slice(body)
            .map_err(|_| "has metadata that cannot be read".to_owned())?;
        if metadata.issuer != self.url.as_str() {
            return Err(
                "names itself otherwise in its metadata: give --oauth-issuer to the letter, the slash at the end \
                        included"
                    .to_owned(),
            );
        }
        let url = metadata.introspection_endpoint.ok_or(
            "names no introspection endpoint: tokens of such an issuer cannot be checked here",
        )?;
        let parsed = WebUrl::parse(&url)
            .map_err(|why| format!("names an introspection endpoint that is no good: {why}"))?;
        // A remote issuer must not point at services of this machine, and tokens are sent over https only.
        if self.url.is_https() && !parsed.is_https() {
            return Err("names an introspection endpoint without https".to_owned());
        }
        let outbound = Outbound::new(&url, self.ca_file.as_deref())?;
        Ok(IssuerEndpoint { url, outbound })
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .fold(0, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for digit in 0..4 {
            let digit_value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit > group.len() {
                '='
            } else {
                char::from(DIGITS[digit_value])
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_in_the_rfc() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("\u{3ff}\u{3fe}", "z7/Pvg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded, "{text}");
        }
    }

    #[test]
    fn credentials_are_encoded_as_in_a_form_first() {
        let settings = OAuthSettings::of("http://localhost/t", "my app:1", "p%+é");
        let issuer = Issuer::new(&settings, Duration::ZERO).unwrap();
        let expected = format!("Basic {}", base64(b"my%20app%3A1:p%25%2B%C3%A9"));
        assert_eq!(issuer.authorization.expose(), expected);
        assert!(!format!("{:?}", issuer.authorization).contains("Basic"));
    }

    fn issuer(url: &str) -> Issuer {
        Issuer::new(&OAuthSettings::of(url, "", ""), Duration::ZERO).unwrap()
    }

    #[test]
    #[cfg(feature = "tls")]
    fn an_issuer_elsewhere_has_its_endpoint_behind_https() {
        let read = |issuer_url: &str, endpoint: &str| {
            let metadata =
                format!(r#"{{"issuer": "{issuer_url}", "introspection_endpoint": "{endpoint}"}}"#);
            issuer(issuer_url)
                .read(metadata.as_bytes())
                .map(|endpoint| endpoint.url)
        };
        for endpoint in [
            "https://other.example/introspect",
            "https://as.example:8443/i",
        ] {
            assert_eq!(
                read("https://as.example", endpoint).as_deref(),
                Ok(endpoint)
            );
        }
        let no_https = read("https://as.example", "http://127.0.0.1:8080/i").unwrap_err();
        assert_eq!(no_https, "names an introspection endpoint without https");
        assert!(read("https://as.example", "http://as.example/i").is_err());
        assert_eq!(
            read("http://localhost", "http://localhost:9/i").as_deref(),
            Ok("http://localhost:9/i")
        );
    }

    #[test]
    fn metadata_is_looked_for_in_this_order() {
        let places = |url: &str| issuer(url).places();
        for issuer in ["http://localhost:9", "http://localhost:9/"] {
            assert_eq!(
                places(issuer),
                [
                    "http://localhost:9/.well-known/oauth-authorization-server",
                    "http://localhost:9/.well-known/openid-configuration"
                ]
            );
        }
        assert_eq!(
            places("http://localhost:9/realms/team/"),
            [
                "http://localhost:9/.well-known/oauth-authorization-server/realms/team",
                "http://localhost:9/.well-known/openid-configuration/realms/team",
                "http://localhost:9/realms/team/.well-known/openid-configuration"
            ]
        );
    }
}
