//! `--connect`: stdio on one side, the Streamable HTTP of another fabric-mcp on the other, for clients that only start
//! programs.
//!
//! ```text
//!   stdin ─▶ one reader ─┬─ a request ─▶ thread ─▶ POST ─▶ its messages ────────────────┐
//!                        ├─ initialize ─▶ POST, before the next line ─▶ its messages ───┼─▶ one writer ─▶ stdout
//!                        ├─ what is no message ─────────────────────────────────────────┘
//!                        ├─ a notification ─▶ POST, before the next line
//!                        └─ modern cancellation ─▶ closes that response
//! ```
//! In scope: the session, ids that wait, cancelling, the end. Not in scope: what messages mean, beyond their era. A message
//! is sent once: a run costs money. A batch is one request, which is answered by one array.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::{self, Response};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody, Body, Timeout};

use crate::account::{Accounts, Reservation, Resource};
use crate::agent::{self, Lookups};
use crate::config::{Connect, SSE_COMMENT};
use crate::encoding::{base64, json::decode};
use crate::error::{Error, Kind};
use crate::protocol::inbound::cancelled;
use crate::protocol::jsonrpc::{self, INVALID_REQUEST, Message};
use crate::protocol::{ID_IN_USE, Id, Inbound, Refusal, SESSION_HEADER, VERSION_HEADER, mirrors};
use crate::server::refuse;
use crate::sync::lock;
use crate::text::shown;
use crate::tools::Peer;
use crate::transport::start;
use crate::transport::stdio::{BUFFER, STDIO_DRAIN, Writer, read_lines};

/// An answer is read in pieces of at most this many bytes.
const PIECE: u64 = 16 << 10;
/// Requests at once, each with a thread and a connection; as many subscriptions. Further ones are refused and do not wait:
/// the reader would wait with them, and then could not read the cancellation that makes room.
const MAX_PENDING: usize = 64;
/// Most bytes of all messages that are on their way, in both directions. One answer may take them all.
const MAX_HELD: usize = 64 << 20;
/// Longest time for looking up the server's name, for connecting, and for `initialize` with all of its reply. The next line
/// belongs to the session that it opens, and waits for it; so does the end of input.
const OPENING: Duration = Duration::from_secs(10);
/// Longest time for a notification, which the next line must not overtake.
const TELLING: Duration = Duration::from_secs(5);
/// Longest time for ending the session.
const LEAVING: Duration = Duration::from_secs(2);
/// Longest silence of the server, which sends a comment every [`SSE_COMMENT`].
const SILENCE: Duration = SSE_COMMENT.saturating_mul(6);
/// Longest message whose values are looked at, in bytes.
const MAX_SMALL: usize = 64 << 10;
/// How much of the server's own words an error quotes, in characters.
const QUOTED: usize = 500;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// What `--check` sends.
const INITIALIZE: &[u8] =
    br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
    "capabilities":{},"clientInfo":{"name":"fabric-mcp --check","version":"1"}}}"#;

// The words of errors.
const TOKEN: &str = "refuses the token in FABRIC_MCP_AUTH_TOKEN or --auth-token-file, or got \
    none. Put the token that you were given for this server there, then start the client again.";
const ENDED: &str = "has ended this session. Start the client again, or restart this server from within the client.";
const FAILED: &str = "failed, or a proxy in front of it got no answer. Its own log says why. A \
    run that had begun may go on, so look with fabric_get_run before you start it again.";
const NO_SERVER: &str = "does not answer as an MCP server. Check the URL of --connect, https or \
    http, and its path: that of fabric-mcp is /mcp. A redirect is not followed, because the token \
    would go with it: give --connect the URL that it leads to. A server with --transport sse \
    cannot be used.";
const CUT: &str = "broke the connection before the answer was there. Nothing is sent twice: a run \
    that had begun may go on, so look with fabric_get_run before you start it again.";
const UNREACHED: &str = "Check the URL of --connect, the network, and whether the server is \
    running. If the error is about the certificate, put a host name of the certificate into the \
    URL. With an authority of your own, set SSL_CERT_FILE to a PEM file with its certificate; a \
    self-signed certificate must say CA:FALSE.";
const TOO_LARGE: &str = "The answer does not fit into the 64 MiB that --connect has for all \
    messages on their way. Get the output of a run in parts: fabric_get_run with max_chars and \
    offset.";
const FULL: &str = "This request was not sent: 64 others are waiting for their answers, or \
    messages take up 64 MiB, and these are the limits of --connect. Cancel one, or try again when \
    one has been answered.";

/// The headers that not every request has.
type Headers = Vec<(&'static str, String)>;
type Reply = Result<Response<Body>, ureq::Error>;

/// Opens a session and ends it, and says how that went.
///
/// # Errors
/// Why the server cannot be used, and what to do.
pub(crate) fn check(settings: &Connect) -> Result<String, String> {
    let relay = Relay::new(settings, |_| nobody())?;
    let (begun, id) = (Instant::now(), Id::Number(1.into()));
    let request = relay.request(vec![id], Headers::new(), Some(OPENING));
    let mut opened = relay.exchange(&request, INITIALIZE);
    if opened.is_ok() && lock(&relay.session).is_empty() {
        opened = Err(relay.refused(200, false, ""));
    }
    relay.leave();
    let token = match settings.token {
        Some(_) => "accepts the token",
        None => "asks for no token",
    };
    let (url, time) = (&settings.url, begun.elapsed().as_millis());
    let report = format!("The server at {url} answers in {time} ms, and {token}.\n");
    opened.map(|()| report).map_err(|error| error.detail)
}

/// Whether the server at this URL has callers sign in at an OAuth issuer, as its answer to one without a token says.
pub(crate) fn asks_for_oauth(settings: &Connect) -> bool {
    let Ok(relay) = Relay::new(settings, |_| nobody()) else {
        return false;
    };
    let request = relay.request(vec![], Headers::new(), Some(LEAVING));
    relay.send("GET", &request, ()).is_ok_and(|reply| {
        let mut challenges = reply.headers().get_all("WWW-Authenticate").iter();
        challenges.any(|it| String::from_utf8_lossy(it.as_bytes()).contains("resource_metadata"))
    })
}

/// A client that everything is dropped for.
fn nobody() -> Arc<Writer> {
    Arc::new(Writer::new(io::sink(), || ()))
}

/// The two sides.
pub(crate) struct Relay {
    settings: Connect,
    config: ureq::config::Config,
    lookups: Lookups,
    /// The headers of every message in the session; without one, none.
    session: Mutex<Headers>,
    /// Hands out places and [`MAX_HELD`].
    accounts: Accounts,
    client: Arc<dyn Peer>,
    pending: Mutex<Vec<Arc<PendingRequest>>>,
}

/// What goes to the server: a line, until the server has said all about it.
struct PendingRequest {
    /// The ids of all that needs an answer.
    ids: Vec<Id>,
    /// Those that are neither answered nor cancelled. Once there are none, nothing more is written.
    waiting: Mutex<Vec<Id>>,
    headers: Headers,
    /// Longest time for it and for all of its reply.
    limit: Option<Duration>,
    /// For this request alone, because only an agent as a whole can be interrupted. The connection is new: an idle one
    /// may be closing, and a request that is lost in it must not be sent again.
    agent: Agent,
}

impl PendingRequest {
    /// Whether one of these ids is waiting, and all are its own. If so, none of them waits any more.
    fn claim(&self, ids: &[&Id]) -> bool {
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        if ids.iter().all(|id| self.ids.contains(id)) {
            waiting.retain(|id| !ids.contains(&id));
        }
        waiting.len() < before
    }

    fn is_over(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// Is it of a session? Otherwise closing its response cancels it.
    fn has_session(&self) -> bool {
        self.headers.iter().any(|(name, _)| *name == SESSION_HEADER)
    }
}

impl Relay {
    /// Between the server and this client; connects to nothing yet.
    ///
    /// # Errors
    /// Which setting cannot work, and why.
    pub(crate) fn new<P: Peer + 'static>(
        settings: &Connect,
        client: impl FnOnce(&Weak<Relay>) -> Arc<P>,
    ) -> Result<Arc<Relay>, String> {
        let config = agent::config("--connect", &settings.url)?
            .accept(format!("{JSON}, {STREAM}"))
            .timeout_resolve(Some(OPENING))
            .timeout_connect(Some(OPENING))
            .timeout_per_write(Some(SILENCE))
            .timeout_per_read(Some(SILENCE));
        Ok(Arc::new_cyclic(|relay| Relay {
            settings: settings.clone(),
            config: config.build(),
            lookups: Lookups::new(),
            session: Mutex::default(),
            accounts: Accounts::alone(MAX_HELD),
            client: client(relay),
            pending: Mutex::default(),
        }))
    }

    /// Passes on what comes from `input` to its end, then waits [`STDIO_DRAIN`] for answers and ends the session.
    ///
    /// # Errors
    /// The errors of reading `input`, which count as its end.
    pub(crate) fn serve(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        log::info!("passing messages on to {}", self.settings.url);
        let input = BufReader::with_capacity(BUFFER, input);
        let read = read_lines(input, |line| match line {
            Ok(line) => self.pass_on(std::mem::take(line)),
            Err((id, refusal)) => self.answer(id, refusal),
        });
        self.accounts.wait_idle(STDIO_DRAIN);
        self.leave();
        read
    }

    /// Ends the session, if there is one, so that the server stops the work of that session.
    pub(crate) fn leave(&self) {
        let headers = std::mem::take(&mut *lock(&self.session));
        if !headers.is_empty() {
            // If that fails, the server will forget it.
            let _ = self.send("DELETE", &self.request(vec![], headers, Some(LEAVING)), ());
        }
    }

    /// Passes on a line. Does not wait for an answer, but to `initialize` and notifications.
    pub(crate) fn pass_on(self: &Arc<Self>, line: Vec<u8>) {
        let inbound = Inbound::read(&line, false);
        let ids = inbound.ids();
        match &inbound.messages[..] {
            [Err((id, code, reason))] if !inbound.is_batch => {
                return self.answer(id.clone(), Refusal::new(*code, *reason));
            }
            [Ok(Message::Notification { method, params })] => {
                self.cancel(cancelled(method, params.as_ref()).as_ref());
            }
            _ => {}
        }
        if ids.is_empty() {
            return self.tell(&line);
        }
        let needs = match inbound.request() {
            // A subscription may last as long as the client.
            Some(one) if one.method == "subscriptions/listen" => Resource::Streams,
            _ => Resource::CallThreads,
        };
        let limit = inbound.initialize.then_some(OPENING);
        let request = Arc::new(self.request(ids, self.headers(&inbound), limit));
        drop(inbound);
        let (relay, sent) = (self.clone(), request.clone());
        let begun = self.admit(&request, needs, line.len()).and_then(|held| {
            let work = move || {
                let done = relay.exchange(&sent, &line);
                relay.end(&sent, done.err().unwrap_or_else(Error::cancelled).into());
                drop((line, held));
            };
            if limit.is_none() {
                return Ok(start(Box::new(work))?);
            }
            work();
            Ok(())
        });
        if let Err(refusal) = begun {
            self.end(&request, refusal);
        }
    }

    /// The headers of the session, or those that repeat parts of a modern request.
    fn headers(&self, inbound: &Inbound<'_>) -> Headers {
        match inbound.request() {
            _ if inbound.initialize => Headers::new(),
            Some(request) if inbound.modern => mirrors(request)
                .filter_map(|(name, _, value)| Some((name, base64::to_header(value?).into())))
                .collect(),
            _ => lock(&self.session).clone(),
        }
    }

    fn request(&self, ids: Vec<Id>, headers: Headers, limit: Option<Duration>) -> PendingRequest {
        let (config, lookups) = (self.config.clone(), self.lookups.clone());
        PendingRequest {
            ids: ids.clone(),
            waiting: Mutex::new(ids),
            headers,
            limit,
            agent: Agent::with_parts(config, DefaultConnector::new(), lookups),
        }
    }

    /// Accepts a request of this many bytes, unless one of its ids is in use or there is too much already. Returns what
    /// the request holds.
    fn admit(
        &self,
        new: &Arc<PendingRequest>,
        what: Resource,
        size: usize,
    ) -> Result<[Reservation; 2], Refusal> {
        let mut pending = lock(&self.pending);
        let is_new = |id: &Id| *id != Id::Null && new.ids.contains(id);
        let has_one = |other: &Arc<PendingRequest>| lock(&other.waiting).iter().any(is_new);
        if pending.iter().any(has_one) {
            return Err(Refusal::new(INVALID_REQUEST, ID_IN_USE));
        }
        let account = self.accounts.of("");
        match (account.take(what, 1), account.take(Resource::Memory, size)) {
            (Ok(one), Ok(memory)) if account.held(what) <= MAX_PENDING => {
                pending.push(new.clone());
                Ok([one, memory])
            }
            _ => Err(Error::new(Kind::TooManyRequests, FULL).into()),
        }
    }

    /// Makes sure that nothing more is written for the request with this id. Of a batch, only what also answers other
    /// requests is still written.
    fn cancel(&self, id: Option<&Id>) {
        for request in lock(&self.pending).iter() {
            if request.claim(id.as_slice()) && request.is_over() && !request.has_session() {
                request.agent.clone().shutdown();
            }
        }
    }

    /// Passes on a notification. Without a session it is dropped, because a stateless server has no use for it.
    fn tell(&self, notification: &[u8]) {
        let request = self.request(vec![], lock(&self.session).clone(), Some(TELLING));
        if !request.headers.is_empty()
            && let Err(error) = self.send("POST", &request, notification)
        {
            log::warn!("a notification was not passed on: {error}");
        }
    }

    /// Sends a request, and passes on the messages of the reply until all is answered or cancelled.
    ///
    /// # Errors
    /// Why not all is.
    fn exchange(&self, request: &PendingRequest, line: &[u8]) -> Result<(), Error> {
        if request.is_over() {
            return Ok(());
        }
        let reply = self.send("POST", request, line);
        let reply = reply.map_err(|error| self.failed(error, false))?;
        if request.is_over() {
            // The cancellation of the request may have overtaken it, on another connection.
            for id in &request.ids {
                let params = json!({ "requestId": id });
                self.tell(&jsonrpc::notification("notifications/cancelled", &params));
            }
            return Ok(());
        }
        let status = reply.status().as_u16();
        let session = reply.headers().get(SESSION_HEADER);
        let session = session.map(|id| id.to_str().unwrap_or_default().to_owned());
        let media = reply.body().mime_type().unwrap_or_default().trim();
        let (is_stream, mut said) = (media.eq_ignore_ascii_case(STREAM), Value::Null);
        // JSON may be laid out over several lines. It never has a NUL.
        let end = if is_stream { b'\n' } else { 0 };
        let is_lost = status == 404 && request.has_session();
        let body = reply.into_body().into_with_config().limit(u64::MAX);
        let mut input = BufReader::new(body.reader());
        while let Some((mut line, _held)) = self.next(&mut input, end)? {
            line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
            // In a stream the other lines are comments, and the ends of events.
            let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
            let message = text.strip_prefix(b"data:").unwrap_or(text).trim_ascii();
            let small = Some(message).filter(|message| message.len() <= MAX_SMALL);
            said = small.and_then(decode).unwrap_or_default();
            let inbound = Inbound::read(message, false);
            let answered = inbound.answered();
            if !is_lost && request.claim(&answered) {
                let opened = session.as_deref().filter(|_| request.limit.is_some());
                let opened = opened.map(|id| self.enter(id, &said, message));
                self.client
                    .notify(opened.as_deref().unwrap_or(message), &|| true);
            } else if answered.is_empty() && !inbound.is_invalid() {
                self.client.notify(message, &|| !request.is_over());
            }
            if request.is_over() {
                return Ok(());
            }
        }
        let said = said["error"]["message"].as_str().unwrap_or_default();
        Err(match is_stream && status == 200 {
            true => self.failed(io::Error::from(ErrorKind::UnexpectedEof).into(), true),
            false => self.refused(status, is_lost, said),
        })
    }

    /// The next part of a reply, to this byte, and the memory it takes; `None` at the end.
    fn next(
        &self,
        input: &mut impl BufRead,
        end: u8,
    ) -> Result<Option<(Vec<u8>, Reservation)>, Error> {
        let (mut line, mut held) = (Vec::new(), self.accounts.of("").open(Resource::Memory));
        let too_large = |_| Error::new(Kind::ResponseTooLarge, TOO_LARGE);
        while !line.ends_with(&[end]) {
            let piece = input.take(PIECE).read_until(end, &mut line);
            match piece.map_err(|error| self.failed(error.into(), true))? {
                0 => break,
                more => held.grow(more).map_err(too_large)?,
            }
        }
        Ok(Some((line, held)).filter(|(line, _)| !line.is_empty()))
    }

    /// Begins the session with this id that an answer to `initialize` opens, in the place of another. Returns the answer
    /// without the offer to tell of changed lists: that needs a stream beside the requests, and there is none.
    fn enter(&self, id: &str, said: &Value, answer: &[u8]) -> Vec<u8> {
        if let Some(version) = said["result"]["protocolVersion"].as_str() {
            self.leave();
            let version = (VERSION_HEADER, version.to_owned());
            *lock(&self.session) = vec![(SESSION_HEADER, id.to_owned()), version];
        }
        let answer = String::from_utf8_lossy(answer);
        let answer = answer.replace(r#""listChanged":true"#, r#""listChanged":false"#);
        answer.into()
    }

    /// Ends a request. What has no answer gets this one.
    fn end(&self, request: &Arc<PendingRequest>, refusal: Refusal) {
        lock(&self.pending).retain(|other| !Arc::ptr_eq(other, request));
        let unanswered = std::mem::take(&mut *lock(&request.waiting));
        for id in unanswered {
            self.answer(Some(id), refusal.clone());
        }
    }

    /// Answers ourselves.
    fn answer(&self, id: Option<Id>, refusal: Refusal) {
        let id = id.unwrap_or(Id::Null);
        self.client.answer(refuse(refusal, Some(&id), false));
    }

    /// Sends something to the server, once.
    fn send(&self, method: &str, request: &PendingRequest, body: impl AsSendBody) -> Reply {
        let token = self.settings.token.as_ref();
        let token = token.map(|token| ("Authorization", format!("Bearer {}", token.expose())));
        let head = http::Request::builder().method(method);
        let mut head = head.uri(&self.settings.url).header("Content-Type", JSON);
        for (name, value) in request.headers.iter().chain(&token) {
            head = head.header(*name, value);
        }
        let sent = request.agent.configure_request(head.body(body)?);
        let sent = sent.timeout_global(request.limit).build();
        request.agent.run(sent)
    }

    /// The error for a reply with this status that does not answer all. `said` are the server's words.
    fn refused(&self, status: u16, is_lost: bool, said: &str) -> Error {
        let (kind, words) = match status {
            401 => (Kind::Forbidden, TOKEN),
            403 => (Kind::Forbidden, "refuses this."),
            400 | 413 if !said.is_empty() => (Kind::ApiError, "refuses this."),
            404 if is_lost => (Kind::ApiError, ENDED),
            429 | 503 => (Kind::TooManyRequests, "is busy. Try again in a moment."),
            500.. => (Kind::ApiError, FAILED),
            _ => (Kind::ApiError, NO_SERVER),
        };
        let mut words = format!("HTTP {status}: the server at {} {words}", self.settings.url);
        if !said.is_empty() {
            words += &format!(" It says: {}", shown(said, QUOTED));
        }
        Error::new(kind, words)
    }

    /// The error for no reply, or for a part of one.
    fn failed(&self, error: ureq::Error, has_begun: bool) -> Error {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        use Timeout::{Connect, Global, Resolve};
        let is_cut = match &error {
            ureq::Error::Timeout(late) => !matches!(late, Connect | Resolve | Global),
            ureq::Error::Io(error) if !has_begun => matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            ),
            _ => has_begun,
        };
        let why = agent::reason(error, OPENING);
        let (kind, words) = match is_cut {
            true => (Kind::StreamInterrupted, CUT.to_owned()),
            false => (Kind::ApiUnavailable, format!("{why}. {UNREACHED}")),
        };
        Error::new(kind, format!("The server at {} {words}", self.settings.url))
    }
}
