//! A tool's arguments: a table from which its schema, the checks and `--list-tools` follow.
//!
//! Each is taken once, with its type and bounds; any left over is an error. Every refusal names the argument, says what
//! was wrong and what is allowed. `null` counts as left out: models send it for optional arguments.

use std::collections::BTreeMap;

use crate::config::{MAX_STRING, MAX_VARIABLES};
use crate::fabric::{Error, Name, names};
use crate::protocol::{Node, jsonrpc};
use crate::text::shown;

use super::refused;

/// One argument of a tool.
pub(crate) struct Argument {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: ArgumentKind,
    /// What it is for.
    pub(crate) description: &'static str,
    /// Must it be given?
    pub(crate) required: bool,
}

/// What an argument takes.
#[derive(Clone, Copy)]
pub(crate) enum ArgumentKind {
    /// A string.
    Text,
    /// A truth value.
    Flag,
    /// A number within these bounds.
    Number(i8, i8),
    /// A whole number within these bounds.
    Integer(u64, u64),
    /// A list of at most so many strings.
    Texts(usize),
    /// An object of strings.
    Variables,
    /// A list of at most so many objects with these arguments, or of the first one's value alone.
    Steps(usize, &'static [Argument]),
}

impl Argument {
    /// An argument that may be left out.
    pub(crate) const fn new(
        name: &'static str,
        kind: ArgumentKind,
        description: &'static str,
    ) -> Argument {
        Argument {
            name,
            kind,
            description,
            required: false,
        }
    }

    /// An argument that must be given.
    pub(crate) const fn required(
        name: &'static str,
        kind: ArgumentKind,
        description: &'static str,
    ) -> Argument {
        Argument {
            required: true,
            ..Argument::new(name, kind, description)
        }
    }
}

impl ArgumentKind {
    /// Its JSON type.
    pub(crate) fn json_type(self) -> &'static str {
        match self {
            ArgumentKind::Text => "string",
            ArgumentKind::Flag => "boolean",
            ArgumentKind::Number(..) => "number",
            ArgumentKind::Integer(..) => "integer",
            ArgumentKind::Texts(_) | ArgumentKind::Steps(..) => "array",
            ArgumentKind::Variables => "object",
        }
    }

    /// What its schema says beside type and description.
    fn constraints(self) -> String {
        match self {
            ArgumentKind::Text | ArgumentKind::Flag => String::new(),
            ArgumentKind::Number(least, most) => format!(r#""minimum":{least},"maximum":{most},"#),
            ArgumentKind::Integer(least, most) => format!(r#""minimum":{least},"maximum":{most},"#),
            ArgumentKind::Texts(most) => {
                format!(r#""items":{{"type":"string"}},"maxItems":{most},"#)
            }
            ArgumentKind::Variables => r#""additionalProperties":{"type":"string"},"#.to_owned(),
            ArgumentKind::Steps(most, step) => {
                format!(r#""maxItems":{most},"items":{},"#, schema(step))
            }
        }
    }
}

/// The JSON Schema of these arguments: plain, for picky clients, in the order of the table. Text, as a parsed map would
/// lose that order, which clients use for their forms.
pub(crate) fn schema(arguments: &[Argument]) -> String {
    let mut out = br#"{"type":"object","properties":{"#.to_vec();
    for (at, argument) in arguments.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"," });
        jsonrpc::write_json(&mut out, argument.name);
        let (kind, constraints) = (argument.kind.json_type(), argument.kind.constraints());
        out.extend_from_slice(
            format!(r#":{{"type":"{kind}",{constraints}"description":"#).as_bytes(),
        );
        jsonrpc::write_json(&mut out, argument.description);
        out.push(b'}');
    }
    out.push(b'}');
    let required: Vec<&str> = arguments
        .iter()
        .filter(|argument| argument.required)
        .map(|argument| argument.name)
        .collect();
    if !required.is_empty() {
        out.extend_from_slice(br#","required":"#);
        jsonrpc::write_json(&mut out, &required);
    }
    out.extend_from_slice(br#","additionalProperties":false}"#);
    String::from_utf8(out).unwrap_or_default()
}

/// The arguments of a call not taken yet.
pub(crate) struct Arguments<'a> {
    tool: &'static str,
    known: &'static [Argument],
    /// Prefix of names in refusals: empty, or the place in a list, such as `then[0].`.
    place: String,
    left: Vec<(&'a str, &'a Node<'a>)>,
}

impl<'a> Arguments<'a> {
    /// The `arguments` of a call of `tool`, which knows these. Absent and `null` count as `{}`.
    ///
    /// # Errors
    /// Something else than an object.
    pub(super) fn read(
        tool: &'static str,
        known: &'static [Argument],
        node: Option<&'a Node<'a>>,
    ) -> Result<Arguments<'a>, Error> {
        let left = match node {
            None | Some(Node::Null) => Vec::new(),
            Some(Node::Object(members)) => members
                .iter()
                .map(|(name, member)| (name.as_ref(), member))
                .collect(),
            Some(_) => return Err(refused("`arguments` must be an object.")),
        };
        Ok(Arguments {
            tool,
            known,
            place: String::new(),
            left,
        })
    }

    /// The name of an argument as refusals have it.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    fn take(&mut self, name: &str) -> Option<&'a Node<'a>> {
        let at = self.left.iter().position(|(known, _)| *known == name)?;
        let (_, node) = self.left.swap_remove(at);
        Some(node).filter(|node| **node != Node::Null)
    }

    /// What the table says of an argument.
    fn kind(&self, name: &str) -> Option<ArgumentKind> {
        self.known
            .iter()
            .find(|argument| argument.name == name)
            .map(|argument| argument.kind)
    }

    fn wrong_type(&self, name: &str, wanted: &str, found: &Node<'_>) -> Error {
        self.about(name, wrong_type(&self.path(name), wanted, found))
    }

    /// The same error, with the argument that it is about, for the log.
    pub(super) fn about(&self, name: &str, error: Error) -> Error {
        error.about(self.path(name))
    }

    /// A text of any length (the message it came in was limited); empty if left out.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Error> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Node::Text(text)) => Ok(text.clone().into_owned()),
            Some(other) => Err(self.wrong_type(name, "a string", other)),
        }
    }

    /// A string of at most [`MAX_STRING`] bytes; `None` if left out or empty.
    pub(super) fn string(&mut self, name: &str) -> Result<Option<String>, Error> {
        let text = self.text(name)?;
        if text.len() > MAX_STRING {
            let error = too_long(&self.path(name), text.len());
            return Err(self.about(name, error));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// A name that Fabric may safely use in a path; `None` if left out or empty.
    pub(super) fn name(&mut self, name: &str) -> Result<Option<Name>, Error> {
        self.string(name)?
            .map(|value| Name::parse(&self.path(name), &value))
            .transpose()
            .map_err(|error| self.about(name, error))
    }

    /// The pattern to work on.
    pub(super) fn pattern(&mut self) -> Result<Name, Error> {
        self.name("pattern_name")?.ok_or_else(|| {
            let (name, tool) = (self.path("pattern_name"), self.tool);
            self.about(
                "pattern_name",
                refused(format!(
                    "`{name}` is missing: {tool} needs the name of a pattern, as fabric_list_patterns gives it."
                )),
            )
        })
    }

    /// The name of a model or a vendor; empty if left out, which lets Fabric choose.
    pub(super) fn model(&mut self, name: &str) -> Result<String, Error> {
        self.string(name)?.map_or(Ok(String::new()), |value| {
            names::model(&self.path(name), &value).map_err(|error| self.about(name, error))
        })
    }

    /// A truth value; false if left out.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(false),
            Some(Node::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong_type(name, "true or false", other)),
        }
    }

    /// A number within the bounds of the table.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<f64>, Error> {
        let (least, most) = match self.kind(name) {
            Some(ArgumentKind::Number(least, most)) => (least, most),
            _ => (i8::MIN, i8::MAX),
        };
        let allowed = format!("a number from {least} to {most}");
        match self.take(name) {
            None => Ok(None),
            Some(Node::Number(number)) => match number.as_f64() {
                Some(value) if (f64::from(least)..=f64::from(most)).contains(&value) => {
                    Ok(Some(value))
                }
                _ => Err(self.out_of_bounds(name, number, &allowed)),
            },
            Some(other) => Err(self.wrong_type(name, &allowed, other)),
        }
    }

    /// A whole number within the bounds of the table.
    pub(super) fn integer(&mut self, name: &str) -> Result<Option<u64>, Error> {
        let (least, most) = match self.kind(name) {
            Some(ArgumentKind::Integer(least, most)) => (least, most),
            _ => (0, u64::MAX),
        };
        let allowed = format!("a whole number from {least} to {most}");
        match self.take(name) {
            None => Ok(None),
            Some(Node::Number(number)) => {
                // JavaScript knows one kind of number: 5.0 is 5.
                let whole = number.as_u64().or_else(|| {
                    number
                        .as_f64()
                        .filter(|f| f.fract() == 0.0 && *f >= 0.0)
                        .map(|f| f as u64)
                });
                match whole {
                    Some(value) if (least..=most).contains(&value) => Ok(Some(value)),
                    _ => Err(self.out_of_bounds(name, number, &allowed)),
                }
            }
            Some(other) => Err(self.wrong_type(name, &allowed, other)),
        }
    }

    fn out_of_bounds(&self, name: &str, number: &serde_json::Number, allowed: &str) -> Error {
        let path = self.path(name);
        self.about(
            name,
            refused(format!("`{path}` is {number}: it must be {allowed}.")),
        )
    }

    /// Pattern variables, names and values checked by Fabric's guard.
    pub(super) fn variables(&mut self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let members = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Node::Object(members)) => members,
            Some(other) => return Err(self.wrong_type(name, "an object of strings", other)),
        };
        let mut variables = BTreeMap::new();
        for (key, value) in members.iter().take(MAX_VARIABLES + 1) {
            match value {
                Node::Text(text) => variables.insert(key.to_string(), text.to_string()),
                other => {
                    let place = format!("{}.{key}", self.path(name));
                    return Err(self.about(name, wrong_type(&place, "a string", other)));
                }
            };
        }
        names::variables(&variables).map_err(|error| {
            let error = match self.place.as_str() {
                "" => error,
                place => refused(format!(
                    "In {}: {}",
                    place.trim_end_matches('.'),
                    error.detail
                )),
            };
            self.about(name, error)
        })?;
        Ok(variables)
    }

    /// A list of strings, of at most [`MAX_STRING`] bytes each.
    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        for (i, item) in self.items(name, "a list of strings")?.iter().enumerate() {
            match item {
                Node::Text(text) if text.len() <= MAX_STRING => texts.push(text.to_string()),
                Node::Text(text) => {
                    let place = format!("{name}[{i}]");
                    return Err(too_long(&place, text.len()).about(place));
                }
                other => {
                    let place = format!("{name}[{i}]");
                    return Err(wrong_type(&place, "a string", other).about(place));
                }
            }
        }
        Ok(texts)
    }

    /// A list of steps, each to be read like the arguments of a call. A string is a step of that pattern.
    pub(super) fn steps(&mut self, name: &str) -> Result<Vec<Arguments<'a>>, Error> {
        let known = match self.kind(name) {
            Some(ArgumentKind::Steps(_, known)) => known,
            _ => &[],
        };
        let mut steps = Vec::new();
        for (i, item) in self.items(name, "a list of steps")?.iter().enumerate() {
            let place = format!("{name}[{i}].");
            let left = match item {
                Node::Text(_) => vec![("pattern_name", item)],
                Node::Object(members) => members
                    .iter()
                    .map(|(name, member)| (name.as_ref(), member))
                    .collect(),
                other => {
                    let place = place.trim_end_matches('.');
                    let wanted = "a pattern's name or an object";
                    return Err(wrong_type(place, wanted, other).about(place));
                }
            };
            steps.push(Arguments {
                tool: self.tool,
                known,
                place,
                left,
            });
        }
        Ok(steps)
    }

    fn items(&mut self, name: &str, wanted: &str) -> Result<&'a [Node<'a>], Error> {
        let limit = match self.kind(name) {
            Some(ArgumentKind::Texts(most) | ArgumentKind::Steps(most, _)) => most,
            _ => 0,
        };
        match self.take(name) {
            None => Ok(&[]),
            Some(Node::List(items)) if items.len() <= limit => Ok(items),
            Some(Node::List(items)) => Err(self.about(
                name,
                refused(format!(
                    "`{name}` has {} entries: at most {limit} are allowed.",
                    items.len()
                )),
            )),
            Some(other) => Err(self.wrong_type(name, wanted, other)),
        }
    }

    /// Refuses arguments that the tool does not know.
    pub(super) fn end(self) -> Result<(), Error> {
        let is_known = |name: &str| self.known.iter().any(|argument| argument.name == name);
        let mut unknown: Vec<&str> = self.left.iter().map(|(name, _)| *name).collect();
        unknown.retain(|name| !is_known(name));
        // The same one however they are ordered.
        let Some(name) = unknown.iter().min() else {
            return Ok(());
        };
        let known: Vec<&str> = self.known.iter().map(|argument| argument.name).collect();
        let takes = if known.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it takes {}", known.join(", "))
        };
        let error = refused(format!(
            "`{}{}` is not an argument of {}: {takes}.",
            self.place,
            shown(name, 64),
            self.tool
        ));
        Err(match self.place.as_str() {
            "" => error,
            place => error.about(place.trim_end_matches('.')),
        })
    }
}

fn too_long(name: &str, length: usize) -> Error {
    refused(format!(
        "`{name}` is {length} bytes long: at most {MAX_STRING} are allowed."
    ))
}

fn wrong_type(name: &str, wanted: &str, found: &Node<'_>) -> Error {
    let found = match found {
        Node::Null => "null",
        Node::Bool(_) => "a truth value",
        Node::Number(_) => "a number",
        Node::Text(_) => "a string",
        Node::List(_) => "a list",
        Node::Object(_) => "an object",
    };
    refused(format!(
        "`{}` must be {wanted}, not {found}.",
        shown(name, 128)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_ATTACHMENTS;
    use serde_json::{Value, json};

    const KNOWN: &[Argument] = &[
        Argument::new("x", ArgumentKind::Text, ""),
        Argument::new("n", ArgumentKind::Number(0, 2), ""),
        Argument::new("i", ArgumentKind::Integer(1, 9), ""),
        Argument::new("l", ArgumentKind::Texts(MAX_ATTACHMENTS), ""),
    ];

    fn node(value: Value) -> Node<'static> {
        match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(value),
            Value::Number(number) => Node::Number(number),
            Value::String(text) => Node::Text(text.into()),
            Value::Array(items) => Node::List(items.into_iter().map(node).collect()),
            Value::Object(members) => Node::Object(
                members
                    .into_iter()
                    .map(|(name, member)| (name.into(), node(member)))
                    .collect(),
            ),
        }
    }

    fn arguments(value: Value) -> Arguments<'static> {
        let node = Box::leak(Box::new(node(value)));
        Arguments::read("tool", KNOWN, Some(node)).unwrap()
    }

    fn detail<T>(result: Result<T, Error>) -> String {
        match result {
            Ok(_) => panic!("it was taken"),
            Err(error) => error.detail,
        }
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let mut a = arguments(json!({"s": null, "f": null, "n": null, "l": null, "v": null}));
        assert_eq!(a.string("s").unwrap(), None);
        assert!(!a.flag("f").unwrap());
        assert_eq!(a.number("n").unwrap(), None);
        assert!(a.texts("l").unwrap().is_empty());
        assert!(a.variables("v").unwrap().is_empty());
        a.end().unwrap();
        assert!(
            Arguments::read("tool", KNOWN, None)
                .unwrap()
                .left
                .is_empty()
        );
    }

    #[test]
    fn refusals_name_the_argument_and_what_is_allowed() {
        assert_eq!(
            detail(arguments(json!({"x": 5})).string("x")),
            "`x` must be a string, not a number."
        );
        assert_eq!(
            detail(arguments(json!({"x": "5"})).flag("x")),
            "`x` must be true or false, not a string."
        );
        assert_eq!(
            detail(arguments(json!({"n": 2.5})).number("n")),
            "`n` is 2.5: it must be a number from 0 to 2."
        );
        assert_eq!(
            detail(arguments(json!({"i": 0})).integer("i")),
            "`i` is 0: it must be a whole number from 1 to 9."
        );
        assert_eq!(
            detail(arguments(json!({"v": {"a": 1}})).variables("v")),
            "`v.a` must be a string, not a number."
        );
        assert_eq!(
            detail(arguments(json!({"l": ["a", {}]})).texts("l")),
            "`l[1]` must be a string, not an object."
        );
        assert_eq!(
            detail(arguments(json!({"y": 1})).end()),
            "`y` is not an argument of tool: it takes x, n, i, l."
        );
        assert!(detail(arguments(json!({})).pattern()).starts_with("`pattern_name` is missing"));
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let fits = "x".repeat(MAX_STRING);
        assert_eq!(
            arguments(json!({"x": fits}))
                .string("x")
                .unwrap()
                .map(|s| s.len()),
            Some(MAX_STRING)
        );
        assert!(
            arguments(json!({"x": format!("{fits}x")}))
                .string("x")
                .is_err()
        );
        assert_eq!(
            arguments(json!({"l": vec!["a"; MAX_ATTACHMENTS]}))
                .texts("l")
                .unwrap()
                .len(),
            MAX_ATTACHMENTS
        );
        assert!(
            arguments(json!({"l": vec!["a"; MAX_ATTACHMENTS + 1]}))
                .texts("l")
                .is_err()
        );
        for (value, ok) in [
            (json!(0), true),
            (json!(2), true),
            (json!(-0.001), false),
            (json!(2.001), false),
        ] {
            assert_eq!(
                arguments(json!({"n": value})).number("n").is_ok(),
                ok,
                "{value}"
            );
        }
        assert_eq!(arguments(json!({"i": 5.0})).integer("i").unwrap(), Some(5));
    }

    #[test]
    fn arguments_that_are_no_object_are_refused() {
        for value in [json!([]), json!(5), json!("x")] {
            assert!(Arguments::read("tool", KNOWN, Some(&node(value))).is_err());
        }
    }
}
