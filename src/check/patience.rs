//! Tells the user what `--check` waits for, if it takes long.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Delay before the user is told.
const QUIET: Duration = Duration::from_secs(1);

/// Prints a message; `None` for silence.
pub(crate) type Say<'a> = Option<&'a (dyn Fn(&str) + Sync)>;

/// Does `work`; if it takes longer than a second, says what is waited for and the time limit.
pub(super) fn patiently<T>(
    say: Say<'_>,
    what: &str,
    limit: Duration,
    work: impl FnOnce() -> T,
) -> T {
    let Some(say) = say else { return work() };
    after(
        QUIET,
        &|| {
            say(&format!(
                "  ..  waiting for {what}, for {} s at most\n",
                limit.as_secs_f64()
            ))
        },
        work,
    )
}

/// Does `work`, and calls `tell` if it takes longer than `quiet`.
fn after<T>(quiet: Duration, tell: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> T {
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watch = move || {
            if over.recv_timeout(quiet) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        };
        // Without the thread, nothing is printed.
        let _ = thread::Builder::new()
            .name("patience".into())
            .spawn_scoped(scope, watch);
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn what_takes_long_is_told_and_what_does_not_is_not() {
        let (told, heard) = mpsc::channel();
        let told = Mutex::new(told);
        // The work goes on until it has been told of.
        let result = after(
            Duration::from_millis(1),
            &|| told.lock().unwrap().send(()).unwrap(),
            || heard.recv(),
        );
        assert_eq!(result, Ok(()));
        assert_eq!(
            after(Duration::from_secs(3600), &|| panic!("told"), || 5),
            5
        );
        assert_eq!(patiently(None, "nothing", QUIET, || 6), 6);
    }
}
