//! The arguments of a tool.
//!
//! A tool's `prepare` asks for each of its arguments once, with type, bounds and description, and in the order of the
//! schema. What it asks for is its schema, its lines in `--list-tools` and what a refusal lists: an argument is one
//! statement.
//!
//! Reading goes on after a refusal, with a value as if the argument had been left out; [`Arguments::end`] returns the
//! first one. Every refusal names the argument, says what was wrong and what is allowed. `null` counts as left out:
//! models send it for optional arguments.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::config::MAX_STRING;
use crate::fabric::{Error, Name, names};
use crate::protocol::Node;
use crate::text::{closest, either, shown};

use super::{refused, within};

/// An argument that was asked for.
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) json_type: &'static str,
    /// What its schema says beside type and description.
    constraints: String,
    pub(super) description: &'static str,
    pub(super) required: bool,
}

/// The arguments of a call, or of a step in one.
#[derive(Default)]
pub(super) struct Arguments<'a> {
    tool: &'static str,
    /// Prefix of names in refusals: empty, or the place in a list, such as `then[0].`.
    place: String,
    given: &'a [(Cow<'a, str>, Node<'a>)],
    /// What was asked for so far, in this order.
    pub(super) asked: Vec<Argument>,
    /// The first refusal.
    refusal: Option<Error>,
}

impl<'a> Arguments<'a> {
    /// What `read` makes of the `arguments` of a call of `tool`, or of the members of an object in them, whose names begin
    /// with `place`.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) fn read<T>(
        tool: &'static str,
        place: String,
        given: &'a [(Cow<'a, str>, Node<'a>)],
        read: impl FnOnce(&mut Arguments<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut arguments = Arguments {
            tool,
            place,
            given,
            ..Arguments::default()
        };
        let value = read(&mut arguments);
        arguments.end()?;
        value
    }

    /// What `read` asks for when nothing is given.
    pub(super) fn none<T>(
        tool: &'static str,
        read: impl FnOnce(&mut Arguments<'static>) -> Result<T, Error>,
    ) -> Arguments<'static> {
        let mut arguments = Arguments {
            tool,
            ..Arguments::default()
        };
        let _ = read(&mut arguments);
        arguments
    }

    /// The JSON Schema of what was asked for: plain, for picky clients, and in this order. Text, as a parsed map would
    /// lose that order, which clients use for their forms.
    pub(super) fn schema(&self) -> String {
        format!(r#"{{"type":"object",{}}}"#, self.properties())
    }

    /// The schema's members but for the type.
    fn properties(&self) -> String {
        let json = |value: &str| serde_json::Value::from(value).to_string();
        let property = |argument: &Argument| {
            let (kind, constraints) = (argument.json_type, &argument.constraints);
            let (name, description) = (json(argument.name), json(argument.description));
            format!(r#"{name}:{{"type":"{kind}",{constraints}"description":{description}}}"#)
        };
        let properties: Vec<String> = self.asked.iter().map(property).collect();
        let required = self.asked.iter().filter(|argument| argument.required);
        let required: Vec<String> = required.map(|argument| json(argument.name)).collect();
        let required = match required.is_empty() {
            true => String::new(),
            false => format!(r#""required":[{}],"#, required.join(",")),
        };
        format!(
            r#""properties":{{{}}},{required}"additionalProperties":false"#,
            properties.join(",")
        )
    }

    /// An object whose members `read` asks for and checks; `None` if left out.
    pub(super) fn object<T>(
        &mut self,
        name: &'static str,
        description: &'static str,
        read: fn(&mut Arguments<'_>) -> Result<T, Error>,
    ) -> Option<T> {
        let tool = self.tool;
        let constraints = Arguments::none(tool, read).properties() + ",";
        let read = |path: &str, node: &'a Node<'a>| match node {
            Node::Object(given) => Arguments::read(tool, format!("{path}."), given, read),
            other => Err(wrong_type(path, "an object", other)),
        };
        self.ask(name, "object", constraints, description, read)
    }

    /// A text of any length (the message it came in was limited); empty if left out.
    pub(super) fn text(&mut self, name: &'static str, description: &'static str) -> String {
        let text = self.ask(name, "string", String::new(), description, string);
        text.map(str::to_owned).unwrap_or_default()
    }

    /// A string of at most [`MAX_STRING`] bytes, read by `parse`, which gets its name too; `None` if left out or empty.
    pub(super) fn parsed<T>(
        &mut self,
        name: &'static str,
        description: &'static str,
        parse: impl FnOnce(&str, &str) -> Result<T, Error>,
    ) -> Option<T> {
        let read = |path: &str, node| match short(path, node)? {
            "" => Ok(None),
            text => parse(path, text).map(Some),
        };
        self.ask(name, "string", String::new(), description, read)
            .flatten()
    }

    /// A string of at most [`MAX_STRING`] bytes; `None` if left out or empty.
    pub(super) fn string(
        &mut self,
        name: &'static str,
        description: &'static str,
    ) -> Option<String> {
        self.parsed(name, description, |_, text| Ok(text.to_owned()))
    }

    /// Such a string if it `is_valid`; others are refused with what they must be: `wanted`.
    pub(super) fn valid(
        &mut self,
        name: &'static str,
        description: &'static str,
        is_valid: fn(&str) -> bool,
        wanted: &str,
    ) -> Option<String> {
        self.parsed(name, description, |path, text| match is_valid(text) {
            true => Ok(text.to_owned()),
            false => Err(refused(format!("`{path}` must be {wanted}."))),
        })
    }

    /// A name that Fabric may safely use in a path; `None` if left out or empty.
    pub(super) fn name(&mut self, name: &'static str, description: &'static str) -> Option<Name> {
        self.parsed(name, description, Name::parse)
    }

    /// The name of a model or a vendor; empty if left out, which lets Fabric choose.
    pub(super) fn model(&mut self, name: &'static str, description: &'static str) -> String {
        self.parsed(name, description, names::model)
            .unwrap_or_default()
    }

    /// A string that must be given, and that `parse` refuses if it is empty.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        description: &'static str,
        parse: impl FnOnce(&str, &str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let text = self.string(name, description);
        self.asked
            .iter_mut()
            .for_each(|argument| argument.required |= argument.name == name);
        let path = self.path(name);
        let read = parse(&path, &text.unwrap_or_default()).map_err(|error| error.about(path));
        read.inspect_err(|error| self.refuse(error.clone()))
    }

    /// The pattern to work on. Where it is refused, another name stands for it, so that the other arguments can be
    /// read: such a call never gets further than [`Arguments::end`].
    pub(super) fn pattern(&mut self, description: &'static str) -> Name {
        let tool = self.tool;
        let parse = |path: &str, text: &str| match text {
            "" => Err(refused(format!(
                "`{path}` is missing: {tool} needs the name of a pattern, as fabric_list_patterns gives it."
            ))),
            text => Name::parse(path, text),
        };
        self.required("pattern_name", description, parse)
            .unwrap_or_else(|_| Name::parse("", "refused").expect("letters are a name"))
    }

    /// A truth value; `usual` if left out.
    pub(super) fn flag(
        &mut self,
        name: &'static str,
        usual: bool,
        description: &'static str,
    ) -> bool {
        let read = |path: &str, node: &Node<'_>| match node {
            Node::Bool(value) => Ok(*value),
            other => Err(wrong_type(path, "true or false", other)),
        };
        self.ask(name, "boolean", String::new(), description, read)
            .unwrap_or(usual)
    }

    /// A number within these bounds; `usual` if left out.
    pub(super) fn number(
        &mut self,
        name: &'static str,
        bounds: (f64, f64),
        usual: f64,
        description: &'static str,
    ) -> f64 {
        self.bounded(name, ("number", "a number"), bounds, description)
            .unwrap_or(usual)
    }

    /// A whole number within these bounds.
    pub(super) fn integer(
        &mut self,
        name: &'static str,
        (least, most): (usize, usize),
        description: &'static str,
    ) -> Option<usize> {
        let bounds = (least as f64, most as f64);
        let number = self.bounded(name, ("integer", "a whole number"), bounds, description);
        number.map(|number| number as usize)
    }

    fn bounded(
        &mut self,
        name: &'static str,
        (json_type, kind): (&'static str, &str),
        (least, most): (f64, f64),
        description: &'static str,
    ) -> Option<f64> {
        // JavaScript knows one kind of number: 5.0 is 5.
        let is_allowed = |number: &f64| {
            (least..=most).contains(number) && (json_type == "number" || number.fract() == 0.0)
        };
        let read = |path: &str, node: &Node<'_>| {
            let allowed = format!("{kind} from {least} to {most}");
            let Node::Number(number) = node else {
                return Err(wrong_type(path, &allowed, node));
            };
            number
                .as_f64()
                .filter(is_allowed)
                .ok_or_else(|| refused(format!("`{path}` is {number}: it must be {allowed}.")))
        };
        let constraints = format!(r#""minimum":{least},"maximum":{most},"#);
        self.ask(name, json_type, constraints, description, read)
    }

    /// Which part of a text of at most `most` characters is wanted: how many to skip, and at most how many to return, which
    /// is `usual` if left out. With the descriptions of both.
    pub(super) fn part(
        &mut self,
        (most, usual): (usize, usize),
        skip: &'static str,
        max: &'static str,
    ) -> (usize, usize) {
        let offset = self.integer("offset", (0, most), skip);
        let max_chars = self.integer("max_chars", (1, most), max);
        (offset.unwrap_or(0), max_chars.unwrap_or(usual))
    }

    /// Pattern variables, names and values checked by Fabric's guard.
    pub(super) fn variables(
        &mut self,
        name: &'static str,
        description: &'static str,
    ) -> BTreeMap<String, String> {
        let place = self.place.clone();
        let read = |path: &str, node: &Node<'_>| {
            let Node::Object(members) = node else {
                return Err(wrong_type(path, "an object of strings", node));
            };
            let mut variables = BTreeMap::new();
            for (key, value) in members {
                let value = string(&format!("{path}.{key}"), value)?;
                variables.insert(key.to_string(), value.to_owned());
            }
            names::variables(&variables).map_err(|error| within(&place, error.detail))?;
            Ok(variables)
        };
        let constraints = r#""additionalProperties":{"type":"string"},"#.to_owned();
        self.ask(name, "object", constraints, description, read)
            .unwrap_or_default()
    }

    /// A list of at most `most` strings, of at most [`MAX_STRING`] bytes each.
    pub(super) fn texts(
        &mut self,
        name: &'static str,
        most: usize,
        description: &'static str,
    ) -> Vec<String> {
        let read = |path: &str, item: &Node<'_>| short(path, item).map(str::to_owned);
        let schema = r#"{"type":"string"}"#;
        self.list(name, (most, "a list of strings"), schema, description, read)
    }

    /// A list of at most `most` steps, whose arguments `step` reads. A string is a step of that pattern.
    pub(super) fn steps<T>(
        &mut self,
        name: &'static str,
        most: usize,
        description: &'static str,
        step: fn(&mut Arguments<'_>) -> Result<T, Error>,
    ) -> Vec<T> {
        let tool = self.tool;
        let read = |path: &str, item: &'a Node<'a>| {
            let place = format!("{path}.");
            match item {
                Node::Text(_) => {
                    let given = [("pattern_name".into(), item.clone())];
                    Arguments::read(tool, place, &given, step)
                }
                Node::Object(given) => Arguments::read(tool, place, given, step),
                other => Err(wrong_type(path, "a pattern's name or an object", other)),
            }
        };
        let schema = Arguments::none(tool, step).schema();
        self.list(name, (most, "a list of steps"), &schema, description, read)
    }

    /// A list of at most `most` items of this schema, each read by `read`, which gets its name too; empty if left out.
    fn list<T>(
        &mut self,
        name: &'static str,
        (most, wanted): (usize, &str),
        schema: &str,
        description: &'static str,
        read: impl Fn(&str, &'a Node<'a>) -> Result<T, Error>,
    ) -> Vec<T> {
        let item = |(path, item): (String, _)| read(&path, item).map_err(|error| error.about(path));
        let read = |path: &str, node: &'a Node<'a>| match node {
            Node::List(items) if items.len() <= most => {
                let named = |(i, item)| (format!("{path}[{i}]"), item);
                items.iter().enumerate().map(named).map(item).collect()
            }
            Node::List(items) => Err(refused(format!(
                "`{path}` has {} entries: at most {most} are allowed.",
                items.len()
            ))),
            other => Err(wrong_type(path, wanted, other)),
        };
        let constraints = format!(r#""maxItems":{most},"items":{schema},"#);
        self.ask(name, "array", constraints, description, read)
            .unwrap_or_default()
    }

    /// Returns the first refusal, if there is one, and refuses what was not asked for.
    fn end(self) -> Result<(), Error> {
        let known: Vec<&str> = self.asked.iter().map(|argument| argument.name).collect();
        let unknown = self.given.iter().map(|(name, _)| &**name);
        // The same one however they are ordered.
        let Some(name) = unknown.filter(|name| !known.contains(name)).min() else {
            return self.refusal.map_or(Ok(()), Err);
        };
        let (path, tool) = (self.path(&shown(name, 64)), self.tool);
        let meant = closest(name, known.iter().copied());
        let hint = match (meant.as_slice(), self.refusal) {
            ([], Some(refusal)) => return Err(refusal),
            ([], None) if known.is_empty() => ": it takes none.".to_owned(),
            ([], None) => format!(": it takes {}.", known.join(", ")),
            // What was refused as missing may have this name.
            (names, _) => format!("; did you mean {}?", either(names)),
        };
        let error = refused(format!("`{path}` is not an argument of {tool}{hint}"));
        Err(match self.place.trim_end_matches('.') {
            "" => error,
            place => error.about(place),
        })
    }

    /// An argument as `read` reads it, which gets its name as refusals have it; `None` if left out or refused.
    fn ask<T>(
        &mut self,
        name: &'static str,
        json_type: &'static str,
        constraints: String,
        description: &'static str,
        read: impl FnOnce(&str, &'a Node<'a>) -> Result<T, Error>,
    ) -> Option<T> {
        self.asked.push(Argument {
            name,
            json_type,
            constraints,
            description,
            required: false,
        });
        let (_, node) = self.given.iter().find(|(given, _)| given == name)?;
        if *node == Node::Null {
            return None;
        }
        let path = self.path(name);
        read(&path, node)
            .map_err(|error| self.refuse(error.about(path)))
            .ok()
    }

    fn refuse(&mut self, error: Error) {
        self.refusal.get_or_insert(error);
    }

    /// The name of an argument as refusals have it.
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }
}

fn string<'a>(path: &str, node: &'a Node<'_>) -> Result<&'a str, Error> {
    node.text()
        .ok_or_else(|| wrong_type(path, "a string", node))
}

/// A string of at most [`MAX_STRING`] bytes.
fn short<'a>(path: &str, node: &'a Node<'_>) -> Result<&'a str, Error> {
    match string(path, node)? {
        text if text.len() <= MAX_STRING => Ok(text),
        text => Err(refused(format!(
            "`{path}` is {} bytes long: at most {MAX_STRING} are allowed.",
            text.len()
        ))),
    }
}

fn wrong_type(path: &str, wanted: &str, found: &Node<'_>) -> Error {
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
        shown(path, 128)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_ATTACHMENTS;
    use serde_json::{Value, json};

    fn node(value: Value) -> Node<'static> {
        match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(value),
            Value::Number(number) => Node::Number(number),
            Value::String(text) => Node::Text(text.into()),
            Value::Array(items) => Node::List(items.into_iter().map(node).collect()),
            Value::Object(members) => {
                let member = |(name, member): (String, _)| (name.into(), node(member));
                Node::Object(members.into_iter().map(member).collect())
            }
        }
    }

    /// What `ask` makes of these arguments, or the refusal.
    fn read<T>(value: Value, ask: fn(&mut Arguments<'_>) -> T) -> Result<T, String> {
        let Node::Object(given) = node(value) else {
            panic!("arguments are an object")
        };
        Arguments::read("tool", String::new(), &given, |all| Ok(ask(all))).map_err(|e| e.detail)
    }

    fn texts(arguments: &mut Arguments<'_>) -> Vec<String> {
        arguments.texts("l", MAX_ATTACHMENTS, "")
    }

    fn string(arguments: &mut Arguments<'_>) -> Option<String> {
        arguments.string("x", "")
    }

    fn number(arguments: &mut Arguments<'_>) -> f64 {
        arguments.number("n", (0.0, 2.0), 9.0, "")
    }

    fn integer(arguments: &mut Arguments<'_>) -> Option<usize> {
        arguments.integer("i", (1, 9), "")
    }

    #[test]
    fn null_and_absent_are_the_same() {
        for value in [
            json!({"x": null, "f": null, "n": null, "l": null, "v": null}),
            json!({}),
        ] {
            let nothing = |all: &mut Arguments<'_>| {
                assert_eq!(string(all), None);
                assert!(!all.flag("f", false, ""));
                assert_eq!(number(all), 9.0);
                assert!(texts(all).is_empty());
                assert!(all.variables("v", "").is_empty());
            };
            assert_eq!(read(value, nothing), Ok(()));
        }
    }

    #[test]
    fn refusals_name_the_argument_and_what_is_allowed() {
        fn all(arguments: &mut Arguments<'_>) {
            string(arguments);
            arguments.flag("f", false, "");
            number(arguments);
            integer(arguments);
            arguments.variables("v", "");
            texts(arguments);
        }
        for case in [
            r#"{"x": 5} => `x` must be a string, not a number."#,
            r#"{"f": "5"} => `f` must be true or false, not a string."#,
            r#"{"n": 2.5} => `n` is 2.5: it must be a number from 0 to 2."#,
            r#"{"i": 0} => `i` is 0: it must be a whole number from 1 to 9."#,
            r#"{"v": {"a": 1}} => `v.a` must be a string, not a number."#,
            r#"{"l": ["a", {}]} => `l[1]` must be a string, not an object."#,
            r#"{"y": 1} => `y` is not an argument of tool: it takes x, f, n, i, v, l."#,
            r#"{"y": 1, "l": 1, "n": 3} => `n` is 3: it must be a number from 0 to 2."#,
        ] {
            let (value, refusal) = case.split_once(" => ").unwrap();
            let value = serde_json::from_str(value).unwrap();
            assert_eq!(read(value, all), Err(refusal.to_owned()));
        }
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let fits = "x".repeat(MAX_STRING);
        let length = |value: Value| read(value, string).map(|text| text.map(|text| text.len()));
        assert_eq!(length(json!({"x": fits})), Ok(Some(MAX_STRING)));
        assert!(length(json!({"x": format!("{fits}x")})).is_err());
        let list = |length| read(json!({"l": vec!["a"; length]}), texts).map(|texts| texts.len());
        assert_eq!(list(MAX_ATTACHMENTS), Ok(MAX_ATTACHMENTS));
        assert!(list(MAX_ATTACHMENTS + 1).is_err());
        for (value, ok) in [
            (json!(0), true),
            (json!(2), true),
            (json!(-0.001), false),
            (json!(2.001), false),
        ] {
            assert_eq!(read(json!({"n": value}), number).is_ok(), ok, "{value}");
        }
        for (value, ok) in [
            (json!(5.0), true),
            (json!(5.5), false),
            (json!(-1), false),
            (json!(1e300), false),
            (json!(10), false),
        ] {
            assert_eq!(read(json!({"i": value}), integer).is_ok(), ok, "{value}");
        }
    }
}
