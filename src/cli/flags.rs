//! The table of flags and of the variables that are not flags.
//!
//! In scope: all facts about flags, the field of [`Config`] that each sets included. Not in scope: reading the command
//! line (`cli`), rules between settings (`resolve`), values (`values`), printing (`help`, `generate`).
//!
//! A new setting is an entry here and a field there.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use super::values::{self, count};
use crate::clients;
use crate::config::LogLevel::{Critical, Debug, Error, Info, Warning};
use crate::config::{Config, LogFormat, Transport};
use crate::text::{closest, is_misspelled};
use crate::url::base_url;
use Section::{Command, Fabric, Http, Runs, Server};

pub(crate) use crate::config::{API_KEY, AUTH_TOKEN};

/// Variable of the file that holds this token.
pub(crate) const AUTH_TOKEN_FILE: &str = "FABRIC_MCP_AUTH_TOKEN_FILE";
/// Variable of the client id at the OAuth issuer.
pub(crate) const OAUTH_CLIENT_ID: &str = "FABRIC_MCP_OAUTH_CLIENT_ID";
/// Variable of the secret of that client.
pub(crate) const OAUTH_CLIENT_SECRET: &str = "FABRIC_MCP_OAUTH_CLIENT_SECRET";
/// Variable of the file of certificates to trust.
pub(crate) const CERT_FILE: &str = "SSL_CERT_FILE";

/// Every variable that has no flag, and what it does, in a line.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    (
        API_KEY,
        "Key of Fabric's API, as given to fabric --serve --api-key",
    ),
    (
        AUTH_TOKEN,
        "Bearer token that callers over http and sse must send, and that --connect sends",
    ),
    (
        OAUTH_CLIENT_ID,
        "Client id that this server uses to ask the OAuth issuer about tokens",
    ),
    (OAUTH_CLIENT_SECRET, "Secret of that client"),
    (
        "FABRIC_MODEL_PATTERN_NAME",
        "Model for the pattern PATTERN_NAME, like --pattern-model; Fabric's own command line uses the same variable",
    ),
    (
        CERT_FILE,
        "PEM file of the certificates to trust for an https:// Fabric, OAuth issuer or --connect",
    ),
];

/// Most runs at once that may be allowed: each has a thread.
const MAX_MAX_RUNS: usize = 4096;
/// Maximum number of connections at once that may be allowed: each has a thread.
const MAX_MAX_CONNECTIONS: usize = 65_536;

/// Every flag, in the order of the help.
pub(crate) const FLAGS: &[Flag] = &[
    choice(Server, "transport", "TRANSPORT", |c, at| {
        c.transport = [Transport::Stdio, Transport::Http, Transport::Sse][at];
    })
    .default("stdio")
    .choices(&["stdio", "http", "sse"])
    .help("How clients reach the server: stdio, http or sse"),
    one(Server, "host", "ADDRESS", |c, t| {
        set(&mut c.host, values::host(t))
    })
    .default("127.0.0.1")
    .help("Address to listen on (http and sse)"),
    one(Server, "port", "PORT", |c, t| {
        set(&mut c.port, values::port(t))
    })
    .default("8000")
    .help("Port to listen on (http and sse); 0 takes a free one"),
    one(Server, "path", "PATH", |c, t| {
        set(&mut c.path, values::path(t))
    })
    .alias("mcp-path")
    .default("/mcp")
    .note(", on sse /sse")
    .help("Path of the MCP endpoint (http and sse)"),
    choice(Server, "log-level", "LEVEL", |c, at| {
        c.log_level = [Debug, Info, Warning, Error, Critical, Warning][at];
    })
    .default("info")
    .choices(&["debug", "info", "warning", "error", "critical", "warn"])
    .help("What is logged: debug, info, warning, error or critical"),
    choice(Server, "log-format", "FORMAT", |c, at| {
        c.log_format = [LogFormat::Logfmt, LogFormat::Json][at];
    })
    .default("logfmt")
    .choices(&["logfmt", "json"])
    .help("How a line of the log is written: logfmt or json"),
    switch(Server, "demo", |c| &mut c.demo)
        .help("Use a small Fabric built into this program, without any model"),
    one(Fabric, "fabric-url", "URL", |c, t| {
        set(&mut c.fabric.url, base_url(t))
    })
    .named("FABRIC_BASE_URL")
    .default("http://127.0.0.1:8080")
    .help("Where fabric --serve listens"),
    many(Fabric, "patterns-dir", "DIR", |c, t| {
        push(&mut c.patterns_dirs, Ok(PathBuf::from(t)))
    })
    .help("Read patterns from a folder, NAME/system.md each, instead of any Fabric"),
    time(Fabric, "connect-timeout", |c| &mut c.fabric.connect_timeout)
        .default("5")
        .help("Longest time to connect to Fabric"),
    time(Fabric, "idle-timeout", |c| &mut c.fabric.idle_timeout)
        .default("300")
        .help("Longest silence of Fabric during a run"),
    time(Fabric, "run-timeout", |c| &mut c.fabric.run_timeout)
        .default("3600")
        .help("Longest run"),
    time(Fabric, "request-timeout", |c| &mut c.fabric.request_timeout)
        .default("30")
        .help("Longest time for any other request"),
    time(Fabric, "models-timeout", |c| &mut c.fabric.models_timeout)
        .default("120")
        .help("Longest time to list the models or get a transcript"),
    time(Fabric, "catalog-ttl", |c| &mut c.catalog_ttl)
        .default("300")
        .help("How long the list of patterns is kept"),
    many(Runs, "allow-pattern", "NAME", |c, t| {
        push(&mut c.policy.allowed, values::pattern(t))
    })
    .help("Allow a pattern that is refused by default"),
    many(Runs, "deny-pattern", "NAME", |c, t| {
        push(&mut c.policy.denied, values::pattern(t))
    })
    .help("Refuse to run a pattern"),
    many(Runs, "allow-model", "NAME", |c, t| {
        push(&mut c.policy.allowed_models, values::model(t))
    })
    .help("Allow only this model"),
    one(Runs, "default-model", "NAME", |c, t| {
        set(&mut c.policy.default_model, values::model(t))
    })
    .help("Model for runs that name none"),
    one(Runs, "default-vendor", "NAME", |c, t| {
        set(&mut c.policy.default_vendor, values::model(t))
    })
    .help("Vendor of --default-model"),
    many(Runs, "pattern-model", "PATTERN=MODEL", |c, t| {
        push(&mut c.policy.pattern_models, values::pattern_model(t))
    })
    .help("Model for one pattern's runs that name none; PATTERN=VENDOR|MODEL sets its vendor too"),
    one(Runs, "default-language", "LANGUAGE", |c, t| {
        set(&mut c.policy.default_language, values::language(t))
    })
    .help("Output language for runs that name none, such as de or pt-BR"),
    switch(Runs, "strip-thinking", |c| &mut c.policy.strip_thinking)
        .help("Leave out a <think> or <thinking> block at the beginning of an output"),
    switch(Runs, "read-only", |c| &mut c.policy.read_only)
        .help("Offer only what is free: of runs, only dry_run"),
    many(Runs, "tool", "TOOL", |c, t| {
        push(&mut c.policy.tools, Ok(t.to_owned()))
    })
    .help("Offer only this tool"),
    choice(Runs, "prompt", "WHICH", |c, at| {
        c.policy.no_prompts = [false, true][at];
    })
    .default("all")
    .choices(&["all", "none"])
    .help("Which prompts are offered: all or none"),
    one(Runs, "max-runs", "COUNT", |c, t| {
        set(&mut c.max_runs, count(t, 1, MAX_MAX_RUNS))
    })
    .default("16")
    .note(", on http and sse 512")
    .help("Maximum number of runs at once"),
    one(Runs, "max-memory", "MIB", |c, t| {
        set(&mut c.max_memory, count(t, 32, 65_536).map(|mib| mib << 20))
    })
    .default("256")
    .help("Memory limit for all requests, runs and answers together"),
    pause(Runs, "answer-within", |c| &mut c.kept.answer_within)
        .default("50")
        .help("Answer a call with its run's id if the run takes longer; 0 waits for the end"),
    pause(Runs, "task-after", |c| &mut c.kept.task_after)
        .default("5")
        .help("Answer with an MCP task if the run takes longer, for clients that support tasks; 0 at once"),
    pause(Runs, "keep-runs", |c| &mut c.kept.keep)
        .default("3600")
        .help("How long runs and their output are kept after their end; 0 keeps none"),
    path(Runs, "state-dir", "DIR", |c| &mut c.kept.state_dir)
        .help("Folder that keeps runs across restarts; several processes can share it"),
    many(Http, "allowed-host", "HOST", |c, t| {
        push(&mut c.http.allowed_hosts, values::allowed_host(t))
    })
    .help("Accept requests for this Host, with or without a port"),
    many(Http, "allowed-origin", "ORIGIN", |c, t| {
        push(&mut c.http.allowed_origins, values::allowed_origin(t))
    })
    .help("Accept requests from web pages of this Origin (https://host)"),
    path(Http, "tokens-file", "FILE", |c| &mut c.http.tokens_file)
        .help("File of tokens, one line NAME ROLE TOKEN for each caller; read again when it changes"),
    raw(Http, "prices", "FILE")
        .help("File of model prices for the metrics, one line MODEL INPUT OUTPUT for each model"),
    raw(Http, "auth-token-file", "FILE")
        .help("File that holds the bearer token callers must send, and that --connect sends"),
    raw(Http, "oauth-issuer", "URL").help("Accept OAuth tokens from this issuer"),
    raw(Http, "oauth-resource", "URL")
        .help("URL of this server's endpoint for OAuth clients: the audience of their tokens"),
    switch(Http, "allow-unauthenticated", |c| {
        &mut c.http.allow_unauthenticated
    })
    .help("Serve other machines without asking for a token"),
    many(Http, "trusted-proxy", "ADDRESS", |c, t| {
        push(&mut c.http.trusted_proxies, values::address(t))
    })
    .help("Take the caller's address from X-Forwarded-For of this proxy"),
    one(Http, "max-calls-per-minute", "COUNT", |c, t| {
        set(&mut c.http.max_calls_per_minute, count(t, 0, 1_000_000))
    })
    .default("0")
    .help("Maximum number of runs per minute for each caller, counting each step of a chain; 0 sets no limit"),
    one(Http, "max-runs-per-caller", "COUNT", |c, t| {
        set(&mut c.http.max_runs_per_caller, count(t, 0, MAX_MAX_RUNS))
    })
    .default("0")
    .help("Maximum number of runs at once for each caller; 0 sets no limit"),
    one(Http, "max-connections", "COUNT", |c, t| {
        set(
            &mut c.http.max_connections,
            count(t, 1, MAX_MAX_CONNECTIONS),
        )
    })
    .default("512")
    .help("Maximum number of connections at once"),
    time(Server, "drain-timeout", |c| &mut c.http.drain_timeout)
        .default("10")
        .help("How long runs may continue after SIGTERM or SIGINT"),
    word("check").help("Test the connection to Fabric, report, and exit with 0 or 1"),
    raw(Command, "connect", "URL").help(
        "Relay between stdio and the server at this URL, for clients that only start programs; with \
             --check, only test that server",
    ),
    raw(Command, "call", "TOOL").help(
        "Call a tool, with its arguments as JSON after it; what is piped in is \
             input_text",
    ),
    word("json").help("With --check, --call and --list-tools: print JSON"),
    word("list-tools").help("Print the tools and their arguments"),
    word("healthcheck").help("Ask the server on this machine whether it lives, and exit with 0 or 1"),
    raw(Command, "generate", "WHAT")
        .choices(&[
            "man",
            "complete-bash",
            "complete-zsh",
            "complete-fish",
            "systemd-unit",
            "systemd-template",
            "sysusers",
            "compose",
            "prometheus",
            "skills",
            "client-config",
            "client-command",
            "token",
        ])
        .help(
            "Print man, complete-bash, complete-zsh, complete-fish, \
             systemd-unit [PROGRAM], systemd-template [PROGRAM], sysusers, compose [SECRETS], \
             prometheus, client-config [CLIENT], client-command CLIENT, token NAME ROLE; \
             write skills DIR NAME…",
        ),
    word("all").help("With --generate skills: every pattern"),
    raw(Command, "install", "CLIENT")
        .help("Add the server to a client's configuration file, after asking"),
    raw(Command, "uninstall", "CLIENT").help("Remove it from that file again, after asking"),
    raw(Command, "url", "URL").help(
        "With --install and --generate client-…: for a server over http, or --transport sse, \
             at this URL",
    ),
    word("yes").help("With --install and --uninstall: do not ask"),
    word("version").short('V').help("Print the version"),
    word("help")
        .short('h')
        .help("Print help: -h in short, --help in full, --help TOPIC on one thing"),
];

/// What follows a flag, and the field of the configuration it sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// Nothing: it is a command or a part of one.
    Nothing,
    /// Nothing: it is a setting that is off by default.
    Switch(Field<bool>),
    /// A value; the last one wins.
    One(Set),
    /// The number of one of the flag's choices; the last one wins.
    Choice(fn(&mut Config, usize)),
    /// Values; all are used.
    Many(Set),
    /// A time in seconds, and whether it may be 0; the last one wins.
    Time(Field<Duration>, bool),
    /// A path, which need not be UTF-8; the last one wins.
    Path(Field<Option<PathBuf>>),
    /// A value for the code that looks it up; the last one wins.
    Raw,
}

/// The field that a flag sets.
type Field<T> = fn(&mut Config) -> &mut T;

/// Parses a value and sets its field. The error says what is wrong and what to give instead, without the flag's name.
pub(crate) type Set = fn(&mut Config, &str) -> Result<(), String>;

/// A section of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Server,
    Fabric,
    Runs,
    Http,
    /// What is done instead of serving, and what goes with it: no settings.
    Command,
}

impl Section {
    /// Every section in the order of the help, with its heading.
    pub(crate) const ALL: [(Section, &str); 5] = [
        (Section::Server, "Server"),
        (Section::Fabric, "Fabric"),
        (Section::Runs, "Patterns and runs"),
        (Section::Http, "Network (http and sse)"),
        (Section::Command, "Instead of serving"),
    ];
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Without dashes.
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    /// Another long name, without dashes.
    pub(crate) alias: Option<&'static str>,
    /// What the help calls its value; empty if it takes none.
    pub(crate) placeholder: &'static str,
    pub(crate) takes: Takes,
    /// All allowed values, where they are few.
    pub(crate) choices: &'static [&'static str],
    /// Its variable, where that is not called after the flag.
    variable: Option<&'static str>,
    /// The default, parsed like a given value; empty for none.
    pub(crate) default: &'static str,
    /// What the help adds to the default, where it depends on the transport.
    note: &'static str,
    /// What it does, in a line.
    pub(crate) help: &'static str,
    pub(crate) section: Section,
}

const fn one(section: Section, long: &'static str, name: &'static str, set: Set) -> Flag {
    flag(section, long, name, Takes::One(set))
}

const fn choice(
    section: Section,
    long: &'static str,
    name: &'static str,
    set: fn(&mut Config, usize),
) -> Flag {
    flag(section, long, name, Takes::Choice(set))
}

const fn many(section: Section, long: &'static str, name: &'static str, set: Set) -> Flag {
    flag(section, long, name, Takes::Many(set))
}

const fn time(section: Section, long: &'static str, field: Field<Duration>) -> Flag {
    flag(section, long, "SECONDS", Takes::Time(field, false))
}

/// A time that may be 0.
const fn pause(section: Section, long: &'static str, field: Field<Duration>) -> Flag {
    flag(section, long, "SECONDS", Takes::Time(field, true))
}

const fn switch(section: Section, long: &'static str, field: Field<bool>) -> Flag {
    flag(section, long, "", Takes::Switch(field))
}

const fn path(
    section: Section,
    long: &'static str,
    name: &'static str,
    field: Field<Option<PathBuf>>,
) -> Flag {
    flag(section, long, name, Takes::Path(field))
}

const fn raw(section: Section, long: &'static str, name: &'static str) -> Flag {
    flag(section, long, name, Takes::Raw)
}

const fn word(long: &'static str) -> Flag {
    flag(Command, long, "", Takes::Nothing)
}

const fn flag(
    section: Section,
    long: &'static str,
    placeholder: &'static str,
    takes: Takes,
) -> Flag {
    Flag {
        placeholder,
        long,
        short: None,
        alias: None,
        takes,
        choices: &[],
        variable: None,
        default: "",
        note: "",
        help: "",
        section,
    }
}

impl Flag {
    const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }

    const fn alias(mut self, long: &'static str) -> Flag {
        self.alias = Some(long);
        self
    }

    const fn choices(mut self, choices: &'static [&'static str]) -> Flag {
        self.choices = choices;
        self
    }

    const fn named(mut self, variable: &'static str) -> Flag {
        self.variable = Some(variable);
        self
    }

    const fn default(mut self, default: &'static str) -> Flag {
        self.default = default;
        self
    }

    const fn note(mut self, note: &'static str) -> Flag {
        self.note = note;
        self
    }

    const fn help(mut self, help: &'static str) -> Flag {
        self.help = help;
        self
    }

    /// The name of its variable, if it is a setting.
    pub(crate) fn env(&self) -> Option<String> {
        let derived = || {
            let name = self.long.to_ascii_uppercase().replace('-', "_");
            format!("FABRIC_MCP_{name}")
        };
        (self.section != Command).then(|| self.variable.map_or_else(derived, str::to_owned))
    }

    /// Sets its field, if there is one. The error is as of [`Set`].
    pub(super) fn set(&self, config: &mut Config, value: &OsStr) -> Result<(), String> {
        let text = || value.to_str().ok_or(values::NOT_UTF8);
        match self.takes {
            Takes::Nothing | Takes::Raw => {}
            Takes::Switch(field) => *field(config) = values::switch(text()?)?,
            Takes::Choice(set) => set(config, values::choice(text()?, self.choices)?),
            Takes::One(set) | Takes::Many(set) => set(config, text()?)?,
            Takes::Time(field, may_be_0) => *field(config) = values::seconds(text()?, may_be_0)?,
            Takes::Path(field) => *field(config) = Some(value.into()),
        }
        Ok(())
    }

    /// Whether it has no effect on stdio.
    pub(super) fn is_for_http(&self) -> bool {
        self.section == Http || matches!(self.long, "transport" | "host" | "port" | "path")
    }

    /// Whether a value follows.
    pub(crate) fn takes_value(&self) -> bool {
        !self.placeholder.is_empty()
    }

    /// Whether all of its values are used.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.takes, Takes::Many(..))
    }

    /// The default as the help shows it; empty for none.
    pub(crate) fn shown_default(&self) -> String {
        format!("{}{}", self.default, self.note)
    }

    /// All values that can be completed.
    pub(crate) fn values(&self) -> Vec<&'static str> {
        match self.placeholder {
            "CLIENT" => clients::names(),
            _ => self.choices.to_vec(),
        }
    }

    /// Its long names with their dashes.
    pub(crate) fn dashed(&self) -> impl Iterator<Item = String> + use<> {
        self.names().map(|name| format!("--{name}"))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        [self.long].into_iter().chain(self.alias)
    }
}

fn set<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

fn push<T>(field: &mut Vec<T>, value: Result<T, String>) -> Result<(), String> {
    field.push(value?);
    Ok(())
}

/// The flag with this long name, which is in the table.
pub(crate) fn get(long: &str) -> &'static Flag {
    by_long(long).expect("only names of the table are asked for")
}

/// The flag with this long name or alias.
pub(crate) fn by_long(name: &str) -> Option<&'static Flag> {
    FLAGS
        .iter()
        .find(|flag| flag.names().any(|own| own == name))
}

/// The flag with this letter.
pub(crate) fn by_short(letter: char) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.short == Some(letter))
}

/// The flag that somebody may have meant by `word`, with its dashes.
pub(super) fn similar(word: &str) -> Option<String> {
    let found = closest(word, FLAGS.iter().flat_map(Flag::names));
    let found = found.first().filter(|name| is_misspelled(word, name));
    found.map(|name| format!("--{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_used_once_and_every_flag_is_explained() {
        let mut names = HashSet::new();
        for flag in FLAGS {
            assert!(
                flag.names().all(|name| names.insert(name.to_owned())),
                "--{}",
                flag.long
            );
            assert!(
                flag.short
                    .is_none_or(|letter| names.insert(letter.to_string())),
                "--{}",
                flag.long
            );
            assert!(
                flag.env().is_none_or(|name| names.insert(name)),
                "--{}",
                flag.long
            );
            assert!(
                !flag.help.is_empty() && !flag.help.ends_with('.'),
                "--{}",
                flag.long
            );
            assert!(
                flag.choices.is_empty()
                    || flag.choices.iter().all(|choice| flag.help.contains(choice))
            );
        }
        assert!(
            VARIABLES
                .iter()
                .all(|(name, _)| names.insert((*name).to_owned()))
        );
    }

    #[test]
    fn variables_are_named_after_flags() {
        assert_eq!(
            get("max-calls-per-minute").env().as_deref(),
            Some("FABRIC_MCP_MAX_CALLS_PER_MINUTE")
        );
        assert_eq!(get("fabric-url").env().as_deref(), Some("FABRIC_BASE_URL"));
    }
}
