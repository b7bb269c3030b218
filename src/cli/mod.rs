//! The command line and environment: from arguments and variables to a [`Command`].
//!
//! In scope: flags, variables, precedence, errors, and help. Not in scope: running the command. No I/O: the environment
//! and the token file are parameters; only a relative path for a client asks for the current folder.
//!
//! ```text
//! args, variables ── FlagsAndEnv::read ──► FlagsAndEnv ── resolve (defaults, bounds) ──► Config ──► Command
//! ```
//!
//! Parsing, the names of variables, `--help` and `--generate` all use the table [`flags::FLAGS`].

pub(crate) mod flags;
mod help;
mod launch;
mod parse;
mod resolve;
pub(crate) mod topics;
mod values;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::clients::install::Installation;
use crate::clients::{self, ForClient, McpClient};
use crate::config::{Config, Connect, Prices, Secret};
use crate::os::files;
use crate::text::hint;
use parse::FlagsAndEnv;

pub(crate) use help::{PRECEDENCE, flags_of, variables};
pub(crate) use launch::{START, start_flag};
pub(crate) use parse::unexpected_word;
pub(crate) use values::from_home;

/// What the program is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve MCP, or do this instead, as a server of its own.
    Here(Task, Box<Config>),
    /// The same at another server: `--connect`.
    There(Task, Connect, Box<Config>),
    /// Print the catalogue of the tools that are offered, as `tools/list` has them with `--json`: `--list-tools`.
    ListTools(Box<Config>),
    /// Ask the server on this machine that listens on this host and port whether it is up: `--healthcheck`. A mistake in
    /// them leads to exit code 1, because Docker reserves exit code 2 of a health check.
    Healthcheck(Result<Box<Config>, String>),
    /// Print what the ledger in the state folder says was used: `--usage`. The text is a month or a first day; the flag
    /// says whether only that month counts. `None` means this month.
    Usage(Box<Config>, Option<(String, bool)>, Option<Prices>),
    /// Say what is wrong with a tokens file: `--check-tokens`. It must not have the token of the environment, which is
    /// given here, and may have budgets only if there is a state folder, as the flag says.
    CheckTokens(PathBuf, Option<Secret>, bool),
    /// Print what this word of `--generate` names, for the words after it; and the client among these, with how it reaches
    /// the server.
    Generate(&'static str, Vec<String>, Option<ForClient>),
    /// Write these patterns, or all if none is named, into a folder, as this word of `--generate` says: `skills`, `skill`
    /// or `plugin`. The configuration says where the patterns come from.
    Skills(&'static str, PathBuf, Vec<String>, Box<Config>),
    /// Change a client's configuration file.
    Install(Installation),
    /// Print this: `--help`, `--version`.
    Print(String),
}

/// What is done with a server.
#[derive(Debug)]
pub(crate) enum Task {
    /// Serve clients: over `--transport`, or by passing on what they send to stdin.
    Serve,
    /// Test the connection and report: `--check`.
    Check,
    /// Call this tool, with these words as its arguments, and print its result: `--call`.
    Call(String, Vec<String>),
}

/// Why the process ends with an exit code other than 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExitReason {
    /// The code: 1 if something cannot be done, 2 for a mistake in a flag or variable, 128 + its number for a signal.
    pub(crate) code: u8,
    /// One line for stderr.
    pub(crate) reason: String,
}

impl ExitReason {
    pub(crate) fn failed(reason: impl Into<String>) -> ExitReason {
        let reason = reason.into();
        ExitReason { code: 1, reason }
    }

    pub(crate) fn usage(reason: impl Into<String>) -> ExitReason {
        let reason = reason.into();
        ExitReason { code: 2, reason }
    }

    /// The result of a command that could not write to stdout: true if the reader has closed the pipe, as `| head` does.
    pub(crate) fn unwritable(error: io::Error) -> Result<bool, ExitReason> {
        let reason = format!("stdout cannot be written: {error}");
        match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(true),
            _ => Err(ExitReason::failed(reason)),
        }
    }
}

fn named(name: &str, reason: impl Display) -> String {
    format!("{name}: {reason}")
}

/// Returns a small file's text, as [`read_file`] does.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Parses the arguments after the program's name.
///
/// Commands about the program itself (`--help`, `--version`, `--generate man` and the like, `--list-tools`, in this order
/// of precedence) ignore wrong values of settings; the others need every setting to be valid. `variables` are those that
/// are not empty.
///
/// # Errors
/// A mistake in a flag or variable, in one line.
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    variables: &[(String, OsString)],
    read_file: ReadFile<'_>,
) -> Result<Command, String> {
    let settings = FlagsAndEnv::read(args, variables, read_file)?;
    if let Some(on) = settings.last("help") {
        let text = help::help(on == parse::LETTER, &settings.words);
        return text.map(Command::Print);
    }
    if settings.has("version") {
        return Ok(Command::Print(format!("{}\n", help::VERSION)));
    }
    settings.refuse_strays()?;
    if let Some(what) = settings.last("generate") {
        return generate(what, &settings);
    }
    if settings.has("usage") {
        return usage(&settings);
    }
    if let ([word, ..], false) = (settings.words.as_slice(), settings.has("call")) {
        return Err(match settings.last("start-fabric") {
            Some("true") if flags::by_long(word).is_none() => {
                format!("{START} takes its value after =: did you mean {START}={word}?")
            }
            _ => unexpected_word(word),
        });
    }
    if let Some(file) = settings.one("check-tokens", |file| Ok(file.to_owned()))? {
        let default = settings.secret(flags::AUTH_TOKEN)?;
        let has_ledger = settings.is_given("state-dir");
        return Ok(Command::CheckTokens(file.into(), default, has_ledger));
    }
    for flag in ["install", "uninstall"] {
        if let Some(client_name) = settings.last(flag) {
            let client = client(&format!("--{flag}"), client_name)?;
            let launch = (flag == "install").then(|| launch::launch(client, &settings));
            let history = settings.has("no-history").then_some(false);
            let name = settings.one("name", values::server_name)?;
            let offers = ["url", "fabric-url", "demo", "patterns-dir", "start-fabric"];
            return Ok(Command::Install(Installation {
                client,
                name: name.unwrap_or_else(|| clients::NAME.to_owned()),
                launch: launch.transpose()?,
                url: settings.one("url", values::connect_url)?,
                history: history.or(settings.has("history").then_some(true)),
                offers: offers.iter().all(|long| !settings.is_given(long)),
                yes: settings.has("yes"),
            }));
        }
    }
    if settings.has("list-tools") {
        let longs = ["plain-results", "read-only", "tool", "patterns-dir", "json"];
        return Ok(Command::ListTools(settings.only(&longs)?.into()));
    }
    let task = match settings.last("call") {
        Some(tool) => Task::Call(tool.to_owned(), settings.words.clone()),
        None if settings.has("check") => Task::Check,
        None => Task::Serve,
    };
    if let Some(url) = settings.one("connect", values::connect_url)? {
        // Variables of other settings, which may be there for a server, count for nothing.
        let config = settings.only(&["log-level", "log-format", "json"])?;
        // The server, not the client, is warned of a short token.
        let token = resolve::token(&settings, &mut Vec::new())?;
        return Ok(Command::There(task, Connect { url, token }, config.into()));
    }
    if settings.has("healthcheck") {
        let config = settings.only(&["host", "port"]);
        return Ok(Command::Healthcheck(config.map(Box::new)));
    }
    Ok(Command::Here(task, resolve::resolve(&settings)?.into()))
}

/// `--usage`, with the word that may follow.
fn usage(settings: &FlagsAndEnv<'_>) -> Result<Command, String> {
    let refused = |why: String| named("--usage", why);
    let config = settings.only(&["state-dir", "json", "log-level", "log-format"])?;
    if config.runs.state_dir.is_none() {
        let usual = clients::install::shared_folder().unwrap_or_default();
        return Err(refused(format!(
            "the ledger is in the state folder; give --state-dir DIR, which --install sets to {usual}"
        )));
    }
    let period = match settings.words.as_slice() {
        [] => None,
        words => Some(values::period(&words.join(" ")).map_err(refused)?),
    };
    let prices = settings.one("prices", |file| {
        let remedy = "a file with a line MODEL INPUT OUTPUT for each model";
        let prices = values::prices(&settings.file(file, remedy)?);
        prices.map_err(|why| format!("\"{}\", {why}", values::shown(file)))
    })?;
    Ok(Command::Usage(config.into(), period, prices))
}

/// `--generate` of this, with the words that follow.
fn generate(what: &str, settings: &FlagsAndEnv<'_>) -> Result<Command, String> {
    let choices = flags::get("generate").values();
    let known = choices.iter().copied().find(|choice| *choice == what);
    let what = known.ok_or_else(|| unknown("--generate", what, "is unknown", choices))?;
    let flag = format!("--generate {what}");
    let words = settings.words.iter().cloned();
    let words = Vec::from_iter(words.map(values::from_home));
    let asked = match (what, words.as_slice()) {
        ("skills" | "skill" | "plugin", [dir, names @ ..])
            if names.is_empty() == settings.has("all") || what != "skills" =>
        {
            let config = resolve::resolve(settings)?;
            let (dir, names) = (dir.into(), names.to_vec());
            return Ok(Command::Skills(what, dir, names, config.into()));
        }
        ("skills", _) => return Err(named(&flag, "give a folder, then pattern names or --all")),
        ("skill" | "plugin", _) => return Err(named(&flag, "give a folder")),
        ("client-config", [_]) | ("client-command", [] | [_]) => {
            let client = client(&flag, &words.concat())?;
            Some((client, launch::launch(client, settings)?))
        }
        _ => None,
    };
    Ok(Command::Generate(what, words, asked))
}

/// The client called `name`, given to `flag`.
fn client(flag: &str, name: &str) -> Result<&'static McpClient, String> {
    clients::named(name)
        .ok_or_else(|| unknown(flag, name, "is not a known client", clients::names()))
}

/// Why a word that names nothing is refused.
fn unknown(flag: &str, word: &str, what: &str, names: Vec<&str>) -> String {
    let hint = hint(word, &names, "give one of");
    named(flag, values::wrong(word, format_args!("{what}; {hint}")))
}

/// Reads a file with a token or with prices: 1 MiB of text at most, without a byte order mark.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    let text = files::text(File::open(path)?, 1 << 20).map_err(io::Error::other)?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
mod tests;
