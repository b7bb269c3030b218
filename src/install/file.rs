//! A client's file: read within bounds, backed up, and replaced in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file that is edited, in bytes.
const MAX_FILE: u64 = 8 << 20;
/// Most backups of one file.
const MAX_BACKUPS: u32 = 1000;

/// A file as it was found.
#[derive(Debug)]
pub(super) struct Found {
    /// The file itself, links followed.
    pub(super) path: PathBuf,
    /// Its text; `None` if it does not exist.
    pub(super) text: Option<String>,
    /// Its folder, if that does not exist either.
    pub(super) missing_folder: Option<PathBuf>,
}

/// Reads a file.
///
/// # Errors
/// Why it cannot be edited; nothing has been changed.
pub(super) fn find(path: &Path) -> Result<Found, String> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                return Err(
                    "it is a link to a file that is not there; make that file or remove the link"
                        .into(),
                );
            }
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let missing_folder = folder.filter(|folder| !folder.is_dir()).map(Path::to_owned);
            return Ok(Found {
                path: path.to_owned(),
                text: None,
                missing_folder,
            });
        }
        Err(error) => return Err(format!("it cannot be read: {error}")),
    };
    let unreadable = |error: io::Error| format!("it cannot be read: {error}");
    let facts = fs::metadata(&path).map_err(unreadable)?;
    if !facts.is_file() {
        return Err("it is not a file".into());
    }
    if facts.permissions().readonly() {
        return Err("it is read-only; make it writable first".into());
    }
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!(
            "it is larger than {} MiB; add the entry by hand",
            MAX_FILE >> 20
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8; save it as UTF-8 first")?;
    Ok(Found {
        path,
        text: Some(text),
        missing_folder: None,
    })
}

impl Found {
    /// Writes `text` to the file, or creates it. Returns the path of the backup, if there was a file.
    ///
    /// # Errors
    /// Why that failed; the file is as it was.
    pub(super) fn replace(&self, text: &str) -> Result<Option<PathBuf>, String> {
        if let Some(folder) = &self.missing_folder {
            fs::create_dir_all(folder)
                .map_err(|error| format!("its folder cannot be made: {error}"))?;
        }
        let backup = match &self.text {
            None => None,
            Some(before) => {
                // Another program's change must not be lost.
                if fs::read(&self.path).ok().as_deref() != Some(before.as_bytes()) {
                    return Err("it was changed meanwhile; try again".into());
                }
                Some(
                    self.back_up(before)
                        .map_err(|error| format!("no backup can be made of it: {error}"))?,
                )
            }
        };
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = self.path.with_file_name(name);
        let written = self.write(&new, text).and_then(|()| match &self.text {
            Some(_) => fs::rename(&new, &self.path),
            // A file created meanwhile is not overwritten.
            None => match fs::hard_link(&new, &self.path) {
                Ok(()) => fs::remove_file(&new),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                // Not every file system has links.
                Err(_) => fs::rename(&new, &self.path),
            },
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            if let Some(backup) = &backup {
                let _ = fs::remove_file(backup);
            }
            return Err(format!("it cannot be written: {error}"));
        }
        Ok(backup)
    }

    /// Writes a new file with the mode and the owner of the old one.
    fn write(&self, new: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(new)?;
        if self.text.is_some() {
            let facts = fs::metadata(&self.path)?;
            #[cfg(unix)]
            {
                use std::os::unix::fs::{MetadataExt, fchown};
                // Matters to root; fails for others, who mostly are the owner.
                let _ = fchown(&file, Some(facts.uid()), Some(facts.gid()));
            }
            fs::set_permissions(new, facts.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Writes a backup beside the file. It has another extension: some clients read every file of a folder.
    fn back_up(&self, text: &str) -> io::Result<PathBuf> {
        let name = self.path.file_name().unwrap_or_default();
        for number in 1..=MAX_BACKUPS {
            let mut name = name.to_owned();
            name.push(if number == 1 {
                ".backup".to_owned()
            } else {
                format!(".backup-{number}")
            });
            let backup = self.path.with_file_name(name);
            match self.write(&backup, text) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| backup),
            }
        }
        Err(io::Error::other("there are too many already"))
    }
}
