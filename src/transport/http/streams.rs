//! Long-lived event streams: a legacy GET, `subscriptions/listen`, an HTTP+SSE session.
//!
//! ```text
//!   open ──▶ carried by its connection's thread until ─▶ over
//!              the client leaves · somebody ends it · the server stops
//! ```
//! In scope: writing without a slow reader delaying others, keep-alives, the end. Not in scope: content. Answers and
//! notifications of calls are written by the caller's thread; notifications of changed lists, which one thread sends to all
//! streams, go through a short queue to the stream's own thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use crate::sync::{lock, wait_while};

use super::super::pipe::Outlet;
use super::reply::Reply;
use super::web::{Guest, Visit};

/// Queued notifications of changed lists per stream; further ones are dropped, because they say the same.
const MAX_WAITING_CHANGES: usize = 16;
/// How often an idle stream checks for a disconnect.
const STREAM_TICK: Duration = Duration::from_secs(1);
/// How often a stream of a server that stops checks whether its calls are answered.
const LAST_TICK: Duration = Duration::from_millis(20);

/// One open stream.
pub(super) struct Channel {
    /// What is written there.
    pub(super) reply: Reply,
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Default)]
struct Pending {
    changes: Vec<Vec<u8>>,
    ended: bool,
}

impl Channel {
    /// Makes the stream's thread complete the stream.
    pub(super) fn end(&self) {
        self.wake(true);
    }

    /// Makes the stream's thread look for what there is to do, which may be to complete the stream.
    fn wake(&self, ended: bool) {
        self.pending().ended |= ended;
        self.wake.notify_all();
    }

    /// Runs the stream on this thread until it ends, at the latest when the caller's token becomes invalid. When that
    /// happens or the server stops, `leave` sends the final messages, and is asked again until it says that nothing else
    /// will be sent; it is told whether the token is to blame.
    pub(super) fn carry(&self, guest: Guest<'_>, leave: impl Fn(bool) -> bool) {
        let mut tick = STREAM_TICK;
        loop {
            let nothing = |pending: &mut Pending| {
                let leaves = tick == STREAM_TICK && guest.account.is_closed();
                pending.changes.is_empty() && !pending.ended && !leaves
            };
            let (mut pending, _) = wait_while(&self.wake, self.pending(), tick, nothing);
            let (changes, ended) = (std::mem::take(&mut pending.changes), pending.ended);
            drop(pending);
            for message in changes {
                self.reply.write(|stream| stream.event(&[&message]));
            }
            // May block, so nothing is locked meanwhile.
            let is_revoked = guest.pass.require(guest.pass.role).is_err();
            let leaves = is_revoked || guest.account.is_closed();
            if ended || (leaves && leave(is_revoked)) {
                self.reply.end();
                return;
            }
            if leaves {
                tick = LAST_TICK;
            }
            self.reply.keep_alive();
            if self.reply.is_gone() {
                return;
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }
}

impl Outlet for Channel {
    /// Blocks while the client does not read, within the write timeout. Does nothing after the end.
    fn send_if(&self, message: &[&[u8]], wanted: &dyn Fn() -> bool) {
        self.reply.write(|stream| match wanted() {
            true => stream.event(message),
            false => Ok(()),
        });
    }

    /// Queues the notification for the stream's thread.
    fn tell(&self, message: &[u8]) {
        let mut pending = self.pending();
        if pending.changes.len() < MAX_WAITING_CHANGES {
            pending.changes.push(message.to_vec());
            self.wake.notify_all();
        }
    }

    fn is_gone(&self) -> bool {
        self.reply.is_gone()
    }
}

/// All open streams, which end when the server stops.
#[derive(Default)]
pub(super) struct Streams(Mutex<Vec<Weak<Channel>>>);

impl Streams {
    /// Answers with a stream, which the client accepts.
    pub(super) fn open(&self, visit: &mut Visit<'_>) -> Arc<Channel> {
        visit.exchange.free_buffer();
        let reply = Reply::new(visit, false);
        reply.open();
        let channel = Arc::new(Channel {
            reply,
            pending: Mutex::default(),
            wake: Condvar::new(),
        });
        let mut all = lock(&self.0);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&channel));
        channel
    }

    /// Makes all streams see at once that the server stops.
    pub(super) fn wake(&self) {
        let all = lock(&self.0);
        let open = all.iter().filter_map(Weak::upgrade);
        open.for_each(|channel| channel.wake(false));
    }
}
