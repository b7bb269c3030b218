//! The command line and environment: from arguments and variables to a [`Command`].
//!
//! In scope: flags, variables, their precedence, errors, and the help text. Not in scope: running the command. No I/O: the
//! environment and the token file are parameters.
//!
//! ```text
//! args ─── RawFlags::read ──► RawFlags ── resolve (variables, defaults, bounds) ──► Config ──► Command
//! ```
//!
//! Parsing, the names of variables, `--help` and `--generate` all use the table [`flags::FLAGS`].

pub(crate) mod flags;
mod help;
mod resolve;
mod values;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

use lexopt::Arg;

use crate::config::{Config, MAX_SECRET, Secret};
use flags::{Flag, FlagId, Takes};

pub(crate) use help::{help, version};

/// What the program is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve MCP.
    Serve(Box<Config>),
    /// Test the connection to Fabric and report: `--check`, as JSON with `--json`.
    Check {
        /// Whether to report in JSON.
        json: bool,
        /// The settings to check.
        config: Box<Config>,
    },
    /// Print the catalogue of tools: `--list-tools`.
    ListTools,
    /// Print a file generated from the table of flags: `--generate`.
    Generate(Generate),
    /// Print [`help()`].
    Help,
    /// Print [`version()`].
    Version,
}

/// What `--generate` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Generate {
    /// The manual page.
    Man,
    /// Completion for bash.
    CompleteBash,
    /// Completion for zsh.
    CompleteZsh,
    /// Completion for fish.
    CompleteFish,
    /// A unit for systemd.
    SystemdUnit,
    /// The same for several on one machine, by port.
    SystemdTemplate,
    /// The group that reads the tokens file, for systemd-sysusers.
    Sysusers,
    /// A scrape configuration and alert rules for Prometheus.
    Prometheus,
    /// A line of the tokens file.
    Token(Secret),
    /// A snippet for the configuration of an MCP client.
    ClientConfig(McpClient),
}

/// A client `--generate client-config` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpClient {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Visual Studio Code.
    Vscode,
    /// Cursor.
    Cursor,
    /// Zed.
    Zed,
}

/// A mistake in a flag or variable: one line that names it and says what to do. The process exits with 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns a variable's value, as `std::env::var_os` does.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;
/// Returns a small file's text, as [`read_secret`] does.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Parses the arguments after the program's name.
///
/// Commands about the program itself (`--help`, `--version`, `--generate`, `--list-tools`, in this order of precedence)
/// ignore wrong values of settings; the others need every setting to be valid.
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: Env<'_>,
    read_file: ReadFile<'_>,
) -> Result<Command, UsageError> {
    let raw = RawFlags::read(args)?;
    if raw.has(FlagId::Help) {
        return Ok(Command::Help);
    }
    if raw.has(FlagId::Version) {
        return Ok(Command::Version);
    }
    if let Some(what) = raw.last(FlagId::Generate) {
        return values::generate(what, &raw.words).map(Command::Generate);
    }
    if let Some(word) = raw.words.first() {
        return Err(unexpected_word(word));
    }
    let (check, json) = (raw.has(FlagId::Check), raw.has(FlagId::Json));
    if json && !check {
        return Err(UsageError("--json only goes with --check; add --check or leave --json out".to_owned()));
    }
    if raw.has(FlagId::ListTools) {
        return Ok(Command::ListTools);
    }
    let config = Box::new(resolve::resolve(&raw, env, read_file)?);
    Ok(if check { Command::Check { json, config } } else { Command::Serve(config) })
}

/// Reads a file that holds a token: text of [`MAX_SECRET`] bytes at most.
pub(crate) fn read_secret(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let limit = MAX_SECRET as u64 + 1;
    std::fs::File::open(path)?.take(limit).read_to_string(&mut text)?;
    if text.len() > MAX_SECRET {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {MAX_SECRET} bytes")));
    }
    Ok(text)
}

/// The arguments as written: known flags with their raw values.
#[derive(Debug, Default)]
struct RawFlags {
    /// In order; a switch has an empty value.
    given: Vec<(FlagId, OsString)>,
    /// Words that belong to no flag.
    words: Vec<OsString>,
}

impl RawFlags {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<RawFlags, UsageError> {
        let mut raw = RawFlags::default();
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next().map_err(explain)? {
            let flag = match arg {
                Arg::Long(name) => flags::by_long(name).ok_or_else(|| unknown_long(name))?,
                Arg::Short(letter) => flags::by_short(letter).ok_or_else(|| unknown_short(letter))?,
                Arg::Value(word) => {
                    raw.words.push(word);
                    continue;
                }
            };
            let value = match flag.takes {
                Takes::Nothing => OsString::new(),
                Takes::One(_) | Takes::Many(_) => value_of(flag, &mut parser)?,
            };
            raw.given.push((flag.id, value));
        }
        Ok(raw)
    }

    fn has(&self, id: FlagId) -> bool {
        self.last(id).is_some()
    }

    /// The last value of a flag, which wins.
    fn last(&self, id: FlagId) -> Option<&OsStr> {
        self.all(id).last()
    }

    fn all(&self, id: FlagId) -> impl Iterator<Item = &OsStr> {
        self.given.iter().filter(move |(given, _)| *given == id).map(|(_, value)| value.as_os_str())
    }
}

fn value_of(flag: &Flag, parser: &mut lexopt::Parser) -> Result<OsString, UsageError> {
    if let Some(value) = parser.optional_value() {
        return Ok(value);
    }
    match parser.value() {
        // No valid value begins like this: the value was forgotten.
        Ok(value) if !value.as_encoded_bytes().starts_with(b"--") => Ok(value),
        _ => Err(UsageError(format!("--{} needs a value: --{0} {}", flag.long, flag.placeholder()))),
    }
}

fn explain(error: lexopt::Error) -> UsageError {
    UsageError(match error {
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value; write {option} alone"),
        other => other.to_string(),
    })
}

/// Flags that people try, and the variables to use instead: every user of the machine can read a command line.
const SECRETS: [(&str, &str); 9] = [
    ("api-key", "FABRIC_API_KEY"),
    ("apikey", "FABRIC_API_KEY"),
    ("fabric-api-key", "FABRIC_API_KEY"),
    ("key", "FABRIC_API_KEY"),
    ("auth-token", "FABRIC_MCP_AUTH_TOKEN"),
    ("bearer-token", "FABRIC_MCP_AUTH_TOKEN"),
    ("token", "FABRIC_MCP_AUTH_TOKEN"),
    ("client-secret", "FABRIC_MCP_OAUTH_CLIENT_SECRET"),
    ("oauth-client-secret", "FABRIC_MCP_OAUTH_CLIENT_SECRET"),
];

fn unknown_long(name: &str) -> UsageError {
    let name = values::shown(name);
    let usual = name.to_ascii_lowercase().replace('_', "-");
    if let Some((_, variable)) = SECRETS.iter().find(|(secret, _)| *secret == usual) {
        return UsageError(format!(
            "--{name} is refused, because every user of this machine can read a command line; set the variable \
             {variable} instead"
        ));
    }
    UsageError(match flags::closest(&usual, flags::FLAGS.iter().flat_map(Flag::names)) {
        Some(close) => format!("--{name} is not a flag; did you mean --{close}?"),
        None => format!("--{name} is not a flag; fabric-mcp --help lists them"),
    })
}

fn unknown_short(letter: char) -> UsageError {
    let letter = letter.escape_debug();
    UsageError(format!("-{letter} is not a flag; long flags begin with two dashes, and fabric-mcp --help lists them"))
}

fn unexpected_word(word: &OsStr) -> UsageError {
    let word = word.to_string_lossy();
    let hint = match flags::get(FlagId::Transport).choices.iter().find(|choice| **choice == word) {
        Some(transport) => format!("did you mean --transport {transport}?"),
        None => "fabric-mcp takes flags only, and fabric-mcp --help lists them".to_owned(),
    };
    UsageError(format!("\"{}\" belongs to no flag; {hint}", values::shown(&word)))
}

#[cfg(test)]
mod tests;
