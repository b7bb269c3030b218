//! From raw flags and variables to the configuration.
//!
//! In scope: precedence (flags, variables, defaults), and rules between settings. Not in scope: single values (`values`).

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;

use super::flags::{
    self, API_KEY, AUTH_TOKEN, AUTH_TOKEN_FILE, CERT_FILE, FLAGS, Flag, OAUTH_CLIENT_ID,
    OAUTH_CLIENT_SECRET, VARIABLES,
};
use super::{Env, ExitReason, RawFlags, ReadFile, values};
use crate::config::{
    Config, Connect, HTTP_MAX_RUNS, MODEL_VARIABLE, OAuthSettings, OWN_VARIABLE, PatternModel,
    Policy, Prices, Secret, Transport,
};
use crate::text::{closest, is_placeholder, unusable};
use crate::url::{Host, WebUrl};

/// A token shorter than this many characters is taken, with a warning.
const SHORT_TOKEN: usize = 16;

/// The configuration, or the first mistake.
pub(super) fn resolve(settings: &FlagsAndEnv<'_>) -> Result<Config, ExitReason> {
    let mut config = Config {
        warnings: unknown_variables(settings),
        ..Config::default()
    };
    for flag in FLAGS {
        settings.apply(flag, &mut config)?;
    }
    if let Some(folder) = &config.kept.state_dir {
        values::state_dir(folder).map_err(|why| named(&settings.name("state-dir"), why))?;
    }
    if config.transport != Transport::Stdio && !settings.is_given("max-runs") {
        config.max_runs = HTTP_MAX_RUNS;
    }
    if config.transport == Transport::Sse && !settings.is_given("path") {
        config.path = "/sse".to_owned();
    }
    if config.demo && settings.raw.has("fabric-url") {
        config.warnings.push(
            "--demo uses the Fabric built into this program: --fabric-url is ignored.".to_owned(),
        );
    }
    let has_folders = !config.patterns_dirs.is_empty();
    let other = if config.demo { "demo" } else { "fabric-url" };
    if has_folders && settings.is_given(other) {
        let (folders, other) = (settings.name("patterns-dir"), settings.name(other));
        let why = format!(
            "it cannot be combined with {other}; leave one of them out (a variable: unset it)"
        );
        return Err(named(&folders, why));
    }
    // The key is for another Fabric.
    let needs_fabric = !config.demo && !has_folders;
    config.fabric.api_key = settings.secret(API_KEY)?.filter(|_| needs_fabric);
    config.fabric.ca_file = settings.variable(CERT_FILE).map(PathBuf::from);
    config.http.token = token(settings, &mut config.warnings)?;
    config.http.oauth = oauth(settings)?;
    config.http.prices = prices(settings)?;
    let of_patterns = settings.models().map(|(name, value)| {
        let model = values::utf8(value.clone(), name)?;
        values::model_of(name.clone(), &model).map_err(|why| named(name, why))
    });
    let of_patterns = of_patterns.collect::<Result<Vec<_>, _>>()?;
    config.policy.pattern_models.splice(0..0, of_patterns);
    require_allowed_models(settings, &config.policy)?;
    require_token(settings, &mut config)?;
    Ok(config)
}

/// A warning for each variable that begins as ours do and is none of them.
fn unknown_variables(settings: &FlagsAndEnv<'_>) -> Vec<String> {
    let known = FLAGS.iter().filter_map(Flag::env);
    let known = known.chain(VARIABLES.iter().map(|(name, _)| (*name).to_owned()));
    let known: Vec<String> = known.collect();
    let warning = |(name, _): &(String, OsString)| {
        let rest = name.strip_prefix(OWN_VARIABLE)?;
        if known.contains(name) {
            return None;
        }
        // What all have in common would make all similar.
        let similar = closest(
            rest,
            known
                .iter()
                .map(|name| name.trim_start_matches(OWN_VARIABLE)),
        );
        let meant = similar
            .first()
            .and_then(|one| known.iter().find(|name| name.ends_with(one)));
        let hint = match meant {
            None => "fabric-mcp --help lists them.".to_owned(),
            Some(name) => format!("did you mean {name}?"),
        };
        let name = values::shown(name);
        Some(format!("{name} is no variable of fabric-mcp; {hint}"))
    };
    settings.variables.iter().filter_map(warning).collect()
}

/// The settings of `--connect`. Variables of other settings, which may be there for a server, count for nothing.
pub(super) fn connect(settings: &FlagsAndEnv<'_>, url: String) -> Result<Connect, ExitReason> {
    let mut config = Config::default();
    for flag in ["log-level", "log-format"] {
        settings.apply(flags::get(flag), &mut config)?;
    }
    Ok(Connect {
        url,
        // Who made the token is warned where it is short.
        token: token(settings, &mut Vec::new())?,
        ca_file: settings.variable(CERT_FILE).map(PathBuf::from),
        log_level: config.log_level,
        log_format: config.log_format,
    })
}

/// All four settings of OAuth, or none.
fn oauth(settings: &FlagsAndEnv<'_>) -> Result<Option<OAuthSettings>, ExitReason> {
    let issuer = settings.one("oauth-issuer", WebUrl::parse)?;
    let resource = settings.one("oauth-resource", WebUrl::parse)?;
    let client_id = settings.secret(OAUTH_CLIENT_ID)?;
    let client_secret = settings.secret(OAUTH_CLIENT_SECRET)?;
    let all = [
        ("--oauth-issuer", issuer.is_some()),
        ("--oauth-resource", resource.is_some()),
        (OAUTH_CLIENT_ID, client_id.is_some()),
        (OAUTH_CLIENT_SECRET, client_secret.is_some()),
    ];
    if let (Some(issuer), Some(resource), Some(client_id), Some(client_secret)) =
        (issuer, resource, client_id, client_secret)
    {
        return Ok(Some(OAuthSettings {
            issuer,
            resource,
            client_id,
            client_secret,
            ca_file: settings.variable(CERT_FILE).map(PathBuf::from),
        }));
    }
    let (given, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, is_given)| *is_given);
    let Some((name, _)) = given.first() else {
        return Ok(None);
    };
    let missing: Vec<&str> = missing.into_iter().map(|(name, _)| name).collect();
    let missing = missing.join(" and ");
    Err(named(
        name,
        format_args!("OAuth needs {missing} too; set it, or unset the rest"),
    ))
}

/// Requires an allowed default model, since a run without one would get Fabric's own default, and allowed models of
/// patterns.
fn require_allowed_models(settings: &FlagsAndEnv<'_>, policy: &Policy) -> Result<(), ExitReason> {
    let allowed = &policy.allowed_models;
    if policy.default_model.is_empty() && !policy.default_vendor.is_empty() {
        return Err(named(
            &settings.name("default-vendor"),
            "there is no --default-model; a vendor alone names nothing, so give both",
        ));
    }
    let is_refused = |model: &str| {
        !allowed.is_empty() && !allowed.iter().any(|one| one.eq_ignore_ascii_case(model))
    };
    if is_refused(&policy.default_model) {
        return Err(named(
            &settings.name("allow-model"),
            format_args!(
                "--default-model must be one of the allowed models, for a run that names none would get Fabric's \
                 default; give --default-model {}",
                values::shown(&allowed[0])
            ),
        ));
    }
    let mut of_patterns = policy.pattern_models.iter();
    match of_patterns.find(|one| is_refused(&one.model)) {
        Some(PatternModel { pattern, model, .. }) => Err(named(
            &settings.name("allow-model"),
            format_args!(
                "\"{}\", the model of {}, is not allowed; allow it too, or give the pattern another",
                values::shown(model),
                values::shown(pattern)
            ),
        )),
        None => Ok(()),
    }
}

fn token(
    settings: &FlagsAndEnv<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Secret>, ExitReason> {
    let (file_name, file) = settings.given(flags::get("auth-token-file"));
    let (name, token) = match (settings.secret(AUTH_TOKEN)?, file.last()) {
        (Some(_), Some(_)) => {
            return Err(ExitReason::usage(format!(
                "{AUTH_TOKEN} and {file_name} are both set; unset one of them"
            )));
        }
        (Some(token), None) => (AUTH_TOKEN.to_owned(), token),
        (None, None) => return Ok(None),
        (None, Some(file)) => {
            let text = settings.read(&file_name, file, "a file that holds the token")?;
            // Editors and shells add a line end.
            let text = text.trim_ascii();
            if text.is_empty() {
                let file = values::shown(&file.to_string_lossy());
                let why = format_args!("\"{file}\" is empty; put the token into it");
                return Err(named(&file_name, why));
            }
            values::secret(text).map_err(|why| named(&file_name, why))?;
            (file_name, Secret::new(text))
        }
    };
    if is_placeholder(token.expose()) {
        warnings.push(format!(
            "{name}: the token reads like a placeholder that nothing has replaced, and may be guessed; put the token \
             itself there."
        ));
    } else if token.expose().len() < SHORT_TOKEN {
        warnings.push(format!(
            "{name}: the token is shorter than {SHORT_TOKEN} characters and may be guessed; make a longer one, for \
             example by openssl rand -hex 32."
        ));
    }
    Ok(Some(token))
}

fn prices(settings: &FlagsAndEnv<'_>) -> Result<Option<Prices>, ExitReason> {
    let (name, files) = settings.given(flags::get("prices"));
    let Some(file) = files.last() else {
        return Ok(None);
    };
    let remedy = "a file with a line MODEL INPUT OUTPUT for each model";
    let prices = values::prices(&settings.read(&name, file, remedy)?);
    let file = values::shown(&file.to_string_lossy());
    prices
        .map(Some)
        .map_err(|why| named(&name, format_args!("\"{file}\", {why}")))
}

/// Requires a token or `--allow-unauthenticated` if other machines can reach the server, directly or through a proxy.
fn require_token(settings: &FlagsAndEnv<'_>, config: &mut Config) -> Result<(), ExitReason> {
    if config.transport == Transport::Stdio || !config.http.is_open() {
        return Ok(());
    }
    let is_local = |host: &str| Host::parse(host).is_ok_and(|host| host.is_loopback());
    let mut foreign = config.http.allowed_hosts.iter();
    let foreign = foreign.find(|authority| !authority.host.is_loopback());
    let open = if is_local(&config.host) {
        foreign.map(|host| {
            (
                "allowed-host",
                format!("{host} is what other machines call a server"),
            )
        })
    } else {
        let host = &config.host;
        Some(("host", format!("{host} can be reached from other machines")))
    };
    match open {
        Some((long, why)) if !config.http.allow_unauthenticated => {
            return Err(named(
                &settings.name(long),
                format_args!(
                    "{why}, and there is no token; give --tokens-file, set {AUTH_TOKEN} (or {AUTH_TOKEN_FILE}), or give \
                     --oauth-issuer; or --allow-unauthenticated, if something in front of it decides who may come in"
                ),
            ));
        }
        Some((_, why)) => {
            let mut warning = format!(
                "--allow-unauthenticated: {why}, and no token is asked for: whoever reaches this server may use it."
            );
            if config.http.trusted_proxies.is_empty() {
                warning.push_str(
                    " Limits are for each address: all who come through a proxy are one caller, unless \
                     --trusted-proxy names it.",
                );
            }
            config.warnings.push(warning);
        }
        None => {}
    }
    let pages = config
        .http
        .allowed_origins
        .iter()
        .filter(|origin| !values::is_local_origin(origin));
    let pages: Vec<&str> = pages.map(String::as_str).collect();
    if !pages.is_empty() {
        config.warnings.push(format!(
            "{}: every script on pages of {} may use this server, for no token is asked for.",
            settings.name("allowed-origin"),
            pages.join(", ")
        ));
    }
    Ok(())
}

fn named(name: &str, reason: impl Display) -> ExitReason {
    ExitReason::usage(format!("{name}: {reason}"))
}

/// What was given, on the command line and in the environment.
#[derive(Clone, Copy)]
pub(super) struct FlagsAndEnv<'a> {
    pub(super) raw: &'a RawFlags,
    pub(super) env: Env<'a>,
    pub(super) read_file: ReadFile<'a>,
    /// Those that begin as Fabric's for the models of patterns do, or as ours.
    pub(super) variables: &'a [(String, OsString)],
    /// Whether it is for a client, which starts the program on stdio: what only HTTP has counts as not given.
    pub(super) on_stdio: bool,
}

impl FlagsAndEnv<'_> {
    /// Fabric's variables for the models of patterns.
    pub(super) fn models(&self) -> impl Iterator<Item = &(String, OsString)> {
        let variables = self.variables.iter();
        variables.filter(|(name, _)| name.starts_with(MODEL_VARIABLE))
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// The text of a file that `name` gives; `remedy` is what it should be.
    fn read(&self, name: &str, file: &OsStr, remedy: &str) -> Result<String, ExitReason> {
        (self.read_file)(file.as_ref()).map_err(|error| {
            let why = unusable("file", file.as_ref(), &error);
            named(name, format_args!("{why}; give {remedy}"))
        })
    }

    fn secret(&self, name: &str) -> Result<Option<Secret>, ExitReason> {
        let Some(value) = self.variable(name) else {
            return Ok(None);
        };
        let text = values::utf8(value, name)?;
        values::secret(&text).map_err(|reason| named(name, reason))?;
        Ok(Some(Secret::new(text)))
    }

    /// The values given for a flag, more than one only if it takes many, and the name of the flag or variable. A variable
    /// separates several values by commas.
    pub(super) fn given(&self, flag: &Flag) -> (String, Vec<OsString>) {
        let mut values: Vec<OsString> = self.raw.all(flag.long).map(OsStr::to_owned).collect();
        let variable = flag.env().filter(|_| values.is_empty());
        let name = variable.clone().unwrap_or(format!("--{}", flag.long));
        if self.on_stdio && flag.is_for_http() {
            return (name, Vec::new());
        }
        match variable.and_then(|name| self.variable(&name)) {
            Some(list) if flag.is_repeated() && list.to_str().is_some() => {
                let list = list.to_string_lossy();
                let items = list.split(',').map(str::trim_ascii);
                values.extend(items.filter(|item| !item.is_empty()).map(OsString::from));
            }
            Some(value) => values.push(value),
            None if flag.is_repeated() => {}
            None => _ = values.drain(..values.len().saturating_sub(1)),
        }
        (name, values)
    }

    fn is_given(&self, long: &str) -> bool {
        !self.given(flags::get(long)).1.is_empty()
    }

    /// The flag or variable that a setting comes from.
    fn name(&self, long: &str) -> String {
        self.given(flags::get(long)).0
    }

    /// The value of a flag that has no field of its own.
    pub(super) fn one<T>(
        &self,
        long: &str,
        value: fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ExitReason> {
        let (name, mut values) = self.given(flags::get(long));
        let Some(given) = values.pop() else {
            return Ok(None);
        };
        let text = values::utf8(given, &name)?;
        value(&text).map(Some).map_err(|why| named(&name, why))
    }

    /// Sets the field of a flag to what was given, or to the default.
    pub(super) fn apply(&self, flag: &Flag, config: &mut Config) -> Result<(), ExitReason> {
        let (name, mut values) = self.given(flag);
        if values.is_empty() && !flag.default.is_empty() {
            values.push(flag.default.into());
        }
        let mut values = values.iter();
        values.try_for_each(|value| flag.set(config, value).map_err(|why| named(&name, why)))
    }
}
