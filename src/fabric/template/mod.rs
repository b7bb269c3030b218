//! Protects Fabric's template engine from injection: nothing that a caller sends may become a template call.
//!
//! Fabric replaces every `{{…}}` of a pattern and scans the result again, until none is left. So a value can form a new
//! token together with the text around it, and since 1.4.323 the input can too:
//! ```text
//!   nested    {{ext:a:b:{{x}}}}   a token remains when each one is replaced by a letter: refused
//!   touching  {{{x}}} {{x}}{{y}}  a token beside a brace or another token: values without braces, and not empty
//!   plain     Say {{x}}.          any value without `{{`
//! ```
//! The input is put in when all tokens are gone, so it may contain anything, except in a nested pattern and next to a
//! call whose output may contain tokens.
//!
//! In scope: what the engine does with one pattern, its variables and the input. Not in scope: reading the pattern
//! (`routes`), checks of a variable alone (`names`: no `{{`, no sentinel), and braces in the output of plugin calls, which
//! comes from Fabric's host. The pattern can change between check and run, but whoever can change it needs no injection.

use std::collections::BTreeMap;

use super::types::can_be_given;
use super::{Error, Kind, Pattern};
use crate::config::{MAX_MESSAGE, MAX_NAME};
use crate::text;

/// Fabric's placeholder for the input during replacement.
pub(super) const SENTINEL: &str = "__FABRIC_INPUT_SENTINEL_TOKEN__";

const BRACES: [char; 2] = ['{', '}'];
/// The place of the input.
const INPUT: &str = "{{input}}";

/// Every token of `text` that Fabric's expression `{{([^{}]+)}}` finds: its offset and its content. Tokens cannot
/// overlap, and the text between them contains none.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = text.find('{').unwrap_or(text.len());
    text[start..].split(BRACES).filter_map(move |run| {
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

/// Refuses variables and input that could become template code in this pattern. `field` is the argument that holds the
/// variables.
///
/// # Errors
/// [`Kind::InvalidRequest`], naming the variable, or else the pattern, and what to do.
pub(crate) fn check(
    pattern: &Pattern,
    field: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> Result<(), Error> {
    let text = pattern.system_prompt.as_str();
    // As Fabric returns it: untrusted, like its text.
    let title = text::shown(&pattern.name, MAX_NAME);
    let refused = |detail| Err(Error::new(Kind::InvalidRequest, detail));
    let shape = Shape::of(text);
    if shape == Shape::Nested {
        return refused(format!(
            "The pattern {title} has a template call inside another one or beside its braces, \
             so Fabric could run what `{field}` or `input_text` say as a template. Use \
             another pattern, or have this one changed."
        ));
    }
    let mut values = variables.iter();
    if shape == Shape::Touching
        && let Some((name, _)) =
            values.find(|(_, value)| value.is_empty() || value.contains(BRACES))
    {
        return refused(format!(
            "`{field}.{}` must not be empty or contain braces with the pattern {title}: Fabric \
             could run it as a template, together with the text beside it or with a call's \
             output. Give another value, or use another pattern.",
            name.escape_debug()
        ));
    }
    if is_template(input)
        && let Some((_, body)) = tokens(text).find(|(_, body)| has_unknown_output(body))
    {
        let call = body.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        return refused(format!(
            "`input_text` must not contain `{{{{` or `{SENTINEL}` with the pattern {title}, which \
             has the call `{{{{{call}:…}}}}`, whose output Fabric runs as a template again. Leave \
             them out, or use another pattern."
        ));
    }
    // Without variables the size is the pattern's own.
    if variables.is_empty() {
        return Ok(());
    }
    let own = with_input(text).replace(INPUT, SENTINEL);
    let rendered = filled(&own, |name| variables.get(name).map(String::as_str));
    let places = sentinels(&rendered);
    let size = rendered.len().saturating_sub(places * SENTINEL.len());
    if size.saturating_add(places.saturating_mul(input.len())) > MAX_MESSAGE {
        return refused(format!(
            "With `{field}` and this input, the pattern {title} becomes longer than {} MiB, \
             which is the limit: shorten the input or the variables.",
            MAX_MESSAGE >> 20
        ));
    }
    if places > sentinels(&own) {
        return refused(format!(
            "The values of `{field}` form `{SENTINEL}` in the pattern {title}, and Fabric would \
             put the input there. Give other values."
        ));
    }
    Ok(())
}

/// The text with a place for the input: Fabric puts it at the end if there is none.
fn with_input(text: &str) -> String {
    let mut text = text.to_owned();
    if !text.contains(INPUT) {
        text += if text.ends_with('\n') { "" } else { "\n" };
        text += INPUT;
    }
    text
}

/// Whether [`rendered`] gives what Fabric gives: the pattern calls no plugins, nothing in it could call one, and it has no
/// part of the sentinel.
pub(super) fn is_plain(text: &str) -> bool {
    let is_value = |body: &str| body == "input" || can_be_given(body);
    let has_sentinel = text.contains("SENTINEL_TOKEN");
    !has_sentinel
        && Shape::of(text) != Shape::Nested
        && tokens(text).all(|(_, body)| is_value(body))
}

/// A plain pattern with variables and input put in, each token once. Their values are not looked at again.
///
/// # Errors
/// [`Kind::InvalidRequest`]: the pattern is not plain, or the text exceeds [`MAX_MESSAGE`]. [`Kind::FabricInternal`], as
/// from a Fabric and in its words: a variable is missing.
pub(crate) fn rendered(
    pattern: &str,
    text: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> Result<String, Error> {
    if !is_plain(text) {
        return Err(not_plain(pattern));
    }
    let own = with_input(text);
    let value = |name: &str| match name {
        "input" => Some(input),
        _ => variables.get(name).map(String::as_str),
    };
    if let Some((_, missing)) = tokens(&own).find(|(_, name)| value(name).is_none()) {
        let detail = format!("missing required variable: {missing}");
        return Err(Error::new(Kind::FabricInternal, detail));
    }
    let rendered = filled(&own, value);
    if rendered.len() > MAX_MESSAGE {
        let detail = format!(
            "With this input, the pattern becomes longer than {} MiB, which is the limit: shorten the input.",
            MAX_MESSAGE >> 20
        );
        return Err(Error::new(Kind::InvalidRequest, detail));
    }
    Ok(rendered)
}

/// The error for a pattern that only a Fabric can render.
pub(super) fn not_plain(pattern: &str) -> Error {
    let detail = format!(
        "The pattern {} has template code between `{{{{` and `}}}}`, which only Fabric can run, \
         and this server reads folders without Fabric. Read its text with \
         fabric_get_pattern_details and follow it yourself.",
        text::shown(pattern, MAX_NAME)
    );
    Error::new(Kind::InvalidRequest, detail)
}

/// What a pattern could make of the values in its tokens' places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Touching,
    Nested,
}

impl Shape {
    fn of(text: &str) -> Shape {
        let letters = filled(text, |_| Some("a"));
        let holds_input = tokens(text).any(|(_, body)| body.contains(SENTINEL));
        let is_beside = tokens(text).any(|(begin, body)| {
            let (before, after) = (&text[..begin], &text[begin + body.len() + 4..]);
            before.ends_with(BRACES) || after.starts_with(BRACES)
        });
        // Two braces that open no token could open one that a value closes.
        let touches = is_beside || letters.contains("{{");
        // A call's output may also open one that the pattern closes, or be empty.
        let is_unknown = tokens(text).any(|(_, body)| has_unknown_output(body));
        let is_joined = is_unknown && (touches || letters.contains("}}"));
        if holds_input || is_joined || tokens(&letters).next().is_some() {
            Shape::Nested
        } else if touches || is_unknown {
            Shape::Touching
        } else {
            Shape::Plain
        }
    }
}

/// Whether a call's output may hold braces or be empty: not that of text, date and host functions.
fn has_unknown_output(body: &str) -> bool {
    const KNOWN: [&str; 3] = ["text:", "datetime:", "sys:"];
    body.starts_with("ext:")
        || body.strip_prefix("plugin:").is_some_and(|call| {
            !KNOWN.iter().any(|known| call.starts_with(known))
                || call.starts_with("sys:env")
                || call.starts_with("text:trim")
        })
}

/// The text with what `value` gives in the place of each token; `None` leaves the token.
fn filled<'a>(text: &'a str, value: impl Fn(&'a str) -> Option<&'a str>) -> String {
    let (mut filled, mut at) = (String::new(), 0);
    for (begin, body) in tokens(text) {
        let end = begin + body.len() + 4;
        filled += &text[at..begin];
        filled += value(body).unwrap_or(&text[begin..end]);
        at = end;
        if filled.len() > MAX_MESSAGE {
            break;
        }
    }
    filled + &text[at..]
}

/// How often the sentinel is in `text`, also where two share their underscores.
fn sentinels(text: &str) -> usize {
    let ends = text.match_indices("SENTINEL_TOKEN__");
    ends.filter(|(at, end)| text[..at + end.len()].ends_with(SENTINEL))
        .count()
}

#[cfg(test)]
mod against_fabric;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod tests;
