//! A thread for each call. One that has done its call waits a while for another: starting one takes twice as long as a
//! short call.
//!
//! In scope: starting and reusing threads. Not in scope: how many there may be (`account`).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::config::WORKER_STACK;
use crate::fabric::{Error, Kind};
use crate::sync::{self, Work, lock, wait_while};

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(30);

struct Idle {
    /// Work that idle threads are about to take.
    work: VecDeque<Work>,
    threads: usize,
}

static IDLE_THREADS: Mutex<Idle> = Mutex::new(Idle {
    work: VecDeque::new(),
    threads: 0,
});
static WAKE: Condvar = Condvar::new();

/// Does `work` on a thread of its own. It must not panic.
///
/// # Errors
/// `too-many-requests`: the system has no thread.
pub(crate) fn start(work: Work) -> Result<(), Error> {
    let mut idle = lock(&IDLE_THREADS);
    if idle.work.len() < idle.threads {
        idle.work.push_back(work);
        drop(idle);
        WAKE.notify_one();
        return Ok(());
    }
    drop(idle);
    let begun = move || {
        work();
        while let Some(work) = next() {
            work();
        }
    };
    sync::start("call", WORKER_STACK, Box::new(begun)).map_err(|_| {
        Error::new(
            Kind::TooManyRequests,
            "This machine could not start a thread for this call: nothing was run. Try again in a moment.",
        )
    })
}

/// Waits for work; `None` if there is none for [`IDLE`].
fn next() -> Option<Work> {
    let mut idle = lock(&IDLE_THREADS);
    idle.threads += 1;
    let (mut idle, _) = wait_while(&WAKE, idle, IDLE, |idle| idle.work.is_empty());
    idle.threads -= 1;
    idle.work.pop_front()
}
