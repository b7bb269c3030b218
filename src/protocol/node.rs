//! A message as a tree, read once and without copies: texts without escapes are borrowed from its bytes. No struct for
//! each method, because the method's name may come after its params, and because doubled members and too many values
//! are found here for all.
//!
//! In scope: the tree, the limits on values, doubled members, and reading members of the wanted type. Not in scope: what
//! a message is (`jsonrpc`).

use std::borrow::Cow;
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

/// Values beyond the limit were left out.
const TOO_MANY: &str = "params hold more than 10000 values, the limit.";

/// The members that a message needs. Once it has [`FEW`], no others are kept: there may be a million.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
/// Hardly an object has more members than this.
const FEW: usize = 16;

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
                .find(|(known, _)| known == name)
                .map(|(_, member)| member),
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

    /// Is it an object?
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Node::Object(_))
    }
}

/// A value outside of a message, within the limits of a message's params.
impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node<'a>, D::Error> {
        match read(from, &mut MAX_VALUES.clone(), 1)? {
            (node, None) => Ok(node),
            (_, Some(fault)) => Err(D::Error::custom(fault)),
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

/// Reads a message, or at a `depth` of 1 its params, and says what is wrong with these. At most [`MAX_VALUES`] values are
/// kept, and at most `line`, the number that may still be kept of the line or body. The message's own members are not
/// checked: an error needs its id.
///
/// # Errors
/// It is not JSON.
pub(super) fn read<'de, D: Deserializer<'de>>(
    from: D,
    line: &mut usize,
    depth: usize,
) -> Result<(Node<'de>, Option<&'static str>), D::Error> {
    let own = MAX_VALUES.min(*line);
    let (mut left, mut fault) = (own, None);
    let reader = Reader {
        left: &mut left,
        fault: &mut fault,
        depth,
    };
    let node = reader.deserialize(from)?;
    *line -= own - left;
    Ok((node, fault))
}

/// Reads one value; `depth` objects and arrays are around it.
struct Reader<'l> {
    /// How many more values are kept of the message.
    left: &'l mut usize,
    /// What is wrong with the message.
    fault: &'l mut Option<&'static str>,
    depth: usize,
}

impl Reader<'_> {
    fn within(&mut self) -> Reader<'_> {
        Reader {
            left: self.left,
            fault: self.fault,
            depth: self.depth + 1,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node<'de>, D::Error> {
        // The members of the message itself are kept in any case: its id is needed for the error.
        if self.depth > 1 {
            if *self.left == 0 {
                *self.fault = Some(TOO_MANY);
                return IgnoredAny::deserialize(from).map(|_| Node::Null);
            }
            *self.left -= 1;
        }
        from.deserialize_any(self)
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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Node<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.within())? {
            // What is left out must not take room.
            if *self.fault != Some(TOO_MANY) {
                items.push(item);
            }
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(MemberName(name)) = map.next_key()? {
            let is_kept = match self.depth {
                0 => members.len() < FEW || members.len() < 2 * FEW && MEMBERS.contains(&&*name),
                _ => *self.fault != Some(TOO_MANY),
            };
            // A response is not read here, and may be as long as a run's output.
            let is_read = is_kept && (self.depth > 0 || name != "result");
            let member = match is_read {
                true => map.next_value_seed(self.within())?,
                false => map.next_value::<IgnoredAny>().map(|_| Node::Null)?,
            };
            if is_kept {
                members.push((name, member));
            }
        }
        if self.depth > 0 && has_doubles(&members) {
            let doubled = "params hold an object with the same field twice.";
            self.fault.get_or_insert(doubled);
        }
        Ok(Node::Object(members))
    }
}

/// Does an object have the same member twice? A few members are compared with each other, which needs no memory.
pub(super) fn has_doubles(members: &[(Cow<'_, str>, Node<'_>)]) -> bool {
    if members.len() <= FEW {
        let mut rest = members.iter().enumerate();
        return rest.any(|(at, (name, _))| members[..at].iter().any(|(before, _)| before == name));
    }
    let mut seen = HashSet::with_capacity(members.len());
    !members.iter().all(|(name, _)| seen.insert(name))
}

/// A member's name, borrowed if it has no escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
