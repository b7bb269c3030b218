//! The state of a legacy connection: the negotiated revision and the log level. Modern requests have both in their
//! `_meta` (`meta`).
//!
//! ```text
//!   (new) --initialize--> (revision known) --initialize--> (renegotiated)
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::lock;

use super::jsonrpc::Id;
use super::revision::{Feature, Revision};

/// The severities of MCP's log messages (RFC 5424), lowest first.
const LEVELS: &str = "debug info notice warning error critical alert emergency";

/// A level, as its index in [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(usize);

impl Level {
    /// `info`.
    pub(crate) const INFO: Level = Level(1);

    /// The level with this name.
    pub(crate) fn named(name: &str) -> Option<Level> {
        LEVELS.split(' ').position(|known| known == name).map(Level)
    }

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        LEVELS.split(' ').nth(self.0).unwrap_or_default()
    }
}

/// The state of a legacy connection: the stdio process, or one HTTP session. By default an HTTP request without one.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The negotiated revision, if there was a handshake.
    pub(crate) revision: Mutex<Option<Revision>>,
    /// The lowest level of log messages that the client wants, if it has set one.
    pub(crate) level: Mutex<Option<Level>>,
    /// Has the client listed prompts or resources? If so, it gets notifications of changes.
    pub(crate) follows_lists: AtomicBool,
    is_stdio: bool,
}

impl Session {
    /// A stdio session before any handshake.
    pub(crate) fn stdio() -> Session {
        Session {
            is_stdio: true,
            ..Session::default()
        }
    }

    /// An HTTP session of `revision`, new or resumed.
    pub(crate) fn of(revision: Revision) -> Session {
        Session {
            revision: Mutex::new(Some(revision)),
            ..Session::default()
        }
    }

    /// See [`Session::revision`].
    pub(crate) fn revision(&self) -> Option<Revision> {
        *lock(&self.revision)
    }

    /// See [`Session::follows_lists`].
    pub(crate) fn follows_lists(&self) -> bool {
        self.follows_lists.load(Ordering::Relaxed)
    }

    /// The id of errors without a readable one in this session, if they have any.
    pub(crate) fn no_id(&self) -> Option<Id> {
        let is_absent = |revision: Revision| revision.knows(Feature::AbsentId);
        (self.is_stdio && !self.revision().is_some_and(is_absent)).then_some(Id::Null)
    }
}
