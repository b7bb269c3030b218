//! Opening files that somebody else may have put in place.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// `O_NONBLOCK`, where we know its number; std has no name for it. Opening a pipe waits for its other end without it.
#[cfg(unix)]
const AT_ONCE: i32 = match (cfg!(target_os = "linux"), cfg!(target_vendor = "apple")) {
    (true, _) if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) => 0o4000,
    (_, true) => 4,
    _ => 0,
};

/// Opens a file, if it is a plain one: no link, and nothing that blocks.
///
/// # Errors
/// [`ErrorKind::InvalidData`]: it is not, or another took its place meanwhile.
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

/// Are these the same file? Unknown outside of Unix.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }
    #[cfg(not(unix))]
    {
        one.is_file() == other.is_file()
    }
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
