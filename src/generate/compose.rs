//! The services of Docker Compose: Fabric, and this server before it.

use std::io::ErrorKind;
use std::path::Path;

use super::filled;
use crate::access;
use crate::clients::quoted;
use crate::config::AUTH_TOKEN;
use crate::os::files::create_private;

/// The secrets that the text names if none are created with it.
const SECRETS: &str = "fabric-mcp.env";

/// The services, and if `secrets` are given, a file of that path with a new token.
///
/// # Errors
/// The file exists already or cannot be written; nothing has changed.
pub(super) fn compose(secrets: Option<&str>) -> Result<String, String> {
    if let Some(file) = secrets {
        let token = format!("{AUTH_TOKEN}={}\n", access::token());
        let created = create_private(Path::new(file), &token, |_| Ok(()));
        created.map_err(|error| match error.kind() {
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
