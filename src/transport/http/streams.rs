//! Event streams that stay open: a legacy GET, `subscriptions/listen`, a whole HTTP+SSE session.
//!
//! ```text
//!   add ──▶ open ── carried by its connection's thread until ─▶ over
//!                     the client leaves · somebody ends it · the server stops
//! ```
//! In scope: who writes when, so that a slow reader holds up nobody but itself, signs of life, the end. Not in scope: what
//! is said. Answers and notifications of calls are written by whoever has them; changes of lists, which one thread tells
//! everybody, wait in a short queue for the stream's own thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use crate::config::{GONE_CHECK, SSE_COMMENT};
use crate::features::{Registration, Sink};
use crate::http::EventStream;
use crate::sync::lock;

use super::web::Guest;

/// Notifications of changed lists that may wait for one stream; further ones are dropped, for they say the same.
const MAX_WAITING_CHANGES: usize = 16;
/// How often a stream on which nothing happens looks whether its client is still there.
const STREAM_TICK: Duration = Duration::from_secs(1);

/// One open stream.
pub(super) struct Channel {
    out: Mutex<Out>,
    mail: Mutex<Mail>,
    wake: Condvar,
}

struct Out {
    /// `None` once it is over.
    stream: Option<EventStream>,
    /// When something was written last.
    last: Instant,
    /// When it was last looked whether the client is there.
    looked: Instant,
}

#[derive(Default)]
struct Mail {
    changes: VecDeque<Vec<u8>>,
    /// Whose changes come here; dropped with the stream.
    following: Option<Registration>,
    /// What is said before the end is due, though the stream goes on.
    leaving: bool,
    ended: bool,
}

impl Channel {
    fn new(stream: EventStream) -> Channel {
        let now = Instant::now();
        Channel {
            out: Mutex::new(Out { stream: Some(stream), last: now, looked: now }),
            mail: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Writes one message; waits while the client does not read, within the limits of `http`. Nothing once it is over.
    pub(super) fn send(&self, message: &[u8]) {
        self.send_if(&[message], &|| true);
    }

    /// The same in parts, unless `wanted` says no, which is asked when it is this message's turn.
    pub(super) fn send_if(&self, message: &[&[u8]], wanted: &dyn Fn() -> bool) {
        let mut out = self.out();
        if wanted() {
            out.write(|stream| stream.event_of(message));
        }
    }

    /// Writes one event of another type.
    pub(super) fn send_named(&self, name: &str, data: &[u8]) {
        self.out().write(|stream| stream.named_event(name, data));
    }

    /// Leaves a notification of changed lists for the stream's thread. Never waits for the client.
    pub(super) fn tell(&self, message: &[u8]) {
        let mut mail = self.mail();
        if !mail.ended && mail.changes.len() < MAX_WAITING_CHANGES {
            mail.changes.push_back(message.to_vec());
            self.wake.notify_all();
        }
    }

    /// Has changes told here, if they are not yet. `place` registers what it is given.
    pub(super) fn follow(self: &Arc<Channel>, place: impl FnOnce(Arc<dyn Sink>) -> Registration) -> bool {
        let mut mail = self.mail();
        if mail.ended || mail.following.is_some() {
            return false;
        }
        mail.following = Some(place(Arc::new(Changes(Arc::downgrade(self)))));
        true
    }

    /// Ends the stream properly, as soon as its thread gets to it. No further changes are told here.
    pub(super) fn end(&self) {
        let mut mail = self.mail();
        mail.ended = true;
        let following = mail.following.take();
        drop(mail);
        self.wake.notify_all();
        drop(following);
    }

    /// Says what is said before the end, as soon as its thread gets to it; the stream stays for answers.
    fn leave(&self) {
        self.mail().leaving = true;
        self.wake.notify_all();
    }

    /// Has the client left, or is the stream over? Looks at most every [`GONE_CHECK`], and not while somebody is writing:
    /// then the write will tell.
    pub(super) fn is_gone(&self) -> bool {
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(out)) => out.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if out.stream.is_some() && out.looked.elapsed() < GONE_CHECK {
            return false;
        }
        out.looked = Instant::now();
        out.is_gone()
    }

    /// Keeps the stream going on this thread until it is over, which it is once the caller may not stay. `farewell` may send something before the end if we end it,
    /// or are about to; if the client left it is not called.
    pub(super) fn carry(&self, guest: Guest<'_>, farewell: impl FnOnce()) {
        let mut farewell = Some(farewell);
        let mut mail = self.mail();
        loop {
            let changes = std::mem::take(&mut mail.changes);
            let (leaving, ended) = (mail.leaving, mail.ended);
            drop(mail);
            let mut out = self.out();
            for message in changes {
                out.write(|stream| stream.event(&message));
            }
            drop(out);
            if (leaving || ended)
                && let Some(farewell) = farewell.take()
            {
                farewell();
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
            // May take its time, so nothing is locked meanwhile.
            if !guest.may_stay() {
                self.end();
            }
            mail = self.mail();
            if mail.changes.is_empty() && !mail.ended && (!mail.leaving || farewell.is_none()) {
                mail = self.wake.wait_timeout(mail, STREAM_TICK).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        lock(&self.out)
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        lock(&self.mail)
    }
}

impl Out {
    fn write(&mut self, write: impl FnOnce(&mut EventStream) -> std::io::Result<()>) {
        if let Some(stream) = &mut self.stream {
            // A stream that fails is gone from then on, which is noticed where that matters.
            let _ = write(stream);
            self.last = Instant::now();
        }
    }

    fn is_gone(&mut self) -> bool {
        self.stream.as_mut().is_none_or(EventStream::gone)
    }
}

/// The sink of a listener whose stream this is. It does not keep the stream: the stream keeps the registration.
struct Changes(Weak<Channel>);

impl Sink for Changes {
    fn notify(&self, message: &[u8]) {
        if let Some(channel) = self.0.upgrade() {
            channel.tell(message);
        }
    }

    fn stopped(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// All open streams, so that they can be ended when the server stops.
#[derive(Default)]
pub(super) struct Streams {
    all: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    ended: bool,
    next: u64,
    channels: HashMap<u64, Arc<Channel>>,
}

impl Streams {
    /// Enters a stream, which is ended at once if all have been.
    pub(super) fn add(self: &Arc<Streams>, stream: EventStream) -> Entered {
        let channel = Arc::new(Channel::new(stream));
        let mut all = self.open();
        let number = all.next;
        all.next += 1;
        all.channels.insert(number, channel.clone());
        if all.ended {
            channel.end();
        }
        Entered { streams: self.clone(), number, channel }
    }

    /// Has all streams say what they say before their end. They stay for answers.
    pub(super) fn leave(&self) {
        let channels: Vec<_> = self.open().channels.values().cloned().collect();
        channels.iter().for_each(|channel| channel.leave());
    }

    /// Ends all streams, those that are still to come included.
    pub(super) fn end(&self) {
        let mut all = self.open();
        all.ended = true;
        let channels: Vec<_> = all.channels.values().cloned().collect();
        drop(all);
        channels.iter().for_each(|channel| channel.end());
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        lock(&self.all)
    }
}

/// A stream among the others, for as long as this is kept.
pub(super) struct Entered {
    streams: Arc<Streams>,
    number: u64,
    /// The stream.
    pub(super) channel: Arc<Channel>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.streams.open().channels.remove(&self.number);
    }
}
