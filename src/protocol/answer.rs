//! Writes answers: a result's envelope in each revision, and error objects.
//!
//! In scope: `resultType`, serverInfo, cache hints, `_meta`, error `data`. Not in scope: the content of results.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::jsonrpc::{self, Id};
use super::revision::{Feature, Revision};
use super::writer::Json;
use crate::account::{Account, QuotaExceeded, Reservation, Resource};
use crate::config::STATIC_TTL;
use crate::error::{Error, Kind};

/// A JSON-RPC answer, with what a transport needs to know about it.
pub(crate) struct Answer {
    /// The message: one line without its newline.
    pub(crate) body: Vec<u8>,
    /// A list that many answers share, and where in `body` it belongs. A copy for each answer would take much memory, and
    /// make the static program map and unmap it.
    shared: Option<(usize, Arc<[u8]>)>,
    /// The HTTP status, where the answer is no stream.
    pub(crate) status: u16,
    /// The memory that `body` takes, if it was charged.
    pub(crate) memory: Option<Reservation>,
    /// The answers of a batch. Their array is then the message, and `body` is empty.
    batch: Vec<Answer>,
}

/// Any other message, which is sent like an answer.
impl From<Vec<u8>> for Answer {
    fn from(body: Vec<u8>) -> Answer {
        Answer {
            body,
            shared: None,
            status: 200,
            memory: None,
            batch: Vec::new(),
        }
    }
}

impl Answer {
    /// The answer to a batch: the array of these, at least one.
    pub(crate) fn array(batch: Vec<Answer>) -> Answer {
        Answer {
            batch,
            ..Vec::new().into()
        }
    }

    /// The parts of the message.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        match &self.shared {
            Some((at, list)) => vec![&self.body[..*at], list, &self.body[*at..]],
            None if self.batch.is_empty() => vec![&self.body],
            None => {
                let mut parts: Vec<&[u8]> = Vec::new();
                for answer in &self.batch {
                    parts.push(if parts.is_empty() { b"[" } else { b"," });
                    parts.extend(answer.parts());
                }
                parts.push(b"]");
                parts
            }
        }
    }

    /// How much memory the answer takes, in bytes, without a list that is shared.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.batch.iter().map(Answer::size).sum::<usize>()
    }

    /// How much of that is charged already.
    pub(crate) fn charged(&self) -> usize {
        let own = self.memory.as_ref().map_or(0, Reservation::held);
        own + self.batch.iter().map(Answer::charged).sum::<usize>()
    }

    /// Charges the body to `account`, as far as this was not done before writing.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub(crate) fn charge(&mut self, account: &Account) -> Result<(), QuotaExceeded> {
        let length = self.body.len();
        let open = || account.open(Resource::Memory);
        let memory = self.memory.get_or_insert_with(open);
        memory.grow(length.saturating_sub(memory.held()))
    }
}

/// Writes one result, field by field, directly into the message.
pub(crate) struct ResultWriter {
    out: Json,
    /// How much of it is before the members.
    head: usize,
    /// The revision it is written for.
    pub(crate) revision: Revision,
    /// `resultType`, for revisions that have it; set it before the first field.
    pub(crate) kind: &'static str,
    /// The members of `_meta`, each after a comma.
    meta: Json,
    /// [`Answer::shared`].
    shared: Option<(usize, Arc<[u8]>)>,
}

impl ResultWriter {
    /// Begins the result of the request with this id; without one, a result to be embedded in another: its members alone.
    pub(crate) fn new(id: Option<&Id>, revision: Revision) -> ResultWriter {
        let mut out = id.map_or_else(Json::default, jsonrpc::begin_result);
        out.extend(b"{");
        ResultWriter {
            head: out.bytes.len(),
            out,
            revision,
            kind: "complete",
            meta: Json::default(),
            shared: None,
        }
    }

    /// From now on, charges the memory of the answer to `account`, because a call's answer may be long.
    pub(crate) fn charged(mut self, account: &Account) -> ResultWriter {
        self.out = self.out.charged(account);
        self
    }

    /// Whether there was no room for all of it; then it must not be sent.
    pub(crate) fn is_cut(&self) -> bool {
        self.out.is_cut
    }

    /// Starts again, uncharged, with something short, because there is always room for an error.
    pub(crate) fn restart(&mut self) {
        self.out.bytes.truncate(self.head);
        self.out.bytes.shrink_to(0);
        (self.out.is_cut, self.out.memory) = (false, None);
        self.meta = Json::default();
        self.shared = None;
    }

    /// Appends one field.
    pub(crate) fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> &mut ResultWriter {
        let out = self.key(name);
        jsonrpc::write_json(out, value);
        self
    }

    /// Appends the name of a field; the caller appends the value to the returned buffer.
    pub(crate) fn key(&mut self, name: &str) -> &mut Json {
        if self.out.bytes.len() == self.head && self.revision.knows(Feature::Stateless) {
            jsonrpc::write_member(&mut self.out, "resultType", self.kind);
        }
        jsonrpc::write_name(&mut self.out, name)
    }

    /// Appends one field whose value is JSON that many answers share. There can be one of them.
    pub(crate) fn share(&mut self, name: &str, value: Arc<[u8]>) {
        self.shared = Some((self.key(name).bytes.len(), value));
    }

    /// Adds a member of `_meta`.
    pub(crate) fn meta<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        jsonrpc::write_member(&mut self.meta, name, value);
    }

    /// Appends how long a client may cache the result (0: not at all) and for whom, in revisions that have that: 2026-07-28,
    /// server/utilities/caching. Without a time-to-live it depends only on this program.
    pub(crate) fn cache(&mut self, ttl: Option<Duration>) -> &mut ResultWriter {
        if self.revision.knows(Feature::Stateless) {
            let scope = ttl.map_or("public", |_| "private");
            let ttl_ms = ttl.unwrap_or(STATIC_TTL).as_millis() as u64;
            self.field("ttlMs", &ttl_ms).field("cacheScope", scope);
        }
        self
    }

    /// Ends the object with `_meta`, unless it is empty.
    pub(crate) fn end_body(mut self) -> Vec<u8> {
        if self.revision.knows(Feature::Stateless) {
            let info = server_info(self.revision);
            self.meta("io.modelcontextprotocol/serverInfo", &info);
        }
        let meta = std::mem::take(&mut self.meta);
        if let Some(members) = meta.bytes.get(1..) {
            let out = &mut self.key("_meta").bytes;
            out.push(b'{');
            out.extend_from_slice(members);
            out.push(b'}');
        }
        self.out.bytes.push(b'}');
        self.out.bytes
    }

    /// Ends the whole message.
    pub(crate) fn end(mut self) -> Answer {
        let (mut memory, shared) = (self.out.memory.take(), self.shared.take());
        let mut body = self.end_body();
        body.extend_from_slice(jsonrpc::END);
        if let Some(memory) = &mut memory {
            memory.shrink(memory.held().saturating_sub(body.len()));
        }
        Answer {
            memory,
            shared,
            ..body.into()
        }
    }
}

/// `serverInfo`, with the fields that `revision` has.
pub(crate) fn server_info(revision: Revision) -> impl Serialize {
    // No map: this is part of every result, and maps are slow to allocate in the static program.
    #[derive(Serialize)]
    struct ServerInfo {
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'static str>,
        name: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'static str>,
        version: &'static str,
    }
    let known = |feature, text| revision.knows(feature).then_some(text);
    ServerInfo {
        description: known(Feature::ServerDescription, env!("CARGO_PKG_DESCRIPTION")),
        name: env!("CARGO_PKG_NAME"),
        title: known(Feature::Title, "Fabric"),
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// A protocol-level failure: a JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The JSON-RPC code.
    pub(crate) code: i32,
    /// What happened, for the error object and the log.
    pub(crate) error: Error,
    /// Members that MCP requires in `data`, in addition to the error object. They are rare: in a box, they do not make every
    /// result larger that may be a refusal.
    pub(crate) data: Option<Box<Map<String, Value>>>,
    /// Whether the envelope (params and `_meta`) was refused and not the method.
    envelope: bool,
}

impl Refusal {
    /// An invalid request.
    pub(crate) fn new(code: i32, detail: impl Into<String>) -> Refusal {
        Refusal::of(code, Error::new(Kind::InvalidRequest, detail))
    }

    /// Invalid params.
    pub(crate) fn params(detail: impl Into<String>) -> Refusal {
        Refusal::new(jsonrpc::INVALID_PARAMS, detail)
    }

    /// Any error, with `code`.
    pub(crate) fn of(code: i32, error: Error) -> Refusal {
        Refusal {
            code,
            error,
            data: None,
            envelope: false,
        }
    }

    /// The same, as a refusal of the envelope.
    pub(crate) fn of_envelope(mut self) -> Refusal {
        self.envelope = true;
        self
    }

    /// Adds a member to `data`.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Refusal {
        let data = self.data.get_or_insert_default();
        data.insert(key.into(), value.into());
        self
    }

    /// The answer to `id`, if it was readable. `modern`: whether the request is.
    pub(crate) fn answer(self, id: Option<&Id>, modern: bool, request_id: &str) -> Answer {
        let mut data = error_object(&self.error, request_id);
        data.extend(self.data.into_iter().flat_map(|more| *more));
        let body = jsonrpc::error(id, self.code, &self.error.detail, &data);
        let status = match self.code {
            // To legacy clients 404 says that the session is lost, and nothing else does.
            _ if !modern => 200,
            jsonrpc::PARSE_ERROR | jsonrpc::INVALID_REQUEST | -32022..=-32020 => 400,
            jsonrpc::METHOD_NOT_FOUND => 404,
            _ if self.envelope => 400,
            _ => 200,
        };
        Answer {
            status,
            ..body.into()
        }
    }
}

/// A failed prompt, resource or completion: for "not found" and invalid input the params are to blame.
impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let code = match error.kind {
            Kind::InvalidRequest | Kind::PatternNotFound => jsonrpc::INVALID_PARAMS,
            _ => jsonrpc::INTERNAL_ERROR,
        };
        Refusal::of(code, error)
    }
}

/// The error object: in `_meta.error` of a tool's result, and in `data` of a JSON-RPC error.
pub(crate) fn error_object(error: &Error, request_id: &str) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("type".into(), error.kind.urn().into());
    object.insert("title".into(), error.kind.title().into());
    object.insert("detail".into(), error.detail.as_str().into());
    object.insert("request_id".into(), request_id.into());
    if let Some(after) = error.retry_after {
        object.insert("retry_after_ms".into(), (after.as_millis() as u64).into());
    }
    object
}
