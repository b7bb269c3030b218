//! Parsers for the values of flags and variables.
//!
//! In scope: one function for each kind of value, with its limits. An error says what is wrong and what to give instead;
//! the caller puts the name in front. Not in scope: where the text comes from (`parse`), Fabric's URL (`url`).

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::config::{MAX_NAME, MAX_SECRET, PatternModel, Prices, Secret, is_model};
use crate::text::{decimal, is_language, joined};
use crate::time;
use crate::url::{self, Authority, Host, WebUrl};

/// Shortest time that can be set.
const MIN_TIME: Duration = Duration::from_millis(1);
/// Longest time that can be set: a week.
pub(super) const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest time that runs can be kept for: 90 days.
pub(super) const MAX_KEEP: Duration = Duration::from_secs(90 * 24 * 3600);
/// Longest `--path`, in bytes.
const MAX_PATH: usize = 2 << 10;
/// Paths the server answers itself, which `--path` may not take.
const OPERATIONS_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Text as an error quotes it: escaped, 40 characters at most, and nothing before an `@`, which may be a password.
/// Unlike [`text::shown`](crate::text::shown), control characters are shown: a person typed them.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    if let Some((_, after)) = text.rsplit_once('@') {
        return format!("…@{}", shown(after));
    }
    let start: String = text.chars().take(MOST).collect();
    let rest = if start.len() < text.len() { "…" } else { "" };
    format!("{}{rest}", start.escape_debug())
}

/// `"text" is not …; give …`.
pub(super) fn wrong(text: &str, rest: impl Display) -> String {
    format!("\"{}\" {rest}", shown(text))
}

/// What a text means, or what is wrong with it.
fn valid<T>(meaning: Option<T>, text: &str, rest: impl Display) -> Result<T, String> {
    meaning.ok_or_else(|| wrong(text, rest))
}

/// The choice with this name, in upper or lower case.
pub(super) fn choice<'a>(text: &str, choices: &[&'a str]) -> Result<&'a str, String> {
    let mut names = choices.iter().copied();
    let found = names.find(|name| name.eq_ignore_ascii_case(text));
    let rest = format_args!("is not one of the choices; give {}", joined(choices, "or"));
    valid(found, text, rest)
}

/// The address of a proxy.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse::<IpAddr>().ok();
    let rest = "is not an address; give one without a port, such as 127.0.0.1";
    valid(address.map(|ip| ip.to_canonical()), text, rest)
}

/// Whether a text is as long as a name may be.
fn fits(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.chars().count())
}

/// The name of a model or vendor, or its beginning and a `*`.
pub(super) fn model(text: &str) -> Result<String, String> {
    let is_good = is_model(text) && text.trim() == text && !text.contains(char::is_control);
    let rest = format!(
        "is not the name of a model or vendor; give 1 to {MAX_NAME} characters, as Fabric lists it, without quotes"
    );
    valid((is_good && fits(text)).then(|| text.to_owned()), text, rest)
}

/// The name of a pattern.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let refused = |c: char| c.is_control() || c == '/' || c == '\\';
    let is_good = fits(text) && !text.contains(refused);
    let rest = format!("is not a pattern's name; give 1 to {MAX_NAME} characters without / and \\");
    valid(is_good.then(|| text.to_owned()), text, rest)
}

/// A pattern, or the variable of patterns, and its model: `PATTERN=MODEL` or `PATTERN=VENDOR|MODEL`.
pub(super) fn pattern_model(text: &str) -> Result<PatternModel, String> {
    let rest =
        "does not say which pattern and which model; give PATTERN=MODEL or PATTERN=VENDOR|MODEL";
    let (name, both) = valid(text.split_once('='), text, rest)?;
    let (vendor, model_name) = both.split_once('|').unwrap_or(("", both));
    Ok(PatternModel {
        pattern: pattern(name)?,
        model: model(model_name)?,
        vendor: match vendor {
            "" => String::new(),
            vendor => model(vendor)?,
        },
    })
}

/// The language of an output.
pub(super) fn language(text: &str) -> Result<String, String> {
    let language = is_language(text).then(|| text.to_owned());
    let rest = "is not a language; give its code or name, such as de, pt-BR or German";
    valid(language, text, rest)
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(wrong(text, "is neither yes nor no; give true or false")),
    }
}

/// A path that may begin with `~`, which bash and zsh do not replace after = and @.
pub(crate) fn from_home(text: String) -> String {
    let inner = Path::new(&text).strip_prefix("~").ok();
    let path = inner.and_then(|inner| Some(std::env::home_dir()?.join(inner)));
    let path = path.and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or(text)
}

/// A program to start: yes for the usual one, no for none, or its name or path, which becomes absolute.
pub(super) fn program(text: &str) -> Result<Option<PathBuf>, String> {
    if let Ok(on) = switch(text) {
        return Ok(on.then(PathBuf::new));
    }
    let path = match text.contains(['/', MAIN_SEPARATOR]) {
        true => std::path::absolute(text).ok(),
        false => Some(text.into()).filter(|_| !text.is_empty()),
    };
    valid(path.map(Some), text, "is not a program; give its path")
}

/// An address or name to listen on, without brackets.
pub(super) fn host(text: &str) -> Result<String, String> {
    let host = Host::parse(text).ok();
    let host = host.map(|host| host.to_string().replace(['[', ']'], ""));
    let rest = "is not an address or name; give one such as 127.0.0.1, and its port with --port";
    valid(host, text, rest)
}

/// A whole number from `least` to `most`.
pub(super) fn count<T: FromStr + PartialOrd + Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    // `parse` alone would take a sign.
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    let number = number.filter(|number| (&least..=&most).contains(&number));
    let rest = format_args!("is not a number from {least} to {most}; give one");
    valid(number, text, rest)
}

/// A time in seconds, from [`MIN_TIME`] to `most`, or 0.
pub(super) fn seconds(text: &str, may_be_0: bool, most: Duration) -> Result<Duration, String> {
    if may_be_0 && text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = decimal(text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| (MIN_TIME..=most).contains(time));
    let [least, most] = [MIN_TIME, most].map(|time| time.as_secs_f64());
    let zero = if may_be_0 { "0 or " } else { "" };
    let rest = format!("is not a time; give {zero}{least} to {most} seconds, such as 30 or 0.5");
    valid(time, text, rest)
}

/// The URL of an MCP endpoint that gets the token.
pub(super) fn connect_url(text: &str) -> Result<String, String> {
    let url = url::base_url(text)?;
    WebUrl::parse(&url)?;
    match url::split(&url) {
        Some((_, _, "")) => Err(format!(
            "the URL has no path; add that of the endpoint, as in {url}/mcp"
        )),
        _ => Ok(url),
    }
}

/// What a server is called in a client.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name = (1..=64).contains(&text.len()) && text.chars().all(is_plain);
    let rest = "is not a name; give one of at most 64 letters, digits, - and _";
    valid(name.then(|| text.to_owned()), text, rest)
}

/// The path of the MCP endpoint.
pub(super) fn path(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_graphic() && !b"?#\"<>\\".contains(&b);
    let is_path = text.starts_with('/') && text.len() <= MAX_PATH && text.bytes().all(allowed);
    let path = (is_path && !OPERATIONS_PATHS.contains(&text)).then(|| text.to_owned());
    let taken = OPERATIONS_PATHS.join(", ");
    let rest = format!(
        "is not allowed; give a path that begins with /, such as /mcp, of at most {MAX_PATH} \
         visible ASCII characters without ? # \" < > \\, and none of {taken}"
    );
    valid(path, text, rest)
}

/// A value of the header `Host`.
pub(super) fn allowed_host(text: &str) -> Result<Authority, String> {
    let host = Host::parse(text).map(|host| Authority { host, port: None });
    let authority = host.or_else(|_| Authority::parse(text));
    let rest = "is not a host; give something like mcp.example.com or mcp.example.com:8443, without scheme or wildcard";
    valid(authority.ok(), text, rest)
}

/// A value of the header `Origin`, as a browser writes it.
pub(super) fn allowed_origin(text: &str) -> Result<String, String> {
    let origin = url::origin(text.strip_suffix('/').unwrap_or(text));
    let rest =
        "is not an origin; give scheme and host without wildcards, such as https://app.example.com";
    valid(origin.map(|(origin, _)| origin), text, rest)
}

/// A key or token that can be sent in a header. The error never repeats any of it.
pub(super) fn secret(text: &str) -> Result<Secret, String> {
    let is_good = text.len() <= MAX_SECRET && text.bytes().all(|b| b.is_ascii_graphic());
    is_good.then(|| Secret::new(text)).ok_or_else(|| {
        format!(
            "the value is longer than {MAX_SECRET} bytes, or holds a space, a line break or \
             another character that cannot be sent in a header; copy it again, only visible ASCII \
             characters"
        )
    })
}

/// The folder of runs. One that was meant for systemd to write, which reads `%S` in its units only, is refused.
pub(super) fn state_dir(text: &str) -> Result<Option<PathBuf>, String> {
    let folder = (!text.contains('%')).then(|| Some(text.into()));
    let rest = "has a %, which only systemd units replace; give the path of the folder itself";
    valid(folder, text, rest)
}

/// A month, or the first day of a period without an end. Returns the time, and whether only that month is meant.
pub(super) fn period(text: &str) -> Result<(String, bool), String> {
    let day = text.strip_suffix("..");
    let first = day.map_or_else(|| format!("{text}-01"), str::to_owned);
    let is_good = first.len() == 10 && time::parse(&first).is_some();
    let period = is_good.then(|| (day.unwrap_or(text).to_owned(), day.is_none()));
    let rest = "is not a period; give a month, such as 2026-07, or a first day and two dots, such as 2026-07-28..";
    valid(period, text, rest)
}

/// The text of a file of prices: a line MODEL INPUT OUTPUT each, and comments. The error names the line.
pub(super) fn prices(text: &str) -> Result<Prices, String> {
    let mut prices = Prices::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("line {}: {why}", at + 1);
        let words = line.split_whitespace();
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
        // Names may have spaces, but a number at the end of one is a third price.
        let row = match words.as_slice() {
            [] => continue,
            [model @ .., input, output] if model.last().is_some_and(|m| decimal(m).is_none()) => {
                Some(model.join(" ")).zip(decimal(input).zip(decimal(output)))
            }
            _ => None,
        };
        let form =
            "a line is MODEL INPUT OUTPUT, what a million tokens cost, such as gpt-4o 2.50 10";
        let (model, (input, output)) = row.ok_or_else(|| wrong(form))?;
        let before = prices.insert(model.to_ascii_lowercase(), [input, output]);
        if before.is_some() {
            let model = shown(&model);
            let why = format!("{model} has a price already; give each model one line");
            return Err(wrong(&why));
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
        let expected = Ok(known.map(|(model, both)| (model.to_owned(), both)).into());
        assert_eq!(prices(text), expected);
        let line =
            "a line is MODEL INPUT OUTPUT, what a million tokens cost, such as gpt-4o 2.50 10";
        let twice = "line 2: A has a price already; give each model one line";
        for (text, why) in [
            ("gpt-4o 2.50", format!("line 1: {line}")),
            ("#\n1 2", format!("line 2: {line}")),
            ("\na $2 10", format!("line 2: {line}")),
            ("a 2 inf", format!("line 1: {line}")),
            ("a 2 .", format!("line 1: {line}")),
            ("a 1 2 3", format!("line 1: {line}")),
            ("a 1 2\nA 1 2", twice.to_owned()),
        ] {
            assert_eq!(prices(text), Err(why), "{text}");
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
            let found = seconds(text, false, MAX_TIME);
            assert_eq!(found, Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }
}
