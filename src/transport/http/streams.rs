//! Long-lived event streams: a legacy GET, `subscriptions/listen`, an HTTP+SSE session.
//!
//! ```text
//!   open ──▶ carried by its connection's thread until ─▶ over
//!              the client leaves · somebody ends it · the server stops
//! ```
//! In scope: writing without a slow reader delaying others, keep-alives, the end. Not in scope: content. Answers and
//! notifications of calls are written by the caller's thread; notifications of changed lists, which one thread sends to all
//! streams, go through a short queue to the stream's own thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use crate::server::Registration;
use crate::sync::{lock, wait_while};

use super::super::pipe::Outlet;
use super::reply::Reply;
use super::web::{Guest, Visit};

/// Queued notifications of changed lists per stream; further ones are dropped, because they say the same.
const MAX_WAITING_CHANGES: usize = 16;
/// How often an idle stream checks for a disconnect.
const STREAM_TICK: Duration = Duration::from_secs(1);

/// One open stream.
pub(super) struct Channel {
    /// What is written there.
    pub(super) reply: Reply,
    pending: Mutex<Pending>,
    wake: Condvar,
}

#[derive(Default)]
struct Pending {
    changes: VecDeque<Vec<u8>>,
    /// The subscription whose changes are sent here; dropped with the stream.
    following: Option<Registration>,
    /// The final messages are due; the stream stays open for answers.
    leaving: bool,
    ended: bool,
}

impl Channel {
    /// Subscribes this stream to changes, once.
    pub(super) fn follow(&self, place: impl FnOnce() -> Registration) {
        let mut pending = self.pending();
        if !pending.ended && pending.following.is_none() {
            pending.following = Some(place());
        }
    }

    /// The sink of a subscription. Weak, because the stream owns the registration.
    pub(super) fn changes(self: &Arc<Channel>) -> impl Fn(&[u8]) -> bool + Send + Sync + use<> {
        let channel = Arc::downgrade(self);
        move |message: &[u8]| {
            let channel = channel.upgrade();
            channel.is_some_and(|channel| {
                channel.tell(message);
                true
            })
        }
    }

    /// Makes the stream's thread complete the stream. No further changes are queued.
    pub(super) fn end(&self) {
        let mut pending = self.pending();
        pending.ended = true;
        let following = pending.following.take();
        drop(pending);
        self.wake.notify_all();
        drop(following);
    }

    /// Makes the stream's thread send the final messages; the stream stays open for answers.
    fn leave(&self) {
        self.pending().leaving = true;
        self.wake.notify_all();
    }

    /// Runs the stream on this thread until it ends, at the latest when the caller's token becomes invalid. `farewell`
    /// sends the final messages, before the server ends the stream and not after a disconnect; it is told whether the
    /// token is to blame.
    pub(super) fn carry(&self, guest: Guest<'_>, farewell: impl FnOnce(bool)) {
        let mut farewell = Some(farewell);
        let mut is_revoked = false;
        let mut pending = self.pending();
        loop {
            let changes = std::mem::take(&mut pending.changes);
            let (leaving, ended) = (pending.leaving, pending.ended);
            drop(pending);
            for message in changes {
                self.reply.write(|stream| stream.event(&[&message]));
            }
            if (leaving || ended)
                && let Some(farewell) = farewell.take()
            {
                farewell(is_revoked);
            }
            if ended {
                self.reply.end();
                return;
            }
            self.reply.keep_alive();
            if self.reply.is_gone() {
                return self.end();
            }
            // May block, so nothing is locked meanwhile.
            if guest.pass.require(guest.pass.role).is_err() {
                is_revoked = true;
                self.end();
            }
            let nothing = |pending: &mut Pending| {
                let is_leaving = pending.leaving && farewell.is_some();
                pending.changes.is_empty() && !pending.ended && !is_leaving
            };
            pending = wait_while(&self.wake, self.pending(), STREAM_TICK, nothing).0;
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
        if !pending.ended && pending.changes.len() < MAX_WAITING_CHANGES {
            pending.changes.push_back(message.to_vec());
            self.wake.notify_all();
        }
    }

    fn is_gone(&self) -> bool {
        self.reply.is_gone()
    }
}

/// All open streams, which end when the server stops.
#[derive(Default)]
pub(super) struct Streams(Mutex<StreamTable>);

#[derive(Default)]
struct StreamTable {
    ended: bool,
    channels: Vec<Weak<Channel>>,
}

impl Streams {
    /// Answers with a stream, which the client accepts. It is ended at once if all have been.
    pub(super) fn open(&self, mut visit: Visit<'_>) -> Arc<Channel> {
        visit.free_buffer();
        let reply = Reply::new(visit, false);
        reply.open();
        let channel = Arc::new(Channel {
            reply,
            pending: Mutex::default(),
            wake: Condvar::new(),
        });
        let mut all = lock(&self.0);
        all.channels.retain(|other| other.strong_count() > 0);
        all.channels.push(Arc::downgrade(&channel));
        if all.ended {
            channel.end();
        }
        channel
    }

    /// Makes all streams send their final messages. They stay open for answers.
    pub(super) fn leave(&self) {
        lock(&self.0).each(Channel::leave);
    }

    /// Ends all streams, future ones included.
    pub(super) fn end(&self) {
        let mut all = lock(&self.0);
        all.ended = true;
        all.each(Channel::end);
    }
}

impl StreamTable {
    fn each(&self, act: fn(&Channel)) {
        let channels = self.channels.iter().filter_map(Weak::upgrade);
        channels.for_each(|channel| act(&channel));
    }
}
