//! From raw flags and variables to the configuration: flags over variables over defaults, each value checked.
//!
//! In scope: which source wins, and rules between settings. Not in scope: single values (`values`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::flags::{self, API_KEY, AUTH_TOKEN, AUTH_TOKEN_FILE, CERT_FILE, Flag, Id};
use super::{Env, RawFlags, ReadFile, UsageError, values};
use crate::config::{
    self, Config, DEFAULT_MAX_CONNECTIONS, DEFAULT_MEMORY, DEFAULT_PORT, Fabric, HTTP_MAX_RUNS, Http, LogLevel,
    MAX_CALLS_PER_MINUTE, MAX_MAX_CONNECTIONS, MAX_MAX_RUNS, MEMORY_RANGE, SHORT_TOKEN, STDIO_MAX_RUNS, Secret,
    Transport,
};

/// Everything the server needs to know, or the first mistake.
pub(super) fn resolve(raw: &RawFlags, env: Env<'_>, read_file: ReadFile<'_>) -> Result<Config, UsageError> {
    let settings = Settings { raw, env };
    let mut warnings = Vec::new();
    let transport = settings.one(Id::Transport, &values::transport)?.unwrap_or(Transport::Stdio);
    let (path, max_runs) = match transport {
        Transport::Stdio => ("/mcp", STDIO_MAX_RUNS),
        Transport::Http => ("/mcp", HTTP_MAX_RUNS),
        Transport::Sse => ("/sse", HTTP_MAX_RUNS),
    };
    let demo = settings.switch(Id::Demo)?;
    let mut fabric = fabric(&settings)?;
    if demo {
        if raw.has(Id::FabricUrl) {
            warnings.push("--demo uses the Fabric built into this program: --fabric-url is ignored.".to_owned());
        }
        // It belongs to another Fabric.
        fabric.api_key = None;
    }
    let config = Config {
        transport,
        host: settings.one(Id::Host, &values::host)?.unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: settings.one(Id::Port, &values::port)?.unwrap_or(DEFAULT_PORT),
        path: settings.one(Id::Path, &values::path)?.unwrap_or_else(|| path.to_owned()),
        fabric,
        log_level: settings.one(Id::LogLevel, &values::log_level)?.unwrap_or(LogLevel::Info),
        allowed_patterns: settings.many(Id::AllowPattern, &values::pattern)?,
        denied_patterns: settings.many(Id::DenyPattern, &values::pattern)?,
        catalog_ttl: settings.seconds(Id::CatalogTtl, 300)?,
        max_runs: settings.count(Id::MaxRuns, 1, MAX_MAX_RUNS, max_runs)?,
        max_memory: settings.count(Id::MaxMemory, MEMORY_RANGE.0, MEMORY_RANGE.1, DEFAULT_MEMORY >> 20)? << 20,
        http: http(&settings, read_file, &mut warnings)?,
        demo,
        warnings,
    };
    refuse_open_door(&settings, &config)?;
    Ok(config)
}

fn fabric(settings: &Settings<'_>) -> Result<Fabric, UsageError> {
    Ok(Fabric {
        url: settings.one(Id::FabricUrl, &config::base_url)?.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned()),
        api_key: settings.secret(API_KEY)?,
        ca_file: settings.variable(CERT_FILE).map(PathBuf::from),
        connect_timeout: settings.seconds(Id::ConnectTimeout, 5)?,
        idle_timeout: settings.seconds(Id::IdleTimeout, 300)?,
        run_timeout: settings.seconds(Id::RunTimeout, 3600)?,
        request_timeout: settings.seconds(Id::RequestTimeout, 30)?,
        models_timeout: settings.seconds(Id::ModelsTimeout, 120)?,
    })
}

fn http(settings: &Settings<'_>, read_file: ReadFile<'_>, warnings: &mut Vec<String>) -> Result<Http, UsageError> {
    let per_minute = |text: &str| values::count(text, 0, MAX_CALLS_PER_MINUTE.into());
    let per_minute = settings.one(Id::MaxCallsPerMinute, &per_minute)?.unwrap_or(0);
    Ok(Http {
        allowed_hosts: settings.many(Id::AllowedHost, &values::allowed_host)?,
        allowed_origins: settings.many(Id::AllowedOrigin, &values::allowed_origin)?,
        token: token(settings, read_file, warnings)?,
        allow_unauthenticated: settings.switch(Id::AllowUnauthenticated)?,
        max_calls_per_minute: u32::try_from(per_minute).unwrap_or(MAX_CALLS_PER_MINUTE),
        drain_timeout: settings.seconds(Id::DrainTimeout, 10)?,
        max_connections: settings.count(Id::MaxConnections, 1, MAX_MAX_CONNECTIONS, DEFAULT_MAX_CONNECTIONS)?,
    })
}

fn token(
    settings: &Settings<'_>,
    read_file: ReadFile<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Secret>, UsageError> {
    let (name, token) = match (settings.secret(AUTH_TOKEN)?, settings.variable(AUTH_TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            return Err(UsageError(format!("{AUTH_TOKEN} and {AUTH_TOKEN_FILE} are both set; unset one of them")));
        }
        (Some(token), None) => (AUTH_TOKEN, token),
        (None, None) => return Ok(None),
        (None, Some(file)) => {
            let file = PathBuf::from(file);
            let shown = values::shown(&file.to_string_lossy());
            let text = read_file(&file).map_err(|error| {
                named(
                    AUTH_TOKEN_FILE,
                    format_args!("\"{shown}\" cannot be read: {error}; give a file that holds the token"),
                )
            })?;
            // Editors and shells end a file's last line.
            let text = text.trim_ascii();
            if text.is_empty() {
                return Err(named(AUTH_TOKEN_FILE, format_args!("\"{shown}\" is empty; put the token into it")));
            }
            values::secret(text).map_err(|reason| named(AUTH_TOKEN_FILE, reason))?;
            (AUTH_TOKEN_FILE, Secret::new(text))
        }
    };
    if token.expose().len() < SHORT_TOKEN {
        warnings.push(format!(
            "{name}: the token is shorter than {SHORT_TOKEN} characters and may be guessed; make a longer one, for \
             example by openssl rand -hex 32."
        ));
    }
    Ok(Some(token))
}

/// A server that other machines can reach must ask for a token, or have been told not to.
fn refuse_open_door(settings: &Settings<'_>, config: &Config) -> Result<(), UsageError> {
    let open = config.transport != Transport::Stdio && !values::is_loopback(&config.host);
    if !open || config.http.token.is_some() || config.http.allow_unauthenticated {
        return Ok(());
    }
    let name = settings.text(Id::Host)?.map_or_else(|| "--host".to_owned(), |(_, name)| name);
    Err(named(
        &name,
        format_args!(
            "{} can be reached from other machines, and there is no token; set {AUTH_TOKEN} (or {AUTH_TOKEN_FILE}), or \
             give --allow-unauthenticated if something in front of it decides who may come in",
            config.host
        ),
    ))
}

fn named(name: &str, reason: impl std::fmt::Display) -> UsageError {
    UsageError(format!("{name}: {reason}"))
}

/// Both sources of settings.
struct Settings<'a> {
    raw: &'a RawFlags,
    env: Env<'a>,
}

impl Settings<'_> {
    /// A variable that is set to something.
    fn variable(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    fn secret(&self, name: &str) -> Result<Option<Secret>, UsageError> {
        let Some(value) = self.variable(name) else { return Ok(None) };
        let text = utf8(value, name)?;
        values::secret(&text).map_err(|reason| named(name, reason))?;
        Ok(Some(Secret::new(text)))
    }

    /// The variable of a flag: its text and its name.
    fn flags_variable(&self, flag: &Flag) -> Result<Option<(String, String)>, UsageError> {
        let Some(name) = flag.env() else { return Ok(None) };
        let Some(value) = self.variable(&name) else { return Ok(None) };
        Ok(Some((utf8(value, &name)?, name)))
    }

    /// The text that counts for a setting, and the name of the flag or variable it comes from.
    fn text(&self, id: Id) -> Result<Option<(String, String)>, UsageError> {
        let flag = flags::get(id);
        match self.raw.last(id) {
            Some(value) => {
                let name = format!("--{}", flag.long);
                Ok(Some((utf8(value.to_owned(), &name)?, name)))
            }
            None => self.flags_variable(flag),
        }
    }

    fn one<T>(&self, id: Id, value: &dyn Fn(&str) -> Result<T, String>) -> Result<Option<T>, UsageError> {
        let Some((text, name)) = self.text(id)? else { return Ok(None) };
        value(&text).map(Some).map_err(|reason| named(&name, reason))
    }

    fn seconds(&self, id: Id, default: u64) -> Result<Duration, UsageError> {
        Ok(self.one(id, &values::seconds)?.unwrap_or(Duration::from_secs(default)))
    }

    fn count(&self, id: Id, least: u64, most: usize, default: usize) -> Result<usize, UsageError> {
        let number = self.one(id, &|text| values::count(text, least, most as u64))?;
        Ok(number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default))
    }

    /// A switch given is on, whatever its variable says.
    fn switch(&self, id: Id) -> Result<bool, UsageError> {
        if self.raw.has(id) {
            return Ok(true);
        }
        let Some((text, name)) = self.flags_variable(flags::get(id))? else { return Ok(false) };
        values::switch(&text).map_err(|reason| named(&name, reason))
    }

    /// The values of each time a flag was given; if it was not, those its variable lists, separated by commas.
    fn many<T>(&self, id: Id, value: &dyn Fn(&str) -> Result<T, String>) -> Result<Vec<T>, UsageError> {
        let flag = flags::get(id);
        if self.raw.has(id) {
            let name = format!("--{}", flag.long);
            let one = |text: OsString| value(&utf8(text, &name)?).map_err(|reason| named(&name, reason));
            return self.raw.all(id).map(|text| one(text.to_owned())).collect();
        }
        let Some((text, name)) = self.flags_variable(flag)? else { return Ok(Vec::new()) };
        let parts = text.split(',').map(str::trim_ascii).filter(|part| !part.is_empty());
        parts.map(|part| value(part).map_err(|reason| named(&name, reason))).collect()
    }
}

fn utf8(value: OsString, name: &str) -> Result<String, UsageError> {
    value.into_string().map_err(|_| named(name, "the value is not UTF-8; write it in UTF-8"))
}
