//! What the operating system and its service manager give and want: files, memory, random numbers, signals, readiness.

pub(crate) mod files;
pub(crate) mod heap;
pub(crate) mod random;
pub(crate) mod service;
pub(crate) mod signals;

// The unwinder of libgcc becomes part of the program. To load it as a library took a sixth of the time from start to the
// first answer.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
#[allow(unsafe_code, reason = "an empty block: it names a library only")]
unsafe extern "C" {}
