//! The texts of `--help` and `--version`: lines of 80 characters at most.

use super::flags::{FLAGS, Flag, SECTIONS, VARIABLES, by_long};
use super::topics::{self, TOPICS, Topic, list, topic_names};
use super::unknown;
use crate::text::wrapped;

/// How both texts begin.
const HEAD: &str = include_str!("head.txt");
/// The flags that `-h` shows, each with a line.
const FIRST_FLAGS: &str = include_str!("first_flags.txt");

/// What `--version` prints, without a line end.
pub(super) const VERSION: &str = concat!("fabric-mcp ", env!("CARGO_PKG_VERSION"));

/// What `--help` prints, or `-h` on one screen, or `--help TOPIC`. Ends with a line end.
pub(super) fn help(is_short: bool, words: &[String]) -> Result<String, String> {
    let text = match words {
        [] => whole(is_short),
        [topic, code, ..] if topic == "problems" => {
            let rows = topics::problem(code);
            if rows.is_empty() {
                let why = "is not a code of --check";
                return Err(unknown("--help problems", code, why, topics::codes()));
            }
            list(rows)
        }
        [word, ..] => {
            let topic = TOPICS.iter().find(|topic| topic.name == word).map(about);
            let found = topic.or_else(|| Some(list([entry(by_long(word)?)])));
            found.ok_or_else(|| unknown("--help", word, "is not a topic", topic_names()))?
        }
    };
    Ok(fitted(&text))
}

/// The text for a terminal: a long line goes on below its beginning.
fn fitted(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        format!("{:indent$}{}\n", "", wrapped(words, indent))
    });
    lines.collect()
}

/// The help, in short or in full.
fn whole(is_short: bool) -> String {
    let (flags, variables) = (SECTIONS.map(section).concat(), variables());
    let body = match is_short {
        true => format!("\n{FIRST_FLAGS}\nMore: --help, or"),
        false => format!(
            "{flags}\nVariables without a flag:\n{variables}\n\n{PRECEDENCE}\n\nMore: fabric-mcp"
        ),
    };
    let topics = topic_names().join(", ");
    format!(
        "{VERSION}: a Model Context Protocol server in front of Fabric's REST API\n\n{HEAD}{body} \
         --help TOPIC, where TOPIC is one of {topics}."
    )
}

/// How flags and variables go together.
pub(crate) const PRECEDENCE: &str = "A flag wins over its variable, and an empty variable counts \
    as unset. Times are in seconds. In a variable, separate several values with commas, \
    and set a switch to true.";

fn about(topic: &Topic) -> String {
    let flags = topic.section.map(section).unwrap_or_default();
    format!("{}\n\n{}{flags}", topic.title(), topic.text())
}

fn section(section: &str) -> String {
    format!("\n{section}:\n{}\n", flags_of(section))
}

/// The flags of a section.
pub(crate) fn flags_of(section: &str) -> String {
    let flags = FLAGS.iter().filter(|flag| flag.section == section);
    list(flags.map(entry))
}

/// The variables that have no flag.
pub(crate) fn variables() -> String {
    list(VARIABLES.iter().copied())
}

/// How a flag is written, and what it does.
fn entry(flag: &Flag) -> (String, String) {
    let space = if flag.takes_value() { " " } else { "" };
    let mut term = flag.dashed().join(", ") + space + flag.placeholder;
    if let Some(variable) = flag.env() {
        term.push_str(&format!(" [{variable}]"));
    }
    let mut help = flag.help.to_owned();
    if flag.repeats {
        help.push_str("; can be repeated");
    }
    if !flag.default.is_empty() {
        help.push_str(&format!(" [default: {}]", flag.default));
    }
    (term, help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::by_long;
    use crate::text::WIDTH;

    /// Every text, as it fits on a terminal.
    fn all() -> Vec<String> {
        let topics = TOPICS.iter().map(about);
        let all = [true, false].map(whole).into_iter().chain(topics);
        all.map(|text| fitted(&text)).collect()
    }

    #[test]
    fn every_text_fits_a_terminal() {
        for text in all() {
            assert!(
                text.lines()
                    .all(|line| line.chars().count() <= WIDTH && line.trim_end() == line),
                "{text}"
            );
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
        }
        let short = fitted(&whole(true));
        assert!(short.lines().count() <= 25, "a screenful\n{short}");
    }

    fn is_choice(word: &str) -> bool {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    }

    /// Every flag of a command, and a choice that follows it, exists; returns how many flags there are.
    fn check_commands(file: &str, text: &str) -> usize {
        let mut flags = 0;
        for line in text.lines() {
            let words = line.split(|c: char| c.is_whitespace() || "`|,.;:=()\"".contains(c));
            let mut before: Option<&Flag> = None;
            for word in words {
                let choices = before.take().map(Flag::values).unwrap_or_default();
                if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
                    before = by_long(name);
                    let is_so = before.is_some();
                    assert!(is_so, "{file} has {word}, which is no flag: {line}");
                    flags += 1;
                } else if !choices.is_empty() && is_choice(word) {
                    let known = choices.contains(&word);
                    assert!(known, "{file}: {word}, none of {choices:?}");
                }
            }
        }
        flags
    }

    #[test]
    fn texts_name_flags_and_choices_that_exist() {
        let readme = include_str!("../../README.md");
        let topics = TOPICS
            .iter()
            .map(|topic| (topic.name, fitted(&about(topic))));
        for (file, text) in topics.chain([("README.md", readme.to_owned())]) {
            let commands = text.lines();
            let commands = commands.filter_map(|line| line.split_once("fabric-mcp -"));
            let commands: Vec<_> = commands.map(|(_, rest)| format!("-{rest}")).collect();
            let flags = check_commands(file, &commands.join("\n"));
            assert!(file != "README.md" || flags > 16, "{flags}");
        }
        let first = "src/cli/first_flags.txt";
        let example = include_str!("../../.env.example");
        let heads = FIRST_FLAGS.lines();
        let heads = heads.filter_map(|line| line.trim_start().split("  ").next());
        check_commands(first, &Vec::from_iter(heads).join("\n"));
        let others = "serve setup api-key updatepatterns client-id client-secret depth \
                      allow-downgrades now secret";
        for text in all() {
            let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '-');
            let mut names = words.filter_map(|word| word.strip_prefix("--"));
            let is_gone = |name: &&str| by_long(name).is_none() && !others.contains(name);
            assert_eq!(names.find(is_gone), None, "neither ours nor of others");
        }
        // Where a flag is explained, all of its choices are named, or before `…` some.
        for flag in FLAGS.iter().filter(|flag| flag.placeholder != "CLIENT") {
            let (long, env) = (format!("--{} ", flag.long), flag.env().unwrap_or_default());
            let mut lines = FIRST_FLAGS.lines();
            let line = lines.find_map(|line| Some((first, line.split_once(&long)?.1)));
            let block = example.split_once(&format!("\n#{env}="));
            let block = block.and_then(|(before, _)| before.rsplit("\n\n").next());
            let block = block.map(|text| (".env.example", text));
            for (file, text) in [line, block].into_iter().flatten() {
                let choices = flag.values();
                let wrong = match text.split_once('…') {
                    Some((some, _)) => {
                        let mut named = some.split([' ', ',']).filter(|word| is_choice(word));
                        named.find(|word| !choices.contains(word))
                    }
                    None => choices.into_iter().find(|choice| !text.contains(choice)),
                };
                assert_eq!(wrong, None, "{file}, of the choices of --{}", flag.long);
            }
        }
    }

    #[test]
    fn entries_read_like_this() {
        let text = fitted(&whole(false));
        for entry in [
            "  --port PORT [FABRIC_MCP_PORT]\n          Port to listen on (http and sse); 0 takes a free one [default: 8000]\n",
            "  --path, --mcp-path PATH [FABRIC_MCP_PATH]\n",
            "  --fabric-url URL [FABRIC_BASE_URL]\n",
            "  --demo [FABRIC_MCP_DEMO]\n",
            "          Refuse to run a pattern; can be repeated\n",
            "  -h, --help\n          Print help: -h in short, --help in full, --help TOPIC on one topic\n",
            "  FABRIC_API_KEY\n          Key of Fabric's API",
        ] {
            assert!(text.contains(entry), "{entry}{text}");
        }
        let topic = TOPICS.iter().find(|topic| topic.name == "network").unwrap();
        let topic = fitted(&about(topic));
        for part in [
            "Serving a network\n\n    fabric-mcp --transport http --port 8000\n\n--transport http serves any",
            "\n    fabric-mcp --transport http --host 0.0.0.0",
            "\nNetwork (http and sse):\n  --allowed-host HOST [FABRIC_MCP_ALLOWED_HOST]\n",
        ] {
            assert!(topic.contains(part), "{topic}");
        }
    }
}
