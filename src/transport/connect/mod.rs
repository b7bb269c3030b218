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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use crate::config::{Connect, MAX_MESSAGE};
use crate::encoding::base64;
use crate::error::{Error, Kind};
use crate::os::random;
use crate::protocol::inbound::cancelled;
use crate::protocol::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, Message, RequestMessage, is_blank,
};
use crate::protocol::{ID_IN_USE, Id, Inbound, Meta, Refusal, mirrored};
use crate::sync::{lock, wait_while};
use crate::transport::stdio::{BUFFER, LineSize, STDIO_DRAIN, Writer, read_line, within};
use crate::transport::{Outlet, start};

use remote::{Headers, Remote, RemoteSession, VERSION};

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
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
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

/// A line that is waiting for its answer.
struct PendingRequest {
    /// Several for a batch; none if the line is not readable.
    ids: Vec<Id>,
    /// Closing its response cancels it.
    is_modern: bool,
    /// It ends when the client does.
    is_subscription: bool,
    agent: Agent,
    /// It was answered or cancelled: nothing more is written for it.
    is_over: AtomicBool,
}

impl PendingRequest {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Lets nothing more be written for it. False if that was so already.
    fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Closes its response, if that cancels it; else the server has to be told.
    fn cancel(&self) {
        if self.end() && self.is_modern {
            self.agent.clone().shutdown();
        }
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
        let pending = lock(&self.pending);
        let subscriptions = pending.iter().filter(|request| request.is_subscription);
        subscriptions.for_each(|request| request.cancel());
        drop(wait_while(&self.done, pending, STDIO_DRAIN, |pending| {
            !pending.is_empty()
        }));
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
        if !inbound.is_request() {
            return self.notify(&inbound, session.as_deref(), &line);
        }
        let headers = headers(&inbound, session.as_deref());
        let is_initialize = inbound.initialize;
        let request = Arc::new(PendingRequest {
            ids: inbound.ids(),
            is_modern: inbound.modern,
            is_subscription: inbound
                .request()
                .is_some_and(|request| request.method == "subscriptions/listen"),
            agent: self.remote.agent(),
            is_over: AtomicBool::new(false),
        });
        drop(inbound);
        let mut pending = lock(&self.pending);
        let is_in_use = request.ids.iter().any(|id| find(&pending, id).is_some());
        if is_in_use || pending.len() >= MAX_PENDING {
            drop(pending);
            let full = format!(
                "{MAX_PENDING} requests are waiting for their answers, the limit of --connect: this one was not sent. \
                 Cancel one, or try again once one is answered."
            );
            let refusal = match is_in_use {
                true => Refusal::new(INVALID_REQUEST, ID_IN_USE),
                false => Refusal::of(INTERNAL_ERROR, Error::new(Kind::TooManyRequests, full)),
            };
            return self.refuse(&request.ids, &refusal);
        }
        pending.push(request.clone());
        drop(pending);
        let (relay, sent) = (self.clone(), request.clone());
        let work = move || relay.finish(&sent, relay.exchange(&sent, headers, line));
        if let Err(error) = start(work) {
            self.finish(&request, Err(error));
        }
        // Whatever follows belongs to the session that it opens.
        if is_initialize {
            drop(wait_while(
                &self.done,
                lock(&self.pending),
                PATIENCE,
                |pending| pending.iter().any(|other| Arc::ptr_eq(other, &request)),
            ));
        }
    }

    /// Passes on what has no answer, before the next line is read. Without a session it is dropped: what is stateless
    /// has nothing to be told.
    fn notify(&self, inbound: &Inbound<'_>, session: Option<&RemoteSession>, line: &[u8]) {
        if let [Ok(Message::Notification { method, params })] = &inbound.messages[..]
            && let Some(id) = cancelled(method, params.as_ref())
            && let Some(request) = find(&lock(&self.pending), &id)
            && request.ids.len() == 1
        {
            request.cancel();
            if request.is_modern {
                return;
            }
        }
        if let Some(session) = session {
            self.tell(session, line);
        }
    }

    fn tell(&self, session: &RemoteSession, notification: &[u8]) {
        let (remote, headers) = (self.remote.clone(), session.headers.clone());
        let notification = notification.to_vec();
        within(PATIENCE, move || {
            let agent = remote.agent();
            let sent = remote.send(&agent, "POST", headers, &notification[..]);
            let ended = sent.and_then(|mut reply| reply.next(&mut Vec::new()));
            match ended {
                Ok(_) => remote.keep(agent),
                Err(error) => log::warn!("a notification was not passed on: {error}"),
            }
        });
    }

    /// Sends a line and passes on all messages of its answer.
    fn exchange(
        self: &Arc<Self>,
        request: &PendingRequest,
        headers: Headers,
        line: Vec<u8>,
    ) -> Result<(), Error> {
        let mut reply = self
            .remote
            .send(&request.agent, "POST", headers, &line[..])?;
        // The answer may take an hour.
        drop(line);
        // Its cancellation may have overtaken it, on another connection.
        if request.is_over()
            && !request.is_modern
            && let (Some(session), [id]) = (self.remote.session(), &request.ids[..])
        {
            let params = json!({"requestId": id});
            let cancelled = jsonrpc::notification("notifications/cancelled", &params);
            self.tell(&session, &cancelled);
        }
        let (mut message, mut is_answered) = (Vec::new(), false);
        while reply.next(&mut message)? {
            let inbound = Inbound::read(&message, false);
            match &inbound.messages[..] {
                [Err(_)] if !inbound.is_batch => return Err(self.remote.not_mcp()),
                [Ok(Message::Request(_) | Message::Notification { .. })] if !inbound.is_batch => {
                    let wanted = || !request.is_over();
                    self.writer.send_if(&[&message], &wanted);
                }
                _ => {
                    if let Some(id) = reply.session.take() {
                        let (session, relay) = (self.remote.enter(id, &message), self.clone());
                        if let Err(error) = start(move || relay.follow(&session)) {
                            log::warn!("the session has no stream: {error}");
                        }
                    }
                    if request.end() {
                        is_answered = true;
                        self.writer.send(&[&message]);
                    }
                }
            }
        }
        // A batch of which all was cancelled has no answer. That of another request which was cancelled may look whole,
        // although its agent was shut down.
        match is_answered || request.ids.len() > 1 {
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
            Err(error) if request.end() => {
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
    let found = pending.find(|request| request.ids.contains(id) && !request.is_over());
    found.cloned()
}

/// The headers that a request needs: those of its session, or those that repeat parts of a modern one.
fn headers(inbound: &Inbound<'_>, session: Option<&RemoteSession>) -> Headers {
    match (inbound.request(), session) {
        (Some(request), _) if inbound.modern => repeated(request),
        (_, Some(session)) if !inbound.initialize => session.headers.clone(),
        _ => Headers::new(),
    }
}

/// The headers that repeat parts of a modern request.
fn repeated(request: &RequestMessage<'_>) -> Headers {
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
