//! Parses a method's params; errors say what the method takes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::jsonrpc;

use super::answer::Refusal;

/// The raw members with these names, of params or an object in them; missing params count as `{}`.
///
/// # Errors
/// -32602 with `usage`, which says what the method takes.
pub(crate) fn params<'a, const N: usize>(
    params: Option<&'a RawValue>,
    names: [&str; N],
    usage: &str,
) -> Result<[Option<&'a RawValue>; N], Refusal> {
    jsonrpc::members(params.map_or("{}", RawValue::get), names).map_err(|_| Refusal::params(usage))
}

/// A required string member, borrowed if it has no escapes.
///
/// # Errors
/// -32602 with `usage`, also if it is missing.
pub(crate) fn text<'a>(member: Option<&'a RawValue>, usage: &str) -> Result<Cow<'a, str>, Refusal> {
    member
        .and_then(jsonrpc::text)
        .ok_or_else(|| Refusal::params(usage))
}

/// An optional string member.
pub(crate) fn optional_text<'a>(
    member: Option<&'a RawValue>,
    usage: &str,
) -> Result<Option<Cow<'a, str>>, Refusal> {
    given(member)
        .map(|member| text(Some(member), usage))
        .transpose()
}

/// An optional member; `null` counts as missing.
pub(crate) fn given(member: Option<&RawValue>) -> Option<&RawValue> {
    member.filter(|raw| raw.get() != "null")
}
