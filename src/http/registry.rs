//! Who is connected: the cap, idle connections that make room, and the end of everybody.
//!
//! In scope: the state every connection shows to others. Not in scope: reading and writing (`wire`).

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{HTTP_MAX_CLOSING, HttpLimits};
use crate::sync::lock;

/// [`Slot::state`]: a request is being read or answered. Any other value but `CLOSING` is a moment since when it is
/// idle.
const ACTIVE: u64 = 0;
/// [`Slot::state`]: told to close; its thread is on the way out.
const CLOSING: u64 = u64::MAX;
/// [`Slot::state`]: idle for longer than any other, so the first to make room.
const OLDEST: u64 = 1;

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
    state: AtomicU64,
    stream: AtomicU8,
}

impl Slot {
    /// A request begins. False when the connection was told to close in the meantime.
    pub(super) fn begin(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        state != CLOSING && self.state.compare_exchange(state, ACTIVE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether it was told to close.
    pub(super) fn closing(&self) -> bool {
        self.state.load(Ordering::SeqCst) == CLOSING
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

    /// No request is in work. False when the connection was told to close in the meantime.
    fn idle(&self, since: u64) -> bool {
        let unless_closing = |state| (state != CLOSING).then_some(since);
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unless_closing).is_ok()
    }

    fn idle_since(&self) -> Option<u64> {
        Some(self.state.load(Ordering::SeqCst)).filter(|state| ![ACTIVE, CLOSING].contains(state))
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
        self.slot.idle(self.shared.now()) && !self.shared.draining()
    }

    /// The connection only waits for its client to see the last answer: the first to go when room is needed.
    pub(super) fn rest_as_oldest(&self) {
        self.slot.idle(OLDEST);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
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
    /// How many of `open` are `CLOSING`; both change under the lock only.
    closing: usize,
    next_id: u64,
}

impl Slots {
    /// Tells an idle connection to close. False when a request has begun on it just now.
    fn close(&mut self, slot: &Slot, since: u64) -> bool {
        let closed = slot.state.compare_exchange(since, CLOSING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if closed {
            self.closing += 1;
            // Wakes the thread that waits in `read`.
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        closed
    }

    /// Closes the longest idle connection. False when all are busy.
    fn evict(&mut self) -> bool {
        loop {
            let idle = self.open.values().filter_map(|slot| Some((slot.idle_since()?, slot)));
            let Some((since, slot)) = idle.min_by_key(|(since, slot)| (*since, slot.id)) else { return false };
            let slot = Arc::clone(slot);
            if self.close(&slot, since) {
                return true;
            }
        }
    }
}

/// What all connections of a server share.
pub(super) struct Shared {
    /// The bounds.
    pub(super) limits: HttpLimits,
    started: Instant,
    stopping: AtomicBool,
    draining: AtomicBool,
    slots: Mutex<Slots>,
    changed: Condvar,
}

impl Shared {
    /// Nobody is connected yet.
    pub(super) fn new(limits: HttpLimits) -> Shared {
        Shared {
            limits,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            slots: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Gives a new connection a place, at the cap by closing the longest idle one. Gives the socket back when all
    /// others are busy.
    pub(super) fn admit(self: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) -> Result<Lease, TcpStream> {
        let mut slots = self.slots();
        if slots.closing >= HTTP_MAX_CLOSING {
            // Their threads have been woken and only need the processor: a flood may not outrun them.
            let crowded = |slots: &mut Slots| slots.closing >= HTTP_MAX_CLOSING;
            let waited = self.changed.wait_timeout_while(slots, Duration::from_secs(1), crowded);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let full = slots.open.len() - slots.closing >= self.limits.max_connections;
        if full && (slots.closing >= HTTP_MAX_CLOSING || !slots.evict()) {
            return Err(socket);
        }
        let id = slots.next_id;
        slots.next_id += 1;
        let (state, stream) = (AtomicU64::new(self.now()), AtomicU8::new(StreamState::Finished as u8));
        let slot = Arc::new(Slot { id, socket, peer, state, stream });
        slots.open.insert(id, Arc::clone(&slot));
        Ok(Lease { shared: Arc::clone(self), slot })
    }

    /// The machine has run out of something: closes the longest idle connection and waits until it is gone. If all are
    /// busy, waits for `pause`, or until the server stops.
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
        let idle: Vec<_> =
            slots.open.values().filter_map(|slot| Some((slot.idle_since()?, Arc::clone(slot)))).collect();
        for (since, slot) in idle {
            slots.close(&slot, since);
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

    /// The time as [`Slot::state`] holds it, in milliseconds.
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + OLDEST + 1
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }
}
