//! Reproducible random cases: a seed, a small generator, and the number of cases.
//!
//! `FABRIC_MCP_FUZZ_CASES` sets how many cases each generator runs (the default is quick), `FABRIC_MCP_FUZZ_SEED` the
//! seed. A failing case prints both.

use std::ops::Range;

use serde_json::{Value, json};

/// Environment variable with the number of cases.
const CASES: &str = "FABRIC_MCP_FUZZ_CASES";
/// Environment variable with the seed.
const SEED: &str = "FABRIC_MCP_FUZZ_SEED";

/// SplitMix64: one word of state, good enough to pick test cases.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A deterministic generator for `seed`.
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `range`, which must not be empty.
    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        let width = (range.end - range.start) as u64;
        range.start + (self.next() % width) as usize
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.within(0..n) == 0
    }

    /// One of `items`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.within(0..items.len())]
    }

    /// One of the words of `text`, which have single blanks between them.
    pub(crate) fn word<'a>(&mut self, text: &'a str) -> &'a str {
        let words: Vec<_> = text.split(' ').collect();
        self.pick::<&str>(&words)
    }

    /// Random text with a length in `length`, in characters: mostly plain, with some that breaks parsers.
    pub(crate) fn text(&mut self, length: Range<usize>) -> String {
        const NASTY: [char; 16] = [
            '"', '\\', '\n', '\r', '\t', '\0', '\u{7f}', '\u{85}', '\u{2028}', '\u{feff}',
            '\u{202e}', 'é', '漢', '😀', '{', '\u{fffd}',
        ];
        let mut text = String::new();
        for _ in 0..self.within(length) {
            text.push(if self.one_in(6) {
                *self.pick(&NASTY)
            } else {
                char::from(self.within(0x20..0x7f) as u8)
            });
        }
        text
    }

    /// Any JSON, at most `depth` levels deep; names and texts are often those that the protocol knows.
    pub(crate) fn json(&mut self, depth: usize) -> Value {
        const TEXTS: &str = "fabric_list_patterns summarize page-1 debug 2025-03-26 __proto__";
        const NAMES: &str = "name uri cursor arguments _meta level ref argument type requestId";
        match self.within(0..if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 => json!(self.next() as i64),
            3 => json!(self.next() as f64 / 1e7),
            4 => json!(self.text(0..40)),
            5 => json!(self.word(TEXTS)),
            6 => (0..self.within(0..4))
                .map(|_| self.json(depth - 1))
                .collect(),
            _ => {
                let mut object = json!({});
                for _ in 0..self.within(0..5) {
                    let name = if self.one_in(4) {
                        self.text(0..9)
                    } else {
                        self.word(NAMES).to_owned()
                    };
                    object[name] = self.json(depth - 1);
                }
                object
            }
        }
    }

    /// Changes, doubles, inserts or removes a byte of `bytes`, or cuts it short; it stays at least one byte long.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.within(0..bytes.len());
        match self.within(0..6) {
            0 => bytes[at] = self.next() as u8,
            1 => bytes[at] ^= 1 << self.within(0..8),
            2 => bytes.insert(at, *self.pick(b"{}[]\",:\\0 \n\xff")),
            3 => bytes.insert(at, bytes[at]),
            4 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
}

/// Runs `case` as often as the environment says, else `quick` times, each with a new generator; on failure prints the
/// seed of the case and how to run it alone.
pub(crate) fn cases(quick: u64, mut case: impl FnMut(&mut Rng, u64)) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let count = number(CASES).unwrap_or(quick);
    let first = number(SEED).unwrap_or(1);
    for n in 0..count {
        let seed = first.wrapping_add(n);
        let tell = Tell { seed };
        case(&mut Rng::new(seed), n);
        drop(tell);
    }
}

/// Prints the current seed if a test panics.
struct Tell {
    seed: u64,
}

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failing case: run again with {SEED}={} {CASES}=1",
                self.seed
            );
        }
    }
}
