//! Authentication over HTTP: by named tokens, by OAuth, or none.
//!
//! ```text
//!   Authorization ─▶ named token? (tokens, watch) ─▶ OAuth on? (oauth) ─▶ Pass { identity, role } ─▶ streams: is_good?
//!        │                                             │
//!        └ none: 401                                   └ bad: 401 · no scope: 403 · issuer down: 503
//! ```
//! In scope: from the header `Authorization` to an identity and a role, whether these are still valid, and the answer
//! if not. Not in scope: which role a request needs (`transport`), MCP. There are no threads here.
//!
//! No message contains a token. Of an OAuth token only the digest is kept beyond its requests and streams.

mod clock;
mod digest;
mod error;
mod identity;
mod oauth;
mod outbound;
mod tokens;
mod watch;

use std::net::IpAddr;

pub(crate) use error::{AccessError, Flaw};
pub(crate) use identity::{Identity, Role};
pub(crate) use oauth::{OAuth, OAuthSettings, WebUrl};
pub(crate) use tokens::generate;
pub(crate) use watch::Tokens;

/// The rules of one process.
pub(crate) struct Access {
    tokens: Tokens,
    oauth: Option<OAuth>,
}

/// An admitted caller.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Who it is.
    pub(crate) identity: Identity,
    /// What it may do.
    pub(crate) role: Role,
    proof: Proof,
}

#[derive(Debug)]
enum Proof {
    /// None was needed.
    None,
    Token(watch::HeldNamedToken),
    OAuth(oauth::HeldOAuthToken),
}

impl Access {
    /// With neither a token nor OAuth, every caller is admitted with every role.
    pub(crate) fn new(tokens: Tokens, oauth: Option<OAuth>) -> Access {
        Access { tokens, oauth }
    }

    /// Is authentication off?
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.oauth.is_none()
    }

    /// Admits a caller. `authorization` are the values of its headers of this name, `peer` is its address. May ask the
    /// issuer, and take as long as that.
    pub(crate) fn admit<'a>(
        &self,
        authorization: impl IntoIterator<Item = &'a str>,
        peer: IpAddr,
    ) -> Result<Pass, AccessError> {
        if self.is_open() {
            return Ok(Pass {
                identity: Identity::peer(peer),
                role: Role::Run,
                proof: Proof::None,
            });
        }
        let token = bearer(authorization).ok_or(AccessError::NoToken)?;
        self.tokens.poll();
        if let Some((identity, role, shown)) = self.tokens.find(token) {
            return Ok(Pass {
                identity,
                role,
                proof: Proof::Token(shown),
            });
        }
        let oauth = self
            .oauth
            .as_ref()
            .ok_or(AccessError::BadToken(Flaw::Unknown))?;
        let (identity, role, shown) = oauth.check(token)?;
        Ok(Pass {
            identity,
            role,
            proof: Proof::OAuth(shown),
        })
    }

    /// Is the caller's token still valid? Asked about every second while one of its streams is open. Cheap, except once a
    /// minute with OAuth, when it may take as long as [`Access::admit`].
    pub(crate) fn is_good(&self, pass: &Pass) -> bool {
        match &pass.proof {
            Proof::None => true,
            Proof::Token(shown) => {
                self.tokens.poll();
                self.tokens.is_good(*shown, &pass.identity, pass.role)
            }
            Proof::OAuth(shown) => self
                .oauth
                .as_ref()
                .is_some_and(|oauth| oauth.is_good(shown)),
        }
    }

    /// Checks that the OAuth issuer can be asked, which may take as long as [`Access::admit`]. The error is one line.
    pub(crate) fn probe(&self) -> Result<(), String> {
        self.oauth.as_ref().map_or(Ok(()), OAuth::probe)
    }

    /// Was the caller's named token removed? Unlike [`Access::is_good`] it never waits.
    pub(crate) fn is_removed(&self, pass: &Pass) -> bool {
        matches!(pass.proof, Proof::Token(_)) && !self.is_good(pass)
    }

    /// Reads the tokens file again, as SIGHUP asks for.
    pub(crate) fn reload(&self) {
        self.tokens.reload();
    }

    /// The metadata for OAuth clients, if `path` asks for it. `endpoint` is the path of the MCP endpoint. To be answered
    /// before a token is asked for.
    pub(crate) fn document(&self, path: &str, endpoint: &str) -> Option<&[u8]> {
        self.oauth.as_ref()?.resource.document(path, endpoint)
    }

    /// The value of `WWW-Authenticate` that goes with a refusal. `pass` is the caller's, if it was admitted: holders of
    /// named tokens are not sent to the issuer for a larger scope.
    pub(crate) fn challenge(&self, refusal: AccessError, pass: Option<&Pass>) -> Option<String> {
        let by_name = pass.is_some_and(|pass| !matches!(pass.proof, Proof::OAuth(_)));
        match &self.oauth {
            Some(oauth) if !by_name => oauth.resource.challenge(refusal),
            _ => (refusal.status() == 401).then(|| "Bearer".to_owned()),
        }
    }
}

impl Pass {
    /// The pass of the user who started this program, over stdio.
    pub(crate) fn local() -> Pass {
        Pass {
            identity: Identity::Local,
            role: Role::Run,
            proof: Proof::None,
        }
    }

    /// Does the caller have this role?
    ///
    /// # Errors
    /// [`AccessError::Forbidden`].
    pub(crate) fn require(&self, role: Role) -> Result<(), AccessError> {
        if self.role >= role {
            Ok(())
        } else {
            Err(AccessError::Forbidden(role))
        }
    }
}

/// The token of the `Authorization` header, if there is exactly one.
fn bearer<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut values = values.into_iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn access(token: Option<&str>, oauth: bool) -> Access {
        let settings = OAuthSettings::of("http://localhost:1/as", "id", "secret");
        Access::new(
            Tokens::open(token.map(Secret::new), None).unwrap(),
            oauth.then(|| OAuth::new(settings).unwrap()),
        )
    }

    #[test]
    fn the_token_of_one_header_counts() {
        for (values, token) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bEARER   abc "], Some("abc")),
            (&["Bearer a b"], Some("a b")),
            (&[], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&["Basic abc"], None),
            (&["abc"], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Bearerabc"], None),
            (&[""], None),
        ] {
            assert_eq!(bearer(values.iter().copied()), token, "{values:?}");
        }
    }

    #[test]
    fn without_tokens_and_oauth_anybody_may_come_in() {
        let open = access(None, false);
        let pass = open
            .admit(["Bearer x"], "10.0.0.1".parse().unwrap())
            .unwrap();
        assert_eq!(
            (pass.identity.to_string().as_str(), pass.role),
            ("peer:10.0.0.1", Role::Run)
        );
        assert!(open.is_open() && open.is_good(&pass));
        assert!(!access(Some("t"), false).is_open() && !access(None, true).is_open());
    }

    #[test]
    fn named_tokens_and_oauth_can_be_on_together() {
        let both = access(Some("a-token"), true);
        let pass = both.admit(["Bearer a-token"], PEER).unwrap();
        assert_eq!(
            (pass.identity.to_string().as_str(), pass.role),
            ("token:default", Role::Run)
        );
        assert!(both.is_good(&pass) && !format!("{pass:?}").contains("a-token"));
        assert_eq!(both.admit([], PEER).err(), Some(AccessError::NoToken));
        assert_eq!(
            both.admit(["Bearer fmcp_1"], PEER).err(),
            Some(AccessError::BadToken(Flaw::Unknown))
        );
        assert!(
            matches!(
                both.admit(["Bearer jwt"], PEER).err(),
                Some(AccessError::Unavailable(_))
            ),
            "nobody is at port 1"
        );
        let named = access(Some("a-token"), false);
        assert_eq!(
            named.admit(["Bearer jwt"], PEER).err(),
            Some(AccessError::BadToken(Flaw::Unknown))
        );
    }

    #[test]
    fn roles_are_required_and_challenges_fit_who_asks() {
        let (named, both) = (access(Some("0123"), false), access(Some("0123"), true));
        let mut pass = both.admit(["Bearer 0123"], PEER).unwrap();
        assert_eq!(pass.require(Role::Run), Ok(()));
        pass.role = Role::Read;
        assert_eq!(
            (pass.require(Role::Read), pass.require(Role::Metrics)),
            (Ok(()), Ok(()))
        );
        let forbidden = pass.require(Role::Run).unwrap_err();
        assert_eq!(forbidden, AccessError::Forbidden(Role::Run));
        assert_eq!(both.challenge(forbidden, Some(&pass)), None);
        assert!(
            both.challenge(forbidden, None)
                .is_some_and(|value| value.contains("insufficient_scope"))
        );
        assert_eq!(
            named.challenge(AccessError::NoToken, None).as_deref(),
            Some("Bearer")
        );
        assert_eq!(
            named
                .challenge(AccessError::BadToken(Flaw::Unknown), None)
                .as_deref(),
            Some("Bearer")
        );
        assert!(
            both.challenge(AccessError::NoToken, None)
                .is_some_and(|value| value.contains("resource_metadata"))
        );
        assert_eq!(
            named.document("/.well-known/oauth-protected-resource", "/mcp"),
            None
        );
        assert!(
            both.document("/.well-known/oauth-protected-resource", "/mcp")
                .is_some()
        );
    }
}
