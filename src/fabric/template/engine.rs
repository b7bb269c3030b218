//! A model of Fabric's template engine, in two versions, that tracks the origin of each byte.

use std::collections::BTreeMap;

use super::SENTINEL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineVersion {
    /// Up to 1.4.322: the engine never sees the input.
    V300,
    /// From 1.4.323 on: the input replaces the sentinel inside a token.
    V470,
}

pub(super) const VERSIONS: [EngineVersion; 2] = [EngineVersion::V300, EngineVersion::V470];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rendering {
    Done(String),
    Failed,
    /// Not finished after many rounds.
    Endless,
    /// Longer than anything the guard accepts.
    TooLong,
}

pub(super) struct EngineRun {
    pub(super) outcome: Rendering,
    /// Tokens that were replaced, or would have been, and come neither from the pattern nor from a single call's
    /// output.
    pub(super) foreign: Vec<String>,
    /// Sentinels that come from neither.
    pub(super) glued: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// The byte at this offset of the pattern.
    Pattern(usize),
    /// Part of the input sentinel.
    Sentinel,
    Value,
    Input,
    Call,
}

#[derive(Clone, Copy, Debug)]
struct Byte(u8, From);

type MarkedText = Vec<Byte>;

fn text(from: From, bytes: &str) -> MarkedText {
    bytes.bytes().map(|byte| Byte(byte, from)).collect()
}

fn plain(text: &[Byte]) -> String {
    String::from_utf8(text.iter().map(|byte| byte.0).collect()).unwrap()
}

fn is_at(text: &[Byte], at: usize, wanted: &str) -> bool {
    text.len() >= at + wanted.len() && text[at..].iter().zip(wanted.bytes()).all(|(a, b)| a.0 == b)
}

/// Go's `FindAllStringSubmatch` of `\{\{([^{}]+)\}\}`.
fn matches(text: &[Byte]) -> Vec<MarkedText> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 4 < text.len() {
        let body = text[at..].iter().skip(2);
        let body = body
            .take_while(|byte| !matches!(byte.0, b'{' | b'}'))
            .count();
        if is_at(text, at, "{{") && body > 0 && is_at(text, at + 2 + body, "}}") {
            found.push(text[at..at + body + 4].to_vec());
            at += body + 4;
        } else {
            at += 1;
        }
    }
    found
}

/// Go's `strings.ReplaceAll`; `seen` is called with every replaced match.
fn replace_all(
    content: &MarkedText,
    old: &str,
    new: &MarkedText,
    mut seen: impl FnMut(&[Byte]),
) -> MarkedText {
    let mut result = MarkedText::new();
    let mut at = 0;
    while at < content.len() {
        if is_at(content, at, old) {
            seen(&content[at..at + old.len()]);
            result.extend(new);
            at += old.len();
        } else {
            result.push(content[at]);
            at += 1;
        }
    }
    result
}

/// Is it a contiguous part of the pattern, or of one call's output?
fn is_own(token: &[Byte]) -> bool {
    let is_next = |pair: &[Byte]| match (pair[0].1, pair[1].1) {
        (From::Pattern(a), From::Pattern(b)) => a + 1 == b,
        (From::Call, From::Call) | (From::Sentinel, From::Sentinel) => true,
        _ => false,
    };
    token.windows(2).all(is_next) && !matches!(token[0].1, From::Value | From::Input)
}

/// `{{KIND:([^:]+):([^:]+)(?::([^}]+))?}}`
fn triple<'a>(body: &'a str, kind: &str) -> Option<[&'a str; 3]> {
    let parts: Vec<&str> = body.strip_prefix(kind)?.splitn(3, ':').collect();
    match parts[..] {
        [a, b] if !a.is_empty() && !b.is_empty() => Some([a, b, ""]),
        [a, b, c] if !a.is_empty() && !b.is_empty() && !c.is_empty() => Some([a, b, c]),
        _ => None,
    }
}

/// The output of a plugin (`true`) or an extension call, by namespace, operation and value.
pub(super) type Calls<'a> = &'a mut dyn FnMut(bool, [&str; 3]) -> Option<String>;

/// `PatternsEntity.GetApplyVariables`.
pub(super) fn apply(
    version: EngineVersion,
    raw: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
    calls: Calls<'_>,
) -> EngineRun {
    let mut pattern = raw.to_owned();
    if !pattern.contains("{{input}}") {
        if !pattern.ends_with('\n') {
            pattern.push('\n');
        }
        pattern.push_str("{{input}}");
    }
    let content = pattern.bytes().enumerate();
    let content: MarkedText = content
        .map(|(at, byte)| Byte(byte, From::Pattern(at)))
        .collect();
    let content = replace_all(
        &content,
        "{{input}}",
        &text(From::Sentinel, SENTINEL),
        |_| (),
    );
    let mut run = EngineRun {
        outcome: Rendering::Failed,
        foreign: Vec::new(),
        glued: 0,
    };
    match rounds(version, content, variables, input, calls, &mut run) {
        Err(outcome) => run.outcome = outcome,
        Ok(content) => {
            let done = replace_all(&content, SENTINEL, &text(From::Input, input), |place| {
                run.glued += usize::from(!is_own(place));
            });
            run.outcome = Rendering::Done(plain(&done));
        }
    }
    run
}

/// `ApplyTemplate`.
fn rounds(
    version: EngineVersion,
    mut content: MarkedText,
    variables: &BTreeMap<String, String>,
    input: &str,
    calls: Calls<'_>,
    run: &mut EngineRun,
) -> Result<MarkedText, Rendering> {
    for _ in 0..40 {
        let found = matches(&content);
        if found.is_empty() {
            return Ok(content);
        }
        for token in found {
            let full = plain(&token);
            let body = &full[2..full.len() - 2];
            let mut check = |token: &[Byte]| {
                if !is_own(token) {
                    run.foreign.push(plain(token));
                }
            };
            check(&token);
            let new =
                replacement(version, body, variables, input, calls).ok_or(Rendering::Failed)?;
            content = replace_all(&content, &full, &new, check);
            if content.len() > 9 << 20 {
                return Err(Rendering::TooLong);
            }
        }
    }
    Err(Rendering::Endless)
}

fn replacement(
    version: EngineVersion,
    body: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
    calls: Calls<'_>,
) -> Option<MarkedText> {
    let called = |given: Option<String>| Some(text(From::Call, &given?));
    if let Some(parts) = triple(body, "plugin:") {
        return called(calls(true, parts));
    }
    if let Some([name, operation, value]) = triple(body, "ext:") {
        let filled = if version == EngineVersion::V470 {
            value.replace(SENTINEL, input)
        } else {
            value.to_owned()
        };
        return called(calls(false, [name, operation, &filled]));
    }
    match (version, body) {
        (EngineVersion::V300, "input") => Some(MarkedText::new()),
        (EngineVersion::V470, "input" | SENTINEL) => Some(text(From::Input, input)),
        _ => variables.get(body).map(|value| text(From::Value, value)),
    }
}
