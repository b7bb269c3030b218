//! The checks before both HTTP transports, and the headers that every answer carries.
//!
//! ```text
//!   request ─▶ /healthz /readyz ─▶ Host, Origin (403) ─▶ a browser's page ─▶ path (404) ─▶ preflight ─▶ OAuth metadata
//!           ─▶ token (401, 403, 503) ─▶ method (405) ─▶ endpoint
//! ```
//! In scope: everything before a transport sees a request, and errors outside of JSON-RPC answers. Not in scope: MCP.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;

use crate::access::{Access, AccessError, Caller, Role};
use crate::account::Resource;
use crate::config::Config;
use crate::encoding::json::mend_surrogates;
use crate::fabric::{Error, Kind};
use crate::http::{Body, Exchange, Head, JSON, Method, Rejection, Responder};
use crate::metrics;
use crate::os::random;
use crate::protocol::jsonrpc::INVALID_REQUEST;
use crate::protocol::{Answer, Refusal};
use crate::server::Server;

use super::guard::{PREFLIGHT_MAX_AGE, RequestGuard, allowed_headers, cors};
use super::ops::{Ops, PROBES};
use super::page;
use super::refusals::Refusals;

/// What one transport serves after these checks.
pub(super) trait Endpoint: Send + Sync {
    /// The methods of a path, as `Allow` lists them; `rest` is what follows the endpoint's. `None` if it is none of ours.
    fn methods(&self, rest: &str) -> Option<&'static str>;

    /// Answers a request to one of these paths with one of these methods.
    ///
    /// # Errors
    /// The answer, if there is none yet.
    fn serve(&self, incoming: &mut HttpRequest<'_>, caller: &Arc<Caller>) -> Done;

    /// How many sessions there are.
    fn sessions(&self) -> usize;
}

/// A transport behind these checks.
pub(super) struct Web {
    pub(super) guard: RequestGuard,
    pub(super) access: Arc<Access>,
    pub(super) server: Arc<Server>,
    pub(super) config: Config,
    pub(super) ops: Ops,
    pub(super) refusals: Refusals,
    pub(super) endpoint: Box<dyn Endpoint>,
}

impl Web {
    /// Answers one request.
    pub(super) fn handle(&self, exchange: Exchange<'_>) {
        let mut incoming = HttpRequest {
            web: self,
            exchange,
            origin: None,
        };
        if let Err(mut error) = self.serve(&mut incoming) {
            if error.headers.is_empty() && matches!(error.status, 429 | 503) {
                error.headers.push(("Retry-After", "1".to_owned()));
            }
            let mut responder = incoming.responder();
            responder.headers.extend(error.headers);
            responder.answer(error.status, &[&error.body]);
        }
    }

    fn serve(&self, incoming: &mut HttpRequest<'_>) -> Done {
        let head = incoming.exchange.head;
        if PROBES.contains(&head.path()) {
            if !matches!(head.method, Method::Get | Method::Head) {
                return Err(HttpError::method(head, "GET, HEAD"));
            }
            let (status, body) = self.ops.probe(head.path());
            return incoming.respond(status, &[JSON, ("Cache-Control", "no-store")], &[&body]);
        }
        let peer = incoming.exchange.peer().ip();
        incoming.origin = self.guard.origin(head).map_err(|detail| {
            self.refusals.log(peer, 403, &detail);
            HttpError::new(403, detail)
        })?;
        let (config, path) = (&self.config, &self.config.path);
        if !config.http.no_page && page::is_for(head, path) {
            let text = page::text(config, head, self.ops.unready().is_none());
            return incoming.respond(200, &page::HEADERS, &[text.as_bytes()]);
        }
        let metrics = head.path() == "/metrics";
        let oauth = self.access.oauth.as_ref();
        let document = oauth.and_then(|oauth| oauth.document(head.path(), path));
        let methods = if metrics || document.is_some() {
            Some("GET, HEAD, OPTIONS")
        } else {
            let rest = head.path().strip_prefix(path.trim_end_matches('/'));
            rest.and_then(|rest| self.endpoint.methods(rest))
        };
        let Some(methods) = methods else {
            // In the form of an OAuth error, because OAuth's discovery probes paths that do not exist here.
            let why = format!("There is nothing at this path; MCP is at {path}.");
            let body = json!({"error": "not_found", "error_description": why}).to_string();
            return incoming.respond(404, &[JSON], &[body.as_bytes()]);
        };
        if head.method == Method::Options {
            let headers = [
                ("Allow", methods),
                ("Access-Control-Allow-Methods", methods),
                ("Access-Control-Allow-Headers", &allowed_headers(head)),
                ("Access-Control-Max-Age", PREFLIGHT_MAX_AGE),
            ];
            return incoming.respond(204, &headers, &[]);
        }
        let mut known = methods.split(", ");
        let allowed = known.any(|method| method == head.method.as_str());
        if let (Some(document), true) = (&document, allowed) {
            return incoming.respond(200, &[JSON, ("Cache-Control", "max-age=3600")], &[document]);
        }
        let forwarded: Vec<&str> = head.headers_named("x-forwarded-for").collect();
        let ip = self.guard.caller(&forwarded, peer);
        let authorization = head.headers_named("authorization");
        let accounts = &self.server.backend.accounts;
        let caller = incoming
            .exchange
            .look_up(|is_there| (self.access).admit(authorization, ip, accounts, is_there));
        let caller = caller.map_err(|no| self.not_admitted(ip, no, self.access.challenge(no)))?;
        incoming.exchange.own(&caller.account);
        let _scope = caller.identity.log_scope();
        let allowance = caller.require(if metrics { Role::Metrics } else { Role::Read });
        allowance.map_err(|no| self.not_admitted(ip, no, caller.challenge(no)))?;
        if !allowed {
            return Err(HttpError::method(head, methods));
        }
        if metrics {
            metrics::TOKENS_FILE_FAILING.set([], u64::from(self.access.tokens.is_failing()));
            let connections = incoming.exchange.connections();
            let text = self.ops.metrics(connections, self.endpoint.sessions());
            let media = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
            return incoming.respond(200, &[media], &[text.as_bytes()]);
        }
        self.endpoint.serve(incoming, &Arc::new(caller))
    }

    /// The answer to a caller at `ip` that is not admitted, with the value of `WWW-Authenticate`.
    fn not_admitted(&self, ip: IpAddr, refusal: AccessError, asks: Option<String>) -> HttpError {
        let ((status, label), detail) = (refusal.status(), refusal.detail());
        self.refusals.log(ip, status, &detail);
        metrics::CALLERS_REFUSED.add([label], 1);
        let kind = match status {
            403 => Kind::Forbidden,
            _ => Kind::InvalidRequest,
        };
        let retry = refusal.retry_after().map(|seconds| seconds.to_string());
        HttpError::of(status, Error::new(kind, detail))
            .with("WWW-Authenticate", asks)
            .with("Retry-After", retry)
    }
}

/// What a client is told that does not accept a stream.
pub(super) const NO_STREAM: &str = "The answer is a stream: send Accept: text/event-stream.";

/// A request is served, or this is the answer to it.
pub(super) type Done = Result<(), HttpError>;

/// The answer to a request that is not served.
pub(super) struct HttpError {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl HttpError {
    /// A JSON-RPC answer, with a status.
    pub(super) fn answer(status: u16, answer: Answer) -> HttpError {
        HttpError {
            status,
            headers: Vec::new(),
            body: answer.body,
        }
    }

    /// An error outside of any JSON-RPC request: an error object without an id.
    fn of(status: u16, error: Error) -> HttpError {
        let refusal = Refusal::of(INVALID_REQUEST, error);
        let answer = refusal.answer(None, false, &random::request_id());
        HttpError::answer(status, answer)
    }

    /// The client's mistake, or by its status that there is too much to do.
    pub(super) fn new(status: u16, detail: impl Into<String>) -> HttpError {
        let kind = match status {
            429 | 503 => Kind::TooManyRequests,
            _ => Kind::InvalidRequest,
        };
        HttpError::of(status, Error::new(kind, detail))
    }

    /// The client's mistake, unless `is_met`.
    pub(super) fn unless(is_met: bool, status: u16, detail: &str) -> Done {
        let refused = || HttpError::new(status, detail);
        is_met.then_some(()).ok_or_else(refused)
    }

    /// Only the methods `allow` are served here.
    pub(super) fn method(head: &Head, allow: &str) -> HttpError {
        let method = &head.method;
        let detail = format!("This path does not accept {method}: use {allow}.");
        HttpError::new(405, detail).with("Allow", Some(allow.to_owned()))
    }

    /// The same with another header, if it has a value.
    pub(super) fn with(mut self, name: &'static str, value: Option<String>) -> HttpError {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }
}

/// An admitted request, and the way to answer it.
pub(super) struct HttpRequest<'a> {
    /// The server that got the request.
    pub(super) web: &'a Web,
    /// The request.
    pub(super) exchange: Exchange<'a>,
    origin: Option<&'a str>,
}

impl<'a> HttpRequest<'a> {
    /// Checks the `Content-Type` of a message.
    pub(super) fn require_json(&self) -> Done {
        let head = self.exchange.head;
        let media = head.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim_end();
        let is_json = media.eq_ignore_ascii_case("application/json");
        let detail = "A message is JSON: send it with Content-Type: application/json.";
        HttpError::unless(is_json, 415, detail)
    }

    /// Checks that the client accepts a stream.
    pub(super) fn require_stream(&self) -> Done {
        HttpError::unless(self.exchange.head.accepts.events, 406, NO_STREAM)
    }

    /// Reads the body.
    pub(super) fn read_body(&mut self, caller: &Caller) -> Result<Body, HttpError> {
        let body = self.exchange.read_body(&caller.account);
        let mut body = body.map_err(|Rejection(status, why)| HttpError::new(status, why))?;
        mend_surrogates(&mut body.bytes);
        // Without a place of the caller's, answer briefly.
        self.exchange.hold(&caller.account);
        Ok(body)
    }

    /// Keeps the connection for an answer that may take long.
    ///
    /// # Errors
    /// There is no place left.
    pub(super) fn stay(&self, caller: &Caller) -> Done {
        let account = &caller.account;
        if self.exchange.hold(account) {
            return Ok(());
        }
        let status = if account.is_alone() { 503 } else { 429 };
        let detail = format!(
            "All connections that you may have are in use.{} Try again in a moment, close a stream, or \
             raise --max-connections.",
            account.holding(Resource::Streams)
        );
        Err(HttpError::new(status, detail))
    }

    /// Answers with a body of known size, in these parts. With that the request is served.
    pub(super) fn respond(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[&[u8]],
    ) -> Done {
        self.responder().respond(status, headers, body);
        Ok(())
    }

    /// The responder, which answers once.
    pub(super) fn responder(&mut self) -> Responder {
        let mut responder = self.exchange.responder();
        responder.headers = self.origin.map(cors).unwrap_or_default();
        responder.count = |status| metrics::RESPONSES.add([status], 1);
        responder
    }
}
