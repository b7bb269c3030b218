//! The arguments of a tool.
//!
//! A tool's `declare` asks for each of its arguments once, with type, bounds and `name: description`, and in the order of
//! the schema. What it asks for is its schema, its lines in `--list-tools` and what a refusal lists: an argument is one
//! statement.
//!
//! Reading goes on after a refusal, with a value as if the argument had been left out; [`Arguments::faults`] returns
//! all of them at once. Every refusal names the argument, says what was wrong and what is allowed.
//!
//! Models send harmless differences, and these are understood here for all tools: empty values for what they leave out, and
//! numbers, truth values, lists and objects in strings, or a whole number where a string is meant.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::account::Resource;
use crate::config::MAX_STRING;
use crate::encoding::json::decode;
use crate::error::MOST_FAULTS;
use crate::fabric::names::{self, is_nothing, is_usual, suggestion};
use crate::fabric::{Chat, Error, Name, Place};
use crate::protocol::Node;
use crate::search;
use crate::text::{edits, is_language, letters, shown};

use super::{CallPlan, invalid};

/// What was given in a call, or in an object in it: names and values.
pub(crate) type Given<'a> = &'a [GivenArgument<'a>];

/// One of them: its name and its value.
pub(crate) type GivenArgument<'a> = (Cow<'a, str>, Node<'a>);

/// An argument that was asked for.
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) json_type: &'static str,
    /// What its schema says beside type and description. Calls do not need it.
    constraints: Constraints,
    pub(super) description: Cow<'static, str>,
    pub(super) required: bool,
}

/// The arguments of a call, or of a step in one.
#[derive(Default)]
pub(super) struct Arguments<'a> {
    tool: &'static str,
    place: Place,
    given: Given<'a>,
    /// What was given under wrong names.
    mistakes: &'a [Mistake<'a>],
    /// What was asked for so far, in this order.
    pub(super) asked: Vec<Argument>,
    /// Arguments that are accepted although they are not in the schema.
    former: Vec<&'static str>,
    /// What the named pattern does, which names its variables; empty if it is none of Fabric's own.
    sentence: &'static str,
    faults: Vec<Error>,
    /// What follows from them for the call.
    pub(super) plan: CallPlan,
}

type Constraints = Box<dyn Fn() -> String>;

/// Something given under a wrong name.
#[derive(PartialEq)]
struct Mistake<'a> {
    /// The argument that it is meant to be, or a variable, as `variables.` and its name.
    meant: Option<&'static str>,
    node: &'a Node<'a>,
    /// Its refusal, which suggests that. What only stands in a wrong place has none.
    fault: Option<Error>,
}

/// What an argument is called, a colon, and its description.
type ArgumentLine = &'static str;

/// Arguments of several tools.
pub(super) const PATTERN: ArgumentLine =
    "pattern_name: Exact name, as fabric_list_patterns gives it.";
pub(super) const INPUT: ArgumentLine = "input_text: What the pattern works on.";
pub(super) const VARIABLES: ArgumentLine =
    "variables: A value for each of the pattern's variables, by name.";

/// What models call arguments and tools by mistake: the right name, and wrong ones.
const MEANT: &str = include_str!("meant.txt");

/// What stands in it for what models wrap arguments in, and for what no tool has.
const WRAPPER: &str = "arguments";
const NOTHING: &str = "-";

/// What some clients add where a tool has no arguments.
const DUMMY: &str = "random_string";

/// An empty value of this argument would make a free call a paid one.
pub(super) const FREE: &str = "dry_run";

impl<'a> Arguments<'a> {
    /// What `read` makes of the arguments of a call of `tool`, or of the members of an object in them: those `given` at
    /// `place`. It reads again with what wrong names are meant to be: these are refused, with all that is wrong with their
    /// values. The pattern may be among them, and which variables it has decides what others mean.
    ///
    /// # Errors
    /// All refusals in one.
    pub(super) fn read<T>(
        tool: &'static str,
        place: Place,
        given: Given<'a>,
        read: impl Fn(&mut Arguments<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut mistakes, mut rounds) = (Vec::new(), 0);
        loop {
            let mut arguments = Arguments {
                tool,
                place: place.clone(),
                given,
                mistakes: &mistakes,
                faults: mistakes
                    .iter()
                    .filter_map(|mistake: &Mistake<'_>| mistake.fault.clone())
                    .collect(),
                ..Arguments::default()
            };
            let value = read(&mut arguments);
            let found = arguments.mistakes(given);
            // The pattern, then what its variables say of other names.
            if found == mistakes || rounds == 3 {
                arguments.faults.extend(value.as_ref().err().cloned());
                return arguments.faults().and(value);
            }
            drop(arguments);
            (mistakes, rounds) = (found, rounds + 1);
        }
    }

    /// What `read` asks for.
    pub(super) fn of<T>(
        tool: &'static str,
        read: impl FnOnce(&mut Arguments<'a>) -> Result<T, Error>,
    ) -> Arguments<'a> {
        let mut arguments = Arguments {
            tool,
            ..Arguments::default()
        };
        let _ = read(&mut arguments);
        arguments
    }

    /// The JSON Schema of the arguments that were asked for: plain, for picky clients, and in this order. It is text,
    /// because a parsed map would lose the order, which clients use for their forms.
    pub(super) fn schema(&self) -> String {
        format!(r#"{{"type":"object",{}}}"#, self.properties())
    }

    /// The schema's members but for the type.
    fn properties(&self) -> String {
        let json = |value: &str| serde_json::Value::from(value).to_string();
        let property = |argument: &Argument| {
            let (kind, constraints) = (argument.json_type, (argument.constraints)());
            let (name, description) = (json(argument.name), json(&argument.description));
            format!(r#"{name}:{{"type":"{kind}",{constraints}"description":{description}}}"#)
        };
        let properties = self.asked.iter().map(property);
        let properties = Vec::from_iter(properties).join(",");
        let required = self.asked.iter().filter(|argument| argument.required);
        let required = required.map(|argument| json(argument.name));
        let required = match Vec::from_iter(required).join(",").as_str() {
            "" => String::new(),
            names => format!(r#""required":[{names}],"#),
        };
        format!(r#""properties":{{{properties}}},{required}"additionalProperties":false"#)
    }

    /// An object whose members `read` asks for and checks; `None` if left out or empty. A string is the member that `bare` says.
    pub(super) fn object<T: 'static>(
        &mut self,
        line: ArgumentLine,
        read: fn(&mut Arguments<'_>) -> Result<Option<T>, Error>,
        bare: fn(&str) -> &'static str,
    ) -> Option<T> {
        let tool = self.tool;
        let constraints = Box::new(move || Arguments::of(tool, read).properties() + ",");
        let read = |path: &str, node: &'a Node<'a>| members(tool, path, node, bare, read);
        self.ask(line, "object", constraints, read).flatten()
    }

    /// A text of any length (the message it came in was limited); empty if left out.
    pub(super) fn text(&mut self, line: ArgumentLine) -> String {
        let read = |path: &str, node| string(path, node, "the text itself, as a string");
        let text = self.ask(line, "string", Box::new(String::new), read);
        text.unwrap_or_default().into_owned()
    }

    /// A string of at most [`MAX_STRING`] bytes, read by `parse`, which gets its name too; `None` if left out or empty.
    /// Refusals say what is `wanted`.
    pub(super) fn parsed<T>(
        &mut self,
        line: ArgumentLine,
        wanted: &str,
        parse: impl FnOnce(&str, &str) -> Result<T, Error>,
    ) -> Option<T> {
        let read = |path: &str, node| match string(path, node, wanted)?.as_ref() {
            text if text.len() > MAX_STRING => Err(invalid(format!(
                "`{path}` is {} bytes long: at most {MAX_STRING} are allowed.",
                text.len()
            ))),
            text if text.trim().is_empty() => Ok(None),
            text => parse(path, text.trim()).map(Some),
        };
        self.ask(line, "string", Box::new(String::new), read)
            .flatten()
    }

    /// A string of at most [`MAX_STRING`] bytes; `None` if left out or empty.
    pub(super) fn string(&mut self, line: ArgumentLine) -> Option<String> {
        self.parsed(line, "a string", |_, text| Ok(text.to_owned()))
    }

    /// A string that `is_valid`; others are refused, and the refusal says what is `wanted`.
    pub(super) fn valid(
        &mut self,
        line: ArgumentLine,
        is_valid: fn(&str) -> bool,
        wanted: &str,
    ) -> Option<String> {
        self.parsed(line, wanted, |path, text| match is_valid(text) {
            true => Ok(text.to_owned()),
            false => Err(invalid(format!("`{path}` must be {wanted}."))),
        })
    }

    /// A name that Fabric may safely use in a path; `None` if left out or empty.
    pub(super) fn name(&mut self, line: ArgumentLine) -> Option<Name> {
        // A description may be given, which leads to the name.
        self.parsed(line, "a string", |path, text| {
            let plain = text.replace(['(', ')', ',', ':'], "");
            let name = Name::parse(path, plain.trim_end_matches(['.', ' ']));
            (!is_nothing(text)).then_some(name).transpose()
        })
        .flatten()
    }

    /// The name of a model or a vendor; empty if left out, which lets Fabric choose.
    pub(super) fn model(&mut self, line: ArgumentLine) -> String {
        let model = |path: &str, text: &str| match is_usual(text) {
            true => Ok(String::new()),
            false => names::model(path, text),
        };
        self.parsed(line, "a string", model).unwrap_or_default()
    }

    /// A string that must be given, and that `parse` refuses if it is empty. After a refusal, another value takes its
    /// place, so that the other arguments can be read: such a call is never done.
    pub(super) fn required<T: Default>(
        &mut self,
        line: ArgumentLine,
        wanted: &str,
        parse: impl Fn(&str, &str) -> Result<T, Error>,
    ) -> T {
        let faults = self.faults.len();
        let found = self.parsed(line, wanted, &parse);
        let argument = self.last();
        argument.required = true;
        let name = argument.name;
        if found.is_none() && self.faults.len() == faults {
            let path = self.place.path(name);
            let missing = parse(&path, "").err();
            self.faults.extend(missing.map(|error| error.about(path)));
        }
        found.unwrap_or_default()
    }

    /// A step of the pattern that is given. `line` is for `pattern_name`, and `others` says where more of them are given.
    pub(super) fn step(&mut self, line: ArgumentLine, others: &str) -> Chat {
        let tool = self.tool;
        let wanted = format!("the name of one pattern{others}");
        let pattern = self.required(line, &wanted, |path, text| match text {
            "" => Err(invalid(format!(
                "`{path}` is missing: {tool} needs the name of a pattern, as fabric_list_patterns gives it."
            ))),
            text if named(text).len() > 1 => Err(invalid(format!(
                "`{path}` names several patterns. Give {wanted}."
            ))),
            text => Name::parse(path, text.trim_end_matches('.')).map_err(|error| {
                // "patterns/summarize", or several, one of which is none of Fabric's own.
                let parts = text.split(|c| !names::is_allowed(c)).map(str::trim);
                let parts = Vec::from_iter(parts.filter(|part| search::shipped(part).is_some()));
                invalid(error.detail + &match parts.len() {
                    0 | 1 => suggestion(parts),
                    _ => format!(" Give {wanted}."),
                })
            }),
        });
        let name = pattern.as_str().to_lowercase().replace([' ', '-'], "_");
        let row = search::shipped(&name);
        self.sentence = row.map_or("", |row| row.sentence);
        Chat {
            place: self.place.clone(),
            ..Chat::new(pattern, String::new())
        }
    }

    /// A truth value; `usual` if left out.
    pub(super) fn flag(&mut self, line: ArgumentLine, usual: bool) -> bool {
        let read = |path: &str, node: &Node<'_>| match node {
            Node::Bool(value) => Ok(*value),
            _ => {
                let text = node.text().unwrap_or_default().trim();
                let value = text.to_ascii_lowercase().parse::<bool>();
                value.map_err(|_| wrong_type(path, "true or false", node))
            }
        };
        self.ask(line, "boolean", Box::new(String::new), read)
            .unwrap_or(usual)
    }

    /// A number within these bounds; `usual` if left out, which its description says.
    pub(super) fn number(&mut self, name: &'static str, bounds: (f64, f64), usual: f64) -> f64 {
        let number = self.bounded(name, ("number", "a number"), bounds);
        self.last().description = format!("Default {usual}.").into();
        number.unwrap_or(usual)
    }

    /// A whole number within these bounds.
    pub(super) fn integer(
        &mut self,
        line: ArgumentLine,
        (least, most): (usize, usize),
    ) -> Option<usize> {
        let bounds = (least as f64, most as f64);
        let number = self.bounded(line, ("integer", "a whole number"), bounds);
        number.map(|number| number as usize)
    }

    /// How long the caller wants to wait, at most `most` seconds. A longer time counts as that. `line` is for
    /// `wait_seconds`.
    pub(super) fn wait(&mut self, line: ArgumentLine, most: usize) -> Option<Duration> {
        let seconds = self.integer(line, (0, most));
        seconds.map(|seconds| Duration::from_secs(seconds as u64))
    }

    fn bounded(
        &mut self,
        line: ArgumentLine,
        (json_type, kind): (&'static str, &str),
        (least, most): (f64, f64),
    ) -> Option<f64> {
        let is_wait = line.starts_with("wait_seconds");
        // JavaScript knows one kind of number: 5.0 is 5.
        let is_allowed = |number: &f64| {
            (least..=most).contains(number) && (json_type == "number" || number.fract() == 0.0)
        };
        let read = |path: &str, node: &Node<'_>| {
            let allowed = format!("{kind} from {least} to {most}");
            let node = unquoted(node);
            let Node::Number(number) = &*node else {
                return Err(wrong_type(path, &allowed, &node));
            };
            let most = if is_wait { most } else { f64::MAX };
            let found = number.as_f64().map(|number| number.min(most));
            let refusal = || invalid(format!("`{path}` is {number}: it must be {allowed}."));
            found.filter(is_allowed).ok_or_else(refusal)
        };
        let constraints = move || format!(r#""minimum":{least},"maximum":{most},"#);
        self.ask(line, json_type, Box::new(constraints), read)
    }

    /// Which part of a text of at most `most` characters is wanted: how many to skip, and at most how many to return, which
    /// is `usual` if left out.
    pub(super) fn part(&mut self, most: usize, usual: usize) -> (usize, usize) {
        let offset = self.integer("offset: Characters to skip.", (0, most));
        let max_chars = self.integer("max_chars: Max characters.", (1, most));
        if usual < most {
            *self.last().description.to_mut() += &format!(" Default {usual}.");
        }
        (offset.unwrap_or(0), max_chars.unwrap_or(usual))
    }

    /// Pattern variables, names and values checked by Fabric's guard.
    pub(super) fn variables(&mut self, line: ArgumentLine) -> BTreeMap<String, String> {
        let example = self.place.give_in("variables", &["lang_code"], "\"…\"");
        let read = |path: &str, node: &Node<'_>| {
            let node = unquoted(node);
            let Node::Object(members) = &*node else {
                let mut error = wrong_type(path, "an object of strings", &node);
                error.detail += &format!(" For example {example}.");
                return Err(error);
            };
            let (mut variables, mut faults) = (BTreeMap::new(), Vec::new());
            for (key, value) in members {
                if value.is_empty() && value.text().is_none() {
                    continue;
                }
                let text = match value {
                    Node::Bool(value) => Ok(value.to_string().into()),
                    Node::Number(number) => Ok(number.to_string().into()),
                    _ => string(&format!("{path}.{key}"), value, "a string"),
                };
                let text = text.map_err(|error| faults.push(error)).unwrap_or_default();
                variables.insert(key.to_string(), text.into_owned());
            }
            if let Err(error) = names::variables(path, &variables) {
                faults.push(error);
                // Variables that are refused must not be reported as missing too.
                variables.values_mut().for_each(String::clear);
            }
            let faults = faults.into_iter().map(|error| error.about(path));
            Ok((variables, Vec::from_iter(faults)))
        };
        let constraints = || r#""additionalProperties":{"type":"string"},"#.to_owned();
        let found = self.ask(line, "object", Box::new(constraints), read);
        let (mut variables, faults) = found.unwrap_or_default();
        self.faults.extend(faults);
        variables.extend(self.mistakes.iter().filter_map(|mistake| {
            let name = mistake.meant?.strip_prefix("variables.")?;
            Some((name.to_owned(), mistake.node.text()?.to_owned()))
        }));
        variables
    }

    /// A list of at most `most` steps, whose arguments `step` reads. A string is a step of that pattern, and one step is a
    /// list of one.
    pub(super) fn steps<T: 'static>(
        &mut self,
        line: ArgumentLine,
        most: usize,
        step: fn(&mut Arguments<'_>) -> Result<T, Error>,
    ) -> Vec<T> {
        let tool = self.tool;
        let read = |path: &str, node: &Node<'_>| {
            let node = unquoted(node);
            let items = match &*node {
                Node::List(items) => items.as_slice(),
                Node::Text(text) if is_nothing(text) => &[],
                Node::Text(text) => &named(text),
                one @ Node::Object(_) => std::slice::from_ref(one),
                other => return Err(wrong_type(path, "a list of steps", other)),
            };
            if items.len() > most {
                let count = items.len();
                let detail = format!("`{path}` has {count} entries: at most {most} are allowed.");
                return Err(invalid(detail));
            }
            let (mut steps, mut faults) = (Vec::new(), Vec::new());
            for (i, item) in items.iter().enumerate() {
                let path = format!("{path}[{i}]");
                let read = |one: &mut Arguments<'_>| Ok((step(one)?, one.faults()));
                match members(tool, &path, item, |_| "pattern_name", read) {
                    Ok((step, checked)) => {
                        steps.push(step);
                        faults.extend(checked.err().map(|error| error.about(path)));
                    }
                    Err(error) => {
                        faults.push(error.about(path));
                        break;
                    }
                }
            }
            Ok((steps, faults))
        };
        let constraints = move || {
            let schema = Arguments::of(tool, step).schema();
            format!(r#""maxItems":{most},"items":{schema},"#)
        };
        let found = self.ask(line, "array", Box::new(constraints), read);
        let (steps, faults) = found.unwrap_or_default();
        self.faults.extend(faults);
        steps
    }

    /// Whether an argument, or something in it, was refused.
    pub(super) fn refuses(&self, name: &str) -> bool {
        let is_about = |argument: &str| argument.starts_with(name);
        let mut arguments = self.faults.iter().map(|fault| &fault.argument);
        arguments.any(|argument| argument.as_deref().is_some_and(is_about))
    }

    /// Whether an argument that is accepted although it is not in the schema has anything in it.
    pub(super) fn former(&mut self, name: &'static str) -> bool {
        self.former.push(name);
        let mut given = self.given.iter();
        given.any(|(given, node)| given == name && !node.is_empty())
    }

    /// Notes a fault that arguments have together.
    pub(super) fn check(&mut self, fault: impl IntoIterator<Item = Error>) {
        self.faults.extend(fault);
    }

    /// If there are faults in the arguments, the work only looks up the names in them, if there are any. To be called when
    /// the plan is complete.
    pub(super) fn look_up(&mut self, has_names: bool) {
        let is_safe =
            |(key, value): &(_, String)| *key != "pattern" || search::shipped(value).is_some();
        if has_names && let Err(error) = self.faults() {
            // A name that is no pattern's may be private text in the wrong place.
            self.plan.fields.retain(is_safe);
            self.plan.needs = Resource::Calls;
            self.plan.fault = Some(error);
        }
    }

    /// All that is wrong with the arguments. To be asked once.
    pub(super) fn faults(&mut self) -> Result<(), Error> {
        Error::all(std::mem::take(&mut self.faults))
    }

    /// What was not asked for among what was `given`, in the same order however it is given.
    fn mistakes<'g>(&self, given: Given<'g>) -> Vec<Mistake<'g>> {
        let asked = self.asked.iter().map(|argument| argument.name);
        let known = asked.clone().chain(self.former.iter().copied());
        let is_unknown = |(name, node): &&GivenArgument<'_>| {
            (!node.is_empty() || search::shipped(name).is_some())
                && !known.clone().any(|known| known == name)
                && (!self.asked.is_empty() || name != DUMMY)
        };
        // What is given already is not what was meant; a variable, only if the pattern has it.
        let is_open = |meant: &&str| {
            let (object, variable) = meant.split_once('.').unwrap_or((meant, ""));
            asked.clone().any(|known| known == object)
                && self.sentence.contains(variable)
                && given.iter().all(|(given, _)| given != meant)
        };
        let mut meant = self.mistakes.iter().filter_map(|mistake| mistake.meant);
        let has_pattern = meant.any(|meant| meant == "pattern_name")
            || given.iter().any(|(given, _)| given == "pattern_name");
        let is_argument = |meant: &&str| ![WRAPPER, NOTHING].contains(meant);
        let meanings = || meanings().map(|(meant, _)| meant).filter(is_argument);
        let of = match &self.place {
            Place::Object(object) => object,
            _ => self.tool,
        };
        let mistake = |name: &str, path: &str, node: &'g Node<'g>, lists_all: bool| {
            let mut all = meanings().chain(asked.clone());
            let meant = all.find(|meant| is_meant(name, meant) && is_open(meant));
            // What belongs beside the object that it is in.
            let shown = self.place.path(&shown(path, 64));
            let object = shown.replace(char::is_numeric, "");
            let beside = || meanings().find(|meant| object != name && is_meant(&object, meant));
            let hint = match meant.or_else(beside) {
                _ if search::shipped(name).is_some() => {
                    let rest = ["variables", "input_text"][usize::from(node.text().is_some())];
                    format!("; did you mean pattern_name \"{name}\", and what is in it as {rest}?")
                }
                Some("then") if !has_pattern => {
                    "; did you mean the first of them as pattern_name, and the rest as then?".into()
                }
                Some(meant) => match meant.split_once('.') {
                    Some((object, member)) => {
                        let text = node.text().filter(|text| is_language(text));
                        let value = text.map_or("…".to_owned(), |text| format!("\"{text}\""));
                        let meant = self.place.give_in(object, &[member], &value);
                        format!("; did you mean {meant}?")
                    }
                    None => format!("; did you mean {meant}?"),
                },
                None if is_meant(name, WRAPPER) && matches!(node, Node::Object(_)) => {
                    ": move its members one level up.".into()
                }
                None if self.asked.is_empty() => ": it takes no arguments.".into(),
                None if is_meant(name, NOTHING) => ": leave it out.".into(),
                None if lists_all => {
                    format!(": it takes {}.", Vec::from_iter(asked.clone()).join(", "))
                }
                None => ".".into(),
            };
            let fault = invalid(format!("`{shown}` is not an argument of {of}{hint}"));
            let fault = (path == name || meant != Some(name)).then_some(fault);
            Mistake { meant, node, fault }
        };
        let unknown = given.iter().filter(is_unknown);
        let unknown = BTreeMap::from_iter(unknown.map(|(name, node)| (&**name, node)));
        let mut mistakes: Vec<Mistake<'g>> = Vec::new();
        // Others would not be shown.
        for (name, node) in unknown.into_iter().take(MOST_FAULTS) {
            mistakes.push(mistake(name, name, node, mistakes.is_empty()));
            let is_wrapper =
                mistakes.last().is_some_and(|last| last.meant.is_none()) && is_meant(name, WRAPPER);
            if let (Node::Object(members), true) = (node, is_wrapper) {
                let members = members.iter().take(MOST_FAULTS);
                mistakes.extend(members.map(|(member, node)| {
                    mistake(member, &format!("{name}.{member}"), node, false)
                }));
            }
        }
        mistakes
    }

    /// An argument as `read` reads it, which gets its name as refusals have it; `None` if left out or refused.
    fn ask<T>(
        &mut self,
        line: ArgumentLine,
        json_type: &'static str,
        constraints: Constraints,
        read: impl FnOnce(&str, &'a Node<'a>) -> Result<T, Error>,
    ) -> Option<T> {
        let (name, description) = line.split_once(": ").unwrap_or((line, ""));
        self.asked.push(Argument {
            name,
            json_type,
            constraints,
            description: description.into(),
            required: false,
        });
        let given = self.given.iter().find(|(given, _)| given == name);
        let mut mistakes = self.mistakes.iter();
        let mut meant = || mistakes.find(|mistake| mistake.meant == Some(name));
        let node = given
            .map(|(_, node)| node)
            .or_else(|| Some(meant()?.node))?;
        if node.is_empty() && (name != FREE || *node == Node::Null) && !has_pattern(node) {
            return None;
        }
        let path = self.place.path(name);
        let read = read(&path, node).map_err(|error| error.about(path));
        read.map_err(|error| self.faults.push(error)).ok()
    }

    /// What was just asked for.
    pub(super) fn last(&mut self) -> &mut Argument {
        self.asked.last_mut().expect("something was asked for")
    }
}

/// Whether something in it is called as a pattern is, [{"summarize": {}}]: it says more than its empty values.
fn has_pattern(node: &Node<'_>) -> bool {
    match node {
        Node::List(items) => items.iter().any(has_pattern),
        Node::Object(members) => members
            .iter()
            .any(|(name, _)| search::shipped(name).is_some()),
        _ => false,
    }
}

/// The steps that a text stands for: one, or several patterns of Fabric's, as in "a, b", "a then b" or "1. a\n2. b".
fn named(text: &str) -> Vec<Node<'static>> {
    let step = |name: &str| Node::Text(name.to_owned().into());
    let parts = text.replace(" then ", ",").replace(" and ", ",");
    let parts = parts.split([',', ';', '\n', '|', '>', '→', '+', '&']);
    let names = parts.map(|part| {
        let name = part.split_once(". ").map_or(part, |(_, name)| name);
        name.trim_matches([' ', '-', '.'])
    });
    let names = names.filter(|name| !name.is_empty());
    let steps = names.map(|name| search::shipped(name).map(|_| step(name)));
    let steps = Option::<Vec<_>>::from_iter(steps).filter(|steps| steps.len() > 1);
    steps.unwrap_or_else(|| vec![step(text)])
}

/// Whether what has this name may be meant to be that argument or tool. What models often write is no typing error.
pub(crate) fn is_meant(given: &str, name: &str) -> bool {
    let is_it = |wrong: &str| letters(given).eq(letters(wrong));
    let is_near = |wrong: &str| given.len() > 4 && edits(given, wrong, given.len() / 10 + 1);
    let is = |is_it: &dyn Fn(&str) -> bool, of: Option<&str>| {
        of.is_some_and(is_it)
            || meanings().any(|(meant, wrong)| {
                of.is_none_or(|of| of == meant) && wrong.split(' ').any(is_it)
            })
    };
    is(&is_it, Some(name)) || is(&is_near, Some(name)) && !is(&is_it, None)
}

fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    MEANT.lines().filter_map(|row| row.split_once(" < "))
}

/// What `read` makes of the members of an object at `path`. A string is the one member that `bare` says.
fn members<T>(
    tool: &'static str,
    path: &str,
    node: &Node<'_>,
    bare: fn(&str) -> &'static str,
    read: impl Fn(&mut Arguments<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let (node, place) = (unquoted(node), Place::Object(path.to_owned()));
    match &*node {
        Node::Object(given) => Arguments::read(tool, place, given, read),
        Node::Text(text) => {
            let given = [(bare(text).into(), node.clone().into_owned())];
            Arguments::read(tool, place, &given, read)
        }
        other => Err(wrong_type(path, "an object or a string", other)),
    }
}

/// The value itself of a number, truth value, list or object that is in a string as JSON.
pub(super) fn unquoted<'n>(node: &'n Node<'n>) -> Cow<'n, Node<'n>> {
    match node.text().and_then(|text| decode(text.as_bytes())) {
        None | Some(Node::Null | Node::Text(_)) => Cow::Borrowed(node),
        Some(value) => Cow::Owned(value),
    }
}

/// A string, or the digits of a whole number.
fn string<'a>(path: &str, node: &'a Node<'_>, wanted: &str) -> Result<Cow<'a, str>, Error> {
    match node {
        Node::Text(text) => Ok(text.as_ref().into()),
        Node::Number(number) if !number.is_f64() => Ok(number.to_string().into()),
        _ => Err(wrong_type(path, wanted, node)),
    }
}

fn wrong_type(path: &str, wanted: &str, found: &Node<'_>) -> Error {
    let found = match found {
        Node::Null => "null",
        Node::Bool(_) => "a boolean",
        Node::Number(_) => "a number",
        Node::Text(_) => "a string",
        Node::List(_) => "a list",
        Node::Object(_) => "an object",
    };
    invalid(format!(
        "`{}` must be {wanted}, not {found}.",
        shown(path, 128)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
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
        Arguments::read("tool", Place::default(), &given, |all| Ok(ask(all))).map_err(|e| e.detail)
    }

    fn string(arguments: &mut Arguments<'_>) -> Option<String> {
        arguments.string("x")
    }

    fn number(arguments: &mut Arguments<'_>) -> f64 {
        arguments.number("n", (0.0, 2.0), 9.0)
    }

    fn integer(arguments: &mut Arguments<'_>) -> Option<usize> {
        arguments.integer("i", (1, 9))
    }

    fn all(arguments: &mut Arguments<'_>) -> String {
        let string = string(arguments);
        let flag = arguments.flag("f", false);
        let (number, integer) = (number(arguments), integer(arguments));
        let variables = arguments.variables("v");
        let free = arguments.flag("dry_run", false);
        let wait = arguments.wait("wait_seconds", 9).map(|wait| wait.as_secs());
        let steps = arguments.steps("s", 2, |step| {
            Ok(step.required("pattern_name", "a string", |_, text| Ok(text.to_owned())))
        });
        let read = (string, flag, number, integer, variables, free, wait, steps);
        format!("{read:?}")
            .replace("Some(", "")
            .replace([')', '('], "")
    }

    /// What is understood, and as what.
    const TAKEN: &str = r#"
{} => None, false, 9.0, None, {}, false, None, []
{"x": null, "f": null, "n": null, "v": null, "dry_run": null, "s": null} => None, false, 9.0, None, {}, false, None, []
{"x": "", "f": "", "n": "", "i": [], "v": "", "s": "", "wait_seconds": {}} => None, false, 9.0, None, {}, false, None, []
{"x": {}, "f": [], "n": {}, "v": {"a": {}, "b": [], "c": ""}, "s": {}, "y": null} => None, false, 9.0, None, {}, false, None, []
{"x": 5, "f": true} => "5", true, 9.0, None, {}, false, None, []
{"x": " a ", "f": "True", "n": "0.2", "i": " 3 ", "dry_run": "false"} => "a", true, 0.2, 3, {}, false, None, []
{"v": {"a": 1, "b": true, "c": 0.5, "d": "", "e": null, "f": {}, "g": [""]}} => None, false, 9.0, None, {"a": "1", "b": "true", "c": "0.5", "d": ""}, false, None, []
{"v": "{\"a\": \"{}\"}", "wait_seconds": 99} => None, false, 9.0, None, {"a": "{}"}, false, 9, []
{"s": "p", "wait_seconds": "7"} => None, false, 9.0, None, {}, false, 7, ["p"]
{"s": {"pattern_name": "p"}} => None, false, 9.0, None, {}, false, None, ["p"]
{"s": "[\"p\", {\"pattern_name\": \"q\"}]"} => None, false, 9.0, None, {}, false, None, ["p", "q"]
"#;

    #[test]
    fn harmless_differences_are_understood() {
        for case in TAKEN.trim().lines() {
            let (value, taken) = case.split_once(" => ").unwrap();
            let value = serde_json::from_str(value).expect(case);
            assert_eq!(read(value, all), Ok(taken.to_owned()), "{case}");
        }
    }

    #[test]
    fn refusals_name_the_argument_and_what_is_allowed() {
        for case in [
            r#"{"x": true} => `x` must be a string, not a boolean."#,
            r#"{"f": "5"} => `f` must be true or false, not a string."#,
            r#"{"f": "yes"} => `f` must be true or false, not a string."#,
            r#"{"dry_run": {}} => `dry_run` must be true or false, not an object."#,
            r#"{"dry_run": ""} => `dry_run` must be true or false, not a string."#,
            r#"{"n": 2.5} => `n` is 2.5: it must be a number from 0 to 2."#,
            r#"{"n": "x"} => `n` must be a number from 0 to 2, not a string."#,
            r#"{"i": 0} => `i` is 0: it must be a whole number from 1 to 9."#,
            r#"{"i": "3.5"} => `i` is 3.5: it must be a whole number from 1 to 9."#,
            r#"{"wait_seconds": -1} => `wait_seconds` is -1: it must be a whole number from 0 to 9."#,
            r#"{"v": {"a": [1]}} => `v.a` must be a string, not a list."#,
            r#"{"v": "{"} => `v` must be an object of strings, not a string. For example variables {"lang_code": "…"}."#,
            r#"{"s": 5} => `s` must be a list of steps, not a number."#,
            r#"{"s": ["a", "b", "c"]} => `s` has 3 entries: at most 2 are allowed."#,
            r#"{"q": 1} => `q` is not an argument of tool: it takes x, f, n, i, v, dry_run, wait_seconds, s."#,
            r#"{"q": 1, "i": 0, "n": 3} => `q` is not an argument of tool: it takes x, f, n, i, v, dry_run, wait_seconds, s. `n` is 3: it must be a number from 0 to 2. `i` is 0: it must be a whole number from 1 to 9."#,
            r#"{"wait": 1, "s": [{"name": "a"}, 5]} => `wait` is not an argument of tool; did you mean wait_seconds? `s[0].name` is not an argument of s[0]; did you mean pattern_name? `s[1]` must be an object or a string, not a number."#,
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
        let numbers = [0.0, 2.0, -0.001, 2.001].map(|n| read(json!({"n": n}), number).is_ok());
        assert_eq!(numbers, [true, true, false, false]);
        let whole = [5.0, 5.5, -1.0, 1e300, 10.0].map(|i| read(json!({"i": i}), integer).is_ok());
        assert_eq!(whole, [true, false, false, false, false]);
    }
}
