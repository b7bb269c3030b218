//! SHA-256 (FIPS 180-4), for digests in manifests and of tokens. The time it takes depends only on the length.

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The initial state: the same of the square roots of the first eight primes.
const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// The digest of some bytes in lower-case hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut state = START;
    let mut blocks = bytes.chunks_exact(64);
    for block in &mut blocks {
        mix(&mut state, block);
    }
    // A 1 bit, zeros, and the length in bits fill up the last block, or two.
    let mut last = blocks.remainder().to_vec();
    last.push(0x80);
    last.resize(if last.len() > 56 { 120 } else { 56 }, 0);
    last.extend((bytes.len() as u64 * 8).to_be_bytes());
    last.chunks_exact(64)
        .for_each(|block| mix(&mut state, block));
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn mix(state: &mut [u32; 8], block: &[u8]) {
    let mut words = [0; 64];
    for (word, four) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*four);
    }
    for at in 16..64 {
        let (x, y) = (words[at - 15], words[at - 2]);
        let small = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
        let large = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
        words[at] = sum([words[at - 16], small, words[at - 7], large]);
    }
    let mut letters = *state;
    for (round, word) in ROUNDS.into_iter().zip(words) {
        let [a, b, c, d, e, f, g, h] = letters;
        let large = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = sum([h, large, choice, round, word]);
        let small = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let (a_next, e_next) = (sum([first, small, majority]), sum([d, first]));
        letters = [a_next, a, b, c, e_next, e, f, g];
    }
    *state = std::array::from_fn(|at| sum([state[at], letters[at]]));
}

/// Modulo 2^32.
fn sum<const N: usize>(words: [u32; N]) -> u32 {
    words.into_iter().fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_vectors() {
        let long = b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
        let million = vec![b'a'; 1_000_000];
        let messages: [&[u8]; 5] = [
            b"",
            b"abc",
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            long,
            &million,
        ];
        let digests = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ];
        assert_eq!(messages.map(sha256_hex), digests);
    }

    #[test]
    fn lengths_around_a_block_are_padded_right() {
        // Digests of so many `x`, by another implementation.
        let lengths = [55, 56, 63, 64, 119, 120];
        let digests = [
            "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072",
            "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e",
            "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2",
            "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c",
            "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c",
            "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98",
        ];
        let found = lengths.map(|length| sha256_hex(&vec![b'x'; length]));
        assert_eq!(found, digests);
    }
}
