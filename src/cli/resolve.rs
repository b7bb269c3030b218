//! From raw flags and variables to the configuration.
//!
//! In scope: precedence (flags, variables, defaults), and rules between settings. Not in scope: single values (`values`).

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;

use super::flags::{
    self, API_KEY, AUTH_TOKEN, AUTH_TOKEN_FILE, CERT_FILE, FLAGS, Flag, OAUTH_CLIENT_ID,
    OAUTH_CLIENT_SECRET, Takes,
};
use super::{Env, ExitReason, RawFlags, ReadFile, values};
use crate::config::{Config, HTTP_MAX_RUNS, OAuthSettings, Policy, Secret, Transport};
use crate::url::{Host, WebUrl};

/// A token shorter than this many characters is taken, with a warning.
const SHORT_TOKEN: usize = 16;

/// The configuration, or the first mistake.
pub(super) fn resolve(
    raw: &RawFlags,
    env: Env<'_>,
    read_file: ReadFile<'_>,
) -> Result<Config, ExitReason> {
    let settings = FlagsAndEnv { raw, env };
    let mut config = Config::default();
    for flag in FLAGS {
        settings.apply(flag, &mut config)?;
    }
    if config.transport != Transport::Stdio && !settings.is_given("max-runs") {
        config.max_runs = HTTP_MAX_RUNS;
    }
    if config.transport == Transport::Sse && !settings.is_given("path") {
        config.path = "/sse".to_owned();
    }
    if config.demo && raw.has("fabric-url") {
        config.warnings.push(
            "--demo uses the Fabric built into this program: --fabric-url is ignored.".to_owned(),
        );
    }
    let has_folders = !config.patterns_dirs.is_empty();
    let other = if config.demo { "demo" } else { "fabric-url" };
    if has_folders && settings.is_given(other) {
        let (folders, other) = (settings.name("patterns-dir"), settings.name(other));
        let why = format!("it stands instead of {other}; unset one of them");
        return Err(named(&folders, why));
    }
    // The key is for another Fabric.
    let needs_fabric = !config.demo && !has_folders;
    config.fabric.api_key = settings.secret(API_KEY)?.filter(|_| needs_fabric);
    config.fabric.ca_file = settings.variable(CERT_FILE).map(PathBuf::from);
    config.http.token = token(&settings, read_file, &mut config.warnings)?;
    config.http.oauth = oauth(&settings)?;
    require_default_model(&settings, &config.policy)?;
    require_token(&settings, &mut config)?;
    Ok(config)
}

/// All four settings of OAuth, or none.
fn oauth(settings: &FlagsAndEnv<'_>) -> Result<Option<OAuthSettings>, ExitReason> {
    let issuer = settings.one("oauth-issuer", WebUrl::parse)?;
    let resource = settings.one("oauth-resource", WebUrl::parse)?;
    let client_id = settings.secret(OAUTH_CLIENT_ID)?;
    let client_secret = settings.secret(OAUTH_CLIENT_SECRET)?;
    let (given, missing): (Vec<_>, Vec<_>) = [
        ("--oauth-issuer", issuer.is_some()),
        ("--oauth-resource", resource.is_some()),
        (OAUTH_CLIENT_ID, client_id.is_some()),
        (OAUTH_CLIENT_SECRET, client_secret.is_some()),
    ]
    .into_iter()
    .partition(|(_, is_given)| *is_given);
    let Some((name, _)) = given.first() else {
        return Ok(None);
    };
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
    let missing: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let missing = missing.join(" and ");
    let reason = format!("OAuth needs {missing} too; set it, or unset the rest");
    Err(named(name, reason))
}

/// Requires an allowed default model, since a run without one would get Fabric's own default.
fn require_default_model(settings: &FlagsAndEnv<'_>, policy: &Policy) -> Result<(), ExitReason> {
    let allowed = &policy.allowed_models;
    if policy.default_model.is_empty() && !policy.default_vendor.is_empty() {
        let name = settings.name("default-vendor");
        return Err(named(
            &name,
            "there is no --default-model; a vendor alone names nothing, so give both",
        ));
    }
    if allowed.is_empty()
        || allowed
            .iter()
            .any(|model| model.eq_ignore_ascii_case(&policy.default_model))
    {
        return Ok(());
    }
    let name = settings.name("allow-model");
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
) -> Result<Option<Secret>, ExitReason> {
    let (name, token) = match (
        settings.secret(AUTH_TOKEN)?,
        settings.path(flags::get("auth-token-file")),
    ) {
        (Some(_), Some((_, name))) => {
            return Err(ExitReason::usage(format!(
                "{AUTH_TOKEN} and {name} are both set; unset one of them"
            )));
        }
        (Some(token), None) => (AUTH_TOKEN.to_owned(), token),
        (None, None) => return Ok(None),
        (None, Some((file, name))) => {
            let shown = values::shown(&file.to_string_lossy());
            let text = read_file(&file).map_err(|error| {
                named(
                    &name,
                    format_args!(
                        "\"{shown}\" cannot be read: {error}; give a file that holds the token"
                    ),
                )
            })?;
            // Editors and shells add a line end.
            let text = text.trim_ascii();
            if text.is_empty() {
                return Err(named(
                    &name,
                    format_args!("\"{shown}\" is empty; put the token into it"),
                ));
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

/// Requires a token or `--allow-unauthenticated` if other machines can reach the server, directly or through a proxy.
fn require_token(settings: &FlagsAndEnv<'_>, config: &mut Config) -> Result<(), ExitReason> {
    if config.transport == Transport::Stdio || !config.http.is_open() {
        return Ok(());
    }
    let is_local = |host: &str| Host::parse(host).is_ok_and(|host| host.is_loopback());
    let host = (!is_local(&config.host)).then(|| {
        let name = settings.name("host");
        (
            name,
            format!("{} can be reached from other machines", config.host),
        )
    });
    let open = host.or_else(|| {
        let foreign = config
            .http
            .allowed_hosts
            .iter()
            .find(|authority| !authority.host.is_loopback())?;
        Some((
            settings.name("allowed-host"),
            format!("{foreign} is what other machines call a server"),
        ))
    });
    match open {
        Some((name, why)) if !config.http.allow_unauthenticated => {
            return Err(named(
                &name,
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

    fn secret(&self, name: &str) -> Result<Option<Secret>, ExitReason> {
        let Some(value) = self.variable(name) else {
            return Ok(None);
        };
        let text = values::utf8(value, name)?;
        values::secret(&text).map_err(|reason| named(name, reason))?;
        Ok(Some(Secret::new(text)))
    }

    /// The values given for a flag, and the name of the flag or variable. More than one only if it takes many.
    fn given(&self, flag: &Flag) -> (String, Vec<OsString>) {
        let mut values: Vec<OsString> = self.raw.all(flag.long).map(OsStr::to_owned).collect();
        if !flag.is_repeated() {
            values.drain(..values.len().saturating_sub(1));
        }
        match flag.env() {
            Some(name) if values.is_empty() => {
                values.extend(self.variable(&name));
                (name, values)
            }
            _ => (format!("--{}", flag.long), values),
        }
    }

    fn is_given(&self, long: &str) -> bool {
        !self.given(flags::get(long)).1.is_empty()
    }

    /// The flag or variable that a setting comes from.
    fn name(&self, long: &str) -> String {
        self.given(flags::get(long)).0
    }

    /// [`FlagsAndEnv::given`] as text. A variable separates several values by commas.
    pub(super) fn texts(&self, flag: &Flag) -> Result<(String, Vec<String>), ExitReason> {
        let (name, values) = self.given(flag);
        let mut texts = Vec::new();
        for value in values {
            let text = values::utf8(value, &name)?;
            match flag.is_repeated() && !self.raw.has(flag.long) {
                true => texts.extend(
                    text.split(',')
                        .map(str::trim_ascii)
                        .filter(|t| !t.is_empty())
                        .map(str::to_owned),
                ),
                false => texts.push(text),
            }
        }
        Ok((name, texts))
    }

    /// The path given for a flag, and the name of the flag or variable.
    fn path(&self, flag: &Flag) -> Option<(PathBuf, String)> {
        let (name, mut values) = self.given(flag);
        values.pop().map(|path| (PathBuf::from(path), name))
    }

    pub(super) fn one<T>(
        &self,
        long: &str,
        value: fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ExitReason> {
        let (name, texts) = self.texts(flags::get(long))?;
        texts
            .first()
            .map(|text| value(text))
            .transpose()
            .map_err(|reason| named(&name, reason))
    }

    /// A switch on the command line wins over its variable.
    pub(super) fn switch(&self, flag: &Flag) -> Result<bool, ExitReason> {
        Ok(self.raw.has(flag.long) || self.one(flag.long, values::switch)?.unwrap_or(false))
    }

    /// Sets the field of a flag to what was given, or to the default.
    fn apply(&self, flag: &Flag, config: &mut Config) -> Result<(), ExitReason> {
        match flag.takes {
            Takes::Nothing | Takes::Raw(_) => return Ok(()),
            Takes::Switch(field) => *field(config) = self.switch(flag)?,
            Takes::Path(_, field) => {
                let given = self.path(flag);
                if let Some((path, name)) = &given
                    && flag.long == "state-dir"
                {
                    values::state_dir(path).map_err(|reason| named(name, reason))?;
                }
                *field(config) = given.map(|(path, _)| path);
            }
            Takes::Time(..) | Takes::One(..) | Takes::Many(..) => {
                let (name, mut texts) = self.texts(flag)?;
                if texts.is_empty() && !flag.default.is_empty() {
                    texts.push(flag.default.to_owned());
                }
                for text in texts {
                    let set = match flag.takes {
                        Takes::One(_, set) | Takes::Many(_, set) => set(config, &text),
                        Takes::Time(field, may_be_0) => {
                            values::seconds(&text, may_be_0).map(|time| *field(config) = time)
                        }
                        _ => Ok(()),
                    };
                    set.map_err(|reason| named(&name, reason))?;
                }
            }
        }
        Ok(())
    }
}
