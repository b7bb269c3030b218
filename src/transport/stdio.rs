//! The stdio transport: one JSON message a line in, one a line out, nothing else ever on stdout.
//!
//! The reader's thread answers what is cheap and hands calls to workers, so that `notifications/cancelled` and `ping`
//! work meanwhile. Nothing a client sends ends the loop; only the end of its input does.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::config::{MAX_MESSAGE, MAX_QUEUED_RUNS, MAX_SUBSCRIPTIONS, STDIO_DRAIN};
use crate::fabric::{Error, Kind};
use crate::jsonrpc::{self, INVALID_REQUEST, NoId};
use crate::mcp::{self, Action, Answer, Call, Listen, Listener, Outlet, Refusal, Registration, Server, Session};

use super::inflight::{Cancel, Inflight, Writing};
use super::poller::Poller;
use super::workers::Workers;

/// Input is read in pieces of this size, and output is collected up to it.
const BUFFER: usize = 64 << 10;

/// The stdio side of the server, running.
pub(crate) struct Stdio<W: Write + Send + 'static> {
    server: Arc<Server>,
    session: Arc<Session>,
    inflight: Arc<Inflight>,
    workers: Workers,
    poller: Arc<Poller>,
    writer: Arc<Writer<W>>,
    /// The place of a legacy client that follows lists.
    follower: OnceLock<Registration>,
}

impl<W: Write + Send + 'static> Stdio<W> {
    /// A server on `output`, with at most `max_calls` calls at once. `broken` is called when output cannot be written any
    /// more, on whatever thread finds out.
    pub(crate) fn new(server: Arc<Server>, max_calls: usize, output: W, broken: fn()) -> Stdio<W> {
        Stdio {
            poller: Poller::new(server.clone()),
            server,
            session: Arc::new(Session::stdio()),
            inflight: Arc::new(Inflight::default()),
            workers: Workers::new(max_calls, MAX_QUEUED_RUNS),
            writer: Arc::new(Writer::new(output, broken)),
            follower: OnceLock::new(),
        }
    }

    /// Serves `input` to its end, then gives what runs [`STDIO_DRAIN`] to finish.
    ///
    /// # Errors
    /// Those of reading `input`.
    pub(crate) fn serve(&self, input: impl Read) -> io::Result<()> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let mut line = Vec::new();
        while let Some(fits) = read_line(&mut input, &mut line)? {
            if fits {
                self.receive(&line);
            } else {
                let reason = format!("The line is longer than {MAX_MESSAGE} bytes.");
                self.writer
                    .send(&Refusal::new(INVALID_REQUEST, reason).answer(None, self.no_id(), false).body, Flush::Later);
            }
            // What was answered so far waits only while there is another message to answer.
            if !input.buffer().contains(&b'\n') {
                self.writer.flush();
            }
        }
        self.stop(STDIO_DRAIN);
        Ok(())
    }

    /// Lets what runs finish within `limit`, cancels the rest, and ends subscriptions.
    pub(crate) fn stop(&self, limit: Duration) {
        for message in self.inflight.end_listening() {
            self.writer.send(&message, Flush::Later);
        }
        if !self.inflight.wait_idle(limit) {
            self.inflight.cancel_all();
        }
        self.writer.flush();
    }

    fn no_id(&self) -> NoId {
        self.session.no_id()
    }

    fn receive(&self, line: &[u8]) {
        if jsonrpc::is_blank(line) {
            return;
        }
        let mut inbound = mcp::inspect(line, false);
        inbound.refuse_ids(|id| self.inflight.contains(id));
        let action = self.server.receive(&self.session, inbound, None);
        self.act(action, &Reply::Line(self.writer.clone()));
        if self.session.follows_lists() && self.follower.get().is_none() {
            let outlet = Arc::new(StdioOutlet { writer: self.writer.clone(), cancel: Cancel::default() });
            let _ = self.follower.set(self.server.subscriptions().add(Listener::legacy(outlet)));
            self.poller.listened();
        }
    }

    fn act(&self, action: Action, reply: &Reply<W>) {
        match action {
            Action::Nothing => {}
            Action::Answer(answer) => reply.send(answer, Flush::Later),
            Action::Cancel(id) => self.inflight.cancel(&id),
            Action::Call(call) => self.call(call, reply),
            Action::Listen(listen) => self.listen(&listen),
            Action::Batch(actions) => {
                let batch = Reply::Batch(Arc::new(Batch {
                    answers: Mutex::default(),
                    writer: self.writer.clone(),
                    _writing: Writing::begin(&self.inflight),
                }));
                for action in actions {
                    self.act(action, &batch);
                }
            }
        }
    }

    fn call(&self, call: Box<Call>, reply: &Reply<W>) {
        // Ids in use were refused before; only this thread enters new ones.
        let Some(cancel) = self.inflight.begin(call.id()) else { return };
        let call = Arc::new(call);
        let job = {
            let (server, inflight, call, cancel, reply) =
                (self.server.clone(), self.inflight.clone(), call.clone(), cancel.clone(), reply.clone());
            let outlet = Arc::new(StdioOutlet { writer: self.writer.clone(), cancel: cancel.clone() });
            move || {
                // It may have been cancelled while it waited for a thread.
                if cancel.is_cancelled() {
                    return;
                }
                let answer = super::run(&server, &call, outlet);
                let _writing = Writing::begin(&inflight);
                if inflight.finish(call.id(), &cancel) {
                    reply.send(answer, Flush::Now);
                }
            }
        };
        if self.workers.submit(Box::new(job)).is_err() {
            self.inflight.finish(call.id(), &cancel);
            reply.send(call.fail(busy()), Flush::Later);
        }
    }

    fn listen(&self, listen: &Listen) {
        if self.inflight.listening() >= MAX_SUBSCRIPTIONS {
            return self.writer.send(&listen.fail(too_many_subscriptions()).body, Flush::Later);
        }
        // The acknowledgement comes first: only then can anything be told.
        self.writer.send(&listen.acknowledgement(), Flush::Later);
        let outlet = Arc::new(StdioOutlet { writer: self.writer.clone(), cancel: Cancel::default() });
        let end = vec![listen.end().body, listen.cancelled()];
        self.inflight.listen(listen.id(), || self.server.subscriptions().add(listen.listener(outlet)), end);
        self.poller.listened();
    }
}

/// All workers are busy and the queue is full.
fn busy() -> Error {
    Error::new(
        Kind::TooManyRequests,
        "Too many calls are running and waiting already. Wait for one of them to end, then try again.",
    )
}

/// This pipe has as many subscriptions as it may.
fn too_many_subscriptions() -> Error {
    Error::new(
        Kind::TooManyRequests,
        format!("There are {MAX_SUBSCRIPTIONS} subscriptions already. Cancel one that is not needed, then try again."),
    )
}

/// Reads one line into `line`, without its end. `None` at the end of input; false if the line was longer than
/// [`MAX_MESSAGE`] and has been skipped.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    if line.capacity() > BUFFER {
        // One large message must not be paid for until the end of the process.
        line.shrink_to(BUFFER);
    }
    let limit = MAX_MESSAGE as u64 + 2;
    if retry(|| input.by_ref().take(limit - line.len() as u64).read_until(b'\n', line))? == 0 && line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 == limit {
        retry(|| input.skip_until(b'\n'))?;
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line.len() <= MAX_MESSAGE))
}

/// Reads again after a signal.
fn retry<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Where an answer goes: out by itself, or into the array of its batch.
enum Reply<W: Write + Send> {
    Line(Arc<Writer<W>>),
    Batch(Arc<Batch<W>>),
}

impl<W: Write + Send> Clone for Reply<W> {
    fn clone(&self) -> Self {
        match self {
            Reply::Line(writer) => Reply::Line(writer.clone()),
            Reply::Batch(batch) => Reply::Batch(batch.clone()),
        }
    }
}

impl<W: Write + Send> Reply<W> {
    fn send(&self, answer: Answer, flush: Flush) {
        match self {
            Reply::Line(writer) => writer.send(&answer.body, flush),
            Reply::Batch(batch) => batch.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer.body),
        }
    }
}

/// The answers of one batch. Everybody who still owes one holds the batch; the last to let go sends the array.
struct Batch<W: Write + Send> {
    answers: Mutex<Vec<Vec<u8>>>,
    writer: Arc<Writer<W>>,
    /// Let go of after the array has been sent.
    _writing: Writing,
}

impl<W: Write + Send> Drop for Batch<W> {
    fn drop(&mut self) {
        let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !answers.is_empty() {
            let array = [b"[".as_slice(), &answers.join(&b','), b"]"].concat();
            self.writer.send(&array, Flush::Now);
        }
    }
}

/// Where the notifications of a call go.
struct StdioOutlet<W: Write + Send> {
    writer: Arc<Writer<W>>,
    cancel: Cancel,
}

impl<W: Write + Send> Outlet for StdioOutlet<W> {
    fn notify(&self, message: &[u8]) {
        self.writer.send_if(message, Flush::Now, || !self.cancel.is_cancelled());
    }

    fn stopped(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

/// Must a message be on its way when [`Writer::send`] returns, or does the sender flush soon?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    Now,
    Later,
}

/// The one writer of stdout. Whole lines only; flushed when nobody else is about to write.
struct Writer<W> {
    out: Mutex<Out<W>>,
    /// Senders that wait for the lock: the last of them flushes for all.
    waiting: AtomicUsize,
    broken: fn(),
}

struct Out<W> {
    output: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn new(output: W, broken: fn()) -> Writer<W> {
        let out = Out { output, buffer: Vec::with_capacity(BUFFER) };
        Writer { out: Mutex::new(out), waiting: AtomicUsize::new(0), broken }
    }

    fn send(&self, message: &[u8], flush: Flush) {
        self.send_if(message, flush, || true);
    }

    /// Sends unless `wanted` says no. It is asked when it is this message's turn, so that what the reader answers after
    /// a cancellation comes after everything of the cancelled call.
    fn send_if(&self, message: &[u8], flush: Flush, wanted: impl FnOnce() -> bool) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        let flush = flush == Flush::Now && last;
        // Unwanted: others may have left the flush to us all the same.
        let written = if wanted() { out.put(message, flush) } else { out.flush() };
        if let Err(_gone) = written {
            (self.broken)();
        }
    }

    fn flush(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(_gone) = out.flush() {
            (self.broken)();
        }
    }
}

impl<W: Write> Out<W> {
    fn put(&mut self, message: &[u8], flush: bool) -> io::Result<()> {
        if self.buffer.len() + message.len() >= BUFFER {
            self.flush()?;
        }
        if message.len() >= BUFFER {
            // A large message is not copied once more.
            self.output.write_all(message)?;
        } else {
            self.buffer.extend_from_slice(message);
        }
        self.buffer.push(b'\n');
        if flush { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        // Cleared first: what cannot be written once is not tried again.
        let written = self.output.write_all(&self.buffer).and_then(|()| self.output.flush());
        self.buffer.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<(bool, usize)> {
        // A tiny buffer, so that lines end anywhere in it.
        let mut input = BufReader::with_capacity(7, input);
        let mut line = Vec::new();
        let mut found = Vec::new();
        while let Some(fits) = read_line(&mut input, &mut line).unwrap() {
            found.push((fits, line.len()));
        }
        found
    }

    #[test]
    fn lines_end_in_lf_crlf_or_the_end_of_input() {
        assert_eq!(lines(b"ab\ncd\r\n\nlast"), [(true, 2), (true, 2), (true, 0), (true, 4)]);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_line_may_be_as_long_as_a_message_and_a_longer_one_is_skipped() {
        let line = |n: usize| [vec![b'x'; n], b"\nnext\n".to_vec()].concat();
        assert_eq!(lines(&line(MAX_MESSAGE)), [(true, MAX_MESSAGE), (true, 4)]);
        assert!(matches!(lines(&line(MAX_MESSAGE + 1))[..], [(false, _), (true, 4)]));
        assert!(matches!(lines(&line(MAX_MESSAGE + 2))[..], [(false, _), (true, 4)]));
        assert!(matches!(lines(&line(MAX_MESSAGE * 2))[..], [(false, _), (true, 4)]));
    }

    /// Counts writes.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_are_written_together_until_somebody_flushes() {
        let pipe = Pipe::default();
        let writer = Writer::new(pipe.clone(), || panic!("broken"));
        writer.send(b"{1}", Flush::Later);
        writer.send(b"{2}", Flush::Later);
        assert!(pipe.0.lock().unwrap().is_empty());
        writer.send(b"{3}", Flush::Now);
        assert_eq!(*pipe.0.lock().unwrap(), [b"{1}\n{2}\n{3}\n".to_vec()]);
        writer.send(&vec![b'x'; BUFFER], Flush::Now);
        assert_eq!(pipe.0.lock().unwrap().concat().len(), 12 + BUFFER + 1);
    }
}
