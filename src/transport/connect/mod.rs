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
//! In scope: which headers a message needs, ids that wait, cancelling, the end. Not in scope: what messages mean, beyond
//! their era; the server's answers as HTTP (`remote`). A message is sent once: a run costs money.

mod remote;

use std::io::{self, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use crate::account::{Guard, Resource};
use crate::config::{Connect, MAX_MESSAGE};
use crate::encoding::base64;
use crate::encoding::json::mend_surrogates;
use crate::error::Error;
use crate::os::random;
use crate::protocol::inbound::cancelled;
use crate::protocol::jsonrpc::{self, INTERNAL_ERROR, INVALID_REQUEST, Message, is_blank};
use crate::protocol::{ID_IN_USE, Id, Inbound, Meta, Refusal, mirrored};
use crate::sync::{lock, wait_while};
use crate::tools::Peer;
use crate::transport::start;
use crate::transport::stdio::{BUFFER, LineSize, STDIO_DRAIN, Writer, read_line};

use remote::{Headers, Remote, SESSION_ID, VERSION, small};

/// Requests at once, each with a thread and a connection. Further ones are refused and do not wait: the reader would wait
/// with them, and then could not read the cancellation that makes room.
const MAX_PENDING: usize = 64;
/// Longest time for `initialize`. The next line belongs to the session that it opens, and waits for it; so does the end of
/// input.
const OPENING: Duration = Duration::from_secs(10);
/// Longest time for a notification, which the next line must not overtake.
const TELLING: Duration = Duration::from_secs(5);
/// Longest time for `--check`.
const CHECKING: Duration = Duration::from_secs(30);

/// What `--check` asks.
const DISCOVER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{
    "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Asks the server what it is, and says how that went.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(crate) fn check(settings: &Connect) -> Result<String, String> {
    let remote = Remote::new(settings)?;
    let headers = headers(&Inbound::read(DISCOVER, false), Headers::new());
    let (begun, limit, mut answer) = (Instant::now(), Some(CHECKING), Value::Null);
    let reply = remote.send(&remote.agent(), limit, &headers, DISCOVER);
    let mut first = |message: &[u8]| {
        answer = small(message);
        Ok(false)
    };
    let read = reply.and_then(|reply| remote.read(reply, limit, &mut first));
    read.map_err(|error| error.detail)?;
    if answer["result"]["supportedVersions"].is_null() {
        return Err(remote.refused(200, false, "").detail);
    }
    let token = match settings.token {
        Some(_) => "takes the token",
        None => "asks for no token",
    };
    let (url, time) = (&settings.url, begun.elapsed().as_millis());
    Ok(format!(
        "The server at {url} answers in {time} ms, and {token}.\n"
    ))
}

/// The two sides.
pub(crate) struct Relay {
    remote: Arc<Remote>,
    writer: Writer,
    pending: Mutex<Vec<Arc<PendingRequest>>>,
    /// A request is not pending any more.
    done: Condvar,
}

/// A line with a request, or with several in a batch, until the server has said all about it.
struct PendingRequest {
    ids: Vec<Id>,
    /// Those that are neither answered nor cancelled. Once there are none, nothing more is written.
    waiting: Mutex<Vec<Id>>,
    is_initialize: bool,
    /// Closing its response cancels it.
    is_modern: bool,
    /// It ends when the client does.
    is_subscription: bool,
    /// Of this request alone, because only an agent as a whole can be interrupted. Its connection is new: one that was idle
    /// may be closing, and a request that is lost there must not be sent again.
    agent: Agent,
}

impl PendingRequest {
    /// Whether all these ids are waiting. If so, they are not any more.
    fn claim(&self, ids: &[Option<&Id>]) -> bool {
        let mut waiting = lock(&self.waiting);
        let all = (ids.iter()).all(|id| id.is_some_and(|id| waiting.contains(id)));
        waiting.retain(|id| !(all && ids.contains(&Some(id))));
        all
    }

    fn is_over(&self) -> bool {
        lock(&self.waiting).is_empty()
    }
}

impl Relay {
    /// Between the server and `output`. `broken` is called, after the end of the session, when `output` cannot be written
    /// any more.
    ///
    /// # Errors
    /// Which setting cannot work, and why.
    pub(crate) fn new(
        settings: &Connect,
        output: impl Write + Send + 'static,
        broken: fn(),
    ) -> Result<Relay, String> {
        let remote = Arc::new(Remote::new(settings)?);
        let left = remote.clone();
        let broken = move || {
            left.leave();
            broken();
        };
        Ok(Relay {
            remote,
            writer: Writer::new(output, broken),
            pending: Mutex::default(),
            done: Condvar::new(),
        })
    }

    /// Passes on what comes from `input` to its end, then waits [`STDIO_DRAIN`] for answers and ends the session.
    ///
    /// # Errors
    /// Those of reading `input`, which count as its end.
    pub(crate) fn serve(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        log::info!("passing messages on to {}", self.remote.settings.url);
        let read = self.read(input);
        let is_awaited = |pending: &mut Vec<Arc<PendingRequest>>| {
            pending.iter().any(|request| !request.is_subscription)
        };
        let pending = lock(&self.pending);
        drop(wait_while(&self.done, pending, STDIO_DRAIN, is_awaited));
        self.leave();
        read
    }

    /// Ends the session, so that the server stops what it does for it.
    pub(crate) fn leave(&self) {
        self.remote.leave();
    }

    fn read(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let mut line = Vec::new();
        while let Some(size) = read_line(&mut input, &mut line)? {
            if let LineSize::TooLong(id) = size {
                let reason = format!("The line is longer than {MAX_MESSAGE} bytes.");
                let refusal = Refusal::new(INVALID_REQUEST, reason);
                self.refuse(&[id.unwrap_or(Id::Null)], &refusal);
            } else if !is_blank(&line) {
                mend_surrogates(&mut line);
                self.pass_on(std::mem::take(&mut line));
            }
        }
        Ok(())
    }

    fn pass_on(self: &Arc<Self>, line: Vec<u8>) {
        let inbound = Inbound::read(&line, false);
        if let ([Err((id, code, reason))], false) = (&inbound.messages[..], inbound.is_batch) {
            let id = id.clone().unwrap_or(Id::Null);
            return self.refuse(&[id], &Refusal::new(*code, *reason));
        }
        let headers = headers(&inbound, self.remote.session());
        if !inbound.is_request() {
            // Without a session it is dropped: what is stateless has nothing to be told.
            if !self.cancels(&inbound) && !headers.is_empty() {
                self.tell(&headers, &line);
            }
            return;
        }
        let single = inbound.request();
        let request = Arc::new(PendingRequest {
            ids: inbound.ids(),
            waiting: Mutex::new(inbound.ids()),
            is_initialize: inbound.initialize,
            is_modern: inbound.modern,
            is_subscription: single.is_some_and(|one| one.method == "subscriptions/listen"),
            agent: self.remote.agent(),
        });
        drop(inbound);
        let held = match self.admit(&request, line.len()) {
            Ok(held) => held,
            Err(refusal) => return self.refuse(&request.ids, &refusal),
        };
        let (relay, sent) = (self.clone(), request.clone());
        let work = move || relay.finish(&sent, relay.exchange(&sent, &headers, line, held));
        if request.is_initialize {
            work();
        } else if let Err(error) = start(Box::new(work)) {
            self.finish(&request, Err(error));
        }
    }

    /// Takes on a request of so many bytes, unless an id of it is in use or there is too much. Returns what it holds.
    fn admit(&self, request: &Arc<PendingRequest>, size: usize) -> Result<Guard, Refusal> {
        let mut pending = lock(&self.pending);
        let is_waiting = |id| (pending.iter()).any(|other| lock(&other.waiting).contains(id));
        if request.ids.iter().any(is_waiting) {
            return Err(Refusal::new(INVALID_REQUEST, ID_IN_USE));
        }
        let full = |name| Refusal::of(INTERNAL_ERROR, self.remote.error(name));
        if pending.len() >= MAX_PENDING {
            return Err(full("many"));
        }
        let held = self.remote.account.take(Resource::Memory, size);
        let held = held.map_err(|_| full("full"))?;
        pending.push(request.clone());
        Ok(held)
    }

    /// Lets nothing more be written for a request that is cancelled by this. True if closing its response has told the
    /// server.
    fn cancels(&self, inbound: &Inbound<'_>) -> bool {
        let [Ok(Message::Notification { method, params })] = &inbound.messages[..] else {
            return false;
        };
        let id = cancelled(method, params.as_ref());
        let is_cancelled = |request: &&Arc<PendingRequest>| {
            request.ids.len() == 1 && request.claim(&[id.as_ref()])
        };
        let pending = lock(&self.pending);
        let request = pending.iter().find(is_cancelled);
        let request = request.filter(|request| request.is_modern);
        request
            .inspect(|request| request.agent.clone().shutdown())
            .is_some()
    }

    fn tell(&self, headers: &Headers, notification: &[u8]) {
        let agent = self.remote.agent();
        if let Err(error) = (self.remote).send(&agent, Some(TELLING), headers, notification) {
            log::warn!("a notification was not passed on: {error}");
        }
    }

    /// Sends a request, and passes on the messages of the reply until all is answered.
    fn exchange(
        &self,
        request: &PendingRequest,
        headers: &Headers,
        line: Vec<u8>,
        held: Guard,
    ) -> Result<(), Error> {
        let limit = request.is_initialize.then_some(OPENING);
        let reply = self.remote.send(&request.agent, limit, headers, &line)?;
        drop((line, held));
        // Its cancellation may have overtaken it, on another connection.
        if let [id] = &request.ids[..]
            && request.is_over()
            && !request.is_modern
        {
            let params = json!({"requestId": id});
            let cancelled = jsonrpc::notification("notifications/cancelled", &params);
            self.tell(headers, &cancelled);
        }
        let session = reply.headers().get(SESSION_ID);
        let session = session.and_then(|id| Some(id.to_str().ok()?.to_owned()));
        self.remote.read(reply, limit, &mut |message| {
            let inbound = Inbound::read(message, false);
            let answered = inbound.answered();
            if inbound.is_invalid() {
                return Err(self.remote.refused(200, false, ""));
            } else if answered.is_empty() {
                self.writer.notify(message, &|| !request.is_over());
            } else if request.claim(&answered) {
                let opened =
                    (request.is_initialize).then(|| self.remote.enter(session.as_deref(), message));
                let message = opened.as_deref().unwrap_or(message);
                self.writer.notify(message, &|| true);
            }
            Ok(!request.is_over())
        })
    }

    /// Ends a request. What has no answer gets an error.
    fn finish(&self, request: &Arc<PendingRequest>, result: Result<(), Error>) {
        let unanswered = std::mem::take(&mut *lock(&request.waiting));
        let error = result.err().unwrap_or_else(|| self.remote.error("cut"));
        self.refuse(&unanswered, &Refusal::of(INTERNAL_ERROR, error));
        lock(&self.pending).retain(|other| !Arc::ptr_eq(other, request));
        self.done.notify_all();
    }

    /// Answers requests ourselves.
    fn refuse(&self, ids: &[Id], refusal: &Refusal) {
        for id in ids {
            let request_id = random::request_id();
            log::warn!("request {request_id}: {}", refusal.error);
            let answer = refusal.clone().answer(Some(id), false, &request_id);
            self.writer.answer(answer);
        }
    }
}

/// The headers that a message needs: those that repeat parts of a modern one, or those of the session.
fn headers(inbound: &Inbound<'_>, session: Headers) -> Headers {
    let request = match inbound.request() {
        Some(request) if inbound.modern => request,
        _ if inbound.initialize => return Headers::new(),
        _ => return session,
    };
    let params = request.params.as_ref();
    let name = mirrored(&request.method).and_then(|member| params?.get(member)?.text());
    let version = Meta::read(params).ok().and_then(Meta::version);
    let mirrors = [
        (VERSION, version),
        ("Mcp-Method", Some(&request.method)),
        ("Mcp-Name", name),
    ];
    let mirrors = mirrors.into_iter();
    mirrors
        .filter_map(|(header, value)| Some((header, base64::to_header(value?).into_owned())))
        .collect()
}
