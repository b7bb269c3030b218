//! The manual page, in the macros of man(7).

use crate::cli;
use crate::cli::flags::SECTIONS;
use crate::cli::topics::TOPICS;
use crate::text::filled;

/// The crates in the released programs, one a line: name, version and licence.
const CRATES: &str = include_str!("crates.txt");

/// What is not made from tables.
const TEXT: &str = include_str!("man.roff");

/// The page for section 1.
pub(super) fn page() -> String {
    let options = SECTIONS.map(|section| {
        let flags = part(&cli::flags_of(section));
        format!(".SS {}\n{flags}", escaped(section))
    });
    let topics = TOPICS.iter().map(|topic| {
        let parts = topic.text();
        let parts: String = parts.trim_end().split("\n\n").map(part).collect();
        // A heading begins a paragraph.
        let parts = parts.trim_start_matches(".PP\n");
        format!(".SH {}\n{parts}", topic.title().to_ascii_uppercase())
    });
    let crates = CRATES.lines().map(|line| format!(".br\n{}", text(line)));
    let crates: String = crates.collect();
    let holes = [
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@PRECEDENCE@", &text(cli::PRECEDENCE)),
        ("@OPTIONS@", &options.concat()),
        ("@TOPICS@", &topics.collect::<String>()),
        ("@VARIABLES@", &part(&cli::variables())),
        ("@CRATES@", crates.trim_end()),
    ];
    filled(TEXT, &holes)
}

/// A line of text.
fn text(text: &str) -> String {
    // roff would read such a line as a request.
    let is_request = text.starts_with(['.', '\'']);
    let guard = if is_request { "\\&" } else { "" };
    format!("{guard}{}\n", escaped(text))
}

/// A part of the help, which is told by its indentation.
fn part(part: &str) -> String {
    let lines = part.lines().map(|line| match line.strip_prefix("    ") {
        Some(rest) if !part.starts_with("    ") => text(rest.trim_start()),
        Some(rest) => text(rest),
        None => match line.strip_prefix("  ") {
            // A variable of the same meaning is not bold.
            Some(term) => format!(".TP\n.B {}\n", escaped(term).replacen(" [", "\\fR [", 1)),
            None => text(line),
        },
    });
    let lines: String = lines.collect();
    match part.as_bytes() {
        [b' ', b' ', b' ', ..] => format!(".PP\n.nf\n.RS 4\n{lines}.RE\n.fi\n"),
        [b' ', ..] => lines,
        _ => format!(".PP\n{lines}"),
    }
}

/// Escapes text for roff. Hyphens become minus signs and tildes stay what they are, so that commands can be copied.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('~', "\\(ti")
        .replace('…', "...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_crates_are_those_of_the_lock_file() {
        /// Locked, but in no released program: they make code at build time, or are for other systems.
        const LEFT_OUT: &str = "cc find-msvc-tools proc-macro2 quote serde_derive shlex syn \
            unicode-ident wasi windows-sys@0.52.0 windows-targets windows_aarch64_gnullvm \
            windows_aarch64_msvc windows_i686_gnu windows_i686_gnullvm windows_i686_msvc \
            windows_x86_64_gnu windows_x86_64_gnullvm windows_x86_64_msvc";
        let value = |entry: &str, key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_matches(|c| " =\"".contains(c)).to_owned())
        };
        let left_out: Vec<&str> = LEFT_OUT.split(' ').collect();
        let mut locked: Vec<(String, String)> = include_str!("../../Cargo.lock")
            .split("[[package]]")
            .filter_map(|entry| Some((value(entry, "name")?, value(entry, "version")?)))
            .filter(|(name, version)| {
                !left_out
                    .iter()
                    .any(|out| *out == name || *out == format!("{name}@{version}"))
                    && name != "fabric-mcp"
            })
            .collect();
        locked.sort();
        let listed = CRATES.lines();
        let listed: Vec<Vec<&str>> = listed.map(|line| line.splitn(3, ' ').collect()).collect();
        let is_so = listed
            .iter()
            .all(|fields| fields.len() == 3 && !fields[2].is_empty());
        assert!(is_so, "{CRATES}");
        let listed: Vec<(String, String)> = listed
            .iter()
            .map(|f| (f[0].to_owned(), f[1].to_owned()))
            .collect();
        assert_eq!(
            listed, locked,
            ".ci/packaging/about.py crates prints the list"
        );
    }

    #[test]
    fn entries_look_like_this() {
        let page = page();
        assert!(page.is_ascii());
        for entry in [
            ".TP\n.B \\-\\-path, \\-\\-mcp\\-path PATH\\fR [FABRIC_MCP_PATH]\nPath of the MCP \
             endpoint (http and sse) [default: /mcp, on sse /sse]\n",
            ".TP\n.B \\-h, \\-\\-help\nPrint help: \\-h in short, \\-\\-help in full, \\-\\-help TOPIC on one topic\n",
            ".TP\n.B SSL_CERT_FILE\n",
            ".SH EXIT STATUS\n",
        ] {
            assert!(page.contains(entry), "{entry}\n{page}");
        }
    }

    #[test]
    fn text_cannot_become_a_request() {
        assert_eq!(text(".so /etc/passwd"), "\\&.so /etc/passwd\n");
        assert_eq!(text("'a \\fB"), "\\&'a \\efB\n");
    }
}
