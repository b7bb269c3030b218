//! What a flag is: its names, what it takes, where help lists it.

use std::path::PathBuf;

use crate::clients::NAMES;
use crate::config::Config;

/// What follows a flag, and the field of the configuration it sets. A name is that of the value in the help.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// Nothing: it is a command or a part of one.
    Nothing,
    /// Nothing: it is a setting that is off by default.
    Switch(fn(&mut Config) -> &mut bool),
    /// A value; the last one wins.
    One(&'static str, Set),
    /// Values; all are used.
    Many(&'static str, Set),
    /// A path, which need not be UTF-8; the last one wins.
    Path(&'static str, fn(&mut Config) -> &mut Option<PathBuf>),
    /// A value for the code that looks it up; the last one wins.
    Raw(&'static str),
}

/// Parses a value and sets its field. The error says what is wrong and what to give instead, without the flag's name.
pub(crate) type Set = fn(&mut Config, &str) -> Result<(), String>;

/// The variable of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `FABRIC_MCP_` and the flag's name in upper case.
    Derived,
    /// Another name.
    Named(&'static str),
    /// The flag is a command, not a setting.
    None,
}

/// Section of the help, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// The server and its log.
    Server,
    /// The connection to Fabric.
    Fabric,
    /// Patterns and runs.
    Runs,
    /// Access over HTTP.
    Http,
    /// Commands instead of serving.
    Command,
}

impl Section {
    /// Every section.
    pub(crate) const ALL: [Section; 5] = [
        Section::Server,
        Section::Fabric,
        Section::Runs,
        Section::Http,
        Section::Command,
    ];

    /// The heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Section::Server => "Server",
            Section::Fabric => "Fabric",
            Section::Runs => "Patterns and runs",
            Section::Http => "Network (http and sse)",
            Section::Command => "Instead of serving",
        }
    }
}

/// One flag.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Its name without dashes.
    pub(crate) long: &'static str,
    /// Its one-letter name.
    pub(crate) short: Option<char>,
    /// Another long name.
    pub(crate) alias: Option<&'static str>,
    /// What follows it.
    pub(crate) takes: Takes,
    /// All allowed values, where they are few.
    pub(crate) choices: &'static [&'static str],
    /// Its variable.
    pub(crate) variable: Variable,
    /// The default, parsed like a given value; empty for none.
    pub(crate) default: &'static str,
    /// What the help adds to it, where the transport matters.
    pub(crate) default_note: &'static str,
    /// What it does, in a line.
    pub(crate) help: &'static str,
    /// Its section of the help.
    pub(crate) section: Section,
}

impl Flag {
    /// The name of its variable, if it has one.
    pub(crate) fn env(&self) -> Option<String> {
        match self.variable {
            Variable::Derived => Some(format!(
                "FABRIC_MCP_{}",
                self.long.to_ascii_uppercase().replace('-', "_")
            )),
            Variable::Named(name) => Some(name.to_owned()),
            Variable::None => None,
        }
    }

    /// What the help calls its value; empty for a switch.
    pub(crate) fn placeholder(&self) -> &'static str {
        match self.takes {
            Takes::Nothing | Takes::Switch(_) => "",
            Takes::One(name, _)
            | Takes::Many(name, _)
            | Takes::Path(name, _)
            | Takes::Raw(name) => name,
        }
    }

    /// Whether a value follows.
    pub(crate) fn takes_value(&self) -> bool {
        !self.placeholder().is_empty()
    }

    /// Whether all of its values are used.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self.takes, Takes::Many(..))
    }

    /// The default as the help shows it; empty for none.
    pub(crate) fn shown_default(&self) -> String {
        format!("{}{}", self.default, self.default_note)
    }

    /// All values that can be completed.
    pub(crate) fn values(&self) -> &'static [&'static str] {
        if self.placeholder() == "CLIENT" {
            &NAMES
        } else {
            self.choices
        }
    }

    /// Its long names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        [self.long].into_iter().chain(self.alias)
    }
}

/// A setting that is no flag.
#[derive(Debug)]
pub(crate) struct EnvOnly {
    /// The variable's name.
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) help: &'static str,
}
