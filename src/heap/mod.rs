//! Memory: the system's allocator as a server with many threads needs it.
//!
//! glibc's keeps too much, and is tuned; musl's serves one thread at a time, and gets a cache. Others are left as they
//! are.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;
#[cfg(any(target_env = "musl", test))]
mod striped;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use glibc::{trim, tune};

#[cfg(target_env = "musl")]
#[global_allocator]
static CACHE: striped::Striped = striped::Striped::new();

/// Other allocators need no tuning, or have none: musl's releases memory by itself.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn tune() {}

/// See [`tune`].
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}
