//! What was given, as it was written: flags, words and variables.
//!
//! In scope: which flags there are and which go together, and that a flag wins over its variable. Not in scope: what
//! values mean (`values`), rules between settings (`resolve`).

use std::ffi::OsString;
use std::path::Path;

use lexopt::Arg;

use super::flags::{self, API_KEY, AUTH_TOKEN, COMMAND, FLAGS, Flag, OAUTH_CLIENT_SECRET};
use super::values::{self, wrong};
use super::{ReadFile, named};
use crate::clients;
use crate::config::{Config, MODEL_VARIABLE, Secret};
use crate::text::{closest, is_misspelled, joined, unusable};

/// What was given, on the command line and in the environment.
pub(super) struct FlagsAndEnv<'a> {
    /// In order; a switch has the value `true`, or [`LETTER`].
    given: Vec<(&'static Flag, String)>,
    /// Words that belong to no flag.
    pub(super) words: Vec<String>,
    /// Those that are set and not empty.
    pub(super) variables: &'a [(String, OsString)],
    read_file: ReadFile<'a>,
}

/// What can be given with --connect, and the settings among it with --url too.
const CONNECTING: &str = "connect check call auth-token-file log-level log-format";
/// The value of a switch that was given by its letter.
pub(super) const LETTER: &str = "letter";

impl<'a> FlagsAndEnv<'a> {
    pub(super) fn read(
        args: impl IntoIterator<Item = OsString>,
        variables: &'a [(String, OsString)],
        read_file: ReadFile<'a>,
    ) -> Result<FlagsAndEnv<'a>, String> {
        let mut settings = FlagsAndEnv {
            given: Vec::new(),
            words: Vec::new(),
            variables,
            read_file,
        };
        let mut parser = lexopt::Parser::from_args(args);
        let has_value = |error| format!("{error}; leave the value out");
        while let Some(arg) = parser.next().map_err(has_value)? {
            let (mut on, is_call) = ("true", settings.has("call"));
            let flag = match arg {
                Arg::Long(name) => {
                    flags::by_long(name).ok_or_else(|| unknown_long(name, is_call))?
                }
                Arg::Short(c) => {
                    on = LETTER;
                    let flag = FLAGS.iter().find(|flag| flag.short == Some(c));
                    flag.ok_or_else(|| unknown_short(c, parser.optional_value()))?
                }
                Arg::Value(word) => {
                    let name = format!("\"{}\"", values::shown(&word.to_string_lossy()));
                    settings.words.push(utf8(word, &name)?);
                    continue;
                }
            };
            let value = match flag.placeholder {
                // A topic or a period may follow.
                "" if on != LETTER && matches!(flag.long, "help" | "usage") => {
                    let word = parser.optional_value().map(|word| utf8(word, flag.long));
                    settings.words.extend(word.transpose()?);
                    on.to_owned()
                }
                "" => on.to_owned(),
                _ if flag.takes_value() => value_of(flag, &mut parser)?,
                _ => match parser.optional_value() {
                    Some(value) => utf8(value, &format!("--{}", flag.long))?,
                    None => on.to_owned(),
                },
            };
            settings.given.push((flag, value));
        }
        Ok(settings)
    }

    /// Rejects flags that need another one, or conflict with one.
    pub(super) fn refuse_strays(&self) -> Result<(), String> {
        // --connect goes with some of them, and the other two take precedence.
        let is_command = |flag: &&Flag| {
            let is_other = matches!(flag.long, "connect" | "generate" | "list-tools");
            flag.section == COMMAND && flag.partners().is_none() && !is_other
        };
        let asked = self.given.iter().filter(|(flag, _)| is_command(flag));
        let mut asked = asked.map(|(flag, value)| (flag.long, value));
        if let Some(first) = asked.next()
            && let Some((other, _)) = asked.find(|other| *other != first)
        {
            return Err(format!(
                "--{} and --{other} cannot be combined: run one after another",
                first.0
            ));
        }
        let fits = |with: &str, flag: &Flag| match (with, flag.long) {
            ("connect", "json") => self.has("call"),
            (_, other) if CONNECTING.split(' ').any(|flag| flag == other) => true,
            ("connect", _) => false,
            (_, "transport") => true,
            (_, other) => flag.env().is_none() && other != "history",
        };
        let mut servers = ["connect", "url"].into_iter().filter(|with| self.has(with));
        if let Some(with) = servers.next()
            && let Some((other, _)) = self.given.iter().find(|(flag, _)| !fits(with, flag))
        {
            return Err(format!(
                "--{} cannot be used with --{with}, which leads to a server with its own settings; leave it out here",
                other.long
            ));
        }
        for (flag, _) in &self.given {
            let Some(partners) = flag.partners() else {
                continue;
            };
            let is_partner = |(flag, value): &(&Flag, String)| match flag.long {
                "generate" => partners.split([' ', ',']).any(|word| word == value),
                long => partners.contains(&format!("--{long}")),
            };
            if !self.given.iter().any(is_partner) {
                let usual = "leave it out, or add that";
                let hint = listed(&MISTAKEN_FLAGS, flag.long).unwrap_or(usual);
                return Err(format!(
                    "--{} only works with {}; {hint}",
                    flag.long,
                    partners.replace(" and ", " or ")
                ));
            }
        }
        Ok(())
    }

    pub(super) fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// The last value of a flag, which wins.
    pub(super) fn last(&self, long: &str) -> Option<&str> {
        self.all(long).last()
    }

    fn all(&self, long: &str) -> impl Iterator<Item = &str> {
        // Only in debug builds: looked up for each flag, this took a fifth of the instructions of a start.
        debug_assert!(flags::by_long(long).is_some(), "{long}");
        let given = self.given.iter().filter(move |(flag, _)| flag.long == long);
        given.map(|(_, value)| value.as_str())
    }

    /// Whether the command line is for a client that starts the program on stdio, so that settings for HTTP count as
    /// not given.
    pub(super) fn is_for_client(&self) -> bool {
        let what = self.last("generate").unwrap_or_default();
        let word = self.words.first().filter(|_| what.starts_with("client-"));
        let client = self.last("install").or(word.map(String::as_str));
        let client = client.and_then(clients::named);
        client.is_some_and(|client| !client.only_connects()) && !self.has("url")
    }

    /// The text of a variable that is set and not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        let found = self.variables.iter().find(|(own, _)| own == name);
        let text = found.map(|(_, value)| utf8(value.clone(), name));
        let quoted = "the value is in quotes, which docker keeps; leave them out";
        match text.transpose()? {
            Some(text) if text.starts_with('"') && text.ends_with('"') => Err(named(name, quoted)),
            text => Ok(text),
        }
    }

    pub(super) fn secret(&self, name: &str) -> Result<Option<Secret>, String> {
        let value = self.text(name)?.map(|text| values::secret(&text));
        value.transpose().map_err(|why| named(name, why))
    }

    /// Fabric's variables for the models of patterns.
    pub(super) fn models(&self) -> Result<Vec<(String, String)>, String> {
        let variables = self.variables.iter();
        let models = variables.filter(|(name, _)| name.starts_with(MODEL_VARIABLE));
        let models = models.map(|(name, value)| Ok((name.clone(), utf8(value.clone(), name)?)));
        models.collect()
    }

    /// The text of a file; `remedy` is what to give if it cannot be read.
    pub(super) fn file(&self, file: &str, remedy: &str) -> Result<String, String> {
        let path = Path::new(file);
        (self.read_file)(path)
            .map_err(|error| format!("{}; give {remedy}", unusable("file", path, &error)))
    }

    /// The flag or variable that a setting comes from.
    pub(super) fn name(&self, long: &str) -> String {
        let variable = flags::get(long).env().filter(|_| !self.has(long));
        variable.unwrap_or(format!("--{long}"))
    }

    pub(super) fn is_given(&self, long: &str) -> bool {
        let values = self.values(flags::get(long));
        values.is_ok_and(|values| !values.is_empty())
    }

    /// The values given for a flag, more than one only if it takes many. A variable separates several values by commas.
    pub(super) fn values(&self, flag: &Flag) -> Result<Vec<String>, String> {
        if self.is_for_client() && flag.is_for_http() {
            let why = "is for a server over HTTP, but the client starts one on stdio; leave it out, or give --url";
            let given = self.last(flag.long).filter(|value| *value != "stdio");
            return given.map_or(Ok(Vec::new()), |_| Err(format!("--{} {why}", flag.long)));
        }
        let mut values: Vec<String> = self.all(flag.long).map(str::to_owned).collect();
        if values.is_empty()
            && let Some(variable) = flag.env()
            && let Some(list) = self.text(&variable)?
        {
            let items = list.split(|c| c == ',' && flag.repeats);
            let items = items.map(str::trim_ascii).filter(|item| !item.is_empty());
            values.extend(items.map(str::to_owned));
        }
        if !flag.repeats {
            values.drain(..values.len().saturating_sub(1));
        }
        if flag.is_path() {
            values = values.into_iter().map(values::from_home).collect();
        }
        Ok(values)
    }

    /// The value of a flag that has no field of its own.
    pub(super) fn one<T>(
        &self,
        long: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = self.values(flags::get(long))?.pop();
        let value = value.map(|text| parse(&text)).transpose();
        value.map_err(|why| named(&self.name(long), why))
    }

    /// The configuration of these flags alone.
    pub(super) fn only(&self, longs: &[&str]) -> Result<Config, String> {
        let mut config = Config::default();
        for long in longs {
            self.apply(flags::get(long), &mut config)?;
        }
        Ok(config)
    }

    /// Sets the field of a flag to what was given, or to the default.
    pub(super) fn apply(&self, flag: &Flag, config: &mut Config) -> Result<(), String> {
        let mut values = self.values(flag)?;
        // The log of a call is for those who ask for it.
        let has_default = !(flag.long == "log-level" && self.has("call"));
        if values.is_empty() && !flag.default.is_empty() && has_default {
            values.push(flag.default_value().to_owned());
        }
        let refused = |why: String| named(&self.name(flag.long), why);
        let mut values = values.iter();
        values.try_for_each(|value| flag.set(config, value).map_err(refused))
    }
}

/// Text given for `name`.
fn utf8(value: OsString, name: &str) -> Result<String, String> {
    let refused = |_| named(name, "the value is not UTF-8; write it in UTF-8");
    value.into_string().map_err(refused)
}

fn value_of(flag: &Flag, parser: &mut lexopt::Parser) -> Result<String, String> {
    let name = format!("--{}", flag.long);
    match parser.value() {
        // No valid value begins with this: the value is missing.
        Ok(value) if !value.as_encoded_bytes().starts_with(b"--") => utf8(value, &name),
        _ => Err(match flag.values().as_slice() {
            [] => format!("{name} needs a value: {name} {}", flag.placeholder),
            values => format!("{name} needs a value: give {}", joined(values, "or")),
        }),
    }
}

fn unknown_long(name: &str, is_call: bool) -> String {
    let name = values::shown(name);
    // People try --api-key, --key, --auth-token, --token, --client-secret and the like.
    let end = format!("_{}", name.to_ascii_uppercase().replace('-', "_"));
    let mut secrets = [API_KEY, AUTH_TOKEN, OAUTH_CLIENT_SECRET].into_iter();
    if let Some(variable) = secrets.find(|secret| format!("_{secret}").ends_with(&end)) {
        return format!(
            "--{name} is refused, because every user of this machine can read a command line; set \
             the variable {variable} instead"
        );
    }
    let argument = format!("did you mean {}=…, without dashes?", name.replace('-', "_"));
    let general = ["fabric-mcp --help lists them", &argument][usize::from(is_call)];
    format!("--{name} is not a flag; {}", meant(&name, general))
}

/// A long flag may have been written with one dash: a letter, and the `rest` of its name.
fn unknown_short(letter: char, rest: Option<OsString>) -> String {
    let letter = letter.escape_debug().to_string();
    let word = letter.clone() + &rest.unwrap_or_default().to_string_lossy();
    let general = "long flags begin with two dashes, and fabric-mcp --help lists them";
    format!("-{letter} is not a flag; {}", meant(&word, general))
}

/// Refuses a word that does not belong to a flag.
pub(crate) fn unexpected_word(word: &str) -> String {
    let general = match clients::named(word) {
        Some(_) => "give one client at a time",
        None => {
            "only flags and their values are taken: --call fabric_run_pattern pattern_name=NAME < FILE runs a pattern, and --help lists all flags"
        }
    };
    let hint = meant(word, general);
    wrong(word, format_args!("does not belong to a flag; {hint}"))
}

/// Words that other programs understand, such as Fabric itself, and what does the same here.
const FOREIGN_WORDS: [(&str, &str); 11] = [
    (
        "setup updatepatterns",
        "fabric --setup or fabric --updatepatterns",
    ),
    ("baseurl url", "--fabric-url URL"),
    ("tokens", "--tokens-file FILE"),
    ("stdio", "--transport stdio"),
    ("http serve", "--transport http"),
    ("sse", "--transport sse"),
    ("model m", "--default-model NAME"),
    ("y force", "--yes"),
    ("list listpatterns l", "--call fabric_list_patterns"),
    ("query search", "--call fabric_list_patterns WORDS"),
    (
        "run pattern p",
        "--call fabric_run_pattern pattern_name=NAME < FILE",
    ),
];

/// Flags of other commands that people give alone, and what to give instead.
const MISTAKEN_FLAGS: [(&str, &str); 2] = [
    ("url", "for the address of Fabric, give --fabric-url URL"),
    ("history", "to see what was run, give --call fabric_get_run"),
];

/// The row of a table that has this among its words, hyphens or not.
pub(super) fn listed(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let (mut rows, word) = (table.iter(), word.replace('-', ""));
    let row = rows.find(|(words, _)| words.split(' ').any(|one| one == word));
    row.map(|(_, meant)| *meant)
}

/// What the user may have meant by `word`, or this `general` hint.
fn meant(word: &str, general: &str) -> String {
    let found = closest(word, FLAGS.iter().flat_map(Flag::names));
    let found = found.first().filter(|name| is_misspelled(word, name));
    let other = listed(&FOREIGN_WORDS, word).map(str::to_owned);
    let meant = other.or(found.map(|name| format!("--{name}")));
    meant.map_or(general.to_owned(), |meant| format!("did you mean {meant}?"))
}
