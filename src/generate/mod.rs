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
use std::path::{Path, PathBuf};

use crate::access;
use crate::cli::{ExitReason, unexpected_word};
use crate::clients::{self, CLIENTS, ForClient, OWN};
use crate::config::{AUTH_TOKEN, Secret};
use crate::os::files::create_private;
use crate::text::filled;

/// What `--generate` prints, ended by a newline; a hint on what to do with it; and a token that is shown only now. `words`
/// follow the word `what`; a `client` is among them. `program` finds the path of this program, which most need not know:
/// it cannot be found without /proc.
///
/// # Errors
/// A word too many or too few, a client that has no command, or a path that the file cannot have.
pub(crate) fn generate(
    what: &str,
    words: &[String],
    client: Option<ForClient>,
    program: &dyn Fn() -> Result<String, ExitReason>,
) -> Result<(String, String, Option<Secret>), ExitReason> {
    let refused = |why: String| ExitReason::usage(format!("--generate {what}: {why}"));
    let mut places = include_str!("places.txt").lines();
    let place = places.find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
    let mut hint = place.unwrap_or_default().to_owned();
    let (word, mut secret) = (words.first().map(String::as_str), None);
    let text = match (what, words, client) {
        ("man", [], _) => man::page(),
        ("complete-bash" | "complete-zsh" | "complete-fish", [], _) => {
            let text = completions::complete(what.trim_start_matches("complete-"));
            text.replace("@PLACE@", &hint)
        }
        ("systemd-unit" | "systemd-template", [] | [_], _) => {
            let other = word.and_then(|path| std::path::absolute(path).ok());
            let program = other.map_or_else(|| program().map(PathBuf::from), Ok)?;
            unit::unit(&program, what == "systemd-template").map_err(refused)?
        }
        ("sysusers", [], _) => include_str!("sysusers.conf").to_owned(),
        ("compose", [] | [_], _) => compose(word).map_err(refused)?,
        ("kubernetes", [] | [_], _) => {
            let image = clients::quoted(word.unwrap_or("registry.example/fabric-mcp@sha256:..."));
            let holes = [("@TOKEN@", &*access::token()), ("@IMAGE@", &image)];
            filled(include_str!("kubernetes.yaml"), &holes)
        }
        ("prometheus", [], _) => include_str!("prometheus.yml").to_owned(),
        ("token", words, _) => {
            let (line, token) = access::generate(words).map_err(refused)?;
            secret = Some(token);
            line
        }
        ("client-config", [], _) => list(),
        ("client-config", _, Some((client, launch))) => {
            let (place, name) = (client.place(OS, OWN), client.name);
            hint =
                format!("merge into {place}; --install {name} does it, or says what is left to do");
            client.config(&program()?, &launch)
        }
        ("client-command", _, Some((client, launch))) => {
            let (title, name, then) = (client.title, client.name, client.then);
            hint = format!("run this, and then: {then}");
            let other = format!("fabric-mcp --install {name} or --generate client-config {name}");
            let none = |why| refused(format!("{title} {why}; use {other}"));
            client.command(OS, &program()?, &launch).map_err(none)? + "\n"
        }
        (_, [.., word], _) => return Err(ExitReason::usage(unexpected_word(word))),
        _ => unreachable!("a test makes every choice of the flag"),
    };
    Ok((text, hint, secret))
}

/// The file for Docker Compose, with Fabric and this server. If `secrets` is given, also writes a new token to that path.
///
/// # Errors
/// The file exists already or cannot be written; nothing has changed.
fn compose(secrets: Option<&str>) -> Result<String, String> {
    if let Some(file) = secrets {
        let token = format!("{AUTH_TOKEN}={}\n", access::token());
        create_private(Path::new(file), &token, |_| Ok(())).map_err(|error| {
            format!("{file} cannot be written: {error}; give a new file in a folder of yours")
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
        let others = ["skills", "skill", "plugin", "client-command", "token"];
        let mut all = get("generate").values();
        all.retain(|what| !others.contains(what));
        let mut all = Vec::from_iter(all.into_iter().map(|what| (what, Vec::new(), None)));
        all.push(("token", ["alice", "run"].map(str::to_owned).into(), None));
        for client in CLIENTS {
            for launch in &launches[usize::from(client.only_connects())..] {
                for what in ["client-config", "client-command"] {
                    let words = vec![client.name.to_owned()];
                    all.push((what, words, Some((client, launch.clone()))));
                }
            }
        }
        let program = || Ok("/opt/fabric-mcp".to_owned());
        for (what, words, client) in all {
            let Ok((text, hint, secret)) = generate(what, &words, client, &program) else {
                assert!(what == "client-command", "{what} {words:?}");
                continue;
            };
            assert_eq!(secret.is_some(), what == "token");
            let is_so = !hint.is_empty() && !hint.contains('\n');
            assert!(is_so, "src/generate/places.txt, {what}: {hint}");
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{what}");
            let is_so = text.lines().all(|line| line.trim_end() == line);
            assert!(is_so, "{what}: {text}");
            let is_completion = what.starts_with("complete-");
            assert_eq!(text.contains(&hint), is_completion, "{what}: {text}");
        }
        for (words, why) in [
            ("", "--generate token: give a name and a role"),
            (
                "a admin",
                "--generate token: the second word must be the role: run, read or metrics",
            ),
            ("a#b run", "--generate token: a name has"),
            (
                "a run modles=x",
                "--generate token: modles is wrong; a key is models=NAME",
            ),
        ] {
            let words = Vec::from_iter(words.split_whitespace().map(str::to_owned));
            let error = generate("token", &words, None, &program).unwrap_err();
            assert!(error.reason.starts_with(why), "{error:?}");
        }
    }
}
