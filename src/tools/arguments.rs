//! Reads a tool's arguments: each is taken once, with its type and bounds; any left over is an error.
//!
//! Every refusal names the argument, says what was wrong and what is allowed. `null` counts as left out: models send it
//! for optional arguments.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::config::{MAX_ATTACHMENTS, MAX_STRING};
use crate::fabric::{Error, Name, names};
use crate::json;
use crate::text::shown;

use super::refused;

/// The arguments not taken yet.
pub(crate) struct Arguments {
    tool: &'static str,
    /// Prefix of names in refusals: empty, or the place in a list, such as `then[0].`.
    place: String,
    left: Map<String, Value>,
}

impl Arguments {
    /// Decodes a call's `arguments`. Absent and `null` count as `{}`.
    pub(super) fn read(tool: &'static str, raw: Option<&RawValue>) -> Result<Arguments, Error> {
        let json = raw.map_or("null", RawValue::get);
        let left = match json::value(json) {
            Ok(Value::Object(map)) => map,
            Ok(Value::Null) => Map::new(),
            Ok(_) => return Err(refused("`arguments` must be an object.")),
            Err(_) => {
                return Err(refused(
                    "`arguments` cannot be read: they are nested too deeply, or hold text that is not Unicode or a \
                     number that is too large.",
                ));
            }
        };
        Ok(Arguments {
            tool,
            place: String::new(),
            left,
        })
    }

    /// The name of an argument as refusals have it.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// A text of any length (the message it came in was limited); empty if left out.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Error> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(wrong_type(&self.path(name), "a string", &other)),
        }
    }

    /// A string of at most [`MAX_STRING`] bytes; `None` if left out or empty.
    pub(super) fn string(&mut self, name: &str) -> Result<Option<String>, Error> {
        let text = self.text(name)?;
        if text.len() > MAX_STRING {
            let name = self.path(name);
            return Err(refused(format!(
                "`{name}` is {} bytes long: at most {MAX_STRING} are allowed.",
                text.len()
            )));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// A name that Fabric may safely use in a path; `None` if left out or empty.
    pub(super) fn name(&mut self, name: &str) -> Result<Option<Name>, Error> {
        self.string(name)?
            .map(|value| Name::parse(&self.path(name), &value))
            .transpose()
    }

    /// The pattern to work on.
    pub(super) fn pattern(&mut self) -> Result<Name, Error> {
        self.name("pattern_name")?.ok_or_else(|| {
            let (name, tool) = (self.path("pattern_name"), self.tool);
            refused(format!(
                "`{name}` is missing: {tool} needs the name of a pattern, as fabric_list_patterns gives it."
            ))
        })
    }

    /// The name of a model or a vendor; empty if left out, which lets Fabric choose.
    pub(super) fn model(&mut self, name: &str) -> Result<String, Error> {
        self.string(name)?.map_or(Ok(String::new()), |value| {
            names::model(&self.path(name), &value)
        })
    }

    /// A truth value; false if left out.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong_type(&self.path(name), "true or false", &other)),
        }
    }

    /// A number within `range`.
    pub(super) fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<i8>,
    ) -> Result<Option<f64>, Error> {
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let range = f64::from(*range.start())..=f64::from(*range.end());
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => match number.as_f64() {
                Some(value) if range.contains(&value) => Ok(Some(value)),
                _ => Err(refused(format!(
                    "`{}` is {number}: it must be {allowed}.",
                    self.path(name)
                ))),
            },
            Some(other) => Err(wrong_type(&self.path(name), &allowed, &other)),
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => {
                // JavaScript knows one kind of number: 5.0 is 5.
                let whole = number.as_u64().or_else(|| {
                    number
                        .as_f64()
                        .filter(|f| f.fract() == 0.0 && *f >= 0.0)
                        .map(|f| f as u64)
                });
                match whole {
                    Some(value) if range.contains(&value) => Ok(Some(value)),
                    _ => Err(refused(format!(
                        "`{}` is {number}: it must be {allowed}.",
                        self.path(name)
                    ))),
                }
            }
            Some(other) => Err(wrong_type(&self.path(name), &allowed, &other)),
        }
    }

    /// Pattern variables, names and values checked by Fabric's guard.
    pub(super) fn variables(&mut self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let map = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map,
            Some(other) => {
                return Err(wrong_type(&self.path(name), "an object of strings", &other));
            }
        };
        let mut variables = BTreeMap::new();
        for (key, value) in map {
            match value {
                Value::String(text) => variables.insert(key, text),
                other => {
                    return Err(wrong_type(
                        &format!("{}.{key}", self.path(name)),
                        "a string",
                        &other,
                    ));
                }
            };
        }
        names::variables(&variables).map_err(|error| match self.place.as_str() {
            "" => error,
            place => refused(format!(
                "In {}: {}",
                place.trim_end_matches('.'),
                error.detail
            )),
        })?;
        Ok(variables)
    }

    /// A list of at most [`MAX_ATTACHMENTS`] strings.
    pub(super) fn attachments(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let string = |(i, item)| match item {
            Value::String(text) if text.len() <= MAX_STRING => Ok(text),
            Value::String(text) => Err(refused(format!(
                "`{name}[{i}]` is {} bytes long: at most {MAX_STRING} are allowed.",
                text.len()
            ))),
            other => Err(wrong_type(&format!("{name}[{i}]"), "a string", &other)),
        };
        self.items(name, MAX_ATTACHMENTS, "a list of strings")?
            .into_iter()
            .enumerate()
            .map(string)
            .collect()
    }

    /// A list of at most `limit` steps, each to be read like the arguments of a call. A string is a step of that pattern.
    pub(super) fn steps(&mut self, name: &str, limit: usize) -> Result<Vec<Arguments>, Error> {
        let tool = self.tool;
        let object = |(i, item)| match item {
            Value::Object(left) => Ok(Arguments {
                tool,
                place: format!("{name}[{i}]."),
                left,
            }),
            pattern @ Value::String(_) => {
                let left = Map::from_iter([("pattern_name".to_owned(), pattern)]);
                Ok(Arguments {
                    tool,
                    place: format!("{name}[{i}]."),
                    left,
                })
            }
            other => Err(wrong_type(
                &format!("{name}[{i}]"),
                "a pattern's name or an object",
                &other,
            )),
        };
        self.items(name, limit, "a list of steps")?
            .into_iter()
            .enumerate()
            .map(object)
            .collect()
    }

    fn items(&mut self, name: &str, limit: usize, wanted: &str) -> Result<Vec<Value>, Error> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() <= limit => Ok(items),
            Some(Value::Array(items)) => Err(refused(format!(
                "`{name}` has {} entries: at most {limit} are allowed.",
                items.len()
            ))),
            Some(other) => Err(wrong_type(name, wanted, &other)),
        }
    }

    /// Refuses arguments that are not `known` to the tool.
    pub(super) fn end(self, known: impl Iterator<Item = &'static str>) -> Result<(), Error> {
        if self.left.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = known.collect();
        let Some(name) = self.left.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let shown = shown(name, 64);
        let takes = if known.is_empty() {
            "it takes none".to_string()
        } else {
            format!("it takes {}", known.join(", "))
        };
        Err(refused(format!(
            "`{}{shown}` is not an argument of {}: {takes}.",
            self.place, self.tool
        )))
    }
}

fn wrong_type(name: &str, wanted: &str, found: &Value) -> Error {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    refused(format!(
        "`{}` must be {wanted}, not {found}.",
        shown(name, 128)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(value: Value) -> Arguments {
        let raw = serde_json::value::to_raw_value(&value).unwrap();
        Arguments::read("tool", Some(&raw)).unwrap()
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
        assert_eq!(a.number("n", 0..=1).unwrap(), None);
        assert!(a.attachments("l").unwrap().is_empty());
        assert!(a.variables("v").unwrap().is_empty());
        a.end([].into_iter()).unwrap();
        assert!(Arguments::read("tool", None).unwrap().left.is_empty());
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
            detail(arguments(json!({"x": 2.5})).number("x", 0..=2)),
            "`x` is 2.5: it must be a number from 0 to 2."
        );
        assert_eq!(
            detail(arguments(json!({"x": 0})).integer("x", 1..=9)),
            "`x` is 0: it must be a whole number from 1 to 9."
        );
        assert_eq!(
            detail(arguments(json!({"v": {"a": 1}})).variables("v")),
            "`v.a` must be a string, not a number."
        );
        assert_eq!(
            detail(arguments(json!({"l": ["a", {}]})).attachments("l")),
            "`l[1]` must be a string, not an object."
        );
        assert_eq!(
            detail(arguments(json!({"y": 1})).end(["x"].into_iter())),
            "`y` is not an argument of tool: it takes x."
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
                .attachments("l")
                .unwrap()
                .len(),
            MAX_ATTACHMENTS
        );
        assert!(
            arguments(json!({"l": vec!["a"; MAX_ATTACHMENTS + 1]}))
                .attachments("l")
                .is_err()
        );
        for (value, ok) in [
            (json!(0), true),
            (json!(2), true),
            (json!(-0.001), false),
            (json!(2.001), false),
        ] {
            assert_eq!(
                arguments(json!({"x": value})).number("x", 0..=2).is_ok(),
                ok,
                "{value}"
            );
        }
        assert_eq!(
            arguments(json!({"x": 5.0})).integer("x", 1..=9).unwrap(),
            Some(5)
        );
    }

    #[test]
    fn arguments_that_are_no_object_or_too_deep_are_refused() {
        for json in [
            "[]",
            "5",
            "\"x\"",
            &format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500)),
            r#"{"a":"\ud800"}"#,
        ] {
            let raw = RawValue::from_string(json.to_string()).unwrap();
            assert!(Arguments::read("tool", Some(&raw)).is_err(), "{json}");
        }
    }
}
