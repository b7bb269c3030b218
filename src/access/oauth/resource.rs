//! This server for OAuth clients: the metadata of a protected resource (RFC 9728), and challenges (RFC 6750, RFC 9728
//! section 5.1).

use std::fmt::Write as _;

use serde_json::json;

use super::url::WebUrl;
use crate::access::error::AccessError;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Every scope that gives a role.
const ALL_SCOPES: &str = "fabric:read fabric:run";

/// This server as an OAuth resource.
pub(in crate::access) struct Resource {
    path: String,
    metadata_url: String,
    document: Vec<u8>,
}

impl Resource {
    /// `url` is its URL as clients know it, `issuer` issues their tokens.
    pub(super) fn new(url: &WebUrl, issuer: &WebUrl) -> Resource {
        let document = json!({
            "resource": url.as_str(),
            "authorization_servers": [issuer.as_str()],
            "scopes_supported": ALL_SCOPES.split(' ').collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
            "resource_name": "fabric-mcp",
        });
        Resource {
            path: url.path().to_owned(),
            metadata_url: format!("{}{WELL_KNOWN}{}", url.origin(), url.path()),
            document: document.to_string().into_bytes(),
        }
    }

    /// The document, if it is what `path` asks for. `endpoint` is the path of the MCP endpoint here, which a proxy in front
    /// may call by another name: both are answered.
    pub(in crate::access) fn document(&self, path: &str, endpoint: &str) -> Option<&[u8]> {
        let rest = path.strip_prefix(WELL_KNOWN)?;
        let is_ours = rest.is_empty() || rest == "/" || rest == self.path || rest == endpoint;
        is_ours.then_some(&self.document)
    }

    /// The value of `WWW-Authenticate`. A 401 asks for all scopes: many clients ask for what it names and never for more. A
    /// 403 names what is missing.
    pub(in crate::access) fn challenge(&self, refusal: AccessError) -> Option<String> {
        let (error, scope) = match refusal {
            AccessError::NoToken => (None, ALL_SCOPES),
            AccessError::BadToken(flaw) => (Some(("invalid_token", flaw.words().1)), ALL_SCOPES),
            AccessError::Forbidden(role) => (
                Some(("insufficient_scope", "the token lacks the scope")),
                role.scope(),
            ),
            AccessError::Unavailable(_) => return None,
        };
        let mut value = format!(
            "Bearer resource_metadata=\"{}\", scope=\"{scope}\"",
            self.metadata_url
        );
        if let Some((error, why)) = error {
            // Writing to a String cannot fail.
            let _ = write!(value, ", error=\"{error}\", error_description=\"{why}\"");
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::error::Flaw;
    use crate::access::identity::Role;
    use std::time::Duration;

    fn resource(url: &str) -> Resource {
        Resource::new(
            &WebUrl::parse(url).unwrap(),
            &WebUrl::parse("http://localhost:9/t/").unwrap(),
        )
    }

    #[test]
    fn the_document_is_served_by_each_name_of_the_endpoint() {
        let resource = resource("http://localhost/team/mcp");
        let expected = r#"{"authorization_servers":["http://localhost:9/t/"],"bearer_methods_supported":["header"],"resource":"http://localhost/team/mcp","resource_name":"fabric-mcp","scopes_supported":["fabric:read","fabric:run"]}"#;
        for path in ["", "/", "/team/mcp", "/mcp"] {
            let document = resource.document(
                &format!("/.well-known/oauth-protected-resource{path}"),
                "/mcp",
            );
            assert_eq!(
                document.map(String::from_utf8_lossy).as_deref(),
                Some(expected),
                "{path}"
            );
        }
        for path in [
            "/.well-known/oauth-protected-resource/other",
            "/.well-known/oauth-protected-resource/mcp/",
            "/.well-known/oauth-protected-resources",
            "/.well-known/oauth-authorization-server",
            "/mcp",
        ] {
            assert_eq!(resource.document(path, "/mcp"), None, "{path}");
        }
    }

    #[test]
    fn challenges_lead_to_the_document() {
        let url = "resource_metadata=\"http://localhost/.well-known/oauth-protected-resource";
        let mcp = resource("http://localhost/mcp");
        let all = "scope=\"fabric:read fabric:run\"";
        assert_eq!(
            mcp.challenge(AccessError::NoToken),
            Some(format!("Bearer {url}/mcp\", {all}"))
        );
        assert_eq!(
            resource("http://localhost/").challenge(AccessError::NoToken),
            Some(format!("Bearer {url}\", {all}"))
        );
        assert_eq!(
            mcp.challenge(AccessError::BadToken(Flaw::Expired)),
            Some(format!(
                "Bearer {url}/mcp\", {all}, error=\"invalid_token\", error_description=\"the token has expired\""
            ))
        );
        assert_eq!(
            mcp.challenge(AccessError::Forbidden(Role::Run)),
            Some(format!(
                "Bearer {url}/mcp\", scope=\"fabric:run\", error=\"insufficient_scope\", error_description=\"the token \
                 lacks the scope\""
            ))
        );
        assert_eq!(
            mcp.challenge(AccessError::Unavailable(Duration::ZERO)),
            None
        );
    }
}
