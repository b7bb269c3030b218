//! Short keyed digests of tokens: who looks one up compares it with no other.

use std::array;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use crate::random;

/// The digest of a token: two runs of std's SipHash under independent secret keys. Without the keys nobody can guess one
/// (but with probability 2^-128), make two tokens collide, or learn anything from the duration of a lookup.
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
}
