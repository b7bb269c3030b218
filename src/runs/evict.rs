//! Eviction: which runs are removed when a store is full.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::record::{Owner, RunId};

/// What eviction has to know of a run.
pub(super) struct KeptRun<'a> {
    pub(super) id: RunId,
    pub(super) owner: &'a Owner,
    /// When it ended; `None` while it works.
    pub(super) ended: Option<u64>,
    pub(super) bytes: u64,
    /// Announced as a task whose time-to-live is not over.
    pub(super) promised: bool,
}

impl KeptRun<'_> {
    fn may_go(&self) -> bool {
        self.ended.is_some() && !self.promised
    }
}

/// How much a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) runs: usize,
    /// Of finished runs: those of working runs are bounded by their number.
    pub(super) bytes: u64,
}

#[derive(Default)]
struct Holding {
    runs: usize,
    bytes: u64,
    /// What can be evicted, the oldest first.
    free: BinaryHeap<Reverse<(u64, RunId, u64)>>,
}

/// The runs to evict for the rest to be within `bounds`, or as close as possible: each time the oldest finished one of
/// the owner who holds most.
pub(super) fn victims<'a>(
    kept: impl Iterator<Item = KeptRun<'a>> + Clone,
    bounds: Bounds,
) -> Vec<RunId> {
    let (mut runs, mut bytes) = (0, 0);
    for run in kept.clone() {
        runs += 1;
        bytes += if run.ended.is_some() { run.bytes } else { 0 };
    }
    if runs <= bounds.runs && bytes <= bounds.bytes {
        return Vec::new();
    }
    let mut owners: HashMap<&Owner, Holding> = HashMap::new();
    for run in kept {
        let holding = owners.entry(run.owner).or_default();
        holding.runs += 1;
        holding.bytes += run.bytes;
        if let Some(ended) = run.ended.filter(|_| run.may_go()) {
            holding.free.push(Reverse((ended, run.id, run.bytes)));
        }
    }
    let mut owners: Vec<Holding> = owners
        .into_values()
        .filter(|holding| !holding.free.is_empty())
        .collect();
    let mut gone = Vec::new();
    while runs > bounds.runs || bytes > bounds.bytes {
        let by_bytes = bytes > bounds.bytes;
        let largest = owners
            .iter_mut()
            .filter(|holding| !holding.free.is_empty())
            .max_by_key(|holding| {
                let size = if by_bytes {
                    holding.bytes
                } else {
                    holding.runs as u64
                };
                // Of equals, whoever's run is the oldest.
                (size, holding.free.peek().copied())
            });
        let Some((holding, Reverse((_, id, size)))) =
            largest.and_then(|h| h.free.pop().map(|run| (h, run)))
        else {
            break;
        };
        holding.runs -= 1;
        holding.bytes -= size;
        runs -= 1;
        bytes -= size;
        gone.push(id);
    }
    gone
}

/// Is there room for one more run of `owner` that cannot be evicted? What is promised to one of several callers may not
/// exceed what is left: else one could fill the store, and the runs of all others would be evicted as they end.
pub(super) fn has_room<'a>(
    others: impl Iterator<Item = KeptRun<'a>>,
    owner: &Owner,
    bounds: Bounds,
) -> bool {
    let (mut runs, mut bytes) = (0, 0);
    let (mut own_runs, mut own_bytes) = (0, 0);
    for run in others.filter(|run| !run.may_go()) {
        (runs, bytes) = (runs + 1, bytes + run.bytes);
        if run.promised && run.owner == owner && matches!(owner, Owner::Named(_)) {
            (own_runs, own_bytes) = (own_runs + 1, own_bytes + run.bytes);
        }
    }
    let (free_runs, free_bytes) = (
        bounds.runs.saturating_sub(runs),
        bounds.bytes.saturating_sub(bytes),
    );
    free_runs > 0 && free_bytes > 0 && own_runs <= free_runs && own_bytes <= free_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner::Folder;
    const B: Owner = Owner::Key;

    fn id(number: u8) -> RunId {
        RunId::parse(&format!("run_{number:032x}")).unwrap()
    }

    /// (number, owner, ended, bytes, promised)
    type Row = (u8, Owner, Option<u64>, u64, bool);

    fn kept(rows: &[Row]) -> impl Iterator<Item = KeptRun<'_>> + Clone {
        rows.iter()
            .map(|(number, owner, ended, bytes, promised)| KeptRun {
                id: id(*number),
                owner,
                ended: *ended,
                bytes: *bytes,
                promised: *promised,
            })
    }

    fn gone(rows: &[Row], runs: usize, bytes: u64) -> Vec<RunId> {
        victims(kept(rows), Bounds { runs, bytes })
    }

    #[test]
    fn the_oldest_of_whoever_holds_most_goes_first() {
        let rows = [
            (1, B, Some(1), 5, false),
            (2, A, Some(9), 1, false),
            (3, A, Some(8), 1, false),
        ];
        assert_eq!(gone(&rows, 3, 7), []);
        assert_eq!(gone(&rows, 2, 7), [id(3)], "A has two runs");
        assert_eq!(
            gone(&rows, 1, 7),
            [id(3), id(1)],
            "then both have one, and B's is older"
        );
        assert_eq!(gone(&rows, 3, 6), [id(1)], "B has most bytes");
        assert_eq!(gone(&rows, 0, 0).len(), 3);
    }

    #[test]
    fn what_works_or_is_promised_stays() {
        let rows = [
            (1, A, None, 90, false),
            (2, A, Some(1), 90, true),
            (3, B, Some(5), 1, false),
        ];
        assert_eq!(
            gone(&rows, 2, 1000),
            [id(3)],
            "A holds most but has nothing that may go"
        );
        assert_eq!(gone(&rows, 0, 0), [id(3)]);
        assert_eq!(gone(&rows, 3, 91), [], "what works is not counted in bytes");
    }

    #[test]
    fn room_is_what_may_go_or_is_free() {
        let room = |rows: &[Row], runs, bytes| has_room(kept(rows), &A, Bounds { runs, bytes });
        let rows = [
            (1, A, None, 10, false),
            (2, A, Some(1), 10, true),
            (3, B, Some(5), 10, false),
        ];
        assert!(room(&rows, 3, 21));
        assert!(!room(&rows, 2, 21));
        assert!(!room(&rows, 3, 20));
        assert!(room(&[], 1, 1) && !room(&[], 0, 0));
    }

    #[test]
    fn what_is_promised_to_one_caller_leaves_as_much_to_others() {
        let [me, you] = ["me", "you"].map(|name| Owner::Named(name.into()));
        let rows = |owner: &Owner, count: u8| -> Vec<Row> {
            (0..count)
                .map(|number| (number, owner.clone(), Some(1), 10, true))
                .collect()
        };
        let room =
            |rows: &[Row], owner, runs, bytes| has_room(kept(rows), owner, Bounds { runs, bytes });
        assert!(room(&rows(&me, 5), &me, 10, 1000) && !room(&rows(&me, 6), &me, 10, 1000));
        assert!(room(&rows(&me, 5), &me, 99, 100) && !room(&rows(&me, 6), &me, 99, 100));
        assert!(
            room(&rows(&me, 6), &you, 10, 1000),
            "others have what is left"
        );
        assert!(
            room(&rows(&A, 9), &A, 10, 1000),
            "where all are one owner there are no others"
        );
    }

    #[test]
    fn many_are_found_fast() {
        let owners: Vec<Owner> = (0..50).map(|n| Owner::Named(format!("{n}"))).collect();
        let runs = (0..30_000_u64).map(|n| KeptRun {
            id: RunId::parse(&format!("run_{n:032x}")).unwrap(),
            owner: &owners[n as usize % 50],
            ended: Some(n),
            bytes: 1,
            promised: false,
        });
        assert_eq!(
            victims(
                runs,
                Bounds {
                    runs: 10_000,
                    bytes: u64::MAX
                }
            )
            .len(),
            20_000
        );
    }
}
