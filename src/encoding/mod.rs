//! Bytes as text, as standards have it.

pub(crate) mod base64;
pub(crate) mod json;
pub(crate) mod percent;
pub(crate) mod sha256;
