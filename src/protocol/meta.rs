//! A request's `_meta`, and the checks of the modern envelope in order: `_meta`, header against body, version.

use std::borrow::Cow;

use super::answer::Refusal;
use super::jsonrpc::{Id, RequestMessage};
use super::node::Node;
use super::revision::{METHOD_HEADER, NAME_HEADER, Revision, VERSION_HEADER};
use super::session::Level;
use crate::encoding::base64;

/// HTTP headers and body disagree.
const HEADER_MISMATCH: i32 = -32020;
/// A protocol version that this server does not speak.
const UNSUPPORTED_VERSION: i32 = -32022;

/// Members of `_meta`.
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The extension that a caller declares if it supports tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The HTTP headers of a request by their names. They repeat parts of a modern one, for comparison with its body.
pub(crate) type RequestHeaders<'h> = dyn Fn(&str) -> Option<Cow<'h, str>> + 'h;

/// The context of a request, from `_meta` and the session.
pub(crate) struct RequestContext {
    /// The revision of the request and of its answer.
    pub(crate) revision: Revision,
    /// The lowest level of log messages that the caller wants: of this request, or when it came of a legacy session.
    pub(crate) level: Option<Level>,
    /// The progress token as JSON, if any.
    pub(crate) progress_token: Option<Id>,
    /// Has the caller declared the tasks extension? Modern only.
    pub(crate) tasks: bool,
}

/// A request's `_meta`. A member that is `null` is of a wrong type, except for the progress token, where it means none.
#[derive(Clone, Copy)]
pub(crate) struct Meta<'m>(Option<&'m Node<'m>>);

impl<'m> Meta<'m> {
    /// Finds `_meta` in params.
    ///
    /// # Errors
    /// -32602 if params or `_meta` are not objects.
    pub(crate) fn read(params: Option<&'m Node<'m>>) -> Result<Meta<'m>, Refusal> {
        let object = |node: &'m Node<'m>, what: &str| {
            let detail = || format!("\"{what}\" must be an object, with each field once.");
            let object = node.is_object().then_some(node);
            object.ok_or_else(|| Refusal::params(detail()))
        };
        let params = params.map(|params| object(params, "params")).transpose()?;
        match params.and_then(|params| params.get("_meta")) {
            None | Some(Node::Null) => Ok(Meta(None)),
            Some(meta) => object(meta, "_meta").map(|meta| Meta(Some(meta))),
        }
    }

    /// A member.
    pub(super) fn get(self, name: &str) -> Option<&'m Node<'m>> {
        self.0?.get(name)
    }

    /// The protocol version, if it is text.
    pub(crate) fn version(self) -> Option<&'m str> {
        self.get(VERSION).and_then(Node::text)
    }

    /// The progress token, if there is one.
    ///
    /// # Errors
    /// -32602 for anything that cannot be one.
    pub(crate) fn progress_token(self) -> Result<Option<Id>, Refusal> {
        let wrong = "\"progressToken\" must be a string of at most 1024 bytes or a 64-bit integer.";
        let token = self.get("progressToken").filter(|one| **one != Node::Null);
        let read = |token| Id::read(token).ok_or_else(|| Refusal::params(wrong));
        token.map(read).transpose()
    }

    /// The context of a modern request, after all checks of its envelope. `headers`: those of HTTP.
    pub(crate) fn modern(
        self,
        request: &RequestMessage<'_>,
        headers: Option<&RequestHeaders<'_>>,
    ) -> Result<RequestContext, Refusal> {
        let declared = self.version().and_then(Revision::named);
        let revision = declared.unwrap_or(Revision::NEWEST).name();
        let missing = |name: &str, what: &str| {
            Refusal::params(format!(
                "params._meta[\"{name}\"] must be {what}: every request of {revision} carries it."
            ))
        };
        let version = self.version();
        let version = version.ok_or_else(|| missing(VERSION, "a string"))?;
        let capabilities = self.get(CAPABILITIES).filter(|node| node.is_object());
        let capabilities = capabilities.ok_or_else(|| missing(CAPABILITIES, "an object"))?;
        let extensions = capabilities.get("extensions");
        let tasks = extensions.and_then(|extensions| extensions.get(TASKS));
        let level = |level: &Node<'_>| {
            let one_of = "one of debug, info, notice, warning, error, critical, alert, emergency";
            let known = level.text().and_then(Level::named);
            known.ok_or_else(|| missing(LEVEL, one_of))
        };
        let level = self.get(LEVEL).map(level).transpose()?;
        let progress_token = self.progress_token()?;
        if let Some(headers) = headers {
            check(headers, request)?;
        }
        match Revision::named(version) {
            Some(revision) if !revision.is_legacy() => Ok(RequestContext {
                revision,
                level,
                progress_token,
                tasks: tasks.is_some_and(Node::is_object),
            }),
            known => Err(unsupported(version, known.is_some())),
        }
    }
}

/// How to make a request without a handshake, for error messages.
pub(crate) fn without_handshake() -> String {
    format!(
        "put io.modelcontextprotocol/protocolVersion ({}) and clientCapabilities into params._meta of each request.",
        Revision::NEWEST.name()
    )
}

/// The error for an unsupported version in a modern envelope; for a legacy revision it lists what the envelope accepts.
fn unsupported(version: &str, legacy: bool) -> Refusal {
    let fits = |revision: &Revision| !legacy || !revision.is_legacy();
    let supported = Revision::ALL.into_iter().filter(fits).map(Revision::name);
    let detail = "This protocol version is not supported in params._meta: use one of those in \"supported\". Before 2026-07-28, a client begins with initialize.";
    Refusal::new(UNSUPPORTED_VERSION, detail)
        .with("supported", Vec::from_iter(supported))
        .with("requested", version)
}

/// The HTTP headers that repeat parts of a modern request, as far as its method has them: the name of each, the part's name
/// in errors, and its value if the request has one.
pub(crate) fn mirrors<'r>(
    request: &'r RequestMessage<'_>,
) -> impl Iterator<Item = (&'static str, &'static str, Option<&'r str>)> {
    let params = request.params.as_ref();
    let version = Meta::read(params).ok().and_then(Meta::version);
    let member = match &*request.method {
        "tools/call" | "prompts/get" => Some(("params.name", "name")),
        "resources/read" => Some(("params.uri", "uri")),
        "tasks/get" | "tasks/cancel" | "tasks/update" => Some(("params.taskId", "taskId")),
        _ => None,
    };
    let value = move |member: &str| params?.get(member)?.text();
    let name = member.map(|(part, member)| (NAME_HEADER, part, value(member)));
    [
        (VERSION_HEADER, "protocol version", version),
        (METHOD_HEADER, "method", Some(&*request.method)),
    ]
    .into_iter()
    .chain(name)
}

/// Compares the headers with the body: 2026-07-28, basic/transports/streamable-http.
fn check(headers: &RequestHeaders<'_>, request: &RequestMessage<'_>) -> Result<(), Refusal> {
    for (header, of_body, wanted) in mirrors(request) {
        let mut found = headers(header);
        if header == NAME_HEADER {
            found = found.and_then(base64::from_header);
        }
        // If the body has no name either, the method reports that better.
        if found.as_deref() != wanted {
            let detail = format!("The header {header} must repeat the body's {of_body}.");
            return Err(Refusal::new(HEADER_MISMATCH, detail));
        }
    }
    Ok(())
}
