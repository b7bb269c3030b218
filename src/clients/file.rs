//! A client's file: read within bounds, backed up, and replaced in one step.
//!
//! The folder of the file may belong to somebody who changes it at the same time, for example when root edits a user's
//! file. So what is written goes through the opened file, a new file never replaces somebody else's, and the folder is
//! opened once and not looked up again.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::os::files::{create_private, open_plain, text, unreadable};

/// Largest file that is edited, in bytes.
const MAX_FILE: u64 = 8 << 20;
/// The mode of a file that may hold a key.
const PRIVATE: u32 = 0o600;
/// Most backups of one file.
const MAX_BACKUPS: u32 = 1000;

/// A client's file as it was read.
pub(super) struct ClientFile {
    /// The absolute path of the file itself, links followed.
    pub(super) path: PathBuf,
    /// Whether a link leads to it.
    pub(super) is_link: bool,
    /// Its text; `None` if it does not exist.
    pub(super) text: Option<String>,
}

/// Reads a file.
///
/// # Errors
/// Why it cannot be edited; nothing has been changed.
pub(super) fn find(path: &Path) -> Result<ClientFile, String> {
    let is_link = path.is_symlink();
    let (path, text) = match fs::canonicalize(path) {
        Ok(path) => (path.clone(), Some(read(&path)?.0)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unreadable(error)),
        Err(_) if is_link => return Err("it is a link to a file that is not there".into()),
        Err(_) => (std::path::absolute(path).map_err(unreadable)?, None),
    };
    Ok(ClientFile {
        path,
        is_link,
        text,
    })
}

/// The text of a plain file, and what the opened file is.
fn read(path: &Path) -> Result<(String, Metadata), String> {
    let file = open_plain(path, OpenOptions::new().read(true)).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if facts.permissions().readonly() {
        return Err("it is read-only".into());
    }
    Ok((text(file, MAX_FILE)?, facts))
}

impl ClientFile {
    /// Its backups and their texts.
    pub(super) fn backups(&self) -> Vec<(PathBuf, String)> {
        let with_text = |path: PathBuf| Some((path.clone(), read(&path).ok()?.0));
        backups(&self.path).filter_map(with_text).collect()
    }

    /// Writes `text` to the file, or creates it; removes it without one. A file that others could read is private from then
    /// on if `is_secret`. Returns the path of the backup, which only the owner can read, if there was a file.
    ///
    /// # Errors
    /// Why that failed; the file is unchanged.
    pub(super) fn replace(
        &self,
        text: Option<&str>,
        is_secret: bool,
    ) -> Result<Option<PathBuf>, String> {
        let folder = self.path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder)
            .and_then(|()| std::env::set_current_dir(folder))
            .map_err(|error| format!("its folder cannot be created or opened: {error}"))?;
        // Others who write at the same time wait here. Windows cannot open a folder: there, only the next check helps.
        let _locked = File::open(".").inspect(|folder| drop(folder.lock()));
        let unwritable = |error| format!("it cannot be written: {error}");
        let file = Path::new(self.path.file_name().unwrap_or_default());
        let there = file.symlink_metadata().is_ok();
        let now = there.then(|| read(file)).transpose()?;
        if now.as_ref().map(|(now, _)| now) != self.text.as_ref() {
            // Another program's change must not be lost.
            return Err("somebody changed it in the meantime; try again".into());
        }
        let Some((before, old)) = now else {
            // Root makes it for the folder's owner.
            let written = fs::metadata(".").and_then(|folder| {
                create_private(file, text.unwrap_or_default(), |new| {
                    take_after(new, &folder, PRIVATE)
                })
            });
            return written.map(|()| None).map_err(unwritable);
        };
        let mut backups = backups(file);
        let backup = backups.find(|path| fs::symlink_metadata(path).is_err());
        let backup = backup.ok_or("there are too many backups of it already")?;
        create_private(&backup, &before, |new| take_after(new, &old, PRIVATE))
            .map_err(|error| format!("no backup can be made of it: {error}"))?;
        let new = beside(file, &format!(".{}.new", std::process::id()));
        let mask = if is_secret { PRIVATE } else { 0o777 };
        let write = |text| {
            create_private(&new, text, |new| take_after(new, &old, mask))?;
            fs::rename(&new, file).inspect_err(|_| drop(fs::remove_file(&new)))
        };
        let written = text.map_or_else(|| fs::remove_file(file), write);
        if let Err(error) = written {
            let _ = fs::remove_file(&backup);
            return Err(unwritable(error));
        }
        Ok(Some(folder.join(backup)))
    }
}

/// The paths that its backups may have, in this order. They have another extension: some clients read every file of a
/// folder.
fn backups(file: &Path) -> impl Iterator<Item = PathBuf> {
    let others = (2..=MAX_BACKUPS).map(|number| beside(file, &format!(".backup-{number}")));
    std::iter::once(beside(file, ".backup")).chain(others)
}

fn beside(file: &Path, more: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// Gives a new file the owner, the group and those bits of the mode of another.
#[cfg(unix)]
fn take_after(new: &File, other: &Metadata, mut mask: u32) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    // This matters to root. For other users it fails, but they are usually the owner.
    let _ = fchown(new, Some(other.uid()), None);
    if fchown(new, None, Some(other.gid())).is_err() {
        // The file belongs to another group, which must not be able to read the new one.
        mask &= 0o707;
    }
    new.set_permissions(fs::Permissions::from_mode(other.mode() & mask))
}

#[cfg(not(unix))]
fn take_after(_: &File, _: &Metadata, _: u32) -> io::Result<()> {
    Ok(())
}
