//! Patterns and strategies from folders: `--patterns-dir`.
//!
//! In scope: which files are read, and within which limits. A folder may be a link. Below it links are followed too, as
//! long as they stay inside, and only plain files are opened: a pipe would block, a device may never end. A file that
//! belongs neither to the folder's owner nor to root was put there by somebody else. Only files called system.md, user.md
//! or NAME.json are opened, so nobody gains by changing links meanwhile. What cannot be used is left out, with one warning
//! in the log. Nothing is cached here, so changes are seen at the next request.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::Library;
use crate::config::{MAX_ENTRIES, MAX_FABRIC_BODY, MAX_PATTERN_FILE};
use crate::fabric::{Error, Kind, Name, Strategy};
use crate::os::files::{self, open_plain, unreadable};
use crate::sync::lock;
use crate::text::unusable;

/// Most warnings of one process.
const MAX_WARNINGS: usize = 1000;

/// What a warning mostly says of a file or folder.
const OUT: &str = "leaves out";
/// What to give.
const WANTED: &str = "give a folder that holds NAME/system.md for each pattern, such as \
    ~/.config/fabric/patterns or a git clone of https://github.com/danielmiessler/fabric";

/// Folders of patterns. The first that has a name wins.
#[derive(Default)]
pub(crate) struct Folders {
    /// The paths as they were given, with their links, because what a link leads to may change.
    given: Vec<PathBuf>,
    /// What was logged.
    warned: Mutex<BTreeSet<String>>,
}

impl Folders {
    /// Looks whether each folder has patterns. One of several may still be empty.
    ///
    /// # Errors
    /// One line about the first that has none.
    pub(crate) fn open(given: &[PathBuf]) -> Result<Folders, String> {
        let mut folders = Folders::default();
        let has_patterns = |place: &PathBuf| {
            let mut names = BTreeSet::new();
            folders.list(place, &mut names).is_ok() && !names.is_empty()
        };
        // Itself, in a folder such as Fabric's `data`, or in a checkout of Fabric.
        let place = |dir: &PathBuf| {
            let places = [dir.clone(), dir.join("patterns"), dir.join("data/patterns")];
            places.into_iter().find(has_patterns)
        };
        let found = Vec::from_iter(given.iter().map(place));
        let has_some = found.iter().any(Option::is_some);
        for (dir, place) in given.iter().zip(found) {
            let why = match (place, fs::read_dir(dir)) {
                (Some(place), _) => {
                    folders.given.push(place);
                    continue;
                }
                (None, Ok(_)) if has_some => {
                    folders.warn(OUT, dir, "it has no pattern");
                    folders.given.push(dir.clone());
                    continue;
                }
                (None, Ok(_)) if dir.join("system.md").exists() => format!("{dir:?} is a pattern"),
                (None, Ok(_)) => format!("{dir:?} has no pattern"),
                (None, Err(error)) => unusable("folder", dir, &error),
            };
            return Err(format!("--patterns-dir: {why}; {WANTED}"));
        }
        Ok(folders)
    }

    /// Where they are.
    pub(crate) fn shown(&self) -> String {
        let shown = self.given.iter().flat_map(std::path::absolute);
        Vec::from_iter(shown.map(|dir| dir.display().to_string())).join(", ")
    }

    /// Whether there are strategies.
    pub(crate) fn has_strategies(&self) -> bool {
        !self.strategies().is_empty()
    }

    /// Adds the names of the patterns in a folder. Each pattern is read, because one that cannot be read does not count.
    fn list(&self, dir: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
        let root = dir.canonicalize()?;
        for name in self.entries(&root)? {
            let folder = root.join(&name);
            let path = folder.join("system.md");
            if !names.contains(&name) && self.text(&root, &root, &path).is_some() {
                names.insert(name);
            } else if !self.given.is_empty() && path.symlink_metadata().is_err() {
                // Not at the start, which looks at folders above those of patterns too.
                let mut inside = fs::read_dir(&folder).into_iter().flatten();
                let is_empty = inside.next().is_none() && !folder.is_symlink();
                if !is_empty && name != "strategies" {
                    self.warn(OUT, &folder, "it has no system.md");
                }
            }
        }
        // If the folder went away meanwhile, its patterns are not gone one by one.
        root.metadata().map(drop)
    }

    /// The names in a folder that a pattern or strategy may have.
    fn entries(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if names.len() == MAX_ENTRIES {
                self.warn("reads a part of", folder, "its first 10,000 entries");
                break;
            }
            match entry.file_name().into_string() {
                Ok(name) if name.starts_with('.') => {}
                Ok(name) if Name::parse("name", &name).is_ok() => names.push(name),
                _ => self.warn(OUT, &entry.path(), "not a name that Fabric accepts"),
            }
        }
        Ok(names)
    }

    /// What there is at `path`; `None` also if it cannot be used.
    fn usable<T>(&self, path: &Path, found: Result<Option<T>, String>) -> Option<T> {
        found.unwrap_or_else(|why| {
            self.warn(OUT, path, &why);
            None
        })
    }

    /// [`read`], for what can be used.
    fn text(&self, root: &Path, place: &Path, path: &Path) -> Option<String> {
        self.usable(path, read(root, place, path))
    }

    fn warn(&self, does: &str, path: &Path, why: &str) {
        let warning = format!("--patterns-dir {does} \"{}\": {why}", path.display());
        let mut warned = lock(&self.warned);
        if warned.len() < MAX_WARNINGS && warned.insert(warning.clone()) {
            log::warn!("{warning}");
        }
    }

    /// The folders that exist now.
    fn roots(&self) -> impl Iterator<Item = PathBuf> {
        self.given.iter().flat_map(|dir| dir.canonicalize())
    }
}

/// Where `path` leads; `None` if there is nothing. `place` is canonical.
///
/// # Errors
/// The path leads out of `place`, or cannot be read.
fn find(place: &Path, path: &Path) -> Result<Option<PathBuf>, String> {
    let is_missing =
        |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    match path.canonicalize() {
        Ok(found) if found.starts_with(place) => Ok(Some(found)),
        Ok(_) => Err("a link leads out of the folder".to_owned()),
        Err(error) if is_missing(&error) && !path.is_symlink() => Ok(None),
        Err(error) => Err(unreadable(error)),
    }
}

/// The text of the file at `path`, which must not lead out of `place`; `None` if there is none.
///
/// # Errors
/// Why it cannot be used.
fn read(root: &Path, place: &Path, path: &Path) -> Result<Option<String>, String> {
    let Some(path) = find(place, path)? else {
        return Ok(None);
    };
    let file = open_plain(&path, OpenOptions::new().read(true)).map_err(unreadable)?;
    is_ours(root, file.metadata())?;
    files::text(file, MAX_PATTERN_FILE as u64).map(Some)
}

/// The same for the folder at `path`.
fn folder(root: &Path, place: &Path, path: &Path) -> Result<Option<PathBuf>, String> {
    let found = find(place, path)?;
    let ours = found.map(|path| is_ours(root, fs::metadata(&path)).map(|()| path));
    ours.transpose()
}

/// Refuses what belongs to neither the owner of `root` nor the superuser.
fn is_ours(root: &Path, found: io::Result<Metadata>) -> Result<(), String> {
    let both = found.and_then(|found| Ok([found, fs::metadata(root)?]));
    #[cfg(unix)]
    return match both.map_err(unreadable)?.map(|one| one.uid()) {
        [0, _] => Ok(()),
        [owner, ours] if owner == ours => Ok(()),
        _ => Err("it does not belong to the owner of the folder".to_owned()),
    };
    #[cfg(not(unix))]
    both.map(drop).map_err(unreadable)
}

impl Library for Folders {
    fn names(&self) -> Result<Vec<String>, Error> {
        let (mut names, mut lost) = (BTreeSet::new(), None);
        for dir in &self.given {
            if let Err(error) = self.list(dir, &mut names) {
                self.warn("cannot read", dir, &error.to_string());
                lost = Some(error);
            }
        }
        // What the other folders have still works.
        if let Some(error) = lost.filter(|_| names.is_empty()) {
            let detail = format!(
                "The folder of --patterns-dir cannot be read any more ({error}). The operator of \
                 this server has to restore it."
            );
            return Err(Error::new(Kind::Internal, detail));
        }
        Ok(names.into_iter().collect())
    }

    fn pattern(&self, name: &str) -> Option<(String, String)> {
        let name = Name::parse("name", name).ok()?;
        self.roots().find_map(|root| {
            let text = |file| self.text(&root, &root, &root.join(name.as_str()).join(file));
            let (system, user) = (text("system.md")?, text("user.md"));
            Some((system, user.unwrap_or_default()))
        })
    }

    /// The strategies from `strategies` in each folder, and from `strategies` beside it, where Fabric has them.
    fn strategies(&self) -> Vec<Strategy> {
        let (mut strategies, mut room) = (BTreeMap::new(), MAX_FABRIC_BODY);
        for root in self.roots() {
            let beside = root.with_file_name("strategies");
            for (place, path) in [(&root, root.join("strategies")), (&beside, beside.clone())] {
                let found = self.usable(&path, folder(&root, place, &path));
                let Some(folder) = found else { continue };
                for file in self.entries(&folder).unwrap_or_default() {
                    let name = file.strip_suffix(".json").unwrap_or_default();
                    let path = folder.join(&file);
                    let is_new = !name.is_empty() && !strategies.contains_key(name);
                    let text = is_new.then(|| self.text(&root, &folder, &path));
                    let Some(text) = text.flatten() else { continue };
                    if text.len() > room {
                        self.warn("reads a part of", &folder, "its first 16 MiB");
                        break;
                    }
                    room -= text.len();
                    match serde_json::from_str::<Strategy>(&text) {
                        Ok(read) => {
                            let name = name.to_owned();
                            strategies.insert(name.clone(), Strategy { name, ..read });
                        }
                        Err(_) => self.warn(OUT, &path, "it is not a strategy in JSON"),
                    }
                }
            }
        }
        strategies.into_values().collect()
    }
}
