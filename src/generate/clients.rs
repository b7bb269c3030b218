//! Configuration snippets for MCP clients, each in its client's format.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::McpClient;
use crate::cli::flags::{self, API_KEY, FlagId};

/// The name of the server in the client.
const NAME: &str = "fabric";

/// A whole JSON file that starts this program over stdio.
pub(super) fn snippet(client: McpClient, program: &Path) -> String {
    let program = program.to_string_lossy();
    let url = flags::get(FlagId::FabricUrl);
    // Clients do not pass on the variables of the shell. An empty key counts as not set.
    let env = json!({ url.env().unwrap_or_default(): url.default, API_KEY: "" });
    let plain = json!({ "command": program, "args": [], "env": env });
    let typed = || with(plain.clone(), "type", "stdio");
    let file = match client {
        McpClient::ClaudeDesktop | McpClient::Cursor => json!({ "mcpServers": { NAME: plain } }),
        McpClient::ClaudeCode => json!({ "mcpServers": { NAME: typed() } }),
        McpClient::Vscode => json!({ "servers": { NAME: typed() } }),
        // Versions of 2025 ask for the source; later ones ignore it.
        McpClient::Zed => json!({ "context_servers": { NAME: with(plain, "source", "custom") } }),
    };
    format!("{file:#}\n")
}

fn with(mut server: Value, key: &str, value: &str) -> Value {
    server[key] = json!(value);
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_its_own_shape() {
        let program = "/opt/with \"quotes\"/fabric-mcp";
        for (client, key, extra) in [
            (McpClient::ClaudeDesktop, "mcpServers", None),
            (McpClient::ClaudeCode, "mcpServers", Some(("type", "stdio"))),
            (McpClient::Vscode, "servers", Some(("type", "stdio"))),
            (McpClient::Cursor, "mcpServers", None),
            (McpClient::Zed, "context_servers", Some(("source", "custom"))),
        ] {
            let file: Value = serde_json::from_str(&snippet(client, Path::new(program))).unwrap();
            let mut server = json!({
                "command": program,
                "args": [],
                "env": {"FABRIC_BASE_URL": "http://127.0.0.1:8080", "FABRIC_API_KEY": ""},
            });
            if let Some((name, value)) = extra {
                server[name] = json!(value);
            }
            assert_eq!(file, json!({ key: { "fabric": server } }), "{client:?}");
        }
    }
}
