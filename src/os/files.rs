//! Opening files that somebody else may have put in place, reading them within bounds, and creating private ones.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `O_NONBLOCK`, where its number is known; std has no name for it. Without it, opening a pipe waits for the other end.
#[cfg(unix)]
const AT_ONCE: i32 = match (cfg!(target_os = "linux"), cfg!(target_vendor = "apple")) {
    (true, _) if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) => 0o4000,
    (_, true) => 4,
    _ => 0,
};

/// Raises the limit on the open files of this process as far as the system allows. Returns the limit, where it is
/// known.
pub(crate) fn raise_limit() -> Option<usize> {
    #[cfg(all(unix, target_pointer_width = "64"))]
    {
        /// The number of this limit, and the highest value to ask for: macOS refuses more.
        const LIMIT: (i32, u64) = match cfg!(target_vendor = "apple") {
            true => (8, 10_240),
            false => (7, u64::MAX),
        };
        #[allow(
            unsafe_code,
            reason = "std cannot set limits; these are POSIX's functions for the soft and the hard one"
        )]
        unsafe extern "C" {
            safe fn getrlimit(resource: i32, limits: &mut [u64; 2]) -> i32;
            safe fn setrlimit(resource: i32, limits: &[u64; 2]) -> i32;
        }
        let mut limits = [0; 2];
        if cfg!(any(target_os = "linux", target_vendor = "apple"))
            && getrlimit(LIMIT.0, &mut limits) == 0
        {
            let raised = [limits[1].min(LIMIT.1).max(limits[0]), limits[1]];
            setrlimit(LIMIT.0, &raised);
            getrlimit(LIMIT.0, &mut limits);
            return usize::try_from(limits[0]).ok();
        }
    }
    None
}

/// Opens a file, if it is a plain one: no link, and nothing that blocks.
///
/// # Errors
/// [`ErrorKind::InvalidData`]: it is not a plain file, or another file took its place in the meantime.
pub(crate) fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_found(&fs::symlink_metadata(path)?, path, options)
}

fn open_found(found: &Metadata, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if found.is_file() {
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, AT_ONCE);
        let file = options.open(path)?;
        if is_same(found, &file.metadata()?) {
            return Ok(file);
        }
    }
    Err(io::Error::new(
        ErrorKind::InvalidData,
        "it is not a plain file",
    ))
}

/// The text of an opened file, which has at most `limit` bytes.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn text(file: File, limit: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    let length = file.take(limit + 1).read_to_end(&mut bytes);
    if length.map_err(unreadable)? as u64 > limit {
        return Err(format!("it is larger than {} MiB", limit >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Why a file cannot be used.
pub(crate) fn unreadable(error: io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// Creates a file that only this user can read, with these options beside. Follows no link.
pub(crate) fn create(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).create_new(true).open(path)
}

/// [`create`]s a file, prepares it and writes it. Removes it if that fails.
pub(crate) fn create_private(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = create(path, &mut OpenOptions::new())?;
    prepare(&file)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .inspect_err(|_| drop(fs::remove_file(path)))
}

/// Are these the same file? Unknown outside of Unix.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    #[cfg(unix)]
    let [one, other] = [one, other].map(|file| (file.dev(), file.ino()));
    #[cfg(not(unix))]
    let [one, other] = [one, other].map(Metadata::is_file);
    one == other
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_file_in_the_place_of_another_is_refused_at_once() {
        let at = std::env::temp_dir().join(format!("fabric-mcp-files-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        let [file, pipe, other] = ["file", "pipe", "other"].map(|name| at.join(name));
        fs::write(&file, "").unwrap();
        let found = fs::symlink_metadata(&file).unwrap();
        let open = || open_found(&found, &file, OpenOptions::new().read(true));
        assert!(open().is_ok());
        fs::rename(&file, at.join("kept")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        fs::write(&other, "").unwrap();
        for another in [pipe, other] {
            fs::rename(another, &file).unwrap();
            assert_eq!(open().unwrap_err().kind(), ErrorKind::InvalidData);
        }
        fs::remove_dir_all(at).unwrap();
    }
}
