//! Who is asking: the era and revision of a request, and the little that a legacy connection remembers.
//!
//! ```text
//!   legacy:  (new) --initialize--> (revision known) --initialize--> (renegotiated)
//!   modern:  no state at all: every request says in its `_meta` what it speaks
//! ```
//! Both may be mixed on one connection, in any order: clients probe with `server/discover` and then `initialize`.
//!
//! In scope: `initialize`, `server/discover`, `logging/setLevel`, modern `_meta`, and the checks in their order:
//! `_meta`, header against body, version. Not in scope: methods.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::config::STATIC_TTL;
use crate::jsonrpc::{self, Id, NoId};

use super::answer::{Answer, Cache, Refusal, ResultWriter, server_info};
use super::revision::{Feature, Revision};
use super::{given, text};

/// Header and body of an HTTP request disagree.
const HEADER_MISMATCH: i32 = -32020;
/// A protocol version we do not speak.
const UNSUPPORTED_VERSION: i32 = -32022;

/// How a model uses this server well: sent once, to every client.
const INSTRUCTIONS: &str = "Fabric is a library of tested prompts (patterns), each for one task. Find one with \
fabric_list_patterns (or its query), look at fabric_get_pattern_details when the name leaves doubt or the pattern has \
variables, then call fabric_run_pattern with the whole text as input_text. A run calls a language model, takes seconds \
to minutes and may cost money: run a pattern once, set stream to true to follow it, and never repeat a run only to see \
its output again.";

/// Severity of a log message, as MCP has it (RFC 5424), least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const ALL: [(Level, &'static str); 8] = [
        (Level::Debug, "debug"),
        (Level::Info, "info"),
        (Level::Notice, "notice"),
        (Level::Warning, "warning"),
        (Level::Error, "error"),
        (Level::Critical, "critical"),
        (Level::Alert, "alert"),
        (Level::Emergency, "emergency"),
    ];

    fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|(_, n)| *n == name).map(|(level, _)| level)
    }

    /// The level as it is written in messages.
    pub(crate) fn name(self) -> &'static str {
        Level::ALL[self as usize].1
    }

    fn from_index(index: u8) -> Level {
        Level::ALL.get(usize::from(index)).map_or(Level::Warning, |(level, _)| *level)
    }
}

/// What a legacy connection remembers: the stdio process, or one HTTP session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Index into [`Revision::ALL`], or [`NO_REVISION`].
    revision: AtomicU8,
    level: AtomicU8,
    follows_lists: AtomicBool,
    no_id: NoId,
}

const NO_REVISION: u8 = u8::MAX;

impl Session {
    /// A stdio process before any handshake.
    pub(crate) fn stdio() -> Session {
        Session::new(NO_REVISION, NoId::Null)
    }

    /// What an HTTP request without a session speaks: nothing yet.
    pub(crate) fn http() -> Session {
        Session::new(NO_REVISION, NoId::Absent)
    }

    /// An HTTP session of `revision`, fresh or adopted.
    pub(crate) fn of(revision: Revision) -> Session {
        Session::new(revision as u8, NoId::Absent)
    }

    fn new(revision: u8, no_id: NoId) -> Session {
        // Chunks reach streaming callers as progress; the level starts where they are not sent a second time.
        Session {
            revision: AtomicU8::new(revision),
            level: AtomicU8::new(Level::Warning as u8),
            follows_lists: AtomicBool::new(false),
            no_id,
        }
    }

    /// The revision agreed on, if there was a handshake.
    pub(crate) fn revision(&self) -> Option<Revision> {
        Revision::ALL.get(usize::from(self.revision.load(Ordering::Relaxed))).copied()
    }

    /// The least severe level of the log messages that the client wants.
    pub(crate) fn level(&self) -> Level {
        Level::from_index(self.level.load(Ordering::Relaxed))
    }

    /// Has the client listed prompts or resources, so that it will want to hear of changes?
    pub(crate) fn follows_lists(&self) -> bool {
        self.follows_lists.load(Ordering::Relaxed)
    }

    /// Notes that the client has listed prompts or resources.
    pub(super) fn follow_lists(&self) {
        self.follows_lists.store(true, Ordering::Relaxed);
    }

    /// How an error without a readable id is written here.
    pub(crate) fn no_id(&self) -> NoId {
        match self.revision() {
            Some(revision) if revision.knows(Feature::AbsentId) => NoId::Absent,
            _ => self.no_id,
        }
    }
}

/// What HTTP's headers say of a modern request, to be held against its body. Values are decoded and trimmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<String>,
    /// `Mcp-Method`.
    pub(crate) method: Option<String>,
    /// `Mcp-Name`; the error is what is wrong with its encoding.
    pub(crate) name: Option<Result<String, &'static str>>,
}

/// What one request speaks and wants to be told.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The revision of the request and of its answer.
    pub(crate) revision: Revision,
    /// The level of this request's log messages: modern only, legacy asks the [`Session`] each time.
    pub(crate) level: Option<Level>,
    /// The JSON of the progress token, if there is one.
    pub(crate) progress_token: Option<Id>,
}

/// A request's `_meta`, as far as we read it. Everything raw: a wrong type is our error to word. `null` is a wrong type,
/// but for the progress token, where it means none.
#[derive(Default, Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(
        borrow,
        rename = "io.modelcontextprotocol/protocolVersion",
        default,
        deserialize_with = "jsonrpc::present"
    )]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities", default)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel", default, deserialize_with = "jsonrpc::present")]
    level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken", default)]
    progress_token: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// Reads `_meta` out of raw params.
    ///
    /// # Errors
    /// -32602 if params or `_meta` are not objects.
    pub(super) fn read(params: Option<&'a RawValue>) -> Result<Meta<'a>, Refusal> {
        let Some(params) = params else { return Ok(Meta::default()) };
        let wrong = |what: &str| Refusal::params(format!("\"{what}\" must be an object, with each field once."));
        if !params.get().starts_with('{') {
            return Err(wrong("params"));
        }
        // A scan of the whole params costs as much as parsing them: skip it where there can be nothing to find.
        if params.get() == "{}" {
            return Ok(Meta::default());
        }
        let [meta] = jsonrpc::members(params.get(), ["_meta"]).map_err(|_| wrong("params"))?;
        let Some(meta) = given(meta) else { return Ok(Meta::default()) };
        if !meta.get().starts_with('{') {
            return Err(wrong("_meta"));
        }
        serde_json::from_str(meta.get()).map_err(|_| wrong("_meta"))
    }

    /// Does the envelope say that the request is a modern one?
    pub(super) fn is_modern(&self) -> bool {
        self.version.is_some()
    }

    fn progress_token(&self) -> Result<Option<Id>, Refusal> {
        let read = |raw| {
            Id::from_raw(raw).ok_or_else(|| {
                Refusal::params("\"progressToken\" must be a string or an integer, of at most 1024 bytes.")
            })
        };
        self.progress_token.map(read).transpose()
    }

    /// The caller of a modern request, after all checks of its envelope.
    pub(super) fn modern(
        &self,
        method: &str,
        params: Option<&RawValue>,
        mirror: Option<&Mirror>,
    ) -> Result<Caller, Refusal> {
        let missing = |name: &str, what: &str| {
            Refusal::params(format!(
                "params._meta[\"io.modelcontextprotocol/{name}\"] must be {what}: every request of 2026-07-28 carries it."
            ))
        };
        let Some(version) = self.version.and_then(jsonrpc::text) else {
            return Err(missing("protocolVersion", "a string"));
        };
        if !self.capabilities.is_some_and(|raw| raw.get().starts_with('{')) {
            return Err(missing("clientCapabilities", "an object"));
        }
        let level = match self.level {
            None => None,
            Some(raw) => Some(jsonrpc::text(raw).and_then(|name| Level::named(&name)).ok_or_else(|| {
                missing("logLevel", "one of debug, info, notice, warning, error, critical, alert, emergency")
            })?),
        };
        let progress_token = self.progress_token()?;
        if let Some(mirror) = mirror {
            mirror.check(&version, method, params)?;
        }
        match Revision::named(&version) {
            Some(revision) if !revision.is_legacy() => Ok(Caller { revision, level, progress_token }),
            known => Err(unsupported(&version, known.is_some())),
        }
    }

    /// The caller of a legacy request on a connection that speaks `revision`.
    pub(super) fn legacy(&self, revision: Revision) -> Result<Caller, Refusal> {
        Ok(Caller { revision, level: None, progress_token: self.progress_token()? })
    }
}

/// A version that cannot be had in a modern envelope. One of `initialize`'s revisions is told what the envelope takes.
fn unsupported(version: &str, legacy: bool) -> Refusal {
    let supported: Vec<&str> = Revision::ALL.iter().filter(|r| !legacy || !r.is_legacy()).map(|r| r.name()).collect();
    let detail = if legacy {
        format!("{version} begins with initialize and has no per-request _meta: use 2026-07-28 here, or initialize.")
    } else {
        "This protocol version is not supported: use one of those in \"supported\".".to_string()
    };
    Refusal::new(UNSUPPORTED_VERSION, detail).with("supported", supported).with("requested", version)
}

impl Mirror {
    /// Holds the headers against the body: 2026-07-28, basic/transports/streamable-http.
    fn check(&self, version: &str, method: &str, params: Option<&RawValue>) -> Result<(), Refusal> {
        let differs = |header: &str, body: &str, found: Option<&str>| {
            let detail = match found {
                None => format!("The header {header} is missing: it must repeat the body's {body}."),
                Some(_) => format!("The header {header} differs from the body's {body}: both must be the same."),
            };
            Err(Refusal::new(HEADER_MISMATCH, detail))
        };
        if self.version.as_deref() != Some(version) {
            return differs("MCP-Protocol-Version", "protocol version", self.version.as_deref());
        }
        if self.method.as_deref() != Some(method) {
            return differs("Mcp-Method", "method", self.method.as_deref());
        }
        let (member, body) = match method {
            "tools/call" | "prompts/get" => ("name", "params.name"),
            "resources/read" => ("uri", "params.uri"),
            _ => return Ok(()),
        };
        let value = params.and_then(|raw| jsonrpc::members(raw.get(), [member]).ok()).and_then(|[value]| value);
        let value = value.and_then(jsonrpc::text);
        match (&self.name, value) {
            (Some(Err(why)), _) => {
                Err(Refusal::new(HEADER_MISMATCH, format!("The header Mcp-Name is not readable: {why}.")))
            }
            (Some(Ok(name)), Some(value)) if *name == value => Ok(()),
            (Some(Ok(name)), _) => differs("Mcp-Name", body, Some(name)),
            (None, Some(_)) => differs("Mcp-Name", body, None),
            // The body has no name either: the method itself says so, with the better words.
            (None, None) => Ok(()),
        }
    }
}

/// Answers `initialize`, and makes `session` speak what was agreed on. An unknown version is answered with the newest
/// legacy one, as every revision asks.
///
/// # Errors
/// -32602 if `protocolVersion` is missing or not a string.
pub(super) fn initialize(session: &Session, id: &Id, params: Option<&RawValue>) -> Result<Answer, Refusal> {
    let usage = "initialize needs params.protocolVersion, a string such as \"2025-11-25\".";
    let [wanted] = super::params(params, ["protocolVersion"], usage)?;
    let wanted = text(wanted, usage)?;
    let revision = Revision::named(&wanted).filter(|r| r.is_legacy()).unwrap_or(Revision::NEWEST_LEGACY);
    session.revision.store(revision as u8, Ordering::Relaxed);
    let mut result = ResultWriter::new(id, revision);
    result
        .field("protocolVersion", revision.name())
        .field("capabilities", &capabilities(revision))
        .field("serverInfo", &server_info(revision))
        .field("instructions", INSTRUCTIONS);
    Ok(result.end(Map::new()))
}

/// Answers `server/discover`.
pub(super) fn discover(id: &Id, revision: Revision) -> Answer {
    let mut result = ResultWriter::new(id, revision);
    result
        .field("supportedVersions", &Revision::ALL.map(Revision::name))
        .field("capabilities", &capabilities(revision))
        .field("instructions", INSTRUCTIONS)
        .cache(Cache { ttl_ms: STATIC_TTL.as_millis() as u64, scope: "public" });
    result.end(Map::new())
}

/// What we serve, as far as `revision` has words for it. Tools never change while we run.
fn capabilities(revision: Revision) -> Value {
    let mut capabilities = json!({
        "tools": {},
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true },
        "logging": {},
    });
    if revision.knows(Feature::CompletionsCapability) {
        capabilities["completions"] = json!({});
    }
    capabilities
}

/// Answers the legacy `logging/setLevel`.
///
/// # Errors
/// -32602 for anything but one of MCP's levels.
pub(super) fn set_level(session: &Session, params: Option<&RawValue>) -> Result<(), Refusal> {
    let usage =
        "logging/setLevel needs params.level: debug, info, notice, warning, error, critical, alert or emergency.";
    let [level] = super::params(params, ["level"], usage)?;
    let level = Level::named(&text(level, usage)?).ok_or_else(|| Refusal::params(usage))?;
    session.level.store(level as u8, Ordering::Relaxed);
    Ok(())
}
