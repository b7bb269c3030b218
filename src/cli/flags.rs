//! The table of flags and of the variables that are not flags.
//!
//! In scope: all facts about flags, and the field of [`Config`] that each of them sets. Not in scope: reading the command
//! line (`parse`), rules between settings (`resolve`), values (`values`), printing (`help`, `generate`).
//!
//! A new setting is an entry here and a field there.

use std::path::PathBuf;

use super::values::{self, MAX_KEEP, MAX_TIME, count, seconds};
use crate::clients;
use crate::config::{BASE_URL, Config, OWN_VARIABLE, Transport};
use crate::table::{Text, row};
use crate::url::base_url;

pub(crate) use crate::config::{API_KEY, AUTH_TOKEN, CERT_FILE};

/// Variable of the client id at the OAuth issuer.
pub(crate) const OAUTH_CLIENT_ID: &str = "FABRIC_MCP_OAUTH_CLIENT_ID";
/// Variable of the secret of that client.
pub(crate) const OAUTH_CLIENT_SECRET: &str = "FABRIC_MCP_OAUTH_CLIENT_SECRET";

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
/// Most connections at once that may be allowed: each has a thread.
const CONNECTIONS: usize = 65_536;

/// Every flag, in the order of the help.
pub(crate) const FLAGS: &[Flag] = &[
    flag(SERVER, "transport", "TRANSPORT", "stdio")
        .choices("stdio http sse")
        .one(|c, t| {
            c.transport = match t {
                "http" => Transport::Http,
                "sse" => Transport::Sse,
                _ => Transport::Stdio,
            };
            Ok(())
        })
        .help("How clients reach the server: stdio, http or sse"),
    flag(SERVER, "host", "ADDRESS", "127.0.0.1")
        .one(|c, t| set(&mut c.host, values::host(t)))
        .help("Address to listen on (http and sse)"),
    flag(SERVER, "port", "PORT", "8000")
        .one(|c, t| set(&mut c.port, count(t, 0, u16::MAX)))
        .help("Port to listen on (http and sse); 0 takes a free one"),
    flag(SERVER, "path", "PATH", "/mcp, on sse /sse")
        .one(|c, t| set(&mut c.path, values::path(t)))
        .help("Path of the MCP endpoint (http and sse)"),
    flag(SERVER, "log-level", "LEVEL", "info")
        .choices("debug info warning error critical warn")
        // Critical is none of the levels of `log`.
        .one(|c, t| set(&mut c.log_level, Ok(t.trim_end_matches("ing").parse().ok())))
        .help("What is logged: debug, info, warning, error or critical"),
    flag(SERVER, "log-format", "FORMAT", "logfmt")
        .choices("logfmt json")
        .one(|c, t| set(&mut c.log_json, Ok(t == "json")))
        .help("How a line of the log is written: logfmt or json"),
    flag(SERVER, "demo", "", "")
        .one(|c, t| set(&mut c.demo, values::switch(t)))
        .help("Use a small Fabric built into this program, without any model"),
    flag(FABRIC, "fabric-url", "URL", "http://127.0.0.1:8080")
        .one(|c, t| set(&mut c.fabric.url, base_url(t)))
        .help("Where fabric --serve listens"),
    flag(FABRIC, "start-fabric", "[=PROGRAM]", "")
        .one(|c, t| set(&mut c.start_fabric, values::program(t)))
        .help("Start Fabric when it is needed, and end it when it is not"),
    flag(FABRIC, "patterns-dir", "DIR", "")
        .many(|c, t| push(&mut c.patterns_dirs, Ok(PathBuf::from(t))))
        .help(
            "Read patterns from a folder and run nothing. The folder is a git clone of \
             https://github.com/danielmiessler/fabric, ~/.config/fabric/patterns, or your own \
             with NAME/system.md for each pattern",
        ),
    flag(FABRIC, "connect-timeout", "SECONDS", "5")
        .one(|c, t| set(&mut c.fabric.connect_timeout, seconds(t, false, MAX_TIME)))
        .help("Longest time to connect to Fabric"),
    flag(FABRIC, "idle-timeout", "SECONDS", "300")
        .one(|c, t| set(&mut c.fabric.idle_timeout, seconds(t, false, MAX_TIME)))
        .help("Longest silence of Fabric during a run"),
    flag(FABRIC, "run-timeout", "SECONDS", "3600")
        .one(|c, t| set(&mut c.fabric.run_timeout, seconds(t, false, MAX_TIME)))
        .help("Longest time for a run"),
    flag(FABRIC, "request-timeout", "SECONDS", "30")
        .one(|c, t| set(&mut c.fabric.request_timeout, seconds(t, false, MAX_TIME)))
        .help("Longest time for any other request"),
    flag(FABRIC, "models-timeout", "SECONDS", "120")
        .one(|c, t| set(&mut c.fabric.models_timeout, seconds(t, false, MAX_TIME)))
        .help("Longest time to list the models or get a transcript"),
    flag(FABRIC, "catalog-ttl", "SECONDS", "300")
        .one(|c, t| set(&mut c.catalog_ttl, seconds(t, false, MAX_TIME)))
        .help("How long the texts of patterns are cached"),
    flag(RUNS, "allow-pattern", "NAME", "")
        .many(|c, t| push(&mut c.policy.allowed, values::pattern(t)))
        .help("Allow a pattern that is refused by default"),
    flag(RUNS, "deny-pattern", "NAME", "")
        .many(|c, t| push(&mut c.policy.denied, values::pattern(t)))
        .help("Refuse to run a pattern"),
    flag(RUNS, "allow-model", "NAME", "")
        .many(|c, t| push(&mut c.policy.allowed_models, values::model(t)))
        .help("Allow only the models named with this flag; a * at the end stands for any ending"),
    flag(RUNS, "default-model", "NAME", "")
        .one(|c, t| set(&mut c.policy.default_model, values::model(t)))
        .help("Model for runs that name none"),
    flag(RUNS, "default-vendor", "NAME", "")
        .one(|c, t| set(&mut c.policy.default_vendor, values::model(t)))
        .help("Vendor of --default-model"),
    flag(RUNS, "pattern-model", "PATTERN=MODEL", "")
        .many(|c, t| push(&mut c.policy.pattern_models, values::pattern_model(t)))
        .help("Model for runs of PATTERN that name none; PATTERN=VENDOR|MODEL sets the vendor too"),
    flag(RUNS, "default-language", "LANGUAGE", "")
        .one(|c, t| set(&mut c.policy.default_language, values::language(t)))
        .help("Output language for runs that name none, such as de or pt-BR"),
    flag(RUNS, "strip-thinking", "", "")
        .one(|c, t| set(&mut c.policy.strip_thinking, values::switch(t)))
        .help("Leave out <think> and <thinking> blocks at the beginning of an output"),
    flag(RUNS, "plain-results", "", "")
        .one(|c, t| set(&mut c.policy.plain_results, values::switch(t)))
        .help("Send results only as text, for clients that show the model the structured copy too"),
    flag(RUNS, "read-only", "", "")
        .one(|c, t| set(&mut c.policy.read_only, values::switch(t)))
        .help("Offer only what is free: without --patterns-dir, fabric_run_pattern works only with dry_run"),
    flag(RUNS, "tool", "TOOL", "")
        .many(|c, t| push(&mut c.policy.tools, Ok(t.to_owned())))
        .help("Offer only the tools named with this flag"),
    flag(RUNS, "prompt", "WHICH", "all")
        .choices("all none")
        .one(|c, t| set(&mut c.policy.no_prompts, Ok(t == "none")))
        .help("Which prompts are offered: all or none"),
    flag(RUNS, "max-runs", "COUNT", "16, on http and sse 512")
        .one(|c, t| set(&mut c.max_runs, count(t, 1, MAX_MAX_RUNS)))
        .help("Maximum number of runs at once"),
    flag(RUNS, "max-memory", "MIB", "256")
        .one(|c, t| set(&mut c.max_memory, count(t, 32, 65_536).map(|mib| mib << 20)))
        .help("Memory limit for all requests, runs and answers together"),
    flag(RUNS, "answer-within", "SECONDS", "50")
        .one(|c, t| set(&mut c.runs.answer_within, seconds(t, true, MAX_TIME)))
        .help("Answer a call with its run's id if the run takes longer; 0 waits for the end"),
    flag(RUNS, "task-after", "SECONDS", "5")
        .one(|c, t| set(&mut c.runs.task_after, seconds(t, true, MAX_TIME)))
        .help("Answer with an MCP task if the run takes longer, for clients that support tasks; 0 answers at once"),
    flag(RUNS, "keep-runs", "SECONDS", "3600")
        .one(|c, t| set(&mut c.runs.keep, seconds(t, true, MAX_KEEP)))
        .help("How long runs and their output are kept after their end; 0 keeps none"),
    flag(RUNS, "state-dir", "DIR", "")
        .one(|c, t| set(&mut c.runs.state_dir, values::state_dir(t)))
        .help("Folder that keeps runs across restarts; several processes can share it"),
    flag(HTTP, "allowed-host", "HOST", "")
        .many(|c, t| push(&mut c.http.allowed_hosts, values::allowed_host(t)))
        .help("Accept requests for this Host, with or without a port"),
    flag(HTTP, "allowed-origin", "ORIGIN", "")
        .many(|c, t| push(&mut c.http.allowed_origins, values::allowed_origin(t)))
        .help("Accept requests from web pages of this Origin (https://host)"),
    flag(HTTP, "tokens-file", "FILE", "")
        .one(|c, t| set(&mut c.http.tokens_file, Ok(Some(t.into()))))
        .help("File of tokens, one line NAME ROLE TOKEN [KEY=VALUE…] for each caller; read again when it changes"),
    flag(HTTP, "auth-token-file", "FILE", "")
        .help("File with the bearer token that callers must send, and that --connect sends"),
    flag(HTTP, "oauth-issuer", "URL", "").help("Accept OAuth tokens from this issuer"),
    flag(HTTP, "oauth-resource", "URL", "")
        .help("URL of this server's endpoint for OAuth clients: the audience of their tokens"),
    flag(HTTP, "allow-unauthenticated", "", "")
        .one(|c, t| set(&mut c.http.allow_unauthenticated, values::switch(t)))
        .help("Serve other machines without asking for a token"),
    flag(HTTP, "no-page", "", "")
        .one(|c, t| set(&mut c.http.no_page, values::switch(t)))
        .help("Leave out the page that a browser shows at the server's URL"),
    flag(HTTP, "trusted-proxy", "ADDRESS", "")
        .many(|c, t| push(&mut c.http.trusted_proxies, values::address(t)))
        .help("Take the caller's address from X-Forwarded-For of this proxy"),
    flag(HTTP, "max-calls-per-minute", "COUNT", "0")
        .one(|c, t| set(&mut c.http.max_calls_per_minute, count(t, 0, 1_000_000)))
        .help("Maximum number of runs per minute for each caller, counting each step of a chain; 0 sets no limit"),
    flag(HTTP, "max-runs-per-caller", "COUNT", "0")
        .one(|c, t| set(&mut c.http.max_runs_per_caller, count(t, 0, MAX_MAX_RUNS)))
        .help("Maximum number of runs at once for each caller; 0 sets no limit"),
    flag(HTTP, "max-connections", "COUNT", "512")
        .one(|c, t| set(&mut c.http.max_connections, count(t, 1, CONNECTIONS)))
        .help("Maximum number of connections at once"),
    flag(SERVER, "drain-timeout", "SECONDS", "10")
        .one(|c, t| set(&mut c.http.drain_timeout, seconds(t, false, MAX_TIME)))
        .help("How long runs may continue after SIGTERM or SIGINT"),
    flag(COMMAND, "check", "", "").help("Test the connection to Fabric, report, and exit with 0 if all is well"),
    flag(COMMAND, "connect", "URL", "").help(
        "Pass messages on between stdio and the server at this URL, for clients that can only \
         start programs; with --check, only test that server; with --call, call a tool there",
    ),
    flag(COMMAND, "call", "TOOL", "")
        .help("Call a tool; its arguments follow, as KEY=VALUE or JSON, and what is piped in is input_text"),
    flag(COMMAND, "check-tokens", "FILE", "")
        .help("List the mistakes in a tokens file, and exit with 0 if there are none; give the server's --state-dir too, if it has one"),
    flag(COMMAND, "usage", "", "").help(
        "Print how much each caller used of each model this month, from the ledger in --state-dir; \
         with --usage YYYY-MM in that month, with --usage YYYY-MM-DD.. since that day",
    ),
    flag(COMMAND, "prices", "FILE", "")
        .help("With --usage: file of model prices, one line MODEL INPUT OUTPUT for each model"),
    flag(COMMAND, "json", "", "").one(|c, t| set(&mut c.json, values::switch(t))).help("With --check, --call, --list-tools and --usage: print JSON"),
    flag(COMMAND, "list-tools", "", "").help("Print the tools and their arguments"),
    flag(COMMAND, "healthcheck", "", "")
        .help("Ask the server on this machine whether it is up, and exit with 0 or 1"),
    flag(COMMAND, "generate", "WHAT", "")
        .choices(
            "man complete-bash complete-zsh complete-fish systemd-unit systemd-template sysusers \
             compose kubernetes prometheus skills skill plugin client-config client-command token",
        )
        .help(
            "Print man, complete-bash, complete-zsh, complete-fish, systemd-unit [PROGRAM], \
             systemd-template [PROGRAM], sysusers, compose [SECRETS], kubernetes [IMAGE], \
             prometheus, client-config [CLIENT], client-command CLIENT, token NAME ROLE [KEY=VALUE…]; write \
             skills DIR NAME…, skill DIR, plugin DIR",
        ),
    flag(COMMAND, "all", "", "").help("With --generate skills: write every pattern"),
    flag(COMMAND, "install", "CLIENT", "")
        .help("Add the server to a client's configuration file, after asking; --help clients says more"),
    flag(COMMAND, "uninstall", "CLIENT", "").help("Remove the server from that file again, after asking"),
    flag(COMMAND, "url", "URL", "").help(
        "With --install, --uninstall, --generate client-config and --generate client-command: for a \
         server at this URL, over http or with --transport sse",
    ),
    flag(COMMAND, "yes", "", "").help("With --install and --uninstall: do not ask; runs are kept, unless --no-history is given"),
    flag(COMMAND, "name", "NAME", "")
        .help("With --install and --uninstall: the server's name in the client, instead of fabric"),
    flag(COMMAND, "history", "", "").help(
        "With --install and --state-dir: --install keeps runs for 30 days, without asking; \
         if the folder cannot be used, runs are kept in memory",
    ),
    flag(COMMAND, "no-history", "", "").help("With --install: do not keep runs, without asking"),
    flag(COMMAND, "version", "", "").short(Some('V')).help("Print the version"),
    flag(COMMAND, "help", "", "")
        .short(Some('h'))
        .help("Print help: -h in short, --help in full, --help TOPIC on one topic"),
];

/// The sections of the help in their order, each by its heading.
pub(crate) const SECTIONS: [&str; 5] = [SERVER, FABRIC, RUNS, HTTP, COMMAND];
pub(super) const SERVER: &str = "Server";
pub(super) const FABRIC: &str = "Fabric";
pub(super) const RUNS: &str = "Patterns and runs";
pub(super) const HTTP: &str = "Network (http and sse)";
/// Flags for what the program does instead of serving, and the flags that belong to these. They are not settings.
pub(super) const COMMAND: &str = "Instead of serving";

/// Parses a value, one of the choices if the flag has any, and sets its field. The error says what is wrong and what to
/// give instead, without the flag's name.
type Parse = fn(&mut Config, &str) -> Result<(), String>;

row! {
    /// A row of the table.
    Flag {
        pub(crate) section: Text = "",
        /// Without dashes.
        pub(crate) long: Text = "",
        pub(crate) short: Option<char> = None,
        /// What the help calls its value; empty if it takes none, in `[=` and `]` if it can be left out.
        pub(crate) placeholder: Text = "",
        /// The default as the help shows it, parsed like a given value up to a comma; empty for none.
        pub(crate) default: Text = "",
        /// Sets its field; a flag without a field is looked up later.
        one: Parse = |_, _| Ok(()),
        /// Whether all of its values are used; of others, the last one wins.
        pub(crate) repeats: bool = false,
        /// All values that are allowed, if there are only a few, with spaces between them.
        choices: Text = "",
        /// What it does, in a line. One that begins with `With --a and --b:` needs one of these.
        pub(crate) help: Text = "",
    }
}

const fn flag(section: Text, long: Text, placeholder: Text, default: Text) -> Flag {
    let flag = Flag::USUAL.section(section).long(long);
    flag.placeholder(placeholder).default(default)
}

impl Flag {
    const fn many(self, parse: Parse) -> Flag {
        self.one(parse).repeats(true)
    }

    /// The name of its variable, if it is a setting.
    pub(crate) fn env(&self) -> Option<String> {
        if self.long == "fabric-url" {
            return Some(BASE_URL.to_owned());
        }
        let name = OWN_VARIABLE.bytes().chain(self.long.bytes());
        // Made of bytes, whose number is known: all these names are made at each start, and growing texts took a sixth
        // of it.
        let upper = name.map(|byte| match byte {
            b'-' => '_',
            other => char::from(other.to_ascii_uppercase()),
        });
        (self.section != COMMAND).then(|| upper.collect())
    }

    /// Sets its field, if there is one. Errors are those of [`Parse`].
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), String> {
        let text = match self.choices {
            "" => text,
            _ => values::choice(text, &self.values())?,
        };
        (self.one)(config, text)
    }

    /// The default without what the help adds to it.
    pub(super) fn default_value(&self) -> &'static str {
        self.default.split(',').next().unwrap_or_default()
    }

    /// Whether it has no effect on stdio.
    pub(super) fn is_for_http(&self) -> bool {
        self.section == HTTP || matches!(self.long, "transport" | "host" | "port" | "path")
    }

    /// Whether a value follows.
    pub(crate) fn takes_value(&self) -> bool {
        !matches!(self.placeholder.as_bytes(), [] | [b'[', ..])
    }

    /// All values that can be completed.
    pub(crate) fn values(&self) -> Vec<&'static str> {
        match self.placeholder {
            "CLIENT" => clients::names(),
            _ => self.choices.split_whitespace().collect(),
        }
    }

    /// Whether its value may be the path of a file or folder.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self.placeholder, "FILE" | "DIR" | "[=PROGRAM]")
    }

    /// The flags of which it needs one, as its help begins with them.
    pub(super) fn partners(&self) -> Option<&'static str> {
        let (partners, _) = self.help.strip_prefix("With ")?.split_once(": ")?;
        Some(partners)
    }

    /// All its names with their dashes.
    pub(crate) fn dashed(&self) -> Vec<String> {
        let short = self.short.map(|letter| format!("-{letter}"));
        let long = self.names().map(|name| format!("--{name}"));
        short.into_iter().chain(long).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let alias = (self.long == "path").then_some("mcp-path");
        [self.long].into_iter().chain(alias)
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
    let mut flags = FLAGS.iter();
    flags.find(|flag| flag.names().any(|own| own == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_used_once_and_every_flag_is_explained() {
        let mut names = HashSet::new();
        for flag in FLAGS {
            let letter = flag.short.map(|letter| letter.to_string());
            let own = flag.names().map(str::to_owned);
            let mut own = own.chain(letter).chain(flag.env());
            assert!(own.all(|name| names.insert(name)), "--{}", flag.long);
            let is_so = !flag.help.is_empty() && !flag.help.ends_with('.');
            assert!(is_so, "--{}", flag.long);
            let mut choices = flag.choices.split(' ');
            let is_so = choices.all(|choice| flag.help.contains(choice));
            assert!(is_so, "--{}", flag.long);
        }
        let mut variables = VARIABLES.iter();
        assert!(variables.all(|(name, _)| names.insert((*name).to_owned())));
    }
}
