//! All connections: the limit, eviction, and shutdown.
//!
//! ```text
//!   Open ──▶ Idle ──▶ Open ──▶ Admitted ──▶ Open ──▶ Idle …      any but Admitted ──▶ Closing
//!       rest     begin    hold        complete
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
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
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

/// What a connection is doing; the first that apply are the first to be closed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
enum ConnectionPhase {
    /// Nothing: it waits for its next request, or for the client to read its last response.
    Idle,
    /// A request is being read, or answered without admission.
    #[default]
    Open,
    /// An admitted request is being served.
    Admitted,
    /// It was evicted: its thread is ending.
    Closing,
}

/// What has become of the response to a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ResponseState {
    /// Nobody has taken it on.
    #[default]
    Unanswered,
    /// It is being decided or written.
    Pending,
    /// Sent: the connection can be reused.
    Kept,
    /// Sent or aborted: nothing may follow.
    Closed,
}

#[derive(Default)]
struct SlotState {
    phase: ConnectionPhase,
    /// Its age: the lower, the older.
    turn: u64,
    outcome: ResponseState,
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
    /// Marks the connection as waiting for a request. False if it must close instead.
    pub(super) fn rest(&self) -> bool {
        self.shift(ConnectionPhase::Open, ConnectionPhase::Idle) && !self.registry.draining()
    }

    /// Marks the start of a request. False if the connection must close.
    pub(super) fn begin(&self) -> bool {
        self.shift(ConnectionPhase::Idle, ConnectionPhase::Open)
    }

    /// Marks a complete request as admitted. False if too many are, or if the connection must close.
    pub(super) fn hold(&self) -> bool {
        let mut state = lock(&self.state);
        let most = self.registry.limits.max_connections;
        let one_more = |admitted| (admitted < most).then_some(admitted + 1);
        let admitted = &self.registry.admitted;
        if state.phase == ConnectionPhase::Open
            && admitted.fetch_update(SeqCst, SeqCst, one_more).is_ok()
        {
            state.phase = ConnectionPhase::Admitted;
        }
        state.phase == ConnectionPhase::Admitted
    }

    /// Marks the response as begun.
    pub(super) fn open_response(&self) {
        lock(&self.state).outcome = ResponseState::Pending;
    }

    /// The response has been sent completely. With `close`, nothing follows it.
    pub(super) fn complete(&self, close: bool) {
        if close {
            self.end_response(ResponseState::Closed);
            let _ = self.socket.shutdown(Shutdown::Write);
        } else {
            self.end_response(ResponseState::Kept);
        }
    }

    /// Ends the connection, if a response was begun and is not complete.
    pub(super) fn abort(&self) {
        if lock(&self.state).outcome == ResponseState::Pending {
            self.end_response(ResponseState::Closed);
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// If nothing follows the response, gives back the connection's place and memory, whatever its thread goes on with.
    pub(super) fn release(&self) {
        if lock(&self.state).outcome == ResponseState::Closed {
            *lock(&self.buffer) = Vec::new();
            self.registry.table().open.remove(&self.id);
            self.registry.changed.notify_all();
        }
    }

    /// What has become of the response; resets it for the next one.
    pub(super) fn take_outcome(&self) -> ResponseState {
        std::mem::take(&mut lock(&self.state).outcome)
    }

    fn end_response(&self, outcome: ResponseState) {
        let mut state = lock(&self.state);
        state.outcome = outcome;
        if state.phase == ConnectionPhase::Admitted {
            state.phase = ConnectionPhase::Open;
            state.turn = self.registry.next_turn();
            self.registry.admitted.fetch_sub(1, SeqCst);
        }
    }

    fn shift(&self, from: ConnectionPhase, to: ConnectionPhase) -> bool {
        let mut state = lock(&self.state);
        let shifts = state.phase == from;
        if shifts {
            state.phase = to;
        }
        shifts
    }
}

/// A connection's place, given back when its thread ends, if not before by [`Slot::release`].
pub(super) struct Lease(pub(super) Arc<Slot>);

impl Drop for Lease {
    fn drop(&mut self) {
        let slot = &self.0;
        slot.end_response(ResponseState::Closed);
        let mut table = slot.registry.table();
        table.open.remove(&slot.id);
        if lock(&slot.state).phase == ConnectionPhase::Closing {
            table.ending -= 1;
        }
        slot.registry.changed.notify_all();
    }
}

#[derive(Default)]
struct Slots {
    /// The connections that have a place.
    open: HashMap<u64, Arc<Slot>>,
    /// How many have been evicted whose thread has not ended.
    ending: usize,
    /// When it was logged last that there is no room: under attack, that is so thousands of times per second.
    logged: Option<Instant>,
}

impl Slots {
    /// Closes a connection that is at most in this phase.
    fn close(&mut self, slot: &Slot, at_most: ConnectionPhase) -> bool {
        let mut state = lock(&slot.state);
        let closes = state.phase <= at_most;
        if closes {
            state.phase = ConnectionPhase::Closing;
            self.open.remove(&slot.id);
            self.ending += 1;
            // Wakes the thread that reads or writes.
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        closes
    }

    /// Logs this, unless something was logged in the last [`HTTP_ACCEPT_LOG`].
    fn log(&mut self, level: log::Level, line: fmt::Arguments<'_>) {
        if self
            .logged
            .is_none_or(|last| last.elapsed() >= HTTP_ACCEPT_LOG)
        {
            log::log!(level, "{line}");
            self.logged = Some(Instant::now());
        }
    }

    /// Evicts one connection. False if none can be evicted.
    fn evict(&mut self) -> bool {
        let evictable = self.open.values().filter_map(|slot| {
            let state = lock(&slot.state);
            (state.phase <= ConnectionPhase::Open).then(|| (slot.peer.ip(), state.turn, slot.id))
        });
        let Some(slot) = first_to_go(evictable).and_then(|id| self.open.get(&id).cloned()) else {
            return false;
        };
        if !self.close(&slot, ConnectionPhase::Open) {
            // It has just been admitted.
            return self.evict();
        }
        let peer = slot.peer;
        let line = format_args!("{peer}: closed to make room: all connections are in use");
        self.log(log::Level::Warn, line);
        true
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
    draining: AtomicBool,
    /// Number of `Admitted` connections.
    pub(super) admitted: AtomicUsize,
    turns: AtomicU64,
    table: Mutex<Slots>,
    changed: Condvar,
}

impl Registry {
    /// An empty registry.
    pub(super) fn new(limits: HttpLimits) -> Registry {
        Registry {
            limits,
            ..Registry::default()
        }
    }

    /// Registers a new connection; at the limit, evicts another.
    pub(super) fn admit(self: &Arc<Registry>, socket: TcpStream, peer: SocketAddr) -> Lease {
        // Keeps a flood from outrunning the threads of those evicted before.
        let crowded = |table: &mut Slots| table.ending >= HTTP_MAX_ENDING;
        let (mut table, _) = wait_while(&self.changed, self.table(), ENDING_WAIT, crowded);
        let most = self.limits.max_connections;
        let places = most + (most / 4).clamp(1, HTTP_RESERVE);
        while table.open.len() >= places && table.evict() {}
        let turn = self.next_turn();
        let slot = Arc::new(Slot {
            id: turn,
            socket,
            peer,
            registry: Arc::clone(self),
            buffer: Mutex::default(),
            state: Mutex::new(SlotState {
                turn,
                ..SlotState::default()
            }),
        });
        table.open.insert(slot.id, Arc::clone(&slot));
        Lease(slot)
    }

    /// After an error of `accept`, most likely no file descriptors: evicts one connection and waits until it has ended,
    /// at most for [`ACCEPT_PAUSE`].
    pub(super) fn make_room(&self, error: &io::Error) {
        let mut table = self.table();
        let line = format_args!("cannot accept connections, trying again: {error}");
        table.log(log::Level::Error, line);
        let evicted = table.evict();
        let crowded = |table: &mut Slots| !evicted || table.ending > 0;
        drop(wait_while(&self.changed, table, ACCEPT_PAUSE, crowded));
    }

    /// Number of connections that have a place.
    pub(super) fn connections(&self) -> usize {
        self.table().open.len()
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
        let mut table = self.table();
        let open: Vec<_> = table.open.values().cloned().collect();
        for slot in open {
            table.close(&slot, ConnectionPhase::Idle);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let busy = |table: &mut Slots| !table.open.is_empty();
        let (table, _) = wait_while(&self.changed, table, left, busy);
        table.open.len()
    }

    fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, SeqCst)
    }

    fn table(&self) -> MutexGuard<'_, Slots> {
        lock(&self.table)
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
