//! Facts about each MCP client: its file on this operating system, and its format for a server.
//!
//! In scope: facts, each checked against the client's documentation or source. Not in scope: printing them (`generate`)
//! and changing the files (`install`).

mod commands;
mod entry;
mod node;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::{Launch, McpClient};

pub(crate) use commands::command;
pub(crate) use entry::{KEYS, entry};
pub(crate) use node::{Layout, Node, member};

/// The name of the server in the client.
pub(crate) const NAME: &str = "fabric";

/// Placeholder of a token, where the client cannot refer to a variable.
pub(crate) const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

/// The format of a client's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, possibly with comments: an object of servers under this key.
    Json(&'static str),
    /// Codex's TOML.
    Toml,
    /// Goose's YAML.
    Yaml,
    /// A dialog that takes JSON, with servers under this key.
    Dialog(&'static str),
}

/// Facts about one client.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Its name as its makers write it.
    pub(crate) title: &'static str,
    /// Its format.
    pub(crate) format: Format,
    /// What precedes and follows the name in a reference to a variable.
    pub(crate) reference: Option<(&'static str, &'static str)>,
    /// How the user makes it read its configuration again.
    pub(crate) then: &'static str,
}

/// Facts about a client.
pub(crate) fn facts(client: McpClient) -> Facts {
    let servers = Format::Json("mcpServers");
    let of_env = Some(("${env:", "}"));
    let (title, format, reference, then) = match client {
        McpClient::ClaudeDesktop => (
            "Claude Desktop",
            servers,
            None,
            "quit Claude Desktop and start it again",
        ),
        McpClient::ClaudeCode => (
            "Claude Code",
            servers,
            Some(("${", "}")),
            "start claude in this folder, approve the server there, and see it with /mcp",
        ),
        McpClient::Vscode => (
            "VS Code",
            Format::Json("servers"),
            of_env,
            "run \"MCP: List Servers\" in VS Code and start it there",
        ),
        McpClient::Cursor => (
            "Cursor",
            servers,
            of_env,
            "see it in Cursor's settings, under MCP",
        ),
        McpClient::Zed => (
            "Zed",
            Format::Json("context_servers"),
            None,
            "see it in Zed's agent panel, under settings",
        ),
        McpClient::Windsurf => (
            "Windsurf",
            servers,
            of_env,
            "press refresh in Windsurf's list of MCP servers",
        ),
        McpClient::Cline => (
            "Cline",
            servers,
            of_env,
            "see it in Cline, under MCP Servers",
        ),
        McpClient::Continue => (
            "Continue",
            servers,
            None,
            "see it in Continue's agent mode, under tools",
        ),
        McpClient::Codex => (
            "Codex",
            Format::Toml,
            None,
            "start codex, and see it with /mcp",
        ),
        McpClient::GeminiCli => (
            "Gemini CLI",
            servers,
            Some(("${", "}")),
            "start gemini in a folder that it trusts, and see it with /mcp",
        ),
        McpClient::JetBrains => (
            "JetBrains AI Assistant",
            Format::Dialog("mcpServers"),
            None,
            "press Apply in the same dialog",
        ),
        McpClient::Goose => (
            "Goose",
            Format::Yaml,
            None,
            "start goose, and see it with goose info -v",
        ),
    };
    Facts {
        title,
        format,
        reference,
        then,
    }
}

/// The operating systems that clients tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Linux, and whatever else is like it.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl System {
    /// The one this program was built for.
    pub(crate) const HERE: System = if cfg!(windows) {
        System::Windows
    } else if cfg!(target_os = "macos") {
        System::MacOs
    } else {
        System::Linux
    };
}

/// The file that a client reads its servers from, for this user or, with Claude Code, in the current folder. `None` for
/// a dialog, and if the variables of the home folder are not set.
pub(crate) fn file(
    client: McpClient,
    system: System,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let folder = |name: &str| {
        env(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || {
        folder(if system == System::Windows {
            "USERPROFILE"
        } else {
            "HOME"
        })
    };
    let dot_config = || folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
    // Where desktop programs keep their settings.
    let settings = || match system {
        System::Linux => dot_config(),
        System::MacOs => Some(home()?.join("Library/Application Support")),
        System::Windows => folder("APPDATA"),
    };
    let (base, rest) = match client {
        McpClient::ClaudeDesktop => (settings()?, "Claude/claude_desktop_config.json"),
        McpClient::ClaudeCode => (PathBuf::new(), ".mcp.json"),
        McpClient::Vscode => (settings()?, "Code/User/mcp.json"),
        McpClient::Cursor => (home()?, ".cursor/mcp.json"),
        McpClient::Zed if system == System::Windows => (settings()?, "Zed/settings.json"),
        McpClient::Zed => (dot_config()?, "zed/settings.json"),
        McpClient::Windsurf => (home()?, ".codeium/windsurf/mcp_config.json"),
        McpClient::Cline => (home()?, ".cline/data/settings/cline_mcp_settings.json"),
        McpClient::Continue => (home()?, ".continue/mcpServers/fabric.json"),
        McpClient::Codex => (
            folder("CODEX_HOME").or_else(|| Some(home()?.join(".codex")))?,
            "config.toml",
        ),
        McpClient::GeminiCli => (home()?, ".gemini/settings.json"),
        McpClient::JetBrains => return None,
        McpClient::Goose if system == System::Windows => {
            (settings()?, "Block/goose/config/config.yaml")
        }
        McpClient::Goose => (dot_config()?, "goose/config.yaml"),
    };
    // One separator throughout, also on Windows.
    Some(rest.split('/').fold(base, |path, part| path.join(part)))
}

/// The place of a client's servers, for people.
pub(crate) fn place(
    client: McpClient,
    system: System,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> String {
    match (file(client, system, env), facts(client).format) {
        (_, Format::Dialog(_)) => "Settings, Tools, AI Assistant, MCP: Add, As JSON".to_owned(),
        (Some(path), _) if client == McpClient::ClaudeCode => {
            format!("{} in the project's folder", path.display())
        }
        (Some(path), _) => path.display().to_string(),
        (None, _) => "(HOME is not set)".to_owned(),
    }
}

/// The whole text that a client's file or dialog takes, ended by a newline.
pub(crate) fn config(client: McpClient, program: &str, launch: &Launch) -> String {
    match facts(client).format {
        Format::Json(key) | Format::Dialog(key) => {
            let file =
                Node::object([(key, Node::object([(NAME, entry(client, program, launch))]))]);
            format!("{}\n", file.text(&Layout::default(), ""))
        }
        Format::Toml => entry::toml(program, launch),
        Format::Yaml => entry::yaml(program, launch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_each_system_has_them() {
        let env = |name: &str| match name {
            "HOME" => Some("/home/ann".into()),
            "USERPROFILE" => Some("C:\\Users\\ann".into()),
            "APPDATA" => Some("C:\\Roaming".into()),
            _ => None,
        };
        let path = |client, system| {
            let path = file(client, system, &env).unwrap().display().to_string();
            path.replace('\\', "/")
        };
        for (client, linux, mac, windows) in [
            (
                McpClient::ClaudeDesktop,
                "/home/ann/.config/Claude/claude_desktop_config.json",
                "/home/ann/Library/Application Support/Claude/claude_desktop_config.json",
                "C:/Roaming/Claude/claude_desktop_config.json",
            ),
            (McpClient::ClaudeCode, ".mcp.json", ".mcp.json", ".mcp.json"),
            (
                McpClient::Vscode,
                "/home/ann/.config/Code/User/mcp.json",
                "/home/ann/Library/Application Support/Code/User/mcp.json",
                "C:/Roaming/Code/User/mcp.json",
            ),
            (
                McpClient::Zed,
                "/home/ann/.config/zed/settings.json",
                "/home/ann/.config/zed/settings.json",
                "C:/Roaming/Zed/settings.json",
            ),
            (
                McpClient::Goose,
                "/home/ann/.config/goose/config.yaml",
                "/home/ann/.config/goose/config.yaml",
                "C:/Roaming/Block/goose/config/config.yaml",
            ),
        ] {
            assert_eq!(path(client, System::Linux), linux);
            assert_eq!(path(client, System::MacOs), mac);
            assert_eq!(path(client, System::Windows), windows);
        }
        for (client, rest) in [
            (McpClient::Cursor, ".cursor/mcp.json"),
            (McpClient::Windsurf, ".codeium/windsurf/mcp_config.json"),
            (
                McpClient::Cline,
                ".cline/data/settings/cline_mcp_settings.json",
            ),
            (McpClient::Continue, ".continue/mcpServers/fabric.json"),
            (McpClient::Codex, ".codex/config.toml"),
            (McpClient::GeminiCli, ".gemini/settings.json"),
        ] {
            assert_eq!(path(client, System::Linux), format!("/home/ann/{rest}"));
            assert_eq!(path(client, System::MacOs), format!("/home/ann/{rest}"));
        }
        assert_eq!(file(McpClient::JetBrains, System::Linux, &env), None);
    }

    #[test]
    fn variables_that_move_files_count_and_a_missing_home_is_noticed() {
        let moved = |name: &str| (name != "HOME").then(|| OsString::from(format!("/moved/{name}")));
        let path =
            |client| file(client, System::Linux, &moved).map(|path| path.display().to_string());
        assert_eq!(
            path(McpClient::Zed).as_deref(),
            Some("/moved/XDG_CONFIG_HOME/zed/settings.json")
        );
        assert_eq!(
            path(McpClient::Codex).as_deref(),
            Some("/moved/CODEX_HOME/config.toml")
        );
        assert_eq!(path(McpClient::Cursor), None);
        assert_eq!(
            place(McpClient::Cursor, System::Linux, &moved),
            "(HOME is not set)"
        );
        assert_eq!(
            file(McpClient::Vscode, System::Linux, &|_| Some(OsString::new())),
            None
        );
    }
}
