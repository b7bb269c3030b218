//! Short keyed digests of tokens, to look a token up without comparing it with every other.
//!
//! A digest is two runs of std's SipHash under independent secret keys, 128 bits in all. Without the keys nobody can
//! make two tokens collide, or learn anything from the duration of a lookup. Where a digest alone decides
//! (`oauth::answers`) a guess succeeds with probability 2^-128; where the token is known (`tokens`) it is compared as
//! well.

use std::array;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::hint::black_box;

use crate::random;

/// The digest of a token.
pub(super) type Digest = u128;

/// Keys made for this process.
pub(super) struct Keyed([DefaultHasher; 2]);

impl Keyed {
    /// Fresh keys. std's own are random but related to each other, so 128 bits of ours go into each.
    pub(super) fn new() -> Keyed {
        Keyed(array::from_fn(|_| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write(random::id().as_bytes());
            hasher
        }))
    }

    /// The digest of `text`, in a time that depends on its length alone.
    pub(super) fn digest(&self, text: &[u8]) -> Digest {
        self.0.iter().fold(0, |digest, keyed| {
            let mut hasher = keyed.clone();
            hasher.write(text);
            digest << 64 | u128::from(hasher.finish())
        })
    }
}

/// The index of `wanted` in `digests`, which are all different. Takes the same time whether and wherever it is found.
pub(super) fn position(digests: &[Digest], wanted: Digest) -> Option<usize> {
    let mut found = 0;
    for (at, digest) in digests.iter().enumerate() {
        let differs = digest ^ wanted;
        // The top bit of `x | -x` is set unless x is 0.
        let differs = ((differs | differs.wrapping_neg()) >> 127) as usize;
        found |= (at + 1) & differs.wrapping_sub(1);
    }
    black_box(found).checked_sub(1)
}

/// Compares in a time that depends on the length of `given` alone.
pub(super) fn same(given: &[u8], token: &[u8]) -> bool {
    let mut differs = u8::from(given.len() != token.len());
    for (at, byte) in given.iter().enumerate() {
        differs |= byte ^ token.get(at % token.len().max(1)).unwrap_or(&0);
    }
    black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_the_key_and_on_every_byte() {
        let keyed = Keyed::new();
        let digest = keyed.digest(b"abc");
        assert_eq!(digest, keyed.digest(b"abc"));
        assert_ne!(
            digest >> 64,
            digest & u128::from(u64::MAX),
            "the halves have keys of their own"
        );
        for other in ["", "abd", "abc\0", "ab", "Abc"] {
            assert_ne!(digest, keyed.digest(other.as_bytes()), "{other:?}");
        }
        assert_ne!(digest, Keyed::new().digest(b"abc"));
    }

    #[test]
    fn each_place_is_found() {
        let digests = [5, u128::MAX, 1 << 127, 1 << 64, 0, 1];
        for (at, digest) in digests.iter().enumerate() {
            assert_eq!(position(&digests, *digest), Some(at));
        }
        for absent in [2, 1 << 63, (1 << 64) + 1, u128::MAX - 1] {
            assert_eq!(position(&digests, absent), None);
        }
        assert_eq!(position(&[], 0), None);
    }

    #[test]
    fn tokens_compare_whole() {
        for (given, token, equal) in [
            ("abc", "abc", true),
            ("abd", "abc", false),
            ("ab", "abc", false),
            ("abcabc", "abc", false),
            ("", "abc", false),
            ("abc", "", false),
            ("\0", "", false),
        ] {
            assert_eq!(same(given.as_bytes(), token.as_bytes()), equal, "{given}");
        }
    }
}
