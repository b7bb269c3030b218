//! The memory budget: bytes that callers make the process hold, in bodies, calls, outputs of runs and unsent answers.
//!
//! In scope: counting, and a reserve for small requests. Not in scope: who charges what. Buffers of connections and
//! threads are not charged; their number is limited elsewhere.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::DEFAULT_MEMORY;
use crate::heap;

/// The process's budget.
pub(crate) static MEMORY: Budget = Budget::new(DEFAULT_MEMORY);

/// The reserve for small charges is the budget divided by this.
const RESERVE_SHARE: usize = 4;
/// Charges of this size or more may not use the reserve; the smaller the charge, the more of it. Bytes.
const LARGE: usize = 512 << 10;
/// After this much was released, the allocator releases memory to the system. Bytes.
const MUCH: usize = 16 << 20;
/// Charges update the shared counter in steps of this size, so that small pieces of output rarely do. Bytes.
const STEP: usize = 4 << 10;

/// A number of bytes shared by all charges.
pub(crate) struct Budget {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// The highest use since memory was last released to the system.
    peak: AtomicUsize,
    reclaim: OnceLock<Reclaim>,
}

/// Frees dispensable memory: gets the number of bytes needed, returns the number freed.
type Reclaim = Box<dyn Fn(usize) -> usize + Send + Sync>;

/// The budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Budget {
    /// A budget of `limit` bytes without charges.
    pub(crate) const fn new(limit: usize) -> Budget {
        Budget {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            reclaim: OnceLock::new(),
        }
    }

    /// Sets a function that frees memory before a charge is refused. It must not charge anything: that would
    /// call it again.
    pub(crate) fn reclaim_with(&self, reclaim: impl Fn(usize) -> usize + Send + Sync + 'static) {
        // Only the first function is kept.
        let _ = self.reclaim.set(Box::new(reclaim));
    }

    /// Changes the limit; existing charges stay.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes charged now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// An empty charge.
    pub(crate) const fn open(&'static self) -> Charge {
        Charge {
            budget: self,
            held: 0,
            charged: 0,
            large: false,
        }
    }

    /// Takes `more` bytes for a charge that has `total` afterwards.
    fn take(&self, more: usize, total: usize) -> Result<(), Full> {
        let limit = self.limit.load(Ordering::Relaxed);
        // In f64, because the product may overflow a 32-bit usize.
        let left_to_others =
            (limit / RESERVE_SHARE) as f64 * (total.min(LARGE) as f64 / LARGE as f64);
        let ceiling = limit - left_to_others as usize;
        let fits = |used: usize| used.checked_add(more).filter(|sum| *sum <= ceiling);
        let before = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map_err(|_| Full)?;
        self.peak.fetch_max(before + more, Ordering::Relaxed);
        Ok(())
    }

    /// Releases bytes of a charge; after many, releases memory to the system.
    fn give_back(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let peak = self.peak.load(Ordering::Relaxed);
        let is_much = peak.saturating_sub(used) >= MUCH;
        if is_much
            && self
                .peak
                .compare_exchange(peak, used, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            heap::trim();
        }
    }
}

/// Bytes taken from the budget, released on drop. Keep it beside its data, and drop it after the data.
pub(crate) struct Charge {
    budget: &'static Budget,
    /// Bytes the holder has.
    held: usize,
    /// Bytes taken from the budget: `held`, rounded up.
    charged: usize,
    /// May not use the reserve.
    large: bool,
}

impl Charge {
    /// Excludes this charge from the reserve at any size: one caller may have many of its kind at once.
    pub(crate) fn without_reserve(mut self) -> Charge {
        self.large = true;
        self
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Adds `more` bytes.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Full> {
        self.grow_into_free(more).or_else(|Full| {
            let reclaimed = self
                .budget
                .reclaim
                .get()
                .map_or(0, |reclaim| reclaim(more.saturating_add(STEP)));
            if reclaimed > 0 {
                self.grow_into_free(more)
            } else {
                Err(Full)
            }
        })
    }

    /// The same without reclaiming: for the function of [`Budget::reclaim_with`].
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    pub(crate) fn grow_into_free(&mut self, more: usize) -> Result<(), Full> {
        let held = self.held.checked_add(more).ok_or(Full)?;
        if held > self.charged {
            let charged = held.checked_next_multiple_of(STEP).ok_or(Full)?;
            let total = if self.large { LARGE } else { charged };
            self.budget.take(charged - self.charged, total)?;
            self.charged = charged;
        }
        self.held = held;
        Ok(())
    }

    /// Removes `less` bytes.
    pub(crate) fn shrink(&mut self, less: usize) {
        self.held = self.held.saturating_sub(less);
        let charged = self.held.next_multiple_of(STEP);
        if charged < self.charged {
            self.budget.give_back(self.charged - charged);
            self.charged = charged;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::new(limit)))
    }

    impl Budget {
        fn charge(&'static self, bytes: usize) -> Result<Charge, Full> {
            let mut charge = self.open();
            charge.grow(bytes).map(|()| charge)
        }
    }

    #[test]
    fn charges_are_released_however_they_end() {
        let budget = budget(1 << 20);
        let mut charge = budget.charge(10_000).unwrap();
        assert_eq!((charge.held(), budget.used()), (10_000, 3 * STEP));
        charge.grow(2_288).unwrap();
        assert_eq!(budget.used(), 3 * STEP, "in steps");
        charge.grow(1).unwrap();
        assert_eq!(budget.used(), 4 * STEP);
        charge.shrink(12_289);
        assert_eq!((charge.held(), budget.used()), (0, 0));
        charge.grow(1).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _charge = charge;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_refused_charge_changes_nothing() {
        let budget = budget(4 << 20);
        let mut first = budget.charge(3 << 20).unwrap();
        assert_eq!(first.grow(1), Err(Full));
        assert_eq!((first.held(), budget.used()), (3 << 20, 3 << 20));
        assert_eq!(budget.charge(usize::MAX).err(), Some(Full));
        assert_eq!(first.grow(usize::MAX), Err(Full));
        assert_eq!(budget.used(), 3 << 20);
    }

    #[test]
    fn dispensable_memory_is_reclaimed_before_a_charge_is_refused() {
        let budget = budget(4 << 20);
        let kept = std::sync::Mutex::new(Some(budget.charge(2 << 20).unwrap()));
        budget.reclaim_with(move |bytes| {
            kept.lock()
                .unwrap()
                .take()
                .map_or(0, |kept| kept.held().min(bytes))
        });
        assert_eq!(budget.open().grow_into_free(2 << 20), Err(Full));
        let charge = budget.charge(2 << 20).unwrap();
        assert_eq!(budget.used(), 2 << 20);
        assert_eq!(
            budget.charge(2 << 20).err(),
            Some(Full),
            "nothing is left to go"
        );
        drop(charge);
    }

    #[test]
    fn the_smaller_a_charge_the_more_of_the_reserve_it_may_use() {
        let budget = budget(16 << 20);
        let large: Vec<Charge> = std::iter::from_fn(|| budget.charge(LARGE).ok()).collect();
        assert_eq!(budget.used(), 12 << 20, "a quarter is left");
        assert!(
            budget
                .charge(STEP)
                .is_ok_and(|charge| charge.held() == STEP)
        );
        assert_eq!(budget.open().without_reserve().grow(STEP), Err(Full));
        let half: Vec<Charge> = std::iter::from_fn(|| budget.charge(LARGE / 2).ok()).collect();
        assert_eq!(budget.used(), 14 << 20, "half of it is left");
        let small: Vec<Charge> = std::iter::from_fn(|| budget.charge(STEP).ok()).collect();
        assert!(
            small.len() > 400 && budget.used() <= 16 << 20,
            "{}",
            small.len()
        );
        drop((large, half, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_that_grows_leaves_the_reserve() {
        let budget = budget(16 << 20);
        let _large: Vec<Charge> = std::iter::from_fn(|| budget.charge(LARGE).ok()).collect();
        let mut output = budget.charge(STEP).unwrap();
        let grown = std::iter::from_fn(|| output.grow(STEP).ok()).count() * STEP;
        assert!((16 * STEP..LARGE).contains(&grown), "{grown}");
    }
}
