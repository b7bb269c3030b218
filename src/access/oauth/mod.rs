//! Tokens of an OAuth 2.1 authorization server, validated by introspection. This server is the protected resource.
//!
//! ```text
//!   token ─▶ a token by its form? ─▶ asked lately? ─▶ issuer down? (503) ─▶ metadata ─▶ introspection ─▶ claims ─▶ kept
//! ```
//! In scope: whether a token is valid, for whom and until when, and this server's metadata for OAuth clients. Not in
//! scope: obtaining tokens, and checking signatures: the issuer is asked instead, since it knows what was revoked.
//!
//! A positive answer is cached for a minute at most and never beyond the token's expiry, a negative one for [`BAD`]. If
//! the issuer cannot be reached, its tokens are rejected, and it is retried with exponential backoff. A failure that
//! concerns one token only, such as an answer that is not JSON, does not count as an outage: anybody can send a token.

mod answers;
mod claims;
mod issuer;
mod resource;
mod url;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use answers::{Answers, Claim};
use claims::Active;
use issuer::Issuer;
use resource::Resource;
pub(crate) use url::WebUrl;

use super::clock::Now;
use super::digest::{Digest, Keyed};
use super::error::{AccessError, Flaw};
use super::identity::{Identity, Role};
use super::outbound::OutboundFailure;
use super::tokens;
use crate::config::Secret;
use crate::sync::lock;

/// How long a good answer is kept, and after how long an open stream's token is asked about again.
const GOOD: Duration = Duration::from_secs(60);
/// How long a bad answer is kept.
const BAD: Duration = Duration::from_secs(5);
/// How long an unusable answer of the issuer is kept.
const ODD: Duration = Duration::from_secs(1);
/// Longest exchange with the issuer.
const EXCHANGE: Duration = Duration::from_secs(10);
/// How long an open stream goes on while the issuer cannot confirm its token: one check may fail.
const UNCONFIRMED: Duration = Duration::from_secs(120);
/// Waits between tries to reach the issuer: the first, and the longest they double to.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Longest token, in bytes.
const MAX_TOKEN: usize = 8 << 10;
/// How often the same failure is logged.
const LOG: Duration = Duration::from_secs(60);

/// How this server is known to its authorization server.
#[derive(Clone, Debug)]
pub(crate) struct OAuthSettings {
    /// `--oauth-issuer`.
    pub(crate) issuer: WebUrl,
    /// `--oauth-resource`: this server's MCP endpoint as clients name it; the audience.
    pub(crate) resource: WebUrl,
    /// `FABRIC_MCP_OAUTH_CLIENT_ID`.
    pub(crate) client_id: String,
    /// `FABRIC_MCP_OAUTH_CLIENT_SECRET`.
    pub(crate) client_secret: Secret,
    /// `SSL_CERT_FILE`.
    pub(crate) ca_file: Option<PathBuf>,
}

#[cfg(test)]
impl OAuthSettings {
    /// A client of the issuer at this URL.
    pub(super) fn of(issuer: &str, client_id: &str, client_secret: &str) -> OAuthSettings {
        OAuthSettings {
            issuer: WebUrl::parse(issuer).unwrap(),
            resource: WebUrl::parse("http://localhost:8000/mcp").unwrap(),
            client_id: client_id.into(),
            client_secret: Secret::new(client_secret),
            ca_file: None,
        }
    }
}

/// Validates tokens by asking their issuer.
pub(crate) struct OAuth {
    settings: OAuthSettings,
    /// What OAuth clients are told.
    pub(super) resource: Resource,
    issuer: Issuer,
    keyed: Keyed,
    answers: Answers<Result<Arc<Good>, AccessError>>,
    health: Mutex<Health>,
    exchange: Duration,
    clock: NowFn,
}

type NowFn = Box<dyn Fn() -> Now + Send + Sync>;

/// A positive introspection response.
#[derive(Debug)]
struct Good {
    active: Active,
    /// When it was asked.
    asked: Instant,
}

impl Good {
    fn left(&self, date: i64) -> Duration {
        let left = |end: i64| Duration::from_secs(end.saturating_sub(date).try_into().unwrap_or(0));
        self.active.expires.map_or(Duration::MAX, left)
    }
}

/// An accepted token, kept while a stream is open on it.
#[derive(Debug)]
pub(super) struct HeldOAuthToken {
    token: Secret,
    digest: Digest,
    good: Arc<Good>,
    /// When the last confirmed answer was asked for.
    confirmed: Mutex<Instant>,
}

impl OAuth {
    /// Prepares everything that needs no connection. The error is one line.
    pub(crate) fn new(settings: OAuthSettings) -> Result<OAuth, String> {
        OAuth::with(settings, EXCHANGE, Box::new(Now::read))
    }

    fn with(settings: OAuthSettings, exchange: Duration, clock: NowFn) -> Result<OAuth, String> {
        Ok(OAuth {
            resource: Resource::new(&settings.resource, &settings.issuer),
            issuer: Issuer::new(&settings, exchange)
                .map_err(|why| format!("--oauth-issuer: {why}"))?,
            settings,
            keyed: Keyed::new(),
            answers: Answers::new(),
            health: Mutex::default(),
            exchange,
            clock,
        })
    }

    /// Finds the issuer's metadata, so that an operator learns at the start what would fail later.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn probe(&self) -> Result<(), String> {
        self.issuer
            .probe()
            .map_err(|why| format!("the OAuth issuer {} {why}", self.settings.issuer))
    }

    /// Validates a token. Asks the issuer if need be, which takes at most [`EXCHANGE`], and twice that if its metadata
    /// must be found first.
    pub(super) fn check(
        &self,
        token: &str,
    ) -> Result<(Identity, Role, HeldOAuthToken), AccessError> {
        // A revoked token of ours must not be sent to the issuer.
        if token.starts_with(tokens::PREFIX) {
            return Err(AccessError::BadToken(Flaw::Unknown));
        }
        if !is_token(token) {
            return Err(AccessError::BadToken(Flaw::Malformed));
        }
        let digest = self.keyed.digest(token.as_bytes());
        let good = self.ask(token, digest)?;
        if good.left((self.clock)().date).is_zero() {
            return Err(AccessError::BadToken(Flaw::Expired));
        }
        let role = good.active.role.ok_or(AccessError::Forbidden(Role::Read))?;
        let confirmed = Mutex::new(good.asked);
        Ok((
            good.active.identity.clone(),
            role,
            HeldOAuthToken {
                token: Secret::new(token),
                digest,
                good,
                confirmed,
            },
        ))
    }

    /// May a stream that was opened with this token go on? Asks the issuer every [`GOOD`], which takes as long as
    /// [`OAuth::check`].
    pub(super) fn is_good(&self, shown: &HeldOAuthToken) -> bool {
        let now = (self.clock)();
        if shown.good.left(now.date).is_zero() {
            return false;
        }
        let since = now
            .instant
            .saturating_duration_since(*lock(&shown.confirmed));
        let said = match self.answers.known(shown.digest, now.instant) {
            Some(said) => said,
            // The answer was evicted from the cache.
            None if since < GOOD => return true,
            None => self.ask(shown.token.expose(), shown.digest),
        };
        match said {
            Ok(good) => {
                *lock(&shown.confirmed) = good.asked;
                let (now, then) = (&good.active, &shown.good.active);
                now.identity == then.identity && now.role >= then.role
            }
            Err(AccessError::Unavailable(_)) => since < UNCONFIRMED,
            Err(_) => false,
        }
    }

    /// The issuer's answer about a token: cached, or asked for now.
    fn ask(&self, token: &str, digest: Digest) -> Result<Arc<Good>, AccessError> {
        let now = || (self.clock)().instant;
        let question = match self.answers.claim(digest, &now, 2 * self.exchange) {
            Claim::Known(said) => return said,
            Claim::Ask(question) => question,
            Claim::Late => return Err(AccessError::Unavailable(RETRY.0)),
        };
        let asked = now();
        lock(&self.health)
            .enter(asked, 2 * self.exchange)
            .map_err(AccessError::Unavailable)?;
        match self
            .issuer
            .introspect(token, &|| lock(&self.health).has_failed_since(asked))
        {
            Ok(introspection) => {
                if lock(&self.health).worked() {
                    log::info!("the OAuth issuer {} answers again", self.settings.issuer);
                }
                let date = (self.clock)().date;
                let said =
                    introspection.judge(&self.settings.issuer, &self.settings.resource, date);
                let said = said
                    .map(|active| Arc::new(Good { active, asked }))
                    .map_err(AccessError::BadToken);
                match &said {
                    Ok(good) => question.tell(said.clone(), asked, good.left(date).min(GOOD)),
                    Err(_) => question.tell(said.clone(), now(), BAD),
                }
                said
            }
            Err(OutboundFailure::Unreachable(why)) => {
                let wait = lock(&self.health).failed(asked, now());
                self.complain(&why);
                Err(AccessError::Unavailable(wait))
            }
            Err(OutboundFailure::Unusable(why)) => {
                let said = Err(AccessError::Unavailable(ODD));
                question.tell(said.clone(), now(), ODD);
                self.complain(&why);
                said
            }
        }
    }

    fn complain(&self, why: &str) {
        if lock(&self.health).is_news(why, (self.clock)().instant) {
            log::warn!(
                "the OAuth issuer {} {why}; who comes with a token of it is answered 503",
                self.settings.issuer
            );
        }
    }
}

/// Whether the issuer can be reached.
#[derive(Default)]
struct Health {
    /// In a row.
    failures: u32,
    /// The last failure.
    failed: Option<Instant>,
    /// No request before this time.
    until: Option<Instant>,
    logged: Option<(String, Instant)>,
}

impl Health {
    /// May a request be sent? Once the issuer has failed, one at a time, each with `patience`. The error is how long to
    /// wait.
    fn enter(&mut self, now: Instant, patience: Duration) -> Result<(), Duration> {
        match self.until {
            Some(until) if now < until => return Err(until - now),
            Some(_) => self.until = Some(now + patience),
            None => {}
        }
        Ok(())
    }

    fn has_failed_since(&self, asked: Instant) -> bool {
        self.failed.is_some_and(|failed| asked <= failed)
    }

    /// A request that was sent at `asked` has failed. Returns how long to wait. Concurrent failures count once.
    fn failed(&mut self, asked: Instant, now: Instant) -> Duration {
        if !self.has_failed_since(asked) {
            self.failures += 1;
            self.failed = Some(now);
            let wait = RETRY.0 * 2_u32.saturating_pow(self.failures - 1).min(1 << 10);
            self.until = Some(now + wait.min(RETRY.1));
        }
        self.until
            .map_or(RETRY.0, |until| until.saturating_duration_since(now))
    }

    /// The issuer has answered. Had it failed before?
    fn worked(&mut self) -> bool {
        let had_failed = self.failures > 0;
        (self.failures, self.failed, self.until) = (0, None, None);
        if had_failed {
            self.logged = None;
        }
        had_failed
    }

    fn is_news(&mut self, why: &str, now: Instant) -> bool {
        let is_old = |(told, at): &(String, Instant)| {
            told == why && now.saturating_duration_since(*at) < LOG
        };
        if self.logged.as_ref().is_some_and(is_old) {
            return false;
        }
        self.logged = Some((why.to_owned(), now));
        true
    }
}

/// RFC 6750's `b64token`, of at most 8 KiB: nothing else is sent to the issuer.
fn is_token(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    text.len() <= MAX_TOKEN && !digits.is_empty() && digits.bytes().all(is_digit)
}
