//! `--connect`: stdio on one side, the Streamable HTTP of another fabric-mcp on the other, for clients that only start
//! programs.
//!
//! ```text
//!   stdin ─▶ one reader ─┬─ a request ──────────────▶ thread ─▶ POST ─▶ its messages ─┐
//!                        ├─ initialize, a notification ─▶ POST, before the next line ─┼─▶ one writer ─▶ stdout
//!                        └─ modern cancellation ──────▶ closes that response          │
//!   the session's GET stream, reopened when it breaks ───────────────────────────────┘
//! ```
//! In scope: which headers a message needs, ids in flight, cancelling, the end. Not in scope: what messages mean, beyond
//! their era; the server's answers as HTTP (`remote`). A message is sent once: a run costs money.

mod remote;

use std::io::{self, BufReader, Read, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use crate::config::{Connect, MAX_MESSAGE};
use crate::encoding::base64;
use crate::encoding::json::decode;
use crate::error::{Error, Kind};
use crate::os::random;
use crate::protocol::inbound::cancelled;
use crate::protocol::jsonrpc::{self, INTERNAL_ERROR, INVALID_REQUEST, Message, is_blank};
use crate::protocol::{ID_IN_USE, Id, Inbound, Meta, Refusal, mirrored};
use crate::sync::{lock, wait_while};
use crate::transport::inflight::Cancel;
use crate::transport::stdio::{BUFFER, LineSize, STDIO_DRAIN, Writer, read_line};
use crate::transport::{Outlet, start};

use remote::{Headers, Remote, RemoteReply, RemoteSession, VERSION};

/// Requests at once, each with a thread and a connection. Further ones are refused and do not wait: the reader would wait
/// with them, and then could not read the cancellation that makes room.
const MAX_PENDING: usize = 64;
/// How long the next line waits for what must precede it. The end of input, too, is seen only then.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time before a session's stream is opened again.
const REOPEN: Duration = Duration::from_secs(2);

/// What `--check` asks.
const DISCOVER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{
    "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Asks the server what it is, and says how that went.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(crate) fn check(settings: &Connect) -> Result<String, String> {
    let remote = Remote::new(settings)?;
    let headers = headers(&Inbound::read(DISCOVER, false), None);
    let (begun, mut answer) = (Instant::now(), Vec::new());
    let reply = remote.send(&remote.agent(), "POST", headers, DISCOVER);
    reply
        .and_then(|mut reply| reply.next(&mut answer))
        .map_err(|error| error.detail)?;
    let answer: Value = decode(&answer).unwrap_or_default();
    if answer["result"]["supportedVersions"].is_null() {
        return Err(remote.not_mcp().detail);
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

/// A line that was sent. What has no answer is waited for, too: it must arrive before the next line.
struct PendingRequest {
    /// Several for a batch; none if the line is not readable or a notification.
    ids: Vec<Id>,
    is_notification: bool,
    /// Closing its response cancels it.
    is_modern: bool,
    /// It ends when the client does.
    is_subscription: bool,
    agent: Agent,
    /// It was answered or cancelled: nothing more is written for it.
    over: Cancel,
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
                self.refuse(id.as_slice(), &refusal);
            } else if !is_blank(&line) {
                self.pass_on(std::mem::take(&mut line));
            }
        }
        Ok(())
    }

    fn pass_on(self: &Arc<Self>, line: Vec<u8>) {
        let inbound = Inbound::read(&line, false);
        let session = self.remote.session();
        let (is_notification, is_initialize) = (!inbound.is_request(), inbound.initialize);
        // Without a session a notification is dropped: what is stateless has nothing to be told.
        if self.cancels(&inbound) || (is_notification && session.is_none()) {
            return;
        }
        let (headers, single) = (headers(&inbound, session.as_deref()), inbound.request());
        let request = Arc::new(PendingRequest {
            ids: inbound.ids(),
            is_notification,
            is_modern: inbound.modern,
            is_subscription: single.is_some_and(|one| one.method == "subscriptions/listen"),
            agent: self.remote.agent(),
            over: Cancel::default(),
        });
        drop(inbound);
        if let Err(refusal) = self.admit(&request) {
            return self.refuse(&request.ids, &refusal);
        }
        let (relay, sent, (done, ends)) = (self.clone(), request.clone(), channel::<()>());
        let work = move || {
            let reply = relay.remote.send(&sent.agent, "POST", headers, line);
            relay.finish(&sent, reply.and_then(|reply| relay.pass_back(&sent, reply)));
            drop(done);
        };
        if let Err(error) = start(Box::new(work)) {
            self.finish(&request, Err(error));
        }
        // Whatever follows belongs to the session that it opens, or must not overtake it.
        if is_initialize || is_notification {
            let _ = ends.recv_timeout(PATIENCE);
        }
    }

    /// Takes a request on, unless its ids are in use or there are too many.
    fn admit(&self, request: &Arc<PendingRequest>) -> Result<(), Refusal> {
        let mut pending = lock(&self.pending);
        if request.ids.iter().any(|id| find(&pending, id).is_some()) {
            return Err(Refusal::new(INVALID_REQUEST, ID_IN_USE));
        }
        if pending.len() >= MAX_PENDING && !request.is_notification {
            let full = format!(
                "{MAX_PENDING} requests are waiting for their answers, the limit of --connect: this one was not sent. \
                 Cancel one, or try again once one is answered."
            );
            let error = Error::new(Kind::TooManyRequests, full);
            return Err(Refusal::of(INTERNAL_ERROR, error));
        }
        pending.push(request.clone());
        Ok(())
    }

    /// Lets nothing more be written for a request that is cancelled by this. True if closing its response has told the
    /// server.
    fn cancels(&self, inbound: &Inbound<'_>) -> bool {
        let [Ok(Message::Notification { method, params })] = &inbound.messages[..] else {
            return false;
        };
        let id = cancelled(method, params.as_ref());
        let request = id.and_then(|id| find(&lock(&self.pending), &id));
        let Some(request) = request.filter(|request| request.ids.len() == 1) else {
            return false;
        };
        // One that was answered meanwhile may have left its agent to another.
        if request.over.cancel() && request.is_modern {
            request.agent.clone().shutdown();
        }
        request.is_modern
    }

    /// Passes on all messages of an answer.
    fn pass_back(
        self: &Arc<Self>,
        request: &PendingRequest,
        mut reply: RemoteReply<'_>,
    ) -> Result<(), Error> {
        // Its cancellation may have overtaken it, on another connection.
        if request.over.is_cancelled()
            && !request.is_modern
            && let (Some(session), [id]) = (self.remote.session(), &request.ids[..])
        {
            let params = json!({"requestId": id});
            let cancelled = jsonrpc::notification("notifications/cancelled", &params);
            let (agent, headers) = (self.remote.agent(), session.headers.clone());
            self.remote.send(&agent, "POST", headers, cancelled)?;
        }
        if request.is_notification {
            // What some servers say to it answers nothing that the client has asked.
            return reply.next(&mut Vec::new()).map(drop);
        }
        // A batch of which all was cancelled has no answer. That of another request which was cancelled may look whole,
        // although its agent was shut down.
        let mut is_complete = request.ids.len() > 1;
        let mut message = Vec::new();
        while reply.next(&mut message)? {
            let inbound = Inbound::read(&message, false);
            if inbound.is_invalid() {
                return Err(self.remote.not_mcp());
            }
            let is_response = |message| matches!(message, &Ok(Message::Response));
            if !inbound.messages.iter().any(is_response) {
                let wanted = || !request.over.is_cancelled();
                self.writer.send_if(&[&message], &wanted);
                continue;
            }
            if let Some(id) = reply.session.take() {
                let (session, relay) = (self.remote.enter(id, &message), self.clone());
                if let Err(error) = start(Box::new(move || relay.follow(&session))) {
                    log::warn!("the session has no stream: {error}");
                }
            }
            if request.over.cancel() {
                is_complete = true;
                self.writer.send(&[&message]);
            }
        }
        match is_complete {
            true => Ok(()),
            false => Err(self.remote.cut()),
        }
    }

    /// Passes on what the server sends outside of answers, as long as the session lasts.
    fn follow(&self, session: &Arc<RemoteSession>) {
        let is_current = |current| Arc::ptr_eq(&current, session);
        while self.remote.session().is_some_and(is_current) {
            let headers = session.headers.clone();
            let opened = self.remote.send(&session.stream, "GET", headers, ());
            let followed = opened.and_then(|mut reply| {
                let mut message = Vec::new();
                while reply.next(&mut message)? && !Inbound::read(&message, false).is_invalid() {
                    self.writer.send(&[&message]);
                }
                Ok(())
            });
            if let Err(error) = followed
                && matches!(error.status, Some(400..429))
            {
                return log::warn!("the session has no stream: {error}");
            }
            thread::sleep(REOPEN);
        }
    }

    /// Ends a request, with its error if it has no answer.
    fn finish(&self, request: &Arc<PendingRequest>, result: Result<(), Error>) {
        match result {
            Ok(()) => self.remote.keep(request.agent.clone()),
            Err(error) if request.is_notification => {
                log::warn!("a notification was not passed on: {error}");
            }
            Err(error) if request.over.cancel() => {
                let refusal = Refusal::of(INTERNAL_ERROR, error);
                self.refuse(&request.ids, &refusal);
            }
            Err(_) => {}
        }
        lock(&self.pending).retain(|other| !Arc::ptr_eq(other, request));
        self.done.notify_all();
    }

    /// Answers the requests of a line ourselves, those of a batch one by one.
    fn refuse(&self, ids: &[Id], refusal: &Refusal) {
        let request_id = random::request_id();
        log::warn!("request {request_id}: {}", refusal.error);
        let refuse = |id| {
            let answer = refusal.clone().answer(Some(id), false, &request_id);
            self.writer.send(&[&answer.body]);
        };
        match ids {
            [] => refuse(&Id::Null),
            ids => ids.iter().for_each(refuse),
        }
    }
}

/// The request with this id that is neither answered nor cancelled.
fn find(pending: &[Arc<PendingRequest>], id: &Id) -> Option<Arc<PendingRequest>> {
    let mut pending = pending.iter();
    let found = pending.find(|request| request.ids.contains(id) && !request.over.is_cancelled());
    found.cloned()
}

/// The headers that a request needs: those that repeat parts of a modern one, or those of its session.
fn headers(inbound: &Inbound<'_>, session: Option<&RemoteSession>) -> Headers {
    let Some(request) = inbound.request().filter(|_| inbound.modern) else {
        let session = session.filter(|_| !inbound.initialize);
        return session.map_or_else(Headers::new, |session| session.headers.clone());
    };
    let params = request.params.as_ref();
    let name = mirrored(&request.method).and_then(|member| params?.get(member)?.text());
    [
        (VERSION, Meta::read(params).ok().and_then(Meta::version)),
        ("Mcp-Method", Some(&*request.method)),
        ("Mcp-Name", name),
    ]
    .into_iter()
    .filter_map(|(header, value)| Some((header, base64::to_header(value?).into_owned())))
    .collect()
}
