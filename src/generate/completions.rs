//! Completions for bash, zsh and fish: flags, fixed values, clients, and topics after `--help`.

use std::fmt::Write;

use super::filled;
use crate::access::Role;
use crate::cli::flags::{FLAGS, Flag};
use crate::cli::topics::topic_names;
use crate::clients;
use crate::tools::TOOLS;

/// For bash 3.2 and later, with or without the package bash-completion.
pub(super) fn bash() -> String {
    let mut cases = String::new();
    let mut words = Vec::new();
    for flag in FLAGS {
        let names = flag.dashed();
        if flag.takes_value() {
            let values = match flag.is_path() {
                true => "files=1".to_owned(),
                false => format!("words=\"{}\"", values(flag).join(" ")),
            };
            let _ = writeln!(cases, "    {}) {values} ;;", names.join(" | "));
        }
        words.extend(names);
    }
    filled(
        include_str!("complete.bash"),
        &[
            ("@CASES@", &cases),
            ("@CLIENTS@", &clients::names().join(" ")),
            ("@TOPICS@", &topic_names(" ")),
            ("@FLAGS@", &words.join(" ")),
            ("@ROLES@", &roles()),
        ],
    )
}

/// For zsh's own completion system.
pub(super) fn zsh() -> String {
    let mut specs = String::new();
    for spec in FLAGS.iter().flat_map(zsh_specs) {
        let _ = writeln!(specs, "    {} \\", quoted(&spec));
    }
    filled(
        include_str!("complete.zsh"),
        &[
            ("@SPECS@", &specs),
            ("@ROLES@", &roles()),
            ("@CLIENTS@", &clients::names().join(" ")),
            ("@TOPICS@", &topic_names(" ")),
        ],
    )
}

fn zsh_specs(flag: &Flag) -> Vec<String> {
    let mut help = flag.help.replace('\\', "\\\\");
    for special in ["[", "]", ":"] {
        help = help.replace(special, &format!("\\{special}"));
    }
    let repeat = if flag.is_repeated() { "*" } else { "" };
    let (equals, value) = match (flag.placeholder, values(flag).as_slice()) {
        _ if !flag.takes_value() => ("", String::new()),
        (name, _) if flag.is_path() => ("=", format!(":{name}:_files")),
        (name, []) => ("=", format!(":{name}: ")),
        (name, values) => ("=", format!(":{name}:({})", values.join(" "))),
    };
    let names = flag.dashed().into_iter();
    let specs = names.map(|name| format!("{repeat}{name}{equals}[{help}]{value}"));
    specs.collect()
}

/// For fish.
pub(super) fn fish() -> String {
    let mut text =
        String::from("# fish completion for fabric-mcp: @PLACE@\ncomplete -c fabric-mcp -f\n");
    for flag in FLAGS {
        let short = flag.short.map(|letter| format!(" -s {letter}"));
        let short = short.unwrap_or_default();
        let long: String = flag.names().map(|name| format!(" -l {name}")).collect();
        let value = match values(flag).as_slice() {
            _ if !flag.takes_value() => String::new(),
            _ if flag.is_path() => " -r -F".to_owned(),
            [] => " -x".to_owned(),
            values => format!(" -x -a {}", fish_quoted(&values.join(" "))),
        };
        let help = fish_quoted(flag.help);
        let _ = writeln!(text, "complete -c fabric-mcp{short}{long}{value} -d {help}");
    }
    let clients = clients::names().join(" ");
    let after = "__fish_seen_subcommand_from client-config client-command";
    let _ = writeln!(text, "complete -c fabric-mcp -n '{after}' -a '{clients}'");
    let (after, roles) = (
        "set -l words (commandline -opc); test \"$words[-2]\" = token",
        roles(),
    );
    let _ = writeln!(text, "complete -c fabric-mcp -n '{after}' -a '{roles}'");
    let (after, topics) = ("__fish_contains_opt -s h help", topic_names(" "));
    let _ = writeln!(text, "complete -c fabric-mcp -n '{after}' -a '{topics}'");
    text
}

/// What can be completed after a flag.
fn values(flag: &Flag) -> Vec<&'static str> {
    match flag.placeholder {
        "TOOL" => TOOLS.iter().map(|tool| tool.name).collect(),
        _ => flag.values(),
    }
}

/// What follows `--generate token NAME`.
fn roles() -> String {
    Role::ALL.map(Role::name).join(" ")
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
    }
}
