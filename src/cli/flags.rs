//! The table of flags and of the variables that are not flags.
//!
//! In scope: all facts about flags, as data. Not in scope: parsing them (`cli`, `values`) and printing them (`help`,
//! `generate`).

use crate::config;
use crate::text::edit_distance;

pub(crate) use super::flag::{EnvOnly, Flag, Section, Takes, Variable};

/// Identifies a flag. In the order of [`FLAGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table says what each one is")]
pub(crate) enum FlagId {
    Transport,
    Host,
    Port,
    Path,
    LogLevel,
    LogFormat,
    Demo,
    FabricUrl,
    ConnectTimeout,
    IdleTimeout,
    RunTimeout,
    RequestTimeout,
    ModelsTimeout,
    CatalogTtl,
    AllowPattern,
    DenyPattern,
    AllowModel,
    DefaultModel,
    DefaultVendor,
    MaxRuns,
    MaxMemory,
    AnswerWithin,
    TaskAfter,
    KeepRuns,
    StateDir,
    AllowedHost,
    AllowedOrigin,
    TokensFile,
    AuthTokenFile,
    OauthIssuer,
    OauthResource,
    AllowUnauthenticated,
    TrustedProxy,
    MaxCallsPerMinute,
    MaxRunsPerCaller,
    MaxConnections,
    DrainTimeout,
    Check,
    Call,
    Json,
    ListTools,
    Generate,
    Install,
    Uninstall,
    Url,
    Yes,
    Version,
    Help,
}

/// Key of Fabric's API.
pub(crate) const API_KEY: &str = "FABRIC_API_KEY";
/// Token that callers over HTTP must show.
pub(crate) const AUTH_TOKEN: &str = "FABRIC_MCP_AUTH_TOKEN";
/// File that holds this token.
pub(crate) const AUTH_TOKEN_FILE: &str = "FABRIC_MCP_AUTH_TOKEN_FILE";
/// How we are known to the OAuth issuer.
pub(crate) const OAUTH_CLIENT_ID: &str = "FABRIC_MCP_OAUTH_CLIENT_ID";
/// The secret that goes with it.
pub(crate) const OAUTH_CLIENT_SECRET: &str = "FABRIC_MCP_OAUTH_CLIENT_SECRET";
/// Certificates to trust.
pub(crate) const CERT_FILE: &str = "SSL_CERT_FILE";

/// Every variable that has no flag.
pub(crate) const VARIABLES: &[EnvOnly] = &[
    EnvOnly { name: API_KEY, help: "Key of Fabric's API, as given to fabric --serve --api-key" },
    EnvOnly { name: AUTH_TOKEN, help: "Bearer token that callers over http and sse must show" },
    EnvOnly { name: OAUTH_CLIENT_ID, help: "Client id by which this server asks the OAuth issuer about tokens" },
    EnvOnly { name: OAUTH_CLIENT_SECRET, help: "Secret of that client" },
    EnvOnly { name: CERT_FILE, help: "PEM file of the certificates to trust for an https:// Fabric or OAuth issuer" },
];

/// Every flag.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        takes: Takes::One("TRANSPORT"),
        choices: &["stdio", "http", "sse"],
        default: "stdio",
        ..setting(FlagId::Transport, "transport", Section::Server, "How clients reach the server: stdio, http or sse")
    },
    Flag {
        takes: Takes::One("ADDRESS"),
        default: "127.0.0.1",
        ..setting(FlagId::Host, "host", Section::Server, "Address to listen on (http and sse)")
    },
    Flag {
        takes: Takes::One("PORT"),
        default: "8000",
        ..setting(FlagId::Port, "port", Section::Server, "Port to listen on (http and sse); 0 takes a free one")
    },
    Flag {
        takes: Takes::One("PATH"),
        alias: Some("mcp-path"),
        default: "/mcp, on sse /sse",
        ..setting(FlagId::Path, "path", Section::Server, "Path of the MCP endpoint (http and sse)")
    },
    Flag {
        takes: Takes::One("LEVEL"),
        choices: &["debug", "info", "warning", "error", "critical"],
        default: "info",
        ..setting(
            FlagId::LogLevel,
            "log-level",
            Section::Server,
            "What is logged: debug, info, warning, error or critical",
        )
    },
    Flag {
        takes: Takes::One("FORMAT"),
        choices: &["logfmt", "json"],
        default: "logfmt",
        ..setting(FlagId::LogFormat, "log-format", Section::Server, "How a line of the log is written: logfmt or json")
    },
    Flag {
        ..setting(
            FlagId::Demo,
            "demo",
            Section::Server,
            "Use a small Fabric built into this program, without any model",
        )
    },
    Flag {
        takes: Takes::One("URL"),
        variable: Variable::Named("FABRIC_BASE_URL"),
        default: "http://127.0.0.1:8080",
        ..setting(FlagId::FabricUrl, "fabric-url", Section::Fabric, "Where fabric --serve listens")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "5",
        ..setting(FlagId::ConnectTimeout, "connect-timeout", Section::Fabric, "Longest time to connect to Fabric")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "300",
        ..setting(FlagId::IdleTimeout, "idle-timeout", Section::Fabric, "Longest silence of Fabric during a run")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "3600",
        ..setting(FlagId::RunTimeout, "run-timeout", Section::Fabric, "Longest run")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "30",
        ..setting(FlagId::RequestTimeout, "request-timeout", Section::Fabric, "Longest time for any other request")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "120",
        ..setting(
            FlagId::ModelsTimeout,
            "models-timeout",
            Section::Fabric,
            "Longest time to list the models or get a transcript",
        )
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "300",
        ..setting(FlagId::CatalogTtl, "catalog-ttl", Section::Fabric, "How long the list of patterns is kept")
    },
    Flag {
        takes: Takes::Many("NAME"),
        ..setting(FlagId::AllowPattern, "allow-pattern", Section::Runs, "Allow a pattern that is refused by default")
    },
    Flag {
        takes: Takes::Many("NAME"),
        ..setting(FlagId::DenyPattern, "deny-pattern", Section::Runs, "Refuse to run a pattern")
    },
    Flag {
        takes: Takes::Many("NAME"),
        ..setting(FlagId::AllowModel, "allow-model", Section::Runs, "Run only this model, and others so allowed")
    },
    Flag {
        takes: Takes::One("NAME"),
        ..setting(FlagId::DefaultModel, "default-model", Section::Runs, "Model of runs that name none")
    },
    Flag {
        takes: Takes::One("NAME"),
        ..setting(FlagId::DefaultVendor, "default-vendor", Section::Runs, "Vendor of --default-model")
    },
    Flag {
        takes: Takes::One("COUNT"),
        default: "16, on http and sse 512",
        ..setting(FlagId::MaxRuns, "max-runs", Section::Runs, "Most runs at once")
    },
    Flag {
        takes: Takes::One("MIB"),
        default: "256",
        ..setting(
            FlagId::MaxMemory,
            "max-memory",
            Section::Runs,
            "Most memory that requests, runs and their answers may hold together",
        )
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "50",
        ..setting(
            FlagId::AnswerWithin,
            "answer-within",
            Section::Runs,
            "Answer a call with its run's id if the run takes longer; 0 waits for the end",
        )
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "5",
        ..setting(
            FlagId::TaskAfter,
            "task-after",
            Section::Runs,
            "The same with an MCP task, for clients that know tasks; 0 at once",
        )
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "3600",
        ..setting(
            FlagId::KeepRuns,
            "keep-runs",
            Section::Runs,
            "How long runs and their output are kept after their end; 0 keeps none",
        )
    },
    Flag {
        takes: Takes::One("DIR"),
        ..setting(
            FlagId::StateDir,
            "state-dir",
            Section::Runs,
            "Folder where runs are kept too, to survive a restart; processes may share one",
        )
    },
    Flag {
        takes: Takes::Many("HOST"),
        ..setting(
            FlagId::AllowedHost,
            "allowed-host",
            Section::Http,
            "Let in requests for this Host, with or without a port",
        )
    },
    Flag {
        takes: Takes::Many("ORIGIN"),
        ..setting(
            FlagId::AllowedOrigin,
            "allowed-origin",
            Section::Http,
            "Let in web pages of this Origin (https://host)",
        )
    },
    Flag {
        takes: Takes::One("FILE"),
        ..setting(
            FlagId::TokensFile,
            "tokens-file",
            Section::Http,
            "File of callers' tokens, a line NAME ROLE TOKEN each; read again when it changes",
        )
    },
    Flag {
        takes: Takes::One("FILE"),
        ..setting(
            FlagId::AuthTokenFile,
            "auth-token-file",
            Section::Http,
            "File that holds the bearer token callers must show",
        )
    },
    Flag {
        takes: Takes::One("URL"),
        ..setting(FlagId::OauthIssuer, "oauth-issuer", Section::Http, "Let in callers with OAuth tokens of this issuer")
    },
    Flag {
        takes: Takes::One("URL"),
        ..setting(
            FlagId::OauthResource,
            "oauth-resource",
            Section::Http,
            "This server's endpoint as OAuth clients name it: the audience of tokens",
        )
    },
    Flag {
        ..setting(
            FlagId::AllowUnauthenticated,
            "allow-unauthenticated",
            Section::Http,
            "Serve other machines though there is no token",
        )
    },
    Flag {
        takes: Takes::Many("ADDRESS"),
        ..setting(
            FlagId::TrustedProxy,
            "trusted-proxy",
            Section::Http,
            "Take the caller's address from X-Forwarded-For of this proxy",
        )
    },
    Flag {
        takes: Takes::One("COUNT"),
        default: "0",
        ..setting(
            FlagId::MaxCallsPerMinute,
            "max-calls-per-minute",
            Section::Http,
            "Most runs a minute per caller, a chain being several; 0 sets no limit",
        )
    },
    Flag {
        takes: Takes::One("COUNT"),
        default: "0",
        ..setting(
            FlagId::MaxRunsPerCaller,
            "max-runs-per-caller",
            Section::Http,
            "Most runs at once per caller; 0 sets no limit",
        )
    },
    Flag {
        takes: Takes::One("COUNT"),
        default: "512",
        ..setting(FlagId::MaxConnections, "max-connections", Section::Http, "Most connections at once")
    },
    Flag {
        takes: Takes::One("SECONDS"),
        default: "10",
        ..setting(
            FlagId::DrainTimeout,
            "drain-timeout",
            Section::Server,
            "How long runs may go on after SIGTERM or SIGINT",
        )
    },
    Flag { ..command(FlagId::Check, "check", "Test the connection to Fabric, report, and exit with 0 or 1") },
    Flag {
        takes: Takes::One("TOOL"),
        ..command(
            FlagId::Call,
            "call",
            "Call a tool, with its arguments as JSON after it; what is piped in is input_text",
        )
    },
    Flag { ..command(FlagId::Json, "json", "With --check and --call: print JSON") },
    Flag { ..command(FlagId::ListTools, "list-tools", "Print the tools and their arguments") },
    Flag {
        takes: Takes::One("WHAT"),
        choices: &[
            "man",
            "complete-bash",
            "complete-zsh",
            "complete-fish",
            "systemd-unit",
            "systemd-template",
            "sysusers",
            "prometheus",
            "client-config",
            "client-command",
            "token",
        ],
        ..command(
            FlagId::Generate,
            "generate",
            "Print man, complete-bash, complete-zsh, complete-fish, systemd-unit, systemd-template, sysusers, prometheus, \
             client-config [CLIENT], client-command CLIENT, token NAME ROLE",
        )
    },
    Flag {
        takes: Takes::One("CLIENT"),
        ..command(FlagId::Install, "install", "Add the server to a client's configuration file, after asking")
    },
    Flag {
        takes: Takes::One("CLIENT"),
        ..command(FlagId::Uninstall, "uninstall", "Take it out of that file again, after asking")
    },
    Flag {
        takes: Takes::One("URL"),
        ..command(FlagId::Url, "url", "With --install and --generate client-…: for a server over http at this URL")
    },
    Flag { ..command(FlagId::Yes, "yes", "With --install and --uninstall: do not ask") },
    Flag { short: Some('V'), ..command(FlagId::Version, "version", "Print the version") },
    Flag {
        short: Some('h'),
        ..command(FlagId::Help, "help", "Print help: -h in short, --help in full, --help TOPIC on one thing")
    },
];

/// The clients that `--install` and `--generate client-config` know.
pub(crate) const CLIENTS: &[&str] = &[
    "claude-desktop",
    "claude-code",
    "vscode",
    "cursor",
    "zed",
    "windsurf",
    "cline",
    "continue",
    "codex",
    "gemini-cli",
    "jetbrains",
    "goose",
];

const fn setting(id: FlagId, long: &'static str, section: Section, help: &'static str) -> Flag {
    Flag {
        id,
        long,
        short: None,
        alias: None,
        takes: Takes::Nothing,
        choices: &[],
        variable: Variable::Derived,
        default: "",
        help,
        section,
    }
}

const fn command(id: FlagId, long: &'static str, help: &'static str) -> Flag {
    Flag { variable: Variable::None, ..setting(id, long, Section::Command, help) }
}

/// The flag with this id.
pub(crate) fn get(id: FlagId) -> &'static Flag {
    // A test checks that the table is in the order of the ids.
    &FLAGS[id as usize]
}

/// Whether `name` is the variable of a flag of that kind.
pub(super) fn is_variable_of(name: &str, kind: fn(&Flag) -> bool) -> bool {
    FLAGS.iter().any(|flag| kind(flag) && flag.env().is_some_and(|own| own == name))
}

/// The flag with this long name or alias.
pub(crate) fn by_long(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.names().any(|own| own == name))
}

/// The flag with this letter.
pub(crate) fn by_short(letter: char) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.short == Some(letter))
}

/// The candidate that `wanted` is most likely a typing error for: the edit distance is at most a third of its length, and
/// at most 3.
pub(crate) fn closest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.chars().take(config::MAX_NAME).collect();
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(&wanted, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_in_order_and_names_are_its_own() {
        let mut names = HashSet::new();
        for (place, flag) in FLAGS.iter().enumerate() {
            assert_eq!(flag.id as usize, place, "--{}", flag.long);
            assert!(flag.names().all(|name| names.insert(name.to_owned())), "--{}", flag.long);
            assert!(flag.short.is_none_or(|letter| names.insert(letter.to_string())), "--{}", flag.long);
            assert!(flag.env().is_none_or(|name| names.insert(name)), "--{}", flag.long);
            assert!(!flag.help.is_empty() && !flag.help.ends_with('.'), "--{}", flag.long);
            assert!(flag.choices.is_empty() || flag.choices.iter().all(|choice| flag.help.contains(choice)));
        }
        assert!(VARIABLES.iter().all(|variable| names.insert(variable.name.to_owned())));
    }

    #[test]
    fn variables_are_named_after_flags() {
        assert_eq!(get(FlagId::MaxCallsPerMinute).env().as_deref(), Some("FABRIC_MCP_MAX_CALLS_PER_MINUTE"));
        assert_eq!(get(FlagId::FabricUrl).env().as_deref(), Some("FABRIC_BASE_URL"));
        let without: Vec<_> = FLAGS.iter().filter(|flag| flag.env().is_none()).map(|flag| flag.long).collect();
        assert_eq!(
            without,
            [
                "check",
                "call",
                "json",
                "list-tools",
                "generate",
                "install",
                "uninstall",
                "url",
                "yes",
                "version",
                "help"
            ]
        );
    }

    #[test]
    fn typing_errors_are_recognised() {
        let names = || FLAGS.iter().flat_map(Flag::names);
        for (wanted, found) in [
            ("prot", Some("port")),
            ("ports", Some("port")),
            ("transpot", Some("transport")),
            ("allow-patern", Some("allow-pattern")),
            ("allowed-hosts", Some("allowed-host")),
            ("log_level", Some("log-level")),
            ("PORT", None),
            ("verbose", None),
            ("", None),
        ] {
            assert_eq!(closest(wanted, names()), found, "{wanted}");
        }
        assert_eq!(closest(&"x".repeat(100_000), names()), None);
    }
}
