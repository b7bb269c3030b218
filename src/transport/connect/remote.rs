//! The server that messages are passed on to: the session, and what its answers mean.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, RequestBuilder, Timeout};

use crate::account::{Account, Accounts, Resource};
use crate::agent::{self, Lookups};
use crate::config::{Connect, SSE_COMMENT};
use crate::encoding::json::decode;
use crate::error::{Error, Kind};
use crate::sync::lock;
use crate::text::shown;

/// Most bytes of all messages that are on their way, in both directions. One answer may take them all.
const MAX_HELD: usize = 64 << 20;
/// Buffer of a connection in each direction, in bytes.
const BUFFER: usize = 16 << 10;
/// An answer is read in pieces of at most this many bytes.
const PIECE: u64 = 64 << 10;
/// Longest time for looking up the server's name, and for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of the server, which sends a comment every [`SSE_COMMENT`].
const SILENCE: Duration = SSE_COMMENT.saturating_mul(6);
/// Longest time for ending the session.
const LEAVING: Duration = Duration::from_secs(2);
/// Longest answer whose values are looked at, in bytes.
const MAX_SMALL: usize = 64 << 10;
/// How much of the server's own words an error quotes, in characters.
const QUOTED: usize = 500;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";
pub(super) const SESSION_ID: &str = "Mcp-Session-Id";
pub(super) const VERSION: &str = "MCP-Protocol-Version";

/// The words of errors, one a line: its name, its kind, and what happened and what to do, with `{url}` and `{why}`.
const WORDS: &str = include_str!("words.txt");

/// The headers that not every request has.
pub(super) type Headers = Vec<(&'static str, String)>;

/// The server, and our session there.
pub(super) struct Remote {
    pub(super) settings: Connect,
    config: ureq::config::Config,
    lookups: Lookups,
    /// Gives what there is of [`MAX_HELD`].
    pub(super) account: Account,
    /// The headers of every message in the session; without one, none.
    session: Mutex<Headers>,
}

impl Remote {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Which setting cannot work, and why.
    pub(super) fn new(settings: &Connect) -> Result<Remote, String> {
        let ca_file = settings.ca_file.as_deref();
        let config = agent::config("--connect", &settings.url, ca_file, BUFFER, 0)?
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_write(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        Ok(Remote {
            settings: settings.clone(),
            config,
            lookups: Lookups::new(),
            account: Accounts::alone(MAX_HELD).of(""),
            session: Mutex::default(),
        })
    }

    /// An agent for one request.
    pub(super) fn agent(&self) -> Agent {
        let (config, lookups) = (self.config.clone(), self.lookups.clone());
        Agent::with_parts(config, DefaultConnector::new(), lookups)
    }

    /// The headers of the session, or none.
    pub(super) fn session(&self) -> Headers {
        lock(&self.session).clone()
    }

    /// Begins the session with this id that an answer to `initialize` opens, in the place of another. Returns the answer
    /// without the offer to tell of changed lists: that needs a stream beside the requests, and there is none.
    pub(super) fn enter(&self, id: Option<&str>, answer: &[u8]) -> Vec<u8> {
        let mut opened = small(answer);
        let Some(version) = opened["result"]["protocolVersion"].as_str() else {
            return answer.to_vec();
        };
        let session = id.map(|id| [(SESSION_ID, id.to_owned()), (VERSION, version.to_owned())]);
        self.leave();
        *lock(&self.session) = session.into_iter().flatten().collect();
        let offered = opened.pointer_mut("/result/capabilities");
        for (_, offer) in offered.and_then(Value::as_object_mut).into_iter().flatten() {
            offer
                .as_object_mut()
                .map(|offer| offer.remove("listChanged"));
        }
        opened.to_string().into_bytes()
    }

    /// Ends the session, if there is one: the server stops what it does for it.
    pub(super) fn leave(&self) {
        let session = std::mem::take(&mut *lock(&self.session));
        if !session.is_empty() {
            let agent = self.agent();
            let request = agent.delete(&self.settings.url);
            // If that fails, the server will forget it.
            let _ = self.prepare(request, &session, Some(LEAVING)).call();
        }
    }

    fn prepare<B>(
        &self,
        mut request: RequestBuilder<B>,
        headers: &Headers,
        limit: Option<Duration>,
    ) -> RequestBuilder<B> {
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(token) = &self.settings.token {
            request = request.header("Authorization", format!("Bearer {}", token.expose()));
        }
        request.config().timeout_global(limit).build()
    }

    /// Sends a message, once. `limit` is the longest time for it and for all of the reply.
    ///
    /// # Errors
    /// Anything but a reply that may hold messages.
    pub(super) fn send(
        &self,
        agent: &Agent,
        limit: Option<Duration>,
        headers: &Headers,
        message: &[u8],
    ) -> Result<Response<Body>, Error> {
        let request = agent.post(&self.settings.url).content_type(JSON);
        let request = request.header("Accept", format!("{JSON}, {STREAM}"));
        let sent = self.prepare(request, headers, limit).send(message);
        let mut reply = sent.map_err(|error| self.failed(error, limit))?;
        let (status, is_json) = (reply.status().as_u16(), is(&reply, JSON));
        if matches!(status, 202 | 204) || (status == 200 && (is_json || is(&reply, STREAM))) {
            return Ok(reply);
        }
        let said = reply.body_mut().with_config().limit(MAX_SMALL as u64);
        // What is cut off or too long says nothing, which is no second error.
        let said = small(&said.read_to_vec().unwrap_or_default());
        let is_lost = status == 404 && headers.iter().any(|(name, _)| *name == SESSION_ID);
        if is_json && !is_lost && !said["id"].is_null() {
            let answer = Body::builder().mime_type(JSON).data(said.to_string());
            return Ok(Response::new(answer));
        }
        let words = said["error"]["message"].as_str().unwrap_or_default();
        Err(self.refused(status, is_lost, &shown(words, QUOTED)))
    }

    /// Reads the messages of a reply, each of which fabric-mcp writes as one line, until `each` has enough.
    ///
    /// # Errors
    /// The reply breaks off, takes too long, or is too large; and those of `each`.
    pub(super) fn read(
        &self,
        reply: Response<Body>,
        limit: Option<Duration>,
        each: &mut dyn FnMut(&[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let is_stream = is(&reply, STREAM);
        let body = reply.into_body().into_with_config().limit(u64::MAX);
        let (mut input, mut line) = (BufReader::new(body.reader()), Vec::new());
        let mut held = self.account.open(Resource::Memory);
        loop {
            let piece = input.by_ref().take(PIECE).read_until(b'\n', &mut line);
            let piece = piece.map_err(|error| match error.into() {
                late @ ureq::Error::Timeout(Timeout::Global) => self.failed(late, limit),
                _ => self.error("cut"),
            })?;
            held.grow(piece).map_err(|_| self.error("large"))?;
            if piece > 0 && !line.ends_with(b"\n") {
                continue;
            }
            let message = match is_stream {
                // The other lines are comments, and the ends of events.
                true => line.strip_prefix(b"data:").unwrap_or_default(),
                false => &line,
            };
            let message = message.trim_ascii();
            if piece == 0 && message.is_empty() || !message.is_empty() && !each(message)? {
                return Ok(());
            }
            line = Vec::new();
            // Less always fits.
            let _ = held.set(0);
        }
    }

    /// The error of this name.
    pub(super) fn error(&self, name: &str) -> Error {
        let row = WORDS
            .lines()
            .find_map(|row| row.strip_prefix(name)?.strip_prefix(' '));
        let (kind, words) = row.and_then(|row| row.split_once(' ')).unwrap_or_default();
        let kind = Kind::named(kind).unwrap_or(Kind::Internal);
        Error::new(kind, words.replace("{url}", &self.settings.url))
    }

    /// The error for a reply with this status that is no JSON-RPC answer. `said` are the server's words.
    pub(super) fn refused(&self, status: u16, is_lost: bool, said: &str) -> Error {
        let mut error = self.error(match status {
            300..=399 => "redirect",
            401 if self.settings.token.is_none() => "no-token",
            401 => "token",
            403 if !said.is_empty() => "forbidden",
            400 | 413 if !said.is_empty() => "refused",
            404 if is_lost => "lost",
            429 | 503 => "busy",
            502 | 504 => "proxy",
            500.. => "failed",
            _ => "no-mcp",
        });
        error.detail = format!("HTTP {status}: {}", error.detail);
        if !said.is_empty() {
            error.detail += &format!(" It says: {said}");
        }
        error
    }

    /// The error for a request without a reply.
    fn failed(&self, error: ureq::Error, limit: Option<Duration>) -> Error {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let (mut time, mut name) = (CONNECT_TIMEOUT, "unreached");
        match &error {
            ureq::Error::Timeout(Timeout::Global) => time = limit.unwrap_or(time),
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => {}
            ureq::Error::Timeout(_) => name = "cut",
            ureq::Error::Io(error) => match error.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => name = "cut",
                // As rustls says it.
                ErrorKind::InvalidData if error.to_string().contains("not valid for name") => {
                    name = "name";
                }
                ErrorKind::InvalidData => name = "authority",
                _ => {}
            },
            _ => {}
        }
        let mut failed = self.error(name);
        failed.detail = failed.detail.replace("{why}", &agent::explain(error, time));
        failed
    }
}

fn is(reply: &Response<Body>, media: &str) -> bool {
    let found = reply.body().mime_type();
    found.is_some_and(|found| found.trim().eq_ignore_ascii_case(media))
}

/// What an answer of at most [`MAX_SMALL`] says; null if it is none.
pub(super) fn small(answer: &[u8]) -> Value {
    let answer = Some(answer).filter(|answer| answer.len() <= MAX_SMALL);
    answer.and_then(decode).unwrap_or_default()
}
