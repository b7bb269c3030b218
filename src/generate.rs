//! What `--generate` prints, made from the one table of flags, so that it cannot say anything else than the program does.
//!
//! In scope: the manual page, completions, a unit for systemd, snippets for clients. Not in scope: putting any of it into
//! its place: the program writes to stdout and nowhere else.

mod clients;
mod completions;
mod man;
mod unit;

use std::path::Path;

use crate::cli::{Client, Generate};

/// What is asked for, as a whole file that ends with a newline. `program` is where this program is.
pub(crate) fn generate(what: Generate, program: &Path) -> String {
    match what {
        Generate::Man => man::page(),
        Generate::CompleteBash => completions::bash(),
        Generate::CompleteZsh => completions::zsh(),
        Generate::CompleteFish => completions::fish(),
        Generate::SystemdUnit => unit::unit(program),
        Generate::ClientConfig(client) => clients::snippet(client, program),
    }
}

/// A line for the person who asked: where it goes. Not part of the file.
pub(crate) fn hint(what: Generate) -> &'static str {
    match what {
        Generate::Man => "save as fabric-mcp.1 in a man1 directory, such as /usr/local/share/man/man1",
        Generate::CompleteBash => "save as fabric-mcp in ~/.local/share/bash-completion/completions",
        Generate::CompleteZsh => "save as _fabric-mcp in a directory of your $fpath",
        Generate::CompleteFish => "save as fabric-mcp.fish in ~/.config/fish/completions",
        Generate::SystemdUnit => {
            "save as /etc/systemd/system/fabric-mcp.service; its first lines say what else it needs"
        }
        Generate::ClientConfig(Client::ClaudeDesktop) => {
            "merge into claude_desktop_config.json (in the app: Settings, Developer, Edit Config), then restart the app"
        }
        Generate::ClientConfig(Client::ClaudeCode) => "merge into .mcp.json in the project's root",
        Generate::ClientConfig(Client::Vscode) => "merge into .vscode/mcp.json in the workspace",
        Generate::ClientConfig(Client::Cursor) => "merge into .cursor/mcp.json in the project, or ~/.cursor/mcp.json",
        Generate::ClientConfig(Client::Zed) => "merge into Zed's settings.json (command palette: zed: open settings)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_a_text_file_with_a_hint() {
        for what in [
            Generate::Man,
            Generate::CompleteBash,
            Generate::CompleteZsh,
            Generate::CompleteFish,
            Generate::SystemdUnit,
            Generate::ClientConfig(Client::ClaudeDesktop),
            Generate::ClientConfig(Client::ClaudeCode),
            Generate::ClientConfig(Client::Vscode),
            Generate::ClientConfig(Client::Cursor),
            Generate::ClientConfig(Client::Zed),
        ] {
            let text = generate(what, Path::new("/opt/fabric-mcp"));
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{what:?}");
            assert!(text.lines().all(|line| line.trim_end() == line), "{what:?}: {text}");
            assert!(!hint(what).is_empty() && !hint(what).contains('\n'), "{what:?}");
        }
    }
}
