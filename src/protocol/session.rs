//! What a legacy connection remembers: the revision agreed on and the level of log messages. Modern requests carry both
//! in their `_meta` (`meta`).
//!
//! ```text
//!   (new) --initialize--> (revision known) --initialize--> (renegotiated)
//! ```

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::jsonrpc::NoId;

use super::revision::{Feature, Revision};

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

    /// The level of that name.
    pub(super) fn named(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|(_, n)| *n == name).map(|(level, _)| level)
    }

    /// The level as it is written in messages.
    pub(crate) fn name(self) -> &'static str {
        Level::ALL[self as usize].1
    }
}

/// What a legacy connection remembers: the stdio process, or one HTTP session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Index into [`Revision::ALL`], or [`NO_REVISION`].
    revision: AtomicU8,
    /// Index into [`Level::ALL`], or [`NO_LEVEL`].
    level: AtomicU8,
    follows_lists: AtomicBool,
    no_id: NoId,
}

const NO_REVISION: u8 = u8::MAX;
const NO_LEVEL: u8 = u8::MAX;

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
        Session {
            revision: AtomicU8::new(revision),
            level: AtomicU8::new(NO_LEVEL),
            follows_lists: AtomicBool::new(false),
            no_id,
        }
    }

    /// The revision agreed on, if there was a handshake.
    pub(crate) fn revision(&self) -> Option<Revision> {
        Revision::ALL.get(usize::from(self.revision.load(Ordering::Relaxed))).copied()
    }

    /// Notes the revision that a handshake has agreed on.
    pub(super) fn agree(&self, revision: Revision) {
        self.revision.store(revision as u8, Ordering::Relaxed);
    }

    /// Notes the level that `logging/setLevel` asks for.
    pub(super) fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// The least severe level of the log messages that the client wants, if it has said so.
    pub(crate) fn level(&self) -> Option<Level> {
        Level::ALL.get(usize::from(self.level.load(Ordering::Relaxed))).map(|(level, _)| *level)
    }

    /// Has the client listed prompts or resources, so that it will want to hear of changes?
    pub(crate) fn follows_lists(&self) -> bool {
        self.follows_lists.load(Ordering::Relaxed)
    }

    /// Notes that the client has listed prompts or resources.
    pub(crate) fn follow_lists(&self) {
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
