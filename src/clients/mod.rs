//! MCP clients: a row of facts for each, the entry that a client takes, and `--install`.
//!
//! ```text
//! CLIENTS ── entry (the server as this client writes it) ── jsonc (into its text) ── file (onto the disk)
//! ```
//!
//! A new client is a row of [`CLIENTS`] and its title in the README, which a test compares. Facts are from the
//! client's documentation or source.

mod entry;
mod file;
pub(crate) mod install;
mod jsonc;
mod layout;

use std::path::PathBuf;

use crate::config::{AUTH_TOKEN, Env};
use crate::table::{Text, row};

pub(crate) use entry::shell;
pub(crate) use layout::quoted;

/// The name of the server in the client.
pub(crate) const NAME: &str = "fabric";

/// The name of this program, where it may be anywhere.
const PROGRAM: &str = env!("CARGO_PKG_NAME");

/// Placeholder of a token, where the client cannot refer to a variable.
const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

row! {
    /// A client whose configuration is known.
    McpClient {
        /// The name on the command line.
        pub(crate) name: Text = "",
        /// The name as its makers write it.
        pub(crate) title: Text = "",
        pub(crate) format: Format = Format::Json("mcpServers"),
        /// Its file, or "": in the current folder (`.`), the home (`HOME`), where desktop programs of the system keep their
        /// settings (`SETTINGS`), or in the folder of a variable.
        file: Text = "",
        /// Where its servers are typed in, if they are in no file that it reads here. One that wants a text there only
        /// connects over HTTP.
        dialog: Option<Text> = None,
        /// Its file on Windows, if that is another.
        windows: Option<Text> = None,
        /// The member of an entry that says that a program is started.
        program: Option<(Text, Text)> = None,
        /// What an entry calls the arguments, or `None` if they follow the program in one list; and what it calls the
        /// variables.
        members: (Option<Text>, Text) = (Some("args"), "env"),
        /// `type` (or "") and the key of the URL in an entry: for Streamable HTTP, then for HTTP+SSE, which is left out if
        /// the client does not speak it. Empty if the client only starts programs.
        pub(crate) urls: &'static [(Text, Text)] = &[("", "url"); 2],
        /// How the client refers to the variable NAME, and the command that starts the client in a shell so that it finds the
        /// variable; "" if [`McpClient::then`] says where it is set.
        reference: Option<(Text, Text)> = None,
        /// The commands that add a program, add a URL and remove the server, as far as there are such: words, and the holes
        /// that [`McpClient::command`] fills.
        commands: &'static [Text] = &[],
        /// Its timeout for a call in seconds: of several versions the shortest, 60 s (the TypeScript SDK's default) where
        /// nothing is known.
        pub(crate) limit: u64 = 60,
        /// `limit` in words, with what differs between versions.
        pub(crate) limit_words: Text = "not known, assumed to be 60 s",
        /// How the user makes it read its configuration again.
        pub(crate) then: Text = "",
    }
}

/// A client, and how it reaches the server.
pub(crate) type ForClient = (&'static McpClient, Launch);

/// The format of a client's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, possibly with comments: an object of servers under this key.
    Json(&'static str),
    /// This text, with holes.
    Text(&'static str),
}

/// Folders of the user that a variable can move, and where they are in the home folder without it.
const FOLDERS: [(&str, &str); 4] = [
    ("CODEX_HOME", ".codex"),
    ("COPILOT_HOME", ".copilot"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// References to variables, as most clients have them.
const OF_SHELL: &str = "${NAME}";
const OF_ENV: &str = "${env:NAME}";

/// The kinds and keys of URLs in the names of Claude Code.
const TYPED: &[(&str, &str)] = &[("http", "url"), ("sse", "url")];

pub(crate) const CLIENTS: &[McpClient] = &[
    client("claude-desktop", "Claude Desktop")
        .file("SETTINGS/Claude/claude_desktop_config.json")
        .urls(&[])
        .waits(60, "60 s, newer versions 4 min")
        .then("quit Claude Desktop and start it again"),
    client("claude-code", "Claude Code")
        .file("./.mcp.json")
        .program(Some(("type", "stdio")))
        .urls(TYPED)
        .reference(Some((OF_SHELL, "claude")))
        .commands(&[
            // --env takes all words up to the next flag.
            "claude mcp add ENV --scope user fabric -- PROGRAM ARGS",
            "claude mcp add --transport TRANSPORT --scope user fabric URL --header HEADER",
        ])
        // MCP_TOOL_TIMEOUT is 28 h, and over stdio each heartbeat restarts its 30 min; but its desktop app was seen to
        // cancel after 60 s, which costs more than one call too many.
        .waits(60, "30 min of silence, its desktop app 60 s")
        .then("start claude (if .mcp.json has the entry, in its folder), approve the server if asked, and see it with /mcp"),
    client("vscode", "VS Code")
        .format(Format::Json("servers"))
        .file("SETTINGS/Code/User/mcp.json")
        .program(Some(("type", "stdio")))
        .urls(TYPED)
        .reference(Some((OF_ENV, "code .")))
        .commands(&["code --add-mcp JSON"; 2])
        .waits(300, "5 min, newer versions never")
        .then("run \"MCP: List Servers\" in VS Code and start it there"),
    client("cursor", "Cursor")
        .file("HOME/.cursor/mcp.json")
        .reference(Some((OF_ENV, "cursor .")))
        .waits(60, "60 s")
        .then("see it in Cursor's settings, under MCP"),
    client("zed", "Zed")
        .format(Format::Json("context_servers"))
        .file("XDG_CONFIG_HOME/zed/settings.json")
        .windows(Some("APPDATA/Zed/settings.json"))
        // Versions of 2025 ask for the source; later ones ignore it.
        .program(Some(("source", "custom")))
        .urls(&[("", "url")])
        .waits(60, "60 s, timeout in its entry")
        .then("see it in Zed's agent panel, under settings"),
    client("windsurf", "Windsurf")
        .file("HOME/.codeium/windsurf/mcp_config.json")
        .urls(&[("", "serverUrl"); 2])
        .reference(Some((OF_ENV, "windsurf .")))
        .then("press refresh in Windsurf's list of MCP servers"),
    client("cline", "Cline")
        .file("HOME/.cline/data/settings/cline_mcp_settings.json")
        .urls(&[("streamableHttp", "url"), ("sse", "url")])
        .reference(Some((OF_ENV, "code .")))
        .waits(60, "60 s, timeout in its entry")
        .then("see it in Cline, under MCP Servers"),
    client("continue", "Continue")
        .file("HOME/.continue/mcpServers/fabric.json")
        .waits(60, "60 s")
        .urls(TYPED)
        .then("see it in Continue's agent mode, under tools"),
    client("codex", "Codex")
        .format(Format::Text(include_str!("codex.toml")))
        .file("CODEX_HOME/config.toml")
        .urls(&[("", "url")])
        .commands(&[
            "codex mcp add fabric ENV -- PROGRAM ARGS",
            "codex mcp add fabric --url URL --bearer-token-env-var FABRIC_MCP_AUTH_TOKEN",
            "codex mcp remove fabric",
        ])
        // Its file has the name alone.
        .reference(Some(("$NAME", "codex")))
        .waits(60, "60 s, newer versions 2 to 5 min, tool_timeout_sec in its entry")
        .then("start codex, and see it with /mcp"),
    // Since June 2026 it works only with business accounts; for others there is Antigravity.
    client("gemini-cli", "Gemini CLI")
        .file("HOME/.gemini/settings.json")
        .urls(&[("", "httpUrl"), ("", "url")])
        .reference(Some((OF_SHELL, "gemini")))
        .commands(&[
            "gemini mcp add --scope user ENV fabric PROGRAM -- ARGS",
            "gemini mcp add --scope user --transport TRANSPORT --header HEADER fabric URL",
        ])
        .waits(600, "10 min, timeout in its entry")
        .then("start gemini in a folder that it trusts, and see it with /mcp"),
    client("jetbrains", "JetBrains AI Assistant")
        .dialog(Some("Settings, Tools, AI Assistant, MCP: Add, As JSON"))
        .then("press Apply in the same dialog"),
    client("goose", "Goose")
        .format(Format::Text(include_str!("goose.yaml")))
        .file("XDG_CONFIG_HOME/goose/config.yaml")
        .windows(Some("APPDATA/Block/goose/config/config.yaml"))
        // It no longer speaks HTTP+SSE.
        .urls(&[("", "url")])
        .reference(Some(("$NAME", "goose")))
        // Its default is 300 s; the entry made for it sets this.
        .waits(3600, "1 h, timeout in its entry")
        .then("start goose, and see it with goose info -v"),
    client("copilot-cli", "Copilot CLI")
        .file("COPILOT_HOME/mcp-config.json")
        .program(Some(("type", "local")))
        .urls(TYPED)
        .reference(Some((OF_SHELL, "copilot")))
        .commands(&[
            "copilot mcp add ENV fabric -- PROGRAM ARGS",
            "copilot mcp add --transport TRANSPORT --header HEADER fabric URL",
        ])
        .waits(30, "30 s, timeout in its entry")
        .then("start copilot, and see it with /mcp"),
    client("opencode", "OpenCode")
        .format(Format::Json("mcp"))
        .file("XDG_CONFIG_HOME/opencode/opencode.json")
        .program(Some(("type", "local")))
        // It tries one transport after the other.
        .urls(&[("remote", "url"); 2])
        .members((None, "environment"))
        .reference(Some(("{env:NAME}", "opencode")))
        .waits(60, "60 s of silence, timeout in its entry")
        .then("see it with opencode mcp list"),
    client("zoo-code", "Zoo Code")
        .file("SETTINGS/Code/User/globalStorage/zoocodeorganization.zoo-code/settings/mcp_settings.json")
        .urls(&[("streamable-http", "url"), ("sse", "url")])
        .reference(Some((OF_ENV, "code .")))
        .waits(60, "60 s, timeout in its entry")
        .then("see it in Zoo Code's settings, under MCP Servers"),
    client("antigravity", "Antigravity")
        // https://antigravity.google/docs/mcp: for its IDE and CLI; versions before 2.0 had antigravity in the place of config.
        .file("HOME/.gemini/config/mcp_config.json")
        .urls(&[("", "serverUrl"); 2])
        .then("press refresh under Manage MCP Servers, or see it with /mcp in its CLI"),
    client("kiro", "Kiro")
        .file("HOME/.kiro/settings/mcp.json")
        .reference(Some((OF_SHELL, "kiro .")))
        .waits(60, "60 s")
        .then("see it in Kiro's panel, under MCP Servers, or with /mcp in its CLI"),
    client("amp", "Amp")
        .format(Format::Json("amp.mcpServers"))
        .file("XDG_CONFIG_HOME/amp/settings.json")
        .reference(Some((OF_SHELL, "amp")))
        .then("see it with amp mcp doctor"),
    client("lm-studio", "LM Studio")
        .dialog(Some("Right-hand sidebar, Program: Install, Edit mcp.json"))
        .waits(60, "60 s")
        .urls(&[("", "url")])
        .then("save it, and see it in the same sidebar"),
    client("warp", "Warp")
        .file("HOME/.warp/.mcp.json")
        .then("see it in Warp's settings, under Agents, MCP servers"),
    client("open-webui", "Open WebUI")
        .format(Format::Text(include_str!("open-webui.txt")))
        .dialog(Some("Admin Panel, Settings, External Tools, +"))
        .waits(60, "60 s")
        .urls(&[("", "url")])
        .then("save it, and switch it on among a chat's tools (127.0.0.1 needs fabric-mcp --transport http running here)"),
    client("librechat", "LibreChat")
        .format(Format::Text(include_str!("librechat.yaml")))
        .dialog(Some("librechat.yaml"))
        .urls(&[("", "url")])
        .reference(Some((OF_SHELL, "")))
        // Its default is 30 s; the entry made for it sets this.
        .waits(300, "5 min, timeout in its entry")
        .then("put FABRIC_MCP_AUTH_TOKEN=TOKEN into LibreChat's .env, if you need a token, restart LibreChat, and choose fabric among its MCP servers (127.0.0.1 needs fabric-mcp --transport http running here)"),
];

const fn client(name: Text, title: Text) -> McpClient {
    McpClient::USUAL.name(name).title(title)
}

pub(crate) fn names() -> Vec<&'static str> {
    CLIENTS.iter().map(|client| client.name).collect()
}

pub(crate) fn named(name: &str) -> Option<&'static McpClient> {
    CLIENTS.iter().find(|client| client.name == name)
}

/// The name and value of a variable. `None` for a secret that is set here and never written down: a reference to the
/// variable will do, where the client has such.
pub(crate) type Variable = (String, Option<String>);

/// How a client reaches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    Program {
        args: Vec<String>,
        /// In this order.
        env: Vec<Variable>,
    },
    /// Connect to a server at this URL.
    Url {
        url: String,
        /// Whether it speaks HTTP+SSE instead of Streamable HTTP.
        is_sse: bool,
        /// Whether the entry has a token, which would keep a client from asking an OAuth issuer.
        token: bool,
    },
}

/// The variables of this process.
pub(crate) const OWN: Env<'static> = &|name| std::env::var_os(name);

/// The path of `file`, written as in a row of [`CLIENTS`], or below `STATE`, where programs of the system keep their data;
/// `None` if the variables of its folder are not set.
fn located(file: &str, system: &str, env: Env<'_>) -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = env(name).filter(|value| !value.is_empty());
        // The XDG specification says to ignore relative paths.
        let is_good = |path: &PathBuf| path.has_root() || !name.starts_with("XDG");
        value.map(PathBuf::from).filter(is_good)
    };
    let home = match system {
        "windows" => "USERPROFILE",
        _ => "HOME",
    };
    let (base, rest) = file.split_once('/')?;
    let folder = |name| {
        variable(name).or_else(|| {
            let (_, inner) = FOLDERS.iter().find(|(known, _)| *known == name)?;
            Some(variable(home)?.join(inner))
        })
    };
    let base = match (base, system) {
        (".", _) => PathBuf::new(),
        ("HOME", _) => variable(home)?,
        ("SETTINGS" | "STATE", "macos") => variable(home)?.join("Library/Application Support"),
        ("SETTINGS", "windows") => folder("APPDATA")?,
        ("SETTINGS", _) => folder("XDG_CONFIG_HOME")?,
        ("STATE", "windows") => folder("LOCALAPPDATA")?,
        ("STATE", _) => folder("XDG_STATE_HOME")?,
        (name, _) => folder(name)?,
    };
    // One separator throughout, also on Windows.
    Some(rest.split('/').fold(base, |path, part| path.join(part)))
}

impl McpClient {
    const fn waits(self, limit: u64, words: Text) -> McpClient {
        self.limit(limit).limit_words(words)
    }

    /// Whether it starts no program, but connects to a server over HTTP.
    pub(crate) fn only_connects(&self) -> bool {
        self.dialog.is_some() && matches!(self.format, Format::Text(_))
    }

    /// The file it reads its servers from on this `system` (see [`std::env::consts::OS`]), for this user or in the current
    /// folder. `None` for a dialog, and if the variables of the home folder are not set.
    pub(crate) fn path(&self, system: &str, env: Env<'_>) -> Option<PathBuf> {
        let windows = self.windows.filter(|_| system == "windows");
        located(windows.unwrap_or(self.file), system, env)
    }

    /// The place of its servers, for people.
    pub(crate) fn place(&self, system: &str, env: Env<'_>) -> String {
        match (self.dialog, self.path(system, env)) {
            (Some(place), _) => place.to_owned(),
            (_, Some(path)) if self.file.starts_with('.') => {
                format!("{} in the project's folder", path.display())
            }
            (_, Some(path)) => path.display().to_string(),
            (_, None) => "(HOME is not set)".to_owned(),
        }
    }

    /// How it reaches the server at `url`, if it can: one that only starts programs by `--connect`, which shows a token.
    pub(crate) fn reaching(&self, url: String, is_sse: bool, token: bool) -> Option<Launch> {
        if self.urls.get(usize::from(is_sse)).is_some() {
            return Some(Launch::Url { url, is_sse, token });
        }
        let connects = self.urls.is_empty() && !is_sse && token;
        connects.then(|| Launch::Program {
            args: vec!["--connect".to_owned(), url],
            env: vec![(AUTH_TOKEN.to_owned(), None)],
        })
    }

    /// What a person on a machine with this `system` does with a text, and the text: its own command, or its entry.
    pub(crate) fn by_hand(&self, system: &str, launch: &Launch) -> [String; 2] {
        let folder = |name: &str| match name {
            "HOME" => Some("~".into()),
            "USERPROFILE" | "APPDATA" => Some(format!("%{name}%").into()),
            _ => None,
        };
        match self.command(system, PROGRAM, launch) {
            Ok(command) => ["Run this in a terminal".to_owned(), command],
            Err(_) => [
                format!("Add this to {}", self.place(system, &folder)),
                self.config(PROGRAM, launch),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    const README: &str = include_str!("../../README.md");

    pub(super) fn client(name: &str) -> &'static McpClient {
        named(name).unwrap()
    }

    #[test]
    fn files_are_where_each_system_has_them() {
        let env = |name: &str| match name {
            "HOME" => Some("/home/ann".into()),
            "USERPROFILE" => Some("C:\\Users\\ann".into()),
            "APPDATA" => Some("C:\\Roaming".into()),
            _ => None,
        };
        let path = |name, system| {
            let path = client(name).path(system, &env).unwrap();
            path.display().to_string().replace('\\', "/")
        };
        let library = "/home/ann/Library/Application Support";
        for line in [
            "claude-code .mcp.json .mcp.json",
            "vscode LIBRARY/Code/User/mcp.json C:/Roaming/Code/User/mcp.json",
            "zed HOME/.config/zed/settings.json C:/Roaming/Zed/settings.json",
            "cursor HOME/.cursor/mcp.json C:/Users/ann/.cursor/mcp.json",
            "codex HOME/.codex/config.toml C:/Users/ann/.codex/config.toml",
            "copilot-cli HOME/.copilot/mcp-config.json C:/Users/ann/.copilot/mcp-config.json",
            "opencode HOME/.config/opencode/opencode.json C:/Users/ann/.config/opencode/opencode.json",
            "zoo-code LIBRARY/Code/User/globalStorage/zoocodeorganization.zoo-code/settings/mcp_settings.json \
             C:/Roaming/Code/User/globalStorage/zoocodeorganization.zoo-code/settings/mcp_settings.json",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let [name, mac, windows] = words[..] else {
                panic!("{line}")
            };
            let mac = mac.replace("LIBRARY", library).replace("HOME", "/home/ann");
            assert_eq!(path(name, "macos"), mac);
            assert_eq!(path(name, "windows"), windows);
        }
        assert_eq!(client("jetbrains").path("linux", &env), None);
    }

    #[test]
    fn variables_that_move_files_count_and_a_missing_home_is_noticed() {
        let moved = |name: &str| (name != "HOME").then(|| OsString::from(format!("/moved/{name}")));
        for (name, expected) in [
            ("zed", "/moved/XDG_CONFIG_HOME/zed/settings.json"),
            ("codex", "/moved/CODEX_HOME/config.toml"),
            ("cursor", "(HOME is not set)"),
        ] {
            assert_eq!(client(name).place("linux", &moved), expected);
        }
        let empty = client("vscode").path("linux", &|_| Some(OsString::new()));
        assert_eq!(empty, None);
        let relative = |name: &str| Some(OsString::from(name.replace("HOME", "/home")));
        let place = client("zed").place("linux", &relative);
        assert_eq!(place, "/home/.config/zed/settings.json");
    }

    #[test]
    fn the_readme_names_every_client() {
        let is_told = |one: &&McpClient| README.contains(one.title) && !one.then.is_empty();
        let missing = CLIENTS.iter().find(|one| !is_told(one));
        let missing = missing.map(|client| client.title);
        assert_eq!(missing, None, "not in README.md, or a row without `then`");
    }
}
