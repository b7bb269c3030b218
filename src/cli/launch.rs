//! How a client that is being set up will reach the server: by starting this program with the settings it was started with
//! itself, or by a URL.

use crate::clients::{Key, Launch, McpClient};
use crate::config::Transport;

use super::flags::{self, API_KEY, CERT_FILE, FLAGS, Flag, Section, Takes};
use super::resolve::{self, FlagsAndEnv};
use super::{Env, ExitReason, RawFlags, ReadFile, values};

/// So many seconds before a client would give up, its call is answered.
const MARGIN: u64 = 10;

impl Launch {
    /// The same for one client: calls are answered before it gives up, unless `--answer-within` was given.
    ///
    /// # Errors
    /// A URL for a client that only starts programs, or one over HTTP+SSE for a client that knows no such.
    pub(super) fn for_client(mut self, client: &McpClient) -> Result<Launch, ExitReason> {
        if let Launch::Program { args, .. } = &mut self {
            let flag = flags::get("answer-within");
            let name = format!("--{}", flag.long);
            let within = (client.limit - MARGIN).to_string();
            if within != flag.default && !args.contains(&name) {
                args.extend([name, within]);
            }
        } else if let Err(why) = client.http {
            return Err(ExitReason::usage(format!("--url: {why}")));
        } else if matches!(self, Launch::Sse(_)) && client.sse.is_none() {
            return Err(ExitReason::usage(format!(
                "--transport sse: {} does not connect over HTTP+SSE; start the server with --transport http, and give \
                 --transport http and its /mcp as --url here",
                client.name
            )));
        }
        Ok(self)
    }
}

/// Settings without effect on stdio.
fn is_for_http(flag: &Flag) -> bool {
    flag.section == Section::Http || matches!(flag.long, "transport" | "host" | "port" | "path")
}

/// From flags and variables, all of which must be right.
pub(super) fn launch(
    raw: &RawFlags,
    env: Env<'_>,
    read_file: ReadFile<'_>,
) -> Result<Launch, ExitReason> {
    let settings = FlagsAndEnv { raw, env };
    if let Some(url) = settings.one("url", values::server_url)? {
        let is_sse = settings.one("transport", values::transport)? == Some(Transport::Sse);
        return Ok(if is_sse {
            Launch::Sse(url)
        } else {
            Launch::Url(url)
        });
    }
    // A client starts it on stdio, whatever this process would do.
    let is_unused = |name: &str| {
        FLAGS
            .iter()
            .any(|flag| is_for_http(flag) && flag.env().is_some_and(|own| own == name))
    };
    let stdio = |name: &str| if is_unused(name) { None } else { env(name) };
    let mut local = RawFlags {
        given: raw.given.clone(),
        words: Vec::new(),
    };
    local.given.retain(|(flag, _)| !is_for_http(flag));
    let config = resolve::resolve(&local, &stdio, read_file)?;
    let mut args = Vec::new();
    for flag in FLAGS {
        if flag.env().is_none() || is_for_http(flag) || flag.long == "fabric-url" {
            continue;
        }
        let name = format!("--{}", flag.long);
        if let Takes::Switch(_) = flag.takes {
            args.extend(settings.switch(flag)?.then_some(name));
            continue;
        }
        for text in settings.texts(flag)?.1 {
            let text = if matches!(flag.placeholder(), "DIR" | "FILE") {
                absolute(text)
            } else {
                text
            };
            args.extend([name.clone(), text]);
        }
    }
    let mut variables = Vec::new();
    let needs_fabric = !config.demo && config.patterns_dirs.is_empty();
    if needs_fabric {
        let name = flags::get("fabric-url").env().unwrap_or_default();
        let has_tls = config.fabric.url.starts_with("https://");
        variables.push((name, config.fabric.url));
        if let Some(file) = settings.variable(CERT_FILE).filter(|_| has_tls) {
            variables.push((
                CERT_FILE.to_owned(),
                absolute(values::utf8(file, CERT_FILE)?),
            ));
        }
    }
    let key = match settings.variable(API_KEY) {
        _ if !needs_fabric => Key::Unused,
        Some(_) => Key::Set,
        None => Key::Unset,
    };
    Ok(Launch::Program {
        args,
        env: variables,
        key,
    })
}

/// The client starts the program in a folder of its own.
fn absolute(path: String) -> String {
    std::path::absolute(&path)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or(path)
}
