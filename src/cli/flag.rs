//! What a flag is: its names, what it takes, where help lists it.

use super::flags::{CLIENTS, FlagId};

/// Whether a value follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// None: it is a switch.
    Nothing,
    /// A value with this name in the help; the last one wins.
    One(&'static str),
    /// A value with this name in the help; all are used.
    Many(&'static str),
}

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
    pub(crate) const ALL: [Section; 5] =
        [Section::Server, Section::Fabric, Section::Runs, Section::Http, Section::Command];

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
    /// Its identity.
    pub(crate) id: FlagId,
    /// Its name without dashes.
    pub(crate) long: &'static str,
    /// Its one-letter name.
    pub(crate) short: Option<char>,
    /// Another long name.
    pub(crate) alias: Option<&'static str>,
    /// Whether a value follows.
    pub(crate) takes: Takes,
    /// All allowed values, where they are few.
    pub(crate) choices: &'static [&'static str],
    /// Its variable.
    pub(crate) variable: Variable,
    /// The default as the help shows it, or empty.
    pub(crate) default: &'static str,
    /// What it does, in a line.
    pub(crate) help: &'static str,
    /// Its section of the help.
    pub(crate) section: Section,
}

impl Flag {
    /// The name of its variable, if it has one.
    pub(crate) fn env(&self) -> Option<String> {
        match self.variable {
            Variable::Derived => Some(format!("FABRIC_MCP_{}", self.long.to_ascii_uppercase().replace('-', "_"))),
            Variable::Named(name) => Some(name.to_owned()),
            Variable::None => None,
        }
    }

    /// What the help calls its value; empty for a switch.
    pub(crate) fn placeholder(&self) -> &'static str {
        match self.takes {
            Takes::Nothing => "",
            Takes::One(name) | Takes::Many(name) => name,
        }
    }

    /// All values that can be completed.
    pub(crate) fn values(&self) -> &'static [&'static str] {
        if self.placeholder() == "CLIENT" { CLIENTS } else { self.choices }
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
