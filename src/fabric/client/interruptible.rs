//! Interruptible reads: every [`SLICE`], a blocked read asks its caller whether to continue.
//!
//! ureq pools connections, so the caller cannot belong to the connection: it is the [`Wait`] of the current thread, set
//! for the duration of a request.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, Transport, time,
};

use crate::fabric::Wait;
use crate::fabric::wait::SLICE;

/// When the time for a read is over, it looks once more for so long: after the process was stopped or the machine slept,
/// the input is there.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// ureq's connections, with interruptible reads.
#[derive(Debug)]
pub(super) struct Interruptible<T>(pub(super) T);

impl<C: Connector> Connector for Interruptible<C> {
    type Out = Interruptible<Box<dyn Transport>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let connected = self.0.connect(details, chained)?;
        Ok(connected.map(|transport| Interruptible(transport.boxed())))
    }
}

impl Transport for Interruptible<Box<dyn Transport>> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let started = Instant::now();
        // The request was sent.
        ReadContext::change(|watch| watch.has_read = true);
        let Some(watch) = CONTEXT.with_borrow(Clone::clone) else {
            return self.0.await_input(timeout);
        };
        watch.wait.before_blocking();
        // Between reads too: the caller may leave while data trickles in.
        if started.saturating_duration_since(watch.asked) >= SLICE {
            watch.ask()?;
        }
        let limit = timeout.for_read();
        loop {
            let now = Instant::now();
            if watch.until.is_some_and(|until| until <= now) {
                return Err(ureq::Error::Timeout(limit.reason));
            }
            let left = limit.after.saturating_sub(now - started);
            let is_last = left.is_zero();
            let left = watch
                .until
                .map_or(left, |until| left.min(until - now))
                .max(LAST_LOOK);
            // The same value each time: a change costs a system call.
            let slice = time::Duration::from(left.min(SLICE));
            match self.0.await_input(NextTimeout {
                after: left.into(),
                per_read: Some(slice),
                ..timeout
            }) {
                Err(ureq::Error::Timeout(_)) if is_last => {
                    return Err(ureq::Error::Timeout(limit.reason));
                }
                Err(ureq::Error::Timeout(_)) => watch.ask()?,
                other => return other,
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

thread_local! {
    /// The current request of this thread.
    static CONTEXT: RefCell<Option<ReadContext>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct ReadContext {
    wait: Arc<dyn Wait>,
    asked: Instant,
    until: Option<Instant>,
    /// The response was waited for, so the request was sent.
    has_read: bool,
}

impl ReadContext {
    fn change(change: impl FnOnce(&mut ReadContext)) {
        CONTEXT.with_borrow_mut(|watch| watch.as_mut().map(change));
    }

    fn ask(&self) -> Result<(), ureq::Error> {
        ReadContext::change(|watch| watch.asked = Instant::now());
        self.wait
            .still_waiting()
            .map_err(|stop| ureq::Error::Other(Box::new(stop)))
    }
}

/// Until it is dropped, reads on this thread ask its [`Wait`]. A thread has one at a time. Not `Send`: it must be dropped
/// on the same thread.
pub(super) struct WaitScope(PhantomData<*const ()>);

impl WaitScope {
    /// Sets the context of this thread.
    pub(super) fn enter(wait: &Arc<dyn Wait>) -> WaitScope {
        CONTEXT.set(Some(ReadContext {
            wait: Arc::clone(wait),
            asked: Instant::now(),
            until: None,
            has_read: false,
        }));
        WaitScope(PhantomData)
    }

    /// Has a response been waited for?
    pub(super) fn has_read(&self) -> bool {
        CONTEXT.with_borrow(|watch| watch.as_ref().is_some_and(|watch| watch.has_read))
    }

    /// Limits reads to `rest` from now on.
    pub(super) fn hurry(&self, rest: Duration) {
        ReadContext::change(|watch| watch.until = Some(Instant::now() + rest));
    }
}

impl Drop for WaitScope {
    fn drop(&mut self) {
        CONTEXT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::Timeout;

    /// A connection on which input is there, or never comes.
    #[derive(Debug)]
    struct FakeConnection {
        has_input: bool,
    }

    impl Transport for FakeConnection {
        fn buffers(&mut self) -> &mut dyn Buffers {
            unreachable!("nothing is read")
        }
        fn transmit_output(&mut self, _: usize, _: NextTimeout) -> Result<(), ureq::Error> {
            unreachable!("nothing is written")
        }
        fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
            if self.has_input {
                Ok(true)
            } else {
                Err(ureq::Error::Timeout(Timeout::PerRead))
            }
        }
        fn is_open(&mut self) -> bool {
            true
        }
    }

    struct Patient;

    impl Wait for Patient {
        fn still_waiting(&self) -> Result<(), crate::fabric::Stop> {
            Ok(())
        }
    }

    #[test]
    fn input_that_is_there_when_the_time_is_over_is_taken() {
        let scope = WaitScope::enter(&(Arc::new(Patient) as Arc<dyn Wait>));
        let read = |has_input| {
            let over = NextTimeout {
                after: Duration::ZERO.into(),
                reason: Timeout::PerRead,
                ..NextTimeout::default()
            };
            let connection: Box<dyn Transport> = Box::new(FakeConnection { has_input });
            Interruptible(connection).await_input(over)
        };
        assert!(matches!(read(true), Ok(true)));
        assert!(matches!(
            read(false),
            Err(ureq::Error::Timeout(Timeout::PerRead))
        ));
        // The end of a run is not put off.
        scope.hurry(Duration::ZERO);
        assert!(read(true).is_err());
    }
}
