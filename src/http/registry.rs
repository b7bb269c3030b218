//! All connections: the limit, eviction, and shutdown.
//!
//! ```text
//!   Idle ──▶ Request ──▶ Response ──▶ Idle … Over        any but those with an admitted request ──▶ Evicted
//! ```
//! Only a connection whose admitted request is being served is safe. Of the others, one is closed to make room: the
//! oldest of the owner who has most. The owner of a connection is the caller of its last request or, before the first, its
//! network. Age counts from the connection's start or its last admitted request. So a peer that is silent, sends or reads
//! slowly, or is refused again and again keeps nobody out. How many are admitted is up to the accounts that pay for them;
//! [`HTTP_RESERVE`] more places remain even then, so that probes always get one.
//!
//! In scope: the shared state of every connection. Not in scope: I/O (`socket`), and which requests are admitted (the
//! handler).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::account::Reservation;
use crate::config::{HTTP_ACCEPT_LOG, HttpLimits};
use crate::sync::{lock, wait_while};
use crate::url::network;

/// Most places beyond `max_connections`, for probes and other short requests; a quarter of it if that is less.
const HTTP_RESERVE: usize = 32;
/// Longest pause of `accept` after a local error, and for the thread of an evicted connection, which only needs CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// Nothing: it waits for its next request.
    Idle,
    /// A request is being read, or nobody has taken on its response.
    Request,
    /// The response is being decided or written.
    Response,
    /// The response was sent or aborted, and nothing may follow it.
    Over,
    /// The connection was evicted, and its thread is ending.
    Evicted,
}

/// Who has a connection: its network, until a request came from one of several callers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Network(IpAddr),
    Caller(usize),
}

pub(super) struct SlotState {
    pub(super) phase: ConnectionPhase,
    /// What pays for the place while a request that was admitted is being served.
    pub(super) paid: Option<Reservation>,
    /// Whose connection it is.
    pub(super) owner: Owner,
    /// Its age: the lower, the older.
    turn: u64,
}

/// The shared part of one connection.
pub(super) struct Slot {
    id: u64,
    /// Only the connection's thread and its response read and write; others may shut it down.
    pub(super) socket: TcpStream,
    /// The peer.
    pub(super) peer: SocketAddr,
    /// All connections and their limits.
    pub(super) registry: Arc<Registry>,
    pub(super) state: Mutex<SlotState>,
}

impl Slot {
    /// What the connection is doing.
    pub(super) fn phase(&self) -> ConnectionPhase {
        lock(&self.state).phase
    }

    /// Goes from one phase to another. False if it is not in the first, so that the connection must close.
    pub(super) fn shift(&self, from: ConnectionPhase, to: ConnectionPhase) -> bool {
        let mut state = lock(&self.state);
        let shifts = state.phase == from;
        if shifts {
            state.phase = to;
        }
        shifts
    }

    /// Evicts the connection, if it is in such a state.
    fn evict_if(&self, goes: impl Fn(&SlotState) -> bool) -> bool {
        let mut state = lock(&self.state);
        let goes = goes(&state);
        if goes {
            state.phase = ConnectionPhase::Evicted;
            // Wakes the thread that reads or writes.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
        goes
    }

    /// Ends the response, if one was begun, and the request's admission. Without a next phase, also the socket.
    pub(super) fn end_response(&self, next: Option<ConnectionPhase>, how: Shutdown) {
        let mut state = lock(&self.state);
        if state.phase == ConnectionPhase::Response {
            state.phase = next.unwrap_or(ConnectionPhase::Over);
            if next.is_none() {
                let _ = self.socket.shutdown(how);
            }
        }
        if state.paid.take().is_some() {
            state.turn = self.registry.turns.fetch_add(1, SeqCst);
        }
    }
}

/// The connection to evict, the oldest of the owner who has most. Takes each one's owner and, if it can be evicted, its
/// turn and id.
fn first_to_go(connections: impl Iterator<Item = (Owner, Option<(u64, u64)>)>) -> Option<u64> {
    let mut owners = HashMap::new();
    for (owner, candidate) in connections {
        let (count, first) = owners.entry(owner).or_insert((0, None));
        *count += 1;
        *first = [*first, candidate].into_iter().flatten().min();
    }
    let candidates = owners.into_values();
    let candidates = candidates.filter_map(|(count, first)| Some((count, Reverse(first?))));
    candidates.max().map(|(_, Reverse((_, id)))| id)
}

/// Connections whose last response is not written, and whose thread has not ended.
pub(super) type Slots = HashMap<u64, Arc<Slot>>;

/// Shared state of a server's connections.
#[derive(Default)]
pub(super) struct Registry {
    /// The limits.
    pub(super) limits: HttpLimits,
    /// Connections close once their request is answered.
    pub(super) draining: AtomicBool,
    /// The next [`SlotState::turn`].
    pub(super) turns: AtomicU64,
    /// Connections whose caller is being looked up, which may take as long as an issuer does.
    pub(super) looking_up: AtomicUsize,
    pub(super) slots: Mutex<Slots>,
    pub(super) changed: Condvar,
    /// When the lack of room was last logged: under attack, it happens thousands of times per second.
    pub(super) logged: Mutex<Option<Instant>>,
}

impl Registry {
    /// Registers a new connection; at the limit, evicts another.
    pub(super) fn admit(self: &Arc<Registry>, socket: TcpStream, peer: SocketAddr) -> Arc<Slot> {
        let reserve = (self.limits.max_connections / 4).clamp(1, HTTP_RESERVE);
        // How many wait for an issuer is limited where they wait: nobody else has to because of them.
        let most = self.limits.max_connections + self.looking_up.load(SeqCst);
        let mut slots = lock(&self.slots);
        if slots.len() >= most + reserve {
            // On a busy machine a thread takes long to end, so that some may be about to.
            slots = self.evict(slots, most + 2 * reserve);
        }
        let turn = self.turns.fetch_add(1, SeqCst);
        let slot = Arc::new(Slot {
            id: turn,
            socket,
            peer,
            registry: Arc::clone(self),
            state: Mutex::new(SlotState {
                phase: ConnectionPhase::Idle,
                paid: None,
                owner: Owner::Network(network(peer.ip())),
                turn,
            }),
        });
        slots.insert(slot.id, Arc::clone(&slot));
        slot
    }

    /// Gives back a connection's place.
    pub(super) fn remove(&self, slot: &Slot) {
        lock(&self.slots).remove(&slot.id);
        self.changed.notify_all();
    }

    /// Evicts one connection, if one can be, and waits until there are fewer than `most`, at most for [`ACCEPT_PAUSE`]: a
    /// flood must not outrun the threads of those evicted before.
    fn evict<'r>(&'r self, slots: MutexGuard<'r, Slots>, most: usize) -> MutexGuard<'r, Slots> {
        let is_evictable =
            |state: &SlotState| state.paid.is_none() && state.phase != ConnectionPhase::Evicted;
        let find = || {
            first_to_go(slots.values().map(|slot| {
                let state = lock(&slot.state);
                let candidate = is_evictable(&state).then_some((state.turn, slot.id));
                (state.owner, candidate)
            }))
        };
        while let Some(slot) = find().and_then(|id| slots.get(&id)) {
            // The connection may have been admitted in the meantime.
            if slot.evict_if(is_evictable) {
                let peer = slot.peer;
                let line = format_args!("{peer}: closed to make room: all connections are in use");
                self.log(log::Level::Warn, line);
                break;
            }
        }
        let crowded = |slots: &mut Slots| slots.len() >= most;
        wait_while(&self.changed, slots, ACCEPT_PAUSE, crowded).0
    }

    /// After an error of `accept`, most likely no file descriptors: evicts one connection.
    pub(super) fn make_room(&self, error: &io::Error) {
        let line = format_args!("cannot accept connections, trying again: {error}");
        self.log(log::Level::Error, line);
        let slots = lock(&self.slots);
        let before = slots.len();
        drop(self.evict(slots, before));
    }

    /// Logs this, unless something was logged in the last [`HTTP_ACCEPT_LOG`].
    fn log(&self, level: log::Level, line: fmt::Arguments<'_>) {
        let mut logged = lock(&self.logged);
        if logged.is_none_or(|last| last.elapsed() >= HTTP_ACCEPT_LOG) {
            log::log!(level, "{line}");
            *logged = Some(Instant::now());
        }
    }

    /// Whether connections close once their request is answered.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(SeqCst)
    }

    /// Closes idle connections now and busy ones when they are answered; waits until `deadline`. Returns the number
    /// left.
    pub(super) fn drain(&self, deadline: Instant) -> usize {
        // Set before the scan: a connection that becomes idle later sees it.
        self.draining.store(true, SeqCst);
        let slots = lock(&self.slots);
        let at_rest = [ConnectionPhase::Idle, ConnectionPhase::Over];
        for slot in slots.values() {
            slot.evict_if(|state| at_rest.contains(&state.phase));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let is_left = |slot: &&Arc<Slot>| slot.phase() != ConnectionPhase::Evicted;
        let busy = |slots: &mut Slots| slots.values().any(|slot| is_left(&slot));
        let (slots, _) = wait_while(&self.changed, slots, left, busy);
        slots.values().filter(is_left).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_connections_loses_the_oldest_that_is_not_held() {
        let loses = |all: &[(Owner, Option<u64>)]| {
            let all = all.iter().zip(0..);
            first_to_go(all.map(|((owner, turn), id)| (*owner, turn.map(|turn| (turn, id)))))
        };
        let network = |peer: &str| Owner::Network(network(peer.parse().unwrap()));
        let (a, b) = (network("10.0.0.1"), network("10.0.0.2"));
        assert_eq!(loses(&[]), None);
        assert_eq!(loses(&[(a, None)]), None);
        let most = [(a, Some(0)), (b, Some(8)), (b, Some(9))];
        let as_many = [(a, Some(7)), (b, Some(6)), (Owner::Caller(6), Some(8))];
        let one_address = [
            (a, Some(7)),
            (network("::ffff:10.0.0.1"), Some(6)),
            (b, Some(0)),
        ];
        let one_network = [
            (network("2001:db8::1"), Some(7)),
            (network("2001:db8::ffff:1"), Some(6)),
            (network("2001:db8:0:1::1"), Some(0)),
        ];
        let held = [(a, Some(0)), (b, Some(1)), (b, None)];
        let all_held = [(b, None), (a, Some(1)), (b, None)];
        for all in [most, as_many, one_address, one_network, held, all_held] {
            assert_eq!(loses(&all), Some(1));
        }
    }
}
