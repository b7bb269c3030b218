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

use serde_json::Value;
use ureq::Agent;

use crate::base64;
use crate::config::{Connect, MAX_MESSAGE};
use crate::error::{Error, Kind};
use crate::protocol::inbound::cancelled;
use crate::protocol::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, Incoming, Message, RequestMessage, is_blank,
};
use crate::protocol::{Answer, ID_IN_USE, Id, Inbound, Meta, NoId, Refusal};
use crate::random;
use crate::sync::{lock, wait_while};
use crate::transport::lines::{BUFFER, LineSize, Writer, read_line};
use crate::transport::stdio::STDIO_DRAIN;
use crate::transport::{Flush, Outlet, start};

use remote::{Headers, Remote, RemoteSession, VERSION};

/// Requests at once, each with a thread and a connection. Further ones are refused and do not wait: the reader would wait
/// with them, and then could not read the cancellation that makes room.
const MAX_PENDING: usize = 64;
/// The first and the longest time before a session's stream is opened again.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// What `--check` asks.
const DISCOVER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{
    "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Asks the server for what it speaks, and says how that went.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(crate) fn check(settings: &Connect) -> Result<String, String> {
    let remote = Remote::new(settings)?;
    let headers = headers(&Inbound::read(DISCOVER, false), None);
    let begun = Instant::now();
    let mut answer = Vec::new();
    let asked = remote.post(&remote.agent(), headers, DISCOVER);
    asked
        .and_then(|mut reply| reply.next(&mut answer))
        .map_err(|error| error.detail)?;
    let time = begun.elapsed().as_millis();
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let versions = answer["result"]["supportedVersions"].as_array();
    let versions = versions.ok_or_else(|| remote.not_mcp().detail)?;
    let versions: Vec<&str> = versions.iter().filter_map(Value::as_str).collect();
    let token = match settings.token {
        Some(_) => "takes the token",
        None => "asks for no token",
    };
    Ok(format!(
        "The server at {} answers in {time} ms, {token}, and speaks MCP {}.\n",
        remote.url(),
        versions.join(", ")
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
    is_batch: bool,
    /// Closing its response cancels it.
    is_modern: bool,
    is_initialize: bool,
    /// It ends when the client does.
    is_subscription: bool,
    agent: Agent,
    /// It was answered or cancelled: nothing more is written for it.
    is_over: AtomicBool,
}

impl PendingRequest {
    fn new(inbound: &Inbound<'_>, agent: Agent) -> PendingRequest {
        let id = |message: &Result<Message<'_>, _>| match message {
            Ok(Message::Request(request)) => Some(request.id.clone()),
            _ => None,
        };
        let (ids, is_batch, is_subscription) = match &inbound.incoming {
            Ok(Incoming::One(Message::Request(request))) => {
                let is_subscription = request.method == "subscriptions/listen";
                (vec![request.id.clone()], false, is_subscription)
            }
            Ok(Incoming::Batch(items)) => (items.iter().filter_map(id).collect(), true, false),
            Ok(Incoming::One(_)) => (Vec::new(), false, false),
            Err(invalid) => (invalid.id.iter().cloned().collect(), false, false),
        };
        PendingRequest {
            ids,
            is_batch,
            is_modern: inbound.modern,
            is_initialize: inbound.initialize,
            is_subscription,
            agent,
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Lets nothing more be written for it. False if that was so already.
    fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Ends it by closing its response.
    fn close(&self) {
        if self.end() {
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
        log::info!("passing messages on to {}", self.remote.url());
        let read = self.read(input);
        let pending = lock(&self.pending);
        let subscriptions = pending.iter().filter(|request| request.is_subscription);
        subscriptions.for_each(|request| request.close());
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
                self.refuse(id.as_ref(), Refusal::new(INVALID_REQUEST, reason));
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
        let request = Arc::new(PendingRequest::new(&inbound, self.remote.agent()));
        drop(inbound);
        let mut pending = lock(&self.pending);
        if request.ids.iter().any(|id| find(&pending, id).is_some()) {
            drop(pending);
            let refusal = Refusal::new(INVALID_REQUEST, ID_IN_USE);
            let ids = request.ids.iter();
            return ids.for_each(|id| self.refuse(Some(id), refusal.clone()));
        }
        if pending.len() >= MAX_PENDING {
            drop(pending);
            let detail = format!(
                "{MAX_PENDING} requests are waiting for their answers, the limit of --connect: this one was not sent. \
                 Cancel one, or try again once one is answered."
            );
            return self.finish(&request, Err(Error::new(Kind::TooManyRequests, detail)));
        }
        pending.push(request.clone());
        drop(pending);
        // Whatever follows belongs to the session that it opens.
        if request.is_initialize {
            return self.finish(&request, self.exchange(&request, headers, line));
        }
        let (relay, sent) = (self.clone(), request.clone());
        let work = move || relay.finish(&sent, relay.exchange(&sent, headers, line));
        if let Err(error) = start(work) {
            self.finish(&request, Err(error));
        }
    }

    /// Passes on what has no answer, before the next line is read. Without a session it is dropped: what is stateless
    /// has nothing to be told.
    fn notify(&self, inbound: &Inbound<'_>, session: Option<&RemoteSession>, line: &[u8]) {
        if let Ok(Incoming::One(Message::Notification { method, params })) = &inbound.incoming
            && let Some(id) = cancelled(method, params.as_ref())
            && self.cancel(&id)
        {
            return;
        }
        let Some(session) = session else { return };
        let agent = self.remote.agent();
        let sent = self.remote.post(&agent, session.headers(), line);
        match sent.and_then(|mut reply| reply.next(&mut Vec::new())) {
            Ok(_) => self.remote.keep(agent),
            Err(error) => log::warn!("a notification was not passed on: {error}"),
        }
    }

    /// Cancels a request. False if the server has to be told of it.
    fn cancel(&self, id: &Id) -> bool {
        let found = find(&lock(&self.pending), id);
        let Some(request) = found.filter(|request| !request.is_batch) else {
            return false;
        };
        match request.is_modern {
            true => request.close(),
            false => _ = request.end(),
        }
        request.is_modern
    }

    /// Sends a line and passes on all messages of its answer.
    fn exchange(
        self: &Arc<Self>,
        request: &PendingRequest,
        headers: Headers,
        line: Vec<u8>,
    ) -> Result<(), Error> {
        let mut reply = self.remote.post(&request.agent, headers, &line)?;
        // The answer may take an hour.
        drop(line);
        let mut message = Vec::new();
        while reply.next(&mut message)? {
            match jsonrpc::read(&message) {
                Ok(Incoming::One(Message::Response) | Incoming::Batch(_)) => {
                    if request.is_initialize
                        && let Some(id) = reply.session.take()
                    {
                        self.enter(id, &message);
                    }
                    if request.end() {
                        self.writer.send(&[&message], Flush::Now);
                    }
                }
                Ok(Incoming::One(_)) => {
                    let wanted = || !request.is_over();
                    self.writer.send_if(&[&message], Flush::Now, &wanted);
                }
                Err(_) => return Err(self.remote.not_mcp()),
            }
        }
        // A batch of which all was cancelled has no answer.
        match request.is_over() || request.is_batch {
            true => Ok(()),
            false => Err(self.remote.cut()),
        }
    }

    /// Begins the session that the answer to `initialize` opens.
    fn enter(self: &Arc<Self>, id: String, answer: &[u8]) {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let version = answer["result"]["protocolVersion"].as_str();
        let session = self
            .remote
            .enter(id, version.unwrap_or_default().to_owned());
        let relay = self.clone();
        if let Err(error) = start(move || relay.follow(&session)) {
            log::warn!("the session has no stream: {error}");
        }
    }

    /// Passes on what the server sends outside of answers, as long as the session lasts.
    fn follow(&self, session: &Arc<RemoteSession>) {
        let [first, longest] = DELAYS;
        let (mut delay, mut message) = (first, Vec::new());
        loop {
            let begun = Instant::now();
            match self.remote.listen(session) {
                Ok(mut reply) => {
                    while let Ok(true) = reply.next(&mut message)
                        && jsonrpc::read(&message).is_ok()
                    {
                        self.writer.send(&[&message], Flush::Now);
                    }
                }
                Err(error) if matches!(error.status, Some(400..429)) => {
                    return log::warn!("the session has no stream: {error}");
                }
                Err(error) => log::debug!("the session's stream cannot be opened: {error}"),
            }
            if begun.elapsed() > longest {
                delay = first;
            }
            if self.remote.is_current(session) {
                thread::sleep(delay);
            }
            if !self.remote.is_current(session) {
                return;
            }
            delay = longest.min(delay * 2);
        }
    }

    /// Ends a request, with its error if it has no answer.
    fn finish(&self, request: &Arc<PendingRequest>, result: Result<(), Error>) {
        match result {
            Ok(()) => self.remote.keep(request.agent.clone()),
            Err(error) if request.end() => {
                let refusal = || Refusal::of(INTERNAL_ERROR, error.clone());
                let ids = request.ids.iter();
                let answers: Vec<_> = ids.map(|id| answer(Some(id), refusal())).collect();
                let parts = answers.iter().map(|answer| answer.body.parts());
                match answers.len() {
                    0 => self.refuse(None, refusal()),
                    _ if request.is_batch => self.writer.send(&jsonrpc::array(parts), Flush::Now),
                    _ => parts.for_each(|parts| self.writer.send(&parts, Flush::Now)),
                }
            }
            Err(_) => {}
        }
        lock(&self.pending).retain(|other| !Arc::ptr_eq(other, request));
        self.done.notify_all();
    }

    fn refuse(&self, id: Option<&Id>, refusal: Refusal) {
        self.writer
            .send(&answer(id, refusal).body.parts(), Flush::Now);
    }
}

/// The request with this id that is neither answered nor cancelled.
fn find(pending: &[Arc<PendingRequest>], id: &Id) -> Option<Arc<PendingRequest>> {
    let mut pending = pending.iter();
    let found = pending.find(|request| request.ids.contains(id) && !request.is_over());
    found.cloned()
}

/// Our own answer, which is logged.
fn answer(id: Option<&Id>, refusal: Refusal) -> Answer {
    let request_id = random::request_id();
    log::warn!("request {request_id}: {}", refusal.error);
    refusal.answer(id, NoId::Null, false, &request_id)
}

/// The headers that a request needs.
fn headers(inbound: &Inbound<'_>, session: Option<&RemoteSession>) -> Headers {
    match (&inbound.incoming, session) {
        (Ok(Incoming::One(Message::Request(request))), _) if inbound.modern => mirrored(request),
        (_, Some(session)) if !inbound.initialize => session.headers(),
        _ => Headers::new(),
    }
}

/// The headers that repeat parts of a modern request.
fn mirrored(request: &RequestMessage<'_>) -> Headers {
    let params = request.params.as_ref();
    let version = Meta::read(params).ok().and_then(Meta::version);
    // Where a method has no such header, the server ignores it.
    let member = match &*request.method {
        "resources/read" => "uri",
        method if method.starts_with("tasks/") => "taskId",
        _ => "name",
    };
    let name = params.and_then(|params| params.get(member)?.text());
    let values = [
        (VERSION, version),
        ("Mcp-Method", Some(&*request.method)),
        ("Mcp-Name", name),
    ];
    let values = values.into_iter();
    values
        .filter_map(|(header, value)| Some((header, base64::to_header(value?).into_owned())))
        .collect()
}
