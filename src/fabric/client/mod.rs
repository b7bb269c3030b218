//! The HTTP client for Fabric: connections, limits, retries, cancellation.
//!
//! In scope: HTTP, and mapping its failures to [`Error`]. Not in scope: which requests there are and what their bodies
//! mean (`routes`).
//!
//! GETs use pooled connections and are retried. POSTs cost money or run templates, so each is sent exactly once, on a
//! new connection: a pooled one may be closing, and a request lost there could not be retried.
//!
//! A blocked read wakes up every 100 ms to ask the [`CallObserver`] of its thread whether to continue. Looking a name up, connecting
//! and writing cannot be interrupted; they have timeouts of their own.

mod bodies;
mod cause;
mod interruptible;
mod plain;

use std::io::{Cursor, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{HeaderMap, HeaderValue, Request, Response, header};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, SendBody};

use super::cached::Cached;
use super::catalog::LONG_PATIENCE;
use super::process::{Process, Running};
use super::routes::FabricRequest;
use super::youtube::{Downloads, transcript_error};
use super::{CallObserver, Cause, Error, Kind, NameList, Observer, Until};
pub(super) use bodies::FabricResponse;
use bodies::Outgoing;
pub(crate) use cause::cause_of;
use interruptible::WaitScope;
pub(crate) use interruptible::{Interruptible, watch};
use plain::PlainConnector;

use crate::agent::{self, KEY_HEADER, Lookups};
use crate::config::{self, Secret};
use crate::logging;
use crate::sync::{SLICE, poll};
use crate::text::is_placeholder;

/// Delays before the retries of a GET; a run is never retried.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(400)];

/// How long a caller waits for another's read of the names from a Fabric before it starts its own.
const PATIENCE: Duration = Duration::from_secs(1);
/// Buffer of one connection, in each direction, in bytes. Fits the longest API key and any sensible response head.
const BUFFER: usize = 8 << 10;
/// Buffer of a run that has nothing but events to read, in bytes.
const RUN_BUFFER: usize = 1 << 10;
/// Idle connections in the pool. With fewer, concurrent callers reconnect for every other request, and beyond a usual
/// listen backlog of 128 some wait a second. Each takes about 10 KB, for 15 s.
const MAX_POOLED: usize = 256;
/// Most bytes that are read of an error's body, and that are reserved before any body arrives.
const SMALL_BODY: u64 = 16 << 10;
/// How long to wait for the rest after an error. Fabric sends `complete` right after an `error`, and HTTP errors in one
/// piece.
const AFTER_ERROR: Duration = Duration::from_secs(2);
/// Longest `Retry-After` that is used, in seconds.
const MAX_RETRY_AFTER: u64 = 24 * 3600;

/// A client for one Fabric. Shared by all threads.
pub(crate) struct Client {
    pooled: Agent,
    single_use: Agent,
    /// Its URL and timeouts.
    pub(crate) settings: config::Fabric,
    /// Answers in the place of a Fabric, if there is none.
    pub(super) built_in: Option<Arc<dyn BuiltInFabric>>,
    /// Starts the Fabric that is asked.
    pub(crate) process: Option<Arc<Process>>,
    /// The list of names, and the hook that is called when it changes.
    pub(super) listed: Cached<NameList>,
    pub(super) on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The transcripts that are being fetched.
    pub(super) downloads: Downloads,
}

/// A Fabric within this process, without a model.
pub(crate) trait BuiltInFabric: Send + Sync {
    /// Answers `GET` or `POST` of a path, as Fabric does.
    ///
    /// # Errors
    /// What needs a real Fabric. Never names a path of this host.
    fn answer(&self, method: &str, path: &str, body: &[u8]) -> Result<Value, Error>;
}

/// The time limit of a whole request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// For an ordinary request.
    Request,
    /// For what Fabric has to ask others for.
    Models,
    /// For a transcript: as long as for models.
    Transcript,
    /// For a run, which also has a limit on silence, including the wait for the headers.
    Run,
}

impl Client {
    /// Creates the client without contacting Fabric. The error is one line that names the variable to fix.
    pub(crate) fn new(settings: &config::Fabric) -> Result<Client, String> {
        let key = settings.api_key.as_ref().map_or("", Secret::expose);
        HeaderValue::from_str(key)
            .map_err(|_| "FABRIC_API_KEY has characters that cannot be sent in a header")?;
        let lookups = Lookups::new();
        let agent = |most_idle, input| {
            let url = format!("{}/", settings.url);
            let config = agent::config("FABRIC_BASE_URL", &url)?
                .input_buffer_size(BUFFER)
                .output_buffer_size(BUFFER)
                .max_response_header_size(BUFFER - 1)
                .max_idle_connections(most_idle)
                .max_idle_connections_per_host(most_idle)
                .timeout_resolve(Some(settings.connect_timeout))
                .timeout_connect(Some(settings.connect_timeout))
                .timeout_per_write(Some(settings.request_timeout))
                .build();
            let lookups = lookups.clone();
            // TLS and proxies take 15 KB more of the stack of each run.
            Ok::<_, String>(if url.starts_with("http:") && config.proxy().is_none() {
                let plain = Interruptible(PlainConnector { input });
                Agent::with_parts(config, plain, lookups)
            } else {
                let any = Interruptible(DefaultConnector::new());
                Agent::with_parts(config, any, lookups)
            })
        };
        Ok(Client {
            pooled: agent(MAX_POOLED, BUFFER)?,
            single_use: agent(0, RUN_BUFFER)?,
            settings: settings.clone(),
            built_in: None,
            process: None,
            listed: Cached::new(PATIENCE),
            on_change: OnceLock::new(),
            downloads: Downloads::default(),
        })
    }

    /// A client that sends nothing: this one answers.
    pub(crate) fn within(built_in: Arc<dyn BuiltInFabric>) -> Result<Client, String> {
        // Errors show the URL, and must not show a path of this host.
        let url = "http://localhost".to_owned();
        let mut client = Client::new(&config::Fabric {
            url,
            ..config::Fabric::default()
        })?;
        client.settings.url = "--patterns-dir".to_owned();
        client.built_in = Some(built_in);
        client.listed = Cached::new(LONG_PATIENCE);
        Ok(client)
    }

    /// A client for the Fabric that `process` starts, at any port of this machine.
    pub(crate) fn starting(
        mut settings: config::Fabric,
        process: Process,
    ) -> Result<Client, String> {
        settings.url = "http://127.0.0.1".to_owned();
        let mut client = Client::new(&settings)?;
        client.process = Some(Arc::new(process));
        Ok(client)
    }

    /// Whether a Fabric would have to be started for a request.
    pub(crate) fn rests(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.running().is_none())
    }

    /// Whether there is a Fabric, or only patterns to read.
    pub(crate) fn has_fabric(&self) -> bool {
        self.built_in.is_none()
    }

    /// Redacts the API key, which may not look like a key. Keys of up to 3 bytes stay: replacing them would garble the
    /// text.
    pub(super) fn without_key(&self, said: &str) -> String {
        match self.settings.api_key.as_ref().map(Secret::expose) {
            Some(key) if key.len() > 3 => said.replace(key, "[key]"),
            _ => said.to_owned(),
        }
    }

    /// The time of a limit, and the flag that sets it.
    fn time(&self, limit: Limit) -> (Duration, &'static str) {
        match limit {
            Limit::Request => (self.settings.request_timeout, "--request-timeout"),
            Limit::Models | Limit::Transcript => (self.settings.models_timeout, "--models-timeout"),
            Limit::Run => (self.settings.run_timeout, "--run-timeout"),
        }
    }

    /// The Fabric of our own, if requests go to one. It is started if need be, but not for a poll.
    pub(super) fn own(&self, observer: &Observer) -> Result<Option<Arc<Running>>, Error> {
        match &self.process {
            None => Ok(None),
            Some(own) if observer.is_poll() => own.running().ok_or_else(Error::cancelled).map(Some),
            Some(own) => own.ask(observer.as_ref()).map(Some),
        }
    }

    /// The body of the answer to a `GET`. Retried twice within the total limit, on connection errors and the statuses of
    /// [`Cause::BadGateway`] only.
    pub(super) fn get(
        &self,
        request: &FabricRequest,
        observer: &Observer,
    ) -> Result<Vec<u8>, Error> {
        let mut deadline = None;
        let mut delays = RETRY_DELAYS.iter();
        loop {
            let own = self.own(observer)?;
            // Starting Fabric has a limit of its own, so the time begins here.
            let deadline =
                *deadline.get_or_insert_with(|| Instant::now() + self.time(request.limit).0);
            let left = deadline.saturating_duration_since(Instant::now());
            let sent = self.send(request, own, None, left, observer);
            let read = sent.and_then(FabricResponse::into_bytes);
            let may_pass = |error: &Error| error.cause.is_some_and(Cause::is_passing);
            let in_time = |delay: &&Duration| Instant::now() + **delay < deadline;
            match (read, delays.next().filter(in_time)) {
                (Err(error), Some(delay)) if may_pass(&error) => pause(*delay, observer.as_ref())?,
                (read, _) => return read,
            }
        }
    }

    /// The response to a `POST`, with its body unread. Sent once, because it costs money, and not at all if the
    /// caller has left.
    pub(super) fn post<'c>(
        &'c self,
        request: &'c FabricRequest,
        json: Vec<u8>,
        observer: &'c Observer,
    ) -> Result<FabricResponse<'c>, Error> {
        observer.still_waiting()?;
        let own = self.own(observer)?;
        let time = self.time(request.limit).0;
        self.send(request, own, Some(json), time, observer)
    }

    /// Sends the request, to our `own` Fabric if there is one, with `json` as the body of a POST. The response if it is a
    /// 200 and not a web page.
    fn send<'c>(
        &'c self,
        request: &'c FabricRequest,
        own: Option<Arc<Running>>,
        json: Option<Vec<u8>>,
        time: Duration,
        observer: &'c Observer,
    ) -> Result<FabricResponse<'c>, Error> {
        let call = Attempt {
            client: self,
            request,
            begun: Instant::now(),
            observer,
        };
        let settings = &self.settings;
        let key = settings.api_key.as_ref().map(Secret::expose);
        let (url, key) = match &own {
            Some(own) => (&own.url, Some(&*own.key)),
            None => (&settings.url, key),
        };
        let mut head = Request::builder().method(request.method);
        head = head.uri(format!("{url}{}", request.path));
        if let Some(key) = key {
            head = head.header(KEY_HEADER, key);
        }
        // A poll does not keep our own running.
        let waiting = (watch(observer), own.filter(|_| !observer.is_poll()));
        let sent = || {
            if let Some(fabric) = &self.built_in {
                let json = json.unwrap_or_default();
                let answer = fabric.answer(request.method, &request.path, &json);
                let answer = answer.map_err(|error| ureq::Error::Other(Box::new(error)))?;
                let body = Body::builder().mime_type("application/json");
                return Ok(Response::new(body.data(answer.to_string())));
            }
            let (mut agent, mut body) = (&self.pooled, SendBody::none());
            if let Some(json) = json {
                head = head
                    .header(header::CONTENT_TYPE, "application/json")
                    .header(header::CONTENT_LENGTH, json.len());
                let (json, observer) = (Cursor::new(json), Arc::clone(observer));
                agent = &self.single_use;
                body = SendBody::from_owned_reader(Outgoing { json, observer });
            }
            let sent = agent
                .configure_request(head.body(body)?)
                .timeout_global(Some(time))
                .timeout_per_read((request.limit == Limit::Run).then_some(settings.idle_timeout))
                .build();
            agent.run(sent)
        };
        call.checked(sent(), waiting)
            .inspect_err(|error| call.log(error.status, Some(error.kind)))
    }
}

/// What is held until a response is dropped: the Fabric that was started for it is not ended before that.
type Waiting = (WaitScope, Option<Arc<Running>>);

/// One attempt of a request, for errors and the log.
#[derive(Clone, Copy)]
struct Attempt<'c> {
    client: &'c Client,
    request: &'c FabricRequest,
    begun: Instant,
    observer: &'c Observer,
}

impl<'c> Attempt<'c> {
    fn checked(
        self,
        sent: Result<Response<Body>, ureq::Error>,
        waiting: Waiting,
    ) -> Result<FabricResponse<'c>, Error> {
        let (head, body) = sent.map_err(|e| self.failure(e, false))?.into_parts();
        let length = body.content_length();
        let media = body.mime_type().unwrap_or_default().trim().to_owned();
        let body = body.into_with_config().limit(u64::MAX).reader();
        if head.status != 200 {
            let status = head.status.as_u16();
            let error = self.status_error(status, &head.headers);
            // The body may say why, but is not waited for long. It is not shown otherwise, because it is meant for Fabric's
            // operator.
            let is_transcript = self.request.limit == Limit::Transcript;
            if status == 400 || is_transcript {
                let hurry = Until::after(AFTER_ERROR, self.observer.clone());
                let hurry: Observer = Arc::new(hurry);
                let _waiting = watch(&hurry);
                let mut said = Vec::new();
                // Even a truncated body may say why.
                let _ = body.take(SMALL_BODY).read_to_end(&mut said);
                let is_http = self.client.settings.url.starts_with("http:");
                if status == 400 && is_http && wants_tls(&said) {
                    return Err(self.answered(Cause::WantsTls, status, ""));
                }
                if is_transcript {
                    return Err(transcript_error(error, &said));
                }
            }
            return Err(error);
        }
        if media.eq_ignore_ascii_case("text/html") {
            return Err(self.answered(Cause::WebPage, 200, ""));
        }
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|named| !named.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(self.answered(Cause::Compressed, 200, ""));
        }
        Ok(FabricResponse {
            call: self,
            is_json: media.eq_ignore_ascii_case("application/json"),
            length,
            body,
            _waiting: waiting,
        })
    }

    /// The log line of this attempt. The path is as sent: percent-encoded, without a query.
    fn log(&self, status: Option<u16>, error: Option<Kind>) {
        if log::max_level() < log::Level::Debug {
            return;
        }
        let mut line = logging::Line::default();
        line.field("method", self.request.method)
            .field("path", self.request.path.as_str())
            .optional("status", status)
            .optional("error", error.map(Kind::name))
            .field("duration_ms", self.begun.elapsed().as_millis() as u64);
        line.log(log::Level::Debug, "fabric_mcp::fabric");
    }

    fn status_error(&self, status: u16, headers: &HeaderMap) -> Error {
        let retry_after = headers
            .get(header::RETRY_AFTER)
            .filter(|_| matches!(status, 429 | 503))
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
            .map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER)));
        let later = retry_after.map(|time| format!("in {} s", time.as_secs()));
        let later = later.as_deref().unwrap_or("later");
        let key = self.client.settings.api_key.as_ref();
        let has_placeholder = key.is_some_and(|key| is_placeholder(key.expose()));
        let cause = match status {
            401 | 403 if key.is_none() => Cause::KeyMissing,
            401 | 403 if has_placeholder => Cause::KeyPlaceholder,
            401 | 403 => Cause::KeyRefused,
            300..=399 => Cause::Redirect,
            404 => Cause::NotFound,
            413 => Cause::TooLarge,
            429 => Cause::Busy,
            // From 520 on: how Cloudflare says it.
            502..=504 | 520..=526 => Cause::BadGateway,
            500.. => Cause::Failed,
            _ => Cause::RefusedRequest,
        };
        Error {
            retry_after,
            ..self.answered(cause, status, later)
        }
    }

    /// The error for an answer with this status; `later` says when to try again.
    fn answered(&self, cause: Cause, status: u16, later: &str) -> Error {
        let values = [("status", &*status.to_string()), ("later", later)];
        let (url, request) = (&self.client.settings.url, &self.request);
        request.error(url, cause, &values).after_status(status)
    }

    /// Only bodies of a 200 are read.
    fn failure(&self, error: ureq::Error, in_body: bool) -> Error {
        if let ureq::Error::Other(other) = &error
            && let Some(own) = other.downcast_ref::<Error>()
        {
            return own.clone();
        }
        if let Some(process) = &self.client.process
            && matches!(error, ureq::Error::Timeout(_))
        {
            process.replace_if_hung();
        }
        let settings = &self.client.settings;
        let (total, flag) = self.client.time(self.request.limit);
        let is_run = self.request.limit == Limit::Run;
        let is_https = settings.url.starts_with("https:");
        let is_proxied = self.client.pooled.config().proxy().is_some();
        let (mut cause, why) = cause_of(&error, in_body, is_https, is_proxied, is_run);
        if self.client.process.is_some() && matches!(cause, Cause::Refused | Cause::Closed) {
            cause = Cause::FabricEnded;
        }
        let limit = match cause {
            Cause::ConnectTimeout => settings.connect_timeout,
            Cause::RunSilent => settings.idle_timeout,
            _ => total,
        };
        let limit = limit.as_secs_f64().to_string();
        let values = [("limit", &*limit), ("flag", flag), ("why", &why)];
        Error {
            status: in_body.then_some(200),
            ..self.request.error(&settings.url, cause, &values)
        }
    }
}

/// Whether this is how a server says that it got HTTP where it expects TLS: nginx, Go, Apache.
fn wants_tls(said: &[u8]) -> bool {
    let said = String::from_utf8_lossy(said);
    let texts = "sent to HTTPS port|to an HTTPS server|to an SSL-enabled server port";
    texts.split('|').any(|text| said.contains(text))
}

/// Sleeps, unless the caller stops waiting.
pub(super) fn pause(time: Duration, observer: &dyn CallObserver) -> Result<(), Error> {
    let mut waiting = Ok(());
    poll(time, SLICE, || {
        waiting = observer.still_waiting();
        waiting.is_err()
    });
    waiting
}

#[cfg(test)]
mod tests;
