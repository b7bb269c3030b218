//! Has the allocator give memory back to the system.
//!
//! glibc keeps what threads free: an arena for every thread that was ever busy, and, once a large block was freed, further
//! ones of its size in the arenas too. A burst of large requests would stay resident for good.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    // Of <malloc.h>; glibc's numbers never change.
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;

    /// Blocks of this size and more are mapped by themselves, and unmapped when freed. Setting it also keeps glibc from
    /// raising it, up to 32 MiB. With glibc's first value, 128 KiB, a list of prompts takes two fifths more time: its
    /// memory is mapped anew for each. Bytes.
    const MAPPED: c_int = 1 << 20;
    /// As soon as so much is free at the end of an arena, it goes back. Bytes.
    const TRIMMED: c_int = 1 << 20;
    /// Arenas in all: what each keeps adds up.
    const ARENAS: c_int = 4;

    #[allow(unsafe_code, reason = "std cannot tune the allocator; this is glibc's function with its signature")]
    unsafe extern "C" {
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
        safe fn malloc_trim(kept: usize) -> c_int;
    }

    /// Sets the allocator up. Where that fails, more memory stays resident.
    pub(crate) fn tune() {
        for (parameter, value) in [(M_MMAP_THRESHOLD, MAPPED), (M_TRIM_THRESHOLD, TRIMMED), (M_ARENA_MAX, ARENAS)] {
            mallopt(parameter, value);
        }
    }

    /// Gives back what is free between blocks that are not: a few milliseconds of work.
    pub(crate) fn trim() {
        malloc_trim(0);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) use glibc::{trim, tune};

/// Other allocators give back by themselves, or cannot be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn tune() {}

/// See [`tune`].
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}
