//! Completions for bash, zsh and fish: flags, fixed values, clients, and topics after `--help`.

use std::fmt::Write;

use super::filled;
use crate::cli::flags::{FLAGS, Flag};
use crate::cli::topics::TOPICS;
use crate::clients::NAMES;

/// The topics of the help.
fn topics() -> String {
    TOPICS
        .iter()
        .map(|topic| topic.name)
        .collect::<Vec<_>>()
        .join(" ")
}

/// For bash 3.2 and later, with or without the package bash-completion.
pub(super) fn bash() -> String {
    let mut cases = String::new();
    let mut words = Vec::new();
    for flag in FLAGS {
        words.extend(flag.short.map(|letter| format!("-{letter}")));
        words.extend(flag.names().map(|name| format!("--{name}")));
        if flag.takes_value() {
            let names: Vec<String> = flag.names().map(|name| format!("--{name}")).collect();
            let _ = writeln!(
                cases,
                "    {}) words=\"{}\" ;;",
                names.join(" | "),
                flag.values().join(" ")
            );
        }
    }
    let _ = writeln!(
        cases,
        "    client-config | client-command) words=\"{}\" ;;",
        NAMES.join(" ")
    );
    let _ = writeln!(cases, "    --help | -h) words=\"{}\" ;;", topics());
    filled(
        include_str!("complete.bash"),
        &[("@CASES@", &cases), ("@FLAGS@", &words.join(" "))],
    )
}

/// For zsh's own completion system.
pub(super) fn zsh() -> String {
    let mut specs = String::new();
    for flag in FLAGS {
        for spec in zsh_specs(flag) {
            let _ = writeln!(specs, "    {} \\", quoted(&spec));
        }
    }
    filled(
        include_str!("complete.zsh"),
        &[
            ("@SPECS@", &specs),
            ("@CLIENTS@", &NAMES.join(" ")),
            ("@TOPICS@", &topics()),
        ],
    )
}

fn zsh_specs(flag: &Flag) -> Vec<String> {
    let help: String = flag
        .help
        .chars()
        .flat_map(|c| {
            matches!(c, '[' | ']' | ':' | '\\')
                .then_some('\\')
                .into_iter()
                .chain([c])
        })
        .collect();
    let repeat = if flag.is_repeated() { "*" } else { "" };
    let (equals, value) = match (flag.placeholder(), flag.values()) {
        ("", _) => ("", String::new()),
        (name, []) => ("=", format!(":{name}: ")),
        (name, values) => ("=", format!(":{name}:({})", values.join(" "))),
    };
    let long = flag
        .names()
        .map(|name| format!("{repeat}--{name}{equals}[{help}]{value}"));
    flag.short
        .map(|letter| format!("-{letter}[{help}]"))
        .into_iter()
        .chain(long)
        .collect()
}

/// For fish.
pub(super) fn fish() -> String {
    let mut text = String::from("# fish completion for fabric-mcp\ncomplete -c fabric-mcp -f\n");
    for flag in FLAGS {
        text.push_str("complete -c fabric-mcp");
        if let Some(letter) = flag.short {
            let _ = write!(text, " -s {letter}");
        }
        for name in flag.names() {
            let _ = write!(text, " -l {name}");
        }
        if flag.takes_value() {
            text.push_str(" -x");
        }
        if !flag.values().is_empty() {
            let _ = write!(text, " -a {}", fish_quoted(&flag.values().join(" ")));
        }
        let _ = writeln!(text, " -d {}", fish_quoted(flag.help));
    }
    let _ = writeln!(
        text,
        "complete -c fabric-mcp -n '__fish_seen_subcommand_from client-config client-command' -a {}",
        fish_quoted(&NAMES.join(" "))
    );
    let _ = writeln!(
        text,
        "complete -c fabric-mcp -n '__fish_contains_opt -s h help' -a {}",
        fish_quoted(&topics())
    );
    text
}

/// Quotes one word for a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Quotes one word for fish, whose quotes have two escapes.
fn fish_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_completed_in_every_shell() {
        let (bash, zsh, fish) = (bash(), zsh(), fish());
        for flag in FLAGS {
            for name in flag.names() {
                assert!(bash.contains(&format!("--{name}")), "{name}");
                assert!(
                    zsh.contains(&format!("--{name}[")) || zsh.contains(&format!("--{name}=[")),
                    "{name}"
                );
                assert!(fish.contains(&format!("-l {name}")), "{name}");
            }
            let choices = flag.values().join(" ");
            assert!(
                [&bash, &zsh, &fish]
                    .iter()
                    .all(|script| script.contains(&choices)),
                "{choices}"
            );
        }
        assert!(
            [&bash, &zsh, &fish]
                .iter()
                .all(|script| script.contains(&topics())),
            "{}",
            topics()
        );
        for client in NAMES {
            assert!(
                [&bash, &zsh, &fish]
                    .iter()
                    .all(|script| script.contains(client)),
                "{client}"
            );
        }
    }

    #[test]
    fn lines_look_like_this() {
        assert!(bash().contains("    --transport) words=\"stdio http sse\" ;;\n"));
        assert!(bash().contains("    --path | --mcp-path) words=\"\" ;;\n"));
        for line in [
            "    '--transport=[How clients reach the server\\: stdio, http or sse]:TRANSPORT:(stdio http sse)' \\\n",
            "    '*--deny-pattern=[Refuse to run a pattern]:NAME: ' \\\n",
            "    '-h[Print help\\: -h in short, --help in full, --help TOPIC on one thing]' \\\n",
        ] {
            assert!(zsh().contains(line), "{line}{}", zsh());
        }
        assert!(fish().contains("complete -c fabric-mcp -s h -l help -d 'Print help: -h in short, --help in full, --help TOPIC on one thing'\n"));
        assert!(fish().contains("\ncomplete -c fabric-mcp -l path -l mcp-path -x -d "));
        assert!(fish().contains(" -d 'Key of Fabric\\'s") || !fish().contains("Fabric's"));
    }
}
