//! Authentication over HTTP: by named tokens, by OAuth, or none.
//!
//! ```text
//!   Authorization ─▶ named token? (tokens) ─▶ OAuth on? (oauth) ─▶ Caller ─▶ a run, a stream: require
//!        │                                       │
//!        └ none: 401                             └ bad: 401 · no scope: 403 · issuer down: 503
//! ```
//! In scope: from the header `Authorization` to a caller with its account, what it may still do, and the answer if it may
//! not. Not in scope: which role a request needs (`transport`), MCP. One thread asks an OAuth issuer again about the tokens
//! that callers hold.
//!
//! No message contains a token. Only fingerprints of tokens are kept, except for OAuth tokens while callers hold them.

mod error;
mod identity;
mod oauth;
mod tokens;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use error::{AccessError, Flaw};
pub(crate) use identity::{Identity, Role};
pub(crate) use oauth::OAuth;
pub(crate) use tokens::{Allowance, Tokens, generate, token};
use tokens::{Fingerprint, fingerprint};

use crate::account::{Account, Accounts};
use crate::text::is_placeholder;
use oauth::Known;

/// The rules of one process.
pub(crate) struct Access {
    pub(crate) tokens: Arc<Tokens>,
    /// Callers without a token are admitted by their addresses, if the tokens file has a line for them.
    admits_addresses: bool,
    pub(crate) oauth: Option<Arc<OAuth>>,
}

/// An admitted caller: made where a request or a connection is admitted, and handed on from there.
pub(crate) struct Caller {
    /// Who it is: the mark on its runs and sessions, and in the log.
    pub(crate) identity: Identity,
    /// What it holds, and may hold.
    pub(crate) account: Account,
    /// What it might do when it was admitted.
    pub(crate) role: Role,
    pass: Pass,
}

/// Where to look up what a caller may still do.
enum Pass {
    /// Nothing was needed, and nothing changes.
    Open,
    Token(Arc<Tokens>, Fingerprint),
    /// The line for all others.
    Address(Arc<Tokens>),
    /// What the issuer says of the token, kept up to date, and the line for all others.
    OAuth(Arc<Tokens>, Arc<OAuth>, Arc<Known>),
}

impl Access {
    /// With neither a token nor OAuth, every caller is admitted with every role. With `admits_addresses`, one without a token
    /// is admitted as the line `*` of the tokens file says.
    pub(crate) fn new(tokens: Tokens, oauth: Option<OAuth>, admits_addresses: bool) -> Access {
        let (tokens, oauth) = (Arc::new(tokens), oauth.map(Arc::new));
        tokens.watch();
        oauth.iter().for_each(OAuth::start_refresher);
        Access {
            tokens,
            admits_addresses,
            oauth,
        }
    }

    /// Is authentication off?
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.oauth.is_none()
    }

    /// Admits a caller. `authorization` are the values of its headers of this name, `peer` is its address. May ask the
    /// issuer, and take as long as that, but waits for that only while `is_there` says that the caller is.
    pub(crate) fn admit<'a>(
        &self,
        authorization: impl IntoIterator<Item = &'a str>,
        peer: IpAddr,
        accounts: &Accounts,
        is_there: &dyn Fn() -> bool,
    ) -> Result<Caller, AccessError> {
        if self.is_open() {
            return Ok(Caller::open(Identity::peer(peer), accounts));
        }
        let (mut authorization, tokens) = (authorization.into_iter().peekable(), &self.tokens);
        let is_address = self.admits_addresses && authorization.peek().is_none();
        let (identity, pass) = if is_address && tokens.others()?.is_some() {
            (Identity::peer(peer), Pass::Address(tokens.clone()))
        } else {
            let token = bearer(authorization).ok_or(AccessError::NoToken)?;
            let print = fingerprint(token);
            match (tokens.holder(print), &self.oauth) {
                (Ok((identity, _)), _) => (identity, Pass::Token(tokens.clone(), print)),
                (Err(Flaw::UNKNOWN), _) if is_placeholder(token) => {
                    return Err(AccessError::BadToken(Flaw::PLACEHOLDER));
                }
                (Err(Flaw::UNKNOWN), Some(oauth)) => {
                    let peer = Identity::peer(peer);
                    let (known, grant) = oauth.check((token, print), peer, accounts, is_there)?;
                    let pass = Pass::OAuth(tokens.clone(), oauth.clone(), known);
                    (grant.identity, pass)
                }
                (Err(flaw), _) => return Err(AccessError::BadToken(flaw)),
            }
        };
        let mut caller = Caller {
            pass,
            ..Caller::open(identity, accounts)
        };
        caller.role = caller.require(Role::Metrics)?.role;
        Ok(caller)
    }

    /// The value of `WWW-Authenticate` for a caller who is not admitted.
    pub(crate) fn challenge(&self, refusal: AccessError) -> Option<String> {
        challenge(self.oauth.as_ref(), refusal)
    }
}

/// Without `oauth`, a 401 asks for any token.
fn challenge(oauth: Option<&Arc<OAuth>>, refusal: AccessError) -> Option<String> {
    match oauth {
        Some(oauth) => oauth.challenge(refusal),
        None => (refusal.status().0 == 401).then(|| "Bearer".to_owned()),
    }
}

impl Caller {
    /// A caller who needs no token, with every role.
    pub(crate) fn open(identity: Identity, accounts: &Accounts) -> Caller {
        Caller {
            account: accounts.of(&identity),
            identity,
            role: Role::Run,
            pass: Pass::Open,
        }
    }

    /// The value of `WWW-Authenticate` that goes with a refusal to this caller: holders of named tokens are not sent to the
    /// issuer for a larger scope.
    pub(crate) fn challenge(&self, refusal: AccessError) -> Option<String> {
        let Pass::OAuth(_, oauth, _) = &self.pass else {
            return challenge(None, refusal);
        };
        challenge(Some(oauth), refusal)
    }

    /// Does the caller have this role now, and what else does its line say? A named token that was removed or changed
    /// stops counting within a second, one that its issuer revoked within a minute. Never asks the issuer.
    ///
    /// # Errors
    /// [`AccessError::Forbidden`], and what [`Access::admit`] says of a token that is no longer valid.
    pub(crate) fn require(&self, role: Role) -> Result<Arc<Allowance>, AccessError> {
        self.has(role, false)
    }

    /// Why the work that the caller has begun must end, if it must. Unlike [`Self::require`], an answer of the issuer
    /// that should have been confirmed by now is no reason yet.
    pub(crate) fn revoked(&self) -> Option<AccessError> {
        self.has(self.role, true).err()
    }

    fn has(&self, role: Role, is_late: bool) -> Result<Arc<Allowance>, AccessError> {
        let has = match &self.pass {
            Pass::Open => Arc::new(Allowance::of(self.role)),
            Pass::Token(tokens, print) => match tokens.holder(*print) {
                Ok((identity, allowance)) if identity == self.identity => allowance,
                Ok(_) => return Err(AccessError::BadToken(Flaw::UNKNOWN)),
                Err(flaw) => return Err(AccessError::BadToken(flaw)),
            },
            Pass::Address(tokens) => tokens.others()?.ok_or(AccessError::NoToken)?,
            Pass::OAuth(tokens, oauth, known) => match oauth.grant(known, is_late)? {
                grant if grant.identity != self.identity => {
                    return Err(AccessError::BadToken(Flaw::INACTIVE));
                }
                grant => match tokens.others()? {
                    Some(others) => Arc::new(Allowance {
                        role: others.role.min(grant.role),
                        ..Allowance::clone(&others)
                    }),
                    None => Arc::new(Allowance::of(grant.role)),
                },
            },
        };
        match has.role >= role {
            true => Ok(has),
            false => Err(AccessError::Forbidden(role)),
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
    use crate::config::{OAuthSettings, Secret};
    use std::fs;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn admit(access: &Access, peer: IpAddr, values: &[&str]) -> Result<Caller, AccessError> {
        access.admit(values.iter().copied(), peer, &accounts(), &|| true)
    }

    fn accounts() -> Accounts {
        Accounts::alone(1)
    }

    fn access(token: Option<&str>, oauth: bool) -> Access {
        let settings = OAuthSettings::of("http://localhost:1/as", "id", "secret");
        Access::new(
            Tokens::open(token.map(Secret::new), None, false, &accounts()).unwrap(),
            oauth.then(|| OAuth::new(settings).unwrap()),
            false,
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
        let caller = admit(&open, "10.0.0.1".parse().unwrap(), &["Bearer x"]);
        let caller = caller.unwrap();
        let found = (caller.identity.to_string(), caller.role);
        assert_eq!(found, ("peer:10.0.0.1".into(), Role::Run));
        assert!(open.is_open() && caller.require(Role::Run).is_ok());
        assert!(!access(Some("t"), false).is_open() && !access(None, true).is_open());
    }

    #[test]
    fn named_tokens_and_oauth_can_be_on_together() {
        let both = access(Some("a-token"), true);
        let caller = admit(&both, PEER, &["Bearer a-token"]).unwrap();
        let shown = (caller.identity.to_string(), caller.role);
        assert_eq!(shown, ("token:default".into(), Role::Run));
        assert!(caller.require(Role::Run).is_ok());
        let shown = admit(&both, PEER, &[]).err();
        assert_eq!(shown, Some(AccessError::NoToken));
        let found = admit(&both, PEER, &["Bearer fmcp_1"]).err();
        assert_eq!(found, Some(AccessError::BadToken(Flaw::UNKNOWN)));
        let is_so = matches!(
            admit(&both, PEER, &["Bearer jwt"]).err(),
            Some(AccessError::Unavailable(_))
        );
        assert!(is_so, "nobody is at port 1");
        let named = access(Some("a-token"), false);
        let found = admit(&named, PEER, &["Bearer jwt"]).err();
        assert_eq!(found, Some(AccessError::BadToken(Flaw::UNKNOWN)));
    }

    #[test]
    fn a_token_is_worth_what_the_file_says_now() {
        let path = std::env::temp_dir().join(format!("fabric-mcp-{}-pass", std::process::id()));
        let token = "a".repeat(32);
        let write = |line: &str| fs::write(&path, format!("{line} {token}")).unwrap();
        write("alice run");
        let tokens = Tokens::open(None, Some(path.clone()), false, &accounts()).unwrap();
        let access = Access::new(tokens, None, true);
        let caller = admit(&access, PEER, &[&*format!("Bearer {token}")]);
        let caller = caller.unwrap();
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
            let now = [Role::Read, Role::Run].map(|role| caller.require(role).map(drop));
            let now = (now[0], now[1]);
            assert_eq!(now, (read, run), "{line}");
        }
        let found = admit(&access, PEER, &[]).err();
        assert_eq!(found, Some(AccessError::NoToken));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn challenges_fit_who_asks() {
        let (named, both) = (access(Some("0123"), false), access(Some("0123"), true));
        let caller = admit(&both, PEER, &["Bearer 0123"]).unwrap();
        let forbidden = AccessError::Forbidden(Role::Run);
        let unknown = AccessError::BadToken(Flaw::UNKNOWN);
        let challenge = |access: &Access, refusal, caller: Option<&Caller>| {
            let by = |caller: &Caller| caller.challenge(refusal);
            let value = caller.map_or_else(|| access.challenge(refusal), by);
            let value = value.unwrap_or_default();
            value
                .split([' ', '='])
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (access, refusal, caller, value) in [
            (&both, forbidden, Some(&caller), ""),
            (&both, unknown, Some(&caller), "Bearer"),
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
            assert_eq!(challenge(access, refusal, caller), value, "{refusal:?}");
        }
    }
}
