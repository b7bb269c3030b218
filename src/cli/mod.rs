//! The command line and environment: from arguments and variables to a [`Command`].
//!
//! In scope: flags, variables, precedence, errors, and help. Not in scope: running the command. No I/O: the environment
//! and the token file are parameters; only a relative path for a client asks for the current folder.
//!
//! ```text
//! args ─── RawFlags::read ──► RawFlags ── resolve (variables, defaults, bounds) ──► Config ──► Command
//! ```
//!
//! Parsing, the names of variables, `--help` and `--generate` all use the table [`flags::FLAGS`].

pub(crate) mod flags;
mod help;
mod launch;
mod resolve;
pub(crate) mod topics;
mod values;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lexopt::Arg;

use crate::clients::{Launch, McpClient};
use crate::config::{Config, Connect, Env, MAX_SECRET, Policy, Secret};
use flags::Flag;
use resolve::FlagsAndEnv;

pub(crate) use help::{PRECEDENCE, help, version};

/// What the program is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve MCP.
    Serve(Box<Config>),
    /// Pass messages on between stdio and a server: `--connect`.
    Connect {
        /// Only ask that server whether it answers: `--check`.
        is_check: bool,
        settings: Connect,
    },
    /// Test the connection to Fabric and report: `--check`, as JSON with `--json`.
    Check {
        json: bool,
        config: Box<Config>,
    },
    /// Call one tool and print its result: `--call`.
    Call {
        tool: String,
        /// Its arguments: JSON as given.
        arguments: Option<String>,
        /// Whether to print the structured result.
        json: bool,
        config: Box<Config>,
    },
    /// Print the catalogue of the tools that are offered: `--list-tools`.
    ListTools {
        policy: Policy,
        /// Whether to print them as `tools/list` has them: `--json`.
        json: bool,
    },
    /// Ask the server on this machine that listens here whether it lives: `--healthcheck`.
    Healthcheck {
        host: String,
        port: u16,
    },
    /// Print a file generated from the table of flags: `--generate`.
    Generate(Generate),
    /// Write patterns as skills into a folder: `--generate skills`.
    Skills {
        /// The folder.
        dir: PathBuf,
        /// Names of patterns; empty for all.
        names: Vec<String>,
        /// Where they come from.
        config: Box<Config>,
    },
    /// Change a client's configuration file.
    Install {
        client: &'static McpClient,
        /// What to put into it: `--install`; `None` to take it out: `--uninstall`.
        launch: Option<Launch>,
        /// Whether to do it without asking: `--yes`.
        yes: bool,
    },
    Help(Help),
    Version,
}

/// How much help is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    /// `-h`: a screenful.
    Short,
    /// `--help`: every flag.
    Full,
    /// `--help TOPIC`.
    Topic(&'static topics::Topic),
}

/// What `--generate` prints, with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Generate {
    /// The file of this name: one of the flag's choices without a variant of its own. A unit starts the program at this
    /// absolute path, or this program.
    File(&'static str, Option<PathBuf>),
    /// The services of Docker Compose, and the file of their secrets, which is created.
    Compose(Option<String>),
    /// A line of the tokens file.
    Token(Secret),
    /// The list of clients and their files.
    Clients,
    /// A snippet for the configuration of an MCP client.
    ClientConfig(&'static McpClient, Launch),
    /// The command by which a client adds a server itself.
    ClientCommand(&'static McpClient, Launch),
}

/// Why the process ends with an exit code other than 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExitReason {
    /// The code: 1 for what cannot be done, 2 for a mistake in what was typed or set, 128 + its number for a signal.
    pub(crate) code: u8,
    /// One line for stderr.
    pub(crate) reason: String,
}

impl ExitReason {
    pub(crate) fn failed(reason: impl Into<String>) -> ExitReason {
        ExitReason {
            code: 1,
            reason: reason.into(),
        }
    }

    pub(crate) fn usage(reason: impl Into<String>) -> ExitReason {
        ExitReason {
            code: 2,
            reason: reason.into(),
        }
    }

    /// The result of a command that could not write to stdout: true if the reader has closed the pipe, as `| head` does.
    pub(crate) fn unwritable(error: io::Error) -> Result<bool, ExitReason> {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(true),
            _ => Err(ExitReason::failed(format!(
                "stdout cannot be written: {error}"
            ))),
        }
    }
}

/// Returns a small file's text, as [`read_secret`] does.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Parses the arguments after the program's name.
///
/// Commands about the program itself (`--help`, `--version`, `--generate man` and the like, `--list-tools`, in this order
/// of precedence) ignore wrong values of settings; the others need every setting to be valid. `variables` are those that
/// are not empty and begin with [`MODEL_VARIABLE`](crate::config::MODEL_VARIABLE) or
/// [`OWN_VARIABLE`](crate::config::OWN_VARIABLE).
pub(crate) fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: Env<'_>,
    variables: &[(String, OsString)],
    read_file: ReadFile<'_>,
) -> Result<Command, ExitReason> {
    let raw = RawFlags::read(args)?;
    if raw.has("help") {
        return values::help(raw.is_help_short, &raw.words).map(Command::Help);
    }
    if raw.has("version") {
        return Ok(Command::Version);
    }
    raw.refuse_strays()?;
    let settings = FlagsAndEnv {
        raw: &raw,
        env,
        read_file,
        variables,
        on_stdio: false,
    };
    if let Some(what) = raw.last("generate") {
        if what == "skills" {
            let (dir, names) = values::skills(&raw.words, raw.has("all"))?;
            let config = Box::new(resolve::resolve(&settings)?);
            return Ok(Command::Skills { dir, names, config });
        }
        return values::generate(what, &settings).map(Command::Generate);
    }
    let json = raw.has("json");
    let words = usize::from(raw.has("call"));
    if let Some(word) = raw.words.get(words) {
        return Err(unexpected_word(word, words == 1));
    }
    for (flag, is_put_in) in [("install", true), ("uninstall", false)] {
        let Some(client) = raw.last(flag) else {
            continue;
        };
        let client = values::client(&format!("--{flag}"), Some(client))?;
        let launch = || launch::launch(&settings)?.for_client(client, &settings);
        return Ok(Command::Install {
            client,
            launch: is_put_in.then(launch).transpose()?,
            yes: raw.has("yes"),
        });
    }
    let only = |[one, other]: [&str; 2]| {
        let mut config = Config::default();
        settings.apply(flags::get(one), &mut config)?;
        settings.apply(flags::get(other), &mut config)?;
        Ok(config)
    };
    if raw.has("list-tools") {
        let policy = only(["read-only", "tool"])?.policy;
        return Ok(Command::ListTools { policy, json });
    }
    if let Some(url) = settings.one("connect", values::connect_url)? {
        return Ok(Command::Connect {
            is_check: raw.has("check"),
            settings: resolve::connect(&settings, url)?,
        });
    }
    if raw.has("healthcheck") {
        // Docker gives exit code 2 a meaning of its own.
        let failed = |mistake: ExitReason| ExitReason::failed(mistake.reason);
        let Config { host, port, .. } = only(["host", "port"]).map_err(failed)?;
        return Ok(Command::Healthcheck { host, port });
    }
    let config = Box::new(resolve::resolve(&settings)?);
    if let Some(tool) = raw.last("call") {
        let tool = tool.to_string_lossy().into_owned();
        let arguments = raw
            .words
            .first()
            .map(|word| values::utf8(word.clone(), "--call"))
            .transpose()?;
        return Ok(Command::Call {
            tool,
            arguments,
            json,
            config,
        });
    }
    Ok(if raw.has("check") {
        Command::Check { json, config }
    } else {
        Command::Serve(config)
    })
}

/// Reads a file that holds a token: text of [`MAX_SECRET`] bytes at most.
pub(crate) fn read_secret(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let limit = MAX_SECRET as u64 + 1;
    std::fs::File::open(path)?
        .take(limit)
        .read_to_string(&mut text)?;
    if text.len() > MAX_SECRET {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {MAX_SECRET} bytes"),
        ));
    }
    Ok(text)
}

/// The arguments as written: known flags with their raw values.
#[derive(Debug, Default)]
struct RawFlags {
    /// In order; a switch has the value `true`.
    given: Vec<(&'static Flag, OsString)>,
    /// Whether help was last asked for by its letter.
    is_help_short: bool,
    /// Words that belong to no flag.
    words: Vec<OsString>,
}

impl RawFlags {
    fn read(args: impl IntoIterator<Item = OsString>) -> Result<RawFlags, ExitReason> {
        let mut raw = RawFlags::default();
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next().map_err(explain)? {
            let is_letter = matches!(arg, Arg::Short(_));
            let flag = match arg {
                Arg::Long(name) => flags::by_long(name).ok_or_else(|| unknown_long(name)),
                Arg::Short(c) => flags::by_short(c).ok_or_else(|| unknown_short(c)),
                Arg::Value(word) => {
                    raw.words.push(word);
                    continue;
                }
            }?;
            if flag.long == "help" {
                raw.is_help_short = is_letter;
            }
            let value = match flag.takes_value() {
                true => value_of(flag, &mut parser)?,
                false => "true".into(),
            };
            raw.given.push((flag, value));
        }
        Ok(raw)
    }

    /// Rejects flags that need another one, or conflict with one.
    fn refuse_strays(&self) -> Result<(), ExitReason> {
        let asks = ["check", "call", "install", "uninstall", "healthcheck"];
        let mut asked = asks.into_iter().filter(|long| self.has(long));
        if let (Some(one), Some(other)) = (asked.next(), asked.next()) {
            return Err(ExitReason::usage(format!(
                "--{one} and --{other} are two commands; give one of them"
            )));
        }
        let fits = [
            "connect",
            "check",
            "auth-token-file",
            "log-level",
            "log-format",
        ];
        let mut given = self.given.iter().map(|(flag, _)| flag);
        if self.has("connect")
            && let Some(other) = given.find(|flag| !fits.contains(&flag.long))
        {
            return Err(ExitReason::usage(format!(
                "--{} does not go with --connect, which only passes messages on to a server; leave it out here",
                other.long
            )));
        }
        let generate = self.last("generate").and_then(OsStr::to_str);
        let generate = generate.unwrap_or_default();
        let any = |flags: &[&str]| flags.iter().any(|long| self.has(long));
        let of_json = any(&["check", "call", "list-tools"]);
        let of_yes = any(&["install", "uninstall"]);
        let of_all = generate == "skills";
        let of_url = self.has("install") || generate.starts_with("client-");
        for (long, is_used, partners) in [
            ("json", of_json, "--check, --call and --list-tools"),
            ("yes", of_yes, "--install and --uninstall"),
            ("all", of_all, "--generate skills"),
            ("url", of_url, "--install and --generate client-config"),
        ] {
            if self.has(long) && !is_used {
                return Err(ExitReason::usage(format!(
                    "--{long} only goes with {partners}; add one of them or leave it out"
                )));
            }
        }
        Ok(())
    }

    fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// The last value of a flag, which wins.
    fn last(&self, long: &str) -> Option<&OsStr> {
        self.all(long).last()
    }

    fn all(&self, long: &str) -> impl Iterator<Item = &OsStr> {
        let long = flags::get(long).long;
        self.given
            .iter()
            .filter(move |(flag, _)| flag.long == long)
            .map(|(_, value)| value.as_os_str())
    }
}

fn value_of(flag: &Flag, parser: &mut lexopt::Parser) -> Result<OsString, ExitReason> {
    if let Some(value) = parser.optional_value() {
        return Ok(value);
    }
    match parser.value() {
        // No valid value begins with this: the value is missing.
        Ok(value) if !value.as_encoded_bytes().starts_with(b"--") => Ok(value),
        _ => Err(ExitReason::usage(format!(
            "--{} needs a value: --{0} {}",
            flag.long, flag.placeholder
        ))),
    }
}

fn explain(error: lexopt::Error) -> ExitReason {
    ExitReason::usage(match error {
        lexopt::Error::UnexpectedValue { option, .. } => {
            format!("{option} takes no value; write {option} alone")
        }
        other => other.to_string(),
    })
}

/// Flags that people try, and the variables for these secrets: every user of the machine can read a command line.
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

fn unknown_long(name: &str) -> ExitReason {
    let name = values::shown(name);
    let usual = name.to_ascii_lowercase().replace('_', "-");
    if let Some((_, variable)) = SECRETS.iter().find(|(secret, _)| *secret == usual) {
        return ExitReason::usage(format!(
            "--{name} is refused, because every user of this machine can read a command line; set the variable \
             {variable} instead"
        ));
    }
    ExitReason::usage(match flags::similar(&name) {
        Some(flag) => format!("--{name} is not a flag; did you mean {flag}?"),
        None => format!("--{name} is not a flag; fabric-mcp --help lists them"),
    })
}

fn unknown_short(letter: char) -> ExitReason {
    let letter = letter.escape_debug();
    ExitReason::usage(format!(
        "-{letter} is not a flag; long flags begin with two dashes, and fabric-mcp --help lists them"
    ))
}

fn unexpected_word(word: &OsStr, is_call: bool) -> ExitReason {
    let word = word.to_string_lossy();
    let meant = match flags::get("transport").choices.contains(&&*word) {
        true => Some(format!("--transport {word}")),
        false => flags::similar(&word),
    };
    let hint = match meant {
        _ if is_call => {
            "put the arguments of --call into single quotes, such as '{\"query\":\"code\"}'"
                .to_owned()
        }
        Some(flag) => format!("did you mean {flag}?"),
        None => "fabric-mcp takes flags only, and fabric-mcp --help lists them".to_owned(),
    };
    let word = values::shown(&word);
    ExitReason::usage(format!("\"{word}\" belongs to no flag; {hint}"))
}

#[cfg(test)]
mod tests;
