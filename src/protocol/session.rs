//! The state of a legacy connection: the negotiated revision and the log level. Modern requests have both in their
//! `_meta` (`meta`).
//!
//! ```text
//!   (new) --initialize--> (revision known) --initialize--> (renegotiated)
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::lock;

use super::jsonrpc::NoId;
use super::revision::{Feature, Revision};

/// The severities of MCP's log messages (RFC 5424), lowest first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// A level, as its index in [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(usize);

impl Level {
    /// `info`.
    pub(crate) const INFO: Level = Level(1);

    /// The level with this name.
    pub(crate) fn named(name: &str) -> Option<Level> {
        LEVELS.iter().position(|known| *known == name).map(Level)
    }

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        LEVELS[self.0]
    }
}

/// The state of a legacy connection: the stdio process, or one HTTP session.
#[derive(Debug)]
pub(crate) struct Session {
    revision: Mutex<Option<Revision>>,
    level: Mutex<Option<Level>>,
    follows_lists: AtomicBool,
    no_id: NoId,
}

impl Session {
    /// A stdio session before any handshake.
    pub(crate) fn stdio() -> Session {
        Session::new(None, NoId::Null)
    }

    /// An HTTP request without a session.
    pub(crate) fn http() -> Session {
        Session::new(None, NoId::Absent)
    }

    /// An HTTP session of `revision`, new or resumed.
    pub(crate) fn of(revision: Revision) -> Session {
        Session::new(Some(revision), NoId::Absent)
    }

    fn new(revision: Option<Revision>, no_id: NoId) -> Session {
        Session {
            revision: Mutex::new(revision),
            level: Mutex::default(),
            follows_lists: AtomicBool::new(false),
            no_id,
        }
    }

    /// The negotiated revision, if there was a handshake.
    pub(crate) fn revision(&self) -> Option<Revision> {
        *lock(&self.revision)
    }

    /// Sets the negotiated revision.
    pub(crate) fn agree(&self, revision: Revision) {
        *lock(&self.revision) = Some(revision);
    }

    /// Sets the level of log messages.
    pub(crate) fn set_level(&self, level: Level) {
        *lock(&self.level) = Some(level);
    }

    /// The lowest level of log messages that the client wants, if it has set one.
    pub(crate) fn level(&self) -> Option<Level> {
        *lock(&self.level)
    }

    /// Has the client listed prompts or resources? If so, it gets notifications of changes.
    pub(crate) fn follows_lists(&self) -> bool {
        self.follows_lists.load(Ordering::Relaxed)
    }

    /// Records that the client has listed prompts or resources.
    pub(crate) fn follow_lists(&self) {
        self.follows_lists.store(true, Ordering::Relaxed);
    }

    /// How errors without a readable id are written in this session.
    pub(crate) fn no_id(&self) -> NoId {
        match self.revision() {
            Some(revision) if revision.knows(Feature::AbsentId) => NoId::Absent,
            _ => self.no_id,
        }
    }
}
