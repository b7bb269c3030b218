//! How a client that is being set up will reach the server: by starting this program with the settings it was started with
//! itself, or by a URL.

use crate::clients::{Launch, McpClient};
use crate::config::{Config, Transport};

use super::flags::{self, API_KEY, AUTH_TOKEN, CERT_FILE, FLAGS, Takes};
use super::resolve::{self, FlagsAndEnv};
use super::{ExitReason, values};

/// How many seconds before a client gives up its call is answered.
const MARGIN: u64 = 10;

impl Launch {
    /// Fits it to one client: calls are answered before it gives up, unless `--answer-within` was given, and one that only
    /// starts programs reaches a URL by `--connect`.
    ///
    /// # Errors
    /// A server over HTTP+SSE for a client that does not speak it, or a URL that `--connect` does not take.
    pub(super) fn for_client(
        mut self,
        client: &McpClient,
        settings: &FlagsAndEnv<'_>,
    ) -> Result<Launch, ExitReason> {
        match &mut self {
            Launch::Program { args, .. } => {
                let flag = flags::get("answer-within");
                let name = format!("--{}", flag.long);
                let within = (client.limit - MARGIN).to_string();
                if within != flag.default && !args.contains(&name) {
                    args.extend([name, within]);
                }
                Ok(self)
            }
            Launch::Url { is_sse: true, .. } if client.urls.len() < 2 => {
                Err(ExitReason::usage(format!(
                    "--transport sse: {} does not connect over HTTP+SSE; start the server with --transport http, and give \
                     --transport http and its /mcp as --url here",
                    client.name
                )))
            }
            Launch::Url { .. } if client.urls.is_empty() => connect(settings),
            Launch::Url { .. } => Ok(self),
        }
    }
}

/// `--connect` to the URL that was given, for a client that only starts programs.
fn connect(settings: &FlagsAndEnv<'_>) -> Result<Launch, ExitReason> {
    let url = settings
        .one("url", values::connect_url)?
        .unwrap_or_default();
    let mut env = vec![(AUTH_TOKEN.to_owned(), None)];
    env.extend(certificates(settings, &url)?);
    Ok(Launch::Program {
        args: vec!["--connect".to_owned(), url],
        env,
    })
}

/// The variable of the certificates to trust, where there may be such at this URL.
fn certificates(
    settings: &FlagsAndEnv<'_>,
    url: &str,
) -> Result<Option<(String, Option<String>)>, ExitReason> {
    let file = settings.variable(CERT_FILE);
    let file = file.filter(|_| url.starts_with("https://"));
    let pair = |file| {
        Ok((
            CERT_FILE.to_owned(),
            Some(absolute(values::utf8(file, CERT_FILE)?)),
        ))
    };
    file.map(pair).transpose()
}

/// From flags and variables, all of which must be right.
pub(super) fn launch(settings: &FlagsAndEnv<'_>) -> Result<Launch, ExitReason> {
    if let Some(url) = settings.one("url", values::server_url)? {
        let mut config = Config::default();
        settings.apply(flags::get("transport"), &mut config)?;
        let is_sse = config.transport == Transport::Sse;
        return Ok(Launch::Url { url, is_sse });
    }
    // Whatever this process would do.
    let settings = FlagsAndEnv {
        on_stdio: true,
        ..*settings
    };
    let config = resolve::resolve(&settings)?;
    let mut args = Vec::new();
    for flag in FLAGS {
        if flag.env().is_none() || flag.long == "fabric-url" {
            continue;
        }
        let (from, given) = settings.given(flag);
        for value in given {
            let name = format!("--{}", flag.long);
            let text = values::utf8(value, &from)?;
            match flag.takes {
                Takes::Switch(_) => {
                    args.extend((values::switch(&text) == Ok(true)).then_some(name))
                }
                _ if matches!(flag.placeholder, "DIR" | "FILE") => {
                    args.extend([name, absolute(text)])
                }
                _ => args.extend([name, text]),
            }
        }
    }
    let mut variables = Vec::new();
    let needs_fabric = !config.demo && config.patterns_dirs.is_empty();
    if needs_fabric {
        let name = flags::get("fabric-url").env().unwrap_or_default();
        let certificates = certificates(&settings, &config.fabric.url)?;
        variables.push((name, Some(config.fabric.url)));
        variables.extend(certificates);
    }
    for (name, model) in settings.models() {
        variables.push((name.clone(), Some(values::utf8(model.clone(), name)?)));
    }
    if needs_fabric {
        let unset = settings.variable(API_KEY).is_none();
        variables.push((API_KEY.to_owned(), unset.then(String::new)));
    }
    Ok(Launch::Program {
        args,
        env: variables,
    })
}

/// The client starts the program in a folder of its own.
fn absolute(path: String) -> String {
    std::path::absolute(&path)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or(path)
}
