//! The checks before both HTTP transports, and the headers that every answer carries.
//!
//! ```text
//!   request ─▶ /healthz /readyz ─▶ Host, Origin (403) ─▶ path (404) ─▶ preflight ─▶ OAuth metadata ─▶ token (401, 403, 503)
//!           ─▶ method (405) ─▶ endpoint
//! ```
//! In scope: everything before a transport sees a request, and errors outside of JSON-RPC answers. Not in scope: MCP.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::access::{self, Access, Pass, Role};
use crate::account::{Account, Guard as Share, Resource};
use crate::config::MAX_MESSAGE;
use crate::fabric::{Error, Kind};
use crate::http::{Body, Deferred, EventStream, Exchange, Handler, Head, Method, Rejection};
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, NoId, Refusal};
use crate::server::Server;
use crate::{metrics, random};

use super::guard::{RequestGuard, allowed_headers, cors, preflight};
use super::ops::{Ops, PROBES};
use super::reply::Accepts;

/// What one transport serves after these checks.
pub(super) trait Endpoint: Send + Sync {
    /// The methods of `path`, as `Allow` lists them. `None` if it is none of ours.
    fn methods(&self, path: &str) -> Option<&'static str>;

    /// Answers a request to one of these paths with one of these methods.
    fn serve(&self, visit: Visit<'_>, guest: Guest<'_>);

    /// How many sessions there are.
    fn sessions(&self) -> usize;
}

/// A transport behind these checks.
pub(super) struct Web {
    pub(super) guard: RequestGuard,
    pub(super) access: Arc<Access>,
    pub(super) server: Arc<Server>,
    /// The path of the MCP endpoint.
    pub(super) path: String,
    pub(super) ops: Ops,
    pub(super) endpoint: Box<dyn Endpoint>,
}

impl Handler for Web {
    fn handle(&self, exchange: Exchange<'_>) {
        let head = exchange.head;
        let mut visit = Visit {
            accepts: Accepts::read(head),
            exchange,
            origin: None,
            share: None,
        };
        if PROBES.contains(&head.path()) {
            return match head.method {
                Method::Get | Method::Head => {
                    let (status, body) = self.ops.probe(head.path());
                    visit.respond(status, &[JSON, ("Cache-Control", "no-store")], &[&body]);
                }
                _ => visit.not_allowed("GET, HEAD"),
            };
        }
        match self.guard.origin(head) {
            Ok(origin) => visit.origin = origin,
            Err(detail) => {
                log::info!("{}: answered 403: {detail}", visit.exchange.peer());
                return visit.refuse(403, detail);
            }
        }
        let metrics = head.path() == "/metrics";
        let document = self.access.document(head.path(), &self.path);
        let reading = metrics || document.is_some();
        let methods = if reading {
            Some("GET, HEAD, OPTIONS")
        } else {
            self.endpoint.methods(head.path())
        };
        let Some(methods) = methods else {
            return visit.not_found();
        };
        let allowed = methods
            .split(", ")
            .any(|method| method == head.method.as_str());
        if head.method == Method::Options {
            return visit.respond(204, &preflight(methods, &allowed_headers(head)), &[]);
        }
        if let (Some(document), true) = (document, allowed) {
            return visit.respond(200, &[JSON, ("Cache-Control", "max-age=3600")], &[document]);
        }
        let ip = self.guard.caller(head, visit.exchange.peer().ip());
        let pass = match self.access.admit(head.headers_named("authorization"), ip) {
            Ok(pass) => pass,
            Err(refusal) => return visit.refuse_caller(&self.access, ip, refusal, None),
        };
        let _scope = pass.identity.log_scope();
        if let Err(refusal) = pass.require(if metrics { Role::Metrics } else { Role::Read }) {
            return visit.refuse_caller(&self.access, ip, refusal, Some(&pass));
        }
        if !allowed {
            return visit.not_allowed(methods);
        }
        if metrics {
            let text = self.ops.metrics(self.endpoint.sessions());
            return visit.respond(
                200,
                &[("Content-Type", "text/plain; version=0.0.4; charset=utf-8")],
                &[text.as_bytes()],
            );
        }
        self.endpoint.serve(
            visit,
            Guest {
                access: &self.access,
                account: &self.server.account(&pass.identity),
                pass: &Arc::new(pass),
            },
        );
    }
}

/// An admitted caller, and what decides whether it remains admitted.
#[derive(Clone, Copy)]
pub(super) struct Guest<'a> {
    pub(super) access: &'a Arc<Access>,
    pub(super) account: &'a Account,
    pub(super) pass: &'a Arc<Pass>,
}

/// The header of a JSON body.
pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");
/// What a caller is told that has its share of the connections.
const HAS_ITS_SHARE: &str = "This caller holds as many connections as one may: let calls end, close a stream, or raise \
                             --max-connections.";
/// The headers of a stream: no proxy may cache or buffer it.
const STREAM: [(&str, &str); 3] = [
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-cache"),
    ("X-Accel-Buffering", "no"),
];

/// An admitted request, and the way to answer it.
pub(super) struct Visit<'a> {
    exchange: Exchange<'a>,
    /// What its client accepts as an answer.
    pub(super) accepts: Accepts,
    origin: Option<&'a str>,
    /// Its caller's share of the connections, once it has one.
    share: Option<Share>,
}

impl<'a> Visit<'a> {
    /// The request's head.
    pub(super) fn head(&self) -> &'a Head {
        self.exchange.head
    }

    /// Checks the `Content-Type` of a message. `None` if it is not JSON, which has been answered then.
    pub(super) fn with_json(self) -> Option<Visit<'a>> {
        let media = self.head().header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim_end();
        if media.eq_ignore_ascii_case("application/json") {
            return Some(self);
        }
        self.refuse(
            415,
            "A message is JSON: send it with Content-Type: application/json.",
        );
        None
    }

    /// Reads the body. `None` if that failed; then the error has been sent.
    pub(super) fn read_body(mut self, guest: Guest<'_>) -> Option<(Visit<'a>, Body)> {
        match self.exchange.read_body(guest.account) {
            Ok(body) => {
                // Without a free place, answer briefly.
                self.exchange.hold();
                Some((self, body))
            }
            Err(Rejection(status, detail)) => {
                match status {
                    503 => self.overloaded(status, detail),
                    413 => self.refuse(
                        status,
                        format!("{detail} At most {MAX_MESSAGE} bytes are taken."),
                    ),
                    _ => self.refuse(status, detail),
                }
                None
            }
        }
    }

    /// Holds its connection for an answer that may take long, as one of those that this caller may hold; `replaces` says
    /// that another one ends for it. `None` if there is no place left, which has been answered then.
    pub(super) fn stay(mut self, guest: Guest<'_>, replaces: bool) -> Option<Visit<'a>> {
        self.share = guest.account.take(Resource::Streams, 1).ok();
        let has_place = self.share.is_some() || replaces;
        if !has_place && !guest.account.is_alone() {
            self.overloaded(429, HAS_ITS_SHARE);
            return None;
        }
        if has_place && self.exchange.hold() {
            return Some(self);
        }
        self.overloaded(
            503,
            "The server is serving as many requests as it may. Try again in a moment.",
        );
        None
    }

    /// Answers with a body of known size, in these parts.
    pub(super) fn respond(self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        self.defer().respond(status, headers, body);
    }

    /// Frees what the connection reads into, because the answer may take long.
    pub(super) fn free_buffer(&mut self) {
        self.exchange.free_buffer();
    }

    /// Defers the answer.
    pub(super) fn defer(self) -> Later {
        Later {
            origin: self.origin.map(str::to_owned),
            accepts: self.accepts,
            share: self.share,
            deferred: self.exchange.defer(),
        }
    }

    /// Answers that there is no memory for this message.
    pub(super) fn no_room(self, answer: &Answer) {
        self.respond(503, &[JSON, ("Retry-After", "1")], &answer.body.parts());
    }

    /// Answers with an error outside of any JSON-RPC request: an error object without an id.
    pub(super) fn refuse(self, status: u16, detail: impl Into<String>) {
        self.refuse_with(status, &[], Error::new(Kind::InvalidRequest, detail));
    }

    /// Answers that there is too much to do.
    fn overloaded(self, status: u16, detail: impl Into<String>) {
        self.refuse_with(
            status,
            &[("Retry-After", "1")],
            Error::new(Kind::TooManyRequests, detail),
        );
    }

    /// Answers 405.
    pub(super) fn not_allowed(self, allow: &str) {
        let detail = format!(
            "This path does not accept {} here: use {allow}.",
            self.head().method
        );
        self.refuse_with(
            405,
            &[("Allow", allow)],
            Error::new(Kind::InvalidRequest, detail),
        );
    }

    /// Rejects a caller at `ip`.
    fn refuse_caller(
        self,
        access: &Access,
        ip: IpAddr,
        refusal: access::AccessError,
        pass: Option<&Pass>,
    ) {
        let (status, label) = refusal.status();
        log::info!("{ip}: answered {status}: {}", refusal.detail());
        metrics::CALLERS_REFUSED.add([label], 1);
        let challenge = access.challenge(refusal, pass);
        let retry = refusal.retry_after().map(|seconds| seconds.to_string());
        let headers = [("WWW-Authenticate", &challenge), ("Retry-After", &retry)];
        let headers: Vec<_> = headers
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect();
        let kind = match status {
            403 => Kind::Forbidden,
            _ => Kind::InvalidRequest,
        };
        let error = Error::new(kind, refusal.detail());
        self.refuse_with(status, &headers, error);
    }

    /// As OAuth errors look: its discovery probes paths that do not exist here.
    fn not_found(self) {
        let body = br#"{"error":"not_found","error_description":"There is nothing at this path."}"#;
        self.respond(404, &[JSON], &[body]);
    }

    fn refuse_with(self, status: u16, headers: &[(&str, &str)], error: Error) {
        let refusal = Refusal::of(INVALID_REQUEST, error);
        let answer = refusal.answer(None, NoId::Absent, false, &random::request_id());
        let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
        self.respond(status, &headers, &answer.body.parts());
    }
}

/// A deferred answer.
pub(super) struct Later {
    origin: Option<String>,
    pub(super) accepts: Accepts,
    /// The caller's share of the connections.
    pub(super) share: Option<Share>,
    pub(super) deferred: Deferred,
}

impl Later {
    /// Answers with a result, in parts: JSON, or a stream of it alone if only that is accepted. An error status is always
    /// JSON.
    pub(super) fn answer(self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        if self.accepts.json || status != 200 {
            let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
            self.respond(status, &headers, body);
        } else {
            self.stream(headers).end_with(body);
        }
    }

    /// Answers with a body of known size, in these parts.
    pub(super) fn respond(self, status: u16, headers: &[(&str, &str)], body: &[&[u8]]) {
        metrics::RESPONSES.add([status], 1);
        self.deferred
            .respond(status, &with_cors(headers, self.origin.as_deref()), body);
    }

    /// Answers with a stream, whose head goes out at once; `headers` are further ones.
    pub(super) fn stream(self, headers: &[(&str, &str)]) -> EventStream {
        metrics::RESPONSES.add([200], 1);
        let headers: Vec<_> = headers.iter().copied().chain(STREAM).collect();
        self.deferred
            .stream(&with_cors(&headers, self.origin.as_deref()))
    }
}

fn with_cors<'h>(
    headers: &'h [(&'h str, &'h str)],
    origin: Option<&'h str>,
) -> Cow<'h, [(&'h str, &'h str)]> {
    match origin {
        Some(origin) => [headers, &cors(origin)].concat().into(),
        None => headers.into(),
    }
}
