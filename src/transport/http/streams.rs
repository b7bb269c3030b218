//! Long-lived event streams: a legacy GET, `subscriptions/listen`, an HTTP+SSE session.
//!
//! ```text
//!   add ──▶ open ── carried by its connection's thread until ─▶ over
//!                     the client leaves · somebody ends it · the server stops
//! ```
//! In scope: writing without a slow reader delaying others, keep-alives, the end. Not in scope: content. Answers and
//! notifications of calls are written by the caller's thread; notifications of changed lists, which one thread sends to all
//! streams, go through a short queue to the stream's own thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::config::{GONE_CHECK, SSE_COMMENT};
use crate::http::EventStream;
use crate::server::Registration;
use crate::sync::{lock, try_lock};

use super::super::pipe::{Flush, Line};
use super::web::Guest;

/// Queued notifications of changed lists per stream; further ones are dropped, because they say the same.
const MAX_WAITING_CHANGES: usize = 16;
/// How often an idle stream checks for a disconnect.
const STREAM_TICK: Duration = Duration::from_secs(1);

/// One open stream.
pub(super) struct Channel {
    out: Mutex<OpenStream>,
    pending: Mutex<Pending>,
    wake: Condvar,
}

struct OpenStream {
    /// `None` once it has ended.
    stream: Option<EventStream>,
    /// When the last write was.
    last: Instant,
    /// When the last check for a disconnect was.
    looked: Instant,
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
    fn new(stream: EventStream) -> Channel {
        let now = Instant::now();
        Channel {
            out: Mutex::new(OpenStream {
                stream: Some(stream),
                last: now,
                looked: now,
            }),
            pending: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Writes an event with a type.
    pub(super) fn send_named(&self, name: &str, data: &[u8]) {
        self.out().write(|stream| stream.named_event(name, data));
    }

    /// Subscribes this stream to changes, once. `place` registers the sink it is given.
    pub(super) fn follow(self: &Arc<Channel>, place: impl FnOnce(Changes) -> Registration) {
        let mut pending = self.pending();
        if !pending.ended && pending.following.is_none() {
            pending.following = Some(place(Changes(Arc::downgrade(self))));
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
            let mut out = self.out();
            for message in changes {
                out.write(|stream| stream.event(&message));
            }
            drop(out);
            if (leaving || ended)
                && let Some(farewell) = farewell.take()
            {
                farewell(is_revoked);
            }
            if ended {
                if let Some(stream) = self.out().stream.take() {
                    let _ = stream.finish();
                }
                return;
            }
            let mut out = self.out();
            if out.last.elapsed() >= SSE_COMMENT {
                out.write(EventStream::comment);
            }
            if out.is_gone() {
                out.stream = None;
                drop(out);
                return self.end();
            }
            drop(out);
            // May block, so nothing is locked meanwhile.
            if guest.pass.require(guest.pass.role).is_err() {
                is_revoked = true;
                self.end();
            }
            pending = self.pending();
            if pending.changes.is_empty()
                && !pending.ended
                && (!pending.leaving || farewell.is_none())
            {
                pending = self
                    .wake
                    .wait_timeout(pending, STREAM_TICK)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    fn out(&self) -> MutexGuard<'_, OpenStream> {
        lock(&self.out)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }
}

impl Line for Channel {
    /// Blocks while the client does not read, within the write timeout. Does nothing after the end.
    fn send_if(&self, message: &[&[u8]], _: Flush, wanted: &dyn Fn() -> bool) {
        let mut out = self.out();
        if wanted() {
            out.write(|stream| stream.event_of(message));
        }
    }

    /// Queues the notification for the stream's thread.
    fn tell(&self, message: &[u8]) {
        let mut pending = self.pending();
        if !pending.ended && pending.changes.len() < MAX_WAITING_CHANGES {
            pending.changes.push_back(message.to_vec());
            self.wake.notify_all();
        }
    }

    /// Also once the stream has ended. Checks at most every [`GONE_CHECK`], and not during a write, which detects it itself.
    fn is_gone(&self) -> bool {
        let Some(mut out) = try_lock(&self.out) else {
            return false;
        };
        if out.stream.is_some() && out.looked.elapsed() < GONE_CHECK {
            return false;
        }
        out.looked = Instant::now();
        out.is_gone()
    }
}

impl OpenStream {
    fn write(&mut self, write: impl FnOnce(&mut EventStream) -> std::io::Result<()>) {
        if let Some(stream) = &mut self.stream {
            // A stream that failed reports itself as gone.
            let _ = write(stream);
            self.last = Instant::now();
        }
    }

    fn is_gone(&mut self) -> bool {
        self.stream.as_mut().is_none_or(EventStream::gone)
    }
}

/// The sink of a subscription. Weak, because the stream owns the registration.
pub(super) struct Changes(Weak<Channel>);

impl Changes {
    /// Queues a notification. False if the stream is over.
    pub(super) fn tell(&self, message: &[u8]) -> bool {
        let channel = self.0.upgrade();
        if let Some(channel) = &channel {
            channel.tell(message);
        }
        channel.is_some()
    }
}

/// All open streams, which end when the server stops.
#[derive(Default)]
pub(super) struct Streams {
    all: Mutex<StreamTable>,
}

#[derive(Default)]
struct StreamTable {
    ended: bool,
    channels: Vec<Arc<Channel>>,
}

impl Streams {
    /// Registers a stream, which is ended at once if all have been.
    pub(super) fn add(self: &Arc<Streams>, stream: EventStream) -> Entered {
        let channel = Arc::new(Channel::new(stream));
        let mut all = self.open();
        all.channels.push(channel.clone());
        if all.ended {
            channel.end();
        }
        drop(all);
        Entered {
            channel,
            streams: self.clone(),
        }
    }

    /// Makes all streams send their final messages. They stay open for answers.
    pub(super) fn leave(&self) {
        let channels = self.open().channels.clone();
        channels.iter().for_each(|channel| channel.leave());
    }

    /// Ends all streams, future ones included.
    pub(super) fn end(&self) {
        let mut all = self.open();
        all.ended = true;
        let channels = all.channels.clone();
        drop(all);
        channels.iter().for_each(|channel| channel.end());
    }

    fn open(&self) -> MutexGuard<'_, StreamTable> {
        lock(&self.all)
    }
}

/// A registered stream, removed on drop.
pub(super) struct Entered {
    /// The stream.
    pub(super) channel: Arc<Channel>,
    streams: Arc<Streams>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.streams
            .open()
            .channels
            .retain(|other| !Arc::ptr_eq(other, &self.channel));
    }
}
