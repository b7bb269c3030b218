//! The handshake: `initialize`, `server/discover`, `logging/setLevel`.

use serde_json::Value;

use super::answer::{Answer, Cache, Refusal, ResultWriter, server_info};
use super::jsonrpc::Id;
use super::node::{Node, Params};
use super::revision::Revision;
use super::session::{Level, Session};

/// What the server offers to clients of one revision.
pub(crate) struct Offer {
    /// The capabilities, as far as the revision has them.
    pub(crate) capabilities: Value,
    /// Instructions for models.
    pub(crate) instructions: &'static str,
}

/// Answers `initialize` and sets the revision of `session`. The answer to an unknown version is the newest legacy
/// revision, as every revision requires.
///
/// # Errors
/// -32602 if `protocolVersion` is missing or not a string.
pub(crate) fn initialize(
    session: &Session,
    id: &Id,
    params: Option<&Node<'_>>,
    offer: impl FnOnce(Revision) -> Offer,
) -> Result<Answer, Refusal> {
    let usage = "initialize needs params.protocolVersion, a string such as \"2025-11-25\".";
    let wanted = Params::new(params, usage).text("protocolVersion")?;
    let revision = Revision::named(wanted)
        .filter(|r| r.is_legacy())
        .unwrap_or(Revision::NEWEST_LEGACY);
    session.agree(revision);
    let offer = offer(revision);
    let mut result = ResultWriter::new(id, revision);
    result
        .field("protocolVersion", revision.name())
        .field("capabilities", &offer.capabilities)
        .field("serverInfo", &server_info(revision))
        .field("instructions", offer.instructions);
    Ok(result.end())
}

/// Answers `server/discover`.
pub(crate) fn discover(id: &Id, revision: Revision, offer: &Offer) -> Answer {
    let mut result = ResultWriter::new(id, revision);
    result
        .field("supportedVersions", &Revision::ALL.map(Revision::name))
        .field("capabilities", &offer.capabilities)
        .field("instructions", offer.instructions)
        .cache(Cache::STATIC);
    result.end()
}

/// Answers the legacy `logging/setLevel`.
///
/// # Errors
/// -32602 for anything but one of MCP's levels.
pub(crate) fn set_level(session: &Session, params: Option<&Node<'_>>) -> Result<(), Refusal> {
    let usage = "logging/setLevel needs params.level: debug, info, notice, warning, error, critical, alert or emergency.";
    let params = Params::new(params, usage);
    let level = Level::named(params.text("level")?).ok_or_else(|| params.refusal())?;
    session.set_level(level);
    Ok(())
}
