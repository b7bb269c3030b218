//! Protects Fabric's template engine from injection: nothing that a caller sends may become a template call.
//!
//! Fabric replaces every `{{…}}` of a pattern and scans the result again, until none is left. So a value can form a new
//! token together with the text around it, and since 1.4.323 the input can too. This module simulates one pass over the
//! raw pattern and refuses a run in which anything but the pattern's own tokens is replaced. One pass is then enough,
//! in every version of the engine.
//!
//! In scope: what the engine does with one pattern, its variables and the input. Not in scope: reading the pattern
//! (`calls`), checks of a variable alone (`names`), and braces in the output of plugin calls, which comes from Fabric's
//! host. The pattern can change between check and run, but whoever can change it needs no injection.

use std::collections::BTreeMap;

use super::{Error, Kind, Pattern};
use crate::config::{MAX_MESSAGE, MAX_NAME};
use crate::text;

/// Fabric's placeholder for the input during replacement.
pub(super) const SENTINEL: &str = "__FABRIC_INPUT_SENTINEL_TOKEN__";

/// Every token of `text` that Fabric's expression `{{([^{}]+)}}` finds: its offset and its content. Tokens cannot
/// overlap, and the text between them contains none.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = text.find('{').unwrap_or(text.len());
    text[start..].split(['{', '}']).filter_map(move |run| {
        let (begin, end) = (start, start + run.len());
        start = end + 1;
        let is_token =
            !run.is_empty() && text[..begin].ends_with("{{") && text[end..].starts_with("}}");
        is_token.then(|| (begin - 2, run))
    })
}

/// Whether the input could be harmful in some pattern. The pattern is then read before a run, even without variables.
pub(super) fn is_suspicious(input: &str) -> bool {
    input.contains('{') || input.contains(SENTINEL)
}

/// Whether the input could be a template on its own.
pub(super) fn is_template(input: &str) -> bool {
    input.contains("{{") || input.contains(SENTINEL)
}

/// Refuses variables and input that could become template code in this pattern.
///
/// # Errors
/// [`Kind::InvalidRequest`], naming the variable, or else the pattern, and what to do.
pub(crate) fn check(
    pattern: &Pattern,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> Result<(), Error> {
    let text = pattern.system_prompt.as_str();
    let mut unknown = None;
    for (_, body) in tokens(text) {
        if body.contains(SENTINEL) {
            return Err(Blame::Input.joined(pattern));
        }
        if matches!(call(body), Some(TemplateCall::Unknown)) {
            unknown.get_or_insert(body);
        }
    }
    if let Some(body) = unknown {
        no_braces(pattern, body, variables, input)?;
    }
    let mut engine = Follow {
        pattern,
        input,
        limited: !variables.is_empty(),
        known: IDLE,
        unknown: 0,
        held: 0,
        size: 0,
        blame: None,
    };
    let (mut at, mut has_input) = (0, false);
    for (begin, body) in tokens(text) {
        engine.text(&text[at..begin])?;
        at = begin + body.len() + 4;
        match call(body) {
            Some(TemplateCall::Plain) => engine.plain_result(),
            Some(TemplateCall::Unknown) => engine.unknown_result()?,
            None if body == "input" => {
                has_input = true;
                engine.input()?;
            }
            None => match variables.get_key_value(body) {
                Some((name, value)) => engine.value(name, value)?,
                None => engine.missing(body)?,
            },
        }
    }
    engine.text(&text[at..])?;
    if !has_input {
        // Fabric appends a line break.
        engine.text(if text.ends_with('\n') { "" } else { "\n" })?;
        engine.input()?;
    }
    Ok(())
}

/// What is known about the output of a plugin or extension call.
enum TemplateCall {
    /// Without braces; may be empty.
    Plain,
    /// Anything, including tokens.
    Unknown,
}

/// The kind of call of a token: `plugin:NAMESPACE:OPERATION` or `ext:NAME:OPERATION`, both with an optional `:VALUE`.
/// `None` for anything else, which is a variable to Fabric.
fn call(body: &str) -> Option<TemplateCall> {
    let (kind, rest) = body.split_once(':')?;
    let mut parts = rest.splitn(3, ':');
    let (name, operation) = (parts.next()?, parts.next()?);
    if name.is_empty() || operation.is_empty() || parts.next() == Some("") {
        return None;
    }
    match (kind, name, operation) {
        ("plugin", "datetime" | "text", _)
        | ("plugin", "sys", "hostname" | "user" | "os" | "arch") => Some(TemplateCall::Plain),
        ("plugin" | "ext", ..) => Some(TemplateCall::Unknown),
        _ => None,
    }
}

/// Output of unknown content could put its own braces around the names of variables and the input.
fn no_braces(
    pattern: &Pattern,
    body: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> Result<(), Error> {
    let with_braces = variables
        .iter()
        .find(|(_, value)| value.contains(['{', '}']));
    let what = match with_braces {
        Some((name, _)) => format!("`{}` must not contain braces", shown(name)),
        None if is_template(input) => {
            format!("`input_text` must not contain `{{{{` or `{SENTINEL}`")
        }
        None => return Ok(()),
    };
    let call = body.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
    Err(refused(format!(
        "{what} with the pattern {}: it has the call `{{{{{call}:…}}}}`, and Fabric runs what that gives as a template \
         again. Leave them out, or use another pattern.",
        title(pattern)
    )))
}

/// The possible states of a token `{{…}}`: a bit set, because the output of a call is unknown.
type States = u8;
/// Not begun.
const IDLE: States = 1;
/// `{`
const ONE: States = 2;
/// `{{`
const TWO: States = 4;
/// `{{` and at least one character.
const BODY: States = 8;
/// All but the last brace.
const CLOSING: States = 16;
const ANY: States = IDLE | ONE | TWO | BODY | CLOSING;

/// The states after `byte`, and whether a token may be complete.
fn step(states: States, byte: u8) -> (States, bool) {
    let (mut next, mut is_token) = (0, false);
    let mut go = |from: States, to: States| {
        if states & from != 0 {
            next |= to;
        }
    };
    match byte {
        b'{' => {
            go(IDLE | BODY | CLOSING, ONE);
            go(ONE | TWO, TWO);
        }
        b'}' => {
            go(BODY, CLOSING);
            go(ANY ^ BODY, IDLE);
            is_token = states & CLOSING != 0;
        }
        _ => {
            go(TWO | BODY, BODY);
            go(IDLE | ONE | CLOSING, IDLE);
        }
    }
    (next, is_token)
}

/// Whose text the current token contains.
#[derive(Clone, Copy)]
enum Blame<'a> {
    Variable(&'a str),
    Input,
}

/// Scans the result of one pass without building it, to find tokens and sentinels that form across pieces.
struct Follow<'a> {
    pattern: &'a Pattern,
    input: &'a str,
    /// Whether the size is limited: not without variables, when it is the pattern's own.
    limited: bool,
    /// Tokens that began in known text.
    known: States,
    /// Tokens that may have begun in a call's output.
    unknown: States,
    /// Length of the sentinel prefix at the end of the text.
    held: usize,
    /// Bytes so far.
    size: usize,
    blame: Option<Blame<'a>>,
}

impl<'a> Follow<'a> {
    /// A literal part of the pattern.
    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.grow(text.len(), None)?;
        self.read(text)
    }

    fn value(&mut self, name: &'a str, value: &str) -> Result<(), Error> {
        self.grow(value.len(), Some(name))?;
        self.blame = Some(Blame::Variable(name));
        self.read(value)
    }

    /// The sentinel stands for the input until all tokens are replaced.
    fn input(&mut self) -> Result<(), Error> {
        if self.held == 0 {
            self.blame = Some(Blame::Input);
        }
        self.read(SENTINEL)
    }

    /// A variable without a value: Fabric fails here, and the token stays.
    fn missing(&mut self, body: &str) -> Result<(), Error> {
        self.grow(body.len() + 4, None)?;
        (self.known, self.unknown, self.held, self.blame) = (IDLE, 0, 0, None);
        Ok(())
    }

    fn plain_result(&mut self) {
        self.known |= step(self.known, b' ').0;
        self.unknown |= step(self.unknown, b' ').0;
    }

    fn unknown_result(&mut self) -> Result<(), Error> {
        if self.known != IDLE {
            return Err(self.joined());
        }
        self.unknown = ANY;
        Ok(())
    }

    fn read(&mut self, piece: &str) -> Result<(), Error> {
        for (i, byte) in piece.bytes().enumerate() {
            let (known, is_known) = step(self.known, byte);
            let (unknown, is_unknown) = step(self.unknown, byte);
            if is_known || is_unknown {
                return Err(self.joined());
            }
            (self.known, self.unknown) = (known, unknown);
            if self.hold(byte) {
                if i + 1 < SENTINEL.len() {
                    return Err(self.joined());
                }
                self.grow(self.input.len(), None)?;
            }
            if (self.known | self.unknown) == IDLE && self.held == 0 {
                self.blame = None;
            }
        }
        Ok(())
    }

    /// Matches the sentinel. True after its last byte.
    fn hold(&mut self, byte: u8) -> bool {
        let sentinel = SENTINEL.as_bytes();
        while sentinel.get(self.held) != Some(&byte) {
            if self.held == 0 {
                return false;
            }
            // It begins with two underscores, and no other proper suffix but an underscore is a prefix of it.
            self.held = usize::from(self.held > 1 && sentinel.get(self.held - 1) == Some(&b'_'));
        }
        self.held += 1;
        let is_whole = self.held == sentinel.len();
        if is_whole {
            // The next sentinel may share two underscores.
            self.held = 2;
        }
        is_whole
    }

    fn grow(&mut self, by: usize, variable: Option<&str>) -> Result<(), Error> {
        self.size = self.size.saturating_add(by);
        if !self.limited || self.size <= MAX_MESSAGE {
            return Ok(());
        }
        let what = variable.map_or_else(
            || "the input or the variables".to_owned(),
            |name| format!("`{}`", shown(name)),
        );
        Err(refused(format!(
            "With these variables and this input the pattern {} becomes longer than {} MiB, the limit: shorten {what}.",
            title(self.pattern),
            MAX_MESSAGE >> 20
        )))
    }

    fn joined(&self) -> Error {
        match self.blame {
            Some(blame) => blame.joined(self.pattern),
            None => refused(format!(
                "The pattern {} has a plugin or extension call between braces that could make another call of what it \
                 gives. Use another pattern, or have this one changed.",
                title(self.pattern)
            )),
        }
    }
}

impl Blame<'_> {
    fn joined(self, pattern: &Pattern) -> Error {
        let pattern = title(pattern);
        refused(match self {
            Blame::Variable(name) => format!(
                "`{}` would join with the text around it in the pattern {pattern} into a template that is not the \
                 pattern's own, and Fabric would run it. Give another value, without braces at its start and end, or use \
                 another pattern.",
                shown(name)
            ),
            Blame::Input => format!(
                "The pattern {pattern} has its input inside of a template call, so Fabric would run what `input_text` \
                 says. Use another pattern, or have this one changed."
            ),
        })
    }
}

/// The pattern's name as Fabric returns it: untrusted, like its text.
fn title(pattern: &Pattern) -> String {
    text::shown(&pattern.name, MAX_NAME)
}

/// A variable as the other errors name it.
fn shown(name: &str) -> String {
    format!("variables.{}", name.escape_debug())
}

fn refused(detail: String) -> Error {
    Error::new(Kind::InvalidRequest, detail)
}

#[cfg(test)]
mod engine;
#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;
