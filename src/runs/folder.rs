//! The state folder: who may change it, how its files are created, read and removed.
//!
//! ```text
//!   <id>.txt       the text, appended; made first, never renamed, and locked while a process works on the run
//!   <id>.json      the record: written to <id>.tmp, synced, renamed
//!   <id>.cancel    another process wants it to stop; counts while the record says `working`
//! ```
//!
//! A run that is working but whose text is not locked has lost its process. The first process that finds it makes it
//! `interrupted`.
//!
//! Other processes of fabric-mcp may share the folder, and may die between any two steps. Other users cannot change the
//! folder, or the folders on the way to it. Even so, no link in it is followed, only plain files are opened, and no
//! length is trusted. Files with other names are ignored.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::encoding::json::decode;
use crate::os::files::{create, is_same, open_plain};
use crate::sync::lock;
use crate::text::unusable;
use crate::time::{milliseconds, milliseconds_now, next_month, timestamp};

use super::ledger::{LedgerLine, LedgerState, estimate, line};
use super::record::{Record, RunId, RunState, VERSION};
use super::table::REFRESH;
use super::{PIECE, pieces};

/// Largest record, in bytes: more than the partial outputs and warnings of the longest chain take as JSON.
const MAX_RECORD: u64 = 6 << 20;
/// Files without a run are removed once they are this old: until then a process may be about to write the rest.
const ORPHAN: Duration = Duration::from_secs(600);

/// The endings of a run's files.
pub(super) const RECORD: &str = "json";
pub(super) const TEXT: &str = "txt";
pub(super) const CANCEL: &str = "cancel";
/// The record, half written.
const HALF: &str = "tmp";
/// All files of a run. The record is the first, because without it nobody looks for the others.
pub(super) const ALL: [&str; 4] = [RECORD, TEXT, CANCEL, HALF];

/// On Windows a lock would also keep other processes from reading. There, a text is opened in such a way that they may
/// read and remove it (`FILE_SHARE_READ` and `FILE_SHARE_DELETE`).
#[cfg(windows)]
const SHARED: u32 = 1 | 4;
/// The error that others get there if they open such a text for writing.
const SHARING_VIOLATION: i32 = 32;

/// A folder in which runs are kept.
#[derive(Default)]
pub(crate) struct Folder {
    pub(super) path: PathBuf,
    /// See `ledger`.
    pub(super) ledger: Mutex<LedgerState>,
    /// Whether another process has kept the ledger's lock for too long: nobody waits for it again until it lets go.
    /// Held during that wait, and locked before `ledger`.
    pub(super) is_held: Mutex<bool>,
    /// A record or a line has been written since the last write that failed.
    pub(super) has_written: AtomicBool,
    /// A write has failed, and since then not all has been written, or there is room for short records only.
    failing: AtomicBool,
    /// When the log last said that all had been written.
    recovered: Mutex<Option<Instant>>,
    /// Whether the log has said that another version wrote some of its runs.
    is_newer: AtomicBool,
    /// Held while a lock is tried.
    trying: Mutex<()>,
    /// Held while a record is parsed: the values of a long one take a multiple of its length.
    parsing: Mutex<()>,
}

impl Folder {
    /// Creates the folder if it does not exist, and checks that it can be used, and that others cannot change it.
    ///
    /// # Errors
    /// Why runs cannot be kept there, and what to do.
    pub(crate) fn open(given: &Path) -> Result<Arc<Folder>, String> {
        let shown = given.display();
        let failed = |error: io::Error| {
            let why = unusable("folder", given, &error);
            format!("--state-dir: {why}; give a folder that you may write to")
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(given).map_err(failed)?;
        let folder = Folder {
            path: given.canonicalize().map_err(failed)?,
            ..Folder::default()
        };
        let probe = RunId::new();
        let file = folder.create(probe, TEXT).map_err(failed)?;
        #[cfg(unix)]
        let danger = access::danger(given, &folder.path, &file);
        #[cfg(not(unix))]
        let danger: io::Result<Option<String>> = Ok(None);
        // A lock that is held must be refused to the next thread that asks.
        let is_refused = |error: io::Error| error.kind() == ErrorKind::WouldBlock;
        let has_locks = try_lock(&file).is_ok() && folder.claim(probe).is_err_and(is_refused);
        drop(file);
        folder.remove(probe, &ALL);
        let no_locks = "its file system has no file locks: use a folder on a local disk";
        let no_locks = (!has_locks).then(|| no_locks.to_owned());
        match danger.map_err(failed)?.or(no_locks) {
            Some(why) => Err(format!("the state folder {shown} is not used, since {why}")),
            None => Ok(Arc::new(folder)),
        }
    }

    fn file(&self, id: RunId, part: &str) -> PathBuf {
        self.path.join(format!("{id}.{part}"))
    }

    fn create(&self, id: RunId, part: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        #[cfg(windows)]
        if part == TEXT {
            std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, SHARED);
        }
        create(&self.file(id, part), &mut options)
    }

    fn plain(&self, id: RunId, part: &str) -> Option<Metadata> {
        let found = fs::symlink_metadata(self.file(id, part)).ok();
        found.filter(Metadata::is_file)
    }

    /// Creates the files of a run that begins, and returns the file of its text, locked.
    pub(super) fn begin(&self, record: &Record) -> io::Result<File> {
        let text = self.create(record.id, TEXT)?;
        let locked = try_lock(&text);
        let begun = locked.and_then(|()| self.write(record, false));
        let removed = |_: &io::Error| self.remove(record.id, &ALL);
        begun.map(|()| text).inspect_err(removed)
    }

    /// Replaces the record atomically; `durable`: it is synced to disk.
    pub(super) fn write(&self, record: &Record, durable: bool) -> io::Result<()> {
        // What a write that failed may have left.
        self.remove(record.id, &[HALF]);
        let mut file = self.create(record.id, HALF)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        if durable {
            file.sync_all()?;
        }
        let [half, whole] = [HALF, RECORD].map(|part| self.file(record.id, part));
        fs::rename(half, whole)?;
        if durable {
            self.sync()?;
            self.has_written.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes changed names durable. Only Unix can open a folder.
    fn sync(&self) -> io::Result<()> {
        #[cfg(unix)]
        match File::open(&self.path)?.sync_all() {
            // Some file systems do not support it.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
            synced => return synced,
        }
        Ok(())
    }

    /// Reads a run, and settles it if its process has died: it gets its lines in the ledger, and becomes `interrupted` if it
    /// was working.
    ///
    /// # Errors
    /// See [`is_gone`].
    pub(super) fn load(&self, id: RunId) -> io::Result<Record> {
        let mut record = self.read(id)?;
        if !record.is_settled() {
            // One at a time: a lock that is held must be that of the run's process, and not of another thread here.
            let _trying = lock(&self.trying);
            let Ok(_lock) = self.claim(id) else {
                self.update(&mut record);
                return Ok(record);
            };
            // The run may have ended in between: its end is written before the lock is given up.
            record = self.read(id)?;
            if !record.is_settled() {
                self.settle(&mut record);
            }
        }
        // If the text of a finished run is too short, somebody has cut it.
        if record.chars.is_none() || self.text_length(id) < record.bytes {
            record.state = RunState::Interrupted;
            self.measure(&mut record);
        }
        Ok(record)
    }

    fn read(&self, id: RunId) -> io::Result<Record> {
        let open = || open_plain(&self.file(id, RECORD), OpenOptions::new().read(true));
        // Another file may have been put in its place in the meantime.
        let file = open().or_else(|_| open())?;
        let length = file.metadata()?.len();
        if length > MAX_RECORD {
            return Err(ErrorKind::InvalidData.into());
        }
        let _parsing = lock(&self.parsing);
        let mut json = Vec::new();
        file.take(length).read_to_end(&mut json)?;
        let is_ours = |record: &Record| record.id == id && record.version == VERSION;
        let record = decode(&json).filter(is_ours);
        record.ok_or_else(|| {
            let other = decode::<Value>(&json).unwrap_or_default();
            let version = &other["version"];
            match version.is_number() && *version != VERSION {
                true => ErrorKind::Unsupported.into(),
                false => ErrorKind::InvalidData.into(),
            }
        })
    }

    /// Brings the record of a run that is not settled up to date with its files. The characters of its text are not counted.
    fn update(&self, record: &mut Record) {
        let id = record.id;
        let modified = |part| self.plain(id, part)?.modified().ok().map(milliseconds);
        let [text, mark] = [TEXT, CANCEL].map(modified);
        if mark.is_some() {
            record.state = RunState::Cancelled;
        }
        record.updated = record.updated.max(text.max(mark).unwrap_or(0));
        record.bytes = self.text_length(id);
        // Even if it has ended, so that it is read again until all its lines are written.
        (record.chars, record.ended) = (None, None);
    }

    /// Ends a run whose process has died. Call it with its lock held. It ends now, so that it is kept as long as any
    /// other.
    fn settle(&self, record: &mut Record) {
        let (now, mut lines) = (milliseconds_now(), take(&mut record.lines));
        // The step may have ended after a month did, and the clock may have been set back since.
        let times = [record.updated, now].map(|at| [timestamp(at), next_month(at)]);
        if record.state == RunState::Working {
            self.update(record);
            let end = match record.state {
                RunState::Working => RunState::Interrupted,
                cancelled => cancelled,
            };
            let ended = record.updated.min(now);
            record.end(end, now);
            self.measure(record);
            lines.extend(record.asked.take().map(|asked| {
                // There is no text before the last step.
                let written = estimate(record.chars.unwrap_or(0));
                line(ended, record, &asked, end.name(), Err([0, written]))
            }));
        }
        // A damaged file may say anything.
        lines.retain(|line| LedgerLine::parse(line).is_some() && line.is_char_boundary(7));
        let fails = |line: &String| self.account_dead(line, times.as_flattened()).is_err();
        if lines.iter().any(fails) {
            // The next process that finds the run tries again.
            record.ended = None;
            return;
        }
        match self.write(record, true) {
            Ok(()) => self.remove(record.id, &[CANCEL]),
            Err(error) => {
                let what = "could not write that it was interrupted";
                self.warn(record.id, what, &error);
            }
        }
    }

    fn measure(&self, record: &mut Record) {
        record.bytes = self.text_length(record.id);
        record.chars = Some(self.count(record.id, record.bytes));
    }

    /// Is this open file still the text of the run? It may have been removed, with the folder or alone.
    pub(super) fn has_text(&self, id: RunId, text: &File) -> bool {
        let open = text.metadata();
        self.plain(id, TEXT)
            .is_some_and(|found| open.is_ok_and(|open| is_same(&found, &open)))
    }

    /// Bytes of text without a character that is cut at the end.
    fn text_length(&self, id: RunId) -> u64 {
        let length = self.plain(id, TEXT).map_or(0, |text| text.len());
        let tail = self.read_text(id, length.saturating_sub(4), 4.min(length));
        length - pieces::cut(&tail) as u64
    }

    /// Characters in the first `bytes` of a text.
    pub(super) fn count(&self, id: RunId, bytes: u64) -> u64 {
        let (mut from, mut chars) = (0, 0);
        loop {
            let piece = self.read_text(id, from, (bytes - from).min(PIECE as u64));
            if piece.is_empty() {
                return chars;
            }
            from += piece.len() as u64;
            chars += pieces::count(&piece);
        }
    }

    /// At most `most` bytes of a text from byte `from` on. Unreadable text counts as none.
    pub(super) fn read_text(&self, id: RunId, from: u64, most: u64) -> Vec<u8> {
        let mut read = Vec::new();
        if let Ok(mut file) = open_plain(&self.file(id, TEXT), OpenOptions::new().read(true))
            && file.seek(SeekFrom::Start(from)).is_ok()
        {
            let _ = file.take(most).read_to_end(&mut read);
        }
        read
    }

    /// Locks a run that no process works on; `None` if there is no text to lock.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]: one does. Others: that cannot be known.
    fn claim(&self, id: RunId) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        #[cfg(windows)]
        std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, SHARED);
        match open_plain(&self.file(id, TEXT), options.write(true)) {
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) if cfg!(windows) && error.raw_os_error() == Some(SHARING_VIOLATION) => {
                Err(ErrorKind::WouldBlock.into())
            }
            opened => opened.and_then(|file| try_lock(&file).map(|()| Some(file))),
        }
    }

    /// Asks the process of a run to stop it. True if it will, unless it had just ended and could not write that; false
    /// if it has ended.
    ///
    /// # Errors
    /// The run is working, and the mark could not be written; or the run cannot be read.
    pub(super) fn cancel(&self, id: RunId) -> io::Result<bool> {
        let works = |found: io::Result<Record>| match found {
            Err(error) if !is_gone(&error) => Err(error),
            found => Ok(found.is_ok_and(|record| record.state == RunState::Working)),
        };
        if !works(self.load(id))? {
            return Ok(false);
        }
        let marked = self.mark(id);
        // The process of the run looks for the mark after it has written the end. So if the end is not written yet,
        // that process will see the mark.
        if works(self.read(id))? {
            return marked.map(|()| true);
        }
        self.remove(id, &[CANCEL]);
        Ok(false)
    }

    pub(super) fn mark(&self, id: RunId) -> io::Result<()> {
        let made = self.create(id, CANCEL).map(drop);
        made.or_else(|error| self.is_marked(id).then_some(()).ok_or(error))
    }

    pub(super) fn is_marked(&self, id: RunId) -> bool {
        self.plain(id, CANCEL).is_some()
    }

    /// Removes these files of a run.
    pub(super) fn remove(&self, id: RunId, parts: &[&str]) {
        for part in parts {
            // Fails mostly because it does not exist. A folder of that name stays.
            let _ = fs::remove_file(self.file(id, part));
        }
    }

    /// Removes the old files of a run that has no record, unless a process works on it.
    pub(super) fn remove_orphan(&self, id: RunId) {
        if self.claim(id).is_err() {
            return;
        }
        for part in ALL {
            let found = fs::symlink_metadata(self.file(id, part));
            let age = found.and_then(|found| found.modified());
            if age.is_ok_and(|modified| modified.elapsed().unwrap_or_default() > ORPHAN) {
                self.remove(id, &[part]);
            }
        }
    }

    /// Every run that has files, and whether its record is among them.
    pub(super) fn names(&self) -> io::Result<HashMap<RunId, bool>> {
        let mut names = HashMap::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if let Some((id, ending)) = name.to_str().and_then(|name| name.split_once('.'))
                && let Some(id) = RunId::parse(id)
                && ALL.contains(&ending)
            {
                *names.entry(id).or_insert(false) |= ending == RECORD;
            }
        }
        Ok(names)
    }

    /// Logs that the files of a run could not be written; the run goes on in memory.
    pub(super) fn warn(&self, id: RunId, what: &str, error: &io::Error) {
        self.has_written.store(false, Ordering::Relaxed);
        if !self.failing.swap(true, Ordering::Relaxed) {
            log::warn!(
                "run {id}: {what} to the state folder: {error}. Until that works again, what cannot be written is kept in memory only."
            );
        }
    }

    /// Logs, once, that this run is in a format of a later version.
    pub(super) fn warn_newer(&self, id: RunId) {
        if !self.is_newer.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the state folder {} has runs that a newer fabric-mcp wrote, such as {id}: they \
                 are left alone, and cannot be read here. Use that version again, or give another \
                 --state-dir.",
                self.path.display()
            );
        }
    }

    /// Has a write failed?
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Ends the state "failing", if there is room again, and logs it: at most once in a while, since on a full disk the
    /// removal of old runs makes room only for a moment.
    pub(super) fn recovered(&self) {
        let is_due = lock(&self.recovered).is_none_or(|at| at.elapsed() >= REFRESH);
        let works = self.has_written.load(Ordering::Relaxed) && self.is_failing();
        if is_due && works && self.has_room() && self.failing.swap(false, Ordering::Relaxed) {
            *lock(&self.recovered) = Some(Instant::now());
            log::info!("the state folder can be written again");
        }
    }

    /// Whether there is room for more than a short record, which an almost full disk may have.
    fn has_room(&self) -> bool {
        let probe = RunId::new();
        let write = |mut file: File| file.write_all(&[0; PIECE]).and_then(|()| file.sync_all());
        let written = self.create(probe, HALF).and_then(write);
        self.remove(probe, &[HALF]);
        written.is_ok()
    }
}

/// Locks a text for as long as it is open. On Windows, opening the text has done that already.
fn try_lock(text: &File) -> io::Result<()> {
    match cfg!(windows) {
        true => Ok(()),
        false => Ok(text.try_lock()?),
    }
}

/// Is there no run, or only something that can never be read as one? Otherwise the run is of another version, or cannot
/// be read now.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData)
}

/// Who can change the folder, or put something in its place.
#[cfg(unix)]
mod access {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const WRITABLE_BY_OTHERS: u32 = 0o002;
    const WRITABLE_BY_GROUP: u32 = 0o020;
    /// In a folder that all users can write to, each of them can remove only their own files.
    const STICKY: u32 = 0o1000;

    /// Why other users could change what is kept in `folder`, and what to do. `given` is the path as the setting has
    /// it. `probe` is a file that was just created, because std cannot say which user this process has.
    pub(super) fn danger(given: &Path, folder: &Path, probe: &File) -> io::Result<Option<String>> {
        let us = probe.metadata()?.uid();
        let is_trusted = |found: &Metadata| found.uid() == us || found.uid() == 0;
        let (found, shown) = (fs::metadata(folder)?, given.display());
        let is_ours = found.uid() == us;
        let refused = |why: &str| Ok(Some(why.to_owned()));
        if !is_ours && (us == 0 || found.mode() & WRITABLE_BY_GROUP == 0) {
            return refused("it belongs to somebody else: use a folder of your own");
        }
        let remedy = if is_ours { "700" } else { "o=" };
        if found.mode() & WRITABLE_BY_OTHERS != 0 {
            return refused(&format!("others can write to it: chmod {remedy} {shown}"));
        }
        if let Some(link) = foreign_link(&std::path::absolute(given)?, &is_trusted)? {
            let link = link.display();
            let why = "belongs to somebody else: name the folder without this link";
            return refused(&format!("the link {link} {why}"));
        }
        for parent in folder.ancestors().skip(1) {
            let found = fs::metadata(parent)?;
            if found.mode() & STICKY != 0 {
                continue;
            }
            let parent = parent.display();
            if !is_trusted(&found) {
                let why = "which it is in, belongs to somebody else: use a folder elsewhere";
                return refused(&format!("{parent}, {why}"));
            }
            if found.mode() & WRITABLE_BY_OTHERS != 0 {
                log::warn!(
                    "others can write to {parent}, which the state folder is in, and could \
                     replace that folder: chmod o-w {parent}"
                );
            }
        }
        if found.mode() & if is_ours { 0o055 } else { 0o005 } != 0 {
            log::warn!(
                "other users can list the state folder {shown}; where no tokens are set, anyone \
                 who knows a file's name can read its run: chmod {remedy} {shown}"
            );
        }
        Ok(None)
    }

    /// A link that cannot be trusted, on the way to `path` or to the target of a link.
    fn foreign_link(
        path: &Path,
        is_trusted: &dyn Fn(&Metadata) -> bool,
    ) -> io::Result<Option<PathBuf>> {
        for at in path.ancestors() {
            let found = fs::symlink_metadata(at)?;
            if !found.is_symlink() {
                continue;
            }
            if !is_trusted(&found) {
                return Ok(Some(at.to_owned()));
            }
            // This loop ends, because the folder was found on this path.
            let target = at.with_file_name("").join(fs::read_link(at)?);
            if let Some(link) = foreign_link(&target, is_trusted)? {
                return Ok(Some(link));
            }
        }
        Ok(None)
    }
}
