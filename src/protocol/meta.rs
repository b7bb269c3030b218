//! A request's `_meta`, and the checks of the modern envelope in order: `_meta`, header against body, version.

use std::borrow::Cow;

use super::answer::Refusal;
use super::jsonrpc::{Id, RequestMessage};
use super::node::Node;
use super::revision::Revision;
use super::session::Level;

/// HTTP headers and body disagree.
const HEADER_MISMATCH: i32 = -32020;
/// A protocol version that this server does not speak.
const UNSUPPORTED_VERSION: i32 = -32022;

/// The extension that a caller declares if it supports tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The HTTP headers that repeat parts of a modern request, for comparison with its body. Values are decoded and
/// trimmed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror<'a> {
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<Cow<'a, str>>,
    /// `Mcp-Method`.
    pub(crate) method: Option<Cow<'a, str>>,
    /// `Mcp-Name`, or the error in its encoding.
    pub(crate) name: Option<Result<Cow<'a, str>, &'static str>>,
}

/// The context of a request, from `_meta` and the session.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    /// The revision of the request and of its answer.
    pub(crate) revision: Revision,
    /// The level of log messages for this request: modern only; legacy requests use the session's.
    pub(crate) level: Option<Level>,
    /// The progress token as JSON, if any.
    pub(crate) progress_token: Option<Id>,
    /// Has the caller declared the tasks extension? Modern only.
    pub(crate) tasks: bool,
}

impl RequestContext {
    /// A legacy request without progress token.
    pub(crate) fn of(revision: Revision) -> RequestContext {
        RequestContext {
            revision,
            level: None,
            progress_token: None,
            tasks: false,
        }
    }
}

/// The known members of a request's `_meta`. `null` is a wrong type, except for the progress token, where it means none.
#[derive(Default)]
pub(crate) struct Meta<'m> {
    version: Option<&'m Node<'m>>,
    capabilities: Option<&'m Node<'m>>,
    level: Option<&'m Node<'m>>,
    progress_token: Option<&'m Node<'m>>,
}

impl<'m> Meta<'m> {
    /// Reads `_meta` from params.
    ///
    /// # Errors
    /// -32602 if params or `_meta` are not objects.
    pub(crate) fn read(params: Option<&'m Node<'m>>) -> Result<Meta<'m>, Refusal> {
        let wrong = |what: &str| {
            Err(Refusal::params(format!(
                "\"{what}\" must be an object, with each field once."
            )))
        };
        let meta = match params {
            None => return Ok(Meta::default()),
            Some(params) if !params.is_object() => return wrong("params"),
            Some(params) => match params.get("_meta") {
                None | Some(Node::Null) => return Ok(Meta::default()),
                Some(meta) if !meta.is_object() => return wrong("_meta"),
                Some(meta) => meta,
            },
        };
        Ok(Meta {
            version: meta.get("io.modelcontextprotocol/protocolVersion"),
            capabilities: meta.get("io.modelcontextprotocol/clientCapabilities"),
            level: meta.get("io.modelcontextprotocol/logLevel"),
            progress_token: meta
                .get("progressToken")
                .filter(|token| **token != Node::Null),
        })
    }

    /// Does the envelope make the request modern?
    pub(crate) fn is_modern(&self) -> bool {
        self.version.is_some()
    }

    fn declares_tasks(&self) -> bool {
        self.capabilities
            .and_then(|capabilities| capabilities.get("extensions")?.get(TASKS))
            .is_some_and(Node::is_object)
    }

    fn progress_token(&self) -> Result<Option<Id>, Refusal> {
        let read = |token| {
            Id::read(token).ok_or_else(|| {
                Refusal::params(
                    "\"progressToken\" must be a string of at most 1024 bytes or a 64-bit integer.",
                )
            })
        };
        self.progress_token.map(read).transpose()
    }

    /// The context of a modern request, after all checks of its envelope. `mirror`: the HTTP headers, and the name of
    /// the member that `Mcp-Name` repeats.
    pub(crate) fn modern(
        &self,
        request: &RequestMessage<'_>,
        mirror: Option<(&Mirror<'_>, Option<&str>)>,
    ) -> Result<RequestContext, Refusal> {
        let missing = |name: &str, what: &str| {
            Refusal::params(format!(
                "params._meta[\"io.modelcontextprotocol/{name}\"] must be {what}: every request of {} carries it.",
                Revision::NEWEST.name()
            ))
        };
        let Some(version) = self.version.and_then(Node::text) else {
            return Err(missing("protocolVersion", "a string"));
        };
        if !self.capabilities.is_some_and(Node::is_object) {
            return Err(missing("clientCapabilities", "an object"));
        }
        let level = match self.level {
            None => None,
            Some(level) => Some(level.text().and_then(Level::named).ok_or_else(|| {
                missing(
                    "logLevel",
                    "one of debug, info, notice, warning, error, critical, alert, emergency",
                )
            })?),
        };
        let progress_token = self.progress_token()?;
        if let Some((mirror, mirrored)) = mirror {
            mirror.check(version, request, mirrored)?;
        }
        match Revision::named(version) {
            Some(revision) if !revision.is_legacy() => Ok(RequestContext {
                revision,
                level,
                progress_token,
                tasks: self.declares_tasks(),
            }),
            known => Err(unsupported(version, known.is_some())),
        }
    }

    /// The context of a legacy request on a connection of `revision`.
    ///
    /// # Errors
    /// -32602 for an invalid progress token.
    pub(crate) fn legacy(&self, revision: Revision) -> Result<RequestContext, Refusal> {
        Ok(RequestContext {
            revision,
            level: None,
            progress_token: self.progress_token()?,
            tasks: false,
        })
    }
}

/// How to make a request without a handshake, for error messages.
pub(crate) fn without_handshake() -> String {
    format!(
        "put io.modelcontextprotocol/protocolVersion ({}) and clientCapabilities into params._meta of each request.",
        Revision::NEWEST.name()
    )
}

/// The error for an unsupported version in a modern envelope; for a legacy revision it says what the envelope accepts.
fn unsupported(version: &str, legacy: bool) -> Refusal {
    let supported: Vec<&str> = Revision::ALL
        .iter()
        .filter(|r| !legacy || !r.is_legacy())
        .map(|r| r.name())
        .collect();
    let detail = if legacy {
        let newest = Revision::NEWEST.name();
        format!(
            "{version} begins with initialize and has no per-request _meta: use {newest} here, or initialize."
        )
    } else {
        "This protocol version is not supported: use one of those in \"supported\".".to_string()
    };
    Refusal::new(UNSUPPORTED_VERSION, detail)
        .with("supported", supported)
        .with("requested", version)
}

impl Mirror<'_> {
    /// Compares the headers with the body: 2026-07-28, basic/transports/streamable-http.
    fn check(
        &self,
        version: &str,
        request: &RequestMessage<'_>,
        mirrored: Option<&str>,
    ) -> Result<(), Refusal> {
        let differs = |header: &str, body: &str, found: Option<&str>| {
            let detail = match found {
                None => {
                    format!("The header {header} is missing: it must repeat the body's {body}.")
                }
                Some(_) => format!(
                    "The header {header} differs from the body's {body}: both must be the same."
                ),
            };
            Err(Refusal::new(HEADER_MISMATCH, detail))
        };
        if self.version.as_deref() != Some(version) {
            return differs(
                "MCP-Protocol-Version",
                "protocol version",
                self.version.as_deref(),
            );
        }
        if self.method.as_deref() != Some(&*request.method) {
            return differs("Mcp-Method", "method", self.method.as_deref());
        }
        let Some(member) = mirrored else {
            return Ok(());
        };
        let params = request.params.as_ref();
        let value = params.and_then(|params| params.get(member)?.text());
        match (&self.name, value) {
            (Some(Err(why)), _) => Err(Refusal::new(
                HEADER_MISMATCH,
                format!("The header Mcp-Name is not readable: {why}."),
            )),
            (Some(Ok(name)), Some(value)) if *name == value => Ok(()),
            (Some(Ok(name)), _) => differs("Mcp-Name", &format!("params.{member}"), Some(name)),
            (None, Some(_)) => differs("Mcp-Name", &format!("params.{member}"), None),
            // The body has no name either: the method reports that better.
            (None, None) => Ok(()),
        }
    }
}
