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
//! is sent once: a run costs money. A batch is one request. Its answers are passed on as they come; our own server
//! sends them as one array.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::{self, HeaderValue, Response};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody, Body};

use crate::account::{Accounts, Resource};
use crate::agent::{self, Lookups};
use crate::config::{Connect, SSE_COMMENT};
use crate::encoding::{base64, json::decode};
use crate::fabric::{CallObserver, Cause, Error, Interruptible, Kind, Observer, cause_of, watch};
use crate::http::JSON;
use crate::protocol::inbound::{cancelled, id_to_answer};
use crate::protocol::jsonrpc;
use crate::protocol::{Answer, Id, Inbound, Refusal, SESSION_HEADER, VERSION_HEADER, mirrors};
use crate::server::refuse;
use crate::sync::lock;
use crate::text::shown;
use crate::tools::Peer;
use crate::transport::inflight::{Cancel, Inflight};
use crate::transport::start;
use crate::transport::stdio::{BUFFER, STDIO_DRAIN, Writer, read_lines};

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
const CUT: &str = "broke the connection or fell silent before its answer. Nothing is sent twice: a \
    run that had begun may go on, so look with fabric_get_run before you start it again.";
const UNREACHED: &str = "Check the URL of --connect, the network, and whether the server is \
    running. If the error is about the certificate, put a host name of the certificate into the \
    URL. For a certificate of your own, fabric-mcp --help proxy says what to do.";
const TOO_LARGE: &str = "The answer does not fit into the 64 MiB that --connect has for all \
    messages. Get the output of a run in parts: fabric_get_run with max_chars and offset.";
const FULL: &str = "This request was not sent: 64 others are waiting for their answers, or \
    messages take up 64 MiB, the limits of --connect. Try again when one has been answered.";

/// The headers that not every request has.
type Headers = Vec<(&'static str, String)>;

/// Opens a session and ends it, and says how that went.
///
/// # Errors
/// Why the server cannot be used, and what to do.
pub(crate) fn check(settings: &Connect) -> Result<String, String> {
    let relay = Relay::new(settings, |_| Arc::new(Writer::new(io::sink(), || ())))?;
    let (begun, id) = (Instant::now(), Id::Number(1.into()));
    let request = Arc::new(RelayedRequest {
        needs: Resource::CallThreads,
        calls: vec![(id, Cancel::default())],
        headers: Headers::new(),
        limit: Some(OPENING),
    });
    let mut opened = relay.exchange(&request, INITIALIZE);
    if opened.is_ok() && lock(&relay.sessions).is_empty() {
        opened = Err(relay.reply_error(200, false, false, ""));
    }
    relay.leave();
    let token = settings.token.as_ref();
    let token = token.map_or("asks for no token", |_| "accepts the token");
    let (url, time) = (&settings.url, begun.elapsed().as_millis());
    let report = format!("The server at {url} answers in {time} ms, and {token}.\n");
    opened.map(|()| report).map_err(|error| error.detail)
}

/// The two sides.
pub(crate) struct Relay {
    settings: Connect,
    /// Opens a connection for each message: an idle one may be closing, and a request that is lost in it must not be
    /// sent again.
    agent: Agent,
    /// For each session, the headers that its messages carry; empty before the first session. The last session is the
    /// current one. Calls that began in an earlier session go on there.
    sessions: Mutex<Vec<Headers>>,
    /// Hands out places and [`MAX_HELD`].
    accounts: Accounts,
    client: Arc<dyn Peer>,
    inflight: Inflight,
}

/// A line that needs an answer.
struct RelayedRequest {
    /// The resource of which it holds one until it is over.
    needs: Resource,
    /// The id of each part that needs one, which is cancelled as well once it has one.
    calls: Vec<(Id, Cancel)>,
    headers: Headers,
    /// Longest time for `initialize` and all of its reply; other requests have none.
    limit: Option<Duration>,
}

impl CallObserver for RelayedRequest {
    /// An error once all of its parts are answered or cancelled. Then nothing more is written.
    fn still_waiting(&self) -> Result<(), Error> {
        let mut calls = self.calls.iter();
        let is_wanted = calls.any(|(_, cancel)| !cancel.is_cancelled());
        is_wanted.then_some(()).ok_or_else(Error::cancelled)
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
            .accept("application/json, text/event-stream")
            .timeout_resolve(Some(OPENING))
            .timeout_connect(Some(OPENING))
            .timeout_per_write(Some(SILENCE))
            .timeout_per_read(Some(SILENCE));
        let connector = Interruptible(DefaultConnector::new());
        Ok(Arc::new_cyclic(|relay| Relay {
            settings: settings.clone(),
            agent: Agent::with_parts(config.build(), connector, Lookups::new()),
            sessions: Mutex::default(),
            accounts: Accounts::alone(MAX_HELD),
            client: client(relay),
            inflight: Inflight::default(),
        }))
    }

    /// Passes on what comes from `input` to its end, then waits [`STDIO_DRAIN`] for answers and ends the session.
    ///
    /// # Errors
    /// The errors of reading `input`, which count as its end.
    pub(crate) fn serve(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        log::info!("passing messages on to {}", self.settings.url);
        let read = read_lines(input, |line| match line {
            Ok(line) => self.pass_on(std::mem::take(line)),
            Err((id, refusal)) => self.answer(id.as_ref(), refusal),
        });
        self.accounts.wait_idle(STDIO_DRAIN);
        self.leave();
        read
    }

    /// Ends the sessions, so that the server stops their work.
    pub(crate) fn leave(&self) {
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        for headers in sessions {
            // If that fails, the server will forget it.
            let _ = self.send("DELETE", &headers, Some(LEAVING), ());
        }
    }

    /// Passes on a line. Waits for an answer only if it is to `initialize` or to a notification.
    pub(crate) fn pass_on(self: &Arc<Self>, line: Vec<u8>) {
        let mut inbound = Inbound::read(&line, false);
        inbound.refuse_ids(|id| self.inflight.contains(id));
        let single = inbound.messages.first().filter(|_| !inbound.is_batch);
        if let Some(Err((id, code, reason))) = single {
            return self.answer(id.as_ref(), Refusal::new(*code, *reason));
        }
        // In their order, since a batch may cancel what it began.
        let begin = |message: &_| {
            cancelled(message).inspect(|id| self.inflight.cancel(id));
            let id = id_to_answer(message)?;
            // What repeats an id is not found by it.
            Some((id.clone(), self.inflight.begin(id).unwrap_or_default()))
        };
        let request = Arc::new(RelayedRequest {
            needs: match inbound.request() {
                // A subscription may last as long as the client.
                Some(one) if one.method == "subscriptions/listen" => Resource::Streams,
                _ => Resource::CallThreads,
            },
            calls: inbound.messages.iter().filter_map(begin).collect(),
            headers: match inbound.request() {
                _ if inbound.initialize => Headers::new(),
                // Those that repeat parts of the request.
                Some(request) if inbound.modern => mirrors(request)
                    .filter_map(|(name, _, value)| Some((name, base64::to_header(value?).into())))
                    .collect(),
                _ => lock(&self.sessions).last().cloned().unwrap_or_default(),
            },
            limit: inbound.initialize.then_some(OPENING),
        });
        drop(inbound);
        if request.calls.is_empty() {
            return self.tell(&line);
        }
        let account = self.accounts.of("");
        let held = account.take(Resource::Memory, line.len()).ok();
        let held = held.zip(account.take(request.needs, 1).ok());
        if held.is_none() || account.held(request.needs) > MAX_PENDING {
            return self.fail(&request, Error::new(Kind::TooManyRequests, FULL));
        }
        let (relay, sent) = (self.clone(), request.clone());
        let work = move || {
            let done = relay.exchange(&sent, &line);
            done.unwrap_or_else(|error| relay.fail(&sent, error));
            drop((line, held));
        };
        if request.limit.is_some() {
            work();
        } else if let Err(error) = start(Box::new(work)) {
            self.fail(&request, error);
        }
    }

    /// Passes on what needs no answer. Without a session it is dropped, because a stateless server has no use for it. Of
    /// several, each gets it: it may cancel a call of any of them.
    fn tell(&self, notification: &[u8]) {
        let sessions = lock(&self.sessions).clone();
        let send = |headers| self.send("POST", headers, Some(TELLING), notification);
        for error in sessions.iter().map(send).filter_map(Result::err) {
            log::warn!("a notification was not passed on: {error}");
        }
    }

    /// Sends a request, and passes on the messages of the reply until each part is answered or cancelled.
    ///
    /// # Errors
    /// Why a part has no answer.
    fn exchange(&self, request: &Arc<RelayedRequest>, line: &[u8]) -> Result<(), Error> {
        // Calls that are cancelled beside them are not sent.
        request.still_waiting()?;
        let has_session = matches!(request.headers[..], [(SESSION_HEADER, _), ..]);
        // Without a session, closing the response cancels the request. A subscription, which may be silent for hours,
        // does not check for that ten times a second, but at the server's next comment.
        let is_watched = !has_session && request.needs != Resource::Streams;
        let _watch = is_watched.then(|| watch(&(request.clone() as Observer)));
        let reply = self.send("POST", &request.headers, request.limit, line);
        let reply = reply.map_err(|error| self.failed(error, false))?;
        request.still_waiting().inspect_err(|_| {
            // The cancellation of the request may have overtaken it, on another connection.
            for (id, _) in &request.calls {
                let params = json!({ "requestId": id });
                self.tell(&jsonrpc::notification("notifications/cancelled", &params));
            }
        })?;
        let (head, body) = reply.into_parts();
        let status = head.status.as_u16();
        let media = body.mime_type().unwrap_or_default().trim();
        let is_stream = media.eq_ignore_ascii_case("text/event-stream");
        let (is_lost, mut said) = (status == 404 && has_session, Value::Null);
        let mut input = BufReader::new(body.into_reader());
        while request.still_waiting().is_ok()
            && let Some(message) = self.next(&mut input, is_stream)?
        {
            let small = Some(&*message.body).filter(|body| body.len() <= MAX_SMALL);
            said = small.and_then(decode).unwrap_or_default();
            let inbound = Inbound::read(&message.body, false);
            // An array answers nothing but an array.
            let fits = !inbound.is_batch || line.trim_ascii_start().starts_with(b"[");
            let answered = inbound.answered();
            let is_own = |id: &&Id| request.calls.iter().any(|(own, _)| own == *id);
            if fits && answered.is_empty() {
                let is_wanted = || !inbound.is_invalid() && request.still_waiting().is_ok();
                self.client.notify(&message.body, &is_wanted);
            } else if fits && !is_lost && answered.iter().all(is_own) {
                // Before it is over, since that ends all waits of this thread.
                let opens = request.limit.filter(|_| !said.is_null());
                let opened = opens.map(|_| self.enter(head.headers.get(SESSION_HEADER), &mut said));
                let parts = request.calls.iter();
                let met = parts.filter(|(id, _)| answered.contains(&id));
                let wanted = met.filter(|(id, cancel)| self.inflight.finish(id, cancel));
                let wanted = wanted.inspect(|(_, cancel)| cancel.cancel()).count();
                let body = opened.as_ref().unwrap_or(&message.body);
                self.client.notify(body, &|| wanted > 0);
            }
        }
        let said = said["error"]["message"].as_str().unwrap_or_default();
        let over = request.still_waiting().err().map(drop);
        over.ok_or_else(|| self.reply_error(status, is_stream, is_lost, said))
    }

    /// The next message of a reply, without what frames it; `None` at the end. An event without data is empty.
    fn next(&self, input: &mut impl BufRead, is_stream: bool) -> Result<Option<Answer>, Error> {
        let (mut message, account) = (Answer::from(Vec::new()), self.accounts.of(""));
        let too_large = |_| Error::new(Kind::ResponseTooLarge, TOO_LARGE);
        // Where the last line begins.
        let (mut start, mut is_over) = (0, false);
        while !is_over {
            let body = &mut message.body;
            let piece = input.take(BUFFER as u64).read_until(b'\n', body);
            is_over = piece.map_err(|error| self.failed(error.into(), true))? == 0;
            if is_over && body.is_empty() {
                return Ok(None);
            }
            if is_over || body.ends_with(b"\n") {
                let line = &body[start..];
                let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
                // Of an event, only the data is kept. A blank line ends it.
                is_over |= is_stream && text.trim_ascii().is_empty();
                let data = text.strip_prefix(b"data:").or((!is_stream).then_some(text));
                let kept = data.unwrap_or_default().trim_ascii_start().len();
                body.drain(start..body.len() - kept);
                start = body.len();
            }
            message.charge(&account).map_err(too_large)?;
        }
        // Line breaks are white space in JSON, and stdio allows none in a message.
        message.body.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        Ok(Some(message))
    }

    /// Begins the session with this id that an answer to `initialize` opens, in the place of another. Returns the answer
    /// without the offer to tell of changed lists: that needs a stream beside the requests, and there is none.
    fn enter(&self, id: Option<&HeaderValue>, said: &mut Value) -> Vec<u8> {
        if let (Some(id), Some(version)) = (id, said["result"]["protocolVersion"].as_str()) {
            let session = (SESSION_HEADER, id.to_str().unwrap_or_default().to_owned());
            // Other calls than this one go on in the session that they began in.
            let is_busy = self.accounts.of("").held(Resource::CallThreads) > 1;
            if !is_busy || lock(&self.sessions).len() == MAX_PENDING {
                self.leave();
            }
            lock(&self.sessions).push(vec![session, (VERSION_HEADER, version.to_owned())]);
        }
        for list in ["prompts", "resources", "tools"] {
            let offer = said.pointer_mut(&format!("/result/capabilities/{list}/listChanged"));
            offer.into_iter().for_each(|told| *told = false.into());
        }
        said.to_string().into()
    }

    /// Answers ourselves what has no answer yet.
    fn fail(&self, request: &RelayedRequest, error: Error) {
        let is_open = |(id, cancel): &&(Id, Cancel)| self.inflight.finish(id, cancel);
        let open = request.calls.iter().filter(is_open);
        open.for_each(|(id, _)| self.answer(Some(id), error.clone().into()));
    }

    /// Answers ourselves.
    fn answer(&self, id: Option<&Id>, refusal: Refusal) {
        self.client
            .answer(refuse(refusal, id.or(Some(&Id::Null)), false));
    }

    /// Sends something to the server, once.
    fn send(
        &self,
        method: &str,
        headers: &Headers,
        limit: Option<Duration>,
        body: impl AsSendBody,
    ) -> Result<Response<Body>, ureq::Error> {
        let token = self.settings.token.as_ref();
        let token = token.map(|token| ("Authorization", format!("Bearer {}", token.expose())));
        let head = http::Request::builder().method(method);
        let mut head = head.uri(&self.settings.url).header(JSON.0, JSON.1);
        for (name, value) in headers.iter().chain(&token) {
            head = head.header(*name, value);
        }
        let sent = self.agent.configure_request(head.body(body)?);
        self.agent.run(sent.timeout_global(limit).build())
    }

    /// The error for a reply with this status that leaves something unanswered. `said` are the server's words.
    fn reply_error(&self, status: u16, is_stream: bool, is_lost: bool, said: &str) -> Error {
        let (kind, words) = match status {
            200 if is_stream => (Kind::StreamInterrupted, CUT),
            401 => (Kind::Forbidden, TOKEN),
            403 => (Kind::Forbidden, "refuses this request."),
            400 | 413 if !said.is_empty() => (Kind::ApiError, "refuses this request."),
            404 if is_lost => (Kind::ApiError, ENDED),
            429 | 503 => (Kind::TooManyRequests, "is busy. Try again in a moment."),
            500.. => (Kind::ApiError, FAILED),
            _ => (Kind::ApiError, NO_SERVER),
        };
        let mut words = format!("HTTP {status}: the server at {} {words}", self.settings.url);
        if !said.is_empty() {
            words += &format!(" It says: {}", shown(said, 500));
        }
        Error::new(kind, words)
    }

    /// The error for no reply, or for a part of one.
    fn failed(&self, error: ureq::Error, has_begun: bool) -> Error {
        let (cause, _) = cause_of(&error, has_begun, false, false, true);
        let why = agent::reason(error, OPENING);
        let (kind, words) = match cause {
            Cause::Closed | Cause::BrokeOff | Cause::RunSilent | Cause::Unread => {
                (Kind::StreamInterrupted, CUT.to_owned())
            }
            _ => (Kind::ApiUnavailable, format!("{why}. {UNREACHED}")),
        };
        Error::new(kind, format!("The server at {} {words}", self.settings.url))
    }
}
