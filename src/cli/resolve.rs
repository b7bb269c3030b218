//! Makes the configuration from the flags and variables.
//!
//! In scope: defaults, and rules between settings. Not in scope: single values (`values`), flags against variables
//! (`parse`).

use std::cell::LazyCell;
use std::time::Duration;

use super::flags::{
    self, API_KEY, AUTH_TOKEN, FLAGS, Flag, OAUTH_CLIENT_ID, OAUTH_CLIENT_SECRET, VARIABLES,
};
use super::parse::{FlagsAndEnv, listed};
use super::{named, values};
use crate::config::{
    BASE_URL, Config, HTTP_MAX_RUNS, MODEL_VARIABLE, OAuthSettings, OWN_VARIABLE, Policy, Secret,
    Transport, is_among,
};
use crate::text::{closest, is_misspelled, is_placeholder};
use crate::url::{Host, WebUrl};

/// A token shorter than this many characters is taken, with a warning.
const SHORT_TOKEN: usize = 16;

/// The configuration, or the first mistake.
pub(super) fn resolve(settings: &FlagsAndEnv<'_>) -> Result<Config, String> {
    let mut config = Config {
        warnings: unknown_variables(settings),
        ..Config::default()
    };
    // Flags win over these.
    for (name, model) in settings.models()? {
        let model = values::pattern_model(&format!("{name}={model}"));
        let model = model.map_err(|why| named(&name, why))?;
        config.policy.pattern_models.push(model);
    }
    let url = flags::get("fabric-url");
    for flag in FLAGS.iter().filter(|flag| flag.long != url.long) {
        settings.apply(flag, &mut config)?;
    }
    if config.transport != Transport::Stdio && !settings.is_given("max-runs") {
        config.max_runs = HTTP_MAX_RUNS;
    }
    if config.transport == Transport::Sse && !settings.is_given("path") {
        config.path = "/sse".to_owned();
    }
    config.runs.is_history = settings.has("history");
    // A call waits for the end of its run if nobody could ask for that later.
    let tools = &config.policy.tools;
    let is_offered = tools.is_empty() || tools.iter().any(|tool| tool == "fabric_get_run");
    if !is_offered && !settings.is_given("answer-within") {
        config.runs.answer_within = Duration::ZERO;
    }
    let has_folders = !config.patterns_dirs.is_empty();
    if (config.demo || has_folders) && !settings.has("start-fabric") {
        config.start_fabric = None;
    }
    // Unlike the flag, FABRIC_BASE_URL may be set for other programs, so it conflicts with nothing.
    let is_given = |long: &&str| match *long {
        "patterns-dir" => has_folders,
        "start-fabric" => config.start_fabric.is_some(),
        "demo" => config.demo,
        other => settings.has(other),
    };
    let sources = ["patterns-dir", "start-fabric", "demo", "fabric-url"];
    let mut given = sources.into_iter().filter(is_given);
    if let (Some(one), Some(other)) = (given.next(), given.next()) {
        let other = settings.name(other);
        let why = format!(
            "it cannot be combined with {other}; leave one of them out, or unset it if it is a variable"
        );
        return Err(named(&settings.name(one), why));
    }
    // FABRIC_BASE_URL may be there for other programs, and the key is for that Fabric.
    let key = settings.secret(API_KEY)?;
    if config.needs_fabric() {
        settings.apply(url, &mut config)?;
        config.fabric.api_key = key;
    }
    config.http.token = token(settings, &mut config.warnings)?;
    if !settings.is_for_client() {
        config.http.oauth = oauth(settings)?;
    }
    if config.patterns_dirs.is_empty() {
        require_allowed_models(settings, &config.policy)?;
    }
    require_token(settings, &mut config)?;
    Ok(config)
}

/// What people call our variables that do not begin like the others.
const MISNAMED_VARIABLES: [(&str, &str); 2] = [
    (
        "FABRIC_URL FABRIC_HOST FABRIC_API_URL FABRIC_API_BASE_URL FABRIC_MCP_FABRIC_URL FABRIC_MCP_BASE_URL",
        BASE_URL,
    ),
    (
        "FABRIC_KEY FABRIC_TOKEN FABRIC_API_TOKEN FABRIC_MCP_KEY FABRIC_MCP_API_KEY FABRIC_MCP_FABRIC_API_KEY",
        API_KEY,
    ),
];

/// A warning for each variable that looks like one of fabric-mcp's, by its beginning or its spelling, but is not one of
/// them.
fn unknown_variables(settings: &FlagsAndEnv<'_>) -> Vec<String> {
    let flags = FLAGS.iter().filter_map(Flag::env);
    let others = VARIABLES.iter().map(|(name, _)| (*name).to_owned());
    // Most starts have no such variable.
    let known = LazyCell::new(|| flags.chain(others).collect::<Vec<_>>());
    let warning = |name: &str| {
        if [BASE_URL, API_KEY].contains(&name) || known.iter().any(|known| known == name) {
            return None;
        }
        let upper = &*name.to_ascii_uppercase();
        let begins = upper.starts_with(OWN_VARIABLE);
        let similar = || {
            let names = known.iter().map(|name| bare(name));
            let similar = *closest(bare(upper), names).first()?;
            let found = known.iter().find(|known| bare(known) == similar)?;
            let is_close = upper == found.replacen("MCP_", "", 1) || is_misspelled(name, found);
            (begins || is_close).then_some(found.as_str())
        };
        let hint = match listed(&MISNAMED_VARIABLES, upper).or_else(similar) {
            Some(meant) => format!("did you mean {meant}?"),
            None if begins => "fabric-mcp --help lists them.".to_owned(),
            None => return None,
        };
        let name = values::shown(name);
        Some(format!("{name} is not a variable of fabric-mcp; {hint}"))
    };
    let given = settings.variables.iter().map(|(name, _)| name.as_str());
    let given =
        given.filter(|name| name.starts_with(['F', 'f']) && !name.starts_with(MODEL_VARIABLE));
    given.filter_map(warning).collect()
}

/// A variable's name without its prefix, which would make all names similar.
fn bare(name: &str) -> &str {
    name.trim_start_matches(OWN_VARIABLE)
}

/// All four settings of OAuth, or none.
fn oauth(settings: &FlagsAndEnv<'_>) -> Result<Option<OAuthSettings>, String> {
    let issuer = settings.one("oauth-issuer", WebUrl::parse)?;
    let resource = settings.one("oauth-resource", WebUrl::parse)?;
    let client_id = settings.secret(OAUTH_CLIENT_ID)?;
    let client_secret = settings.secret(OAUTH_CLIENT_SECRET)?;
    match (issuer, resource, client_id, client_secret) {
        (Some(issuer), Some(resource), Some(client_id), Some(client_secret)) => {
            Ok(Some(OAuthSettings {
                issuer,
                resource,
                client_id,
                client_secret,
            }))
        }
        (None, None, None, None) => Ok(None),
        _ => Err(format!(
            "OAuth needs --oauth-issuer, --oauth-resource, {OAUTH_CLIENT_ID} and \
             {OAUTH_CLIENT_SECRET}; set all four, or none of them"
        )),
    }
}

/// Requires an allowed default model, since a run without one would get Fabric's own default, and allowed models of
/// patterns.
fn require_allowed_models(settings: &FlagsAndEnv<'_>, policy: &Policy) -> Result<(), String> {
    let allowed = &policy.allowed_models;
    if policy.default_model.is_empty() && !policy.default_vendor.is_empty() {
        let why =
            "there is no --default-model; a vendor alone does not choose a model, so give both";
        return Err(named(&settings.name("default-vendor"), why));
    }
    let is_refused = |model: &str| !is_among(allowed, model);
    let first = allowed.iter().find(|one| !one.ends_with('*'));
    let mut of_patterns = policy.pattern_models.iter();
    let why = if is_refused(&policy.default_model) {
        format!(
            "--default-model must be one of the allowed models, because a run that names no model \
             would get Fabric's default; give --default-model {}",
            first.map_or("NAME".to_owned(), |name| values::shown(name))
        )
    } else if let Some(one) = of_patterns.find(|one| is_refused(&one.model)) {
        let (model, pattern) = (values::shown(&one.model), values::shown(&one.pattern));
        format!(
            "\"{model}\", the model of {pattern}, is not allowed; allow it too, or give the pattern another"
        )
    } else {
        return Ok(());
    };
    Err(named(&settings.name("allow-model"), why))
}

/// The token of the variable, or of the file.
pub(super) fn token(
    settings: &FlagsAndEnv<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Secret>, String> {
    let variable = settings.secret(AUTH_TOKEN)?;
    let file_name = settings.name("auth-token-file");
    let file = settings.one("auth-token-file", |file| {
        let text = settings.file(file, "a file that holds the token")?;
        // Editors and shells end a file with a line break, which is not part of the token.
        match text.trim_ascii() {
            "" => Err(values::wrong(file, "is empty; put the token into it")),
            token => values::secret(token),
        }
    })?;
    let (name, token) = match (variable, file) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "{AUTH_TOKEN} and {file_name} are both set; unset one of them"
            ));
        }
        (Some(token), None) => (AUTH_TOKEN, token),
        (None, Some(token)) => (file_name.as_str(), token),
        (None, None) => return Ok(None),
    };
    if is_placeholder(token.expose()) || token.expose().len() < SHORT_TOKEN {
        warnings.push(format!(
            "{name}: the token is a placeholder that nothing has replaced, or shorter than \
             {SHORT_TOKEN} characters, so it can be guessed; put a better one there, \
             such as `openssl rand -hex 32` prints."
        ));
    }
    Ok(Some(token))
}

/// Requires a token or `--allow-unauthenticated` if other machines can reach the server, directly or through a proxy.
fn require_token(settings: &FlagsAndEnv<'_>, config: &mut Config) -> Result<(), String> {
    let (http, host) = (&config.http, &config.host);
    if config.transport == Transport::Stdio || !http.is_open() {
        return Ok(());
    }
    let hosts = http.allowed_hosts.iter();
    let hosts = hosts.filter(|authority| !authority.host.is_loopback());
    let hosts = hosts.map(|name| ("allowed-host", name.to_string()));
    let proxies = http.trusted_proxies.iter();
    let proxies = proxies.map(|proxy| ("trusted-proxy", proxy.to_string()));
    let is_local = Host::parse(host).is_ok_and(|host| host.is_loopback());
    let (long, name, why) = match hosts.chain(proxies).next() {
        _ if !is_local => ("host", host.clone(), "can be reached from other machines"),
        Some((long, name)) => (long, name, "leads other machines here"),
        None => return Ok(()),
    };
    if !http.allow_unauthenticated {
        let why = format!(
            "{name} {why}, and there is no token; give --tokens-file, set {AUTH_TOKEN} (or \
             {AUTH_TOKEN}_FILE), or give --oauth-issuer; or --allow-unauthenticated, if a proxy in \
             front decides who may come in"
        );
        return Err(named(&settings.name(long), why));
    }
    config.warnings.push(format!(
        "--allow-unauthenticated: {name} {why}, and no token is asked for: anyone who reaches this \
         server may use it. Limits are for each address: all who come through a proxy are one \
         caller, unless --trusted-proxy names that proxy."
    ));
    Ok(())
}
