//! Completions for bash, zsh and fish: flags, fixed values, clients, and topics after `--help`.

use crate::access::Role;
use crate::cli::flags::{FLAGS, Flag};
use crate::cli::topics::{codes, topic_names};
use crate::clients;
use crate::text::filled;
use crate::tools::TOOLS;

/// The completion of this shell: `bash` 3.2 and later, with or without the package bash-completion, `zsh`'s own system,
/// or `fish`.
pub(super) fn complete(shell: &str) -> String {
    let (text, row): (_, fn(&Flag) -> String) = match shell {
        "bash" => (include_str!("complete.bash"), bash),
        "zsh" => (include_str!("complete.zsh"), zsh),
        _ => (include_str!("complete.fish"), fish),
    };
    let rows: String = FLAGS.iter().map(row).collect();
    let names: Vec<String> = FLAGS.iter().flat_map(Flag::dashed).collect();
    let holes = [
        ("@ROWS@", &*rows),
        ("@FLAGS@", &names.join(" ")),
        ("@CLIENTS@", &clients::names().join(" ")),
        ("@TOPICS@", &topic_names().join(" ")),
        ("@CODES@", &codes().join(" ")),
        ("@ROLES@", &Role::ALL.map(Role::name).join(" ")),
    ];
    filled(text, &holes)
}

fn bash(flag: &Flag) -> String {
    let names = flag.dashed().join(" | ");
    match flag.is_path() {
        _ if !flag.takes_value() => String::new(),
        true => format!("    {names}) files=1 ;;\n"),
        false => format!("    {names}) words=\"{}\" ;;\n", values(flag).join(" ")),
    }
}

fn zsh(flag: &Flag) -> String {
    let mut help = flag.help.replace('\\', "\\\\");
    for special in ["[", "]", ":"] {
        help = help.replace(special, &format!("\\{special}"));
    }
    let repeat = if flag.repeats { "*" } else { "" };
    let (equals, value) = match (flag.placeholder, values(flag).as_slice()) {
        ("[=PROGRAM]", _) => ("=-", "::PROGRAM:_files".to_owned()),
        _ if !flag.takes_value() => ("", String::new()),
        (name, _) if flag.is_path() => ("=", format!(":{name}:_files")),
        (name, []) => ("=", format!(":{name}: ")),
        (name, values) => ("=", format!(":{name}:({})", values.join(" "))),
    };
    let names = flag.dashed().into_iter();
    let specs = names.map(|name| format!("{repeat}{name}{equals}[{help}]{value}"));
    let specs = specs.map(|spec| format!("    {} \\\n", clients::shell(&spec, "linux")));
    specs.collect()
}

fn fish(flag: &Flag) -> String {
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
    format!("complete -c fabric-mcp{short}{long}{value} -d {help}\n")
}

/// What can be completed after a flag.
fn values(flag: &Flag) -> Vec<&'static str> {
    match flag.placeholder {
        "TOOL" => TOOLS.iter().map(|tool| tool.name).collect(),
        _ => flag.values(),
    }
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
        assert!(complete("bash").contains("    --transport) words=\"stdio http sse\" ;;\n"));
        assert!(complete("bash").contains("    --path | --mcp-path) words=\"\" ;;\n"));
        for line in [
            "    '--transport=[How clients reach the server\\: stdio, http or sse]:TRANSPORT:(stdio http sse)' \\\n",
            "    '*--deny-pattern=[Refuse to run a pattern]:NAME: ' \\\n",
            "    '-h[Print help\\: -h in short, --help in full, --help TOPIC on one topic]' \\\n",
        ] {
            assert!(complete("zsh").contains(line), "{line}{}", complete("zsh"));
        }
        assert!(complete("fish").contains("complete -c fabric-mcp -s h -l help -d 'Print help: -h in short, --help in full, --help TOPIC on one topic'\n"));
        assert!(complete("fish").contains("\ncomplete -c fabric-mcp -l path -l mcp-path -x -d "));
    }
}
