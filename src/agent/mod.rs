//! What the two clients of HTTP share in how they reach a server: name lookup, TLS, the proxy of the environment, no
//! redirects.

#[cfg(any(target_env = "musl", all(target_os = "linux", test)))]
mod getent;
mod lookup;

use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

use ureq::http::Uri;
use ureq::{Agent, Proxy, ProxyProtocol};

use crate::url::Host;

pub(crate) use lookup::{Lookups, NoThread, is_out_of_sockets};

/// TLS as configured, or proof that none is needed.
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    roots: Option<ureq::tls::RootCerts>,
}

impl Tls {
    /// For the URL that is called `name`, which is https or not. `ca_file` (`SSL_CERT_FILE`) holds the certificates to
    /// trust instead of the built-in roots; it is often set machine-wide, and ignored for http.
    ///
    /// # Errors
    /// Why it cannot work, in words for the user.
    #[cfg(feature = "tls")]
    pub(crate) fn new(_: &str, ca_file: Option<&Path>, is_https: bool) -> Result<Tls, String> {
        let Some(file) = ca_file.filter(|_| is_https) else {
            return Ok(Tls { roots: None });
        };
        let shown = file.display();
        let pem = std::fs::read(file)
            .map_err(|e| format!("SSL_CERT_FILE: cannot read {shown}: {}", e.kind()))?;
        let mut certificates = Vec::new();
        for item in ureq::tls::parse_pem(&pem) {
            match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => {}
                Err(_) => return Err(format!("SSL_CERT_FILE: {shown} is not a readable PEM file")),
            }
        }
        if certificates.is_empty() {
            return Err(format!("SSL_CERT_FILE: there is no certificate in {shown}"));
        }
        Ok(Tls {
            roots: Some(ureq::tls::RootCerts::Specific(Arc::new(certificates))),
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(name: &str, _: Option<&Path>, is_https: bool) -> Result<Tls, String> {
        match is_https {
            true => Err(format!(
                "{name} is https, but this build has no TLS: use http, or build with `tls`"
            )),
            false => Ok(Tls {}),
        }
    }

    /// The configuration of an agent: buffers of `buffer` bytes, and `kept` idle connections.
    pub(crate) fn config(&self, proxy: Option<Proxy>, buffer: usize, kept: usize) -> AgentBuilder {
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would take the credentials along to wherever it points.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .user_agent(concat!("fabric-mcp/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .input_buffer_size(buffer)
            .output_buffer_size(buffer)
            // A buffer that is full must be an error, not the end of the stream that ureq takes it for.
            .max_response_header_size(buffer - 1)
            .max_idle_connections(kept)
            .max_idle_connections_per_host(kept);
        #[cfg(feature = "tls")]
        if let Some(roots) = &self.roots {
            return builder.tls_config(
                ureq::tls::TlsConfig::builder()
                    .root_certs(roots.clone())
                    .build(),
            );
        }
        builder
    }
}

type AgentBuilder = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

/// The proxy of the environment, if `uri`, which is at `host`, is reached through one.
///
/// # Errors
/// Why it cannot be used, in words for the user.
pub(crate) fn proxy(host: &str, uri: &Uri) -> Result<Option<Proxy>, String> {
    if Host::parse(host).is_ok_and(|host| host.leads_here()) {
        Ok(None)
    } else {
        usable(Proxy::try_from_env(), uri)
    }
}

fn usable(proxy: Option<Proxy>, uri: &Uri) -> Result<Option<Proxy>, String> {
    let Some(proxy) = proxy.filter(|proxy| !proxy.is_no_proxy(uri)) else {
        return Ok(None);
    };
    match proxy.protocol() {
        ProxyProtocol::Http => Ok(Some(proxy)),
        ProxyProtocol::Https if cfg!(feature = "tls") => Ok(Some(proxy)),
        other => Err(format!(
            "ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names a {other} proxy, which is not supported: name an http one, or \
             add the host to NO_PROXY"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proxies_that_work_are_used() {
        let uri: Uri = "http://issuer.example".parse().unwrap();
        let proxy = |url: &str| Some(Proxy::new(url).unwrap());
        assert_eq!(usable(None, &uri), Ok(None));
        assert_eq!(
            usable(proxy("http://proxy:3128"), &uri),
            Ok(proxy("http://proxy:3128"))
        );
        assert!(
            usable(proxy("socks5://proxy:1080"), &uri).is_err_and(|why| why.contains("NO_PROXY"))
        );
        let exempt = Proxy::builder(ProxyProtocol::Socks5)
            .host("p")
            .no_proxy("issuer.example")
            .build()
            .unwrap();
        assert_eq!(usable(Some(exempt), &uri), Ok(None));
    }
}
