//! A cache of freed blocks over the system's allocator, for musl: that one has a single lock, and threads that share it
//! wait for each other most of the time. With this cache, eight connections are served twice, and 64 three times, as fast.
//!
//! Freed blocks are kept in lists by size, and the lists in stripes, each with a lock of its own that nobody waits for.
//! A cache for each thread would need no lock, but thousands of idle connections each have a thread, and what it kept
//! would lie idle with it. So what is kept here does not grow with the number of threads: at most 3 MiB.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More than the threads of usual machines that allocate at the same instant: locks are held for nanoseconds.
const STRIPES: usize = 8;
/// What blocks are aligned to, as those of malloc, and what the smallest ones differ by. Bytes.
const GRAIN: usize = 16;
/// Larger blocks are left to the system. Bytes.
const LARGEST: usize = 16 << 10;
/// Sizes of blocks: eight up to 128 bytes, then four for each doubling.
const CLASSES: usize = 8 + 4 * 7;
/// What a list keeps at most, or two blocks if they are larger. Bytes.
const KEPT: usize = 8 << 10;

/// Cached blocks over [`System`].
pub(super) struct Striped {
    stripes: [Stripe; STRIPES],
}

/// In a cache line of its own.
#[repr(align(128))]
struct Stripe {
    is_locked: AtomicBool,
    /// Of whoever has set `is_locked`.
    lists: UnsafeCell<[List; CLASSES]>,
}

#[allow(
    unsafe_code,
    reason = "only the holder of the lock reaches the lists, and blocks belong to no thread"
)]
// SAFETY: see `Stripe::with`.
unsafe impl Sync for Stripe {}

/// Freed blocks of one size.
struct List {
    first: *mut FreeBlock,
    length: usize,
}

struct FreeBlock {
    next: *mut FreeBlock,
}

/// The class of blocks of `size` bytes, which is at most [`LARGEST`], and the size of its blocks.
fn class(size: usize) -> (usize, usize) {
    let last = size.saturating_sub(1);
    if last < 8 * GRAIN {
        return (last / GRAIN, (last / GRAIN + 1) * GRAIN);
    }
    let doubling = last.ilog2() as usize;
    let shift = doubling - 2;
    (
        8 + (doubling - 7) * 4 + ((last >> shift) & 3),
        ((last >> shift) + 1) << shift,
    )
}

/// The class for `layout` and the layout of its blocks; `None` if it is left to the system.
fn class_of(layout: Layout) -> Option<(usize, Layout)> {
    if layout.size() > LARGEST || layout.align() > GRAIN {
        return None;
    }
    let (class, size) = class(layout.size());
    Some((class, Layout::from_size_align(size, GRAIN).ok()?))
}

thread_local! {
    /// The stripe of this thread; `usize::MAX` before its first block. It has no destructor, so no allocation is made
    /// for it.
    static HOME: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);

fn home() -> usize {
    let home = HOME.get();
    if home < STRIPES {
        return home;
    }
    let home = NEXT_HOME.fetch_add(1, Ordering::Relaxed) % STRIPES;
    HOME.set(home);
    home
}

impl Stripe {
    /// Lets `work` use the lists, unless another thread does or `work` is called by itself.
    #[allow(
        unsafe_code,
        reason = "an allocator can lend out no guards of std: they may allocate"
    )]
    fn with<T>(&self, work: impl FnOnce(&mut [List; CLASSES]) -> Option<T>) -> Option<T> {
        if self.is_locked.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag was not set, so nobody else has the lists until it is cleared below.
        let done = work(unsafe { &mut *self.lists.get() });
        self.is_locked.store(false, Ordering::Release);
        done
    }
}

impl Striped {
    pub(super) const fn new() -> Striped {
        const EMPTY: List = List {
            first: ptr::null_mut(),
            length: 0,
        };
        let stripes = [const {
            Stripe {
                is_locked: AtomicBool::new(false),
                lists: UnsafeCell::new([EMPTY; CLASSES]),
            }
        }; STRIPES];
        Striped { stripes }
    }

    /// Lets `work` use the lists of this thread's stripe, or of the next one.
    fn with<T>(&self, work: impl Fn(&mut [List; CLASSES]) -> Option<T>) -> Option<T> {
        let home = home();
        self.stripes[home]
            .with(&work)
            .or_else(|| self.stripes[(home + 1) % STRIPES].with(&work))
    }

    /// A kept block.
    #[allow(unsafe_code, reason = "the list is in the blocks themselves")]
    fn take(&self, class: usize) -> Option<*mut u8> {
        self.with(|lists| {
            let list = &mut lists[class];
            let block = list.first;
            if block.is_null() {
                return None;
            }
            // SAFETY: blocks in a list are allocated, are used by nobody else and begin with a link.
            list.first = unsafe { (*block).next };
            list.length -= 1;
            Some(block.cast())
        })
    }

    /// Keeps a block of `size` bytes, which nobody uses any more. False if there are enough.
    #[allow(unsafe_code, reason = "the list is in the blocks themselves")]
    fn keep(&self, block: *mut u8, class: usize, size: usize) -> bool {
        let kept = self.with(|lists| {
            let list = &mut lists[class];
            if list.length >= (KEPT / size).max(2) {
                return None;
            }
            let block: *mut FreeBlock = block.cast();
            // SAFETY: every block has room for a link, and is aligned for it.
            unsafe { block.write(FreeBlock { next: list.first }) };
            list.first = block;
            list.length += 1;
            Some(())
        });
        kept.is_some()
    }
}

#[allow(unsafe_code, reason = "the interface of allocators")]
// SAFETY: every block comes from `System`, with the layout of its class or its own, which are found again from the layout
// that it is freed with; it is in a list or in use, never both.
unsafe impl GlobalAlloc for Striped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((class, whole)) = class_of(layout) else {
            // SAFETY: as promised to us.
            return unsafe { System.alloc(layout) };
        };
        // SAFETY: the size of a class is not zero.
        self.take(class)
            .unwrap_or_else(|| unsafe { System.alloc(whole) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class_of(layout).is_none() {
            // SAFETY: as promised to us. What comes from the kernel is zero without being written.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as promised to us.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            // SAFETY: it was allocated with this layout.
            None => unsafe { System.dealloc(block, layout) },
            Some((class, whole)) if !self.keep(block, class, whole.size()) => {
                // SAFETY: as above.
                unsafe { System.dealloc(block, whole) };
            }
            Some(_) => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that this size can be a layout's.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(wanted)) {
            // SAFETY: as promised to us.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            (Some((old, _)), Some((new, _))) if old == new => block,
            _ => {
                // SAFETY: as promised to us; the blocks do not overlap, and each has room for what is copied.
                unsafe {
                    let moved = self.alloc(wanted);
                    if !moved.is_null() {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A block of the test, with the byte that it is full of.
    struct Used {
        block: *mut u8,
        layout: Layout,
        byte: u8,
    }

    #[allow(unsafe_code, reason = "the interface of allocators")]
    impl Used {
        fn new(heap: &Striped, size: usize, align: usize, byte: u8, zeroed: bool) -> Used {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: no size here is zero.
            let block = unsafe {
                if zeroed {
                    heap.alloc_zeroed(layout)
                } else {
                    heap.alloc(layout)
                }
            };
            assert!(!block.is_null() && block.addr().is_multiple_of(align));
            let used = Used {
                block,
                layout,
                byte,
            };
            if zeroed {
                assert!(used.bytes().iter().all(|&found| found == 0), "{layout:?}");
            }
            used.fill();
            used
        }

        fn bytes(&self) -> &[u8] {
            // SAFETY: the block has this size, and is used by one thread.
            unsafe { std::slice::from_raw_parts(self.block, self.layout.size()) }
        }

        fn fill(&self) {
            // SAFETY: as above.
            unsafe { self.block.write_bytes(self.byte, self.layout.size()) }
        }

        fn resize(&mut self, heap: &Striped, size: usize) {
            let kept = size.min(self.layout.size());
            // SAFETY: it was allocated with this layout, and no size here is zero.
            self.block = unsafe { heap.realloc(self.block, self.layout, size) };
            self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
            assert!(
                self.bytes()[..kept].iter().all(|&found| found == self.byte),
                "{:?}",
                self.layout
            );
            self.fill();
        }

        fn free(self, heap: &Striped) {
            assert!(
                self.bytes().iter().all(|&found| found == self.byte),
                "{:?}",
                self.layout
            );
            // SAFETY: it was allocated with this layout.
            unsafe { heap.dealloc(self.block, self.layout) }
        }
    }

    /// Gives all that is kept back to the system.
    #[allow(unsafe_code, reason = "the interface of allocators")]
    fn drain(heap: &Striped) -> usize {
        let mut bytes = 0;
        for size in (1..=LARGEST).filter(|&size| class(size).1 == size) {
            while let Some(block) = heap.stripes.iter().find_map(|stripe| {
                stripe.with(|lists| {
                    let list = &mut lists[class(size).0];
                    let first = list.first;
                    // SAFETY: as in `Striped::take`.
                    (!first.is_null()).then(|| unsafe {
                        list.first = (*first).next;
                        first
                    })
                })
            }) {
                bytes += size;
                // SAFETY: blocks of this class have this layout.
                unsafe {
                    System.dealloc(block.cast(), Layout::from_size_align(size, GRAIN).unwrap())
                };
            }
        }
        bytes
    }

    #[test]
    fn every_size_has_a_class_that_wastes_little() {
        let mut before = (0, GRAIN);
        for size in 1..=LARGEST {
            let (index, whole) = class(size);
            assert!(
                whole >= size
                    && whole.is_multiple_of(GRAIN)
                    && whole - size < (size / 4).max(GRAIN),
                "{size}"
            );
            assert_eq!(class(whole), (index, whole));
            assert!(
                index == before.0 && whole == before.1 || index == before.0 + 1 && whole > before.1,
                "{size}"
            );
            before = (index, whole);
        }
        assert_eq!(before, (CLASSES - 1, LARGEST));
    }

    #[test]
    fn a_freed_block_serves_the_next_of_its_class() {
        let heap = Striped::new();
        let mut first = Used::new(&heap, 100, 1, 1, false);
        let at = first.block;
        first.resize(&heap, 112);
        assert_eq!(first.block, at);
        first.free(&heap);
        let zeroed = Used::new(&heap, 97, 16, 2, true);
        assert_eq!(zeroed.block, at);
        // Its alignment is beyond what lists promise.
        let aligned = Used::new(&heap, 100, 64, 3, false);
        [zeroed, aligned]
            .into_iter()
            .for_each(|used| used.free(&heap));
        assert_eq!(drain(&heap), 112);
    }

    #[test]
    fn a_list_in_use_is_waited_for_by_nobody() {
        let heap = Striped::new();
        let next = &heap.stripes[(home() + 1) % STRIPES];
        for other in [None, Some(next)] {
            let locked: Vec<&Stripe> = [&heap.stripes[home()]].into_iter().chain(other).collect();
            locked
                .iter()
                .for_each(|stripe| stripe.is_locked.store(true, Ordering::Relaxed));
            Used::new(&heap, 10, 1, 1, false).free(&heap);
            locked
                .iter()
                .for_each(|stripe| stripe.is_locked.store(false, Ordering::Relaxed));
            assert_eq!(drain(&heap), if other.is_none() { GRAIN } else { 0 });
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let heap = Striped::new();
        thread::scope(|scope| {
            (0..2 * STRIPES).for_each(|_| {
                drop(scope.spawn(|| {
                    for size in (1..=LARGEST).filter(|&size| class(size).1 == size) {
                        let used: Vec<Used> = (0..600)
                            .map(|_| Used::new(&heap, size, 1, 0, false))
                            .collect();
                        used.into_iter().for_each(|used| used.free(&heap));
                    }
                }))
            });
        });
        let kept = drain(&heap);
        assert!((1 << 20..3 << 20).contains(&kept), "{kept}");
    }

    #[test]
    fn threads_share_it_and_no_block_is_lent_twice() {
        let heap = &Striped::new();
        let work = |seed: u64| {
            let mut state = seed + 1;
            let mut random = |below: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below
            };
            let mut used: Vec<Used> = Vec::new();
            for round in 0..3_000 {
                let most = [64, 1_000, LARGEST, 2 * LARGEST][random(4)];
                let size = 1 + random(most);
                match random(3) {
                    0 if !used.is_empty() => used.swap_remove(random(used.len())).free(heap),
                    1 if !used.is_empty() => {
                        let at = random(used.len());
                        used[at].resize(heap, size);
                    }
                    _ => used.push(Used::new(
                        heap,
                        size,
                        1 << random(6),
                        round as u8,
                        random(2) == 0,
                    )),
                }
            }
            used.into_iter().for_each(|used| used.free(heap));
        };
        thread::scope(|scope| (0..16).for_each(|seed| drop(scope.spawn(move || work(seed)))));
        drain(heap);
    }
}
