//! All connections: the limit, eviction, and shutdown.
//!
//! ```text
//!   New ──▶ Open ──▶ Held ──▶ Open ──▶ Idle ──▶ Open …      any but Held ──▶ Closing
//!        bytes    hold     answered
//! ```
//! A connection is safe from eviction only while an admitted request is served (`Held`): one that is silent, sends or
//! reads slowly, or was rejected is evicted when a place is needed. At most `max_connections` can be held;
//! [`HTTP_RESERVE`] more places remain even then, so that probes always get one.
//!
//! In scope: the shared state of every connection. Not in scope: I/O (`socket`), and which requests are admitted (the
//! handler).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::{HTTP_ACCEPT_LOG, HttpLimits};
use crate::heap;
use crate::net::network;
use crate::sync::{lock, wait_while};

/// Most closing connections before `accept` waits for one of them to end.
pub(super) const HTTP_MAX_CLOSING: usize = 64;
/// Most places beyond the held ones, for probes and other short requests; a quarter of `max_connections` if that is
/// less.
pub(super) const HTTP_RESERVE: usize = 32;
/// Grace period of a new connection that has sent nothing: until then it is evicted last.
pub(super) const HTTP_FIRST_CHANCE: Duration = Duration::from_millis(100);

/// From this many connections on, memory is released to the system once most of them have ended.
const MANY: usize = 256;
/// Delay before that.
const TRIM_DELAY: Duration = Duration::from_secs(2);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// New; nothing received yet.
    New,
    /// Waiting for its next request.
    Idle,
    /// A request is being read, or answered without admission.
    Open,
    /// An admitted request is being served.
    Held,
    /// Lingering close: waiting for the client to read the last response.
    Leaving,
    /// Told to close; its thread is ending.
    Closing,
}

/// A connection's state, and since when it has had no admitted request.
#[derive(Clone, Copy)]
struct SlotState {
    phase: ConnectionPhase,
    since: Instant,
    /// Its last request was admitted: the start of the next request resets its age, once.
    trusted: bool,
}

impl SlotState {
    /// Eviction order, lowest first: lingering connections, then by age; new ones in their grace period come last.
    /// `None`: must not be evicted.
    fn rank(&self, now: Instant) -> Option<(u8, Instant)> {
        let class = match self.phase {
            ConnectionPhase::Held | ConnectionPhase::Closing => return None,
            ConnectionPhase::Leaving => 0,
            ConnectionPhase::New
                if now.saturating_duration_since(self.since) < HTTP_FIRST_CHANCE =>
            {
                2
            }
            ConnectionPhase::New | ConnectionPhase::Idle | ConnectionPhase::Open => 1,
        };
        Some((class, self.since))
    }

    /// Whether no request is in progress.
    fn is_idle(&self) -> bool {
        matches!(
            self.phase,
            ConnectionPhase::New | ConnectionPhase::Idle | ConnectionPhase::Leaving
        )
    }
}

/// The connection to evict, from candidates of network, rank and id: the lowest rank in the network with the most.
fn first_to_go<R: Ord + Copy>(candidates: impl Iterator<Item = (IpAddr, R, u64)>) -> Option<u64> {
    let mut networks = HashMap::new();
    for (network, rank, id) in candidates {
        let (count, first) = networks.entry(network).or_insert((0, (rank, id)));
        *count += 1;
        *first = (*first).min((rank, id));
    }
    networks
        .into_values()
        .max_by_key(|(count, first)| (*count, Reverse(*first)))
        .map(|(_, (_, id))| id)
}

/// The state of a connection's event stream; see [`Slot::end_stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StreamState {
    /// Being written.
    Open,
    /// Complete: the connection can be reused.
    Finished,
    /// Dropped before its end: the connection must be closed.
    Aborted,
    /// The connection's thread has ended: the stream owns the socket.
    Detached,
}

/// The shared part of one connection.
pub(super) struct Slot {
    id: u64,
    /// Only the connection's thread, or the stream that owns it, reads and writes; others may shut it down.
    pub(super) socket: TcpStream,
    /// The peer.
    pub(super) peer: SocketAddr,
    state: Mutex<SlotState>,
    stream: AtomicU8,
}

impl Slot {
    /// Whether it must close.
    pub(super) fn closing(&self) -> bool {
        self.state().phase == ConnectionPhase::Closing
    }

    /// Marks the stream as open.
    pub(super) fn open_stream(&self) {
        self.stream.store(StreamState::Open as u8, Ordering::SeqCst);
    }

    /// Moves an open stream to `to`. The first caller wins, stream or thread: false if the stream is not open.
    pub(super) fn end_stream(&self, to: StreamState) -> bool {
        self.stream
            .compare_exchange(
                StreamState::Open as u8,
                to as u8,
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
    }

    /// Whether the stream ended properly.
    pub(super) fn stream_finished(&self) -> bool {
        self.stream.load(Ordering::SeqCst) == StreamState::Finished as u8
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.state)
    }
}

/// A registered connection; deregistered when its last owner (thread or stream) drops it.
pub(super) struct Lease {
    /// All connections and their limits.
    pub(super) registry: Arc<Registry>,
    /// This one.
    pub(super) slot: Arc<Slot>,
}

impl Lease {
    /// Marks the connection as waiting for a request. False if it must close instead.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.slot.state();
        if state.phase == ConnectionPhase::Open {
            state.phase = ConnectionPhase::Idle;
        }
        state.phase != ConnectionPhase::Closing && !self.registry.draining()
    }

    /// Marks the start of a request. False if the connection must close.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.slot.state();
        if matches!(state.phase, ConnectionPhase::New | ConnectionPhase::Idle) {
            state.phase = ConnectionPhase::Open;
        }
        if std::mem::take(&mut state.trusted) {
            state.since = Instant::now();
        }
        state.phase == ConnectionPhase::Open
    }

    /// Whether it is new, and all places are held.
    pub(super) fn is_beyond_the_cap(&self) -> bool {
        self.slot.state().phase == ConnectionPhase::New
            && self.registry.held.load(Ordering::SeqCst) >= self.registry.limits.max_connections
    }

    /// Marks a complete request as admitted, which prevents eviction until it is answered. False if all places are
    /// held, or the connection must close.
    pub(super) fn hold(&self) -> bool {
        let mut state = self.slot.state();
        if state.phase == ConnectionPhase::Open && self.registry.take_place() {
            state.phase = ConnectionPhase::Held;
        }
        state.phase == ConnectionPhase::Held
    }

    /// Marks the request as answered: the connection can be evicted again, as the youngest.
    pub(super) fn answered(&self) {
        let mut state = self.slot.state();
        if state.phase == ConnectionPhase::Held {
            *state = SlotState {
                phase: ConnectionPhase::Open,
                since: Instant::now(),
                trusted: true,
            };
            self.registry.held.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Marks the connection as lingering: the first to be evicted.
    pub(super) fn leave(&self) {
        self.answered();
        let mut state = self.slot.state();
        if state.phase != ConnectionPhase::Closing {
            state.phase = ConnectionPhase::Leaving;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.answered();
        let mut slots = self.registry.slots();
        slots.open.remove(&self.slot.id);
        if self.slot.closing() {
            slots.closing -= 1;
        }
        let emptied = slots.has_emptied();
        drop(slots);
        self.registry.changed.notify_all();
        if emptied && heap::KEEPS {
            // Delayed, because the threads of those connections have not ended yet. If it fails, memory stays resident.
            let _ = thread::Builder::new()
                .name("http-trim".to_owned())
                .spawn(|| {
                    thread::sleep(TRIM_DELAY);
                    heap::trim();
                });
        }
    }
}

#[derive(Default)]
struct Slots {
    open: HashMap<u64, Arc<Slot>>,
    /// Number of `open` that are `Closing`; both change only under the lock.
    closing: usize,
    next_id: u64,
    /// High-water mark of connections since memory was last released.
    most: usize,
    /// Time of the last log line about an eviction.
    told: Option<Instant>,
}

impl Slots {
    /// Closes a connection if `may_be` still holds.
    fn close(&mut self, slot: &Slot, may_be: impl FnOnce(&SlotState) -> bool) -> bool {
        let mut state = slot.state();
        let closed = may_be(&state);
        if closed {
            state.phase = ConnectionPhase::Closing;
            self.closing += 1;
            // Wakes the thread that reads or writes.
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        closed
    }

    /// Whether most of many connections have ended, so that their memory can be released.
    fn has_emptied(&mut self) -> bool {
        let emptied = self.most >= MANY && self.open.len() <= self.most / 8;
        if emptied {
            self.most = self.open.len();
            self.open.shrink_to_fit();
        }
        emptied
    }

    /// Evicts one connection. False if none can be evicted.
    fn evict(&mut self) -> bool {
        let now = Instant::now();
        loop {
            let ranked = self
                .open
                .values()
                .filter_map(|slot| Some((slot, slot.state().rank(now)?)));
            let candidates = ranked.map(|(slot, rank)| (network(slot.peer.ip()), rank, slot.id));
            let Some(slot) = first_to_go(candidates).and_then(|id| self.open.get(&id)) else {
                return false;
            };
            let slot = Arc::clone(slot);
            if self.close(&slot, |state| state.rank(now).is_some()) {
                // Rate limited: under attack there are thousands per second.
                if self
                    .told
                    .is_none_or(|told| now.saturating_duration_since(told) >= HTTP_ACCEPT_LOG)
                {
                    log::warn!(
                        "{}: closed to make room: all connections are in use",
                        slot.peer
                    );
                    self.told = Some(now);
                }
                return true;
            }
        }
    }
}

/// Shared state of a server's connections.
pub(super) struct Registry {
    /// The limits.
    pub(super) limits: HttpLimits,
    stopping: AtomicBool,
    draining: AtomicBool,
    /// Number of `Held` connections.
    held: AtomicUsize,
    slots: Mutex<Slots>,
    changed: Condvar,
}

impl Registry {
    /// An empty registry.
    pub(super) fn new(limits: HttpLimits) -> Registry {
        Registry {
            limits,
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            slots: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Registers a new connection; at the limit, evicts another. Returns the socket if none can be evicted.
    pub(super) fn admit(
        self: &Arc<Registry>,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Result<Lease, TcpStream> {
        let mut slots = self.slots();
        if slots.closing >= HTTP_MAX_CLOSING {
            // Closing threads only need CPU time: waiting keeps a flood from outrunning them.
            let crowded = |slots: &mut Slots| slots.closing >= HTTP_MAX_CLOSING;
            slots = wait_while(&self.changed, slots, Duration::from_secs(1), crowded).0;
        }
        let room = self
            .limits
            .max_connections
            .max(self.held.load(Ordering::SeqCst) + self.reserve());
        let full = slots.open.len() - slots.closing >= room;
        if full && (slots.closing >= HTTP_MAX_CLOSING || !slots.evict()) {
            return Err(socket);
        }
        let id = slots.next_id;
        slots.next_id += 1;
        let state = Mutex::new(SlotState {
            phase: ConnectionPhase::New,
            since: Instant::now(),
            trusted: false,
        });
        let stream = AtomicU8::new(StreamState::Finished as u8);
        let slot = Arc::new(Slot {
            id,
            socket,
            peer,
            state,
            stream,
        });
        slots.open.insert(id, Arc::clone(&slot));
        slots.most = slots.most.max(slots.open.len());
        Ok(Lease {
            registry: Arc::clone(self),
            slot,
        })
    }

    /// After running out of a resource: evicts one connection and waits until it has closed. If none can be evicted,
    /// waits for `pause`, or until the server stops.
    pub(super) fn make_room(&self, pause: Duration) {
        let mut slots = self.slots();
        let evicted = slots.evict();
        let wait = |slots: &mut Slots| !(self.stopping() || (evicted && slots.closing == 0));
        drop(wait_while(&self.changed, slots, pause, wait));
    }

    /// Number of admitted requests in progress.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Number of connections, including closing ones.
    pub(super) fn connections(&self) -> usize {
        self.slots().open.len()
    }

    /// Whether the server no longer accepts.
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Stops accepting. False if it had stopped already.
    pub(super) fn stop(&self) -> bool {
        let first = !self.stopping.swap(true, Ordering::SeqCst);
        // Taking the lock ensures that no waiter is between its check and its wait.
        drop(self.slots());
        self.changed.notify_all();
        first
    }

    /// Whether connections close once their request is answered.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Closes idle connections now and busy ones when they are done; waits until `deadline`. Returns the number left.
    pub(super) fn drain(&self, deadline: Instant) -> usize {
        // Set before the scan: a connection that becomes idle later sees it.
        self.draining.store(true, Ordering::SeqCst);
        let mut slots = self.slots();
        let open: Vec<_> = slots.open.values().cloned().collect();
        for slot in open {
            slots.close(&slot, SlotState::is_idle);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        wait_while(&self.changed, slots, left, |slots| !slots.open.is_empty())
            .0
            .open
            .len()
    }

    /// Closes every connection at once.
    pub(super) fn cut(&self) {
        self.draining.store(true, Ordering::SeqCst);
        for slot in self.slots().open.values() {
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
    }

    /// Places reserved for short requests.
    fn reserve(&self) -> usize {
        (self.limits.max_connections / 4).clamp(1, HTTP_RESERVE)
    }

    /// Takes one of the `max_connections` places.
    fn take_place(&self) -> bool {
        let one_more = |held: usize| (held < self.limits.max_connections).then_some(held + 1);
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
            .is_ok()
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
    fn admitted_requests_stay_and_new_connections_get_a_grace_period() {
        let now = Instant::now();
        let ranks = |phase, age| {
            SlotState {
                phase,
                since: now - age,
                trusted: false,
            }
            .rank(now)
        };
        assert!(
            ranks(ConnectionPhase::Held, FAR).is_none()
                && ranks(ConnectionPhase::Closing, FAR).is_none()
        );
        let order = [
            (ConnectionPhase::Leaving, Duration::ZERO),
            (ConnectionPhase::Open, FAR),
            (ConnectionPhase::New, FAR / 2),
            (ConnectionPhase::Idle, FAR / 3),
            (ConnectionPhase::New, HTTP_FIRST_CHANCE),
            (ConnectionPhase::Open, Duration::ZERO),
            (
                ConnectionPhase::New,
                HTTP_FIRST_CHANCE - Duration::from_nanos(1),
            ),
            (ConnectionPhase::New, Duration::ZERO),
        ];
        let order = order.map(|(phase, age)| ranks(phase, age).unwrap());
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn the_network_with_most_connections_loses_its_oldest() {
        let ip = |text: &str| network(text.parse().unwrap());
        let loses = |all: &[(&str, u8)]| {
            first_to_go(
                all.iter()
                    .enumerate()
                    .map(|(id, (peer, rank))| (ip(peer), *rank, id as u64)),
            )
        };
        assert_eq!(loses(&[]), None);
        assert_eq!(
            loses(&[("10.0.0.1", 5), ("10.0.0.1", 3), ("10.0.0.1", 4)]),
            Some(1)
        );
        assert_eq!(
            loses(&[("10.0.0.1", 0), ("10.0.0.2", 8), ("10.0.0.2", 9)]),
            Some(1),
            "more of them"
        );
        assert_eq!(
            loses(&[("10.0.0.1", 7), ("10.0.0.2", 6), ("10.0.0.3", 8)]),
            Some(1),
            "as many of each"
        );
        assert_eq!(
            loses(&[("10.0.0.1", 7), ("::ffff:10.0.0.1", 6), ("10.0.0.3", 0)]),
            Some(1),
            "one address"
        );
        let one_network = [
            ("2001:db8::1", 7),
            ("2001:db8::ffff:1", 6),
            ("2001:db8:0:1::1", 0),
        ];
        assert_eq!(loses(&one_network), Some(1), "one network");
        assert_eq!(
            loses(&[("10.0.0.1", 4), ("10.0.0.1", 4)]),
            Some(0),
            "of the same moment the first"
        );
    }
}
