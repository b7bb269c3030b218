//! The files of a run that works in this process.
//!
//! `<id>.lock` is locked while the run works. It is a file of its own, because on Windows a locked file cannot be read
//! by others. It exists before the metadata does, and stays locked until the metadata says how the run ended: whoever
//! gets the lock and still reads `working` knows that the owner has died.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use super::folder::{Folder, Part};
use super::record::{Record, RunId, RunState};

/// How often text is written and the cancel marker checked.
const TICK: Duration = Duration::from_secs(1);

/// The files of a run.
pub(super) struct Files {
    folder: Arc<Folder>,
    id: RunId,
    lock: Option<File>,
    /// Created with the first text.
    text: Option<File>,
    /// Bytes of text in the file.
    pub(super) written: usize,
    /// A write failed: there may be more in the file than was `written`.
    torn: bool,
    ticked: Duration,
}

impl Files {
    pub(super) fn begin(folder: &Arc<Folder>, record: &Record, now: Duration) -> io::Result<Files> {
        let lock = folder.create(record.id, Part::Lock)?;
        let begun = lock
            .try_lock()
            .map_err(io::Error::from)
            .and_then(|()| folder.write(record, false));
        if let Err(error) = begun {
            folder.remove(record.id);
            return Err(error);
        }
        let folder = folder.clone();
        Ok(Files {
            folder,
            id: record.id,
            lock: Some(lock),
            text: None,
            written: 0,
            torn: false,
            ticked: now,
        })
    }

    /// Has a second passed since the last tick?
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.lock.is_some() && now.saturating_sub(self.ticked) >= TICK;
        if due {
            self.ticked = now;
        }
        due
    }

    pub(super) fn append(&mut self, piece: &str) -> io::Result<()> {
        let file = match &mut self.text {
            Some(file) => file,
            none => none.insert(self.folder.create(self.id, Part::Text)?),
        };
        if self.torn {
            // Over the same text: what is there already is not cut off, as there may be no room for it again.
            file.seek(SeekFrom::Start(self.written as u64))?;
        }
        self.torn = true;
        file.write_all(piece.as_bytes())?;
        self.torn = false;
        self.written += piece.len();
        Ok(())
    }

    /// Has another process cancelled it?
    pub(super) fn is_marked(&self) -> bool {
        self.lock.is_some() && self.folder.is_marked(self.id)
    }

    /// Tells the other processes that it is cancelled.
    pub(super) fn mark(&self) {
        if self.lock.is_some() {
            // They see it a little later if this fails.
            let _ = self.folder.mark(self.id);
        }
    }

    /// Writes the metadata durably.
    pub(super) fn persist(&self, record: &Record) {
        if let Err(error) = self.folder.write(record, true) {
            self.warn("it could not be written", &error);
        }
    }

    /// Writes the end durably, text first. `told`: this end has been shown, so it cannot become a cancellation.
    pub(super) fn finish(&mut self, record: &mut Record, told: bool) -> io::Result<()> {
        let finished = self.try_finish(record, told);
        match &finished {
            Ok(()) => self.folder.is_well(),
            Err(error) => self.warn("its end could not be written", error),
        }
        finished
    }

    fn try_finish(&mut self, record: &mut Record, told: bool) -> io::Result<()> {
        if let Some(Err(error)) = self.text.as_ref().map(File::sync_all) {
            // The system may have dropped what it could not write, and a second sync would not say so.
            (self.written, self.torn) = (0, true);
            return Err(error);
        }
        // A process that left the marker has read `working`, and has reported the run as cancelled. So check again once
        // the end can be read.
        if !told && self.folder.is_marked(self.id) {
            record.state = RunState::Cancelled;
        }
        self.folder.write(record, true)?;
        if !told && record.state != RunState::Cancelled && self.folder.is_marked(self.id) {
            record.state = RunState::Cancelled;
            self.folder.write(record, true)?;
        }
        Ok(())
    }

    /// Closes the files and unlocks the run.
    pub(super) fn release(&mut self) {
        self.text = None;
        if self.lock.take().is_some() {
            self.folder
                .remove_parts(self.id, &[Part::Lock, Part::Cancel]);
        }
    }

    pub(super) fn warn(&self, what: &str, error: &io::Error) {
        self.folder.warn(self.id, what, error);
    }
}
