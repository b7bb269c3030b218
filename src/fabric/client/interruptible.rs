//! Interruptible reads: every [`SLICE`], a blocked read asks its caller whether to continue.
//!
//! ureq pools connections, so the caller cannot belong to the connection: it is the [`Observer`] of the current thread, set
//! for the duration of a request.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use crate::fabric::Observer;
use crate::sync::{Finally, SLICE};

/// When the time for a read is over, the read goes on for this long: if the process was stopped or the machine slept,
/// the input may have arrived in the meantime.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// ureq's connections, with interruptible reads.
#[derive(Debug)]
pub(crate) struct Interruptible<T>(pub(crate) T);

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
        let Some((observer, asked)) = WAITING.with_borrow(Clone::clone) else {
            return self.0.await_input(timeout);
        };
        observer.flush();
        // Between reads too: the caller may leave while data trickles in.
        if started.saturating_duration_since(asked) >= SLICE {
            ask(&observer)?;
        }
        let limit = timeout.for_read();
        loop {
            let left = limit.after.saturating_sub(started.elapsed());
            match self.0.await_input(NextTimeout {
                after: left.max(LAST_LOOK).into(),
                // Always the same value, because each change costs a system call.
                per_read: Some(SLICE.into()),
                ..timeout
            }) {
                Err(ureq::Error::Timeout(_)) if left.is_zero() => {
                    return Err(ureq::Error::Timeout(limit.reason));
                }
                Err(ureq::Error::Timeout(_)) => ask(&observer)?,
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
    /// Who waits on this thread, and when it was last asked whether to go on.
    static WAITING: RefCell<Option<(Observer, Instant)>> = const { RefCell::new(None) };
}

fn ask(observer: &Observer) -> Result<(), ureq::Error> {
    WAITING.set(Some((Arc::clone(observer), Instant::now())));
    let asked = observer.still_waiting();
    asked.map_err(|error| ureq::Error::Other(Box::new(error)))
}

/// Until it is dropped, which must be on the same thread, reads on this thread ask an [`Observer`].
pub(crate) type WaitScope = Finally<fn()>;

/// Sets the observer for the waits of this thread, which has one at a time.
pub(crate) fn watch(observer: &Observer) -> WaitScope {
    WAITING.set(Some((Arc::clone(observer), Instant::now())));
    Finally(|| WAITING.set(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::CallObserver;
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

    impl CallObserver for Patient {
        fn still_waiting(&self) -> Result<(), crate::fabric::Error> {
            Ok(())
        }
    }

    #[test]
    fn input_that_is_there_when_the_time_is_over_is_taken() {
        let _scope = watch(&(Arc::new(Patient) as Observer));
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
    }
}
