//! From raw flags and variables to the configuration.
//!
//! In scope: precedence (flags, variables, defaults), and rules between settings. Not in scope: single values (`values`).

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::flags::{
    self, API_KEY, AUTH_TOKEN, AUTH_TOKEN_FILE, CERT_FILE, Flag, FlagId, OAUTH_CLIENT_ID, OAUTH_CLIENT_SECRET,
};
use super::{Env, RawFlags, ReadFile, UsageError, values};
use crate::config::{
    self, Config, DEFAULT_MAX_CONNECTIONS, DEFAULT_MEMORY, Fabric, HTTP_MAX_RUNS, Http, LogFormat, LogLevel,
    MEMORY_RANGE, OAuthFlags, RunSettings, STDIO_MAX_RUNS, Secret, Transport,
};
use crate::net::Host;

/// Most `--max-runs` may allow: each run has a thread.
const MAX_MAX_RUNS: usize = 4096;
/// Most `--max-connections` may allow: each connection has a thread.
const MAX_MAX_CONNECTIONS: usize = 65_536;
/// Most `--max-calls-per-minute` may allow; 0, the default, means no limit.
const MAX_CALLS_PER_MINUTE: u32 = 1_000_000;
/// A token shorter than this many characters is taken, with a warning.
const SHORT_TOKEN: usize = 16;
/// Port to listen on unless `--port` says otherwise.
const DEFAULT_PORT: u16 = 8000;

/// The configuration, or the first mistake.
pub(super) fn resolve(raw: &RawFlags, env: Env<'_>, read_file: ReadFile<'_>) -> Result<Config, UsageError> {
    let settings = FlagsAndEnv { raw, env };
    let mut warnings = Vec::new();
    let transport = settings.one(FlagId::Transport, &values::transport)?.unwrap_or(Transport::Stdio);
    let (path, max_runs) = match transport {
        Transport::Stdio => ("/mcp", STDIO_MAX_RUNS),
        Transport::Http => ("/mcp", HTTP_MAX_RUNS),
        Transport::Sse => ("/sse", HTTP_MAX_RUNS),
    };
    let demo = settings.switch(FlagId::Demo)?;
    let mut fabric = fabric(&settings)?;
    if demo {
        if raw.has(FlagId::FabricUrl) {
            warnings.push("--demo uses the Fabric built into this program: --fabric-url is ignored.".to_owned());
        }
        // The key is for another Fabric.
        fabric.api_key = None;
    }
    let mut config = Config {
        transport,
        host: settings.one(FlagId::Host, &values::host)?.unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: settings.one(FlagId::Port, &values::port)?.unwrap_or(DEFAULT_PORT),
        path: settings.one(FlagId::Path, &values::path)?.unwrap_or_else(|| path.to_owned()),
        fabric,
        log_level: settings.one(FlagId::LogLevel, &values::log_level)?.unwrap_or(LogLevel::Info),
        log_format: settings.one(FlagId::LogFormat, &values::log_format)?.unwrap_or(LogFormat::Logfmt),
        allowed_models: settings.many(FlagId::AllowModel, &values::model)?,
        default_model: settings.one(FlagId::DefaultModel, &values::model)?.unwrap_or_default(),
        default_vendor: settings.one(FlagId::DefaultVendor, &values::model)?.unwrap_or_default(),
        allowed_patterns: settings.many(FlagId::AllowPattern, &values::pattern)?,
        denied_patterns: settings.many(FlagId::DenyPattern, &values::pattern)?,
        catalog_ttl: settings.seconds(FlagId::CatalogTtl, 300)?,
        max_runs: settings.count(FlagId::MaxRuns, 1, MAX_MAX_RUNS, max_runs)?,
        max_memory: settings.count(FlagId::MaxMemory, MEMORY_RANGE.0, MEMORY_RANGE.1, DEFAULT_MEMORY >> 20)? << 20,
        kept: RunSettings {
            answer_within: settings.seconds_or_none(FlagId::AnswerWithin, 50)?,
            task_after: settings.seconds_or_none(FlagId::TaskAfter, 5)?,
            keep: settings.seconds_or_none(FlagId::KeepRuns, 3600)?,
            state_dir: settings.path(FlagId::StateDir).map(|(path, _)| path),
        },
        http: http(&settings, read_file, &mut warnings)?,
        demo,
        warnings,
    };
    require_default_model(&settings, &config)?;
    require_token(&settings, &mut config)?;
    Ok(config)
}

fn fabric(settings: &FlagsAndEnv<'_>) -> Result<Fabric, UsageError> {
    Ok(Fabric {
        url: settings.one(FlagId::FabricUrl, &config::base_url)?.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned()),
        api_key: settings.secret(API_KEY)?,
        ca_file: settings.variable(CERT_FILE).map(PathBuf::from),
        connect_timeout: settings.seconds(FlagId::ConnectTimeout, 5)?,
        idle_timeout: settings.seconds(FlagId::IdleTimeout, 300)?,
        run_timeout: settings.seconds(FlagId::RunTimeout, 3600)?,
        request_timeout: settings.seconds(FlagId::RequestTimeout, 30)?,
        models_timeout: settings.seconds(FlagId::ModelsTimeout, 120)?,
    })
}

fn http(settings: &FlagsAndEnv<'_>, read_file: ReadFile<'_>, warnings: &mut Vec<String>) -> Result<Http, UsageError> {
    Ok(Http {
        allowed_hosts: settings.many(FlagId::AllowedHost, &values::allowed_host)?,
        allowed_origins: settings.many(FlagId::AllowedOrigin, &values::allowed_origin)?,
        token: token(settings, read_file, warnings)?,
        tokens_file: settings.path(FlagId::TokensFile).map(|(file, _)| file),
        oauth: oauth(settings)?,
        trusted_proxies: settings.many(FlagId::TrustedProxy, &values::address)?,
        max_runs_per_caller: settings.count(FlagId::MaxRunsPerCaller, 0, MAX_MAX_RUNS, 0)?,
        allow_unauthenticated: settings.switch(FlagId::AllowUnauthenticated)?,
        max_calls_per_minute: settings.count(FlagId::MaxCallsPerMinute, 0, MAX_CALLS_PER_MINUTE, 0)?,
        drain_timeout: settings.seconds(FlagId::DrainTimeout, 10)?,
        max_connections: settings.count(FlagId::MaxConnections, 1, MAX_MAX_CONNECTIONS, DEFAULT_MAX_CONNECTIONS)?,
    })
}

/// All four settings of OAuth, or none.
fn oauth(settings: &FlagsAndEnv<'_>) -> Result<Option<OAuthFlags>, UsageError> {
    let issuer = settings.one(FlagId::OauthIssuer, &values::web_url)?;
    let resource = settings.one(FlagId::OauthResource, &values::web_url)?;
    let (client_id, client_secret) = (settings.secret(OAUTH_CLIENT_ID)?, settings.secret(OAUTH_CLIENT_SECRET)?);
    let missing = [
        ("--oauth-issuer", issuer.is_none()),
        ("--oauth-resource", resource.is_none()),
        (OAUTH_CLIENT_ID, client_id.is_none()),
        (OAUTH_CLIENT_SECRET, client_secret.is_none()),
    ];
    let (Some(issuer), Some(resource), Some(client_id), Some(client_secret)) =
        (issuer, resource, client_id, client_secret)
    else {
        let named =
            |wanted: bool| move |(name, is_missing): &(&'static str, bool)| (*is_missing == wanted).then_some(*name);
        let missed: Vec<&str> = missing.iter().filter_map(named(true)).collect();
        return match missing.iter().find_map(named(false)) {
            None => Ok(None),
            Some(given) => Err(named_error(given, &missed)),
        };
    };
    Ok(Some(OAuthFlags { issuer, resource, client_id, client_secret }))
}

fn named_error(given: &str, missed: &[&str]) -> UsageError {
    named(given, format_args!("OAuth needs {} too; set it, or unset the rest", missed.join(" and ")))
}

/// With `--allow-model`, Fabric's own default would be a way around it.
fn require_default_model(settings: &FlagsAndEnv<'_>, config: &Config) -> Result<(), UsageError> {
    let allowed = &config.allowed_models;
    if config.default_model.is_empty() && !config.default_vendor.is_empty() {
        let name = settings.name(FlagId::DefaultVendor);
        return Err(named(&name, "there is no --default-model; a vendor alone names nothing, so give both"));
    }
    if allowed.is_empty() || allowed.iter().any(|model| model.eq_ignore_ascii_case(&config.default_model)) {
        return Ok(());
    }
    let name = settings.name(FlagId::AllowModel);
    Err(named(
        &name,
        format_args!(
            "--default-model must be one of the allowed models, for a run that names none would get Fabric's default; \
             give --default-model {}",
            values::shown(&allowed[0])
        ),
    ))
}

fn token(
    settings: &FlagsAndEnv<'_>,
    read_file: ReadFile<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Secret>, UsageError> {
    let (name, token) = match (settings.secret(AUTH_TOKEN)?, settings.path(FlagId::AuthTokenFile)) {
        (Some(_), Some((_, name))) => {
            return Err(UsageError(format!("{AUTH_TOKEN} and {name} are both set; unset one of them")));
        }
        (Some(token), None) => (AUTH_TOKEN.to_owned(), token),
        (None, None) => return Ok(None),
        (None, Some((file, name))) => {
            let shown = values::shown(&file.to_string_lossy());
            let text = read_file(&file).map_err(|error| {
                named(&name, format_args!("\"{shown}\" cannot be read: {error}; give a file that holds the token"))
            })?;
            // Editors and shells add a line end.
            let text = text.trim_ascii();
            if text.is_empty() {
                return Err(named(&name, format_args!("\"{shown}\" is empty; put the token into it")));
            }
            values::secret(text).map_err(|reason| named(&name, reason))?;
            let token = Secret::new(text);
            (name, token)
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

/// A server that other machines can reach, by itself or through a proxy that may name it, needs a token or
/// `--allow-unauthenticated`.
fn require_token(settings: &FlagsAndEnv<'_>, config: &mut Config) -> Result<(), UsageError> {
    if config.transport == Transport::Stdio || !config.http.is_open() {
        return Ok(());
    }
    let is_local = |host: &str| Host::parse(host).is_ok_and(|host| host.is_loopback());
    let host = (!is_local(&config.host)).then(|| {
        let name = settings.name(FlagId::Host);
        (name, format!("{} can be reached from other machines", config.host))
    });
    let open = host.or_else(|| {
        let foreign = config.http.allowed_hosts.iter().find(|authority| !authority.host.is_loopback())?;
        Some((settings.name(FlagId::AllowedHost), format!("{foreign} is what other machines call a server")))
    });
    match open {
        Some((name, why)) if !config.http.allow_unauthenticated => {
            return Err(named(
                &name,
                format_args!(
                    "{why}, and there is no token; set {AUTH_TOKEN} (or {AUTH_TOKEN_FILE}), or give \
                     --allow-unauthenticated if something in front of it decides who may come in"
                ),
            ));
        }
        Some((_, why)) => config.warnings.push(format!(
            "--allow-unauthenticated: {why}, and no token is asked for: whoever reaches this server may use it."
        )),
        None => {}
    }
    let pages = config.http.allowed_origins.iter().filter(|origin| !values::is_local_origin(origin));
    let pages: Vec<&str> = pages.map(String::as_str).collect();
    if !pages.is_empty() {
        config.warnings.push(format!(
            "{}: every script on pages of {} may use this server, for no token is asked for.",
            settings.name(FlagId::AllowedOrigin),
            pages.join(", ")
        ));
    }
    Ok(())
}

fn named(name: &str, reason: impl Display) -> UsageError {
    UsageError(format!("{name}: {reason}"))
}

/// Flags and variables.
pub(super) struct FlagsAndEnv<'a> {
    pub(super) raw: &'a RawFlags,
    pub(super) env: Env<'a>,
}

impl FlagsAndEnv<'_> {
    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    fn secret(&self, name: &str) -> Result<Option<Secret>, UsageError> {
        let Some(value) = self.variable(name) else { return Ok(None) };
        let text = values::utf8(value, name)?;
        values::secret(&text).map_err(|reason| named(name, reason))?;
        Ok(Some(Secret::new(text)))
    }

    /// The text and name of a flag's variable.
    fn flags_variable(&self, flag: &Flag) -> Result<Option<(String, String)>, UsageError> {
        let Some(name) = flag.env() else { return Ok(None) };
        let Some(value) = self.variable(&name) else { return Ok(None) };
        Ok(Some((values::utf8(value, &name)?, name)))
    }

    /// The text of a setting, and the name of the flag or variable it comes from.
    pub(super) fn text(&self, id: FlagId) -> Result<Option<(String, String)>, UsageError> {
        let flag = flags::get(id);
        match self.raw.last(id) {
            Some(value) => {
                let name = format!("--{}", flag.long);
                Ok(Some((values::utf8(value.to_owned(), &name)?, name)))
            }
            None => self.flags_variable(flag),
        }
    }

    /// The path that counts for a setting, which need not be UTF-8, and the name of its flag or variable.
    fn path(&self, id: FlagId) -> Option<(PathBuf, String)> {
        let flag = flags::get(id);
        match self.raw.last(id) {
            Some(path) => Some((PathBuf::from(path), format!("--{}", flag.long))),
            None => flag.env().and_then(|name| Some((PathBuf::from(self.variable(&name)?), name))),
        }
    }

    /// The flag or variable that a setting comes from.
    fn name(&self, id: FlagId) -> String {
        let flag = flags::get(id);
        flag.env().filter(|_| !self.raw.has(id)).unwrap_or_else(|| format!("--{}", flag.long))
    }

    pub(super) fn one<T>(
        &self,
        id: FlagId,
        value: &dyn Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, UsageError> {
        let Some((text, name)) = self.text(id)? else { return Ok(None) };
        value(&text).map(Some).map_err(|reason| named(&name, reason))
    }

    fn seconds(&self, id: FlagId, default: u64) -> Result<Duration, UsageError> {
        Ok(self.one(id, &values::seconds)?.unwrap_or(Duration::from_secs(default)))
    }

    /// A time that may be 0.
    fn seconds_or_none(&self, id: FlagId, default: u64) -> Result<Duration, UsageError> {
        Ok(self.one(id, &values::seconds_or_none)?.unwrap_or(Duration::from_secs(default)))
    }

    fn count<T>(&self, id: FlagId, least: T, most: T, default: T) -> Result<T, UsageError>
    where
        T: Copy + FromStr + PartialOrd + Display,
    {
        Ok(self.one(id, &|text| values::count(text, least, most))?.unwrap_or(default))
    }

    /// A switch on the command line wins over its variable.
    pub(super) fn switch(&self, id: FlagId) -> Result<bool, UsageError> {
        if self.raw.has(id) {
            return Ok(true);
        }
        let Some((text, name)) = self.flags_variable(flags::get(id))? else { return Ok(false) };
        values::switch(&text).map_err(|reason| named(&name, reason))
    }

    /// The values of all uses of a flag; without any, the comma-separated values of its variable.
    pub(super) fn many<T>(&self, id: FlagId, value: &dyn Fn(&str) -> Result<T, String>) -> Result<Vec<T>, UsageError> {
        let flag = flags::get(id);
        if self.raw.has(id) {
            let name = format!("--{}", flag.long);
            let one = |text: OsString| value(&values::utf8(text, &name)?).map_err(|reason| named(&name, reason));
            return self.raw.all(id).map(|text| one(text.to_owned())).collect();
        }
        let Some((text, name)) = self.flags_variable(flag)? else { return Ok(Vec::new()) };
        let parts = text.split(',').map(str::trim_ascii).filter(|part| !part.is_empty());
        parts.map(|part| value(part).map_err(|reason| named(&name, reason))).collect()
    }
}
