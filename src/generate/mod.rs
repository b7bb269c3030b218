//! The files of `--generate`, from the table of flags.
//!
//! In scope: the manual page, completions, systemd units, services of Docker Compose, rules for Prometheus, client
//! configurations, tokens, which only go to stdout; skills, which are written into a folder, and the secrets of Docker
//! Compose, which are written into a file. Not in scope: installing them.

mod completions;
mod compose;
mod man;
mod skills;
mod unit;

pub(crate) use skills::write as write_skills;

use std::env::consts::OS;
use std::path::Path;

use crate::cli::Generate;
use crate::clients::{CLIENTS, Format, Launch, TOKEN_PLACEHOLDER};
use crate::config::Env;

/// Makes a text for the program at this path.
type Make = fn(&Path) -> Result<String, String>;

/// The name of a [`Generate::File`], its text, and where to save it.
const FILES: [(&str, Make, &str); 8] = [
    (
        "man",
        |_| Ok(man::page()),
        "save as fabric-mcp.1 in a man1 directory, such as /usr/local/share/man/man1",
    ),
    (
        "complete-bash",
        |_| Ok(completions::bash()),
        "save as fabric-mcp in ~/.local/share/bash-completion/completions",
    ),
    (
        "complete-zsh",
        |_| Ok(completions::zsh()),
        "save as _fabric-mcp in a directory of your $fpath, before compinit runs",
    ),
    (
        "complete-fish",
        |_| Ok(completions::fish()),
        "save as fabric-mcp.fish in ~/.config/fish/completions",
    ),
    (
        "systemd-unit",
        unit::unit,
        "save as /etc/systemd/system/fabric-mcp.service; its first lines say what else it needs",
    ),
    (
        "systemd-template",
        unit::template,
        "save as /etc/systemd/system/fabric-mcp@.service; its first lines say what else it needs",
    ),
    (
        "sysusers",
        |_| Ok(include_str!("sysusers.conf").to_owned()),
        "pipe this into systemd-sysusers -, as root",
    ),
    (
        "prometheus",
        |_| Ok(include_str!("prometheus.yml").to_owned()),
        "the first part belongs into prometheus.yml, the second is a file of rules",
    ),
];

/// A text with its holes filled, one after the other: the value of the last cannot have any.
fn filled(text: &str, holes: &[(&str, &str)]) -> String {
    holes.iter().fold(text.to_owned(), |text, (hole, value)| {
        text.replace(hole, value)
    })
}

fn plain(name: &str) -> &'static (&'static str, Make, &'static str) {
    FILES
        .iter()
        .find(|(known, ..)| *known == name)
        .expect("a test compares the flag's choices with the table")
}

/// The whole file, ended by a newline. `program` is the path of this program.
///
/// # Errors
/// A client that has no command, or a path that the file cannot have.
pub(crate) fn generate(what: &Generate, program: &Path, env: Env<'_>) -> Result<String, String> {
    let path = program.to_string_lossy();
    Ok(match what {
        Generate::File(name, other) => {
            let (_, make, place) = plain(name);
            let program = other.as_deref().unwrap_or(program);
            let text = make(program).map_err(|why| format!("--generate {name}: {why}"))?;
            text.replace("@PLACE@", place)
        }
        Generate::Compose(secrets) => compose::compose(secrets.as_deref())
            .map_err(|why| format!("--generate compose: {why}"))?,
        Generate::Token(line) => line.expose().to_owned(),
        Generate::Clients => list(env),
        Generate::ClientConfig(client, launch) => client.config(&path, launch),
        Generate::ClientCommand(client, launch) => {
            let command = client.command(OS, &path, launch);
            let no_command = |why| {
                format!(
                    "--generate client-command: {} {why}; use fabric-mcp --install {1} or --generate client-config {1}",
                    client.title, client.name
                )
            };
            format!("{}\n", command.map_err(no_command)?)
        }
    })
}

/// Every client with the file it reads its servers from.
fn list(env: Env<'_>) -> String {
    let mut text = String::from(
        "Clients, and where each reads its servers from. fabric-mcp --install CLIENT\n\
         merges the entry into the file, --generate client-config CLIENT prints it.\n\n",
    );
    for client in CLIENTS {
        let place = client.place(OS, env);
        text.push_str(&format!("  {:<15} {place}\n", client.name));
    }
    text
}

/// The hint on where to save the file, which is not part of it.
pub(crate) fn hint(what: &Generate, env: Env<'_>) -> String {
    match what {
        Generate::File(name, _) => plain(name).2.to_owned(),
        Generate::Compose(_) => {
            "save as compose.yaml; its first lines say what else it needs".to_owned()
        }
        Generate::Token(_) => {
            "append it to the tokens file, and give the last word to the client: it is shown only here".to_owned()
        }
        Generate::Clients => "next: fabric-mcp --install CLIENT".to_owned(),
        Generate::ClientConfig(client, launch) => {
            let mut hint = format!("merge into {}", client.place(OS, env));
            let name = client.name;
            if client.command(OS, "fabric-mcp", launch).is_ok() {
                hint.push_str(&format!(", or see --generate client-command {name}"));
            }
            if matches!(client.format, Format::Json(_)) {
                hint.push_str(&format!(", or let --install {name} do it"));
            }
            if client.config("", launch).contains(TOKEN_PLACEHOLDER) {
                hint.push_str(&format!("; put the token in the place of {TOKEN_PLACEHOLDER}"));
            } else if !matches!(launch, Launch::Program { .. }) {
                hint.push_str("; it takes the token from the variable FABRIC_MCP_AUTH_TOKEN of the client");
            }
            hint
        }
        Generate::ClientCommand(client, _) => {
            format!("run this, and then: {}", client.then)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::{FLAGS, Flag, VARIABLES, get};
    use crate::config;

    const ENV_EXAMPLE: &str = include_str!("../../.env.example");

    #[test]
    fn the_example_of_an_environment_has_every_variable_with_its_default() {
        // As it stands it must change nothing, wherever it is copied to.
        assert!(
            ENV_EXAMPLE
                .lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
        let shown = ENV_EXAMPLE
            .lines()
            .filter_map(|line| line.strip_prefix('#')?.split_once('='));
        let set: Vec<(&str, &str)> = shown.filter(|(name, _)| !name.contains(' ')).collect();
        let mut known: Vec<String> = FLAGS.iter().filter_map(Flag::env).collect();
        known.extend(VARIABLES.iter().map(|(name, _)| (*name).to_owned()));
        let mut listed: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        known.sort();
        listed.sort_unstable();
        assert_eq!(listed, known);
        for flag in FLAGS {
            let value = flag.env().and_then(|name| {
                set.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| *value)
            });
            let is_default = value
                .is_none_or(|value| value == flag.default || value == "false" || value.is_empty());
            assert!(is_default, "--{}: {value:?}", flag.long);
        }
    }

    #[test]
    fn everything_is_a_text_file_with_a_hint() {
        let launches = [
            Launch::Program {
                args: Vec::new(),
                env: Vec::new(),
            },
            Launch::Url {
                url: "http://127.0.0.1:8000/mcp".into(),
                is_sse: false,
            },
        ];
        let plain = get("generate").choices.iter().filter(|name| {
            !name.starts_with("client-") && !["skills", "token", "compose"].contains(*name)
        });
        let mut all: Vec<Generate> = plain.map(|name| Generate::File(name, None)).collect();
        assert_eq!(all.len(), FILES.len());
        all.extend([
            Generate::Token(config::Secret::new("alice run fmcp_0\n")),
            Generate::Clients,
            Generate::Compose(None),
        ]);
        for client in CLIENTS {
            for launch in &launches {
                all.push(Generate::ClientConfig(client, launch.clone()));
                all.push(Generate::ClientCommand(client, launch.clone()));
            }
        }
        let home = |name: &str| (name == "HOME").then(|| "/home/ann".into());
        for what in all {
            let Ok(text) = generate(&what, Path::new("/opt/fabric-mcp"), &home) else {
                assert!(matches!(what, Generate::ClientCommand(..)), "{what:?}");
                continue;
            };
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{what:?}");
            assert!(
                text.lines().all(|line| line.trim_end() == line),
                "{what:?}: {text}"
            );
            let hint = hint(&what, &home);
            assert!(!hint.is_empty() && !hint.contains('\n'), "{what:?}");
            let is_completion =
                matches!(what, Generate::File(name, _) if name.starts_with("complete-"));
            assert_eq!(text.contains(&hint), is_completion, "{what:?}: {text}");
        }
    }
}
