//! A stream that others write to: HTTP+SSE, a session's GET, `subscriptions/listen`. They queue messages; only the thread of
//! the stream's connection writes them, so nobody waits for its reader.
//!
//! ```text
//!   open ─┬─ `end`: somebody ends it, or the server stops ─▶ ending ─ all is written ─▶ gone
//!         └─ the client leaves, or an answer does not fit ─────────────────────────────▶ gone
//! ```
//! After the end of a stream whose caller's token was taken away, it stays at "ending": the caller's runs go on.
//! In scope: the queue and its bounds, keep-alives, the end. Not in scope: content. A notification that does not fit is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::access::Caller;
use crate::account::{Reservation, Resource};
use crate::http::Responder;
use crate::protocol::Answer;
use crate::sync::lock;
use crate::tools::Peer;

use super::web::HttpRequest;

/// Notifications are queued while at most this many bytes wait.
const MAX_NOTES: usize = 1 << 20;
/// Answers are queued while at most this many bytes wait, and while their account pays for them. So a single answer may
/// be of any length.
const MAX_ANSWERS: usize = 64 << 20;
/// What a queued message takes beside its bytes.
const MESSAGE: usize = 128;
/// Short messages are written together up to this, in bytes.
const MAX_WRITE: usize = 64 << 10;
/// How often a stream checks for a disconnect, and whether its caller's token still counts.
const STREAM_TICK: Duration = Duration::from_secs(1);
/// How often a stream of a server that stops checks whether its calls are answered.
const LAST_TICK: Duration = Duration::from_millis(20);

/// The messages of one stream.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// The thread that opened the stream and writes it.
    thread: Thread,
}

struct QueueState {
    phase: QueuePhase,
    waiting: VecDeque<Answer>,
    /// What waits or is being written, in bytes.
    bytes: usize,
    /// The memory of all that waits and has no reservation of its own, as answers have. It never shrinks to nothing, so
    /// that a short event rarely touches the account.
    memory: Reservation,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuePhase {
    Open,
    Ending,
    Gone,
}

/// The threads that carry streams.
static CARRIERS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Makes all streams look at once whether the server stops.
pub(super) fn wake() {
    lock(&CARRIERS).iter().for_each(Thread::unpark);
}

impl Queue {
    /// Answers with a stream, which the client accepts, to be carried by this thread.
    pub(super) fn open(incoming: &mut HttpRequest<'_>, caller: &Caller) -> (Responder, Arc<Queue>) {
        incoming.exchange.free_buffer();
        let mut responder = incoming.responder();
        responder.stream();
        let mut memory = caller.account.open(Resource::Memory);
        // If there is no room, what is queued is refused.
        let _ = memory.grow(1);
        let queue = Queue {
            state: Mutex::new(QueueState {
                phase: QueuePhase::Open,
                waiting: VecDeque::new(),
                bytes: 0,
                memory,
            }),
            thread: thread::current(),
        };
        (responder, Arc::new(queue))
    }

    /// Ends the stream once what is queued is written.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.phase = state.phase.max(QueuePhase::Ending);
        drop(state);
        self.thread.unpark();
    }

    /// Runs the stream on this thread until it ends, at the latest when the caller's token becomes invalid. When that
    /// happens or the server stops, `leave` queues the final messages, and is asked again until it says that nothing else
    /// will be queued; it is told whether the token is to blame.
    pub(super) fn carry(
        &self,
        mut responder: Responder,
        caller: &Caller,
        leave: impl Fn(bool) -> bool,
    ) {
        lock(&CARRIERS).push(self.thread.clone());
        let (mut looked, mut is_revoked) = (Instant::now(), false);
        loop {
            if looked.elapsed() >= STREAM_TICK {
                looked = Instant::now();
                responder.keep_alive();
                if responder.is_gone() {
                    break;
                }
                is_revoked = caller.revoked().is_some();
            }
            let stops = is_revoked || caller.account.is_closed();
            if stops && lock(&self.state).phase == QueuePhase::Open && leave(is_revoked) {
                self.end();
            }
            let (messages, phase) = lock(&self.state).next();
            if !messages.is_empty() {
                let parts: Vec<_> = messages.iter().map(Answer::parts).collect();
                let is_written = responder.events(&parts).is_ok();
                lock(&self.state).give_back(&messages);
                if !is_written {
                    break;
                }
            } else if phase == QueuePhase::Open {
                thread::park_timeout(if stops { LAST_TICK } else { STREAM_TICK });
            } else {
                if phase == QueuePhase::Ending {
                    responder.end();
                }
                break;
            }
        }
        // A caller whose token was taken away hears nothing more, but has not left: runs go on.
        lock(&self.state).cut(match is_revoked {
            true => QueuePhase::Ending,
            false => QueuePhase::Gone,
        });
        lock(&CARRIERS).retain(|other| other.id() != self.thread.id());
    }

    /// Queues a message if at most this many bytes wait. False if it does not fit.
    fn push(&self, message: Answer, most: usize, wanted: &dyn Fn() -> bool) -> bool {
        let mut state = lock(&self.state);
        if state.phase != QueuePhase::Open || !wanted() {
            return true;
        }
        if state.bytes > most || state.memory.grow(owed(&message)).is_err() {
            return false;
        }
        state.bytes += size(&message);
        state.waiting.push_back(message);
        drop(state);
        // A system call only if it sleeps.
        self.thread.unpark();
        true
    }
}

impl QueueState {
    /// The next messages to write.
    fn next(&mut self) -> (Vec<Answer>, QueuePhase) {
        let mut bytes = 0;
        let fit = self.waiting.iter().take_while(|message| {
            let is_first = bytes == 0;
            bytes += size(message);
            is_first || bytes <= MAX_WRITE
        });
        let count = fit.count();
        (self.waiting.drain(..count).collect(), self.phase)
    }

    /// Gives back what these messages took, because they do not wait any more.
    fn give_back(&mut self, messages: &[Answer]) {
        self.bytes -= messages.iter().map(size).sum::<usize>();
        self.memory.shrink(messages.iter().map(owed).sum());
    }

    /// Drops what waits, and accepts nothing more.
    fn cut(&mut self, phase: QueuePhase) {
        self.phase = phase;
        let waiting = Vec::from(std::mem::take(&mut self.waiting));
        self.give_back(&waiting);
    }
}

/// How much memory a message takes, in bytes.
fn size(message: &Answer) -> usize {
    message.size() + MESSAGE
}

/// How much of that is not charged yet.
fn owed(message: &Answer) -> usize {
    size(message).saturating_sub(message.charged())
}

impl Peer for Queue {
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool) {
        self.push(message.to_vec().into(), MAX_NOTES, wanted);
    }

    fn answer(&self, answer: Answer) {
        if !self.push(answer, MAX_ANSWERS, &|| true) {
            log::warn!("a stream is cut: its client does not read, and an answer does not fit");
            lock(&self.state).cut(QueuePhase::Gone);
        }
    }

    fn stopped(&self) -> bool {
        // Only the stream's thread may look at its connection.
        lock(&self.state).phase == QueuePhase::Gone
    }
}
