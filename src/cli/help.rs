//! The texts of `--help` and `--version`.

use super::flags::{FLAGS, Flag, Section, Takes, VARIABLES};

/// What `--version` prints, without a line end.
pub(crate) fn version() -> &'static str {
    concat!("fabric-mcp ", env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints: lines of 100 characters at most, the last one ended.
pub(crate) fn help() -> String {
    let mut text = format!(
        "{}: a Model Context Protocol server in front of Fabric's REST API\n\n\
         Usage: fabric-mcp [FLAG]...\n\n\
         Without flags it speaks MCP over stdin and stdout with the Fabric at http://127.0.0.1:8080.\n\
         See it work without any Fabric: fabric-mcp --demo --check\n",
        version()
    );
    for section in Section::ALL {
        text.push_str(&format!("\n{}:\n", section.title()));
        for flag in FLAGS.iter().filter(|flag| flag.section == section) {
            text.push_str(&entry(flag));
        }
    }
    text.push_str("\nOnly as variables:\n");
    for variable in VARIABLES {
        text.push_str(&format!("  {}\n          {}\n", variable.name, variable.help));
    }
    text.push_str(
        "\nA flag wins over its variable, and an empty variable is one that is not set. Times are in seconds.\n\
         In a variable, separate several values by commas; switch a switch on with true.\n",
    );
    text
}

fn entry(flag: &Flag) -> String {
    let short = flag.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let alias = flag.alias.map(|alias| format!(", --{alias}")).unwrap_or_default();
    let (space, repeated) = match flag.takes {
        Takes::Nothing => ("", ""),
        Takes::One(_) => (" ", ""),
        Takes::Many(_) => (" ", "; can be repeated"),
    };
    let default = if flag.default.is_empty() { String::new() } else { format!(" [default: {}]", flag.default) };
    let variable = flag.env().map(|name| format!(" [{name}]")).unwrap_or_default();
    let head = format!("  {short}--{}{alias}{space}{}{variable}", flag.long, flag.placeholder());
    format!("{head}\n{}\n", wrapped(&format!("{}{repeated}{default}", flag.help)))
}

/// Indented lines of 100 characters at most.
fn wrapped(text: &str) -> String {
    let mut lines = vec![" ".repeat(9)];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.len() + 1 + word.len() > 100) {
            lines.push(" ".repeat(9));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_and_variable_is_in_the_help() {
        let text = help();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in FLAGS {
            assert!(text.contains(&format!("--{}", flag.long)) && words.contains(flag.help), "--{}", flag.long);
            assert!(flag.env().is_none_or(|name| text.contains(&format!("[{name}]"))), "--{}", flag.long);
        }
        assert!(VARIABLES.iter().all(|variable| text.contains(variable.name)));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.ends_with(".\n"));
    }

    #[test]
    fn entries_read_like_this() {
        let text = help();
        for entry in [
            "  --port PORT [FABRIC_MCP_PORT]\n          Port to listen on (http and sse); 0 takes a free one [default: 8000]\n",
            "  --path, --mcp-path PATH [FABRIC_MCP_PATH]\n",
            "  --fabric-url URL [FABRIC_BASE_URL]\n",
            "  --demo [FABRIC_MCP_DEMO]\n",
            "          Refuse to run a pattern; can be repeated\n",
            "  -h, --help\n          Print this help\n",
            "  FABRIC_API_KEY\n          Key of Fabric's API",
        ] {
            assert!(text.contains(entry), "{entry}{text}");
        }
    }
}
