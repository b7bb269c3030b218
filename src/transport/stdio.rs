//! The stdio transport: one JSON message for each line, in and out, and never anything else on stdout.
//!
//! In scope: lines, the one writer, the end. What is done with a message is `pipe`'s. Nothing a client sends ends the loop;
//! only the end of its input does.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::access::{Caller, Identity};
use crate::config::{ABORT_GRACE, MAX_MESSAGE};
use crate::encoding::json::mend_surrogates;
use crate::protocol::jsonrpc::{INVALID_REQUEST, is_blank};
use crate::protocol::{Answer, Id, Json, Refusal, Session};
use crate::server::{Action, Server, refuse};
use crate::sync::{lock, spawn};
use crate::tools::Peer;

use super::drain;
use super::pipe::Pipe;

/// Time for unfinished calls after the end of stdin.
pub(crate) const STDIO_DRAIN: Duration = Duration::from_secs(2);

/// Longest message whose id is looked for, in bytes.
const MAX_SOUGHT: u64 = 4 * MAX_MESSAGE as u64;

/// Input is read in pieces of this size, and output is collected up to it.
pub(super) const BUFFER: usize = 64 << 10;

/// The stdio side of the server, running.
pub(crate) struct Stdio(Arc<Pipe>);

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
        Stdio(Arc::new(Pipe::new(server, Session::stdio(), writer)))
    }

    /// Serves `input` to its end, then gives running calls [`STDIO_DRAIN`] to finish.
    ///
    /// # Errors
    /// The errors of reading `input`, which count as its end.
    pub(crate) fn serve(&self, input: impl Read) -> io::Result<()> {
        let pipe = &self.0;
        let accounts = &pipe.server.backend.accounts;
        let caller = Arc::new(Caller::open(Identity::Local, accounts));
        let read = read_lines(input, |line| {
            let action = match line {
                Ok(line) => pipe.read(line, &caller),
                Err((id, refusal)) => {
                    let id = id.or(pipe.session.no_id());
                    Action::Answer(refuse(refusal, id.as_ref(), false))
                }
            };
            pipe.act(action, &caller);
        });
        self.end(STDIO_DRAIN);
        read
    }

    /// Sends no new run to Fabric, ends subscriptions at once, and lets running calls finish within `limit`. Those that
    /// take longer are stopped, and their answers say so.
    pub(crate) fn stop(&self, limit: Duration) {
        self.0.server.backend.accounts.close();
        self.end(limit);
    }

    fn end(&self, limit: Duration) {
        let pipe = self.0.clone();
        within(limit + 2 * ABORT_GRACE, move || {
            pipe.end_listening();
            drain(&pipe.server.backend, limit);
        });
        self.0.server.backend.runs.interrupt_all();
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
    spawn(
        "stop",
        "no thread could be started to do this in time",
        finish,
    );
    let _ = over.recv_timeout(limit);
}

/// Reads `input` to its end. `take` gets each line that is not blank, or why it is too long to be read, and for which id.
///
/// # Errors
/// Those of reading.
pub(crate) fn read_lines(
    input: impl Read,
    mut take: impl FnMut(Result<&mut Vec<u8>, (Option<Id>, Refusal)>),
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let (mut line, limit) = (Vec::new(), MAX_MESSAGE as u64 + 2);
    while input.by_ref().take(limit).read_until(b'\n', &mut line)? > 0 {
        let is_over = line.pop_if(|byte| *byte == b'\n').is_some();
        line.pop_if(|byte| *byte == b'\r');
        if line.len() > MAX_MESSAGE {
            let input = &mut input;
            let mut rest = LineRest { input, is_over };
            let sought = line.chain(&mut rest).take(MAX_SOUGHT);
            let id = Id::sought(&mut BufReader::with_capacity(BUFFER, sought));
            io::copy(&mut rest, &mut io::sink())?;
            let reason =
                format!("The line is longer than {MAX_MESSAGE} bytes, the limit. Send less.");
            take(Err((id, Refusal::new(INVALID_REQUEST, reason))));
        } else if !is_blank(&line) {
            mend_surrogates(&mut line);
            take(Ok(&mut line));
        }
        line.clear();
        // The memory of one large message must not be kept for good.
        line.shrink_to(BUFFER);
    }
    Ok(())
}

/// The rest of a line.
struct LineRest<'a, R> {
    input: &'a mut R,
    is_over: bool,
}

impl<R: BufRead> Read for LineRest<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_over {
            return Ok(0);
        }
        let mut piece = Vec::new();
        let mut input = self.input.by_ref().take(out.len() as u64);
        let taken = input.read_until(b'\n', &mut piece)?;
        out[..taken].copy_from_slice(&piece);
        self.is_over = piece.ends_with(b"\n");
        Ok(taken)
    }
}

/// The one writer of stdout: whole lines only.
pub(crate) struct Writer {
    out: Mutex<BufWriter<Box<dyn Write + Send>>>,
    broken: Box<dyn Fn() + Send + Sync>,
}

impl Writer {
    /// Writes to `output`. `broken` is called on whatever thread finds that this is not possible any more.
    pub(crate) fn new(
        output: impl Write + Send + 'static,
        broken: impl Fn() + Send + Sync + 'static,
    ) -> Writer {
        Writer {
            out: Mutex::new(BufWriter::with_capacity(BUFFER, Box::new(output))),
            broken: Box::new(broken),
        }
    }

    /// Sends one message, in parts. Blocks while the client does not read.
    fn send(&self, message: &[&[u8]], wanted: &dyn Fn() -> bool) {
        let mut out = lock(&self.out);
        if !wanted() {
            return;
        }
        let end: &[u8] = b"\n";
        let mut parts = message.iter().chain([&end]);
        let written = parts.try_for_each(|part| out.write_all(part));
        if written.and_then(|()| out.flush()).is_err() {
            (self.broken)();
        }
    }
}

impl Peer for Writer {
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool) {
        self.send(&[message], wanted);
    }

    fn answer(&self, answer: Answer) {
        self.send(&answer.parts(), &|| true);
        Json::recycle(answer.body);
    }

    fn stopped(&self) -> bool {
        // A client that leaves ends the process.
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of lines, and the ids of those that are too long, in JSON.
    fn lines(input: &[u8]) -> Vec<Result<usize, Option<String>>> {
        let mut found = Vec::new();
        // A tiny buffer, so that lines end anywhere in it.
        let input = BufReader::with_capacity(7, input);
        let text = |id: Id| serde_json::to_string(&id).unwrap();
        let read = read_lines(input, |line| {
            found.push(line.map(|line| line.len()).map_err(|(id, _)| id.map(text)));
        });
        read.map(|()| found).unwrap()
    }

    #[test]
    fn the_id_of_a_long_request_is_found_wherever_it_is() {
        let (pad, b) = ("x".repeat(MAX_MESSAGE), Some("\"b\""));
        for (line, id) in [
            (r#"{"id":7,"method":"a","params":["PAD"]}"#, Some("7")),
            (r#"{"method":"a","params":{"id":1,"x":"PAD"},"id":"b"}"#, b),
            (r#"{"method":"a","params":["PAD\",\"id\":1"]}"#, None),
            (r#"{"id":7,"result":"PAD"}"#, None),
            (r#"{"id":7,"method":"a","params":["PAD"]"#, None),
            (r#"{"id":"PAD","method":"a"}"#, None),
            (r#"[{"id":7,"method":"a","params":["PAD"]}]"#, None),
        ] {
            let line = line.replace("PAD", &pad);
            let found = lines(format!("{line}\r\nnext").as_bytes());
            assert_eq!(found, [Err(id.map(str::to_owned)), Ok(4)]);
        }
    }

    #[test]
    fn lines_end_in_lf_crlf_or_the_end_of_input_and_may_be_as_long_as_a_message() {
        assert_eq!(lines(b"ab\ncd\r\n\nlast"), [Ok(2), Ok(2), Ok(4)]);
        assert_eq!(lines(b""), []);
        let line = |n: usize| [vec![b'x'; n], b"\nnext\n".to_vec()].concat();
        assert_eq!(lines(&line(MAX_MESSAGE)), [Ok(MAX_MESSAGE), Ok(4)]);
        for length in [MAX_MESSAGE + 1, MAX_MESSAGE + 2, MAX_MESSAGE * 2] {
            assert_eq!(lines(&line(length)), [Err(None), Ok(4)]);
        }
    }
}
