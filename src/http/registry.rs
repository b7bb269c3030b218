//! Who is connected: the cap, who makes room for a newcomer, and the end of everybody.
//!
//! ```text
//!   New ──▶ Open ──▶ Held ──▶ Open ──▶ Idle ──▶ Open …      any but Held ──▶ Closing
//!        bytes    hold     answered
//! ```
//! A connection keeps its place for certain only while a request that was let in is served (`Held`): whoever is silent,
//! sends or reads slowly, or was turned away makes room as soon as it is needed. As many places as `max_connections` can
//! be held; a few more ([`HTTP_RESERVE`]) are left even then, so that a probe finds one whatever the others do.
//!
//! In scope: the state every connection shows to others. Not in scope: reading and writing (`wire`), and which requests
//! are let in (the handler).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{HTTP_ACCEPT_LOG, HttpLimits};
use crate::sync::lock;

/// How many connections may be on their way out, told to close but not yet gone, before `accept` waits for one.
pub(super) const HTTP_MAX_CLOSING: usize = 64;
/// Most places beyond those held by requests being served, in which probes and other short requests are answered even
/// when all others are held; it is a quarter of `max_connections` if that is less.
pub(super) const HTTP_RESERVE: usize = 32;
/// How long a new connection that has sent nothing counts as one that could not yet: others make room before it.
pub(super) const HTTP_FIRST_CHANCE: Duration = Duration::from_millis(100);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has sent nothing yet.
    New,
    /// It waits for its next request.
    Idle,
    /// A request is being read, or answered without having been let in.
    Open,
    /// A request that was let in is being served.
    Held,
    /// It only waits for its client to see the last answer.
    Leaving,
    /// Told to close; its thread is on the way out.
    Closing,
}

/// What a connection does, and since when it is without a request that was let in.
#[derive(Clone, Copy)]
struct State {
    phase: Phase,
    since: Instant,
    /// Its last request was let in: the next one makes it young again, once.
    trusted: bool,
}

impl State {
    /// Who goes first, the least: those who leave, then by age; those that cannot have sent anything yet come last.
    /// `None` if it must not be closed.
    fn rank(&self, now: Instant) -> Option<(u8, Instant)> {
        let class = match self.phase {
            Phase::Held | Phase::Closing => return None,
            Phase::Leaving => 0,
            Phase::New if now.saturating_duration_since(self.since) < HTTP_FIRST_CHANCE => 2,
            Phase::New | Phase::Idle | Phase::Open => 1,
        };
        Some((class, self.since))
    }

    /// Whether no request is in work.
    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Idle | Phase::Leaving)
    }
}

/// Of the connections that may be closed, each with its network, its rank and its id, the one that makes room: the first
/// of the network that has most of them.
fn first_to_go<R: Ord + Copy>(candidates: impl Iterator<Item = (IpAddr, R, u64)>) -> Option<u64> {
    let mut networks = HashMap::new();
    for (network, rank, id) in candidates {
        let (count, first) = networks.entry(network).or_insert((0, (rank, id)));
        *count += 1;
        *first = (*first).min((rank, id));
    }
    networks.into_values().max_by_key(|(count, first)| (*count, Reverse(*first))).map(|(_, (_, id))| id)
}

/// An IPv4 address, or the 64 bits of an IPv6 address that name a network: its owner has all the others.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

/// How an event stream of a connection stands; see [`Slot::end_stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StreamState {
    /// Being written.
    Open,
    /// Ended properly: the connection can be used on.
    Finished,
    /// Dropped without its end: the connection must be closed.
    Aborted,
    /// The connection's thread has left: the stream owns the socket.
    Detached,
}

/// One connection, as the others see it.
pub(super) struct Slot {
    id: u64,
    /// The connection itself. Only its thread, or the stream it left behind, reads and writes; others may shut it down.
    pub(super) socket: TcpStream,
    /// The other end.
    pub(super) peer: SocketAddr,
    state: Mutex<State>,
    stream: AtomicU8,
}

impl Slot {
    /// Whether it was told to close.
    pub(super) fn closing(&self) -> bool {
        self.state().phase == Phase::Closing
    }

    /// A stream begins.
    pub(super) fn open_stream(&self) {
        self.stream.store(StreamState::Open as u8, Ordering::SeqCst);
    }

    /// Moves an open stream on to `to`. The first caller wins, stream or thread: false when the stream was not open.
    pub(super) fn end_stream(&self, to: StreamState) -> bool {
        self.stream.compare_exchange(StreamState::Open as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the stream ended properly.
    pub(super) fn stream_finished(&self) -> bool {
        self.stream.load(Ordering::SeqCst) == StreamState::Finished as u8
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A place among the connections, given back when the last owner (the thread, or the stream it left behind) drops it.
pub(super) struct Lease {
    /// All connections and their limits.
    pub(super) shared: Arc<Shared>,
    /// This one.
    pub(super) slot: Arc<Slot>,
}

impl Lease {
    /// The connection waits for a request. False when it is not to wait but to close.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.slot.state();
        if state.phase == Phase::Open {
            state.phase = Phase::Idle;
        }
        state.phase != Phase::Closing && !self.shared.draining()
    }

    /// Something of a request has come. False when the connection was told to close in the meantime.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.slot.state();
        if matches!(state.phase, Phase::New | Phase::Idle) {
            state.phase = Phase::Open;
        }
        if std::mem::take(&mut state.trusted) {
            state.since = Instant::now();
        }
        state.phase == Phase::Open
    }

    /// Whether it is new, and all places are held.
    pub(super) fn is_beyond_the_cap(&self) -> bool {
        self.slot.state().phase == Phase::New
            && self.shared.held.load(Ordering::SeqCst) >= self.shared.limits.max_connections
    }

    /// A whole request was let in: until it is answered the connection stays. False when all places are held, or the
    /// connection was told to close.
    pub(super) fn hold(&self) -> bool {
        let mut state = self.slot.state();
        if state.phase == Phase::Open && self.shared.take_place() {
            state.phase = Phase::Held;
        }
        state.phase == Phase::Held
    }

    /// The request has been answered: the connection makes room again, as the latest of all.
    pub(super) fn answered(&self) {
        let mut state = self.slot.state();
        if state.phase == Phase::Held {
            *state = State { phase: Phase::Open, since: Instant::now(), trusted: true };
            self.shared.held.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The connection only waits for its client to see the last answer: the first to go when room is needed.
    pub(super) fn leave(&self) {
        self.answered();
        let mut state = self.slot.state();
        if state.phase != Phase::Closing {
            state.phase = Phase::Leaving;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.answered();
        let mut slots = self.shared.slots();
        slots.open.remove(&self.slot.id);
        if self.slot.closing() {
            slots.closing -= 1;
        }
        drop(slots);
        self.shared.changed.notify_all();
    }
}

#[derive(Default)]
struct Slots {
    open: HashMap<u64, Arc<Slot>>,
    /// How many of `open` are `Closing`; both change under the lock only.
    closing: usize,
    next_id: u64,
    /// When it was logged last that one had to make room.
    told: Option<Instant>,
}

impl Slots {
    /// Tells a connection to close if it may be. False when that has just changed.
    fn close(&mut self, slot: &Slot, may_be: impl FnOnce(&State) -> bool) -> bool {
        let mut state = slot.state();
        let closed = may_be(&state);
        if closed {
            state.phase = Phase::Closing;
            self.closing += 1;
            // Wakes the thread that reads or writes.
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        closed
    }

    /// Closes the connection that is the first to go. False when none may be closed.
    fn evict(&mut self) -> bool {
        let now = Instant::now();
        loop {
            let ranked = self.open.values().filter_map(|slot| Some((slot, slot.state().rank(now)?)));
            let candidates = ranked.map(|(slot, rank)| (network(slot.peer.ip()), rank, slot.id));
            let Some(slot) = first_to_go(candidates).and_then(|id| self.open.get(&id)) else { return false };
            let slot = Arc::clone(slot);
            if self.close(&slot, |state| state.rank(now).is_some()) {
                // Under attack there are thousands a second.
                if self.told.is_none_or(|told| now.saturating_duration_since(told) >= HTTP_ACCEPT_LOG) {
                    log::warn!("{}: closed to make room: all connections are in use", slot.peer);
                    self.told = Some(now);
                }
                return true;
            }
        }
    }
}

/// What all connections of a server share.
pub(super) struct Shared {
    /// The bounds.
    pub(super) limits: HttpLimits,
    stopping: AtomicBool,
    draining: AtomicBool,
    /// How many connections are `Held`.
    held: AtomicUsize,
    slots: Mutex<Slots>,
    changed: Condvar,
}

impl Shared {
    /// Nobody is connected yet.
    pub(super) fn new(limits: HttpLimits) -> Shared {
        Shared {
            limits,
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            slots: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Gives a new connection a place, at the cap by closing another one. Gives the socket back when none makes room.
    pub(super) fn admit(self: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) -> Result<Lease, TcpStream> {
        let mut slots = self.slots();
        if slots.closing >= HTTP_MAX_CLOSING {
            // Their threads have been woken and only need the processor: a flood may not outrun them.
            let crowded = |slots: &mut Slots| slots.closing >= HTTP_MAX_CLOSING;
            let waited = self.changed.wait_timeout_while(slots, Duration::from_secs(1), crowded);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let room = self.limits.max_connections.max(self.held.load(Ordering::SeqCst) + self.reserve());
        let full = slots.open.len() - slots.closing >= room;
        if full && (slots.closing >= HTTP_MAX_CLOSING || !slots.evict()) {
            return Err(socket);
        }
        let id = slots.next_id;
        slots.next_id += 1;
        let state = Mutex::new(State { phase: Phase::New, since: Instant::now(), trusted: false });
        let stream = AtomicU8::new(StreamState::Finished as u8);
        let slot = Arc::new(Slot { id, socket, peer, state, stream });
        slots.open.insert(id, Arc::clone(&slot));
        Ok(Lease { shared: Arc::clone(self), slot })
    }

    /// The machine has run out of something: closes the connection that is the first to go and waits until it is gone. If
    /// none may be closed, waits for `pause`, or until the server stops.
    pub(super) fn make_room(&self, pause: Duration) {
        let mut slots = self.slots();
        let evicted = slots.evict();
        let wait = |slots: &mut Slots| !(self.stopping() || (evicted && slots.closing == 0));
        drop(self.changed.wait_timeout_while(slots, pause, wait));
    }

    /// How many connections there are, those that are closing included.
    pub(super) fn connections(&self) -> usize {
        self.slots().open.len()
    }

    /// Whether no new connection is wanted.
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// No new connection is wanted from now on. False when that was known.
    pub(super) fn stop(&self) -> bool {
        let first = !self.stopping.swap(true, Ordering::SeqCst);
        // Under the lock, so that nobody is between looking and waiting.
        drop(self.slots());
        self.changed.notify_all();
        first
    }

    /// Whether a connection closes as soon as its request is answered.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Closes what is idle now, what is busy when it is done, and waits for them until `deadline`. How many are left.
    pub(super) fn drain(&self, deadline: Instant) -> usize {
        // Before looking: a connection that goes idle later sees this itself.
        self.draining.store(true, Ordering::SeqCst);
        let mut slots = self.slots();
        let open: Vec<_> = slots.open.values().cloned().collect();
        for slot in open {
            slots.close(&slot, State::is_idle);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(slots, left, |slots| !slots.open.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.open.len()
    }

    /// Cuts every connection, whatever it does.
    pub(super) fn cut(&self) {
        self.draining.store(true, Ordering::SeqCst);
        for slot in self.slots().open.values() {
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
    }

    /// How many places are left for short requests.
    fn reserve(&self) -> usize {
        (self.limits.max_connections / 4).clamp(1, HTTP_RESERVE)
    }

    /// Takes one of the places that can be held.
    fn take_place(&self) -> bool {
        let one_more = |held: usize| (held < self.limits.max_connections).then_some(held + 1);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_secs(1000);

    #[test]
    fn requests_that_were_let_in_stay_and_newcomers_get_their_chance() {
        let now = Instant::now();
        let ranks = |phase, age| State { phase, since: now - age, trusted: false }.rank(now);
        assert!(ranks(Phase::Held, FAR).is_none() && ranks(Phase::Closing, FAR).is_none());
        let order = [
            (Phase::Leaving, Duration::ZERO),
            (Phase::Open, FAR),
            (Phase::New, FAR / 2),
            (Phase::Idle, FAR / 3),
            (Phase::New, HTTP_FIRST_CHANCE),
            (Phase::Open, Duration::ZERO),
            (Phase::New, HTTP_FIRST_CHANCE - Duration::from_nanos(1)),
            (Phase::New, Duration::ZERO),
        ];
        let order = order.map(|(phase, age)| ranks(phase, age).unwrap());
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn the_network_with_most_connections_loses_its_oldest() {
        let ip = |text: &str| network(text.parse().unwrap());
        let loses = |all: &[(&str, u8)]| {
            first_to_go(all.iter().enumerate().map(|(id, (peer, rank))| (ip(peer), *rank, id as u64)))
        };
        assert_eq!(loses(&[]), None);
        assert_eq!(loses(&[("10.0.0.1", 5), ("10.0.0.1", 3), ("10.0.0.1", 4)]), Some(1));
        assert_eq!(loses(&[("10.0.0.1", 0), ("10.0.0.2", 8), ("10.0.0.2", 9)]), Some(1), "more of them");
        assert_eq!(loses(&[("10.0.0.1", 7), ("10.0.0.2", 6), ("10.0.0.3", 8)]), Some(1), "as many of each");
        assert_eq!(loses(&[("10.0.0.1", 7), ("::ffff:10.0.0.1", 6), ("10.0.0.3", 0)]), Some(1), "one address");
        let one_network = [("2001:db8::1", 7), ("2001:db8::ffff:1", 6), ("2001:db8:0:1::1", 0)];
        assert_eq!(loses(&one_network), Some(1), "one network");
        assert_eq!(loses(&[("10.0.0.1", 4), ("10.0.0.1", 4)]), Some(0), "of the same moment the first");
    }
}
