//! The server that messages are passed on to: connections, the session, and what its answers mean.
//!
//! Every request has an [`Agent`], with its one connection, to itself: another thread can only interrupt an agent as a
//! whole. Idle agents are kept for the next request. They all share one connector, and with it the state of TLS.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use ureq::http::{HeaderValue, Response, header};
use ureq::unversioned::transport::{ConnectionDetails, Connector, DefaultConnector, Transport};
use ureq::{Agent, Body, RequestBuilder, Timeout};

use crate::agent::{self, Lookups};
use crate::config::{AUTH_TOKEN, Connect, MAX_MESSAGE, SSE_COMMENT};
use crate::error::{Error, Kind};
use crate::protocol::jsonrpc::is_blank;
use crate::sync::lock;
use crate::text::shown;
use crate::transport::lines::{LineSize, read_line};

/// Buffer of a connection in each direction, in bytes.
const BUFFER: usize = 16 << 10;
/// Most idle agents, each with a connection.
const MAX_IDLE: usize = 8;
/// Longest time for looking up the server's name, and for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of the server, which sends a comment every [`SSE_COMMENT`].
const SILENCE: Duration = SSE_COMMENT.saturating_mul(6);
/// Longest time for ending the session.
const LEAVE: Duration = Duration::from_secs(2);
/// Longest error body that is read, in bytes.
const MAX_REFUSAL: u64 = 64 << 10;
/// How much of the server's own words an error quotes, in characters.
const QUOTED: usize = 500;

const SESSION_ID: &str = "Mcp-Session-Id";
pub(super) const VERSION: &str = "MCP-Protocol-Version";

/// The headers of a message that depend on it.
pub(super) type Headers = Vec<(&'static str, String)>;

/// The server, and our session there.
pub(super) struct Remote {
    url: String,
    authorization: Option<HeaderValue>,
    config: ureq::config::Config,
    connector: SharedConnector,
    lookups: Lookups,
    idle: Mutex<Vec<Agent>>,
    session: Mutex<Option<Arc<RemoteSession>>>,
}

/// A legacy session.
pub(super) struct RemoteSession {
    id: String,
    version: String,
    /// The agent of its event stream.
    stream: Agent,
}

impl RemoteSession {
    /// The headers of every message in it.
    pub(super) fn headers(&self) -> Headers {
        vec![
            (SESSION_ID, self.id.clone()),
            (VERSION, self.version.clone()),
        ]
    }
}

/// The connector of all agents.
#[derive(Clone, Debug)]
struct SharedConnector(Arc<DefaultConnector>);

impl Connector for SharedConnector {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        self.0.connect(details, chained)
    }
}

impl Remote {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Which setting cannot work, and why.
    pub(super) fn new(settings: &Connect) -> Result<Remote, String> {
        let authorization = settings.token.as_ref().map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                .map_err(|_| format!("{AUTH_TOKEN} cannot be sent in a header"))?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let ca_file = settings.ca_file.as_deref();
        let config = agent::config("--connect", &settings.url, ca_file, BUFFER, 1)?
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_write(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        Ok(Remote {
            url: settings.url.clone(),
            authorization: authorization.transpose()?,
            config,
            connector: SharedConnector(Arc::default()),
            lookups: Lookups::new(),
            idle: Mutex::default(),
            session: Mutex::default(),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// An agent for one request.
    pub(super) fn agent(&self) -> Agent {
        lock(&self.idle).pop().unwrap_or_else(|| self.new_agent())
    }

    fn new_agent(&self) -> Agent {
        let (config, connector) = (self.config.clone(), self.connector.clone());
        Agent::with_parts(config, connector, self.lookups.clone())
    }

    /// Keeps an agent whose connection can be used again.
    pub(super) fn keep(&self, agent: Agent) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(agent);
        }
    }

    fn request<B>(
        &self,
        request: RequestBuilder<B>,
        headers: Headers,
        accept: &str,
    ) -> RequestBuilder<B> {
        let headers = headers.into_iter();
        let request = headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let authorization = self.authorization.iter();
        authorization
            .fold(request, |request, value| {
                request.header(header::AUTHORIZATION, value)
            })
            .header(header::ACCEPT, accept)
    }

    /// Sends a message, once.
    ///
    /// # Errors
    /// Anything but an answer that may hold messages.
    pub(super) fn post(
        &self,
        agent: &Agent,
        headers: Headers,
        body: &[u8],
    ) -> Result<RemoteReply<'_>, Error> {
        let is_in_session = headers.iter().any(|(name, _)| *name == SESSION_ID);
        let accept = "application/json, text/event-stream";
        let sent = self
            .request(agent.post(&self.url), headers, accept)
            .header(header::CONTENT_TYPE, "application/json")
            .send(body);
        self.opened(sent, is_in_session)
    }

    /// Opens the event stream of a session.
    ///
    /// # Errors
    /// As of [`Remote::post`].
    pub(super) fn listen(&self, session: &RemoteSession) -> Result<RemoteReply<'_>, Error> {
        let request = session.stream.get(&self.url);
        let sent = self
            .request(request, session.headers(), "text/event-stream")
            .call();
        self.opened(sent, true)
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<Arc<RemoteSession>> {
        lock(&self.session).clone()
    }

    /// Is this still the session?
    pub(super) fn is_current(&self, session: &Arc<RemoteSession>) -> bool {
        lock(&self.session)
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, session))
    }

    /// Begins a session, in the place of another.
    pub(super) fn enter(&self, id: String, version: String) -> Arc<RemoteSession> {
        self.leave();
        let session = Arc::new(RemoteSession {
            id,
            version,
            stream: self.new_agent(),
        });
        *lock(&self.session) = Some(session.clone());
        session
    }

    /// Ends the session, if there is one: the server stops what it does for it.
    pub(super) fn leave(&self) {
        let Some(session) = lock(&self.session).take() else {
            return;
        };
        session.stream.clone().shutdown();
        let request = self.new_agent().delete(&self.url);
        let request = self.request(request, session.headers(), "application/json");
        let limited = request.config().timeout_global(Some(LEAVE)).build();
        if let Err(error) = limited.call() {
            log::debug!("the session was not ended: {error}");
        }
    }

    fn opened(
        &self,
        sent: Result<Response<Body>, ureq::Error>,
        is_in_session: bool,
    ) -> Result<RemoteReply<'_>, Error> {
        let (head, body) = sent.map_err(|error| self.failed(error))?.into_parts();
        let status = head.status.as_u16();
        let value = |name: &str| head.headers.get(name)?.to_str().ok();
        let media = value("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let is_stream = media.eq_ignore_ascii_case("text/event-stream");
        let is_json = media.eq_ignore_ascii_case("application/json");
        let body = body.into_with_config().limit(u64::MAX).reader();
        let reply = |input| RemoteReply {
            remote: self,
            session: value(SESSION_ID).map(str::to_owned),
            is_stream,
            input,
        };
        if status == 202 || (status == 200 && (is_stream || is_json)) {
            return Ok(reply(Box::new(BufReader::new(body))));
        }
        let mut text = Vec::new();
        // What is cut off says nothing, which is no second error.
        let _ = body.take(MAX_REFUSAL).read_to_end(&mut text);
        let said: Value = serde_json::from_slice(&text).unwrap_or_default();
        let is_lost = status == 404 && is_in_session;
        if is_json && !is_lost && !said["id"].is_null() {
            return Ok(reply(Box::new(Cursor::new(said.to_string()))));
        }
        let words = said["error"]["message"].as_str().unwrap_or_default();
        let after = value("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        let error = self.refused(status, is_lost, &shown(words, QUOTED));
        Err(Error {
            retry_after: after.map(Duration::from_secs),
            ..error.after_status(status)
        })
    }

    /// The error for an answer with this status that is no JSON-RPC answer. `said` are the server's words.
    fn refused(&self, status: u16, is_lost: bool, said: &str) -> Error {
        let (kind, what, fix) = match status {
            300..=399 => (
                Kind::ApiError,
                "answers with a redirect, which is not followed: the token would go along",
                "Give --connect the URL that it leads to, which `curl -sI URL` shows.",
            ),
            401 if self.authorization.is_none() => (
                Kind::Forbidden,
                "asks for a token, and there is none",
                "Set FABRIC_MCP_AUTH_TOKEN in this client's settings to the token that you got for the server, then start \
                 the client again.",
            ),
            401 => (
                Kind::Forbidden,
                "refuses the token in FABRIC_MCP_AUTH_TOKEN or --auth-token-file",
                "It may be mistyped, have been removed or have expired: get a valid one, put it there, and start the \
                 client again.",
            ),
            400 | 413 => (
                Kind::InvalidRequest,
                "refuses this message",
                "Correct it, then send it again.",
            ),
            403 => (
                Kind::Forbidden,
                "does not allow this",
                "Whoever runs it can.",
            ),
            404 if is_lost => (
                Kind::InvalidRequest,
                "has ended this session",
                "Start the client again, or this server in it.",
            ),
            429 | 503 => (
                Kind::TooManyRequests,
                "has too much to do",
                "Try again in a moment.",
            ),
            502 | 504 => (
                Kind::ApiUnavailable,
                "is not reached by the proxy in front of it",
                "Try again in a moment; if it stays so, tell whoever runs it.",
            ),
            500.. => (Kind::ApiError, "failed", "Its own log tells why."),
            _ => (
                Kind::ApiError,
                "does not answer as an MCP server there",
                "Check the URL of --connect, and its path: that of fabric-mcp is /mcp.",
            ),
        };
        let said = match said {
            "" => String::new(),
            said => format!(" It says: {said}"),
        };
        let url = &self.url;
        let detail = format!("The server at {url} {what} (HTTP {status}).{said} {fix}");
        Error::new(kind, detail)
    }

    /// The error for an answer that holds something else than messages.
    pub(super) fn not_mcp(&self) -> Error {
        self.refused(200, false, "")
    }

    /// The error for a request without an answer.
    fn failed(&self, error: ureq::Error) -> Error {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let fix = match &error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => "",
            ureq::Error::Timeout(_) => return self.cut(),
            ureq::Error::Io(error) => match error.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                    return self.cut();
                }
                ErrorKind::InvalidData => {
                    " If its certificate is of an authority of your own, set SSL_CERT_FILE to a PEM file with that \
                     authority's."
                }
                _ => "",
            },
            _ => "",
        };
        let (url, why) = (&self.url, agent::explain(error, CONNECT_TIMEOUT));
        let detail = format!(
            "The server at {url} {why}. Check the URL of --connect, the network, and that the server runs.{fix}"
        );
        Error::new(Kind::ApiUnavailable, detail)
    }

    /// The error for an answer that breaks off, or never begins: the request may have been read.
    pub(super) fn cut(&self) -> Error {
        let detail = format!(
            "The connection to the server at {} broke before the answer was there. Nothing is sent twice: a run that had \
             begun may go on, so look with fabric_get_run before you start it again.",
            self.url
        );
        Error::new(Kind::StreamInterrupted, detail)
    }
}

/// An answer, whose messages are unread.
pub(super) struct RemoteReply<'r> {
    remote: &'r Remote,
    /// The session that it opens.
    pub(super) session: Option<String>,
    is_stream: bool,
    input: Box<dyn BufRead + 'r>,
}

impl RemoteReply<'_> {
    /// Reads the next message, which fabric-mcp always writes as one line. False if there is none.
    ///
    /// # Errors
    /// The answer breaks off, or the message is longer than [`MAX_MESSAGE`].
    pub(super) fn next(&mut self, message: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            match read_line(&mut self.input, message) {
                Err(_) => return Err(self.remote.cut()),
                Ok(None) => return Ok(false),
                Ok(Some(LineSize::TooLong(_))) => {
                    let detail = format!(
                        "The answer has more than {} MiB, the limit of --connect. If it is of a run, get it in parts: \
                         fabric_get_run with max_chars and offset.",
                        MAX_MESSAGE >> 20
                    );
                    return Err(Error::new(Kind::ResponseTooLarge, detail));
                }
                Ok(Some(LineSize::Fits)) if self.is_stream => {
                    // Else it is a comment, or the end of an event.
                    if message.starts_with(b"data: ") {
                        message.drain(..6);
                        return Ok(true);
                    }
                }
                Ok(Some(LineSize::Fits)) if is_blank(message) => {}
                Ok(Some(LineSize::Fits)) => return Ok(true),
            }
        }
    }
}
