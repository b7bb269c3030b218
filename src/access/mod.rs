//! Authentication over HTTP: by named tokens, by OAuth, or none.
//!
//! ```text
//!   Authorization ─▶ named token? (tokens) ─▶ OAuth on? (oauth) ─▶ Pass { identity, role } ─▶ a run, a stream: require
//!        │                                       │
//!        └ none: 401                             └ bad: 401 · no scope: 403 · issuer down: 503
//! ```
//! In scope: from the header `Authorization` to an identity and a role, whether these are still valid, and the answer
//! if not. Not in scope: which role a request needs (`transport`), MCP. There are no threads here.
//!
//! No message contains a token. Only digests of tokens are kept, but for those of OAuth during their requests and streams.

mod digest;
mod error;
mod identity;
mod oauth;
mod tokens;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

pub(crate) use error::{AccessError, Flaw};
pub(crate) use identity::{Identity, Role};
pub(crate) use oauth::OAuth;
pub(crate) use tokens::{Tokens, generate, token};

use crate::config::Secret;
use crate::text::is_placeholder;
use digest::{Digest, digest};
use oauth::Grant;

/// The rules of one process.
pub(crate) struct Access {
    pub(crate) tokens: Arc<Tokens>,
    oauth: Option<Arc<OAuth>>,
}

/// An admitted caller.
pub(crate) struct Pass {
    /// Who it is.
    pub(crate) identity: Identity,
    /// What it might do when it was admitted.
    pub(crate) role: Role,
    proof: Proof,
}

enum Proof {
    /// None was needed.
    None,
    Token(Arc<Tokens>, Digest),
    /// The token, to be asked about again, and what it was confirmed to give last.
    OAuth(Arc<OAuth>, Secret, Mutex<Grant>),
}

impl Access {
    /// With neither a token nor OAuth, every caller is admitted with every role.
    pub(crate) fn new(tokens: Tokens, oauth: Option<OAuth>) -> Access {
        Access {
            tokens: Arc::new(tokens),
            oauth: oauth.map(Arc::new),
        }
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
            return Ok(Pass::open(Identity::peer(peer)));
        }
        let token = bearer(authorization).ok_or(AccessError::NoToken)?;
        let digest = digest(token.as_bytes());
        if let Some((identity, role)) = self.tokens.holder(digest) {
            return Ok(Pass {
                identity,
                role,
                proof: Proof::Token(self.tokens.clone(), digest),
            });
        }
        if is_placeholder(token) {
            return Err(AccessError::BadToken(Flaw::PLACEHOLDER));
        }
        let Some(oauth) = &self.oauth else {
            return Err(AccessError::BadToken(Flaw::UNKNOWN));
        };
        let grant = oauth.check(token)?;
        Ok(Pass {
            identity: grant.identity.clone(),
            role: grant.role,
            proof: Proof::OAuth(oauth.clone(), Secret::new(token), Mutex::new(grant)),
        })
    }

    /// With OAuth, what [`OAuth::probe`] says.
    pub(crate) fn probe(&self) -> Option<Result<String, String>> {
        self.oauth.as_ref().map(|oauth| oauth.probe())
    }

    /// The metadata for OAuth clients, if `path` asks for it. `endpoint` is the path of the MCP endpoint. To be answered
    /// before a token is asked for.
    pub(crate) fn document(&self, path: &str, endpoint: &str) -> Option<Vec<u8>> {
        self.oauth.as_ref()?.document(path, endpoint)
    }

    /// The value of `WWW-Authenticate` that goes with a refusal. `pass` is the caller's, if it was admitted: holders of
    /// named tokens are not sent to the issuer for a larger scope.
    pub(crate) fn challenge(&self, refusal: AccessError, pass: Option<&Pass>) -> Option<String> {
        let by_name = pass.is_some_and(|pass| !matches!(pass.proof, Proof::OAuth(..)));
        match &self.oauth {
            Some(oauth) if !by_name => oauth.challenge(refusal),
            _ => (refusal.status().0 == 401).then(|| "Bearer".to_owned()),
        }
    }
}

impl Pass {
    /// The pass of a caller who needs no proof, with every role.
    pub(crate) fn open(identity: Identity) -> Pass {
        Pass {
            identity,
            role: Role::Run,
            proof: Proof::None,
        }
    }

    /// Does the caller have this role now? A named token that was removed or changed counts no more within a second, one
    /// that its issuer revoked within a minute. Cheap, except once a minute with OAuth, when it may take as long as
    /// [`Access::admit`].
    ///
    /// # Errors
    /// [`AccessError::Forbidden`], and what [`Access::admit`] says of a token that is good no more.
    pub(crate) fn require(&self, role: Role) -> Result<(), AccessError> {
        let has = match &self.proof {
            Proof::None => self.role,
            Proof::Token(tokens, digest) => match tokens.holder(*digest) {
                Some((identity, role)) if identity == self.identity => role,
                _ => return Err(AccessError::BadToken(Flaw::UNKNOWN)),
            },
            Proof::OAuth(oauth, token, last) => oauth.role(token.expose(), last)?,
        };
        if has >= role {
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
    use crate::config::OAuthSettings;
    use std::fs;

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
        assert!(open.is_open() && pass.require(Role::Run).is_ok());
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
        assert_eq!(pass.require(Role::Run), Ok(()));
        assert_eq!(both.admit([], PEER).err(), Some(AccessError::NoToken));
        let found = both.admit(["Bearer fmcp_1"], PEER).err();
        assert_eq!(found, Some(AccessError::BadToken(Flaw::UNKNOWN)));
        assert!(
            matches!(
                both.admit(["Bearer jwt"], PEER).err(),
                Some(AccessError::Unavailable(_))
            ),
            "nobody is at port 1"
        );
        let named = access(Some("a-token"), false);
        let found = named.admit(["Bearer jwt"], PEER).err();
        assert_eq!(found, Some(AccessError::BadToken(Flaw::UNKNOWN)));
    }

    #[test]
    fn a_pass_is_worth_what_the_file_says_now() {
        let path = std::env::temp_dir().join(format!("fabric-mcp-{}-pass", std::process::id()));
        let token = "a".repeat(32);
        let write = |line: &str| fs::write(&path, format!("{line} {token}")).unwrap();
        write("alice run");
        let tokens = Tokens::open(None, Some(path.clone())).unwrap();
        let access = Access::new(tokens, None);
        let pass = access.admit([&*format!("Bearer {token}")], PEER).unwrap();
        let gone = Err(AccessError::BadToken(Flaw::UNKNOWN));
        for (line, read, run) in [
            ("alice run", Ok(()), Ok(())),
            ("alice read", Ok(()), Err(AccessError::Forbidden(Role::Run))),
            ("alicia run", gone, gone),
            ("alice run", Ok(()), Ok(())),
            ("#", gone, gone),
        ] {
            write(line);
            access.tokens.reload();
            let now = (pass.require(Role::Read), pass.require(Role::Run));
            assert_eq!(now, (read, run), "{line}");
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn challenges_fit_who_asks() {
        let (named, both) = (access(Some("0123"), false), access(Some("0123"), true));
        let pass = both.admit(["Bearer 0123"], PEER).unwrap();
        let (forbidden, unknown) = (
            AccessError::Forbidden(Role::Run),
            AccessError::BadToken(Flaw::UNKNOWN),
        );
        let challenge = |access: &Access, refusal, pass| {
            let value = access.challenge(refusal, pass).unwrap_or_default();
            value
                .split([' ', '='])
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (access, refusal, pass, value) in [
            (&both, forbidden, Some(&pass), ""),
            (&both, forbidden, None, "Bearer resource_metadata"),
            (
                &both,
                AccessError::NoToken,
                None,
                "Bearer resource_metadata",
            ),
            (&named, AccessError::NoToken, None, "Bearer"),
            (&named, unknown, None, "Bearer"),
            (&named, forbidden, None, ""),
        ] {
            assert_eq!(challenge(access, refusal, pass), value, "{refusal:?}");
        }
        let path = "/.well-known/oauth-protected-resource";
        assert!(named.document(path, "/mcp").is_none() && both.document(path, "/mcp").is_some());
    }
}
