//! Tokens of an OAuth 2.1 authorization server, validated by introspection (RFC 7662). This server is the protected
//! resource (RFC 9728).
//!
//! ```text
//!   token ─▶ a token by its form? ─▶ asked lately? ─▶ metadata (RFC 8414, OpenID) ─▶ introspection ─▶ claims ─▶ kept
//!                                                        └ the issuer is down: 503, and it is tried again ever later
//! ```
//! In scope: whether a token is valid, for whom and until when, what OAuth clients are told, and the exchanges with the
//! issuer. Not in scope: obtaining tokens, and checking their signatures. The issuer is asked instead, because only the
//! issuer knows which tokens were revoked.
//!
//! A positive answer is kept for a minute, but never beyond the token's expiry; a negative one for [`REFUSAL_HOLDS`].
//! Tokens that are not known yet need a place to be asked about. Places are counted by address, so that no address
//! keeps others out; a token that was valid in the last hour needs no place. While callers use a token, a thread asks
//! about it again before its minute is over, so that their requests never wait for the issuer. If that comes too late,
//! the answer stops counting, and the next request asks. Only if the issuer cannot be asked does its last answer count
//! until [`UNCONFIRMED`]. If the introspection of one token fails, only this token is affected, because anybody can
//! send one that the issuer chokes on. Only an issuer whose metadata cannot be read is down for everybody.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::{Response, header};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::error::{AccessError, Flaw};
use super::identity::{Identity, Role};
use super::tokens::Fingerprint;
use crate::account::{Accounts, Bounds, Resource};
use crate::agent::{self, Lookups};
use crate::config::{OAuthSettings, Secret, TOKEN_PREFIX, WORKER_STACK};
use crate::encoding::base64;
use crate::encoding::json::decode;
use crate::encoding::percent::percent_encode;
use crate::sync::{lock, spawn};
use crate::text::decimal;
use crate::time::{Clock, SystemClock};
use crate::url::WebUrl;

/// How long a good answer is kept.
const GRANT_HOLDS: Duration = Duration::from_secs(60);
/// The age at which a good answer is asked for again while the token is in use: a caller holds it, or has sent it
/// within this time.
const REFRESH: Duration = Duration::from_secs(30);
/// How often the refresher looks for such answers, once it has asked about those it found.
const TICK: Duration = Duration::from_secs(5);
/// How many threads it has at most: an issuer may be slow, and a token that it chokes on delays few others.
const REFRESHERS: usize = 64;
/// How long a bad answer is kept.
const REFUSAL_HOLDS: Duration = Duration::from_secs(5);
/// How long an answer that makes no sense, or did not come, is kept: at least this long, and as long as the wait for it
/// took.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);
/// Longest exchange with the issuer.
const EXCHANGE: Duration = Duration::from_secs(10);
/// How long a good answer counts while the issuer cannot be asked, so that a single check may fail.
const UNCONFIRMED: Duration = Duration::from_secs(120);
/// Waits between tries to reach the issuer: the first, and the longest they double to.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often the same failure is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Largest body of an answer, in bytes. Metadata of OpenID providers has some 10 KB.
const MAX_BODY: u64 = 256 << 10;
/// How long a token that was valid is not treated as one of a stranger.
const KNOWN: Duration = Duration::from_secs(3600);
/// Most answers that are kept.
const MAX_ANSWERS: usize = 10_000;
/// Most concurrent introspections of strangers' tokens: a flood of them must not flood the issuer.
const MAX_ASKING: usize = 64;
/// Most unknown tokens that wait for an introspection, each with a thread. Further ones are refused, so that an issuer
/// that hangs does not take the connections of callers who do not need it.
const MAX_WAITING: usize = 256;
/// Longest subject or client id, in bytes. OpenID allows 255; URLs as client ids are longer.
const MAX_SUBJECT: usize = 512;
/// What follows from a failure of the issuer, for the log.
const UNAVAILABLE: &str = "callers with its tokens get HTTP 503";
/// The path of our metadata, before that of the endpoint.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Every scope that gives a role.
const ALL_SCOPES: &str = "fabric:read fabric:run";

/// Validates tokens by asking their issuer.
pub(crate) struct OAuth {
    settings: OAuthSettings,
    credentials: Secret,
    /// Opens a connection for each exchange with the issuer.
    agent: Agent,
    discovery: Mutex<Discovery>,
    answers: Mutex<Answers>,
    /// The accounts of addresses that send unknown tokens. They pay for introspections.
    strangers: Accounts,
    /// The last failure in the log, and when that was.
    logged: Mutex<Option<(String, Duration)>>,
    /// [`EXCHANGE`].
    limit: Duration,
    clock: Box<dyn Clock>,
}

/// Where the issuer takes introspections, as far as that is known.
#[derive(Default)]
struct Discovery {
    endpoint: Option<WebUrl>,
    /// The wait after the last try; none if that was good.
    wait: Duration,
    /// The issuer is not asked again before this time.
    until: Duration,
}

/// What is known of tokens.
#[derive(Default)]
struct Answers(HashMap<Fingerprint, Arc<Known>>);

type Verdict = Result<Grant, AccessError>;

/// What is known of a token. Its callers hold it too, and so see what the issuer says of it later.
#[derive(Default)]
pub(super) struct Known {
    last: Mutex<LastAnswer>,
    /// Held by the call that asks the issuer about the token; other calls with this token wait for its answer.
    asking: Mutex<()>,
}

#[derive(Default)]
struct LastAnswer {
    /// The last good answer, unless the issuer has refused the token since.
    good: Option<Grant>,
    /// Why the issuer refuses the token, or why it could not be asked.
    refusal: Option<AccessError>,
    /// Until when a request can use this without asking the issuer.
    until: Duration,
    /// When the refresher asks.
    due: Duration,
    /// When a request came with the token last.
    used: Duration,
    /// The token, while callers use it.
    token: Option<Secret>,
}

/// What a valid token gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) identity: Identity,
    pub(super) role: Role,
    /// When the token ends, in seconds since 1970.
    expires: Option<i64>,
    /// When the issuer was asked.
    asked: Duration,
}

impl OAuth {
    /// Prepares everything that needs no connection. The error is one line.
    pub(crate) fn new(settings: OAuthSettings) -> Result<OAuth, String> {
        // RFC 6749, 2.3.1: as in a form, then as in Basic. Encoded like this, both kinds of decoders read the same.
        let id = percent_encode(settings.client_id.expose());
        let secret = percent_encode(settings.client_secret.expose());
        let basic = base64::encode(format!("{id}:{secret}").as_bytes());
        let credentials = Secret::new(format!("Basic {basic}"));
        let config = agent::config("the URL", settings.issuer.as_str())
            .map_err(|why| format!("--oauth-issuer: {why}"))?
            .accept("application/json")
            .build();
        Ok(OAuth {
            agent: Agent::with_parts(config, DefaultConnector::new(), Lookups::new()),
            settings,
            credentials,
            discovery: Mutex::default(),
            answers: Mutex::default(),
            strangers: Accounts::new(Bounds {
                totals: Resource::ALL.map(|what| match what {
                    Resource::Calls => MAX_ASKING,
                    _ => MAX_WAITING,
                }),
                shared_seats: Some(0),
                ..Bounds::default()
            }),
            logged: Mutex::default(),
            limit: EXCHANGE,
            clock: Box::new(SystemClock::new()),
        })
    }

    // For OAuth clients.

    /// The metadata of this resource, if it is what `path` asks for: to be answered before a token is asked for. `endpoint`
    /// is the path of the MCP endpoint here, which a proxy in front may call by another name: both are answered.
    pub(crate) fn document(&self, path: &str, endpoint: &str) -> Option<Vec<u8>> {
        let (rest, resource) = (path.strip_prefix(WELL_KNOWN)?, &self.settings.resource);
        let document = json!({
            "resource": resource.as_str(),
            "authorization_servers": [self.settings.issuer.as_str()],
            "scopes_supported": ALL_SCOPES.split(' ').collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
            "resource_name": "fabric-mcp",
        });
        let ours = ["", "/", resource.path(), endpoint];
        ours.contains(&rest)
            .then(|| document.to_string().into_bytes())
    }

    /// The value of `WWW-Authenticate` (RFC 6750, RFC 9728 section 5.1). A 401 asks for all scopes, because many
    /// clients ask for the scopes that it names and never for more. A 403 names the missing scope.
    pub(super) fn challenge(&self, refusal: AccessError) -> Option<String> {
        let error = |error, why| format!(", error=\"{error}\", error_description=\"{why}\"");
        let (scope, error) = match refusal {
            AccessError::NoToken => (ALL_SCOPES, String::new()),
            AccessError::BadToken(flaw) => (ALL_SCOPES, error("invalid_token", flaw.1)),
            AccessError::Forbidden(role) => (
                role.scope(),
                error("insufficient_scope", "the token lacks the scope"),
            ),
            AccessError::Closed | AccessError::Unavailable(_) => return None,
        };
        let resource = &self.settings.resource;
        let (origin, path) = (resource.origin(), resource.path());
        Some(format!(
            "Bearer resource_metadata=\"{origin}{WELL_KNOWN}{path}\", scope=\"{scope}\"{error}"
        ))
    }

    // Tokens.

    /// Validates a token. Asks the issuer if need be, which takes at most [`EXCHANGE`], and twice that if its metadata
    /// must be found first. `peer`: where it comes from; who is no longer `is_there` does not wait for others.
    pub(super) fn check(
        &self,
        (token, print): (&str, Fingerprint),
        peer: Identity,
        accounts: &Accounts,
        is_there: &dyn Fn() -> bool,
    ) -> Result<(Arc<Known>, Grant), AccessError> {
        // A revoked token of the tokens file must not be sent to the issuer.
        if token.starts_with(TOKEN_PREFIX) {
            return Err(AccessError::BadToken(Flaw::UNKNOWN));
        }
        let (begun, busy) = (Instant::now(), AccessError::Unavailable(RETRY.0));
        let left = || (2 * self.limit).saturating_sub(begun.elapsed());
        let (found, owner) = lock(&self.answers).find(print, self.clock.steady());
        let known = match found {
            Some(known) => known,
            None => {
                let is_known = owner.is_some();
                let account =
                    owner.map_or_else(|| self.strangers.of(peer), |owner| accounts.of(owner));
                let _wait = account.take(Resource::Waits, 1).map_err(|_| busy)?;
                let known = lock(&self.answers).entry(print, self.clock.steady());
                // Only one of the callers with this token asks; the others find its answer.
                let asking = lock(&known.asking);
                if self.clock.steady() >= lock(&known.last).until {
                    let mut still_waiting = || is_there() && !left().is_zero();
                    let mut place = || account.wait_for(Resource::Calls, &mut still_waiting);
                    let _place = (!is_known).then(|| place().ok_or(busy)).transpose()?;
                    self.introspect(&known, token);
                }
                drop(asking);
                known
            }
        };
        let grant = self.grant(&known, false)?;
        let mut answer = lock(&known.last);
        answer.used = self.clock.steady();
        answer.token.get_or_insert_with(|| Secret::new(token));
        drop(answer);
        Ok((known, grant))
    }

    /// What a token grants now, as the issuer said last; only memory is read. With `is_late`, an answer also counts if
    /// it should have been confirmed by now.
    pub(super) fn grant(&self, known: &Known, is_late: bool) -> Verdict {
        match lock(&known.last).grant(self.clock.steady(), is_late) {
            Ok(grant) if grant.expires.is_some_and(|end| end <= self.date()) => {
                Err(AccessError::BadToken(Flaw::EXPIRED))
            }
            said => said,
        }
    }

    /// Starts what refreshes the answers that callers hold. It ends with the last reference to `self`.
    pub(super) fn start_refresher(self: &Arc<OAuth>) {
        let oauth = Arc::downgrade(self);
        let otherwise = "callers with a token of the OAuth issuer wait for it once a minute";
        spawn("oauth refresher", otherwise, move || {
            while let Some(oauth) = oauth.upgrade() {
                // A panic because of one token must not end the refreshing of all.
                let _ = catch_unwind(AssertUnwindSafe(|| oauth.refresh()));
                drop(oauth);
                thread::sleep(TICK);
            }
        });
    }

    /// Asks about each token that callers use, if it is time.
    fn refresh(&self) {
        let due = lock(&self.answers).due(self.clock.steady());
        let (threads, due) = (due.len().min(REFRESHERS), Mutex::new(due.into_iter()));
        let next = || lock(&due).next();
        let work = || {
            while let Some((known, token)) = next() {
                let _asking = lock(&known.asking);
                if lock(&known.last).due <= self.clock.steady() {
                    self.introspect(&known, token.expose());
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                let thread = thread::Builder::new().name("oauth refresher".into());
                // If the system has no more threads, work with fewer.
                let _ = thread.stack_size(WORKER_STACK).spawn_scoped(scope, work);
            }
            work();
        });
    }

    /// Now, in seconds since 1970.
    fn date(&self) -> i64 {
        i64::try_from(self.clock.today() / 1000).unwrap_or(i64::MAX)
    }

    /// Asks the issuer about a token, and keeps its answer.
    fn introspect(&self, known: &Known, token: &str) {
        let asked = self.clock.steady();
        let judged = |said: Value| judge(&said, &self.settings, asked, self.date());
        let endpoint = self.endpoint();
        let said = endpoint.map(|endpoint| self.question(&endpoint, token).map(judged));
        let now = self.clock.steady();
        let (until, verdict) = match said {
            Ok(Ok(Ok(grant))) => (asked + GRANT_HOLDS, Ok(grant)),
            Ok(Ok(Err(refusal))) => (now + REFUSAL_HOLDS, Err(refusal)),
            Ok(Err(why)) => {
                let wait = FAILURE_HOLDS.max(now.saturating_sub(asked));
                self.warn(&format!("{why}; {UNAVAILABLE}"));
                (now + wait, Err(AccessError::Unavailable(wait)))
            }
            // When to try again is the same for all tokens, and known already.
            Err(wait) => (asked, Err(AccessError::Unavailable(wait))),
        };
        lock(&known.last).keep(until, verdict, now);
    }

    /// Logs a failure of the issuer, the same once a minute.
    fn warn(&self, what: &str) {
        let (mut logged, now) = (lock(&self.logged), self.clock.steady());
        let is_old = |(last, at): &(String, Duration)| last == what && now < *at + LOG_INTERVAL;
        if !logged.as_ref().is_some_and(is_old) {
            *logged = Some((what.to_owned(), now));
            log::warn!("the OAuth issuer {} {what}", self.settings.issuer.as_str());
        }
    }

    // The issuer.

    /// Checks what must be set up at the issuer: its metadata, introspection with this server's credentials and, if it
    /// gives this server a token of its own, that such a token would be accepted here. Returns what was found to work.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn probe(&self) -> Result<String, String> {
        let named = |why| format!("the OAuth issuer {} {why}", self.settings.issuer.as_str());
        self.try_out().map_err(named)
    }

    fn try_out(&self) -> Result<String, String> {
        let (endpoint, token_url) = self.discover()?;
        // Nobody's token, but only a client that may introspect learns that.
        self.question(&endpoint, "x")?;
        let untested = |why| format!("introspection works; the audience was not tested ({why})");
        let token = match self.own_token(token_url.as_ref()) {
            Ok(token) => token,
            Err(why) => return Ok(untested(why)),
        };
        let said = self.question(&endpoint, &token)?;
        match judge(&said, &self.settings, self.clock.steady(), self.date()) {
            Ok(_) => Ok("introspection works, and the audience fits".to_owned()),
            Err(AccessError::BadToken(Flaw::AUDIENCE)) => Err(format!(
                "issues tokens for another audience: have it put {} into those with the scopes {ALL_SCOPES}",
                self.settings.resource.as_str()
            )),
            Err(AccessError::BadToken(Flaw::INACTIVE)) => Err(
                "says that a token it has just issued is inactive: have it put \
                 FABRIC_MCP_OAUTH_CLIENT_ID into the audience too, or let this client introspect \
                 the tokens of others"
                    .to_owned(),
            ),
            Err(refusal) => Err(format!(
                "issues tokens that are refused: {}",
                refusal.detail()
            )),
        }
    }

    /// A token that the issuer gives to this server itself. The error says why it gives none.
    fn own_token(&self, url: Option<&WebUrl>) -> Result<String, String> {
        let url = url.ok_or("no token endpoint")?;
        let scope = percent_encode(Role::Read.scope());
        let resource = percent_encode(self.settings.resource.as_str());
        let form = format!("grant_type=client_credentials&scope={scope}&resource={resource}");
        let (status, body) = self.exchange(url.as_str(), Some(form))?;
        let body: Value = decode(&body).unwrap_or_default();
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        let is_code = |error: &String| error.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        text("access_token").ok_or_else(|| {
            let error = text("error").filter(is_code);
            error.unwrap_or_else(|| format!("HTTP {status}"))
        })
    }

    /// Where to introspect. The error is how long to wait before the next try.
    fn endpoint(&self) -> Result<WebUrl, Duration> {
        let mut discovery = lock(&self.discovery);
        if let Some(endpoint) = &discovery.endpoint {
            return Ok(endpoint.clone());
        }
        let now = self.clock.steady();
        if now < discovery.until {
            return Err(discovery.until - now);
        }
        // At first one caller finds the endpoint for all others, who wait for the lock. Nobody waits for an issuer that
        // has failed.
        let found = if discovery.wait.is_zero() {
            self.discover()
        } else {
            discovery.until = now + self.limit;
            drop(discovery);
            let found = self.discover();
            discovery = lock(&self.discovery);
            found
        };
        match found {
            Ok((endpoint, _)) => {
                if !discovery.wait.is_zero() {
                    *lock(&self.logged) = None;
                    let issuer = self.settings.issuer.as_str();
                    log::info!("the OAuth issuer {issuer} answers again");
                }
                *discovery = Discovery::default();
                discovery.endpoint = Some(endpoint.clone());
                Ok(endpoint)
            }
            Err(why) => {
                discovery.wait = (2 * discovery.wait).clamp(RETRY.0, RETRY.1);
                discovery.until = self.clock.steady() + discovery.wait;
                self.warn(&format!("{why}; {UNAVAILABLE}"));
                Err(discovery.wait)
            }
        }
    }

    /// The introspection endpoint, and the token endpoint, which only [`OAuth::probe`] asks. Tries each place where metadata
    /// may be. Reports the first failure that is not a 404.
    fn discover(&self) -> Result<(WebUrl, Option<WebUrl>), String> {
        // RFC 8414 inserts the well-known name before the path; OpenID appends it, and with MCP may insert it as well.
        let (origin, path) = (self.settings.issuer.origin(), self.settings.issuer.path());
        let mut places = vec![
            format!("{origin}/.well-known/oauth-authorization-server{path}"),
            format!("{origin}/.well-known/openid-configuration{path}"),
            format!("{origin}{path}/.well-known/openid-configuration"),
        ];
        // If the issuer has no path, the last two places are the same.
        places.dedup();
        let mut reason = None;
        for url in places {
            // If there is no answer, the other places are not tried: that would only take as long again.
            let why = match self.exchange(&url, None)? {
                (404, _) => continue,
                (200, body) => match self.read_metadata(&body) {
                    Ok(endpoint) => return Ok(endpoint),
                    Err(why) => why,
                },
                (status, _) => format!("answers HTTP {status} where its metadata should be"),
            };
            reason.get_or_insert(why);
        }
        Err(reason.unwrap_or_else(|| {
            "has no metadata, neither of OAuth nor of OpenID: check --oauth-issuer".to_owned()
        }))
    }

    fn read_metadata(&self, body: &[u8]) -> Result<(WebUrl, Option<WebUrl>), String> {
        let metadata: Value = decode(body).ok_or("has metadata that cannot be read")?;
        let issuer = &self.settings.issuer;
        if metadata["issuer"] != issuer.as_str() {
            return Err(
                "has another name in its own metadata: write --oauth-issuer exactly as it is \
                 written there, including a slash at the end"
                    .to_owned(),
            );
        }
        let url = metadata["introspection_endpoint"].as_str().ok_or(
            "names no introspection endpoint: tokens of such an issuer cannot be checked here",
        )?;
        let url = self.endpoint_url(url, "an introspection endpoint")?;
        let token_url = metadata["token_endpoint"].as_str();
        let token_url = token_url.and_then(|url| self.endpoint_url(url, "a token endpoint").ok());
        Ok((url, token_url))
    }

    /// A URL of the metadata, if this server's credentials may be sent there.
    fn endpoint_url(&self, url: &str, what: &str) -> Result<WebUrl, String> {
        let issuer = &self.settings.issuer;
        let url =
            WebUrl::parse(url).map_err(|why| format!("names {what} that cannot be used: {why}"))?;
        if issuer.is_https() && !url.is_https() {
            return Err(format!("names {what} without https"));
        }
        // A remote issuer must not make this server send requests to services on this machine. 0.0.0.0 leads there as
        // well.
        let is_any = url.host.address().is_some_and(|ip| ip.is_unspecified());
        if !issuer.host.leads_here() && (url.host.leads_here() || is_any) {
            return Err(format!("names {what} on this machine, not its own"));
        }
        Ok(url)
    }

    fn question(&self, endpoint: &WebUrl, token: &str) -> Result<Value, String> {
        let token = percent_encode(token);
        let form = format!("token={token}&token_type_hint=access_token");
        let answer = self.exchange(endpoint.as_str(), Some(form));
        // After these its metadata decides whether the issuer is down, or has moved the endpoint.
        if matches!(answer, Err(_) | Ok((300..=399 | 404 | 405 | 410, _))) {
            lock(&self.discovery).endpoint = None;
        }
        match answer? {
            (200, body) => decode(&body)
                .filter(Value::is_object)
                .ok_or_else(|| "answers with something other than the JSON of RFC 7662".to_owned()),
            (status @ (401 | 403), _) => Err(format!(
                "refuses this server itself (HTTP {status}): check FABRIC_MCP_OAUTH_CLIENT_ID and \
                 FABRIC_MCP_OAUTH_CLIENT_SECRET, and that this client may introspect"
            )),
            (status, _) => Err(format!(
                "answers HTTP {status} at its introspection endpoint"
            )),
        }
    }

    /// Status and body of the issuer's answer to a form, which is sent with this server's credentials, or else to a GET.
    /// The error, why there is none, is the predicate of a sentence about the issuer.
    fn exchange(&self, url: &str, form: Option<String>) -> Result<(u16, Vec<u8>), String> {
        let limit = Some(self.limit);
        let sent = match form {
            None => {
                let request = self.agent.get(url).config();
                request.timeout_global(limit).build().call()
            }
            Some(form) => {
                let request = self.agent.post(url);
                let request = request.header(header::AUTHORIZATION, self.credentials.expose());
                let request = request.content_type("application/x-www-form-urlencoded");
                let request = request.config().timeout_global(limit).build();
                request.send(form)
            }
        };
        let read = |response: Response<Body>| {
            let status = response.status().as_u16();
            let body = response.into_body().into_with_config().limit(MAX_BODY);
            Ok((status, body.read_to_vec()?))
        };
        sent.and_then(read)
            .map_err(|error| agent::reason(error, self.limit))
    }
}

impl LastAnswer {
    /// The last good answer, if that is younger than `age`.
    fn good(&self, now: Duration, age: Duration) -> Option<&Grant> {
        self.good.as_ref().filter(|good| now < good.asked + age)
    }

    /// The last good answer, as long as it counts, which is longer if the issuer could not be asked since.
    fn grant(&self, now: Duration, is_late: bool) -> Verdict {
        let age = match self.refusal.is_some() || is_late {
            true => UNCONFIRMED,
            false => GRANT_HOLDS,
        };
        let refusal = self.refusal.unwrap_or(AccessError::Unavailable(RETRY.0));
        self.good(now, age).cloned().ok_or(refusal)
    }

    /// Keeps an answer. A failure to get one does not replace a good answer while that still counts.
    fn keep(&mut self, until: Duration, verdict: Verdict, now: Duration) {
        self.until = until;
        self.due = match &verdict {
            Ok(grant) => grant.asked + REFRESH,
            Err(AccessError::Unavailable(_)) => now + TICK,
            Err(_) => Duration::MAX,
        };
        self.refusal = verdict.as_ref().err().copied();
        if !matches!(self.refusal, Some(AccessError::Unavailable(_))) {
            self.good = verdict.ok();
        }
    }
}

impl Answers {
    /// What is known of a token, unless the issuer has to be asked first; the refresher takes care of tokens that
    /// callers use. Also whose token it is, if it was valid in the last hour.
    fn find(&self, print: Fingerprint, now: Duration) -> (Option<Arc<Known>>, Option<Identity>) {
        let Some(known) = self.0.get(&print) else {
            return (None, None);
        };
        let answer = lock(&known.last);
        let is_refreshed = answer.token.is_some() && answer.grant(now, false).is_ok();
        let counts = now < answer.until || is_refreshed;
        let owner = answer.good(now, KNOWN).map(|good| good.identity.clone());
        (counts.then(|| known.clone()), owner)
    }

    /// The tokens to refresh. Forgets the tokens that no caller holds any more, or has used lately.
    fn due(&self, now: Duration) -> Vec<(Arc<Known>, Secret)> {
        let due = self.0.values().filter_map(|known| {
            let mut answer = lock(&known.last);
            let is_used = Arc::strong_count(known) > 1 || now < answer.used + REFRESH;
            answer.token.take_if(|_| !is_used);
            let token = answer.token.clone().filter(|_| answer.due <= now)?;
            Some((known.clone(), token))
        });
        due.collect()
    }

    /// What is known of a token, which may be nothing yet. When full, forgets what no caller holds and was not good in the
    /// last hour, and if that is nothing, all that no caller holds: it can be asked again.
    fn entry(&mut self, print: Fingerprint, now: Duration) -> Arc<Known> {
        for age in [KNOWN, Duration::ZERO] {
            if self.0.len() >= MAX_ANSWERS {
                self.0.retain(|_, known| {
                    Arc::strong_count(known) > 1 || lock(&known.last).good(now, age).is_some()
                });
            }
        }
        self.0.entry(print).or_default().clone()
    }
}

/// What a token gives at `date`, by an introspection response, in which `null` counts as absent. What is not understood is
/// refused. Whether the time has come from which the token is valid is for the issuer to check (RFC 7662, 4).
fn judge(said: &Value, settings: &OAuthSettings, asked: Duration, date: i64) -> Verdict {
    let bad = |flaw| Err(AccessError::BadToken(flaw));
    if said["active"] != true {
        return bad(Flaw::INACTIVE);
    }
    let is_ours = |aud: &Value| aud.as_str().is_some_and(|aud| settings.resource.is(aud));
    let is_for_us = match &said["aud"] {
        Value::Array(audiences) => audiences.iter().any(is_ours),
        audience => is_ours(audience),
    };
    if !is_for_us {
        return bad(Flaw::AUDIENCE);
    }
    let issuer = settings.issuer.as_str();
    if !said["iss"].is_null() && said["iss"] != issuer {
        return bad(Flaw::ISSUER);
    }
    let kind = &said["token_type"];
    let is_bearer = |kind: &str| kind.eq_ignore_ascii_case("bearer");
    let is_plain = kind.is_null() || kind.as_str().is_some_and(is_bearer);
    // A token that is bound to a key (`cnf`) is refused, since that key is not checked here: a thief could use it too.
    if !is_plain || !said["cnf"].is_null() {
        return bad(Flaw::KIND);
    }
    // A NumericDate: whole or with a fraction; some issuers write it as text. The cast saturates, as intended.
    let exp = &said["exp"];
    let expires = exp.as_f64().or_else(|| decimal(exp.as_str()?));
    let expires = expires.map(|seconds| seconds.floor() as i64);
    if expires.is_none() && !exp.is_null() {
        return bad(Flaw::KIND);
    }
    if expires.is_some_and(|expires| expires <= date) {
        return bad(Flaw::EXPIRED);
    }
    let (sub, client) = (&said["sub"], &said["client_id"]);
    // A `username` can be given to somebody else later, so it does not identify a user; nor does the client.
    let name = match sub.is_null() && said["username"].is_null() {
        true => client.as_str(),
        false => sub.as_str(),
    };
    let name = name.filter(|name| !name.is_empty() && name.len() <= MAX_SUBJECT);
    let name = name.ok_or(AccessError::BadToken(Flaw::NOBODY))?;
    // RFC 9068, 2.2: a client that acts for itself may be its own subject.
    let is_client = sub.is_null() || sub == client;
    let scopes = said["scope"].as_str().unwrap_or_default();
    let has = |role: &Role| scopes.split(' ').any(|scope| scope == role.scope());
    let role = Role::ALL.into_iter().rev().find(has);
    Ok(Grant {
        identity: Identity::oauth(is_client, issuer, name),
        role: role.ok_or(AccessError::Forbidden(Role::Read))?,
        expires,
        asked,
    })
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
