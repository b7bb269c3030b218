//! A thread pool that grows and shrinks with demand, with a bounded queue.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::config::WORKER_STACK;
use crate::sync::lock;

/// An idle worker thread ends after this time.
const WORKER_IDLE: Duration = Duration::from_secs(60);

type PoolTask = Box<dyn FnOnce() + Send>;

/// Threads that run tasks.
pub(crate) struct Workers {
    pool: Arc<Pool>,
    threads: usize,
    queue: usize,
}

struct Pool {
    state: Mutex<PoolState>,
    wake: Condvar,
}

#[derive(Default)]
struct PoolState {
    tasks: VecDeque<PoolTask>,
    /// Idle threads.
    idle: usize,
    threads: usize,
}

impl Workers {
    /// A pool of at most `threads` threads with a queue of `queue` tasks.
    pub(crate) fn new(threads: usize, queue: usize) -> Workers {
        let pool = Pool {
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        Workers {
            pool: Arc::new(pool),
            threads,
            queue,
        }
    }

    /// Runs `task` as soon as a thread is free. A panic in it costs this task only.
    ///
    /// # Errors
    /// Returns the task if all threads are busy and the queue is full, or no thread can be started at all.
    pub(crate) fn submit(&self, task: PoolTask) -> Result<(), PoolTask> {
        let mut state = self.pool.lock();
        if state.tasks.len() < state.idle {
            state.tasks.push_back(task);
            drop(state);
            self.pool.wake.notify_one();
            return Ok(());
        }
        if state.threads < self.threads {
            let pool = self.pool.clone();
            let thread = thread::Builder::new()
                .name("call".into())
                .stack_size(WORKER_STACK);
            match thread.spawn(move || pool.work()) {
                Ok(_) => {
                    state.threads += 1;
                    state.tasks.push_back(task);
                    return Ok(());
                }
                Err(error) => log::warn!("a worker thread could not be started: {error}"),
            }
        }
        // Without any thread the task would never run.
        if state.threads == 0 || state.tasks.len() >= self.queue + state.idle {
            return Err(task);
        }
        state.tasks.push_back(task);
        Ok(())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(task) = state.tasks.pop_front() {
                drop(state);
                // The panic hook has logged where it was.
                let _ = catch_unwind(AssertUnwindSafe(task));
                state = self.lock();
            }
            state.idle += 1;
            let (woken, waited) = self
                .wake
                .wait_timeout(state, WORKER_IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.tasks.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_panic_costs_no_thread() {
        let workers = Workers::new(1, 3);
        let (ended, ends) = channel();
        assert!(workers.submit(Box::new(|| panic!("on purpose"))).is_ok());
        for _ in 0..2 {
            let ended = ended.clone();
            assert!(
                workers
                    .submit(Box::new(move || ended
                        .send(thread::current().id())
                        .unwrap()))
                    .is_ok()
            );
        }
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(
            ends.recv_timeout(patience).unwrap(),
            ends.recv_timeout(patience).unwrap()
        );
    }

    #[test]
    fn jobs_beyond_threads_and_queue_come_back() {
        let workers = Workers::new(2, 3);
        let (begun, begins) = channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let task = || -> PoolTask {
            let (begun, gate) = (begun.clone(), gate.clone());
            Box::new(move || {
                begun.send(()).unwrap();
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
            })
        };
        for _ in 0..2 {
            assert!(workers.submit(task()).is_ok());
            begins.recv().unwrap();
        }
        for _ in 0..3 {
            assert!(workers.submit(task()).is_ok());
        }
        assert!(workers.submit(task()).is_err());
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        for _ in 0..3 {
            begins.recv().unwrap();
        }
        assert!(workers.submit(task()).is_ok());
        begins.recv().unwrap();
    }
}
