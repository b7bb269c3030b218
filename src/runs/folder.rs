//! The state folder: how its files are named, created, read and removed.
//!
//! ```text
//!   <xx>/<id>.json      the record: written to <id>.json.tmp, synced, renamed
//!   <xx>/<id>.txt       the text, appended; made when there is some
//!   <xx>/<id>.lock      locked while its owner works on it (see `files`)
//!   <xx>/<id>.cancel    another process wants it to stop; counts while the record says `working`
//! ```
//!
//! `<xx>` are the first two digits of the id: with many runs, a scan for changes of other processes reads a few of 256
//! small folders instead of 20,000 names. They are never removed: another process may be about to create a file in one.
//!
//! Other processes may share the folder, and may die between any two steps. So every file is checked before use: links
//! are not followed, nothing that blocks is opened, no length is trusted. Files with other names are ignored.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sync::lock;

use super::record::{Record, RunId, RunState, VERSION};
use super::text::{self, Span};
use crate::time as clock;

/// Largest metadata file, in bytes.
const MAX_RECORD: u64 = 1 << 20;
/// Most that is read of a text file, in bytes; more than any run can have.
const MAX_TEXT: u64 = 64 << 20;
/// How many folders the files are spread over.
pub(super) const SHARDS: usize = 256;
/// Files without a run are removed once they are this old: until then a process may be about to write the rest.
const ORPHAN: Duration = Duration::from_secs(600);

/// A file of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Record,
    Text,
    Lock,
    Cancel,
    /// The record, half written.
    Half,
}

impl Part {
    pub(super) const ALL: [Part; 5] = [
        Part::Record,
        Part::Text,
        Part::Lock,
        Part::Cancel,
        Part::Half,
    ];

    fn name(self) -> &'static str {
        match self {
            Part::Record => "json",
            Part::Text => "txt",
            Part::Lock => "lock",
            Part::Cancel => "cancel",
            Part::Half => "json.tmp",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The files that a run has.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts(u8);

impl Parts {
    pub(super) fn has_record(self) -> bool {
        self.0 & Part::Record.bit() != 0
    }

    /// Are there some that a finished run does not need?
    pub(super) fn has_left_overs(self) -> bool {
        self.0 & !(Part::Record.bit() | Part::Text.bit()) != 0
    }
}

/// The result of reading a metadata file.
pub(super) enum FoundRun {
    Record(Box<Loaded>),
    /// There is none, or what there is can never be read.
    Nothing,
    /// Of another version of this program, or not readable now.
    Unknown,
}

impl FoundRun {
    fn settled(record: Record) -> FoundRun {
        FoundRun::Record(Box::new(Loaded {
            record,
            held: false,
        }))
    }
}

/// A run as the files have it.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) record: Record,
    /// Its owner is working on it.
    pub(super) held: bool,
}

/// A folder in which runs are kept.
pub(crate) struct Folder {
    path: PathBuf,
    /// A failed write was logged; the next is not until one has succeeded.
    warned: AtomicBool,
    /// Held while a lock is tried.
    trying: Mutex<()>,
}

impl Folder {
    /// Creates the folder if it does not exist, and checks that it can be used.
    ///
    /// # Errors
    /// Why runs cannot be kept there, and what to do.
    pub(crate) fn open(path: &Path) -> Result<Arc<Folder>, String> {
        let shown = path.display();
        let failed = |error: io::Error| format!("the state folder {shown} cannot be used: {error}");
        builder().recursive(true).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        let folder = Folder {
            path,
            warned: AtomicBool::new(false),
            trying: Mutex::default(),
        };
        let others = folder.access_of_others().map_err(failed)?;
        if others & 0o022 != 0 {
            return Err(format!(
                "the state folder {shown} is not used, since others can write to it: chmod 700 {shown}"
            ));
        }
        if others & 0o055 != 0 {
            log::warn!(
                "others can list the state folder {shown}, and where nobody logs in the names are the keys: chmod 700 {shown}"
            );
        }
        if !folder.has_locks().map_err(failed)? {
            return Err(format!(
                "the state folder {shown} is not used, since its file system has no file locks: use a folder on a local disk"
            ));
        }
        Ok(Arc::new(folder))
    }

    /// What others than we may do in it, as bits of a Unix mode.
    fn access_of_others(&self) -> io::Result<u32> {
        #[cfg(unix)]
        return Ok(std::os::unix::fs::MetadataExt::mode(&fs::metadata(&self.path)?) & 0o077);
        #[cfg(not(unix))]
        Ok(0)
    }

    /// Does the file system have locks? One that is held must be refused to the next caller.
    fn has_locks(&self) -> io::Result<bool> {
        let probe = RunId::new();
        let first = self.create(probe, Part::Lock)?;
        let works = first.try_lock().is_ok() && matches!(self.claim(probe), Ok(LockClaim::Held));
        self.remove_parts(probe, &[Part::Lock]);
        Ok(works)
    }

    fn shard(&self, shard: u8) -> PathBuf {
        self.path.join(format!("{shard:02x}"))
    }

    fn file(&self, id: RunId, part: Part) -> PathBuf {
        self.shard(id.shard()).join(format!("{id}.{}", part.name()))
    }

    /// Creates a file that only this user can read.
    pub(super) fn create(&self, id: RunId, part: Part) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // Windows locks only files that are open for reading.
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let path = self.file(id, part);
        match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match builder().create(self.shard(id.shard())) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                    _ => sync(&self.path)?,
                }
                options.open(path)
            }
            opened => opened,
        }
    }

    /// The file, if it is a regular one: no link, and nothing that blocks.
    fn plain(&self, id: RunId, part: Part) -> Option<Metadata> {
        fs::symlink_metadata(self.file(id, part))
            .ok()
            .filter(Metadata::is_file)
    }

    /// Replaces the record atomically; `durable`: it is synced to disk.
    pub(super) fn write(&self, record: &Record, durable: bool) -> io::Result<()> {
        let json = serde_json::to_vec(record)?;
        if json.len() as u64 > MAX_RECORD {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "its result is too large",
            ));
        }
        self.remove_parts(record.id, &[Part::Half]);
        let written = self.create(record.id, Part::Half).and_then(|mut file| {
            file.write_all(&json)?;
            if durable { file.sync_all() } else { Ok(()) }
        });
        let written = written
            .and_then(|()| {
                fs::rename(
                    self.file(record.id, Part::Half),
                    self.file(record.id, Part::Record),
                )
            })
            .and_then(|()| {
                if durable {
                    sync(&self.shard(record.id.shard()))
                } else {
                    Ok(())
                }
            });
        if written.is_err() {
            self.remove_parts(record.id, &[Part::Half]);
        }
        written
    }

    /// Reads a run, and settles it if its owner has died: it becomes `interrupted`.
    pub(super) fn load(&self, id: RunId, today: u64) -> FoundRun {
        let record = match self.read(id) {
            Ok(record) => record,
            Err(found) => return found,
        };
        if record.state != RunState::Working {
            return FoundRun::settled(self.checked(record));
        }
        // One at a time: a lock that is held must be the owner's, and not that of another thread here.
        let _trying = lock(&self.trying);
        match self.claim(id) {
            // It may have ended in between: its end was written before the lock was given up.
            Ok(claim @ (LockClaim::Ours(_) | LockClaim::NoFile)) => match self.read(id) {
                Ok(record) if record.state == RunState::Working => {
                    let record = self.settle(record, today);
                    drop(claim);
                    FoundRun::settled(record)
                }
                Ok(record) => FoundRun::settled(self.checked(record)),
                Err(found) => found,
            },
            Ok(LockClaim::Held) | Err(_) => FoundRun::Record(Box::new(Loaded {
                record: self.current(record),
                held: true,
            })),
        }
    }

    fn read(&self, id: RunId) -> Result<Record, FoundRun> {
        let path = self.file(id, Part::Record);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() <= MAX_RECORD => {}
            Ok(_) => return Err(FoundRun::Nothing),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(FoundRun::Nothing),
            Err(_) => return Err(FoundRun::Unknown),
        }
        let mut json = Vec::new();
        match File::open(&path).and_then(|file| file.take(MAX_RECORD + 1).read_to_end(&mut json)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(FoundRun::Nothing),
            Err(_) => return Err(FoundRun::Unknown),
        }
        #[derive(serde::Deserialize)]
        struct FileVersion {
            version: u32,
        }
        match (
            serde_json::from_slice(&json),
            serde_json::from_slice::<Record>(&json),
        ) {
            (Ok(FileVersion { version }), _) if version != VERSION => Err(FoundRun::Unknown),
            (_, Ok(record)) if record.id == id => Ok(record),
            _ => Err(FoundRun::Nothing),
        }
    }

    /// A finished record whose text is too short has lost it, by a power cut or by somebody's hand.
    fn checked(&self, mut record: Record) -> Record {
        if self
            .plain(record.id, Part::Text)
            .map_or(0, |text| text.len())
            < record.bytes
        {
            record.state = RunState::Interrupted;
            self.measure(&mut record);
        }
        record
    }

    /// A working record with what is in its files by now. Its characters are not counted yet.
    fn current(&self, mut record: Record) -> Record {
        record.bytes = self.text_length(record.id);
        if let Some(text) = self
            .plain(record.id, Part::Text)
            .and_then(|text| text.modified().ok())
        {
            record.updated = record.updated.max(clock::milliseconds(text));
        }
        if let Some(mark) = self.plain(record.id, Part::Cancel) {
            let at = mark.modified().map_or(record.updated, clock::milliseconds);
            record.state = RunState::Cancelled;
            record.updated = record.updated.max(at);
            record.ended = Some(record.updated);
        }
        record
    }

    /// Ends a run whose owner has died. Call it with its lock held. It ends now, so that it is kept as long as any
    /// other.
    fn settle(&self, mut record: Record, today: u64) -> Record {
        let id = record.id;
        record.state = if self.is_marked(id) {
            RunState::Cancelled
        } else {
            RunState::Interrupted
        };
        record.updated = today;
        record.ended = Some(today);
        self.measure(&mut record);
        match self.write(&record, true) {
            Ok(()) => self.remove_parts(id, &[Part::Lock, Part::Cancel]),
            Err(error) => self.warn(id, "that it was interrupted could not be written", &error),
        }
        record
    }

    fn measure(&self, record: &mut Record) {
        record.bytes = self.text_length(record.id);
        record.chars = self.count(record.id, record.bytes);
    }

    /// Bytes of text without a character that is cut at the end.
    fn text_length(&self, id: RunId) -> u64 {
        let length = self
            .plain(id, Part::Text)
            .map_or(0, |text| text.len().min(MAX_TEXT));
        let tail = self.bytes(id, length.saturating_sub(4), 4.min(length));
        length - (tail.len() - text::whole(&tail)) as u64
    }

    /// Characters in the first `bytes` of the text.
    pub(super) fn count(&self, id: RunId, bytes: u64) -> u64 {
        let mut chars = 0;
        self.pieces(id, bytes, |piece| {
            chars += text::count(piece) as u64;
            true
        });
        chars
    }

    /// A part of a text of `bytes`: from byte `from` on, `most` bytes at most, between characters.
    pub(super) fn read_text(&self, id: RunId, bytes: u64, from: u64, most: u64) -> String {
        let read = self.bytes(id, from, most.min(bytes.saturating_sub(from)));
        let begin = if from == 0 { 0 } else { text::begin(&read) };
        text::text(read[begin..].to_vec())
    }

    /// A part of a text of `bytes`: `most` characters after the first `skip`.
    pub(super) fn read_chars(&self, id: RunId, bytes: u64, skip: usize, most: usize) -> String {
        let (mut span, mut out) = (Span::new(skip, most), Vec::new());
        self.pieces(id, bytes, |piece| span.take(piece, &mut out));
        text::text(out)
    }

    fn bytes(&self, id: RunId, from: u64, most: u64) -> Vec<u8> {
        let mut read = Vec::new();
        if most > 0 && self.plain(id, Part::Text).is_some() {
            // Unreadable text counts as none.
            let _ = File::open(self.file(id, Part::Text)).and_then(|mut file| {
                file.seek(SeekFrom::Start(from))?;
                file.take(most.min(MAX_TEXT)).read_to_end(&mut read)
            });
        }
        read
    }

    fn pieces(&self, id: RunId, bytes: u64, mut take: impl FnMut(&[u8]) -> bool) {
        if self.plain(id, Part::Text).is_none() {
            return;
        }
        let Ok(mut file) =
            File::open(self.file(id, Part::Text)).map(|file| file.take(bytes.min(MAX_TEXT)))
        else {
            return;
        };
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = file.read(&mut piece) {
            if !take(&piece[..length]) {
                return;
            }
        }
    }

    fn claim(&self, id: RunId) -> io::Result<LockClaim> {
        if self.plain(id, Part::Lock).is_none() {
            return Ok(LockClaim::NoFile);
        }
        let file = match OpenOptions::new()
            .write(true)
            .open(self.file(id, Part::Lock))
        {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LockClaim::NoFile),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => Ok(LockClaim::Ours(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(LockClaim::Held),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Asks the owner of a run to stop it. True if it will, unless it had just ended and could not write that; false if
    /// it has ended.
    ///
    /// # Errors
    /// It works, and the mark could not be written; or it cannot be read.
    pub(super) fn cancel(&self, id: RunId, today: u64) -> io::Result<bool> {
        let works = |loaded: &Loaded| loaded.held && loaded.record.state == RunState::Working;
        let unreadable = || Err(io::Error::other("it cannot be read"));
        match self.load(id, today) {
            FoundRun::Record(loaded) if works(&loaded) => {}
            FoundRun::Record(_) | FoundRun::Nothing => return Ok(false),
            FoundRun::Unknown => return unreadable(),
        }
        let marked = self.mark(id);
        // The owner looks for the marker after it has written the end, so if that is not written yet, it sees it.
        match self.read(id) {
            Ok(record) if record.state == RunState::Working => marked.map(|()| true),
            Err(FoundRun::Unknown) => unreadable(),
            Ok(_) | Err(_) => {
                self.remove_parts(id, &[Part::Cancel]);
                Ok(false)
            }
        }
    }

    pub(super) fn mark(&self, id: RunId) -> io::Result<()> {
        match self.create(id, Part::Cancel) {
            Err(error) if !self.is_marked(id) => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn is_marked(&self, id: RunId) -> bool {
        self.plain(id, Part::Cancel).is_some()
    }

    /// Removes all of a run. The record goes first: without it, nobody looks for the rest.
    pub(super) fn remove(&self, id: RunId) {
        self.remove_parts(id, &Part::ALL);
    }

    pub(super) fn remove_parts(&self, id: RunId, parts: &[Part]) {
        for part in parts {
            // Fails mostly because it does not exist. A folder of that name stays.
            let _ = fs::remove_file(self.file(id, *part));
        }
    }

    /// Removes these parts of a run where they are old, unless somebody holds its lock.
    pub(super) fn remove_orphans(&self, id: RunId, parts: &[Part]) {
        if matches!(self.claim(id), Ok(LockClaim::Held)) {
            return;
        }
        for part in parts {
            let modified =
                fs::symlink_metadata(self.file(id, *part)).and_then(|found| found.modified());
            if modified.is_ok_and(|modified| clock::age(modified) > ORPHAN) {
                self.remove_parts(id, &[*part]);
            }
        }
    }

    /// Every run that has files in one of the folders, with what files.
    pub(super) fn names(&self, shard: u8) -> io::Result<HashMap<RunId, Parts>> {
        let mut names: HashMap<RunId, Parts> = HashMap::new();
        let entries = match fs::read_dir(self.shard(shard)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let Some((id, part)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let part = Part::ALL.into_iter().find(|known| known.name() == part);
            if let (Some(id), Some(part)) =
                (RunId::parse(id).filter(|id| id.shard() == shard), part)
            {
                names.entry(id).or_default().0 |= part.bit();
            }
        }
        Ok(names)
    }

    /// A value that changes when a file is created, removed or replaced in one of the folders; `None` while that is not
    /// reliable.
    pub(super) fn stamp(&self, shard: u8) -> Option<u64> {
        let modified = match fs::metadata(self.shard(shard)).and_then(|folder| folder.modified()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(0),
            modified => modified.ok()?,
        };
        // Another change could have the same time: file systems round it, some to whole seconds.
        let stamp = clock::nanoseconds(modified);
        let step = if stamp.is_multiple_of(1_000_000_000) {
            Duration::from_secs(3)
        } else {
            Duration::from_millis(50)
        };
        (clock::age(modified) > step).then_some(stamp)
    }

    /// Logs that the files of a run could not be written; the run goes on in memory.
    pub(super) fn warn(&self, id: RunId, what: &str, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "run {id}: {what} to the state folder: {error}. Until that works again, runs are kept in memory only."
            );
        }
    }

    pub(super) fn is_well(&self) {
        self.warned.store(false, Ordering::Relaxed);
    }
}

/// Creates folders that only this user can open.
fn builder() -> DirBuilder {
    #[allow(unused_mut, reason = "without modes there is nothing to set")]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Makes changed names in the folder durable. Only Unix can open a folder.
fn sync(#[cfg_attr(not(unix), expect(unused_variables))] folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return match File::open(folder)?.sync_all() {
        // Some file systems do not support it.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    };
    #[cfg(not(unix))]
    Ok(())
}

/// The result of trying an owner's lock, which is held until this is dropped.
enum LockClaim {
    Ours(#[allow(dead_code, reason = "held, not read")] File),
    Held,
    NoFile,
}
