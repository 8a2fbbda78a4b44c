//! Extents: ranges of bytes in an arena.

use crate::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::RandomState;

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
pub type Table<K, V> = HashMap<K, V, RandomState>;

/// Makes an empty table. Its hash key is secret, because the other side chooses some of the socket numbers.
pub fn table<K, V>() -> Table<K, V> {
    HashMap::with_hasher(RandomState::new())
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
