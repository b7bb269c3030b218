//! Parsers for the values of flags and variables.
//!
//! In scope: one function for each kind of value, with its limits. An error says what is wrong and what to give instead;
//! the caller puts the name in front. Not in scope: where the text comes from (`resolve`), Fabric's URL (`config`).

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::flags;
use super::launch;
use super::resolve::FlagsAndEnv;
use super::topics::TOPICS;
use super::{ExitReason, Generate, Help};
use crate::access::{self, Role};
use crate::clients::{self, CLIENTS, McpClient};
use crate::config::{MAX_NAME, MAX_SECRET, PatternModel, Prices, Secret};
use crate::text::{decimal, either, hint, is_language, number};
use crate::url::{self, Authority, Host, MAX_ADDRESS, WebUrl};

/// Shortest time that can be set.
const MIN_TIME: Duration = Duration::from_millis(1);
/// Longest time that can be set: a week.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Paths the server answers itself, which `--path` may not take.
const OPERATIONS_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Longest DNS name, in bytes.
const MAX_HOST_NAME: usize = 253;

/// Text as an error quotes it: escaped, 40 characters at most, and nothing before an `@`, which may be a password.
/// Unlike [`text::shown`](crate::text::shown), control characters are shown: a person typed them.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    if let Some((_, after)) = text.rsplit_once('@') {
        return format!("…@{}", shown(after));
    }
    let mut start: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MOST).is_some() {
        start.push('…');
    }
    start
}

/// `"text" is not …; give …`.
fn wrong(text: &str, rest: impl Display) -> String {
    format!("\"{}\" {rest}", shown(text))
}

/// The place of the choice that is called so, in upper or lower case.
pub(super) fn choice(text: &str, choices: &[&str]) -> Result<usize, String> {
    let mut names = choices.iter();
    let found = names.position(|name| name.eq_ignore_ascii_case(text));
    let refused = || format!("is none of the choices; give {}", either(choices));
    found.ok_or_else(|| wrong(text, refused()))
}

/// The address of a proxy.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse::<IpAddr>()
        .map(|ip| ip.to_canonical())
        .map_err(|_| {
            wrong(
                text,
                "is not an address; give one without a port, such as 127.0.0.1",
            )
        })
}

/// The name of a model or vendor.
pub(super) fn model(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=MAX_NAME if !text.chars().any(char::is_control) && text.trim() == text => {
            Ok(text.to_owned())
        }
        _ => Err(wrong(
            text,
            format_args!("is no such name; give 1 to {MAX_NAME} characters, as Fabric lists it"),
        )),
    }
}

/// A pattern and its model: `PATTERN=MODEL` or `PATTERN=VENDOR|MODEL`.
pub(super) fn pattern_model(text: &str) -> Result<PatternModel, String> {
    let (name, model) = text.split_once('=').ok_or_else(|| {
        let why = "does not say which pattern and which model; give PATTERN=MODEL or PATTERN=VENDOR|MODEL";
        wrong(text, why)
    })?;
    model_of(pattern(name)?, model)
}

/// The model of one pattern: `MODEL` or `VENDOR|MODEL`.
pub(super) fn model_of(pattern: String, text: &str) -> Result<PatternModel, String> {
    let (vendor, name) = text.split_once('|').unwrap_or(("", text));
    let (model, vendor) = match vendor {
        "" => (model(name)?, String::new()),
        vendor => (model(name)?, model(vendor)?),
    };
    Ok(PatternModel {
        pattern,
        model,
        vendor,
    })
}

/// The language of an output.
pub(super) fn language(text: &str) -> Result<String, String> {
    match is_language(text) {
        true => Ok(text.to_owned()),
        false => Err(wrong(
            text,
            "is not a language; give its code or name, such as de, pt-BR or German",
        )),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(wrong(text, "is neither yes nor no; give true or false")),
    }
}

/// An address or name to listen on, without brackets.
pub(super) fn host(text: &str) -> Result<String, String> {
    let reason = match Host::parse(text) {
        Ok(Host::Ip(address)) => return Ok(address.to_string()),
        Ok(Host::Name(name)) if name.len() <= MAX_HOST_NAME => return Ok(name),
        _ if text.contains("://") => "is a URL; give an address or name alone, such as 127.0.0.1",
        _ if text.contains(':') => "is not an address or name; give the port by --port",
        _ => "is not an address or name; give something like 127.0.0.1",
    };
    Err(wrong(text, reason))
}

/// Whether pages of this origin, as [`allowed_origin`] gives it, come from this machine.
pub(super) fn is_local_origin(origin: &str) -> bool {
    let Some(("http" | "https", authority)) = origin.split_once("://") else {
        return false;
    };
    Authority::parse(authority).is_ok_and(|authority| authority.host.is_loopback())
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    if text.starts_with("tcp://") {
        // Kubernetes sets NAME_PORT for each Service NAME.
        return Err(wrong(
            text,
            "is not a port but what Kubernetes sets for a Service called fabric-mcp; \
             give --port, or set enableServiceLinks: false",
        ));
    }
    whole(text).ok_or_else(|| wrong(text, "is not a port; give a number from 0 to 65535"))
}

/// A whole number from `least` to `most`.
pub(super) fn count<T: FromStr + PartialOrd + Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    whole(text)
        .filter(|number| (&least..=&most).contains(&number))
        .ok_or_else(|| {
            wrong(
                text,
                format_args!("is not a number from {least} to {most}; give one"),
            )
        })
}

fn whole<T: FromStr>(text: &str) -> Option<T> {
    // `parse` alone would take a sign.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// A time in seconds, from [`MIN_TIME`] to [`MAX_TIME`], or 0.
pub(super) fn seconds(text: &str, may_be_0: bool) -> Result<Duration, String> {
    if may_be_0 && text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = decimal(text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| (MIN_TIME..=MAX_TIME).contains(time))
        .ok_or_else(|| {
            let [least, most] = [MIN_TIME, MAX_TIME].map(|time| number(time.as_secs_f64()));
            wrong(
                text,
                format_args!(
                    "is not a time; give seconds from {least} to {most}, such as 30 or 0.5"
                ),
            )
        })
}

/// The URL of an MCP endpoint, over Streamable HTTP or HTTP+SSE.
pub(super) fn server_url(text: &str) -> Result<String, String> {
    endpoint(text, ", or URL/sse with --transport sse")
}

/// The URL of an MCP endpoint over Streamable HTTP that gets the token.
pub(super) fn connect_url(text: &str) -> Result<String, String> {
    let url = endpoint(text, "")?;
    WebUrl::parse(&url).map(|_| url)
}

/// `other` is what a URL without a path may mean too.
fn endpoint(text: &str, other: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err(
            "the URL holds a user name or password; take the part before the @ out: the token goes into a header"
                .to_owned(),
        );
    }
    let authority = text.split('/').next().unwrap_or_default();
    let is_far = Authority::parse(authority).is_ok_and(|authority| !authority.host.is_loopback());
    let url = url::base_url(text).map_err(|why| match is_far {
        true => why.replace("did you mean http://", "did you mean https://"),
        false => why,
    })?;
    match url
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains('/'))
    {
        true => Ok(url),
        false => Err(format!(
            "the URL has no path; did you mean {url}/mcp{}?",
            other.replace("URL", &url)
        )),
    }
}

/// The path of the MCP endpoint.
pub(super) fn path(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_graphic() && !b"?#\"<>\\".contains(&b);
    let reason = match text {
        _ if !text.starts_with('/') => "is not a path; begin it with /, as in /mcp",
        _ if text.len() > MAX_ADDRESS => {
            return Err(format!(
                "the path is longer than {MAX_ADDRESS} bytes; give a shorter one"
            ));
        }
        _ if !text.bytes().all(allowed) => {
            "holds what a path must not; give visible ASCII characters without ? # \" < > \\"
        }
        _ if OPERATIONS_PATHS.contains(&text) => {
            "is taken by the server itself; give another one, such as /mcp"
        }
        _ => return Ok(text.to_owned()),
    };
    Err(wrong(text, reason))
}

/// The name of a pattern.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let refused = |c: char| c.is_control() || c == '/' || c == '\\';
    match text.chars().count() {
        1..=MAX_NAME if !text.contains(refused) => Ok(text.to_owned()),
        _ => Err(wrong(
            text,
            format_args!(
                "is not a pattern's name; give 1 to {MAX_NAME} characters without / and \\"
            ),
        )),
    }
}

/// A value of the header `Host`.
pub(super) fn allowed_host(text: &str) -> Result<Authority, String> {
    let host = Host::parse(text).map(|host| Authority { host, port: None });
    let reason = match host.or_else(|_| Authority::parse(text)) {
        _ if text.contains("://") => "is a URL; give the host alone, such as mcp.example.com",
        _ if text.contains('*') => {
            "has a wildcard, which is not supported; give each host by its name"
        }
        Ok(authority) => return Ok(authority),
        Err(_) => "is not a host; give something like mcp.example.com or mcp.example.com:8443",
    };
    Err(wrong(text, reason))
}

/// A value of the header `Origin`, as a browser writes it.
pub(super) fn allowed_origin(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(wrong(
            text,
            "has a wildcard, which is not supported; give each origin in full",
        ));
    }
    let lower = text.to_ascii_lowercase();
    let origin = lower.strip_suffix('/').unwrap_or(&lower);
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    match origin.split_once("://") {
        Some((name, rest)) if scheme(name) && Authority::parse(rest).is_ok() => Ok(match name {
            "http" => origin.strip_suffix(":80").unwrap_or(origin),
            "https" => origin.strip_suffix(":443").unwrap_or(origin),
            _ => origin,
        }
        .to_owned()),
        _ => Err(wrong(
            text,
            "is not an origin; give scheme and host, such as https://app.example.com",
        )),
    }
}

/// Checks that a key or token can be sent in a header. The error never repeats any of it.
pub(super) fn secret(text: &str) -> Result<(), String> {
    if text.len() > MAX_SECRET {
        return Err(format!(
            "the value is longer than {MAX_SECRET} bytes; copy it again"
        ));
    }
    match text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("the value holds a space, a line break or another character that cannot be sent in a header; \
             copy it again, only visible ASCII characters"
            .to_owned()),
    }
}

/// The reason for refusing a value that is not text.
pub(super) const NOT_UTF8: &str = "the value is not UTF-8; write it in UTF-8";

/// Text given for `name`.
pub(super) fn utf8(value: OsString, name: &str) -> Result<String, ExitReason> {
    let not_text = |_| ExitReason::usage(format!("{name}: {NOT_UTF8}"));
    value.into_string().map_err(not_text)
}

/// The folder and the patterns of `--generate skills`: no names for `--all`.
pub(super) fn skills(words: &[OsString], all: bool) -> Result<(PathBuf, Vec<String>), ExitReason> {
    let named = |word: &OsString| utf8(word.clone(), "--generate skills");
    match words {
        [dir, names @ ..] if names.is_empty() == all => {
            let names = names.iter().map(named).collect::<Result<_, _>>()?;
            Ok((PathBuf::from(dir), names))
        }
        _ => Err(ExitReason::usage(
            "--generate skills: give a folder, and then the names of patterns or --all",
        )),
    }
}

/// Refuses a folder that was meant for systemd to write, which reads `%S` in its units only.
pub(super) fn state_dir(path: &Path) -> Result<(), String> {
    let text = path.to_string_lossy();
    if !text.contains('%') {
        return Ok(());
    }
    Err(wrong(
        &text,
        "has a %, which only a unit of systemd replaces; give the folder's own path",
    ))
}

/// Why a word that names nothing is refused; `all` begins the list of what there is.
fn unknown<'a>(
    flag: &str,
    (word, what): (&str, &str),
    all: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> ExitReason {
    let hint = hint(word, candidates, all);
    ExitReason::usage(format!(
        "{flag}: {}",
        wrong(word, format_args!("{what}; {hint}"))
    ))
}

/// Which help; `words` are those that belong to no flag.
pub(super) fn help(is_short: bool, words: &[OsString]) -> Result<Help, ExitReason> {
    let Some(word) = words.first() else {
        return Ok(if is_short { Help::Short } else { Help::Full });
    };
    let word = word.to_string_lossy();
    let found = TOPICS.iter().find(|topic| topic.name == word);
    found.map(Help::Topic).ok_or_else(|| {
        let names = TOPICS.iter().map(|topic| topic.name);
        unknown("--help", (&word, "is not a topic"), "the topics are", names)
    })
}

/// What `--generate` prints.
pub(super) fn generate(what: &OsStr, settings: &FlagsAndEnv<'_>) -> Result<Generate, ExitReason> {
    let (what, words) = (what.to_string_lossy(), &settings.raw.words);
    let most_words = match &*what {
        "token" => 2,
        "client-config" | "client-command" | "compose" | "systemd-unit" | "systemd-template" => 1,
        _ => 0,
    };
    if let Some(word) = words.get(most_words) {
        return Err(super::unexpected_word(word, false));
    }
    match &*what {
        "token" => token(words),
        "client-config" if words.is_empty() => Ok(Generate::Clients),
        "client-config" | "client-command" => {
            let client = client(&format!("--generate {what}"), words.first())?;
            let launch = launch::launch(settings)?.for_client(client, settings)?;
            Ok(match &*what {
                "client-config" => Generate::ClientConfig(client, launch),
                _ => Generate::ClientCommand(client, launch),
            })
        }
        "compose" => {
            let file = words.first().cloned();
            let file = file.map(|file| utf8(file, "--generate compose"));
            file.transpose().map(Generate::Compose)
        }
        _ => {
            let choices = flags::get("generate").choices.iter().copied();
            let found = choices.clone().find(|choice| *choice == what);
            let program = words
                .first()
                .and_then(|path| std::path::absolute(path).ok());
            found
                .map(|name| Generate::File(name, program))
                .ok_or_else(|| unknown("--generate", (&what, "is unknown"), "give one of", choices))
        }
    }
}

/// A line of the tokens file, whose name is checked where the line is made.
fn token(words: &[OsString]) -> Result<Generate, ExitReason> {
    let fail = |why: &str| ExitReason::usage(format!("--generate token: {why}"));
    let [name, role] = words else {
        return Err(fail(
            "give a name and a role, as in --generate token alice read",
        ));
    };
    let (name, role) = (name.to_string_lossy(), role.to_string_lossy());
    let known = Role::named(&role)
        .ok_or_else(|| fail(&wrong(&role, "is not a role; give run, read or metrics")))?;
    let line = access::generate(&name, known).map_err(fail)?;
    Ok(Generate::Token(Secret::new(line)))
}

/// The client called `word`, given to `flag`.
pub(super) fn client(
    flag: &str,
    word: Option<impl AsRef<OsStr>>,
) -> Result<&'static McpClient, ExitReason> {
    let word = word.filter(|word| !word.as_ref().is_empty());
    let word = word.ok_or_else(|| {
        let names = clients::names().join(", ");
        ExitReason::usage(format!("{flag} needs a client; add one of {names}"))
    })?;
    let word = word.as_ref().to_string_lossy();
    let found = CLIENTS.iter().find(|client| client.name == word);
    found.ok_or_else(|| {
        let what = (&*word, "is not a client we know");
        unknown(flag, what, "give one of", clients::names())
    })
}

/// The text of a file of prices: a line MODEL INPUT OUTPUT each, and comments. The error names the line.
pub(super) fn prices(text: &str) -> Result<Prices, String> {
    let price = |text: &str| {
        decimal(text).ok_or_else(|| {
            format!(
                "\"{}\" is no price; write what a million tokens cost as a number such as 2.50",
                shown(text)
            )
        })
    };
    let mut prices = Prices::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| format!("line {}: {why}", at + 1);
        let words = line.split_whitespace();
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
        // Names may have spaces.
        let (model, [input, output]) = match words.as_slice() {
            [] => continue,
            [model @ .., input, output] if !model.is_empty() => (model.join(" "), [input, output]),
            _ => {
                let form = "a line is MODEL INPUT OUTPUT, such as gpt-4o 2.50 10";
                return Err(wrong(form.to_owned()));
            }
        };
        let both = [price(input).map_err(wrong)?, price(output).map_err(wrong)?];
        if prices.insert(model.to_ascii_lowercase(), both).is_some() {
            let model = shown(&model);
            return Err(wrong(format!(
                "{model} has a price already; give each model one line"
            )));
        }
    }
    Ok(prices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_mistakes_have_their_line() {
        let text = "# USD\n\nGPT-4o 2.50 10 # of May\nmy own model 0 .5\ndefault 1 2\n";
        let known = [
            ("gpt-4o", [2.5, 10.0]),
            ("my own model", [0.0, 0.5]),
            ("default", [1.0, 2.0]),
        ];
        assert_eq!(
            prices(text),
            Ok(known.map(|(model, both)| (model.to_owned(), both)).into())
        );
        for (text, why) in [
            (
                "gpt-4o 2.50",
                "line 1: a line is MODEL INPUT OUTPUT, such as gpt-4o 2.50 10",
            ),
            (
                "#\n1 2",
                "line 2: a line is MODEL INPUT OUTPUT, such as gpt-4o 2.50 10",
            ),
            (
                "\na $2 10",
                "line 2: \"$2\" is no price; write what a million tokens cost as a number such as 2.50",
            ),
            (
                "a 2 inf",
                "line 1: \"inf\" is no price; write what a million tokens cost as a number such as 2.50",
            ),
            (
                "a 2 .",
                "line 1: \".\" is no price; write what a million tokens cost as a number such as 2.50",
            ),
            (
                "a 1 2\nA 1 2",
                "line 2: A has a price already; give each model one line",
            ),
        ] {
            assert_eq!(prices(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn times_are_read_to_the_nanosecond() {
        for (text, nanoseconds) in [
            ("30", 30_000_000_000),
            ("0030", 30_000_000_000),
            ("5.", 5_000_000_000),
            (".5", 500_000_000),
            ("0.001", 1_000_000),
            ("1.0000000019", 1_000_000_002),
        ] {
            assert_eq!(
                seconds(text, false),
                Ok(Duration::from_nanos(nanoseconds)),
                "{text}"
            );
        }
    }
}
