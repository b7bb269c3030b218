//! The manual page, in the macros of man(7).

use std::fmt::Write;

use super::filled;
use crate::cli;
use crate::cli::flags::{FLAGS, Flag, Section, VARIABLES};
use crate::cli::topics::{HelpBlock, TOPICS};
use crate::clients::CLIENTS;

/// The crates in the released programs, one a line: name, version and licence.
const CRATES: &str = include_str!("crates.txt");

/// What is not made from tables.
const TEXT: &str = include_str!("man.roff");

/// The page for section 1.
pub(super) fn page() -> String {
    let written = |write: &dyn Fn(&mut Page)| {
        let mut page = Page(String::new());
        write(&mut page);
        page.0
    };
    let options = written(&|page| {
        for (section, title) in Section::ALL {
            page.raw(&format!(".SS {}", escaped(title)));
            for flag in FLAGS.iter().filter(|flag| flag.section == section) {
                page.flag(flag);
            }
        }
    });
    let topics = written(&|page| {
        for topic in TOPICS {
            page.raw(&format!(".SH {}", topic.title().to_ascii_uppercase()));
            topic.blocks().iter().for_each(|block| page.block(block));
        }
    });
    let variables = written(&|page| {
        for (name, help) in VARIABLES {
            page.term(name, &format!("{help}."));
        }
    });
    let files = written(&|page| {
        let home = |name: &str| (name == "HOME").then(|| "~".into());
        for client in CLIENTS {
            if let Some(file) = client.file("linux", &home) {
                // A line may break after a slash.
                let file = escaped(&file.to_string_lossy()).replace('/', "/\\:");
                page.raw(&format!(".TP\n.B {file}"));
                page.text(&format!("The servers of {}.", client.title));
            }
        }
    });
    let crates = written(&|page| {
        for line in CRATES.lines() {
            page.raw(".br");
            page.text(line);
        }
    });
    filled(
        TEXT,
        &[
            ("@VERSION@", env!("CARGO_PKG_VERSION")),
            ("@PRECEDENCE@", &written(&|page| page.text(cli::PRECEDENCE))),
            ("@OPTIONS@", &options),
            ("@TOPICS@", &topics),
            ("@VARIABLES@", &variables),
            ("@FILES@", &files),
            ("@CRATES@", crates.trim_end()),
        ],
    )
}

struct Page(String);

impl Page {
    /// A line of roff.
    fn raw(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    /// A word and what it means.
    fn term(&mut self, term: &str, meaning: &str) {
        self.raw(".TP");
        self.raw(&format!(".B {}", escaped(term)));
        self.text(meaning);
    }

    fn text(&mut self, text: &str) {
        let text = escaped(text);
        // roff would read such a line as a request.
        let guard = if text.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        self.raw(&format!("{guard}{text}"));
    }

    /// Begins a paragraph, unless a heading did.
    fn paragraph(&mut self) {
        if !self
            .0
            .lines()
            .last()
            .is_some_and(|line| line.starts_with(".SH"))
        {
            self.raw(".PP");
        }
    }

    fn block(&mut self, block: &HelpBlock) {
        match block {
            HelpBlock::Text(text) => {
                self.paragraph();
                self.text(text);
            }
            HelpBlock::List(terms) => {
                for (term, meaning) in terms {
                    self.term(term, meaning);
                }
            }
            HelpBlock::Code(lines) => {
                self.paragraph();
                self.raw(".nf\n.RS 4");
                lines.lines().for_each(|line| self.text(line));
                self.raw(".RE\n.fi");
            }
        }
    }

    fn flag(&mut self, flag: &Flag) {
        let short = flag.short.map(|letter| format!("-{letter}"));
        let names = short.into_iter().chain(flag.dashed());
        let names = names.map(|name| format!("\\fB{}\\fR", escaped(&name)));
        let mut tag = names.collect::<Vec<_>>().join(", ");
        if flag.takes_value() {
            let _ = write!(tag, " \\fI{}\\fR", escaped(flag.placeholder));
        }
        self.raw(".TP");
        self.raw(&tag);
        let mut help = format!("{}.", flag.help);
        if flag.is_repeated() {
            help.push_str(" Can be repeated.");
        }
        if !flag.default.is_empty() {
            let _ = write!(help, " Default: {}.", flag.shown_default());
        }
        if let Some(name) = flag.env() {
            let _ = write!(help, " Variable: {name}.");
        }
        self.text(&help);
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
        const LEFT_OUT: &str = "cc find-msvc-tools proc-macro2 quote serde_derive shlex syn unicode-ident wasi \
             windows-sys@0.52.0 windows-targets windows_aarch64_gnullvm windows_aarch64_msvc windows_i686_gnu \
             windows_i686_gnullvm windows_i686_msvc windows_x86_64_gnu windows_x86_64_gnullvm windows_x86_64_msvc";
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
        let listed: Vec<Vec<&str>> = CRATES
            .lines()
            .map(|line| line.splitn(3, ' ').collect())
            .collect();
        assert!(
            listed
                .iter()
                .all(|fields| fields.len() == 3 && !fields[2].is_empty()),
            "{CRATES}"
        );
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
            ".TP\n\\fB\\-\\-path\\fR, \\fB\\-\\-mcp\\-path\\fR \\fIPATH\\fR\nPath of the MCP endpoint (http and sse). \
             Default: /mcp, on sse /sse. Variable: FABRIC_MCP_PATH.\n",
            ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint help: \\-h in short, \\-\\-help in full, \\-\\-help TOPIC on one thing.\n",
            ".TP\n.B SSL_CERT_FILE\n",
            ".SH EXIT STATUS\n",
            ".TP\n.B \\(ti/\\:.cursor/\\:mcp.json\nThe servers of Cursor.\n",
        ] {
            assert!(page.contains(entry), "{entry}\n{page}");
        }
    }

    #[test]
    fn text_cannot_become_a_request() {
        let mut page = Page(String::new());
        page.text(".so /etc/passwd");
        page.text("'a \\fB");
        assert_eq!(page.0, "\\&.so /etc/passwd\n\\&'a \\efB\n");
    }
}
