//! Tests of the connection to Fabric: the log line at start, and `--check`.
//!
//! In scope: the requests, their order, and what the answers mean. `diagnosis` names problems and fixes, `report`
//! prints, `handshake` speaks MCP to our own server, `demo_run` streams a run of the demo. Nothing here starts a run
//! that costs money.

mod demo_run;
mod diagnosis;
mod handshake;
mod patience;
mod report;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::access::Access;
use crate::config::{self, Config};
use crate::fabric::{Cause, Client, Error, NoWait, Source, Wait};
use crate::server::Server;
use crate::url::{Authority, Host};

use diagnosis::{Problem, diagnose};
use patience::{Say, patiently};
use report::{KeyStatus, Report, ReportWriter};

pub(crate) use report::Look;

/// The default port of `fabric --serve`.
const FABRIC_DEFAULT_PORT: u16 = 8080;
/// Longest request to [`FABRIC_DEFAULT_PORT`] when another port was configured.
const OTHER_PORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Logs whether Fabric answers.
pub(crate) fn log_connection(client: &Client) {
    match client.pattern_names(&no_wait()) {
        Ok(_) => log::info!("Successfully connected to Fabric API at {}.", client.url()),
        Err(error) => log::error!(
            "Failed to connect to Fabric API at {}. Details: {}",
            client.url(),
            error.detail
        ),
    }
}

/// Runs `--check` and writes the report to `out`: line by line, or as one object at the end. `say` prints what is
/// waited for. True unless there are errors; warnings do not count.
///
/// # Errors
/// Those of `out`.
pub(crate) fn run(
    server: &Arc<Server>,
    config: &Config,
    access: &Access,
    look: Look,
    out: &mut dyn Write,
    say: Say<'_>,
) -> io::Result<bool> {
    let mut writer = ReportWriter::new(out, look);
    let mut report = Report {
        url: config.fabric.url.clone(),
        demo: config.demo,
        ..Report::default()
    };
    writer.begin(&report)?;
    for warning in &config.warnings {
        report.problems.push(Problem::warning(
            "settings",
            warning.clone(),
            "Change the setting, or leave it so knowingly.",
        ));
    }
    let reachable = ask_for_patterns(&server.backend.fabric, config, &mut report, say);
    writer.connection(&report)?;
    if reachable {
        ask_for_the_rest(&server.backend.fabric, config, &mut report, say);
        writer.contents(&report)?;
    }
    if let Err(what) = access.probe() {
        report.problems.push(Problem::error(
            "oauth-issuer",
            format!("OAuth callers cannot come in: {what}."),
            "Check --oauth-issuer, and whether the issuer can be reached from here and has introspection.",
        ));
    }
    report.mcp = handshake::all(server);
    report
        .problems
        .extend(report.mcp.iter().filter_map(|era| era.problem()));
    writer.mcp(&report)?;
    if config.demo && reachable {
        writer.demo_run_begins()?;
        match demo_run::run(server, &mut |text| writer.demo_run_text(text))? {
            Ok(seen) => report.demo_run = Some(seen),
            Err(problem) => report.problems.push(problem),
        }
        writer.demo_run_ends(&report)?;
    }
    writer.end(&report)?;
    Ok(report.is_good())
}

/// Lists the patterns, which tests address, network and key.
fn ask_for_patterns(client: &Client, config: &Config, report: &mut Report, say: Say<'_>) -> bool {
    let started = Instant::now();
    let limit = config.fabric.request_timeout;
    let answer = patiently(say, "Fabric's list of patterns", limit, || {
        client.pattern_names(&no_wait())
    });
    match answer {
        Ok(names) => {
            report.reachable = true;
            report.patterns = Some(names.len());
            report.has_summarize = names.iter().any(|name| name == "summarize");
            report.key = key_state(config);
            // The second request measures the latency: the first one also connects.
            let again = Instant::now();
            report.latency = match client.pattern_names(&no_wait()) {
                Ok(_) => Some(again.elapsed()),
                Err(_) => Some(again.duration_since(started)),
            };
            if names.is_empty() {
                report.problems.push(Problem::error(
                    "no-patterns",
                    "Fabric has no patterns, so nothing can be run.",
                    "Fetch them on Fabric's machine with `fabric --updatepatterns`, then restart `fabric --serve`.",
                ));
            }
            if report.key == KeyStatus::Unused {
                report.problems.push(Problem::warning(
                    "key-not-asked-for",
                    "FABRIC_API_KEY is set, but Fabric answers without it too: whoever reaches its address can use it.",
                    "Start it with `fabric --serve --api-key KEY`, or unset FABRIC_API_KEY.",
                ));
            }
            true
        }
        Err(error) => {
            report.reachable = matches!(error.cause, Some(Cause::KeyMissing | Cause::KeyRefused));
            report.key = match error.cause {
                Some(Cause::KeyMissing) => KeyStatus::Missing,
                Some(Cause::KeyRefused) => KeyStatus::Refused,
                _ => KeyStatus::Unknown,
            };
            let elsewhere = (error.cause == Some(Cause::Refused))
                .then(|| other_port(config))
                .flatten();
            report
                .problems
                .push(diagnose(&error, &config.fabric.url, elsewhere.as_deref()));
            false
        }
    }
}

/// Whether Fabric needs the key it accepted: asks again without it.
fn key_state(config: &Config) -> KeyStatus {
    if config.fabric.api_key.is_none() {
        return KeyStatus::NotNeeded;
    }
    let without = config::Fabric {
        api_key: None,
        ..config.fabric.clone()
    };
    match Client::new(&without).map(|client| client.pattern_names(&no_wait())) {
        Ok(Err(Error {
            cause: Some(Cause::KeyMissing),
            ..
        })) => KeyStatus::Accepted,
        Ok(Ok(_)) => KeyStatus::Unused,
        _ => KeyStatus::Unknown,
    }
}

/// The URL of a Fabric on this machine's default port, when nothing listens on the configured one. Sent without the key.
fn other_port(config: &Config) -> Option<String> {
    let rest = config.fabric.url.strip_prefix("http://")?;
    let authority = rest.split('/').next().unwrap_or(rest);
    let host = Authority::parse(authority)
        .ok()
        .map(|authority| authority.host)
        .filter(Host::is_loopback)?;
    let url = format!("http://{host}:{FABRIC_DEFAULT_PORT}");
    if url == config.fabric.url {
        return None;
    }
    let settings = config::Fabric {
        url: url.clone(),
        api_key: None,
        connect_timeout: OTHER_PORT_TIMEOUT,
        request_timeout: OTHER_PORT_TIMEOUT,
        ..config.fabric.clone()
    };
    let answer = Client::new(&settings).ok()?.pattern_names(&no_wait());
    let is_fabric = matches!(
        answer,
        Ok(_)
            | Err(Error {
                cause: Some(Cause::KeyMissing),
                ..
            })
    );
    is_fabric.then_some(url)
}

/// Sequentially: while Fabric answers another request, it may return an empty list of models.
fn ask_for_the_rest(client: &Client, config: &Config, report: &mut Report, say: Say<'_>) {
    let wait = no_wait();
    let url = client.url().to_owned();
    let limit = config.fabric.request_timeout;
    let models = "Fabric's list of models, for which it asks every vendor";
    match patiently(say, models, config.fabric.models_timeout, || client.models(&wait)) {
        Ok(models) => {
            let vendors = models.vendors.values().filter(|names| !names.is_empty()).count();
            report.models = Some((models.models.len(), vendors));
            if models.models.is_empty() {
                report.problems.push(Problem::warning(
                    "no-models",
                    "Fabric lists no models: no vendor is set up, or none of them answers.",
                    "Set one up on Fabric's machine with `fabric --setup`, then restart `fabric --serve`.",
                ));
            }
        }
        // Every version answers so without a vendor.
        Err(error) if error.cause.is_none() => report.problems.push(Problem::error(
            "no-vendor",
            format!("Fabric cannot list its models. {}", error.detail),
            "If no vendor is set up, do that on Fabric's machine with `fabric --setup`, then restart it.",
        )),
        Err(error) => report.problems.push(diagnose(&error, &url, None)),
    }
    match patiently(say, "Fabric's strategies", limit, || {
        client.strategies(&wait)
    }) {
        Ok(Some(strategies)) => report.strategies = Some(strategies.len()),
        Ok(None) => {
            report.strategies = Some(0);
            report.problems.push(Problem::warning(
                "no-strategies",
                "Fabric has no strategies: it cannot read their folder. Runs without one work.",
                "Run `fabric --setup` on Fabric's machine and choose Strategies there.",
            ));
        }
        Err(error) => report.problems.push(Problem::warning(
            "no-strategies",
            format!(
                "Fabric cannot list its strategies; runs without one work. {}",
                error.detail
            ),
            "Look into Fabric's own log.",
        )),
    }
    match patiently(say, "Fabric's configuration", limit, || {
        client.configuration(&wait)
    }) {
        Ok(configuration) => {
            // The demo shows its made-up keys unmasked.
            report.looks_old = !report.demo && looks_old(&configuration);
            if report.looks_old {
                report.problems.push(Problem::warning(
                    "old-fabric",
                    "This looks like an old Fabric. Before v1.4.367 the text of a run comes in one piece at its end; \
                     before v1.4.442 a cancelled run goes on, and is paid for.",
                    "Update Fabric on its machine; fabric-mcp works with it as it is.",
                ));
            }
        }
        Err(error) => report.problems.push(Problem::warning(
            "no-configuration",
            format!("fabric_get_configuration will fail. {}", error.detail),
            "Look into Fabric's own log.",
        )),
    }
}

/// Fabric's API does not return its version. Old versions have a setting that newer ones dropped, and show keys unmasked
/// (v1.4.300 does both, v1.4.470 neither).
fn looks_old(configuration: &Map<String, Value>) -> bool {
    let unmasked = |(name, value): (&String, &Value)| {
        // These hold an address, not a key.
        !matches!(name.as_str(), "ollama" | "lmstudio")
            && value
                .as_str()
                .is_some_and(|key| key.len() > 4 && !key.contains("://") && !key.starts_with('*'))
    };
    configuration.contains_key("anthropic_use_oauth_login") || configuration.iter().any(unmasked)
}

fn no_wait() -> Arc<dyn Wait> {
    Arc::new(NoWait)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn old_versions_are_known_by_what_they_configure() {
        // Recorded from v1.4.300 and v1.4.470, keys made up.
        let old = json!({"anthropic": "", "anthropic_use_oauth_login": "", "openai": ""});
        let old_with_key = json!({"groq": "abcde", "mistral": "abcd", "openai": ""});
        let new = json!({"anthropic": "", "groq": "*bcde", "mistral": "abcd", "openai": "********abcd",
                         "lmstudio": "http://127.0.0.1:1234/v1", "ollama": "my-host"});
        for (configuration, is_old) in [
            (old, true),
            (old_with_key, true),
            (new, false),
            (json!({}), false),
        ] {
            assert_eq!(
                looks_old(configuration.as_object().unwrap()),
                is_old,
                "{configuration}"
            );
        }
    }
}
