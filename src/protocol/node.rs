//! A message as a tree, read once and without copies: texts without escapes are borrowed from its bytes. No struct for
//! each method, because the method's name may come after its params, and because doubled members and too many values
//! are found here for all.
//!
//! In scope: the tree, the limits on values, doubled members, and reading members of the wanted type. Not in scope: what
//! a message is (`jsonrpc`).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;

use crate::config::{MAX_STRING, MAX_VALUES};

use super::answer::Refusal;

/// The memory of one value beside its text, in bytes.
pub(crate) const VALUE: usize = 64;

/// The error for params of more than [`MAX_VALUES`] values.
pub(super) const TOO_MANY: &str = "params hold more than 10000 values, the limit.";

/// Any JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Node<'a>>),
    /// An object, in the order of the message.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// The member of this name; `None` for anything but an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Node<'a>> {
        match self {
            Node::Object(members) => members
                .iter()
                .find_map(|(known, member)| (known == name).then_some(member)),
            _ => None,
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the value is empty. Models send empty values for arguments that they leave out.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Node::Null => true,
            Node::Bool(_) | Node::Number(_) => false,
            Node::Text(text) => text.is_empty(),
            Node::List(items) => items.iter().all(Node::is_empty),
            Node::Object(members) => members.iter().all(|(_, member)| member.is_empty()),
        }
    }

    /// How much memory it takes at most, in bytes: its texts, and [`VALUE`] for each value.
    pub(crate) fn size(&self) -> usize {
        VALUE
            + match self {
                Node::Null | Node::Bool(_) | Node::Number(_) => 0,
                Node::Text(text) => text.len(),
                Node::List(items) => items.iter().map(Node::size).sum(),
                Node::Object(members) => members
                    .iter()
                    .map(|(name, member)| name.len() + member.size())
                    .sum(),
            }
    }

    /// What is wrong with it as params, whatever the method.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.count() {
            None => Some("params hold an object with the same field twice."),
            Some(values) if values > MAX_VALUES => Some(TOO_MANY),
            Some(_) => None,
        }
    }

    /// How many values are in it; `None` if an object has the same member twice.
    fn count(&self) -> Option<usize> {
        let count = |node: &Node<'_>| node.count().map(|inner| inner + 1);
        match self {
            Node::List(items) => items.iter().map(count).sum(),
            Node::Object(members) if has_doubles(members) => None,
            Node::Object(members) => members.iter().map(|(_, member)| count(member)).sum(),
            _ => Some(0),
        }
    }

    /// Is it an object?
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Node::Object(_))
    }
}

/// A value outside of a message, within the limits of a message's params.
impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node<'a>, D::Error> {
        let node = read(from, MAX_VALUES + 1, true)?;
        match node.fault() {
            None => Ok(node),
            Some(fault) => Err(D::Error::custom(fault)),
        }
    }
}

/// A request's params, and what errors about them say the method takes.
#[derive(Clone, Copy)]
pub(crate) struct Params<'p> {
    node: Option<&'p Node<'p>>,
    usage: &'static str,
}

impl<'p> Params<'p> {
    /// Params, or an object in them, whose errors are -32602 with `usage`.
    pub(crate) fn new(node: Option<&'p Node<'p>>, usage: &'static str) -> Params<'p> {
        Params { node, usage }
    }

    /// A member; `null` counts as missing.
    pub(crate) fn get(&self, name: &str) -> Option<&'p Node<'p>> {
        self.node?
            .get(name)
            .filter(|member| !matches!(member, Node::Null))
    }

    /// A required string.
    ///
    /// # Errors
    /// -32602, also if it is missing.
    pub(crate) fn text(&self, name: &str) -> Result<&'p str, Refusal> {
        self.optional_text(name)?.ok_or_else(|| self.refusal())
    }

    /// An optional string. An error may repeat it, so it is short.
    ///
    /// # Errors
    /// -32602.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'p str>, Refusal> {
        match self.get(name) {
            None => Ok(None),
            Some(Node::Text(text)) if text.len() <= MAX_STRING => Ok(Some(text)),
            Some(Node::Text(_)) => Err(Refusal::params(format!(
                "\"{name}\" is longer than {MAX_STRING} bytes, the limit."
            ))),
            Some(_) => Err(self.refusal()),
        }
    }

    /// A required object.
    ///
    /// # Errors
    /// -32602, also if it is missing.
    pub(crate) fn object(&self, name: &str) -> Result<Params<'p>, Refusal> {
        match self.get(name) {
            Some(node) if node.is_object() => Ok(Params::new(Some(node), self.usage)),
            _ => Err(self.refusal()),
        }
    }

    /// The members of an object; none if it is missing.
    ///
    /// # Errors
    /// -32602.
    pub(crate) fn members(&self, name: &str) -> Result<&'p [(Cow<'p, str>, Node<'p>)], Refusal> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Node::Object(members)) => Ok(members),
            Some(_) => Err(self.refusal()),
        }
    }

    /// The error for params that are not what the method takes.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::params(self.usage)
    }
}

/// Reads a message or an array of messages, or, if `is_inner`, any other value.
///
/// # Errors
/// It is not JSON; or it has more than `most` values, itself included, which alone is an error of the data in the words of
/// serde_json.
pub(super) fn read<'de, D: Deserializer<'de>>(
    from: D,
    most: usize,
    is_inner: bool,
) -> Result<Node<'de>, D::Error> {
    let reader = Reader {
        left: &Cell::new(most),
        is_inner,
        is_skipped: false,
    };
    reader.deserialize(from)
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Reader<'l> {
    /// How many more values may be read.
    left: &'l Cell<usize>,
    /// Is it neither a message nor an array of messages?
    is_inner: bool,
    /// Is it checked and counted, but not kept?
    is_skipped: bool,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node<'de>, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left
            .set(left.ok_or_else(|| D::Error::custom(TOO_MANY))?);
        match self.is_skipped {
            true => IgnoredAny::deserialize(from).map(|_| Node::Null),
            false => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node<'de>, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node<'de>, E> {
        Ok(Number::from_f64(value).map_or(Node::Null, Node::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(MemberName(name)) = map.next_key()? {
            let reader = Reader {
                is_inner: true,
                // A response is not read here, and may be as long as a run's output.
                is_skipped: !self.is_inner && name == "result",
                ..self
            };
            members.push((name, map.next_value_seed(reader)?));
        }
        Ok(Node::Object(members))
    }
}

/// Does an object have the same member twice? A few members are compared with each other, which needs no memory.
pub(super) fn has_doubles(members: &[(Cow<'_, str>, Node<'_>)]) -> bool {
    if members.len() <= 16 {
        let mut rest = members.iter().enumerate();
        return rest.any(|(at, (name, _))| members[..at].iter().any(|(before, _)| before == name));
    }
    let mut seen = HashSet::with_capacity(members.len());
    !members.iter().all(|(name, _)| seen.insert(name))
}

/// A member's name, borrowed if it has no escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
