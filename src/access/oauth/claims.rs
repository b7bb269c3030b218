//! Validates the introspection response of an issuer (RFC 7662). What is not understood is refused.

use serde::Deserialize;
use serde_json::Value;

use super::url::WebUrl;
use crate::access::error::Flaw;
use crate::access::identity::{Identity, Role};
use crate::json::Foreign;

/// How far the issuer's clock may be ahead of ours, in seconds. Only `nbf` needs that: it is often the moment the token was
/// made. At `exp` it would let tokens live on.
const CLOCK_SKEW: i64 = 60;
/// Longest subject or client id, in bytes. OpenID allows 255; URLs as client ids are longer.
const MAX_SUBJECT: usize = 512;

/// An introspection response. `null` counts as absent; a member that is there twice makes it unreadable.
#[derive(Deserialize)]
pub(super) struct Introspection {
    active: Option<Foreign>,
    aud: Option<Foreign>,
    exp: Option<Foreign>,
    nbf: Option<Foreign>,
    iss: Option<Foreign>,
    sub: Option<Foreign>,
    client_id: Option<Foreign>,
    scope: Option<Foreign>,
    token_type: Option<Foreign>,
    cnf: Option<Foreign>,
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Active {
    /// Whose it is.
    pub(super) identity: Identity,
    /// What its scopes allow; `None` if none of them is ours.
    pub(super) role: Option<Role>,
    /// When it ends, in seconds since 1970.
    pub(super) expires: Option<i64>,
}

impl Introspection {
    /// Validates the token for `resource`, at `now` in seconds since 1970.
    pub(super) fn judge(
        &self,
        issuer: &WebUrl,
        resource: &WebUrl,
        now: i64,
    ) -> Result<Active, Flaw> {
        if self.active.as_deref() != Some(&Value::Bool(true)) {
            return Err(Flaw::Inactive);
        }
        let is = |value: &Value, test: &dyn Fn(&str) -> bool| value.as_str().is_some_and(test);
        let is_resource = |value: &Value| is(value, &|audience| resource.is(audience));
        match self.aud.as_deref() {
            Some(Value::Array(audiences)) if audiences.iter().any(is_resource) => {}
            Some(audience) if is_resource(audience) => {}
            _ => return Err(Flaw::Audience),
        }
        if self
            .iss
            .as_ref()
            .is_some_and(|iss| !is(iss, &|iss| iss == issuer.as_str()))
        {
            return Err(Flaw::Issuer);
        }
        let is_bearer = |kind: &str| kind.eq_ignore_ascii_case("bearer");
        // A token that is bound to a key (`cnf`) is refused, since that key is not checked here: a thief could use it
        // too.
        if self
            .token_type
            .as_ref()
            .is_some_and(|kind| !is(kind, &is_bearer))
            || self.cnf.is_some()
        {
            return Err(Flaw::Kind);
        }
        let expires = self.exp.as_deref().map(seconds).transpose()?;
        if expires.is_some_and(|expires| expires <= now) {
            return Err(Flaw::Expired);
        }
        let begins = self.nbf.as_deref().map(seconds).transpose()?;
        if begins.is_some_and(|begins| begins > now.saturating_add(CLOCK_SKEW)) {
            return Err(Flaw::Early);
        }
        Ok(Active {
            identity: self.identity(issuer)?,
            role: self.role()?,
            expires,
        })
    }

    fn identity(&self, issuer: &WebUrl) -> Result<Identity, Flaw> {
        let name = |value: &Value| {
            let name = value
                .as_str()
                .filter(|name| !name.is_empty() && name.len() <= MAX_SUBJECT);
            name.map(Into::into).ok_or(Flaw::Nobody)
        };
        let issuer = issuer.as_str().into();
        match (self.sub.as_deref(), self.client_id.as_deref()) {
            // RFC 9068, 2.2: a client that acts for itself may be its own subject.
            (Some(sub), Some(id)) if sub == id => Ok(Identity::Client {
                issuer,
                id: name(id)?,
            }),
            (Some(sub), _) => Ok(Identity::User {
                issuer,
                subject: name(sub)?,
            }),
            (None, Some(id)) => Ok(Identity::Client {
                issuer,
                id: name(id)?,
            }),
            (None, None) => Err(Flaw::Nobody),
        }
    }

    fn role(&self) -> Result<Option<Role>, Flaw> {
        let Some(scope) = &self.scope else {
            return Ok(None);
        };
        let scopes = scope.as_str().ok_or(Flaw::Kind)?;
        let has = |role: &Role| scopes.split(' ').any(|scope| scope == role.scope());
        Ok([Role::Run, Role::Read].into_iter().find(has))
    }
}

/// A NumericDate: whole or with a fraction.
fn seconds(value: &Value) -> Result<i64, Flaw> {
    match value.as_i64() {
        Some(seconds) => Ok(seconds),
        // The cast saturates, as intended.
        None => value
            .as_f64()
            .map(|seconds| seconds.floor() as i64)
            .ok_or(Flaw::Kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_785_240_000;

    fn judge(change: &Value) -> Result<Active, Flaw> {
        let mut answer = json!({
            "active": true, "aud": "http://localhost/mcp", "exp": NOW + 1, "nbf": NOW, "iss": "http://localhost/as",
            "sub": "alice", "client_id": "app", "scope": "openid fabric:read", "token_type": "Bearer", "username": "x",
        });
        for (name, value) in change.as_object().unwrap() {
            answer[name] = value.clone();
        }
        let url = |text: &str| WebUrl::parse(text).unwrap();
        let answer: Introspection = serde_json::from_value(answer).unwrap();
        answer.judge(
            &url("http://localhost/as"),
            &url("http://localhost/mcp"),
            NOW,
        )
    }

    fn user(subject: &str) -> Identity {
        Identity::User {
            issuer: "http://localhost/as".into(),
            subject: subject.into(),
        }
    }

    #[test]
    fn a_good_token_says_whose_it_is_and_for_what() {
        let read = Active {
            identity: user("alice"),
            role: Some(Role::Read),
            expires: Some(NOW + 1),
        };
        for same in [
            json!({}),
            json!({"aud": ["http://localhost/mcp"]}),
            json!({"aud": ["other", 5, "http://localhost/mcp"]}),
            json!({"iss": null, "nbf": null, "token_type": null, "client_id": null, "cnf": null}),
            json!({"token_type": "bearer"}),
            json!({"nbf": NOW + 60}),
            json!({"exp": NOW as f64 + 1.9}),
        ] {
            assert_eq!(judge(&same), Ok(read.clone()), "{same}");
        }
        assert_eq!(
            judge(&json!({"exp": null})),
            Ok(Active {
                expires: None,
                ..read.clone()
            })
        );
        assert_eq!(
            judge(&json!({"exp": 1e300})),
            Ok(Active {
                expires: Some(i64::MAX),
                ..read
            })
        );
    }

    #[test]
    fn anything_else_is_a_refusal() {
        for (change, flaw) in [
            (json!({"active": false}), Flaw::Inactive),
            (json!({"active": "true"}), Flaw::Inactive),
            (json!({"active": 1}), Flaw::Inactive),
            (json!({"active": null}), Flaw::Inactive),
            (json!({"aud": null}), Flaw::Audience),
            (json!({"aud": []}), Flaw::Audience),
            (json!({"aud": {}}), Flaw::Audience),
            (json!({"aud": true}), Flaw::Audience),
            (json!({"aud": "http://localhost"}), Flaw::Audience),
            (json!({"aud": "http://localhost/mcp/"}), Flaw::Audience),
            (
                json!({"aud": "http://localhost/mcp http://other"}),
                Flaw::Audience,
            ),
            (json!({"aud": ["http://localhost/MCP"]}), Flaw::Audience),
            (json!({"aud": [["http://localhost/mcp"]]}), Flaw::Audience),
            (json!({"iss": "http://localhost/as/"}), Flaw::Issuer),
            (json!({"iss": ["http://localhost/as"]}), Flaw::Issuer),
            (json!({"exp": NOW}), Flaw::Expired),
            (json!({"exp": NOW as f64 + 0.9}), Flaw::Expired),
            (json!({"exp": -1e300}), Flaw::Expired),
            (json!({"exp": "soon"}), Flaw::Kind),
            (json!({"exp": []}), Flaw::Kind),
            (json!({"nbf": NOW + 61}), Flaw::Early),
            (json!({"nbf": "now"}), Flaw::Kind),
            (json!({"token_type": "DPoP"}), Flaw::Kind),
            (json!({"token_type": 1}), Flaw::Kind),
            (json!({"cnf": {"jkt": "x"}}), Flaw::Kind),
            (json!({"scope": ["fabric:run"]}), Flaw::Kind),
            (json!({"sub": null, "client_id": null}), Flaw::Nobody),
            (json!({"sub": ""}), Flaw::Nobody),
            (json!({"sub": 7}), Flaw::Nobody),
            (json!({"sub": "s".repeat(513)}), Flaw::Nobody),
        ] {
            assert_eq!(judge(&change), Err(flaw), "{change}");
        }
    }

    #[test]
    fn scopes_are_whole_words() {
        for (scope, role) in [
            ("fabric:run", Some(Role::Run)),
            ("fabric:read fabric:run", Some(Role::Run)),
            ("fabric:read", Some(Role::Read)),
            ("", None),
            ("fabric", None),
            ("FABRIC:RUN", None),
            ("fabric:running", None),
            ("fabric:run\tfabric:read", None),
            ("openid,fabric:run", None),
        ] {
            assert_eq!(
                judge(&json!({"scope": scope})).map(|active| active.role),
                Ok(role),
                "{scope}"
            );
        }
        assert_eq!(
            judge(&json!({"scope": null})).map(|active| active.role),
            Ok(None)
        );
    }

    #[test]
    fn a_client_for_itself_is_known_by_its_id() {
        let client = Identity::Client {
            issuer: "http://localhost/as".into(),
            id: "app".into(),
        };
        for change in [json!({"sub": null}), json!({"sub": "app"})] {
            assert_eq!(
                judge(&change).map(|active| active.identity),
                Ok(client.clone()),
                "{change}"
            );
        }
        assert_eq!(
            judge(&json!({"client_id": "alice"})).map(|active| active.identity),
            Ok(Identity::Client {
                issuer: "http://localhost/as".into(),
                id: "alice".into()
            })
        );
    }

    #[test]
    fn a_member_that_is_there_twice_is_not_understood() {
        assert!(
            serde_json::from_str::<Introspection>(r#"{"active": false, "active": true}"#).is_err()
        );
        for text in ["[]", "true", "null", "", "{", "{} {}"] {
            assert!(
                serde_json::from_str::<Introspection>(text).is_err(),
                "{text}"
            );
        }
    }
}
