//! The services of Docker Compose: Fabric, and this server before it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};

use super::filled;
use crate::access;
use crate::clients::quoted;
use crate::config::AUTH_TOKEN;

/// The secrets that the text names if none are created with it.
const SECRETS: &str = "fabric-mcp.env";

/// The services, and if `secrets` are given, a file of that path with a new token.
///
/// # Errors
/// That file is there, or cannot be written: nothing has changed.
pub(super) fn compose(secrets: Option<&str>) -> Result<String, String> {
    if let Some(file) = secrets {
        create(file).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{file} is there already, and clients may use its token; give another name, or take it away first"
            ),
            _ => format!("{file} cannot be written: {error}; give a file in a folder of yours"),
        })?;
    }
    // A string of JSON is one of YAML, in which $ begins a variable of Compose.
    let file = quoted(secrets.unwrap_or(SECRETS)).replace('$', "$$");
    Ok(filled(
        include_str!("compose.yaml"),
        &[("@SECRETS@", &file)],
    ))
}

/// Creates a file that only this user can read, and removes it if that fails.
fn create(file: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut begun = options.write(true).create_new(true).open(file)?;
    let line = format!("{AUTH_TOKEN}={}\n", access::token());
    begun
        .write_all(line.as_bytes())
        .and_then(|()| begun.sync_all())
        .inspect_err(|_| drop(fs::remove_file(file)))
}
