//! The sessions of legacy Streamable HTTP: their ids and their state.
//!
//! ```text
//!   initialize ──mint──▶ live ──DELETE──▶ ended: 404
//!   unknown id ──adopt──▶ live, or ended ──no room──▶ unknown
//! ```
//! An id contains its revision, so that a process that does not know the id can adopt it: after a restart, in another
//! process, or after it was dropped for lack of room. Otherwise the client would get a 404, from which clients do not
//! recover. A session belongs to the caller who opened or first named it; for others it does not exist.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::access::Identity;
use crate::config::MAX_SESSIONS;
use crate::os::random;
use crate::protocol::{Revision, Session};
use crate::server::Registration;
use crate::sync::lock;

use super::super::inflight::Inflight;
use super::queue::Queue;

/// The number and the revision in the id of a session, `<revision>.<32 lower-case hex digits>`; `None` for anything we would
/// not have made.
fn parse(id: &str) -> Option<(u128, Revision)> {
    let (revision, digits) = id.split_once('.')?;
    let revision = Revision::named(revision).filter(|revision| revision.is_legacy())?;
    Some((random::parse(digits)?, revision))
}

/// One session.
pub(super) struct LiveSession {
    /// Who opened it, or named it first.
    owner: Identity,
    /// Its state in the protocol.
    pub(super) session: Session,
    /// Its calls. After their end the session is remembered, so that its id is refused and not adopted again.
    pub(super) inflight: Inflight,
    /// The stream that a GET has opened, and the registration of a client that follows lists.
    pub(super) stream: Mutex<Option<(Arc<Queue>, Option<Registration>)>>,
}

impl LiveSession {
    pub(super) fn new(owner: &Identity, revision: Revision) -> Arc<LiveSession> {
        Arc::new(LiveSession {
            owner: owner.clone(),
            session: Session::of(revision),
            inflight: Inflight::default(),
            stream: Mutex::default(),
        })
    }

    fn is_of(&self, who: &Identity) -> bool {
        who.shares_with(&self.owner) && !self.inflight.has_ended()
    }

    /// Ends it with its calls and its stream.
    pub(super) fn end(&self) {
        self.inflight.end();
        if let Some((queue, _)) = lock(&self.stream).take() {
            queue.end();
        }
    }
}

/// All sessions of the process.
#[derive(Default)]
pub(super) struct Sessions(Mutex<SessionTable>);

/// The sessions, by the number and the revision that their ids contain.
type SessionTable = HashMap<(u128, Revision), Arc<LiveSession>>;

impl Sessions {
    /// Opens a session of `owner` that has agreed on `revision`, and returns its id.
    pub(super) fn open(&self, owner: &Identity, revision: Revision) -> String {
        let id = format!("{}.{}", revision.name(), random::id());
        // Adopts the id, as if another process had given it.
        self.find(&id, owner);
        id
    }

    /// The session with this id; one that is not known is adopted. `None` if it has ended, belongs to another caller,
    /// or cannot be an id of this program.
    pub(super) fn find(&self, id: &str, who: &Identity) -> Option<Arc<LiveSession>> {
        let key = parse(id)?;
        let mut table = lock(&self.0);
        if let Some(known) = table.get(&key) {
            return known.is_of(who).then(|| known.clone());
        }
        if table.len() >= MAX_SESSIONS {
            forget_idle(&mut table);
        }
        let live = LiveSession::new(who, key.1);
        table.insert(key, live.clone());
        Some(live)
    }

    /// Is there a live session of that id, as far as this caller may know?
    pub(super) fn is_live(&self, id: &str, who: &Identity) -> bool {
        let known = parse(id).and_then(|key| lock(&self.0).get(&key).cloned());
        known.is_some_and(|live| live.is_of(who))
    }

    /// How many are live.
    pub(super) fn len(&self) -> usize {
        let is_live = |live: &&Arc<LiveSession>| !live.inflight.has_ended();
        lock(&self.0).values().filter(is_live).count()
    }
}

/// Drops the sessions that are not in use: a request or a stream has another `Arc` of its session. A client that comes
/// back adopts its id again, and loses only the level of log messages and the lists that it follows.
fn forget_idle(table: &mut SessionTable) {
    table.retain(|_, live| Arc::strong_count(live) > 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Id;

    const WHO: &Identity = &Identity::Local;
    const REVISION: Revision = Revision::R2025_06_18;

    fn open(sessions: &Sessions) -> String {
        sessions.open(WHO, REVISION)
    }

    #[test]
    fn ids_are_read_as_they_are_written_and_nothing_else_is() {
        let id = open(&Sessions::default());
        assert_eq!((id.len(), &id[..11]), (43, "2025-06-18."));
        assert_eq!(parse(&id).map(|(_, revision)| revision), Some(REVISION));
        let hex = "0123456789abcdef0123456789abcdef";
        for bad in [
            "",
            ".",
            "x",
            hex,
            &format!("2026-07-28.{hex}"),
            &format!("2025-06-19.{hex}"),
            &format!("2025-06-18.{hex}0"),
            &format!("2025-06-18.{}", &hex[1..]),
            &format!("2025-06-18.{}", hex.to_uppercase()),
            &format!("2025-06-18.+{}", &hex[1..]),
            &format!(" 2025-06-18.{hex}"),
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn ids_of_two_revisions_are_two_sessions() {
        let sessions = Sessions::default();
        for name in ["2025-06-18", "2025-03-26"] {
            let found = sessions.find(&format!("{name}.{:032x}", 0), WHO).unwrap();
            assert_eq!(found.session.revision().unwrap().name(), name);
        }
    }

    #[test]
    fn what_was_found_before_a_session_ended_begins_nothing_in_it() {
        let (sessions, call) = (Sessions::default(), Id::Number(1.into()));
        let live = sessions.find(&open(&sessions), WHO).unwrap();
        let before = live.inflight.begin(&call).unwrap();
        live.end();
        assert!(before.is_cancelled() && live.inflight.begin(&call).is_none());
    }

    #[test]
    fn the_idle_make_room_and_the_used_stay() {
        let sessions = Sessions::default();
        let ids = [open(&sessions), open(&sessions)];
        let in_use = sessions.find(&ids[0], WHO);
        forget_idle(&mut lock(&sessions.0));
        let live = |id: &String| sessions.is_live(id, WHO);
        assert_eq!(ids.each_ref().map(live), [true, false]);
        drop(in_use);
        forget_idle(&mut lock(&sessions.0));
        assert_eq!(sessions.len(), 0);
    }
}
