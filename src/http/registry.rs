//! All connections: the limit, eviction, and shutdown.
//!
//! ```text
//!   Idle ──▶ Request ──▶ Response ──▶ Idle … Over        any but those with an admitted request ──▶ Evicted
//! ```
//! Only a connection whose admitted request is being served is safe. The others make room: the oldest one of the
//! network that has most of them, where age counts from the connection's start or its last admitted request. So whoever
//! is silent, sends or reads slowly, or is turned away again and again keeps nobody out. At most `max_connections` are
//! admitted; [`HTTP_RESERVE`] more places remain even then, so that probes always get one.
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
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::config::{HTTP_ACCEPT_LOG, HttpLimits};
use crate::sync::{lock, wait_while};
use crate::url::network;

/// Most evicted connections whose threads have not ended, before `accept` waits for one of them.
const HTTP_MAX_ENDING: usize = 64;
/// Most places beyond `max_connections`, for probes and other short requests; a quarter of it if that is less.
const HTTP_RESERVE: usize = 32;
/// Longest wait of `accept` for the threads of evicted connections, which only need CPU time.
const ENDING_WAIT: Duration = Duration::from_secs(1);

/// Longest pause of `accept` after a local error, to avoid spinning.
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
    /// It was evicted: its thread is ending.
    Evicted,
}

struct SlotState {
    phase: ConnectionPhase,
    /// A request that was admitted is being served.
    admitted: bool,
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
    /// For the heads of its responses and chunks.
    pub(super) buffer: Mutex<Vec<u8>>,
    state: Mutex<SlotState>,
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

    /// Marks a complete request as admitted. False if too many are, or if the connection must close.
    pub(super) fn hold(&self) -> bool {
        let mut state = lock(&self.state);
        let most = self.registry.limits.max_connections;
        let one_more = |admitted| (admitted < most).then_some(admitted + 1);
        if state.phase == ConnectionPhase::Request && !state.admitted {
            let admitted = &self.registry.admitted;
            state.admitted = admitted.fetch_update(SeqCst, SeqCst, one_more).is_ok();
        }
        state.admitted
    }

    /// The response has been sent completely. With `close`, nothing follows it.
    pub(super) fn complete(&self, close: bool) {
        self.end_response((!close).then_some(ConnectionPhase::Idle), Shutdown::Write);
    }

    /// Ends the connection, if a response was begun and is not complete.
    pub(super) fn abort(&self) {
        self.end_response(None, Shutdown::Both);
    }

    /// If nothing follows the response, gives back the connection's place and memory, whatever its thread goes on with.
    pub(super) fn release(&self) {
        if self.phase() == ConnectionPhase::Over {
            *lock(&self.buffer) = Vec::new();
            lock(&self.registry.table).open.remove(&self.id);
            self.registry.changed.notify_all();
        }
    }

    /// Ends the response, if one was begun, and the request's admission. Without a next phase, also the socket.
    fn end_response(&self, next: Option<ConnectionPhase>, how: Shutdown) {
        let mut state = lock(&self.state);
        if state.phase == ConnectionPhase::Response {
            state.phase = next.unwrap_or(ConnectionPhase::Over);
            if next.is_none() {
                let _ = self.socket.shutdown(how);
            }
        }
        if std::mem::take(&mut state.admitted) {
            state.turn = self.registry.turns.fetch_add(1, SeqCst);
            self.registry.admitted.fetch_sub(1, SeqCst);
        }
    }
}

/// A connection's place, given back when its thread ends, if not before by [`Slot::release`].
pub(super) struct Lease(pub(super) Arc<Slot>);

impl Drop for Lease {
    fn drop(&mut self) {
        let slot = &self.0;
        slot.abort();
        let mut table = lock(&slot.registry.table);
        table.open.remove(&slot.id);
        if slot.phase() == ConnectionPhase::Evicted {
            table.ending -= 1;
        }
        slot.registry.changed.notify_all();
    }
}

/// All connections of a server.
#[derive(Default)]
pub(super) struct Slots {
    /// The connections that have a place.
    pub(super) open: HashMap<u64, Arc<Slot>>,
    /// How many have been evicted whose thread has not ended.
    ending: usize,
    /// When it was logged last that there is no room: under attack, that is so thousands of times per second.
    logged: Option<Instant>,
}

impl Slots {
    /// Closes a connection, if it is in such a state.
    fn close(&mut self, slot: &Slot, closes: impl Fn(&SlotState) -> bool) -> bool {
        let mut state = lock(&slot.state);
        let closes = closes(&state);
        if closes {
            state.phase = ConnectionPhase::Evicted;
            self.open.remove(&slot.id);
            self.ending += 1;
            // Wakes the thread that reads or writes.
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        closes
    }

    /// Logs this, unless something was logged in the last [`HTTP_ACCEPT_LOG`].
    fn log(&mut self, level: log::Level, line: fmt::Arguments<'_>) {
        let is_long_ago = |last: Instant| last.elapsed() >= HTTP_ACCEPT_LOG;
        if self.logged.is_none_or(is_long_ago) {
            log::log!(level, "{line}");
            self.logged = Some(Instant::now());
        }
    }

    /// Evicts one connection, unless it has just been admitted. False if none can be evicted.
    fn evict(&mut self) -> bool {
        let evictable = self.open.values().filter_map(|slot| {
            let state = lock(&slot.state);
            (!state.admitted).then(|| (slot.peer.ip(), state.turn, slot.id))
        });
        let slot = first_to_go(evictable).and_then(|id| self.open.get(&id).cloned());
        if let Some(slot) = &slot
            && self.close(slot, |state| !state.admitted)
        {
            let peer = slot.peer;
            let line = format_args!("{peer}: closed to make room: all connections are in use");
            self.log(log::Level::Warn, line);
        }
        slot.is_some()
    }
}

/// The connection to evict, from candidates of peer, turn and id: the oldest one of the network with the most.
fn first_to_go(candidates: impl Iterator<Item = (IpAddr, u64, u64)>) -> Option<u64> {
    let mut networks = HashMap::new();
    for (peer, turn, id) in candidates {
        let (count, first) = networks.entry(network(peer)).or_insert((0, (turn, id)));
        *count += 1;
        *first = (*first).min((turn, id));
    }
    networks
        .into_values()
        .max_by_key(|(count, first)| (*count, Reverse(*first)))
        .map(|(_, (_, id))| id)
}

/// Shared state of a server's connections.
#[derive(Default)]
pub(super) struct Registry {
    /// The limits.
    pub(super) limits: HttpLimits,
    /// Connections close once their request is answered.
    pub(super) draining: AtomicBool,
    /// Number of connections with an admitted request.
    pub(super) admitted: AtomicUsize,
    /// The next [`SlotState::turn`].
    pub(super) turns: AtomicU64,
    pub(super) table: Mutex<Slots>,
    pub(super) changed: Condvar,
}

impl Registry {
    /// Registers a new connection; at the limit, evicts another.
    pub(super) fn admit(self: &Arc<Registry>, socket: TcpStream, peer: SocketAddr) -> Lease {
        // Keeps a flood from outrunning the threads of those evicted before.
        let crowded = |table: &mut Slots| table.ending >= HTTP_MAX_ENDING;
        let (mut table, _) = wait_while(&self.changed, lock(&self.table), ENDING_WAIT, crowded);
        let most = self.limits.max_connections;
        let places = most + (most / 4).clamp(1, HTTP_RESERVE);
        while table.open.len() >= places && table.evict() {}
        let turn = self.turns.fetch_add(1, SeqCst);
        let slot = Arc::new(Slot {
            id: turn,
            socket,
            peer,
            registry: Arc::clone(self),
            buffer: Mutex::default(),
            state: Mutex::new(SlotState {
                phase: ConnectionPhase::Idle,
                admitted: false,
                turn,
            }),
        });
        table.open.insert(slot.id, Arc::clone(&slot));
        Lease(slot)
    }

    /// After an error of `accept`, most likely no file descriptors: evicts one connection and waits until it has ended,
    /// at most for [`ACCEPT_PAUSE`].
    pub(super) fn make_room(&self, error: &io::Error) {
        let mut table = lock(&self.table);
        let line = format_args!("cannot accept connections, trying again: {error}");
        table.log(log::Level::Error, line);
        let evicted = table.evict();
        let crowded = |table: &mut Slots| !evicted || table.ending > 0;
        drop(wait_while(&self.changed, table, ACCEPT_PAUSE, crowded));
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
        let mut table = lock(&self.table);
        let open: Vec<_> = table.open.values().cloned().collect();
        let at_rest = [ConnectionPhase::Idle, ConnectionPhase::Over];
        for slot in open {
            table.close(&slot, |state| at_rest.contains(&state.phase));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let busy = |table: &mut Slots| !table.open.is_empty();
        let (table, _) = wait_while(&self.changed, table, left, busy);
        table.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_with_most_connections_loses_its_oldest() {
        let loses = |all: &[(&str, u64)]| {
            let parsed = all.iter().zip(0..);
            first_to_go(parsed.map(|((peer, turn), id)| (peer.parse().unwrap(), *turn, id)))
        };
        assert_eq!(loses(&[]), None);
        let most = [("10.0.0.1", 0), ("10.0.0.2", 8), ("10.0.0.2", 9)];
        let as_many = [("10.0.0.1", 7), ("10.0.0.2", 6), ("10.0.0.3", 8)];
        let one_address = [("10.0.0.1", 7), ("::ffff:10.0.0.1", 6), ("10.0.0.3", 0)];
        let one_network = [
            ("2001:db8::1", 7),
            ("2001:db8::ffff:1", 6),
            ("2001:db8:0:1::1", 0),
        ];
        for all in [most, as_many, one_address, one_network] {
            assert_eq!(loses(&all), Some(1), "{all:?}");
        }
    }
}
