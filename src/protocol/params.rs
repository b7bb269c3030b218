//! Reading a method's params, with an error that says what the method takes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::jsonrpc;

use super::answer::Refusal;

/// The members of a method's params that have these names, or of an object in them, in their order and raw; those of
/// `{}` if there are none.
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

/// The string that a member must be, borrowed where it has no escapes.
///
/// # Errors
/// -32602 with `usage`, also if it is not there.
pub(crate) fn text<'a>(member: Option<&'a RawValue>, usage: &str) -> Result<Cow<'a, str>, Refusal> {
    member.and_then(jsonrpc::text).ok_or_else(|| Refusal::params(usage))
}

/// The same for one that may be left out.
pub(crate) fn optional_text<'a>(member: Option<&'a RawValue>, usage: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    given(member).map(|member| text(Some(member), usage)).transpose()
}

/// A member that may be left out, where `null` is as good as that.
pub(crate) fn given(member: Option<&RawValue>) -> Option<&RawValue> {
    member.filter(|raw| raw.get() != "null")
}
