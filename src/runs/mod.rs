//! Runs of patterns and their results, and who may see them. A run costs money, so its result outlives the call that
//! started it.
//!
//! In scope: records and texts of runs, in memory and in a state folder that several processes may share; ownership;
//! retention. Not in scope: executing a run (the holder of its [`RunWriter`]) and presenting it. This module knows
//! neither MCP nor Fabric.
//!
//! ```text
//!   Runs::begin ──> RunWriter ──append, finish──> the run <──read, wait, cancel── Run <── Runs::find
//! ```
//!
//! The path of a piece of text, with its locks. None of them is held while another is taken, except the first:
//!
//! ```text
//!   Fabric ─> Event ─> Output ┬─> Context::content    notes: collected
//!                             ├─> RunWriter::append   the run's state; each 4 KiB its accounts, each second its files
//!                             └─> Context::flush      notes, held over the write ─> Peer::notify, the client's socket
//!   end ─> finish (tools) ─> RunWriter::finish ─> files ─> result (tools) ─> ResultWriter ─> Peer::answer
//! ```
//!
//! All locks. Those marked with (d) are held while the disk is read or written; the last column has those that may be
//! locked before it.
//!
//! ```text
//!   Runs::swept        (d)  one search for expired runs and those of other processes
//!   Runs::rewriting    (d)  one attempt to write what could not be written    swept
//!   Runs::entries           which runs there are, and their charges           swept, rewriting
//!   LiveRun::files     (d)  how much of a run is in its files                 rewriting
//!   LiveRun::state          its record and text                               entries, files
//!   LiveRun::memory         its reservation
//!   Folder::is_held    (d)  one append to the ledger                          rewriting
//!   Folder::ledger     (d)  its waiting lines, and what has been read of it   state, is_held
//!   Folder::trying, parsing, recovered    one at a time; nothing is locked after them
//! ```
//!
//! A worker that panics ends its run on the same path, as a failure; one that is dropped leaves it interrupted.
//!
//! - The age of what a process made or loaded is counted by the steady clock, so a jump of the time of day removes
//!   nothing. The time of day tells only the age of runs that were in the folder before.
//! - What is kept is charged, as it grows, to the account of the caller who began the run. If that account is used up,
//!   its oldest finished run is removed; a run of another account never is. A run that is working is not removed, and
//!   neither is one that is promised (announced as a task) before its time-to-live is over.
//! - If nothing can be removed for a run, it is forgotten at its end; for a promised run, the caller is told that there
//!   is no room.
//! - With `keep` 0 nothing is promised or written to the folder, and a run is forgotten at its end, except by holders
//!   of its [`Run`].
//! - On a full disk, the oldest runs of the same caller are removed, so that the end of a run can be written.
//! - A failing folder never fails a run: what cannot be written stays in memory, with a warning, and is tried again
//!   with the next text, at its end, when another end could be written, and at the end of the process.
//! - There is no background thread: the worker's own calls write its text and check for a cancellation by another
//!   process, once a second; expired runs, which nobody finds any more, are removed when a run ends, at
//!   most once a minute, and when runs are listed.

mod folder;
mod ledger;
mod live;
mod pieces;
mod record;
mod table;
mod usage;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use folder::Folder;
pub(crate) use ledger::estimate;
pub(crate) use record::{Record, RunError, RunId, RunReport, RunState};
pub(crate) use table::{Runs, bounds};
pub(crate) use usage::{COLUMNS, usage};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_folder;

use crate::account::QuotaExceeded;
use crate::error::{Error, Kind};
use crate::sync::{SLICE, poll};
use crate::time::{milliseconds_now, whole};
use ledger::{Asked, Spent};
use live::LiveRun;

/// Text is read and searched in pieces of this size. Bytes.
pub(crate) const PIECE: usize = 16 << 10;
/// How long to wait for another process to notice that its run was cancelled.
const NOTICED: Duration = Duration::from_secs(2);

/// A reader's handle to a run. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Run {
    /// In this process.
    Live(Arc<LiveRun>),
    /// In the folder, as it was when it was found, without what its worker reported: that may be long, and a
    /// subscription holds many runs.
    Stored(Arc<Folder>, Arc<Record>),
}

impl Run {
    pub(crate) fn id(&self) -> RunId {
        self.known().id
    }

    fn live(&self) -> Option<&Arc<LiveRun>> {
        match self {
            Run::Live(live) => Some(live),
            Run::Stored(..) => None,
        }
    }

    /// What is known of it without its files.
    fn known(&self) -> Arc<Record> {
        match self {
            Run::Live(live) => live.record(),
            Run::Stored(_, known) => known.clone(),
        }
    }

    /// The current record, or the last known one if the files cannot be read. Never reads the text.
    pub(crate) fn record(&self) -> Arc<Record> {
        let Run::Stored(folder, known) = self else {
            return self.known();
        };
        match folder.load(known.id) {
            Ok(record) => Arc::new(record),
            Err(error) if error.kind() == ErrorKind::NotFound && known.is_elsewhere() => {
                let mut gone = Record::clone(known);
                (gone.state, gone.bytes, gone.chars) = (RunState::Interrupted, 0, Some(0));
                Arc::new(gone)
            }
            Err(_) => known.clone(),
        }
    }

    /// [`Run::record`], perhaps without what its worker reported; reads no file of a run that has ended.
    pub(crate) fn bare(&self) -> Arc<Record> {
        let known = self.known();
        match known.is_elsewhere() {
            true => self.record(),
            false => known,
        }
    }

    /// How long nothing has come from it; zero once it has ended.
    pub(crate) fn silence(&self) -> Duration {
        if let Some(live) = self.live() {
            return live.silence();
        }
        let record = self.bare();
        let since = match record.state {
            RunState::Working => milliseconds_now().saturating_sub(record.updated),
            _ => 0,
        };
        Duration::from_millis(since)
    }

    /// How many characters of text the run has; for a run of another process, they are counted.
    pub(crate) fn chars(&self) -> u64 {
        let record = self.bare();
        record.chars.unwrap_or_else(|| match self {
            Run::Live(_) => 0,
            Run::Stored(folder, _) => folder.count(record.id, record.bytes),
        })
    }

    /// At most `most` bytes of the text from byte `from` on, cut between characters. With a folder, these bytes are
    /// already in it, so that a killed process cannot take back what a caller has seen.
    pub(crate) fn read(&self, from: u64, most: usize) -> String {
        match self {
            Run::Live(live) => {
                let text = live.read(usize::try_from(from).unwrap_or(usize::MAX), most);
                live.write(None);
                text
            }
            Run::Stored(folder, record) => {
                let left = self.bare().bytes.saturating_sub(from);
                pieces::whole(folder.read_text(record.id, from, left.min(most as u64)))
            }
        }
    }

    /// At most `most` characters of its text, after the first `skip`.
    pub(crate) fn read_chars(&self, mut skip: usize, mut most: usize) -> String {
        let (mut from, mut out) = (0, String::new());
        while most > 0 {
            // A character has four bytes at most.
            let piece = self.read(from, PIECE.min(4 * (skip + most)));
            if piece.is_empty() {
                break;
            }
            from += piece.len() as u64;
            let chars = piece.chars().count();
            out.extend(piece.chars().skip(skip).take(most));
            most -= chars.saturating_sub(skip).min(most);
            skip = skip.saturating_sub(chars);
        }
        out
    }

    /// Waits for more than `seen` bytes of text, or for the end, at most for `limit`. Returns its record then,
    /// perhaps without what its worker reported.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) -> Arc<Record> {
        if let Some(live) = self.live() {
            return live.wait(seen, limit);
        }
        if !self.bare().has_news(seen) {
            // The run works in another process, which cannot wake this one.
            std::thread::sleep(limit);
        }
        self.bare()
    }

    /// Waits until the process that works on it has seen that it was cancelled, or has ended it before, if it does so soon.
    pub(crate) fn await_end(&self) {
        poll(NOTICED, SLICE, || !self.bare().is_elsewhere());
    }

    /// Cancels it. From now on it is shown as cancelled, whatever its worker reports. False if it had ended or was
    /// cancelled before. A worker in another process notices within about a second.
    ///
    /// # Errors
    /// The run works in another process, and the folder cannot be written or read, so the run goes on. The log says
    /// why.
    pub(crate) fn cancel(&self) -> Result<bool, Error> {
        let (folder, id) = match self {
            Run::Live(live) => return Ok(live.cancel()),
            Run::Stored(folder, record) => (folder, record.id),
        };
        folder.cancel(id).map_err(|error| {
            log::warn!("run {id}: the process that works on it could not be told to stop: {error}");
            Error::new(
                Kind::Internal,
                "The run goes on: another process works on it and could not be told to stop, \
                 because the state folder cannot be written or read. The disk may be full; the \
                 server's log says more. Cancel again when that is fixed.",
            )
        })
    }
}

/// The worker's handle to a run. Dropped without [`RunWriter::finish`], the run is interrupted.
pub(crate) struct RunWriter {
    runs: Arc<Runs>,
    live: Arc<LiveRun>,
}

impl RunWriter {
    /// The run.
    pub(crate) fn run(&self) -> Run {
        Run::Live(self.live.clone())
    }

    /// Adds text. Nothing is added to a run that has ended or was cancelled. An empty piece says that its model was asked,
    /// or that something has come which is not part of the text.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: there is no room for it in the account, even without the finished runs that may go. This piece is
    /// kept, but the worker should end the run.
    pub(crate) fn append(&self, piece: &str) -> Result<(), QuotaExceeded> {
        let charged = match self.live.push(piece) {
            true => self.runs.charge(&self.live, false),
            false => Ok(()),
        };
        self.live.tick();
        charged
    }

    /// Writes the run to disk before returning, if there is a folder. Call this before anybody learns the id: from then on the
    /// run is not forgotten at its end, though there may be no room for more text. False if there is no room to keep it now.
    pub(crate) fn persist(&self) -> bool {
        let has_room = self.runs.keeps() && self.runs.charge(&self.live, true).is_ok();
        self.live.is_given.store(has_room, Ordering::Relaxed);
        self.live.write(Some(true));
        has_room
    }

    /// Promises to keep the run as a task: it can be found for at least `ttl` from its start.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: there is no room for a task; the run goes on.
    pub(crate) fn promise(&self, ttl: Duration) -> Result<(), QuotaExceeded> {
        self.live.set_ttl(Some(whole(ttl)));
        let charged = self.runs.charge(&self.live, true);
        charged.inspect_err(|QuotaExceeded| self.live.set_ttl(None))
    }

    /// The model of the next step is asked now, with about this many tokens of input. Until [`RunWriter::answered`], any
    /// process that finds the run ended writes its line in the ledger. What the `earlier` steps gave is kept with the
    /// run, unless it completes.
    pub(crate) fn ask(&self, model: &str, input: u64, earlier: &[String]) {
        let (step, model) = (earlier.len() + 1, model.to_owned());
        self.live.ask(Asked { step, model, input }, earlier);
        // If there is no room, the run is forgotten at its end.
        let _ = self.runs.charge(&self.live, false);
    }

    /// The step whose model was asked has ended. Writes its line, if there is a ledger, with the tokens that Fabric
    /// counted or with this estimate; `None`: Fabric refused the step, and asked no model.
    pub(crate) fn answered(&self, outcome: &str, tokens: Option<Spent>) {
        self.live
            .answered(self.runs.ledger.as_deref(), outcome, tokens);
    }

    /// Must the run stop? Call it several times a second: it also writes text that has waited for a second to disk, and
    /// notices cancellations by other processes.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.live.tick();
        self.live.is_stopped()
    }

    /// Ends the run, which can be found and is on disk when this returns. A cancelled run stays cancelled, with this
    /// report. Only the first end counts.
    pub(crate) fn finish(&self, end: RunState, report: RunReport) {
        self.runs.close(&self.live, end, report);
        self.runs.sweep_sometimes();
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        self.finish(RunState::Interrupted, self.live.record().report.clone());
    }
}
