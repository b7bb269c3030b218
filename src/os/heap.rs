//! Makes the system's allocator release memory to the system.
//!
//! glibc keeps freed memory in an arena per thread, and after a large block was freed, later blocks of that size too.
//! Without tuning, the memory of a burst of large requests stays resident for good. Other allocators are left as they
//! are: they need no tuning, or have none.

pub(crate) use allocator::{trim_after, tune};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    use std::ffi::{c_int, c_ulong};
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    // From <malloc.h> and <sys/resource.h>; glibc's numbers never change.
    const M_MXFAST: c_int = 1;
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;
    const RLIMIT_AS: c_int = 9;

    /// Larger blocks are mapped one by one, and unmapped when freed. Setting it keeps glibc from raising it to up to 32
    /// MiB. With glibc's default, 128 KiB, answers of 400 KB take some 15 % longer: each maps its memory anew. Bytes.
    const MAPPED: c_int = 1 << 20;
    /// Free memory at the end of an arena beyond this is released. Bytes.
    const TRIMMED: c_int = 1 << 20;
    /// No small freed blocks are set aside: one that `malloc_trim` joins to the end of an arena keeps all of that end,
    /// 26 MB after 8,000 connections. Each thread's own cache serves small blocks. Bytes.
    const SET_ASIDE: c_int = 0;
    /// Most arenas: each keeps memory.
    const ARENAS: c_int = 4;
    /// Each arena reserves 64 MiB of addresses. A thread without room for its own maps a page for each block until
    /// nothing is left. So below this limit (`ulimit -v`) all threads share one arena. Bytes.
    const SPACIOUS: c_ulong = 1 << 30;
    /// How much is charged for and given back before free memory is released. Bytes.
    const TURNOVER: usize = 16 << 20;

    /// How much was charged for or given back since memory was last released. Bytes.
    static CHANGED: AtomicUsize = AtomicUsize::new(0);

    #[allow(
        unsafe_code,
        reason = "std cannot tune the allocator; these are glibc's functions with their signatures"
    )]
    unsafe extern "C" {
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
        safe fn malloc_trim(kept: usize) -> c_int;
        /// Fills in the soft and the hard limit.
        safe fn getrlimit(resource: c_int, limits: &mut [c_ulong; 2]) -> c_int;
    }

    /// Configures the allocator. If that fails, more memory stays resident.
    pub(crate) fn tune() {
        let mut addresses = [0; 2];
        let narrow = getrlimit(RLIMIT_AS, &mut addresses) == 0 && addresses[0] < SPACIOUS;
        let arenas = if narrow { 1 } else { ARENAS };
        mallopt(M_MMAP_THRESHOLD, MAPPED);
        mallopt(M_TRIM_THRESHOLD, TRIMMED);
        mallopt(M_MXFAST, SET_ASIDE);
        mallopt(M_ARENA_MAX, arenas);
    }

    /// Releases free memory between used blocks, which takes a few milliseconds, once what is charged for has changed by
    /// [`TURNOVER`] in all. Waiting for a fall is not enough: where one text takes the place of another, or grows and is
    /// moved, the sum stays the same while gaps become more.
    pub(crate) fn trim_after(changed: usize) {
        // Of several threads, the one that takes the sum releases it.
        if CHANGED.fetch_add(changed, Relaxed) + changed >= TURNOVER
            && CHANGED.swap(0, Relaxed) >= TURNOVER
        {
            malloc_trim(0);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    /// Does nothing.
    pub(crate) fn tune() {}

    /// Does nothing.
    pub(crate) fn trim_after(_changed: usize) {}
}
