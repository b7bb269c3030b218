//! What the operating system and its service manager give and want: files, memory, random numbers, signals, readiness.

pub(crate) mod files;
pub(crate) mod heap;
pub(crate) mod random;
pub(crate) mod service;
pub(crate) mod signals;
