//! What Fabric is to us.
mod error;
pub(crate) use error::{Error, Kind};
