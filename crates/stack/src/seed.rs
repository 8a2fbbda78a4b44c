//! What a stack draws from its seed: numbers that peers cannot guess, and a key for its hash tables, so that nobody can choose
//! addresses and ports that all fall into one bucket. Two stacks with one seed do the same.

use std::hash::{BuildHasher, Hasher};

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The source that belongs to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: fold(seed ^ ODD, 0xd6e8_feb8_6659_fd93) }
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(ODD);
        fold(self.state, self.state ^ 0xe703_7ed1_a0b4_28db)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

/// Makes hashers that share one key, which nobody outside knows.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    key: u64,
}

impl Keyed {
    /// The key that belongs to a seed.
    pub fn seeded(seed: u64) -> Self {
        Self::new(&mut Random::new(seed))
    }

    /// A key of its own for one table.
    pub(crate) fn new(random: &mut Random) -> Self {
        Self { key: random.next() }
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.key }
    }
}

/// Folds what it is given by multiplication: some nanoseconds for an address, and no digest.
#[derive(Debug)]
pub struct KeyedHasher {
    state: u64,
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.state = fold(self.state ^ n, ODD).wrapping_add(n);
    }

    fn finish(&self) -> u64 {
        fold(self.state, 0xa076_1d64_78bd_642f)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    u64::try_from(wide >> 64).unwrap_or(0) ^ u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_and_two_seeds_differ() {
        let draw =
            |seed| std::iter::repeat_with(move || seed).take(1).map(Random::new).map(|mut r| [r.next(), r.next()]);
        assert!(draw(7).eq(draw(7)));
        assert!(!draw(7).eq(draw(8)));
        let mut random = Random::new(3);
        assert!((0..1000).all(|_| random.below(10) < 10));
    }

    #[test]
    fn all_that_is_written_changes_the_hash() {
        let keyed = Keyed::new(&mut Random::new(1));
        let writes: [fn(&mut KeyedHasher); 8] = [
            |_| {},
            |hasher| hasher.write_u8(1),
            |hasher| hasher.write_u16(2),
            |hasher| hasher.write_u32(3),
            |hasher| hasher.write_u64(4),
            |hasher| hasher.write(&[5]),
            |hasher| hasher.write(&[0, 0, 0, 0, 0, 0, 0, 6]),
            |hasher| hasher.write(&[0, 0, 0, 0, 0, 0, 0, 6, 7]),
        ];
        let hash = |write: fn(&mut KeyedHasher)| {
            let mut hasher = keyed.build_hasher();
            write(&mut hasher);
            hasher.finish()
        };
        let hashes: std::collections::BTreeSet<u64> = writes.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), writes.len());
    }

    #[test]
    fn keys_scatter_the_same_addresses_differently() {
        let mut random = Random::new(1);
        let (a, b) = (Keyed::new(&mut random), Keyed::new(&mut random));
        let same = (0_u32..1000).filter(|n| a.hash_one(n) % 64 == b.hash_one(n) % 64).count();
        assert!(same < 100, "{same} of 1,000 fall into the same of 64 buckets");
    }
}
