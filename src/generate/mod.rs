//! The files of `--generate`, from the table of flags.
//!
//! In scope: the manual page, completions, systemd units, services of Docker Compose, rules for Prometheus, client
//! configurations, tokens, which only go to stdout; skills, which are written into a folder, and the secrets of Docker
//! Compose, which are written into a file. Not in scope: installing them.

mod completions;
mod man;
mod skill_files;
mod unit;

pub(crate) use skill_files::write as write_skills;

use std::env::consts::OS;
use std::io::ErrorKind;
use std::path::Path;

use crate::access;
use crate::cli::Generate;
use crate::clients::{self, CLIENTS, OWN};
use crate::config::AUTH_TOKEN;
use crate::os::files::create_private;
use crate::text::filled;

/// The whole file, ended by a newline, and a hint on where to save it, which is not part of it. `program` is the path of
/// this program.
///
/// # Errors
/// A client that has no command, or a path that the file cannot have.
pub(crate) fn generate(what: &Generate, program: &str) -> Result<(String, String), String> {
    Ok(match what {
        Generate::File(name, word) => {
            let word = word.as_deref();
            let other = word.and_then(|path| std::path::absolute(path).ok());
            let text = file(name, word, other.as_deref().unwrap_or(Path::new(program)))
                .map_err(|why| format!("--generate {name}: {why}"))?;
            (text, place(name).to_owned())
        }
        Generate::Token(line, _) => {
            let hint = "the line is for the tokens file; the token is for the client, and is shown only here";
            (line.clone(), hint.to_owned())
        }
        Generate::Clients => (list(), "next: fabric-mcp --install CLIENT".to_owned()),
        Generate::ClientConfig(client, launch) => {
            let (place, name) = (client.place(OS, OWN), client.name);
            let hint =
                format!("merge into {place}; --install {name} does it, or says what is left to do");
            (client.config(program, launch), hint)
        }
        Generate::ClientCommand(client, launch) => {
            let command = client.command(OS, program, launch);
            let no_command = |why| {
                format!(
                    "--generate client-command: {} {why}; use fabric-mcp --install {1} or --generate client-config {1}",
                    client.title, client.name
                )
            };
            let hint = format!("run this, and then: {}", client.then);
            (format!("{}\n", command.map_err(no_command)?), hint)
        }
    })
}

/// Where to save a [`Generate::File`].
fn place(name: &str) -> &'static str {
    let mut places = include_str!("places.txt").lines();
    let place = places.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    place.unwrap_or_default()
}

/// A [`Generate::File`]. `word` is what follows its name, `program` what a unit starts.
fn file(name: &str, word: Option<&str>, program: &Path) -> Result<String, String> {
    Ok(match name {
        "man" => man::page(),
        "complete-bash" | "complete-zsh" | "complete-fish" => {
            let text = completions::complete(name.trim_start_matches("complete-"));
            text.replace("@PLACE@", place(name))
        }
        "systemd-unit" => unit::unit(program, false)?,
        "systemd-template" => unit::unit(program, true)?,
        "sysusers" => include_str!("sysusers.conf").to_owned(),
        "compose" => compose(word)?,
        "kubernetes" => {
            let image = clients::quoted(word.unwrap_or("registry.example/fabric-mcp@sha256:..."));
            let holes = [("@TOKEN@", &*access::token()), ("@IMAGE@", &image)];
            filled(include_str!("kubernetes.yaml"), &holes)
        }
        "prometheus" => include_str!("prometheus.yml").to_owned(),
        _ => unreachable!("a test makes every choice of the flag"),
    })
}

/// The services of Docker Compose, Fabric and this server before it; and if `secrets` are given, a file of that path with a new token.
///
/// # Errors
/// The file exists already or cannot be written; nothing has changed.
fn compose(secrets: Option<&str>) -> Result<String, String> {
    if let Some(file) = secrets {
        let token = format!("{AUTH_TOKEN}={}\n", access::token());
        let created = create_private(Path::new(file), &token, |_| Ok(()));
        created.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{file} is there already, and clients may use its token; give another name, or remove it first"
            ),
            _ => format!("{file} cannot be written: {error}; give a file in a folder of yours"),
        })?;
    }
    // A string of JSON is one of YAML, in which $ begins a variable of Compose.
    let file = clients::quoted(secrets.unwrap_or("fabric-mcp.env")).replace('$', "$$");
    let text = include_str!("compose.yaml");
    Ok(filled(text, &[("@SECRETS@", &file)]))
}

/// Every client with the file it reads its servers from.
fn list() -> String {
    let mut text = String::from(
        "Clients, and where each reads its servers from. fabric-mcp --install CLIENT\n\
         merges the entry into the file, --generate client-config CLIENT prints it.\n\n",
    );
    for client in CLIENTS {
        let place = client.place(OS, OWN);
        text.push_str(&format!("  {:<15} {place}\n", client.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::{FLAGS, Flag, VARIABLES, get};
    use crate::clients::Launch;
    use crate::config;
    use std::collections::BTreeSet;

    const ENV_EXAMPLE: &str = include_str!("../../.env.example");

    #[test]
    fn the_example_of_an_environment_has_every_variable_with_its_default() {
        // The file must change nothing as it is, so that it can be copied anywhere.
        assert!(
            ENV_EXAMPLE
                .lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
        let shown = ENV_EXAMPLE.lines();
        let shown = shown.filter_map(|line| line.strip_prefix('#')?.split_once('='));
        let set: Vec<(&str, &str)> = shown.filter(|(name, _)| !name.contains(' ')).collect();
        let mut known: BTreeSet<String> = FLAGS.iter().filter_map(Flag::env).collect();
        known.extend(VARIABLES.iter().map(|(name, _)| (*name).to_owned()));
        let listed: BTreeSet<String> = set.iter().map(|(name, _)| (*name).to_owned()).collect();
        let differing = Vec::from_iter(known.symmetric_difference(&listed));
        assert!(
            differing.is_empty(),
            "only in .env.example or only in the program: {differing:?}"
        );
        assert_eq!(listed.len(), set.len(), "each once");
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
                token: true,
            },
        ];
        let plain = get("generate").values().into_iter().filter(|name| {
            !name.starts_with("client-") && !["skills", "skill", "plugin", "token"].contains(name)
        });
        let mut all: Vec<Generate> = plain.map(|name| Generate::File(name, None)).collect();
        all.extend([
            Generate::Token(
                "alice run sha256:0\n".to_owned(),
                config::Secret::new("fmcp_0"),
            ),
            Generate::Clients,
        ]);
        for client in CLIENTS {
            for launch in &launches {
                all.push(Generate::ClientConfig(client, launch.clone()));
                all.push(Generate::ClientCommand(client, launch.clone()));
            }
        }
        for what in all {
            let Ok((text, hint)) = generate(&what, "/opt/fabric-mcp") else {
                assert!(matches!(what, Generate::ClientCommand(..)), "{what:?}");
                continue;
            };
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{what:?}");
            let is_so = text.lines().all(|line| line.trim_end() == line);
            assert!(is_so, "{what:?}: {text}");
            assert!(!hint.is_empty() && !hint.contains('\n'), "{what:?}");
            let is_completion =
                matches!(what, Generate::File(name, _) if name.starts_with("complete-"));
            assert_eq!(text.contains(&hint), is_completion, "{what:?}: {text}");
        }
    }
}
