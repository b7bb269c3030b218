//! The server that messages are passed on to: connections, the session, and what its answers mean.
//!
//! Every request has an [`Agent`], with its one connection, to itself: another thread can only interrupt an agent as a
//! whole. Idle agents are kept for the next request.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use ureq::http::Request;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody, Timeout};

use crate::agent::{self, Lookups};
use crate::config::{Connect, MAX_MESSAGE, SSE_COMMENT};
use crate::encoding::json::decode;
use crate::error::{Error, Kind};
use crate::protocol::jsonrpc::is_blank;
use crate::sync::lock;
use crate::text::shown;
use crate::transport::stdio::{LineSize, read_line, within};

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

/// The headers that not every request has.
pub(super) type Headers = Vec<(&'static str, String)>;

/// The server, and our session there.
pub(super) struct Remote {
    pub(super) settings: Connect,
    config: ureq::config::Config,
    lookups: Lookups,
    idle: Mutex<Vec<Agent>>,
    session: Mutex<Option<Arc<RemoteSession>>>,
}

/// A legacy session.
pub(super) struct RemoteSession {
    /// The headers of every message in it.
    pub(super) headers: Headers,
    /// The agent of its event stream.
    pub(super) stream: Agent,
}

impl Remote {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Which setting cannot work, and why.
    pub(super) fn new(settings: &Connect) -> Result<Remote, String> {
        let ca_file = settings.ca_file.as_deref();
        let config = agent::config("--connect", &settings.url, ca_file, BUFFER, 1)?
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_write(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build();
        Ok(Remote {
            settings: settings.clone(),
            config,
            lookups: Lookups::new(),
            idle: Mutex::default(),
            session: Mutex::default(),
        })
    }

    /// An agent for one request.
    pub(super) fn agent(&self) -> Agent {
        let idle = lock(&self.idle).pop();
        idle.unwrap_or_else(|| {
            let (config, lookups) = (self.config.clone(), self.lookups.clone());
            Agent::with_parts(config, DefaultConnector::new(), lookups)
        })
    }

    /// Keeps an agent whose connection can be used again.
    pub(super) fn keep(&self, agent: Agent) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(agent);
        }
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<Arc<RemoteSession>> {
        lock(&self.session).clone()
    }

    /// Begins the session with this id that the answer to `initialize` opens, in the place of another.
    pub(super) fn enter(self: &Arc<Self>, id: String, answer: &[u8]) -> Arc<RemoteSession> {
        self.leave();
        let answer: Value = decode(answer).unwrap_or_default();
        let version = answer["result"]["protocolVersion"].as_str();
        let version = version.unwrap_or_default().to_owned();
        let session = Arc::new(RemoteSession {
            headers: vec![(SESSION_ID, id), (VERSION, version)],
            stream: self.agent(),
        });
        *lock(&self.session) = Some(session.clone());
        session
    }

    /// Ends the session, if there is one: the server stops what it does for it.
    pub(super) fn leave(self: &Arc<Self>) {
        let Some(session) = lock(&self.session).take() else {
            return;
        };
        session.stream.clone().shutdown();
        let remote = self.clone();
        within(LEAVE, move || {
            // If that fails, the server will forget it.
            let _ = remote.send(&remote.agent(), "DELETE", session.headers.clone(), ());
        });
    }

    /// Sends a request, once.
    ///
    /// # Errors
    /// Anything but an answer that may hold messages.
    pub(super) fn send(
        &self,
        agent: &Agent,
        method: &str,
        mut headers: Headers,
        body: impl AsSendBody,
    ) -> Result<RemoteReply<'_>, Error> {
        let is_in_session = headers.iter().any(|(name, _)| *name == SESSION_ID);
        let token = self.settings.token.as_ref();
        headers.extend(token.map(|token| ("Authorization", format!("Bearer {}", token.expose()))));
        let request = Request::builder()
            .method(method)
            .uri(&self.settings.url)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = headers.into_iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let request = request.body(body).map_err(ureq::Error::from);
        let response = request.and_then(|request| agent.run(request));
        let response = response.map_err(|error| self.failed(error))?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let value = |name: &str| head.headers.get(name)?.to_str().ok();
        let media = value("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let is_json = media.eq_ignore_ascii_case("application/json");
        let is_stream = media.eq_ignore_ascii_case("text/event-stream");
        let body = body.into_with_config().limit(u64::MAX).reader();
        let session = value(SESSION_ID).map(str::to_owned);
        let reply = |input| RemoteReply {
            remote: self,
            session,
            is_stream,
            input,
        };
        if matches!(status, 202 | 204) || (status == 200 && (is_stream || is_json)) {
            return Ok(reply(Box::new(BufReader::new(body))));
        }
        let mut text = Vec::new();
        // What is cut off says nothing, which is no second error.
        let _ = body.take(MAX_REFUSAL).read_to_end(&mut text);
        let said: Value = decode(&text).unwrap_or_default();
        let is_lost = status == 404 && is_in_session;
        if is_json && !is_lost && !said["id"].is_null() {
            return Ok(reply(Box::new(Cursor::new(said.to_string()))));
        }
        let words = said["error"]["message"].as_str().unwrap_or_default();
        Err(self.refused(status, is_lost, &shown(words, QUOTED)))
    }

    /// The error for an answer with this status that is no JSON-RPC answer. `said` are the server's words.
    fn refused(&self, status: u16, is_lost: bool, said: &str) -> Error {
        let kind = match status {
            401 | 403 => Kind::Forbidden,
            429 | 503 => Kind::TooManyRequests,
            _ => Kind::ApiError,
        };
        let what = match status {
            300..=399 => {
                "answers with a redirect, which is not followed: the token would go along. Give --connect the URL that it \
                 leads to, which `curl -sI URL` shows."
            }
            401 if self.settings.token.is_none() => {
                "asks for a token, and there is none. Set FABRIC_MCP_AUTH_TOKEN in the client's settings to the one that \
                 you got for this server, then start the client again."
            }
            401 => {
                "refuses the token of FABRIC_MCP_AUTH_TOKEN or --auth-token-file: it is mistyped, was removed or has \
                 expired. Put a valid one there, then start the client again."
            }
            400 | 403 | 413 if !said.is_empty() => "refuses this.",
            404 if is_lost => {
                "has ended this session. Start the client again, or this server in it."
            }
            429 | 503 => "has too much to do. Try again in a moment.",
            502 | 504 => {
                "gave the proxy in front of it no answer: a run that had begun may go on, so look with fabric_get_run \
                 before you start it again."
            }
            500.. => "failed. Its own log tells why.",
            _ => {
                "does not answer as an MCP server. Check the URL of --connect, https or http, and its path: that of \
                 fabric-mcp is /mcp. A server with --transport sse will not do."
            }
        };
        let mut detail = format!("HTTP {status}: the server at {} {what}", self.settings.url);
        if !said.is_empty() {
            detail.push_str(&format!(" It says: {said}"));
        }
        Error::new(kind, detail).after_status(status)
    }

    /// The error for an answer that holds something else than messages.
    pub(super) fn not_mcp(&self) -> Error {
        self.refused(200, false, "")
    }

    /// The error for a request without an answer.
    fn failed(&self, error: ureq::Error) -> Error {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let check = "Check the URL of --connect, the network, and that the server runs.";
        let fix = match &error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => check,
            ureq::Error::Timeout(_) => return self.cut(),
            ureq::Error::Io(error) => match error.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                    return self.cut();
                }
                // As rustls says it.
                ErrorKind::InvalidData if error.to_string().contains("not valid for name") => {
                    "Use a name of its certificate in the URL."
                }
                ErrorKind::InvalidData => {
                    "If an authority of your own made its certificate, set SSL_CERT_FILE to a PEM file with that \
                     authority's. A self-signed certificate works too, if it says CA:FALSE."
                }
                _ => check,
            },
            _ => check,
        };
        let why = agent::explain(error, CONNECT_TIMEOUT);
        let detail = format!("The server at {} {why}. {fix}", self.settings.url);
        Error::new(Kind::ApiUnavailable, detail)
    }

    /// The error for an answer that breaks off, or never begins: the request may have been read.
    pub(super) fn cut(&self) -> Error {
        let detail = format!(
            "The connection to the server at {} broke before the answer was there. Nothing is sent twice: a run that had \
             begun may go on, so look with fabric_get_run before you start it again.",
            self.settings.url
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
            match read_line(&mut self.input, message).map_err(|_| self.remote.cut())? {
                None => return Ok(false),
                Some(LineSize::TooLong(_)) => {
                    let detail = format!(
                        "The answer has more than {} MiB, the limit of --connect. If it is of a run, get it in parts: \
                         fabric_get_run with max_chars and offset.",
                        MAX_MESSAGE >> 20
                    );
                    return Err(Error::new(Kind::ResponseTooLarge, detail));
                }
                Some(LineSize::Fits) if self.is_stream && message.starts_with(b"data: ") => {
                    message.drain(..6);
                    return Ok(true);
                }
                // A comment, or the end of an event.
                Some(LineSize::Fits) if self.is_stream || is_blank(message) => {}
                Some(LineSize::Fits) => return Ok(true),
            }
        }
    }
}
