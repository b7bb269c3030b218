//! The table of flags and of the variables that are not flags.
//!
//! In scope: all facts about flags, the field of [`Config`](config::Config) that each sets included. Not in scope: reading
//! the command line (`cli`), rules between settings (`resolve`), values (`values`), printing (`help`, `generate`).
//!
//! A new setting is an entry here and a field there.

use super::values::{self, count, seconds, seconds_or_none};
use crate::config;
use crate::text::edit_distance;
use crate::url::base_url;

pub(crate) use super::flag::{EnvOnly, Flag, Section, Takes, Variable};
pub(crate) use crate::config::{API_KEY, AUTH_TOKEN};

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
    EnvOnly {
        name: API_KEY,
        help: "Key of Fabric's API, as given to fabric --serve --api-key",
    },
    EnvOnly {
        name: AUTH_TOKEN,
        help: "Bearer token that callers over http and sse must show",
    },
    EnvOnly {
        name: OAUTH_CLIENT_ID,
        help: "Client id by which this server asks the OAuth issuer about tokens",
    },
    EnvOnly {
        name: OAUTH_CLIENT_SECRET,
        help: "Secret of that client",
    },
    EnvOnly {
        name: CERT_FILE,
        help: "PEM file of the certificates to trust for an https:// Fabric or OAuth issuer",
    },
];

/// Most runs at once that may be allowed: each has a thread.
const MAX_MAX_RUNS: usize = 4096;
/// Most connections at once that may be allowed: each has a thread.
const MAX_MAX_CONNECTIONS: usize = 65_536;

/// Every flag.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        takes: Takes::One("TRANSPORT", |config, text| {
            set(&mut config.transport, values::transport(text))
        }),
        choices: &["stdio", "http", "sse"],
        default: "stdio",
        ..setting(
            "transport",
            Section::Server,
            "How clients reach the server: stdio, http or sse",
        )
    },
    Flag {
        takes: Takes::One("ADDRESS", |config, text| {
            set(&mut config.host, values::host(text))
        }),
        default: "127.0.0.1",
        ..setting(
            "host",
            Section::Server,
            "Address to listen on (http and sse)",
        )
    },
    Flag {
        takes: Takes::One("PORT", |config, text| {
            set(&mut config.port, values::port(text))
        }),
        default: "8000",
        ..setting(
            "port",
            Section::Server,
            "Port to listen on (http and sse); 0 takes a free one",
        )
    },
    Flag {
        takes: Takes::One("PATH", |config, text| {
            set(&mut config.path, values::path(text))
        }),
        alias: Some("mcp-path"),
        default: "/mcp",
        default_note: ", on sse /sse",
        ..setting(
            "path",
            Section::Server,
            "Path of the MCP endpoint (http and sse)",
        )
    },
    Flag {
        takes: Takes::One("LEVEL", |config, text| {
            set(&mut config.log_level, values::log_level(text))
        }),
        choices: &["debug", "info", "warning", "error", "critical"],
        default: "info",
        ..setting(
            "log-level",
            Section::Server,
            "What is logged: debug, info, warning, error or critical",
        )
    },
    Flag {
        takes: Takes::One("FORMAT", |config, text| {
            set(&mut config.log_format, values::log_format(text))
        }),
        choices: &["logfmt", "json"],
        default: "logfmt",
        ..setting(
            "log-format",
            Section::Server,
            "How a line of the log is written: logfmt or json",
        )
    },
    Flag {
        takes: Takes::Switch(|config| &mut config.demo),
        ..setting(
            "demo",
            Section::Server,
            "Use a small Fabric built into this program, without any model",
        )
    },
    Flag {
        takes: Takes::One("URL", |config, text| {
            set(&mut config.fabric.url, base_url(text))
        }),
        variable: Variable::Named("FABRIC_BASE_URL"),
        default: "http://127.0.0.1:8080",
        ..setting(
            "fabric-url",
            Section::Fabric,
            "Where fabric --serve listens",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.fabric.connect_timeout, seconds(text))
        }),
        default: "5",
        ..setting(
            "connect-timeout",
            Section::Fabric,
            "Longest time to connect to Fabric",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.fabric.idle_timeout, seconds(text))
        }),
        default: "300",
        ..setting(
            "idle-timeout",
            Section::Fabric,
            "Longest silence of Fabric during a run",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.fabric.run_timeout, seconds(text))
        }),
        default: "3600",
        ..setting("run-timeout", Section::Fabric, "Longest run")
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.fabric.request_timeout, seconds(text))
        }),
        default: "30",
        ..setting(
            "request-timeout",
            Section::Fabric,
            "Longest time for any other request",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.fabric.models_timeout, seconds(text))
        }),
        default: "120",
        ..setting(
            "models-timeout",
            Section::Fabric,
            "Longest time to list the models or get a transcript",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.catalog_ttl, seconds(text))
        }),
        default: "300",
        ..setting(
            "catalog-ttl",
            Section::Fabric,
            "How long the list of patterns is kept",
        )
    },
    Flag {
        takes: Takes::Many("NAME", |config, text| {
            push(&mut config.policy.allowed, values::pattern(text))
        }),
        ..setting(
            "allow-pattern",
            Section::Runs,
            "Allow a pattern that is refused by default",
        )
    },
    Flag {
        takes: Takes::Many("NAME", |config, text| {
            push(&mut config.policy.denied, values::pattern(text))
        }),
        ..setting("deny-pattern", Section::Runs, "Refuse to run a pattern")
    },
    Flag {
        takes: Takes::Many("NAME", |config, text| {
            push(&mut config.policy.allowed_models, values::model(text))
        }),
        ..setting(
            "allow-model",
            Section::Runs,
            "Run only this model, and others so allowed",
        )
    },
    Flag {
        takes: Takes::One("NAME", |config, text| {
            set(&mut config.policy.default_model, values::model(text))
        }),
        ..setting(
            "default-model",
            Section::Runs,
            "Model of runs that name none",
        )
    },
    Flag {
        takes: Takes::One("NAME", |config, text| {
            set(&mut config.policy.default_vendor, values::model(text))
        }),
        ..setting("default-vendor", Section::Runs, "Vendor of --default-model")
    },
    Flag {
        takes: Takes::One("COUNT", |config, text| {
            set(&mut config.max_runs, count(text, 1, MAX_MAX_RUNS))
        }),
        default: "16",
        default_note: ", on http and sse 512",
        ..setting("max-runs", Section::Runs, "Most runs at once")
    },
    Flag {
        takes: Takes::One("MIB", |config, text| {
            set(
                &mut config.max_memory,
                count(text, 32, 65_536).map(|mib| mib << 20),
            )
        }),
        default: "256",
        ..setting(
            "max-memory",
            Section::Runs,
            "Most memory that requests, runs and their answers may hold together",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.kept.answer_within, seconds_or_none(text))
        }),
        default: "50",
        ..setting(
            "answer-within",
            Section::Runs,
            "Answer a call with its run's id if the run takes longer; 0 waits for the end",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.kept.task_after, seconds_or_none(text))
        }),
        default: "5",
        ..setting(
            "task-after",
            Section::Runs,
            "The same with an MCP task, for clients that know tasks; 0 at once",
        )
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.kept.keep, seconds_or_none(text))
        }),
        default: "3600",
        ..setting(
            "keep-runs",
            Section::Runs,
            "How long runs and their output are kept after their end; 0 keeps none",
        )
    },
    Flag {
        takes: Takes::Path("DIR", |config| &mut config.kept.state_dir),
        ..setting(
            "state-dir",
            Section::Runs,
            "Folder where runs are kept too, to survive a restart; processes may share one",
        )
    },
    Flag {
        takes: Takes::Many("HOST", |config, text| {
            push(&mut config.http.allowed_hosts, values::allowed_host(text))
        }),
        ..setting(
            "allowed-host",
            Section::Http,
            "Let in requests for this Host, with or without a port",
        )
    },
    Flag {
        takes: Takes::Many("ORIGIN", |config, text| {
            push(
                &mut config.http.allowed_origins,
                values::allowed_origin(text),
            )
        }),
        ..setting(
            "allowed-origin",
            Section::Http,
            "Let in web pages of this Origin (https://host)",
        )
    },
    Flag {
        takes: Takes::Path("FILE", |config| &mut config.http.tokens_file),
        ..setting(
            "tokens-file",
            Section::Http,
            "File of callers' tokens, a line NAME ROLE TOKEN each; read again when it changes",
        )
    },
    Flag {
        takes: Takes::Raw("FILE"),
        ..setting(
            "auth-token-file",
            Section::Http,
            "File that holds the bearer token callers must show",
        )
    },
    Flag {
        takes: Takes::Raw("URL"),
        ..setting(
            "oauth-issuer",
            Section::Http,
            "Let in callers with OAuth tokens of this issuer",
        )
    },
    Flag {
        takes: Takes::Raw("URL"),
        ..setting(
            "oauth-resource",
            Section::Http,
            "This server's endpoint as OAuth clients name it: the audience of tokens",
        )
    },
    Flag {
        takes: Takes::Switch(|config| &mut config.http.allow_unauthenticated),
        ..setting(
            "allow-unauthenticated",
            Section::Http,
            "Serve other machines though there is no token",
        )
    },
    Flag {
        takes: Takes::Many("ADDRESS", |config, text| {
            push(&mut config.http.trusted_proxies, values::address(text))
        }),
        ..setting(
            "trusted-proxy",
            Section::Http,
            "Take the caller's address from X-Forwarded-For of this proxy",
        )
    },
    Flag {
        takes: Takes::One("COUNT", |config, text| {
            set(
                &mut config.http.max_calls_per_minute,
                count(text, 0, 1_000_000),
            )
        }),
        default: "0",
        ..setting(
            "max-calls-per-minute",
            Section::Http,
            "Most runs a minute per caller, a chain being several; 0 sets no limit",
        )
    },
    Flag {
        takes: Takes::One("COUNT", |config, text| {
            set(
                &mut config.http.max_runs_per_caller,
                count(text, 0, MAX_MAX_RUNS),
            )
        }),
        default: "0",
        ..setting(
            "max-runs-per-caller",
            Section::Http,
            "Most runs at once per caller; 0 sets no limit",
        )
    },
    Flag {
        takes: Takes::One("COUNT", |config, text| {
            set(
                &mut config.http.max_connections,
                count(text, 1, MAX_MAX_CONNECTIONS),
            )
        }),
        default: "512",
        ..setting("max-connections", Section::Http, "Most connections at once")
    },
    Flag {
        takes: Takes::One("SECONDS", |config, text| {
            set(&mut config.http.drain_timeout, seconds(text))
        }),
        default: "10",
        ..setting(
            "drain-timeout",
            Section::Server,
            "How long runs may go on after SIGTERM or SIGINT",
        )
    },
    command(
        "check",
        "Test the connection to Fabric, report, and exit with 0 or 1",
    ),
    Flag {
        takes: Takes::Raw("TOOL"),
        ..command(
            "call",
            "Call a tool, with its arguments as JSON after it; what is piped in is input_text",
        )
    },
    command("json", "With --check and --call: print JSON"),
    command("list-tools", "Print the tools and their arguments"),
    Flag {
        takes: Takes::Raw("WHAT"),
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
            "generate",
            "Print man, complete-bash, complete-zsh, complete-fish, systemd-unit, systemd-template, sysusers, prometheus, \
             client-config [CLIENT], client-command CLIENT, token NAME ROLE",
        )
    },
    Flag {
        takes: Takes::Raw("CLIENT"),
        ..command(
            "install",
            "Add the server to a client's configuration file, after asking",
        )
    },
    Flag {
        takes: Takes::Raw("CLIENT"),
        ..command("uninstall", "Take it out of that file again, after asking")
    },
    Flag {
        takes: Takes::Raw("URL"),
        ..command(
            "url",
            "With --install and --generate client-…: for a server over http, or --transport sse, at this URL",
        )
    },
    command("yes", "With --install and --uninstall: do not ask"),
    Flag {
        short: Some('V'),
        ..command("version", "Print the version")
    },
    Flag {
        short: Some('h'),
        ..command(
            "help",
            "Print help: -h in short, --help in full, --help TOPIC on one thing",
        )
    },
];

const fn setting(long: &'static str, section: Section, help: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        alias: None,
        takes: Takes::Nothing,
        choices: &[],
        variable: Variable::Derived,
        default: "",
        default_note: "",
        help,
        section,
    }
}

const fn command(long: &'static str, help: &'static str) -> Flag {
    Flag {
        variable: Variable::None,
        ..setting(long, Section::Command, help)
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

/// The candidate that `wanted` is most likely a typing error for: the edit distance is at most a third of its length, and
/// at most 3.
pub(crate) fn closest<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.chars().take(config::MAX_NAME).collect();
    candidates
        .into_iter()
        .map(|candidate| {
            (
                edit_distance(&wanted, &candidate.chars().collect::<Vec<_>>()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What to give instead of `wanted`: the closest candidate, or `all` of them.
pub(crate) fn hint<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    all: &str,
) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    match closest(wanted, candidates.iter().copied()) {
        Some(close) => format!("did you mean {close}?"),
        None => format!("{all} {}", candidates.join(", ")),
    }
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
                .all(|variable| names.insert(variable.name.to_owned()))
        );
    }

    #[test]
    fn variables_are_named_after_flags() {
        assert_eq!(
            get("max-calls-per-minute").env().as_deref(),
            Some("FABRIC_MCP_MAX_CALLS_PER_MINUTE")
        );
        assert_eq!(get("fabric-url").env().as_deref(), Some("FABRIC_BASE_URL"));
        let without: Vec<_> = FLAGS
            .iter()
            .filter(|flag| flag.env().is_none())
            .map(|flag| flag.long)
            .collect();
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
