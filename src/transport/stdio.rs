//! The stdio transport: one JSON message a line in, one a line out, nothing else ever on stdout.
//!
//! In scope: the loop, the end. How lines are read and written is `lines`', what is done with a message `pipe`'s. Nothing a client sends ends the loop;
//! only the end of its input does.

use std::io::{self, BufReader, Read, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::access::Pass;
use crate::config::{ABORT_GRACE, MAX_MESSAGE};
use crate::protocol::jsonrpc::{INVALID_REQUEST, is_blank};
use crate::protocol::{Refusal, Session};
use crate::server::{Server, refuse};

use super::drain;
use super::lines::{BUFFER, LineSize, Writer, read_line};
use super::pipe::{Flush, Outlet, Pipe};

/// Time for unfinished calls after the end of stdin.
pub(crate) const STDIO_DRAIN: Duration = Duration::from_secs(2);

/// The stdio side of the server, running.
pub(crate) struct Stdio {
    server: Arc<Server>,
    pipe: Pipe,
    writer: Arc<Writer>,
}

impl Stdio {
    /// A server on `output`. `broken` is called when output cannot be written any
    /// more, on whatever thread finds out; by then runs are interrupted, and stored where they are kept.
    pub(crate) fn new(
        server: Arc<Server>,
        output: impl Write + Send + 'static,
        broken: fn(),
    ) -> Stdio {
        let runs = server.backend.runs.clone();
        let broken = move || {
            let runs = runs.clone();
            // Within a limit, as this thread may be one that writes a run.
            within(ABORT_GRACE, move || runs.interrupt_all());
            broken();
        };
        let writer = Arc::new(Writer::new(output, broken));
        Stdio {
            pipe: Pipe::new(server.clone(), Session::stdio(), writer.clone(), true),
            server,
            writer,
        }
    }

    /// Serves `input` to its end, then gives running calls [`STDIO_DRAIN`] to finish.
    ///
    /// # Errors
    /// Those of reading `input`, which count as its end.
    pub(crate) fn serve(self: &Arc<Self>, input: impl Read) -> io::Result<()> {
        let read = self.read(input);
        let stdio = self.clone();
        within(STDIO_DRAIN + ABORT_GRACE, move || {
            stdio.pipe.end_listening();
            let backend = &stdio.server.backend;
            if !backend.accounts.wait_idle(STDIO_DRAIN) {
                // Before cancelling, so that interrupted runs are not stored as cancelled.
                backend.runs.interrupt_all();
                stdio.pipe.inflight.cancel_all();
            }
            stdio.writer.flush();
        });
        self.server.backend.runs.interrupt_all();
        read
    }

    fn read(&self, input: impl Read) -> io::Result<()> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let mut line = Vec::new();
        let pass = Arc::new(Pass::local());
        let account = self.server.account(&pass.identity);
        while let Some(size) = read_line(&mut input, &mut line)? {
            if let LineSize::TooLong(id) = size {
                let reason = format!("The line is longer than {MAX_MESSAGE} bytes.");
                let refusal = Refusal::new(INVALID_REQUEST, reason);
                let answer = refuse(refusal, id.as_ref(), self.pipe.session.no_id(), false);
                self.writer.send(&answer.body.parts(), Flush::Later);
            } else if !is_blank(&line) {
                let action = self.pipe.read(&line, &account);
                self.pipe.act(action, &pass);
            }
            // Flush buffered answers unless another message is already there.
            if !input.buffer().contains(&b'\n') {
                self.writer.flush();
            }
        }
        Ok(())
    }

    /// Sends no new run to Fabric, ends subscriptions at once, and lets running calls finish within `limit`; the others
    /// are stopped, and answered so.
    pub(crate) fn stop(self: &Arc<Self>, limit: Duration) {
        let stdio = self.clone();
        within(limit + 2 * ABORT_GRACE, move || {
            stdio.server.backend.accounts.close();
            stdio.pipe.end_listening();
            stdio.writer.flush();
            drain(&stdio.server.backend, limit);
            stdio.writer.flush();
        });
        self.server.backend.runs.interrupt_all();
    }
}

/// Runs `finish`, but returns after `limit` at the latest: a client that keeps stdout open without reading would block
/// every write for ever.
pub(crate) fn within(limit: Duration, finish: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel();
    let finish = move || {
        finish();
        // The receiver may have timed out.
        let _ = done.send(());
    };
    match thread::Builder::new().name("stop".into()).spawn(finish) {
        Ok(_) => drop(over.recv_timeout(limit)),
        Err(error) => log::warn!("the end cannot be orderly: {error}"),
    }
}
