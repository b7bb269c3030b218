//! The sessions of legacy Streamable HTTP: their ids, their state and their expiry.
//!
//! ```text
//!   initialize ──mint──▶ live ──DELETE──▶ ended: 404 for an hour
//!   unknown id ──adopt──▶ live ──1 h idle, or no room──▶ unknown
//! ```
//! An id contains its revision, so that a process that does not know it (after a restart, on another replica, or once
//! it has expired) can adopt it: clients do not recover from a 404. A session belongs to the caller who opened or first
//! named it; for others it does not exist.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use crate::access::Identity;
use crate::config::MAX_SESSIONS;
use crate::protocol::{Revision, Session};
use crate::random;
use crate::sync::lock;

use super::super::inflight::Inflight;
use super::streams::Channel;

/// How long an unused session is kept, in milliseconds.
const SESSION_IDLE: u64 = 3_600_000;
/// How long an ended session's id is remembered at least, so that it is refused and not adopted again, in milliseconds.
const ENDED_SESSION_MEMORY: u64 = 3_600_000;
/// Most ended ids remembered; beyond it the older half is forgotten early.
const MAX_ENDED_SESSIONS: usize = 100_000;

/// When full, this many of the longest idle are dropped at once, so that not every new session scans the table.
const EVICTED_SHARE: usize = 64;
/// Interval between scans for expired sessions, in milliseconds.
const SWEEP: u64 = 60_000;

/// The id of a session: `<revision>.<32 lower-case hex digits>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionId {
    revision: Revision,
    random: u128,
}

impl SessionId {
    /// Reads the header `Mcp-Session-Id`. `None` for anything we would not have made.
    pub(super) fn parse(text: &str) -> Option<SessionId> {
        let (revision, digits) = text.split_once('.')?;
        let revision = Revision::named(revision).filter(|revision| revision.is_legacy())?;
        Some(SessionId {
            revision,
            random: random::parse(digits)?,
        })
    }

    fn mint(revision: Revision) -> SessionId {
        SessionId {
            revision,
            random: random::number(),
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:032x}", self.revision.name(), self.random)
    }
}

/// One live session.
pub(super) struct LiveSession {
    /// Who opened it, or named it first.
    pub(super) owner: Identity,
    /// Its state in the protocol.
    pub(super) session: Arc<Session>,
    /// Its calls.
    pub(super) inflight: Inflight,
    /// The stream that a GET has opened.
    pub(super) stream: Mutex<Option<Arc<Channel>>>,
    /// Milliseconds since the table was made.
    last_used: AtomicU64,
}

/// All sessions of the process.
pub(super) struct Sessions {
    begun: Instant,
    max: usize,
    table: Mutex<SessionTable>,
}

#[derive(Default)]
struct SessionTable {
    /// Time of the last scan for expired sessions.
    swept: u64,
    live: HashMap<SessionId, Arc<LiveSession>>,
    /// The ids that ended since `turned`, and those of the period before it.
    ended: [HashSet<SessionId>; 2],
    /// Start of the current period, in milliseconds.
    turned: u64,
}

impl Sessions {
    /// No sessions yet.
    pub(super) fn new() -> Sessions {
        Sessions {
            begun: Instant::now(),
            max: MAX_SESSIONS,
            table: Mutex::default(),
        }
    }

    /// Opens a session of `owner` that has agreed on `revision`.
    pub(super) fn open(
        &self,
        owner: &Identity,
        session: Arc<Session>,
        revision: Revision,
    ) -> SessionId {
        let id = SessionId::mint(revision);
        self.insert(&mut self.table(), id, owner, session);
        id
    }

    /// The session of that id, adopted if it is not known. `None` if it has ended, or is another's.
    pub(super) fn find(&self, id: SessionId, who: &Identity) -> Option<Arc<LiveSession>> {
        let mut table = self.table();
        if let Some(live) = table.live.get(&id) {
            if !who.shares_with(&live.owner) {
                return None;
            }
            live.last_used.store(self.now(), Ordering::Relaxed);
            return Some(live.clone());
        }
        if table.has_ended(&id) {
            return None;
        }
        Some(self.insert(&mut table, id, who, Arc::new(Session::of(id.revision))))
    }

    /// Is there a live session of that id, as far as this caller may know?
    pub(super) fn is_live(&self, id: SessionId, who: &Identity) -> bool {
        self.table()
            .live
            .get(&id)
            .is_some_and(|live| who.shares_with(&live.owner))
    }

    /// Ends a session, known or not. Returns it, if it was known. `Err` if it had ended before, or is another's.
    pub(super) fn end(
        &self,
        id: SessionId,
        who: &Identity,
    ) -> Result<Option<Arc<LiveSession>>, ()> {
        let mut table = self.table();
        let live = table.live.get(&id);
        let is_anothers = live.is_some_and(|live| !who.shares_with(&live.owner));
        if is_anothers || table.has_ended(&id) {
            return Err(());
        }
        table.forget_ended(self.now());
        table.ended[0].insert(id);
        Ok(table.live.remove(&id))
    }

    /// How many are live.
    pub(super) fn len(&self) -> usize {
        self.table().live.len()
    }

    fn insert(
        &self,
        table: &mut SessionTable,
        id: SessionId,
        owner: &Identity,
        session: Arc<Session>,
    ) -> Arc<LiveSession> {
        // While the table is locked, so that no time in it is later.
        let now = self.now();
        if table.live.len() >= self.max || now - table.swept >= SWEEP {
            table.forget_idle(now);
        }
        if table.live.len() >= self.max {
            table.forget_longest_idle();
        }
        let live = Arc::new(LiveSession {
            owner: owner.clone(),
            session,
            inflight: Inflight::default(),
            stream: Mutex::default(),
            last_used: AtomicU64::new(now),
        });
        table.live.insert(id, live.clone());
        live
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        lock(&self.table)
    }
}

impl SessionTable {
    /// Drops sessions that have been idle for too long. One in use has another owner of its `Arc`, and stays.
    fn forget_idle(&mut self, now: u64) {
        self.swept = now;
        let oldest = now.saturating_sub(SESSION_IDLE);
        self.live.retain(|_, live| {
            Arc::strong_count(live) > 1 || live.last_used.load(Ordering::Relaxed) >= oldest
        });
    }

    /// Drops the longest idle ones, to make room.
    fn forget_longest_idle(&mut self) {
        let idle = self
            .live
            .iter()
            .filter(|(_, live)| Arc::strong_count(live) == 1);
        let mut idle: Vec<_> = idle
            .map(|(id, live)| (live.last_used.load(Ordering::Relaxed), *id))
            .collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        idle.truncate((self.live.len() / EVICTED_SHARE).max(1));
        for (_, id) in idle {
            self.live.remove(&id);
        }
    }

    fn has_ended(&self, id: &SessionId) -> bool {
        self.ended.iter().any(|ended| ended.contains(id))
    }

    /// Begins a new period if the current one is over, or full.
    fn forget_ended(&mut self, now: u64) {
        let is_over = now - self.turned >= ENDED_SESSION_MEMORY;
        if is_over || self.ended[0].len() >= MAX_ENDED_SESSIONS / 2 {
            self.turned = now;
            self.ended[1] = std::mem::take(&mut self.ended[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const WHO: &Identity = &Identity::Local;
    const REVISION: Revision = Revision::R2025_06_18;

    fn open(sessions: &Sessions) -> SessionId {
        sessions.open(WHO, Arc::new(Session::of(REVISION)), REVISION)
    }

    #[test]
    fn ids_are_read_as_they_are_written_and_nothing_else_is() {
        let id = SessionId::mint(REVISION);
        let text = id.to_string();
        assert_eq!((text.len(), &text[..11]), (43, "2025-06-18."));
        assert_eq!(SessionId::parse(&text), Some(id));
        assert_eq!(
            SessionId {
                revision: REVISION,
                random: 5
            }
            .to_string(),
            format!("2025-06-18.{:0>32}", 5)
        );
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
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_longest_idle_makes_room_and_the_used_stay() {
        // Begun a while ago, so that every new session is younger than the ages set here.
        let begun = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let sessions = Sessions {
            begun,
            max: 3,
            table: Mutex::default(),
        };
        let ids = [open(&sessions), open(&sessions), open(&sessions)];
        let used: Vec<_> = ids
            .iter()
            .map(|id| sessions.find(*id, WHO).unwrap())
            .collect();
        for (age, live) in used.iter().enumerate() {
            live.last_used.store(age as u64, Ordering::Relaxed);
        }
        let [first, _, _]: [Arc<LiveSession>; 3] = used.try_into().ok().unwrap();
        open(&sessions);
        assert_eq!(sessions.len(), 3);
        assert_eq!(ids.map(|id| sessions.is_live(id, WHO)), [true, false, true]);
        drop(first);
        open(&sessions);
        assert_eq!(
            ids.map(|id| sessions.is_live(id, WHO)),
            [false, false, true]
        );
    }

    #[test]
    fn what_is_idle_for_too_long_goes_all_at_once() {
        let sessions = Sessions {
            begun: Instant::now(),
            max: 3,
            table: Mutex::default(),
        };
        let ids = [open(&sessions), open(&sessions), open(&sessions)];
        let late = SESSION_IDLE + 1;
        sessions.table().live[&ids[2]]
            .last_used
            .store(late, Ordering::Relaxed);
        sessions.table().forget_idle(late);
        // Of the three, two have not been used for an hour and a millisecond.
        assert_eq!(
            ids.map(|id| sessions.is_live(id, WHO)),
            [false, false, true]
        );
    }

    #[test]
    fn ended_ids_are_remembered_for_an_hour_unless_there_are_too_many() {
        let sessions = Sessions::new();
        let remembers = |id| sessions.table().has_ended(&id);
        let id = open(&sessions);
        assert!(sessions.end(id, WHO).is_ok());
        let hour = ENDED_SESSION_MEMORY;
        for (now, remembered) in [(hour - 1, true), (hour, true), (2 * hour, false)] {
            sessions.table().forget_ended(now);
            assert_eq!(remembers(id), remembered, "{now}");
        }
        sessions.table().turned = 0;
        let ended: Vec<_> = (0..=MAX_ENDED_SESSIONS)
            .map(|n| SessionId {
                revision: REVISION,
                random: n as u128,
            })
            .collect();
        assert!(ended.iter().all(|id| sessions.end(*id, WHO).is_ok()));
        let half = MAX_ENDED_SESSIONS / 2;
        assert!(!remembers(ended[half - 1]) && remembers(ended[half]));
    }
}
