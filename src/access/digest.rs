//! Short keyed digests of tokens, so that looking up a token never compares it with another one.

use std::array;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::sync::LazyLock;

use crate::os::random;

/// The digest of a token: two runs of std's SipHash under independent secret keys. Without the keys nobody can guess one
/// (but with probability 2^-128), make two tokens collide, or learn anything from the duration of a lookup.
pub(super) type Digest = u128;

/// The digest of `text`. How long this takes depends only on the length of `text`. The keys are made for this process:
/// std's keys are random but related to each other, so each gets 128 random bits of our own.
pub(super) fn digest(text: &[u8]) -> Digest {
    static KEYED: LazyLock<[DefaultHasher; 2]> = LazyLock::new(|| {
        array::from_fn(|_| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write(random::id().as_bytes());
            hasher
        })
    });
    KEYED.iter().fold(0, |digest, keyed| {
        let mut hasher = keyed.clone();
        hasher.write(text);
        digest << 64 | u128::from(hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_every_byte() {
        let whole = digest(b"abc");
        assert_eq!(whole, digest(b"abc"));
        let expected = whole & u128::from(u64::MAX);
        assert_ne!(whole >> 64, expected, "the halves have keys of their own");
        for other in ["", "abd", "abc\0", "ab", "Abc"] {
            assert_ne!(whole, digest(other.as_bytes()), "{other:?}");
        }
    }
}
