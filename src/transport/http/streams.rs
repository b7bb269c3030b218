//! Long-lived event streams: a legacy GET, `subscriptions/listen`, an HTTP+SSE session.
//!
//! ```text
//!   open ──▶ carried by its connection's thread until ─▶ over
//!              the client leaves · somebody ends it · the server stops
//! ```
//! In scope: writing without a slow reader delaying others, keep-alives, the end. Not in scope: content. Answers and
//! notifications of calls are written by the caller's thread; notifications of changed lists, which one thread sends to all
//! streams, go through a short queue to the stream's own thread.

use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::access::Caller;
use crate::sync::lock;

use super::super::pipe::Outlet;
use super::reply::Reply;
use super::web::Visit;

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
    /// Notifications of changed lists to send.
    changes: Mutex<Vec<Vec<u8>>>,
    /// The one that opened it and carries it.
    thread: Thread,
}

/// The threads that carry streams.
static CARRIERS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Makes all streams look at once whether the server stops.
pub(super) fn wake() {
    lock(&CARRIERS).iter().for_each(Thread::unpark);
}

impl Channel {
    /// Answers with a stream, which the client accepts.
    pub(super) fn open(visit: &mut Visit<'_>) -> Arc<Channel> {
        visit.exchange.free_buffer();
        let reply = Reply::new(visit, false);
        reply.open();
        Arc::new(Channel {
            reply,
            changes: Mutex::default(),
            thread: thread::current(),
        })
    }

    /// Runs the stream on this thread until it ends, at the latest when the caller's token becomes invalid. When that
    /// happens or the server stops, `leave` sends the final messages, and is asked again until it says that nothing else
    /// will be sent; it is told whether the token is to blame.
    pub(super) fn carry(&self, caller: &Caller, leave: impl Fn(bool) -> bool) {
        lock(&CARRIERS).push(self.thread.clone());
        let mut tick = STREAM_TICK;
        while !self.reply.is_gone() {
            let goes_on = tick < STREAM_TICK || !caller.account.is_closed();
            if goes_on && lock(&self.changes).is_empty() {
                thread::park_timeout(tick);
            }
            let due = std::mem::take(&mut *lock(&self.changes));
            for message in due {
                self.send(&[&message]);
            }
            // May block, so nothing is locked meanwhile.
            let is_revoked = caller.require(caller.role).is_err();
            if is_revoked || caller.account.is_closed() {
                tick = LAST_TICK;
                if leave(is_revoked) {
                    self.reply.end();
                }
            }
            self.reply.keep_alive();
        }
        lock(&CARRIERS).retain(|other| other.id() != self.thread.id());
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
        let mut changes = lock(&self.changes);
        if changes.len() < MAX_WAITING_CHANGES {
            changes.push(message.to_vec());
            self.thread.unpark();
        }
    }

    fn is_gone(&self) -> bool {
        self.reply.is_gone()
    }
}
