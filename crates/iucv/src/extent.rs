//! Extents: ranges of bytes in an arena, and hash tables of numbers.

use crate::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A range of bytes in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte in the arena.
    pub at: u32,
    /// Number of bytes.
    pub len: u32,
}

/// The extents of one record. Most records have one or two.
pub type Extents = SmallVec<[Extent; 4]>;

/// A hash table in which the receiver of a record looks up the record's socket by number.
pub type Table<K, V> = HashMap<K, V, Keys>;

/// Makes an empty table. Its hash keys are secret, because the other side chooses some of the socket numbers.
pub fn table<K, V>() -> Table<K, V> {
    HashMap::with_hasher(Keys::default())
}

/// The secret keys with which a [`Table`] hashes numbers. The default value has random keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    added: u64,
    multiplied: u64,
}

impl Default for Keys {
    fn default() -> Self {
        let random = RandomState::new();
        // An odd factor loses no bit.
        Self { added: random.hash_one(0), multiplied: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for Keys {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher { state: self.added, factor: self.multiplied }
    }
}

/// Hashes numbers: one multiplication for each, of which both halves count. The standard library's function, which hashes texts of any
/// length as well, takes several times as long, and a call on a socket looks up several numbers.
#[derive(Debug)]
pub struct NumberHasher {
    state: u64,
    factor: u64,
}

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.state ^ number) * u128::from(self.factor);
        let half = |part: u128| u64::try_from(part & u128::from(u64::MAX)).unwrap_or(0);
        self.state = half(product) ^ half(product >> 64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

impl Extent {
    /// Makes an extent. Both numbers fit into 32 bits, because the maximum size of an arena does.
    pub fn new(at: usize, len: usize) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), len: u32::try_from(len).unwrap_or(u32::MAX) }
    }

    /// Returns the offset of the first byte in the arena.
    pub fn at(self) -> usize {
        size(self.at)
    }

    /// Returns the number of bytes.
    pub fn len(self) -> usize {
        size(self.len)
    }

    /// Returns whether the extent has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns whether the extent has bytes and all of them lie inside an arena of `arena_bytes` bytes.
    pub fn is_inside(self, arena_bytes: usize) -> bool {
        !self.is_empty() && self.at().checked_add(self.len()).is_some_and(|end| end <= arena_bytes)
    }

    /// Returns the numbers of all blocks of an arena in descending order, so that `Vec::pop` returns the first block first.
    pub fn all_blocks(arena_bytes: usize) -> Vec<u32> {
        let count = u32::try_from(arena_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        (0..count).rev().collect()
    }
}

/// Converts a 32-bit number in a record to a `usize`.
pub fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn consecutive_and_distant_numbers_have_different_places_in_a_table() {
        let keys = Keys::default();
        for step in [1_u64, 2, 64, 1 << 16, 1 << 32, (1 << 31) + 7] {
            let places: HashSet<u64> = (0..1_000).map(|at| keys.hash_one(at * step) & 0xffff).collect();
            assert!(places.len() > 900, "{step}: {}", places.len());
        }
        assert_ne!(keys.hash_one(1_u32), Keys::default().hash_one(1_u32), "the keys are secret");
        assert_ne!(keys.hash_one([1_u8, 2]), keys.hash_one([2_u8, 1]));
    }
}
