//! Error answers with their log lines.

use log::Level;

use crate::fabric::Kind;
use crate::jsonrpc::{Id, NoId};
use crate::protocol::{Answer, Refusal};
use crate::{logging, random};

/// Answers a request that is invalid or cannot be served now. Not logged as a warning: clients probe.
pub(crate) fn refuse(refusal: Refusal, id: Option<&Id>, no_id: NoId, modern: bool) -> Answer {
    let request_id = random::request_id();
    log(Level::Info, String::new(), &refusal, &request_id);
    refusal.answer(id, no_id, modern, &request_id)
}

/// Answers a call of `method` that failed.
pub(super) fn fail(
    refusal: Refusal,
    method: &str,
    id: &Id,
    modern: bool,
    request_id: &str,
) -> Answer {
    let mut line = String::with_capacity(160);
    logging::logfmt(&mut line, "method", method);
    let level = if refusal.error.kind == Kind::Cancelled {
        Level::Info
    } else {
        Level::Warn
    };
    log(level, line, &refusal, request_id);
    refusal.answer(Some(id), NoId::Absent, modern, request_id)
}

fn log(level: Level, mut line: String, refusal: &Refusal, request_id: &str) {
    logging::logfmt(&mut line, "ok", false);
    logging::logfmt(&mut line, "code", refusal.code);
    logging::failure(&mut line, &refusal.error, str::to_owned);
    logging::logfmt(&mut line, "request_id", request_id);
    log::log!(target: "fabric_mcp::features", level, "{line}");
}
