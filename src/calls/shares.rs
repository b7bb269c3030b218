//! What each named caller holds of the connections, or of the threads for calls: none may hold all of them, by streams
//! that idle or calls that wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::access::Identity;
use crate::sync::lock;

/// What is held by each named caller that holds any.
pub(crate) struct Shares {
    /// Most of one.
    most: usize,
    held: Mutex<HashMap<Identity, usize>>,
}

impl Shares {
    /// Each named caller may hold three quarters of `all`, at least one.
    pub(crate) fn of(all: usize) -> Arc<Shares> {
        Arc::new(Shares {
            most: (all - all / 4).max(1),
            held: Mutex::default(),
        })
    }

    /// Everybody may hold everything.
    pub(crate) fn unlimited() -> Arc<Shares> {
        Arc::new(Shares {
            most: usize::MAX,
            held: Mutex::default(),
        })
    }

    /// One more for this caller; `None` if it has its share, unless it `replaces` one that ends now. Callers without a
    /// name have no share, for several may have the same address.
    pub(crate) fn take(self: &Arc<Shares>, who: &Identity, replaces: bool) -> Option<Share> {
        if self.most == usize::MAX || matches!(who, Identity::Local | Identity::Peer(_)) {
            return Some(Share(None));
        }
        let mut held = lock(&self.held);
        let count = held.get(who).copied().unwrap_or(0);
        if count >= self.most && !replaces {
            return None;
        }
        held.insert(who.clone(), count + 1);
        Some(Share(Some((self.clone(), who.clone()))))
    }
}

/// One part of a caller's share, given back on drop.
pub(crate) struct Share(Option<(Arc<Shares>, Identity)>);

impl Drop for Share {
    fn drop(&mut self) {
        let Some((shares, who)) = &self.0 else { return };
        let mut held = lock(&shares.held);
        if let Some(count) = held.get_mut(who) {
            *count -= 1;
            if *count == 0 {
                held.remove(who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_caller_has_its_share_and_gets_it_back() {
        let shares = Shares::of(4);
        let (alice, bob) = (
            Identity::Token("alice".into()),
            Identity::Token("bob".into()),
        );
        let mut hers: Vec<_> = std::iter::from_fn(|| shares.take(&alice, false)).collect();
        assert_eq!(hers.len(), 3);
        assert!(shares.take(&bob, false).is_some(), "the rest is for others");
        hers.extend(shares.take(&alice, true));
        assert_eq!(hers.len(), 4);
        hers.truncate(3);
        assert!(shares.take(&alice, false).is_none());
        hers.pop();
        assert!(shares.take(&alice, false).is_some());
        drop(hers);
        assert!(lock(&shares.held).is_empty());
        let peer = Identity::Peer([192, 0, 2, 1].into());
        let all: Vec<_> = (0..9).filter_map(|_| shares.take(&peer, false)).collect();
        assert_eq!(all.len(), 9);
    }
}
