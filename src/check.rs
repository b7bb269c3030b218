//! Looking at the connection to Fabric: the line in the log at start, and the report of `--check`.

use std::sync::Arc;

use crate::config::Config;
use crate::fabric::{Client, NoWait, Wait};
use crate::mcp::Server;

/// Logs whether Fabric answers.
pub(crate) fn greet(client: &Client) {
    let wait: Arc<dyn Wait> = Arc::new(NoWait);
    match client.pattern_names(&wait) {
        Ok(_) => log::info!("Successfully connected to Fabric API at {}.", client.url()),
        Err(error) => log::error!("Failed to connect to Fabric API at {}. Details: {}", client.url(), error.detail),
    }
}

/// Makes the report of `--check`, and says whether everything is well.
pub(crate) fn run(_server: &Arc<Server>, _config: &Config, _json: bool) -> (String, bool) {
    (String::new(), false)
}
