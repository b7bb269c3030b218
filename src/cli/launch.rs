//! How a client that is being set up will reach the server: by starting this program with the settings it was started with
//! itself, or by a URL.

use std::path::Path;

use crate::clients::{Launch, McpClient, Variable};
use crate::config::{BASE_URL, Transport};
use crate::url::Host;

use super::flags::{self, API_KEY, CERT_FILE, FLAGS};
use super::parse::FlagsAndEnv;
use super::{resolve, values};

/// The flag of a Fabric that is started; `--install` adds the path of its program.
pub(crate) const START: &str = "--start-fabric";
/// A call is answered this many seconds before its client gives up.
const MARGIN: u64 = 10;

/// How this client starts or reaches the server, from flags and variables, which must all be right. A client that can
/// only start programs reaches a URL by `--connect`; one that starts none reaches the server that has these settings.
///
/// # Errors
/// Also refused: a server over HTTP+SSE for a client that does not speak it, or a URL to which no token is sent.
pub(super) fn launch(client: &McpClient, settings: &FlagsAndEnv<'_>) -> Result<Launch, String> {
    // The URL must be one that may get the token.
    let url = match settings.one("url", values::connect_url)? {
        Some(url) => url,
        None if client.only_connects() => {
            let config = resolve::resolve(settings)?;
            let host = Host::parse(&config.host)?;
            format!("http://{host}:{}{}", config.port, config.path)
        }
        None => return program(client, settings),
    };
    let is_sse = settings.only(&["transport"])?.transport == Transport::Sse;
    let mut launch = client.reaching(url.clone(), is_sse, true).ok_or_else(|| {
        format!(
            "--transport sse: {} does not connect over HTTP+SSE; start the server with \
             --transport http, and give --transport http and its /mcp as --url here",
            client.name
        )
    })?;
    if let Launch::Program { env, .. } = &mut launch {
        env.extend(certificates(settings, &url)?);
    }
    Ok(launch)
}

/// The variable of the certificates to trust, where there may be such at this URL.
fn certificates(settings: &FlagsAndEnv<'_>, url: &str) -> Result<Option<Variable>, String> {
    let file = settings.text(CERT_FILE)?;
    let file = file.filter(|_| url.starts_with("https://"));
    Ok(file.map(|file| (CERT_FILE.to_owned(), Some(absolute(file)))))
}

/// This program as it would run here, but for a client: calls are answered before it gives up, unless `--answer-within`
/// was given.
fn program(client: &McpClient, settings: &FlagsAndEnv<'_>) -> Result<Launch, String> {
    let config = resolve::resolve(settings)?;
    let mut args = Vec::new();
    for flag in FLAGS {
        if flag.env().is_none() || matches!(flag.long, "fabric-url" | "start-fabric") {
            continue;
        }
        for text in settings.values(flag)? {
            let value = match flag.placeholder {
                "" if values::switch(&text) == Ok(false) => continue,
                "" => None,
                _ if flag.is_path() => Some(absolute(text)),
                _ => Some(text),
            };
            args.push(format!("--{}", flag.long));
            args.extend(value);
        }
    }
    let flag = flags::get("answer-within");
    let within = (client.limit - MARGIN).to_string();
    if within != flag.default && !settings.is_given(flag.long) {
        args.extend([format!("--{}", flag.long), within]);
    }
    if let Some(program) = &config.start_fabric {
        args.push(start_flag(program));
    }
    let mut env = Vec::new();
    if config.needs_fabric() {
        let certificates = certificates(settings, &config.fabric.url)?;
        let unset = settings.text(API_KEY)?.is_none();
        env.push((BASE_URL.to_owned(), Some(config.fabric.url)));
        env.extend(certificates);
        env.push((API_KEY.to_owned(), unset.then(String::new)));
    }
    let models = settings.models()?.into_iter();
    env.extend(models.map(|(name, model)| (name, Some(model))));
    Ok(Launch::Program { args, env })
}

/// The flag that starts this Fabric, or without a path the one that is found.
pub(crate) fn start_flag(program: &Path) -> String {
    let flag = format!("{START}={}", program.display());
    flag.trim_end_matches('=').to_owned()
}

/// The client starts the program in a folder of its own.
fn absolute(path: String) -> String {
    let found = std::path::absolute(&path);
    found.map_or(path, |path| path.to_string_lossy().into_owned())
}
